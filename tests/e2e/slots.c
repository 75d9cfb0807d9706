/* slots.c: values that are written in several steps: reserve, write, commit, abort, and streams of unknown
 * length. */
#include "e2e.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LARGE = 700000 };

static struct penstock_slot reserve(const char *key, uint64_t bytes)
{
    struct penstock_slot slot = {0};

    assert_result(penstock_reserve(STORE, key, strlen(key), bytes, PENSTOCK_DEPTH_NONE, &slot), 0);
    assert_true(slot.handle != 0);
    assert_int_equal(slot.bytes, bytes);
    assert_int_equal(slot.tier, PENSTOCK_TIER_DRAM);
    assert_int_equal(slot.location_bytes, strlen(slot.location));
    return slot;
}

/* Writes bytes [@from, @to) of value @seed. Return: the result. */
static int write_part(const char *key, const struct penstock_slot *slot, uint64_t seed, uint64_t from,
                      uint64_t to)
{
    uint8_t *value = bytes_new(to);
    int r;

    fill(value, to, seed);
    r = penstock_slot_write(STORE, key, strlen(key), slot, from, value + from, to - from);
    free(value);
    return r;
}

static int commit(const char *key, const struct penstock_slot *slot, uint64_t *generation)
{
    return penstock_slot_commit(STORE, key, strlen(key), slot, generation);
}

static void expect_no_slots(void)
{
    struct penstock_stat stat;

    for (int i = 0; i < 500 && (stat_of(STORE).slots || stat_of(STORE).slot_bytes); i++)
        usleep(10000);
    stat = stat_of(STORE);
    assert_int_equal(stat.slots, 0);
    assert_int_equal(stat.slot_bytes, 0);
}

static void reserve_write_commit(void **state)
{
    static const uint64_t sizes[] = {0, 1, 100, 2048, 2049, 40000, LARGE, 5000000};

    (void)state;
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        struct penstock_slot slot = reserve("k", sizes[i]);
        uint64_t generation = 0, again = 0;

        assert_int_equal(stat_of(STORE).slots, 1);
        assert_int_equal(stat_of(STORE).slot_bytes, sizes[i]);
        assert_result(penstock_exists(STORE, "k", 1), PENSTOCK_MISS);
        assert_result(write_part("k", &slot, 7, 0, sizes[i]), 0);
        assert_result(penstock_exists(STORE, "k", 1), PENSTOCK_MISS);
        assert_result(commit("k", &slot, &generation), 0);
        expect_bytes(STORE, "k", sizes[i], 7);
        assert_result(commit("k", &slot, &again), 0); /* idempotent */
        assert_int_equal(again, generation);
        assert_result(penstock_slot_abort(STORE, "k", 1, &slot), 0); /* too late, and harmless */
        expect_bytes(STORE, "k", sizes[i], 7);
        assert_result(penstock_delete(STORE, "k", 1), 0);
        assert_result(commit("k", &slot, &again), 0); /* of a value that has gone since: still the answer */
        assert_int_equal(again, generation);
        assert_result(penstock_exists(STORE, "k", 1), PENSTOCK_MISS);
        expect_no_slots();
    }
}

static void pieces_in_any_order(void **state)
{
    enum { PIECES = 16, BYTES = 3000 };
    struct penstock_slot slot = reserve("k", PIECES * BYTES);

    (void)state;
    for (int i = 0; i < PIECES; i++) {
        int piece = i * 7 % PIECES;

        assert_result(write_part("k", &slot, 3, piece * BYTES, (piece + 1) * BYTES), 0);
    }
    assert_result(write_part("k", &slot, 3, 1000, 9000), 0); /* once more, across pieces */
    assert_result(commit("k", &slot, NULL), 0);
    expect_bytes(STORE, "k", PIECES * BYTES, 3);
}

