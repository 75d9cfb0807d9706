/* SPDX-License-Identifier: Apache-2.0 */
/* space.c: full stores, values that are too large, and eviction. Each test has a store of its own, with
 * little memory. */
#include "e2e.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MIB (1ull << 20)

enum { KEYS_MAX = 20000 };

static uint64_t size_of(int i)
{
    static const uint64_t some[] = {100000, 700, 300000, 40, 20000, 1 << 20, 3000, 0};

    return some[i % 8];
}

/* Puts values of mixed sizes until there is no space. Return: their number. */
static int put_until_full(struct penstock *store)
{
    for (int i = 0; i < KEYS_MAX; i++) {
        char key[32];
        int r;

        snprintf(key, sizeof(key), "keep/%d", i);
        r = put_filled(store, key, size_of(i), i);
        if (r == 0)
            continue;
        assert_result(r, -ENOSPC);
        assert_non_null(strstr(penstock_error(), key));
        assert_non_null(strstr(penstock_error(), "no space"));
        return i;
    }
    fail_msg("the store is never full");
    return 0;
}

static void full_store(void **state)
{
    struct penstock_stat stat;
    struct place place;
    char key[32];
    int count;

    (void)state;
    place_open(&place, fixture.kind, "64M", NULL);
    count = put_until_full(place.store);
    stat = stat_of(place.store);
    assert_true(stat.no_space > 0);
    assert_int_equal(stat.evictions, 0);
    assert_int_equal(stat.keys, count);
    assert_result(put_filled(place.store, "keep/2", 40 * MIB, 1),
                  -ENOSPC); /* an overwrite that does not fit leaves what is there */
    for (int i = 0; i < count; i++) {
        snprintf(key, sizeof(key), "keep/%d", i);
        expect_bytes(place.store, key, size_of(i), i);
    }
    for (int i = 0; i < count; i += 2) {
        snprintf(key, sizeof(key), "keep/%d", i);
        assert_result(penstock_delete(place.store, key, strlen(key)), 0);
    }
    put_value(place.store, "again", 10 * MIB, 5); /* there is room again, though in pieces */
    expect_bytes(place.store, "again", 10 * MIB, 5);
    for (int i = 1; i < count; i += 2) {
        snprintf(key, sizeof(key), "keep/%d", i);
        expect_bytes(place.store, key, size_of(i), i);
    }
    place_close(&place);
}

/* What is over makes room in whichever shard its keys lie, and however many they are. */
static void what_is_over_makes_room(void **state)
{
    enum { COUNT = 40000, BYTES = 1500 };
    struct penstock_op op;
    struct place place;
    uint8_t *value = bytes_new(BYTES);
    int count = 0, r = 0;
    char key[32];

    (void)state;
    fill(value, BYTES, 1);
    place_open(&place, fixture.kind, "64M", NULL);
    for (; r == 0 && count < COUNT; count += r == 0) {
        snprintf(key, sizeof(key), "over/%d", count);
        op = (struct penstock_op){.code = PENSTOCK_PUT, .flags = PENSTOCK_TTL, .ttl_ms = 2000};
        op.key = key;
        op.key_bytes = (uint16_t)strlen(key);
        op.data = value;
        op.bytes = BYTES;
        r = run_op(place.store, &op);
    }
    assert_true(count > 0 && (r == 0 || r == -ENOSPC));
    snprintf(key, sizeof(key), "over/%d", count - 1); /* the others are over, then, too */
    for (int tries = 0; (r = penstock_exists(place.store, key, strlen(key))) == 0 && tries < 20000; tries++)
        usleep(1000);
    assert_result(r, PENSTOCK_MISS);
    put_value(place.store, "large", 56 * MIB, 5);
    expect_bytes(place.store, "large", 56 * MIB, 5);
    free(value);
    place_close(&place);
}

/* A batch that fills the store: some find room, the others are told; each is as its result says. */
static void full_in_one_batch(void **state)
{
    enum { COUNT = 100, BYTES = 1 << 20 };
    struct penstock_op ops[COUNT] = {0};
    uint8_t *values = bytes_new((uint64_t)COUNT * BYTES);
    char keys[COUNT][16];
    struct place place;
    int refused;

    (void)state;
    place_open(&place, fixture.kind, "64M", NULL);
    for (int i = 0; i < COUNT; i++) {
        fill(values + (uint64_t)i * BYTES, BYTES, i);
        penstock_prep_put(&ops[i], keys[i], (size_t)snprintf(keys[i], 16, "batch/%d", i),
                          values + (uint64_t)i * BYTES, BYTES);
    }
    refused = penstock_batch(place.store, ops, COUNT);
    assert_in_range(refused, COUNT - 64, COUNT - 1);
    for (int i = 0; i < COUNT; i++) {
        if (ops[i].result == 0) {
            expect_bytes(place.store, keys[i], BYTES, i);
            continue;
        }
        assert_result(ops[i].result, -ENOSPC);
        assert_result(penstock_exists(place.store, keys[i], strlen(keys[i])), PENSTOCK_MISS);
    }
    assert_int_equal(stat_of(place.store).keys, COUNT - refused);
    place_close(&place);
    free(values);
}

