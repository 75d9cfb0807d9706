/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sync.c: when groups are durable. A lane has one sync underway at a time, for all that waits: it carries the
 * segments that were written since the last one began.
 */
#include "log/lane_priv.h"

/* Indexes make their segments dirty once more: those that are being written, and those of all seals. */
bool pst_lane_sync_takes(const struct pst_lane *lane)
{
    uint32_t count = lane->dirty_count + PST_LANE_SEALS;

    pst_assert(lane->dirty_count <= PST_LANE_DIRTY);
    for (uint32_t i = 0; i < PST_LANE_GROUPS; i++)
        count += lane->groups[i].image != NULL;
    return count < PST_LANE_DIRTY;
}

static bool sync_wanted(const struct pst_lane *lane)
{
    pst_assert(lane->synced <= lane->written);
    if (lane->written == lane->synced)
        return false;
    if (pst_lane_gives_up(lane) || !pst_lane_sync_takes(lane))
        return true;
    pst_list_each (link, &lane->waiting) {
        if (pst_list_entry(link, struct pst_log_op, link)->ticket <= lane->written)
            return true;
    }
    if (pst_lane_laters_wait(lane) && !pst_list_empty(&lane->flushes))
        return true;
    return lane->seal_count > 0 && lane->seals[0].last_ticket <= lane->written &&
           lane->seals[0].last_ticket > lane->synced;
}

/* Of what the last sync carried. */
static bool sync_failed(const struct pst_lane *lane, bool any, uint32_t segment)
{
    pst_assert(lane->sync_left == 0);
    for (uint32_t i = 0; i < lane->sync_count; i++) {
        if (lane->sync_io[i].op.result < 0 && (any || lane->sync_io[i].op.file == segment))
            return true;
    }
    return false;
}

bool pst_lane_in_doubt(struct pst_lane *lane)
{
    const struct pst_log *log = lane->log;

    if (pst_likely(lane->doubt_until == 0))
        return false;
    for (uint32_t i = 0; i < log->segment_count; i++) {
        const struct pst_segment *s = &log->segments[i];

        if ((s->lane == lane->index || s->lane == PST_LANE_NONE) && pst_segment_doubtful(s))
            return true;
    }
    lane->doubt_until = pst_min(lane->doubt_until, lane->written);
    if (lane->doubt_until > lane->synced)
        return true;
    lane->doubt_until = 0;
    return false;
}

static void end_flush(struct pst_lane *lane, struct pst_log_op *op)
{
    bool bad = sync_failed(lane, true, 0) || pst_lane_in_doubt(lane);

    pst_assert(op->verb != PST_LOG_APPEND);
    if (!bad && pst_lane_doubt_held(lane, 0))
        pst_list_push_back(&lane->flushes, &op->link); /* they are written now */
    else
        pst_lane_done(lane, op, bad ? -EIO : 0);
}

static void end_append(struct pst_lane *lane, struct pst_log_append *a)
{
    /* A sync that failed may have been the one to tell of a value that came while it ran. */
    bool bad =
        sync_failed(lane, false, a->place.segment) || pst_lane_segment(lane, a->place.segment)->unsynced;

    pst_assert(a->durable);
    if (bad) {
        pst_lane_delete_failed(lane, a, a->place.segment);
        pst_log_forget(lane, &a->value, a->place);
    }
    pst_lane_done(lane, &a->op, bad ? -EIO : 0);
}

static void end_waiting(struct pst_lane *lane, struct pst_log_op *op)
{
    pst_assert(op->ticket <= lane->synced);
    if (op->verb == PST_LOG_APPEND)
        end_append(lane, pst_list_entry(&op->link, struct pst_log_append, op.link));
    else
        end_flush(lane, op);
}

static void end_sync(struct pst_lane *lane)
{
    struct pst_list ended;

    pst_assert(lane->sync_left == 0);
    pst_assert(lane->sync_upto >= lane->synced && lane->sync_upto <= lane->written);
    lane->synced = lane->sync_upto;
    pst_list_init(&ended);
    pst_list_each_safe (link, &lane->waiting) {
        if (pst_list_entry(link, struct pst_log_op, link)->ticket > lane->synced)
            continue;
        pst_list_remove(link);
        pst_list_push_back(&ended, link);
    }
    while (!pst_list_empty(&ended)) {
        struct pst_log_op *op = pst_list_first(&ended, struct pst_log_op, link);

        pst_list_remove(&op->link);
        end_waiting(lane, op);
    }
    if (sync_failed(lane, true, 0)) {
        pst_lane_rests(lane, ++lane->syncs_failed);
        pst_lane_flushes_again(lane, lane->synced + 1);
    } else {
        lane->syncs_failed = 0;
    }
    for (uint32_t i = 0; i < lane->sync_count; i++) {
        struct pst_segment *s = pst_lane_segment(lane, lane->sync_io[i].op.file);
        bool full = s->state == PST_SEGMENT_FULL && !s->failed;

        if (lane->sync_io[i].op.result >= 0)
            continue;
        lane->stat.upkeep_failed++;
        pst_lane_fail_segment(lane, lane->sync_io[i].op.file);
        if (full) /* it was to carry the index: all that this tells of was synced before */
            continue;
        s->unsynced = true;
        lane->doubt_until = UINT64_MAX;
    }
    pst_lane_laters_synced(lane);
}

/* Return: whether it is over already: all that it would carry has failed. */
static bool start_sync(struct pst_lane *lane)
{
    pst_assert(lane->written > lane->synced);
    pst_assert(lane->sync_left == 0);
    pst_assert(lane->dirty_count <= pst_count_of(lane->sync_io));
    (void)pst_lane_in_doubt(lane); /* this one may end it */
    lane->sync_upto = lane->written;
    lane->sync_count = lane->dirty_count;
    for (uint32_t i = 0; i < lane->dirty_count; i++) {
        const struct pst_disk_op op = {.verb = PST_DISK_SYNC, .file = lane->dirty[i]};

        pst_lane_submit(lane, &lane->sync_io[i], PST_IO_SYNC, NULL, &op);
        lane->sync_left++;
        lane->stat.syncs++;
    }
    lane->dirty_count = 0;
    if (lane->sync_left > 0)
        return false;
    end_sync(lane);
    return true;
}

void pst_sync_io_ended(struct pst_lane *lane)
{
    pst_assert(lane->sync_left > 0 && lane->sync_left <= lane->sync_count);
    if (--lane->sync_left == 0)
        end_sync(lane);
}

bool pst_lane_sync_step(struct pst_lane *lane)
{
    return lane->sync_left == 0 && sync_wanted(lane) && start_sync(lane);
}
