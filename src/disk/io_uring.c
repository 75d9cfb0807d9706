/* SPDX-License-Identifier: Apache-2.0 */
/*
 * io_uring.c: the driver for Linux's rings. Files and memory are registered where that is allowed: without,
 * the kernel looks the file up and pins the pages with each transfer. The ring is what its owner sleeps on.
 */
#include "disk/disk_priv.h"

#include <liburing.h>

enum {
    CHUNK_BYTES_MAX = 1 << 30, /* what the kernel registers as one buffer */
    CHUNKS_MAX = 1 << 14,
    SEND_COUNT = 4, /* the disk begins before the last of many has been prepared */
    SEND_BYTES = 256 << 10,
    ASYNC_BYTES_MIN = 512 << 10, /* of a write that a kernel thread hands to the disk: ours would for 60 us */
    REAP_COUNT_MAX = 8,          /* and has new ones before what was done has all been looked at */
};

struct ring {
    struct io_uring ring;
    bool files_registered;
    struct iovec *chunks; /* registered memory, ascending within each region; NULL: none */
    uint32_t chunk_count;
    uint32_t unsent; /* prepared, not yet taken by the kernel */
    uint64_t unsent_bytes;
};

/* ---- open and close ---- */

static void register_files(struct pst_disk *disk, struct ring *r)
{
    int result;

    pst_assert(!r->files_registered);
    if (disk->fd_count == 0)
        return;
    result = io_uring_register_files(&r->ring, disk->fds, disk->fd_count);
    r->files_registered = result == 0;
    if (result < 0)
        pst_disk_add_note(disk, "files are not registered: %s", strerror(-result));
}

static uint64_t count_chunks(const struct pst_disk_options *o)
{
    uint64_t count = 0;

    pst_assert(o->region_count == 0 || o->regions);
    for (uint32_t i = 0; i < o->region_count; i++)
        count += pst_div_up(o->regions[i].iov_len, CHUNK_BYTES_MAX);
    return count;
}

static void register_memory(struct pst_disk *disk, struct ring *r, const struct pst_disk_options *o)
{
    uint64_t count = count_chunks(o);
    int result = count > CHUNKS_MAX ? -E2BIG : 0;

    if (count == 0)
        return;
    r->chunks = result == 0 ? calloc(count, sizeof(*r->chunks)) : NULL;
    if (result == 0 && !r->chunks)
        result = -ENOMEM;
    for (uint32_t i = 0; result == 0 && i < o->region_count; i++) {
        for (uint64_t at = 0; at < o->regions[i].iov_len; at += CHUNK_BYTES_MAX)
            r->chunks[r->chunk_count++] = (struct iovec){
                (uint8_t *)o->regions[i].iov_base + at, pst_min(o->regions[i].iov_len - at, CHUNK_BYTES_MAX)};
    }
    pst_assert(result < 0 || r->chunk_count == count);
    if (result == 0)
        result = io_uring_register_buffers(&r->ring, r->chunks, r->chunk_count);
    if (result == 0)
        return;
    pst_disk_add_note(disk, "memory is not registered: %s%s", strerror(-result),
                      result == -ENOMEM ? " (RLIMIT_MEMLOCK is too small)" : "");
    free(r->chunks);
    r->chunks = NULL;
    r->chunk_count = 0;
}

static int ring_open(struct pst_disk *disk, const struct pst_disk_options *options)
{
    struct ring *r = calloc(1, sizeof(*r));
    int result;

    if (!r)
        return pst_fail(-ENOMEM, "no memory for io_uring");
    result = io_uring_queue_init(disk->depth, &r->ring, IORING_SETUP_CLAMP);
    if (result < 0) {
        free(r);
        return pst_fail(result, "io_uring is not to be had: %s%s", strerror(-result),
                        result == -EPERM ? " (kernel.io_uring_disabled, or a container's filter)" : "");
    }
    /* The window of a short transfer may change once the kernel has taken it; all kernels since 5.5 say so.
     */
    if (!(r->ring.features & IORING_FEAT_SUBMIT_STABLE)) {
        io_uring_queue_exit(&r->ring);
        free(r);
        return pst_fail(-ENOSYS, "this kernel's io_uring is too old");
    }
    pst_assert(disk->depth > 0 && disk->depth <= PST_DISK_DEPTH_MAX);
    register_files(disk, r);
    register_memory(disk, r, options);
    disk->descriptor = r->ring.ring_fd;
    disk->driver = r;
    return 0;
}

static void ring_close(struct pst_disk *disk)
{
    struct ring *r = disk->driver;

    pst_assert(r->unsent == 0);
    io_uring_queue_exit(&r->ring);
    free(r->chunks);
    free(r);
}

