/* SPDX-License-Identifier: Apache-2.0 */
/* route.h: which shard serves a key. Part of the protocol: client and node compute it alike from the
 * session's seed. */
#ifndef PST_ROUTE_H
#define PST_ROUTE_H

#include "base/base.h"
#include "base/hash.h"

enum { PST_PARTITIONS = 4096 };

static inline uint32_t pst_route_shard(struct pst_bytes key, uint64_t partition_seed, uint32_t shard_count)
{
    uint32_t partition = (uint32_t)pst_hash64(key.data, key.len, partition_seed) & (PST_PARTITIONS - 1);

    return partition * shard_count / PST_PARTITIONS;
}

#endif
