/* SPDX-License-Identifier: Apache-2.0 */
/* device.c: a store with device memory above its memory, here the host's: what it holds is as of any store.
 */
#include "tiers.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LARGE = 300000 }; /* of more than a page of the device */

static void open_above(struct place *place, const char *cache_prefix, bool ssd)
{
    place_open_hbm(place, fixture.kind, "16M", cache_prefix, "host:16M", ssd);
}

/* Until the key's value has gone up, and nothing is on its way. */
static void settle(struct penstock *store, uint64_t hbm_keys)
{
    for (int i = 0; i < 3000 && stat_of(store).hbm_keys < hbm_keys; i++)
        usleep(10000);
    assert_true(stat_of(store).hbm_keys >= hbm_keys);
    expect_unpinned(store);
}

static uint64_t generation_of(struct penstock *store, const char *key)
{
    struct penstock_op op = {0};

    penstock_prep(&op, PENSTOCK_STAT_KEY, key, strlen(key));
    assert_result(run_op(store, &op), 0);
    return op.generation;
}

static bool is_on_device_alone(const struct penstock_entry *entry)
{
    return entry->on_device && !entry->on_ssd;
}

/* Memory and device together hold what memory alone does not. */
static void more_than_memory(void **state)
{
    const int count = 70; /* 21 MB */
    struct penstock_stat stat;
    struct place place;
    uint8_t part[1000];

    (void)state;
    open_above(&place, NULL, false);
    for (int i = 0; i < count; i++)
        put_value(place.store, key_of(i), LARGE + i, i);
    settle(place.store, 10);
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < count; i++) {
            expect_bytes(place.store, key_of(i), LARGE + i, i);
            assert_result(penstock_get_range(place.store, key_of(i), 5, 200000, part, sizeof(part)), 0);
            assert_true(filled_from(part, 200000, sizeof(part), i));
        }
    }
    stat = stat_of(place.store);
    assert_int_equal(stat.keys, count);
    assert_int_equal(stat.evictions + stat.hbm_errors, 0);
    assert_true(stat.hbm_hits > 0 && stat.hbm_bytes > 3 * MIB && stat.hbm_used_bytes > stat.hbm_bytes);
    assert_int_equal(stat.hbm_capacity_bytes, 16 * MIB);
    assert_result(penstock_delete_prefix(place.store, "t/", 2, NULL), 0);
    stat = stat_of(place.store);
    assert_int_equal(stat.keys + stat.hbm_keys + stat.hbm_bytes, 0);
    expect_unpinned(place.store);
    assert_int_equal(stat_of(place.store).hbm_used_bytes, 0);
    place_close(&place);
}

/* Conditions, commits, pins, listings and views work on a value up there as on any. */
static void keys_are_as_any(void **state)
{
    struct penstock_op ops[3] = {0}, op = {0};
    struct penstock_entry entry;
    struct penstock_list *list;
    struct penstock_view view;
    uint8_t *large = bytes_new(LARGE);
    struct place place;
    uint64_t generation;
    int listed = 0;

    (void)state;
    open_above(&place, NULL, false);
    for (int i = 0; i < 4; i++)
        put_value(place.store, key_of(i), LARGE, i);
    settle(place.store, 4);
    assert_int_equal(listed_of(place.store, is_on_device_alone), 4);
    if (place_has_views()) {
        assert_result(penstock_view(place.store, key_of(0), 5, &view), 0);
        assert_int_equal(view.bytes, LARGE);
        assert_true(filled(view.data, LARGE, 0));
        assert_result(penstock_delete(place.store, key_of(0), 5), 0);
        assert_true(filled(view.data, LARGE, 0));
        penstock_view_release(place.store, &view);
        put_value(place.store, key_of(0), LARGE, 0);
    }
    assert_result(penstock_list_open(place.store, NULL, &list), 0);
    while (penstock_list_next(list, &entry) == 1)
        listed += entry.value_bytes == LARGE && !entry.on_ssd;
    penstock_list_close(list);
    assert_int_equal(listed, 4);
    generation = generation_of(place.store, key_of(1));
    fill(large, LARGE, 9);
    penstock_prep_put(&op, key_of(1), 5, large, LARGE);
    op.flags = PENSTOCK_IF_GENERATION;
    op.if_generation = generation + 1;
    assert_result(run_op(place.store, &op), PENSTOCK_STALE);
    op.if_generation = generation;
    assert_result(run_op(place.store, &op), 0);
    assert_result(penstock_pin(place.store, key_of(2), 5, 0), 0);
    penstock_prep_put(&ops[0], key_of(2), 5, large, LARGE);
    penstock_prep(&ops[1], PENSTOCK_DELETE, key_of(3), 5);
    penstock_prep(&ops[2], PENSTOCK_CHECK, key_of(1), 5);
    ops[2].if_generation = op.generation;
    assert_result(penstock_commit(place.store, ops, 3), 0);
    expect_bytes(place.store, key_of(1), LARGE, 9);
    expect_bytes(place.store, key_of(2), LARGE, 9);
    assert_result(penstock_exists(place.store, key_of(3), 5), PENSTOCK_MISS);
    assert_result(penstock_unpin(place.store, key_of(2), 5), 0);
    free(large);
    place_close(&place);
}

