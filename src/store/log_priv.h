/* log_priv.h: a log's segments and lanes from within. For src/store/log*.c alone. */
#ifndef PST_LOG_PRIV_H
#define PST_LOG_PRIV_H

#include "disk/disk.h"
#include "store/log_format.h"
#include "store/log_reclaim.h"

#include <pthread.h>
#include <stdatomic.h>

enum {
    PST_LANES_MAX = 256,
    PST_LANE_GROUPS = 16,
    PST_LANE_SEALS = 4,
    PST_LANE_DIRTY = 2 * PST_LANE_SEALS + 4,
    PST_GROUP_PIECES = 64,
    PST_GROUP_PACKED_BYTES = 192 << 10,
    PST_GROUP_BUFFER_BYTES = PST_LOG_HEAD_BYTES_MAX + PST_GROUP_PACKED_BYTES,
    PST_GROUP_DATA_BYTES = 1 << 20, /* a shared group is written from here on */
    PST_PACK_BYTES_MAX = 16 << 10,  /* odd sizes up to here lie packed */
    PST_READ_SMALL_BYTES = 2 * PST_LOG_ALIGN_BYTES,
    PST_READ_LARGE_BYTES = PST_LOG_BOUNCE_BYTES_MAX + PST_LOG_HEAD_BYTES_MAX,
    PST_READ_LARGES = 8,
};

#define PST_LANE_NONE UINT32_MAX

static inline bool pst_log_is_whole(uint64_t n)
{
    return n % PST_LOG_ALIGN_BYTES == 0;
}

static inline uint64_t pst_log_whole(uint64_t bytes)
{
    return pst_round_up(bytes, PST_LOG_ALIGN_BYTES);
}

/* ---- segments: under the log's lock, but for what is atomic ---- */

enum pst_segment_state { PST_SEGMENT_FREE, PST_SEGMENT_OPEN, PST_SEGMENT_FULL, PST_SEGMENT_EMPTY };

struct pst_segment {
    _Atomic uint64_t sequence;
    _Atomic uint64_t live_bytes;
    _Atomic uint32_t readers; /* reads underway: it is not written anew */
    uint32_t lane;            /* whose keys lie here; PST_LANE_NONE: of several */
    uint8_t state;
    bool repeated;                        /* may have copies of values that live elsewhere */
    _Atomic bool failed;                  /* takes no writes any more */
    _Atomic bool lost;                    /* what lies there cannot be told, nor the segment be freed */
    uint64_t emptied[PST_LANES_MAX / 64]; /* of several lanes': which have moved what is theirs */
    uint8_t *entries;                     /* its index, where none is written */
    uint64_t entries_bytes, entries_room;
    uint32_t entry_count;
    uint32_t resume_at; /* where it can be written on, after a restart; 0: it cannot */
};

struct pst_log_folder {
    int fd, lock_fd;
    const char *path;
};

struct pst_log {
    struct pst_log_folder folders[PST_LOG_FOLDERS_MAX];
    uint32_t folder_count;
    uint64_t segment_bytes;
    uint32_t segment_count, lane_count;
    struct pst_segment *segments;
    int *fds;
    struct pst_lane **lanes;
    pthread_mutex_t lock;
    uint64_t sequence; /* the last one used; under the lock */
    _Atomic uint32_t free_count;
    uint32_t resume_count; /* segments that can be written on */

    /* From the markers. */
    uint8_t store_id[16];
    uint64_t seed, epoch;
    _Atomic uint64_t generation_ceiling, generation_highest;
    uint64_t generation_floor;
    bool buffered;
    char note[512];
};

/* log_folder.c. Return: 0 or -errno with a text by pst_log_refuse(). */
int pst_log_folders_open(struct pst_log *log, const struct pst_log_options *options);
int pst_log_marker_write(struct pst_log *log, uint64_t generation);
int pst_log_segments_open(struct pst_log *log, const struct pst_log_options *options);
void pst_log_folders_close(struct pst_log *log);
int pst_log_refuse(int error, const char *format, ...) __attribute__((format(printf, 2, 3)));
const char *pst_log_fault(void);

