/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ms.h: milliseconds, in which callers, peers, files and options give times, as nanoseconds, in which
 * deadlines are kept. What does not fit becomes UINT64_MAX, "never", instead of a time that is over. Pure;
 * any thread.
 */
#ifndef PST_MS_H
#define PST_MS_H

#include "base/base.h"

#define PST_NS_PER_MS 1000000ull

static inline uint64_t pst_ns_of_ms(uint64_t ms)
{
    return ms > UINT64_MAX / PST_NS_PER_MS ? UINT64_MAX : ms * PST_NS_PER_MS;
}

/* When @ms have passed since @begin_ns. */
static inline uint64_t pst_deadline_ns(uint64_t begin_ns, uint64_t ms)
{
    uint64_t deadline_ns;

    return pst_add_overflows(begin_ns, pst_ns_of_ms(ms), &deadline_ns) ? UINT64_MAX : deadline_ns;
}

/* What is left until then, rounded up to whole ms; 0: it is over. */
static inline uint64_t pst_ms_left(uint64_t deadline_ns, uint64_t now_ns)
{
    return deadline_ns > now_ns ? pst_div_up(deadline_ns - now_ns, PST_NS_PER_MS) : 0;
}

#endif
