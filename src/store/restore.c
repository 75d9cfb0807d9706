/* SPDX-License-Identifier: Apache-2.0 */
/*
 * restore.c: what an earlier process left in the arenas becomes a store again. Slab pages are walked cell by
 * cell; a cell whose checksum is right holds a record, of two with one key the newer counts, and what a
 * record names is claimed for it. Memory that nobody claims is free. Nothing is believed that is not checked:
 * what cannot be is dropped.
 *
 * The pages that one shard of the earlier process had are a *set*: a shard has the set of its number, and
 * works on it with a thread of its own. Records of a set whose keys another shard has now, since there are
 * more or fewer of them, are *misplaced*: they are dealt with by one thread, and moved when all else has its
 * place. At every moment the arenas are what the next process can begin with.
 */
#include "base/clock.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/ms.h"
#include "store/evict_priv.h"
#include "store/kept.h"
#include "store/link_priv.h"
#include "store/place.h"
#include "store/read.h"
#include "store/record_mark.h"
#include "store/shard_priv.h"
#include "wire/route.h"

#include <pthread.h>
#include <sched.h>

enum { THREADS_MAX = 64 };

static const uint64_t TOUCHED_MS_MAX = 1ull << 43;

struct refs {
    uint64_t *items;
    size_t count, room;
};

struct set {
    struct restore *restore;
    struct pst_slab *slab;
    uint32_t number;
    uint32_t first_page, page_count; /* in the restore's list */
    struct refs linked; /* the shard's records that have memory outside of their cell, or may be evicted */
    struct refs misplaced;
    struct refs gone;    /* cells to be given when all are claimed: a page is not to go before that */
    uint64_t generation; /* the highest seen */
    uint64_t dropped;
    int error;
};

struct restore {
    struct pst_store *store;
    struct set sets[PST_SHARDS_MAX];
    uint32_t set_count;
    uint32_t *pages; /* of all sets, one after the other */
    void (*work)(struct set *set);
    _Atomic uint32_t next; /* the set that no thread has yet */
};

static int refs_add(struct refs *refs, uint64_t ref)
{
    if (refs->count == refs->room) {
        size_t room = refs->room ? 2 * refs->room : 1024;
        uint64_t *larger = realloc(refs->items, room * sizeof(*larger));

        if (!larger)
            return -ENOMEM;
        refs->items = larger;
        refs->room = room;
    }
    pst_assert(ref);
    pst_assert(refs->count < refs->room);
    refs->items[refs->count++] = ref;
    return 0;
}

/* ---- threads ---- */

static void *work_on_sets(void *arg)
{
    struct restore *re = arg;

    pst_assert(re->work);
    pst_assert(re->set_count > 0);
    for (uint32_t i; (i = atomic_fetch_add(&re->next, 1)) < re->set_count;) {
        if (re->sets[i].error == 0)
            re->work(&re->sets[i]);
    }
    return NULL;
}

/* On all cores, one set a thread. Return: 0 or the first error. */
static int on_all_sets(struct restore *re, void (*work)(struct set *set))
{
    pthread_t threads[THREADS_MAX];
    cpu_set_t cpus;
    uint32_t wanted = sched_getaffinity(0, sizeof(cpus), &cpus) == 0 ? (uint32_t)CPU_COUNT(&cpus) : 1;
    uint32_t started = 0;
    int r = 0;

    pst_assert(re->set_count > 0 && re->set_count <= PST_SHARDS_MAX);
    re->work = work;
    atomic_store(&re->next, 0);
    wanted = (uint32_t)pst_min(pst_min(wanted, re->set_count), THREADS_MAX);
    /* This thread is one of them, so that fewer than wanted is only slower. */
    while (started + 1 < wanted && pthread_create(&threads[started], NULL, work_on_sets, re) == 0)
        started++;
    work_on_sets(re);
    for (uint32_t i = 0; i < started; i++)
        pthread_join(threads[i], NULL);
    for (uint32_t i = 0; i < re->set_count && r == 0; i++)
        r = re->sets[i].error;
    return r;
}

/* ---- records ---- */