static void gaps_are_not_committed(void **state)
{
    struct penstock_slot slot = reserve("k", LARGE), holed = reserve("h", 100);
    int r = 0, writes = 0;

    (void)state;
    assert_result(write_part("k", &slot, 3, 0, 300000), 0);
    assert_result(write_part("k", &slot, 3, 300001, LARGE), 0);
    assert_result(commit("k", &slot, NULL), -ENODATA);
    assert_result(penstock_exists(STORE, "k", 1), PENSTOCK_MISS);
    assert_result(commit("k", &slot, NULL), PENSTOCK_MISS); /* given up */
    assert_result(write_part("k", &slot, 3, 0, 10), PENSTOCK_MISS);
    for (; writes < 60 && r == 0; writes++)
        r = write_part("h", &holed, 3, 2 * writes > 99 ? 99 : 2 * writes, 2 * writes + 1);
    assert_result(r, -E2BIG);
    assert_true(writes > PENSTOCK_SLOT_GAPS_MAX);
    assert_result(write_part("h", &holed, 3, 0, 100), 0); /* closes them all */
    assert_result(commit("h", &holed, NULL), 0);
    expect_bytes(STORE, "h", 100, 3);
    expect_no_slots();
}

static void keys_are_owned(void **state)
{
    struct penstock_slot first = reserve("k", 100), second = {0}, over = {0};
    struct penstock_op op = {0};
    uint64_t generation;

    (void)state;
    assert_result(penstock_reserve(STORE, "k", 1, 100, 0, &second), PENSTOCK_OWNED);
    assert_int_equal(second.handle, 0);
    assert_result(penstock_slot_abort(STORE, "k", 1, &first), 0);
    assert_result(penstock_slot_abort(STORE, "k", 1, &first), 0);
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
    struct penstock_slot slot = reserve("k", 100);
    struct penstock_op op = {0};
    uint64_t generation = 0;

    (void)state;
    put_value(STORE, "k", 50, 9);
    assert_result(write_part("k", &slot, 1, 0, 100), 0);
    assert_result(commit("k", &slot, &generation), PENSTOCK_EXISTS);
    assert_true(generation > 0);
    expect_bytes(STORE, "k", 50, 9);
    penstock_prep_reserve(&op, "k", 1, 100, &slot);
    op.flags = PENSTOCK_IF_GENERATION;
    op.if_generation = generation + 1;
    assert_result(run_op(STORE, &op), PENSTOCK_STALE);
    op.if_generation = generation;
    assert_result(run_op(STORE, &op), 0);
    assert_result(write_part("k", &slot, 1, 0, 100), 0);
    put_value(STORE, "k", 50, 8);
    assert_result(commit("k", &slot, NULL), PENSTOCK_STALE);
    expect_bytes(STORE, "k", 50, 8);
    expect_no_slots();
}

static void mismatches_roll_back(void **state)
{
    (void)state;
    for (int wrong = 0; wrong < 6; wrong++) {
        static const int wanted[] = {-EMSGSIZE, -EINVAL, -EINVAL, PENSTOCK_MISS, -EINVAL, -EINVAL};
        struct penstock_slot slot = reserve("k", LARGE), named = slot;
        const char *key = "k";

        assert_result(write_part("k", &slot, 1, 0, LARGE), 0);
        named.bytes -= wrong == 0;
        named.tier = (uint8_t)(named.tier + (wrong == 1));
        named.location[0] ^= wrong == 2;
        named.handle += wrong == 3 ? 1000000 : 0;
        named.location_bytes = (uint16_t)(named.location_bytes - (wrong == 4));
        if (wrong == 5)
            named.location_bytes = 0;
        assert_result(commit(key, &named, NULL), wanted[wrong]);
        if (wrong == 3) /* another slot's name: this one stays */
            assert_result(penstock_slot_abort(STORE, "k", 1, &slot), 0);
        assert_result(commit(key, &slot, NULL), PENSTOCK_MISS);
        assert_result(penstock_exists(STORE, "k", 1), PENSTOCK_MISS);
        expect_no_slots();
    }
}

