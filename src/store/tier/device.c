/* SPDX-License-Identifier: Apache-2.0 */
/*
 * device.c: values in device memory: which go there, where they lie, and in which order they leave. A value
 * goes up when it is put, read, or would have to leave memory, while the device has room; else when it was
 * read lately and is read again, into pages that are kept free for that. Then the least recently used leave.
 */
#include "base/clock.h"
#include "base/fault.h"
#include "gpu/gpu.h"
#include "store/claim.h"
#include "store/evict_priv.h"
#include "store/index/order.h"
#include "store/link_priv.h"
#include "store/pins_priv.h"
#include "store/place.h"
#include "store/tier/tier_priv.h"
#include "store/tiering_priv.h"

#include <stdio.h>

enum {
    PIECE_BYTES = 256 << 10,
    LIFTS_MAX = 32,
    LOWERS_MAX = 4,
    LOOKED_AT_MAX = 16,        /* values, for one that may leave */
    FREE_SHARE = 20,           /* of the pages, kept free for what is read again */
    FAILURES_MAX = 3,          /* of copies in a row: then nothing goes there until one does not fail */
    LANDED_NS = 1000000000,    /* how long a value that came there waits for readers of the one in memory */
    LOWER_AGAIN_NS = 10000000, /* after one that found no room */
    REFILL_NS = 1000000000,    /* after one that found no value */
};

/* A value that lies there, by its first page. */
struct on_device {
    struct pst_list link; /* in the order of use */
    struct pst_record *record;
    bool failed; /* it is read from the log */
};

/* A value on its way up; holds a reference. */
struct lift {
    struct pst_list link; /* idle, or landed */
    struct pst_record *record;
    struct pst_run runs[PST_DEVICE_RUNS_MAX];
    uint32_t run_count;
    uint32_t pages; /* of memory, counted as coming back */
    uint64_t until_ns;
    struct pst_device_copy copy;
    struct pst_tier_iov pieces;
};

struct pst_device {
    struct pst_gpu *gpu;
    struct pst_gpu_memory *memory;
    struct pst_pages pages;
    uint32_t pages_low; /* fewer free ones than this make values leave */
    struct on_device *values;
    struct pst_list order; /* the least recently used first */
    struct pst_list reads, writes;
    struct pst_list idle, landed;
    struct lift lifts[LIFTS_MAX];
    uint32_t lift_count, lowers;
    uint32_t failures;
    uint64_t lower_ns;  /* not before */
    uint64_t refill_ns; /* nor this */
    bool refilled;      /* a value at least */
    bool refills;       /* a walk over the keys is underway; as far as: */
    uint16_t key_bytes;
    uint8_t key[PST_KEY_BYTES_MAX];
    struct pst_rounds rounds;
};

static struct on_device *value_of(const struct pst_tier *t, const struct pst_record *r)
{
    const struct pst_device_runs *runs = pst_record_device_runs(r);

    pst_assert(t->device && runs->run_count > 0);
    pst_assert(runs->runs[0].page < t->device->pages.page_count);
    return &t->device->values[runs->runs[0].page];
}

static uint32_t free_pages(const struct pst_device *d)
{
    return atomic_load_explicit(&d->pages.free_count, memory_order_relaxed);
}

static bool memory_is_short(const struct pst_store *store)
{
    return atomic_load_explicit(&store->pages.free_count, memory_order_relaxed) < store->pages_low;
}

/* ---- copies ---- */

/* Where byte @at of the value lies; at most *@bytes of it. */
static uint64_t place_of(const struct pst_run *runs, uint64_t at, uint64_t *bytes)
{
    for (;; runs++) {
        uint64_t len = (uint64_t)runs->count * PST_DEVICE_PAGE_BYTES;

        pst_assert(runs->count > 0);
        if (at < len) {
            *bytes = pst_min(*bytes, len - at);
            return (uint64_t)runs->page * PST_DEVICE_PAGE_BYTES + at;
        }
        at -= len;
    }
}

static void copy_begin_piece(struct pst_device *d, struct pst_device_copy *c)
{
    const struct iovec *iov = &c->iov[c->piece];
    uint64_t bytes = pst_min(pst_min(iov->iov_len - c->piece_at, PIECE_BYTES), c->bytes - c->done);
    uint64_t offset = place_of(c->runs, c->from + c->done, &bytes);
    uint8_t *at = (uint8_t *)iov->iov_base + c->piece_at;
    int r;

    pst_assert(bytes > 0);
    if (pst_fault(PST_FAULT_device_copy_eio))
        r = -EIO;
    else if (c->in)
        r = pst_gpu_copy_in(d->memory, offset, at, bytes);
    else
        r = pst_gpu_copy_out(d->memory, offset, at, bytes);
    c->result = r;
    c->done += bytes;
    c->piece_at += bytes;
    if (c->piece_at == iov->iov_len) {
        c->piece++;
        c->piece_at = 0;
    }
}

