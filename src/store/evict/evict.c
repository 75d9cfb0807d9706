/* SPDX-License-Identifier: Apache-2.0 */
/*
 * evict.c: when values go, and for whom. Which of a shard's goes first is the policy's to say (policy.h);
 * among shards, it is the one with the coldest end.
 */
#include "store/evict_priv.h"
#include "store/link_priv.h"
#include "store/pins_priv.h"
#include "store/policy.h"
#include "store/shard.h"
#include "store/tiering_priv.h"

enum {
    ALL_KEPT_MS = 1000, /* pins are looked at again after this long */
    TICK_EVICTIONS_MAX = 64,
    WANTED_NS = 500000000, /* a waiting write asks again sooner than this, however crowded the cores are */
    TAKE_BACK_EVERY = 256, /* values that went, to the log as well, before a slab page is emptied */
    TAKE_BACK_PERCENT = 90,
    LOOKS_ALONE = 16,   /* by the policy, before lines whose turn it is not are looked at */
    WEIGHED_MAX = 4096, /* records that are looked at for what they would free; more are taken to be enough */
};

/* True for a while after all records were found to be kept, unless one was added or let go since. */
static bool all_kept(const struct pst_shard *s, uint64_t now_ns)
{
    return atomic_load_explicit(&s->tail_ms, memory_order_relaxed) == UINT64_MAX &&
           pst_shard_ms(s, now_ns) - s->all_kept_ms < ALL_KEPT_MS;
}

/* The group whose cold end is the coldest. */
static struct pst_lines *coldest_lines(struct pst_shard *s)
{
    struct pst_lines *coldest = &s->lines[0];

    pst_assert(s->store->group_count > 0);
    for (uint32_t i = 1; i < s->store->group_count; i++) {
        if (s->lines[i].tail_ms < coldest->tail_ms)
            coldest = &s->lines[i];
    }
    return coldest;
}

/* True when the record may be evicted or go to the log now. */
static bool may_go(struct pst_shard *s, struct pst_record *r, uint64_t now_ns)
{
    pst_assert(pst_record_listed(r->flags));
    pst_assert(!(r->state & PST_RECORD_UNLINKED));
    return pst_record_loose(s, r, now_ns) && (r->flags & PST_RECORD_CACHE || pst_tier_takes(s->tier, r));
}

/* One of @lines that may go, though not @spared. NULL: those looked at are kept by something, and moved to
 * the young end. A policy stays with one line while that has too many; after some @looks, others are looked
 * at, too. */
static struct pst_record *lines_victim(struct pst_shard *s, struct pst_lines *lines, uint64_t looks,
                                       const struct pst_record *spared, uint64_t now_ns)
{
    struct pst_record *r = s->store->policy->next(s, lines, pst_shard_ms(s, now_ns));
    uint32_t others = looks < LOOKS_ALONE ? 0 : PST_LINES;

    pst_assert(r);
    for (uint32_t i = 0;; i++) {
        if (r && r != spared && may_go(s, r, now_ns))
            return r;
        if (r)
            pst_recency_spare(s, r, now_ns);
        if (i == others)
            return NULL;
        r = lines->line[i].oldest ? pst_ref_record(s, lines->line[i].oldest) : NULL;
    }
}

static struct pst_record *shard_victim(struct pst_shard *s, uint64_t now_ns)
{
    struct pst_record *r = NULL;

    if (all_kept(s, now_ns))
        return NULL;
    for (uint64_t looks = 0; s->listed && !r && looks < s->listed + LOOKS_ALONE; looks++)
        r = lines_victim(s, coldest_lines(s), looks, NULL, now_ns);
    return r;
}

void pst_record_evict(struct pst_shard *s, struct pst_record *r)
{
    pst_assert(r->flags & PST_RECORD_CACHE); /* other values are never dropped */
    pst_assert(!(r->state & (PST_STATE_RESERVED | PST_RECORD_UNLINKED)));
    s->stat.evictions++;
    s->stat.evicted_bytes += r->value_bytes;
    if (s->store->policy->evicted && pst_record_listed(r->flags))
        s->store->policy->evicted(s, r);
    pst_shard_unlink_as(s, r, PST_WIRE_CHANGE_EVICTED);
}

