/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ghosts.c: keys that were evicted, in 4 bytes each: 14 bits of their hash, their line and when they were
 * touched last, as a number of touches divided by so much that 16 bits suffice. A key has one bucket of a
 * cache line, where the oldest makes room. There are twice as many places as records, so that few are lost
 * before their time: the page of a chain that is not recognised costs all that are behind it.
 */
#include "store/policy.h"

#include <stdlib.h>

enum {
    BUCKET = 16,
    PLACES_A_RECORD = 2,
    COUNT_MIN = 1024,
    COUNT_MAX = 1 << 30,
};

_Static_assert((COUNT_MIN & (COUNT_MIN - 1)) == 0 && COUNT_MIN >= BUCKET, "a table is whole buckets");
_Static_assert(PST_LINES <= 4, "a ghost's line has 2 bits");

static uint32_t *bucket_of(const struct pst_ghosts *g, uint64_t hash)
{
    pst_assert(g->entries);
    pst_assert(g->count >= BUCKET);
    pst_assert((g->count & (g->count - 1)) == 0);
    return &g->entries[(hash >> 16) & (g->count - 1) & ~(uint64_t)(BUCKET - 1)];
}

/* 0 is a free place. */
static uint32_t tag_of(uint64_t hash)
{
    uint32_t tag = (uint32_t)(hash >> 48 & 0x3fff);

    pst_assert(tag <= 0x3fff);
    return tag + (tag == 0);
}

/* Long after an entry has given way, its time would seem to come again. */
static uint16_t time_of(const struct pst_ghosts *g, uint64_t clock)
{
    pst_assert(g->count >= COUNT_MIN);
    return (uint16_t)(clock * COUNT_MIN / g->count);
}

static uint16_t age_of(const struct pst_ghosts *g, uint32_t entry, uint64_t clock)
{
    return (uint16_t)(time_of(g, clock) - (entry & UINT16_MAX));
}

void pst_ghosts_fit(struct pst_ghosts *g, uint64_t records)
{
    uint32_t larger = g->count ? g->count : COUNT_MIN;
    uint32_t *entries;

    if (pst_likely(records * PLACES_A_RECORD <= g->count) || g->count == COUNT_MAX)
        return;
    while (larger < records * PLACES_A_RECORD && larger < COUNT_MAX)
        larger *= 2;
    entries = calloc(larger, sizeof(*entries));
    if (!entries)
        return;
    pst_assert(larger > g->count && larger <= COUNT_MAX);
    free(g->entries);
    g->entries = entries;
    g->count = larger;
}

void pst_ghosts_add(struct pst_ghosts *g, uint64_t hash, struct pst_ghost ghost, uint64_t clock)
{
    uint32_t *bucket, *oldest;

    pst_assert(ghost.line < 4);
    if (!g->count)
        return;
    bucket = oldest = bucket_of(g, hash);
    for (int i = 1; i < BUCKET && *oldest; i++) {
        if (!bucket[i] || age_of(g, bucket[i], clock) > age_of(g, *oldest, clock))
            oldest = &bucket[i];
    }
    *oldest = tag_of(hash) << 18 | ghost.line << 16 | time_of(g, ghost.stamp);
}

bool pst_ghosts_take(struct pst_ghosts *g, uint64_t hash, uint64_t clock, struct pst_ghost *out)
{
    uint32_t *bucket = g->count ? bucket_of(g, hash) : NULL;

    for (int i = 0; bucket && i < BUCKET; i++) {
        uint64_t age;

        if (bucket[i] >> 18 != tag_of(hash))
            continue;
        age = (uint64_t)age_of(g, bucket[i], clock) * g->count / COUNT_MIN;
        *out = (struct pst_ghost){.line = bucket[i] >> 16 & 3, .stamp = clock - pst_min(age, clock)};
        bucket[i] = 0;
        return true;
    }
    return false;
}

void pst_ghosts_fini(struct pst_ghosts *g)
{
    free(g->entries);
    *g = (struct pst_ghosts){0};
}
