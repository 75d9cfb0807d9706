/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shard.c: one key at a time: look-up, conditions, the two steps of a write, delete. A value becomes visible
 * by one change of the index, after all of its bytes are in place.
 */
#include "base/hash.h"
#include "store/claim.h"
#include "store/evict_priv.h"
#include "store/figures.h"
#include "store/index/index.h"
#include "store/index/order.h"
#include "store/kept.h"
#include "store/link_priv.h"
#include "store/pins_priv.h"
#include "store/put.h"
#include "store/read.h"
#include "store/record_mark.h"
#include "store/shard.h"
#include "store/tiering_priv.h"
#include "store/write_priv.h"

enum { RECORD_LINES = 3 }; /* of a small record: header, key and value, wherever its cell begins */

struct pst_lookup pst_shard_lookup(const struct pst_shard *s, struct pst_bytes key)
{
    return (struct pst_lookup){.key = key, .hash = pst_hash64(key.data, key.len, s->hash_seed)};
}

void pst_shard_prefetch(const struct pst_shard *s, const struct pst_lookup *lookup)
{
    pst_index_prefetch(s->index, lookup->hash);
}

void pst_shard_prefetch_record(const struct pst_shard *s, struct pst_lookup *lookup)
{
    uint64_t refs[PST_INDEX_CANDIDATES_MAX];
    int count = pst_index_candidates(s->index, lookup->hash, refs);

    for (int i = 0; i < count; i++) {
        const char *record = (const char *)pst_ref_record(s, refs[i]);

        for (int line = 0; line < RECORD_LINES; line++)
            __builtin_prefetch(record + 64 * line);
    }
    if (count == 1) {
        lookup->seen_ref = refs[0];
        lookup->seen_changes = s->changes;
    }
}

struct pst_record *pst_shard_find(const struct pst_shard *s, const struct pst_lookup *lookup)
{
    uint64_t refs[PST_INDEX_CANDIDATES_MAX];
    int count = 1;

    if (lookup->seen_ref && lookup->seen_changes == s->changes)
        refs[0] = lookup->seen_ref;
    else
        count = pst_index_candidates(s->index, lookup->hash, refs);
    for (int i = 0; i < count; i++) {
        struct pst_record *r = pst_ref_record(s, refs[i]);

        if (pst_bytes_equal(pst_record_key(r), lookup->key))
            return pst_record_expired(s, r) ? NULL : r;
    }
    return NULL;
}

void pst_shard_count_read(struct pst_shard *s, bool hit)
{
    s->stat.gets++;
    s->stat.hits += hit;
    s->stat.misses += !hit;
}

bool pst_key_evictable(const struct pst_store *store, struct pst_bytes key)
{
    pst_assert(store->cache_prefix_count <= PST_CLASSES_MAX);
    for (uint32_t i = 0; i < store->cache_prefix_count; i++) {
        if (pst_bytes_begin(key, store->cache_prefixes[i]))
            return true;
    }
    return false;
}

static void answer_with(struct pst_answer *answer, const struct pst_record *r)
{
    *answer = (struct pst_answer){.generation = r ? r->generation : 0, .value_bytes = r ? r->value_bytes : 0};
}

int pst_put_check(const struct pst_put *put, const struct pst_record *old, struct pst_answer *answer)
{
    int outcome = PST_OK;

    if (old && (put->flags & PST_PUT_IF_ABSENT || (put->generation && old->generation >= put->generation)))
        outcome = PST_EXISTS;
    else if (put->flags & PST_PUT_IF_GENERATION && put->if_generation != (old ? old->generation : 0))
        outcome = PST_STALE;
    pst_assert(outcome != PST_EXISTS || old);
    if (outcome)
        answer_with(answer, old);
    return outcome;
}

int pst_put_check_shape(const struct pst_shard *s, const struct pst_put *put)
{
    if (put->lookup.key.len == 0 || put->attrs.len > PST_ATTR_BYTES_MAX)
        return -EINVAL;
    if (put->lookup.key.len > PST_KEY_BYTES_MAX)
        return -ENAMETOOLONG;
    if (put->value_bytes > pst_store_value_bytes_max(s->store))
        return -EFBIG;
    return 0;
}

/* Neither this shard nor what others evict makes room. Return: PST_BUSY what is over there may, -ENOSPC. */
static int shard_no_space(struct pst_shard *s, uint64_t now_ns)
{
    pst_assert(s->store->shard_count > 0);
    if (pst_store_has_ended(s->store, s, now_ns))
        return PST_BUSY;
    s->stat.no_space++;
    return -ENOSPC;
}

