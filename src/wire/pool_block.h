/* SPDX-License-Identifier: Apache-2.0 */
/* pool_block.h: blocks that engines hold in memory of their own. */
#ifndef PST_WIRE_POOL_BLOCK_H
#define PST_WIRE_POOL_BLOCK_H

#include "wire/pool.h"

enum pst_pool_scope { PST_POOL_OF_HASHES, PST_POOL_OF_TIER, PST_POOL_OF_NODE };

/* In front of the hashes of REPORT and REVOKE. */
struct pst_pool_blocks {
    uint8_t id[PST_POOL_ID_BYTES]; /* the node's */
    uint8_t tier;
    uint8_t scope; /* of REVOKE: what goes */
    uint8_t spare[6];
};
_Static_assert(sizeof(struct pst_pool_blocks) == 24, "pool blocks");

/* What a node has of a MATCH: bit i % 64 of word i / 64 is the question's hash i. */
struct pst_pool_match {
    uint8_t id[PST_POOL_ID_BYTES];
    uint32_t hash_count;
    uint16_t member;
    uint16_t spare;
    uint64_t tiers[PST_POOL_BLOCK_TIERS][PST_POOL_MATCH_MAX / 64];
};
_Static_assert(sizeof(struct pst_pool_match) == 152, "pool match");

#endif
