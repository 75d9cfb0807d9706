/* SPDX-License-Identifier: Apache-2.0 */
/* conditions.c: writes that depend on what is there, and every way in which an operation can be wrong. */
#include "e2e.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LARGE = 300000 };

static struct penstock_op put_op(const char *key, const void *value, uint64_t bytes, uint32_t flags,
                                 uint64_t if_generation)
{
    struct penstock_op op = {.if_generation = if_generation};

    penstock_prep_put(&op, key, strlen(key), value, bytes);
    op.flags = flags;
    return op;
}

static void if_absent(uint64_t bytes)
{
    void *first = bytes_new(bytes), *second = bytes_new(bytes);
    struct penstock_op op;
    uint64_t generation;

    fill(first, bytes, 1);
    fill(second, bytes, 2);
    op = put_op("k", first, bytes, PENSTOCK_IF_ABSENT, 0);
    assert_result(run_op(STORE, &op), PENSTOCK_OK);
    generation = op.generation;
    assert_true(generation > 0);
    op = put_op("k", second, bytes, PENSTOCK_IF_ABSENT, 0);
    assert_result(run_op(STORE, &op), PENSTOCK_EXISTS);
    assert_int_equal(op.generation, generation);
    assert_int_equal(op.value_bytes, bytes);
    expect_bytes(STORE, "k", bytes, 1);
    assert_result(penstock_delete(STORE, "k", 1), 0);
    op = put_op("k", second, bytes, PENSTOCK_IF_ABSENT, 0);
    assert_result(run_op(STORE, &op), PENSTOCK_OK);
    assert_true(op.generation > generation);
    expect_bytes(STORE, "k", bytes, 2);
    free(first);
    free(second);
}

static void put_if_absent(void **state)
{
    (void)state;
    if_absent(100);
    assert_result(penstock_delete(STORE, "k", 1), 0);
    if_absent(LARGE);
}

/* Values that end: by a put and by a reservation, small and large. */
static void values_end(void **state)
{
    static const uint64_t sizes[] = {10, 5000, LARGE};
    struct penstock_reservation reservation;
    struct penstock_op op;
    char key[8] = "ttl";

    (void)state;
    for (int i = 0; i < 3; i++) {
        void *value = bytes_new(sizes[i]);

        fill(value, sizes[i], (uint64_t)i);
        key[3] = (char)('0' + i);
        op = put_op(key, value, sizes[i], PENSTOCK_TTL, 0);
        op.ttl_ms = 3600000;
        assert_result(run_op(STORE, &op), 0);
        expect_bytes(STORE, key, sizes[i], (uint64_t)i);
        op = put_op(key, value, sizes[i], PENSTOCK_TTL, 0);
        op.ttl_ms = 200;
        assert_result(run_op(STORE, &op), 0);
        free(value);
    }
    op = (struct penstock_op){0};
    penstock_prep_reserve(&op, "ttl3", 4, 3, &reservation);
    op.flags |= PENSTOCK_TTL;
    op.ttl_ms = 200;
    assert_result(run_op(STORE, &op), 0);
    assert_result(penstock_write_at(STORE, "ttl3", 4, &reservation, 0, "abc", 3), 0);
    assert_result(penstock_reservation_commit(STORE, "ttl3", 4, &reservation, NULL), 0);
    for (int i = 0; i < 4; i++) {
        int r = 0;

        key[3] = (char)('0' + i);
        for (int tries = 0; r == 0 && tries < 20000; tries++) {
            r = penstock_exists(STORE, key, 4);
            if (r == 0)
                usleep(1000);
        }
        assert_result(r, PENSTOCK_MISS);
        op = put_op(key, "x", 1, PENSTOCK_IF_ABSENT, 0);
        assert_result(run_op(STORE, &op), 0);
    }
}

