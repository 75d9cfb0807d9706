/* SPDX-License-Identifier: Apache-2.0 */
/* values.c: values in and out, of every size and in every form of memory. */
#include "e2e.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define MIB (1ull << 20)

static const uint64_t sizes[] = {0,     1,       63,  64,      2047,        2048,    2049,        4096,
                                 65536, MIB - 1, MIB, MIB + 1, 2 * MIB - 1, 2 * MIB, 2 * MIB + 1, 5 * MIB};
enum { SIZE_COUNT = sizeof(sizes) / sizeof(sizes[0]) };

static void sizes_in_data(void **state)
{
    (void)state;
    for (int i = 0; i < SIZE_COUNT; i++) {
        char key[32];

        snprintf(key, sizeof(key), "size/%llu", (unsigned long long)sizes[i]);
        assert_result(penstock_exists(STORE, key, strlen(key)), PENSTOCK_MISS);
        put_value(STORE, key, sizes[i], 1 + sizes[i]);
        assert_result(penstock_exists(STORE, key, strlen(key)), PENSTOCK_OK);
        expect_bytes(STORE, key, sizes[i], 1 + sizes[i]);
    }
    for (int i = 0; i < SIZE_COUNT; i++) { /* none has harmed another; then each takes another's size */
        char key[32];

        snprintf(key, sizeof(key), "size/%llu", (unsigned long long)sizes[i]);
        expect_bytes(STORE, key, sizes[i], 1 + sizes[i]);
        put_value(STORE, key, sizes[SIZE_COUNT - 1 - i], 7 + sizes[i]);
        expect_bytes(STORE, key, sizes[SIZE_COUNT - 1 - i], 7 + sizes[i]);
        assert_result(penstock_delete(STORE, key, strlen(key)), 0);
        assert_result(penstock_delete(STORE, key, strlen(key)), PENSTOCK_MISS);
        assert_result(penstock_exists(STORE, key, strlen(key)), PENSTOCK_MISS);
    }
    assert_int_equal(stat_of(STORE).keys, 0);
    assert_int_equal(stat_of(STORE).value_bytes, 0);
}

static void large_value(void **state)
{
    (void)state;
    put_value(STORE, "large", 70 * MIB, 3);
    expect_bytes(STORE, "large", 70 * MIB, 3);
    put_value(STORE, "large", 70 * MIB + 1, 4); /* over itself: both are there for a moment */
    expect_bytes(STORE, "large", 70 * MIB + 1, 4);
}

/* ---- pieces ---- */

/* Memory in pieces with gaps between them, some of length zero. */
struct scatter {
    struct iovec iov[1024];
    uint32_t count;
    uint64_t bytes;
    uint8_t *memory;
    uint64_t memory_bytes;
};

enum { GAP = 3, GUARD = 0xc3 };

static void scatter_init(struct scatter *s, uint64_t bytes, uint32_t pieces, uint64_t seed)
{
    uint64_t left = bytes, at = GAP;

    *s = (struct scatter){.count = pieces, .bytes = bytes, .memory_bytes = bytes + (pieces + 1) * GAP};
    s->memory = bytes_new(s->memory_bytes);
    memset(s->memory, GUARD, s->memory_bytes);
    for (uint32_t i = 0; i < pieces; i++) {
        uint64_t share = 2 * left / (pieces - i), len = share ? next_random(&seed) % (share + 1) : 0;

        if (i % 7 == 3)
            len = 0;
        len = len > left || i + 1 == pieces ? left : len;
        s->iov[i] = (struct iovec){s->memory + at, len};
        left -= len;
        at += len + GAP;
    }
}

static void scatter_fill(struct scatter *s, uint64_t seed)
{
    uint8_t *whole = bytes_new(s->bytes), *at = whole;

    fill(whole, s->bytes, seed);
    for (uint32_t i = 0; i < s->count; at += s->iov[i++].iov_len)
        memcpy(s->iov[i].iov_base, at, s->iov[i].iov_len);
    free(whole);
}

/* The first @bytes are the value's, the gaps untouched. */
static void scatter_expect(struct scatter *s, uint64_t bytes, uint64_t offset, uint64_t seed)
{
    uint8_t *whole = bytes_new(s->bytes), *at = whole;

    for (uint32_t i = 0; i < s->count; at += s->iov[i++].iov_len) {
        const uint8_t *piece = s->iov[i].iov_base;

        memcpy(at, piece, s->iov[i].iov_len);
        for (int k = 0; k < GAP; k++)
            assert_int_equal(piece[s->iov[i].iov_len + k], GUARD);
    }
    assert_true(filled_from(whole, offset, bytes, seed));
    free(whole);
}

