/*
 * wire.h: the messages between a client and a node, as docs/protocol.md draws them. Pure: encodes into and
 * decodes from memory that the caller gives; decoded structs point into it. All numbers little-endian,
 * nothing padded but what is drawn.
 *
 * Every message is a head (in the transport's header), then for REQUEST and REPLY a body of operations, for
 * BULK the list of parts behind the head.
 */
#ifndef PST_WIRE_H
#define PST_WIRE_H

#include "base/base.h"

enum {
    /* Version of a session: the highest that both sides speak, agreed on the bootstrap socket. */
    PST_WIRE_VERSION = 5,
    PST_WIRE_VERSION_TTL = 4,  /* has puts with a TTL */
    PST_WIRE_VERSION_POOL = 5, /* has the codes of pool.h */
    PST_WIRE_VERSION_OLDEST = 2,
    PST_WIRE_VERSION_DURABLE = 4, /* has FLUSH, and puts that are DURABLE */

    PST_WIRE_OPS_MAX = 256, /* in one message */
    PST_WIRE_PLACES = 1024, /* of requests underway, in a session and shard */
    PST_WIRE_BODY_BYTES_MAX = 120 << 10,
    PST_WIRE_INLINE_BYTES_MAX = 2048, /* larger values travel in bulk messages */
    PST_WIRE_PARTS_MAX = 128,         /* in one bulk message */
    PST_WIRE_KEY_BYTES_MAX = 4096,
    PST_WIRE_QUESTION_BYTES_MAX = 60 << 10, /* attrs of an operation for a role */
    PST_WIRE_OP_BYTES_MAX =
        40 + 2 * PST_WIRE_KEY_BYTES_MAX + PST_WIRE_INLINE_BYTES_MAX, /* encoded request op */
    PST_WIRE_RESULT_BYTES_MAX = 38, /* encoded result, without attributes and data */
};

enum pst_wire_type {
    PST_WIRE_HELLO = 1, /* client to shard: are you there; answered by WELCOME */
    PST_WIRE_WELCOME = 2,
    PST_WIRE_REQUEST = 3, /* op_count operations */
    PST_WIRE_REPLY = 4,   /* op_count results, in the order of the request */
    PST_WIRE_BULK = 5,    /* bytes of large values of a request or a reply */
};

/* Operation codes; the first seven and those of slots are penstock.h's. */
enum pst_wire_code {
    PST_WIRE_PUT = 1,
    PST_WIRE_GET = 2,
    PST_WIRE_STAT_KEY = 3,
    PST_WIRE_DELETE = 4,
    PST_WIRE_PIN = 5, /* bytes: time in ms, 0 for ever */
    PST_WIRE_UNPIN = 6,
    PST_WIRE_CHECK = 7,  /* if_generation; only behind COMMIT */
    PST_WIRE_LIST = 16,  /* from key to attrs (the end); bytes: room; flag AFTER. Data: entries */
    PST_WIRE_SWEEP = 17, /* delete from key to attrs; flags AFTER, SPARE. Data: deleted, spared, resume key */
    PST_WIRE_STAT = 18,  /* data: u64 figures */
    PST_WIRE_PING = 19,
    PST_WIRE_VIEW = 20,    /* data: struct pst_wire_view, then runs; result.generation is the value's */
    PST_WIRE_RELEASE = 21, /* if_generation: the view's handle */
    PST_WIRE_RESERVE =
        22, /* bytes: of the value, UINT64_MAX: it grows. Data: struct pst_wire_slot, location */
    PST_WIRE_SLOT_WRITE = 23,  /* if_generation: handle; offset; the value as of a put */
    PST_WIRE_SLOT_COMMIT = 24, /* if_generation: handle; attrs: location; depth: tier; bytes */
    PST_WIRE_SLOT_ABORT = 25,  /* if_generation: handle */
    PST_WIRE_COMMIT = 26,      /* bytes: how many of the operations behind it belong to it */
    PST_WIRE_FLUSH = 27,       /* until all of the shard is durable */
    PST_WIRE_COPY = 28,        /* attrs: struct pst_wire_copy and what the value has; the value as of a put */
    PST_WIRE_COPY_SEND =
        29, /* the key's value is sent to who joins its slot; attrs: pst_wire_target, or none */
    PST_WIRE_COPY_CLEAR = 30, /* from key on; attrs: struct pst_wire_cleared; IF_GENERATION: later ones are
                                 higher. Data as of SWEEP */
    PST_WIRE_CODE_MAX = 30,
    PST_WIRE_WATCH_OPEN = 32,  /* of the prefix in key; result.generation is its handle */
    PST_WIRE_WATCH_NEXT = 33,  /* if_generation: handle; offset: ms to wait; bytes: room. Data: changes */
    PST_WIRE_WATCH_CLOSE = 34, /* if_generation: handle */
    /* Of a node's role beside its store, in attrs; bytes: room. Data: the answer. See pool.h. */
    PST_WIRE_ROLE_FIRST = 64,
    PST_WIRE_ROLE_LAST = 95,
};

