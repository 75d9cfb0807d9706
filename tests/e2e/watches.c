/* SPDX-License-Identifier: Apache-2.0 */
/* watches.c: what happens to the keys of a prefix, told in order, or counted when it was too much. */
#include "e2e.h"

#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    LONG_MS = 30000,
    MANY = 4000,
    WAKES_MAX = 2000, /* of a descriptor that wakes 50 times a second, and for each message that comes */
    SIDES_MAX = 256,  /* a store's watches times its shards */
    SESSION_MAX = 32, /* a node's watches for one client */
};

static struct penstock_watch *watch_open(struct penstock *store, const char *prefix)
{
    struct penstock_watch *watch = NULL;

    assert_result(penstock_watch_open(store, prefix, strlen(prefix), &watch), 0);
    return watch;
}

static void expect_event(struct penstock_watch *watch, int what, const char *key, uint64_t bytes)
{
    struct penstock_event event;

    assert_int_equal(penstock_watch_next(watch, LONG_MS, &event), 1);
    assert_int_equal(event.what, what);
    assert_int_equal(event.key_bytes, strlen(key));
    assert_memory_equal(event.key, key, event.key_bytes);
    assert_int_equal(event.value_bytes, bytes);
    assert_true(event.generation > 0);
}

static void expect_quiet(struct penstock_watch *watch)
{
    struct penstock_event event;

    assert_int_equal(penstock_watch_next(watch, 30, &event), 0);
}

static void events_come_in_order(void **state)
{
    struct penstock_watch *watch, *all;
    int of_a = 0;

    (void)state;
    put_value(STORE, "w/before", 10, 1);
    watch = watch_open(STORE, "w/");
    all = watch_open(STORE, "");
    expect_quiet(watch);
    put_value(STORE, "w/a", 10, 1);
    expect_event(watch, PENSTOCK_EVENT_PUT, "w/a", 10);
    put_value(STORE, "x", 10, 1);
    put_value(STORE, "w/a", 300000, 2);
    expect_event(watch, PENSTOCK_EVENT_PUT, "w/a", 300000);
    assert_result(penstock_delete(STORE, "w/a", 3), 0);
    expect_event(watch, PENSTOCK_EVENT_DELETED, "w/a", 300000);
    assert_result(penstock_delete(STORE, "w/a", 3), PENSTOCK_MISS);
    assert_result(penstock_delete_prefix(STORE, "w/", 2, NULL), 0);
    expect_event(watch, PENSTOCK_EVENT_DELETED, "w/before", 10);
    expect_quiet(watch);
    assert_true(stat_of(STORE).watches == 2 * stat_of(STORE).shards);
    assert_null(penstock_watch_close(watch));
    for (int i = 0; i < 5; i++) { /* of several shards: each key in order, the keys in any */
        struct penstock_event event;

        assert_int_equal(penstock_watch_next(all, LONG_MS, &event), 1);
        if (event.key_bytes == 3 && memcmp(event.key, "w/a", 3) == 0)
            assert_int_equal(event.what, ++of_a == 3 ? PENSTOCK_EVENT_DELETED : PENSTOCK_EVENT_PUT);
    }
    assert_int_equal(of_a, 3);
    expect_quiet(all);
    assert_null(penstock_watch_close(all));
    assert_int_equal(stat_of(STORE).watches, 0);
}

/* Another handle's thread. */
static void *write_main(void *arg)
{
    struct penstock *store = arg;
    char key[32];

    for (int i = 0; i < MANY; i++) {
        snprintf(key, sizeof(key), "w/%d", i % 50);
        if (put_filled(store, key, (uint64_t)i, 1) != 0)
            return NULL;
    }
    return store;
}

static void a_watcher_keeps_up(void **state)
{
    struct penstock *other = place_handle(&fixture.place);
    struct penstock_watch *watch = watch_open(STORE, "w/");
    struct penstock_event event;
    uint64_t last[50] = {0}, told = 0;
    pthread_t thread;
    void *done;

    (void)state;
    assert_int_equal(pthread_create(&thread, NULL, write_main, other), 0);
    while (told < MANY) {
        unsigned number = 0;

        assert_int_equal(penstock_watch_next(watch, LONG_MS, &event), 1);
        if (event.what == PENSTOCK_EVENT_MISSED) {
            told += event.missed;
            continue;
        }
        assert_int_equal(event.what, PENSTOCK_EVENT_PUT);
        told++;
        for (size_t i = 2; i < event.key_bytes; i++)
            number = number * 10 + (unsigned)(((const char *)event.key)[i] - '0');
        assert_true(number < 50);
        assert_int_equal(event.value_bytes % 50, number);
        assert_true(event.generation > last[number]); /* each key in order */
        last[number] = event.generation;
    }
    assert_int_equal(told, MANY);
    expect_quiet(watch);
    assert_int_equal(pthread_join(thread, &done), 0);
    assert_non_null(done);
    assert_null(penstock_watch_close(watch));
    place_handle_close(&fixture.place, other);
}

