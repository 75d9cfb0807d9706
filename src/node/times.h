/* SPDX-License-Identifier: Apache-2.0 */
/*
 * times.h: how long a shard's requests took, by what they asked for. Its thread's only, which reads no clock
 * for it: a request that ends in the round in which it came took as long as that round, which is known when
 * the next one begins. Whoever wants to know asks the shard (store/figures.h).
 */
#ifndef PST_NODE_TIMES_H
#define PST_NODE_TIMES_H

#include "store/figures.h"

struct pst_times {
    uint32_t kinds;                 /* a bit for each that has some in `ended` */
    uint32_t ended[PST_TIME_COUNT]; /* operations that came and ended in this round */
    struct pst_time of[PST_TIME_COUNT];
};

/* What a request with these codes counts as, a bit for each as in struct pst_trace. */
uint32_t pst_time_of_codes(uint64_t codes);
/* So many operations took so long. */
void pst_time_add(struct pst_time *time, uint64_t ns, uint64_t count);
/* A round has ended, and took so long. */
void pst_times_flush(struct pst_times *times, uint64_t round_ns);

static inline void pst_times_round(struct pst_times *times, uint64_t round_ns)
{
    if (times->kinds)
        pst_times_flush(times, round_ns);
}

/* A request of @count operations ends; @ns: by the rounds in which it began and ended. */
static inline void pst_times_end(struct pst_times *times, uint64_t codes, uint32_t count, uint64_t ns)
{
    uint32_t kind = pst_time_of_codes(codes);

    if (pst_unlikely(ns)) {
        pst_time_add(&times->of[kind], ns, count);
    } else {
        times->kinds |= 1u << kind;
        times->ended[kind] += count;
    }
}

#endif
