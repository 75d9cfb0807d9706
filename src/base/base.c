/* SPDX-License-Identifier: Apache-2.0 */
#include "base/base.h"

#include <stdio.h>

_Noreturn void pst_assert_failed(const char *text, const char *file, int line)
{
    fprintf(stderr, "penstock: assertion failed: %s (%s:%d)\n", text, file, line);
    abort();
}

void pst_event_set(int fd)
{
    const uint64_t one = 1;
    ssize_t n;

    do
        n = write(fd, &one, sizeof(one));
    while (n < 0 && errno == EINTR);
    pst_assert(n == sizeof(one) || errno == EAGAIN);
}

void pst_event_clear(int fd)
{
    uint64_t count;
    ssize_t n;

    do
        n = read(fd, &count, sizeof(count));
    while (n < 0 && errno == EINTR);
    pst_assert(n == sizeof(count) || errno == EAGAIN);
}
