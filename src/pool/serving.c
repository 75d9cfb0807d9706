/* SPDX-License-Identifier: Apache-2.0 */
/*
 * serving.c: the pool map as the shards' threads need it: who serves a partition, as bits, and the prefixes,
 * which change rarely: those of former pool maps stay until the end, since somebody may be looking at them.
 */
#include "pool/serving.h"

#include "base/clock.h"
#include "pool/lease.h"
#include "wire/pool.h"

#include <stdatomic.h>

enum { WORDS = PST_PARTITIONS / 64 };

_Static_assert(PST_PARTITIONS % 64 == 0, "partitions fill the words of a bit set");

/* Of a pool map without members and partitions. */
struct prefixes {
    struct prefixes *older;
    uint32_t number;
    struct pst_map *map;
};

struct pst_serving {
    _Atomic(struct prefixes *) prefixes; /* NULL: no pool map has come */
    _Atomic uint64_t until_ns;
    _Atomic uint64_t ours[WORDS],
        nobodys[WORDS];             /* partitions; a lease of later goes with these or later ones */
    _Atomic uint64_t held[WORDS];   /* ours, and not to be served yet, or, of those that lead, any more */
    _Atomic uint64_t leads[WORDS];  /* set in front of held */
    _Atomic uint64_t copied[WORDS]; /* others hold them, too */
    _Atomic uint64_t kept[WORDS];   /* this node is among those that have them */
    _Atomic uint64_t epochs[PST_PARTITIONS];
    _Atomic uint64_t filled[PST_PARTITIONS]; /* the last epoch in which another node wrote here */
    _Atomic bool behind;                     /* somebody has a newer pool map */
    _Atomic bool leaves;                     /* nothing begins any more */
    _Atomic int wake_fd;                     /* of who fetches one; -1: nobody */
};

static bool bits_have(const _Atomic uint64_t *bits, uint32_t partition)
{
    pst_assert(partition < PST_PARTITIONS);
    return atomic_load(&bits[partition / 64]) >> partition % 64 & 1;
}

static void bits_set(_Atomic uint64_t *bits, uint32_t partition, bool on)
{
    pst_assert(partition < PST_PARTITIONS);
    if (on)
        atomic_fetch_or(&bits[partition / 64], 1ull << partition % 64);
    else
        atomic_fetch_and(&bits[partition / 64], ~(1ull << partition % 64));
}

int pst_serving_open(struct pst_serving **out)
{
    *out = calloc(1, sizeof(**out));
    if (!*out)
        return -ENOMEM;
    (*out)->wake_fd = -1;
    return 0;
}

struct pst_serving *pst_serving_close(struct pst_serving *serving)
{
    struct prefixes *p = serving ? serving->prefixes : NULL;

    while (p) {
        struct prefixes *older = p->older;

        pst_map_close(p->map);
        free(p);
        p = older;
    }
    free(serving);
    return NULL;
}

static bool is_open(const struct pst_serving *serving, uint32_t partition, bool answers)
{
    return !bits_have(serving->held, partition) || (answers && bits_have(serving->leads, partition));
}

static int allows(const struct pst_serving *serving, struct pst_bytes key, bool answers)
{
    const struct prefixes *p = atomic_load_explicit(&serving->prefixes, memory_order_acquire);
    const struct pst_map_prefix *prefix;
    uint64_t until_ns, bit;
    uint32_t partition;

    if (!p)
        return PST_POOL_BUSY;
    if (p->map->prefix_count == 0)
        return 0;
    prefix = pst_map_prefix_of(p->map, key);
    if (!prefix || prefix->placement != PST_PLACE_HOME)
        return 0;
    /*
     * Each word is read behind the one that is written behind it: the lease, which is another pool map's if
     * it is newer than the bits; whose the partition is; whether it is held, which is settled before it is
     * ours. Each is an acquire that pairs with a release, so that neither side's order may be another one's.
     */
    if (serving->leaves && !answers)
        return -ESTALE;
    until_ns = atomic_load_explicit(&serving->until_ns, memory_order_acquire);
    partition = pst_map_partition_of(p->map, key);
    pst_assert(partition < PST_PARTITIONS);
    bit = 1ull << partition % 64;
    if (atomic_load_explicit(&serving->ours[partition / 64], memory_order_acquire) & bit)
        return pst_clock_read_ns(CLOCK_BOOTTIME) < until_ns && is_open(serving, partition, answers)
                   ? 0
                   : PST_POOL_BUSY;
    return atomic_load_explicit(&serving->nobodys[partition / 64], memory_order_relaxed) & bit
               ? PST_POOL_NO_PRIMARY
               : -ESTALE;
}

