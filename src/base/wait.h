/* SPDX-License-Identifier: Apache-2.0 */
/* wait.h: condition variables whose deadlines are of pst_now_ns(): a wall clock that is set moves none. */
#ifndef PST_WAIT_H
#define PST_WAIT_H

#include "base/clock.h"

#include <pthread.h>

static inline void pst_cond_init(pthread_cond_t *cond)
{
    pthread_condattr_t monotonic;

    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(cond, &monotonic);
    pthread_condattr_destroy(&monotonic);
}

/* Waits until @cond is signalled, which may be for nothing, or until then. */
static inline void pst_cond_wait_until(pthread_cond_t *cond, pthread_mutex_t *lock, uint64_t until_ns)
{
    const struct timespec until = {.tv_sec = (time_t)(until_ns / 1000000000),
                                   .tv_nsec = (long)(until_ns % 1000000000)};

    pthread_cond_timedwait(cond, lock, &until);
}

#endif