/* ---- transfers ---- */

/* The registered chunk that holds all of @piece, or -1. */
static int chunk_of(const struct ring *r, struct iovec piece)
{
    uintptr_t at = (uintptr_t)piece.iov_base;

    pst_assert(piece.iov_len > 0);
    for (uint32_t i = 0; i < r->chunk_count; i++) {
        uintptr_t begin = (uintptr_t)r->chunks[i].iov_base;

        if (at >= begin && at - begin < r->chunks[i].iov_len)
            return piece.iov_len <= r->chunks[i].iov_len - (at - begin) ? (int)i : -1;
    }
    return -1;
}

static void ring_prepare(const struct ring *r, struct io_uring_sqe *sqe, int file, struct pst_disk_op *op)
{
    int chunk = op->verb != PST_DISK_SYNC && op->now_count == 1 ? chunk_of(r, op->now[0]) : -1;
    uint64_t at = pst_disk_at(op);

    pst_assert(op->verb == PST_DISK_SYNC || (op->now_count > 0 && op->moved_bytes < op->bytes));
    switch (op->verb) {
    case PST_DISK_SYNC:
        io_uring_prep_fsync(sqe, file, IORING_FSYNC_DATASYNC);
        return;
    case PST_DISK_READ:
        if (chunk >= 0)
            io_uring_prep_read_fixed(sqe, file, op->now[0].iov_base, (unsigned)op->now[0].iov_len, at, chunk);
        else
            io_uring_prep_readv(sqe, file, op->now, op->now_count, at);
        return;
    default:
        if (chunk >= 0)
            io_uring_prep_write_fixed(sqe, file, op->now[0].iov_base, (unsigned)op->now[0].iov_len, at,
                                      chunk);
        else
            io_uring_prep_writev(sqe, file, op->now, op->now_count, at);
    }
}

static void ring_send(struct ring *r)
{
    int sent = io_uring_submit(&r->ring);

    /* Nothing was taken (no memory, or completions first): the next one tries again. */
    pst_assert(sent >= 0 || sent == -EAGAIN || sent == -EBUSY || sent == -EINTR || sent == -ENOMEM);
    pst_assert(sent < 0 || (uint32_t)sent <= r->unsent);
    if (sent > 0)
        r->unsent -= (uint32_t)sent;
    r->unsent_bytes = 0;
}

static uint64_t bytes_now(const struct pst_disk_op *op)
{
    uint64_t bytes = 0;

    pst_assert(op->verb == PST_DISK_SYNC || op->now_count > 0);
    for (uint32_t i = 0; op->verb != PST_DISK_SYNC && i < op->now_count; i++)
        bytes += op->now[i].iov_len;
    return bytes;
}

static int ring_start(struct pst_disk *disk, struct pst_disk_op *op)
{
    struct ring *r = disk->driver;
    struct io_uring_sqe *sqe = io_uring_get_sqe(&r->ring);
    uint64_t bytes = bytes_now(op);
    unsigned flags = r->files_registered ? IOSQE_FIXED_FILE : 0;

    pst_assert(op->file < disk->fd_count);
    if (!sqe)
        return -EBUSY;
    ring_prepare(r, sqe, r->files_registered ? (int)op->file : disk->fds[op->file], op);
    if (op->verb == PST_DISK_WRITE && bytes >= ASYNC_BYTES_MIN)
        flags |= IOSQE_ASYNC;
    io_uring_sqe_set_flags(sqe, flags);
    io_uring_sqe_set_data(sqe, op);
    r->unsent_bytes += bytes;
    if (++r->unsent >= SEND_COUNT || r->unsent_bytes >= SEND_BYTES)
        ring_send(r);
    return 0;
}

static void ring_reap(struct pst_disk *disk)
{
    struct ring *r = disk->driver;
    struct io_uring_cqe *cqes[REAP_COUNT_MAX];
    unsigned count;

    if (r->unsent > 0)
        ring_send(r);
    count = io_uring_peek_batch_cqe(&r->ring, cqes, REAP_COUNT_MAX);
    pst_assert(count <= REAP_COUNT_MAX);
    pst_assert(count <= disk->underway);
    for (unsigned i = 0; i < count; i++)
        pst_disk_moved(disk, io_uring_cqe_get_data(cqes[i]), cqes[i]->res);
    io_uring_cq_advance(&r->ring, count);
}

const struct pst_disk_ops pst_disk_io_uring = {
    .name = "io_uring",
    .open = ring_open,
    .close = ring_close,
    .start = ring_start,
    .reap = ring_reap,
};