int pst_serving_allows(const struct pst_serving *serving, struct pst_bytes key)
{
    return allows(serving, key, false);
}

int pst_serving_allows_answer(const struct pst_serving *serving, struct pst_bytes key)
{
    return allows(serving, key, true);
}

/* The partition of a key that has a home; PST_PARTITIONS: it has none. */
uint32_t pst_serving_partition_of(const struct pst_serving *serving, struct pst_bytes key)
{
    const struct prefixes *p = atomic_load_explicit(&serving->prefixes, memory_order_acquire);
    const struct pst_map_prefix *prefix = p ? pst_map_prefix_of(p->map, key) : NULL;

    return prefix && prefix->placement == PST_PLACE_HOME ? pst_map_partition_of(p->map, key) : PST_PARTITIONS;
}

bool pst_serving_tells(const struct pst_serving *serving, struct pst_bytes key)
{
    uint32_t partition = pst_serving_partition_of(serving, key);

    pst_assert(key.len > 0);
    pst_assert(partition <= PST_PARTITIONS);
    return partition == PST_PARTITIONS || bits_have(serving->ours, partition);
}

uint32_t pst_serving_replicas(const struct pst_serving *serving, struct pst_bytes key)
{
    const struct prefixes *p = atomic_load_explicit(&serving->prefixes, memory_order_acquire);
    const struct pst_map_prefix *prefix = p ? pst_map_prefix_of(p->map, key) : NULL;

    return prefix ? prefix->replicas : 1;
}

bool pst_serving_has_replicas(const struct pst_serving *serving, struct pst_bytes key)
{
    uint32_t partition = pst_serving_partition_of(serving, key);

    return partition < PST_PARTITIONS && bits_have(serving->copied, partition);
}

int pst_serving_may_replicate(struct pst_serving *serving, uint32_t partition, uint64_t partition_epoch)
{
    uint64_t epoch = partition < PST_PARTITIONS ? atomic_load(&serving->epochs[partition]) : 0;

    if (partition_epoch == 0)
        return partition < PST_PARTITIONS ? -ESTALE : atomic_load(&serving->prefixes) ? 0 : PST_POOL_BUSY;
    if (partition < PST_PARTITIONS && partition_epoch > epoch) {
        atomic_store(&serving->behind, true);
        if (serving->wake_fd >= 0)
            pst_event_set(serving->wake_fd);
        return PST_POOL_BUSY;
    }
    if (partition_epoch < epoch || partition >= PST_PARTITIONS || bits_have(serving->ours, partition))
        return -ESTALE;
    pst_assert(partition_epoch > 0);
    pst_assert(partition_epoch == epoch);
    atomic_store(&serving->filled[partition], partition_epoch);
    return 0;
}

uint64_t pst_serving_filled(const struct pst_serving *serving, uint32_t partition)
{
    pst_assert(partition < PST_PARTITIONS);
    return atomic_load(&serving->filled[partition]);
}

bool pst_serving_elsewhere(const struct pst_serving *serving, uint32_t partition)
{
    pst_assert(partition < PST_PARTITIONS);
    /* What is written here under an epoch is written behind its being noted: the note is looked at last. */
    bool kept = bits_have(serving->kept, partition);
    uint64_t epoch = atomic_load(&serving->epochs[partition]);

    return !kept && atomic_load(&serving->filled[partition]) < epoch;
}

bool pst_serving_stranded(const struct pst_serving *serving, struct pst_bytes key)
{
    uint32_t partition = pst_serving_partition_of(serving, key);

    return partition < PST_PARTITIONS && pst_serving_elsewhere(serving, partition);
}

void pst_serving_hold(struct pst_serving *serving, uint32_t partition, bool held)
{
    if (held)
        bits_set(serving->leads, partition, false);
    bits_set(serving->held, partition, held);
}