/* Return: true when no byte is on its way any more, and c->result says how it went. */
static bool copy_step(struct pst_device *d, struct pst_device_copy *c)
{
    const struct pst_gpu_ops *ops = d->gpu->ops;
    int r;

    pst_assert(c->done <= c->bytes);
    if (c->result == 0 && c->done < c->bytes) {
        copy_begin_piece(d, c);
        return false;
    }
    r = c->event ? ops->event_is_done(c->event) : ops->record(d->gpu, &c->event);
    if (r == 0)
        return false;
    c->result = r < 0 && c->result == 0 ? r : c->result;
    if (c->event)
        ops->event_close(c->event);
    c->event = NULL;
    return true;
}

static void copy_begin(struct pst_list *list, struct pst_device_copy *c, const struct pst_tier_iov *pieces,
                       const struct pst_run *runs, uint64_t from, uint64_t bytes, bool in)
{
    *c = (struct pst_device_copy){.iov = pieces->iov, .runs = runs, .from = from, .bytes = bytes, .in = in};
    pst_assert(bytes > 0 && pieces->count > 0);
    pst_list_push_back(list, &c->link);
}

static bool lift_settle(struct pst_tier *t, struct lift *l, uint64_t now_ns);

static void copy_done(struct pst_tier *t, struct pst_device_copy *c, uint64_t now_ns)
{
    struct pst_device *d = t->device;
    struct lift *l;

    d->failures = c->result < 0 ? d->failures + 1 : 0;
    if (c->result < 0) {
        t->shard->stat_device.hbm_errors++;
        atomic_fetch_add_explicit(&t->shard->store->device_errors, 1, memory_order_relaxed);
    }
    if (!c->in) {
        pst_fetch_done(t, pst_container_of(c, struct pst_fetch, copy), c->result, now_ns);
        return;
    }
    pst_assert(!c->event);
    l = pst_container_of(c, struct lift, copy);
    l->until_ns = now_ns + LANDED_NS;
    pst_list_push_back(&d->landed, &l->link);
    lift_settle(t, l, now_ns);
}

/* A piece of each at least, until the turn is over; with @once, one piece. Return: true when there were some.
 */
static bool copies_run(struct pst_tier *t, struct pst_list *list, bool once, const struct pst_turn *turn,
                       uint64_t now_ns)
{
    struct pst_list left;

    if (pst_list_empty(list))
        return false;
    pst_list_init(&left);
    pst_list_splice(&left, list);
    do {
        struct pst_device_copy *c = pst_list_first(&left, struct pst_device_copy, link);

        pst_list_remove(&c->link);
        if (copy_step(t->device, c))
            copy_done(t, c, now_ns);
        else if (c->event) /* on its way, and asked again later */
            pst_list_push_back(list, &c->link);
        else
            pst_list_push_front(&left, &c->link);
    } while (!pst_list_empty(&left) && !once && !pst_turn_is_over(turn));
    pst_list_splice(&left, list);
    pst_list_splice(list, &left);
    return true;
}

/* ---- up ---- */

static void lift_give(struct pst_tier *t, struct lift *l)
{
    struct pst_store *store = t->shard->store;

    pst_assert(l->record && t->device->lift_count > 0);
    atomic_fetch_sub_explicit(&store->saving_pages, l->pages, memory_order_relaxed);
    atomic_fetch_sub_explicit(&store->lifts, 1, memory_order_relaxed);
    pst_tier_pieces_free(&l->pieces);
    l->record = NULL;
    t->device->lift_count--;
    pst_list_remove(&l->link);
    pst_list_push_front(&t->device->idle, &l->link);
}

static void lift_give_up(struct pst_tier *t, struct lift *l)
{
    pst_pages_give(&t->device->pages, l->runs, (int)l->run_count);
    pst_shard_unref(t->shard, l->record);
    lift_give(t, l);
}

