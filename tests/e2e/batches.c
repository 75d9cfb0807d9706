/* SPDX-License-Identifier: Apache-2.0 */
/* batches.c: many operations at once, in batches and on queues. */
#include "e2e.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- mixed batches, against a model ---- */

enum {
    KEYS = 3000,
    BATCH_MAX = 1000,
    BATCH_BYTES_MAX = 24 << 20,
    VALUE_BYTES_MAX = 300000,
    KEY_ROOM = 600,
};

struct model_key {
    char key[KEY_ROOM];
    size_t key_bytes;
    bool there;
    uint64_t bytes, seed, generation;
};

struct model_op {
    struct model_key *key;
    uint8_t *buf;
    uint64_t seed;
    int wanted;
};

struct model {
    struct model_key keys[KEYS];
    struct model_op plan[BATCH_MAX];
    struct penstock_op ops[BATCH_MAX];
    uint64_t random, seed, bytes_left;
};

static uint64_t random_size(struct model *m)
{
    static const uint64_t some[] = {0, 1, 64, 100, 2047, 2048, 2049, 4096, 5000, 70000, VALUE_BYTES_MAX};
    uint64_t bytes = some[next_random(&m->random) % (sizeof(some) / sizeof(some[0]))];

    return bytes <= m->bytes_left ? bytes : 64;
}

static void plan_put(struct model *m, struct model_op *plan, struct penstock_op *op)
{
    uint64_t bytes = random_size(m);

    m->bytes_left -= bytes < m->bytes_left ? bytes : m->bytes_left;
    plan->seed = ++m->seed;
    plan->buf = bytes_new(bytes);
    fill(plan->buf, bytes, plan->seed);
    penstock_prep_put(op, plan->key->key, plan->key->key_bytes, plan->buf, bytes);
    switch (next_random(&m->random) % 4) {
    case 0:
        op->flags = PENSTOCK_IF_ABSENT;
        plan->wanted = plan->key->there ? PENSTOCK_EXISTS : PENSTOCK_OK;
        break;
    case 1:
        op->flags = PENSTOCK_IF_GENERATION | PENSTOCK_CHECKSUM;
        op->if_generation = next_random(&m->random) % 2 ? plan->key->generation : 77;
        plan->wanted = op->if_generation == plan->key->generation ? PENSTOCK_OK : PENSTOCK_STALE;
        break;
    case 2:
        op->flags = PENSTOCK_CHECKSUM;
        break;
    }
}

static void plan_get(struct model *m, struct model_op *plan, struct penstock_op *op)
{
    const struct model_key *key = plan->key;

    plan->buf = bytes_new(VALUE_BYTES_MAX <= m->bytes_left ? VALUE_BYTES_MAX : key->bytes);
    plan->wanted = key->there ? PENSTOCK_OK : PENSTOCK_MISS;
    m->bytes_left -= key->bytes < m->bytes_left ? key->bytes : m->bytes_left;
    if (next_random(&m->random) % 3 == 0 && key->bytes >= 16) {
        penstock_prep_get_range(op, key->key, key->key_bytes, 8, plan->buf, key->bytes - 8);
        return;
    }
    penstock_prep_get(op, key->key, key->key_bytes, plan->buf, key->bytes);
    if (next_random(&m->random) % 3 == 0)
        op->flags = PENSTOCK_EXACT;
}

static void plan_batch(struct model *m, size_t count)
{
    size_t first = next_random(&m->random) % KEYS;

    m->bytes_left = BATCH_BYTES_MAX;
    for (size_t i = 0; i < count; i++) {
        struct model_op *plan = &m->plan[i];
        struct penstock_op *op = &m->ops[i];

        *plan = (struct model_op){
            .key = &m->keys[(first + i * 7) % KEYS]}; /* each key once: 7 does not divide their number */
        *op = (struct penstock_op){.user = plan};
        switch (next_random(&m->random) % 8) {
        case 0:
        case 1:
        case 2:
            plan_put(m, plan, op);
            break;
        case 3:
        case 4:
        case 5:
            plan_get(m, plan, op);
            break;
        default:
            penstock_prep(op, next_random(&m->random) % 3 ? PENSTOCK_STAT_KEY : PENSTOCK_DELETE,
                          plan->key->key, plan->key->key_bytes);
            plan->wanted = plan->key->there ? PENSTOCK_OK : PENSTOCK_MISS;
        }
    }
}