void pst_serving_lead(struct pst_serving *serving, uint32_t partition)
{
    bits_set(serving->leads, partition, true);
    bits_set(serving->held, partition, true);
}

bool pst_serving_held(const struct pst_serving *serving, uint32_t partition)
{
    return bits_have(serving->held, partition);
}

void pst_serving_set_replicas(struct pst_serving *serving, uint32_t partition, bool on)
{
    bits_set(serving->copied, partition, on);
}

bool pst_serving_behind(struct pst_serving *serving)
{
    return atomic_exchange(&serving->behind, false);
}

void pst_serving_wakes(struct pst_serving *serving, int fd)
{
    pst_assert(fd >= -1);
    serving->wake_fd = fd;
}

static bool same_prefixes(const struct prefixes *p, const struct pst_map *map)
{
    pst_assert(map->prefix_count <= PST_MAP_PREFIXES_MAX);
    return p && p->map->seed == map->seed && p->map->prefix_count == map->prefix_count &&
           memcmp(p->map->prefixes, map->prefixes, map->prefix_count * sizeof(map->prefixes[0])) == 0;
}

static int take_prefixes(struct pst_serving *serving, const struct pst_map *map)
{
    struct prefixes *older = serving->prefixes, *p;
    int r;

    if (same_prefixes(older, map))
        return 0;
    p = calloc(1, sizeof(*p));
    if (!p)
        return -ENOMEM;
    r = pst_map_open(1, map->seed, &p->map);
    if (r < 0) {
        free(p);
        return r;
    }
    p->map->prefix_count = map->prefix_count;
    memcpy(p->map->prefixes, map->prefixes, sizeof(map->prefixes));
    p->older = older;
    p->number = older ? older->number + 1 : 1;
    pst_assert(map->prefix_count <= PST_MAP_PREFIXES_MAX);
    pst_assert(!older || older->number < p->number);
    atomic_store_explicit(&serving->prefixes, p, memory_order_release);
    return 0;
}

uint32_t pst_serving_placements(const struct pst_serving *serving)
{
    const struct prefixes *p = serving->prefixes;

    return p ? p->number : 0;
}

bool pst_serving_is_later(const struct pst_serving *serving, const struct pst_map *map)
{
    bool later = false;

    for (uint32_t i = 0; i < PST_PARTITIONS; i++)
        later |= atomic_load(&serving->epochs[i]) > map->partitions[i].epoch;
    return later;
}

int pst_serving_map(struct pst_serving *serving, const struct pst_map *map, uint16_t member, uint64_t epoch)
{
    const struct pst_lease for_ever = {.until_ns = UINT64_MAX};

    pst_assert(epoch > 0);
    pst_assert(member < map->members_max);
    for (uint32_t word = 0; word < WORDS; word++) {
        uint64_t ours = 0, nobodys = 0, kept = 0;

        for (uint32_t i = 0; i < 64; i++) {
            enum pst_serve serve = pst_lease_serve(&for_ever, map, member, epoch, 64 * word + i, 0);

            ours |= (uint64_t)(serve == PST_SERVE_YES) << i;
            nobodys |= (uint64_t)(serve == PST_SERVE_INCOMPLETE) << i;
            kept |= (uint64_t)(pst_map_replica_at(&map->partitions[64 * word + i], member) >= 0) << i;
        }
        pst_assert((ours & nobodys) == 0);
        pst_assert((ours & ~kept) == 0);
        atomic_store(&serving->kept[word], kept);
        atomic_store_explicit(&serving->nobodys[word], nobodys, memory_order_relaxed);
        atomic_store_explicit(&serving->ours[word], ours, memory_order_release);
        for (uint32_t i = 0; i < 64; i++) /* behind whose they are: what is asked under one finds that, too */
            atomic_store(&serving->epochs[64 * word + i], map->partitions[64 * word + i].epoch);
    }
    return take_prefixes(serving, map);
}

void pst_serving_leave(struct pst_serving *serving)
{
    atomic_store(&serving->leaves, true);
}

void pst_serving_lease(struct pst_serving *serving, uint64_t until_ns)
{
    atomic_store_explicit(&serving->until_ns, until_ns, memory_order_release);
}