static void if_generation(uint64_t bytes)
{
    void *value = bytes_new(bytes);
    struct penstock_op op;
    uint64_t generation;

    fill(value, bytes, 1);
    op = put_op("g", value, bytes, PENSTOCK_IF_GENERATION, 12345);
    assert_result(run_op(STORE, &op), PENSTOCK_STALE); /* no value has any generation */
    assert_result(penstock_exists(STORE, "g", 1), PENSTOCK_MISS);
    op = put_op("g", value, bytes, PENSTOCK_IF_GENERATION, 0);
    assert_result(run_op(STORE, &op), 0);
    generation = op.generation;
    fill(value, bytes, 2);
    op = put_op("g", value, bytes, PENSTOCK_IF_GENERATION, 0);
    assert_result(run_op(STORE, &op), PENSTOCK_STALE);
    assert_int_equal(op.generation, generation);
    op = put_op("g", value, bytes, PENSTOCK_IF_GENERATION, generation + 1);
    assert_result(run_op(STORE, &op), PENSTOCK_STALE);
    expect_bytes(STORE, "g", bytes, 1);
    op = put_op("g", value, bytes, PENSTOCK_IF_GENERATION, generation);
    assert_result(run_op(STORE, &op), 0);
    assert_true(op.generation > generation);
    expect_bytes(STORE, "g", bytes, 2);

    penstock_prep(&op, PENSTOCK_DELETE, "g", 1);
    op.flags = PENSTOCK_IF_GENERATION;
    op.if_generation = generation;
    generation = op.generation;
    assert_result(run_op(STORE, &op), PENSTOCK_STALE);
    assert_int_equal(op.generation, generation);
    expect_bytes(STORE, "g", bytes, 2);
    op.if_generation = 0; /* no value has it */
    assert_result(run_op(STORE, &op), PENSTOCK_STALE);
    op.if_generation = generation;
    assert_result(run_op(STORE, &op), 0);
    assert_result(penstock_exists(STORE, "g", 1), PENSTOCK_MISS);
    free(value);
}

static void put_and_delete_if_generation(void **state)
{
    (void)state;
    if_generation(100);
    if_generation(LARGE);
}

static int get_if(const char *key, void *buf, uint64_t bytes, int flags, uint64_t generation,
                  struct penstock_op *op)
{
    *op = (struct penstock_op){.if_generation = generation};
    penstock_prep_get(op, key, strlen(key), buf, bytes);
    op->flags = (uint32_t)flags;
    return run_op(STORE, op);
}

/* A get that its condition refuses names what is there, and leaves the buffer alone. */
static void conditional_gets(uint64_t bytes)
{
    uint8_t *buf = bytes_new(bytes);
    struct penstock_op op;
    uint64_t first, second;

    assert_result(get_if("c", buf, bytes, PENSTOCK_UNLESS_GENERATION, 5, &op), PENSTOCK_MISS);
    assert_result(get_if("c", buf, bytes, PENSTOCK_IF_GENERATION, 0, &op), PENSTOCK_MISS);
    put_value(STORE, "c", bytes, 1);
    assert_result(get_if("c", buf, bytes, PENSTOCK_UNLESS_GENERATION, 0, &op), 0);
    first = op.generation;
    put_value(STORE, "c", bytes, 2);
    assert_result(get_if("c", buf, bytes, PENSTOCK_UNLESS_GENERATION, first, &op), 0);
    assert_true(filled(buf, bytes, 2));
    second = op.generation;
    assert_true(second > first);
    memset(buf, 0x77, bytes);
    assert_result(get_if("c", buf, bytes, PENSTOCK_UNLESS_GENERATION, second, &op), PENSTOCK_EXISTS);
    assert_int_equal(op.generation, second);
    assert_int_equal(op.value_bytes, bytes);
    assert_result(get_if("c", buf, bytes, PENSTOCK_IF_GENERATION, first, &op), PENSTOCK_STALE);
    assert_int_equal(op.generation, second);
    assert_result(get_if("c", buf, 0, PENSTOCK_IF_GENERATION, first, &op), PENSTOCK_STALE);
    assert_result(get_if("c", buf, bytes, PENSTOCK_IF_GENERATION, 0, &op), PENSTOCK_STALE);
    assert_true(buf[0] == 0x77 && buf[bytes - 1] == 0x77);
    assert_result(get_if("c", buf, bytes, PENSTOCK_IF_GENERATION, second, &op), 0);
    assert_true(filled(buf, bytes, 2));
    assert_result(get_if("c", buf, bytes, PENSTOCK_WAIT | PENSTOCK_IF_GENERATION, second, &op), -EINVAL);
    assert_result(penstock_delete(STORE, "c", 1), 0);
    free(buf);
}

static void get_if_generation(void **state)
{
    (void)state;
    conditional_gets(100);
    conditional_gets(LARGE);
}