/* The record that says where the value lies now takes its place. */
static void lift_replace(struct pst_tier *t, struct lift *l)
{
    struct pst_shard *s = t->shard;
    struct pst_record *r = l->record, *lifted;
    struct on_device *value;

    pst_shard_unref(s, r);
    lifted = pst_record_lift(s, r, l->runs, l->run_count);
    if (lifted) {
        value = value_of(t, lifted);
        pst_assert(!value->record);
        *value = (struct on_device){.record = lifted};
        pst_list_push_back(&t->device->order, &value->link);
        s->stat_device.hbm_promotions++;
        s->stat_device.hbm_keys++;
        s->stat_device.hbm_bytes += lifted->value_bytes;
    } else {
        pst_pages_give(&t->device->pages, l->runs, (int)l->run_count);
    }
    lift_give(t, l);
}

/* The bytes are there, or never will be. Return: true when that was all. */
static bool lift_settle(struct pst_tier *t, struct lift *l, uint64_t now_ns)
{
    const struct pst_record *r = l->record;

    pst_assert(r->flags & PST_RECORD_EXTERNAL);
    if (l->copy.result == 0 && pst_record_only_ours(t->shard, r))
        lift_replace(t, l);
    else if (l->copy.result < 0 || r->state & PST_RECORD_UNLINKED || t->closing || now_ns >= l->until_ns)
        lift_give_up(t, l);
    else
        return false;
    return true;
}

static bool lifts_settle(struct pst_tier *t, uint64_t now_ns)
{
    bool something = false;

    pst_list_each_safe (it, &t->device->landed)
        something |= lift_settle(t, pst_list_entry(it, struct lift, link), now_ns);
    return something;
}

/* Whether the value may lie there. What could not be read again when memory is short may not, nor what has an
 * end or counts against a quota: those are looked for in memory. */
static bool device_takes(const struct pst_tier *t, const struct pst_record *r)
{
    const struct pst_shard *s = t->shard;
    const struct pst_pin *pin;

    if (!(r->flags & PST_RECORD_EXTERNAL) || r->flags & PST_RECORD_EXPIRES ||
        r->state & (PST_RECORD_UNLINKED | PST_STATE_RESERVED) || r->value_bytes < PST_DEVICE_PAGE_BYTES ||
        pst_record_pages(r) > s->store->away_pages_max)
        return false;
    pin = pst_record_pin(s, r);
    if (pin && (pin->hard || pin->until_ns || pin->doomed))
        return false;
    return !s->store->quota_count || pst_key_group(s->store, pst_record_key(r)) == 0;
}

static bool is_lifted(const struct pst_device *d, const struct pst_record *r)
{
    for (int i = 0; r->state & PST_RECORD_PINNED && d->lift_count > 0 && i < LIFTS_MAX; i++) {
        if (d->lifts[i].record == r)
            return true;
    }
    return false;
}

/* Takes pages for it and a reference. Return: false: not now. */
static bool lift_take(struct pst_tier *t, struct lift *l, struct pst_record *r, uint32_t pages)
{
    struct pst_device *d = t->device;
    int runs = pst_pages_take(&d->pages, pages, l->runs, PST_DEVICE_RUNS_MAX);

    pst_assert(runs <= PST_DEVICE_RUNS_MAX);
    if (runs < 0)
        return false;
    l->run_count = (uint32_t)runs;
    if (pst_tier_pieces(t->shard, r, &l->pieces) == 0) {
        if (pst_shard_ref(t->shard, r) == 0)
            return true;
        pst_tier_pieces_free(&l->pieces);
    }
    pst_pages_give(&d->pages, l->runs, runs);
    return false;
}

/* Begins to bring up a value that the device takes; if it is @hot into the pages that are kept for that.
 * Return: false: not now. */
static bool lift_begin(struct pst_tier *t, struct pst_record *r, bool hot)
{
    struct pst_device *d = t->device;
    struct pst_store *store = t->shard->store;
    uint64_t pages = pst_div_up(r->value_bytes, PST_DEVICE_PAGE_BYTES);
    struct lift *l;

    if (t->closing || d->failures >= FAILURES_MAX || pst_list_empty(&d->idle) ||
        free_pages(d) < pages + (hot ? 0 : d->pages_low) || is_lifted(d, r))
        return false;
    l = pst_list_first(&d->idle, struct lift, link);
    pst_assert(!l->record);
    if (!lift_take(t, l, r, (uint32_t)pages))
        return false;
    l->record = r;
    l->pages = pst_record_pages(r);
    atomic_fetch_add_explicit(&store->saving_pages, l->pages, memory_order_relaxed);
    atomic_fetch_add_explicit(&store->lifts, 1, memory_order_relaxed);
    pst_list_remove(&l->link);
    d->lift_count++;
    copy_begin(&d->writes, &l->copy, &l->pieces, l->runs, 0, r->value_bytes, true);
    pst_assert(d->lift_count <= LIFTS_MAX);
    return true;
}