static void larger_than_the_store(void **state)
{
    struct place place;

    (void)state;
    place_open(&place, fixture.kind, "64M", NULL);
    put_value(place.store, "k", 3000, 1);
    assert_result(put_filled(place.store, "k", 65 * MIB, 2), -EFBIG);
    assert_result(put_filled(place.store, "other", 100 * MIB, 2), -EFBIG);
    assert_non_null(strstr(penstock_error(), "larger than the store"));
    assert_non_null(strstr(penstock_error(), "104857600 bytes")); /* both sizes are named */
    assert_non_null(strstr(penstock_error(), "takes 67108864"));
    expect_bytes(place.store, "k", 3000, 1);
    assert_result(penstock_exists(place.store, "other", 5), PENSTOCK_MISS);
    put_value(place.store, "fits", 50 * MIB, 3);
    expect_bytes(place.store, "fits", 50 * MIB, 3);
    assert_int_equal(stat_of(place.store).keys, 2);
    place_close(&place);
}

static void quota_put(struct penstock *store, const char *key, int result)
{
    struct penstock_op op = {0};
    void *value = calloc(1, 30000);
    bool refused = result == -ENOSPC;

    penstock_prep_put(&op, key, strlen(key), value, 30000);
    assert_result(run_op(store, &op), result);
    assert_int_equal(op.error_detail.limit_bytes, refused ? 50 << 10 : 0);
    assert_int_equal(op.error_detail.prefix_bytes, refused ? 2 : 0);
    assert_int_equal(op.generation == 0, refused);
    assert_int_equal(op.value_bytes, refused ? 0 : 30000);
    free(value);
}

/* A put that a quota refuses tells what the quota allows, and to which keys. */
static void quota_tells_its_limit(void **state)
{
    static const char *const args[] = {"--dram", "64M", "--quota", "q/=50K", NULL};
    struct penstock *store;
    struct daemon d;

    (void)state;
    if (fixture.kind != KIND_MEM && fixture.kind != KIND_UNIX)
        return;
    if (fixture.kind == KIND_UNIX)
        daemon_start(&d, args);
    assert_result(
        penstock_open(fixture.kind == KIND_UNIX ? d.url_unix : "mem:?dram=64M&quota=q/=50K", NULL, &store),
        0);
    quota_put(store, "q/first", 0);
    quota_put(store, "q/second", -ENOSPC);
    quota_put(store, "other", 0);
    assert_null(penstock_close(store));
    if (fixture.kind == KIND_UNIX)
        daemon_stop(&d);
}

/* ---- eviction ---- */

static uint64_t cache_size(int i)
{
    static const uint64_t some[] = {200000, 100000, 70000, 400000, 65000};

    return some[i % 5];
}

/* Return: how many of the first @count cache keys are there, each whole, of sizes up to 1 MiB. */
static int cached(struct penstock *store, int count, uint64_t (*size)(int), uint64_t seed)
{
    uint8_t *buf = bytes_new(MIB);
    int there = 0;

    for (int i = 0; i < count; i++) {
        uint64_t bytes = 0;
        char key[32];
        int r;

        snprintf(key, sizeof(key), "c/%d", i);
        r = penstock_get(store, key, strlen(key), buf, MIB, &bytes);
        if (r == PENSTOCK_MISS)
            continue;
        assert_result(r, 0);
        assert_int_equal(bytes, size(i));
        assert_true(filled(buf, bytes, seed + i));
        there++;
    }
    free(buf);
    return there;
}

/* Return: how many keys are there as @stat says; a node may still be on its way below the watermark. */
static int cached_by_now(struct penstock *store, int count, uint64_t (*size)(int), uint64_t seed,
                         struct penstock_stat *stat)
{
    int there;

    do {
        *stat = stat_of(store);
        there = cached(store, count, size, seed);
    } while (stat_of(store).evictions != stat->evictions);
    return there;
}

static void cache_evicts(void **state)
{
    enum { COUNT = 1200 }; /* 200 MB into 64 MiB */
    struct penstock_stat stat;
    int there;
    struct place place;
    char key[32];
    int gone = 0;

    (void)state;
    place_open(&place, fixture.kind, "64M", "c/");
    put_value(place.store, "keep", 2 * MIB, 1);
    for (int i = 0; i < COUNT; i++) {
        snprintf(key, sizeof(key), "c/%d", i);
        put_value(place.store, key, cache_size(i), 50 + i);
        gone += penstock_exists(place.store, key, strlen(key)) != PENSTOCK_OK;
    }
    for (int i = COUNT - 40; i < COUNT; i++) {
        snprintf(key, sizeof(key), "c/%d", i);
        gone += penstock_exists(place.store, key, strlen(key)) != PENSTOCK_OK;
    }
    /* The newest are there, but for a few that a policy which learns takes for the least needed; and of
     * several shards one that found no page may have nothing older of its own. */
    assert_true(gone <= COUNT / 100 || fixture.shards > 1);
    expect_bytes(place.store, "keep", 2 * MIB, 1);
    there = cached_by_now(place.store, COUNT, cache_size, 50, &stat);
    assert_int_equal(stat.no_space, 0);
    assert_true(stat.evictions > 0 && stat.evicted_bytes > 50 * MIB);
    assert_int_equal(stat.keys, stat.cache_keys + 1);
    assert_int_equal(stat.keys + stat.evictions, COUNT + 1);
    assert_int_equal(there, stat.cache_keys);
    place_close(&place);
}

