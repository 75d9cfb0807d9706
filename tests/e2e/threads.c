/* SPDX-License-Identifier: Apache-2.0 */
/* threads.c: one handle, many threads. Threads count what goes wrong; the test looks at the counts. */
#include "e2e.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    THREADS = 8,
    KEYS = 20,
    VALUE_BYTES_MAX = 150000,
    SHARED_BYTES = 9000,
};

struct worker {
    pthread_t thread;
    int number;
    int rounds;
    _Atomic int wrong;
    char first[200]; /* what went wrong first */
    uint64_t random;
    uint8_t *buf, *back;
};

static void wrong(struct worker *w, const char *what, int result)
{
    if (!w->wrong++)
        snprintf(w->first, sizeof(w->first), "thread %d: %s: %d %s", w->number, what, result,
                 result < 0 ? penstock_error() : "");
}

/* Its own keys hold what it last wrote. */
static void own_keys(struct worker *w, uint64_t sizes[KEYS], uint64_t seeds[KEYS])
{
    uint64_t k = next_random(&w->random) % KEYS, got = 0;
    char key[32];
    size_t len = (size_t)snprintf(key, sizeof(key), "own/%d/%d", w->number, (int)k);
    int r;

    switch (next_random(&w->random) % 5) {
    case 0:
    case 1:
        sizes[k] = next_random(&w->random) % (next_random(&w->random) % 4 ? 3000 : VALUE_BYTES_MAX);
        seeds[k] = next_random(&w->random) + 1;
        fill(w->buf, sizes[k], seeds[k]);
        r = penstock_put(STORE, key, len, w->buf, sizes[k]);
        if (r)
            wrong(w, "put", r);
        break;
    case 2:
        r = penstock_delete(STORE, key, len);
        if (r != (seeds[k] ? PENSTOCK_OK : PENSTOCK_MISS))
            wrong(w, "delete", r);
        seeds[k] = 0;
        break;
    default:
        r = penstock_get(STORE, key, len, w->back, VALUE_BYTES_MAX, &got);
        if (r != (seeds[k] ? PENSTOCK_OK : PENSTOCK_MISS))
            wrong(w, "get", r);
        else if (seeds[k] && (got != sizes[k] || !filled(w->back, got, seeds[k])))
            wrong(w, "other bytes than were written", 0);
    }
}

/* A key that all write: what is read was written whole by someone. The first word says with which seed. */
static void shared_key(struct worker *w)
{
    uint64_t seed = next_random(&w->random), got = 0;
    int r;

    if (seed % 2) {
        memcpy(w->buf, &seed, sizeof(seed));
        fill(w->buf + 8, SHARED_BYTES - 8, seed);
        r = penstock_put(STORE, "shared", 6, w->buf, SHARED_BYTES);
        if (r)
            wrong(w, "shared put", r);
        return;
    }
    r = penstock_get(STORE, "shared", 6, w->back, VALUE_BYTES_MAX, &got);
    memcpy(&seed, w->back, sizeof(seed));
    if (r == 0 && (got != SHARED_BYTES || !filled(w->back + 8, SHARED_BYTES - 8, seed)))
        wrong(w, "torn read", 0);
    if (r != 0 && r != PENSTOCK_MISS)
        wrong(w, "shared get", r);
}

static void *simple_calls(void *arg)
{
    struct worker *w = arg;
    uint64_t sizes[KEYS] = {0}, seeds[KEYS] = {0};

    for (int i = 0; i < w->rounds; i++) {
        own_keys(w, sizes, seeds);
        shared_key(w);
    }
    return NULL;
}

