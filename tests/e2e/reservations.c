/* SPDX-License-Identifier: Apache-2.0 */
/* reservations.c: values that are written in several steps: reserve, write, commit, abort, and streams of
 * unknown length. */
#include "e2e.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LARGE = 700000 };

static struct penstock_reservation reserve(const char *key, uint64_t bytes)
{
    struct penstock_reservation reservation = {0};

    assert_result(penstock_reserve(STORE, key, strlen(key), bytes, PENSTOCK_DEPTH_NONE, &reservation), 0);
    assert_true(reservation.handle != 0);
    assert_int_equal(reservation.bytes, bytes);
    assert_int_equal(reservation.tier, PENSTOCK_TIER_DRAM);
    assert_int_equal(reservation.location_bytes, strlen(reservation.location));
    return reservation;
}

/* Writes bytes [@from, @to) of value @seed. Return: the result. */
static int write_part(const char *key, const struct penstock_reservation *reservation, uint64_t seed,
                      uint64_t from, uint64_t to)
{
    uint8_t *value = bytes_new(to);
    int r;

    fill(value, to, seed);
    r = penstock_write_at(STORE, key, strlen(key), reservation, from, value + from, to - from);
    free(value);
    return r;
}

static int commit(const char *key, const struct penstock_reservation *reservation, uint64_t *generation)
{
    return penstock_reservation_commit(STORE, key, strlen(key), reservation, generation);
}

static void reserve_write_commit(void **state)
{
    static const uint64_t sizes[] = {0, 1, 100, 2048, 2049, 40000, LARGE, 5000000};

    (void)state;
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        struct penstock_reservation reservation = reserve("k", sizes[i]);
        uint64_t generation = 0, again = 0;

        assert_int_equal(stat_of(STORE).reservations, 1);
        assert_int_equal(stat_of(STORE).reservation_bytes, sizes[i]);
        assert_result(penstock_exists(STORE, "k", 1), PENSTOCK_MISS);
        assert_result(write_part("k", &reservation, 7, 0, sizes[i]), 0);
        assert_result(penstock_exists(STORE, "k", 1), PENSTOCK_MISS);
        assert_result(commit("k", &reservation, &generation), 0);
        expect_bytes(STORE, "k", sizes[i], 7);
        assert_result(commit("k", &reservation, &again), 0); /* idempotent */
        assert_int_equal(again, generation);
        assert_result(penstock_reservation_abort(STORE, "k", 1, &reservation),
                      0); /* too late, and harmless */
        expect_bytes(STORE, "k", sizes[i], 7);
        assert_result(penstock_delete(STORE, "k", 1), 0);
        assert_result(commit("k", &reservation, &again),
                      0); /* of a value that has gone since: still the answer */
        assert_int_equal(again, generation);
        assert_result(penstock_exists(STORE, "k", 1), PENSTOCK_MISS);
        expect_no_reservations();
    }
}

static void pieces_in_any_order(void **state)
{
    enum { PIECES = 16, BYTES = 3000 };
    struct penstock_reservation reservation = reserve("k", PIECES * BYTES);

    (void)state;
    for (int i = 0; i < PIECES; i++) {
        int piece = i * 7 % PIECES;

        assert_result(write_part("k", &reservation, 3, piece * BYTES, (piece + 1) * BYTES), 0);
    }
    assert_result(write_part("k", &reservation, 3, 1000, 9000), 0); /* once more, across pieces */
    assert_result(commit("k", &reservation, NULL), 0);
    expect_bytes(STORE, "k", PIECES * BYTES, 3);
}

