/* SPDX-License-Identifier: Apache-2.0 */
/*
 * main.c: soak_tier RUN FOLDER SEED MS PENSTOCKD FAULTY_PENSTOCKD [PLANT]: a store with an SSD and very
 * little memory, clients that write, overwrite, delete, flush and read, and beside them what they may find
 * (keeper.h).
 *
 *   kill    a node is killed at random moments, also while it starts, and begins anew on the same SSD; in
 * some of its lives the system cuts writes short, so that they are torn, and in some writes and syncs fail
 *   cut     an embedded store, and a simulated disk whose power fails: it forgets and reorders what was not
 * synced faults  reads, writes and syncs of a node fail; and, embedded, just the Nth of each kind flips bits
 * of what a node has on its SSD are turned while it runs, and anywhere while it does not
 *
 * Prints one JSON object.
 */
#include "runs.h"

#include "base/base.h"
#include "base/clock.h"
#include "base/fault.h"
#include "disk/simulated.h"

#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    KILLS_MAX = 1000,
    START_US_MAX = 100000, /* of those that are killed while they start */
    LIFE_US_MAX = 60000,
    READY_MS_MAX = 60000,
    EMBEDDED_TIMEOUT_MS = 1000,
    DISK_ROUNDS = 40, /* segments that failed are never used again */
    ROUNDS_MIN = 6,
};

/* However slow the machine, some rounds. */
bool goes_on(const struct order *o, const struct keeper *k, uint64_t round)
{
    return k->violations == 0 && (round < ROUNDS_MIN || pst_now_ns() < o->end_ns);
}

uint64_t dice(const struct order *o, uint64_t stream, uint64_t number)
{
    return pst_fault_dice(o->seed, stream, number);
}

void new_ssd(const char *folder)
{
    char command[600];

    snprintf(command, sizeof(command), "rm -rf '%s/ssd'", folder);
    pst_assert(system(command) == 0);
}

struct host host_of(const struct order *o)
{
    struct host h = {.shards = 2};

    snprintf(h.program, sizeof(h.program), "%s", o->penstockd);
    snprintf(h.folder, sizeof(h.folder), "%s", o->folder);
    return h;
}

/* Waits until all clients have found what they may. */
void await_settled(struct keeper *k, struct host *h)
{
    char said[200];
    int status;

    for (int i = 0; !keeper_settled(k) && k->violations == 0; i++) {
        if (h && !host_lives(h, &status)) {
            host_said(h, said, sizeof(said));
            keeper_violation(k, "the node ended with %#x: %s", (unsigned)status, said);
        } else if (i == READY_MS_MAX) {
            keeper_violation(k, "after %d ms not all is found", i);
        }
        usleep(1000);
    }
}

/* ---- kill ---- */

static const char *torn_or_failing(const struct order *o, uint64_t round, char text[200])
{
    uint64_t seed = dice(o, 3, round) % 100000;

    if (round % 3 == 0)
        return NULL;
    if (round % 3 == 1)
        snprintf(text, 200, "disk_short:per_million=300000,seed=%llu", (unsigned long long)seed);
    else
        snprintf(text, 200,
                 "disk_short:per_million=100000,disk_write_eio:per_million=500,"
                 "disk_write_enospc:per_million=500,disk_sync_eio:per_million=1000,seed=%llu",
                 (unsigned long long)seed);
    return text;
}