/* Puts and gets of a window by a queue of its own. */
static void *queue_calls(void *arg)
{
    enum { WINDOW = 32, BYTES = 2500 };
    struct worker *w = arg;
    struct penstock_queue *queue;
    struct penstock_op ops[WINDOW] = {0}, *done[WINDOW];
    char keys[WINDOW][32];
    int r = penstock_queue_open(STORE, &queue);

    if (r)
        return wrong(w, "queue", r), NULL;
    for (int i = 0; i < w->rounds / 8; i++) {
        bool get = i % 2;
        int left = WINDOW;

        for (int k = 0; k < WINDOW; k++) {
            if (!get)
                fill(w->buf + k * BYTES, BYTES, i + k + w->number);
            penstock_prep(&ops[k], get ? PENSTOCK_GET : PENSTOCK_PUT, keys[k],
                          (size_t)snprintf(keys[k], 32, "q/%d/%d", w->number, k));
            ops[k].data = (get ? w->back : w->buf) + k * BYTES;
            ops[k].bytes = BYTES;
        }
        r = penstock_submit(queue, ops, WINDOW);
        while (r >= 0 && left > 0 && (r = penstock_reap(queue, done, WINDOW, -1)) > 0)
            left -= r;
        if (left)
            wrong(w, "reap", r);
        for (int k = 0; k < WINDOW; k++) {
            if (ops[k].result)
                wrong(w, "queued operation", ops[k].result);
            else if (get && !filled(w->back + k * BYTES, BYTES, i - 1 + k + w->number))
                wrong(w, "other bytes through a queue", 0);
        }
    }
    penstock_queue_close(queue);
    return NULL;
}

static void run_threads(void *(*const mains[2])(void *), int rounds)
{
    struct worker workers[THREADS];

    for (int i = 0; i < THREADS; i++) {
        struct worker *w = &workers[i];

        *w = (struct worker){.number = i, .rounds = rounds, .random = 1000 + i};
        w->buf = bytes_new(VALUE_BYTES_MAX);
        w->back = bytes_new(VALUE_BYTES_MAX);
        assert_int_equal(pthread_create(&w->thread, NULL, mains[i % 2], w), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(workers[i].thread, NULL);
        free(workers[i].buf);
        free(workers[i].back);
    }
    for (int i = 0; i < THREADS; i++) {
        if (workers[i].wrong)
            print_error("%s (and %d more)\n", workers[i].first, workers[i].wrong - 1);
    }
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(workers[i].wrong, 0);
    expect_unpinned(STORE);
}

static void eight_threads(void **state)
{
    void *(*const mains[2])(void *) = {simple_calls, simple_calls};

    (void)state;
    run_threads(mains, 400);
}

static void eight_threads_half_on_queues(void **state)
{
    void *(*const mains[2])(void *) = {simple_calls, queue_calls};

    (void)state;
    run_threads(mains, 300);
}

/* ---- one winner ---- */

static void *race_if_absent(void *arg)
{
    struct worker *w = arg;

    for (int i = 0; i < w->rounds; i++) {
        struct penstock_op op = {0};
        char key[32];

        fill(w->buf, i % 2 ? 5000 : 50, w->number);
        penstock_prep_put(&op, key, (size_t)snprintf(key, sizeof(key), "race/%d", i), w->buf,
                          i % 2 ? 5000 : 50);
        op.flags = PENSTOCK_IF_ABSENT;
        penstock_batch(STORE, &op, 1);
        if (op.result == PENSTOCK_OK)
            w->back[i] = 1;
        else if (op.result != PENSTOCK_EXISTS)
            wrong(w, "put if absent", op.result);
    }
    return NULL;
}

static void first_writer_wins(void **state)
{
    enum { ROUNDS = 200 };
    struct worker workers[THREADS];

    (void)state;
    for (int i = 0; i < THREADS; i++) {
        workers[i] =
            (struct worker){.number = i, .rounds = ROUNDS, .buf = bytes_new(5000), .back = calloc(1, ROUNDS)};
        assert_int_equal(pthread_create(&workers[i].thread, NULL, race_if_absent, &workers[i]), 0);
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(workers[i].thread, NULL);
    for (int round = 0; round < ROUNDS; round++) {
        int winners = 0, winner = 0;
        char key[32];

        for (int i = 0; i < THREADS; i++) {
            winners += workers[i].back[round];
            winner = workers[i].back[round] ? i : winner;
        }
        assert_int_equal(winners, 1);
        snprintf(key, sizeof(key), "race/%d", round);
        expect_bytes(STORE, key, round % 2 ? 5000 : 50, winner);
    }
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(workers[i].wrong, 0);
        free(workers[i].buf);
        free(workers[i].back);
    }
}

static const struct CMUnitTest tests[] = {
    TEST(eight_threads),
    TEST(eight_threads_half_on_queues),
    TEST(first_writer_wins),
};

PART(part_threads, tests);