static void check_get(const struct penstock_op *op, const struct model_op *plan)
{
    uint64_t offset = op->flags & PENSTOCK_RANGE ? 8 : 0;

    assert_true(filled_from(plan->buf, offset, plan->key->bytes - offset, plan->key->seed));
}

static int check_op(const struct penstock_op *op, struct model_op *plan)
{
    struct model_key *key = plan->key;

    if (op->result != plan->wanted)
        print_error("code %d, flags %d, %llu bytes: %d, not %d\n", op->code, op->flags,
                    (unsigned long long)op->bytes, op->result, plan->wanted);
    assert_int_equal(op->result, plan->wanted);
    if (op->code == PENSTOCK_PUT && op->result == 0) {
        assert_true(op->generation > key->generation);
        key->there = true;
        key->bytes = op->bytes;
        key->seed = plan->seed;
        key->generation = op->generation;
    } else if (op->result != PENSTOCK_MISS) {
        assert_int_equal(op->value_bytes, key->bytes);
        assert_int_equal(op->generation, key->generation);
    }
    if (op->code == PENSTOCK_GET && op->result == 0)
        check_get(op, plan);
    if (op->code == PENSTOCK_DELETE && op->result == 0) {
        key->there = false;
        key->bytes = key->generation = 0;
    }
    free(plan->buf);
    return op->result != 0;
}

static struct model *model_new(void)
{
    struct model *m = calloc(1, sizeof(*m));

    assert_non_null(m);
    m->random = 4711;
    for (size_t i = 0; i < KEYS; i++) {
        m->keys[i].key_bytes = (size_t)snprintf(m->keys[i].key, KEY_ROOM, "mix/%zu/", i);
        if (i % 50 == 0) { /* some long ones */
            memset(m->keys[i].key + m->keys[i].key_bytes, 'x', KEY_ROOM - m->keys[i].key_bytes);
            m->keys[i].key_bytes = KEY_ROOM;
        }
    }
    return m;
}

static void expect_model(struct penstock *store, const struct model *m)
{
    struct penstock_stat stat = stat_of(store);
    uint64_t keys = 0, bytes = 0;

    for (size_t i = 0; i < KEYS; i++) {
        keys += m->keys[i].there;
        bytes += m->keys[i].there ? m->keys[i].bytes : 0;
    }
    assert_int_equal(stat.keys, keys);
    assert_int_equal(stat.value_bytes, bytes);
}

static void mixed_batches(void **state)
{
    static const size_t counts[] = {1,   2,   3,    16,   100,  128,  255, 256,
                                    257, 600, 1000, 1000, 1000, 1000, 5,   1000};
    struct model *m = model_new();

    (void)state;
    for (size_t b = 0; b < sizeof(counts) / sizeof(counts[0]); b++) {
        int failed = 0, r;

        plan_batch(m, counts[b]);
        r = penstock_batch(STORE, m->ops, counts[b]);
        for (size_t i = 0; i < counts[b]; i++)
            failed += check_op(&m->ops[i], &m->plan[i]);
        assert_int_equal(r, failed);
    }
    expect_model(STORE, m);
    expect_unpinned(STORE);
    free(m);
}

/* The same by a queue, many batches of it submitted before the first is reaped. */
static void mixed_queue(void **state)
{
    enum { PIECE = 50 };
    struct penstock_op *done[64];
    struct penstock_queue *queue;
    struct model *m = model_new();

    (void)state;
    assert_result(penstock_queue_open(STORE, &queue), 0);
    for (int round = 0; round < 6; round++) {
        int reaped = 0, r;

        plan_batch(m, BATCH_MAX);
        for (int at = 0; at < BATCH_MAX; at += PIECE)
            assert_result(penstock_submit(queue, &m->ops[at], PIECE), 0);
        while ((r = penstock_reap(queue, done, 64, -1)) > 0) {
            for (int i = 0; i < r; i++)
                check_op(done[i], done[i]->user);
            reaped += r;
        }
        assert_int_equal(r, 0);
        assert_int_equal(reaped, BATCH_MAX);
    }
    assert_null(penstock_queue_close(queue));
    expect_model(STORE, m);
    free(m);
}