bool pst_tier_lift(struct pst_tier *t, struct pst_record *r)
{
    return t->device && device_takes(t, r) && lift_begin(t, r, false);
}

void pst_tier_offer(struct pst_tier *t, struct pst_record *r)
{
    (void)pst_tier_lift(t, r);
}

void pst_shard_read(struct pst_shard *s, struct pst_record *r)
{
    struct pst_device *d = s->tier ? s->tier->device : NULL;

    if (!d || !device_takes(s->tier, r))
        return;
    if (!lift_begin(s->tier, r, pst_rounds_lately(&d->rounds, r)))
        pst_rounds_note(&d->rounds, r, s->stat_device.hbm_keys);
}

/* ---- what is there ---- */

bool pst_device_has(const struct pst_tier *t, const struct pst_record *r)
{
    return r->flags & PST_RECORD_ON_DEVICE && !value_of(t, r)->failed;
}

void pst_device_used(struct pst_tier *t, const struct pst_record *r)
{
    struct on_device *value = value_of(t, r);

    pst_assert(value->record == r);
    pst_list_remove(&value->link);
    pst_list_push_back(&t->device->order, &value->link);
}

void pst_device_read(struct pst_tier *t, struct pst_fetch *f)
{
    pst_assert(f->of_device && f->record);
    copy_begin(&t->device->reads, &f->copy, &f->pieces, pst_record_device_runs(f->stub)->runs, f->from,
               f->bytes, false);
}

/* One that only the caller refers to, and no commit underway. */
static bool may_evict(struct pst_shard *s, const struct pst_record *r)
{
    struct pst_lookup lookup = pst_shard_lookup(s, pst_record_key(r));

    return r->flags & PST_RECORD_CACHE && pst_record_only_ours(s, r) && !pst_shard_locked(s, &lookup, true);
}

int pst_device_failed(struct pst_tier *t, struct pst_record *r)
{
    pst_assert(r->flags & PST_RECORD_ON_DEVICE);
    if (r->state & PST_RECORD_UNLINKED)
        return PST_BUSY;
    if (pst_record_placed(r)) {
        value_of(t, r)->failed = true;
        return PST_BUSY;
    }
    if (!may_evict(t->shard, r))
        return -EIO;
    pst_record_evict(t->shard, r);
    return PST_BUSY;
}

void pst_tier_moved(struct pst_tier *t, struct pst_record *r)
{
    pst_assert(value_of(t, r)->record);
    value_of(t, r)->record = r;
}

void pst_device_forget(struct pst_tier *t, const struct pst_record *r)
{
    struct on_device *value = value_of(t, r);
    struct pst_shard_device *stat = &t->shard->stat_device;

    pst_assert(value->record == r);
    pst_assert(stat->hbm_keys > 0 && stat->hbm_bytes >= r->value_bytes);
    pst_list_remove(&value->link);
    value->record = NULL;
    stat->hbm_keys--;
    stat->hbm_bytes -= r->value_bytes;
}

/* The device has room again, and memory is short: what stayed there for want of it goes up. A write that
 * finds no memory meanwhile waits, as for a lift. */
static void refill_begin(struct pst_tier *t)
{
    struct pst_device *d = t->device;

    if (d->refills || t->closing || !memory_is_short(t->shard->store) || free_pages(d) <= 2 * d->pages_low ||
        t->clock() < d->refill_ns)
        return;
    d->refills = true;
    d->refilled = false;
    d->key_bytes = 0;
    atomic_fetch_add_explicit(&t->shard->store->lifts, 1, memory_order_relaxed);
}

static void refill_end(struct pst_tier *t)
{
    pst_assert(t->device->refills && t->shard->store->lifts > 0);
    t->device->refills = false;
    t->device->refill_ns = t->device->refilled ? 0 : t->clock() + REFILL_NS;
    atomic_fetch_sub_explicit(&t->shard->store->lifts, 1, memory_order_relaxed);
}

