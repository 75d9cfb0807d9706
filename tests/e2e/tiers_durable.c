/* SPDX-License-Identifier: Apache-2.0 */
/* tiers_durable.c: what a store with an SSD finds again when it begins anew, and what becomes of it when it
 * is full. */
#include "tiers.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* What ends in order comes back whole, with its generations. */
static void restart(void **state)
{
    struct penstock_op before = {0}, after = {0};
    struct place place;

    (void)state;
    open_small(&place, NULL);
    spill(&place, 1);
    for (int i = 0; i < COUNT; i += 5)
        put_value(place.store, key_of(i), size_of(i), 2000 + i);
    for (int i = 1; i < COUNT; i += 5)
        assert_result(penstock_delete(place.store, key_of(i), 5), 0);
    penstock_prep(&before, PENSTOCK_STAT_KEY, "t/003", 5);
    assert_result(run_op(place.store, &before), 0);
    place_again(&place, "16M", NULL, false);
    penstock_prep(&after, PENSTOCK_STAT_KEY, "t/003", 5);
    assert_result(run_op(place.store, &after), 0);
    assert_int_equal(after.generation, before.generation);
    for (int i = 0; i < COUNT; i++) {
        if (i % 5 == 1)
            assert_result(penstock_exists(place.store, key_of(i), 5), PENSTOCK_MISS);
        else
            expect_bytes(place.store, key_of(i), size_of(i), i % 5 ? 1 + i : 2000 + i);
    }
    penstock_prep_put(&after, "t/003", 5, "x", 1);
    assert_result(run_op(place.store, &after), 0);
    assert_true(after.generation > before.generation);
    place_close(&place);
}

/* What was acknowledged as durable is there after a crash, and what a flush saw deleted is not. */
static void crash(void **state)
{
    struct penstock_op op = {0};
    struct place place;
    uint8_t *value;

    (void)state;
    if (place_is_private())
        return; /* the store dies with its process */
    value = bytes_new(MIB);
    open_small(&place, NULL);
    for (int i = 0; i < COUNT; i++) {
        fill(value, size_of(i), 1 + i);
        penstock_prep_put(&op, key_of(i), 5, value, size_of(i));
        op.flags = PENSTOCK_DURABLE;
        assert_result(run_op(place.store, &op), 0);
    }
    for (int i = 0; i < COUNT; i += 4)
        assert_result(penstock_delete(place.store, key_of(i), 5), 0);
    assert_result(penstock_flush(place.store), 0);
    place_again(&place, "16M", NULL, true);
    for (int i = 0; i < COUNT; i++) {
        if (i % 4 == 0)
            assert_result(penstock_exists(place.store, key_of(i), 5), PENSTOCK_MISS);
        else
            expect_bytes(place.store, key_of(i), size_of(i), 1 + i);
    }
    place_close(&place);
    free(value);
}

static void put_durable(struct penstock *store, const char *key, uint64_t bytes, uint64_t seed)
{
    struct penstock_op op = {0};
    uint8_t *value = bytes_new(bytes);

    fill(value, bytes, seed);
    penstock_prep_put(&op, key, strlen(key), value, bytes);
    op.flags = PENSTOCK_DURABLE;
    assert_result(run_op(store, &op), 0);
    free(value);
}

static bool has_bytes(struct penstock *store, const char *key, uint64_t bytes, uint64_t seed)
{
    uint8_t *value = bytes_new(bytes);
    bool has = penstock_get(store, key, strlen(key), value, bytes, NULL) == 0 && filled(value, bytes, seed);

    free(value);
    return has;
}

/* What a crash would bring back stays until what has overwritten it would come back. */
static void crash_after_overwriting(void **state)
{
    struct place place;

    (void)state;
    if (place_is_private())
        return;
    open_small(&place, NULL);
    for (int i = 0; i < COUNT; i++)
        put_durable(place.store, key_of(i), 5000, 1 + i);
    for (int i = 0; i < COUNT; i += 2)
        put_value(place.store, key_of(i), 6000, 1000 + i);
    for (int i = 1; i < COUNT; i += 2)
        put_durable(place.store, key_of(i), 5000, 1 + i); /* durable, as would be word of what is dead */
    place_again(&place, "16M", NULL, true);
    for (int i = 0; i < COUNT; i++)
        assert_true(has_bytes(place.store, key_of(i), 5000, 1 + i) ||
                    (i % 2 == 0 && has_bytes(place.store, key_of(i), 6000, 1000 + i)));
    for (int i = 0; i < COUNT; i += 2)
        put_value(place.store, key_of(i), 6000, 1000 + i);
    for (int i = 0; i < COUNT; i += 4)
        assert_result(penstock_delete(place.store, key_of(i), 5), 0);
    assert_result(penstock_flush(place.store), 0);
    place_again(&place, "16M", NULL, true);
    for (int i = 0; i < COUNT; i += 2) {
        if (i % 4 == 0)
            assert_result(penstock_exists(place.store, key_of(i), 5), PENSTOCK_MISS);
        else
            expect_bytes(place.store, key_of(i), 6000, 1000 + i);
    }
    place_close(&place);
}