static void a_slow_watcher_is_told_what_it_missed(void **state)
{
    enum { WRITES = 60000 };
    struct penstock_op *ops = calloc(1000, sizeof(*ops));
    struct penstock_watch *watch = watch_open(STORE, "w/");
    struct penstock_event event;
    char(*keys)[32] = calloc(1000, sizeof(*keys));
    uint64_t told = 0, missed = 0;

    (void)state;
    assert_true(ops && keys);
    for (int round = 0; round < WRITES / 1000; round++) {
        for (int i = 0; i < 1000; i++) {
            int len = snprintf(keys[i], sizeof(keys[i]), "w/%d", i);

            penstock_prep_put(&ops[i], keys[i], (size_t)len, "v", 1);
        }
        assert_result(penstock_batch(STORE, ops, 1000), 0);
    }
    while (told < WRITES) {
        assert_int_equal(penstock_watch_next(watch, LONG_MS, &event), 1);
        told += event.what == PENSTOCK_EVENT_MISSED ? event.missed : 1;
        missed += event.missed;
    }
    assert_int_equal(told, WRITES);
    assert_true(missed > 0);
    expect_quiet(watch);
    put_value(STORE, "w/after", 7, 1);
    expect_event(watch, PENSTOCK_EVENT_PUT, "w/after", 7);
    assert_null(penstock_watch_close(watch));
    free(ops);
    free(keys);
}

static void *write_later_main(void *arg)
{
    usleep(100000);
    put_filled(STORE, arg, 11, 1);
    return NULL;
}

static void an_event_loop_waits_by_descriptor(void **state)
{
    struct penstock_watch *watch = watch_open(STORE, "fd/");
    struct pollfd fd = {.fd = penstock_watch_fd(watch), .events = POLLIN};
    struct penstock_event event;
    pthread_t thread;
    int r;

    (void)state;
    assert_true(fd.fd >= 0);
    assert_int_equal(penstock_watch_next(watch, 0, &event), 0);
    assert_int_equal(pthread_create(&thread, NULL, write_later_main, "fd/key"), 0);
    for (int polls = 0; (r = penstock_watch_next(watch, 0, &event)) == 0; polls++) {
        assert_in_range(polls, 0, WAKES_MAX);
        assert_int_equal(poll(&fd, 1, LONG_MS), 1);
    }
    assert_int_equal(r, 1);
    assert_int_equal(event.what, PENSTOCK_EVENT_PUT);
    assert_memory_equal(event.key, "fd/key", 6);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_null(penstock_watch_close(watch));
}

static void evictions_are_told(void **state)
{
    struct penstock_watch *watch;
    struct penstock_event event;
    struct place place;
    uint64_t puts = 0, evicted = 0, missed = 0;
    char key[32];

    (void)state;
    place_open(&place, fixture.kind, "32M", "cache/");
    watch = watch_open(place.store, "cache/");
    for (int i = 0; i < 300; i++) {
        snprintf(key, sizeof(key), "cache/%d", i);
        put_value(place.store, key, 200000, 1);
        while (penstock_watch_next(watch, 0, &event) == 1) {
            puts += event.what == PENSTOCK_EVENT_PUT;
            evicted += event.what == PENSTOCK_EVENT_EVICTED;
            missed += event.missed;
        }
    }
    while (puts + missed < 300 || evicted + missed < stat_of(place.store).evictions) {
        assert_int_equal(penstock_watch_next(watch, LONG_MS, &event), 1);
        puts += event.what == PENSTOCK_EVENT_PUT;
        evicted += event.what == PENSTOCK_EVENT_EVICTED;
        missed += event.missed;
    }
    assert_true(evicted > 0);
    assert_null(penstock_watch_close(watch));
    place_close(&place);
}

static void watches_are_bounded(void **state)
{
    enum { TRIES = 300 };
    int most = SIDES_MAX / (int)fixture.shards, count = 0, r = 0;
    struct penstock_watch *watches[TRIES];

    (void)state;
    if (fixture.kind != KIND_MEM && most > SESSION_MAX)
        most = SESSION_MAX;
    while (count < TRIES && (r = penstock_watch_open(STORE, "b", 1, &watches[count])) == 0)
        count++;
    assert_int_equal(r, -EMFILE);
    assert_int_equal(count, most);
    while (count > 0)
        penstock_watch_close(watches[--count]);
    assert_int_equal(stat_of(STORE).watches, 0);
    watches[0] = watch_open(STORE, "b");
    put_value(STORE, "b", 1, 1);
    expect_event(watches[0], PENSTOCK_EVENT_PUT, "b", 1);
    penstock_watch_close(watches[0]);
}

static void bad_arguments_are_refused(void **state)
{
    static const char prefix[4097];
    struct penstock_event event;
    struct penstock_watch *watch;

    (void)state;
    assert_result(penstock_watch_open(NULL, "", 0, &watch), -EINVAL);
    assert_result(penstock_watch_open(STORE, NULL, 1, &watch), -EINVAL);
    assert_result(penstock_watch_open(STORE, "", 0, NULL), -EINVAL);
    assert_result(penstock_watch_open(STORE, prefix, sizeof(prefix), &watch), -ENAMETOOLONG);
    assert_result(penstock_watch_next(NULL, 0, &event), -EINVAL);
    assert_result(penstock_watch_fd(NULL), -EINVAL);
    assert_null(penstock_watch_close(NULL));
    watch = watch_open(STORE, "");
    assert_result(penstock_watch_next(watch, 0, NULL), -EINVAL);
    assert_null(penstock_watch_close(watch)); /* with its question underway or not */
    watch = watch_open(STORE, "");
    assert_int_equal(penstock_watch_next(watch, 0, &event), 0);
    assert_null(penstock_watch_close(watch));
    expect_unpinned(STORE);
}

static const struct CMUnitTest tests[] = {
    TEST(events_come_in_order),
    TEST(a_watcher_keeps_up),
    TEST(a_slow_watcher_is_told_what_it_missed),
    TEST(an_event_loop_waits_by_descriptor),
    TEST(evictions_are_told),
    TEST(watches_are_bounded),
    TEST(bad_arguments_are_refused),
};

PART(part_watches, tests);