/* Bytes that a value takes on disk, for what is live in a segment. */
static inline uint64_t pst_log_disk_bytes(const struct pst_log_value *v)
{
    return pst_log_one_block(v->value_bytes)
               ? pst_round_up(v->value_bytes, PST_LOG_PACK_BYTES)
               : pst_log_large_at(v) + pst_round_up(v->value_bytes, PST_LOG_ALIGN_BYTES);
}

/* A tombstone for one value; its target is the caller's to fill in. */
struct pst_log_tombstone pst_log_tombstone_of(const struct pst_log *log, struct pst_bytes key,
                                              uint64_t generation);

/* ---- lanes ---- */

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
    uint32_t entry_count, entries_bytes, packed_bytes, direct_bytes, end_blocks;
    void *image; /* of an index: freed once written */
    struct pst_list appends;
    struct iovec iov[PST_GROUP_PIECES]; /* two for the buffer, then what is written from where it lies */
    uint32_t iov_count;
    struct pst_lane_io io[3];
    uint32_t io_left;
};

/* The index of a segment that is written, or waits to be closed with it. */
struct pst_index {
    uint8_t *entries;
    uint64_t bytes, room;
    uint32_t entry_count;
    uint32_t segment;
    uint64_t last_ticket; /* of what it tells of */
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

struct pst_lane {
    struct pst_log *log;
    uint32_t index;
    struct pst_disk *disk;
    uint8_t *memory; /* of groups and readings */
    uint64_t memory_bytes;

    /* Writing. Tickets number groups; they end in order. */
    struct pst_group groups[PST_LANE_GROUPS];
    struct pst_group *open;           /* takes values */
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

    struct pst_reading *readings;
    uint32_t reading_count, reading_room, reading_hint;
    uint8_t *larges[PST_READ_LARGES];
    uint32_t large_count;

    struct pst_reclaim reclaim;
    struct pst_list moves; /* read, not yet appended */
    uint64_t moving_bytes;
    uint8_t *free_head;

    struct pst_list done;
    struct pst_log_stat stat;
};

int pst_lane_open(struct pst_log *log, uint32_t index, const struct pst_log_options *options);
struct pst_lane *pst_lane_close(struct pst_lane *lane);
void pst_lane_done(struct pst_lane *lane, struct pst_log_op *op, int result);

/* log_write.c */
static inline uint64_t pst_group_head_bytes(const struct pst_group *g)
{
    return sizeof(struct pst_group_head) + g->entries_bytes;
}

struct pst_group *pst_group_take(struct pst_lane *lane); /* NULL: all are underway */
/* Sends the group on its way. Return: 0, -EBUSY (again later), or it can go nowhere: -ENOSPC, -ENOMEM. */
int pst_group_close(struct pst_lane *lane, struct pst_group *group, uint64_t checksums_bytes);
/* Return: -EBUSY; else nothing is open any more, with an error because it could go nowhere. */
int pst_lane_close_open(struct pst_lane *lane);
/* Whether a value may hope for a segment: none of those that are kept for moves and tombstones. */
bool pst_lane_has_room(const struct pst_lane *lane, uint64_t bytes);
void pst_lane_write_step(struct pst_lane *lane);
void pst_group_io_ended(struct pst_lane *lane, struct pst_group *group, int result);
void pst_sync_io_ended(struct pst_lane *lane);

int pst_lane_bury(struct pst_lane *lane, const struct pst_log_tombstone *tombstone); /* 0 or -ENOMEM */

/* log_append.c, log_read.c: for the caller, or for a move. */
int pst_lane_append(struct pst_lane *lane, struct pst_log_append *append, uint8_t verb);
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
