/* SPDX-License-Identifier: Apache-2.0 */
/* test_tier.c: an embedded store with an SSD whose disk fails or takes its time. On the build with fault
 * points. */
#include "lib/disk_rig.h"

#include "base/fault.h"

#include <penstock/penstock.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#define MIB (1ull << 20)

enum { BYTES = 200000, KEYS = 60, ROUNDS_MAX = 400 };

static char *folder;

static int try_open(const char *driver, uint32_t shards, struct penstock **store)
{
    struct penstock_options options = {.size = sizeof(options), .timeout_ms = 20000};
    char url[300];

    snprintf(url, sizeof(url),
             "mem:?dram=8M&page_size=64K&shards=%u&ssd=%s&ssd_bytes=48M&ssd_segment=2M&ssd_driver=%s", shards,
             folder, driver);
    return penstock_open(url, &options, store);
}

static struct penstock *open_shards(const char *driver, uint32_t shards)
{
    struct penstock *store;

    if (try_open(driver, shards, &store) != 0)
        fail_msg("%s", penstock_error());
    return store;
}

static struct penstock *open_store(const char *driver)
{
    return open_shards(driver, 1);
}

static int set_up(void **state)
{
    (void)state;
    folder = rig_folder();
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    pst_faults_arm("");
    rig_remove(folder);
    return 0;
}

static int put(struct penstock *store, int i, uint64_t bytes, uint8_t seed, bool durable)
{
    uint8_t *value = malloc(bytes);
    struct penstock_op op = {0};
    char key[16];

    assert_non_null(value);
    memset(value, seed, bytes);
    snprintf(key, sizeof(key), "k/%d", i);
    penstock_prep_put(&op, key, strlen(key), value, bytes);
    op.flags = durable ? PENSTOCK_DURABLE : 0;
    penstock_batch(store, &op, 1);
    free(value);
    return op.result;
}

/* Fails when what is there is something else. Return: the result. */
static int get(struct penstock *store, int i, uint64_t bytes, uint8_t seed)
{
    uint8_t *value = malloc(bytes);
    struct penstock_op op = {0};
    char key[16];

    assert_non_null(value);
    snprintf(key, sizeof(key), "k/%d", i);
    penstock_prep_get(&op, key, strlen(key), value, bytes);
    penstock_batch(store, &op, 1);
    for (uint64_t at = 0; op.result == 0 && at < bytes; at++)
        assert_int_equal(value[at], seed);
    free(value);
    return op.result;
}

static struct penstock_stat stat_of(struct penstock *store)
{
    struct penstock_stat stat = {.size = sizeof(stat)};

    assert_int_equal(penstock_stat(store, &stat), 0);
    return stat;
}

static void put_all(struct penstock *store)
{
    for (int i = 0; i < KEYS; i++)
        assert_int_equal(put(store, i, BYTES, (uint8_t)i, false), 0);
}

static void get_all(struct penstock *store)
{
    for (int i = 0; i < KEYS; i++)
        assert_int_equal(get(store, i, BYTES, (uint8_t)i), 0);
}

static void a_read_fails(void **state)
{
    struct penstock *store = open_store("posix");
    int failed = 0;

    (void)state;
    put_all(store);
    assert_int_equal(pst_faults_arm("disk_read_eio:per_million=1000000"), 0);
    for (int i = 0; i < KEYS; i++) {
        int r = get(store, i, BYTES, (uint8_t)i);

        assert_true(r == 0 || r == -EIO);
        failed += r == -EIO;
    }
    assert_true(failed > 0);
    assert_true(stat_of(store).ssd_errors >= (uint64_t)failed);
    pst_faults_arm("");
    assert_int_equal(stat_of(store).keys, KEYS);
    get_all(store);
    penstock_close(store);
}

/* A value came from a node whose clock was ahead, and a crash before the marker said so. */
static void generations_pass_what_is_found(void **state)
{
    char number[32];

    (void)state;
    penstock_close(open_store("posix"));
    snprintf(number, sizeof(number), "%llu", (unsigned long long)(time(NULL) + 86400) * 1000000000);
    rig_mark(folder, "generation ", number);
    for (uint8_t seed = 1; seed <= 2; seed++) {
        struct penstock *store = open_store("posix");

        assert_int_equal(put(store, 0, BYTES, seed, true), 0);
        penstock_close(store);
        rig_mark(folder, "generation ", "1");
        store = open_store("posix");
        assert_int_equal(get(store, 0, BYTES, seed), 0);
        penstock_close(store);
        rig_mark(folder, "generation ", "1");
    }
}

