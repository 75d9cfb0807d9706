/* SPDX-License-Identifier: Apache-2.0 */
/* peer_memory.c: what one thread gets out of plain private memory: a cold copy, and a walk over its pages.
 *
 * copy: memcpy in blocks that walk through a source and a destination far larger than the last-level cache.
 * walk: one byte of each 4 KiB page, repeated; the median pass counts. Everything is touched before it is
 * timed. */
#include "peer_priv.h"

#include <errno.h>
#include <getopt.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define WALK_STEP_BYTES 4096U
#define WALK_WARM_COUNT 8

struct options {
    bool walk;
    bool thp; /* ask for transparent huge pages; otherwise the system's default holds */
    size_t region_bytes, block_bytes;
    double seconds;
};

static char *map_touched(size_t byte_count, bool thp)
{
    char *memory = mmap(NULL, byte_count, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (memory == MAP_FAILED)
        return NULL;
    if (thp)
        madvise(memory, byte_count, MADV_HUGEPAGE);
    memset(memory, 1, byte_count);
    return memory;
}

/* KiB of this process's memory that the kernel keeps in transparent huge pages. */
static long huge_kib(void)
{
    char line[256];
    long kib = 0;
    FILE *f = fopen("/proc/self/smaps_rollup", "re");

    while (f && fgets(line, sizeof(line), f)) {
        if (sscanf(line, "AnonHugePages: %ld", &kib) == 1)
            break;
    }
    if (f)
        fclose(f);
    return kib;
}

static void print_result(const char *op, const struct options *o, size_t pass_bytes, double elapsed_s,
                         const struct peer_times *times)
{
    double passes_per_s = (double)times->count / elapsed_s;

    printf("{\"op\": \"%s\", \"size\": %zu, \"batch\": 1, \"inflight\": 1, \"ops_per_s\": %.1f, "
           "\"bytes_per_s\": %.1f, "
           "\"p50_us\": %.3f, \"p99_us\": %.3f, \"region_bytes\": %zu, \"huge_kib\": %ld, \"thp\": %s}\n",
           op, pass_bytes, passes_per_s, passes_per_s * (double)pass_bytes, peer_times_us(times, 0.50),
           peer_times_us(times, 0.99), o->region_bytes, huge_kib(), huge_kib() > 0 ? "true" : "false");
}

static int run_copy(const struct options *o)
{
    static struct peer_times times;
    char *from = map_touched(o->region_bytes, o->thp);
    char *to = map_touched(o->region_bytes, o->thp);
    uint64_t begin_ns, at_ns, next_ns;
    size_t at = 0;

    if (!from || !to)
        return -ENOMEM;
    begin_ns = at_ns = peer_now_ns();
    while ((double)(at_ns - begin_ns) < o->seconds * 1e9) {
        memcpy(to + at, from + at, o->block_bytes);
        at += o->block_bytes;
        if (at + o->block_bytes > o->region_bytes)
            at = 0;
        next_ns = peer_now_ns();
        peer_times_add(&times, next_ns - at_ns);
        at_ns = next_ns;
    }
    print_result("copy", o, o->block_bytes, (double)(at_ns - begin_ns) / 1e9, &times);
    return 0;
}

static void walk_pages(const volatile char *memory, size_t byte_count)
{
    for (size_t at = 0; at < byte_count; at += WALK_STEP_BYTES)
        (void)memory[at];
}

static int run_walk(const struct options *o)
{
    static struct peer_times times;
    char *memory = map_touched(o->region_bytes, o->thp);
    uint64_t begin_ns, at_ns, next_ns;

    if (!memory)
        return -ENOMEM;
    for (int i = 0; i < WALK_WARM_COUNT; i++)
        walk_pages(memory, o->region_bytes);
    begin_ns = at_ns = peer_now_ns();
    while ((double)(at_ns - begin_ns) < o->seconds * 1e9) {
        walk_pages(memory, o->region_bytes);
        next_ns = peer_now_ns();
        peer_times_add(&times, next_ns - at_ns);
        at_ns = next_ns;
    }
    print_result("walk", o, o->region_bytes, (double)(at_ns - begin_ns) / 1e9, &times);
    return 0;
}

static int parse_options(int argc, char **argv, struct options *o)
{
    static const struct option known[] = {
        {"op", required_argument, NULL, 'o'},   {"region", required_argument, NULL, 'r'},
        {"size", required_argument, NULL, 's'}, {"seconds", required_argument, NULL, 't'},
        {"thp", no_argument, NULL, 'h'},        {NULL, 0, NULL, 0},
    };
    int option;

    while ((option = getopt_long(argc, argv, "", known, NULL)) != -1) {
        switch (option) {
        case 'o':
            o->walk = strcmp(optarg, "walk") == 0;
            break;
        case 'r':
            o->region_bytes = strtoul(optarg, NULL, 10);
            break;
        case 's':
            o->block_bytes = strtoul(optarg, NULL, 10);
            break;
        case 't':
            o->seconds = strtod(optarg, NULL);
            break;
        case 'h':
            o->thp = true;
            break;
        default:
            return -EINVAL;
        }
    }
    if (o->region_bytes == 0)
        o->region_bytes = o->walk ? 64U << 20 : 1U << 30;
    return o->block_bytes == 0 || o->block_bytes > o->region_bytes ? -EINVAL : 0;
}

int main(int argc, char **argv)
{
    struct options options = {.block_bytes = 2U << 20, .seconds = 2.0};
    int r = parse_options(argc, argv, &options);

    if (r == 0)
        r = options.walk ? run_walk(&options) : run_copy(&options);
    if (r < 0)
        fprintf(stderr,
                "usage: %s [--op copy|walk] [--region BYTES] [--size BYTES] [--seconds S] [--thp] (%s)\n",
                argv[0], strerror(-r));
    return r < 0 ? 1 : 0;
}
