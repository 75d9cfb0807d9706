/* What a node of a pool may serve: closed without a view, open for what may lie anywhere, and for what has a
 * home as far as view and lease say, while one thread tells and others ask. */
#include "cm.h"

#include "base/clock.h"
#include "master/gate.h"
#include "wire/pool.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

enum { BUSY = 4, OURS = 3, OTHERS = 5, EPOCH = 9, KEYS = 2000 };

static struct pst_bytes key_of(const char *text)
{
    return (struct pst_bytes){text, strlen(text)};
}

static void place(struct pst_view *view, const char *prefix, enum pst_placement placement)
{
    struct pst_view_prefix *p = &view->prefixes[view->prefix_count++];

    *p = (struct pst_view_prefix){
        .placement = (uint8_t)placement, .replicas = 1, .bytes = (uint8_t)strlen(prefix)};
    memcpy(p->text, prefix, strlen(prefix));
}

/* Slots in turn: ours, another's, nobody's. */
static struct pst_view *a_view(bool homes, uint32_t turn)
{
    struct pst_view *view;

    assert_int_equal(pst_view_open(8, 77, &view), 0);
    view->version = 1 + turn;
    if (homes)
        place(view, "home/", PST_PLACE_HOME);
    view->members[OURS] = (struct pst_view_member){.epoch = EPOCH};
    view->members[OTHERS] = (struct pst_view_member){.epoch = EPOCH + 1};
    for (uint32_t i = 0; i < PST_SLOTS; i++) {
        uint32_t whose = (i + turn) % 3;

        view->slots[i] = (struct pst_view_slot){
            .epoch = 1, .state = whose == 2 ? PST_VIEW_INCOMPLETE : PST_VIEW_SERVED, .copy_count = 1};
        view->slots[i].copies[0] = whose == 0 ? OURS : OTHERS;
    }
    return view;
}

static void closed_without_a_view(void **state)
{
    struct pst_view *view = a_view(false, 0);
    struct pst_gate *gate;

    (void)state;
    assert_int_equal(pst_gate_open(&gate), 0);
    assert_int_equal(pst_gate_may_serve(gate, key_of("a")), BUSY);
    pst_gate_lease(gate, UINT64_MAX);
    assert_int_equal(pst_gate_may_serve(gate, key_of("a")), BUSY);
    assert_int_equal(pst_gate_view(gate, view, OURS, EPOCH), 0);
    assert_int_equal(pst_gate_may_serve(gate, key_of("a")), 0);
    assert_int_equal(pst_gate_may_serve(gate, key_of("home/a")), 0); /* this pool has no homes */
    pst_view_close(view);
    pst_gate_close(gate);
}

static int expected(const struct pst_view *view, const char *key, uint32_t turn)
{
    static const int results[] = {0, -ESTALE, PST_POOL_NO_PRIMARY};

    return results[(pst_view_slot_of(view, key_of(key)) + turn) % 3];
}

static void slots_have_a_home(void **state)
{
    struct pst_gate *gate;
    char key[32];

    (void)state;
    assert_int_equal(pst_gate_open(&gate), 0);
    for (uint32_t turn = 0; turn < 3; turn++) {
        struct pst_view *view = a_view(true, turn);

        assert_int_equal(pst_gate_view(gate, view, OURS, EPOCH), 0);
        for (uint32_t i = 0; i < KEYS; i++) {
            int wanted;

            snprintf(key, sizeof(key), "home/%u", i);
            wanted = expected(view, key, turn);
            pst_gate_lease(gate, 0);
            assert_int_equal(pst_gate_may_serve(gate, key_of(key)), wanted == 0 ? BUSY : wanted);
            pst_gate_lease(gate, pst_clock_read_ns(CLOCK_BOOTTIME)); /* over */
            assert_int_equal(pst_gate_may_serve(gate, key_of(key)), wanted == 0 ? BUSY : wanted);
            pst_gate_lease(gate, UINT64_MAX);
            assert_int_equal(pst_gate_may_serve(gate, key_of(key)), wanted);
            assert_int_equal(pst_gate_may_serve(gate, key_of(key + 5)), 0);
        }
        pst_view_close(view);
    }
    pst_gate_close(gate);
}

static void another_membership_has_nothing(void **state)
{
    struct pst_view *view = a_view(true, 0);
    struct pst_gate *gate;
    char key[32];

    (void)state;
    assert_int_equal(pst_gate_open(&gate), 0);
    assert_int_equal(pst_gate_view(gate, view, OURS, EPOCH + 5), 0);
    pst_gate_lease(gate, UINT64_MAX);
    for (uint32_t i = 0; i < KEYS; i++) {
        snprintf(key, sizeof(key), "home/%u", i);
        assert_int_not_equal(pst_gate_may_serve(gate, key_of(key)), 0);
    }
    pst_view_close(view);
    pst_gate_close(gate);
}

struct race {
    struct pst_gate *gate;
    atomic_bool stop;
    char key[32];
};

/* The slot is ours in every other view, and the lease ends before it is another's. */
static void *ask(void *arg)
{
    struct race *race = arg;

    while (!race->stop) {
        int r = pst_gate_may_serve(race->gate, key_of(race->key));

        assert_true(r == 0 || r == BUSY || r == -ESTALE || r == PST_POOL_NO_PRIMARY);
    }
    return NULL;
}

static void threads_ask_while_views_come(void **state)
{
    static struct race race = {.key = "home/race"};
    pthread_t threads[2];

    (void)state;
    assert_int_equal(pst_gate_open(&race.gate), 0);
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, ask, &race), 0);
    for (uint32_t turn = 0; turn < 200; turn++) {
        struct pst_view *view = a_view(turn % 10 != 0, turn); /* the prefixes change now and then */

        pst_gate_lease(race.gate, 0);
        assert_int_equal(pst_gate_view(race.gate, view, OURS, EPOCH), 0);
        pst_gate_lease(race.gate, UINT64_MAX);
        assert_int_equal(pst_gate_may_serve(race.gate, key_of(race.key)),
                         turn % 10 ? expected(view, race.key, turn) : 0);
        pst_view_close(view);
    }
    race.stop = true;
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    pst_gate_close(race.gate);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(closed_without_a_view),
        cmocka_unit_test(slots_have_a_home),
        cmocka_unit_test(another_membership_has_nothing),
        cmocka_unit_test(threads_ask_while_views_come),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