bool pst_group_evict(struct pst_shard *s, uint32_t group, const struct pst_record *spared, uint64_t now_ns)
{
    struct pst_lines *lines = &s->lines[group];
    struct pst_record *r = NULL;

    pst_assert(group > 0 && group < s->store->group_count);
    for (uint64_t looks = 0; lines->count && !r && looks < lines->count + LOOKS_ALONE; looks++)
        r = lines_victim(s, lines, looks, spared, now_ns);
    if (!r)
        return false;
    pst_assert(pst_record_recency(r)->group == group);
    pst_record_evict(s, r);
    return true;
}

bool pst_shard_evict(struct pst_shard *s, uint64_t now_ns)
{
    for (struct pst_record *r; (r = shard_victim(s, now_ns)) != NULL;) {
        pst_assert(s->listed > 0);
        if (pst_unlikely(s->tier) && pst_tier_lift(s->tier, r))
            return true;
        if (pst_unlikely(s->tier) && pst_tier_takes(s->tier, r)) {
            if (pst_tier_demote(s->tier, r, now_ns))
                return true;
            if (pst_tier_takes(s->tier, r))
                return false; /* not now */
        }
        if (r->flags & PST_RECORD_CACHE) {
            pst_record_evict(s, r);
            return true;
        }
        pst_assert(!pst_tier_takes(s->tier, r)); /* the log is full, as was found just now: then others go */
    }
    return false;
}

bool pst_store_pages_obtainable(const struct pst_store *store, uint32_t pages)
{
    uint64_t loose = atomic_load_explicit(&store->cache_pages, memory_order_relaxed);
    uint64_t used = atomic_load_explicit(&store->extent_pages, memory_order_relaxed);

    if (!atomic_load_explicit(&store->ssd_full, memory_order_relaxed) ||
        atomic_load_explicit(&store->reclaims, memory_order_relaxed))
        loose += atomic_load_explicit(&store->spill_pages, memory_order_relaxed);
    return pages + used <= store->arenas.page_count + loose;
}

/* Adds the pages that a line's loose records have to *@freed until they are @pages. Return: false when all of
 * its records have been looked at; *@left: how many more may be. */
static bool line_weigh(struct pst_shard *s, const struct pst_line *line, uint32_t pages, uint64_t now_ns,
                       uint64_t *freed, int *left)
{
    uint64_t ref = line->oldest;

    pst_assert(!line->oldest == !line->count);
    for (; *freed < pages && ref && *left > 0; --*left) {
        struct pst_record *r = pst_ref_record(s, ref);

        if (may_go(s, r, now_ns))
            *freed += pst_record_pages(r);
        ref = pst_record_recency(r)->newer;
    }
    return ref || *freed >= pages;
}

/* Whether the shard can free @pages together with what is free: slab pages are taken to be all freed. */
static bool enough_loose(struct pst_shard *s, uint32_t pages, uint64_t now_ns)
{
    uint64_t freed = atomic_load_explicit(&s->store->pages.free_count, memory_order_relaxed);
    struct pst_slab_stat slab;
    int left = WEIGHED_MAX;

    pst_slab_stat(s->slab, &slab);
    freed += slab.pages;
    for (uint32_t i = 0; i < s->store->group_count * PST_LINES && freed < pages; i++) {
        if (line_weigh(s, &s->lines[i / PST_LINES].line[i % PST_LINES], pages, now_ns, &freed, &left))
            return true;
    }
    pst_assert(left >= 0 && left <= WEIGHED_MAX);
    return freed >= pages;
}

bool pst_shard_make_room(struct pst_shard *s, uint32_t pages, uint64_t now_ns)
{
    if (pst_expiries_drop(s))
        return true;
    if (!pst_store_pages_obtainable(s->store, pages) || !enough_loose(s, pages, now_ns))
        return false;
    if (pst_shard_evict(s, now_ns)) {
        if (++s->gone_count % TAKE_BACK_EVERY == 0)
            pst_shard_take_back(s, TAKE_BACK_PERCENT);
        return true;
    }
    pst_assert(s->listed == 0 || s->stat.keys > 0);
    if (pst_tier_busy(s->tier))
        return false;
    if (s->listed) { /* all that is left is kept by someone: other shards need not wait for it */
        atomic_store_explicit(&s->tail_ms, UINT64_MAX, memory_order_relaxed);
        s->all_kept_ms = pst_shard_ms(s, now_ns);
    }
    return pst_shard_take_back(s, TAKE_BACK_PERCENT);
}

