/* SPDX-License-Identifier: Apache-2.0 */
/* tiers.c: a store with an SSD below its memory: reads, writes and figures are those of a store without one.
 */
#include "tiers.h"

#include <stdlib.h>
#include <string.h>

static void more_than_memory(void **state)
{
    struct penstock_stat stat;
    struct place place;

    (void)state;
    open_small(&place, NULL);
    spill(&place, 1);
    expect_unpinned(place.store); /* what goes to the SSD gets there, though nobody waits for it */
    expect_all(place.store, 1);
    expect_all(place.store, 1);
    stat = stat_of(place.store);
    assert_int_equal(stat.keys, COUNT);
    assert_int_equal(stat.evictions, 0);
    assert_int_equal(stat.no_space, 0);
    assert_true(stat.demotions > 0 && stat.fetches > 0 && stat.ssd_bytes > 4 * MIB);
    assert_int_equal(stat.ssd_corrupt + stat.ssd_errors, 0);
    expect_unpinned(place.store);
    place_close(&place);
}

struct moves {
    uint64_t down, up;
};

static void take_events(struct penstock_watch *watch, struct moves *moves)
{
    struct penstock_event event;
    int r;

    while ((r = penstock_watch_next(watch, 50, &event)) == 1) {
        moves->down += event.what == PENSTOCK_EVENT_MOVED && event.on_ssd;
        moves->up += event.what == PENSTOCK_EVENT_MOVED && !event.on_ssd;
        assert_true(event.what == PENSTOCK_EVENT_MOVED || event.what == PENSTOCK_EVENT_DELETED ||
                    (event.what == PENSTOCK_EVENT_PUT && !event.on_ssd));
    }
    assert_int_equal(r, 0);
}

/* Until nothing is on its way between the tiers, and all that was has been told. A shard that sleeps looks at
 * its memory when it is asked for its figures: they are to be the same twice. */
static void take_all_events(struct penstock *store, struct penstock_watch *watch, struct moves *moves)
{
    struct penstock_stat now = {0};
    uint64_t before;
    int tries = 0;

    do {
        before = now.demotions;
        take_events(watch, moves);
        now = stat_of(store);
    } while (
        (now.pinned || now.demotions != before || moves->down != before || moves->up != now.promotions) &&
        tries++ < 200);
    assert_int_equal(moves->down, now.demotions);
    assert_int_equal(moves->up, now.promotions);
}

static bool is_on_ssd(const struct penstock_entry *entry)
{
    return entry->on_ssd;
}

/* A watch that asks for it is told what goes down and what comes back; a listing says where values lie. */
static void moves_are_told(void **state)
{
    const struct penstock_watch_options options = {.size = sizeof(options), .flags = PENSTOCK_WATCH_MOVES};
    const struct penstock_watch_options wrong = {.size = sizeof(wrong), .flags = 2};
    struct moves moves = {0}, others_moves = {0};
    struct penstock_watch *watch, *others;
    struct place place;
    uint64_t gone = 0;

    (void)state;
    open_small(&place, NULL);
    assert_result(penstock_watch_open_with(place.store, &wrong, &watch), -EINVAL);
    assert_result(penstock_watch_open_with(place.store, &options, &watch), 0);
    assert_result(penstock_watch_open(place.store, NULL, 0, &others), 0);
    spill(&place, 1);
    take_all_events(place.store, watch, &moves);
    assert_true(moves.down > 0);
    assert_int_equal(listed_of(place.store, is_on_ssd), moves.down - moves.up);
    for (int i = COUNT / 3; i < COUNT; i++) /* so that there is room to come back to */
        assert_result(penstock_delete(place.store, key_of(i), strlen(key_of(i))), 0);
    gone = moves.down - moves.up - stat_of(place.store).ssd_keys;
    for (int i = 0; i < COUNT / 3; i++)
        expect_bytes(place.store, key_of(i), size_of(i), 1 + i);
    take_all_events(place.store, watch, &moves);
    assert_true(moves.up > 0);
    assert_int_equal(listed_of(place.store, is_on_ssd), moves.down - moves.up - gone);
    take_events(others, &others_moves);
    assert_int_equal(others_moves.down + others_moves.up, 0);
    penstock_watch_close(others);
    penstock_watch_close(watch);
    place_close(&place);
}

