/* SPDX-License-Identifier: Apache-2.0 */
/*
 * result.h: one result of a REPLY, and the data that some codes' results have.
 */
#ifndef PST_WIRE_RESULT_H
#define PST_WIRE_RESULT_H

#include "base/base.h"

enum {
    PST_WIRE_RESULT_BYTES_MAX = 38, /* encoded, without attributes and data */
};

enum pst_wire_result_flag {
    PST_WIRE_SIZE = 1,    /* u64 value_bytes follows; else it is `bytes` */
    PST_WIRE_CRC = 2,     /* u32 follows */
    PST_WIRE_ATTRS = 4,   /* u16 length, and the attributes in front of the data */
    PST_WIRE_IN_BULK = 8, /* `bytes` of data come by BULK */
    PST_WIRE_DETAIL =
        16, /* of a failure: u64 limit_bytes follows, and prefix_bytes is in place of generation */
};

struct pst_wire_result {
    int16_t result;
    uint8_t flags;
    uint8_t copies; /* of a write that was done: nodes that have it; 0: the one that answers */
    uint32_t bytes; /* of data here; with IN_BULK u64 of the same name */
    uint32_t crc;
    union {
        uint64_t generation;
        uint64_t prefix_bytes; /* with DETAIL, as in struct penstock_error_detail */
    };
    union {
        uint64_t value_bytes;
        uint64_t limit_bytes; /* with DETAIL */
    };
    uint64_t bulk_bytes;
    struct pst_bytes attrs;
    const void *data;
};

/* Where a value lies. */
enum pst_wire_away { PST_WIRE_IN_MEMORY = 0, PST_WIRE_ON_SSD = 1, PST_WIRE_ON_DEVICE = 2 };

/* Entry of a LIST's data: fixed part, then the key. */
struct pst_wire_entry {
    uint64_t generation;
    uint64_t value_bytes;
    uint16_t key_bytes;
    uint16_t depth;
    uint8_t cache;
    uint8_t away;   /* enum pst_wire_away */
    uint8_t copies; /* as of a put */
    uint8_t spare;
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
    uint8_t away; /* where the value lies, or lay */
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
struct pst_wire_reservation {
    uint64_t handle;
    uint64_t bytes;
    uint8_t tier;
    uint8_t spare[5];
    uint16_t location_bytes;
};
_Static_assert(sizeof(struct pst_wire_reservation) == 24, "wire reservation");

/* As pst_wire_put_op() and pst_wire_get_op(); the room is PST_WIRE_RESULT_BYTES_MAX, attributes and data. */
uint8_t *pst_wire_put_result(uint8_t *at, const struct pst_wire_result *result);
int pst_wire_get_result(const uint8_t **at, const uint8_t *end, struct pst_wire_result *result);

#endif
