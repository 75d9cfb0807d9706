/* SPDX-License-Identifier: Apache-2.0 */
/*
 * main.c: soak_log RUN FOLDER SEED MS [PLANT]: a log of values with faults, beside a model of what it should
 * hold.
 *
 *   kill    a child writes and is killed, again and again; each next one checks what it finds
 *   cut     the same in one process, over a simulated disk whose power fails
 *   faults  reads, writes and syncs fail or are cut short; then the log is opened again without
 *   flips   bits of the segments are turned, and turned back
 *
 * Prints one JSON object.
 */
#include "lib/log_model.h"

#include "base/clock.h"
#include "base/fault.h"
#include "base/hash.h"
#include "disk/simulated.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>

enum {
    MIB = 1 << 20,
    SEGMENTS = 24,
    STEPS_A_ROUND = 120,
    KILL_US_MAX = 30000,
    READY_MS_MAX = 60000,
    FLIPS_A_ROUND = 24,
    ROUNDS_A_DISK = 10,
    ROUNDS_MIN = 8,
};

struct order {
    const char *folder, *plant;
    uint64_t seed, end_ns;
};

static uint64_t dice(const struct order *o, uint64_t stream, uint64_t number)
{
    return pst_fault_dice(o->seed, stream, number);
}

/* However slow the machine, some rounds. */
static bool goes_on(const struct model *m, const struct order *o, uint64_t round)
{
    return m->table->violations == 0 && (round < ROUNDS_MIN || pst_now_ns() < o->end_ns);
}

static struct model model_of(const struct order *o, const char *driver)
{
    struct model m = {
        .table = mmap(NULL, sizeof(*m.table), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0),
        .folder = o->folder,
        .driver = driver,
        .segment_bytes = MIB,
        .segment_count = SEGMENTS,
        .seed = o->seed,
        .plant = o->plant};

    pst_assert(m.table != MAP_FAILED);
    model_init(&m);
    return m;
}

static int tell(const struct model *m, uint64_t checked)
{
    const struct model_table *t = m->table;

    if (t->violations > 0)
        printf("violation: %s\n", t->text);
    printf("{\"checked\": %llu, \"violations\": %llu, \"starts\": %llu, \"puts\": %llu, \"durable\": %llu, "
           "\"reads\": %llu, \"deletes\": %llu, \"flushes\": %llu, \"moved\": %llu, \"lost\": %llu, "
           "\"failed\": %llu, \"full\": %llu}\n",
           (unsigned long long)checked, (unsigned long long)t->violations, (unsigned long long)t->starts,
           (unsigned long long)t->puts, (unsigned long long)t->durable, (unsigned long long)t->reads,
           (unsigned long long)t->deletes, (unsigned long long)t->flushes, (unsigned long long)t->moved,
           (unsigned long long)t->lost, (unsigned long long)t->failed, (unsigned long long)t->full);
    return t->violations > 0;
}

/* ---- kill ---- */

static void child(struct model *m)
{
    model_open(m);
    __atomic_store_n(&m->table->ready, true, __ATOMIC_RELEASE);
    model_read_all(m);
    while (m->table->violations == 0)
        model_step(m);
    _exit(1);
}

/* Some die while they start. */
static void wait_and_kill(struct model *m, const struct order *o, pid_t pid, uint64_t round)
{
    uint64_t delay_us = dice(o, 2, round) % KILL_US_MAX;

    if (dice(o, 1, round) % 4 != 0) {
        for (int i = 0; i < READY_MS_MAX && !__atomic_load_n(&m->table->ready, __ATOMIC_ACQUIRE); i++)
            usleep(1000);
    }
    usleep((useconds_t)delay_us);
    kill(pid, SIGKILL);
}

static int run_kill(const struct order *o)
{
    static const char *const drivers[] = {"io_uring", "posix"};
    struct model m = model_of(o, NULL);
    uint64_t round = 0;

    for (; goes_on(&m, o, round); round++) {
        int status = 0;
        pid_t pid;

        m.table->ready = false;
        m.driver = drivers[round % 2];
        pid = fork();
        pst_assert(pid >= 0);
        if (pid == 0)
            child(&m);
        wait_and_kill(&m, o, pid, round);
        pst_assert(waitpid(pid, &status, 0) == pid);
        if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL)
            model_violation(&m, "a child ended with %#x", status);
        /* A value whose put was underway has no place in the table: it is later, or it is not. */
    }
    return tell(&m, round);
}

/* ---- cut ---- */

static int run_cut(const struct order *o)
{
    struct model m = model_of(o, "simulated:seed=1");
    uint64_t round = 0;

    for (; goes_on(&m, o, round); round++) {
        model_open(&m);
        model_read_all(&m);
        for (uint64_t i = dice(o, 1, round) % STEPS_A_ROUND; i > 0 && m.table->violations == 0; i--)
            model_step(&m);
        pst_simulated_cut(dice(o, 2, round));
        model_close(&m);
        pst_simulated_restore();
    }
    return tell(&m, round);
}

/* ---- faults ---- */

