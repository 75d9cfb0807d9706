/* SPDX-License-Identifier: Apache-2.0 */
/*
 * disk.c: a queue without its driver: which part of an operation is transferred next, what has ended, and the
 * fault points, which are the same for every driver.
 */
#include "disk/disk_priv.h"
#include "base/fault.h"

#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>

enum { TRANSFER_BYTES_MAX = 8 << 20, ROUNDS_MAX = 64 };

void pst_disk_add_note(struct pst_disk *disk, const char *format, ...)
{
    size_t len = strlen(disk->note);
    va_list args;

    pst_assert(len < sizeof(disk->note));
    if (len > 0 && len + 2 < sizeof(disk->note))
        len += (size_t)snprintf(disk->note + len, sizeof(disk->note) - len, "; ");
    va_start(args, format);
    vsnprintf(disk->note + len, sizeof(disk->note) - len, format, args);
    va_end(args);
}

/* ---- open and close ---- */

static const struct pst_disk_ops *const drivers[] = {
#ifndef PST_NO_URING
    &pst_disk_io_uring,
#endif
    &pst_disk_posix,
#ifdef PST_FAULTS_ON
    &pst_disk_simulated,
#endif
};

static const struct pst_disk_ops *find_driver(const char *name)
{
    pst_assert(name);
    for (size_t i = 0; i < pst_count_of(drivers); i++) {
        size_t len = strlen(drivers[i]->name);

        if (strncmp(name, drivers[i]->name, len) == 0 && (name[len] == '\0' || name[len] == ':'))
            return drivers[i];
    }
    return NULL;
}

/* Without a name: io_uring, and where there is none, what every system has. */
static int open_driver(struct pst_disk *disk, const struct pst_disk_options *options)
{
    int r;

    pst_assert(!disk->ops);
    pst_assert(!disk->driver);
    disk->ops = options->driver ? find_driver(options->driver) : drivers[0];
    if (!disk->ops)
        return pst_fail(-EINVAL, "no disk driver is named %s", options->driver);
    r = disk->ops->open(disk, options);
    if (r < 0 && !options->driver && disk->ops != &pst_disk_posix) {
        pst_disk_add_note(disk, "%s; posix instead", pst_error_text());
        disk->ops = &pst_disk_posix;
        r = disk->ops->open(disk, options);
    }
    return r;
}

int pst_disk_open(const struct pst_disk_options *options, struct pst_disk **out, const char **fault)
{
    struct pst_disk *disk = calloc(1, sizeof(*disk));
    int r;

    *fault = pst_error_text();
    if (disk)
        disk->fds = calloc(options->fd_count + 1, sizeof(*disk->fds));
    if (!disk || !disk->fds) {
        free(disk);
        return pst_fail(-ENOMEM, "no memory for a disk queue");
    }
    pst_list_init(&disk->ready);
    pst_list_init(&disk->done);
    disk->depth = options->depth;
    disk->fd_count = options->fd_count;
    if (options->fd_count > 0)
        memcpy(disk->fds, options->fds, options->fd_count * sizeof(*disk->fds));
    r = options->depth == 0 || options->depth > PST_DISK_DEPTH_MAX
            ? pst_fail(-EINVAL, "a disk queue takes 1 to %d operations, not %u", PST_DISK_DEPTH_MAX,
                       options->depth)
            : open_driver(disk, options);
    if (r < 0) {
        free(disk->fds);
        free(disk);
        return r;
    }
    pst_assert(disk->ops);
    pst_assert(disk->driver);
    pst_assert(disk->underway == 0);
    *out = disk;
    return 0;
}

struct pst_disk *pst_disk_close(struct pst_disk *disk)
{
    if (!disk)
        return NULL;
    pst_assert(disk->underway == 0);
    pst_assert(pst_list_empty(&disk->ready));
    pst_assert(pst_list_empty(&disk->done));
    disk->ops->close(disk);
    free(disk->fds);
    free(disk);
    return NULL;
}

const char *pst_disk_driver(const struct pst_disk *disk)
{
    pst_assert(disk->ops && disk->ops->name);
    return disk->ops->name;
}

const char *pst_disk_note(const struct pst_disk *disk)
{
    return disk->note;
}

