/* SPDX-License-Identifier: Apache-2.0 */
/* waits.c: gets of keys that are not there yet, one by one, in batches and on queues. */
#include "e2e.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
    LONG_MS = 30000, /* never reached where the key comes */
    LARGE_BYTES = 3000000,
    MANY = 40,
    SLOW = 150, /* values whose checksums take a while, */
    SLOW_BYTES = 16 << 20,
    WAIT_MS = 60,
    CLOCK_MS = 15,    /* by which a client's clock may be late */
    WAKES_MAX = 2000, /* of a descriptor that wakes 50 times a second, and for each message that comes */
};

static void expect_waits(uint64_t count)
{
    for (int i = 0; i < 1000 && stat_of(STORE).waits != count; i++)
        usleep(10000);
    assert_int_equal(stat_of(STORE).waits, count);
}

struct waiter {
    pthread_t thread;
    struct penstock *store;
    const char *key;
    uint64_t bytes;
    int result;
    uint64_t value_bytes;
    uint8_t *buf;
};

static void *wait_main(void *arg)
{
    struct waiter *w = arg;

    w->result =
        penstock_get_wait(w->store, w->key, strlen(w->key), w->buf, w->bytes, &w->value_bytes, LONG_MS);
    return NULL;
}

static void waiter_start(struct waiter *w, struct penstock *store, const char *key, uint64_t bytes)
{
    *w =
        (struct waiter){.store = store, .key = key, .bytes = bytes, .buf = bytes_new(bytes), .result = -1000};
    assert_int_equal(pthread_create(&w->thread, NULL, wait_main, w), 0);
}

static void waiter_expect(struct waiter *w, uint64_t seed)
{
    assert_int_equal(pthread_join(w->thread, NULL), 0);
    assert_int_equal(w->result, 0);
    assert_int_equal(w->value_bytes, w->bytes);
    assert_true(filled(w->buf, w->bytes, seed));
    free(w->buf);
}

static void a_put_ends_the_wait(void **state)
{
    struct waiter small, large, same;

    (void)state;
    waiter_start(&small, STORE, "small", 100);
    waiter_start(&large, STORE, "large", LARGE_BYTES);
    waiter_start(&same, STORE, "small", 100);
    expect_waits(3);
    put_value(STORE, "neither", 10, 9);
    expect_bytes(STORE, "neither", 10, 9); /* other operations go on */
    expect_waits(3);
    put_value(STORE, "small", 100, 1);
    waiter_expect(&small, 1);
    waiter_expect(&same, 1);
    put_value(STORE, "large", LARGE_BYTES, 2);
    waiter_expect(&large, 2);
    expect_waits(0);
    expect_unpinned(STORE);
}

static void another_client_ends_the_wait(void **state)
{
    struct penstock *other = place_handle(&fixture.place);
    struct waiter w;

    (void)state;
    waiter_start(&w, STORE, "key", 5000);
    expect_waits(1);
    put_value(other, "key", 5000, 3);
    waiter_expect(&w, 3);
    place_handle_close(&fixture.place, other);
}

static void a_key_that_is_there_is_not_waited_for(void **state)
{
    uint8_t buf[64];
    uint64_t bytes = 0;

    (void)state;
    put_value(STORE, "there", 64, 1);
    assert_result(penstock_get_wait(STORE, "there", 5, buf, sizeof(buf), &bytes, LONG_MS), 0);
    assert_true(bytes == 64 && filled(buf, 64, 1));
    assert_result(penstock_get_wait(STORE, "there", 5, buf, 10, &bytes, LONG_MS), -ENOBUFS);
    assert_int_equal(bytes, 64);
}

