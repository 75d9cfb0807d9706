/* SPDX-License-Identifier: Apache-2.0 */
/*
 * recency.h: the part of a record by which eviction orders it. record.h includes it for its size; the files
 * of evict/ read it.
 */
#ifndef PST_STORE_RECENCY_H
#define PST_STORE_RECENCY_H

#include "base/base.h"

struct pst_recency {
    uint64_t newer : 40, stamp_low : 24; /* references, 0 at the ends; when it was touched: the policy's */
    uint64_t older : 40, stamp_high : 8, : 16;
    uint64_t touched_ms : 44; /* when it was used, or a page of its chain; recency's clock */
    uint64_t uses : 4;        /* since it came to its place; the policy's */
    uint64_t line : 4;        /* which of its group's */
    uint64_t group : 12;      /* which of the shard's; see pst_lines */
};
_Static_assert(sizeof(struct pst_recency) == 24, "recency layout");

#define PST_REF_MASK ((1ull << 40) - 1)

enum { PST_RECENCY_MS_MIN = 1 << 16 }; /* now is later: pages of a chain are older than its first */

static inline void pst_recency_touched(struct pst_recency *rec, uint64_t ms)
{
    rec->touched_ms = ms & ((1ull << 44) - 1); /* 557 years */
}

static inline uint32_t pst_recency_stamp(const struct pst_recency *rec)
{
    return (uint32_t)(rec->stamp_high << 24 | rec->stamp_low);
}

static inline void pst_recency_set_stamp(struct pst_recency *rec, uint64_t stamp)
{
    rec->stamp_low = stamp & 0xffffff;
    rec->stamp_high = stamp >> 24 & 0xff;
}

#endif