static void generations_rise(void **state)
{
    uint64_t last = 0;

    (void)state;
    for (int i = 0; i < 200; i++) {
        struct penstock_op op = put_op("rise", "abc", i % 4, 0, 0), stat = {0};

        assert_result(run_op(STORE, &op), 0);
        assert_true(op.generation > last);
        last = op.generation;
        penstock_prep(&stat, PENSTOCK_STAT_KEY, "rise", 4);
        assert_result(run_op(STORE, &stat), 0);
        assert_int_equal(stat.generation, last);
        if (i % 5 == 0)
            assert_result(penstock_delete(STORE, "rise", 4), 0);
    }
}

static void stated_size(void **state)
{
    static const uint64_t some[] = {0, 100, 2049, LARGE};
    uint8_t *buf = bytes_new(LARGE + 1);

    (void)state;
    for (int i = 0; i < 4; i++) {
        struct penstock_op op = {0};

        put_value(STORE, "e", some[i], 9);
        penstock_prep_get(&op, "e", 1, buf, some[i]);
        op.flags = PENSTOCK_EXACT;
        assert_result(run_op(STORE, &op), 0);
        assert_true(filled(buf, some[i], 9));
        op.bytes = some[i] + 1;
        assert_result(run_op(STORE, &op), -EMSGSIZE);
        assert_int_equal(op.value_bytes, some[i]);
        if (some[i]) {
            op.bytes = some[i] - 1;
            assert_result(run_op(STORE, &op), -EMSGSIZE);
        }
        expect_bytes(STORE, "e", some[i], 9);
    }
    free(buf);
}

static void small_buffer(void **state)
{
    static const uint64_t some[] = {1, 100, 2049, LARGE};
    uint8_t *buf = bytes_new(LARGE);

    (void)state;
    for (int i = 0; i < 4; i++) {
        uint64_t value_bytes = 0;

        put_value(STORE, "e", some[i], 9);
        memset(buf, 0x77, some[i]);
        assert_result(penstock_get(STORE, "e", 1, buf, some[i] - 1, &value_bytes), -ENOBUFS);
        assert_int_equal(value_bytes, some[i]);
        assert_int_equal(buf[0], 0x77);
        assert_result(penstock_get(STORE, "e", 1, NULL, 0, &value_bytes), -ENOBUFS);
        assert_int_equal(value_bytes, some[i]);
        expect_bytes(STORE, "e", some[i], 9);
    }
    free(buf);
}

/* ---- keys ---- */

static void odd_keys(void **state)
{
    static const size_t lengths[] = {1, 2, 255, 256, 257, 1000, 4095, 4096};
    uint8_t key[PENSTOCK_KEY_BYTES_MAX], value[64], back[64];

    (void)state;
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < 8; i++) {
            fill(key, sizeof(key), 77); /* any bytes, zeros too; each is the beginning of the next */
            key[0] = 0;
            fill(value, sizeof(value), i);
            if (round == 0)
                assert_result(penstock_put(STORE, key, lengths[i], value, sizeof(value)), 0);
            assert_result(penstock_get(STORE, key, lengths[i], back, sizeof(back), NULL), 0);
            assert_memory_equal(value, back, sizeof(value));
        }
    }
    assert_int_equal(stat_of(STORE).keys, 8);
}

/* What is missing is named, and nothing is deleted for it. */
static void missing_arguments(void **state)
{
    struct penstock_list_options from = {.size = sizeof(from), .start_bytes = 3};
    struct penstock_list *list;
    uint64_t deleted;
    size_t count;

    (void)state;
    put_value(STORE, "k", 10, 1);
    assert_result(penstock_queue_open(STORE, NULL), -EINVAL);
    assert_result(penstock_list_open(STORE, NULL, NULL), -EINVAL);
    assert_result(penstock_list_open(STORE, &from, &list), -EINVAL);
    assert_result(penstock_list_next(NULL, NULL), -EINVAL);
    assert_result(penstock_exists_consecutive(STORE, NULL, 1, &count), -EINVAL);
    assert_result(penstock_exists_consecutive(STORE, NULL, 0, NULL), -EINVAL);
    assert_result(penstock_delete_prefix(STORE, NULL, 3, &deleted), -EINVAL);
    assert_result(penstock_delete_range(STORE, NULL, 3, NULL, 0, &deleted), -EINVAL);
    assert_result(penstock_delete_range(STORE, NULL, 0, NULL, 3, &deleted), -EINVAL);
    assert_result(penstock_view(STORE, "k", 1, NULL), -EINVAL);
    assert_result(penstock_stat(STORE, NULL), -EINVAL);
    assert_result(penstock_batch(STORE, NULL, 1), -EINVAL);
    assert_result(penstock_submit(NULL, NULL, 0), -EINVAL);
    assert_result(penstock_open(NULL, NULL, NULL), -EINVAL);
    assert_result(penstock_node_open(NULL, NULL), -EINVAL);
    assert_int_equal(stat_of(STORE).keys, 1);
}

