/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reclaim_priv.h: the segment that a lane takes back, stage by stage. reclaim.c does it; lanes have one each.
 */
#ifndef PST_LOG_RECLAIM_PRIV_H
#define PST_LOG_RECLAIM_PRIV_H

#include "log/format.h"
#include "log/io_priv.h"
#include "log/reclaim.h"

/* What a lane asks of itself. */
enum { PST_LOG_RECLAIM_FLUSH = PST_LOG_MOVE + 1, PST_LOG_MOVE_READ, PST_LOG_MOVE_APPEND };

enum pst_reclaim_stage {
    PST_RECLAIM_NONE,
    PST_RECLAIM_TAIL,  /* its last block is read */
    PST_RECLAIM_INDEX, /* its index is read */
    PST_RECLAIM_WALK,  /* the owner walks it */
    PST_RECLAIM_FLUSH, /* what was moved becomes durable */
    PST_RECLAIM_WAIT,  /* for readers */
    PST_RECLAIM_HEAD,  /* its free head is written */
    PST_RECLAIM_SYNC,
};

struct pst_reclaim {
    uint8_t stage;
    bool keep;  /* it cannot be freed: something there would be lost */
    bool again; /* something was not moved */
    uint32_t segment, moving;
    bool took;            /* one of the last free segments, for what is moved: this one comes back for it */
    bool keep_tombstones; /* there may be further copies of what they kill */
    uint8_t *entries;
    struct pst_bytes left;
    struct pst_segment_tail tail;
    struct iovec iov;
    struct pst_lane_io io;
    struct pst_log_sync flush;
};

/* Before pst_lane_write_step(). Return: whether the turn was over before all were looked at. */
bool pst_moves_step(struct pst_lane *lane, const struct pst_turn *turn);
void pst_reclaim_step(struct pst_lane *lane); /* after it */
void pst_reclaim_io_ended(struct pst_lane *lane);
void pst_reclaim_flushed(struct pst_lane *lane, int result);
void pst_move_read(struct pst_lane *lane, struct pst_log_move *move);
void pst_move_appended(struct pst_lane *lane, struct pst_log_move *move);

#endif
