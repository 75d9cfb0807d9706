/* SPDX-License-Identifier: Apache-2.0 */
/*
 * disk.h: direct I/O to files that are already there. A *queue* carries the reads, writes and syncs of one
 * thread; it is polled, never calls back, never blocks its thread and never prints.
 *
 * Operations lie in their caller's memory, as do the pieces they move, until they are done. Offsets,
 * addresses and lengths are multiples of PST_DISK_BLOCK_BYTES. An operation ends whole or with an error: what
 * the system cuts short is gone on with here. There is no order between operations that are underway
 * together; a sync makes durable what was done before it was submitted.
 *
 * Drivers: `io_uring`; `posix`, a few threads with preadv and pwritev; in test builds `simulated`
 * (disk/simulated.h). SPDK would be a fourth: a queue pair for a queue, ranges of a namespace for files.
 */
#ifndef PST_DISK_H
#define PST_DISK_H

#include "base/base.h"
#include "base/list.h"
#include "base/turn.h"

#include <sys/uio.h>

enum {
    PST_DISK_BLOCK_BYTES = 4096,
    PST_DISK_DEPTH_MAX = 4096,
    PST_DISK_WINDOW_PIECES = 8,
};

enum pst_disk_verb { PST_DISK_READ, PST_DISK_WRITE, PST_DISK_SYNC };

struct pst_disk_op {
    uint8_t verb;
    uint32_t file;           /* index into the queue's files */
    uint64_t offset, bytes;  /* not for SYNC */
    const struct iovec *iov; /* pieces of at least @bytes in all */
    uint32_t iov_count;
    int result; /* once done: 0 or -errno */

    /* The queue's. */
    struct pst_list link;
    uint64_t moved_bytes;
    uint64_t piece_moved_bytes; /* of *iov */
    const struct iovec *now;    /* what is transferred next: all of iov, or the window */
    uint32_t now_count;
    bool fits;     /* iov has no more than @bytes, and one transfer takes it */
    int64_t ended; /* as the system said */
    struct iovec window[PST_DISK_WINDOW_PIECES];
};

struct pst_disk_options {
    const char *driver; /* "io_uring", "posix"; NULL: io_uring, else posix */
    uint32_t depth;     /* operations underway at once */
    const struct iovec
        *regions; /* memory that most transfers are to and from: registered where that can be */
    uint32_t region_count;
    const int *fds; /* the files; open until the queue is closed */
    uint32_t fd_count;
};

struct pst_disk;

/*
 * Return: 0; -EINVAL no such driver, or a bad depth; else what the system said, with *@fault naming it (a
 * thread-local text). Without a named driver a missing io_uring is no error: see pst_disk_note(). Registered
 * regions are filled with memory, all of them.
 */
int pst_disk_open(const struct pst_disk_options *options, struct pst_disk **out, const char **fault);
/* Nothing may be underway. */
struct pst_disk *pst_disk_close(struct pst_disk *disk);

/* The driver in use, and what could not be had ("" when all could): one line for whoever tells the operator.
 */
const char *pst_disk_driver(const struct pst_disk *disk);
const char *pst_disk_note(const struct pst_disk *disk);

/* Return: 0, or -EBUSY: the queue is full, poll first. The system hears of it at a poll. */
int pst_disk_submit(struct pst_disk *disk, struct pst_disk_op *op);
/* Hands transfers over to the system until @turn is over, and moves what is done to the end of @done. Return:
 * how many. */
uint32_t pst_disk_poll(struct pst_disk *disk, const struct pst_turn *turn, struct pst_list *done);
/* Whether there are some that the system has not heard of: poll again, nothing wakes a sleeper for them. */
bool pst_disk_has_more(const struct pst_disk *disk);
/* Operations submitted and not yet returned as done. */
uint32_t pst_disk_underway(const struct pst_disk *disk);
/* Readable while something may be done; a poll clears it. Valid until the queue is closed. */
int pst_disk_descriptor(const struct pst_disk *disk);

/*
 * Opens @name in the folder @folder_fd for direct I/O, made where it is missing, preallocated to @bytes.
 * Where the file system has no direct I/O, *@buffered becomes true. Return: the descriptor or -errno.
 */
int pst_disk_file_open(int folder_fd, const char *name, uint64_t bytes, bool *buffered);

#endif
