/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pool.h: what a pool's master is asked, and answers: the operations from PST_WIRE_ROLE_FIRST on, as
 * docs/reference/protocol.md ("The pool") draws them. The question is an operation's attributes, the answer
 * its result's data. Pure: encodes into and decodes from memory that the caller gives, whatever its
 * alignment.
 *
 * Numbers of members, epochs and hashes mean nothing in another pool. A question with any of them begins with
 * the pool's id, and a master of another pool refuses it with -EXDEV.
 */
#ifndef PST_WIRE_POOL_H
#define PST_WIRE_POOL_H

#include "wire/wire.h"

enum pst_pool_code {
    PST_POOL_JOIN = PST_WIRE_ROLE_FIRST,
    PST_POOL_LEAVE,
    PST_POOL_HEARTBEAT,
    PST_POOL_MAP, /* known_version; offset: where the piece begins. The question:
                      the pool's id, or nothing from who knows none yet */
    PST_POOL_SUSPECT,
    PST_POOL_LOCATE,
    PST_POOL_PLACE,
    PST_POOL_FIGURES, /* no question; the answer is text, "name value" lines */
    PST_POOL_COPIES,  /* of partitions: struct pst_pool_copy, in any number. No answer: the pool map tells */
    PST_POOL_REPAIR,  /* a node's keys: what of them is to be sent where */
    PST_POOL_DRAIN,   /* struct pst_pool_drain. No answer */
    PST_POOL_NODES,   /* offset: the first member's number. Answer: struct pst_pool_node, in any number */
    PST_POOL_FORGIVE, /* no question, no answer: partitions that lost values are like others */
    PST_POOL_SHARE,   /* struct pst_pool_share. No answer */
    PST_POOL_REPORT = 80,
    PST_POOL_REVOKE,
    PST_POOL_MATCH, /* flag HIT. The question is hashes, as that of the next */
    PST_POOL_HITS,
};

enum {
    PST_POOL_ID_BYTES = 16,
    PST_POOL_ADDRESS_BYTES = 128, /* texts are with their NUL here; on the wire without */
    PST_POOL_TAGS_BYTES = 64,
    PST_POOL_TIER_COUNT = 3, /* tier 1 HBM, 2 DRAM, 3 SSD */
    PST_POOL_EVENTS_MAX = 2048,
    PST_POOL_EVENT_BYTES = 26, /* on the wire, without what is spare */
    PST_POOL_WANT_COUNT_MAX = 256,
    PST_POOL_LOCATE_MAX = 256,
    PST_POOL_PLACE_MAX = 256,
    PST_POOL_ROUTE_PLACES_MAX = 6,
    PST_POOL_NODES_MAX = 128, /* in one answer */
    PST_POOL_REPORT_MAX = 256,
    PST_POOL_MATCH_MAX = 256,
    PST_POOL_BUSY = 4, /* result, as PENSTOCK_BUSY: ask again */
    PST_POOL_NO_PRIMARY =
        7, /* result of an operation on a key: all replicas of its partition are gone, for now */
    PST_POOL_STANDBY = -EREMCHG,   /* result: this master does not lead. Its answer is who does, or nothing */
    PST_POOL_OTHER_SHARE = -ENXIO, /* result: keys of another share of the directory are in the question */
    PST_POOL_COPIES_MAX = 1024,
    PST_POOL_REVOKE_MAX = 16384,      /* that go at a time; as many: there may be more, ask again */
    PST_POOL_ANSWER_BYTES = 60 << 10, /* room for an answer that may be long; no node fills more */
    PST_POOL_BLOCK_TIERS = 4,         /* of what engines hold: 0 unknown, 1 HBM, 2 DRAM, 3 SSD */
};

struct pst_pool_use {
    uint64_t capacity_bytes, used_bytes;
};

/* Whether a node is to be needed for nothing any more. */
struct pst_pool_drain {
    uint8_t id[PST_POOL_ID_BYTES];
    uint8_t drains;
    uint8_t spare[7];
};
_Static_assert(sizeof(struct pst_pool_drain) == 24, "pool drain");

enum pst_pool_node_flag {
    PST_POOL_NODE_DRAINS = 1,
    PST_POOL_NODE_DRAINED = 2,
    PST_POOL_NODE_SUSPECT = 4,
    PST_POOL_NODE_STUCK = 8, /* it drains, and the others are on too few hosts for that ever to end */
};

struct pst_pool_node {
    uint8_t id[PST_POOL_ID_BYTES];
    char address[PST_POOL_ADDRESS_BYTES]; /* "host:port", or a unix socket's path; with its NUL */
    uint64_t keys_left;                   /* of one that drains: that lie on it, and on too few others */
    struct pst_pool_use dram;
    uint32_t primaries, copies; /* partitions */
    uint16_t member;
    uint8_t flags;
    uint8_t spare[5];
};
_Static_assert(sizeof(struct pst_pool_node) == 184, "pool node");

/* Answer to a VIEW; a piece of the pool map's bytes follows. */
struct pst_pool_map {
    uint64_t map_bytes; /* of all of it; 0: the asker has it */
};

/* ---- what all of them are made of ---- */

/* A struct of fixed size. Return: 0 or -EPROTO: it is not as long as @bytes. */
int pst_pool_get(struct pst_bytes from, void *to, size_t bytes);
/* A head, then @count structs of @item_bytes each. */
size_t pst_pool_put_items(uint8_t *to, const void *head, size_t head_bytes, const void *items,
                          size_t item_bytes, uint32_t count);
/* @head gets the first @head_bytes, @items whatever follows, up to @count_max. Return: their number, or
 * -EPROTO. */
int pst_pool_get_items(struct pst_bytes from, void *head, size_t head_bytes, void *items, size_t item_bytes,
                       uint32_t count_max);

#endif