/* Values of every size, small ones too: what is there is whole, and the figures agree with it. */
static void cache_of_mixed_sizes(void **state)
{
    enum { COUNT = 3000 };
    struct penstock_stat stat;
    struct place place;
    char key[32];
    int there;

    (void)state;
    place_open(&place, fixture.kind, "64M", "c/");
    for (int i = 0; i < COUNT; i++) {
        snprintf(key, sizeof(key), "c/%d", i);
        put_value(place.store, key, size_of(i), i);
    }
    there = cached_by_now(place.store, COUNT, size_of, 0, &stat);
    assert_int_equal(stat.no_space, 0);
    assert_int_equal(stat.keys + stat.evictions, COUNT);
    assert_int_equal(there, stat.keys);
    place_close(&place);
}

/* Keeps, pins and views stay; what is not kept goes. */
static void cache_spares_pinned(void **state)
{
    enum { PINNED = 10, COUNT = 800 };
    struct place place;
    char key[32];

    (void)state;
    place_open(&place, fixture.kind, "64M", "c/");
    for (int i = 0; i < PINNED; i++) {
        snprintf(key, sizeof(key), "c/%d", i);
        put_value(place.store, key, cache_size(i), i);
        assert_result(penstock_pin(place.store, key, strlen(key), i % 2 ? 0 : 600000), 0);
    }
    for (int i = PINNED; i < COUNT; i++) {
        snprintf(key, sizeof(key), "c/%d", i);
        put_value(place.store, key, cache_size(i), i);
    }
    for (int i = 0; i < PINNED; i++) {
        snprintf(key, sizeof(key), "c/%d", i);
        expect_bytes(place.store, key, cache_size(i), i);
    }
    assert_true(stat_of(place.store).evictions > 0);
    assert_int_equal(stat_of(place.store).pinned, PINNED);
    place_close(&place);
}

static void cache_all_pinned(void **state)
{
    struct place place;
    char key[32];
    int r = 0, count = 0;

    (void)state;
    place_open(&place, fixture.kind, "64M", "c/");
    for (; r == 0 && count < 300; count++) {
        snprintf(key, sizeof(key), "c/%d", count);
        r = put_filled(place.store, key, MIB, count);
        if (r == 0) /* past the watermark the newest is the only one that may go, and may be gone */
            r = penstock_pin(place.store, key, strlen(key), 0);
    }
    assert_true(r == -ENOSPC || r == PENSTOCK_MISS);
    count--;
    assert_true(count > 25);
    for (int i = 0; i < count; i++) {
        snprintf(key, sizeof(key), "c/%d", i);
        expect_bytes(place.store, key, MIB, i);
        assert_result(penstock_unpin(place.store, key, strlen(key)), 0);
    }
    put_value(place.store, "c/next", MIB, 1); /* now something may go */
    expect_bytes(place.store, "c/next", MIB, 1);
    place_close(&place);
}

/* Of a chain that is longer than memory its front stays. */
static void cache_keeps_the_front_of_a_chain(void **state)
{
    enum { COUNT = 400, BYTES = 200000 };
    int front = 0, back = 0;
    struct place place;
    char key[32];

    (void)state;
    place_open(&place, fixture.kind, "64M", "c/");
    for (int i = 0; i < COUNT; i++) {
        struct penstock_op op = {0};
        uint8_t *value = bytes_new(BYTES);

        fill(value, BYTES, i);
        penstock_prep_put(&op, key, (size_t)snprintf(key, sizeof(key), "c/chain/%d", i), value, BYTES);
        op.depth = (uint16_t)i;
        assert_result(run_op(place.store, &op), 0);
        free(value);
    }
    for (int i = 0; i < COUNT; i++) {
        bool there = penstock_exists(place.store, key, (size_t)snprintf(key, sizeof(key), "c/chain/%d", i)) ==
                     PENSTOCK_OK;

        *(i < COUNT / 2 ? &front : &back) += there;
    }
    assert_true(front > back);
    place_close(&place);
}

static const struct CMUnitTest tests[] = {
    TEST(full_store),
    TEST(full_in_one_batch),
    TEST(what_is_over_makes_room),
    TEST(larger_than_the_store),
    TEST(quota_tells_its_limit),
    TEST(cache_evicts),
    TEST(cache_of_mixed_sizes),
    TEST(cache_spares_pinned),
    TEST(cache_all_pinned),
    TEST(cache_keeps_the_front_of_a_chain),
};

PART(part_space, tests);
