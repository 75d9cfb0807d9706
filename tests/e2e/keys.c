/* SPDX-License-Identifier: Apache-2.0 */
/* keys.c: many keys: runs that exist, listings, deleting by prefix and range, pins, figures. */
#include "e2e.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { KEY_ROOM = 24, BATCH = 250 };

/* Puts or deletes keys PREFIX%06d for from, from + step, ... below @end; values of number % 50 bytes. Return:
 * operations that failed. */
static int change_many(struct penstock *store, enum penstock_code code, const char *prefix, int from, int end,
                       int step)
{
    static const char value[64];
    struct penstock_op ops[BATCH];
    char keys[BATCH][KEY_ROOM];
    int failed = 0;

    while (from < end) {
        size_t count = 0;

        for (; count < BATCH && from < end; from += step, count++) {
            ops[count] = (struct penstock_op){0};
            penstock_prep(&ops[count], code, keys[count],
                          (size_t)snprintf(keys[count], KEY_ROOM, "%s%06d", prefix, from));
            ops[count].data = (void *)(uintptr_t)value;
            ops[count].bytes = code == PENSTOCK_PUT ? (uint64_t)from % 50 : 0;
        }
        failed += penstock_batch(store, ops, count);
    }
    return failed;
}

/* ---- exists_consecutive ---- */

static void consecutive(void **state)
{
    enum { COUNT = 700 };
    char keys[COUNT][KEY_ROOM];
    struct iovec iov[COUNT];
    size_t count = 99;

    (void)state;
    for (int i = 0; i < COUNT; i++)
        iov[i] = (struct iovec){keys[i], (size_t)snprintf(keys[i], KEY_ROOM, "c%06d", i)};
    assert_result(penstock_exists_consecutive(STORE, iov, 0, &count), 0);
    assert_int_equal(count, 0);
    assert_result(penstock_exists_consecutive(STORE, iov, COUNT, &count), 0);
    assert_int_equal(count, 0);
    assert_int_equal(change_many(STORE, PENSTOCK_PUT, "c", 0, COUNT, 1), 0);
    assert_result(penstock_exists_consecutive(STORE, iov, COUNT, &count), 0);
    assert_int_equal(count, COUNT);
    assert_result(penstock_exists_consecutive(STORE, iov, 1, &count), 0);
    assert_int_equal(count, 1);
    for (int gap = COUNT - 1; gap > 0; gap -= 97) {
        assert_result(penstock_delete(STORE, keys[gap], strlen(keys[gap])), 0);
        assert_result(penstock_exists_consecutive(STORE, iov, COUNT, &count), 0);
        assert_int_equal(count, gap);
    }
    iov[2].iov_len = 0; /* an empty key is a fault, not a gap */
    assert_result(penstock_exists_consecutive(STORE, iov, COUNT, &count), -EINVAL);
}

/* ---- listings ---- */

static struct penstock_list *list_open(const char *prefix, const char *start, const char *end)
{
    struct penstock_list_options o = {.size = sizeof(o),
                                      .prefix = prefix,
                                      .start = start,
                                      .end = end,
                                      .prefix_bytes = strlen(prefix),
                                      .start_bytes = strlen(start),
                                      .end_bytes = strlen(end)};
    struct penstock_list *list;

    assert_result(penstock_list_open(STORE, &o, &list), 0);
    return list;
}

/* A listing's keys must be the words of @wanted, in order. */
static void expect_keys(const char *prefix, const char *start, const char *end, const char *wanted)
{
    struct penstock_list *list = list_open(prefix, start, end);
    struct penstock_entry entry;
    char got[512] = "";
    int r;

    while ((r = penstock_list_next(list, &entry)) == 1)
        snprintf(got + strlen(got), sizeof(got) - strlen(got), "%s%.*s", *got ? " " : "",
                 (int)entry.key_bytes, (const char *)entry.key);
    assert_int_equal(r, 0);
    assert_int_equal(penstock_list_next(list, &entry), 0); /* the end stays the end */
    assert_string_equal(got, wanted);
    assert_null(penstock_list_close(list));
}

