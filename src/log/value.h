/* SPDX-License-Identifier: Apache-2.0 */
/*
 * value.h: what a lane does with values: append, read, flush, delete_value. The owner of the values, and the
 * log's own files, include it.
 */
#ifndef PST_LOG_VALUE_H
#define PST_LOG_VALUE_H

#include "log/log.h"

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
    uint8_t copies; /* the caller's, up to 7 */
    uint8_t flags;  /* the caller's, up to 31 */
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

/* Done when all that was appended and deleted before in this lane is durable. */
struct pst_log_sync {
    struct pst_log_op op;
};
void pst_log_sync(struct pst_lane *lane, struct pst_log_sync *flush);

/* ---- the ends of values ---- */

/*
 * The value at @place is dead (deleted, or overwritten): no restart brings it back, once a flush says so.
 * Reads of it that are underway end as they would have. Return: 0 or -ENOMEM (nothing done).
 */
int pst_log_delete(struct pst_lane *lane, const struct pst_log_value *value, struct pst_log_place place);
/* The same once the append with that ticket is durable (pst_log_op), which has the key's newer value: until
 * then a crash brings this one back. 0: now. */
int pst_log_delete_after(struct pst_lane *lane, const struct pst_log_value *value, struct pst_log_place place,
                         uint64_t ticket);
/* The same for the new place of a value that died while it was moved: not before all that was written since
 * is durable, which may have the key's newer value. */
int pst_log_delete_moved(struct pst_lane *lane, const struct pst_log_value *value, struct pst_log_place to);
/* The same for this generation alone, of the era that @value says: earlier ones of the key may be alive. */
int pst_log_delete_alone(struct pst_lane *lane, const struct pst_log_value *value,
                         struct pst_log_place place);
/* The same for the log's copies alone, of the era that @value says and before: the value lives on in memory,
 * and may be appended again. */
int pst_log_give_up(struct pst_lane *lane, const struct pst_log_value *value, struct pst_log_place place);
/* The same for a value that may come back (evicted), or that lies elsewhere too (moved): nothing is written.
 */
void pst_log_forget(struct pst_lane *lane, const struct pst_log_value *value, struct pst_log_place place);
/*
 * What is deleted before has no say over what is appended from now on, be it of the same or an earlier
 * generation: a key that was given up here may come again as another store has it. Any thread.
 */
void pst_log_new_era(struct pst_log *log);

#endif
