/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/disk_rig.h"

#include "lib/log_model.h"

#include "base/fault.h"
#include "disk/simulated.h"

#include <sys/mman.h>

enum { SEGMENTS = 24, STEPS = 150, ROUNDS = 8 };

static struct model set_up(char *driver)
{
    struct model m = {.table = calloc(1, sizeof(*m.table)),
                      .folder = rig_folder(),
                      .driver = rig_driver(driver),
                      .segment_bytes = 1 << 20,
                      .segment_count = SEGMENTS,
                      .seed = 11};

    assert_non_null(m.table);
    model_init(&m);
    return m;
}

static void tear_down(struct model *m)
{
    model_fini(m);
    free(m->table);
    rig_remove((char *)m->folder);
}

static void assert_right(const struct model *m)
{
    if (m->table->violations > 0)
        print_message("# %s\n", m->table->text);
    assert_int_equal(m->table->violations, 0);
}

static void live(struct model *m, int steps)
{
    model_open(m);
    model_read_all(m);
    for (int i = 0; i < steps && m->table->violations == 0; i++)
        model_step(m);
    model_read_all(m);
}

/* Values written, overwritten, deleted and moved, over starts with other numbers of lanes. */
static void what_lives_stays_and_what_is_dead_does_not_return(void **state)
{
    struct model m = set_up(*state);

    for (int round = 0; round < ROUNDS; round++) {
        live(&m, STEPS);
        model_close(&m);
    }
    assert_right(&m);
    assert_true(m.table->moved > 0 && m.table->durable > 0 && m.table->deletes > 0);
    assert_int_equal(m.table->full, 0);
    tear_down(&m);
}

static void power_cuts_lose_nothing_durable(void **state)
{
    struct model m = set_up(*state);

    for (int round = 0; round < 2 * ROUNDS; round++) {
        live(&m, STEPS / 2 + 5 * round);
        pst_simulated_cut((uint64_t)round);
        model_close(&m);
        pst_simulated_restore();
    }
    assert_right(&m);
    assert_true(m.table->moved > 0);
    tear_down(&m);
}

/* Now and then, and of a disk that all but ends. */
static void failures_lose_nothing_that_was_not_told(void **state)
{
    static const char *const faults[] = {
        "disk_write_eio:per_million=4000,disk_sync_eio:per_million=4000,"
        "disk_read_eio:per_million=3000,disk_short:per_million=100000,seed=4",
        "disk_write_eio:per_million=300000,disk_write_enospc:per_million=75000,"
        "disk_sync_eio:per_million=4000,disk_short:per_million=100000,seed=5"};
    struct model m = set_up(*state);

    m.failures_allowed = true;
    for (int round = 0; round < ROUNDS; round++) {
        assert_int_equal(pst_faults_arm(""), 0);
        model_open(&m);
        model_read_all(&m);
        assert_int_equal(pst_faults_arm(faults[round % 2]), 0);
        for (int i = 0; i < STEPS; i++)
            model_step(&m);
        assert_int_equal(pst_faults_arm(""), 0);
        model_flush(&m);
        model_close(&m);
    }
    assert_right(&m);
    assert_true(m.table->failed > 0);
    tear_down(&m);
}

/* The model would see a wrong byte, and something durable that is gone. */
static void the_model_sees_what_it_should(void **state)
{
    static const char *const plants[] = {"byte", "amnesia"};

    (void)state;
    for (size_t i = 0; i < pst_count_of(plants); i++) {
        struct model m = set_up("posix");

        m.plant = plants[i];
        for (int round = 0; round < 2; round++) {
            live(&m, STEPS);
            model_close(&m);
        }
        assert_true(m.table->violations > 0);
        tear_down(&m);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        OVER("io_uring", what_lives_stays_and_what_is_dead_does_not_return),
        OVER("posix", what_lives_stays_and_what_is_dead_does_not_return),
        OVER("simulated:seed=1", power_cuts_lose_nothing_durable),
        OVER("io_uring", failures_lose_nothing_that_was_not_told),
        cmocka_unit_test(the_model_sees_what_it_should),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
