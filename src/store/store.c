/* SPDX-License-Identifier: Apache-2.0 */
/* store.c: what the shards of a node share: arenas, pages, classes of keys, routing. */
#include "base/clock.h"
#include "base/hash.h"
#include "base/ms.h"
#include "store/evict_priv.h"
#include "store/figures.h"
#include "store/index/index.h"
#include "store/index/order.h"
#include "store/kept.h"
#include "store/link_priv.h"
#include "store/pins_priv.h"
#include "store/policy.h"
#include "store/store.h"
#include "store/tiering_priv.h"

#include <stdio.h>

static int shard_init(struct pst_store *store, uint32_t number);
static void shard_fini(struct pst_shard *s);

static int copy_prefixes(struct pst_store *store, const struct pst_store_options *options)
{
    for (uint32_t i = 0; i < options->cache_prefix_count; i++) {
        char *copy = strdup(options->cache_prefixes[i]);

        if (!copy)
            return -ENOMEM;
        store->cache_prefixes[i] = (struct pst_bytes){copy, strlen(copy)};
        store->cache_prefix_count++;
    }
    pst_assert(store->cache_prefix_count == options->cache_prefix_count);
    return 0;
}

static int open_shards(struct pst_store *store, uint32_t count)
{
    store->shards = aligned_alloc(128, count * sizeof(struct pst_shard));
    if (!store->shards)
        return -ENOMEM;
    pst_assert(count >= 1 && count <= PST_SHARDS_MAX);
    pst_assert(store->shard_count == 0);
    memset(store->shards, 0, count * sizeof(struct pst_shard));
    for (uint32_t i = 0; i < count; i++) {
        int r = shard_init(store, i);

        store->shard_count++;
        if (r < 0)
            return r;
    }
    pst_assert(store->shard_count == count);
    return 0;
}

/* What an earlier process left, in memory and on SSD. */
static int store_take_up(struct pst_store *store, const struct pst_store_options *options, const char **fault)
{
    bool tiered = options->ssd.folder_count > 0;
    int r = 0;

    pst_assert(store->shard_count > 0);
    pst_assert(!store->log);
    if (store->arenas.taken_up && store->kept->tiered != tiered) {
        *fault = tiered
                     ? "what was kept is of a node without an SSD: start it as before, or under another name"
                     : "what was kept is of a node with an SSD: start it as before, or under another name";
        return -EINVAL;
    }
    if (store->arenas.taken_up)
        r = pst_store_restore(store, fault);
    if (r == 0 && store->kept) {
        store->kept->shard_count = store->shard_count;
        store->kept->tiered = tiered;
    }
    store->pages_low =
        (uint32_t)((uint64_t)store->arenas.page_count * (100 - options->watermark_percent) / 100);
    pst_assert(store->pages_low <= store->arenas.page_count);
    return r == 0 && (tiered || options->hbm.ops) ? pst_tier_open(store, &options->ssd, &options->hbm, fault)
                                                  : r;
}

int pst_store_open(const struct pst_store_options *options, struct pst_store **out, const char **fault)
{
    struct pst_store *store;
    int r;

    *fault = "bad number of shards or prefixes, or watermark above 100";
    if (options->shard_count < 1 || options->shard_count > PST_SHARDS_MAX ||
        options->cache_prefix_count > PST_CLASSES_MAX || options->quota_count > PST_CLASSES_MAX ||
        options->ttl_count > PST_CLASSES_MAX || options->watermark_percent > 100)
        return -EINVAL;
    *fault = "policy is not one of " PST_POLICY_NAMES;
    if (!pst_policy_find(options->policy))
        return -EINVAL;
    *fault = "out of memory";
    store = calloc(1, sizeof(*store));
    if (!store)
        return -ENOMEM;
    store->start_ns = pst_now_ns();
    store->epoch_ns = store->start_ns - pst_ns_of_ms(PST_RECENCY_MS_MIN);
    pthread_mutex_init(&store->words_lock, NULL);
    store->policy = pst_policy_find(options->policy);
    store->wall_offset_ms = pst_wall_ns() / 1000000 - store->start_ns / 1000000;
    store->group_count = 1 + options->quota_count;
    r = pst_arenas_open(&store->arenas, &options->arenas, fault);
    store->partition_seed = store->arenas.seeds[0];
    store->check_seed = (uint32_t)store->arenas.seeds[1];
    if (r == 0 && store->arenas.kept)
        store->kept = pst_arenas_notes(&store->arenas);
    if (r == 0)
        r = pst_pages_init(&store->pages, store->arenas.page_count, store->arenas.arena_pages);
    if (r == 0)
        r = copy_prefixes(store, options);
    if (r == 0)
        r = pst_prefix_quotas_open(store, options->quotas, options->quota_count);
    if (r == 0)
        r = pst_prefix_numbers_copy(options->ttls, options->ttl_count, &store->ttls);
    if (r == 0)
        store->ttl_count = options->ttl_count;
    if (r == 0) {
        store->learnt = pst_learnt_open(store->group_count);
        r = store->learnt ? 0 : -ENOMEM;
    }
    if (r == 0)
        r = open_shards(store, options->shard_count);
    if (r == 0)
        r = store_take_up(store, options, fault);
    if (r < 0) {
        pst_store_close(store);
        return r;
    }
    pst_assert(store->shard_count == options->shard_count);
    pst_assert(store->group_count == 1 + store->quota_count);
    *out = store;
    return 0;
}

int pst_store_settle(struct pst_store *store)
{
    pst_assert(store->shards);
    return pst_tiers_settle(store);
}

