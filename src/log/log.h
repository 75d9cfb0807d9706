/* SPDX-License-Identifier: Apache-2.0 */
/*
 * log.h: values on disk. A *log* is one or several folders with *segments* of one size, which are written
 * once from front to back and given up as a whole. A *lane* is one thread's way into it, with a disk queue
 * and an open segment of its own; lanes share only the list of segments. Whoever opens a log or polls a lane
 * includes this; what is done with values: value.h, after a restart: scan.h, taking segments back: reclaim.h.
 *
 * Values are written in *groups*: a head with an entry for each value, then the values. A value is named by
 * its *place*. The owner keeps the place, and with values of one block (PST_LOG_BLOCK_BYTES and less) their
 * checksum; what is on disk is believed only where checksums say so. Operations lie in the caller's memory
 * until a poll returns them. Nothing blocks, except pst_log_open(), the scan, and pst_log_generations() once
 * in hours. Layout: format.h.
 */
#ifndef PST_LOG_LOG_H
#define PST_LOG_LOG_H

#include "base/base.h"
#include "base/list.h"
#include "base/turn.h"

#include <sys/uio.h>

enum {
    PST_LOG_BLOCK_BYTES = 64 << 10, /* of a value, with a checksum each */
    PST_LOG_FOLDERS_MAX = 16,
    PST_LOG_SEGMENTS_MAX = 65536,
    PST_LOG_BOUNCE_BYTES_MAX =
        128 << 10, /* values up to here may lie anywhere; larger ones in aligned pieces */
};

struct pst_log;
struct pst_lane;

struct pst_log_options {
    const char *const *folders;
    uint32_t folder_count;
    uint64_t bytes;         /* of all segments; rounded down to whole ones */
    uint64_t segment_bytes; /* 0: 256 MiB; else 1 to 256 whole MiB */
    uint32_t lane_count;
    const char *driver; /* see pst_disk_options */
    uint32_t depth;     /* operations underway in each lane */
    const struct iovec *regions;
    uint32_t region_count;
    bool held; /* what is there is not written before pst_log_begin(): until then appends are -EBUSY */
};

/*
 * Takes the folders (made where missing) and their segments. Return: 0; -EINVAL, -EEXIST not a folder of
 * ours, -EPROTONOSUPPORT another format, -EBUSY another node has it, -ENOSPC larger than the disk; others as
 * the system says. *@fault names the folder and the reason (a static thread-local text); nothing was
 * written over, and a marker that was there is as it was.
 */
int pst_log_open(const struct pst_log_options *options, struct pst_log **out, const char **fault);
/* From now on the folders are this process's, and lanes write. Once; any thread. Return: 0 or -errno with
 * *@fault, and the log is held as before. */
int pst_log_begin(struct pst_log *log, const char **fault);
bool pst_log_begun(const struct pst_log *log);
/* Lanes must be idle (pst_lane_idle()), or the log held. What was deleted since the last sync may come back.
 */
struct pst_log *pst_log_close(struct pst_log *log);
/* What could not be had (io_uring, registered memory, direct I/O); "" when all could. */
const char *pst_log_note(const struct pst_log *log);
/* Drawn when the folders were made. */
uint64_t pst_log_name(const struct pst_log *log);

/*
 * Generations that may have been given out before: count on above it. pst_log_generations() wants to hear now
 * and then, from any lane, of the highest that was given out since: no later process will give out one up to
 * it again. Return: 0 or -errno.
 */
uint64_t pst_log_generation_floor(const struct pst_log *log);
int pst_log_generations(struct pst_log *log, uint64_t highest);

struct pst_lane *pst_log_lane(struct pst_log *log, uint32_t index);

/* ---- what is done, in any lane ---- */

enum pst_log_verb { PST_LOG_APPEND, PST_LOG_READ, PST_LOG_SYNC, PST_LOG_MOVE };

/* First member of every operation: what a poll returns. */
struct pst_log_op {
    struct pst_list link;
    uint8_t verb;
    int result;      /* once done: 0 or -errno */
    uint64_t ticket; /* the lane's; of an append that is done: see pst_log_delete_after() */
};

/*
 * Carries on what is underway until @turn is over or some of it is done; moves operations that are done to
 * the end of @done. Call it once a round, also after appends: it is what writes them. Return: whether
 * anything happened: if not, sleep.
 */
bool pst_lane_poll(struct pst_lane *lane, const struct pst_turn *turn, struct pst_list *done);
int pst_lane_descriptor(const struct pst_lane *lane); /* to sleep on, as pst_disk_descriptor() */
bool pst_lane_idle(const struct pst_lane *lane);      /* nothing underway, nothing waits to be written */

/* ---- figures ---- */

#define PST_LOG_COUNTERS(X)                                                                                  \
    X(appended_bytes) /* of values, by append, once written */                                               \
    X(written_bytes)  /* all that was written: written / appended is the write amplification */              \
    X(read_bytes)                                                                                            \
    X(moved_bytes)                                                                                           \
    X(reclaimed_segments)                                                                                    \
    X(syncs)                                                                                                 \
    X(tombstones)                                                                                            \
    X(corrupt)                                                                                               \
    X(upkeep_failed) /* syncs, and what reclaim reads and writes, for no value in particular */              \
    X(failed)

struct pst_log_stat {
    uint64_t segments, segments_free, segments_failed, segment_bytes;
    uint64_t segments_unsynced; /* whose sync failed, and that have not been emptied since */
    uint64_t live_bytes;        /* of values, as they lie on disk */
    uint64_t capacity_bytes;    /* beside what is free for moves, and the ends of what is written now */
#define X(name) uint64_t name;
    PST_LOG_COUNTERS(X)
#undef X
};
/* Any thread. */
void pst_log_stat(const struct pst_log *log, struct pst_log_stat *out);

#endif
