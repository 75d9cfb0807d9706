/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tier.c: a shard's side of the log and of the device: opened and closed with the store, polled by whoever
 * runs the shard. What goes to the log is in save.c, all of it at once in flush.c, to the device in device.c,
 * what comes back in fetch.c, the forms of a record in stub.c; what the log has of overwritten values in
 * older.c; how it comes by free segments in reclaim.c.
 */
#include "base/error.h"
#include "base/clock.h"
#include "store/evict_priv.h"
#include "store/link_priv.h"
#include "store/place.h"
#include "store/put.h"
#include "store/read.h"
#include "store/tier/tier_priv.h"
#include "store/tiering_priv.h"
#include "wire/route.h"

#include <poll.h>
#include <stdio.h>

enum {
    FULL_NS = 500000000,         /* a full log is asked again after this, or when a value on it has gone */
    TELL_NS = 100000000,         /* between looks at the generations that were given out */
    PATIENCE_NS = 1500000000,    /* until another shard has taken a segment back, on a busy machine, too */
    STARVED_NS = 2000000000,     /* a log that was full so long ago may have been empty since */
    STARVED_NS_MAX = 4000000000, /* segments are taken back, but for others */
    DEPTH = 64,                  /* operations underway in each lane */
    CLOSE_POLL_MS = 100,
    SPARE_SHARE = 16,
    CELL_PAGES = 2,  /* for a record and its tail, where slab pages have no room */
    FEW_PAGES = 8,   /* a memory of fewer cannot spare those */
    FLUSHES_MAX = 2, /* of an end */
};

/* ---- pieces ---- */

int pst_tier_pieces(struct pst_shard *s, const struct pst_record *r, struct pst_tier_iov *out)
{
    int max = PST_TIER_PIECES, count;
    struct iovec *more;

    out->iov = out->own;
    while ((count = pst_record_iov(s, r, 0, r->value_bytes, out->iov, max)) < 0) {
        max *= 8;
        more = realloc(out->iov == out->own ? NULL : out->iov, (size_t)max * sizeof(*more));
        if (!more) {
            pst_tier_pieces_free(out);
            return -ENOMEM;
        }
        out->iov = more;
    }
    pst_assert(count <= max);
    out->count = count;
    pst_assert(count > 0 || r->value_bytes == 0);
    return 0;
}

void pst_tier_pieces_free(struct pst_tier_iov *pieces)
{
    pst_assert(pieces->iov);
    if (pieces->iov != pieces->own)
        free(pieces->iov);
    pieces->iov = pieces->own;
}

/* ---- what the engine asks ---- */

bool pst_shard_tiered(const struct pst_shard *s)
{
    return s->tier != NULL;
}

bool pst_shard_logs(const struct pst_shard *s)
{
    return pst_tier_logs(s->tier);
}

bool pst_tier_takes(const struct pst_tier *t, const struct pst_record *r)
{
    if (!pst_tier_logs(t) || !(r->flags & PST_RECORD_EXTERNAL) || !(r->flags & PST_RECORD_TIERED))
        return false;
    pst_assert(t->magic == PST_TIER_MAGIC);
    pst_assert(!(r->flags & PST_RECORD_ON_DISK));
    if (pst_record_pages(r) > t->shard->store->away_pages_max)
        return false; /* nor could it be read again when memory is short */
    return pst_record_placed(r) || (!t->full_until_ns && r->value_bytes <= t->value_bytes_max);
}

int pst_put_check_durable(const struct pst_shard *s, const struct pst_put *put, struct pst_answer *answer)
{
    if (!pst_tier_logs(s->tier))
        return -EOPNOTSUPP;
    pst_assert(s->tier->magic == PST_TIER_MAGIC);
    pst_assert(s->tier->value_bytes_max > 0);
    if (pst_put_expires_ms(s, put))
        return -EINVAL;
    if (put->value_bytes <= s->tier->value_bytes_max)
        return 0;
    *answer = (struct pst_answer){.limit_bytes = s->tier->value_bytes_max};
    return -EFBIG;
}

