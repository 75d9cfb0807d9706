/* route.h: which shard serves a key. Part of the protocol: client and node compute it alike from the
 * session's seed. */
#ifndef PST_ROUTE_H
#define PST_ROUTE_H

#include "base/base.h"
#include "base/hash.h"

enum { PST_SLOTS = 4096 };

static inline uint32_t pst_route_shard(struct pst_bytes key, uint64_t slot_seed, uint32_t shard_count)
{
    uint32_t slot = (uint32_t)pst_hash64(key.data, key.len, slot_seed) & (PST_SLOTS - 1);

    return slot * shard_count / PST_SLOTS;
}

#endif
