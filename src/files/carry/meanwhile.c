/* SPDX-License-Identifier: Apache-2.0 */
/* meanwhile.c: work on a thread of its own, while the peer is told that this side is alive. */
#include "files/carry/carry_priv.h"

#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>

enum { SIGN_MS = 500 };
_Static_assert((int)SIGN_MS < (int)PST_CARRY_STALL_MS, "a peer that waits hears of this side in time");

struct meanwhile {
    int (*work)(void *arg);
    void *arg;
    int done_fd, result;
};

static void *meanwhile_main(void *arg)
{
    struct meanwhile *m = arg;

    m->result = m->work(m->arg);
    pst_event_set(m->done_fd);
    return NULL;
}

int carry_meanwhile(struct link *link, int (*work)(void *arg), void *arg, atomic_bool *gone)
{
    pst_cleanup_close int done_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    struct meanwhile m = {.work = work, .arg = arg, .done_fd = done_fd};
    struct pollfd done = {.fd = done_fd, .events = POLLIN};
    pthread_t thread;

    pst_assert(work);
    if (done_fd < 0 || pthread_create(&thread, NULL, meanwhile_main, &m) != 0)
        return work(arg);
    while (poll(&done, 1, SIGN_MS) <= 0) {
        if (link->error == 0)
            link_alive(link);
        if (link->error && gone)
            atomic_store(gone, true);
    }
    pst_assert(pthread_join(thread, NULL) == 0);
    return m.result;
}
