/* SPDX-License-Identifier: Apache-2.0 */
/*
 * group_priv.h: groups: values on their way to a segment. append.c fills them, write.c sends them out; lanes
 * have some. Unless said otherwise the functions are write.c's.
 */
#ifndef PST_LOG_GROUP_PRIV_H
#define PST_LOG_GROUP_PRIV_H

#include "log/io_priv.h"
#include "log/log_priv.h"
#include "log/sum_priv.h"

enum pst_group_state { PST_GROUP_FREE, PST_GROUP_OPEN, PST_GROUP_WRITING, PST_GROUP_WRITTEN };

struct pst_group {
    uint8_t *buffer; /* head, then what is packed; last blocks of other values from the end on */
    uint8_t state;
    bool large;
    int result;
    uint64_t ticket;
    uint32_t segment;
    uint32_t entry_count, put_count, move_count, entries_bytes, packed_bytes, direct_bytes, end_blocks;
    void *image; /* of an index: freed once written */
    struct pst_list appends;
    struct iovec iov[PST_GROUP_PIECES]; /* two for the buffer, then what is written from where it lies */
    uint32_t iov_count;
    struct pst_lane_io io[3];
    uint32_t io_left;
};

/* A value of several blocks whose group waits for its checksums. */
struct pst_summing {
    struct pst_group *group; /* NULL: none */
    struct pst_log_append *append;
    struct pst_sum sum;
    uint32_t *crcs;
    uint64_t count;
};

/* The index of a segment that is written, or waits to be closed with it. */
struct pst_index {
    uint8_t *entries;
    uint64_t bytes, room;
    uint32_t entry_count;
    uint32_t segment;
    uint64_t last_ticket; /* of what it tells of */
};

/* The segment keeps the index of what lies there, since none is written yet. */
static inline void pst_segment_keep_index(struct pst_segment *s, struct pst_index *ix)
{
    pst_assert(!s->entries);
    pst_assert(ix->entries);
    s->entries = ix->entries;
    s->entries_bytes = ix->bytes;
    s->entries_room = ix->room;
    s->entry_count = ix->entry_count;
    *ix = (struct pst_index){0};
}

static inline uint64_t pst_group_head_bytes(const struct pst_group *g)
{
    pst_assert(g->entries_bytes <= PST_LOG_HEAD_BYTES_MAX);
    return sizeof(struct pst_group_head) + g->entries_bytes;
}

struct pst_group *pst_group_take(struct pst_lane *lane); /* NULL: all are underway */
/* Sends the group on its way. Return: 0, -EBUSY (again later), or it can go nowhere: -ENOSPC, -ENOMEM. */
int pst_group_close(struct pst_lane *lane, struct pst_group *group, uint64_t checksums_bytes);
/* It can go nowhere: its appends end with @result. */
void pst_group_fail(struct pst_lane *lane, struct pst_group *group, int result);

/* Return: -EBUSY; else nothing is open any more, with an error because it could go nowhere. */
int pst_lane_close_open(struct pst_lane *lane);

/* Whether the group with @more bytes has room in the lane's segment; true where none is open. */
bool pst_lane_fits(const struct pst_lane *lane, const struct pst_group *g, uint64_t more);
/* Whether a value may hope for a segment: none of those that are kept for moves and tombstones. */
bool pst_lane_has_room(struct pst_lane *lane, uint64_t bytes);
/* The same of some value, from any thread. */
bool pst_lane_takes(const struct pst_lane *lane);
/* Looks whether the lane can empty any segment that is worth it without one of the last free ones: its own
 * has all but nothing yet, or is one of them and takes what is being moved, for which one comes back. */
void pst_lane_note_provided(struct pst_lane *lane);
/* The lane's segment takes no more. Return: 0, -EBUSY. */
int pst_lane_seal(struct pst_lane *lane);
void pst_lane_write_step(struct pst_lane *lane, const struct pst_turn *turn);
/* Whether a group is on its way there. */
bool pst_lane_writes_to(const struct pst_lane *lane, uint32_t segment);
void pst_group_io_ended(struct pst_lane *lane, struct pst_group *group, int result);
/* A write or sync has failed, so many without one that has not: the lane rests for longer each time. */
void pst_lane_rests(struct pst_lane *lane, uint32_t failed);
/* The segment takes no more; what it holds stays. Its tombstones are written elsewhere. */
void pst_lane_fail_segment(struct pst_lane *lane, uint32_t segment);
/* Tombstones that were numbered, with @ticket or later, wait for another group: so do flushes that wait for
 * them. */
void pst_lane_flushes_again(struct pst_lane *lane, uint64_t ticket);
/* The owner of the value is told that it is not there: a restart must not find it. What it was to replace
 * lives. */
void pst_lane_delete_failed(struct pst_lane *lane, const struct pst_log_append *append, uint32_t segment);

/* ---- sync.c ---- */

/* Begins a sync if one is wanted. Return: whether it is over already: all that it would carry has failed. */
bool pst_lane_sync_step(struct pst_lane *lane);
/* Whether the next sync has room for a segment that is begun now. */
bool pst_lane_sync_takes(const struct pst_lane *lane);
void pst_sync_io_ended(struct pst_lane *lane);
/* Whether a sync failed, and what it was to carry is not durable elsewhere yet: another one would not carry
 * it. */
bool pst_lane_in_doubt(struct pst_lane *lane);

/* ---- lend.c ---- */

/* Whether the lane is to have its segment synced and lend it. */
bool pst_lane_gives_up(const struct pst_lane *lane);
/* Lends it, if all that the lane wrote is synced. */
void pst_lane_lend(struct pst_lane *lane);
/* Whether a lane that found no segment is to look again. */
bool pst_lane_awaits_segment(const struct pst_lane *lane);

/* ---- append.c: for the caller, or for a move ---- */

int pst_lane_append(struct pst_lane *lane, struct pst_log_append *append, uint8_t verb);
/* Carries on with the value whose checksums are missing, by a step. Return: whether it did. */
bool pst_lane_sum_step(struct pst_lane *lane);

#endif
