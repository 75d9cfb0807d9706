/* SPDX-License-Identifier: Apache-2.0 */
/* log_priv.h: a log's folders and segments from within. Every file of log/ includes it; lanes: lane_priv.h.
 */
#ifndef PST_LOG_PRIV_H
#define PST_LOG_PRIV_H

#include "base/error.h"
#include "disk/disk.h"
#include "log/format.h"

#include <pthread.h>
#include <stdatomic.h>

enum {
    PST_LANES_MAX = 256,
    PST_LANE_GROUPS = 16,
    PST_LANE_SEALS = 4,
    PST_LANE_DIRTY = 3 * PST_LANE_SEALS + 4, /* segments that one sync carries */
    PST_GROUP_PIECES = 64,
    PST_GROUP_PACKED_BYTES = 192 << 10,
    PST_GROUP_BUFFER_BYTES = PST_LOG_HEAD_BYTES_MAX + PST_GROUP_PACKED_BYTES,
    PST_GROUP_DATA_BYTES = 1 << 20, /* a shared group is written from here on */
    PST_PACK_BYTES_MAX = 16 << 10,  /* odd sizes up to here lie packed */
    PST_READ_SMALL_BYTES = 2 * PST_LOG_ALIGN_BYTES,
    PST_READ_LARGE_BYTES = PST_LOG_BOUNCE_BYTES_MAX + PST_LOG_HEAD_BYTES_MAX,
    PST_READ_LARGES = 8,
};

_Static_assert(PST_GROUP_BUFFER_BYTES % PST_LOG_ALIGN_BYTES == 0, "the next group's buffer is aligned");
_Static_assert(PST_READ_LARGE_BYTES % PST_LOG_ALIGN_BYTES == 0, "the next reading's buffer is aligned");
_Static_assert(PST_LANES_MAX % 64 == 0, "lanes fill the words of a bit set");

#define PST_LANE_NONE    UINT32_MAX
#define PST_SEGMENT_NONE UINT32_MAX

static inline bool pst_log_is_whole(uint64_t n)
{
    return n % PST_LOG_ALIGN_BYTES == 0;
}

static inline uint64_t pst_log_whole(uint64_t bytes)
{
    return pst_round_up(bytes, PST_LOG_ALIGN_BYTES);
}

/* Whether a disk may move these pieces as they lie, but for the end of the last. */
static inline bool pst_log_pieces_aligned(const struct iovec *iov, uint32_t count)
{
    pst_assert(iov || count == 0);
    for (uint32_t i = 0; i < count; i++) {
        if (!pst_log_is_whole((uintptr_t)iov[i].iov_base) ||
            (!pst_log_is_whole(iov[i].iov_len) && i + 1 < count))
            return false;
    }
    return true;
}

/* ---- segments: what is neither atomic nor said to be a lane's is under the log's lock ---- */

/* Sealed: it takes no more, and its index is still to be written. */
enum pst_segment_state {
    PST_SEGMENT_FREE,
    PST_SEGMENT_OPEN,
    PST_SEGMENT_SEALED,
    PST_SEGMENT_FULL,
    PST_SEGMENT_EMPTY
};

struct pst_segment {
    _Atomic uint64_t sequence;
    _Atomic uint64_t live_bytes, value_bytes; /* of values that live, of all that came */
    _Atomic uint32_t readers;                 /* reads underway: it is not written anew */
    _Atomic uint32_t lane;                    /* whose keys lie here; PST_LANE_NONE: of several */
    _Atomic uint8_t state;
    _Atomic bool repeated;                /* may have copies of values that live elsewhere */
    bool closed;                          /* a copy failed there: another would be taken for it */
    _Atomic bool hollow;                  /* nothing is there: its head alone is to be written */
    bool carried;                         /* the lane that empties it has its tombstones; that lane's own */
    _Atomic bool failed;                  /* takes no writes any more */
    _Atomic bool unsynced;                /* a sync failed: what lives there may not outlive a crash */
    _Atomic bool lost;                    /* what lies there cannot be told, nor the segment be freed */
    _Atomic bool moved;                   /* values came there from other segments */
    uint64_t emptied[PST_LANES_MAX / 64]; /* of several lanes': which have moved what is theirs */
    uint8_t *entries;                     /* its index, where none is written; of the lane that empties it */
    uint64_t entries_bytes, entries_room;
    uint32_t entry_count;
    uint32_t resume_at; /* where it can be written on, after a restart or when it was lent; 0: nowhere */
};