static void a_demotion_fails(void **state)
{
    static const char *const faults[] = {"disk_write_eio:nth=2", "disk_write_enospc:nth=2"};
    struct penstock *store = open_store("posix");

    (void)state;
    for (int n = 0; n < 2; n++) {
        assert_int_equal(pst_faults_arm(faults[n]), 0);
        put_all(store);
        get_all(store);
        assert_int_equal(stat_of(store).keys, KEYS);
        assert_true(stat_of(store).ssd_errors > (uint64_t)n);
    }
    pst_faults_arm("");
    put_all(store);
    get_all(store);
    penstock_close(store);
}

/* Every write fails from some time on: the memory is what there is, and says when it is full. */
static void no_write_succeeds(void **state)
{
    struct penstock *store = open_store("posix");
    int stored = 0, r = 0;

    (void)state;
    assert_int_equal(pst_faults_arm("disk_write_eio:per_million=1000000"), 0);
    for (; r == 0 && stored < KEYS; stored++)
        r = put(store, stored, BYTES, (uint8_t)stored, false);
    assert_true(r == -ENOSPC || r == PENSTOCK_BUSY);
    assert_true(stored > 20);
    for (int i = 0; i < stored - 1; i++)
        assert_int_equal(get(store, i, BYTES, (uint8_t)i), 0);
    assert_true(put(store, 0, 5000, 1, true) < 0);
    assert_true(stat_of(store).ssd_errors > 0);
    penstock_close(store);
}

/* A value that reclaim cannot read stays where it is, and its segment with it. */
static void a_move_fails(void **state)
{
    struct penstock *store = open_store("posix");
    uint64_t failed = 0;

    (void)state;
    for (int i = 0; i < 10; i++) {
        assert_int_equal(put(store, 1000 + i, BYTES, 77, true), 0);
        for (int dead = 0; dead < 9; dead++) /* the rest of its segment */
            assert_int_equal(put(store, 2000, BYTES, 1, true), 0);
    }
    put_all(store);
    get_all(store);                       /* the first ones are on SSD alone by now */
    for (int nth = 1; nth <= 10; nth++) { /* a segment's index, or a value there */
        char text[40];

        snprintf(text, sizeof(text), "disk_read_eio:nth=%d", nth);
        assert_int_equal(pst_faults_arm(text), 0);
        for (int round = 0; round < ROUNDS_MAX && pst_fault_hits(PST_FAULT_disk_read_eio) == 0; round++) {
            for (int i = 2000; i < 2008; i++)
                put(store, i, BYTES, (uint8_t)i, true); /* of one value only the last is alive */
        }
        failed += pst_fault_hits(PST_FAULT_disk_read_eio);
    }
    pst_faults_arm("");
    assert_true(failed > 2);
    for (int i = 0; i < ROUNDS_MAX && stat_of(store).ssd_errors < failed; i++) /* the last may be underway */
        usleep(5000);
    assert_true(stat_of(store).ssd_errors >= failed);
    for (int i = 0; i < 10; i++)
        assert_int_equal(get(store, 1000 + i, BYTES, 77), 0);
    get_all(store);
    penstock_close(store);
}

/* What is deleted while it is on its way down is not there after a restart. */
static void deleted_on_its_way(void **state)
{
    struct penstock *store = open_store("simulated:seed=3");
    uint64_t deleted;

    (void)state;
    for (int round = 0; round < 5; round++) {
        put_all(store);
        assert_int_equal(penstock_delete_prefix(store, "k/", 2, &deleted), 0);
        assert_int_equal(deleted, KEYS);
    }
    assert_true(stat_of(store).ssd_appended_bytes > 0);
    assert_int_equal(penstock_flush(store), 0);
    penstock_close(store);
    store = open_store("simulated:seed=4");
    assert_int_equal(stat_of(store).keys, 0);
    penstock_close(store);
}