/* What is read once in a long time does not take the place of what is read often. */
static void read_once_and_read_again(void **state)
{
    const int count = 600;
    struct penstock_stat before, once;
    struct place place;

    (void)state;
    place_open_ssd(&place, fixture.kind, "64M", NULL, "512M");
    for (int i = 0; i < count; i++)
        put_value(place.store, key_of(i), 256 << 10, i);
    expect_unpinned(place.store);
    for (int i = count / 4; i < count / 2; i++) /* what came free with the last writes is used up by these */
        expect_bytes(place.store, key_of(i), 256 << 10, i);
    before = stat_of(place.store);
    for (int i = 0; i < count / 4; i++)
        expect_bytes(place.store, key_of(i), 256 << 10, i);
    once = stat_of(place.store);
    assert_true(once.fetches - before.fetches >= (uint64_t)count / 5);
    assert_true(once.promotions - before.promotions <= (uint64_t)count / 20);
    for (int i = 0; i < 3; i++)
        expect_bytes(place.store, key_of(count / 4 - 1), 256 << 10, count / 4 - 1);
    assert_int_equal(stat_of(place.store).promotions, once.promotions + 1);
    assert_int_equal(stat_of(place.store).fetches, once.fetches + 1);
    place_close(&place);
}

static void figures_of_tiers(void **state)
{
    struct penstock_stat stat;
    struct place place;
    uint64_t on_ssd;

    (void)state;
    open_small(&place, NULL);
    assert_int_equal(stat_of(place.store).restored_keys + stat_of(place.store).ssd_appended_bytes, 0);
    spill(&place, 1);
    assert_result(penstock_flush(place.store), 0); /* what was appended is written then */
    stat = stat_of(place.store);
    on_ssd = stat.ssd_keys;
    assert_int_equal(stat.ssd_hits, 0);
    assert_in_range(stat.ssd_capacity_bytes, 192 * MIB, 256 * MIB - 1);
    assert_in_range(stat.ssd_live_bytes, stat.ssd_bytes, stat.ssd_appended_bytes + COUNT * 4096);
    assert_in_range(stat.ssd_written_bytes, stat.ssd_appended_bytes, stat.ssd_appended_bytes * 5 / 4);
    expect_all(place.store, 1);
    assert_true(stat_of(place.store).ssd_hits >= on_ssd);
    place_again(&place, "16M", NULL, false);
    stat = stat_of(place.store);
    assert_int_equal(stat.restored_keys, COUNT);
    assert_int_equal(stat.restored_dropped, 0);
    assert_int_equal(stat.ssd_hits + stat.ssd_appended_bytes, 0);
    assert_int_equal(stat.ssd_keys, COUNT);
    assert_int_equal(stat.slab_bytes, COUNT * 40); /* 32 beside a key of 5, in steps of 8 */
    place_close(&place);
}

/* Values that come and go between the tiers without being changed are written once. */
static void clean_values_are_not_written_again(void **state)
{
    struct place place;
    uint64_t written;

    (void)state;
    open_small(&place, NULL);
    spill(&place, 1);
    assert_result(penstock_flush(place.store), 0);
    written = stat_of(place.store).demoted_bytes;
    for (int i = 0; i < 3; i++)
        expect_all(place.store, 1);
    assert_int_equal(stat_of(place.store).demoted_bytes, written);
    place_close(&place);
}

static void overwritten_and_deleted(void **state)
{
    struct place place;

    (void)state;
    open_small(&place, NULL);
    spill(&place, 1);
    for (int i = 0; i < COUNT; i += 3)
        put_value(place.store, key_of(i), size_of(i), 1000 + i);
    for (int i = 1; i < COUNT; i += 3)
        assert_result(penstock_delete(place.store, key_of(i), 5), 0);
    for (int i = 0; i < COUNT; i++) {
        if (i % 3 == 1)
            assert_result(penstock_exists(place.store, key_of(i), 5), PENSTOCK_MISS);
        else
            expect_bytes(place.store, key_of(i), size_of(i), i % 3 ? 1 + i : 1000 + i);
    }
    assert_int_equal(stat_of(place.store).keys, COUNT - COUNT / 3);
    assert_result(penstock_delete_prefix(place.store, "t/", 2, NULL), 0);
    assert_int_equal(stat_of(place.store).keys, 0);
    assert_int_equal(stat_of(place.store).ssd_keys, 0);
    place_close(&place);
}

