/* SPDX-License-Identifier: Apache-2.0 */
/* disk_errors.c: the run `faults`: what a disk that fails may not do to a node, or to an embedded store. */
#include "runs.h"

#include "base/base.h"
#include "base/fault.h"

#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    NODE_LIFE_US = 150000,
    EMBEDDED_LIFE_US = 20000,
    NTH_MAX = 64,
};

static const struct {
    const char *name;
    enum pst_fault fault;
    bool heals; /* what is carried on with is no failure */
} kinds[] = {
    {"disk_write_eio", PST_FAULT_disk_write_eio, false},
    {"disk_write_enospc", PST_FAULT_disk_write_enospc, false},
    {"disk_sync_eio", PST_FAULT_disk_sync_eio, false},
    {"disk_read_eio", PST_FAULT_disk_read_eio, false},
    {"disk_short", PST_FAULT_disk_short, true},
};

/* A node on a disk of which some operations fail goes on, and ends in order; the next one finds what it may.
 */
static void node_round(const struct order *o, struct keeper *k, uint64_t round)
{
    struct host h = host_of(o);
    char text[300], said[200];
    int status;

    snprintf(text, sizeof(text),
             "disk_write_eio:per_million=%u,disk_write_enospc:per_million=%u,disk_sync_eio:per_million=%u,"
             "disk_read_eio:per_million=%u,disk_short:per_million=50000,seed=%u",
             (unsigned)(dice(o, 1, round) % 3 * 4000), (unsigned)(dice(o, 2, round) % 3 * 4000),
             (unsigned)(dice(o, 3, round) % 3 * 5000), (unsigned)(dice(o, 4, round) % 3 * 10000),
             (unsigned)(dice(o, 5, round) % 100000));
    snprintf(h.program, sizeof(h.program), "%s", o->faulty_penstockd);
    for (int life = 0; life < 2 && k->violations == 0; life++) {
        h.faults = life == 0 ? text : NULL;
        host_start(&h);
        if (life == 0)
            keeper_start(k);
        else
            await_settled(k, &h);
        usleep(NODE_LIFE_US);
        if (life == 1)
            keeper_stop(k);
        status = h.pid ? host_stop(&h) : 0;
        host_said(&h, said, sizeof(said));
        /* On a busy machine it may not have come as far as to look at signals. */
        if (status == -1 || (WIFSIGNALED(status) && (WTERMSIG(status) != SIGTERM || *said)))
            keeper_violation(k, "the node on a bad disk ended with %#x: %s", (unsigned)status, said);
        keeper_crashed(k);
    }
}

/* Just the Nth operation of a kind fails. Return: how many did. */
static uint64_t embedded_round(const struct order *o, struct keeper *k, uint32_t kind, uint64_t nth)
{
    struct penstock_stat stat = {.size = sizeof(stat)};
    uint64_t hits = 0;
    char text[100];

    embedded_url(o, nth % 2 ? "io_uring" : "posix", 1 + nth % 2, k->url);
    for (int life = 0; life < 2 && k->violations == 0; life++) {
        if (!open_embedded(k, &k->shared))
            return 0;
        snprintf(text, sizeof(text), "%s:nth=%llu", kinds[kind].name, (unsigned long long)nth);
        pst_assert(pst_faults_arm(life == 0 ? text : "") == 0);
        keeper_start(k);
        if (life == 0)
            usleep(EMBEDDED_LIFE_US);
        else
            await_settled(k, NULL);
        keeper_stop(k);
        hits += pst_fault_hits(kinds[kind].fault);
        if (penstock_stat(k->shared, &stat) != 0)
            keeper_violation(k, "stat: %s", penstock_error());
        if (life == 0 && !kinds[kind].heals && hits > 0 && stat.ssd_errors == 0)
            keeper_violation(k, "%s is not counted", text);
        k->shared = penstock_close(k->shared);
        pst_faults_arm("");
        keeper_crashed(k);
    }
    return hits;
}

int run_faults(const struct order *o)
{
    struct keeper k;
    uint64_t round = 0, nth = 0, hits = 0;
    char told[100];

    keeper_init(&k, o->seed, o->plant);
    k.failures_allowed = true;
    for (; goes_on(o, &k, round); round++) {
        uint32_t kind = (uint32_t)(round % (pst_count_of(kinds) + 1));

        if (kind == pst_count_of(kinds)) {
            snprintf(k.url, sizeof(k.url), "node+unix://%s/socket", o->folder);
            node_round(o, &k, round);
        } else {
            nth += kind == 0;
            hits += embedded_round(o, &k, kind, 1 + nth % NTH_MAX);
        }
        if (kind == pst_count_of(kinds)) { /* segments that failed are never used again */
            keeper_reset(&k);
            new_ssd(o->folder);
        }
    }
    snprintf(told, sizeof(told), "\"faults\": %llu, ", (unsigned long long)hits);
    keeper_fini(&k);
    return keeper_tell(&k, round, told);
}
