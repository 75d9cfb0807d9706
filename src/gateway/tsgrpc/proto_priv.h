/* SPDX-License-Identifier: Apache-2.0 */
/*
 * proto_priv.h: the messages of tsgrpc_kvstore. Pure; any thread. Nothing of a peer is believed before its
 * length was checked.
 */
#ifndef PST_DOORS_PROTO_PRIV_H
#define PST_DOORS_PROTO_PRIV_H

#include "base/limits.h"
#include "gateway/grpc/wire_priv.h"

enum {
    PROTO_REQUEST_BYTES_MAX = 16 << 10, /* of a message other than Write's: two keys and change */
    PROTO_GENERATION_BYTES = 9,
    PROTO_HEAD_BYTES_MAX = 64,                      /* of all that precedes a part of a value */
    PROTO_ENTRY_BYTES_MAX = PST_KEY_BYTES_MAX + 32, /* of a listing */
};

/* ---- generations ---- */

enum generation_kind {
    GENERATION_UNKNOWN, /* "": of a condition: none; of an answer: the condition did not hold */
    GENERATION_ABSENT,  /* "\x02": there is no value */
    GENERATION_VALUE,   /* "\0" and eight bytes */
    GENERATION_FOREIGN, /* some other store's: no value here has it */
};

struct generation {
    enum generation_kind kind;
    uint64_t number; /* not 0 with GENERATION_VALUE */
};

struct generation proto_generation(struct pst_bytes bytes);
bool generation_equal(struct generation a, struct generation b);

/* ---- requests of one message ---- */

struct read_request {
    struct pst_bytes key; /* this and all bytes below lie in the message */
    struct generation if_equal, if_not_equal;
    int64_t min, max; /* bytes wanted; max -1: to the end; min < 0: counted from the end */
};

struct delete_request {
    struct pst_bytes key;
    bool ranged; /* delete [start, end) instead of the key; an empty end: no end */
    struct pst_bytes start, end;
    struct generation if_equal;
};

struct list_request {
    struct pst_bytes start, end;
    uint64_t strip_bytes; /* of each key, from its front */
};

/* Return: 0, -EINVAL not such a message. */
int proto_read_request(struct pst_bytes message, struct read_request *out);
int proto_delete_request(struct pst_bytes message, struct delete_request *out);
int proto_list_request(struct pst_bytes message, struct list_request *out);
/*
 * The range of a value of @value_bytes that @request means.
 * Return: 0, -ERANGE it does not lie in the value.
 */
int proto_range(const struct read_request *request, uint64_t value_bytes, uint64_t *offset, uint64_t *bytes);

/* ---- Write: messages of any length, read in pieces ---- */

/* Key and condition are the first message's; every message may carry a part of the value. */
struct write_reader {
    struct frame_reader frame;
    uint8_t step;
    uint8_t varint_bytes;
    uint8_t condition[PROTO_GENERATION_BYTES];
    uint32_t condition_bytes; /* that the request has: more than fit make it a foreign one */
    uint32_t key_bytes;
    uint32_t field;
    bool part_seen; /* in this message */
    uint64_t varint;
    uint64_t field_left;
    uint64_t messages; /* that have ended */
    uint8_t key[PST_KEY_BYTES_MAX];
};

/*
 * Takes bytes off @input up to the next piece of the value.
 * Return: 1 *@piece lies in what was @input; 0 @input is used up; -EINVAL not such a message, -ENAMETOOLONG
 * the key, -EOPNOTSUPP compressed.
 */
int write_next(struct write_reader *reader, struct pst_bytes *input, struct pst_bytes *piece);
/* True between messages, behind the first: where a stream may end. */
bool write_whole(const struct write_reader *reader);
struct generation write_condition(const struct write_reader *reader);

/* ---- answers ---- */

enum read_state { READ_UNSPECIFIED = 0, READ_MISSING = 1, READ_VALUE = 2 };

/* Frame and message of a ReadResponse up to its part of @part_bytes, which the caller sends behind it.
 * Return: bytes written. */
size_t proto_read_head(uint8_t out[PROTO_HEAD_BYTES_MAX], struct generation generation, uint64_t wall_ns,
                       enum read_state state, uint32_t part_bytes);
/* The same of a later message, which has nothing but its part. */
size_t proto_part_head(uint8_t out[PROTO_HEAD_BYTES_MAX], uint32_t part_bytes);
/* A whole WriteResponse or DeleteResponse. */
size_t proto_written(uint8_t out[PROTO_HEAD_BYTES_MAX], struct generation generation, uint64_t wall_ns);
/* One entry. Return: bytes written, PROTO_ENTRY_BYTES_MAX at the most. */
size_t proto_entry(uint8_t *out, struct pst_bytes key, uint64_t value_bytes);

#endif
