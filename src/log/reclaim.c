/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reclaim.c: from a segment's index to a free segment. What was moved is durable before the head says
 * that the segment is free, and that is durable before it counts as free: a tombstone whose value was there
 * may then be dropped. Until then values may lie in two places, and tombstones stay that kill either.
 */
#include "log/lane_priv.h"

enum {
    MOVING_BYTES_MAX = 32 << 20,
    RANKS = 16,
    RANK_SHIFT = 56,
    GAIN_PERCENT_MIN = 10,
};

static struct pst_segment *segment_now(struct pst_lane *lane)
{
    pst_assert(lane->reclaim.segment < lane->log->segment_count);
    return &lane->log->segments[lane->reclaim.segment];
}

static void stage_becomes(struct pst_reclaim *rc, enum pst_reclaim_stage stage)
{
    static const uint16_t follows[] = {
        [PST_RECLAIM_NONE] =
            1 << PST_RECLAIM_TAIL | 1 << PST_RECLAIM_FLUSH | 1 << PST_RECLAIM_HEAD | 1 << PST_RECLAIM_SYNC,
        [PST_RECLAIM_TAIL] = 1 << PST_RECLAIM_NONE,
        [PST_RECLAIM_INDEX] = 1 << PST_RECLAIM_TAIL,
        [PST_RECLAIM_WALK] = 1 << PST_RECLAIM_NONE | 1 << PST_RECLAIM_TAIL | 1 << PST_RECLAIM_INDEX,
        [PST_RECLAIM_FLUSH] = 1 << PST_RECLAIM_WALK,
        [PST_RECLAIM_WAIT] = 1 << PST_RECLAIM_FLUSH,
        [PST_RECLAIM_HEAD] = 1 << PST_RECLAIM_WAIT,
        [PST_RECLAIM_SYNC] = 1 << PST_RECLAIM_HEAD,
    };

    pst_assert(stage < pst_count_of(follows));
    pst_assert(follows[stage] >> rc->stage & 1);
    rc->stage = (uint8_t)stage;
}

/* ---- choosing ---- */

static bool is_mine(const struct pst_lane *lane, const struct pst_segment *s)
{
    pst_assert(lane->index < PST_LANES_MAX);
    return s->lane == lane->index ||
           (s->lane == PST_LANE_NONE && !(s->emptied[lane->index / 64] >> lane->index % 64 & 1));
}

/*
 * The segment of several lanes that all of them empty now; NULL: none. If each took another one, all that can
 * be written to might be full of what was moved before a single one is free.
 */
static const struct pst_segment *common_segment(const struct pst_log *log)
{
    uint32_t i = atomic_load_explicit(&log->common, memory_order_relaxed);
    const struct pst_segment *s = i == PST_SEGMENT_NONE ? NULL : &log->segments[i];

    pst_assert(!s || i < log->segment_count);
    return s && s->state == PST_SEGMENT_FULL && !s->lost ? s : NULL;
}

/* What was moved there would lie no closer if it were moved again: gaps beside it are not to be had. */
static bool is_sparse(const struct pst_log *log, const struct pst_segment *s, uint32_t live_percent_max)
{
    uint64_t room = s->moved ? atomic_load(&s->value_bytes) : log->segment_bytes;

    pst_assert(live_percent_max <= 100);
    return atomic_load(&s->live_bytes) * 100 <= live_percent_max * room;
}