/* Whether a cell holds a record that was written to its end. */
static bool record_is_whole(const struct pst_store *store, const struct pst_record *r, uint64_t offset,
                            uint32_t cell_bytes)
{
    const uint8_t known =
        PST_RECORD_EXTERNAL | PST_RECORD_CACHE | PST_RECORD_CHECKSUM | PST_RECORD_TIERED | PST_RECORD_EXPIRES;
    size_t body_at, room;

    if (!r->check || cell_bytes < sizeof(*r) || r->flags & ~known || !r->key_bytes ||
        r->key_bytes > PST_KEY_BYTES_MAX || r->attr_bytes > PST_ATTR_BYTES_MAX || !r->generation ||
        r->generation >= PST_GENERATION_MARKER_MAX)
        return false;
    body_at = pst_record_body_at(r->flags, r->key_bytes, r->attr_bytes);
    if (body_at > cell_bytes)
        return false;
    room = cell_bytes - body_at;
    if (r->flags & PST_RECORD_EXTERNAL) {
        if (room < sizeof(struct pst_external) ||
            pst_record_external(r)->run_count > (room - sizeof(struct pst_external)) / sizeof(struct pst_run))
            return false;
    } else if (r->value_bytes > room) {
        return false;
    }
    return r->check == pst_record_check(r, store->check_seed, offset);
}

static uint32_t route_of(const struct pst_store *store, const struct pst_record *r)
{
    pst_assert(r->key_bytes > 0 && r->key_bytes <= PST_KEY_BYTES_MAX);
    return pst_route_shard(pst_record_key(r), store->partition_seed, store->shard_count);
}

static struct set *set_of(struct restore *re, uint64_t ref)
{
    const struct pst_arenas *a = &re->store->arenas;

    return &re->sets[pst_page_desc(a, pst_offset_page(a, pst_ref_offset(re->store->shards, ref)))->shard];
}

static void count_key(struct pst_shard *s, const struct pst_record *r, bool comes)
{
    pst_assert(!(r->flags & PST_RECORD_ON_DISK));
    pst_key_count(s, r, comes);
    pst_prefix_quota_count(s, r, comes);
    if (r->flags & PST_RECORD_EXPIRES && comes)
        pst_expiry_restored(s, r);
    else if (r->flags & PST_RECORD_EXPIRES)
        pst_expiry_remove(s);
}

/* The record, which lies in @set, goes. Return: 0 or -ENOMEM. */
static int restore_let_go(struct set *set, struct pst_record *r)
{
    pst_assert(r->check);
    pst_assert(r->generation);
    pst_record_mark(r, 0);
    r->generation = 0;
    return refs_add(&set->gone, pst_record_ref(&set->restore->store->shards[0], r));
}

static void give_gone(struct set *set)
{
    pst_assert(set->gone.count <= set->gone.room);
    for (size_t i = 0; i < set->gone.count; i++)
        pst_slab_give(set->slab, pst_ref_offset(set->restore->store->shards, set->gone.items[i]));
}

/* Makes a record, whose cell is claimed, its key's, unless there is a newer one. Return: 0, PST_STALE,
 * -ENOMEM. */
static int link_newest(struct restore *re, struct pst_shard *s, struct pst_record *r)
{
    struct pst_lookup lookup = pst_shard_lookup(s, pst_record_key(r));
    struct pst_record *old = pst_shard_find(s, &lookup);
    int result;

    pst_assert(r->check);
    pst_assert(!(r->state & PST_STATE_RESERVED));
    /* Of one that was being moved both are whole and alike; the first was found where it belongs. */
    if (old && r->generation <= old->generation)
        return PST_STALE;
    result = pst_shard_link(s, &lookup, r, old);
    if (result == 0 && old) {
        count_key(s, old, false);
        result = restore_let_go(set_of(re, pst_record_ref(s, old)), old);
    }
    if (result == 0)
        count_key(s, r, true);
    return result;
}

/* ---- the walk ---- */

static int restore_found(struct set *set, struct pst_record *r, uint64_t offset)
{
    struct pst_store *store = set->restore->store;
    uint32_t route = route_of(store, r);
    struct pst_shard *s = &store->shards[route];
    uint8_t lists = PST_RECORD_EXTERNAL | PST_RECORD_CACHE;
    int result = pst_slab_claim(set->slab, offset, pst_record_bytes(r));

    pst_assert(result != -EINVAL);
    if (result == -EEXIST) { /* the page is in another set: what it says of its owner has changed meanwhile */
        set->dropped++;
        return 0;
    }
    if (result < 0)
        return result;
    r->state =
        (r->flags & PST_RECORD_EXTERNAL) && (r->flags & PST_RECORD_CHECKSUM) ? PST_RECORD_UNVERIFIED : 0;
    set->generation = pst_max(set->generation, r->generation);
    if (r->flags & PST_RECORD_TIERED) /* the log says where, should it still have a copy */
        pst_record_set_place(r, (struct pst_log_place){0, 0});
    if (route != set->number)
        return refs_add(&set->misplaced, pst_record_ref(s, r));
    result = link_newest(set->restore, s, r);
    if (result == PST_STALE)
        return restore_let_go(set, r);
    if (result == 0)
        pst_record_own_cells(s, r);
    return result == 0 && r->flags & lists ? refs_add(&set->linked, pst_record_ref(s, r)) : result;
}