enum pst_wire_op_flag {
    PST_WIRE_IF_ABSENT = 1,     /* get, beside IF_GENERATION: unless it has that generation */
    PST_WIRE_IF_GENERATION = 2, /* u64 if_generation follows */
    PST_WIRE_CHECKSUM = 4,      /* u32 crc32c follows */
    PST_WIRE_FROM_END = 4,      /* get: PENSTOCK_FROM_END; never sent, the offset says it */
    PST_WIRE_RANGE = 8,         /* u64 offset follows */
    PST_WIRE_EXACT = 16,
    PST_WIRE_VALUE_IN_BULK = 32, /* put: the value comes by BULK, not behind the operation */
    PST_WIRE_AFTER = 64,         /* list, sweep: the key itself is left out */
    PST_WIRE_DURABLE = 64,       /* put: answered when a crash would not lose it */
    PST_WIRE_WAIT = 64,          /* get: of a key that is not there, for if_generation ms */
    PST_WIRE_MOVES = 64,         /* watch: of values that move between memory and SSD, too */
    PST_WIRE_SPARE = 128,        /* sweep, delete: leave pinned keys; get: attributes are wanted */
    PST_WIRE_REPLACE = 128,      /* reserve: neither owns the key nor respects who does */
};

struct pst_wire_head {
    uint8_t type;
    uint8_t version;
    uint16_t count;      /* operations or parts */
    uint32_t request;    /* the client's number of the request, returned in everything that belongs to it:
                            its place in the low bits, how often the place was used above them */
    uint64_t token;      /* of the session */
    uint32_t timeout_ms; /* REQUEST: time left until the client gives up */
    uint32_t bulk_count; /* REPLY: bulk messages that belong to it; BULK: its index among them, 0 in version
                            1; HELLO, WELCOME: shard */
};
_Static_assert(sizeof(struct pst_wire_head) == 24, "wire head");

struct pst_wire_part {
    uint32_t op; /* its place in the request */
    uint32_t spare;
    uint64_t offset; /* inside the operation's bytes */
    uint64_t bytes;
};
_Static_assert(sizeof(struct pst_wire_part) == 24, "wire part");

struct pst_wire_op {
    uint8_t code;
    uint8_t flags;
    uint16_t depth;
    uint32_t crc;
    struct pst_bytes key;
    struct pst_bytes attrs; /* list, sweep: the range's end */
    uint64_t bytes;
    uint64_t offset;
    uint64_t if_generation;
    const void *value; /* put without VALUE_IN_BULK: bytes of it */
};

enum pst_wire_copied { PST_WIRE_COPIED_PUT, PST_WIRE_COPIED_DELETE };

/* What the primary of a slot tells its copies: a value of its, or that values up to a generation are gone. */
struct pst_wire_copy {
    uint64_t slot_epoch; /* 0: the key may lie anywhere, and what is there stays */
    uint64_t generation;
    uint64_t expires_ms; /* of the real-time clock; 0: never */
    uint32_t crc;
    uint8_t what;
    uint8_t checksum; /* crc is the value's */
    uint8_t spare[2];
};
_Static_assert(sizeof(struct pst_wire_copy) == 32, "wire copy");

/* Whom a value that may lie anywhere is sent to. */
struct pst_wire_target {
    uint16_t member;
    uint8_t spare[6];
};
_Static_assert(sizeof(struct pst_wire_target) == 8, "wire target");

/* A slot of which a copy is to have nothing; epoch 0: a node that has it no more. */
struct pst_wire_cleared {
    uint64_t slot_epoch;
    uint16_t slot;
    uint8_t spare[6];
};
_Static_assert(sizeof(struct pst_wire_cleared) == 16, "wire cleared");

enum pst_wire_result_flag {
    PST_WIRE_SIZE = 1,    /* u64 value_bytes follows; else it is `bytes` */
    PST_WIRE_CRC = 2,     /* u32 follows */
    PST_WIRE_ATTRS = 4,   /* u16 length, and the attributes in front of the data */
    PST_WIRE_IN_BULK = 8, /* `bytes` of data come by BULK */
};