static void scatter_op(struct penstock_op *op, enum penstock_code code, const char *key,
                       const struct scatter *s)
{
    *op = (struct penstock_op){0};
    penstock_prep(op, code, key, strlen(key));
    op->iov = s->iov;
    op->iov_count = s->count;
    op->bytes = s->bytes;
}

static void one_scattered(uint64_t bytes, uint32_t pieces_in, uint32_t pieces_out)
{
    struct scatter in, out;
    struct penstock_op op;

    scatter_init(&in, bytes, pieces_in, bytes + pieces_in);
    scatter_fill(&in, bytes);
    scatter_op(&op, PENSTOCK_PUT, "scattered", &in);
    assert_result(run_op(STORE, &op), 0);
    assert_int_equal(op.value_bytes, bytes);
    expect_bytes(STORE, "scattered", bytes, bytes);

    scatter_init(&out, bytes, pieces_out, bytes + 99);
    scatter_op(&op, PENSTOCK_GET, "scattered", &out);
    assert_result(run_op(STORE, &op), 0);
    assert_int_equal(op.value_bytes, bytes);
    scatter_expect(&out, bytes, 0, bytes);
    free(in.memory);
    free(out.memory);
}

static void pieces(void **state)
{
    static const uint32_t counts[] = {1, 2, 300, 1024};
    static const uint64_t some[] = {0, 1, 63, 2048, 2049, 65536, MIB + 1, 5 * MIB};

    (void)state;
    for (int i = 0; i < 4; i++) {
        for (size_t k = 0; k < sizeof(some) / sizeof(some[0]); k++)
            one_scattered(some[k], counts[i], counts[3 - i]);
    }
    one_scattered(70 * MIB, 300, 1024);
}

static void pieces_of_a_range(void **state)
{
    struct penstock_op op;
    struct scatter out;

    (void)state;
    put_value(STORE, "scattered", 5 * MIB, 21);
    scatter_init(&out, 3 * MIB, 300, 5);
    scatter_op(&op, PENSTOCK_GET, "scattered", &out);
    op.flags = PENSTOCK_RANGE;
    op.offset = MIB + 8;
    assert_result(run_op(STORE, &op), 0);
    assert_int_equal(op.value_bytes, 5 * MIB);
    scatter_expect(&out, 3 * MIB, MIB + 8, 21);
    free(out.memory);
}

/* A buffer in pieces that is longer than the value stays as it was behind it. */
static void pieces_longer_than_the_value(void **state)
{
    static const uint64_t some[] = {1000, 70000};
    struct penstock_op op;
    struct scatter out;

    (void)state;
    for (int i = 0; i < 2; i++) {
        put_value(STORE, "short", some[i], 8);
        scatter_init(&out, some[i] + 5000, 50, 6);
        scatter_op(&op, PENSTOCK_GET, "short", &out);
        assert_result(run_op(STORE, &op), 0);
        assert_int_equal(op.value_bytes, some[i]);
        scatter_expect(&out, some[i], 0, 8);
        assert_int_equal(out.memory[out.memory_bytes - GAP - 1], GUARD);
        free(out.memory);
    }
}

/* ---- ranges ---- */

static void ranges(void **state)
{
    static const uint64_t value_bytes[] = {1000, 2048, 65536, 5 * MIB};
    uint8_t *buf = bytes_new(5 * MIB);
    uint64_t random = 11;

    (void)state;
    for (int v = 0; v < 4; v++) {
        uint64_t bytes = value_bytes[v];

        put_value(STORE, "r", bytes, 31);
        for (int i = 0; i < 60; i++) {
            uint64_t from = next_random(&random) % (bytes / 8) * 8,
                     len = next_random(&random) % (bytes - from + 1);

            memset(buf, 0, len + 1 <= 5 * MIB ? len + 1 : len);
            assert_result(penstock_get_range(STORE, "r", 1, from, buf, len), 0);
            assert_true(filled_from(buf, from, len, 31));
            if (len < 5 * MIB)
                assert_int_equal(buf[len], 0);
        }
        assert_result(penstock_get_range(STORE, "r", 1, bytes - 8, buf, 8), 0);
        assert_true(filled_from(buf, bytes - 8, 8, 31));
        assert_result(penstock_get_range(STORE, "r", 1, bytes, buf, 0), 0);
        assert_result(penstock_get_range(STORE, "r", 1, 0, buf, 0), 0);
        assert_result(penstock_get_range(STORE, "r", 1, bytes - 8, buf, 9), -ERANGE);
        assert_result(penstock_get_range(STORE, "r", 1, bytes, buf, 1), -ERANGE);
        assert_result(penstock_get_range(STORE, "r", 1, UINT64_MAX, buf, 2), -ERANGE);
        assert_result(penstock_get_range(STORE, "r", 1, UINT64_MAX, buf, 0), -ERANGE);
        assert_result(penstock_get_range(STORE, "r", 1, 0, buf, UINT64_MAX), -ERANGE);
        assert_result(penstock_get_range(STORE, "absent", 6, 0, buf, 1), PENSTOCK_MISS);
        expect_bytes(STORE, "r", bytes, 31);
    }
    free(buf);
}