/* The smaller the better; UINT64_MAX: not worth it. Of those with about as much alive it is the oldest. */
static uint64_t segment_rank(const struct pst_lane *lane, const struct pst_segment *s,
                             uint32_t live_percent_max)
{
    bool none_free = lane->log->free_count == 0;

    pst_assert(live_percent_max <= 100);
    if (s->state != PST_SEGMENT_FULL || s->lost || !is_mine(lane, s))
        return UINT64_MAX;
    if (pst_segment_doubtful(s)) /* nothing is freed before it is emptied */
        return 0;
    if (s == common_segment(lane->log))
        return 1;
    if (common_segment(lane->log) && s->lane == PST_LANE_NONE)
        return UINT64_MAX;
    if (s->hollow) /* every other time: its head may never be written */
        return lane->reclaims % 2 ? UINT64_MAX - 1 : 2;
    if (s->resume_at > 0 && !s->failed && none_free) /* it may be the last that can be written to */
        return UINT64_MAX;
    if (none_free && atomic_load(&s->live_bytes) == 0) /* from others values have to be moved */
        return 3;
    if (s->failed)
        return 4;
    if (s->repeated) /* all lanes begin with the same one */
        return 5 + atomic_load(&s->live_bytes);
    if (!is_sparse(lane->log, s, live_percent_max))
        return UINT64_MAX;
    return (1 + atomic_load(&s->live_bytes) * RANKS / lane->log->segment_bytes) << RANK_SHIFT |
           atomic_load(&s->sequence);
}

/* Whether those whose keys may lie there will empty it. */
static bool is_taken_back(const struct pst_log *log, const struct pst_segment *s)
{
    bool by_any = false;

    pst_assert(log->lane_count > 0 && log->lane_count <= PST_LANES_MAX);
    if ((s->state != PST_SEGMENT_SEALED && s->state != PST_SEGMENT_FULL) || s->failed || s->lost)
        return false;
    for (uint32_t i = 0; i < log->lane_count; i++) {
        if (!is_mine(log->lanes[i], s))
            continue;
        if (log->lanes[i]->reclaim_failed)
            return false;
        by_any = true;
    }
    return by_any;
}

bool pst_log_takes(const struct pst_lane *lane)
{
    return pst_lane_takes(lane);
}

/* Whether enough of what lies in a lane's own segment, which a value did not fit in, is dead. */
static bool is_cramped(const struct pst_log *log, const struct pst_segment *s, uint32_t live_percent_max)
{
    uint64_t gain_percent = pst_max(100 - live_percent_max, GAIN_PERCENT_MIN);

    pst_assert(s->lane == PST_LANE_NONE || s->lane < log->lane_count);
    return s->state == PST_SEGMENT_OPEN && s->lane != PST_LANE_NONE && log->lanes[s->lane]->cramped &&
           (atomic_load(&s->value_bytes) - atomic_load(&s->live_bytes)) * 100 >=
               gain_percent * log->segment_bytes;
}

/* So that it is written no more: it can be chosen when its index is there. Return: whether it is. */
static bool seal_cramped(struct pst_lane *lane, uint32_t live_percent_max)
{
    pst_assert(lane->reclaim.stage == PST_RECLAIM_NONE);
    return !pst_log_takes(lane) && lane->index_now.entries &&
           is_cramped(lane->log, &lane->log->segments[lane->index_now.segment], live_percent_max) &&
           pst_lane_seal(lane) == 0;
}

bool pst_log_gains(const struct pst_lane *lane, uint32_t live_percent_max)
{
    struct pst_log *log = lane->log;
    bool gains = false;

    pthread_mutex_lock(&log->lock);
    for (uint32_t i = 0; !gains && i < log->segment_count; i++) {
        const struct pst_segment *s = &log->segments[i];

        gains = (is_sparse(log, s, live_percent_max) && is_taken_back(log, s)) ||
                is_cramped(log, s, live_percent_max);
    }
    pthread_mutex_unlock(&log->lock);
    return gains;
}

/* Whether another segment may have copies of values whose tombstones lie in the chosen one. */
static bool copies_elsewhere(const struct pst_lane *lane, uint32_t chosen)
{
    const struct pst_log *log = lane->log;
    bool mixed = log->segments[chosen].lane == PST_LANE_NONE;

    pst_assert(chosen < log->segment_count);
    for (uint32_t i = 0; i < log->segment_count; i++) {
        const struct pst_segment *s = &log->segments[i];
        bool ours = mixed || s->lane == PST_LANE_NONE || s->lane == lane->index;

        if (i != chosen && s->state != PST_SEGMENT_FREE && (s->failed || (s->repeated && ours)))
            return true;
    }
    return false;
}