static void a_wait_ends_by_itself(void **state)
{
    uint8_t buf[8];

    (void)state;
    assert_result(penstock_get_wait(STORE, "never", 5, buf, sizeof(buf), NULL, 50), PENSTOCK_MISS);
    assert_result(penstock_get_wait(STORE, "never", 5, buf, sizeof(buf), NULL, 1), PENSTOCK_MISS);
    assert_result(penstock_get_wait(STORE, "never", 5, buf, sizeof(buf), NULL, 0), PENSTOCK_MISS);
    assert_result(penstock_get_wait(STORE, "", 0, buf, sizeof(buf), NULL, 50), -EINVAL);
    expect_waits(0);
}

static void *put_many_main(void *arg)
{
    char key[32];

    (void)arg;
    for (int i = 0; i < MANY; i++) {
        snprintf(key, sizeof(key), "many/%d", i);
        put_filled(STORE, key, 1000 * (uint64_t)i, (uint64_t)i);
    }
    return NULL;
}

/* Between operations that do not wait: they travel together, and the others alone. */
static void a_batch_waits_for_all(void **state)
{
    struct penstock_op ops[2 * MANY] = {{0}};
    char keys[MANY][32];
    pthread_t thread;

    (void)state;
    for (int i = 0; i < MANY; i++) {
        struct penstock_op *put = &ops[2 * i], *wait = put + 1;
        int len = snprintf(keys[i], sizeof(keys[i]), "many/%d", i);

        penstock_prep_put(put, "between", 7, "them", 4);
        penstock_prep_get(wait, keys[i], (size_t)len, bytes_new(1000 * (uint64_t)i), 1000 * (uint64_t)i);
        wait->flags = PENSTOCK_WAIT;
        wait->wait_ms = LONG_MS;
    }
    assert_int_equal(pthread_create(&thread, NULL, put_many_main, NULL), 0);
    assert_result(penstock_batch(STORE, ops, 2 * MANY), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    for (int i = 0; i < MANY; i++) {
        struct penstock_op *wait = &ops[2 * i + 1];

        assert_int_equal(wait->value_bytes, 1000 * (uint64_t)i);
        assert_true(filled(wait->data, wait->value_bytes, (uint64_t)i));
        free(wait->data);
    }
    expect_waits(0);
}

static uint64_t now_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

/* A client reads its clock once for many operations; what takes long among them is not taken from the others'
 * time. */
static void a_wait_begins_behind_slow_operations(void **state)
{
    struct penstock_op ops[SLOW + 1] = {{0}}, *wait = &ops[SLOW], *op;
    uint8_t *value = bytes_new(SLOW_BYTES), buf[8];
    struct penstock_queue *queue;
    uint64_t begin_ms;

    (void)state;
    memset(value, 1, SLOW_BYTES);
    assert_result(penstock_queue_open(STORE, &queue), 0);
    for (int i = 0; i < SLOW; i++) {
        penstock_prep_put(&ops[i], "slow", 4, value, SLOW_BYTES);
        ops[i].flags = PENSTOCK_CHECKSUM;
    }
    penstock_prep_get(wait, "never", 5, buf, sizeof(buf));
    wait->flags = PENSTOCK_WAIT;
    wait->wait_ms = WAIT_MS;
    assert_result(penstock_submit(queue, ops, SLOW + 1), 0);
    begin_ms = now_ms();
    for (int i = 0; i <= SLOW; i++) {
        assert_int_equal(penstock_reap(queue, &op, 1, LONG_MS), 1);
        if (op != wait)
            continue;
        assert_int_equal(op->result, PENSTOCK_MISS);
        assert_true(now_ms() - begin_ms + CLOCK_MS >= WAIT_MS);
    }
    assert_null(penstock_queue_close(queue));
    free(value);
}

/* Reaps one operation by the descriptor alone, as an event loop does: it wakes for what happens. */
static struct penstock_op *reap_by_fd(struct penstock_queue *queue)
{
    struct pollfd fd = {.fd = penstock_queue_fd(queue), .events = POLLIN};
    struct penstock_op *op = NULL;
    int r;

    for (int polls = 0; (r = penstock_reap(queue, &op, 1, 0)) == 0; polls++) {
        assert_in_range(polls, 0, WAKES_MAX);
        assert_int_equal(poll(&fd, 1, LONG_MS), 1);
    }
    assert_int_equal(r, 1);
    return op;
}

static void a_queue_goes_on_meanwhile(void **state)
{
    struct penstock_op wait = {0}, brief = {0}, other = {0};
    struct penstock_queue *queue;
    pthread_t thread;
    uint8_t buf[1000], more[64];

    (void)state;
    put_value(STORE, "other", 64, 4);
    assert_result(penstock_queue_open(STORE, &queue), 0);
    penstock_prep_get(&wait, "many/1", 6, buf, sizeof(buf));
    wait.flags = PENSTOCK_WAIT;
    wait.wait_ms = LONG_MS;
    penstock_prep_get(&brief, "never", 5, more, sizeof(more));
    brief.flags = PENSTOCK_WAIT;
    brief.wait_ms = 100;
    penstock_prep_get(&other, "other", 5, more, sizeof(more));
    assert_result(penstock_submit(queue, &wait, 1), 0);
    assert_result(penstock_submit(queue, &other, 1), 0);
    assert_ptr_equal(reap_by_fd(queue), &other);
    assert_result(penstock_submit(queue, &brief, 1), 0);
    assert_ptr_equal(reap_by_fd(queue), &brief); /* its time wakes the descriptor */
    assert_int_equal(brief.result, PENSTOCK_MISS);
    assert_int_equal(pthread_create(&thread, NULL, put_many_main, NULL), 0);
    assert_ptr_equal(reap_by_fd(queue), &wait); /* and so does the put of another thread */
    assert_int_equal(wait.result, 0);
    assert_true(filled(buf, 1000, 1));
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_null(penstock_queue_close(queue));
}

/* While another thread's call waits on the same store, and when nothing is underway any more. */
static void a_descriptor_does_not_spin(void **state)
{
    struct penstock_op brief = {0};
    struct penstock_queue *queue;
    struct waiter w;
    struct pollfd fd;
    int wakes = 0;

    (void)state;
    waiter_start(&w, STORE, "key", 100);
    expect_waits(1);
    assert_result(penstock_queue_open(STORE, &queue), 0);
    penstock_prep_get(&brief, "never", 5, NULL, 0);
    brief.flags = PENSTOCK_WAIT;
    brief.wait_ms = 500;
    assert_result(penstock_submit(queue, &brief, 1), 0);
    assert_ptr_equal(reap_by_fd(queue), &brief);
    put_value(STORE, "key", 100, 1);
    waiter_expect(&w, 1);
    fd = (struct pollfd){.fd = penstock_queue_fd(queue), .events = POLLIN};
    for (int i = 0; i < 2 * WAKES_MAX; i++) {
        wakes += poll(&fd, 1, 0);
        assert_int_equal(penstock_reap(queue, &(struct penstock_op *){NULL}, 1, 0), 0);
    }
    assert_in_range(wakes, 0, WAKES_MAX);
    assert_null(penstock_queue_close(queue));
}

static void ranges_and_attributes_wait_too(void **state)
{
    struct penstock_op get = {0}, put = {0}, *done;
    struct penstock_queue *queue;
    uint8_t buf[10], attrs[16];

    (void)state;
    assert_result(penstock_queue_open(STORE, &queue), 0);
    penstock_prep_get_range(&get, "k", 1, 5, buf, 4);
    get.flags |= PENSTOCK_WAIT;
    get.attrs = attrs;
    get.attr_bytes = sizeof(attrs);
    assert_result(penstock_submit(queue, &get, 1), 0); /* for the store's timeout */
    assert_int_equal(penstock_reap(queue, &done, 1, 20), 0);
    penstock_prep_put(&put, "k", 1, "0123456789", 10);
    put.attrs = (void *)(uintptr_t) "attrs";
    put.attr_bytes = 5;
    assert_result(run_op(STORE, &put), 0);
    assert_int_equal(penstock_reap(queue, &done, 1, -1), 1);
    assert_result(get.result, 0);
    assert_memory_equal(buf, "5678", 4);
    assert_int_equal(get.attr_bytes, 5);
    assert_memory_equal(attrs, "attrs", 5);
    assert_int_equal(get.generation, put.generation);
    assert_null(penstock_queue_close(queue));
}

static void waits_are_bounded(void **state)
{
    enum { WAITS = 4200 };
    struct penstock_op *ops = calloc(WAITS, sizeof(*ops)), *done[64];
    struct penstock_queue *queue;
    uint8_t buf[8];
    int refused = 0, missed = 0, r;

    (void)state;
    assert_non_null(ops);
    assert_result(penstock_queue_open(STORE, &queue), 0);
    for (int i = 0; i < WAITS; i++) {
        penstock_prep_get(&ops[i], "never", 5, buf, sizeof(buf));
        ops[i].flags = PENSTOCK_WAIT;
        ops[i].wait_ms = 500;
    }
    assert_result(penstock_submit(queue, ops, WAITS), 0);
    put_value(STORE, "other", 5000, 1); /* goes on all the same */
    expect_bytes(STORE, "other", 5000, 1);
    while ((r = penstock_reap(queue, done, 64, -1)) > 0) {
        for (int i = 0; i < r; i++) {
            refused += done[i]->result == -EDQUOT;
            missed += done[i]->result == PENSTOCK_MISS;
        }
    }
    assert_int_equal(refused + missed, WAITS);
    assert_int_equal(missed, fixture.kind == KIND_MEM ? 4096 : 512);
    expect_waits(0);
    assert_null(penstock_queue_close(queue));
    free(ops);
}

static void a_dead_client_waits_no_longer(void **state)
{
    uint8_t buf[8];
    pid_t pid;

    (void)state;
    if (place_is_private())
        return;
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        struct penstock *own;

        alarm(60);
        if (penstock_open(fixture.place.url, NULL, &own) == 0)
            penstock_get_wait(own, "never", 5, buf, sizeof(buf), NULL, LONG_MS);
        _exit(1);
    }
    expect_waits(1);
    kill(pid, SIGKILL);
    assert_true(WIFSIGNALED(wait_for_child(pid, 20)));
    expect_waits(0);
    put_value(STORE, "never", 10, 1);
}

