/* SPDX-License-Identifier: Apache-2.0 */
/* clock.h: the monotonic clock that deadlines use and the wall clock that generations start from. */
#ifndef PST_CLOCK_H
#define PST_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline uint64_t pst_clock_read_ns(clockid_t id)
{
    struct timespec t;

    clock_gettime(id, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static inline uint64_t pst_now_ns(void)
{
    return pst_clock_read_ns(CLOCK_MONOTONIC);
}

/* That clock as of the last tick, some milliseconds ago, for a sixth of the price: it tells whether long has
 * passed. */
static inline uint64_t pst_tick_ns(void)
{
    return pst_clock_read_ns(CLOCK_MONOTONIC_COARSE);
}

static inline uint64_t pst_now_ms(void)
{
    return pst_now_ns() / 1000000;
}

static inline uint64_t pst_wall_ns(void)
{
    return pst_clock_read_ns(CLOCK_REALTIME);
}

#endif