/* Reads into, or writes from, the reclaim's piece. */
static void reclaim_submit(struct pst_lane *lane, enum pst_disk_verb verb, uint64_t offset)
{
    struct pst_reclaim *rc = &lane->reclaim;
    const struct pst_disk_op op = {.verb = (uint8_t)verb,
                                   .file = rc->segment,
                                   .offset = offset,
                                   .bytes = rc->iov.iov_len,
                                   .iov = &rc->iov,
                                   .iov_count = 1};

    pst_assert(op.bytes > 0);
    pst_assert(pst_log_is_whole(offset));
    pst_assert(offset + op.bytes <= lane->log->segment_bytes);
    pst_lane_submit(lane, &rc->io, PST_IO_RECLAIM, NULL, &op);
}

static int read_block(struct pst_lane *lane, uint64_t offset, uint64_t bytes)
{
    struct pst_reclaim *rc = &lane->reclaim;
    uint8_t *buffer = aligned_alloc(PST_LOG_ALIGN_BYTES, bytes);

    pst_assert(bytes > 0);
    pst_assert(pst_log_is_whole(bytes));
    if (!buffer)
        return -ENOMEM;
    free(rc->entries);
    rc->entries = buffer;
    rc->iov = (struct iovec){buffer, bytes};
    reclaim_submit(lane, PST_DISK_READ, offset);
    return 0;
}

int pst_log_reclaim_begin(struct pst_lane *lane, uint32_t live_percent_max)
{
    struct pst_log *log = lane->log;
    struct pst_reclaim *rc = &lane->reclaim;
    uint64_t best = UINT64_MAX;
    int r = 0;

    if (rc->stage != PST_RECLAIM_NONE || !pst_log_begun(log))
        return -EBUSY;
    pst_assert(rc->moving == 0);
    pst_assert(!rc->entries);
    pst_assert(!rc->keep);
    lane->reclaims++;
    pthread_mutex_lock(&log->lock);
    for (uint32_t i = 0; i < log->segment_count; i++) {
        uint64_t value = segment_rank(lane, &log->segments[i], live_percent_max);

        if (value >= best)
            continue;
        best = value;
        rc->segment = i;
    }
    if (best < UINT64_MAX) {
        segment_now(lane)->repeated = true;
        if (segment_now(lane)->lane == PST_LANE_NONE)
            log->common = rc->segment;
        log->resume_count -= segment_now(lane)->resume_at > 0;
        segment_now(lane)->resume_at = 0; /* what is walked does not change */
        rc->keep_tombstones = copies_elsewhere(lane, rc->segment);
    }
    pthread_mutex_unlock(&log->lock);
    if (best == UINT64_MAX) /* it can be chosen once its index is written */
        return seal_cramped(lane, live_percent_max) ? -EBUSY : 0;
    if (segment_now(lane)->hollow) {
        stage_becomes(rc, PST_RECLAIM_WALK);
        return 1;
    }
    if (segment_now(lane)->entries) {
        rc->left = (struct pst_bytes){segment_now(lane)->entries, segment_now(lane)->entries_bytes};
        stage_becomes(rc, PST_RECLAIM_WALK);
        return 1;
    }
    stage_becomes(rc, PST_RECLAIM_TAIL);
    r = read_block(lane, log->segment_bytes - PST_LOG_ALIGN_BYTES, PST_LOG_ALIGN_BYTES);
    if (r < 0)
        stage_becomes(rc, PST_RECLAIM_NONE);
    return r < 0 ? r : 1;
}

/* ---- reading its index ---- */

static void reclaim_finish(struct pst_lane *lane)
{
    struct pst_reclaim *rc = &lane->reclaim;

    pst_assert(rc->moving == 0);
    pst_assert(lane->moving_bytes == 0);
    stage_becomes(rc, PST_RECLAIM_NONE);
    free(rc->entries);
    *rc = (struct pst_reclaim){.stage = PST_RECLAIM_NONE};
    pst_lane_note_provided(lane);
}

