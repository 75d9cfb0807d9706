/*
 * ghosts.c: keys that were evicted, remembered by 32 bits of their hash. Each has one bucket of a cache line,
 * where the longest gone makes room; two keys that share tag and bucket are taken for one, which costs no
 * more than a place.
 */
#include "store/policy.h"

#include <stdlib.h>

enum {
    BUCKET = 8,
    COUNT_MIN = 256,
    COUNT_MAX = 1 << 28,
};

static uint64_t *bucket_of(const struct pst_ghosts *g, uint32_t tag)
{
    return &g->entries[tag & (g->count - 1) & ~(uint32_t)(BUCKET - 1)];
}

static uint32_t tag_of(uint64_t hash)
{
    return (uint32_t)(hash >> 32);
}

/* How many went after the entry's key did. */
static uint32_t age_of(const struct pst_ghosts *g, uint64_t entry)
{
    return g->number - (uint32_t)entry;
}

void pst_ghosts_fit(struct pst_ghosts *g, uint64_t count)
{
    uint32_t larger = g->count ? g->count : COUNT_MIN;
    uint64_t *entries;

    if (pst_likely(count <= g->count) || g->count == COUNT_MAX)
        return;
    while (larger < count && larger < COUNT_MAX)
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
    uint64_t *bucket, *oldest;

    if (!g->count)
        return;
    bucket = oldest = bucket_of(g, tag_of(hash));
    for (int i = 1; i < BUCKET && *oldest; i++) {
        if (!bucket[i] || age_of(g, bucket[i]) > age_of(g, *oldest))
            oldest = &bucket[i];
    }
    g->number += g->number == UINT32_MAX ? 2 : 1; /* no entry is 0 */
    *oldest = (uint64_t)tag_of(hash) << 32 | g->number;
}

bool pst_ghosts_take(struct pst_ghosts *g, uint64_t hash, uint64_t count)
{
    uint64_t *bucket = g->count ? bucket_of(g, tag_of(hash)) : NULL;

    for (int i = 0; bucket && i < BUCKET; i++) {
        if (bucket[i] && bucket[i] >> 32 == tag_of(hash)) {
            bool recent = age_of(g, bucket[i]) < count;

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