static void walk_part(struct set *set, const struct pst_slab_cut *cut)
{
    struct pst_store *store = set->restore->store;

    pst_assert(cut->cell_count > 0);
    pst_assert(cut->cell_bytes > 0);
    for (uint32_t i = 0; i < cut->cell_count && set->error == 0; i++) {
        uint64_t offset = cut->offset + (uint64_t)i * cut->cell_bytes;
        struct pst_record *r = (struct pst_record *)(void *)(store->arenas.base + offset);

        if (record_is_whole(store, r, offset, cut->cell_bytes))
            set->error = restore_found(set, r, offset);
    }
}

static void restore_walk(struct set *set)
{
    for (uint32_t i = 0; i < set->page_count; i++) {
        struct pst_slab_cut cut;

        for (uint32_t part = 0; part < PST_PAGE_SPANS_MAX; part++) {
            if (pst_slab_cut(set->slab, set->restore->pages[set->first_page + i], part, &cut))
                walk_part(set, &cut);
        }
    }
}

/* ---- what lies outside of the cell ---- */

/* Pages and tail of a record in @set. Return: 0, -ENOMEM, others: they are not its own, and it has none of
 * them. */
static int claim_value(struct set *set, struct pst_shard *s, struct pst_record *r)
{
    const struct pst_external *e = pst_record_external(r);
    const struct pst_run *runs = pst_external_runs(e);
    const struct pst_arenas *a = &s->store->arenas;
    uint64_t bytes = e->tail_bytes;
    int result;

    pst_assert(r->check);
    pst_assert(r->flags & PST_RECORD_EXTERNAL);
    for (uint32_t i = 0; i < e->run_count; i++) {
        if (runs[i].page >= a->page_count || runs[i].count > a->arena_pages)
            return -ERANGE;
        bytes += runs[i].count * a->page_bytes;
    }
    if (bytes < r->value_bytes)
        return -ERANGE;
    result = pst_runs_claim(s, runs, e->run_count);
    if (result < 0 || !e->tail_bytes)
        return result;
    result = pst_slab_claim(set->slab, e->tail_offset, e->tail_bytes);
    if (result < 0)
        pst_runs_give(s, runs, e->run_count);
    return result;
}

/* Return: 0, also when the record had to go; -ENOMEM. */
static int claim_or_drop(struct set *set, struct pst_shard *s, struct pst_record *r)
{
    int result = r->flags & PST_RECORD_EXTERNAL ? claim_value(set, s, r) : 0;

    if (result == 0 || result == -ENOMEM)
        return result;
    pst_shard_unname(s, r);
    count_key(s, r, false);
    set->dropped++;
    return restore_let_go(set, r);
}

static void claim_values(struct set *set)
{
    struct pst_shard *s;

    pst_assert(set->error == 0);
    if (set->number >= set->restore->store->shard_count)
        return;
    s = &set->restore->store->shards[set->number];
    for (size_t i = 0; i < set->linked.count && set->error == 0; i++) {
        struct pst_record *r = pst_ref_record(s, set->linked.items[i]);

        if (r->check) /* else a newer one was found */
            set->error = claim_or_drop(set, s, r);
        if (set->error == 0 && r->check)
            pst_record_own_cells(s, r);
    }
}

/* ---- misplaced records ---- */

/* Each misplaced record in turn, with the shard that has its key now. Return: 0 or the first error. */
static int each_misplaced(struct restore *re,
                          int (*visit)(struct set *set, struct pst_shard *s, struct pst_record *r))
{
    int result = 0;

    for (uint32_t n = 0; n < re->set_count; n++) {
        struct set *set = &re->sets[n];

        for (size_t i = 0; i < set->misplaced.count && result == 0; i++) {
            uint64_t *ref = &set->misplaced.items[i];
            struct pst_record *r = *ref ? pst_ref_record(&re->store->shards[0], *ref) : NULL;

            if (r && r->check)
                result = visit(set, &re->store->shards[route_of(re->store, r)], r);
            if (r &&
                !r->check) /* it has moved, or a newer one was found; its cell will hold something else */
                *ref = 0;
        }
    }
    return result;
}