/* What lies there cannot be told any more; it can be read as long as its owner knows where. */
static void reclaim_give_up(struct pst_lane *lane)
{
    pst_assert(lane->reclaim.stage == PST_RECLAIM_TAIL || lane->reclaim.stage == PST_RECLAIM_INDEX);
    segment_now(lane)->lost = true;
    lane->reclaim_failed = true;
    lane->stat.corrupt++;
    lane->reclaim.left = (struct pst_bytes){NULL, 0};
    stage_becomes(&lane->reclaim, PST_RECLAIM_WALK);
}

static void tail_read(struct pst_lane *lane)
{
    struct pst_reclaim *rc = &lane->reclaim;

    pst_assert(rc->stage == PST_RECLAIM_TAIL);
    pst_assert(rc->iov.iov_len >= sizeof(rc->tail));
    memcpy(&rc->tail, rc->entries, sizeof(rc->tail));
    if (!pst_segment_tail_good(&rc->tail, lane->log->seed, rc->segment, lane->log->segment_bytes) ||
        rc->tail.sequence != segment_now(lane)->sequence ||
        (rc->tail.index_bytes > 0 &&
         read_block(lane, rc->tail.index_offset, pst_log_whole(rc->tail.index_bytes)) < 0)) {
        reclaim_give_up(lane);
        return;
    }
    stage_becomes(rc, rc->tail.index_bytes > 0 ? PST_RECLAIM_INDEX : PST_RECLAIM_WALK);
}

static void index_read(struct pst_lane *lane)
{
    struct pst_reclaim *rc = &lane->reclaim;

    pst_assert(rc->stage == PST_RECLAIM_INDEX);
    pst_assert(rc->tail.index_bytes <= rc->iov.iov_len);
    if (pst_log_index_check(rc->entries, rc->tail.index_bytes, lane->log->seed) != rc->tail.index_check) {
        reclaim_give_up(lane);
        return;
    }
    rc->left = (struct pst_bytes){rc->entries, rc->tail.index_bytes};
    stage_becomes(rc, PST_RECLAIM_WALK);
}

/* ---- what lies there ---- */

/* The value that it kills may still be found. */
static bool tombstone_needed(const struct pst_lane *lane, const struct pst_log_tombstone *t)
{
    const struct pst_log *log = lane->log;
    const struct pst_segment *target;

    pst_assert(lane->reclaim.stage == PST_RECLAIM_WALK);
    if (lane->reclaim.keep_tombstones)
        return true;
    if (t->target_segment >= log->segment_count)
        return false;
    target = &log->segments[t->target_segment];
    return t->target_segment != lane->reclaim.segment && target->state != PST_SEGMENT_FREE &&
           target->sequence == t->target_sequence;
}

/* Where several lanes walk a segment, one of them carries the tombstones on. */
static bool carries_tombstones(struct pst_lane *lane)
{
    return segment_now(lane)->lane == lane->index ||
           lane->reclaim.segment % lane->log->lane_count == lane->index;
}

int pst_log_reclaim_next(struct pst_lane *lane, struct pst_log_found *found)
{
    struct pst_reclaim *rc = &lane->reclaim;
    struct pst_log_any any;
    bool carries = carries_tombstones(lane) && !segment_now(lane)->carried;
    int kind;

    pst_assert(rc->stage != PST_RECLAIM_NONE);
    pst_assert(rc->stage <= PST_RECLAIM_WALK);
    if (rc->stage != PST_RECLAIM_WALK)
        return -EAGAIN;
    while ((kind = pst_log_entry_next(&rc->left, lane->log->segment_bytes, &any)) > 0) {
        if (kind == PST_LOG_VALUE) {
            *found = (struct pst_log_found){any.value, {rc->segment, any.offset}, any.crc};
            return 1;
        }
        if (carries && tombstone_needed(lane, &any.tombstone) &&
            pst_lane_add_tombstone(lane, &any.tombstone) < 0)
            rc->keep = true;
    }
    rc->keep = rc->keep || kind < 0;
    if (carries)
        segment_now(lane)->carried = !rc->keep;
    return 0;
}