/* A slot's operations with another key, which the same shard may serve or another. */
static void other_keys(void **state)
{
    (void)state;
    for (int i = 0; i < 20; i++) {
        struct penstock_slot slot = reserve("k", 10);
        char key[16];
        int r;

        snprintf(key, sizeof(key), "other%d", i);
        assert_result(write_part("k", &slot, 1, 0, 10), 0);
        r = commit(key, &slot, NULL);
        assert_true(r == -EINVAL || r == PENSTOCK_MISS);
        assert_result(penstock_exists(STORE, key, strlen(key)), PENSTOCK_MISS);
        assert_result(penstock_slot_abort(STORE, "k", 1, &slot), 0);
        expect_no_slots();
    }
}

static void bad_arguments(void **state)
{
    struct penstock_slot slot = {0};
    struct penstock_op op = {0};

    (void)state;
    assert_result(penstock_reserve(STORE, "", 0, 10, 0, &slot), -EINVAL);
    assert_result(penstock_reserve(STORE, "k", 1, 10, 0, NULL), -EINVAL);
    assert_result(penstock_reserve(STORE, "k", 1, 1ull << 50, 0, &slot), -EFBIG);
    slot = reserve("k", 10);
    assert_result(write_part("k", &slot, 1, 5, 11), -ERANGE);
    assert_result(penstock_slot_write(STORE, "k", 1, &slot, UINT64_MAX - 2, "abcd", 4), -ERANGE);
    assert_result(penstock_slot_write(STORE, "k", 1, &slot, 0, NULL, 4), -EINVAL);
    assert_result(penstock_slot_write(STORE, "k", 1, NULL, 0, "abc", 3), -EINVAL);
    assert_result(penstock_slot_abort(STORE, "k", 1, &slot), 0);
    penstock_prep(&op, PENSTOCK_CHECK, "k", 1); /* in a commit only */
    assert_result(run_op(STORE, &op), -EINVAL);
    expect_no_slots();
}

static void batches_of_slots(void **state)
{
    enum { COUNT = 100, BYTES = 5000 };
    struct penstock_op *ops = calloc(COUNT, sizeof(*ops));
    struct penstock_slot *slots = calloc(COUNT, sizeof(*slots));
    uint8_t *value = bytes_new(BYTES);
    char keys[COUNT][16];

    (void)state;
    fill(value, BYTES, 5);
    for (int i = 0; i < COUNT; i++) {
        snprintf(keys[i], sizeof(keys[i]), "batch%d", i);
        penstock_prep_reserve(&ops[i], keys[i], strlen(keys[i]), BYTES, &slots[i]);
    }
    assert_result(penstock_batch(STORE, ops, COUNT), 0);
    assert_int_equal(stat_of(STORE).slots, COUNT);
    for (int i = 0; i < COUNT; i++)
        penstock_prep_slot_write(&ops[i], keys[i], strlen(keys[i]), &slots[i], 0, value, BYTES);
    assert_result(penstock_batch(STORE, ops, COUNT), 0);
    for (int i = 0; i < COUNT; i++)
        i % 2 ? penstock_prep_slot_commit(&ops[i], keys[i], strlen(keys[i]), &slots[i])
              : penstock_prep_slot_abort(&ops[i], keys[i], strlen(keys[i]), &slots[i]);
    assert_result(penstock_batch(STORE, ops, COUNT), 0);
    expect_no_slots();
    assert_int_equal(stat_of(STORE).keys, COUNT / 2);
    expect_bytes(STORE, keys[1], BYTES, 5);
    free(value);
    free(slots);
    free(ops);
}

/* ---- memory in place ---- */

