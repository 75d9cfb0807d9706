/* SPDX-License-Identifier: Apache-2.0 */
/* streams.c: values that are written piece by piece, whose length is known at the end. */
#include "e2e.h"

#include <stdlib.h>
#include <string.h>

enum { LARGE = 700000 };

/* ---- streams ---- */

static struct penstock_stream *stream_of(const char *key, uint32_t flags, uint64_t if_generation)
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
        expect_no_reservations();
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
    expect_no_reservations();
}

/* Together with what was gathered before, the length passes 2^64. */
static void streams_refuse_a_length_that_wraps(void **state)
{
    struct penstock_stream *stream = stream_of("s", 0, 0);
    int r;

    (void)state;
    assert_result(penstock_stream_write(stream, "begun", 5), 0);
    r = penstock_stream_write(stream, "", UINT64_MAX - 2);
    assert_true(r < 0);
    assert_result(penstock_stream_commit(stream, NULL), r);
    assert_result(penstock_exists(STORE, "s", 1), PENSTOCK_MISS);
    expect_no_reservations();
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
    expect_no_reservations();
    assert_int_equal(stat_of(STORE).pages_used, pages_used);
    free(value);
}

static const struct CMUnitTest tests[] = {
    TEST(streams_of_all_lengths),
    TEST(streams_refuse_a_length_that_wraps),
    TEST(streams_keep_conditions),
    TEST(streams_run_out_of_space),
};

PART(part_streams, tests);