/* ---- larger than a message ---- */

/* Requests and replies of several MiB, all of them small values. */
static void batch_of_full_messages(void **state)
{
    enum { COUNT = 1000, BYTES = 2048 };
    struct penstock_op *ops = calloc(COUNT, sizeof(*ops));
    uint8_t *values = bytes_new(COUNT * BYTES), *back = bytes_new(COUNT * BYTES);
    char(*keys)[32] = bytes_new(COUNT * 32);

    (void)state;
    assert_non_null(ops);
    fill(values, COUNT * BYTES, 6);
    for (int i = 0; i < COUNT; i++)
        penstock_prep_put(&ops[i], keys[i], (size_t)snprintf(keys[i], 32, "full/%d", i), values + i * BYTES,
                          BYTES);
    assert_int_equal(penstock_batch(STORE, ops, COUNT), 0);
    for (int i = 0; i < COUNT; i++)
        penstock_prep_get(&ops[i], keys[i], strlen(keys[i]), back + i * BYTES, BYTES);
    assert_int_equal(penstock_batch(STORE, ops, COUNT), 0);
    assert_true(filled(back, COUNT * BYTES, 6));
    free(ops);
    free(values);
    free(back);
    free(keys);
}

/* Keys and attributes as long as they may be, in one batch. */
static void batch_of_long_keys(void **state)
{
    enum { COUNT = 300, BYTES = PENSTOCK_KEY_BYTES_MAX };
    struct penstock_op *ops = calloc(COUNT, sizeof(*ops));
    uint8_t *keys = bytes_new((uint64_t)COUNT * BYTES), attrs[256],
            (*back)[256] = bytes_new((uint64_t)COUNT * 256);

    (void)state;
    assert_non_null(ops);
    fill(keys, (uint64_t)COUNT * BYTES, 8);
    fill(attrs, sizeof(attrs), 9);
    for (int i = 0; i < COUNT; i++) {
        ops[i].attrs = attrs;
        ops[i].attr_bytes = sizeof(attrs);
        penstock_prep_put(&ops[i], keys + i * BYTES, BYTES, keys + i * BYTES, 2048);
    }
    assert_int_equal(penstock_batch(STORE, ops, COUNT), 0);
    for (int i = 0; i < COUNT; i++) {
        ops[i].attrs = back[i];
        penstock_prep(&ops[i], PENSTOCK_STAT_KEY, keys + i * BYTES, BYTES);
    }
    assert_int_equal(penstock_batch(STORE, ops, COUNT), 0);
    for (int i = 0; i < COUNT; i++) {
        assert_int_equal(ops[i].attr_bytes, sizeof(attrs));
        assert_memory_equal(back[i], attrs, sizeof(attrs));
        assert_int_equal(ops[i].value_bytes, 2048);
    }
    free(ops);
    free(keys);
    free(back);
}

/* The order of operations on one key is not defined, but one of them wins whole. */
static void one_key_many_times(void **state)
{
    enum { COUNT = 64, BYTES = 70000 };
    struct penstock_op ops[COUNT] = {0};
    uint8_t *values = bytes_new(COUNT * BYTES), *back = bytes_new(BYTES);
    uint64_t value_bytes, newest = 0;
    int winner = 0;

    (void)state;
    for (int i = 0; i < COUNT; i++) {
        fill(values + i * BYTES, BYTES, 100 + i);
        penstock_prep_put(&ops[i], "same", 4, values + i * BYTES, BYTES - 8 * i);
    }
    assert_int_equal(penstock_batch(STORE, ops, COUNT), 0);
    for (int i = 0; i < COUNT; i++) {
        if (ops[i].generation > newest) {
            newest = ops[i].generation;
            winner = i;
        }
    }
    assert_result(penstock_get(STORE, "same", 4, back, BYTES, &value_bytes), 0);
    assert_int_equal(value_bytes, BYTES - 8 * winner);
    assert_true(filled(back, value_bytes, 100 + winner));
    for (int i = 0; i < COUNT; i++)
        ops[i].flags = PENSTOCK_IF_ABSENT;
    assert_result(penstock_delete(STORE, "same", 4), 0);
    assert_int_equal(penstock_batch(STORE, ops, COUNT), COUNT - 1); /* one is first */
    free(values);
    free(back);
}

