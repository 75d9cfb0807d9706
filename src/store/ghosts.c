/*
 * ghosts.c: keys that were evicted, in 4 bytes each: 15 bits of their hash and when they went, as a number of
 * evictions divided by so much that 16 bits suffice. A key has one bucket of a cache line, where the longest
 * gone makes room. There are twice as many places as records, so that few are lost before their time: the
 * page of a chain that is not recognised costs all that are behind it.
 */
#include "store/policy.h"

#include <stdlib.h>

enum {
    BUCKET = 16,
    PLACES_A_RECORD = 2,
    COUNT_MIN = 1024,
    COUNT_MAX = 1 << 30,
};

static uint32_t *bucket_of(const struct pst_ghosts *g, uint64_t hash)
{
    return &g->entries[(hash >> 16) & (g->count - 1) & ~(uint64_t)(BUCKET - 1)];
}

/* 0 is a free place. */
static uint16_t tag_of(uint64_t hash)
{
    return (uint16_t)(hash >> 48 | 1);
}

/* Long after an entry has given way, its time would seem to come again. */
static uint16_t time_of(const struct pst_ghosts *g, uint64_t evictions)
{
    return (uint16_t)(evictions * COUNT_MIN / g->count);
}

static uint16_t age_of(const struct pst_ghosts *g, uint32_t entry)
{
    return (uint16_t)(time_of(g, g->evictions) - (entry & UINT16_MAX));
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
    free(g->entries);
    g->entries = entries;
    g->count = larger;
}

void pst_ghosts_add(struct pst_ghosts *g, uint64_t hash)
{
    uint32_t *bucket, *oldest;

    if (!g->count)
        return;
    bucket = oldest = bucket_of(g, hash);
    for (int i = 1; i < BUCKET && *oldest; i++) {
        if (!bucket[i] || age_of(g, bucket[i]) > age_of(g, *oldest))
            oldest = &bucket[i];
    }
    *oldest = (uint32_t)tag_of(hash) << 16 | time_of(g, g->evictions++);
}

bool pst_ghosts_take(struct pst_ghosts *g, uint64_t hash, uint64_t evictions)
{
    uint32_t *bucket = g->count ? bucket_of(g, hash) : NULL;

    for (int i = 0; bucket && i < BUCKET; i++) {
        if (bucket[i] >> 16 == tag_of(hash)) {
            bool recent = age_of(g, bucket[i]) <= time_of(g, evictions);

            bucket[i] = 0;
            return recent;
        }
    }
    return false;
}

void pst_ghosts_fini(struct pst_ghosts *g)
{
    free(g->entries);
    *g = (struct pst_ghosts){0};
}
