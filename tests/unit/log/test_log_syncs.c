/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/log_rig.h"

#include "base/clock.h"
#include "base/fault.h"
#include "disk/simulated.h"

/*
 * Durable values, newer ones that are not, deletes and flushes that overlap each other and the syncs, of
 * which some fail; then the power is cut. What was told to be there is, and what a flush told to be gone is.
 */

enum { FLUSHES = 3, SEEDS = 400, STEPS = 100, KEYS = VALUES, BYTES = 600 };

enum state { NEVER, COMES, THERE, FAILED, DELETED, GONE };

struct flow {
    struct rig rig;
    uint64_t seed, rolls;
    struct kept kept[KEYS];
    struct pst_log_append appends[KEYS], newer[KEYS];
    bool renewing[KEYS];
    struct iovec iov;
    enum state states[KEYS];
    uint32_t begun;
    struct flushing {
        struct pst_log_sync sync;
        bool underway;
        enum state states[KEYS]; /* when it began */
    } flushes[FLUSHES];
    uint32_t acknowledged, renewed, flushed, failed;
    bool over, cut;
};

static uint64_t roll(struct flow *f, uint64_t below)
{
    return pst_fault_dice(f->seed, 9, f->rolls++) % below;
}

/* The older one goes when the newer is durable. */
static void take_renewed(struct flow *f, struct pst_log_append *a)
{
    uint32_t i = (uint32_t)(a - f->newer);
    struct pst_log_value older = value_of(&f->kept[i], BYTES);

    assert_true(f->renewing[i] && f->states[i] == THERE);
    f->renewing[i] = false;
    if (a->op.result < 0)
        return;
    assert_int_equal(pst_log_delete_after(f->rig.lane, &older, f->kept[i].place, a->op.ticket), 0);
    f->kept[i].generation = a->value.generation;
    f->kept[i].place = a->place;
    f->renewed++;
}

static void take_ended(struct flow *f, struct pst_log_op *op)
{
    bool good = op->result == 0 && !f->cut;

    if (op->verb == PST_LOG_SYNC) {
        struct flushing *flushing = pst_container_of(op, struct flushing, sync.op);

        for (uint32_t i = 0; good && i < f->begun; i++)
            f->states[i] = flushing->states[i] == DELETED ? GONE : f->states[i];
        flushing->underway = false;
        f->flushed += good;
        f->over = good && f->failed > 0 && roll(f, 2); /* what it told is all that is known */
    } else if (op >= &f->newer[0].op && op <= &f->newer[KEYS - 1].op) {
        take_renewed(f, pst_container_of(op, struct pst_log_append, op));
    } else {
        struct pst_log_append *a = pst_container_of(op, struct pst_log_append, op);
        uint32_t i = (uint32_t)(a - f->appends);

        assert_true(i < f->begun && f->states[i] == COMES);
        f->kept[i].place = a->place;
        f->states[i] = good ? THERE : FAILED;
        f->over = good && f->failed > 0 && roll(f, 4) == 0;
        f->acknowledged += good;
    }
    f->failed += op->result < 0 && !f->cut;
}

static void poll_once(struct flow *f)
{
    /* As little as there may be, or much at once. */
    const struct pst_turn turn = roll(f, 2) ? pst_turn_begin(pst_now_ns, 0) : pst_turn_endless();
    struct pst_list done;

    pst_list_init(&done);
    pst_lane_poll(f->rig.lane, &turn, &done);
    while (!pst_list_empty(&done)) {
        struct pst_log_op *op = pst_list_first(&done, struct pst_log_op, link);

        pst_list_remove(&op->link);
        take_ended(f, op);
    }
}

static void begin_append(struct flow *f)
{
    struct kept *k = &f->kept[f->begun];
    struct pst_log_append *a = &f->appends[f->begun];

    k->generation = 1000 + f->begun;
    *a =
        (struct pst_log_append){.value = value_of(k, BYTES), .iov = &f->iov, .iov_count = 1, .durable = true};
    if (pst_log_append(f->rig.lane, a) == 0)
        f->states[f->begun++] = COMES;
}