static void slot_memory(void **state)
{
    struct penstock_slot slot = reserve("k", 3 * LARGE);
    struct iovec pieces[64];
    uint8_t *want = calloc(3 * LARGE, 1), *got = bytes_new(3 * LARGE);
    uint64_t sum = 0, got_bytes = 0;
    int count = penstock_slot_memory(STORE, "k", 1, &slot, pieces, 64);

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
        assert_result(commit("k", &slot, NULL), 0);
        assert_result(penstock_get(STORE, "k", 1, got, 3 * LARGE, &got_bytes), 0);
        assert_memory_equal(got, want, 3 * LARGE); /* what nobody wrote is zero */
        assert_result(penstock_slot_memory(STORE, "k", 1, &slot, pieces, 64), -ENOENT);
    }
    assert_result(penstock_slot_abort(STORE, "k", 1, &slot), 0);
    free(want);
    free(got);
}

/* ---- sessions ---- */

/* A client that is killed between reserve and commit. */
static void dead_writers_leave_nothing(void **state)
{
    enum { SLOTS = 20 };
    struct penstock_slot slot;
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
        for (int i = 0; i < SLOTS; i++) {
            snprintf(key, sizeof(key), "dead%d", i);
            if (penstock_reserve(own, key, strlen(key), i % 2 ? LARGE : PENSTOCK_BYTES_UNKNOWN, 0, &slot) ||
                penstock_slot_write(own, key, strlen(key), &slot, 0, value, LARGE - i))
                _exit(2);
        }
        kill(getpid(), SIGKILL);
    }
    assert_int_equal(wait_for_child(pid, 60), SIGKILL);
    expect_no_slots();
    assert_int_equal(stat_of(STORE).keys, 0);
    for (int i = 0; i < 500 && stat_of(STORE).pages_used != pages_used; i++)
        usleep(10000);
    assert_int_equal(stat_of(STORE).pages_used, pages_used);
    slot = reserve("dead1", 10); /* nobody owns it any more */
    assert_result(penstock_slot_abort(STORE, "dead1", 5, &slot), 0);
}

static void slots_end_with_their_handle(void **state)
{
    struct penstock_slot slot = {0};
    struct penstock *other;

    (void)state;
    if (fixture.kind == KIND_MEM)
        return;
    other = place_handle(&fixture.place);
    assert_result(penstock_reserve(other, "k", 1, LARGE, 0, &slot), 0);
    assert_result(write_part("k", &slot, 1, 0, LARGE), PENSTOCK_MISS); /* another session's */
    assert_result(commit("k", &slot, NULL), PENSTOCK_MISS);
    assert_int_equal(stat_of(STORE).slots, 1);
    place_handle_close(&fixture.place, other);
    expect_no_slots();
}

/* What one session may hold, and that all of it comes back. */
static void quotas(void **state)
{
    static const char *const args[] = {
        "--dram", "64M", "--session-slots", "4", "--session-pins", "3", "--session-pinned-bytes", "1M", NULL};
    struct penstock_slot slots[4], slot;
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
        snprintf(key, sizeof(key), "slot%d", i);
        assert_result(penstock_reserve(first, key, 5, 100000, 0, &slots[i]), 0);
    }
    assert_result(penstock_reserve(first, "slot4", 5, 1, 0, &slot), -EDQUOT);
    assert_result(penstock_slot_abort(first, "slot3", 5, &slots[3]), 0);
    assert_result(penstock_reserve(first, "slot4", 5, 800000, 0, &slot), -EDQUOT); /* too many bytes */
    assert_result(penstock_reserve(first, "slot4", 5, 700000, 0, &slot), 0);
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
    assert_int_equal(stat_of(other).slots, 4);
    penstock_close(first);
    for (int i = 0; i < 500 && stat_of(other).slots; i++)
        usleep(10000);
    assert_int_equal(stat_of(other).slots, 0);
    assert_int_equal(stat_of(other).slot_bytes, 0);
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

/* ---- streams ---- */

static struct penstock_stream *stream_of(const char *key, uint8_t flags, uint64_t if_generation)
{
    struct penstock_op put = {.if_generation = if_generation};
    struct penstock_stream *stream;

    penstock_prep_put(&put, key, strlen(key), NULL, 0);
    put.flags = flags;
    assert_result(penstock_stream_open(STORE, &put, &stream), 0);
    return stream;
}