static void ranges(void **state)
{
    uint8_t *buf = bytes_new(MIB);
    struct place place;
    uint64_t random = 7;

    (void)state;
    open_small(&place, NULL);
    spill(&place, 1);
    for (int i = 0; i < 3 * COUNT; i++) {
        uint64_t size = size_of(i % COUNT), from = next_random(&random) % size / 8 * 8;
        uint64_t bytes = 1 + next_random(&random) % (size - from);
        struct penstock_op op = {0};

        penstock_prep_get_range(&op, key_of(i % COUNT), 5, from, buf, bytes);
        assert_result(run_op(place.store, &op), 0);
        assert_int_equal(op.value_bytes, size);
        assert_true(filled_from(buf, from, bytes, 1 + i % COUNT));
        penstock_prep_get_range(&op, key_of(i % COUNT), 5, size - 5, buf, 6);
        assert_result(run_op(place.store, &op), -ERANGE);
    }
    place_close(&place);
    free(buf);
}

/* Only the blocks that a range touches are read. */
static void ranges_read_their_blocks(void **state)
{
    struct penstock_op op = {0};
    struct penstock_stat before;
    struct place place;
    uint8_t buf[64];

    (void)state;
    open_small(&place, NULL);
    spill(&place, 1);
    before = stat_of(place.store);
    for (int i = 0; i < COUNT; i += 9) {
        penstock_prep_get_range(&op, key_of(i), 5, 500000 / 8 * 8, buf, sizeof(buf));
        assert_result(run_op(place.store, &op), 0);
    }
    assert_true(stat_of(place.store).fetches > before.fetches);
    assert_true(stat_of(place.store).fetched_bytes - before.fetched_bytes <=
                (stat_of(place.store).fetches - before.fetches) * 65536);
    place_close(&place);
}

static void conditions(void **state)
{
    struct place place;
    struct penstock_op op = {0}, get = {0};
    uint64_t generation;
    uint8_t buf[100000];

    (void)state;
    open_small(&place, NULL);
    spill(&place, 1);
    penstock_prep(&op, PENSTOCK_STAT_KEY, "t/002", 5);
    assert_result(run_op(place.store, &op), 0);
    assert_int_equal(op.value_bytes, 65536);
    generation = op.generation;
    penstock_prep_put(&op, "t/002", 5, "new", 3);
    op.flags = PENSTOCK_IF_ABSENT;
    assert_result(run_op(place.store, &op), PENSTOCK_EXISTS);
    penstock_prep_get(&get, "t/002", 5, buf, sizeof(buf));
    get.flags = PENSTOCK_IF_GENERATION;
    get.if_generation = generation;
    assert_result(run_op(place.store, &get), 0);
    assert_true(filled(buf, 65536, 3));
    assert_int_equal(get.generation, generation); /* on its way between the tiers it stays the same value */
    get.flags = PENSTOCK_UNLESS_GENERATION;
    assert_result(run_op(place.store, &get), PENSTOCK_EXISTS);
    penstock_prep_put(&op, "t/002", 5, "new", 3);
    op.flags = PENSTOCK_IF_GENERATION;
    op.if_generation = generation;
    assert_result(run_op(place.store, &op), 0);
    assert_result(run_op(place.store, &op), PENSTOCK_STALE);
    place_close(&place);
}

static void listed_in_order(void **state)
{
    struct place place;
    struct penstock_list *list;
    struct penstock_entry entry;
    int count = 0;

    (void)state;
    open_small(&place, NULL);
    spill(&place, 1);
    assert_result(penstock_list_open(place.store, NULL, &list), 0);
    while (penstock_list_next(list, &entry) == 1) {
        assert_int_equal(entry.key_bytes, 5);
        assert_memory_equal(entry.key, key_of(count), 5);
        assert_int_equal(entry.value_bytes, size_of(count));
        count++;
    }
    penstock_list_close(list);
    assert_int_equal(count, COUNT);
    place_close(&place);
}

