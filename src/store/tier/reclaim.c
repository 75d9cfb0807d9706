/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reclaim.c: segments of the log that a shard takes back before the log is full, one at a time. Where much of
 * one is dead, what lives is moved. Where nearly all of it lives, values that may be evicted fall off: so
 * that a log that is full of them holds the latest. Where they may not, moving them is worth it only when the
 * log takes nothing any more.
 */
#include "store/evict_priv.h"
#include "store/link_priv.h"
#include "store/pins_priv.h"
#include "store/place.h"
#include "store/tier/tier_priv.h"
#include "wire/route.h"

enum {
    LOOK_NS = 10000000,    /* between looks at the log */
    IDLE_NS = 200000000,   /* the same when nothing was worth it */
    JOINS_NS = 1000000000, /* from when all shards begin to empty a segment, or have */
    REST_NS = 500000000,   /* after one that gained too little */
    SPARE_SEGMENTS = 3,    /* fewer free ones than this, or one a lane, beside the log's own, start it */
    SPARSE_PERCENT = 50,   /* alive in a segment that is moved in time */
    FULL_PERCENT = 90,     /* the same when the log is full */
};

static void state_becomes(struct pst_reclaiming *rc, enum pst_reclaiming_state state)
{
    pst_assert(state == (rc->state + 1u) % (PST_RECLAIMING_END + 1)); /* in a circle */
    rc->state = (uint8_t)state;
}

static bool same_place(struct pst_log_place a, struct pst_log_place b)
{
    return a.segment == b.segment && a.offset == b.offset;
}

/*
 * The shard's record of what lies at that place, or of the newer value, with *@older, where that is not in
 * the log yet; NULL: it is dead.
 */
static struct pst_record *owner_of(struct pst_tier *t, const struct pst_log_value *value,
                                   struct pst_log_place at, struct pst_older **older)
{
    struct pst_shard *s = t->shard;
    const struct pst_store *store = s->store;
    struct pst_lookup lookup;
    struct pst_record *r;

    pst_assert(value->key.len > 0);
    *older = NULL;
    if (pst_route_shard(value->key, store->partition_seed, store->shard_count) != s->number)
        return NULL;
    lookup = pst_shard_lookup(s, value->key);
    r = pst_shard_find(s, &lookup);
    *older = r ? pst_older_find(t, r) : NULL;
    if (*older)
        return (*older)->generation == value->generation && same_place((*older)->place, at) ? r : NULL;
    return r && r->generation == value->generation && same_place(pst_record_place(r), at) ? r : NULL;
}

/* ---- one value ---- */

/* The log gives up its copy, @found, of a value that is in memory. Return: false: no memory to say so. */
static bool record_unplace(struct pst_tier *t, struct pst_record *r, const struct pst_log_value *found)
{
    pst_assert(pst_record_placed(r));
    pst_assert(!(r->flags & PST_RECORD_ON_DISK));
    if (pst_log_give_up(t->lane, found, pst_record_place(r)) < 0)
        return false;
    pst_record_set_place(r, (struct pst_log_place){0, 0});
    return true;
}

/* Return: true when the value need not be moved. */
static bool falls_off(struct pst_tier *t, struct pst_record *r, struct pst_older *older, uint64_t now_ns)
{
    struct pst_shard *s = t->shard;

    pst_assert(!(r->state & PST_RECORD_UNLINKED));
    if (!t->reclaim.dense || !(r->flags & PST_RECORD_CACHE) || !pst_record_loose(s, r, now_ns))
        return false;
    if (older)
        pst_older_delete(t, r, 0);
    else if (r->flags & PST_RECORD_ON_DISK)
        pst_record_evict(s, r);
    else
        return record_unplace(t, r, &t->reclaim.found.value);
    return true;
}

/* Return: 0, PST_BUSY. */
static int reclaim_take_one(struct pst_tier *t, uint64_t now_ns)
{
    struct pst_reclaiming *rc = &t->reclaim;
    struct pst_older *older;
    struct pst_record *r = owner_of(t, &rc->found.value, rc->found.place, &older);
    struct pst_move *move;
    int result;

    pst_assert(rc->state == PST_RECLAIMING_WALK);
    pst_assert(rc->moving <= PST_MOVES_MAX);
    if (!r || falls_off(t, r, older, now_ns))
        return 0;
    if (pst_list_empty(&rc->idle))
        return PST_BUSY;
    move = pst_list_first(&rc->idle, struct pst_move, link);
    move->log =
        (struct pst_log_move){.value = rc->found.value, .from = rc->found.place, .crc = rc->found.crc};
    result = pst_log_move(t->lane, &move->log);
    if (result == -EBUSY || (result < 0 && rc->moving > 0))
        return PST_BUSY;
    if (result < 0) { /* it stays, and its segment with it */
        rc->failed = true;
        return 0;
    }
    pst_list_remove(&move->link);
    pst_assert(rc->moving < PST_MOVES_MAX);
    rc->moving++;
    rc->moved_bytes += rc->found.value.value_bytes;
    return 0;
}