static void list_bounds(void **state)
{
    static const char *const keys[] = {"b", "a",    "ab",       "abc",    "b/2",       "b/10",
                                       "c", "\xff", "\xff\xff", "ab\xff", "ab\xff\x01"};

    (void)state;
    expect_keys("", "", "", "");
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
        put_value(STORE, keys[i], i, i);
    expect_keys("", "", "", "a ab abc ab\xff ab\xff\x01 b b/10 b/2 c \xff \xff\xff");
    expect_keys("ab", "", "", "ab abc ab\xff ab\xff\x01");
    expect_keys("ab\xff", "", "", "ab\xff ab\xff\x01");
    expect_keys("\xff", "", "", "\xff \xff\xff");
    expect_keys("\xff\xff", "", "", "\xff\xff");
    expect_keys("b/", "", "", "b/10 b/2");
    expect_keys("", "b", "c", "b b/10 b/2");
    expect_keys("", "b/1", "b/3", "b/10 b/2");
    expect_keys("", "", "ab", "a");
    expect_keys("", "b/2", "", "b/2 c \xff \xff\xff");
    expect_keys("b", "b/10", "b/2", "b/10");
    expect_keys("b", "a", "z", "b b/10 b/2");
    expect_keys("b", "c", "", "");
    expect_keys("", "c", "a", "");
    expect_keys("zz", "", "", "");
}

static void list_entries(void **state)
{
    struct penstock_op op = {0};
    struct penstock_entry entry;
    struct penstock_list *list;
    char value[3000] = "";

    (void)state;
    penstock_prep_put(&op, "with\0zero", 9, value, sizeof(value));
    op.depth = 17;
    assert_result(run_op(STORE, &op), 0);
    assert_result(penstock_list_open(STORE, NULL, &list), 0);
    assert_int_equal(penstock_list_next(list, &entry), 1);
    assert_int_equal(entry.key_bytes, 9);
    assert_memory_equal(entry.key, "with\0zero", 9);
    assert_int_equal(entry.value_bytes, sizeof(value));
    assert_int_equal(entry.generation, op.generation);
    assert_int_equal(entry.depth, 17);
    assert_int_equal(entry.cache, 0);
    assert_int_equal(penstock_list_next(list, &entry), 0);
    penstock_list_close(list);
    assert_int_equal(penstock_list_next(NULL, &entry), -EINVAL);
}

static void list_long_keys(void **state)
{
    uint8_t key[PENSTOCK_KEY_BYTES_MAX];
    struct penstock_list_options o = {.size = sizeof(o), .prefix = key, .prefix_bytes = 4097};
    struct penstock_entry entry;
    struct penstock_list *list;

    (void)state;
    memset(key, 0xff, sizeof(key));
    for (int i = 0; i < 60; i++) { /* several pages of few keys each */
        key[4095] = (uint8_t)i;
        assert_result(penstock_put(STORE, key, sizeof(key), "v", 1), 0);
    }
    assert_result(penstock_list_open(STORE, &o, &list), -ENAMETOOLONG);
    o.prefix_bytes = 4095;
    assert_result(penstock_list_open(STORE, &o, &list), 0);
    for (int i = 0; i < 60; i++) {
        assert_int_equal(penstock_list_next(list, &entry), 1);
        assert_int_equal(entry.key_bytes, 4096);
        assert_int_equal(((const uint8_t *)entry.key)[4095], i);
    }
    assert_int_equal(penstock_list_next(list, &entry), 0);
    penstock_list_close(list);
}

/* ---- a listing while others write ---- */

enum { STABLE = 12000 };

struct writer {
    struct penstock *store;
    _Atomic bool stop;
    _Atomic int rounds, failed;
};

/* Keys between the stable ones come and go. */
static void *churn(void *arg)
{
    struct writer *w = arg;

    while (!w->stop) {
        int from = w->rounds * 997 % STABLE;

        w->failed += change_many(w->store, PENSTOCK_PUT, "l", from | 1, from + 1000, 2);
        w->failed += change_many(w->store, PENSTOCK_DELETE, "l", from | 1, from + 1000, 2);
        w->rounds++;
    }
    return NULL;
}