static void batches(void **state)
{
    struct penstock_op ops[COUNT] = {0};
    uint8_t *bufs = bytes_new(COUNT * MIB);
    struct place place;

    (void)state;
    open_small(&place, NULL);
    spill(&place, 1);
    for (int round = 0; round < 3; round++) {
        char keys[COUNT][8];

        for (int i = 0; i < COUNT; i++) {
            strcpy(keys[i], key_of(i));
            penstock_prep_get(&ops[i], keys[i], 5, bufs + i * MIB, MIB);
        }
        assert_int_equal(penstock_batch(place.store, ops, COUNT), 0);
        for (int i = 0; i < COUNT; i++)
            assert_true(ops[i].value_bytes == size_of(i) && filled(bufs + i * MIB, size_of(i), 1 + i));
    }
    place_close(&place);
    free(bufs);
}

/* One batch reads more values on SSD than may be underway, and than there is memory for. */
static void thousands_in_a_batch(void **state)
{
    enum { MANY = 6000, BYTES = 4096 };
    struct penstock_op *ops = calloc(MANY, sizeof(*ops));
    char(*keys)[8] = calloc(MANY, sizeof(*keys));
    uint8_t *values = bytes_new((uint64_t)MANY * BYTES);
    struct place place;

    (void)state;
    assert_true(ops && keys);
    open_small(&place, NULL);
    for (int i = 0; i < MANY; i++) {
        snprintf(keys[i], sizeof(keys[i]), "m/%d", i);
        fill(values + (uint64_t)i * BYTES, BYTES, i);
        penstock_prep_put(&ops[i], keys[i], strlen(keys[i]), values + (uint64_t)i * BYTES, BYTES);
    }
    assert_int_equal(penstock_batch(place.store, ops, MANY), 0);
    place_again(&place, "16M", NULL, false);
    assert_int_equal(stat_of(place.store).ssd_keys, MANY);
    memset(values, 0, (uint64_t)MANY * BYTES);
    for (int i = 0; i < MANY; i++)
        penstock_prep_get(&ops[i], keys[i], strlen(keys[i]), values + (uint64_t)i * BYTES, BYTES);
    assert_int_equal(penstock_batch(place.store, ops, MANY), 0);
    for (int i = 0; i < MANY; i++)
        assert_true(ops[i].value_bytes == BYTES && filled(values + (uint64_t)i * BYTES, BYTES, i));
    place_close(&place);
    free(values);
    free(keys);
    free(ops);
}

static void views(void **state)
{
    struct penstock_view view[COUNT];
    struct place place;

    (void)state;
    if (!place_has_views())
        return;
    open_small(&place, NULL);
    spill(&place, 1);
    for (int i = 0; i < COUNT; i++) {
        assert_result(penstock_view(place.store, key_of(i), 5, &view[i]), 0);
        assert_true(view[i].bytes == size_of(i) && filled(view[i].data, view[i].bytes, 1 + i));
        if (i >= 2) { /* two at a time stay whatever else comes and goes */
            assert_true(filled(view[i - 2].data, view[i - 2].bytes, 1 + i - 2));
            penstock_view_release(place.store, &view[i - 2]);
        }
    }
    penstock_view_release(place.store, &view[COUNT - 2]);
    penstock_view_release(place.store, &view[COUNT - 1]);
    place_close(&place);
}

static void commits(void **state)
{
    struct penstock_op ops[3] = {0};
    struct place place;

    (void)state;
    open_small(&place, NULL);
    spill(&place, 1);
    penstock_prep_put(&ops[0], "t/000", 5, "first", 5);
    penstock_prep(&ops[1], PENSTOCK_DELETE, "t/001", 5);
    penstock_prep_put(&ops[2], "t/new", 5, "third", 5);
    assert_result(penstock_commit(place.store, ops, 3), 0);
    assert_result(penstock_exists(place.store, "t/001", 5), PENSTOCK_MISS);
    for (int i = 2; i < COUNT; i++)
        expect_bytes(place.store, key_of(i), size_of(i), 1 + i);
    place_close(&place);
}

static const struct CMUnitTest tests[] = {
    TEST(more_than_memory),
    TEST(moves_are_told),
    TEST(read_once_and_read_again),
    TEST(figures_of_tiers),
    TEST(clean_values_are_not_written_again),
    TEST(overwritten_and_deleted),
    TEST(ranges),
    TEST(ranges_read_their_blocks),
    TEST(conditions),
    TEST(listed_in_order),
    TEST(batches),
    TEST(thousands_in_a_batch),
    TEST(views),
    TEST(commits),
};

PART(part_tiers, tests);