static int misplaced_links(struct set *set, struct pst_shard *s, struct pst_record *r)
{
    int result = link_newest(set->restore, s, r);

    return result == PST_STALE ? restore_let_go(set, r) : result;
}

static int misplaced_claims(struct set *set, struct pst_shard *s, struct pst_record *r)
{
    int result = claim_or_drop(set, s, r);

    return result == 0 && r->check && pst_record_listed(r->flags)
               ? refs_add(&set->restore->sets[s->number].linked, pst_record_ref(s, r))
               : result;
}

static int move_misplaced(struct set *set, struct pst_shard *s, struct pst_record *r)
{
    uint64_t offset, tail_offset = PST_TAIL_STAYS;
    bool tail = r->flags & PST_RECORD_EXTERNAL && pst_record_external(r)->tail_bytes;
    int result = tail ? pst_slab_take(s->slab, pst_record_external(r)->tail_bytes, &tail_offset) : 0;

    pst_assert(s->number != set->number);
    if (result < 0)
        return result;
    result = pst_slab_take(s->slab, pst_record_bytes(r), &offset);
    if (result < 0) {
        if (tail)
            pst_slab_give(s->slab, tail_offset);
        return result;
    }
    pst_record_move(s, r, offset, tail_offset, set->slab);
    s->store->restored.moved++;
    return 0;
}

/* As pst_record_evict(), but the cells are another set's. */
static void evict_misplaced(struct set *set, struct pst_shard *s, struct pst_record *r)
{
    const struct pst_external *e = r->flags & PST_RECORD_EXTERNAL ? pst_record_external(r) : NULL;

    pst_assert(r->flags & PST_RECORD_CACHE);
    pst_shard_unname(s, r);
    pst_record_mark(r, 0);
    pst_record_unlist(s, r);
    count_key(s, r, false);
    s->stat.evictions++;
    s->stat.evicted_bytes += r->value_bytes;
    if (e)
        pst_runs_give(s, pst_external_runs(e), e->run_count);
    if (e && e->tail_bytes)
        pst_slab_give(set->slab, e->tail_offset);
    pst_slab_give(set->slab, pst_record_offset(s, r));
}

/* First those that may go: what is left of them is then where it belongs. */
static int cache_misplaced_moves(struct set *set, struct pst_shard *s, struct pst_record *r)
{
    int result = r->flags & PST_RECORD_CACHE ? move_misplaced(set, s, r) : 0;

    if (result != -ENOSPC)
        return result;
    evict_misplaced(set, s, r);
    return 0;
}

static int keep_misplaced_moves(struct set *set, struct pst_shard *s, struct pst_record *r)
{
    struct pst_store *store = s->store;
    int result = r->flags & PST_RECORD_CACHE ? 0 : move_misplaced(set, s, r);

    for (uint32_t i = 0; result == -ENOSPC && i < store->shard_count;) {
        if (pst_shard_evict(&store->shards[i], store->start_ns))
            result = move_misplaced(set, s, r);
        else
            i++;
    }
    pst_assert(result <= 0);
    return result;
}

/* ---- recency ---- */

struct use {
    uint64_t ms, ref;
    uint8_t uses;
};

static int compare_uses(const void *a, const void *b)
{
    const struct use *x = a, *y = b;

    return x->ms != y->ms ? (x->ms > y->ms) - (x->ms < y->ms) : (x->ref > y->ref) - (x->ref < y->ref);
}

/* Cache records of the shard, by when they were used. Return: their number, or -ENOMEM. */
static int64_t list_uses(const struct set *set, const struct pst_shard *s, struct use **out)
{
    struct use *list = malloc((set->linked.count + 1) * sizeof(*list));
    int64_t count = 0;

    if (!list)
        return -ENOMEM;
    for (size_t i = 0; i < set->linked.count; i++) {
        const struct pst_record *r = pst_ref_record(s, set->linked.items[i]);
        const struct pst_recency *rec =
            r->check && pst_record_listed(r->flags) ? pst_record_recency(r) : NULL;

        if (rec)
            list[count++] = (struct use){
                .ms = rec->touched_ms < TOUCHED_MS_MAX ? rec->touched_ms : 0,
                .ref = set->linked.items[i],
                .uses = (uint8_t)(rec->line == PST_LINE_LONG ? pst_max(rec->uses, 1) : rec->uses)};
    }
    qsort(list, (size_t)count, sizeof(*list), compare_uses);
    *out = list;
    pst_assert((size_t)count <= set->linked.count);
    return count;
}

