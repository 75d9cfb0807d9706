/* SPDX-License-Identifier: Apache-2.0 */
/* cache.c: where keys were found, or put by us. Of a fixed size: what is new takes the place of what is
 * old. Advice alone: the node compares the key, and who is sent to the wrong one asks the master. */
#include "client/pool/pool_priv.h"

enum {
    SETS = 1 << 14,
    WAYS = 4,
    PLACES = 3,
};

struct entry {
    struct pst_hash128 key; /* 0, 0: none */
    uint16_t places[PLACES];
    uint16_t count;
};

struct pool_cache {
    uint8_t next[SETS]; /* the way whose turn it is to give way */
    struct entry sets[SETS][WAYS];
};

struct pool_cache *pst_pool_cache_open(void)
{
    return calloc(1, sizeof(struct pool_cache));
}

static struct entry *find(struct pool_cache *cache, const struct pst_hash128 *key)
{
    struct entry *set = cache->sets[key->low % SETS];

    for (int i = 0; i < WAYS; i++) {
        if (set[i].key.low == key->low && set[i].key.high == key->high && set[i].count)
            return &set[i];
    }
    return NULL;
}

void pst_pool_cache_add(struct pool_cache *cache, const struct pst_hash128 *key, uint16_t member)
{
    struct entry *entry = find(cache, key);

    if (!entry) {
        uint32_t set = (uint32_t)(key->low % SETS);

        entry = &cache->sets[set][cache->next[set]++ % WAYS];
        *entry = (struct entry){.key = *key};
    }
    pst_assert(entry->count <= PLACES);
    for (uint16_t i = 0; i < entry->count; i++) {
        if (entry->places[i] == member)
            return;
    }
    if (entry->count < PLACES)
        entry->places[entry->count++] = member;
    pst_assert(entry->count > 0 && entry->count <= PLACES);
}

void pst_pool_cache_drop(struct pool_cache *cache, const struct pst_hash128 *key)
{
    struct entry *entry = find(cache, key);

    if (entry)
        entry->count = 0;
}

uint32_t pst_pool_cache_find(const struct pool_cache *cache, const struct pst_hash128 *key,
                             uint16_t places[PST_POOL_ROUTE_PLACES_MAX])
{
    const struct entry *entry = find((struct pool_cache *)(uintptr_t)cache, key);

    _Static_assert((int)PLACES <= (int)PST_POOL_ROUTE_PLACES_MAX, "places of a key");
    if (!entry)
        return 0;
    pst_assert(entry->count > 0 && entry->count <= PLACES);
    memcpy(places, entry->places, entry->count * sizeof(places[0]));
    return entry->count;
}
