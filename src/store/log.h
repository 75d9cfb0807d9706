/*
 * log.h: values on disk. A *log* is one or several folders with *segments* of one size, which are written
 * once from front to back and given up as a whole. A *lane* is one thread's way into it, with a disk queue
 * and an open segment of its own; lanes share only the list of segments.
 *
 * Values are written in *groups*: a head with an entry for each value, then the values. A value is named by
 * its *place*. The owner keeps the place, and with values of one block (PST_LOG_BLOCK_BYTES and less) their
 * checksum; what is on disk is believed only where checksums say so. Operations lie in the caller's memory
 * until a poll returns them. Nothing blocks, except pst_log_open(), the scan, and pst_log_generations() once
 * in hours. Layout: log_format.h.
 */
#ifndef PST_LOG_H
#define PST_LOG_H

#include "base/base.h"
#include "base/list.h"

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
};

/*
 * Takes the folders (made where missing) and their segments. Return: 0; -EINVAL, -EEXIST not a folder of
 * ours, -EPROTONOSUPPORT another format, -EBUSY another node has it, -ENOSPC larger than the disk; others as
 * the system says. *@fault names the folder and the reason (a static thread-local text); nothing was
 * overwritten.
 */
int pst_log_open(const struct pst_log_options *options, struct pst_log **out, const char **fault);
/* Lanes must be idle (pst_lane_idle()). What was buried since the last flush may come back. */
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

enum pst_log_verb { PST_LOG_APPEND, PST_LOG_READ, PST_LOG_FLUSH, PST_LOG_MOVE };

/* First member of every operation: what a poll returns. */
struct pst_log_op {
    struct pst_list link;
    uint8_t verb;
    int result;      /* once done: 0 or -errno */
    uint64_t ticket; /* the lane's; of an append that is done: see pst_log_bury_after() */
};

/*
 * Carries on what is underway; moves operations that are done to the end of @done. Call it once a round, also
 * after appends: it is what writes them. Return: whether anything happened: if not, sleep.
 */
bool pst_lane_poll(struct pst_lane *lane, struct pst_list *done);
int pst_lane_descriptor(const struct pst_lane *lane); /* to sleep on, as pst_disk_descriptor() */
bool pst_lane_idle(const struct pst_lane *lane);      /* nothing underway, nothing waits to be written */

/* ---- values ---- */

/* Where a value lies; {0, 0} is no place. */
struct pst_log_place {
    uint32_t segment;
    uint32_t offset;
};

/* What of a value a place does not say. `value_crc`, `depth` and `flags` are the owner's, kept as they are.
 */
struct pst_log_value {
    struct pst_bytes key, attrs;
    uint64_t generation;
    uint64_t value_bytes;
    uint32_t value_crc;
    uint32_t era; /* the log's: pst_log_new_era() */
    uint16_t depth;
    uint8_t flags;
};

struct pst_log_append {
    struct pst_log_op op;
    struct pst_log_value value; /* key and attrs: read during the call only */
    const struct iovec *iov;    /* the value's bytes; it and they stay until the operation is done */
    uint32_t iov_count;
    bool durable; /* done once synced; a sync carries all that waits for one */

    /* Once done with 0. */
    struct pst_log_place place;
    uint32_t crc; /* of a value of one block: for pst_log_read */

    /* The lane's. */
    uint64_t key_hash;
    uint32_t key_check, entry_at, data_at;
    bool packed;
};

/*
 * Return: 0 queued; -EBUSY poll first; -ENOSPC no segment is free (what is left is for reclaim); -EFBIG
 * larger than a segment; -EIO no segment takes writes any more; -EINVAL pieces that are neither aligned nor
 * few. The result may be -EIO or -ENOSPC: the value is not there, nor will it be after a restart, once a
 * flush says so; its segment takes no more, others do.
 */
int pst_log_append(struct pst_lane *lane, struct pst_log_append *append);
/* The largest value that a segment takes. */
uint64_t pst_log_value_bytes_max(const struct pst_log *log);