/* Both tiers full: no space, and all that was there is there. */
static void full(void **state)
{
    struct place place;
    char key[32];
    int count = 0, r = 0;

    (void)state;
    place_open_ssd(&place, fixture.kind, "16M", NULL, "96M");
    for (; r == 0 && count < 600; count++) {
        snprintf(key, sizeof(key), "f/%d", count);
        r = put_filled(place.store, key, MIB / 4, count);
    }
    assert_result(r, -ENOSPC);
    count--;
    assert_in_range(count, 200, 450);
    for (int i = 0; i < count; i++) {
        snprintf(key, sizeof(key), "f/%d", i);
        expect_bytes(place.store, key, MIB / 4, i);
    }
    place_close(&place);
}

/* A log that is small, but not too small for its shards. */
static const char *little_ssd(void)
{
    return fixture.shards > 4 ? "128M" : "64M";
}

/* The log full, the memory not: a durable put that finds no room there says that its value might not last, as
 * its value shows. */
static void durable_full(void **state)
{
    struct place place;
    struct penstock_op op;
    void *value;
    char key[32];
    int count = 0, r = 0;

    (void)state;
    place_open_ssd(&place, fixture.kind, "160M", NULL, little_ssd());
    for (; r == 0 && count < 600; count++) {
        snprintf(key, sizeof(key), "f/%d", count);
        value = malloc(MIB / 4);
        fill(value, MIB / 4, count);
        op = (struct penstock_op){0};
        penstock_prep_put(&op, key, strlen(key), value, MIB / 4);
        op.flags = PENSTOCK_DURABLE;
        r = run_op(place.store, &op);
        free(value);
    }
    assert_result(r, -EIO);
    assert_in_range(count, 50, 550);
    for (int i = 0; i < count; i++) {
        snprintf(key, sizeof(key), "f/%d", i);
        expect_bytes(place.store, key, MIB / 4, i);
    }
    assert_result(penstock_flush(place.store), -ENOSPC);
    place_close(&place);
}

/* Many times what the SSD holds is written, while some values never change: they are moved out of the way. */
static void overwritten_for_long(void **state)
{
    enum { KEYS = 40, ROUNDS = 16, STAYS = 5 };
    struct place place;
    uint64_t bytes = 400000;

    (void)state;
    place_open_ssd(&place, fixture.kind, "16M", NULL, little_ssd());
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < KEYS; i++) {
            if (round == 0 || i % STAYS)
                put_value(place.store, key_of(i), bytes, i % STAYS ? 100 * round + i : i);
        }
        assert_result(penstock_flush(place.store), 0);
    }
    for (int again = 0; again < 2; again++) {
        assert_int_equal(stat_of(place.store).keys, KEYS);
        assert_int_equal(stat_of(place.store).ssd_corrupt + stat_of(place.store).ssd_errors, 0);
        for (int i = 0; i < KEYS; i++)
            expect_bytes(place.store, key_of(i), bytes, i % STAYS ? 100 * (ROUNDS - 1) + i : i);
        if (again == 0)
            place_again(&place, "16M", NULL, false);
    }
    place_close(&place);
}

/* Faster than the disk takes it, and with half of the SSD alive: who writes waits for room, and it comes. */
static void overwritten_at_once(void **state)
{
    enum { KEYS = 76, ROUNDS = 10 };
    struct place place;
    uint64_t random = 3, bytes = 400000;
    int seeds[KEYS];

    (void)state;
    place_open_ssd(&place, fixture.kind, "16M", NULL, little_ssd());
    for (int i = 0; i < KEYS * ROUNDS; i++) {
        int key = i < KEYS ? i : (int)(next_random(&random) % KEYS);

        put_value(place.store, key_of(key), bytes, i);
        seeds[key] = i;
    }
    assert_int_equal(stat_of(place.store).no_space, 0);
    for (int i = 0; i < KEYS; i++)
        expect_bytes(place.store, key_of(i), bytes, seeds[i]);
    place_close(&place);
}