/* Segments that failed are never used again. */
static void new_disk(struct model *m)
{
    char command[600];

    snprintf(command, sizeof(command), "rm -rf '%s'", m->folder);
    pst_assert(system(command) == 0);
    memset(m->table->keys, 0, sizeof(m->table->keys));
}

static int run_faults(const struct order *o)
{
    struct model m = model_of(o, "io_uring");
    uint64_t round = 0;
    char text[256];

    m.failures_allowed = true;
    for (; goes_on(&m, o, round); round++) {
        model_open(&m);
        model_read_all(&m);
        snprintf(text, sizeof(text),
                 "disk_write_eio:per_million=%llu,disk_write_enospc:per_million=%llu,disk_sync_eio:per_"
                 "million=%llu,"
                 "disk_read_eio:per_million=3000,disk_short:per_million=50000,seed=%llu",
                 (unsigned long long)(dice(o, 1, round) % 3 * 8000),
                 (unsigned long long)(dice(o, 2, round) % 3 * 8000),
                 (unsigned long long)(dice(o, 3, round) % 3 * 10000), (unsigned long long)round);
        pst_assert(pst_faults_arm(text) == 0);
        for (int i = 0; i < STEPS_A_ROUND && m.table->violations == 0; i++)
            model_step(&m);
        pst_faults_arm("");
        model_flush(&m);
        model_read_all(&m);
        model_close(&m);
        if (round % ROUNDS_A_DISK == ROUNDS_A_DISK - 1)
            new_disk(&m);
    }
    return tell(&m, round);
}

/* ---- flips ---- */

struct flip {
    int fd;
    off_t at;
    uint8_t bit;
};

static void turn(struct flip f)
{
    uint8_t byte = 0;

    pst_assert(pread(f.fd, &byte, 1, f.at) == 1);
    byte ^= f.bit;
    pst_assert(pwrite(f.fd, &byte, 1, f.at) == 1);
}

static void turn_some(const struct order *o, uint64_t round, struct flip flips[FLIPS_A_ROUND])
{
    for (uint64_t i = 0; i < FLIPS_A_ROUND; i++) {
        uint64_t number = round * FLIPS_A_ROUND + i;
        char path[512];

        snprintf(path, sizeof(path), "%s/segment-%05u", o->folder, (unsigned)(dice(o, 1, number) % SEGMENTS));
        flips[i] = (struct flip){open(path, O_RDWR), (off_t)(dice(o, 2, number) % MIB),
                                 (uint8_t)(1u << dice(o, 3, number) % 8)};
        /* Heads and indexes are few among so many bytes. */
        if (dice(o, 4, number) % 4 == 0)
            flips[i].at = (off_t)(dice(o, 5, number) % 2 ? dice(o, 6, number) % 12288
                                                         : MIB - 1 - dice(o, 6, number) % 8192);
        pst_assert(flips[i].fd >= 0);
        turn(flips[i]);
    }
}

/* Each round opens the log and reads all there is; what it wrote of its own is written over. */
static int run_flips(const struct order *o)
{
    struct model m = model_of(o, "posix");
    struct model_table *before = malloc(sizeof(*before));
    char command[1200];
    uint64_t round = 0;

    pst_assert(before);
    model_open(&m);
    for (int i = 0; i < 8 * STEPS_A_ROUND; i++)
        model_step(&m);
    model_flush(&m);
    model_close(&m);
    memcpy(before, m.table, sizeof(*before));
    snprintf(command, sizeof(command), "rm -rf '%s.kept' && cp -a --sparse=always '%s' '%s.kept'", o->folder,
             o->folder, o->folder);
    pst_assert(system(command) == 0);
    m.losses_allowed = true;
    for (; goes_on(&m, o, round); round++) {
        struct flip flips[FLIPS_A_ROUND];

        turn_some(o, round, flips);
        model_open(&m);
        model_read_all(&m);
        model_close(&m);
        for (int i = 0; i < FLIPS_A_ROUND; i++)
            close(flips[i].fd);
        before->violations = m.table->violations;
        before->lost = m.table->lost;
        before->reads = m.table->reads;
        before->starts = m.table->starts;
        memcpy(before->text, m.table->text, sizeof(before->text));
        memcpy(m.table, before, sizeof(*before));
        m.table->rolls = round;
        snprintf(command, sizeof(command), "cp -a '%s.kept/.' '%s'", o->folder, o->folder);
        pst_assert(system(command) == 0);
    }
    free(before);
    return tell(&m, round * FLIPS_A_ROUND);
}

int main(int argc, char **argv)
{
    struct order o;

    if (argc < 5) {
        fprintf(stderr, "usage: soak_log kill|cut|faults|flips FOLDER SEED MS [PLANT]\n");
        return 2;
    }
    o = (struct order){.folder = argv[2],
                       .seed = strtoull(argv[3], NULL, 10),
                       .end_ns = pst_now_ns() + strtoull(argv[4], NULL, 10) * 1000000,
                       .plant = argc > 5 ? argv[5] : NULL};
    if (strcmp(argv[1], "kill") == 0)
        return run_kill(&o);
    if (strcmp(argv[1], "cut") == 0)
        return run_cut(&o);
    if (strcmp(argv[1], "faults") == 0)
        return run_faults(&o);
    return run_flips(&o);
}
