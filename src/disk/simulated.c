/* SPDX-License-Identifier: Apache-2.0 */
/*
 * simulated.c: a disk that may forget what was not synced. The cache is the process's, as a disk's is its
 * machine's: all queues see it. It holds each write from its start on, so that a power cut finds those
 * underway, too.
 */
#include "disk/disk_priv.h"
#include "disk/simulated.h"
#include "base/fault.h"
#include "base/hash.h"

#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/stat.h>

enum { SECTOR_BYTES = 512 };

struct held {
    struct pst_list link; /* in order of their starts */
    dev_t device;
    ino_t inode;
    int fd;
    uint64_t offset, bytes;
    uint64_t done_at; /* 0: underway */
    bool adrift;      /* a sync that was to carry it failed: no other one does */
    uint8_t *data;
};

struct started {
    struct pst_disk_op *op;
    struct held *held; /* of a WRITE */
    uint64_t at;
};

struct queue {
    struct started *started;
    uint32_t count;
    uint64_t seed, rolls;
    int event;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct pst_list cache = {&cache, &cache};
static uint64_t moment; /* numbers starts and ends */
static bool cut;

/* ---- the cache ---- */

static void held_name_file(int fd, struct held *h)
{
    struct stat st;

    pst_assert(fstat(fd, &st) == 0);
    h->device = st.st_dev;
    h->inode = st.st_ino;
}

static void held_forget(struct held *h)
{
    pst_assert(!pst_list_empty(&h->link));
    pst_list_remove(&h->link);
    pst_close_fd(&h->fd);
    free(h->data);
    free(h);
}

static struct held *held_new(int fd, const struct pst_disk_op *op)
{
    struct held *h = calloc(1, sizeof(*h));
    uint64_t at = 0;

