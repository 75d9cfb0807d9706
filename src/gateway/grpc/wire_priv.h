/* SPDX-License-Identifier: Apache-2.0 */
/*
 * wire_priv.h: gRPC's frames, and the fields of protobuf's messages. Pure; any thread. Nothing of a peer is
 * believed before its length was checked.
 *
 *     0             1                5
 *     +-------------+----------------+------------------------------+
 *     | compressed  | length         | message: length bytes        |
 *     | u8, 0       | u32 big-endian | fields: tag, length or value |
 *     +-------------+----------------+------------------------------+
 */
#ifndef PST_GRPC_WIRE_PRIV_H
#define PST_GRPC_WIRE_PRIV_H

#include "base/base.h"

enum { PROTO_FRAME_BYTES = 5, PROTO_VARINT_BYTES_MAX = 10 };

/* ---- frames ---- */

struct frame_reader {
    uint8_t head[PROTO_FRAME_BYTES];
    uint8_t head_bytes; /* that are there */
    uint32_t left;      /* of the message whose head is whole */
};

/*
 * Takes bytes off @input until a frame's head is whole.
 * Return: 1 it is, and @reader->left bytes of message follow; 0 @input is used up; -EOPNOTSUPP a compressed
 * message.
 */
int frame_head(struct frame_reader *reader, struct pst_bytes *input);
/* The head of a frame whose message has @bytes. */
void proto_frame_head(uint8_t out[PROTO_FRAME_BYTES], uint32_t bytes);
/* Up to @count bytes off the front of @input. */
struct pst_bytes proto_take(struct pst_bytes *input, uint64_t count);

/* ---- reading fields ---- */

enum wire_type { WIRE_VARINT = 0, WIRE_64 = 1, WIRE_BYTES = 2, WIRE_32 = 5 };

struct field {
    uint32_t number;
    uint32_t type;
    uint64_t value;         /* of a varint */
    struct pst_bytes bytes; /* of all others; they lie in the message */
};

/* Return: 0, -EINVAL it does not end, or has more than 64 bits. */
int proto_take_varint(struct pst_bytes *in, uint64_t *out);
/* Return: 1 and the next field, 0 at the end, -EINVAL. */
int proto_next(struct pst_bytes *in, struct field *out);

/* Whether it is field @number; one of another type counts as one that nobody knows, as in any protobuf
 * reader. */
static inline bool proto_is(const struct field *field, uint32_t number, enum wire_type type)
{
    return field->number == number && field->type == (uint32_t)type;
}

/* ---- writing fields ---- */

size_t proto_varint_bytes(uint64_t value);
/* Each returns what is behind the bytes that it wrote; @number below 16. */
uint8_t *proto_put_varint(uint8_t *at, uint64_t value);
uint8_t *proto_put_tag(uint8_t *at, uint32_t number, enum wire_type type);
uint8_t *proto_put_bytes(uint8_t *at, uint32_t number, const void *data, size_t bytes);
/* Nothing for 0. */
uint8_t *proto_put_number(uint8_t *at, uint32_t number, uint64_t value);

#endif