/* Every stable key once, in order, whatever stands between. */
static void walk_stable(void)
{
    struct penstock_list *list = list_open("l", "", "");
    struct penstock_entry entry;
    char last[KEY_ROOM] = "", key[KEY_ROOM];
    int next = 0, r;

    while ((r = penstock_list_next(list, &entry)) == 1) {
        int number;

        assert_in_range(entry.key_bytes, 7, KEY_ROOM - 1);
        snprintf(key, sizeof(key), "%.*s", (int)entry.key_bytes, (const char *)entry.key);
        assert_true(strcmp(last, key) < 0);
        strcpy(last, key);
        number = atoi(key + 1);
        assert_int_equal(entry.value_bytes, number % 50);
        if (number % 2 == 0) {
            assert_int_equal(number, next);
            next += 2;
        }
    }
    assert_int_equal(r, 0);
    assert_int_equal(next, 2 * STABLE);
    penstock_list_close(list);
}

static void list_while_others_write(void **state)
{
    struct writer w = {.store = place_handle(&fixture.place)};
    pthread_t thread;

    (void)state;
    assert_int_equal(change_many(STORE, PENSTOCK_PUT, "l", 0, 2 * STABLE, 2), 0);
    walk_stable();
    assert_int_equal(pthread_create(&thread, NULL, churn, &w), 0);
    for (int i = 0; i < 5; i++)
        walk_stable();
    while (w.rounds < 3 && !w.failed)
        usleep(1000);
    w.stop = true;
    pthread_join(thread, NULL);
    place_handle_close(&fixture.place, w.store);
    assert_int_equal(w.failed, 0);
    walk_stable();
    assert_int_equal(stat_of(STORE).keys, STABLE);
}

/* Deleting what was listed, as it is listed, ends with nothing. */
static void list_and_delete(void **state)
{
    struct penstock_list *list;
    struct penstock_entry entry;
    int count = 0;

    (void)state;
    assert_int_equal(change_many(STORE, PENSTOCK_PUT, "l", 0, 5000, 1), 0);
    list = list_open("", "", "");
    for (; penstock_list_next(list, &entry) == 1; count++)
        assert_result(penstock_delete(STORE, entry.key, entry.key_bytes), 0);
    penstock_list_close(list);
    assert_int_equal(count, 5000);
    assert_int_equal(stat_of(STORE).keys, 0);
}

/* ---- deleting many ---- */

static void delete_by_prefix(void **state)
{
    uint64_t deleted = 0;

    (void)state;
    assert_int_equal(change_many(STORE, PENSTOCK_PUT, "one/", 0, 3000, 1), 0);
    assert_int_equal(change_many(STORE, PENSTOCK_PUT, "two/", 0, 100, 1), 0);
    assert_result(penstock_delete_prefix(STORE, "three/", 6, &deleted), 0);
    assert_int_equal(deleted, 0);
    assert_result(penstock_delete_prefix(STORE, "one/", 4, &deleted), 0);
    assert_int_equal(deleted, 3000);
    assert_int_equal(stat_of(STORE).keys, 100);
    assert_result(penstock_delete_prefix(STORE, "two/00005", 9, NULL), 0);
    assert_int_equal(stat_of(STORE).keys, 90);
    assert_result(penstock_exists(STORE, "two/000049", 10), PENSTOCK_OK);
    assert_result(penstock_exists(STORE, "two/000055", 10), PENSTOCK_MISS);
    assert_result(penstock_delete_prefix(STORE, NULL, 0, &deleted), 0);
    assert_int_equal(deleted, 90);
}