    pst_assert(h);
    held_name_file(fd, h);
    h->fd = dup(fd);
    for (uint32_t i = 0; i < op->now_count; i++)
        h->bytes += op->now[i].iov_len;
    h->offset = pst_disk_at(op);
    pst_assert(h->bytes > 0);
    pst_assert(h->bytes % SECTOR_BYTES == 0);
    h->data = aligned_alloc(PST_DISK_BLOCK_BYTES, h->bytes);
    pst_assert(h->data);
    pst_assert(h->fd >= 0);
    for (uint32_t i = 0; i < op->now_count; i++) {
        memcpy(h->data + at, op->now[i].iov_base, op->now[i].iov_len);
        at += op->now[i].iov_len;
    }
    pst_list_push_back(&cache, &h->link);
    return h;
}

static void held_write_back(const struct held *h)
{
    pst_assert(pwrite(h->fd, h->data, h->bytes, (off_t)h->offset) == (ssize_t)h->bytes);
}

/* Some sectors are the new ones, the others the old. */
static void held_write_back_torn(struct held *h, uint64_t seed)
{
    uint8_t *old = aligned_alloc(PST_DISK_BLOCK_BYTES, h->bytes);

    pst_assert(old);
    pst_assert(pread(h->fd, old, h->bytes, (off_t)h->offset) == (ssize_t)h->bytes);
    for (uint64_t at = 0; at < h->bytes; at += SECTOR_BYTES) {
        if (pst_fault_dice(seed, 2, at) & 1)
            memcpy(h->data + at, old + at, SECTOR_BYTES);
    }
    free(old);
    held_write_back(h);
}

void pst_simulated_cut(uint64_t seed)
{
    uint64_t number = 0;

    pthread_mutex_lock(&lock);
    cut = true;
    while (!pst_list_empty(&cache)) {
        uint64_t dice = pst_fault_dice(seed, 1, number++);
        /* From either end: later ones may be there without the earlier. */
        struct held *h = pst_list_entry(dice & 8 ? cache.next : cache.prev, struct held, link);

        if (dice % 4 == 0)
            held_write_back(h);
        else if (dice % 4 == 1)
            held_write_back_torn(h, dice);
        held_forget(h);
    }
    pthread_mutex_unlock(&lock);
}

void pst_simulated_restore(void)
{
    pthread_mutex_lock(&lock);
    pst_assert(pst_list_empty(&cache));
    cut = false;
    pthread_mutex_unlock(&lock);
}

/* ---- operations, under the lock ---- */

static int64_t sim_read(int fd, const struct pst_disk_op *op)
{
    int64_t bytes = preadv(fd, op->now, (int)op->now_count, (off_t)pst_disk_at(op));
    uint64_t begin = pst_disk_at(op);
    struct held this = {.fd = -1};

    pst_assert(op->verb == PST_DISK_READ);
    pst_assert(op->now_count > 0);
    if (bytes <= 0)
        return bytes < 0 ? -errno : 0;
    held_name_file(fd, &this);
    pst_list_each (link, &cache) {
        const struct held *h = pst_list_entry(link, struct held, link);
        uint64_t at = begin;

        if (h->done_at == 0 || h->device != this.device || h->inode != this.inode)
            continue;
        for (uint32_t i = 0; i < op->now_count; at += op->now[i++].iov_len) {
            uint64_t from = pst_max(at, h->offset);
            uint64_t to = pst_min(at + op->now[i].iov_len, h->offset + h->bytes);

            if (from < to)
                memcpy((uint8_t *)op->now[i].iov_base + (from - at), h->data + (from - h->offset), to - from);
        }
    }
    return bytes;
}

/* What is still held of the same place has become what was written later. */
static void renew_earlier(const struct held *later)
{
    pst_list_each (link, &cache) {
        struct held *h = pst_list_entry(link, struct held, link);
        uint64_t from = pst_max(h->offset, later->offset);
        uint64_t to = pst_min(h->offset + h->bytes, later->offset + later->bytes);

        if (h == later)
            return;
        if (from < to && h->device == later->device && h->inode == later->inode)
            memcpy(h->data + (from - h->offset), later->data + (from - later->offset), to - from);
    }
}

/* Carries what had ended before the sync began. If it fails, no other one tells of what has ended since. */
static int64_t sim_sync(int fd, uint64_t began_at)
{
    bool fails = pst_fault(PST_FAULT_disk_sync_eio);
    struct held this = {.fd = -1};

    held_name_file(fd, &this);
    pst_list_each_safe (link, &cache) {
        struct held *h = pst_list_entry(link, struct held, link);

        if (h->device != this.device || h->inode != this.inode || h->done_at == 0)
            continue;
        h->adrift = h->adrift || fails;
        if (h->adrift || h->done_at >= began_at)
            continue;
        renew_earlier(h);
        held_write_back(h);
        held_forget(h);
    }
    return fails ? -EIO : 0;
}

static int64_t sim_carry_out(int fd, struct started *s)
{
    pst_assert(s->op);
    pst_assert(s->at <= moment);
    if (cut)
        return -EIO;
    switch (s->op->verb) {
    case PST_DISK_SYNC:
        return sim_sync(fd, s->at);
    case PST_DISK_READ:
        return sim_read(fd, s->op);
    default:
        s->held->done_at = ++moment;
        return (int64_t)s->held->bytes;
    }
}

/* ---- the driver ---- */

static int sim_open(struct pst_disk *disk, const struct pst_disk_options *options)
{
    struct queue *q = calloc(1, sizeof(*q));
    const char *text = strchr(options->driver, ':');

    pst_assert(q);
    q->started = calloc(options->depth, sizeof(*q->started));
    q->event = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    pst_assert(q->started);
    pst_assert(q->event >= 0);
    if (text)
        pst_fault_setting(text + 1, "seed", &q->seed);
    disk->driver = q;
    disk->descriptor = q->event;
    return 0;
}

static void sim_close(struct pst_disk *disk)
{
    struct queue *q = disk->driver;

    pst_assert(q->count == 0);
    /* A process that ends takes nothing from its disk's cache. */
    pthread_mutex_lock(&lock);
    pst_list_each_safe (link, &cache) {
        struct held *h = pst_list_entry(link, struct held, link);

        if (h->done_at > 0) {
            held_write_back(h);
            held_forget(h);
        }
    }
    pthread_mutex_unlock(&lock);
    close(q->event);
    free(q->started);
    free(q);
}

static int sim_start(struct pst_disk *disk, struct pst_disk_op *op)
{
    struct queue *q = disk->driver;
    struct started *s = &q->started[q->count];

    pst_assert(q->count < disk->depth);
    pthread_mutex_lock(&lock);
    *s = (struct started){.op = op, .at = ++moment};
    if (op->verb == PST_DISK_WRITE && !cut)
        s->held = held_new(disk->fds[op->file], op);
    pthread_mutex_unlock(&lock);
    q->count++;
    pst_event_set(q->event);
    return 0;
}

static void sim_reap(struct pst_disk *disk)
{
    struct queue *q = disk->driver;

    pst_assert(q->count <= disk->depth);
    /* About half of them, the first from anywhere. */
    for (uint32_t left = q->count; left > 0; left--) {
        uint64_t dice = pst_fault_dice(q->seed, 0, q->rolls++);
        uint32_t i = (uint32_t)(dice >> 8) % q->count;
        struct started s = q->started[i];

        if (dice & 1)
            continue;
        q->started[i] = q->started[--q->count];
        pthread_mutex_lock(&lock);
        s.op->ended = sim_carry_out(disk->fds[s.op->file], &s);
        pthread_mutex_unlock(&lock);
        pst_disk_moved(disk, s.op, s.op->ended);
    }
    if (q->count == 0)
        pst_event_clear(q->event);
}

const struct pst_disk_ops pst_disk_simulated = {
    .name = "simulated",
    .open = sim_open,
    .close = sim_close,
    .start = sim_start,
    .reap = sim_reap,
};
