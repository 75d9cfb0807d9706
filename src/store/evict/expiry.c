/* SPDX-License-Identifier: Apache-2.0 */
/*
 * expiry.c: values with an end. The record says when, by the real-time clock, so that a later process knows;
 * a look-up sees none whose time is over. Its memory goes soon after: a heap names the hashes of such keys
 * and their times. What has been deleted or written anew leaves its entry behind until its time, or until
 * half of the heap is such.
 */
#include "store/claim.h"
#include "store/evict_priv.h"
#include "store/index/index.h"
#include "store/link_priv.h"
#include "store/put.h"

enum {
    TICK_MAX = 256,
    SPARE_MIN = 64,
};

struct pst_expiry {
    uint64_t ms, hash;
};

static uint64_t wall_ms(const struct pst_store *store, uint64_t now_ns)
{
    return now_ns / 1000000 + store->wall_offset_ms;
}

void pst_shard_time(struct pst_shard *s, uint64_t now_ns)
{
    s->expiries.wall_ms = wall_ms(s->store, now_ns);
}

uint64_t pst_shard_wall_ms(const struct pst_shard *s)
{
    return s->expiries.wall_ms;
}

bool pst_shard_expires(const struct pst_shard *s)
{
    return s->expiries.live > 0;
}

uint64_t pst_shard_expires_in_ms(const struct pst_shard *s)
{
    const struct pst_expiries *e = &s->expiries;

    pst_assert(e->count <= e->room);
    if (e->count == 0)
        return UINT64_MAX;
    return e->heap[0].ms > e->wall_ms ? e->heap[0].ms - e->wall_ms : 0;
}

uint64_t pst_put_expires_ms(const struct pst_shard *s, const struct pst_put *put)
{
    uint64_t ttl_ms = put->ttl_ms;
    size_t longest = 0;

    pst_assert(!(put->flags & PST_PUT_FETCHED) || put->ttl_ms == 0);
    if (put->flags & PST_PUT_FETCHED)
        return 0;
    for (uint32_t i = 0; !put->ttl_ms && i < s->store->ttl_count; i++) {
        const struct pst_prefix_number *ttl = &s->store->ttls[i];

        if (ttl->prefix.len >= longest && pst_bytes_begin(put->lookup.key, ttl->prefix)) {
            ttl_ms = ttl->number;
            longest = ttl->prefix.len;
        }
    }
    return ttl_ms ? s->expiries.wall_ms + pst_min(ttl_ms, PST_TTL_MS_MAX) : 0;
}

/* ---- the heap: the earliest on top ---- */

static void sift_up(struct pst_expiry *heap, uint64_t at)
{
    struct pst_expiry entry = heap[at];

    for (; at && heap[(at - 1) / 2].ms > entry.ms; at = (at - 1) / 2)
        heap[at] = heap[(at - 1) / 2];
    heap[at] = entry;
}

static void sift_down(struct pst_expiry *heap, uint64_t count, uint64_t at)
{
    struct pst_expiry entry = heap[at];

    pst_assert(at < count);
    for (uint64_t child; (child = 2 * at + 1) < count; at = child) {
        child += child + 1 < count && heap[child + 1].ms < heap[child].ms;
        if (heap[child].ms >= entry.ms)
            break;
        heap[at] = heap[child];
    }
    heap[at] = entry;
}

/* The record whose time the entry tells, if it is still there. */
static struct pst_record *record_of(struct pst_shard *s, const struct pst_expiry *entry)
{
    uint64_t refs[PST_INDEX_CANDIDATES_MAX];
    int count = pst_index_candidates(s->index, entry->hash, refs);

    pst_assert(count <= PST_INDEX_CANDIDATES_MAX);
    for (int i = 0; i < count; i++) {
        struct pst_record *r = pst_ref_record(s, refs[i]);

        if (r->flags & PST_RECORD_EXPIRES && !(r->state & PST_STATE_RESERVED) &&
            pst_record_expires_ms(r) == entry->ms &&
            pst_shard_lookup(s, pst_record_key(r)).hash == entry->hash)
            return r;
    }
    return NULL;
}

/* Tells other shards when the value on top ends. */
static void heap_publish(struct pst_shard *s)
{
    const struct pst_expiries *e = &s->expiries;

    pst_assert(e->count <= e->room);
    atomic_store_explicit(&s->ends_ms, e->count ? e->heap[0].ms : UINT64_MAX, memory_order_relaxed);
}

static void drop_stale(struct pst_shard *s)
{
    struct pst_expiries *e = &s->expiries;
    uint64_t kept = 0;

    for (uint64_t i = 0; i < e->count; i++) {
        if (record_of(s, &e->heap[i]))
            e->heap[kept++] = e->heap[i];
    }
    pst_assert(kept <= e->count);
    e->count = kept;
    for (uint64_t i = kept / 2; i-- > 0;)
        sift_down(e->heap, kept, i);
    heap_publish(s);
}

/* ---- records ---- */