/* ---- freeing it ---- */

void pst_log_reclaim_end(struct pst_lane *lane, enum pst_log_reclaimed how)
{
    struct pst_reclaim *rc = &lane->reclaim;

    pst_assert(lane->moves_reading == 0);
    pst_assert(rc->moving == 0);
    rc->keep = rc->keep || how == PST_LOG_STAYS;
    rc->again = how == PST_LOG_AGAIN;
    stage_becomes(rc, PST_RECLAIM_FLUSH);
    if (segment_now(lane)->hollow && !pst_lane_writes_to(lane, rc->segment)) {
        pst_reclaim_flushed(lane, 0); /* nothing was there: that needs no room elsewhere */
        return;
    }
    pst_log_sync(lane, &rc->flush);
    rc->flush.op.verb = PST_LOG_RECLAIM_FLUSH;
}

uint64_t pst_log_common(const struct pst_lane *lane)
{
    const struct pst_segment *s = common_segment(lane->log);

    return s ? atomic_load(&s->sequence) : 0;
}

bool pst_log_reclaim_over(const struct pst_lane *lane)
{
    return lane->reclaim.stage == PST_RECLAIM_NONE;
}

bool pst_log_reclaim_failed(const struct pst_lane *lane)
{
    return lane->reclaim_failed;
}

void pst_reclaim_flushed(struct pst_lane *lane, int result)
{
    struct pst_reclaim *rc = &lane->reclaim;
    struct pst_log *log = lane->log;
    struct pst_segment *s = segment_now(lane);
    bool all = true;

    pst_assert(result <= 0);
    pst_assert(rc->moving == 0);
    pst_assert(rc->stage == PST_RECLAIM_FLUSH);
    s->lost = s->lost || rc->keep;
    if (rc->keep)
        s->failed = true;
    if (result < 0 || s->lost || rc->again) {
        lane->reclaim_failed = true;
        reclaim_finish(lane);
        return;
    }
    pthread_mutex_lock(&log->lock);
    s->emptied[lane->index / 64] |= 1ull << lane->index % 64;
    for (uint32_t i = 0; s->lane == PST_LANE_NONE && i < log->lane_count; i++)
        all = all && (s->emptied[i / 64] >> i % 64 & 1);
    if (all && s->lane == PST_LANE_NONE)
        log->common = PST_SEGMENT_NONE;
    /* Whoever comes last frees it. Values that its owners did not let go of keep it. */
    if (all && atomic_load(&s->live_bytes) == 0 && s->state == PST_SEGMENT_FULL) {
        pst_segment_becomes(s, PST_SEGMENT_EMPTY);
        stage_becomes(rc, PST_RECLAIM_WAIT);
    }
    lane->reclaim_failed = s->lane == lane->index && rc->stage != PST_RECLAIM_WAIT;
    pthread_mutex_unlock(&log->lock);
    if (rc->stage != PST_RECLAIM_WAIT)
        reclaim_finish(lane);
}

static void write_free_head(struct pst_lane *lane)
{
    struct pst_reclaim *rc = &lane->reclaim;

    pst_assert(rc->stage == PST_RECLAIM_HEAD);
    pst_assert(segment_now(lane)->state == PST_SEGMENT_EMPTY);
    pst_log_make_head(lane->log, rc->segment,
                      segment_now(lane)->failed ? PST_SEGMENT_HEAD_FAILED : PST_SEGMENT_HEAD_FREE,
                      lane->free_head);
    rc->iov = (struct iovec){lane->free_head, PST_LOG_DATA_AT};
    reclaim_submit(lane, PST_DISK_WRITE, 0);
    lane->stat.written_bytes += PST_LOG_DATA_AT;
}