static void renew_some(struct flow *f)
{
    for (uint32_t i = 0; i < f->begun; i++) {
        struct kept newer = f->kept[i];
        struct pst_log_append *a = &f->newer[i];

        if (f->states[i] != THERE || f->renewing[i] || roll(f, 2) == 0)
            continue;
        newer.generation += KEYS;
        *a = (struct pst_log_append){.value = value_of(&newer, BYTES), .iov = &f->iov, .iov_count = 1};
        a->value.key.data = f->kept[i].key;
        f->renewing[i] = pst_log_append(f->rig.lane, a) == 0;
    }
}

static void delete_some(struct flow *f)
{
    for (uint32_t i = 0; i < f->begun; i++) {
        struct pst_log_value value = value_of(&f->kept[i], BYTES);

        if (f->states[i] != THERE || f->renewing[i])
            continue;
        assert_int_equal(pst_log_delete(f->rig.lane, &value, f->kept[i].place), 0);
        f->states[i] = DELETED;
    }
}

static void begin_flush(struct flow *f)
{
    for (uint32_t i = 0; i < FLUSHES; i++) {
        struct flushing *flushing = &f->flushes[i];

        if (flushing->underway)
            continue;
        memcpy(flushing->states, f->states, sizeof(f->states));
        flushing->underway = true;
        flushing->sync = (struct pst_log_sync){.op = {.verb = 0}};
        pst_log_sync(f->rig.lane, &flushing->sync);
        return;
    }
}

static void step(struct flow *f)
{
    switch (roll(f, 9)) {
    case 0:
    case 1:
        if (f->begun < 2 + f->seed % 16)
            begin_append(f);
        return;
    case 2:
        delete_some(f);
        return;
    case 3:
        begin_flush(f);
        return;
    case 4:
        renew_some(f);
        return;
    default:
        poll_once(f);
    }
}

static void check(struct flow *f)
{
    struct pst_log_scan *scan;
    struct pst_log_found found;
    bool there[KEYS] = {false};
    int r;

    assert_int_equal(pst_log_scan_open(f->rig.log, &scan), 0);
    while ((r = pst_log_scan_next(scan, &found)) == 1) {
        int i = atoi((const char *)found.value.key.data + 4);

        assert_in_range(i, 0, KEYS - 1);
        there[i] = true;
        pst_log_adopt(f->rig.log, &found);
    }
    assert_int_equal(r, 0);
    pst_log_scan_close(scan, NULL);
    for (uint32_t i = 0; i < f->begun; i++) {
        if (f->states[i] == THERE ? !there[i] : f->states[i] == GONE && there[i])
            fail_msg("seed %u: key %u is%s there", (unsigned)f->seed, i, there[i] ? "" : " not");
    }
}

static void what_was_told_outlives_syncs_that_fail(void **state)
{
    static struct flow f;
    uint32_t acknowledged = 0, renewed = 0, flushed = 0, failed = 0;
    char name[64], faults[64];

    driver = name;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        f = (struct flow){.seed = seed};
        snprintf(name, sizeof(name), "%s:seed=%u", (const char *)*state, (unsigned)seed);
        snprintf(faults, sizeof(faults), "disk_sync_eio:per_million=300000,seed=%u", (unsigned)seed);
        set_up(&f.rig);
        name_all(f.kept);
        f.iov = (struct iovec){f.rig.memory, BYTES};
        pst_faults_arm(faults);
        for (int i = 0; i < STEPS && !f.over; i++)
            step(&f);
        pst_faults_arm("");
        f.cut = true;
        pst_simulated_cut(seed);
        while (!pst_lane_idle(f.rig.lane))
            poll_once(&f);
        f.rig.log = pst_log_close(f.rig.log);
        pst_simulated_restore();
        open_log(&f.rig);
        check(&f);
        acknowledged += f.acknowledged;
        renewed += f.renewed;
        flushed += f.flushed;
        failed += f.failed;
        tear_down(&f.rig);
    }
    print_message("# %u durable, %u renewed, %u flushed, %u failed\n", acknowledged, renewed, flushed,
                  failed);
    assert_true(acknowledged > SEEDS && renewed > SEEDS && flushed > SEEDS && failed > SEEDS / 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {OVER("simulated", what_was_told_outlives_syncs_that_fail)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
