/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reclaim.h: taking segments back. The log says which one is worth it and what lies in it; the owner says
 * what of it lives, and has that moved. Tombstones look after themselves. The owner of the values includes
 * it.
 */
#ifndef PST_LOG_RECLAIM_H
#define PST_LOG_RECLAIM_H

#include "log/scan.h"

/*
 * Chooses a segment: one that failed, else the one with the least alive, if that is @live_percent_max of it
 * at most. A lane has one at a time. Segments of an earlier process are of all lanes: each is told of all
 * that lies there, looks after its own keys, and the last one frees it. Return: 1 one was chosen, 0 there is
 * none, -EBUSY the last is not over, -ENOMEM.
 */
int pst_log_reclaim_begin(struct pst_lane *lane, uint32_t live_percent_max);
/* Names the segment that all lanes empty together: it is free when each has begun and ended. 0: there is
 * none. Any thread. */
uint64_t pst_log_common(const struct pst_lane *lane);
/* Whether the log takes more values, or will when lanes that ended their last one well take back what has
 * @live_percent_max alive at most: not only @lane's, and also segments whose index is still to be written. */
bool pst_log_gains(const struct pst_lane *lane, uint32_t live_percent_max);
/* Whether there is a free segment for values. */
bool pst_log_takes(const struct pst_lane *lane);
/*
 * The next value that lies there, alive or dead; its key and attributes stay until the reclaim is over. What
 * the owner still has at found.place it moves, or forgets. Return: 1; -EAGAIN poll first; 0 that was all.
 */
int pst_log_reclaim_next(struct pst_lane *lane, struct pst_log_found *found);
/* How the owner found what lies there. */
enum pst_log_reclaimed {
    PST_LOG_EMPTIED,
    PST_LOG_AGAIN, /* some of it was not moved: it can be chosen again */
    PST_LOG_STAYS, /* something cannot be read and is not given up: it counts as one that failed, and is not
                      chosen again */
};

/* Once all moves are done. An emptied segment is free when what was moved is durable and nobody reads there
 * any more. */
void pst_log_reclaim_end(struct pst_lane *lane, enum pst_log_reclaimed how);
/* Whether that has been seen to, well or badly: the next one may begin. */
bool pst_log_reclaim_over(const struct pst_lane *lane);
/* Whether the last one that is over ended badly. */
bool pst_log_reclaim_failed(const struct pst_lane *lane);

/*
 * Copies a value to the lane's own segment, checked on the way. Done with 0: where the owner still has it at
 * `from`, it puts `to` and `crc` in its place and forgets `from`; else it deletes `to`
 * (pst_log_delete_moved()). Done with an error: it is lost where that is -EBADMSG or -EIO (forget `from`, and
 * say so).
 */
struct pst_log_move {
    struct pst_log_op op;
    struct pst_log_value value; /* key and attrs stay until the operation is done */
    struct pst_log_place from, to;
    uint32_t crc;

    /* The lane's. */
    struct pst_log_read read;
    struct pst_log_append append;
    struct iovec iov;
};

/* Return: 0 queued; -EBUSY; -EINVAL no such place; -ENOMEM. */
int pst_log_move(struct pst_lane *lane, struct pst_log_move *move);
/* The same with the owner's bytes, which are copied: what lies at `from` cannot be read. Return: 0, -ENOMEM.
 */
int pst_log_move_bytes(struct pst_lane *lane, struct pst_log_move *move, const struct iovec *iov,
                       uint32_t count);
/* Whether a sync of what is written there failed: an earlier value may be all that a crash would leave. */
bool pst_log_doubts(const struct pst_lane *lane, struct pst_log_place place);

#endif
