/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store.h: the engine. A *store* is a node's memory cut into *shards*; each shard owns the keys of its
 * partitions. Whoever opens a store includes this; what is done with keys: shard.h, read.h, put.h, keys.h,
 * reservation.h, change.h.
 *
 * A shard is used by one thread at a time (its own, or whoever holds its lock when embedded). Shards share
 * only the page bitmap and a few figures about memory pressure. Nothing here blocks, sleeps, logs or knows a
 * network.
 */
#ifndef PST_STORE_STORE_H
#define PST_STORE_STORE_H

#include "base/base.h"
#include "mem/arena.h"
#include "store/tier.h"

struct pst_store;
struct pst_shard;

enum {
    PST_SHARDS_MAX = 256,
    PST_CLASSES_MAX = 64,
};

/* Something about the keys with this prefix that have no longer one of the same kind. */
struct pst_prefix_number {
    struct pst_bytes prefix;
    uint64_t number;
};

struct pst_store_options {
    struct pst_arena_options arenas;
    uint32_t shard_count;
    uint32_t watermark_percent;        /* eviction starts when more of the pages are in use */
    const char *const *cache_prefixes; /* keys that begin with one of them are `cache`; others are `keep` */
    uint32_t cache_prefix_count;
    const char *policy; /* which of those goes first (policy.h); NULL: the default */
    const struct pst_prefix_number *quotas;
    uint32_t quota_count;
    const struct pst_prefix_number *ttls; /* in ms: how long values live that do not say so themselves */
    uint32_t ttl_count;
    struct pst_tier_options ssd;
    struct pst_device_options hbm;
};

/* Return: 0, -EINVAL, -ENOMEM, -ENOSPC; *@fault names the reason (see pst_arenas_open(), pst_log_open()). */
int pst_store_open(const struct pst_store_options *options, struct pst_store **out, const char **fault);
struct pst_store *pst_store_close(struct pst_store *store);
/* Brings what is in memory to its SSD, before the close: no one calls its shards any more. Return: 0, or
 * -errno of a value that could not be written. */
int pst_store_settle(struct pst_store *store);
/* Its SSD was held: now it may be written. Any thread. Return: 0 or -errno with *@fault. */
int pst_store_begin(struct pst_store *store, const char **fault);

struct pst_shard *pst_store_shard(struct pst_store *store, uint32_t index);
uint32_t pst_store_shard_count(const struct pst_store *store);
const struct pst_arenas *pst_store_arenas(const struct pst_store *store);
uint64_t pst_store_value_bytes_max(const struct pst_store *store);
/* True when a shard other than @but (NULL: any) has values that are over, for its next tick to drop. Any
 * thread. */
bool pst_store_has_ended(const struct pst_store *store, const struct pst_shard *but, uint64_t now_ns);

/* What was there when the store was opened. */
struct pst_restored {
    bool taken_up; /* there was something to look at */
    uint64_t keys, value_bytes;
    uint64_t dropped; /* records whose memory was not theirs alone */
    uint64_t moved;   /* to another shard, since there is another number of them */
    uint64_t held;    /* pages that stay as they are, since clients of the earlier process look at them */
    uint64_t ms;
    uint64_t ssd_keys, ssd_dropped, ssd_ms; /* the same of the log */
};
const struct pst_restored *pst_store_restored(const struct pst_store *store);

/* Keys the hash that routes keys to shards (wire/route.h); random, as long as the arenas live. */
uint64_t pst_store_partition_seed(const struct pst_store *store);

#endif