static void gaps_are_not_committed(void **state)
{
    struct penstock_reservation reservation = reserve("k", LARGE), holed = reserve("h", 100);
    int r = 0, writes = 0;

    (void)state;
    assert_result(write_part("k", &reservation, 3, 0, 300000), 0);
    assert_result(write_part("k", &reservation, 3, 300001, LARGE), 0);
    assert_result(commit("k", &reservation, NULL), -ENODATA);
    assert_result(penstock_exists(STORE, "k", 1), PENSTOCK_MISS);
    assert_result(commit("k", &reservation, NULL), PENSTOCK_MISS); /* given up */
    assert_result(write_part("k", &reservation, 3, 0, 10), PENSTOCK_MISS);
    for (; writes < 60 && r == 0; writes++)
        r = write_part("h", &holed, 3, 2 * writes > 99 ? 99 : 2 * writes, 2 * writes + 1);
    assert_result(r, -E2BIG);
    assert_true(writes > PENSTOCK_RESERVATION_GAPS_MAX);
    assert_result(write_part("h", &holed, 3, 0, 100), 0); /* closes them all */
    assert_result(commit("h", &holed, NULL), 0);
    expect_bytes(STORE, "h", 100, 3);
    expect_no_reservations();
}

static void keys_are_owned(void **state)
{
    struct penstock_reservation first = reserve("k", 100), second = {0}, over = {0};
    struct penstock_op op = {0};
    uint64_t generation;

    (void)state;
    assert_result(penstock_reserve(STORE, "k", 1, 100, 0, &second), PENSTOCK_OWNED);
    assert_int_equal(second.handle, 0);
    assert_result(penstock_reservation_abort(STORE, "k", 1, &first), 0);
    assert_result(penstock_reservation_abort(STORE, "k", 1, &first), 0);
    second = reserve("k", 100);
    assert_result(write_part("k", &second, 1, 0, 100), 0);
    assert_result(commit("k", &second, &generation), 0);
    penstock_prep_reserve(&op, "k", 1, 100, &first);
    assert_result(run_op(STORE, &op), PENSTOCK_EXISTS);
    assert_int_equal(op.generation, generation);
    assert_int_equal(op.value_bytes, 100);
    /* Like a put: two at once, and the last commit wins. */
    penstock_prep_reserve(&op, "k", 1, 3000, &first);
    op.flags = PENSTOCK_REPLACE;
    assert_result(run_op(STORE, &op), 0);
    penstock_prep_reserve(&op, "k", 1, 3000, &over);
    op.flags = PENSTOCK_REPLACE;
    assert_result(run_op(STORE, &op), 0);
    assert_result(write_part("k", &first, 2, 0, 3000), 0);
    assert_result(write_part("k", &over, 3, 0, 3000), 0);
    assert_result(commit("k", &over, NULL), 0);
    expect_bytes(STORE, "k", 3000, 3);
    assert_result(commit("k", &first, NULL), 0);
    expect_bytes(STORE, "k", 3000, 2);
}

static void conditions_hold_at_the_commit(void **state)
{
    struct penstock_reservation reservation = reserve("k", 100);
    struct penstock_op op = {0};
    uint64_t generation = 0;

    (void)state;
    put_value(STORE, "k", 50, 9);
    assert_result(write_part("k", &reservation, 1, 0, 100), 0);
    assert_result(commit("k", &reservation, &generation), PENSTOCK_EXISTS);
    assert_true(generation > 0);
    expect_bytes(STORE, "k", 50, 9);
    penstock_prep_reserve(&op, "k", 1, 100, &reservation);
    op.flags = PENSTOCK_IF_GENERATION;
    op.if_generation = generation + 1;
    assert_result(run_op(STORE, &op), PENSTOCK_STALE);
    op.if_generation = generation;
    assert_result(run_op(STORE, &op), 0);
    assert_result(write_part("k", &reservation, 1, 0, 100), 0);
    put_value(STORE, "k", 50, 8);
    assert_result(commit("k", &reservation, NULL), PENSTOCK_STALE);
    expect_bytes(STORE, "k", 50, 8);
    expect_no_reservations();
}

