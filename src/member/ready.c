/* SPDX-License-Identifier: Apache-2.0 */
/* ready.c: an event for those who wait, and a text under a lock. */
#include "member/ready.h"

#include "base/base.h"
#include "base/clock.h"
#include "base/ms.h"
#include "base/own.h"

#include <poll.h>
#include <stdio.h>
#include <sys/eventfd.h>

enum { POLL_MS_MAX = 60000 };

int pst_ready_init(struct pst_ready *ready)
{
    *ready = (struct pst_ready){.fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
    pthread_mutex_init(&ready->lock, NULL);
    return ready->fd < 0 ? -errno : 0;
}

void pst_ready_fini(struct pst_ready *ready)
{
    pst_close_fd(&ready->fd);
    pthread_mutex_destroy(&ready->lock);
}

void pst_ready_fails(struct pst_ready *ready, int result, const char *why)
{
    pst_assert(result != 0);
    pthread_mutex_lock(&ready->lock);
    snprintf(ready->why, sizeof(ready->why), "%s", why);
    ready->result = result;
    pthread_mutex_unlock(&ready->lock);
}

void pst_ready_set(struct pst_ready *ready)
{
    pst_assert(ready->fd >= 0);
    if (ready->set)
        return;
    ready->set = true;
    pst_event_set(ready->fd);
}

int pst_ready_wait(struct pst_ready *ready, uint64_t ms, char fault[PST_FAULT_BYTES])
{
    struct pollfd fd = {.fd = ready->fd, .events = POLLIN};
    uint64_t until_ns = pst_deadline_ns(pst_now_ns(), ms), now_ns;
    int n, r;

    pst_assert(ready->fd >= 0);
    do {
        now_ns = pst_now_ns();
        n = poll(&fd, 1,
                 now_ns < until_ns ? (int)pst_min((until_ns - now_ns) / 1000000 + 1, POLL_MS_MAX) : 0);
    } while (n <= 0 && now_ns < until_ns);
    if (n > 0)
        return 0;
    pthread_mutex_lock(&ready->lock);
    r = ready->result < 0 ? ready->result : -ETIMEDOUT;
    snprintf(fault, PST_FAULT_BYTES, "pool: %.248s",
             ready->result ? ready->why : "the master takes too long");
    pthread_mutex_unlock(&ready->lock);
    return r;
}
