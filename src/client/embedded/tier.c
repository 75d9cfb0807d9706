/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tier.c: the embedded store's SSD. Operations that have to wait for it are parked (wait.c). No
 * thread of its own drives the disk: whoever waits does, one thread for all, woken by the disk or by a thread
 * that came by and found its operation done. Who asks for figures carries on what nobody waits for.
 */
#include "client/embedded/embedded_priv.h"

#include "base/clock.h"
#include "base/ms.h"
#include "store/exec.h"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

int pst_local_tier_init(struct pst_local *l)
{
    pst_assert(l->wake_fd < 0);
    pst_assert(l->disks_fd < 0);
    if (!pst_shard_tiered(pst_store_shard(l->store, 0)))
        return 0;
    l->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    l->disks_fd = epoll_create1(EPOLL_CLOEXEC);
    if (l->wake_fd < 0 || l->disks_fd < 0)
        return -errno;
    for (uint32_t i = 0; i < pst_store_shard_count(l->store); i++) {
        struct epoll_event event = {.events = EPOLLIN};
        int fd = pst_tier_descriptor(pst_store_shard(l->store, i));

        if (fd >= 0 && epoll_ctl(l->disks_fd, EPOLL_CTL_ADD, fd, &event) < 0)
            return -errno;
    }
    return 0;
}

void pst_local_tier_fini(struct pst_local *l)
{
    pst_close_fd(&l->disks_fd);
    pst_close_fd(&l->wake_fd);
}

bool pst_local_tiered(const struct pst_local *l)
{
    return l->wake_fd >= 0;
}

int pst_local_fetch(struct pst_local *l, uint32_t number, struct penstock_op *op, struct pst_record **record,
                    uint64_t *offset, uint64_t bytes)
{
    struct pst_shard *shard = pst_store_shard(l->store, number);
    struct pst_tier_wait *wait;
    int r = pst_get_locate(shard, record, offset, bytes);

    if (r != PST_BUSY)
        return r;
    pst_assert(pst_local_tiered(l));
    r = pst_local_park_tier(l, number, op, &wait);
    if (r == LOCAL_PARKED && pst_tier_fetch(shard, *record, *offset, bytes, pst_now_ns(), wait) != 0)
        r = pst_local_unpark(l, wait, PENSTOCK_BUSY);
    return r;
}

int pst_local_save(struct pst_local *l, uint32_t number, struct penstock_op *op, struct pst_record *record)
{
    bool other = !record || pst_record_away(record); /* another value by now, or there already */
    struct pst_tier_wait *wait;
    int r = other ? pst_local_flush(l, number, op) : pst_local_park_tier(l, number, op, &wait), begun;

    pst_assert(op->flags & PENSTOCK_DURABLE);
    pst_assert(number < l->shard_count);
    if (r != LOCAL_PARKED)
        return pst_tier_unsaved(r);
    begun = other ? 0 : pst_tier_save(pst_store_shard(l->store, number), record, wait);
    return begun < 0 ? pst_local_unpark(l, wait, pst_tier_unsaved(begun)) : r;
}

int pst_local_flush(struct pst_local *l, uint32_t number, struct penstock_op *op)
{
    struct pst_tier_wait *wait;
    int r = pst_shard_logs(pst_store_shard(l->store, number)) ? pst_local_park_tier(l, number, op, &wait)
                                                              : -EOPNOTSUPP;

    if (r == LOCAL_PARKED)
        pst_tier_flush(pst_store_shard(l->store, number), wait);
    return r;
}

/* Return: true when something happened in one of the shards. */
static bool poll_shards(struct pst_local *l)
{
    bool something = false;

    pst_assert(pst_local_tiered(l));
    for (uint32_t i = 0; i < l->shard_count; i++) {
        struct pst_shard *shard = pst_local_lock(l, i);
        uint64_t now_ns = pst_now_ns();

        something |= pst_shard_poll(shard, now_ns);
        something |= pst_shard_tick(shard, now_ns); /* others may wait for its pages */
        pst_local_unlock(l, i);
    }
    return something;
}

static void sleep_on_disks(struct pst_local *l, int ms)
{
    struct pollfd fds[] = {{.fd = l->disks_fd, .events = POLLIN}, {.fd = l->wake_fd, .events = POLLIN}};

    pst_assert(ms >= 0);
    poll(fds, pst_count_of(fds), ms);
}

bool pst_local_tier_round(struct pst_local *l, uint64_t until_ns)
{
    uint64_t now_ns = pst_now_ns();
    uint64_t left_ms = until_ns > now_ns ? (until_ns - now_ns) / 1000000 + 1 : 0;
    bool more;

    pst_assert(pst_local_tiered(l));
    if (l->disk_led) {
        pst_local_sleep(l, pst_min(until_ns, pst_deadline_ns(now_ns, ROUND_MS_MAX)));
        return false;
    }
    l->disk_led = true;
    pst_event_clear(l->wake_fd);
    pthread_mutex_unlock(&l->handle->lock);
    more = poll_shards(l);
    if (!more)
        sleep_on_disks(l, (int)pst_min(left_ms, ROUND_MS_MAX));
    pthread_mutex_lock(&l->handle->lock);
    pst_assert(l->disk_led);
    l->disk_led = false;
    pthread_cond_broadcast(&l->stirred);
    return more;
}

bool pst_local_once_more(const struct pst_local *l, struct penstock_op *op)
{
    uint64_t now_ns = pst_now_ns();

    if (!pst_op_deadline(op))
        pst_op_set_deadline(op, pst_deadline_ns(now_ns, l->timeout_ms));
    return pst_local_tiered(l) && now_ns < pst_op_deadline(op);
}

bool pst_local_again(struct pst_local *l, struct penstock_op *op, int *tries)
{
    pst_assert(*tries >= 0 && *tries < PRESSURE_ROUNDS);
    pst_local_relieve(l);
    if (!pst_local_tiered(l))
        return pst_store_has_ended(l->store, NULL, pst_now_ns()) || ++*tries < PRESSURE_ROUNDS;
    if (!pst_local_once_more(l, op))
        return false;
    pthread_mutex_lock(&l->handle->lock);
    pst_local_tier_round(l, pst_op_deadline(op));
    pthread_mutex_unlock(&l->handle->lock);
    return pst_local_once_more(l, op);
}