uint32_t pst_disk_underway(const struct pst_disk *disk)
{
    pst_assert(disk->underway <= disk->depth);
    return disk->underway;
}

int pst_disk_descriptor(const struct pst_disk *disk)
{
    pst_assert(disk->descriptor >= 0);
    return disk->descriptor;
}

/* ---- operations ---- */

static bool is_aligned(uint64_t n)
{
    return n % PST_DISK_BLOCK_BYTES == 0;
}

/* What is transferred next: all of a usual operation as it is; else what is left, in parts that fit the
 * window. */
static void op_choose_window(struct pst_disk_op *op)
{
    uint64_t left = op->bytes - op->moved_bytes, room = pst_min(left, TRANSFER_BYTES_MAX);
    uint64_t skip = op->piece_moved_bytes;
    const struct iovec *piece = op->iov;

    pst_assert(op->moved_bytes < op->bytes);
    pst_assert(op->iov_count > 0);
    if (op->fits && op->moved_bytes == 0) {
        op->now = op->iov;
        op->now_count = op->iov_count;
        return;
    }
    op->now_count = 0;
    op->now = op->window;
    while (room > 0 && op->now_count < PST_DISK_WINDOW_PIECES) {
        uint64_t bytes = pst_min(piece->iov_len - skip, room);

        pst_assert(bytes > 0);
        pst_assert(piece < op->iov + op->iov_count);
        op->window[op->now_count++] = (struct iovec){(uint8_t *)piece->iov_base + skip, bytes};
        room -= bytes;
        skip = 0;
        piece++;
    }
    pst_assert(op->now_count > 0);
}

static void op_take_in(struct pst_disk_op *op)
{
    uint64_t bytes = 0;
    uint32_t i;

    for (i = 0; i < op->iov_count && bytes < op->bytes; i++) {
        pst_assert(is_aligned((uintptr_t)op->iov[i].iov_base));
        pst_assert(op->iov[i].iov_len > 0);
        bytes += op->iov[i].iov_len;
        pst_assert(is_aligned(op->iov[i].iov_len) || bytes >= op->bytes);
    }
    pst_assert(bytes >= op->bytes && op->bytes > 0);
    pst_assert(is_aligned(op->bytes));
    pst_assert(is_aligned(op->offset));
    op->iov_count = i;
    op->moved_bytes = op->piece_moved_bytes = 0;
    op->fits = bytes == op->bytes && bytes <= TRANSFER_BYTES_MAX && i <= IOV_MAX;
}

static void op_end(struct pst_disk *disk, struct pst_disk_op *op, int result)
{
    pst_assert(result <= 0);
    pst_assert(disk->underway > 0);
    op->result = result;
    pst_list_push_back(&disk->done, &op->link);
}

static void start_ready(struct pst_disk *disk, const struct pst_turn *turn)
{
    if (pst_list_empty(&disk->ready))
        return;
    pst_assert(disk->underway > 0);
    do {
        struct pst_disk_op *op = pst_list_first(&disk->ready, struct pst_disk_op, link);

        if (op->verb != PST_DISK_SYNC)
            op_choose_window(op);
        pst_list_remove(&op->link);
        if (op->verb == PST_DISK_WRITE && pst_fault(PST_FAULT_disk_write_none)) {
            op_end(disk, op, -EIO);
            continue;
        }
        if (disk->ops->start(disk, op) == 0)
            continue;
        pst_list_push_front(&disk->ready, &op->link);
        return;
    } while (!pst_list_empty(&disk->ready) && !pst_turn_is_over(turn));
}

int pst_disk_submit(struct pst_disk *disk, struct pst_disk_op *op)
{
    pst_assert(op->file < disk->fd_count);
    pst_assert(op->verb <= PST_DISK_SYNC);
    pst_assert(disk->underway <= disk->depth);
    if (disk->underway >= disk->depth)
        return -EBUSY;
    if (op->verb != PST_DISK_SYNC)
        op_take_in(op);
    pst_list_push_back(&disk->ready, &op->link);
    disk->underway++;
    return 0;
}

bool pst_disk_has_more(const struct pst_disk *disk)
{
    return !pst_list_empty(&disk->ready);
}