struct writer {
    struct place *place;
    int number, rounds;
};

/* Its own keys: written, read, overwritten and deleted while their values move. */
static void *write_and_read(void *arg)
{
    struct writer *w = arg;
    struct penstock *store = place_handle(w->place);
    uint64_t random = 77 + w->number, seeds[6] = {0}, sizes[6];

    for (int i = 0; i < w->rounds; i++) {
        uint64_t k = next_random(&random) % 6;
        char key[32];

        snprintf(key, sizeof(key), "w%d/%u", w->number, (unsigned)k);
        if (seeds[k])
            expect_bytes(store, key, sizes[k], seeds[k]);
        if (seeds[k] && next_random(&random) % 4 == 0) {
            assert_result(penstock_delete(store, key, strlen(key)), 0);
            assert_result(penstock_exists(store, key, strlen(key)), PENSTOCK_MISS);
            seeds[k] = 0;
        } else {
            seeds[k] = (uint64_t)i + 1;
            sizes[k] = next_random(&random) % 4 == 0 ? 3000 : 70000 + next_random(&random) % LARGE;
            put_value(store, key, sizes[k], seeds[k]);
        }
    }
    place_handle_close(w->place, store);
    return NULL;
}

static void changes_while_values_move(void **state)
{
    struct writer writers[3];
    pthread_t threads[3];
    struct place place;

    (void)state;
    open_above(&place, NULL, false);
    for (int i = 0; i < 3; i++) {
        writers[i] = (struct writer){&place, i, 60};
        assert_int_equal(pthread_create(&threads[i], NULL, write_and_read, &writers[i]), 0);
    }
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    expect_unpinned(place.store);
    assert_int_equal(stat_of(place.store).hbm_errors, 0);
    place_close(&place);
}

/* What may be evicted makes room in both, and the newest is there. */
static void cache_fills_both(void **state)
{
    const int count = 150; /* 45 MB into 32 MiB */
    struct penstock_stat stat;
    struct place place;

    (void)state;
    open_above(&place, "t/", false);
    for (int i = 0; i < count; i++)
        put_value(place.store, key_of(i), LARGE, i);
    expect_unpinned(place.store);
    stat = stat_of(place.store);
    assert_true(stat.evictions > 0 && stat.keys * LARGE > 16 * MIB);
    assert_int_equal(stat.no_space, 0);
    assert_int_equal(stat.keys + stat.evictions, count);
    place_close(&place);
}

/* Device memory ends with the node: what was flushed is on the SSD, after a crash, too. */
static void restarts(void **state)
{
    const int count = 60;
    struct place place;

    (void)state;
    open_above(&place, NULL, true);
    for (int i = 0; i < count; i++)
        put_value(place.store, key_of(i), LARGE, i);
    settle(place.store, 5);
    place_again(&place, "16M", NULL, false);
    for (int i = 0; i < count; i++)
        expect_bytes(place.store, key_of(i), LARGE, i);
    for (int i = 0; i < count; i += 2)
        put_value(place.store, key_of(i), LARGE + 8, 100 + i);
    assert_result(penstock_flush(place.store), 0);
    if (fixture.kind != KIND_MEM && fixture.kind != KIND_MEMORY)
        place_again(&place, "16M", NULL, true);
    for (int i = 0; i < count; i++)
        expect_bytes(place.store, key_of(i), i % 2 ? LARGE : LARGE + 8, i % 2 ? i : 100 + i);
    assert_int_equal(stat_of(place.store).keys, count);
    place_close(&place);
}

static const struct CMUnitTest tests[] = {
    TEST(more_than_memory), TEST(keys_are_as_any), TEST(changes_while_values_move),
    TEST(cache_fills_both), TEST(restarts),
};

PART(part_device, tests);
