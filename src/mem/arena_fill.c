/* SPDX-License-Identifier: Apache-2.0 */
/*
 * arena_fill.c: which NUMA node an arena's memory comes from, and backing it with memory before first use, on
 * all cores: a terabyte filled by one core would take minutes.
 */
#include "mem/arena_priv.h"

#include <fcntl.h>
#include <linux/mempolicy.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

enum {
    CHUNK_BYTES = 128 << 20, /* what a thread fills at a time: each time it waits for every core once */
    HUGE_BYTES = 2 << 20,
    THREADS_MAX = 256,
};

/* ---- NUMA ---- */

/* "0-1,4" as a bit set; nodes past 63 are left out. */
static uint64_t parse_node_list(const char *text)
{
    uint64_t nodes = 0;

    while (*text >= '0' && *text <= '9') {
        char *end;
        unsigned long first = strtoul(text, &end, 10), last = first;

        if (*end == '-')
            last = strtoul(end + 1, &end, 10);
        for (unsigned long i = first; i <= last && i < 64; i++)
            nodes |= 1ull << i;
        text = *end == ',' ? end + 1 : end;
    }
    return nodes;
}

/* The node list that follows @name in the file at @path; everything when it cannot be read. */
static uint64_t read_nodes(const char *path, const char *name)
{
    char line[1024];
    uint64_t nodes = ~0ull;
    FILE *f = fopen(path, "re");

    if (!f)
        return nodes;
    while (fgets(line, sizeof(line), f)) {
        if (strncmp(line, name, strlen(name)) == 0)
            nodes = parse_node_list(line + strlen(name));
    }
    fclose(f);
    return nodes;
}

uint64_t pst_numa_nodes(void)
{
    uint64_t nodes = read_nodes("/sys/devices/system/node/has_memory", "");

    if (nodes == ~0ull)
        return 0;
    return nodes & read_nodes("/proc/self/status", "Mems_allowed_list:\t");
}

/* Preferred, not bound: when the node is full, far memory is better than being killed. */
void pst_numa_prefer(void *start, uint64_t bytes, uint32_t node)
{
    unsigned long mask = 1ul << node;

    pst_assert(node < 64);
    /* The kernel reads one bit less than it is told. */
    syscall(SYS_mbind, start, bytes, MPOL_PREFERRED, &mask, 65ul, 0u);
}

/* ---- filling ---- */

struct fill {
    uint8_t *base;
    uint64_t bytes;
    bool by_touching;
    _Atomic uint64_t next; /* first byte that no thread has yet */
    _Atomic bool huge;     /* the system still gives huge pages */
    _Atomic int error;
};

/* Fills what it can with huge pages, also in a tmpfs that has none by itself: the kernel makes one of what is
 * there, here of a single small page, which takes a quarter of the time of filling all of them. */
static void fill_huge(struct fill *fill, uint64_t start, uint64_t bytes)
{
    uint64_t whole = bytes / HUGE_BYTES * HUGE_BYTES;

    pst_assert(((uintptr_t)fill->base + start) % HUGE_BYTES == 0);
    for (uint64_t i = 0; i < whole; i += HUGE_BYTES) {
        if (madvise(fill->base + start + i, 1, MADV_POPULATE_WRITE) < 0)
            return;
    }
    /* EAGAIN: not all of them, this time. */
    if (whole > 0 && madvise(fill->base + start, whole, MADV_COLLAPSE) < 0 && errno != EAGAIN)
        atomic_store(&fill->huge, false);
}

static int fill_chunk(struct fill *fill, uint64_t start, uint64_t bytes)
{
    pst_assert(bytes > 0);
    pst_assert(start + bytes <= fill->bytes);
    if (!fill->by_touching && atomic_load(&fill->huge))
        fill_huge(fill, start, bytes);
    if (!fill->by_touching)
        return madvise(fill->base + start, bytes, MADV_POPULATE_WRITE) < 0 ? -errno : 0;
    for (uint64_t i = 0; i < bytes; i += 4096) {
        volatile uint8_t *at = fill->base + start + i;

        *at = *at; /* what is there stays */
    }
    return 0;
}

static void *fill_chunks(void *arg)
{
    struct fill *fill = arg;

    while (atomic_load(&fill->error) == 0) {
        uint64_t start = atomic_fetch_add(&fill->next, CHUNK_BYTES);
        int r;

        if (start >= fill->bytes)
            break;
        pst_assert(start % CHUNK_BYTES == 0);
        r = fill_chunk(fill, start, pst_min(CHUNK_BYTES, fill->bytes - start));
        if (r < 0)
            atomic_store(&fill->error, r);
    }
    return NULL;
}

static uint32_t thread_count(uint64_t bytes)
{
    cpu_set_t cpus;
    int n = sched_getaffinity(0, sizeof(cpus), &cpus) == 0 ? CPU_COUNT(&cpus) : 1;

    pst_assert(bytes > 0);
    return (uint32_t)pst_min(pst_min((uint64_t)n, THREADS_MAX), pst_div_up(bytes, CHUNK_BYTES));
}

/* Touching a page that the tmpfs cannot give ends the process, so the file system must promise them all
 * first. */
static int prepare_touching(const struct pst_arenas *a)
{
    pst_assert(a->arena_count > 0 && a->arena_count <= PST_ARENAS_MAX);
    for (uint32_t i = 0; i < a->arena_count; i++) {
        if (fallocate(a->fds[i], 0, 0, (off_t)a->stride) < 0 && errno != EOPNOTSUPP)
            return -errno;
    }
    return 0;
}

int pst_arenas_fill(const struct pst_arenas *arenas)
{
    struct fill fill = {.base = arenas->base, .bytes = arenas->stride * arenas->arena_count, .huge = true};
    pthread_t threads[THREADS_MAX];
    uint32_t wanted = thread_count(fill.bytes), started = 0;
    int r;

    pst_assert(arenas->base);
    pst_assert(arenas->fds[0] >= 0);
    pst_assert(wanted >= 1 && wanted <= THREADS_MAX);
    /* Kernels before 5.14 do not know the advice. */
    if (madvise(fill.base, 4096, MADV_POPULATE_WRITE) < 0 && errno == EINVAL) {
        fill.by_touching = true;
        r = prepare_touching(arenas);
        if (r < 0)
            return r;
    }
    /* This thread is one of them, so that fewer than wanted is only slower. */
    while (started + 1 < wanted && pthread_create(&threads[started], NULL, fill_chunks, &fill) == 0)
        started++;
    fill_chunks(&fill);
    for (uint32_t i = 0; i < started; i++)
        pthread_join(threads[i], NULL);
    /* What would have been a bus error under a plain write. */
    r = atomic_load(&fill.error);
    return r == -EFAULT ? -ENOSPC : r;
}