struct pst_wire_result {
    int16_t result;
    uint8_t flags;
    uint8_t copies; /* of a write that was done: nodes that have it; 0: the one that answers */
    uint32_t bytes; /* of data here; with IN_BULK u64 of the same name */
    uint32_t crc;
    uint64_t generation;
    uint64_t value_bytes;
    uint64_t bulk_bytes;
    struct pst_bytes attrs;
    const void *data;
};

/* Entry of a LIST's data: fixed part, then the key. */
struct pst_wire_entry {
    uint64_t generation;
    uint64_t value_bytes;
    uint16_t key_bytes;
    uint16_t depth;
    uint8_t cache;
    uint8_t on_ssd;
    uint8_t spare[2];
};
_Static_assert(sizeof(struct pst_wire_entry) == 24, "wire entry");

enum pst_wire_what {
    PST_WIRE_CHANGE_PUT = 1,
    PST_WIRE_CHANGE_DELETED = 2,
    PST_WIRE_CHANGE_EVICTED = 3,
    PST_WIRE_CHANGE_MISSED = 4, /* value_bytes changes came and went unread; no key */
    PST_WIRE_CHANGE_MOVED = 6,  /* 5 is the library's own */
};

/* Entry of a WATCH_NEXT's data: fixed part, then the key. */
struct pst_wire_change {
    uint64_t generation; /* of the value that came or went */
    uint64_t value_bytes;
    uint16_t key_bytes;
    uint8_t what;
    uint8_t on_ssd; /* where the value lies, or lay */
    uint8_t spare[4];
};
_Static_assert(sizeof(struct pst_wire_change) == 24, "wire change");

/* Data of a SWEEP, then the key to go on behind. */
struct pst_wire_sweep {
    uint64_t deleted;
    uint64_t spared;
    uint8_t done;
    uint8_t spare;
    uint16_t resume_bytes;
    uint32_t left; /* that are not this node's to delete */
};
_Static_assert(sizeof(struct pst_wire_sweep) == 24, "wire sweep");

/* Data of a VIEW: pieces in the arena range, in order. */
struct pst_wire_view {
    uint64_t handle;
    uint64_t value_bytes;
    uint32_t piece_count;
    uint32_t spare;
};
struct pst_wire_piece {
    uint64_t offset; /* from the start of the arena range: arena = offset / stride */
    uint64_t bytes;
};

/* Data of a RESERVE, then the location's text. */
struct pst_wire_slot {
    uint64_t handle;
    uint64_t bytes;
    uint8_t tier;
    uint8_t spare[5];
    uint16_t location_bytes;
};
_Static_assert(sizeof(struct pst_wire_slot) == 24, "wire slot");
/* Whether operations of the code bring a value. */
bool pst_wire_writes(uint8_t code);
bool pst_wire_code_known(uint8_t code);

/* True for operations that may be answered late, and so travel alone. */
static inline bool pst_wire_waits(uint8_t code, uint8_t flags)
{
    return (code == PST_WIRE_GET && flags & PST_WIRE_WAIT) || code == PST_WIRE_WATCH_NEXT;
}

/* Encoders write at @at and return the end. The caller has made sure of the room (PST_WIRE_*_BYTES_MAX). */
uint8_t *pst_wire_put_op(uint8_t *at, const struct pst_wire_op *op);
uint8_t *pst_wire_put_result(uint8_t *at, const struct pst_wire_result *result);
size_t pst_wire_op_bytes(const struct pst_wire_op *op);

/*
 * Decoders read one element at *@at, never behind @end, and move *@at on.
 * Return: 0 or -EPROTO when it does not fit, names an unknown code or breaks a bound.
 */
int pst_wire_get_op(const uint8_t **at, const uint8_t *end, struct pst_wire_op *op);
int pst_wire_get_result(const uint8_t **at, const uint8_t *end, struct pst_wire_result *result);
/* Return: 0 or -EPROTO: short, a version that is not spoken, unknown type, count over its bound, parts cut
 * off. */
int pst_wire_get_head(struct pst_bytes header, struct pst_wire_head *head);
/* Part @index of a BULK header that pst_wire_get_head() accepted. */
struct pst_wire_part pst_wire_get_part(struct pst_bytes header, uint32_t index);
/* Of two numbers of one place: whether @request was given out after @earlier. Counts wrap around. */
static inline bool pst_wire_later(uint32_t request, uint32_t earlier)
{
    pst_assert(request % PST_WIRE_PLACES == earlier % PST_WIRE_PLACES);
    return (int32_t)(request - earlier) > 0;
}

#endif