struct pst_store *pst_store_close(struct pst_store *store)
{
    if (!store)
        return NULL;
    pst_tier_close(store);
    for (uint32_t i = 0; i < store->shard_count; i++)
        shard_fini(&store->shards[i]);
    free(store->shards);
    pst_learnt_close(store->learnt, store->group_count);
    for (uint32_t i = 0; i < store->cache_prefix_count; i++)
        free((void *)(uintptr_t)store->cache_prefixes[i].data);
    pst_prefix_quotas_close(store);
    free(store->ttls);
    pst_pages_fini(&store->pages);
    pst_arenas_close(&store->arenas);
    pthread_mutex_destroy(&store->words_lock);
    free(store);
    return NULL;
}

static struct pst_bytes key_of(void *ctx, uint64_t ref)
{
    return pst_record_key(pst_ref_record(ctx, ref));
}

static uint64_t hash_of(void *ctx, uint64_t ref)
{
    struct pst_shard *s = ctx;
    struct pst_bytes key = key_of(s, ref);

    return pst_hash64(key.data, key.len, s->hash_seed);
}

static int shard_init(struct pst_store *store, uint32_t number)
{
    struct pst_shard *s = &store->shards[number];
    int r;

    pst_assert(number == store->shard_count); /* one after the other: it counts itself when this has ended */
    s->store = store;
    s->base = store->arenas.base;
    s->cell_shift = store->arenas.cell_shift;
    s->number = number;
    s->generation = (pst_wall_ns() & ~0xffull) | number;
    s->reservation_handle = s->generation; /* no handle of an earlier run means anything */
    s->tail_ms = UINT64_MAX;
    s->ends_ms = UINT64_MAX;
    pst_random(&s->hash_seed, sizeof(s->hash_seed));
    s->runs = malloc(PST_RUNS_MAX * sizeof(*s->runs));
    s->lines = calloc(store->group_count, sizeof(*s->lines));
    if (!s->runs || !s->lines)
        return -ENOMEM;
    for (uint32_t i = 0; i < store->group_count; i++)
        s->lines[i] = (struct pst_lines){
            .tail_ms = UINT64_MAX, .walk.depth = PST_DEPTH_NONE, .learnt = &store->learnt[i]};
    r = pst_listeners_open(s);
    if (r == 0)
        r = pst_index_open(hash_of, s, &s->index);
    if (r == 0)
        r = pst_order_open(key_of, s, &s->order);
    if (r == 0)
        r = pst_slab_open(&store->arenas, &store->pages, (uint16_t)number, &s->slab);
    pst_assert(r <= 0);
    return r;
}

static void shard_fini(struct pst_shard *s)
{
    pst_assert(!s->tier);
    pst_listeners_close(s);
    pst_expiries_fini(s);
    pst_pins_fini(&s->pins);
    pst_slab_close(s->slab);
    pst_order_close(s->order);
    pst_index_close(s->index);
    for (uint32_t i = 0; s->lines && i < s->store->group_count; i++) {
        pst_ghosts_fini(&s->lines[i].ghosts);
        free(s->lines[i].rates);
    }
    for (uint32_t i = 0; s->lines && i < s->store->group_count; i++)
        free(s->lines[i].hand);
    free(s->lines);
    free(s->runs);
}

struct pst_shard *pst_store_shard(struct pst_store *store, uint32_t index)
{
    pst_assert(index < store->shard_count);
    return &store->shards[index];
}

uint32_t pst_store_shard_count(const struct pst_store *store)
{
    pst_assert(store->shard_count > 0 && store->shard_count <= PST_SHARDS_MAX);
    return store->shard_count;
}

const struct pst_arenas *pst_store_arenas(const struct pst_store *store)
{
    return &store->arenas;
}

uint64_t pst_store_value_bytes_max(const struct pst_store *store)
{
    return (uint64_t)store->arenas.page_count * store->arenas.page_bytes;
}

const struct pst_restored *pst_store_restored(const struct pst_store *store)
{
    return &store->restored;
}

uint64_t pst_store_partition_seed(const struct pst_store *store)
{
    return store->partition_seed;
}

void pst_store_stat(const struct pst_store *store, struct pst_store_stat *out)
{
    out->page_bytes = store->arenas.page_bytes;
    out->pages = store->arenas.page_count;
    out->pages_used = out->pages - store->pages.free_count;
    pst_assert(out->pages_used <= out->pages);
    out->arenas = store->arenas.arena_count;
}

static uint64_t rss_anon_bytes(void)
{
    FILE *status = fopen("/proc/self/status", "re");
    unsigned long long kib = 0;
    char line[128];

    while (status && fgets(line, sizeof(line), status)) {
        if (sscanf(line, "RssAnon: %llu kB", &kib) == 1)
            break;
    }
    if (status)
        fclose(status);
    return kib * 1024;
}

/* What is the whole store's. */
static void store_figures(const struct pst_store *store, struct pst_shard_later *out)
{
    const struct pst_restored *restored = &store->restored;

    pst_assert(store->restored.dropped == 0 || store->arenas.taken_up);
    out->restored_keys = restored->keys + restored->ssd_keys;
    out->restored_dropped = restored->dropped + restored->ssd_dropped;
    out->restored_ms = restored->ms + restored->ssd_ms;
    pst_tier_figures(store, out);
}

void pst_figures_read(struct pst_store *store, struct pst_shard *shard, struct pst_figures *out)
{
    pst_assert(shard->store == store);
    memset(out, 0, sizeof(*out));
    pst_shard_stat(shard, &out->shard);
    pst_shard_stat_later(shard, &out->later);
    pst_shard_stat_device(shard, &out->device);
    pst_store_stat(store, &out->store);
    if (shard->number == 0) /* these are summed over the shards */
        store_figures(store, &out->later);
    out->rss_anon_bytes = rss_anon_bytes();
    out->uptime_ms = (pst_now_ns() - store->start_ns) / 1000000;
}