bool pst_tier_busy(const struct pst_tier *t)
{
    pst_assert(!t || t->saves_underway <= PST_SAVES_MAX);
    return t && (t->log_busy || t->saves_underway == PST_SAVES_MAX);
}

bool pst_tier_demote(struct pst_tier *t, struct pst_record *r, uint64_t now_ns)
{
    struct pst_shard *s = t->shard;
    struct pst_save *save;
    int result;

    pst_assert(t->magic == PST_TIER_MAGIC);
    pst_assert(pst_tier_takes(t, r));
    if (r->state & PST_RECORD_PINNED) { /* doomed, and nothing keeps it any more */
        pst_shard_unlink(s, r);
        return true;
    }
    if (pst_record_placed(r)) {
        s->stat_later.demotions++;
        pst_stub_replace(s, r);
        return true;
    }
    result = pst_save_begin(t, r, PST_SAVE_DEMOTES, NULL, &save);
    if (result == -ENOSPC || result == -EIO)
        pst_tier_full(t, now_ns);
    return result == 0;
}

/* What is put now can go to the log when it is there. */
static bool puts_underway(const struct pst_store *store)
{
    pst_assert(store->shard_count > 0);
    for (uint32_t i = 0; i < store->shard_count; i++) {
        if (atomic_load_explicit(&store->shards[i].puts_underway, memory_order_relaxed) > 0)
            return true;
    }
    return false;
}

/* What a shard was told of a full log, others may have made untrue: then its next poll finds that out. */
static bool log_gains(const struct pst_shard *s)
{
    bool full = false, gains = false;

    pst_assert(s->tier);
    pst_assert(s->store->log);
    for (uint32_t i = 0; i < s->store->shard_count; i++) {
        const struct pst_tier *t = s->store->shards[i].tier;

        if (!atomic_load_explicit(&t->full_until_ns, memory_order_relaxed))
            continue;
        full = true;
        gains = gains || pst_log_takes(t->lane);
    }
    if (!full || (!gains && !pst_reclaim_gains(s->tier)))
        return false;
    atomic_store_explicit(&s->store->ssd_full, false, memory_order_relaxed);
    return true;
}

bool pst_tier_relieves(const struct pst_shard *s, uint32_t pages, uint64_t now_ns)
{
    if (!s->tier)
        return false;
    if (atomic_load_explicit(&s->store->lifts, memory_order_relaxed) > 0)
        return true;
    if (!s->store->log)
        return false;
    if (puts_underway(s->store))
        return true;
    if (s->tier->full_until_ns && s->tier->full_until_ns <= now_ns && !s->tier->reclaim.failed_last)
        return true; /* the next poll asks the log again */
    if (pst_store_pages_obtainable(s->store, pages) &&
        (s->tier->log_busy || atomic_load_explicit(&s->store->saves, memory_order_relaxed) > 0 ||
         atomic_load_explicit(&s->store->reclaims, memory_order_relaxed) > 0))
        return true;
    return log_gains(s) && pst_store_pages_obtainable(s->store, pages);
}

void pst_tier_forget(struct pst_tier *t, const struct pst_record *r)
{
    struct pst_log_value value = pst_record_log_value(r);

    pst_assert(t->magic == PST_TIER_MAGIC);
    pst_assert(!(r->state & PST_STATE_RESERVED));
    if (r->flags & PST_RECORD_ON_DISK)
        pst_stub_forgotten(t->shard, r);
    if (r->flags & PST_RECORD_ON_DEVICE)
        pst_device_forget(t, r);
    if (!t->lane)
        return;
    pst_save_forget(t, r);
    pst_older_delete(t, r, 0);
    if (!pst_record_placed(r))
        return;
    pst_tier_ask_again(t);
    if (pst_log_delete(t->lane, &value, pst_record_place(r)) < 0)
        t->shard->stat_later.ssd_errors++;
}