/* ---- queues ---- */

static void queue_many_in_flight(void **state)
{
    enum { COUNT = 20000, PIECE = 128, BYTES = 64 };
    struct penstock_op *ops = calloc(COUNT, sizeof(*ops)), *done[256];
    uint8_t *values = bytes_new(COUNT * BYTES), *back = bytes_new(COUNT * BYTES);
    char(*keys)[24] = bytes_new(COUNT * 24);
    struct penstock_queue *queue;

    (void)state;
    assert_non_null(ops);
    fill(values, COUNT * BYTES, 12);
    assert_result(penstock_queue_open(STORE, &queue), 0);
    for (int pass = 0; pass < 2; pass++) {
        int reaped = 0, r;

        for (int at = 0; at < COUNT; at += PIECE) {
            int count = COUNT - at < PIECE ? COUNT - at : PIECE;

            for (int i = at; i < at + count; i++) {
                size_t len = (size_t)snprintf(keys[i], 24, "q/%d", i);

                penstock_prep(&ops[i], pass ? PENSTOCK_GET : PENSTOCK_PUT, keys[i], len);
                ops[i].data = (pass ? back : values) + i * BYTES;
                ops[i].bytes = BYTES;
                ops[i].user = &keys[i];
            }
            assert_result(penstock_submit(queue, &ops[at], count), 0);
        }
        while ((r = penstock_reap(queue, done, 256, -1)) > 0) {
            for (int i = 0; i < r; i++) {
                assert_result(done[i]->result, 0);
                assert_ptr_equal(done[i]->user, done[i]->key);
            }
            reaped += r;
        }
        assert_int_equal(reaped, COUNT);
    }
    assert_memory_equal(values, back, COUNT * BYTES);
    penstock_queue_close(queue);
    free(ops);
    free(values);
    free(back);
    free(keys);
}

static void queue_without_work(void **state)
{
    struct penstock_op *done[4], op = {0};
    struct penstock_queue *queue;

    (void)state;
    assert_result(penstock_queue_open(STORE, &queue), 0);
    assert_int_equal(penstock_reap(queue, done, 4, 0), 0);
    assert_int_equal(penstock_reap(queue, done, 4, -1), 0); /* nothing is underway: does not wait */
    assert_int_equal(penstock_reap(queue, done, 0, 0), -EINVAL);
    assert_int_equal(penstock_reap(NULL, done, 4, 0), -EINVAL);
    assert_int_equal(penstock_submit(NULL, &op, 1), -EINVAL);
    assert_int_equal(penstock_submit(queue, NULL, 1), -EINVAL);
    assert_int_equal(penstock_submit(queue, NULL, 0), 0);
    penstock_prep_put(&op, "", 0, "x", 1);
    assert_result(penstock_submit(queue, &op, 1), 0);
    assert_int_equal(penstock_reap(queue, done, 4, 1000), 1);
    assert_ptr_equal(done[0], &op);
    assert_result(op.result, -EINVAL);
    penstock_queue_close(queue);
}

/* A queue may be closed over work that is underway: it has ended then. */
static void queue_closed_early(void **state)
{
    static const char value[3000] = "value";
    struct penstock_op ops[100] = {0};
    struct penstock_queue *queue;
    char keys[100][16];

    (void)state;
    assert_result(penstock_queue_open(STORE, &queue), 0);
    for (int i = 0; i < 100; i++)
        penstock_prep_put(&ops[i], keys[i], (size_t)snprintf(keys[i], 16, "early/%d", i), value,
                          sizeof(value));
    assert_result(penstock_submit(queue, ops, 100), 0);
    penstock_queue_close(queue);
    for (int i = 0; i < 100; i++)
        assert_result(ops[i].result, 0);
    assert_int_equal(stat_of(STORE).keys, 100);
}

