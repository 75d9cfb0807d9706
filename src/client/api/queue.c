/* SPDX-License-Identifier: Apache-2.0 */
/* queue.c: queues of operations, and the descriptor by which an event loop waits for them. */
#include "client/client_priv.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>

enum { TIMER_MS = 20 }; /* deadlines and connections are looked at this often */

int penstock_queue_open(struct penstock *store, struct penstock_queue **out)
{
    struct penstock_queue *queue;
    int r = pst_store_check(store);

    if (r < 0)
        return r;
    if (!out)
        return pst_fail(-EINVAL, "penstock_queue_open: nowhere to put the queue");
    queue = calloc(1, sizeof(*queue));
    if (!queue)
        return pst_fail(-ENOMEM, "out of memory");
    queue->magic = PST_QUEUE_MAGIC;
    queue->store = store;
    queue->poll_fd = queue->timer_fd = queue->wake_fd = -1;
    *out = queue;
    return 0;
}

static void close_descriptors(struct penstock_queue *queue)
{
    pst_assert(queue->magic == PST_QUEUE_MAGIC);
    pst_close_fd(&queue->poll_fd);
    pst_close_fd(&queue->timer_fd);
    pst_close_fd(&queue->wake_fd);
}

struct penstock_queue *penstock_queue_close(struct penstock_queue *queue)
{
    struct penstock_op *ops[64];

    if (!queue)
        return NULL;
    pst_assert(queue->magic == PST_QUEUE_MAGIC);
    while (queue->underway && penstock_reap(queue, ops, (int)pst_count_of(ops), -1) > 0)
        ;
    close_descriptors(queue);
    queue->magic = 0; /* a second close is found */
    free(queue);
    return NULL;
}

static int watch(struct penstock_queue *queue, int fd, uint32_t events)
{
    struct epoll_event event = {.events = events, .data.fd = fd};

    pst_assert(queue->poll_fd >= 0);
    pst_assert(fd >= 0);
    if (epoll_ctl(queue->poll_fd, EPOLL_CTL_MOD, fd, &event) == 0)
        return 0;
    return epoll_ctl(queue->poll_fd, EPOLL_CTL_ADD, fd, &event) < 0 ? -errno : 0;
}

static int open_descriptors(struct penstock_queue *queue)
{
    const struct itimerspec every = {.it_interval.tv_nsec = TIMER_MS * 1000000,
                                     .it_value.tv_nsec = TIMER_MS * 1000000};
    int r = 0;

    pst_assert(queue->poll_fd < 0);
    pst_assert(queue->wake_fd < 0);
    pst_assert(queue->timer_fd < 0);
    if ((queue->poll_fd = epoll_create1(EPOLL_CLOEXEC)) < 0 ||
        (queue->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) < 0 ||
        (queue->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK)) < 0)
        r = -errno;
    if (r == 0)
        r = watch(queue, queue->wake_fd, EPOLLIN);
    if (r == 0)
        r = watch(queue, queue->timer_fd, EPOLLIN);
    if (r == 0 && !queue->store->backend->locks_itself)
        r = timerfd_settime(queue->timer_fd, 0, &every, NULL) < 0 ? -errno : 0;
    if (r < 0)
        close_descriptors(queue);
    return r;
}

int pst_queue_watch_port(struct penstock_queue *queue)
{
    int fd = queue->store->backend->fd(queue->store);

    pst_assert(queue->magic == PST_QUEUE_MAGIC);
    return fd >= 0 ? watch(queue, fd, EPOLLIN | EPOLLET) : 0;
}

int penstock_queue_fd(struct penstock_queue *queue)
{
    int r;

    if (!queue)
        return pst_fail(-EINVAL, "no queue");
    pst_assert(queue->magic == PST_QUEUE_MAGIC);
    r = pst_store_check(queue->store);
    if (r < 0)
        return r;
    pthread_mutex_lock(
        &queue->store->lock); /* whoever ends an operation of the queue looks for the descriptor */
    if (queue->poll_fd < 0)
        r = open_descriptors(queue);
    if (r == 0) {
        queue->done.wake_fd = queue->wake_fd;
        r = pst_queue_watch_port(queue);
    }
    pthread_mutex_unlock(&queue->store->lock);
    return r < 0 ? pst_fail(r, "queue descriptor: %s", strerror(-r)) : queue->poll_fd;
}

void pst_queue_drained(struct penstock_queue *queue)
{
    struct epoll_event events[4];
    int count;

    pst_assert(queue->magic == PST_QUEUE_MAGIC);
    if (queue->poll_fd < 0)
        return;
    count = epoll_wait(queue->poll_fd, events, pst_count_of(events), 0);
    for (int i = 0; i < count; i++) {
        if (events[i].data.fd == queue->wake_fd || events[i].data.fd == queue->timer_fd)
            pst_event_clear(events[i].data.fd);
    }
}

void pst_queue_until(struct penstock_queue *queue, uint64_t ns)
{
    struct itimerspec at = {
        .it_value = {.tv_sec = (time_t)(ns / 1000000000), .tv_nsec = (long)(ns % 1000000000)}};

    pst_assert(queue->magic == PST_QUEUE_MAGIC);
    if (queue->poll_fd < 0)
        return;
    if (ns == UINT64_MAX)
        at = (struct itimerspec){0};
    timerfd_settime(queue->timer_fd, TFD_TIMER_ABSTIME, &at, NULL);
}