static void bad_keys(void **state)
{
    static const uint8_t key[70000] = {1, 2, 3};
    uint8_t buf[8];

    (void)state;
    assert_result(penstock_put(STORE, "", 0, "v", 1), -EINVAL);
    assert_non_null(strstr(penstock_error(), "empty key"));
    assert_result(penstock_put(STORE, NULL, 0, "v", 1), -EINVAL);
    assert_result(penstock_put(STORE, NULL, 3, "v", 1), -EINVAL);
    assert_result(penstock_get(STORE, "", 0, buf, sizeof(buf), NULL), -EINVAL);
    assert_result(penstock_get_range(STORE, "", 0, 0, buf, 1), -EINVAL);
    assert_result(penstock_exists(STORE, "", 0), -EINVAL);
    assert_result(penstock_delete(STORE, "", 0), -EINVAL);
    assert_result(penstock_pin(STORE, "", 0, 0), -EINVAL);
    assert_result(penstock_put(STORE, key, 4097, "v", 1), -ENAMETOOLONG);
    assert_non_null(strstr(penstock_error(), "4096"));
    assert_result(penstock_put(STORE, key, 65536, "v", 1), -ENAMETOOLONG);
    assert_result(penstock_put(STORE, key, 65537, "v", 1), -ENAMETOOLONG);
    assert_result(penstock_get(STORE, key, 4097, buf, sizeof(buf), NULL), -ENAMETOOLONG);
    assert_result(penstock_exists(STORE, key, 70000), -ENAMETOOLONG);
    assert_result(penstock_delete(STORE, key, 65536 + 5), -ENAMETOOLONG);
    assert_int_equal(stat_of(STORE).keys, 0);
}

/* ---- operations that make no sense ---- */

static void bad_operations(void **state)
{
    static const uint8_t codes[] = {0, 7, 15, 16, 17, 18, 19, 20, 21, 22, 99, 255};
    struct iovec iov[2] = {{"ab", 2}, {"cd", 2}};
    struct iovec many[1025] = {{"x", 1}};
    struct penstock_op op;

    (void)state;
    put_value(STORE, "k", 100, 1);
    for (size_t i = 0; i < sizeof(codes); i++) {
        op = (struct penstock_op){0};
        penstock_prep(&op, (enum penstock_code)codes[i], "k", 1);
        assert_result(run_op(STORE, &op), -EINVAL);
    }
    op = put_op("k", NULL, 5, 0, 0); /* a size without memory */
    assert_result(run_op(STORE, &op), -EINVAL);
    op = put_op("k", NULL, 5, 0, 0); /* pieces that do not sum up */
    op.iov = iov;
    op.iov_count = 2;
    assert_result(run_op(STORE, &op), -EINVAL);
    op.bytes = 3;
    assert_result(run_op(STORE, &op), -EINVAL);
    op.bytes = 1;
    op.iov = many;
    op.iov_count = 1025;
    assert_result(run_op(STORE, &op), -EINVAL);
    iov[0].iov_len = SIZE_MAX; /* a sum that overflows */
    op.iov = iov;
    op.iov_count = 2;
    assert_result(run_op(STORE, &op), -EINVAL);
    assert_int_equal(penstock_batch(STORE, NULL, 1), -EINVAL);
    assert_int_equal(penstock_batch(STORE, NULL, 0), 0);
    assert_int_equal(penstock_batch(NULL, &op, 1), -EINVAL);
    expect_bytes(STORE, "k", 100, 1);
}

