/* SPDX-License-Identifier: Apache-2.0 */
/*
 * numbers.c: the numbers of descriptors that belong to ports. An address names shared memory as
 * /proc/PID/fd/NUMBER, so a peer that comes late opens whatever has that number by then: if it is the memory
 * of the process's next port, and that is not set up yet, UCX 1.13 aborts over the message it finds there. So
 * the numbers of one port are not those of the next. Any thread.
 */
#include "net/ucx/numbers.h"

#include "base/base.h"

#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

static _Atomic int floor_number; /* the next port's descriptors have this number and above */

static int number_max(void)
{
    struct rlimit limit;

    return getrlimit(RLIMIT_NOFILE, &limit) < 0 || limit.rlim_cur > INT32_MAX ? 512 : (int)limit.rlim_cur / 2;
}

void ucx_numbers_hold(struct ucx_numbers *numbers)
{
    int from = floor_number;

    numbers->count = 0;
    while (numbers->count < UCX_NUMBERS_MAX) {
        int fd = eventfd(0, EFD_CLOEXEC);

        if (fd < 0)
            return;
        if (fd >= from) {
            close(fd);
            return;
        }
        numbers->held[numbers->count++] = fd;
    }
    pst_assert(numbers->count <= UCX_NUMBERS_MAX);
}

void ucx_numbers_release(struct ucx_numbers *numbers)
{
    int next = eventfd(0, EFD_CLOEXEC);

    pst_assert(numbers->count <= UCX_NUMBERS_MAX);
    floor_number = next < number_max() && numbers->count < UCX_NUMBERS_MAX ? next : 0;
    if (next >= 0)
        close(next);
    while (numbers->count > 0)
        close(numbers->held[--numbers->count]);
}