static void mismatches_roll_back(void **state)
{
    (void)state;
    for (int wrong = 0; wrong < 6; wrong++) {
        static const int wanted[] = {-EMSGSIZE, -EINVAL, -EINVAL, PENSTOCK_MISS, -EINVAL, -EINVAL};
        struct penstock_reservation reservation = reserve("k", LARGE), named = reservation;
        const char *key = "k";

        assert_result(write_part("k", &reservation, 1, 0, LARGE), 0);
        named.bytes -= wrong == 0;
        named.tier = (uint8_t)(named.tier + (wrong == 1));
        named.location[0] ^= wrong == 2;
        named.handle += wrong == 3 ? 1000000 : 0;
        named.location_bytes = (uint16_t)(named.location_bytes - (wrong == 4));
        if (wrong == 5)
            named.location_bytes = 0;
        assert_result(commit(key, &named, NULL), wanted[wrong]);
        if (wrong == 3) /* another reservation's name: this one stays */
            assert_result(penstock_reservation_abort(STORE, "k", 1, &reservation), 0);
        assert_result(commit(key, &reservation, NULL), PENSTOCK_MISS);
        assert_result(penstock_exists(STORE, "k", 1), PENSTOCK_MISS);
        expect_no_reservations();
    }
}

/* A reservation's operations with another key, which the same shard may serve or another. */
static void other_keys(void **state)
{
    (void)state;
    for (int i = 0; i < 20; i++) {
        struct penstock_reservation reservation = reserve("k", 10);
        char key[16];
        int r;

        snprintf(key, sizeof(key), "other%d", i);
        assert_result(write_part("k", &reservation, 1, 0, 10), 0);
        r = commit(key, &reservation, NULL);
        assert_true(r == -EINVAL || r == PENSTOCK_MISS);
        assert_result(penstock_exists(STORE, key, strlen(key)), PENSTOCK_MISS);
        assert_result(penstock_reservation_abort(STORE, "k", 1, &reservation), 0);
        expect_no_reservations();
    }
}

static void bad_arguments(void **state)
{
    struct penstock_reservation reservation = {0};
    struct penstock_op op = {0};

    (void)state;
    assert_result(penstock_reserve(STORE, "", 0, 10, 0, &reservation), -EINVAL);
    assert_result(penstock_reserve(STORE, "k", 1, 10, 0, NULL), -EINVAL);
    assert_result(penstock_reserve(STORE, "k", 1, 1ull << 50, 0, &reservation), -EFBIG);
    reservation = reserve("k", 10);
    assert_result(write_part("k", &reservation, 1, 5, 11), -ERANGE);
    assert_result(penstock_write_at(STORE, "k", 1, &reservation, UINT64_MAX - 2, "abcd", 4), -ERANGE);
    assert_result(penstock_write_at(STORE, "k", 1, &reservation, 0, NULL, 4), -EINVAL);
    assert_result(penstock_write_at(STORE, "k", 1, NULL, 0, "abc", 3), -EINVAL);
    assert_result(penstock_reservation_abort(STORE, "k", 1, &reservation), 0);
    penstock_prep(&op, PENSTOCK_CHECK, "k", 1); /* in a commit only */
    assert_result(run_op(STORE, &op), -EINVAL);
    expect_no_reservations();
}

static void batches_of_reservations(void **state)
{
    enum { COUNT = 100, BYTES = 5000 };
    struct penstock_op *ops = calloc(COUNT, sizeof(*ops));
    struct penstock_reservation *reservations = calloc(COUNT, sizeof(*reservations));
    uint8_t *value = bytes_new(BYTES);
    char keys[COUNT][16];

    (void)state;
    fill(value, BYTES, 5);
    for (int i = 0; i < COUNT; i++) {
        snprintf(keys[i], sizeof(keys[i]), "batch%d", i);
        penstock_prep_reserve(&ops[i], keys[i], strlen(keys[i]), BYTES, &reservations[i]);
    }
    assert_result(penstock_batch(STORE, ops, COUNT), 0);
    assert_int_equal(stat_of(STORE).reservations, COUNT);
    for (int i = 0; i < COUNT; i++)
        penstock_prep_write_at(&ops[i], keys[i], strlen(keys[i]), &reservations[i], 0, value, BYTES);
    assert_result(penstock_batch(STORE, ops, COUNT), 0);
    for (int i = 0; i < COUNT; i++)
        i % 2 ? penstock_prep_reservation_commit(&ops[i], keys[i], strlen(keys[i]), &reservations[i])
              : penstock_prep_reservation_abort(&ops[i], keys[i], strlen(keys[i]), &reservations[i]);
    assert_result(penstock_batch(STORE, ops, COUNT), 0);
    expect_no_reservations();
    assert_int_equal(stat_of(STORE).keys, COUNT / 2);
    expect_bytes(STORE, keys[1], BYTES, 5);
    free(value);
    free(reservations);
    free(ops);
}