/* A flush does not say that all is well because what failed once is not tried again. */
static void a_sync_fails(void **state)
{
    struct penstock *store = open_store("posix");
    int r = 0;

    (void)state;
    put_all(store);
    assert_int_equal(pst_faults_arm("disk_sync_eio:per_million=1000000"), 0);
    assert_int_equal(penstock_flush(store), -EIO);
    pst_faults_arm("");
    for (int i = 0; i < ROUNDS_MAX && (r = penstock_flush(store)) == -EIO; i++)
        usleep(5000);
    assert_true(stat_of(store).ssd_errors > 0);
    assert_int_equal(r, 0);
    assert_true(stat_of(store).ssd_moved_bytes > 0); /* away from there */
    penstock_close(store);
    store = open_store("posix");
    get_all(store);
    penstock_close(store);
}

/* A value whose durable write failed can be written elsewhere, and is found there. */
static void a_durable_write_is_tried_again(void **state)
{
    struct penstock *store = open_store("posix");

    (void)state;
    assert_int_equal(put(store, 1, 5000, 1, true), 0);
    assert_int_equal(pst_faults_arm("disk_sync_eio:nth=1"), 0);
    assert_int_equal(put(store, 2, 5000, 2, true), -EIO);
    pst_faults_arm("");
    penstock_close(store); /* flushes */
    store = open_store("posix");
    assert_int_equal(get(store, 1, 5000, 1), 0);
    assert_int_equal(get(store, 2, 5000, 2), 0);
    penstock_close(store);
}

/* Of several shards one finds the log full and has nothing to take back itself, while another has, or has
 * just done so: that is room, until all of it is alive. */
static void a_full_log_is_full_for_all(void **state)
{
    enum { LARGE = 400000, LAPS = 9, MORE = 60 };
    struct penstock *store = open_shards("posix", 4);
    uint32_t random = 1;
    int r = 0;

    (void)state;
    for (int i = 0; i < KEYS * LAPS; i++) {
        random = random * 1664525 + 1013904223;
        assert_int_equal(put(store, i < KEYS ? i : (int)((random >> 8) % KEYS), LARGE, 1, false), 0);
    }
    for (int i = 0; i < MORE && r == 0; i++)
        r = put(store, KEYS + i, LARGE, 1, false);
    assert_int_equal(r, -ENOSPC);
    penstock_close(store);
}

/* Whatever fails while it opens is told with the folder's name, and the next one opens what was there. */
static void an_opening_fails(void **state)
{
    static const struct {
        const char *name;
        int result;
    } faults[] = {{"disk_open_eio", -EIO}, {"disk_room_enospc", -ENOSPC}, {"log_marker_eio", -EIO}};
    struct penstock *store;
    char text[64];

    (void)state;
    for (size_t i = 0; i < pst_count_of(faults); i++) {
        for (int nth = 1; nth < 24; nth *= 3) {
            snprintf(text, sizeof(text), "%s:nth=%d", faults[i].name, nth);
            assert_int_equal(pst_faults_arm(text), 0);
            if (strcmp(faults[i].name, "log_marker_eio") == 0 && nth > 1)
                break;
            assert_int_equal(try_open("posix", 1, &store), faults[i].result);
            assert_non_null(strstr(penstock_error(), folder));
            pst_faults_arm("");
            store = open_store("posix");
            if (i > 0 || nth > 1)
                assert_int_equal(get(store, 1, 5000, 1), 0);
            assert_int_equal(put(store, 1, 5000, 1, true), 0);
            penstock_close(store);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_read_fails, set_up, tear_down),
        cmocka_unit_test_setup_teardown(generations_pass_what_is_found, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_demotion_fails, set_up, tear_down),
        cmocka_unit_test_setup_teardown(no_write_succeeds, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_move_fails, set_up, tear_down),
        cmocka_unit_test_setup_teardown(deleted_on_its_way, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_sync_fails, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_durable_write_is_tried_again, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_full_log_is_full_for_all, set_up, tear_down),
        cmocka_unit_test_setup_teardown(an_opening_fails, set_up, tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