void pst_tier_figures(const struct pst_store *store, struct pst_shard_later *out)
{
    struct pst_log_stat log;

    if (!store->log)
        return;
    pst_log_stat(store->log, &log);
    pst_assert(log.segment_bytes > 0);
    out->ssd_errors += log.upkeep_failed;
    out->ssd_capacity_bytes = log.capacity_bytes;
    out->ssd_live_bytes = log.live_bytes;
    out->ssd_appended_bytes = log.appended_bytes;
    out->ssd_written_bytes = log.written_bytes;
    out->ssd_moved_bytes = log.moved_bytes;
    out->ssd_reclaimed_bytes = log.reclaimed_segments * log.segment_bytes;
}

void pst_tier_full(struct pst_tier *t, uint64_t now_ns)
{
    pst_assert(t->magic == PST_TIER_MAGIC);
    t->full_until_ns = now_ns + FULL_NS;
    t->reclaim.look_ns = pst_min(t->reclaim.look_ns, now_ns);
    if (t->reclaim.state == PST_RECLAIMING_NONE)
        pst_reclaim_run(t, now_ns);
    atomic_store_explicit(&t->shard->store->ssd_full, true, memory_order_relaxed);
    pst_assert(t->full_until_ns > 0);
}

void pst_tier_ask_again(struct pst_tier *t)
{
    pst_assert(t->magic == PST_TIER_MAGIC);
    if (!t->full_until_ns)
        return;
    t->full_until_ns = 1;
    atomic_store_explicit(&t->shard->store->ssd_full, false, memory_order_relaxed);
}

bool pst_tier_awaits_room(struct pst_tier *t)
{
    uint64_t now_ns = pst_now_ns();

    t->reclaim.look_ns = pst_min(t->reclaim.look_ns, now_ns);
    if (t->reclaim.state == PST_RECLAIMING_NONE)
        pst_reclaim_run(t, now_ns);
    if (!t->starved_ns || now_ns - t->starved_ns > STARVED_NS)
        t->starved_ns = t->starved_since_ns = now_ns;
    else if (atomic_load_explicit(&t->shard->store->reclaims, memory_order_relaxed) > 0 &&
             now_ns - t->starved_since_ns < STARVED_NS_MAX)
        t->starved_ns = now_ns;
    pst_assert(t->starved_ns > 0);
    return now_ns - t->starved_ns < PATIENCE_NS;
}

void pst_tier_new_era(struct pst_shard *s)
{
    if (pst_tier_logs(s->tier))
        pst_log_new_era(s->store->log);
}

/* ---- waits ---- */

void pst_tier_end_wait(struct pst_tier *t, struct pst_tier_wait *wait, int result)
{
    pst_assert(!wait->ended);
    if (wait->fetch && result == 0 && wait->fetch->of_device)
        t->shard->stat_device.hbm_hits++;
    else if (wait->fetch && result == 0)
        t->shard->stat_later.ssd_hits++;
    pst_assert(result <= 0 || result == PST_BUSY);
    wait->ended = true;
    wait->result = result;
    pst_list_remove(&wait->link);
    pst_list_push_back(&t->ended, &wait->link);
}

struct pst_tier_wait *pst_tier_ended(struct pst_shard *s)
{
    struct pst_tier_wait *wait;

    if (!s->tier || pst_list_empty(&s->tier->ended))
        return NULL;
    wait = pst_list_first(&s->tier->ended, struct pst_tier_wait, link);
    pst_list_remove(&wait->link);
    pst_assert(wait->ended);
    return wait;
}

bool pst_tier_has_ended(const struct pst_shard *s)
{
    return s->tier && !pst_list_empty(&s->tier->ended);
}

/* ---- the loop ---- */