static void order_uses(struct set *set)
{
    struct pst_store *store = set->restore->store;
    pst_cleanup_free struct use *list = NULL;
    struct pst_shard *s;
    int64_t count;

    if (set->number >= store->shard_count)
        return;
    s = &store->shards[set->number];
    count = list_uses(set, s, &list);
    set->error = count < 0 ? -ENOMEM : 0;
    pst_assert(count <= (int64_t)set->linked.count);
    for (int64_t i = 0; i < count; i++) {
        struct pst_record *r = pst_ref_record(s, list[i].ref);

        pst_record_list(s, r, store->epoch_ns + pst_ns_of_ms(list[i].ms));
        pst_record_recency(r)->uses = list[i].uses & 15u;
    }
}

/* ---- all of it ---- */

/* Lists the slab pages by their set, of which there is one at least for each shard. Return: 0 or -ENOMEM. */
static int deal_pages(struct restore *re)
{
    const struct pst_arenas *a = &re->store->arenas;
    uint32_t at = 0;

    re->pages = malloc(a->page_count * sizeof(*re->pages));
    if (!re->pages)
        return -ENOMEM;
    re->set_count = re->store->shard_count;
    for (uint32_t number = 0; number < PST_SHARDS_MAX; number++) {
        re->sets[number] = (struct set){.restore = re, .number = number};
        if (number < re->store->shard_count)
            re->sets[number].slab = re->store->shards[number].slab;
    }
    for (int pass = 0; pass < 2; pass++) {
        for (uint32_t page = 0; page < a->page_count; page++) {
            const struct pst_page_desc *desc = pst_page_desc(a, page);
            struct set *set = desc->shard < PST_SHARDS_MAX ? &re->sets[desc->shard] : NULL;

            if (!set || (desc->kind != PST_PAGE_SLAB && desc->kind != PST_PAGE_SPANS))
                continue;
            if (pass == 1)
                re->pages[set->first_page + set->page_count] = page;
            set->page_count++;
            re->set_count = (uint32_t)pst_max(re->set_count, desc->shard + 1u);
        }
        pst_assert(re->set_count <= PST_SHARDS_MAX);
        for (uint32_t number = 0; number < PST_SHARDS_MAX && pass == 0; number++) {
            re->sets[number].first_page = at;
            at += re->sets[number].page_count;
            re->sets[number].page_count = 0;
        }
    }
    pst_assert(at <= a->page_count);
    pst_assert(re->set_count >= re->store->shard_count);
    return 0;
}

/* Sets that no shard has keep a slab until their records have moved. */
static int open_slabs(struct restore *re)
{
    int r = 0;

    pst_assert(re->set_count >= re->store->shard_count);
    for (uint32_t n = re->store->shard_count; n < re->set_count && r == 0; n++)
        r = pst_slab_open(&re->store->arenas, &re->store->pages, (uint16_t)n, &re->sets[n].slab);
    return r;
}

/* What clients of an earlier process look at stays as it is as long as this one lives. Return: 0 or -ENOMEM.
 */
static int hold_viewed(struct restore *re)
{
    struct pst_store *store = re->store;
    int r = 0;

    pst_assert(store->restored.held == 0);
    for (uint32_t page = 0; page < store->arenas.page_count && r == 0; page++) {
        struct pst_page_desc *desc = pst_page_desc(&store->arenas, page);

        if (!desc->views)
            continue;
        if (desc->view_first > desc->view_last ||
            !pst_arenas_in_use(&store->arenas, desc->view_first, desc->view_last)) {
            desc->views = 0;
            continue;
        }
        r = pst_pages_hold(&store->pages, page);
        for (uint32_t n = 0; n < re->set_count; n++)
            pst_slab_page_hold(re->sets[n].slab, page);
        store->restored.held++;
    }
    return r;
}

