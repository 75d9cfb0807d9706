/* SPDX-License-Identifier: Apache-2.0 */
/*
 * figures.c: log_figures FOLDER MIB BYTES DEPTH [DRIVER [lost]]: a log by itself, to be held against fio.
 * Writes MIB of values of BYTES each, DEPTH underway; opens the log again; reads values at random. Prints one
 * JSON object.
 */
#include "log/scan.h"

#include "base/clock.h"
#include "base/hash.h"

#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <sys/mman.h>

enum { MIB = 1 << 20, DEPTH_MAX = 64, READ_S = 3, WAIT_MS = 60000, TURN_NS = 10000 };

struct place {
    struct pst_log_place at;
    uint32_t crc;
};

struct partition {
    struct pst_log_append append;
    struct pst_log_read read;
    struct iovec iov;
    uint64_t number;
    char key[24];
};

struct run {
    struct pst_log *log;
    struct pst_lane *lane;
    struct pst_log_options options;
    uint64_t bytes, count;
    uint32_t depth;
    uint8_t *memory;
    struct place *places;
    struct pst_list done; /* operations that have ended and were not looked at */
    struct partition partitions[DEPTH_MAX];
};

static void fail(const char *what, int r)
{
    fprintf(stderr, "log_figures: %s: %s\n", what, strerror(-r));
    exit(3);
}

static void open_log(struct run *run)
{
    const char *fault = "";
    int r = pst_log_open(&run->options, &run->log, &fault);

    if (r < 0)
        fail(fault, r);
    run->lane = pst_log_lane(run->log, 0);
    pst_list_init(&run->done);
}

static struct pst_log_value value_of(struct run *run, struct partition *s, uint64_t number)
{
    s->number = number;
    snprintf(s->key, sizeof(s->key), "%llu", (unsigned long long)number);
    return (struct pst_log_value){
        .key = {s->key, strlen(s->key)}, .generation = number + 1, .value_bytes = run->bytes};
}

/* As a node's thread would. */
static bool poll_lane(struct run *run)
{
    const struct pst_turn turn = pst_turn_begin(pst_now_ns, TURN_NS);

    return pst_lane_poll(run->lane, &turn, &run->done);
}

static void start_append(struct run *run, struct partition *s, uint64_t number)
{
    int r;

    s->append = (struct pst_log_append){.value = value_of(run, s, number), .iov = &s->iov, .iov_count = 1};
    while ((r = pst_log_append(run->lane, &s->append)) == -EBUSY)
        poll_lane(run);
    if (r < 0)
        fail("append", r);
}

static void start_read(struct run *run, struct partition *s, uint64_t number)
{
    int r;

    s->read = (struct pst_log_read){.value = value_of(run, s, number),
                                    .place = run->places[number].at,
                                    .crc = run->places[number].crc,
                                    .bytes = run->bytes,
                                    .iov = &s->iov,
                                    .iov_count = 1};
    r = pst_log_read(run->lane, &s->read);
    if (r < 0)
        fail("read", r);
}

/* The next partition that is done; its place is kept after an append. */
static struct partition *take_done(struct run *run)
{
    struct pollfd p = {.fd = pst_lane_descriptor(run->lane), .events = POLLIN};
    struct pst_log_op *op;
    struct partition *s;

    while (pst_list_empty(&run->done)) {
        if (!poll_lane(run))
            poll(&p, 1, WAIT_MS);
    }
    op = pst_list_first(&run->done, struct pst_log_op, link);
    pst_list_remove(&op->link);
    if (op->result < 0)
        fail(op->verb == PST_LOG_READ ? "read" : "append", op->result);
    if (op->verb == PST_LOG_READ)
        return pst_container_of(op, struct partition, read.op);
    s = pst_container_of(op, struct partition, append.op);
    run->places[s->number] = (struct place){s->append.place, s->append.crc};
    return s;
}

static double write_all(struct run *run)
{
    struct pst_log_sync flush = {0};
    uint64_t begin = pst_now_ns(), next = 0;

    while (next < pst_min(run->depth, run->count)) {
        start_append(run, &run->partitions[next], next);
        next++;
    }
    for (uint64_t ended = 0; ended < run->count; ended++) {
        struct partition *s = take_done(run);

        if (next < run->count)
            start_append(run, s, next++);
    }
    pst_log_sync(run->lane, &flush);
    while (pst_list_empty(&run->done))
        poll_lane(run);
    pst_list_remove(&flush.op.link);
    return (double)(pst_now_ns() - begin) / 1e9;
}