uint32_t pst_disk_poll(struct pst_disk *disk, const struct pst_turn *turn, struct pst_list *done)
{
    uint32_t count = 0;
    int round = 0;

    if (disk->underway == 0)
        return 0;
    /* Again where something was cut short: what is not begun wakes nobody. */
    do {
        start_ready(disk, turn);
        disk->ops->reap(disk);
    } while (pst_disk_has_more(disk) && ++round < ROUNDS_MAX && !pst_turn_is_over(turn));
    pst_list_each (link, &disk->done)
        count++;
    pst_list_splice(done, &disk->done);
    pst_assert(count <= disk->underway);
    disk->underway -= count;
    return count;
}

/* The simulated disk spoils its syncs itself: what they should carry is not carried. */
static int64_t result_spoilt(const struct pst_disk *disk, const struct pst_disk_op *op, int64_t result)
{
    pst_assert(op->verb <= PST_DISK_SYNC);
    if (op->verb == PST_DISK_READ && pst_fault(PST_FAULT_disk_read_eio))
        return -EIO;
    if (op->verb == PST_DISK_WRITE && pst_fault(PST_FAULT_disk_write_eio))
        return -EIO;
    if (op->verb == PST_DISK_WRITE && pst_fault(PST_FAULT_disk_write_enospc))
        return -ENOSPC;
    if (op->verb == PST_DISK_SYNC && disk->ops != &pst_disk_simulated && pst_fault(PST_FAULT_disk_sync_eio))
        return -EIO;
    if (op->verb != PST_DISK_SYNC && result > PST_DISK_BLOCK_BYTES && pst_fault(PST_FAULT_disk_short))
        return PST_DISK_BLOCK_BYTES + 512;
    return result;
}

void pst_disk_moved(struct pst_disk *disk, struct pst_disk_op *op, int64_t result)
{
    pst_assert(disk->underway > 0);
    pst_assert(op->file < disk->fd_count);
    pst_assert(op->verb <= PST_DISK_SYNC);
    result = result_spoilt(disk, op, result);
    if (result == -EINTR || result == -EAGAIN) {
        pst_list_push_back(&disk->ready, &op->link);
        return;
    }
    if (result < 0 || op->verb == PST_DISK_SYNC) {
        op_end(disk, op, (int)result);
        return;
    }
    /* A block that was moved in part is moved again. */
    result -= result % PST_DISK_BLOCK_BYTES;
    if (result == 0) {
        op_end(disk, op, -EIO); /* a file that is shorter than it was */
        return;
    }
    op->moved_bytes += (uint64_t)result;
    pst_assert(op->moved_bytes <= op->bytes);
    if (op->moved_bytes == op->bytes) {
        op_end(disk, op, 0);
        return;
    }
    op->piece_moved_bytes += (uint64_t)result;
    while (op->piece_moved_bytes >= op->iov->iov_len) { /* there is more, so it ends */
        pst_assert(op->iov_count > 1);
        op->piece_moved_bytes -= op->iov->iov_len;
        op->iov++;
        op->iov_count--;
    }
    pst_list_push_back(&disk->ready, &op->link);
}

/* ---- files ---- */

int pst_disk_file_open(int folder_fd, const char *name, uint64_t bytes, bool *buffered)
{
    int flags = O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW;
    int fd = openat(folder_fd, name, flags | O_DIRECT, 0600), r;

    pst_assert(is_aligned(bytes));
    pst_assert(bytes <= INT64_MAX);
    if (fd < 0 && errno == EINVAL) {
        fd = openat(folder_fd, name, flags, 0600);
        *buffered = *buffered || fd >= 0;
    }
    if (fd < 0)
        return -errno;
    r = fallocate(fd, 0, 0, (off_t)bytes) < 0 ? -errno : 0;
    if (r == -EOPNOTSUPP)
        r = ftruncate(fd, (off_t)bytes) < 0 ? -errno : 0;
    if (pst_fault(PST_FAULT_disk_open_eio))
        r = -EIO;
    if (pst_fault(PST_FAULT_disk_room_enospc))
        r = -ENOSPC;
    if (r < 0) {
        close(fd);
        return r;
    }
    return fd;
}