int pst_shard_no_room(struct pst_shard *s, uint32_t pages, uint64_t now_ns)
{
    pst_assert(s->store->pages_spare <= s->store->arenas.page_count);
    if (!pst_store_evictable_elsewhere(s, pages) && !pst_tier_relieves(s, pages, now_ns))
        return shard_no_space(s, now_ns);
    atomic_store(&s->store->pages_wanted, pages + 1); /* in case that the record needs a slab page */
    atomic_store(&s->store->wanted_ns, now_ns);
    return PST_BUSY;
}

int pst_shard_no_runs(struct pst_shard *s, const struct pst_wanted *wanted, int result, uint64_t now_ns)
{
    pst_assert(result <= 0);
    if (result == -E2BIG && !wanted->joins)
        return shard_no_space(s, now_ns);
    return result == -ENOSPC || result == -E2BIG ? pst_shard_no_room(s, wanted->pages + wanted->spare, now_ns)
                                                 : result;
}

bool pst_shard_leaves_spare(const struct pst_shard *s, uint32_t pages)
{
    return atomic_load_explicit(&s->store->pages.free_count, memory_order_relaxed) >=
           s->store->pages_spare + pages;
}

static int shard_take_record(struct pst_shard *s, const struct pst_put *put, bool cache, bool spare,
                             struct pst_record **out)
{
    uint32_t pages = pst_unlikely(s->tier) && !spare ? pst_put_pages(s, put) : 0;

    if (pages > 0 && !pst_shard_leaves_spare(s, pages))
        return -ENOSPC;
    return pst_record_take(s, put, cache, out);
}

int pst_put_keep_named(struct pst_shard *s, const struct pst_put *put, struct pst_record **named)
{
    *named = put->flags & PST_PUT_IF_GENERATION ? pst_shard_find(s, &put->lookup) : NULL;
    return *named ? pst_shard_ref(s, *named) : 0;
}

void pst_put_let_named(struct pst_shard *s, struct pst_record *named)
{
    if (named)
        pst_shard_unref(s, named);
}

static int shard_take_by_evicting(struct pst_shard *s, const struct pst_put *put, bool cache, bool spare,
                                  int failed, uint64_t now_ns, struct pst_record **out)
{
    struct pst_wanted wanted = {.pages = pst_value_pages(s, put->value_bytes),
                                .runs_max = pst_put_runs_max(s, put),
                                .spare = spare ? 0 : s->store->pages_spare};
    struct pst_record *named;
    int r = pst_put_keep_named(s, put, &named);

    pst_assert(failed == -ENOSPC || failed == -E2BIG);
    if (r < 0)
        return r;
    r = failed;
    while (pst_shard_make_runs(s, &wanted, r, now_ns))
        r = shard_take_record(s, put, cache, spare, out);
    pst_put_let_named(s, named);
    return pst_shard_no_runs(s, &wanted, r, now_ns);
}

static int shard_reserve_record(struct pst_shard *s, const struct pst_put *put, bool cache, bool spare,
                                uint64_t now_ns, struct pst_record **out)
{
    int r = shard_take_record(s, put, cache, spare, out);

    if (r == -ENOSPC || r == -E2BIG)
        r = shard_take_by_evicting(s, put, cache, spare, r, now_ns, out);
    pst_assert(r != 0 || (*out)->state & PST_STATE_RESERVED);
    return r;
}

int pst_record_reserve(struct pst_shard *s, const struct pst_put *put, uint64_t now_ns,
                       struct pst_record **out, struct pst_answer *answer)
{
    int r = pst_prefix_quota_take(s, put, now_ns, answer);

    if (r != 0)
        return r;
    r = shard_reserve_record(s, put, pst_key_evictable(s->store, put->lookup.key), false, now_ns, out);
    if (r != 0)
        pst_prefix_quota_give(s, put);
    return r;
}

int pst_record_reserve_fetch(struct pst_shard *s, const struct pst_put *put, bool cache, bool spare,
                             uint64_t now_ns, struct pst_record **out)
{
    return shard_reserve_record(s, put, cache, spare, now_ns, out);
}

/* This shard alone writes its count. */
static void set_brief(struct pst_shard *s, struct pst_pending *pending, bool brief)
{
    uint32_t count = atomic_load_explicit(&s->puts_underway, memory_order_relaxed);

    pst_assert(brief || !pending->brief || count > 0);
    count += (uint32_t)brief - (uint32_t)pending->brief;
    pending->brief = brief;
    atomic_store_explicit(&s->puts_underway, count, memory_order_relaxed);
}