int run_kill(const struct order *o)
{
    struct host h = host_of(o);
    struct keeper k;
    char faults[200], told[100];
    uint64_t round = 0, begun_ns = pst_now_ns();
    int status;

    keeper_init(&k, o->seed, o->plant);
    snprintf(k.url, sizeof(k.url), "node+unix://%s/socket", o->folder);
    k.failures_allowed = true;
    keeper_crashed(&k);
    for (; goes_on(o, &k, round) && round < KILLS_MAX; round++) {
        bool starting = dice(o, 1, round) % 4 == 0;

        h.faults = torn_or_failing(o, round, faults);
        h.driver = dice(o, 4, round) % 2 ? "posix" : "io_uring";
        h.shards = 1 + (uint32_t)(dice(o, 5, round) % 3);
        snprintf(h.program, sizeof(h.program), "%s", h.faults ? o->faulty_penstockd : o->penstockd);
        host_start(&h);
        if (round % DISK_ROUNDS == 0)
            keeper_start(&k);
        if (!starting)
            await_settled(&k, &h);
        usleep((useconds_t)(dice(o, 2, round) % (starting ? START_US_MAX : LIFE_US_MAX)));
        if (h.pid == 0)
            break;
        if (round % DISK_ROUNDS == DISK_ROUNDS - 1)
            keeper_stop(&k);
        status = host_kill(&h);
        if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL)
            keeper_violation(&k, "the node ended with %#x before it was killed", (unsigned)status);
        keeper_crashed(&k);
        if (round % DISK_ROUNDS == DISK_ROUNDS - 1) {
            keeper_reset(&k);
            new_ssd(o->folder);
        }
    }
    if (round % DISK_ROUNDS != 0 || k.violations)
        keeper_stop(&k);
    snprintf(told, sizeof(told), "\"kills\": %llu, \"cycle_ms\": %llu, ", (unsigned long long)round,
             (unsigned long long)((pst_now_ns() - begun_ns) / 1000000 / pst_max(round, 1)));
    keeper_fini(&k);
    return keeper_tell(&k, round, told);
}

/* ---- cut ---- */

void embedded_url(const struct order *o, const char *driver, uint64_t shards, char url[700])
{
    snprintf(url, 700,
             "mem:?dram=4M&page_size=64K&shards=%llu&ssd=%s/ssd&ssd_bytes=48M&ssd_segment=1M&ssd_driver=%s",
             (unsigned long long)shards, o->folder, driver);
}

/* Return: whether the store is open. */
bool open_embedded(struct keeper *k, struct penstock **out)
{
    struct penstock_options options = {.size = sizeof(options), .timeout_ms = EMBEDDED_TIMEOUT_MS};
    int r = penstock_open(k->url, &options, out);

    if (r < 0)
        keeper_violation(k, "the store does not open: %s", penstock_error());
    return r == 0;
}

int run_cut(const struct order *o)
{
    struct keeper k;
    uint64_t round = 0;
    char told[100];

    keeper_init(&k, o->seed, o->plant);
    k.failures_allowed = true;
    for (; goes_on(o, &k, round); round++) {
        embedded_url(o, "simulated:seed=1", 1 + round % 3, k.url);
        if (!open_embedded(&k, &k.shared))
            break;
        keeper_crashed(&k);
        keeper_start(&k);
        await_settled(&k, NULL);
        usleep((useconds_t)(dice(o, 1, round) % LIFE_US_MAX));
        pst_simulated_cut(dice(o, 2, round));
        keeper_stop(&k);
        k.shared = penstock_close(k.shared);
        pst_simulated_restore();
        if (round % DISK_ROUNDS == DISK_ROUNDS - 1) { /* a cut fails segments, too */
            keeper_reset(&k);
            new_ssd(o->folder);
        }
    }
    snprintf(told, sizeof(told), "\"cuts\": %llu, ", (unsigned long long)round);
    keeper_fini(&k);
    return keeper_tell(&k, round, told);
}

int main(int argc, char **argv)
{
    struct order o;

    if (argc < 7) {
        fprintf(stderr,
                "usage: soak_tier kill|cut|faults|flips FOLDER SEED MS PENSTOCKD FAULTY_PENSTOCKD [PLANT]\n");
        return 2;
    }
    o = (struct order){.folder = argv[2],
                       .seed = strtoull(argv[3], NULL, 10),
                       .end_ns = pst_now_ns() + strtoull(argv[4], NULL, 10) * 1000000,
                       .penstockd = argv[5],
                       .faulty_penstockd = argv[6],
                       .plant = argc > 7 ? argv[7] : NULL};
    if (mkdir(o.folder, 0700) < 0 && errno != EEXIST) {
        perror(o.folder);
        return 2;
    }
    if (strcmp(argv[1], "kill") == 0)
        return run_kill(&o);
    if (strcmp(argv[1], "cut") == 0)
        return run_cut(&o);
    if (strcmp(argv[1], "faults") == 0)
        return run_faults(&o);
    return run_flips(&o);
}