static void delete_by_range(void **state)
{
    static const uint8_t long_key[5000];
    uint64_t deleted = 0;

    (void)state;
    assert_int_equal(change_many(STORE, PENSTOCK_PUT, "r", 0, 4000, 1), 0);
    assert_result(penstock_delete_range(STORE, "r001000", 7, "r003000", 7, &deleted), 0);
    assert_int_equal(deleted, 2000);
    assert_result(penstock_exists(STORE, "r000999", 7), PENSTOCK_OK);
    assert_result(penstock_exists(STORE, "r001000", 7), PENSTOCK_MISS);
    assert_result(penstock_exists(STORE, "r002999", 7), PENSTOCK_MISS);
    assert_result(penstock_exists(STORE, "r003000", 7), PENSTOCK_OK);
    assert_result(penstock_delete_range(STORE, "r003000", 7, "r000000", 7, &deleted), 0);
    assert_int_equal(deleted, 0);
    assert_result(penstock_delete_range(STORE, long_key, 4097, "x", 1, &deleted), -ENAMETOOLONG);
    assert_result(penstock_delete_prefix(STORE, long_key, 5000, &deleted), -ENAMETOOLONG);
    assert_result(penstock_delete_range(STORE, "r003500", 7, NULL, 0, &deleted), 0);
    assert_int_equal(deleted, 500);
    assert_result(penstock_delete_range(STORE, NULL, 0, "r000500", 7, &deleted), 0);
    assert_int_equal(deleted, 500);
    assert_int_equal(stat_of(STORE).keys, 1000);
}

/* ---- pins and clear ---- */

static void pins(void **state)
{
    (void)state;
    assert_result(penstock_pin(STORE, "absent", 6, 0), PENSTOCK_MISS);
    assert_result(penstock_unpin(STORE, "absent", 6), PENSTOCK_MISS);
    put_value(STORE, "p", 3000, 1);
    assert_result(penstock_unpin(STORE, "p", 1), -EINVAL); /* has no pin */
    assert_result(penstock_pin(STORE, "p", 1, 0), 0);
    assert_result(penstock_pin(STORE, "p", 1, 0), 0);
    assert_int_equal(stat_of(STORE).pinned, 1);
    put_value(STORE, "p", 5000, 2); /* a pin is on the key: the next value has it */
    assert_int_equal(stat_of(STORE).pinned, 1);
    assert_result(penstock_unpin(STORE, "p", 1), 0);
    assert_int_equal(stat_of(STORE).pinned, 1);
    assert_result(penstock_unpin(STORE, "p", 1), 0);
    assert_int_equal(stat_of(STORE).pinned, 0);
    assert_result(penstock_unpin(STORE, "p", 1), -EINVAL);
    assert_result(penstock_pin(STORE, "p", 1, 0), 0);
    assert_result(penstock_delete(STORE, "p", 1),
                  0); /* a delete by name is meant: the pin goes with the key */
    assert_int_equal(stat_of(STORE).pinned, 0);
    assert_result(penstock_exists(STORE, "p", 1), PENSTOCK_MISS);
}

static void clear_spares_pins(void **state)
{
    uint64_t left = 99;

    (void)state;
    assert_result(penstock_clear(STORE, &left), 0);
    assert_int_equal(left, 0);
    assert_int_equal(change_many(STORE, PENSTOCK_PUT, "z", 0, 3000, 1), 0);
    put_value(STORE, "once", 100, 1);
    put_value(STORE, "twice", 70000, 2);
    assert_result(penstock_pin(STORE, "once", 4, 0), 0);
    assert_result(penstock_pin(STORE, "twice", 5, 0), 0);
    assert_result(penstock_pin(STORE, "twice", 5, 0), 0);
    assert_result(penstock_clear(STORE, &left), 0);
    assert_int_equal(left, 2);
    assert_int_equal(stat_of(STORE).keys, 2);
    expect_bytes(STORE, "once", 100, 1);
    expect_bytes(STORE, "twice", 70000, 2);
    assert_result(penstock_unpin(STORE, "once", 4), 0); /* the last pin: now it leaves */
    assert_result(penstock_exists(STORE, "once", 4), PENSTOCK_MISS);
    assert_result(penstock_unpin(STORE, "twice", 5), 0);
    expect_bytes(STORE, "twice", 70000, 2);
    assert_result(penstock_unpin(STORE, "twice", 5), 0);
    assert_result(penstock_exists(STORE, "twice", 5), PENSTOCK_MISS);
    assert_int_equal(stat_of(STORE).keys, 0);
    assert_int_equal(stat_of(STORE).pinned, 0);
}