/* Waits for the descriptor, then reaps until there is nothing. Return: how many came. */
static int reap_by_poll(struct penstock_queue *queue, int fd, int wanted)
{
    struct penstock_op *done[32];
    int reaped = 0, wakes = 0;

    while (reaped < wanted) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        int r;

        assert_int_equal(poll(&p, 1, 5000), 1);
        while ((r = penstock_reap(queue, done, 32, 0)) > 0) {
            for (int i = 0; i < r; i++)
                assert_result(done[i]->result, 0);
            reaped += r;
        }
        assert_int_equal(r, 0);
        assert_true(++wakes < 100000);
    }
    return reaped;
}

static void queue_descriptor(void **state)
{
    enum { ROUNDS = 60, COUNT = 20, BYTES = 4000 };
    static uint8_t values[COUNT][BYTES], back[COUNT][BYTES];
    struct penstock_op ops[COUNT] = {0};
    struct penstock_queue *queue;
    char keys[COUNT][16];
    int fd;

    (void)state;
    assert_result(penstock_queue_open(STORE, &queue), 0);
    fd = penstock_queue_fd(queue);
    assert_true(fd >= 0);
    assert_int_equal(penstock_queue_fd(queue), fd);
    for (int round = 0; round < ROUNDS; round++) {
        uint64_t bytes = round % 3 == 0 ? BYTES : round % 3 == 1 ? 64 : 2048;

        for (int i = 0; i < COUNT; i++) {
            fill(values[i], bytes, round * 100 + i);
            penstock_prep_put(&ops[i], keys[i], (size_t)snprintf(keys[i], 16, "fd/%d", i), values[i], bytes);
        }
        assert_result(penstock_submit(queue, ops, COUNT), 0);
        assert_int_equal(poll(&(struct pollfd){.fd = fd, .events = POLLIN}, 1, 0), 1); /* to be looked at */
        assert_int_equal(reap_by_poll(queue, fd, COUNT), COUNT);
        memset(back, 0, sizeof(back));
        for (int i = 0; i < COUNT; i++)
            penstock_prep_get(&ops[i], keys[i], strlen(keys[i]), back[i], bytes);
        for (int i = 0; i < COUNT; i++) /* one by one, with other calls between */
            assert_result(penstock_submit(queue, &ops[i], 1), 0);
        assert_result(penstock_exists(STORE, "fd/0", 4), 0);
        assert_int_equal(reap_by_poll(queue, fd, COUNT), COUNT);
        for (int i = 0; i < COUNT; i++)
            assert_true(filled(back[i], bytes, round * 100 + i));
    }
    penstock_queue_close(queue);
}

static void operations_know_their_request(void **state)
{
    struct penstock_op ops[2] = {{0}}, bad = {0};
    uint64_t first;

    (void)state;
    penstock_prep_put(&ops[0], "k", 1, "1", 1);
    penstock_prep_get(&ops[1], "absent", 6, NULL, 0);
    assert_result(run_op(STORE, &ops[0]), 0);
    first = penstock_request_id(&ops[0]);
    assert_result(run_op(STORE, &ops[0]), 0);
    assert_int_equal(run_op(STORE, &ops[1]), PENSTOCK_MISS);
    if (fixture.kind == KIND_MEM) {
        assert_true(first == 0 && penstock_request_id(&ops[0]) == 0);
    } else {
        assert_true(first != 0 && penstock_request_id(&ops[0]) != first);
        assert_true(penstock_request_id(&ops[1]) != penstock_request_id(&ops[0]));
    }
    penstock_prep_get(&bad, "", 0, NULL, 0);
    assert_int_equal(run_op(STORE, &bad), -EINVAL);
    assert_true(penstock_request_id(&bad) == 0);
    assert_true(penstock_request_id(NULL) == 0);
}

static const struct CMUnitTest tests[] = {
    TEST(operations_know_their_request),
    TEST(mixed_batches),
    TEST(mixed_queue),
    TEST(batch_of_full_messages),
    TEST(batch_of_long_keys),
    TEST(one_key_many_times),
    TEST(queue_many_in_flight),
    TEST(queue_without_work),
    TEST(queue_closed_early),
    TEST(queue_descriptor),
};

PART(part_batches, tests);
