/* SPDX-License-Identifier: Apache-2.0 */
/* times.c: counts requests' times in buckets, each for times of up to twice those of the one before. */
#include "node/times.h"

#include "node/trace.h"
#include "wire/codes.h"

_Static_assert(PST_TIME_COUNT <= 32 && PST_TIME_other == 0,
               "a bit for each kind, and no code is another one");

/* By code; PST_TIME_other is 0. */
static const uint8_t kinds[PST_TRACE_ROLE + 1] = {
    [PST_WIRE_GET] = PST_TIME_get,
    [PST_WIRE_PUT] = PST_TIME_put,
    [PST_WIRE_STAT_KEY] = PST_TIME_stat,
    [PST_WIRE_DELETE] = PST_TIME_delete,
    [PST_WIRE_SWEEP] = PST_TIME_delete,
    [PST_WIRE_PIN] = PST_TIME_pin,
    [PST_WIRE_UNPIN] = PST_TIME_pin,
    [PST_WIRE_RESERVE] = PST_TIME_reserve,
    [PST_WIRE_WRITE_AT] = PST_TIME_write,
    [PST_WIRE_RESERVATION_COMMIT] = PST_TIME_write,
    [PST_WIRE_RESERVATION_ABORT] = PST_TIME_write,
    [PST_WIRE_COMMIT] = PST_TIME_commit,
    [PST_WIRE_LIST] = PST_TIME_list,
    [PST_WIRE_VIEW] = PST_TIME_view,
    [PST_WIRE_RELEASE] = PST_TIME_view,
    [PST_WIRE_WATCH_OPEN] = PST_TIME_watch,
    [PST_WIRE_WATCH_NEXT] = PST_TIME_watch,
    [PST_WIRE_WATCH_CLOSE] = PST_TIME_watch,
    [PST_WIRE_COPY] = PST_TIME_copy,
    [PST_WIRE_COPY_SEND] = PST_TIME_copy,
    [PST_WIRE_COPY_CLEAR] = PST_TIME_copy,
    [PST_TRACE_ROLE] = PST_TIME_pool,
};

uint32_t pst_time_of_codes(uint64_t codes)
{
    if (pst_unlikely(codes & (codes - 1)))
        return PST_TIME_mixed;
    return pst_likely(codes) ? kinds[__builtin_ctzll(codes)] : PST_TIME_other;
}

void pst_time_add(struct pst_time *time, uint64_t ns, uint64_t count)
{
    uint64_t units = ns >> PST_TIME_FIRST_SHIFT;
    uint32_t bucket = units ? 64 - (uint32_t)__builtin_clzll(units) : 0;

    time->counts[pst_min(bucket, PST_TIME_BUCKETS - 1)] += count;
    time->total_ns += ns * count;
}

void pst_times_flush(struct pst_times *times, uint64_t round_ns)
{
    pst_assert(times->kinds);
    for (; times->kinds; times->kinds &= times->kinds - 1) {
        uint32_t kind = (uint32_t)__builtin_ctz(times->kinds);

        pst_time_add(&times->of[kind], round_ns, times->ended[kind]);
        times->ended[kind] = 0;
    }
}