/* ---- memory in place ---- */

static void reservation_memory(void **state)
{
    struct penstock_reservation reservation = reserve("k", 3 * LARGE);
    struct iovec pieces[64];
    uint8_t *want = calloc(3 * LARGE, 1), *got = bytes_new(3 * LARGE);
    uint64_t sum = 0, got_bytes = 0;
    int count = penstock_reservation_memory(STORE, "k", 1, &reservation, pieces, 64);

    (void)state;
    if (fixture.kind != KIND_MEM) {
        assert_result(count, -EOPNOTSUPP);
    } else {
        assert_true(count > 0);
        for (int i = 0; i < count; i++)
            sum += pieces[i].iov_len;
        assert_int_equal(sum, 3 * LARGE);
        memset(pieces[0].iov_base, 'x', 100);
        memset(want, 'x', 100);
        memset((uint8_t *)pieces[count - 1].iov_base + pieces[count - 1].iov_len - 1, 'y', 1);
        want[3 * LARGE - 1] = 'y';
        assert_result(commit("k", &reservation, NULL), 0);
        assert_result(penstock_get(STORE, "k", 1, got, 3 * LARGE, &got_bytes), 0);
        assert_memory_equal(got, want, 3 * LARGE); /* what nobody wrote is zero */
        assert_result(penstock_reservation_memory(STORE, "k", 1, &reservation, pieces, 64), -ENOENT);
    }
    assert_result(penstock_reservation_abort(STORE, "k", 1, &reservation), 0);
    free(want);
    free(got);
}

/* ---- sessions ---- */

/* A client that is killed between reserve and commit. */
static void dead_writers_leave_nothing(void **state)
{
    enum { RESERVATIONS = 20 };
    struct penstock_reservation reservation;
    uint64_t pages_used;
    pid_t pid;

    (void)state;
    if (place_is_private())
        return; /* the store dies with its process */
    pages_used = stat_of(STORE).pages_used;
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        struct penstock *own;
        uint8_t *value = calloc(1, LARGE);
        char key[16];

        if (penstock_open(fixture.place.url, NULL, &own))
            _exit(1);
        for (int i = 0; i < RESERVATIONS; i++) {
            snprintf(key, sizeof(key), "dead%d", i);
            if (penstock_reserve(own, key, strlen(key), i % 2 ? LARGE : PENSTOCK_BYTES_UNKNOWN, 0,
                                 &reservation) ||
                penstock_write_at(own, key, strlen(key), &reservation, 0, value, LARGE - i))
                _exit(2);
        }
        kill(getpid(), SIGKILL);
    }
    assert_int_equal(wait_for_child(pid, 60), SIGKILL);
    expect_no_reservations();
    assert_int_equal(stat_of(STORE).keys, 0);
    for (int i = 0; i < 500 && stat_of(STORE).pages_used != pages_used; i++)
        usleep(10000);
    assert_int_equal(stat_of(STORE).pages_used, pages_used);
    reservation = reserve("dead1", 10); /* nobody owns it any more */
    assert_result(penstock_reservation_abort(STORE, "dead1", 5, &reservation), 0);
}

