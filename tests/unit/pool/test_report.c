/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/directory_rig.h"

#include "pool/report.h"

/* ---- a node that has some keys, and reports to a directory ---- */

enum { QUEUE = 20, MESSAGE = 16 };

struct reporter {
    struct rig *rig;
    struct pst_report *report;
    uint64_t keys[200];
    uint32_t key_count, at;
    bool empty;
    struct rig_node as;
};

/* Some portions are empty, as where a node has keys that nobody is told of. */
static uint32_t walk(void *ctx, bool again, struct pst_event *to, uint32_t room, bool *ended)
{
    struct reporter *r = ctx;
    uint32_t count = 0;

    if (again)
        r->at = 0;
    r->empty = !r->empty;
    for (; r->at < r->key_count && count < room && !r->empty; r->at++)
        to[count++] = rig_add(r->keys[r->at], 1);
    *ended = r->at == r->key_count;
    return count;
}

static struct reporter *reporter_open(uint32_t keys)
{
    struct reporter *r = calloc(1, sizeof(*r));
    struct pst_registered out;

    assert_non_null(r);
    r->rig = rig_open();
    for (; r->key_count < keys; r->key_count++)
        r->keys[r->key_count] = r->key_count;
    assert_int_equal(pst_report_open(QUEUE, MESSAGE, walk, r, &r->report), 0);
    assert_int_equal(rig_register(r->rig, 1, 1, 100, 0, &out), 0);
    rig_store(r->rig);
    r->as = (struct rig_node){out.member, out.epoch};
    pst_report_join(r->report, out.member, out.epoch);
    return r;
}

static void reporter_close(struct reporter *r)
{
    pst_report_close(r->report);
    rig_close(r->rig);
    free(r);
}

static const struct pst_heartbeat *next(struct reporter *r)
{
    const struct pst_tier_use tiers[PST_POOL_TIERS] = {{0}};
    uint64_t sent_ns;

    return pst_report_next(r->report, tiers, 0, &sent_ns);
}

/* One heartbeat is sent and answered. Return: what the directory said. */
static int beat(struct reporter *r)
{
    const struct pst_heartbeat *message = next(r);
    struct pst_heartbeat_answer answer = {.sequence_next = 0};
    int result = pst_directory_heartbeat(r->rig->d, message, r->rig->now_ns, &answer);

    assert_int_equal(pst_report_answered(r->report, message->sequence, result, &answer), 0);
    return result;
}

/* Beats until everything is told. Return: how many that took. */
static int settle(struct reporter *r)
{
    int beats = 0;

    do {
        (void)beat(r);
        assert_in_range(++beats, 1, 200);
    } while (pst_report_is_behind(r->report));
    return beats;
}

static uint32_t known(struct reporter *r)
{
    struct pst_directory_state state;

    while (pst_directory_tick(r->rig->d, r->rig->now_ns), pst_directory_unstored(r->rig->d))
        rig_store(r->rig);
    pst_directory_state(r->rig->d, r->rig->now_ns, &state);
    return (uint32_t)state.entries;
}

static void tell(struct reporter *r, uint64_t key, enum pst_event_kind kind)
{
    struct pst_event event = rig_add(key, 1);

    event.kind = (uint8_t)kind;
    pst_report_event(r->report, &event);
}

/* ---- cases ---- */

static void a_full_report_comes_piece_by_piece(void **state)
{
    struct reporter *r = reporter_open(50);

    (void)state;
    assert_int_equal(settle(r), 8);
    assert_int_equal(known(r), 50);
    tell(r, 3, PST_EVENT_DEL);
    tell(r, 1000, PST_EVENT_ADD);
    tell(r, 1001, PST_EVENT_ADD);
    assert_int_equal(settle(r), 1);
    assert_int_equal(known(r), 51);
    assert_int_equal(pst_directory_counters(r->rig->d)->syncs, 1);
    reporter_close(r);
}