/* Return: true when it went on. */
static bool refill_run(struct pst_tier *t, const struct pst_turn *turn)
{
    struct pst_device *d = t->device;
    struct pst_order_cursor cursor;
    uint64_t ref = 0;

    if (!d->refills || (pst_list_empty(&d->idle) && !t->closing))
        return false;
    cursor = pst_order_seek(t->shard->order, (struct pst_bytes){d->key, d->key_bytes}, d->key_bytes > 0);
    while (!t->closing && free_pages(d) > d->pages_low && !pst_list_empty(&d->idle)) {
        struct pst_record *r;

        ref = pst_order_next(t->shard->order, &cursor);
        if (!ref)
            break;
        r = pst_ref_record(t->shard, ref);
        d->refilled |= pst_tier_lift(t, r);
        pst_assert(r->key_bytes <= sizeof(d->key));
        d->key_bytes = r->key_bytes;
        memcpy(d->key, pst_record_key(r).data, r->key_bytes);
        if (pst_turn_is_over(turn))
            return true;
    }
    if (!ref || free_pages(d) <= d->pages_low)
        refill_end(t);
    return true;
}

void pst_tier_give_device(struct pst_tier *t, const struct pst_record *r)
{
    const struct pst_device_runs *runs = pst_record_device_runs(r);

    pst_assert(!value_of(t, r)->record);
    pst_assert(runs->run_count <= PST_DEVICE_RUNS_MAX);
    pst_pages_give(&t->device->pages, runs->runs, (int)runs->run_count);
    refill_begin(t);
}

/* ---- down ---- */

void pst_device_lowered(struct pst_tier *t, struct pst_record *r, int result)
{
    struct pst_device *d = t->device;

    pst_assert(d->lowers > 0);
    d->lowers--;
    if (r->state & PST_RECORD_UNLINKED)
        return;
    d->lower_ns = t->clock() + LOWER_AGAIN_NS;
    if (result == -ENOSPC && may_evict(t->shard, r))
        pst_record_evict(t->shard, r);
}

/* Has the least recently used value that may go leave. Return: true when one does. */
static bool device_make_room(struct pst_tier *t, uint64_t now_ns)
{
    struct pst_device *d = t->device;
    struct pst_shard *s = t->shard;

    if (free_pages(d) >= d->pages_low || now_ns < d->lower_ns || d->lowers == LOWERS_MAX)
        return false;
    for (int i = 0; i < LOOKED_AT_MAX && !pst_list_empty(&d->order); i++) {
        struct on_device *value = pst_list_first(&d->order, struct on_device, link);
        struct pst_record *r = value->record;

        pst_device_used(t, r); /* whatever becomes of it, it is not looked at again soon */
        if (!pst_record_loose(s, r, now_ns) || r->state & PST_RECORD_PINNED)
            continue;
        if (pst_record_placed(r) && memory_is_short(s->store)) {
            s->stat_device.hbm_demotions++;
            pst_stub_replace(s, r);
            return true;
        }
        d->lowers += pst_fetch_lower(t, r);
        return true;
    }
    return false;
}

/* ---- the loop ---- */

bool pst_device_run(struct pst_tier *t, const struct pst_turn *turn, uint64_t now_ns)
{
    struct pst_device *d = t->device;
    bool something = copies_run(t, &d->reads, false, turn, now_ns);

    something |= copies_run(t, &d->writes, true, turn, now_ns);
    something |= lifts_settle(t, now_ns);
    something |= refill_run(t, turn);
    if (!t->closing)
        something |= device_make_room(t, now_ns);
    return something;
}

void pst_tier_tick(struct pst_tier *t, uint64_t now_ns)
{
    struct pst_turn turn;

    if (!t || !t->device)
        return;
    turn = pst_turn_begin(t->clock, PST_TIER_TURN_NS);
    pst_device_run(t, &turn, now_ns);
}

bool pst_device_idle(const struct pst_tier *t)
{
    return t->device->lift_count == 0 && t->fetch_count == 0 && !t->device->refills;
}

void pst_tier_device_figures(const struct pst_tier *t, struct pst_shard_device *out)
{
    const struct pst_device *d = t->device;

    if (!d)
        return;
    pst_assert(free_pages(d) <= d->pages.page_count);
    out->hbm_capacity_bytes = (uint64_t)d->pages.page_count * PST_DEVICE_PAGE_BYTES;
    out->hbm_used_bytes = (uint64_t)(d->pages.page_count - free_pages(d)) * PST_DEVICE_PAGE_BYTES;
}

uint64_t pst_store_device_errors(const struct pst_store *store)
{
    return atomic_load_explicit(&store->device_errors, memory_order_relaxed);
}