static double read_some(struct run *run, uint64_t *count)
{
    uint64_t begin = pst_now_ns(), end = begin + READ_S * 1000000000ull, dice = 1;
    uint32_t underway = 0;

    for (*count = 0; underway < run->depth; underway++)
        start_read(run, &run->partitions[underway], underway % run->count);
    while (underway > 0) {
        struct partition *s = take_done(run);

        ++*count;
        underway--;
        if (pst_now_ns() >= end)
            continue;
        dice = pst_hash64(&dice, sizeof(dice), 7);
        start_read(run, s, dice % run->count);
        underway++;
    }
    return (double)(pst_now_ns() - begin) / 1e9;
}

static void close_log(struct run *run)
{
    while (!pst_lane_idle(run->lane))
        poll_lane(run);
    run->log = pst_log_close(run->log);
}

/* Return: seconds until all is found. */
static double scan_all(struct run *run, struct pst_log_scanned *told)
{
    uint64_t begin = pst_now_ns();
    struct pst_log_scan *scan = NULL;
    struct pst_log_found found;
    int r;

    open_log(run);
    r = pst_log_scan_open(run->log, &scan);
    while (r == 0 && (r = pst_log_scan_next(scan, &found)) == 1) {
        pst_log_adopt(run->log, &found);
        r = 0;
    }
    if (r < 0)
        fail("scan", r);
    pst_log_scan_close(scan, told);
    return (double)(pst_now_ns() - begin) / 1e9;
}

/* Some segment was written to: the files that begin with something else than zeros. */
static void wipe(const char *folder)
{
    static const uint8_t zeros[8192];

    for (uint32_t i = 0; i < 64; i++) {
        char path[512];
        uint64_t word = 0;
        int fd;

        snprintf(path, sizeof(path), "%s/segment-%05u", folder, i);
        fd = open(path, O_RDWR | O_CLOEXEC);
        if (fd < 0)
            continue;
        if (pread(fd, &word, sizeof(word), 0) == sizeof(word) && word != 0)
            pst_assert(pwrite(fd, zeros, sizeof(zeros), 0) == sizeof(zeros));
        close(fd);
    }
}

int main(int argc, char **argv)
{
    struct run run = {.depth = argc > 4 ? (uint32_t)atoi(argv[4]) : 0};
    const char *folder = argc > 1 ? argv[1] : NULL;
    struct pst_log_scanned told = {0};
    struct iovec region;
    double write_s, scan_s, read_s;
    uint64_t total, reads = 0;

    if (argc < 5 || run.depth == 0 || run.depth > DEPTH_MAX) {
        fprintf(stderr, "usage: log_figures FOLDER MIB BYTES DEPTH [DRIVER [lost]]\n");
        return 2;
    }
    total = strtoull(argv[2], NULL, 10) * MIB;
    run.bytes = strtoull(argv[3], NULL, 10);
    run.count = total / run.bytes;
    region.iov_len = pst_round_up(run.bytes, 4096) * run.depth;
    region.iov_base =
        mmap(NULL, region.iov_len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    run.places = calloc(run.count, sizeof(*run.places));
    pst_assert(region.iov_base != MAP_FAILED && run.places && run.count > 0);
    for (uint32_t i = 0; i < run.depth; i++)
        run.partitions[i].iov =
            (struct iovec){(uint8_t *)region.iov_base + i * pst_round_up(run.bytes, 4096), run.bytes};
    run.options = (struct pst_log_options){.folders = &folder,
                                           .folder_count = 1,
                                           .bytes = total + total / 8 + (2048ull << 20),
                                           .lane_count = 1,
                                           .driver = argc > 5 && *argv[5] ? argv[5] : NULL,
                                           .depth = run.depth,
                                           .regions = &region,
                                           .region_count = 1};
    open_log(&run);
    write_s = write_all(&run);
    close_log(&run);
    if (argc > 6)
        wipe(folder);
    scan_s = scan_all(&run, &told);
    read_s = told.values == run.count ? read_some(&run, &reads) : 1;
    printf("{\"values\": %llu, \"found\": %llu, \"write_mb_s\": %.0f, \"recovery_s\": %.3f, "
           "\"recovery_read_mib\": %llu, "
           "\"read_mb_s\": %.0f, \"reads_s\": %.0f, \"note\": \"%s\"}\n",
           (unsigned long long)run.count, (unsigned long long)told.values, (double)total / write_s / 1e6,
           scan_s, (unsigned long long)(told.bytes_read / MIB), (double)(reads * run.bytes) / read_s / 1e6,
           (double)reads / read_s, pst_log_note(run.log));
    close_log(&run);
    free(run.places);
    munmap(region.iov_base, region.iov_len);
    return told.values == run.count ? 0 : 1;
}