static void streams_of_all_lengths(void **state)
{
    static const uint64_t sizes[] = {0,     1,       2048,        2049,        70000,    1 << 20,
                                     LARGE, 2 << 20, 2097152 + 1, 3 * 1048576, 10 << 20, (20 << 20) + 12345};

    (void)state;
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        uint64_t at = 0, random = i, generation = 0;
        uint8_t *value = bytes_new(sizes[i]);
        struct penstock_stream *stream = stream_of("s", PENSTOCK_CHECKSUM, 0);

        fill(value, sizes[i], i + 1);
        while (at < sizes[i]) {
            uint64_t n = next_random(&random) % (i % 2 ? 5 << 20 : 100000);

            n = n < sizes[i] - at ? n : sizes[i] - at;
            assert_result(penstock_stream_write(stream, value + at, n), 0);
            at += n;
        }
        assert_result(penstock_stream_commit(stream, &generation), 0);
        assert_true(generation > 0);
        expect_bytes(STORE, "s", sizes[i], i + 1); /* checks the checksum, too */
        free(value);
        expect_no_slots();
    }
}

static void streams_keep_conditions(void **state)
{
    struct penstock_stream *first, *second;
    uint64_t generation = 0, now = 0;
    struct penstock_op put = {0};

    (void)state;
    first = stream_of("s", PENSTOCK_IF_ABSENT, 0);
    second = stream_of("s", PENSTOCK_IF_ABSENT, 0);
    assert_result(penstock_stream_write(first, "first", 5), 0);
    assert_result(penstock_stream_write(second, "second", 6), 0);
    assert_result(penstock_exists(STORE, "s", 1), PENSTOCK_MISS);
    assert_result(penstock_stream_commit(first, &generation), 0);
    assert_result(penstock_stream_commit(second, &now), PENSTOCK_EXISTS);
    assert_int_equal(now, generation);
    penstock_prep_put(&put, "s", 1, NULL, 0);
    put.flags = PENSTOCK_IF_ABSENT;
    assert_result(penstock_stream_open(STORE, &put, &first), PENSTOCK_EXISTS);
    first = stream_of("s", PENSTOCK_IF_GENERATION, generation);
    put_value(STORE, "s", 10, 3);
    assert_result(penstock_stream_write(first, "late", 4), 0);
    assert_result(penstock_stream_commit(first, NULL), PENSTOCK_STALE);
    expect_bytes(STORE, "s", 10, 3);
    first = stream_of("s", 0, 0);
    assert_result(penstock_stream_write(first, "gone", 4), 0);
    assert_null(penstock_stream_abort(first));
    assert_null(penstock_stream_abort(NULL));
    expect_bytes(STORE, "s", 10, 3);
    expect_no_slots();
}

/* A stream that outgrows the store says so, and all of its memory comes back. */
static void streams_run_out_of_space(void **state)
{
    uint64_t pages_used = stat_of(STORE).pages_used;
    struct penstock_stream *stream = stream_of("s", 0, 0);
    uint8_t *value = calloc(1, 8 << 20);
    int r = 0;

    (void)state;
    for (int i = 0; i < 100 && r == 0; i++)
        r = penstock_stream_write(stream, value, 8 << 20);
    assert_true(r == -ENOSPC || r == -EFBIG);
    assert_result(penstock_stream_commit(stream, NULL), r);
    assert_result(penstock_exists(STORE, "s", 1), PENSTOCK_MISS);
    expect_no_slots();
    assert_int_equal(stat_of(STORE).pages_used, pages_used);
    free(value);
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
    TEST(batches_of_slots),
    TEST(slot_memory),
    TEST(dead_writers_leave_nothing),
    TEST(slots_end_with_their_handle),
    TEST(quotas),
    TEST(requests_underway),
    TEST(streams_of_all_lengths),
    TEST(streams_keep_conditions),
    TEST(streams_run_out_of_space),
};

PART(part_slots, tests);
