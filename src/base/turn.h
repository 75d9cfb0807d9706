/* SPDX-License-Identifier: Apache-2.0 */
/*
 * turn.h: how long a thread works for one thing while others wait for the thread. Its loop begins a turn and
 * hands it down. Each loop below does one piece of its work and then asks whether the turn is over: so each
 * turn gets on by a piece, however late the clock is, and lasts a piece too long at most.
 */
#ifndef PST_TURN_H
#define PST_TURN_H

#include "base/clock.h"

#include <stdbool.h>

struct pst_turn {
    uint64_t (*now_ns)(void);
    uint64_t end_ns;
};

/* By @now_ns, which is pst_now_ns() unless a test has a clock of its own. */
static inline struct pst_turn pst_turn_begin(uint64_t (*now_ns)(void), uint64_t ns)
{
    return (struct pst_turn){now_ns, now_ns() + ns};
}

/* Of a thread that nobody else waits for. */
static inline struct pst_turn pst_turn_endless(void)
{
    return (struct pst_turn){pst_now_ns, UINT64_MAX};
}

static inline bool pst_turn_is_over(const struct pst_turn *turn)
{
    return turn->now_ns() >= turn->end_ns;
}

#endif