/* Many keys come and go under many waits: each ends with a value or its time. */
static void waits_race_with_puts(void **state)
{
    struct waiter waiters[8];
    char keys[8][16];

    (void)state;
    for (int round = 0; round < 20; round++) {
        for (int i = 0; i < 8; i++) {
            snprintf(keys[i], sizeof(keys[i]), "race/%d", i % 4);
            waiter_start(&waiters[i], STORE, keys[i], 3000);
        }
        for (int i = 0; i < 4; i++)
            put_value(STORE, keys[i], 3000, (uint64_t)round);
        for (int i = 0; i < 8; i++)
            waiter_expect(&waiters[i], (uint64_t)round);
        for (int i = 0; i < 4; i++)
            assert_result(penstock_delete(STORE, keys[i], strlen(keys[i])), 0);
    }
    expect_waits(0);
}

static const struct CMUnitTest tests[] = {
    TEST(a_put_ends_the_wait),
    TEST(another_client_ends_the_wait),
    TEST(a_key_that_is_there_is_not_waited_for),
    TEST(a_wait_ends_by_itself),
    TEST(a_batch_waits_for_all),
    TEST(a_wait_begins_behind_slow_operations),
    TEST(a_queue_goes_on_meanwhile),
    TEST(a_descriptor_does_not_spin),
    TEST(ranges_and_attributes_wait_too),
    TEST(waits_are_bounded),
    TEST(a_dead_client_waits_no_longer),
    TEST(waits_race_with_puts),
};

PART(part_waits, tests);