/* A pin that ends by time ends a cleared key, too. */
static void clear_and_pins_by_time(void **state)
{
    uint64_t left = 99;

    (void)state;
    put_value(STORE, "timed", 100, 1);
    assert_result(penstock_pin(STORE, "timed", 5, 1000), 0);
    assert_result(penstock_clear(STORE, &left), 0);
    assert_int_equal(left, 1);
    expect_bytes(STORE, "timed", 100, 1);
    for (int i = 0; i < 500 && penstock_exists(STORE, "timed", 5) == PENSTOCK_OK; i++)
        usleep(10000);
    assert_result(penstock_exists(STORE, "timed", 5), PENSTOCK_MISS);
    assert_int_equal(stat_of(STORE).pinned, 0);
}

/* ---- figures ---- */

static void figures(void **state)
{
    struct penstock_stat before = stat_of(STORE), after;
    uint8_t buf[100];

    (void)state;
    assert_int_equal(before.shards, fixture.shards);
    assert_true(before.arenas >= 1);
    assert_int_equal(before.pages * before.page_bytes, 256ull << 20);
    assert_int_equal(change_many(STORE, PENSTOCK_PUT, "s", 0, 500, 1), 0);
    put_value(STORE, "large", 300000, 1);
    for (int i = 0; i < 40; i++)
        assert_result(penstock_get(STORE, "s000007", 7, buf, sizeof(buf), NULL), 0);
    for (int i = 0; i < 25; i++)
        assert_result(penstock_get(STORE, "absent", 6, buf, sizeof(buf), NULL), PENSTOCK_MISS);
    assert_result(penstock_exists(STORE, "absent", 6), PENSTOCK_MISS); /* a question, not a get */
    assert_int_equal(change_many(STORE, PENSTOCK_DELETE, "s", 0, 100, 1), 0);
    after = stat_of(STORE);
    assert_int_equal(after.keys, 401);
    assert_int_equal(after.value_bytes, 300000 + 8 * (49 * 50 / 2));
    assert_int_equal(after.puts - before.puts, 501);
    assert_int_equal(after.gets - before.gets, 65);
    assert_int_equal(after.hits - before.hits, 40);
    assert_int_equal(after.misses - before.misses, 25);
    assert_int_equal(after.deletes - before.deletes, 100);
    assert_int_equal(after.cache_keys, 0);
    assert_int_equal(after.pinned, 0);
    assert_true(after.pages_used > 0 && after.pages_used <= after.pages);
    assert_true(after.slab_pages > 0 && after.slab_bytes > 0 && after.index_bytes > 0);
    assert_true(after.slab_pages <= after.pages_used);
    assert_true(after.uptime_ms >= before.uptime_ms);
    assert_true(after.rss_anon_bytes > 0);
    if (fixture.kind != KIND_MEM)
        assert_int_equal(after.sessions, 1);
}

/* Memory comes back when keys go. */
static void pages_come_back(void **state)
{
    uint64_t used = stat_of(STORE).pages_used;

    (void)state;
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < 10; i++) {
            char key[16];

            snprintf(key, sizeof(key), "pages/%d", i);
            put_value(STORE, key, 9 << 20, i);
        }
        assert_true(stat_of(STORE).pages_used * stat_of(STORE).page_bytes >= 90ull << 20);
        assert_result(penstock_delete_prefix(STORE, "pages/", 6, NULL), 0);
        expect_unpinned(STORE);
        assert_true(stat_of(STORE).pages_used <= used + 2 * fixture.shards);
    }
}

static const struct CMUnitTest tests[] = {
    TEST(consecutive),
    TEST(list_bounds),
    TEST(list_entries),
    TEST(list_long_keys),
    TEST(list_while_others_write),
    TEST(list_and_delete),
    TEST(delete_by_prefix),
    TEST(delete_by_range),
    TEST(pins),
    TEST(clear_spares_pins),
    TEST(clear_and_pins_by_time),
    TEST(figures),
    TEST(pages_come_back),
};

PART(part_keys, tests);
