/*
 * evict.c: which value goes when memory runs short. Cache records form one list a shard, by last use. The
 * victim is the oldest that nothing keeps; of those used in the same second the deepest goes first, since a
 * prefix chain is useless behind the page that is lost.
 */
#include "store/shard_priv.h"

enum {
    TIE_MS = 1000,        /* uses this close together count as one moment */
    TIE_RECORDS_MAX = 32, /* how many of one moment are compared */
    TICK_EVICTIONS_MAX = 64,
    WANTED_NS = 500000000, /* a waiting write asks again sooner than this, however crowded the cores are */
    TAKE_BACK_EVERY = 256, /* evictions without a free page before a slab page is emptied */
    TAKE_BACK_PERCENT = 90,
    WEIGHED_MAX = 4096, /* records that are looked at for what they would free; more are taken to be enough */
};

static struct pst_recency *recency_at(const struct pst_shard *s, uint64_t ref)
{
    return pst_record_recency(pst_ref_record(s, ref));
}

static void publish_tail(struct pst_shard *s)
{
    uint64_t ms = s->oldest ? recency_at(s, s->oldest)->touched_ms : UINT64_MAX;

    if (atomic_load_explicit(&s->tail_ms, memory_order_relaxed) != ms)
        atomic_store_explicit(&s->tail_ms, ms, memory_order_relaxed);
}

static uint64_t now_ms(const struct pst_shard *s, uint64_t now_ns)
{
    return (now_ns - s->store->start_ns) / 1000000;
}

void pst_recency_add(struct pst_shard *s, struct pst_record *r, uint64_t now_ns)
{
    uint64_t ref = pst_record_ref(s, r);
    struct pst_recency *rec = pst_record_recency(r);

    *rec = (struct pst_recency){.older = s->newest, .touched_ms = now_ms(s, now_ns)};
    if (s->newest)
        recency_at(s, s->newest)->newer = ref;
    s->newest = ref;
    if (!s->oldest) {
        s->oldest = ref;
        publish_tail(s);
    }
}

void pst_recency_remove(struct pst_shard *s, struct pst_record *r)
{
    struct pst_recency *rec = pst_record_recency(r);

    if (rec->newer)
        recency_at(s, rec->newer)->older = rec->older;
    else
        s->newest = rec->older;
    if (rec->older) {
        recency_at(s, rec->older)->newer = rec->newer;
    } else {
        s->oldest = rec->newer;
        publish_tail(s);
    }
}

void pst_recency_moved(struct pst_shard *s, struct pst_record *r)
{
    struct pst_recency *rec = pst_record_recency(r);
    uint64_t ref = pst_record_ref(s, r);

    *(rec->newer ? &recency_at(s, rec->newer)->older : &s->newest) = ref;
    *(rec->older ? &recency_at(s, rec->older)->newer : &s->oldest) = ref;
}

void pst_shard_touch(struct pst_shard *s, struct pst_record *r, uint64_t now_ns)
{
    uint64_t ref = pst_record_ref(s, r);

    if (!(r->flags & PST_RECORD_CACHE))
        return;
    if (s->newest == ref) { /* its place stays, its time does not */
        pst_record_recency(r)->touched_ms = now_ms(s, now_ns);
        if (s->oldest == ref)
            publish_tail(s);
        return;
    }
    pst_recency_remove(s, r);
    pst_recency_add(s, r, now_ns);
}

void pst_recency_loosened(struct pst_shard *s)
{
    if (s->oldest && atomic_load_explicit(&s->tail_ms, memory_order_relaxed) == UINT64_MAX)
        publish_tail(s);
}

static uint32_t depth_of(const struct pst_record *r)
{
    return r->depth == PST_DEPTH_NONE ? 0 : r->depth;
}

/* True for a while after all records were found to be kept, unless one was added or let go since. */
static bool all_kept(const struct pst_shard *s, uint64_t now_ns)
{
    return atomic_load_explicit(&s->tail_ms, memory_order_relaxed) == UINT64_MAX &&
           now_ms(s, now_ns) - s->all_kept_ms < TIE_MS;
}

/* The oldest loose record. Records that something keeps move to the young end, so that they are not looked at
 * again soon. */
static struct pst_record *oldest_loose(struct pst_shard *s, uint64_t now_ns)
{
    if (all_kept(s, now_ns))
        return NULL;
    for (uint64_t left = s->stat.cache_keys; left > 0 && s->oldest; left--) {
        struct pst_record *r = pst_ref_record(s, s->oldest);

        if (pst_record_loose(s, r, now_ns))
            return r;
        pst_recency_remove(s, r);
        pst_recency_add(s, r, now_ns);
    }
    return NULL;
}