int pst_shard_reserve(struct pst_shard *s, const struct pst_put *put, uint64_t now_ns,
                      struct pst_pending *pending, struct pst_answer *answer)
{
    struct pst_record *old;
    int r = pst_put_check_shape(s, put);

    pst_shard_time(s, now_ns);
    if (pst_unlikely(r == 0 && s->claims.locks && pst_shard_locked(s, &put->lookup, false)))
        r = PST_BUSY;
    if (r == 0 && (put->generation || put->flags & (PST_PUT_IF_ABSENT | PST_PUT_IF_GENERATION))) {
        old = pst_shard_find(s, &put->lookup);
        r = pst_put_check(put, old, answer);
        if (r == PST_EXISTS) /* a page that is there already is wanted, too */
            pst_shard_touch(s, old, now_ns);
    }
    if (r == 0)
        r = pst_record_reserve(s, put, now_ns, &pending->record, answer);
    if (r != 0)
        return r;
    pending->offset = pst_record_offset(s, pending->record);
    pending->brief = false;
    set_brief(s, pending, true);
    pst_assert(pending->brief);
    pst_assert(pending->record->value_bytes == put->value_bytes);
    return 0;
}

void pst_pending_lasts(struct pst_shard *s, struct pst_pending *pending)
{
    pst_assert(pending->record);
    pst_assert(pending->brief);
    set_brief(s, pending, false);
}

int pst_pending_iov(const struct pst_shard *s, const struct pst_pending *pending, struct iovec *iov,
                    int iov_max)
{
    pst_assert(pending->record && pending->record->state & PST_STATE_RESERVED);
    return pst_record_iov(s, pending->record, 0, pending->record->value_bytes, iov, iov_max);
}

int pst_shard_link(struct pst_shard *s, const struct pst_lookup *lookup, struct pst_record *r,
                   struct pst_record *old)
{
    uint64_t ref = pst_record_ref(s, r);
    int result;

    pst_assert(ref);
    pst_assert(r != old);
    s->changes++;
    if (old) {
        result = pst_pins_inherit(s, old, r);
        if (result < 0)
            return result;
        result = pst_index_replace(s->index, lookup->hash, pst_record_ref(s, old), ref);
        pst_assert(result == 0);
        result = pst_order_replace(s->order, lookup->key, ref);
        pst_assert(result == 0);
        return 0;
    }
    if (pst_unlikely(s->expiries.live))
        pst_expiry_make_way(s, lookup);
    result = pst_index_insert(s->index, lookup->hash, ref);
    if (result < 0)
        return result;
    result = pst_order_insert(s->order, lookup->key, ref);
    if (result < 0)
        pst_index_remove(s->index, lookup->hash, ref);
    return result;
}

void pst_record_list(struct pst_shard *s, struct pst_record *r, uint64_t now_ns)
{
    struct pst_store *store = s->store;

    if (!pst_record_listed(r->flags))
        return;
    pst_assert(!(r->state & (PST_STATE_RESERVED | PST_RECORD_UNLINKED)));
    s->listed++;
    atomic_fetch_add_explicit(r->flags & PST_RECORD_CACHE ? &store->cache_pages : &store->spill_pages,
                              pst_record_pages(r), memory_order_relaxed);
    pst_recency_add(s, r, now_ns);
    pst_recency_loosened(s);
    pst_assert(s->listed <= s->stat.keys);
}

void pst_record_unlist(struct pst_shard *s, struct pst_record *r)
{
    struct pst_store *store = s->store;

    if (!pst_record_listed(r->flags))
        return;
    pst_assert(s->listed > 0);
    s->listed--;
    atomic_fetch_sub_explicit(r->flags & PST_RECORD_CACHE ? &store->cache_pages : &store->spill_pages,
                              pst_record_pages(r), memory_order_relaxed);
    pst_recency_remove(s, r);
}

void pst_key_count(struct pst_shard *s, const struct pst_record *r, bool comes)
{
    uint64_t by = comes ? 1 : UINT64_MAX; /* modulo 2^64 */
    bool cache = r->flags & PST_RECORD_CACHE, copies = r->copies > 1;

    pst_assert(comes || (s->stat.keys > 0 && s->stat.value_bytes >= r->value_bytes));
    pst_assert(comes || (s->stat.cache_keys >= cache && s->stat_later.copies_asked >= copies));
    s->stat.keys += by;
    s->stat.value_bytes += by * r->value_bytes;
    s->stat.cache_keys += by * cache;
    s->stat_later.copies_asked += by * copies;
}