static int get_from_end(uint64_t offset, void *buf, uint64_t bytes)
{
    struct penstock_op op = {0};

    penstock_prep_get_range(&op, "r", 1, offset, buf, bytes);
    op.flags |= PENSTOCK_FROM_END;
    return run_op(STORE, &op);
}

static void ranges_from_the_end(void **state)
{
    static const uint64_t value_bytes[] = {1000, 65536, 5 * MIB};
    uint8_t *buf = bytes_new(5 * MIB);

    (void)state;
    for (int v = 0; v < 3; v++) {
        uint64_t bytes = value_bytes[v];

        put_value(STORE, "r", bytes, 31);
        assert_result(get_from_end(bytes, buf, bytes), 0);
        assert_true(filled(buf, bytes, 31));
        assert_result(get_from_end(bytes / 16 * 8, buf, bytes / 16 * 8), 0);
        assert_true(filled_from(buf, bytes - bytes / 16 * 8, bytes / 16 * 8, 31));
        assert_result(get_from_end(16, buf, 8), 0);
        assert_true(filled_from(buf, bytes - 16, 8, 31));
        assert_result(get_from_end(16, buf, 17), -ERANGE);
        assert_result(get_from_end(bytes + 1, buf, 1), -ERANGE);
        assert_result(get_from_end((uint64_t)INT64_MAX, buf, 1), -ERANGE);
        assert_result(get_from_end(0, buf, 1), -EINVAL);
        assert_result(get_from_end(UINT64_MAX, buf, 1), -EINVAL);
    }
    free(buf);
}

/* ---- attributes ---- */

static void attributes(void **state)
{
    static const uint64_t some[] = {0, 10, 3000, 200000};
    uint8_t attrs[300], back[300];
    void *value = bytes_new(200000);

    (void)state;
    fill(attrs, sizeof(attrs), 5);
    for (int i = 0; i < 4; i++) {
        for (uint16_t len = 0; len <= PENSTOCK_ATTR_BYTES_MAX; len = len ? (uint16_t)(len * 4) : 1) {
            struct penstock_op put = {.attrs = attrs, .attr_bytes = len},
                               get = {.attrs = back, .attr_bytes = 256};
            struct penstock_op stat = {.attrs = back, .attr_bytes = 256};

            fill(value, some[i], len);
            penstock_prep_put(&put, "a", 1, value, some[i]);
            assert_result(run_op(STORE, &put), 0);
            memset(back, 0, sizeof(back));
            penstock_prep(&stat, PENSTOCK_STAT_KEY, "a", 1);
            assert_result(run_op(STORE, &stat), 0);
            assert_int_equal(stat.attr_bytes, len);
            assert_memory_equal(back, attrs, len);
            assert_int_equal(stat.value_bytes, some[i]);
            assert_int_equal(stat.generation, put.generation);
            memset(back, 0, sizeof(back));
            penstock_prep_get(&get, "a", 1, value, 200000);
            assert_result(run_op(STORE, &get), 0);
            assert_int_equal(get.attr_bytes, len);
            assert_memory_equal(back, attrs, len);
            assert_true(filled(value, some[i], len));
        }
    }
    free(value);
}

static void attributes_bounds(void **state)
{
    uint8_t attrs[300] = {9, 8, 7}, back[300] = {0};
    struct penstock_op put = {.attrs = attrs, .attr_bytes = 257}, stat = {.attrs = back, .attr_bytes = 2};

    (void)state;
    penstock_prep_put(&put, "a", 1, "value", 5);
    assert_result(run_op(STORE, &put), -EINVAL);
    assert_result(penstock_exists(STORE, "a", 1), PENSTOCK_MISS);
    put.attr_bytes = 3;
    assert_result(run_op(STORE, &put), 0);
    penstock_prep(&stat, PENSTOCK_STAT_KEY, "a", 1);
    assert_result(run_op(STORE, &stat), 0); /* too little room: as much as fits, and how much there was */
    assert_int_equal(stat.attr_bytes, 3);
    assert_memory_equal(back, "\x09\x08\0", 3);
    assert_result(penstock_put(STORE, "a", 1, "other", 5), 0); /* a new value has its own attributes: none */
    stat.attr_bytes = 256;
    assert_result(run_op(STORE, &stat), 0);
    assert_int_equal(stat.attr_bytes, 0);
}

