/* log_lane_priv.h: a lane from within: groups on their way out, readings, syncs, reclaim. For
 * src/store/log*.c alone. */
#ifndef PST_LOG_LANE_PRIV_H
#define PST_LOG_LANE_PRIV_H

#include "store/log_priv.h"

enum pst_lane_io_kind { PST_IO_GROUP, PST_IO_SYNC, PST_IO_READ, PST_IO_RECLAIM };

/* What a lane asks of itself. */
enum { PST_LOG_RECLAIM_FLUSH = PST_LOG_MOVE + 1, PST_LOG_MOVE_READ, PST_LOG_MOVE_APPEND };

struct pst_lane_io {
    struct pst_disk_op op;
    uint8_t kind;
    void *owner;
};

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

/* Pieces of memory, one after the other. */
struct pst_cursor {
    const struct iovec *iov;
    uint64_t skip;
};

/* A value of several blocks whose group waits for its checksums, which are computed a block at a time. */
struct pst_summing {
    struct pst_group *group; /* NULL: none */
    struct pst_log_append *append;
    struct pst_cursor at;
    uint32_t *crcs;
    uint64_t count, left_bytes;
};

/* The index of a segment that is written, or waits to be closed with it. */
struct pst_index {
    uint8_t *entries;
    uint64_t bytes, room;
    uint32_t entry_count;
    uint32_t segment;
    uint64_t last_ticket; /* of what it tells of */
    bool spare;           /* one of the last: for what makes room elsewhere */
};

struct pst_reading {
    struct pst_log_read *read; /* NULL: free */
    uint8_t *small, *large;
    uint8_t *bounce, *head; /* within them: the bytes that were asked for, a large value's head */
    struct iovec head_iov, tail_iov, bounce_iov;
    struct pst_lane_io io[3];
    uint32_t io_left;
    int result;
};

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
    bool keep; /* it cannot be freed: something there would be lost */
    uint32_t segment, moving;
    bool keep_tombstones; /* there may be further copies of what they kill */
    uint8_t *entries;
    struct pst_bytes left;
    struct pst_segment_tail tail;
    struct iovec iov;
    struct pst_lane_io io;
    struct pst_log_flush flush;
};

/* A tombstone that may not be durable before what it makes room for is. */
struct pst_later {
    struct pst_log_tombstone tombstone;
    uint64_t ticket;
};

struct pst_lane {
    struct pst_log *log;
    uint32_t index;
    struct pst_disk *disk;
    uint8_t *memory; /* of groups and readings */
    uint64_t memory_bytes;

    /* Writing. Tickets number groups; they end in order. */
    struct pst_group groups[PST_LANE_GROUPS];
    struct pst_group *open;           /* takes values */
    struct pst_summing summing;       /* will be written next */
    uint64_t issued, written, synced; /* tickets */
    struct pst_index index_now;       /* of the segment that is written; entries NULL: none is */
    uint64_t at;                      /* in it */
    struct pst_index seals[PST_LANE_SEALS];
    uint32_t seal_count;

    /* Syncing. */
    uint32_t dirty[PST_LANE_DIRTY]; /* segments that were written since the last sync began */
    uint32_t dirty_count;
    struct pst_lane_io sync_io[PST_LANE_DIRTY];
    uint32_t sync_count, sync_left;
    uint64_t sync_upto;
    struct pst_list flushes, waiting; /* not yet numbered; for a ticket's sync */

    struct pst_log_tombstone *tombstones;
    uint64_t tombstone_count, tombstone_room;
    struct pst_later *laters; /* tombstones that wait for a sync, in order of their tickets */
    uint64_t later_count, later_room;

    struct pst_reading *readings;
    uint32_t reading_count, reading_room, reading_hint;
    uint8_t *larges[PST_READ_LARGES];
    uint32_t large_count;

    struct pst_reclaim reclaim;
    _Atomic bool reclaim_failed; /* the last one */
    uint64_t doubt_until;        /* a sync failed: what it was to carry is durable when this one is synced;
                                    UINT64_MAX: when all is moved; 0: none failed */
    struct pst_list moves;       /* read, not yet appended */
    uint64_t moving_bytes;
    uint32_t moves_reading; /* not in a group yet */
    uint8_t *free_head;

    struct pst_list ended; /* at the disk: to be looked at */
    struct pst_list done;
    struct {
#define X(name) _Atomic uint64_t name;
        PST_LOG_COUNTERS(X)
#undef X
    } stat;
};

int pst_lane_open(struct pst_log *log, uint32_t index, const struct pst_log_options *options);
struct pst_lane *pst_lane_close(struct pst_lane *lane);
void pst_lane_done(struct pst_lane *lane, struct pst_log_op *op, int result);
/* Hands @op over to the disk, in @io until its end, of which @owner is told by its @kind. The queue has room:
 * it is as deep as a lane can have operations. */
void pst_lane_submit(struct pst_lane *lane, struct pst_lane_io *io, enum pst_lane_io_kind kind, void *owner,
                     const struct pst_disk_op *op);
/* The head of a segment, twice, for its beginning. */
void pst_lane_make_head(const struct pst_lane *lane, uint32_t segment, uint32_t in_use,
                        uint8_t to[PST_LOG_DATA_AT]);

/* log_write.c */
static inline uint64_t pst_group_head_bytes(const struct pst_group *g)
{
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
bool pst_lane_has_room(const struct pst_lane *lane, uint64_t bytes);
void pst_lane_write_step(struct pst_lane *lane);
void pst_group_io_ended(struct pst_lane *lane, struct pst_group *group, int result);
void pst_sync_io_ended(struct pst_lane *lane);
/* Whether a sync failed, and what it was to carry is not durable elsewhere yet: another one would not carry
 * it. */
bool pst_lane_in_doubt(struct pst_lane *lane);

/* log_bury.c. Return: 0 or -ENOMEM. */
int pst_lane_bury(struct pst_lane *lane, const struct pst_log_tombstone *tombstone);
/* Of a value in that segment, once @ticket is synced. */
int pst_lane_bury_at(struct pst_lane *lane, struct pst_log_tombstone tombstone, uint32_t segment,
                     uint64_t ticket);
void pst_lane_add_tombstones(struct pst_lane *lane, struct pst_group *group);
/* After a sync: those whose time has come. */
void pst_lane_laters_synced(struct pst_lane *lane);
/* A flush may have to sync twice: what they make room for, then them. */
bool pst_lane_laters_wait(const struct pst_lane *lane);

/* log_append.c, log_read.c: for the caller, or for a move. */
int pst_lane_append(struct pst_lane *lane, struct pst_log_append *append, uint8_t verb);
/* Carries on with the value whose checksums are missing. Return: whether it did. */
bool pst_lane_sum_step(struct pst_lane *lane);
/* The checksum of the next @bytes. */
uint32_t pst_cursor_crc(struct pst_cursor *c, uint64_t bytes);
int pst_lane_read(struct pst_lane *lane, struct pst_log_read *read, uint8_t verb);
void pst_reading_io_ended(struct pst_lane *lane, struct pst_reading *reading, int result);

/* log_reclaim.c */
void pst_moves_step(struct pst_lane *lane);   /* before pst_lane_write_step() */
void pst_reclaim_step(struct pst_lane *lane); /* and after it */
void pst_reclaim_io_ended(struct pst_lane *lane);
void pst_reclaim_flushed(struct pst_lane *lane, int result);
void pst_move_read(struct pst_lane *lane, struct pst_log_move *move);
void pst_move_appended(struct pst_lane *lane, struct pst_log_move *move);

#endif