/* ---- life ---- */

static void device_init(struct pst_device *d)
{
    pst_list_init(&d->order);
    pst_list_init(&d->reads);
    pst_list_init(&d->writes);
    pst_list_init(&d->idle);
    pst_list_init(&d->landed);
    for (int i = 0; i < LIFTS_MAX; i++) {
        d->lifts[i].pieces.iov = d->lifts[i].pieces.own;
        pst_list_push_back(&d->idle, &d->lifts[i].link);
    }
}

static int device_open(struct pst_tier *t, const struct pst_device_options *options, uint32_t pages,
                       char fault[PST_FAULT_BYTES])
{
    struct pst_device *d = calloc(1, sizeof(*d));
    uint64_t bytes = (uint64_t)pages * PST_DEVICE_PAGE_BYTES;
    int r;

    pst_assert(pages > 0);
    pst_assert(!t->device);
    snprintf(fault, PST_FAULT_BYTES, "out of memory");
    if (!d)
        return -ENOMEM;
    t->device = d; /* pst_device_close() ends a part of it, too */
    device_init(d);
    r = options->ops->open(options->ordinal, &d->gpu, fault);
    if (r < 0)
        return r;
    r = options->ops->allocate(d->gpu, bytes, &d->memory);
    if (r < 0) {
        snprintf(fault, PST_FAULT_BYTES, "no %llu bytes of %s memory: %s", (unsigned long long)bytes,
                 options->ops->name, strerror(-r));
        return r;
    }
    r = pst_pages_init(&d->pages, pages, pages);
    d->values = calloc(pages, sizeof(*d->values));
    d->pages_low = pages / FREE_SHARE;
    return r == 0 && !d->values ? -ENOMEM : r;
}

/* Copies of memory that is not locked take place in the call that begins them. */
static void arenas_lock(struct pst_store *store)
{
    struct pst_gpu *gpu = store->shards[0].tier->device->gpu;

    pst_assert(!store->device_locked);
    _Static_assert((int)PST_ARENAS_MAX <= 64, "a bit for each arena");
    pst_assert(store->arenas.arena_count <= PST_ARENAS_MAX);
    for (uint32_t i = 0; i < store->arenas.arena_count; i++) {
        struct iovec memory = pst_arena_memory(&store->arenas, i);

        if (gpu->ops->lock(gpu, memory.iov_base, memory.iov_len) == 0)
            store->device_locked |= 1ull << i;
    }
}

void pst_devices_unlock(struct pst_store *store)
{
    for (uint32_t i = 0; store->device_locked && i < store->arenas.arena_count; i++) {
        struct pst_gpu *gpu = store->shards[0].tier->device->gpu;

        if (store->device_locked >> i & 1)
            gpu->ops->unlock(gpu, pst_arena_memory(&store->arenas, i).iov_base);
    }
    store->device_locked = 0;
}

int pst_devices_open(struct pst_store *store, const struct pst_device_options *options, const char **why)
{
    static _Thread_local char fault[PST_FAULT_BYTES];
    uint64_t pages = options->bytes / store->shard_count / PST_DEVICE_PAGE_BYTES;
    int r = 0;

    *why = fault;
    if (pages == 0 || pages > PST_PAGES_MAX) {
        snprintf(fault, sizeof(fault), "%llu bytes for %u shards: each has %s 64 KiB at the %s",
                 (unsigned long long)options->bytes, store->shard_count,
                 pages == 0 ? "a page of" : "2^32 - 64 pages of", pages == 0 ? "least" : "most");
        return -EINVAL;
    }
    if (store->kept) {
        snprintf(fault, sizeof(fault),
                 "device memory ends with the node, and keep wants values to outlive it");
        return -EINVAL;
    }
    for (uint32_t i = 0; i < store->shard_count && r == 0; i++)
        r = device_open(store->shards[i].tier, options, (uint32_t)pages, fault);
    if (r == 0)
        arenas_lock(store);
    return r;
}

/* Nothing is underway, unless the store was never begun. */
void pst_device_close(struct pst_tier *t)
{
    struct pst_device *d = t->device;

    if (!d)
        return;
    if (d->memory)
        pst_gpu_settle(d->gpu);
    if (d->values)
        pst_pages_fini(&d->pages);
    free(d->values);
    pst_gpu_give(d->memory);
    pst_gpu_close(d->gpu);
    free(d);
    t->device = NULL;
}
