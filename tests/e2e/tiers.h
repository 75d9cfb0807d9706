/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tiers.h: stores with an SSD below their memory. Each test has one of its own, with little memory, and
 * writes more than fits.
 */
#ifndef E2E_TIERS_H
#define E2E_TIERS_H

#include "e2e.h"

#include <stdio.h>

#define MIB (1ull << 20)

enum { COUNT = 72 };

static inline uint64_t size_of(int i)
{
    static const uint64_t some[] = {1 << 20, 700000, 65536, 4096, 300000, 65537, 100, 2049, 1 << 20};

    return some[i % 9];
}

static inline const char *key_of(int i)
{
    static char key[4][32];
    static int at;

    at = (at + 1) % 4;
    snprintf(key[at], sizeof(key[at]), "t/%03d", i);
    return key[at];
}

static inline void open_small(struct place *place, const char *cache_prefix)
{
    place_open_ssd(place, fixture.kind, "16M", cache_prefix, "256M");
}

static inline void put_all(struct penstock *store, int seed)
{
    for (int i = 0; i < COUNT; i++)
        put_value(store, key_of(i), size_of(i), seed + i);
}

static inline void expect_all(struct penstock *store, int seed)
{
    for (int i = 0; i < COUNT; i++)
        expect_bytes(store, key_of(i), size_of(i), seed + i);
}

/* Puts 28 MB into 16 MiB, so that early values lie on SSD alone. */
static inline void spill(struct place *place, int seed)
{
    put_all(place->store, seed);
    assert_true(stat_of(place->store).ssd_keys > 0);
}

/* How many of the listed values are what @is asks for. */
static inline uint64_t listed_of(struct penstock *store, bool (*is)(const struct penstock_entry *entry))
{
    struct penstock_entry entry;
    struct penstock_list *list;
    uint64_t count = 0;

    assert_result(penstock_list_open(store, NULL, &list), 0);
    while (penstock_list_next(list, &entry) == 1)
        count += is(&entry);
    penstock_list_close(list);
    return count;
}

#endif