/* Tried out on a copy of the pages: without everything that may go. */
static bool runs_join(struct pst_shard *s, const struct pst_wanted *wanted, uint64_t now_ns)
{
    struct pst_pages copy;
    bool joins;

    pst_assert(wanted->pages > 0);
    pst_assert(wanted->runs_max <= PST_RUNS_MAX);
    if (pst_pages_copy(&copy, &s->store->pages) < 0)
        return false;
    for (uint32_t i = 0; i < s->store->group_count * PST_LINES; i++) {
        uint64_t ref = s->lines[i / PST_LINES].line[i % PST_LINES].oldest;

        for (struct pst_record *r; ref; ref = pst_record_recency(r)->newer) {
            r = pst_ref_record(s, ref);
            if (r->flags & PST_RECORD_EXTERNAL && may_go(s, r, now_ns))
                pst_pages_give(&copy, pst_external_runs(pst_record_external(r)),
                               (int)pst_record_external(r)->run_count);
        }
    }
    joins = pst_pages_take(&copy, wanted->pages, s->runs, (int)wanted->runs_max) > 0;
    pst_pages_fini(&copy);
    return joins;
}

bool pst_shard_make_runs(struct pst_shard *s, struct pst_wanted *wanted, int result, uint64_t now_ns)
{
    pst_assert(result <= 0);
    if (result == -E2BIG && !wanted->joins) {
        if (pst_expiries_drop(s)) /* they need not join anything: they are over */
            return true;
        wanted->joins = runs_join(s, wanted, now_ns);
        if (!wanted->joins)
            return false;
    }
    return (result == -ENOSPC || result == -E2BIG) &&
           pst_shard_make_room(s, wanted->pages + wanted->spare, now_ns);
}

bool pst_store_evictable_elsewhere(const struct pst_shard *s, uint32_t pages)
{
    pst_assert(s->store->shard_count > s->number);
    if (!pst_store_pages_obtainable(s->store, pages))
        return false;
    for (uint32_t i = 0; i < s->store->shard_count; i++) {
        const struct pst_shard *other = &s->store->shards[i];

        if (other != s && atomic_load_explicit(&other->tail_ms, memory_order_relaxed) != UINT64_MAX)
            return true;
    }
    return false;
}

static bool shard_is_coldest(const struct pst_shard *s)
{
    uint64_t mine = atomic_load_explicit(&s->tail_ms, memory_order_relaxed);

    if (mine == UINT64_MAX)
        return false;
    for (uint32_t i = 0; i < s->store->shard_count; i++) {
        if (atomic_load_explicit(&s->store->shards[i].tail_ms, memory_order_relaxed) < mine)
            return false;
    }
    return true;
}

bool pst_shard_tick(struct pst_shard *s, uint64_t now_ns)
{
    struct pst_store *store = s->store;

    pst_pins_expire(s, now_ns);
    pst_shard_time(s, now_ns);
    pst_tier_tick(s->tier, now_ns);
    if (pst_expiries_tick(s))
        return true;
    if (pst_prefix_quotas_tick(s, TICK_EVICTIONS_MAX, now_ns))
        return true;
    if (pst_shard_ms(s, now_ns) - s->all_kept_ms >=
        ALL_KEPT_MS) /* pins end by time, too, and nobody says so */
        pst_recency_loosened(s);
    for (int i = 0; i < TICK_EVICTIONS_MAX; i++) {
        uint32_t free_pages = atomic_load_explicit(&store->pages.free_count, memory_order_relaxed);
        bool asked = now_ns < atomic_load_explicit(&store->wanted_ns, memory_order_relaxed) + WANTED_NS;
        uint32_t wanted = asked ? atomic_load_explicit(&store->pages_wanted, memory_order_relaxed) : 0;

        free_pages += atomic_load_explicit(&store->saving_pages, memory_order_relaxed);
        if (free_pages >= pst_max(store->pages_low, wanted) || !shard_is_coldest(s))
            return false;
        if (!pst_shard_make_room(s, 0, now_ns))
            return false;
    }
    return true;
}