static void events_go_on_while_the_report_does(void **state)
{
    struct reporter *r = reporter_open(100);
    int beats = 0;

    (void)state;
    do { /* half of every message is theirs */
        (void)beat(r);
        for (uint64_t i = 0; i < MESSAGE / 2; i++)
            tell(r, 1000 + i, i % 2 ? PST_EVENT_ADD : PST_EVENT_DEL);
        assert_in_range(++beats, 1, 50);
    } while (pst_directory_counters(r->rig->d)->syncs == 0 && beats < 49);
    assert_int_equal(pst_directory_counters(r->rig->d)->syncs, 1);
    (void)settle(r);
    assert_int_equal(known(r), 100 + MESSAGE / 4);
    reporter_close(r);
}

static void what_does_not_fit_is_reported_in_full(void **state)
{
    struct reporter *r = reporter_open(10);

    (void)state;
    (void)settle(r);
    for (uint64_t key = 0; key < QUEUE + 1; key++)
        tell(r, key, PST_EVENT_DEL);
    r->key_count = 2;
    r->keys[0] = 500;
    (void)settle(r);
    assert_int_equal(known(r), 2);
    assert_int_equal(pst_directory_counters(r->rig->d)->syncs, 2);
    reporter_close(r);
}

static void an_answer_that_is_lost_changes_nothing(void **state)
{
    struct reporter *r = reporter_open(5);
    struct pst_heartbeat_answer answer = {.sequence_next = 0};
    const struct pst_heartbeat *message;
    struct pst_event first;

    (void)state;
    (void)settle(r);
    tell(r, 700, PST_EVENT_ADD);
    message = next(r);
    first = message->events[0];
    assert_int_equal(pst_directory_heartbeat(r->rig->d, message, r->rig->now_ns, &answer), 0);
    tell(r, 701, PST_EVENT_ADD);
    message = next(r); /* the same once more */
    assert_int_equal(message->event_count, 1);
    assert_memory_equal(&message->events[0].key, &first.key, sizeof(first.key));
    assert_int_equal(pst_report_answered(r->report, message->sequence - 1, 0, &answer), -EAGAIN);
    assert_int_equal(beat(r), -EALREADY);
    (void)settle(r);
    assert_int_equal(known(r), 7);
    assert_int_equal(pst_directory_counters(r->rig->d)->syncs, 1);
    reporter_close(r);
}

/* The node does not know any more what it has said, the directory does. */
static void who_joins_twice_is_not_taken_for_the_past(void **state)
{
    struct reporter *r = reporter_open(5);

    (void)state;
    (void)settle(r);
    pst_report_close(r->report);
    assert_int_equal(pst_report_open(QUEUE, MESSAGE, walk, r, &r->report), 0);
    r->key_count = 3;
    for (int i = 0; i < 5; i++) /* as if heartbeats of before were on their way */
        (void)rig_beat(r->rig, r->as, i == 0 ? PST_HEARTBEAT_BEGIN : 0, NULL, 0, NULL);
    pst_report_join(r->report, r->as.member, r->as.epoch);
    assert_int_equal(beat(r), -EALREADY);
    (void)settle(r);
    assert_int_equal(known(r), 3);
    pst_report_join(r->report, r->as.member, r->as.epoch); /* told twice: goes on where it was */
    assert_int_equal(beat(r), 0);
    reporter_close(r);
}

static void another_directory_is_told_everything(void **state)
{
    struct reporter *r = reporter_open(40);

    (void)state;
    (void)settle(r);
    rig_restart(r->rig);
    assert_int_equal(beat(r), -EILSEQ);
    (void)settle(r);
    assert_int_equal(known(r), 40);
    rig_wait(r->rig, 60000, NULL, 0); /* by now it is no member any more */
    {
        const struct pst_heartbeat *message = next(r);
        struct pst_heartbeat_answer answer = {.sequence_next = 0};
        int result = pst_directory_heartbeat(r->rig->d, message, r->rig->now_ns, &answer);

        assert_int_equal(pst_report_answered(r->report, message->sequence, result, &answer), -ESTALE);
    }
    reporter_close(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_full_report_comes_piece_by_piece),
        cmocka_unit_test(events_go_on_while_the_report_does),
        cmocka_unit_test(what_does_not_fit_is_reported_in_full),
        cmocka_unit_test(an_answer_that_is_lost_changes_nothing),
        cmocka_unit_test(who_joins_twice_is_not_taken_for_the_past),
        cmocka_unit_test(another_directory_is_told_everything),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
