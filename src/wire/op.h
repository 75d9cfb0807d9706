/* SPDX-License-Identifier: Apache-2.0 */
/*
 * op.h: one operation of a REQUEST: its flags, its members, and which of them its code may have.
 */
#ifndef PST_WIRE_OP_H
#define PST_WIRE_OP_H

#include "base/base.h"
#include "base/limits.h"
#include "wire/codes.h"

enum {
    PST_WIRE_COPIES_MAX = 7,
    PST_WIRE_OPS_MAX = 256,           /* in one message */
    PST_WIRE_INLINE_BYTES_MAX = 2048, /* larger values travel in bulk messages */
    PST_WIRE_KEY_BYTES_MAX = 4096,
    PST_WIRE_QUESTION_BYTES_MAX = 60 << 10, /* attrs of an operation for a role */
    PST_WIRE_OP_BYTES_MAX =
        40 + 2 * PST_WIRE_KEY_BYTES_MAX + PST_WIRE_INLINE_BYTES_MAX, /* encoded request op */
};

_Static_assert(PST_WIRE_QUESTION_BYTES_MAX <= UINT16_MAX, "attributes have a length of 16 bits");
_Static_assert((int)PST_WIRE_KEY_BYTES_MAX == (int)PST_KEY_BYTES_MAX, "keys on the wire are the engine's");

/* A bit has one meaning; the lower ones are those of penstock.h. */
enum pst_wire_op_flag {
    PST_WIRE_IF_ABSENT = 1 << 0,
    PST_WIRE_IF_GENERATION = 1 << 1, /* u64 if_generation follows */
    PST_WIRE_CHECKSUM = 1 << 2,
    PST_WIRE_TTL = 1 << 3, /* u64 ttl_ms follows */
    PST_WIRE_EXACT = 1 << 4,
    PST_WIRE_UNLESS_GENERATION = 1 << 5, /* u64 if_generation follows */
    PST_WIRE_DURABLE = 1 << 6,
    PST_WIRE_REPLACE = 1 << 7,
    PST_WIRE_RANGE = 1 << 8, /* u64 offset follows */
    PST_WIRE_FROM_END = 1 << 9,
    PST_WIRE_WAIT = 1 << 10,
    /* The library's own: */
    PST_WIRE_OWN_FLAGS = 0xff << 16,
    PST_WIRE_VALUE_IN_BULK = 1 << 16, /* the value comes by BULK, not behind the operation */
    PST_WIRE_IN_RESERVATION =
        1 << 17, /* put of a commit: u64 value_reservation follows, the reservation with the value */
    PST_WIRE_AFTER = 1 << 18,      /* list, sweep, copy clear: the key itself is left out */
    PST_WIRE_SPARE = 1 << 19,      /* sweep, delete: leave pinned keys */
    PST_WIRE_WANT_ATTRS = 1 << 20, /* get, stat key: attributes are wanted */
    PST_WIRE_MOVES = 1 << 21,      /* watch: of values that move between memory and SSD, too */
    PST_WIRE_FLOOR = 1 << 22, /* copy clear: u64 generation_floor follows; later generations are higher */
    PST_WIRE_HIT = 1 << 23,   /* match, of a role: counts as a hit */
};

_Static_assert((PST_WIRE_OWN_FLAGS & (PST_WIRE_WAIT * 2 - 1)) == 0, "public flags are the low ones");
_Static_assert((PST_WIRE_HIT | PST_WIRE_FLOOR) < PST_WIRE_OWN_FLAGS + (1 << 16), "own flags have their bits");

/* Members that share a place have the code's meaning, as in struct penstock_op. */
struct pst_wire_op {
    uint8_t code;
    uint8_t copies; /* put: wished for, in a pool; 0: what is said of the key's prefix. Up to COPIES_MAX */
    union {
        uint16_t depth;
        uint16_t tier; /* reservation commit */
    };
    uint32_t flags;
    union {
        uint32_t value_crc; /* with CHECKSUM */
        uint32_t wait_ms;   /* get with WAIT, watch next */
    };
    struct pst_bytes key;
    struct pst_bytes
        attrs; /* list, sweep: the range's end; reservation commit: the location; role: a question */
    union {
        uint64_t bytes;
        uint64_t pin_ms;       /* 0: for ever */
        uint64_t member_count; /* commit: how many of the operations behind it are its own */
    };
    union {
        uint64_t offset;
        uint64_t ttl_ms;
        uint64_t value_reservation;
    };
    union {
        uint64_t if_generation;
        uint64_t handle;
        uint64_t known_version;
        uint64_t generation_floor;
    };
    const void *value; /* without VALUE_IN_BULK: bytes of it */
};

/* Its value comes by itself, behind the request. */
static inline bool pst_wire_in_bulk(const struct pst_wire_op *op)
{
    return op->flags & PST_WIRE_VALUE_IN_BULK && pst_code_has(op->code, PST_CODE_VALUE);
}

/*
 * Whether an operation that was decoded may be asked for: its flags, key, attributes and sizes are those of
 * its code, @member: as one behind COMMIT. From then on nobody asks again. Return: 0 or -EPROTO.
 */
int pst_wire_check(const struct pst_wire_op *op, bool member);
/* The flags that the code's operations may have. */
uint32_t pst_wire_may(uint8_t code, bool member);
/* Whether flags of a get go together. */
bool pst_wire_get_fits(uint32_t flags, uint64_t offset);

/* Where the range of a get begins: from INT64_MAX + 1 on it counts back from the value's end. */
static inline uint64_t pst_wire_range_offset(uint32_t flags, uint64_t offset)
{
    return flags & PST_WIRE_FROM_END ? -offset : pst_min(offset, (uint64_t)INT64_MAX);
}

/* True for operations that may be answered late, and so travel alone. */
static inline bool pst_wire_waits(uint8_t code, uint32_t flags)
{
    uint32_t traits = pst_code_traits(code);

    return traits & PST_CODE_WAITS || (traits & PST_CODE_MAY_WAIT && flags & PST_WIRE_WAIT);
}

/* Writes at @at and returns the end. The caller has made sure of the room, PST_WIRE_OP_BYTES_MAX. */
uint8_t *pst_wire_put_op(uint8_t *at, const struct pst_wire_op *op);
size_t pst_wire_op_bytes(const struct pst_wire_op *op);
/*
 * Reads one at *@at, never behind @end, and moves *@at on. Return: 0 or -EPROTO when it does not fit, names
 * an unknown code or breaks a bound.
 */
int pst_wire_get_op(const uint8_t **at, const uint8_t *end, struct pst_wire_op *op);

#endif
