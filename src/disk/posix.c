/* SPDX-License-Identifier: Apache-2.0 */
/*
 * posix.c: the driver that every Linux has: a few threads with preadv, pwritev and fdatasync. Under one lock
 * lie what is to be done and what has ended; the threads see nothing else of a queue.
 */
#include "disk/disk_priv.h"

#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>

enum { THREADS_MAX = 16 };

struct pool {
    pthread_mutex_t lock;
    pthread_cond_t wanted;
    struct pst_list todo, ended; /* of struct pst_disk_op */
    bool stop;
    int event;
    const int *fds;
    uint32_t thread_count;
    pthread_t threads[THREADS_MAX];
};

/* ---- the threads ---- */

static int64_t pool_carry_out(const struct pool *p, const struct pst_disk_op *op)
{
    int fd = p->fds[op->file];
    int64_t r;

    pst_assert(op->verb == PST_DISK_SYNC || (op->now_count > 0 && op->moved_bytes < op->bytes));
    if (op->verb == PST_DISK_SYNC)
        r = fdatasync(fd);
    else if (op->verb == PST_DISK_READ)
        r = preadv(fd, op->now, (int)op->now_count, (off_t)pst_disk_at(op));
    else
        r = pwritev(fd, op->now, (int)op->now_count, (off_t)pst_disk_at(op));
    return r < 0 ? -errno : r;
}

static void *pool_main(void *arg)
{
    struct pool *p = arg;

    pthread_mutex_lock(&p->lock);
    for (;;) {
        struct pst_disk_op *op;
        bool first;
        int64_t r;

        while (!p->stop && pst_list_empty(&p->todo))
            pthread_cond_wait(&p->wanted, &p->lock);
        if (p->stop)
            break;
        op = pst_list_first(&p->todo, struct pst_disk_op, link);
        pst_assert(op->verb <= PST_DISK_SYNC);
        pst_list_remove(&op->link);
        pthread_mutex_unlock(&p->lock);
        r = pool_carry_out(p, op);
        pthread_mutex_lock(&p->lock);
        op->ended = r;
        first = pst_list_empty(&p->ended);
        pst_list_push_back(&p->ended, &op->link);
        if (first)
            pst_event_set(p->event);
    }
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

/* ---- the queue's side ---- */

static void pool_free(struct pool *p)
{
    pthread_mutex_lock(&p->lock);
    p->stop = true;
    pthread_cond_broadcast(&p->wanted);
    pthread_mutex_unlock(&p->lock);
    for (uint32_t i = 0; i < p->thread_count; i++)
        pthread_join(p->threads[i], NULL);
    pst_assert(pst_list_empty(&p->todo));
    pst_assert(pst_list_empty(&p->ended));
    pst_close_fd(&p->event);
    pthread_cond_destroy(&p->wanted);
    pthread_mutex_destroy(&p->lock);
    free(p);
}

/* Signals are for the program's own threads. */
static int start_threads(struct pool *p, uint32_t count)
{
    sigset_t all, before;
    int r = 0;

    pst_assert(count > 0 && count <= THREADS_MAX);
    pst_assert(p->thread_count == 0);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    while (r == 0 && p->thread_count < count) {
        r = pthread_create(&p->threads[p->thread_count], NULL, pool_main, p);
        p->thread_count += r == 0;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pst_assert(p->thread_count <= count);
    pst_assert(r >= 0);
    return p->thread_count > 0 ? 0 : -r;
}

static int pool_open(struct pst_disk *disk, const struct pst_disk_options *options)
{
    struct pool *p = calloc(1, sizeof(*p));
    int r;

    if (!p)
        return pst_fail(-ENOMEM, "no memory for disk threads");
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->wanted, NULL);
    pst_list_init(&p->todo);
    pst_list_init(&p->ended);
    p->fds = disk->fds;
    p->event = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    r = p->event < 0 ? -errno : start_threads(p, (uint32_t)pst_min(options->depth, THREADS_MAX));
    if (r < 0) {
        pool_free(p);
        return pst_fail(r, "disk threads: %s", strerror(-r));
    }
    pst_assert(p->thread_count > 0 && p->thread_count <= THREADS_MAX);
    disk->descriptor = p->event;
    disk->driver = p;
    return 0;
}

static void pool_close(struct pst_disk *disk)
{
    pool_free(disk->driver);
}

static int pool_start(struct pst_disk *disk, struct pst_disk_op *op)
{
    struct pool *p = disk->driver;

    pthread_mutex_lock(&p->lock);
    pst_assert(!p->stop);
    pst_list_push_back(&p->todo, &op->link);
    pthread_cond_signal(&p->wanted);
    pthread_mutex_unlock(&p->lock);
    return 0;
}

static void pool_reap(struct pst_disk *disk)
{
    struct pool *p = disk->driver;
    struct pst_list ended;

    pst_list_init(&ended);
    pthread_mutex_lock(&p->lock);
    if (!pst_list_empty(&p->ended)) {
        pst_event_clear(p->event);
        pst_list_splice(&ended, &p->ended);
    }
    pthread_mutex_unlock(&p->lock);
    pst_list_each_safe (link, &ended) {
        struct pst_disk_op *op = pst_list_entry(link, struct pst_disk_op, link);

        pst_list_remove(link);
        pst_assert(op->verb == PST_DISK_SYNC || op->ended <= (int64_t)op->bytes);
        pst_disk_moved(disk, op, op->ended);
    }
}

const struct pst_disk_ops pst_disk_posix = {
    .name = "posix",
    .open = pool_open,
    .close = pool_close,
    .start = pool_start,
    .reap = pool_reap,
};