/* What leaves with a record that no key names any more, whether or not its memory stays for a while. */
static void shard_forget_record(struct pst_shard *s, struct pst_record *r)
{
    pst_assert(!(r->state & PST_STATE_RESERVED));
    pst_key_count(s, r, false);
    pst_prefix_quota_count(s, r, false);
    if (pst_unlikely(r->flags & PST_RECORD_EXPIRES))
        pst_expiry_remove(s);
    if (pst_unlikely(s->tier))
        pst_tier_forget(s->tier, r);
    pst_record_unlist(s, r);
}

void pst_shard_drop(struct pst_shard *s, struct pst_record *r)
{
    struct pst_pin *pin = pst_record_pin(s, r);

    pst_assert(!(r->state & (PST_STATE_RESERVED | PST_RECORD_UNLINKED)));
    pst_assert(!(r->state & PST_RECORD_PINNED) == !pin);
    pst_assert(s->doomed_count >= (pin ? pin->doomed : 0u));
    pst_record_mark(r, 0); /* at once: its memory may be wanted for long, but not by a later process */
    shard_forget_record(s, r);
    if (pin && pin->refs) {
        pst_pin_soften(pin);
        s->doomed_count -= pin->doomed;
        pin->doomed = false;
        r->state |= PST_RECORD_UNLINKED;
        return;
    }
    if (pin) {
        s->doomed_count -= pin->doomed;
        pst_pins_remove(&s->pins, pin);
        r->state &= (uint8_t)~PST_RECORD_PINNED;
    }
    pst_record_give(s, r);
}

void pst_shard_unname(struct pst_shard *s, struct pst_record *r)
{
    struct pst_lookup lookup = pst_shard_lookup(s, pst_record_key(r));
    int result = pst_index_remove(s->index, lookup.hash, pst_record_ref(s, r));

    s->changes++;
    pst_assert(result == 0);
    result = pst_order_remove(s->order, lookup.key);
    pst_assert(result == 0);
}

void pst_shard_unlink_as(struct pst_shard *s, struct pst_record *r, enum pst_wire_what what)
{
    pst_shard_unname(s, r);
    if (pst_unlikely(s->listener_count))
        pst_shard_tell(s, r, what);
    pst_shard_drop(s, r);
}

void pst_shard_pass_generation(struct pst_shard *s, uint64_t generation)
{
    pst_assert(generation < PST_GENERATION_MAX);
    s->generation = pst_max(s->generation, ((generation | 0xff) + 1) | s->number);
    if (pst_unlikely(s->generation > s->generation_max))
        s->generation_max = pst_generations_take(s->store, s->generation);
    pst_assert(s->generation > generation);
    pst_assert((s->generation & 0xff) == s->number);
    pst_assert(s->generation <= s->generation_max);
}

uint64_t pst_shard_generation(const struct pst_shard *s)
{
    pst_assert((s->generation & 0xff) == s->number);
    return s->generation;
}

uint32_t pst_record_number(struct pst_shard *s, struct pst_record *r, uint64_t generation)
{
    pst_assert(r->state & PST_STATE_RESERVED);
    pst_shard_pass_generation(s, generation ? generation : s->generation);
    r->generation = generation ? generation : s->generation;
    return pst_record_check(r, s->store->check_seed, pst_record_offset(s, r));
}

void pst_shard_expose(struct pst_shard *s, struct pst_record *r, struct pst_record *old, uint64_t now_ns,
                      struct pst_answer *answer)
{
    bool again = old != NULL;

    pst_assert(r->state & PST_STATE_RESERVED);
    pst_assert(r->generation);
    pst_assert(r->generation <= s->generation);
    pst_assert(!old || old->generation < r->generation);
    r->state &= (uint8_t)~PST_STATE_RESERVED;
    if (old && pst_unlikely(s->tier))
        pst_tier_supersede(s->tier, old, r);
    if (old)
        pst_shard_drop(s, old);
    s->stat.puts++;
    pst_key_count(s, r, true);
    if (pst_unlikely(r->flags & PST_RECORD_EXPIRES))
        pst_expiry_add(s, r);
    pst_record_list(s, r, now_ns);
    if (again)
        pst_shard_touch(s, r, now_ns);
    if (pst_unlikely(s->listener_count))
        pst_shard_tell(s, r, PST_WIRE_CHANGE_PUT);
    if (pst_unlikely(s->tier))
        pst_tier_offer(s->tier, r);
    answer_with(answer, r);
}

/* The one moment at which a value becomes visible. */
static int shard_publish_record(struct pst_shard *s, const struct pst_put *put, struct pst_record *r,
                                struct pst_record *old, uint64_t now_ns, struct pst_answer *answer)
{
    int result;