/* Values that may be evicted fall off the SSD's end, the latest are there. */
static void falls_off(void **state)
{
    enum { KEYS = 600, LATEST = 30 };
    struct penstock_stat stat;
    struct place place;
    uint64_t bytes = 300000;
    uint8_t *value = bytes_new(bytes);

    (void)state;
    place_open_ssd(&place, fixture.kind, "16M", "t/", little_ssd());
    put_value(place.store, "keep", bytes, 7);
    for (int i = 0; i < KEYS; i++)
        put_value(place.store, key_of(i), bytes, i);
    stat = stat_of(place.store);
    assert_int_equal(stat.keys + stat.evictions, KEYS + 1);
    assert_int_equal(stat.no_space, 0);
    assert_in_range(stat.keys, 80, KEYS - 100);
    for (int i = KEYS - LATEST; i < KEYS && fixture.shards == 1; i++)
        expect_bytes(place.store, key_of(i), bytes, i);
    for (int i = 0; i < KEYS; i++) { /* what comes back into memory may push others off */
        int r = penstock_get(place.store, key_of(i), 5, value, bytes, NULL);

        assert_true(r == PENSTOCK_MISS || (r == 0 && filled(value, bytes, i)));
    }
    expect_bytes(place.store, "keep", bytes, 7);
    place_again(&place, "16M", "t/", false);
    expect_bytes(place.store, "keep", bytes, 7);
    place_close(&place);
    free(value);
}

/* What a segment is too short for, and what has an end, stays in memory and cannot be durable. */
static void what_the_log_does_not_take(void **state)
{
    enum { LARGE = 3 << 20 };
    uint8_t *value = bytes_new(LARGE);
    struct penstock_op op = {0};
    struct penstock_reservation reservation;
    struct place place;

    (void)state;
    open_small(&place, NULL);
    put_value(place.store, "large", LARGE, 1);
    fill(value, LARGE, 2);
    penstock_prep_put(&op, "large", 5, value, LARGE);
    op.flags = PENSTOCK_DURABLE;
    assert_result(run_op(place.store, &op), -EFBIG);
    assert_in_range(op.error_detail.limit_bytes, MIB, 2 * MIB);
    assert_int_equal(op.value_bytes, 0);
    assert_result(penstock_reserve(place.store, "kept", 4, LARGE, PENSTOCK_DEPTH_NONE, &reservation), 0);
    assert_result(penstock_write_at(place.store, "kept", 4, &reservation, 0, value, LARGE), 0);
    penstock_prep_reservation_commit(&op, "kept", 4, &reservation);
    op.flags = PENSTOCK_DURABLE;
    assert_result(run_op(place.store, &op), -EFBIG);
    assert_result(penstock_reservation_commit(place.store, "kept", 4, &reservation, NULL), 0);
    op = (struct penstock_op){.ttl_ms = 3600000};
    penstock_prep_put(&op, "ends", 4, value, MIB / 2);
    op.flags = PENSTOCK_DURABLE | PENSTOCK_TTL;
    assert_result(run_op(place.store, &op), -EINVAL);
    op.flags = PENSTOCK_TTL;
    assert_result(run_op(place.store, &op), 0);
    spill(&place, 1);
    assert_result(penstock_flush(place.store), -EFBIG);
    expect_bytes(place.store, "large", LARGE, 1); /* as it was before what was refused */
    expect_bytes(place.store, "kept", LARGE, 2);
    expect_bytes(place.store, "ends", MIB / 2, 2);
    assert_int_equal(stat_of(place.store).ssd_hits, 0);
    assert_result(penstock_delete(place.store, "large", 5), 0);
    assert_result(penstock_delete(place.store, "kept", 4), 0);
    assert_result(penstock_flush(place.store), 0);
    expect_all(place.store, 1);
    place_close(&place);
    free(value);
}

static void without_ssd(void **state)
{
    struct penstock_op op = {0};

    (void)state;
    penstock_prep_put(&op, "k", 1, "v", 1);
    op.flags = PENSTOCK_DURABLE;
    assert_result(run_op(STORE, &op), -EOPNOTSUPP);
    assert_result(penstock_exists(STORE, "k", 1), PENSTOCK_MISS);
    assert_result(penstock_flush(STORE), -EOPNOTSUPP);
}

static const struct CMUnitTest tests[] = {
    TEST(restart),
    TEST(crash),
    TEST(crash_after_overwriting),
    TEST(full),
    TEST(durable_full),
    TEST(overwritten_for_long),
    TEST(overwritten_at_once),
    TEST(falls_off),
    TEST(what_the_log_does_not_take),
    TEST(without_ssd),
};

PART(part_tiers_durable, tests);