static void reservations_end_with_their_handle(void **state)
{
    struct penstock_reservation reservation = {0};
    struct penstock *other;

    (void)state;
    if (fixture.kind == KIND_MEM)
        return;
    other = place_handle(&fixture.place);
    assert_result(penstock_reserve(other, "k", 1, LARGE, 0, &reservation), 0);
    assert_result(write_part("k", &reservation, 1, 0, LARGE), PENSTOCK_MISS); /* another session's */
    assert_result(commit("k", &reservation, NULL), PENSTOCK_MISS);
    assert_int_equal(stat_of(STORE).reservations, 1);
    place_handle_close(&fixture.place, other);
    expect_no_reservations();
}

/* They go a few at a time, but not when the session itself keeps what they would need. */
static void gets_beyond_the_quota(void **state)
{
    enum { KEYS = 64, BYTES = 300000 };
    static const char *const args[] = {"--dram", "128M", "--shards", "2", "--session-pinned-bytes",
                                       "1M",     NULL};
    struct penstock_op ops[KEYS] = {0};
    struct penstock_view views[2];
    struct penstock *store;
    uint8_t *to = malloc((size_t)KEYS * BYTES);
    char keys[KEYS][16];
    struct daemon d;

    (void)state;
    assert_non_null(to);
    if (fixture.kind == KIND_UNIX) {
        daemon_start(&d, args);
        assert_result(penstock_open(d.url_unix, NULL, &store), 0);
        for (int i = 0; i < KEYS; i++) {
            snprintf(keys[i], sizeof(keys[i]), "quota%d", i);
            put_value(store, keys[i], BYTES, i);
            penstock_prep_get(&ops[i], keys[i], strlen(keys[i]), to + (size_t)i * BYTES, BYTES);
        }
        assert_int_equal(penstock_batch(store, ops, KEYS), 0);
        put_value(store, "v", 500000, 1);
        penstock_prep_get(&ops[0], "v", 1, to, 500000);
        for (int i = 0; i < 2; i++)
            assert_result(penstock_view(store, "v", 1, &views[i]), 0);
        assert_result(run_op(store, &ops[0]), -EDQUOT);
        for (int i = 0; i < 2; i++)
            penstock_view_release(store, &views[i]);
        assert_result(run_op(store, &ops[0]), 0);
        penstock_close(store);
        daemon_stop(&d);
    }
    free(to);
}