static void tell_generations(struct pst_tier *t, uint64_t now_ns)
{
    if (now_ns - t->told_ns < TELL_NS || t->told_generation == t->shard->generation)
        return;
    pst_assert(t->told_generation < t->shard->generation);
    t->told_ns = now_ns;
    if (pst_log_generations(t->shard->store->log, t->shard->generation) == 0)
        t->told_generation = t->shard->generation;
    else
        t->shard->stat_later.ssd_errors++;
}

static void op_done(struct pst_tier *t, struct pst_log_op *op, uint64_t now_ns)
{
    pst_assert(op->result <= 0);
    switch (op->verb) {
    case PST_LOG_APPEND:
        pst_save_done(t, pst_container_of(op, struct pst_save, append.op), now_ns);
        break;
    case PST_LOG_READ:
        pst_fetch_done(t, pst_container_of(op, struct pst_fetch, read.op), op->result, now_ns);
        break;
    case PST_LOG_MOVE:
        pst_move_done(t, pst_container_of(op, struct pst_move, log.op));
        break;
    default:
        pst_assert(op->verb == PST_LOG_SYNC);
        pst_flush_synced(t, op->result);
    }
}

void pst_tier_begin_turn(struct pst_tier *t)
{
    pst_assert(t->clock);
    t->turn = pst_turn_begin(t->clock, PST_TIER_TURN_NS);
    t->turn_begun = true;
    t->demoted = false;
}

/* Return: true when something happened. */
static bool poll_lane(struct pst_tier *t, uint64_t now_ns)
{
    bool something = pst_lane_poll(t->lane, &t->turn, &t->done);

    pst_assert(t->turn_begun);
    if (pst_list_empty(&t->done))
        return something;
    do {
        struct pst_log_op *op = pst_list_first(&t->done, struct pst_log_op, link);

        pst_list_remove(&op->link);
        op_done(t, op, now_ns);
    } while (!pst_list_empty(&t->done) && !pst_turn_is_over(&t->turn));
    return true;
}

/* A log that was full may take more by now. */
static void ask_log(struct pst_tier *t, uint64_t now_ns)
{
    pst_assert(t->lane);
    if (!t->full_until_ns || (now_ns < t->full_until_ns && !pst_log_takes(t->lane)))
        return;
    t->full_until_ns = 0;
    atomic_store_explicit(&t->shard->store->ssd_full, false, memory_order_relaxed);
    pst_recency_loosened(t->shard);
}

bool pst_shard_poll(struct pst_shard *s, uint64_t now_ns)
{
    struct pst_tier *t = s->tier;
    bool something;

    if (!t)
        return false;
    pst_assert(t->magic == PST_TIER_MAGIC);
    t->log_busy = false;
    pst_tier_begin_turn(t);
    if (t->lane)
        ask_log(t, now_ns);
    something = pst_save_run(t);
    something |= pst_flush_run(t);
    something |= pst_fetch_run(t, now_ns);
    if (t->lane) {
        something |= pst_reclaim_run(t, now_ns);
        something |= poll_lane(t, now_ns);
        tell_generations(t, now_ns);
    }
    if (t->device)
        something |= pst_device_run(t, &t->turn, now_ns);
    t->turn_begun = false;
    return something;
}

bool pst_tier_impatient(const struct pst_shard *s)
{
    const struct pst_tier *t = s->tier;

    return t && (t->reclaim.joins || !pst_list_empty(&t->todo) || !pst_list_empty(&t->wanted));
}

int pst_tier_descriptor(const struct pst_shard *s)
{
    return pst_tier_logs(s->tier) ? pst_lane_descriptor(s->tier->lane) : -1;
}

const char *pst_store_tier_note(const struct pst_store *store)
{
    return store->log ? pst_log_note(store->log) : "";
}

uint64_t pst_store_tier_name(const struct pst_store *store)
{
    return store->log ? pst_log_name(store->log) : 0;
}

/* ---- beginning ---- */