    pst_assert(r->state & PST_STATE_RESERVED);
    pst_record_mark(r, pst_record_number(s, r, put->generation));
    result = pst_shard_link(s, &put->lookup, r, old);
    if (result == 0)
        pst_shard_expose(s, r, old, now_ns, answer);
    return result;
}

int pst_shard_commit(struct pst_shard *s, const struct pst_put *put, struct pst_pending *pending,
                     uint64_t now_ns, struct pst_answer *answer)
{
    struct pst_record *old = pst_shard_find(s, &put->lookup);
    int r = pst_shard_locked(s, &put->lookup, false) ? PST_BUSY : pst_put_check(put, old, answer);

    pst_assert(pending->record && pending->record->state & PST_STATE_RESERVED);
    if (r == 0)
        r = shard_publish_record(s, put, pending->record, old, now_ns, answer);
    if (r != 0)
        pst_record_give(s, pending->record);
    pending->record = NULL;
    set_brief(s, pending, false);
    pst_assert(!pending->brief);
    return r;
}

void pst_shard_abort(struct pst_shard *s, struct pst_pending *pending)
{
    if (!pending->record)
        return;
    pst_assert(pending->record->state & PST_STATE_RESERVED);
    pst_record_give(s, pending->record);
    pending->record = NULL;
    set_brief(s, pending, false);
}

void pst_pending_taken(struct pst_shard *s, struct pst_pending *pending)
{
    if (!pending->record)
        return;
    pst_assert(!(pending->record->state & PST_STATE_RESERVED));
    pending->record = NULL;
    set_brief(s, pending, false);
}

int pst_shard_put(struct pst_shard *s, const struct pst_put *put, const void *value, uint64_t now_ns,
                  struct pst_answer *answer)
{
    struct pst_pending pending;
    int r = pst_shard_reserve(s, put, now_ns, &pending, answer);

    if (r != 0)
        return r;
    pst_record_fill(s, pending.record, value);
    return pst_shard_commit(s, put, &pending, now_ns, answer);
}

int pst_shard_delete(struct pst_shard *s, const struct pst_lookup *lookup, bool conditional,
                     uint64_t if_generation, struct pst_answer *answer)
{
    struct pst_record *r = pst_shard_find(s, lookup);

    pst_assert(!r || !(r->state & PST_RECORD_UNLINKED));
    if (pst_shard_locked(s, lookup, false))
        return PST_BUSY;
    answer_with(answer, r);
    if (!r)
        return PST_MISS;
    if (conditional && if_generation != r->generation)
        return PST_STALE;
    pst_shard_unlink(s, r);
    s->stat.deletes++;
    return PST_OK;
}

int pst_shard_delete_replica(struct pst_shard *s, const struct pst_lookup *lookup, uint64_t generation)
{
    const struct pst_record *r = pst_shard_find(s, lookup);
    struct pst_answer none;

    pst_shard_pass_generation(s, generation);
    if (!r || r->generation > generation)
        return PST_MISS;
    return pst_shard_delete(s, lookup, false, 0, &none);
}

void pst_shard_stat_later(const struct pst_shard *s, struct pst_shard_later *out)
{
    pst_assert(s->stat_later.ssd_keys <= s->stat.keys);
    pst_assert(s->ssd_cache_keys <= s->stat.cache_keys);
    pst_assert(s->doomed_count <= s->pins.count);
    pst_assert(s->expiries.live <= s->stat.keys);
    pst_assert(s->pins.count > 0 || s->pins.bytes == 0);
    *out = s->stat_later;
    out->pinned_bytes = s->pins.bytes;
}

void pst_shard_stat_device(const struct pst_shard *s, struct pst_shard_device *out)
{
    *out = s->stat_device;
    pst_assert(out->hbm_keys <= s->stat.keys);
    pst_assert(out->hbm_bytes <= s->stat.value_bytes);
    if (s->tier)
        pst_tier_device_figures(s->tier, out);
}

void pst_shard_stat(struct pst_shard *s, struct pst_shard_stat *out)
{
    struct pst_slab_stat slab;

    pst_assert(pst_index_count(s->index) == pst_order_count(s->order));
    pst_assert(pst_index_count(s->index) >= s->stat.keys); /* with those that commits have reserved */
    pst_assert(s->stat.keys >= s->stat.cache_keys);
    pst_assert(s->stat.gets == s->stat.hits + s->stat.misses);
    pst_slab_stat(s->slab, &slab);
    *out = s->stat;
    out->pinned = s->pins.count;
    out->slab_pages = slab.pages;
    out->slab_bytes = slab.bytes_used;
    out->index_bytes = pst_index_memory_bytes(s->index) + pst_order_memory_bytes(s->order);
}