/* Whether its bytes in memory are the writer's, as far as that is known. */
static bool is_sound(const struct pst_record *r, const struct pst_tier_iov *pieces)
{
    uint32_t crc = 0;

    pst_assert(!pst_record_away(r));
    pst_assert(pieces->count > 0 || r->value_bytes == 0);
    if (r->state & PST_RECORD_UNVERIFIED)
        return false;
    if (!(r->flags & PST_RECORD_CHECKSUM) || r->value_bytes > PST_LOG_BLOCK_BYTES)
        return true;
    for (int i = 0; i < pieces->count; i++)
        crc = pst_crc32c(crc, pieces->iov[i].iov_base, pieces->iov[i].iov_len);
    return crc == r->value_crc;
}

/* The disk has spoilt its copy of a value that is in memory. Return: whether that is written in its place. */
static bool move_from_memory(struct pst_tier *t, const struct pst_record *r, struct pst_move *move)
{
    struct pst_tier_iov pieces;
    int result;

    pst_assert(move->log.op.result == -EBADMSG);
    if (pst_record_away(r) || pst_tier_pieces(t->shard, r, &pieces) < 0)
        return false;
    result = is_sound(r, &pieces)
                 ? pst_log_move_bytes(t->lane, &move->log, pieces.iov, (uint32_t)pieces.count)
                 : -EBADMSG;
    pst_tier_pieces_free(&pieces);
    t->shard->stat_later.ssd_corrupt += result == 0;
    return result == 0;
}

/* A newer value ends the doubt about its older one, whose copy is spoilt, once the log has it. */
static void save_newer(struct pst_tier *t, struct pst_record *r)
{
    struct pst_save *save;

    pst_assert(!pst_record_placed(r));
    pst_assert(pst_older_find(t, r));
    t->reclaim.failed = true; /* until then */
    if (!pst_record_away(r) && !pst_save_underway(t, r))
        (void)pst_save_begin(t, r, PST_SAVE_FLUSH, NULL, &save);
}

/*
 * What could not be moved. What cannot be read there goes where it may be evicted, or where it is known to be
 * damaged and not the only copy. But not in doubt: an earlier value, which is durable, would go with it. Any
 * other stays, and its segment with it: the disk may read it another time, and until somebody deletes it its
 * reads tell what is wrong.
 */
static void not_moved(struct pst_tier *t, struct pst_record *r, struct pst_older *older,
                      const struct pst_log_move *log)
{
    struct pst_shard *s = t->shard;
    bool damaged = log->op.result == -EBADMSG, stub = r->flags & PST_RECORD_ON_DISK;
    bool doubt = pst_log_doubts(t->lane, log->from);

    pst_assert(log->op.result < 0);
    s->stat_later.ssd_corrupt += damaged;
    s->stat_later.ssd_errors += log->op.result == -EIO;
    if (log->read.op.result == 0)
        t->reclaim.failed = true;
    else if (older && damaged && doubt)
        save_newer(t, r);
    else if (older && damaged)
        pst_older_delete(t, r, 0);
    else if (!older && stub && r->flags & PST_RECORD_CACHE && pst_record_loose(s, r, pst_now_ns()))
        pst_shard_unlink_as(s, r, PST_WIRE_CHANGE_EVICTED);
    else if (older || stub || !damaged || doubt || !record_unplace(t, r, &log->value))
        t->reclaim.stays = true;
}

void pst_move_done(struct pst_tier *t, struct pst_move *move)
{
    const struct pst_log_move *log = &move->log;
    struct pst_older *older;
    struct pst_record *r = owner_of(t, &log->value, log->from, &older);
    int result = log->op.result;

    pst_assert(t->reclaim.moving > 0);
    if (result == -EBADMSG && r && !older && move_from_memory(t, r, move))
        return;
    t->reclaim.moving--;
    pst_list_push_back(&t->reclaim.idle, &move->link);
    if (result == 0 && r) {
        if (older)
            older->place = log->to;
        else
            pst_record_set_place(r, log->to);
        pst_log_forget(t->lane, &log->value, log->from);
    } else if (result == 0) {
        if (pst_log_delete_moved(t->lane, &log->value, log->to) < 0)
            t->shard->stat_later.ssd_errors++;
    } else if (r) {
        not_moved(t, r, older, log);
    }
}

/* ---- segments ---- */

static void reclaim_ended(struct pst_tier *t, uint64_t now_ns)
{
    struct pst_reclaiming *rc = &t->reclaim;
    struct pst_log_stat stat;

    pst_assert(rc->moving == 0);
    pst_assert(!rc->counted || t->shard->store->reclaims > 0);
    state_becomes(rc, PST_RECLAIMING_NONE);
    rc->look_ns = now_ns;
    pst_log_stat(t->shard->store->log, &stat);
    if (rc->failed || rc->moved_bytes * 100 > FULL_PERCENT * stat.segment_bytes)
        rc->rest_until_ns = now_ns + REST_NS;
    if (rc->counted)
        atomic_fetch_sub_explicit(&t->shard->store->reclaims, 1, memory_order_relaxed);
    rc->failed_last = rc->failed || pst_log_reclaim_failed(t->lane);
    pst_tier_ask_again(t);
}