/* Each state follows on some alone: one that an earlier process began is opened again, one that fails is full
 * early. */
static inline void pst_segment_becomes(struct pst_segment *s, enum pst_segment_state state)
{
    static const uint8_t follows[] = {
        [PST_SEGMENT_FREE] = 1 << PST_SEGMENT_EMPTY,
        [PST_SEGMENT_OPEN] = 1 << PST_SEGMENT_FREE | 1 << PST_SEGMENT_FULL,
        [PST_SEGMENT_SEALED] = 1 << PST_SEGMENT_OPEN,
        [PST_SEGMENT_FULL] =
            1 << PST_SEGMENT_OPEN | 1 << PST_SEGMENT_SEALED | 1 << PST_SEGMENT_FULL | 1 << PST_SEGMENT_EMPTY,
        [PST_SEGMENT_EMPTY] = 1 << PST_SEGMENT_FULL,
    };

    pst_assert(state < pst_count_of(follows));
    pst_assert(follows[state] >> s->state & 1);
    s->state = (uint8_t)state;
}

/* A lost one is so for as long as anything lives there: it cannot be moved. */
static inline bool pst_segment_doubtful(const struct pst_segment *s)
{
    return atomic_load_explicit(&s->unsynced, memory_order_relaxed) && atomic_load(&s->live_bytes) > 0;
}

static inline void pst_segment_gets(struct pst_segment *s, uint64_t bytes)
{
    uint64_t came = atomic_fetch_add(&s->value_bytes, bytes);
    uint64_t lived = atomic_fetch_add(&s->live_bytes, bytes);

    pst_assert(lived <= came); /* what lives there came there */
}

struct pst_log_folder {
    int fd, lock_fd;
    const char *path;
    bool unsynced; /* a start could not sync what earlier processes wrote there */
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
    uint32_t resume_count;   /* segments that can be written on */
    _Atomic uint32_t common; /* of several lanes': the one that all of them empty now, or PST_SEGMENT_NONE */

    /* From the markers. */
    uint8_t store_id[16];
    uint64_t seed, epoch;
    _Atomic uint64_t generation_ceiling, generation_highest;
    uint64_t generation_floor;
    _Atomic uint32_t era; /* of what is appended, and of what is deleted; see pst_log_new_era() */
    bool marked;          /* all folders had a marker */
    bool scanning;        /* what earlier processes left is being found */
    _Atomic bool begun;   /* the marker has this process's epoch: lanes may write */
    bool buffered;
    char note[512];
};

/* folder.c. Return: 0 or -errno with a text by pst_fail(). */
int pst_log_folders_open(struct pst_log *log, const struct pst_log_options *options);
int pst_log_marker_write(struct pst_log *log, uint64_t generation);
int pst_log_segments_open(struct pst_log *log);
/* For a start: -EIO also where the file ends early. */
int pst_log_segment_read(const struct pst_log *log, uint32_t segment, void *to, uint64_t bytes, uint64_t at);
void pst_log_folders_close(struct pst_log *log);

/* The head of a segment, twice, for its beginning. */
void pst_log_make_head(const struct pst_log *log, uint32_t segment, uint32_t in_use,
                       uint8_t to[PST_LOG_DATA_AT]);

/* Bytes that a value takes on disk, for what is live in a segment. */
static inline uint64_t pst_log_disk_bytes(const struct pst_log_value *v)
{
    return pst_log_one_block(v->value_bytes)
               ? pst_round_up(v->value_bytes, PST_LOG_PACK_BYTES)
               : pst_log_large_at(v) + pst_round_up(v->value_bytes, PST_LOG_ALIGN_BYTES);
}

/* A tombstone for one value; its target and era are the caller's to fill in. */
struct pst_log_tombstone pst_log_tombstone_of(const struct pst_log *log, struct pst_bytes key,
                                              uint64_t generation);

#endif