/* One bad operation spoils nobody else's. */
static void bad_among_good(void **state)
{
    struct penstock_op ops[5] = {0};
    uint8_t buf[100];

    (void)state;
    put_value(STORE, "there", 100, 1);
    penstock_prep_put(&ops[0], "new", 3, "abc", 3);
    penstock_prep_put(&ops[1], "", 0, "abc", 3);
    penstock_prep_get(&ops[2], "there", 5, buf, sizeof(buf));
    penstock_prep_get_range(&ops[3], "there", 5, 99, buf, 2);
    penstock_prep(&ops[4], PENSTOCK_STAT_KEY, "absent", 6);
    assert_int_equal(penstock_batch(STORE, ops, 5), 3);
    assert_result(ops[0].result, 0);
    assert_result(ops[1].result, -EINVAL);
    assert_result(ops[2].result, 0);
    assert_true(filled(buf, 100, 1));
    assert_result(ops[3].result, -ERANGE);
    assert_result(ops[4].result, PENSTOCK_MISS);
    assert_result(penstock_get(STORE, "new", 3, buf, sizeof(buf), NULL), 0);
    assert_memory_equal(buf, "abc", 3);
}

static void bad_handles(void **state)
{
    struct penstock_stat stat = {0};
    struct penstock *store = NULL;
    uint64_t ns;

    (void)state;
    assert_result(penstock_put(NULL, "k", 1, "v", 1), -EINVAL);
    assert_result(penstock_ping(NULL, &ns), -EINVAL);
    assert_result(penstock_stat(STORE, &stat), -EINVAL);
    assert_result(penstock_stat(STORE, NULL), -EINVAL);
    assert_result(penstock_open("ftp://x", NULL, &store), -EINVAL);
    assert_non_null(strstr(penstock_error(), "ftp://x"));
    assert_result(penstock_open("node://127.0.0.1", NULL, &store), -EINVAL);
    assert_non_null(strstr(penstock_error(), "server address must be host:port"));
    assert_result(penstock_open("node://127.0.0.1:99999", NULL, &store), -EINVAL);
    assert_non_null(strstr(penstock_error(), "invalid port number"));
    assert_result(penstock_open("node://127.0.0.1:1", NULL, &store), -ECONNREFUSED);
    assert_result(penstock_open("node+unix:///nowhere/at/all", NULL, &store), -ECONNREFUSED);
    assert_result(penstock_open("mem:?dram=many", NULL, &store), -EINVAL);
    assert_non_null(strstr(penstock_error(), "many"));
    assert_result(penstock_open("mem:?colour=red", NULL, &store), -EINVAL);
    assert_non_null(strstr(penstock_error(), "colour"));
    assert_result(penstock_open("mem:", NULL, NULL), -EINVAL);
    assert_null(store);
    assert_null(penstock_close(NULL));
    assert_null(penstock_queue_close(NULL));
    assert_null(penstock_list_close(NULL));
    assert_null(penstock_node_close(NULL));
}

/* One put through everything that takes flags beside batches and queues. */
static void flags_of_other_calls(struct penstock *store, uint32_t flag)
{
    const uint32_t of_stream =
        PENSTOCK_IF_ABSENT | PENSTOCK_IF_GENERATION | PENSTOCK_CHECKSUM | PENSTOCK_TTL | PENSTOCK_DURABLE;
    const uint32_t of_commit = PENSTOCK_IF_ABSENT | PENSTOCK_IF_GENERATION | PENSTOCK_CHECKSUM;
    const struct penstock_watch_options options = {.size = sizeof(options), .flags = flag};
    struct penstock_stream *stream = NULL;
    struct penstock_watch *watch = NULL;
    struct penstock_op put = {0};

    penstock_prep_put(&put, "flags", 5, "v", 1);
    put.flags = flag;
    if (!(flag & of_stream))
        assert_result(penstock_stream_open(store, &put, &stream), -EINVAL);
    if (!(flag & of_commit))
        assert_result(penstock_commit(store, &put, 1), -EINVAL);
    if (!(flag & PENSTOCK_WATCH_MOVES))
        assert_result(penstock_watch_open_with(store, &options, &watch), -EINVAL);
    assert_null(stream);
    assert_null(watch);
}

/* A flag that has no meaning for a call is refused, by every call; the others are not refused for what they
 * are. */