int pst_expiry_prepare(struct pst_shard *s)
{
    struct pst_expiries *e = &s->expiries;
    uint64_t room = e->count + e->pending + 1;
    struct pst_expiry *larger;

    if (room > e->room) {
        room = pst_max(2 * room, SPARE_MIN);
        larger = realloc(e->heap, room * sizeof(*larger));
        if (!larger)
            return -ENOMEM;
        e->heap = larger;
        e->room = room;
    }
    e->pending++;
    pst_assert(e->count + e->pending <= e->room);
    return 0;
}

void pst_expiry_abandon(struct pst_shard *s)
{
    pst_assert(s->expiries.pending > 0);
    s->expiries.pending--;
}

void pst_expiry_add(struct pst_shard *s, const struct pst_record *r)
{
    struct pst_expiries *e = &s->expiries;

    pst_expiry_abandon(s);
    pst_assert(r->flags & PST_RECORD_EXPIRES);
    pst_assert(e->count < e->room);
    e->live++;
    if (e->count > 2 * e->live + SPARE_MIN)
        drop_stale(s);
    e->heap[e->count] =
        (struct pst_expiry){pst_record_expires_ms(r), pst_shard_lookup(s, pst_record_key(r)).hash};
    sift_up(e->heap, e->count++);
    if (pst_record_expires_ms(r) < atomic_load_explicit(&s->ends_ms, memory_order_relaxed))
        atomic_store_explicit(&s->ends_ms, pst_record_expires_ms(r), memory_order_relaxed);
    pst_assert(e->count <= e->room);
    pst_assert(e->live <= s->stat.keys);
}

void pst_expiry_restored(struct pst_shard *s, const struct pst_record *r)
{
    pst_assert(r->flags & PST_RECORD_EXPIRES);
    if (pst_expiry_prepare(s) == 0)
        pst_expiry_add(s, r);
    else
        s->expiries.live++; /* its memory goes with its key */
}

void pst_expiry_remove(struct pst_shard *s)
{
    pst_assert(s->expiries.live > 0);
    s->expiries.live--;
}

void pst_expiry_make_way(struct pst_shard *s, const struct pst_lookup *lookup)
{
    uint64_t refs[PST_INDEX_CANDIDATES_MAX];
    int count = pst_index_candidates(s->index, lookup->hash, refs);

    pst_assert(s->expiries.live > 0);
    pst_assert(count <= PST_INDEX_CANDIDATES_MAX);
    for (int i = 0; i < count; i++) {
        struct pst_record *r = pst_ref_record(s, refs[i]);

        if (pst_record_expired(s, r) && pst_bytes_equal(pst_record_key(r), lookup->key)) {
            pst_shard_unlink_as(s, r, PST_WIRE_CHANGE_EVICTED);
            return;
        }
    }
}

/* Takes the entry on top, whose time is over. Return: false when a commit has a say about its value. */
static bool heap_pop(struct pst_shard *s, struct pst_expiry *out)
{
    struct pst_expiries *e = &s->expiries;
    struct pst_record *r = record_of(s, &e->heap[0]);
    bool goes = true;

    pst_assert(e->count > 0 && e->heap[0].ms <= e->wall_ms);
    if (r) {
        struct pst_lookup lookup = pst_shard_lookup(s, pst_record_key(r));

        pst_assert(e->live > 0);
        goes = !pst_shard_locked(s, &lookup, false);
        if (goes)
            pst_shard_unlink_as(s, r, PST_WIRE_CHANGE_EVICTED);
    }
    *out = e->heap[0];
    e->heap[0] = e->heap[--e->count];
    if (e->count)
        sift_down(e->heap, e->count, 0);
    return goes;
}

bool pst_expiries_tick(struct pst_shard *s)
{
    struct pst_expiries *e = &s->expiries;
    struct pst_expiry locked[TICK_MAX]; /* they go back: none behind them waits for their commits */
    int looks = 0, locked_count = 0;

    for (; looks < TICK_MAX && e->count && e->heap[0].ms <= e->wall_ms; looks++)
        locked_count += !heap_pop(s, &locked[locked_count]);
    if (looks) /* before those go back: nor does another shard wait for them */
        heap_publish(s);
    for (int i = 0; i < locked_count; i++) {
        e->heap[e->count] = locked[i];
        sift_up(e->heap, e->count++);
    }
    pst_assert(e->count <= e->room);
    return looks == TICK_MAX && locked_count < TICK_MAX;
}

bool pst_expiries_drop(struct pst_shard *s)
{
    uint64_t count = s->expiries.count;

    pst_expiries_tick(s);
    pst_assert(s->expiries.count <= count);
    return s->expiries.count < count;
}

bool pst_store_has_ended(const struct pst_store *store, const struct pst_shard *but, uint64_t now_ns)
{
    uint64_t ms = wall_ms(store, now_ns);

    pst_assert(store->shard_count > 0);
    for (uint32_t i = 0; i < store->shard_count; i++) {
        const struct pst_shard *s = &store->shards[i];

        if (s != but && atomic_load_explicit(&s->ends_ms, memory_order_relaxed) <= ms)
            return true;
    }
    return false;
}

void pst_expiries_fini(struct pst_shard *s)
{
    pst_assert(s->expiries.count <= s->expiries.room);
    free(s->expiries.heap);
}