struct pst_log_read {
    struct pst_log_op op;
    struct pst_log_value value; /* as appended; key and attrs stay until the operation is done */
    struct pst_log_place place;
    uint32_t crc;            /* of a value of one block */
    uint64_t offset, bytes;  /* a span as pst_log_span() gives */
    const struct iovec *iov; /* `bytes` long in all; stays until the operation is done */
    uint32_t iov_count;
};

/* Widens a range of a value to the blocks that have to be read to check it. */
void pst_log_span(uint64_t value_bytes, uint64_t *offset, uint64_t *bytes);
/* Return: 0 queued; -EBUSY; -EINVAL. The result: 0; -EBADMSG what is there is not that value; -EIO. Any lane
 * reads any place. */
int pst_log_read(struct pst_lane *lane, struct pst_log_read *read);

/* Done when all that was appended and buried before in this lane is durable. */
struct pst_log_flush {
    struct pst_log_op op;
};
void pst_log_flush(struct pst_lane *lane, struct pst_log_flush *flush);

/* ---- the ends of values ---- */

/*
 * The value at @place is dead (deleted, or overwritten): no restart brings it back, once a flush says so.
 * Reads of it that are underway end as they would have. Return: 0 or -ENOMEM (nothing done).
 */
int pst_log_bury(struct pst_lane *lane, const struct pst_log_value *value, struct pst_log_place place);
/* The same once the append with that ticket is durable (pst_log_op), which has the key's newer value: until
 * then a crash brings this one back. 0: now. */
int pst_log_bury_after(struct pst_lane *lane, const struct pst_log_value *value, struct pst_log_place place,
                       uint64_t ticket);
/* The same for the new place of a value that died while it was moved: not before all that was written since
 * is durable, which may have the key's newer value. */
int pst_log_bury_moved(struct pst_lane *lane, const struct pst_log_value *value, struct pst_log_place to);
/* The same for this generation alone, of the era that @value says: earlier ones of the key may be alive. */
int pst_log_bury_alone(struct pst_lane *lane, const struct pst_log_value *value, struct pst_log_place place);
/* The same for a value that may come back (evicted), or that lies elsewhere too (moved): nothing is written.
 */
void pst_log_forget(struct pst_lane *lane, const struct pst_log_value *value, struct pst_log_place place);
/*
 * What is buried before has no say over what is appended from now on, be it of the same or an earlier
 * generation: a key that was given up here may come again as another store has it. Any thread.
 */
void pst_log_new_era(struct pst_log *log);

/* ---- after a restart ---- */

/* A value as found on disk; key and attrs until the next one. */
struct pst_log_found {
    struct pst_log_value value;
    struct pst_log_place place;
    uint32_t crc;
};

struct pst_log_scan;

struct pst_log_scanned {
    uint64_t values, buried, damaged_values, damaged_groups, damaged_segments, bytes_read;
};

/*
 * Before anything is appended: walks what earlier processes left, in one thread. For each value that is found
 * the owner adopts it, or buries it (an older generation of a key: pst_log_bury(), in any lane), or, where
 * the same generation was found before, pst_log_repeated(). Return: 1 and *@found, 0 at the end, -errno.
 */
int pst_log_scan_open(struct pst_log *log, struct pst_log_scan **out);
int pst_log_scan_next(struct pst_log_scan *scan, struct pst_log_found *found);
struct pst_log_scan *pst_log_scan_close(struct pst_log_scan *scan, struct pst_log_scanned *scanned);
void pst_log_adopt(struct pst_log *log, const struct pst_log_found *found);
void pst_log_repeated(struct pst_log *log, const struct pst_log_found *found);

/* ---- figures ---- */

#define PST_LOG_COUNTERS(X)                                                                                  \
    X(appended_bytes) /* of values, by append */                                                             \
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
#define X(name) uint64_t name;
    PST_LOG_COUNTERS(X)
#undef X
};
/* Any thread. */
void pst_log_stat(const struct pst_log *log, struct pst_log_stat *out);

#endif