static int shard_open(struct pst_shard *s, uint32_t number)
{
    struct pst_tier *t = calloc(1, sizeof(*t));

    if (!t)
        return -ENOMEM;
    pst_assert(!s->tier);
    pst_assert(s->number == number);
    t->magic = PST_TIER_MAGIC;
    t->shard = s;
    t->lane = s->store->log ? pst_log_lane(s->store->log, number) : NULL;
    t->clock = pst_now_ns;
    t->value_bytes_max = s->store->log ? pst_log_value_bytes_max(s->store->log) : 0;
    pst_list_init(&t->saves_idle);
    pst_list_init(&t->done);
    pst_list_init(&t->wanted);
    pst_list_init(&t->todo);
    pst_list_init(&t->ended);
    pst_list_init(&t->flush.waits);
    pst_list_init(&t->flush.waits_next);
    pst_reclaim_init(t);
    for (int i = 0; i < PST_FETCH_BUCKETS; i++)
        pst_list_init(&t->fetches[i]);
    for (int i = 0; i < PST_SAVES_MAX; i++) {
        t->saves[i].tier = t;
        pst_list_push_back(&t->saves_idle, &t->saves[i].link);
    }
    s->tier = t;
    pst_assert(!t->lane == !s->store->log);
    pst_assert(!t->lane == !t->value_bytes_max);
    return 0;
}

/* Memory that was kept over the restart has what the log does not: that one is behind it, the newest of them.
 */
static int found_older(struct pst_tier *t, const struct pst_record *r, const struct pst_log_found *found)
{
    struct pst_older *known = pst_older_find(t, r);

    pst_assert(r->generation > found->value.generation);
    if (known && known->generation == found->value.generation) {
        pst_log_repeated(t->shard->store->log, found);
        return 0;
    }
    pst_log_adopt(t->shard->store->log, found);
    if (pst_record_placed(r) || (known && known->generation > found->value.generation))
        return pst_log_delete_alone(t->lane, &found->value, found->place);
    pst_older_delete(t, r, 0);
    return pst_older_add(t, r,
                         (struct pst_older){.generation = found->value.generation,
                                            .place = found->place,
                                            .value_bytes = found->value.value_bytes & PST_VALUE_BYTES_MASK,
                                            .attr_bytes = found->value.attrs.len & 0xffff})
               ? 0
               : -ENOMEM;
}

/* The newest generation of a key wins, wherever it lies. Return: 0 or -errno. */
static int found_one(struct pst_store *store, const struct pst_log_found *found)
{
    struct pst_shard *s =
        &store->shards[pst_route_shard(found->value.key, store->partition_seed, store->shard_count)];
    struct pst_lookup lookup = pst_shard_lookup(s, found->value.key);
    struct pst_record *old = pst_shard_find(s, &lookup);
    int r;

    pst_assert(found->value.key.len > 0);
    pst_assert(s->tier);
    if (old && old->generation > found->value.generation)
        return found_older(s->tier, old, found);
    if (old && old->generation == found->value.generation && pst_record_placed(old)) {
        pst_log_repeated(store->log, found);
        return 0;
    }
    pst_log_adopt(store->log, found);
    if (old && old->generation == found->value.generation) { /* kept in memory over the restart */
        pst_record_clean(s, old, found->place, found->crc);
        pst_older_delete(s->tier, old, 0);
        return 0;
    }
    r = pst_stub_add(s, found, old);
    store->restored.ssd_keys += r == 0 && !old;
    store->restored.ssd_dropped += r == -EBADMSG;
    s->stat_later.ssd_corrupt += r == -EBADMSG;
    return r == -EBADMSG ? 0 : r;
}

