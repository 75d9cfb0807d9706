/* SPDX-License-Identifier: Apache-2.0 */
/* peer_times.c: percentiles of many short times in fixed memory. */
#include "peer_priv.h"

static size_t bin_of(uint64_t elapsed_ns)
{
    unsigned shift;

    if (elapsed_ns < PEER_TIMES_CUTS)
        return (size_t)elapsed_ns;
    shift = 63U - (unsigned)__builtin_clzll(elapsed_ns) - PEER_TIMES_CUT_BITS;
    /* The leading one of the shifted time lies in the bit above the cuts, so it selects the next row of them.
     */
    return ((size_t)shift << PEER_TIMES_CUT_BITS) + (size_t)(elapsed_ns >> shift);
}

static double bin_middle_ns(size_t bin)
{
    size_t shift;

    if (bin < PEER_TIMES_CUTS)
        return (double)bin;
    shift = (bin >> PEER_TIMES_CUT_BITS) - 1;
    return ((double)(bin - (shift << PEER_TIMES_CUT_BITS)) + 0.5) * (double)(1ULL << shift);
}

void peer_times_add(struct peer_times *t, uint64_t elapsed_ns)
{
    t->bins[bin_of(elapsed_ns)]++;
    t->count++;
}

double peer_times_us(const struct peer_times *t, double share)
{
    uint64_t wanted = (uint64_t)((double)t->count * share);
    uint64_t seen = 0;

    for (size_t bin = 0; bin < sizeof(t->bins) / sizeof(t->bins[0]); bin++) {
        seen += t->bins[bin];
        if (seen > wanted)
            return bin_middle_ns(bin) / 1000.0;
    }
    return 0.0;
}