static struct pst_record *victim(struct pst_shard *s, uint64_t now_ns)
{
    struct pst_record *best = oldest_loose(s, now_ns);
    uint64_t limit_ms;
    uint64_t ref;

    if (!best)
        return NULL;
    limit_ms = pst_record_recency(best)->touched_ms + TIE_MS;
    ref = pst_record_recency(best)->newer;
    for (int i = 0; i < TIE_RECORDS_MAX && ref; i++) {
        struct pst_record *r = pst_ref_record(s, ref);

        if (pst_record_recency(r)->touched_ms > limit_ms)
            break;
        if (depth_of(r) > depth_of(best) && pst_record_loose(s, r, now_ns))
            best = r;
        ref = pst_record_recency(r)->newer;
    }
    return best;
}

bool pst_shard_evict(struct pst_shard *s, uint64_t now_ns)
{
    struct pst_record *r = victim(s, now_ns);

    if (!r)
        return false;
    s->stat.evictions++;
    s->stat.evicted_bytes += r->value_bytes;
    pst_shard_unlink_as(s, r, PST_WIRE_CHANGE_EVICTED);
    return true;
}

/* False when keys that stay hold too many of the store's pages. */
static bool pages_obtainable(const struct pst_store *store, uint32_t pages)
{
    uint64_t cache = atomic_load_explicit(&store->cache_pages, memory_order_relaxed);
    uint64_t used = atomic_load_explicit(&store->extent_pages, memory_order_relaxed);

    return pages + used <= store->arenas.page_count + cache;
}

/* Whether the shard can free @pages together with what is free: slab pages are taken to be all freed. */
static bool enough_loose(struct pst_shard *s, uint32_t pages, uint64_t now_ns)
{
    uint64_t freed = atomic_load_explicit(&s->store->pages.free_count, memory_order_relaxed), ref = s->oldest;
    struct pst_slab_stat slab;

    pst_slab_stat(s->slab, &slab);
    freed += slab.pages;
    for (int i = 0; freed < pages && ref && i < WEIGHED_MAX; i++) {
        struct pst_record *r = pst_ref_record(s, ref);

        if (pst_record_loose(s, r, now_ns))
            freed += pst_record_pages(r);
        ref = pst_record_recency(r)->newer;
    }
    return freed >= pages || ref;
}

bool pst_shard_make_room(struct pst_shard *s, uint32_t pages, uint64_t now_ns)
{
    if (!pages_obtainable(s->store, pages) || !enough_loose(s, pages, now_ns))
        return false;
    if (pst_shard_evict(s, now_ns)) {
        if (s->stat.evictions % TAKE_BACK_EVERY == 0)
            pst_shard_take_back(s, TAKE_BACK_PERCENT);
        return true;
    }
    if (s->oldest) { /* all that is left is kept by someone: other shards need not wait for it */
        atomic_store_explicit(&s->tail_ms, UINT64_MAX, memory_order_relaxed);
        s->all_kept_ms = now_ms(s, now_ns);
    }
    return pst_shard_take_back(s, TAKE_BACK_PERCENT);
}

bool pst_store_evictable_elsewhere(const struct pst_shard *s, uint32_t pages)
{
    if (!pages_obtainable(s->store, pages))
        return false;
    for (uint32_t i = 0; i < s->store->shard_count; i++) {
        const struct pst_shard *other = &s->store->shards[i];

        if (other != s && atomic_load_explicit(&other->tail_ms, memory_order_relaxed) != UINT64_MAX)
            return true;
    }
    return false;
}

static bool coldest(const struct pst_shard *s)
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
    if (now_ms(s, now_ns) - s->all_kept_ms >= TIE_MS) /* pins end by time, too, and nobody says so */
        pst_recency_loosened(s);
    for (int i = 0; i < TICK_EVICTIONS_MAX; i++) {
        uint32_t free_pages = atomic_load_explicit(&store->pages.free_count, memory_order_relaxed);
        bool asked = now_ns < atomic_load_explicit(&store->wanted_ns, memory_order_relaxed) + WANTED_NS;
        uint32_t wanted = asked ? atomic_load_explicit(&store->pages_wanted, memory_order_relaxed) : 0;

        if (free_pages >= pst_max(store->pages_low, wanted) || !coldest(s))
            return false;
        if (!pst_shard_make_room(s, 0, now_ns))
            return false;
    }
    return true;
}
