/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cache_priv.h: where keys that may lie anywhere were found or put. What it says may be wrong by now: the
 * node itself knows.
 */
#ifndef PST_POOL_CACHE_PRIV_H
#define PST_POOL_CACHE_PRIV_H

#include "pool/map.h"
#include "wire/pool_key.h"

struct pool_cache *pst_pool_cache_open(void);
void pst_pool_cache_add(struct pool_cache *cache, const struct pst_hash128 *key, uint16_t member);
void pst_pool_cache_drop(struct pool_cache *cache, const struct pst_hash128 *key);
/* Return: how many @places. */
uint32_t pst_pool_cache_find(const struct pool_cache *cache, const struct pst_hash128 *key,
                             uint16_t places[PST_POOL_ROUTE_PLACES_MAX]);

#endif
