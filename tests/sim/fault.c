/* SPDX-License-Identifier: Apache-2.0 */
/* fault.c: what goes wrong, and when. A gentle run loses one node at a time, and only when all partitions
 * have their copies. */
#include "sim.h"

enum { BACK_MS_MAX = 400 }; /* a clock that is put back makes a lease longer: less than the margin */

static uint64_t for_a_while(struct sim *s)
{
    return s->now_ns + (draw(s, 3) ? draw(s, 3000) : draw(s, 20000)) * MS;
}

static void jump(struct sim *s, struct node *n)
{
    uint64_t now_ns = node_now(s, n);

    if (draw(s, 2)) {
        now_ns += draw(s, 20000) * MS;
    } else if (s->now_ns >= n->jumped_back_ns + 5000 * MS) {
        now_ns -= draw(s, BACK_MS_MAX) * MS;
        n->jumped_back_ns = s->now_ns;
    }
    n->clock_ns = now_ns;
    n->clock_at_ns = s->now_ns;
    s->counts.jumps++;
}

static void crash(struct sim *s, int number)
{
    struct node *n = &s->nodes[number];

    node_crash(s, number, s->gentle ? (enum left)draw(s, 2) : (enum left)draw(s, 3));
    n->restart_ns = for_a_while(s);
    s->counts.crashes++;
}

/* Of all nodes at once, and their disks stay, but now and then one does not. */
static void fail_power(struct sim *s)
{
    uint32_t lucky = (uint32_t)draw(s, 4);

    for (uint32_t i = 0; i < s->node_count; i++) {
        if (!s->nodes[i].up)
            continue;
        node_crash(s, (int)i, lucky || draw(s, 4) ? LEFT_DISK : LEFT_NOTHING);
        s->nodes[i].restart_ns = for_a_while(s);
    }
    s->counts.power_failures++;
}

static void lose_node(struct sim *s)
{
    int number = (int)draw(s, s->node_count);
    struct node *n = &s->nodes[number];
    uint64_t dice = draw(s, 10);

    if (!n->up || (s->gentle && !healthy(s)))
        return;
    if (dice == 0 && n->epoch && number % 2) {
        node_end(s, number);
        n->restart_ns = for_a_while(s);
        s->counts.ends++;
    } else if (dice == 0 && n->epoch) {
        node_leave(s, number);
        s->counts.leaves++;
    } else if (dice < 4) {
        crash(s, number);
    } else if (dice < 6) {
        n->frozen_until_ns = for_a_while(s);
        note(s, "node %d freezes until %.3f", number, (double)n->frozen_until_ns / 1e9);
        s->counts.freezes++;
    } else {
        uint64_t until_ns = for_a_while(s);

        if (dice < 9)
            n->cut_until_ns = until_ns;
        if (dice > 7)
            n->peer_cut_until_ns = until_ns;
        note(s, "node %d is cut off until %.3f", number, (double)until_ns / 1e9);
        s->counts.cuts++;
    }
}

/* As whoever runs the pool says. */
static void drain(struct sim *s, uint32_t number, bool drains)
{
    const struct pst_map_member *member =
        s->current && s->nodes[number].epoch ? &s->current->map->members[s->nodes[number].member] : NULL;
    uint64_t version;

    if (!s->directory || !member || !member->epoch || member->drains == drains ||
        node_of_member(s, s->current->map, s->nodes[number].member) != (int)number)
        return;
    note(s, "node %u %s", number, drains ? "is to drain" : "drains no more");
    s->counts.drains += pst_directory_drain(s->directory, &member->id, drains, &version) == 0 && drains;
}

/* Of those with a share of the directory, one. */
static void lose_share(struct sim *s)
{
    uint32_t number = 1 + (uint32_t)draw(s, s->share_count - 1);
    struct share *share = &s->shares[number];

    if (!share->up)
        return;
    if (draw(s, 3) > 0) {
        share_crash(s, number);
        share->restart_ns = for_a_while(s);
        s->counts.shares_lost++;
        return;
    }
    share->frozen_until_ns = for_a_while(s);
    note(s, "who has share %u freezes until %.3f", number, (double)share->frozen_until_ns / 1e9);
    s->counts.freezes++;
}

static void go_wrong(struct sim *s)
{
    uint64_t dice = draw(s, 20);

    if (s->share_count > 1 && draw(s, 5) == 0) {
        lose_share(s);
        return;
    }
    if (dice == 0 && draw(s, 3) == 0) {
        s->master_frozen_until_ns = for_a_while(s);
        note(s, "master freezes until %.3f", (double)s->master_frozen_until_ns / 1e9);
        s->counts.freezes++;
    } else if (dice == 0 && s->directory) {
        master_crash(s);
        timer(s, MASTER, s->master_session, draw(s, 8000) * MS + MS);
        s->counts.master_crashes++;
    } else if (dice == 1 && !s->gentle && draw(s, 2) == 0) {
        fail_power(s);
    } else if (dice < 6) {
        struct node *n = &s->nodes[draw(s, s->node_count)];

        if (n->up)
            jump(s, n);
    } else if (dice < 9) {
        drain(s, (uint32_t)draw(s, s->node_count), draw(s, 2));
    } else {
        lose_node(s);
    }
}

void faults_step(struct sim *s)
{
    bool quiet = s->now_ns >= s->quiet_ns;

    for (uint32_t i = 0; i < s->node_count; i++) {
        struct node *n = &s->nodes[i];

        if (quiet) {
            n->cut_until_ns = n->peer_cut_until_ns = 0;
            drain(s, i, false);
        }
        if (!n->up && (quiet || s->now_ns >= n->restart_ns))
            node_start(s, (int)i);
        if (!n->epoch || s->now_ns < pst_max(n->cut_until_ns, n->frozen_until_ns))
            n->unsteady_ns = s->now_ns;
    }
    for (uint32_t i = 1; i < s->share_count; i++) {
        if (!s->shares[i].up && (quiet || s->now_ns >= s->shares[i].restart_ns))
            share_start(s, i);
    }
    if (quiet || s->now_ns < s->fault_ns)
        return;
    if (s->fault_ns > 0)
        go_wrong(s);
    s->fault_ns = s->now_ns + draw(s, 3000 * MS / (1 + s->node_count / 20)) + (s->fault_ns ? 0 : 8000 * MS);
}