/* ---- checksums ---- */

static void put_checked(const char *key, uint64_t bytes, uint64_t seed)
{
    struct penstock_op op = {0};
    void *value = bytes_new(bytes);

    fill(value, bytes, seed);
    penstock_prep_put(&op, key, strlen(key), value, bytes);
    op.flags = PENSTOCK_CHECKSUM;
    assert_result(run_op(STORE, &op), 0);
    free(value);
}

static void checksum_holds(void **state)
{
    struct penstock_op op;
    struct scatter s;
    uint8_t part[8];

    (void)state;
    for (int i = 0; i < SIZE_COUNT; i++) {
        put_checked("sum", sizes[i], 40 + sizes[i]);
        expect_bytes(STORE, "sum", sizes[i], 40 + sizes[i]);
        if (sizes[i] < 8)
            continue;
        assert_result(penstock_get_range(STORE, "sum", 3, 0, part, 8), 0);
        assert_true(filled(part, 8, 40 + sizes[i]));
    }
    scatter_init(&s, 300000, 300, 17);
    scatter_fill(&s, 300000);
    scatter_op(&op, PENSTOCK_PUT, "sum", &s);
    op.flags = PENSTOCK_CHECKSUM;
    assert_result(run_op(STORE, &op), 0);
    expect_bytes(STORE, "sum", 300000, 300000);
    op.code = PENSTOCK_GET;
    op.flags = 0;
    assert_result(run_op(STORE, &op), 0);
    scatter_expect(&s, 300000, 0, 300000);
    free(s.memory);
}

/* Changes the first byte of whatever begins with @mark. Return: how many places that were. */
static int damage_arena(const char *path, const void *mark, size_t mark_bytes)
{
    int fd = open(path, O_RDWR | O_CLOEXEC), found = 0;
    struct stat st;

    if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_size < (off_t)MIB) {
        if (fd >= 0)
            close(fd);
        return 0;
    }
    uint8_t *map = mmap(NULL, (size_t)st.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

    close(fd);
    if (map == MAP_FAILED)
        return 0;
    for (uint8_t *at = map; (at = memmem(at, (size_t)(map + st.st_size - at), mark, mark_bytes)); found++)
        *at ^= 1;
    munmap(map, (size_t)st.st_size);
    return found;
}

/* Arenas are files that the store's process holds open. */
static void damage(uint64_t seed)
{
    int pid = place_is_private() ? (int)getpid() : (int)fixture.place.daemon.pid, found = 0;
    uint8_t mark[64];

    fill(mark, sizeof(mark), seed);
    for (int fd = 3; fd < 256 && !found; fd++) { /* the same file may be open more than once */
        char path[64], target[256];
        ssize_t len;

        snprintf(path, sizeof(path), "/proc/%d/fd/%d", pid, fd);
        len = readlink(path, target, sizeof(target) - 1);
        target[len > 0 ? len : 0] = '\0';
        if (strncmp(target, "/dev/shm/", 9) == 0 || strncmp(target, "/memfd:penstock", 15) == 0)
            found = damage_arena(path, mark, sizeof(mark));
    }
    assert_int_equal(found, 1);
}

static void checksum_finds_damage(void **state)
{
    static const uint64_t some[] = {64, 2000, 2049, 65536, 3 * MIB};
    uint8_t *buf = bytes_new(3 * MIB);
    uint64_t value_bytes;

    (void)state;
    for (int i = 0; i < 5; i++) {
        uint64_t seed = 0xbad0 + some[i];

        put_checked("sum", some[i], seed);
        expect_bytes(STORE, "sum", some[i], seed);
        damage(seed);
        assert_result(penstock_get(STORE, "sum", 3, buf, 3 * MIB, &value_bytes), -EBADMSG);
        assert_non_null(strstr(penstock_error(), "sum"));
        put_checked("sum", some[i], seed + 1);
        expect_bytes(STORE, "sum", some[i], seed + 1);
    }
    free(buf);
}

static const struct CMUnitTest tests[] = {
    TEST(sizes_in_data),
    TEST(large_value),
    TEST(pieces),
    TEST(pieces_of_a_range),
    TEST(pieces_longer_than_the_value),
    TEST(ranges),
    TEST(ranges_from_the_end),
    TEST(attributes),
    TEST(attributes_bounds),
    TEST(checksum_holds),
    TEST(checksum_finds_damage),
};

PART(part_values, tests);