static int tier_scan_log(struct pst_store *store)
{
    struct pst_log_scanned scanned;
    struct pst_log_found found;
    struct pst_log_scan *at;
    uint64_t begun_ns = pst_now_ns();
    int r = pst_log_scan_open(store->log, &at);

    if (r < 0)
        return r;
    while ((r = pst_log_scan_next(at, &found)) > 0) {
        r = found_one(store, &found);
        if (r < 0)
            break;
    }
    pst_assert(r <= 0);
    pst_log_scan_close(at, &scanned);
    store->shards[0].stat_later.ssd_corrupt += scanned.damaged_groups + scanned.damaged_segments;
    store->restored.ssd_dropped += scanned.damaged_values + scanned.damaged_groups;
    store->restored.ssd_ms = (pst_now_ns() - begun_ns) / 1000000;
    return r;
}

static void pass_found(struct pst_shard *s)
{
    uint64_t floor = pst_log_generation_floor(s->store->log);

    pst_assert(floor < PST_GENERATION_MAX);
    s->generation = pst_max(s->generation, (floor | 0xff) + 1 + s->number);
    pst_assert((s->generation & 0xff) == s->number);
}

/* What lies in the log is found. Above its generations, too: a value that came from a node whose clock is
 * ahead may be there without the marker that says so. */
static int tier_open_log(struct pst_store *store, const char **why)
{
    int r = tier_scan_log(store);

    for (uint32_t i = 0; i < store->shard_count && r == 0; i++)
        pass_found(&store->shards[i]);
    if (r == -ENOSPC)
        *why = "the memory is too small for the keys that are there";
    if (r == -EIO)
        *why = pst_error_text();
    return r;
}

static int tier_open_shards(struct pst_store *store)
{
    uint32_t share = store->arenas.page_count / SPARE_SHARE;
    int r = 0;

    store->away_pages_max = (uint32_t)pst_max(1, share);
    store->pages_spare = store->away_pages_max + (store->arenas.page_count < FEW_PAGES ? 0 : CELL_PAGES);
    store->pages_low = (uint32_t)pst_max(store->pages_low, 2 * store->pages_spare);
    pst_assert(store->pages_spare > 0 && store->pages_low >= store->pages_spare);
    for (uint32_t i = 0; i < store->shard_count && r == 0; i++)
        r = shard_open(&store->shards[i], i);
    return r;
}

int pst_tier_open(struct pst_store *store, const struct pst_tier_options *options,
                  const struct pst_device_options *device, const char **fault)
{
    static _Thread_local char text[256];
    struct iovec regions[PST_ARENAS_MAX];
    struct pst_log_options log = {.folders = options->folders,
                                  .folder_count = options->folder_count,
                                  .bytes = options->bytes,
                                  .segment_bytes = options->segment_bytes,
                                  .lane_count = store->shard_count,
                                  .driver = options->driver,
                                  .depth = DEPTH,
                                  .regions = regions,
                                  .region_count = store->arenas.arena_count,
                                  .held = options->held};
    const char *why = "", *what = "ssd";
    int r = 0;

    pst_assert(!store->log);
    pst_assert(store->arenas.arena_count <= PST_ARENAS_MAX);
    for (uint32_t i = 0; i < store->arenas.arena_count; i++)
        regions[i] = pst_arena_memory(&store->arenas, i);
    if (options->folder_count > 0)
        r = pst_log_open(&log, &store->log, &why);
    if (r == 0) {
        why = "out of memory";
        r = tier_open_shards(store);
    }
    if (r == 0 && store->log)
        r = tier_open_log(store, &why);
    if (r == 0 && device->ops) {
        what = "hbm";
        r = pst_devices_open(store, device, &why);
    }
    snprintf(text, sizeof(text), "%s: %s", what, why);
    *fault = text;
    return r;
}

int pst_store_begin(struct pst_store *store, const char **fault)
{
    static _Thread_local char text[256];
    const char *why = "";
    int r = store->log ? pst_log_begin(store->log, &why) : 0;

    snprintf(text, sizeof(text), "ssd: %s", why);
    *fault = text;
    return r;
}

/* ---- end ---- */