static void flags_without_meaning(void **state)
{
    static const uint32_t may[][2] = {
        {PENSTOCK_PUT,
         PENSTOCK_IF_ABSENT | PENSTOCK_IF_GENERATION | PENSTOCK_CHECKSUM | PENSTOCK_TTL | PENSTOCK_DURABLE},
        {PENSTOCK_GET, PENSTOCK_IF_GENERATION | PENSTOCK_UNLESS_GENERATION | PENSTOCK_RANGE | PENSTOCK_EXACT |
                           PENSTOCK_WAIT},
        {PENSTOCK_STAT_KEY, 0},
        {PENSTOCK_DELETE, PENSTOCK_IF_GENERATION},
        {PENSTOCK_PIN, 0},
        {PENSTOCK_UNPIN, 0},
        {PENSTOCK_RESERVE, PENSTOCK_IF_ABSENT | PENSTOCK_IF_GENERATION | PENSTOCK_TTL | PENSTOCK_REPLACE},
        {PENSTOCK_WRITE_AT, 0},
        {PENSTOCK_RESERVATION_COMMIT, PENSTOCK_CHECKSUM | PENSTOCK_DURABLE},
        {PENSTOCK_RESERVATION_ABORT, 0}};
    struct penstock *store = STORE;
    struct penstock_queue *queue;

    (void)state;
    assert_result(penstock_queue_open(store, &queue), 0);
    for (size_t i = 0; i < sizeof(may) / sizeof(may[0]); i++) {
        for (uint32_t flag = 1; flag; flag *= 2) {
            struct penstock_reservation reservation = {0};
            struct penstock_op op = {0}, *ended;
            char room[8] = "v";

            penstock_prep(&op, may[i][0], "flags", 5);
            op.data = op.code == PENSTOCK_RESERVE ? (void *)&reservation : room;
            op.bytes = 1;
            op.flags = flag;
            if (may[i][1] & flag)
                continue;
            assert_result(run_op(store, &op), -EINVAL);
            assert_result(penstock_submit(queue, &op, 1), 0);
            assert_int_equal(penstock_reap(queue, &ended, 1, -1), 1);
            assert_result(op.result, -EINVAL);
        }
    }
    penstock_queue_close(queue);
    for (uint32_t flag = 1; flag; flag *= 2)
        flags_of_other_calls(store, flag);
    assert_result(penstock_exists(store, "flags", 5), PENSTOCK_MISS);
}

/* Where attributes mean nothing they are left out, and the session goes on. */
static void attributes_without_meaning(void **state)
{
    char attrs[] = "attributes";
    struct penstock_op op = {.attrs = attrs, .attr_bytes = sizeof(attrs)};
    struct penstock_reservation reservation = {0};

    (void)state;
    assert_result(penstock_reserve(STORE, "k", 1, 3, PENSTOCK_DEPTH_NONE, &reservation), 0);
    penstock_prep_write_at(&op, "k", 1, &reservation, 0, "abc", 3);
    assert_result(run_op(STORE, &op), 0);
    penstock_prep_reservation_abort(&op, "k", 1, &reservation);
    assert_result(run_op(STORE, &op), 0);
    penstock_prep(&op, PENSTOCK_PIN, "k", 1);
    assert_result(run_op(STORE, &op), PENSTOCK_MISS);
}

/* Codes of the library's own, and pieces where a reservation is to be. */
static void operations_that_nobody_may_ask_for(void **state)
{
    struct penstock_reservation reservation;
    struct penstock_op op;
    char room[8];
    struct iovec iov = {.iov_base = room, .iov_len = sizeof(room)};

    (void)state;
    for (uint32_t code = 0; code <= UINT8_MAX; code++) {
        op = (struct penstock_op){.code = (uint8_t)code, .key = "k", .key_bytes = UINT16_MAX};
        assert_true(run_op(STORE, &op) < 0);
    }
    memset(&reservation, 'x', sizeof(reservation));
    op = (struct penstock_op){.iov_count = 1};
    penstock_prep_reserve(&op, "k", 1, 8, &reservation);
    op.iov = &iov;
    assert_result(run_op(STORE, &op), -EINVAL);
    assert_result(penstock_reserve(STORE, "k", 1, 8, PENSTOCK_DEPTH_NONE, &reservation), 0);
    assert_int_equal(strlen(reservation.location), reservation.location_bytes);
    assert_result(penstock_reservation_abort(STORE, "k", 1, &reservation), 0);
}

static const struct CMUnitTest tests[] = {
    TEST(put_if_absent),
    TEST(put_and_delete_if_generation),
    TEST(values_end),
    TEST(get_if_generation),
    TEST(generations_rise),
    TEST(stated_size),
    TEST(small_buffer),
    TEST(odd_keys),
    TEST(bad_keys),
    TEST(missing_arguments),
    TEST(bad_operations),
    TEST(bad_among_good),
    TEST(bad_handles),
    TEST(flags_without_meaning),
    TEST(attributes_without_meaning),
    TEST(operations_that_nobody_may_ask_for),
};

PART(part_conditions, tests);
