/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lend.c: what lanes do while no segment is free, for there may be fewer than lanes, as after a restart with
 * more lanes on a full disk. A lane keeps its segment only for what it has to write now: it has that synced,
 * and gives the segment up. The next lane that has something to write resumes it.
 */
#include "log/lane_priv.h"

/* What a lane moves to its segment lets it free another one: until then it keeps it. */
static bool is_moving(const struct pst_lane *lane)
{
    return lane->reclaim.stage >= PST_RECLAIM_WALK && lane->reclaim.stage <= PST_RECLAIM_FLUSH;
}

bool pst_lane_gives_up(const struct pst_lane *lane)
{
    const struct pst_log *log = lane->log;

    pst_assert(log->free_count <= log->segment_count);
    return log->free_count == 0 && lane->index_now.entries && log->lane_count > 1 && !is_moving(lane);
}

/* One that another lane writes may be lent, has been lent since the lane looked, or comes free just now. */
bool pst_lane_awaits_segment(const struct pst_lane *lane)
{
    struct pst_log *log = lane->log;
    bool awaits;

    pst_assert(!lane->index_now.entries);
    pthread_mutex_lock(&log->lock);
    awaits = log->free_count > 0 || log->resume_count > 0;
    for (uint32_t i = 0; !awaits && i < log->segment_count; i++) {
        const struct pst_segment *s = &log->segments[i];

        awaits = s->state == PST_SEGMENT_OPEN || (s->state == PST_SEGMENT_EMPTY && !s->lost);
    }
    pthread_mutex_unlock(&log->lock);
    return awaits;
}

void pst_lane_lend(struct pst_lane *lane)
{
    struct pst_log *log = lane->log;
    struct pst_segment *s;

    if (lane->issued > lane->synced || !pst_lane_gives_up(lane))
        return;
    pst_assert(lane->sync_left == 0);
    pst_assert(lane->dirty_count == 0);
    s = pst_lane_segment(lane, lane->index_now.segment);
    pst_assert(s->resume_at == 0);
    pthread_mutex_lock(&log->lock);
    pst_segment_becomes(s, PST_SEGMENT_FULL);
    s->lane = PST_LANE_NONE;
    pst_segment_keep_index(s, &lane->index_now);
    s->resume_at = (uint32_t)lane->at;
    log->resume_count++;
    pthread_mutex_unlock(&log->lock);
    lane->cramped = true;
    pst_lane_note_provided(lane);
}