/* What one session may hold, and that all of it comes back. */
static void quotas(void **state)
{
    static const char *const args[] = {
        "--dram", "64M", "--session-reservations", "4", "--session-pins", "3", "--session-pinned-bytes",
        "1M",     NULL};
    struct penstock_reservation reservations[4], reservation;
    struct penstock_view view, second;
    struct penstock *first, *other;
    struct daemon d;
    char key[16];

    (void)state;
    if (fixture.kind != KIND_UNIX)
        return;
    daemon_start(&d, args);
    assert_result(penstock_open(d.url_unix, NULL, &first), 0);
    assert_result(penstock_open(d.url_unix, NULL, &other), 0);
    for (int i = 0; i < 4; i++) {
        snprintf(key, sizeof(key), "key%d", i);
        assert_result(penstock_reserve(first, key, 5, 100000, 0, &reservations[i]), 0);
    }
    assert_result(penstock_reserve(first, "key4", 4, 1, 0, &reservation), -EDQUOT);
    assert_result(penstock_reservation_abort(first, "key3", 4, &reservations[3]), 0);
    assert_result(penstock_reserve(first, "key4", 4, 800000, 0, &reservation), -EDQUOT); /* too many bytes */
    assert_result(penstock_reserve(first, "key4", 4, 700000, 0, &reservation), 0);
    put_value(other, "v", 500000, 1);
    assert_result(penstock_view(first, "v", 1, &view), -EDQUOT);
    assert_result(penstock_view(other, "v", 1, &view), 0); /* each session has its own */
    assert_result(penstock_view(other, "v", 1, &second), 0);
    assert_result(penstock_pin(other, "v", 1, 0), 0);
    assert_int_equal(stat_of(other).pinned_bytes, 500000);
    assert_result(penstock_view(other, "v", 1, &(struct penstock_view){0}), -EDQUOT);
    penstock_view_release(other, &view);
    assert_result(penstock_view(other, "v", 1, &view), 0);
    penstock_view_release(other, &view);
    penstock_view_release(other, &second);
    for (int i = 0; i < 2; i++)
        assert_result(penstock_pin(other, "v", 1, 0), 0);
    assert_result(penstock_pin(other, "v", 1, 0), -EDQUOT);
    assert_result(penstock_pin(other, "v", 1, 600000), 0); /* it would end by itself */
    assert_result(penstock_unpin(other, "v", 1), 0);
    assert_result(penstock_pin(other, "v", 1, 0), 0);
    penstock_close(other);
    assert_result(penstock_open(d.url_unix, NULL, &other), 0);
    assert_result(penstock_pin(other, "v", 1, 0), 0); /* a new session; the pins are the key's */
    for (int i = 0; i < 4; i++)
        assert_result(penstock_unpin(other, "v", 1), 0);
    assert_result(penstock_unpin(other, "v", 1), -EINVAL);
    assert_int_equal(stat_of(other).reservations, 4);
    penstock_close(first);
    for (int i = 0; i < 500 && stat_of(other).reservations; i++)
        usleep(10000);
    assert_int_equal(stat_of(other).reservations, 0);
    assert_int_equal(stat_of(other).reservation_bytes, 0);
    assert_result(penstock_delete(other, "v", 1), 0);
    assert_int_equal(stat_of(other).pages_used, stat_of(other).slab_pages);
    penstock_close(other);
    daemon_stop(&d);
}

/* More requests at once than a session may have underway: they are told busy, and done all the same. */
static void requests_underway(void **state)
{
    enum { OPS = 400, BYTES = 20000 };
    static const char *const args[] = {"--dram", "64M", "--shards", "1", "--session-requests", "16", NULL};
    struct penstock_op *ops = calloc(OPS, sizeof(*ops)), *ended;
    uint8_t *value = bytes_new(BYTES);
    struct penstock_queue *queue;
    struct penstock *store;
    struct daemon d;
    char keys[OPS][8];

    (void)state;
    if (fixture.kind == KIND_UNIX) {
        daemon_start(&d, args);
        assert_result(penstock_open(d.url_unix, NULL, &store), 0);
        assert_result(penstock_queue_open(store, &queue), 0);
        fill(value, BYTES, 1);
        for (int i = 0; i < OPS; i++) {
            snprintf(keys[i], sizeof(keys[i]), "r%d", i);
            penstock_prep_put(&ops[i], keys[i], strlen(keys[i]), value, BYTES);
            assert_result(penstock_submit(queue, &ops[i], 1), 0); /* a request each */
        }
        for (int i = 0; i < OPS; i++) {
            assert_result(penstock_reap(queue, &ended, 1, -1), 1);
            assert_result(ended->result, 0);
        }
        assert_int_equal(stat_of(store).keys, OPS);
        expect_bytes(store, "r399", BYTES, 1);
        penstock_queue_close(queue);
        penstock_close(store);
        daemon_stop(&d);
    }
    free(value);
    free(ops);
}

static const struct CMUnitTest tests[] = {
    TEST(reserve_write_commit),
    TEST(pieces_in_any_order),
    TEST(gaps_are_not_committed),
    TEST(keys_are_owned),
    TEST(conditions_hold_at_the_commit),
    TEST(mismatches_roll_back),
    TEST(other_keys),
    TEST(bad_arguments),
    TEST(batches_of_reservations),
    TEST(reservation_memory),
    TEST(dead_writers_leave_nothing),
    TEST(reservations_end_with_their_handle),
    TEST(quotas),
    TEST(gets_beyond_the_quota),
    TEST(requests_underway),
};

PART(part_reservations, tests);
