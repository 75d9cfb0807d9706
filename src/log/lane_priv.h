/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lane_priv.h: a lane from within: its groups, readings, syncs and the segment that it takes back. Every file
 * of log/ that works in a lane includes it; folders and segments: log_priv.h.
 */
#ifndef PST_LOG_LANE_PRIV_H
#define PST_LOG_LANE_PRIV_H

#include "log/group_priv.h"
#include "log/log_priv.h"
#include "log/reading_priv.h"
#include "log/reclaim_priv.h"
#include "log/tombstones_priv.h"

struct pst_lane {
    struct pst_log *log;
    uint32_t index;
    struct pst_disk *disk;
    uint8_t *memory; /* of groups and readings */
    uint64_t memory_bytes;

    /* Writing. Tickets number groups; they end in order. */
    struct pst_group groups[PST_LANE_GROUPS];
    struct pst_group *open;           /* takes values */
    bool grew, grows;                 /* it took one since the last poll; before this one */
    struct pst_summing summing;       /* will be written next */
    uint64_t issued, written, synced; /* tickets */
    struct pst_index index_now;       /* of the segment that is written; entries NULL: none is */
    uint64_t at;                      /* in it */
    _Atomic bool cramped;             /* it has none, or a value did not fit in it */
    _Atomic bool provided;            /* it can empty a segment without one of the last free ones */
    struct pst_index seals[PST_LANE_SEALS];
    uint32_t seal_count;

    /* Syncing. */
    uint32_t dirty[PST_LANE_DIRTY]; /* segments that were written since the last sync began */
    uint32_t dirty_count;
    struct pst_lane_io sync_io[PST_LANE_DIRTY];
    uint32_t sync_count, sync_left;
    uint64_t sync_upto;
    struct pst_list flushes, waiting; /* not yet numbered; for a ticket's sync */

    uint32_t writes_failed, syncs_failed; /* since the last that did not */
    uint64_t rests_until_ns; /* no segment is begun before: a disk that fails would use them all up */

    struct pst_log_tombstone *tombstones;
    uint64_t tombstone_count, tombstone_room;
    struct pst_later *laters; /* tombstones that wait for a sync, in order of their tickets */
    uint64_t later_count, later_room;

    struct pst_reading *readings;
    uint32_t reading_count, reading_room, reading_hint;
    uint8_t *larges[PST_READ_LARGES];
    uint32_t large_count;
    struct pst_list checks; /* readings whose checksums are looked at */

    struct pst_reclaim reclaim;
    uint32_t reclaims; /* that began, or found nothing */
    _Atomic bool reclaim_failed; /* the last one */
    uint64_t doubt_until;        /* a sync failed: what it was to carry is durable when this one is synced;
                                    UINT64_MAX: when all is moved; 0: none failed */
    struct pst_list moves;       /* read, not yet appended */
    uint64_t moving_bytes;
    uint32_t moves_reading; /* not in a group yet */
    uint8_t *free_head;

    struct pst_list ended; /* at the disk: to be looked at */
    struct pst_list done;
    struct { /* the lane's thread counts, any reads */
#define X(name) _Atomic uint64_t name;
        PST_LOG_COUNTERS(X)
#undef X
    } stat;
};

int pst_lane_open(struct pst_log *log, uint32_t index, const struct pst_log_options *options);
struct pst_lane *pst_lane_close(struct pst_lane *lane);
void pst_lane_done(struct pst_lane *lane, struct pst_log_op *op, int result);

static inline struct pst_segment *pst_lane_segment(const struct pst_lane *lane, uint32_t segment)
{
    pst_assert(segment < lane->log->segment_count);
    return &lane->log->segments[segment];
}

#endif