static void sync_free_head(struct pst_lane *lane)
{
    const struct pst_disk_op op = {.verb = PST_DISK_SYNC, .file = lane->reclaim.segment};

    pst_assert(lane->reclaim.stage == PST_RECLAIM_SYNC);
    pst_lane_submit(lane, &lane->reclaim.io, PST_IO_RECLAIM, NULL, &op);
    lane->stat.syncs++;
}

/* A failed one is used again when no others are left. */
static void set_free(struct pst_lane *lane)
{
    struct pst_log *log = lane->log;
    struct pst_segment *s = segment_now(lane);

    pst_assert(s->state == PST_SEGMENT_EMPTY);
    pst_assert(s->live_bytes == 0);
    pst_assert(s->resume_at == 0);
    free(s->entries);
    s->entries = NULL;
    pthread_mutex_lock(&log->lock);
    pst_segment_becomes(s, PST_SEGMENT_FREE); /* another lane may take it at once */
    s->repeated = s->unsynced = s->hollow = s->closed = s->carried = false;
    memset(s->emptied, 0, sizeof(s->emptied));
    log->free_count++;
    pst_assert(log->free_count <= log->segment_count);
    pthread_mutex_unlock(&log->lock);
    lane->stat.reclaimed_segments++;
}

void pst_reclaim_io_ended(struct pst_lane *lane)
{
    struct pst_reclaim *rc = &lane->reclaim;
    int result = rc->io.op.result;

    switch (rc->stage) {
    case PST_RECLAIM_TAIL:
    case PST_RECLAIM_INDEX:
        lane->stat.upkeep_failed += result < 0;
        if (result < 0)
            reclaim_give_up(lane);
        else if (rc->stage == PST_RECLAIM_TAIL)
            tail_read(lane);
        else
            index_read(lane);
        return;
    case PST_RECLAIM_HEAD:
        if (result == 0) {
            stage_becomes(rc, PST_RECLAIM_SYNC);
            sync_free_head(lane);
            return;
        }
        break;
    default:
        pst_assert(rc->stage == PST_RECLAIM_SYNC);
        if (result == 0) {
            set_free(lane);
            reclaim_finish(lane);
            return;
        }
    }
    pthread_mutex_lock(&lane->log->lock);
    segment_now(lane)->failed = segment_now(lane)->hollow = true; /* its head is tried again */
    segment_now(lane)->lane = lane->index;
    pst_segment_becomes(segment_now(lane), PST_SEGMENT_FULL);
    pthread_mutex_unlock(&lane->log->lock);
    lane->reclaim_failed = true;
    lane->stat.upkeep_failed++;
    reclaim_finish(lane);
}

void pst_reclaim_step(struct pst_lane *lane)
{
    struct pst_reclaim *rc = &lane->reclaim;

    if (rc->stage != PST_RECLAIM_WAIT || atomic_load(&segment_now(lane)->readers) > 0)
        return;
    stage_becomes(rc, PST_RECLAIM_HEAD);
    write_free_head(lane);
}

/* ---- moves: a read, then an append ---- */

static void move_done(struct pst_lane *lane, struct pst_log_move *move, int result)
{
    pst_assert(result <= 0);
    pst_assert(lane->reclaim.moving > 0);
    pst_assert(lane->moving_bytes >= move->value.value_bytes);
    lane->reclaim.moving--;
    lane->moving_bytes -= move->value.value_bytes;
    free(move->iov.iov_base);
    move->iov.iov_base = NULL;
    pst_lane_done(lane, &move->op, result);
}

int pst_log_move(struct pst_lane *lane, struct pst_log_move *move)
{
    uint64_t bytes = move->value.value_bytes;
    int r;

    pst_assert(lane->reclaim.stage == PST_RECLAIM_WALK);
    if (lane->reclaim.moving > 0 && lane->moving_bytes + bytes > MOVING_BYTES_MAX)
        return -EBUSY;
    pst_assert(move->from.segment < lane->log->segment_count);
    move->iov = (struct iovec){aligned_alloc(PST_LOG_ALIGN_BYTES, pst_log_whole(bytes + 1)), bytes};
    if (!move->iov.iov_base)
        return -ENOMEM;
    move->op.verb = PST_LOG_MOVE;
    move->read = (struct pst_log_read){.value = move->value,
                                       .place = move->from,
                                       .crc = move->crc,
                                       .bytes = bytes,
                                       .iov = &move->iov,
                                       .iov_count = bytes > 0};
    lane->reclaim.moving++;
    lane->moving_bytes += bytes;
    lane->moves_reading++;
    r = pst_lane_read(lane, &move->read, PST_LOG_MOVE_READ);
    if (r < 0) {
        lane->moves_reading--;
        lane->reclaim.moving--;
        lane->moving_bytes -= bytes;
        free(move->iov.iov_base);
    }
    return r;
}