static bool tier_is_settled(const struct pst_tier *t, const struct pst_tier_wait *wait)
{
    pst_assert(t->closing);
    pst_assert(!t->lane || wait->ended);
    if (t->lane && (!pst_flush_idle(t) || !pst_lane_idle(t->lane)))
        return false;
    return pst_list_empty(&t->done) && !t->saves_underway && t->reclaim.state == PST_RECLAIMING_NONE &&
           (!t->device || pst_device_idle(t));
}

/* Whether what was in memory has gone to the log, or cannot. Segments are still taken back until then. */
static bool tier_is_flushed(const struct pst_tier *t, const struct pst_tier_wait *wait)
{
    pst_assert(!t->closing);
    return !t->lane || wait->ended;
}

/* Runs all shards' logs and devices until each is done: one may wait for a segment of another's. */
static void tiers_run(struct pst_store *store, const struct pst_tier_wait *waits,
                      bool (*is_done)(const struct pst_tier *t, const struct pst_tier_wait *wait))
{
    struct pollfd fds[PST_SHARDS_MAX];
    uint32_t left = store->shard_count;

    pst_assert(left > 0 && left <= PST_SHARDS_MAX);
    for (uint32_t i = 0; i < store->shard_count; i++)
        fds[i] = (struct pollfd){.fd = pst_tier_descriptor(&store->shards[i]), .events = POLLIN};
    while (left > 0) {
        bool something = false;

        left = 0;
        for (uint32_t i = 0; i < store->shard_count; i++) {
            something |= pst_shard_poll(&store->shards[i], pst_now_ns());
            left += !is_done(store->shards[i].tier, &waits[i]);
        }
        if (left > 0 && !something)
            poll(fds, store->shard_count, CLOSE_POLL_MS);
    }
}

/* Has what is in memory alone go to the log, and again if some of it could not: a segment that failed is not
 * written again. Return: 0 or the first shard's -errno. */
static int tiers_flush(struct pst_store *store, struct pst_tier_wait *waits)
{
    int r = -EIO;

    pst_assert(store->log);
    for (int tries = 0; tries < FLUSHES_MAX && r < 0; tries++) {
        for (uint32_t i = 0; i < store->shard_count; i++) {
            if (tries > 0)
                pst_tier_leave(&store->shards[i], &waits[i]);
            pst_tier_flush(&store->shards[i], &waits[i]);
        }
        tiers_run(store, waits, tier_is_flushed);
        r = 0;
        for (uint32_t i = 0; i < store->shard_count; i++)
            r = r < 0 ? r : waits[i].result;
    }
    pst_assert(r <= 0);
    return r;
}

int pst_tiers_settle(struct pst_store *store)
{
    struct pst_tier_wait waits[PST_SHARDS_MAX];
    bool all = !store->log || pst_log_begun(store->log);
    int r = 0;

    for (uint32_t i = 0; i < store->shard_count; i++)
        all = all && store->shards[i].tier && !store->shards[i].tier->closing;
    if (!all || store->shard_count == 0)
        return 0;
    if (store->log)
        r = tiers_flush(store, waits);
    for (uint32_t i = 0; i < store->shard_count; i++)
        store->shards[i].tier->closing = true;
    tiers_run(store, waits, tier_is_settled);
    for (uint32_t i = 0; i < store->shard_count; i++) {
        pst_assert(store->shards[i].tier->saves_underway == 0);
        if (store->log)
            pst_tier_leave(&store->shards[i], &waits[i]);
    }
    return r;
}

void pst_tier_close(struct pst_store *store)
{
    (void)pst_tiers_settle(store);
    pst_devices_unlock(store);
    for (uint32_t i = 0; i < store->shard_count; i++) {
        if (store->shards[i].tier) {
            pst_device_close(store->shards[i].tier);
            free(store->shards[i].tier->olders.places);
        }
        free(store->shards[i].tier);
        store->shards[i].tier = NULL;
    }
    store->log = pst_log_close(store->log);
    pst_assert(!store->log);
}
