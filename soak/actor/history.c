/* SPDX-License-Identifier: Apache-2.0 */
/* history.c: the mapped file that tells what an actor did, even of one that was killed; and its clock. */
#include "actor.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { PULSE_NS = 10000000, STALL_NS_MIN = 50000000 };

static _Atomic uint64_t stalled_ns;

uint64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

int history_open(struct actor *a, const char *path)
{
    size_t bytes = RECORDS_AT + RECORDS_MAX * sizeof(struct record);
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600), r = 0;
    void *map;

    if (fd < 0)
        return -errno;
    map = ftruncate(fd, (off_t)bytes) == 0 ? mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)
                                           : MAP_FAILED;
    if (map == MAP_FAILED)
        r = -errno;
    close(fd);
    if (r < 0)
        return r;
    a->history = map;
    a->records = (struct record *)(void *)((uint8_t *)map + RECORDS_AT);
    return 0;
}

struct record *history_begin(struct actor *a, uint32_t count)
{
    uint64_t at = atomic_load(&a->history->record_count), begun_ns = now_ns();

    if (at + count > RECORDS_MAX)
        return NULL;
    for (uint32_t i = 0; i < count; i++)
        a->records[at + i].begun_ns = begun_ns;
    atomic_store(&a->history->record_count, at + count);
    return &a->records[at];
}

void violation(struct actor *a, const char *format, ...)
{
    uint64_t at = a->history->counts.violations++;
    va_list arguments;

    if (at >= TOLD_MAX)
        return;
    va_start(arguments, format);
    vsnprintf(a->history->told[at], TOLD_BYTES, format, arguments);
    va_end(arguments);
}

static void *pulse(void *unused)
{
    const struct timespec beat = {.tv_nsec = PULSE_NS};
    uint64_t last_ns = now_ns();

    (void)unused;
    for (;;) {
        uint64_t at_ns;

        nanosleep(&beat, NULL);
        at_ns = now_ns();
        if (at_ns - last_ns > STALL_NS_MIN)
            atomic_fetch_add(&stalled_ns, at_ns - last_ns - PULSE_NS);
        last_ns = at_ns;
    }
    return NULL;
}

int pulse_start(void)
{
    pthread_t thread;

    return -pthread_create(&thread, NULL, pulse, NULL);
}

uint64_t pulse_stalled_ns(void)
{
    return atomic_load(&stalled_ns);
}
