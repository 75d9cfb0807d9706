/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shard_priv.h: the state of a store and of its shards. Every file of store/ that works in one includes it;
 * what they do for each other: link_priv.h, memory_priv.h, pins_priv.h, write_priv.h, evict_priv.h,
 * tiering_priv.h.
 */
#ifndef PST_STORE_SHARD_PRIV_H
#define PST_STORE_SHARD_PRIV_H

#include "mem/arena.h"
#include "mem/pages.h"
#include "mem/slab.h"
#include "store/figures.h"
#include "store/policy.h"
#include "store/record.h"
#include "store/shard.h"
#include "store/store.h"

enum {
    PST_STATE_RESERVED = 4, /* record state: being written, in no index */
    PST_CLAIM_BUCKETS = 4096,
};

struct pst_claim;
struct pst_expiry;
struct pst_index;
struct pst_kept;
struct pst_listeners;
struct pst_log;
struct pst_order;
struct pst_pin;
struct pst_tier;

struct pst_pins {
    struct pst_pin **buckets;
    uint64_t bucket_count; /* a power of two, or 0 */
    uint64_t count;
    uint64_t bytes; /* of the values that they keep */
};

struct pst_claims {
    uint32_t locks; /* claims of commits among them */
    struct pst_claim *buckets[PST_CLAIM_BUCKETS];
};

/* Values with an end: expiry.c. */
struct pst_expiries {
    struct pst_expiry *heap;
    uint64_t count, room;
    uint64_t live;    /* records with a time that keys name */
    uint64_t pending; /* that are being written, for which there is room */
    uint64_t wall_ms; /* what time it is */
};

struct pst_shard {
    struct pst_store *store;
    uint8_t *base;       /* of the arenas: offsets count from here */
    uint32_t cell_shift; /* the arenas' */
    struct pst_index *index;
    struct pst_order *order;
    struct pst_slab *slab;
    struct pst_pins pins;
    struct pst_tier *tier; /* NULL: the store has neither a log nor a device */
    uint64_t hash_seed;
    uint64_t generation;     /* the last one given; the low byte is the shard */
    uint64_t generation_max; /* none above it yet: pst_generations_take() */
    uint64_t changes;        /* counts whatever a record's reference may not survive */
    struct pst_lines *lines; /* of records that may go, one for each group */
    uint64_t listed;         /* records in them */
    uint64_t ssd_cache_keys; /* that may be evicted, and whose values are on SSD alone */
    uint64_t doomed_count;
    uint64_t all_kept_ms; /* when eviction last found only records that someone keeps */
    uint64_t gone_count;  /* values that made room */
    uint32_t number;
    uint32_t listener_count; /* waits and watches: whether anyone is to be told of a change */
    uint32_t ready_count;    /* waits that are ready */
    struct pst_listeners *listeners;
    struct pst_shard_stat stat;
    struct pst_shard_later stat_later;
    struct pst_shard_device stat_device;
    struct pst_run *runs; /* scratch, PST_RUNS_MAX */
    struct pst_claims claims;
    struct pst_expiries expiries;
    uint64_t reservation_handle; /* the last one given */

    /* Read by other shards. */
    _Atomic uint32_t puts_underway; /* their memory is taken, their values are still on the way */
    _Atomic uint64_t tail_ms; /* when the record at the cold end was used; UINT64_MAX: nothing to evict */
    _Atomic uint64_t ends_ms; /* when the first value ends that no commit keeps; UINT64_MAX: none does */
} __attribute__((aligned(128)));

struct pst_prefix_quota {
    const struct pst_prefix_number *limit; /* in bytes */
    _Atomic uint64_t bytes;                /* of values that are there or being written */
    _Atomic uint64_t wanted;               /* a write was told to wait until there is room for so many more */
    _Atomic uint64_t wanted_ns;            /* when; 0: nobody waits */
    _Atomic bool evicting;                 /* a shard does so for another's write */
};

struct pst_store {
    struct pst_arenas arenas;
    struct pst_pages pages;
    struct pst_log *log; /* NULL: none */
    uint32_t shard_count;
    uint32_t pages_low; /* fewer free pages than this start eviction */
    uint64_t partition_seed;
    uint32_t check_seed;
    uint64_t start_ns;     /* monotonic */
    uint64_t epoch_ns;     /* recency counts from here; modulo 2^64, since it may be before the clock's 0 */
    struct pst_kept *kept; /* NULL: the arenas end with the store */
    pthread_mutex_t words_lock; /* of what is kept */
    struct pst_restored restored;
    const struct pst_policy *policy;
    uint64_t wall_offset_ms; /* from the monotonic clock to the real-time one, modulo 2^64 */
    struct pst_prefix_number *ttls;
    uint32_t ttl_count;
    struct pst_prefix_number *limits;
    struct pst_prefix_quota *quotas; /* one for each limit */
    uint32_t quota_count;
    uint32_t group_count; /* of lines in each shard: those of no quota, then each quota's */
    uint32_t cache_prefix_count;
    struct pst_bytes cache_prefixes[PST_CLASSES_MAX];
    struct pst_shard *shards;
    struct pst_learnt *learnt;     /* for each group */
    _Atomic uint32_t extent_pages; /* in use by values of their own pages, written and unfinished ones */
    _Atomic uint32_t cache_pages;  /* those among them whose keys may be evicted */
    _Atomic uint32_t spill_pages;  /* of other values that may go to the log */
    uint32_t pages_spare;      /* that writes leave free, so that what is away can be read; 0: nothing is */
    uint32_t away_pages_max;   /* of a value that is away: those, but for the cells that it takes, too */
    _Atomic uint32_t saves;    /* values on their way to the log, and back */
    _Atomic uint32_t reclaims; /* segments that shards take back */
    _Atomic uint32_t saving_pages;  /* of values on their way to the log, which will then go */
    _Atomic uint32_t lifts;         /* values on their way to a device */
    _Atomic uint64_t device_errors; /* copies that failed */
    uint64_t device_locked;         /* arenas, a bit each, whose memory is locked for copies */
    _Atomic bool ssd_full;          /* the log took no more when it was last asked */
    _Atomic uint32_t pages_wanted;  /* a write was told to wait until this many pages are free */
    _Atomic uint64_t wanted_ns;     /* when; it asks again soon, or has given up */
};

/* References name records in the indexes: the offset in units of cells' starts + 1, so that 0 is none. */
static inline uint64_t pst_ref_of_offset(const struct pst_shard *s, uint64_t offset)
{
    pst_assert(offset >> s->cell_shift << s->cell_shift == offset);
    return (offset >> s->cell_shift) + 1;
}

static inline uint64_t pst_ref_offset(const struct pst_shard *s, uint64_t ref)
{
    pst_assert(ref); /* 0 names no record */
    return (ref - 1) << s->cell_shift;
}

static inline struct pst_record *pst_ref_record(const struct pst_shard *s, uint64_t ref)
{
    return (struct pst_record *)(void *)(s->base + pst_ref_offset(s, ref));
}

static inline uint64_t pst_shard_ms(const struct pst_shard *s, uint64_t now_ns)
{
    return (now_ns - s->store->epoch_ns) / 1000000;
}

static inline uint64_t pst_record_offset(const struct pst_shard *s, const struct pst_record *r)
{
    pst_assert((const uint8_t *)r >= s->base);
    return (uint64_t)((const uint8_t *)r - s->base);
}

static inline uint64_t pst_record_ref(const struct pst_shard *s, const struct pst_record *r)
{
    return pst_ref_of_offset(s, pst_record_offset(s, r));
}

#endif