/* Return: what pst_log_reclaim_begin() says. */
static int reclaim_choose(struct pst_tier *t, bool full, uint64_t now_ns)
{
    int r = pst_log_reclaim_begin(t->lane, SPARSE_PERCENT);
    bool cache = t->shard->ssd_cache_keys > 0;

    pst_assert(!t->reclaim.dense);
    pst_assert(t->reclaim.state == PST_RECLAIMING_NONE);
    /* What is to be emptied anyway may be all alive, with no room to move it. */
    t->reclaim.dense = cache && full;
    if (r == 0 && (cache || full) && now_ns >= t->reclaim.rest_until_ns) {
        t->reclaim.dense = cache;
        r = pst_log_reclaim_begin(t->lane, cache ? 100 : FULL_PERCENT);
    }
    return r;
}

bool pst_reclaim_gains(const struct pst_tier *t)
{
    pst_assert(t->magic == PST_TIER_MAGIC);
    return pst_log_gains(t->lane, FULL_PERCENT);
}

static bool reclaim_begin(struct pst_tier *t, uint64_t now_ns)
{
    const struct pst_store *store = t->shard->store;
    struct pst_log_stat stat;
    bool enough;
    int r;

    pst_assert(t->reclaim.state == PST_RECLAIMING_NONE);
    pst_assert(t->reclaim.moving == 0);
    if (t->closing || now_ns < t->reclaim.look_ns)
        return false;
    t->reclaim.look_ns = now_ns + LOOK_NS;
    pst_log_stat(store->log, &stat);
    enough = stat.segments_free >= store->shard_count + pst_max(SPARE_SEGMENTS, store->shard_count);
    if (enough && stat.segments_unsynced == 0 && !pst_log_common(t->lane))
        return false;
    t->reclaim.dense = false;
    r = enough ? pst_log_reclaim_begin(t->lane, 0)
               : reclaim_choose(t, stat.segments_free <= store->shard_count, now_ns);
    if (r <= 0) {
        t->reclaim.look_ns = now_ns + (r == -EBUSY ? LOOK_NS : IDLE_NS);
        return false;
    }
    state_becomes(&t->reclaim, PST_RECLAIMING_WALK);
    t->reclaim.moved_bytes = 0;
    t->reclaim.pending = t->reclaim.failed = t->reclaim.stays = false;
    t->reclaim.counted = !t->reclaim.failed_last; /* on a disk that fails there is nothing to wait for */
    if (t->reclaim.counted)
        atomic_fetch_add_explicit(&t->shard->store->reclaims, 1, memory_order_relaxed);
    return true;
}

static bool reclaim_walk(struct pst_tier *t, uint64_t now_ns)
{
    struct pst_reclaiming *rc = &t->reclaim;
    bool something = false;

    pst_assert(rc->state == PST_RECLAIMING_WALK);
    do {
        int r = rc->pending ? 1 : pst_log_reclaim_next(t->lane, &rc->found);

        if (r == -EAGAIN)
            break;
        if (r == 0 || t->closing) {
            rc->failed |= r != 0;
            state_becomes(rc, PST_RECLAIMING_MOVES);
            return true;
        }
        rc->pending = reclaim_take_one(t, now_ns) == PST_BUSY;
        if (rc->pending)
            break;
        something = true;
    } while (!pst_turn_is_over(&t->turn));
    return something;
}

/* What all shards empty together is free when the last one has looked at it: none sleeps long meanwhile. */
static void look_at_common(struct pst_tier *t, uint64_t now_ns)
{
    struct pst_reclaiming *rc = &t->reclaim;
    uint64_t common = pst_log_common(t->lane);

    if (common != rc->common)
        rc->joins_until_ns = now_ns + JOINS_NS;
    rc->common = common;
    rc->joins = now_ns < rc->joins_until_ns;
}

bool pst_reclaim_run(struct pst_tier *t, uint64_t now_ns)
{
    struct pst_reclaiming *rc = &t->reclaim;

    look_at_common(t, now_ns);
    switch (rc->state) {
    case PST_RECLAIMING_NONE:
        return reclaim_begin(t, now_ns);
    case PST_RECLAIMING_WALK:
        return reclaim_walk(t, now_ns);
    case PST_RECLAIMING_MOVES:
        if (rc->moving > 0)
            return false;
        pst_log_reclaim_end(t->lane, rc->failed  ? PST_LOG_AGAIN
                                     : rc->stays ? PST_LOG_STAYS
                                                 : PST_LOG_EMPTIED);
        state_becomes(rc, PST_RECLAIMING_END);
        return true;
    default:
        pst_assert(rc->state == PST_RECLAIMING_END);
        if (!pst_log_reclaim_over(t->lane))
            return false;
        reclaim_ended(t, now_ns);
        return true;
    }
}

void pst_reclaim_init(struct pst_tier *t)
{
    pst_assert(t->reclaim.state == PST_RECLAIMING_NONE);
    pst_list_init(&t->reclaim.idle);
    for (int i = 0; i < PST_MOVES_MAX; i++)
        pst_list_push_back(&t->reclaim.idle, &t->reclaim.moves[i].link);
}