int pst_log_move_bytes(struct pst_lane *lane, struct pst_log_move *move, const struct iovec *iov,
                       uint32_t count)
{
    uint64_t bytes = move->value.value_bytes, at = 0;
    uint8_t *copy = aligned_alloc(PST_LOG_ALIGN_BYTES, pst_log_whole(bytes + 1));

    pst_assert(lane->reclaim.stage == PST_RECLAIM_WALK);
    pst_assert(bytes <= lane->log->segment_bytes);
    pst_assert(iov || count == 0);
    if (!copy)
        return -ENOMEM;
    for (uint32_t i = 0; i < count; i++) {
        pst_assert(at + iov[i].iov_len <= bytes);
        memcpy(copy + at, iov[i].iov_base, iov[i].iov_len);
        at += iov[i].iov_len;
    }
    pst_assert(at == bytes);
    move->op.verb = PST_LOG_MOVE;
    move->read.op.result = 0;
    move->iov = (struct iovec){copy, bytes};
    lane->reclaim.moving++;
    lane->moving_bytes += bytes;
    pst_list_push_back(&lane->moves, &move->op.link);
    return 0;
}

bool pst_log_doubts(const struct pst_lane *lane, struct pst_log_place place)
{
    return pst_lane_segment(lane, place.segment)->unsynced;
}

void pst_move_read(struct pst_lane *lane, struct pst_log_move *move)
{
    pst_assert(lane->moves_reading > 0);
    lane->moves_reading--;
    if (move->read.op.result < 0)
        move_done(lane, move, move->read.op.result);
    else
        pst_list_push_back(&lane->moves, &move->op.link);
}

static void append_moved(struct pst_lane *lane, struct pst_log_move *move)
{
    int r;

    pst_assert(lane->reclaim.moving > 0);
    pst_assert(move->iov.iov_base);
    move->append = (struct pst_log_append){
        .value = move->value, .iov = &move->iov, .iov_count = move->value.value_bytes > 0};
    r = pst_lane_append(lane, &move->append, PST_LOG_MOVE_APPEND);
    if (r == -EBUSY)
        pst_list_push_back(&lane->moves, &move->op.link);
    else if (r < 0)
        move_done(lane, move, r);
}

bool pst_moves_step(struct pst_lane *lane, const struct pst_turn *turn)
{
    struct pst_list moves;
    bool left;

    if (pst_list_empty(&lane->moves))
        return false;
    pst_list_init(&moves);
    pst_list_splice(&moves, &lane->moves);
    do {
        struct pst_log_move *move = pst_list_first(&moves, struct pst_log_move, op.link);

        pst_list_remove(&move->op.link);
        append_moved(lane, move);
    } while (!pst_list_empty(&moves) && !pst_turn_is_over(turn));
    left = !pst_list_empty(&moves);
    pst_list_splice(&lane->moves, &moves);
    pst_assert(pst_list_empty(&moves));
    return left;
}

void pst_move_appended(struct pst_lane *lane, struct pst_log_move *move)
{
    pst_assert(move->append.op.verb == PST_LOG_MOVE_APPEND);
    pst_assert(move->iov.iov_base);
    move->to = move->append.place;
    move->crc = move->append.crc;
    lane->stat.moved_bytes += move->append.op.result == 0 ? move->value.value_bytes : 0;
    move_done(lane, move, move->append.op.result);
}