/* Recency goes on from the latest use that was seen. */
static void set_clocks(struct restore *re)
{
    struct pst_store *store = re->store;
    uint64_t generation = atomic_load(&store->kept->generation), ms = 0;

    if (generation >= PST_GENERATION_MARKER_MAX) /* damaged: what was found says how far they were */
        generation = 0;
    for (uint32_t n = 0; n < re->set_count; n++) {
        const struct set *set = &re->sets[n];

        generation = pst_max(generation, set->generation);
        for (size_t i = 0; i < set->linked.count; i++) {
            const struct pst_record *r = pst_ref_record(&store->shards[0], set->linked.items[i]);

            if (r->check && pst_record_listed(r->flags) && pst_record_recency(r)->touched_ms < TOUCHED_MS_MAX)
                ms = pst_max(ms, pst_record_recency(r)->touched_ms);
        }
    }
    store->epoch_ns = store->start_ns - pst_ns_of_ms(pst_max(ms, PST_RECENCY_MS_MIN));
    for (uint32_t i = 0; i < store->shard_count; i++) {
        struct pst_shard *s = &store->shards[i];

        s->generation = (pst_max(s->generation, generation) & ~0xffull) | i;
        pst_assert((s->generation & 0xff) == i);
        pst_assert(s->generation < PST_GENERATION_MAX);
        s->reservation_handle = s->generation;
    }
}

static void sum_up(struct restore *re)
{
    struct pst_restored *sum = &re->store->restored;

    pst_assert(!re->store->restored.taken_up);
    for (uint32_t i = 0; i < re->store->shard_count; i++) {
        const struct pst_shard *s = &re->store->shards[i];

        sum->keys += s->stat.keys;
        sum->value_bytes += s->stat.value_bytes;
    }
    for (uint32_t n = 0; n < re->set_count; n++)
        sum->dropped += re->sets[n].dropped;
    sum->taken_up = true;
    sum->ms = (pst_now_ns() - re->store->start_ns) / 1000000;
}

static int restore_all(struct restore *re)
{
    int r = deal_pages(re);

    pst_words_finish(re->store);
    if (r == 0)
        r = open_slabs(re);
    if (r == 0)
        r = on_all_sets(re, restore_walk);
    if (r == 0)
        r = each_misplaced(re, misplaced_links);
    if (r == 0)
        r = on_all_sets(re, claim_values);
    if (r == 0)
        r = each_misplaced(re, misplaced_claims);
    if (r < 0)
        return r;
    set_clocks(re);
    r = on_all_sets(re, order_uses);
    if (r == 0)
        r = on_all_sets(re, give_gone);
    if (r == 0)
        r = hold_viewed(re);
    if (r == 0)
        r = each_misplaced(re, cache_misplaced_moves);
    if (r == 0)
        r = each_misplaced(re, keep_misplaced_moves);
    pst_assert(r <= 0);
    return r;
}

int pst_store_restore(struct pst_store *store, const char **fault)
{
    struct restore *re = calloc(1, sizeof(*re));
    int r;

    pst_assert(store->kept);
    pst_assert(store->arenas.taken_up);
    pst_assert(store->shard_count > 0);
    *fault = "out of memory";
    if (!re)
        return -ENOMEM;
    re->store = store;
    r = restore_all(re);
    if (r == 0)
        sum_up(re);
    if (r == -ENOSPC) {
        pst_fail(r, "no room to move values to %u shards: start with %u as before, and make room",
                 store->shard_count, store->kept->shard_count);
        *fault = pst_error_text();
    }
    for (uint32_t n = 0; n < re->set_count; n++) {
        free(re->sets[n].linked.items);
        free(re->sets[n].misplaced.items);
        free(re->sets[n].gone.items);
        if (n >= store->shard_count)
            pst_slab_close(re->sets[n].slab);
    }
    free(re->pages);
    free(re);
    return r;
}

/* ---- the first read ---- */

int pst_record_verify_now(struct pst_shard *s, struct pst_record *r)
{
    struct iovec piece;
    uint32_t crc = 0;

    pst_assert(r->state & PST_RECORD_UNVERIFIED);
    pst_assert(r->flags & PST_RECORD_CHECKSUM);
    for (uint64_t at = 0; pst_record_piece(s, r, at, r->value_bytes - at, &piece); at += piece.iov_len)
        crc = pst_crc32c(crc, piece.iov_base, piece.iov_len);
    if (crc != r->value_crc)
        return -EBADMSG;
    r->state &= (uint8_t)~PST_RECORD_UNVERIFIED;
    return 0;
}
