/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/engine.h"

#include "mem/location.h"
#include "store/exec.h"

/* Sizes at which a value changes its shape, and how many of them there are. */
enum { SIZES = 14 };

static void sizes_of(uint64_t page_bytes, uint64_t out[SIZES])
{
    const uint64_t sizes[SIZES] = {
        0,
        1,
        64,
        PST_INLINE_BYTES_MAX - 1,
        PST_INLINE_BYTES_MAX,
        PST_INLINE_BYTES_MAX + 1,
        page_bytes / 2 - 1,
        page_bytes / 2,
        page_bytes / 2 + 1,
        page_bytes - 1,
        page_bytes,
        page_bytes + 1,
        page_bytes * 2,
        page_bytes * 7 / 2,
    };

    memcpy(out, sizes, sizeof(sizes));
}

static const struct engine_shape shapes[] = {
    {.page_bytes = 64 << 10, .pages = 64, .arena_pages = 16},
    {.page_bytes = 68 << 10, .pages = 64, .arena_pages = 16, .cache_prefix = "k"},
    {.page_bytes = 2 << 20, .pages = 32, .cache_prefix = "k"},
};

static void put_all_sizes(struct engine *e, uint64_t page_bytes, uint32_t seed)
{
    uint64_t sizes[SIZES];

    sizes_of(page_bytes, sizes);
    for (uint32_t i = 0; i < SIZES; i++)
        put(e, key_name("k", i), seed + i, sizes[i]);
}

static void assert_all_sizes(const struct engine *e, uint64_t page_bytes, uint32_t seed)
{
    uint64_t sizes[SIZES];

    sizes_of(page_bytes, sizes);
    for (uint32_t i = 0; i < SIZES; i++)
        assert_value(e->shard, key_name("k", i), seed + i, sizes[i]);
}

/* Beside a key of up to 256 bytes its stub takes 41 bytes at the most: with indexes at 23, the two stay
 * below 64. */
static void stubs_take_little_beside_their_keys(void **state)
{
    const struct engine_shape shape = {.page_bytes = 2 << 20, .pages = 4};
    const uint32_t span_bytes = 64 << 10;
    struct engine e;

    (void)state;
    engine_open(&e, &shape);
    for (size_t key_bytes = 1; key_bytes <= 256; key_bytes++) {
        size_t bytes = pst_record_body_at(PST_RECORD_TIERED | PST_RECORD_ON_DISK, key_bytes, 0);
        uint32_t reservation_class = pst_slab_class_of(e.shard->slab, bytes);
        uint32_t reservation_bytes = pst_slab_class_bytes(e.shard->slab, reservation_class);
        uint32_t reservations = span_bytes / reservation_bytes;

        assert_true(span_bytes <= reservations * (key_bytes + 41));
    }
    engine_close(&e);
}

/* No value's bytes touch another's: all are there after all are written, after all are overwritten, and as
 * they go one by one. */
static void sizes_are_stored_apart(void **state)
{
    (void)state;
    for (size_t s = 0; s < pst_count_of(shapes); s++) {
        uint64_t page_bytes = shapes[s].page_bytes, sizes[SIZES];
        struct engine e;

        engine_open(&e, &shapes[s]);
        sizes_of(page_bytes, sizes);
        put_all_sizes(&e, page_bytes, 100);
        assert_all_sizes(&e, page_bytes, 100);
        put_all_sizes(&e, page_bytes, 200);
        assert_all_sizes(&e, page_bytes, 200);
        for (uint32_t i = 0; i < SIZES; i++) {
            assert_int_equal(delete_key(e.shard, key_name("k", i)), 0);
            assert_null(find(e.shard, key_name("k", i)));
            for (uint32_t k = i + 1; k < SIZES; k++)
                assert_value(e.shard, key_name("k", k), 200 + k, sizes[k]);
        }
        assert_int_equal(engine_pages_used(&e), 0);
        assert_int_equal(shard_stat(e.shard).value_bytes, 0);
        engine_close(&e);
    }
}

/* A reservation's pieces are the value's bytes and no others: guards in the neighbours survive. */
static void reservations_are_written_between_guards(void **state)
{
    (void)state;
    for (size_t s = 0; s < pst_count_of(shapes); s++) {
        uint64_t page_bytes = shapes[s].page_bytes, sizes[SIZES];
        struct engine e;

        engine_open(&e, &shapes[s]);
        sizes_of(page_bytes, sizes);
        put_all_sizes(&e, page_bytes, 300);
        for (uint32_t i = 0; i < SIZES; i++) {
            struct pst_put put = put_of(e.shard, "written", sizes[i]);
            struct pst_pending pending;
            struct pst_answer answer;
            struct iovec iov[16];
            uint64_t total = 0;
            int pieces;

            assert_int_equal(pst_shard_reserve(e.shard, &put, e.now_ns, &pending, &answer), 0);
            pieces = pst_pending_iov(e.shard, &pending, iov, 16);
            assert_in_range(pieces, sizes[i] ? 1 : 0, 16);
            for (int p = 0; p < pieces; p++) {
                memcpy(iov[p].iov_base, pattern(900) + total, iov[p].iov_len);
                total += iov[p].iov_len;
            }
            assert_int_equal(total, sizes[i]);
            assert_int_equal(pst_shard_commit(e.shard, &put, &pending, e.now_ns, &answer), 0);
            assert_int_equal(answer.value_bytes, sizes[i]);
            assert_value(e.shard, "written", 900, sizes[i]);
            assert_all_sizes(&e, page_bytes, 300);
        }
        engine_close(&e);
    }
}

static void ranges_are_read_in_pieces(void **state)
{
    struct engine e;

    (void)state;
    engine_open(&e, &shapes[0]);
    put_all_sizes(&e, shapes[0].page_bytes, 400);
    for (uint32_t i = 0; i < SIZES; i++) {
        struct pst_record *r = find(e.shard, key_name("k", i));
        struct iovec iov[8];

        for (int k = 0; k < 200; k++) {
            uint64_t offset = random_next() % (r->value_bytes + 1);
            uint64_t bytes = random_next() % (r->value_bytes - offset + 1);
            const uint8_t *want = pattern(400 + i) + offset;
            int pieces = pst_record_iov(e.shard, r, offset, bytes, iov, 8);

            assert_range(e.shard, r, offset, bytes, want);
            assert_in_range(pieces, bytes > 0, 8);
            for (int p = 0; p < pieces; want += iov[p++].iov_len)
                assert_memory_equal(iov[p].iov_base, want, iov[p].iov_len);
            assert_ptr_equal(want, pattern(400 + i) + offset + bytes);
            if (pieces > 0)
                assert_int_equal(pst_record_iov(e.shard, r, offset, bytes, iov, pieces - 1), -E2BIG);
        }
    }
    engine_close(&e);
}

static int plan(const struct pst_record *r, bool range, bool exact, uint64_t offset, uint64_t bytes,
                uint64_t *length)
{
    const struct pst_get get = {.offset = offset, .bytes = bytes, .range = range, .exact = exact};
    uint64_t at = 4711;
    int result;

    *length = 4711;
    result = pst_get_plan(r, &get, &at, length);
    if (result < 0)
        assert_int_equal(at, 4711);
    else if (range && offset > INT64_MAX)
        assert_int_equal(at, r->value_bytes - (0 - offset));
    else
        assert_int_equal(at, range ? offset : 0);
    return result;
}

static void reads_are_planned(void **state)
{
    const struct pst_record r = {.value_bytes = 100};
    uint64_t n;

    (void)state;
    assert_int_equal(plan(&r, false, false, 0, 200, &n), 0);
    assert_int_equal(n, 100);
    assert_int_equal(plan(&r, false, false, 0, 100, &n), 0);
    assert_int_equal(n, 100);
    assert_int_equal(plan(&r, false, false, 0, 99, &n), -ENOBUFS);
    assert_int_equal(n, 4711);
    assert_int_equal(plan(&r, false, true, 0, 100, &n), 0);
    assert_int_equal(plan(&r, false, true, 0, 101, &n), -EMSGSIZE);
    assert_int_equal(plan(&r, false, true, 0, 99, &n), -EMSGSIZE);
    assert_int_equal(plan(&r, true, false, 10, 90, &n), 0);
    assert_int_equal(n, 90);
    assert_int_equal(plan(&r, true, false, 100, 0, &n), 0);
    assert_int_equal(n, 0);
    assert_int_equal(plan(&r, true, false, 10, 91, &n), -ERANGE);
    assert_int_equal(plan(&r, true, false, 101, 0, &n), -ERANGE);
    assert_int_equal(plan(&r, true, false, 2, UINT64_MAX, &n), -ERANGE);
    assert_int_equal(plan(&r, true, false, UINT64_MAX, 2, &n), -ERANGE); /* one before the end */
    assert_int_equal(plan(&r, true, false, UINT64_MAX, UINT64_MAX, &n), -ERANGE);
    assert_int_equal(plan(&r, true, false, (uint64_t)-101, 1, &n), -ERANGE); /* before the beginning */
    assert_int_equal(plan(&r, true, false, (uint64_t)INT64_MAX + 1, 1, &n), -ERANGE);
    assert_int_equal(n, 4711);
    assert_int_equal(plan(&r, true, false, UINT64_MAX, 1, &n), 0);
    assert_int_equal(n, 1);
    assert_int_equal(plan(&r, true, false, (uint64_t)-100, 100, &n), 0);
    assert_int_equal(n, 100);
}

static void reads_name_a_generation(void **state)
{
    const struct pst_record r = {.value_bytes = 100, .generation = 7};
    const struct {
        bool only, unless;
        uint64_t generation;
        int result;
    } asked[] = {{false, false, 8, 0},
                 {true, false, 7, 0},
                 {true, false, 8, PST_STALE},
                 {false, true, 7, PST_EXISTS},
                 {false, true, 8, 0}};

    (void)state;
    for (size_t i = 0; i < pst_count_of(asked); i++) {
        struct pst_get get = {.bytes = 100,
                              .generation = asked[i].generation,
                              .only = asked[i].only,
                              .unless = asked[i].unless};
        uint64_t at, n;

        assert_int_equal(pst_get_plan(&r, &get, &at, &n), asked[i].result);
        get.bytes = 99; /* another generation is told before another size */
        assert_int_equal(pst_get_plan(&r, &get, &at, &n), asked[i].result ? asked[i].result : -ENOBUFS);
    }
}

/* What a location says, as text and back, finds the value's bytes. */
static void locations_find_the_bytes(void **state)
{
    (void)state;
    for (size_t s = 0; s < pst_count_of(shapes); s++) {
        struct engine e;

        engine_open(&e, &shapes[s]);
        put_all_sizes(&e, shapes[s].page_bytes, 500);
        for (uint32_t i = 0; i < SIZES; i++) {
            const struct pst_arenas *a = pst_store_arenas(e.store);
            const struct pst_record *r = find(e.shard, key_name("k", i));
            const uint8_t *want = pattern(500 + i);
            struct pst_location at, parsed;
            struct pst_run runs[16];
            uint64_t left = r->value_bytes;
            char text[256];

            pst_record_location(e.shard, r, &at);
            assert_in_range(pst_location_print(&at, text, sizeof(text)), 0, sizeof(text) - 1);
            assert_int_equal(pst_location_parse(text, a->arena_pages, a->page_count, runs, 16, &parsed), 0);
            for (uint32_t k = 0; k < parsed.run_count; k++) {
                uint64_t len = pst_min(left, parsed.runs[k].count * a->page_bytes);

                assert_memory_equal(a->base + pst_page_offset(a, parsed.runs[k].page), want, len);
                want += len;
                left -= len;
            }
            assert_in_range(left, 0, parsed.tail_bytes);
            if (left)
                assert_memory_equal(a->base + pst_page_offset(a, parsed.tail_page) + parsed.tail_start, want,
                                    left);
        }
        engine_close(&e);
    }
}

/* ---- check sums ---- */

static void check_sums_tell_damage(void **state)
{
    struct engine e;

    (void)state;
    engine_open(&e, &shapes[2]);
    put_all_sizes(&e, shapes[2].page_bytes, 600);
    for (uint32_t i = 0; i < SIZES; i++) {
        struct pst_record *r = find(e.shard, key_name("k", i));
        uint8_t *raw = (uint8_t *)r;
        uint32_t seed = e.store->check_seed;
        uint64_t offset = pst_record_offset(e.shard, r);

        assert_int_equal(r->check, pst_record_check(r, seed, offset));
        assert_int_not_equal(r->check, pst_record_check(r, seed + 1, offset));
        assert_int_not_equal(r->check, pst_record_check(r, seed, offset + 16));
        for (size_t at = offsetof(struct pst_record, value_crc); at < pst_record_bytes(r); at++) {
            size_t key_at = pst_record_key_at(r->flags);
            bool covered = at < offsetof(struct pst_record, state) || at >= key_at;

            /* Sizes say how much there is to look at: not to be changed under the test's own feet. */
            if (at >= offsetof(struct pst_record, generation) + 8 && at < key_at && covered)
                continue;
            if (r->flags & PST_RECORD_EXTERNAL &&
                at >= pst_record_body_at(r->flags, r->key_bytes, r->attr_bytes) + 12)
                continue;
            raw[at] ^= 0x10;
            assert_int_equal(r->check == pst_record_check(r, seed, offset), !covered);
            raw[at] ^= 0x10;
        }
    }
    engine_close(&e);
}

/* Copies the arenas to another place, where nothing but offsets can lead from a record to its bytes. */
static uint8_t *copy_arenas(const struct pst_arenas *a)
{
    uint8_t *copy = calloc(a->arena_count, a->stride);

    assert_non_null(copy);
    for (uint32_t i = 0; i < a->arena_count; i++)
        memcpy(copy + i * a->stride, a->base + i * a->stride, a->arena_pages * a->page_bytes);
    return copy;
}

static void assert_copied(const struct pst_arenas *a, const uint8_t *base, const struct pst_record *r,
                          const uint8_t *want)
{
    uint64_t left = r->value_bytes;
    const struct pst_external *e;

    if (!(r->flags & PST_RECORD_EXTERNAL)) {
        assert_memory_equal(pst_record_body(r), want, left);
        return;
    }
    e = pst_record_external(r);
    for (uint32_t i = 0; i < e->run_count; i++) {
        const struct pst_run *run = &pst_external_runs(e)[i];
        uint64_t len = pst_min(left, run->count * a->page_bytes);

        assert_memory_equal(base + pst_page_offset(a, run->page), want, len);
        want += len;
        left -= len;
    }
    assert_in_range(left, 0, e->tail_bytes);
    assert_memory_equal(base + e->tail_offset, want, left);
}

static void records_do_not_depend_on_their_address(void **state)
{
    (void)state;
    for (size_t s = 0; s < pst_count_of(shapes); s++) {
        uint64_t sizes[SIZES];
        struct engine e;
        uint8_t *copy;

        engine_open(&e, &shapes[s]);
        sizes_of(shapes[s].page_bytes, sizes);
        put_all_sizes(&e, shapes[s].page_bytes, 700);
        copy = copy_arenas(pst_store_arenas(e.store));
        for (uint32_t i = 0; i < SIZES; i++) {
            uint64_t offset = pst_record_offset(e.shard, find(e.shard, key_name("k", i)));
            const struct pst_record *r = (const struct pst_record *)(const void *)(copy + offset);

            assert_int_equal(r->check, pst_record_check(r, e.store->check_seed, offset));
            assert_int_equal(r->value_bytes, sizes[i]);
            assert_true(pst_bytes_equal(pst_record_key(r), bytes_of(key_name("k", i))));
            assert_copied(pst_store_arenas(e.store), copy, r, pattern(700 + i));
        }
        free(copy);
        engine_close(&e);
    }
}

/* What was deleted, and what was never committed, does not pass for a record. */
static void dead_records_have_no_check(void **state)
{
    struct engine e;
    struct pst_put half;
    struct pst_pending pending;
    struct pst_answer answer;
    const struct pst_record *dead;
    struct pst_record *viewed;

    (void)state;
    engine_open(&e, &shapes[0]);
    put(&e, "stays", 1, 100); /* keeps their page */
    put(&e, "goes", 2, 100);
    dead = find(e.shard, "goes");
    assert_int_equal(delete_key(e.shard, "goes"), 0);
    assert_int_equal(dead->check, 0);
    assert_int_equal(dead->generation, 0);
    put(&e, "viewed", 3, 100);
    viewed = find(e.shard, "viewed");
    assert_int_equal(pst_shard_ref(e.shard, viewed), 0);
    put(&e, "viewed", 4, 100);
    assert_int_equal(viewed->check, 0); /* though its bytes stay */
    assert_range(e.shard, viewed, 0, 100, pattern(3));
    pst_shard_unref(e.shard, viewed);
    half = put_of(e.shard, "half", 100);
    assert_int_equal(pst_shard_reserve(e.shard, &half, e.now_ns, &pending, &answer), 0);
    assert_int_equal(pending.record->check, 0);
    pst_shard_abort(e.shard, &pending);
    engine_close(&e);
}

/* The pages of a value say so in the arena's trailer as long as it has them. */
static void page_descriptors_follow(void **state)
{
    const uint64_t page_bytes = shapes[0].page_bytes;
    const struct pst_arenas *a;
    struct pst_location at;
    struct engine e;
    uint32_t page;

    (void)state;
    engine_open(&e, &shapes[0]);
    a = pst_store_arenas(e.store);
    put(&e, "k", 1, 3 * page_bytes);
    pst_record_location(e.shard, find(e.shard, "k"), &at);
    page = at.runs[0].page;
    assert_int_equal(at.run_count, 1);
    assert_int_equal(at.runs[0].count, 3);
    for (uint32_t i = 0; i < 3; i++)
        assert_int_equal(pst_page_desc(a, page + i)->kind, PST_PAGE_EXTENT);
    assert_int_equal(delete_key(e.shard, "k"), 0);
    for (uint32_t i = 0; i < 3; i++)
        assert_int_equal(pst_page_desc(a, page + i)->kind, PST_PAGE_FREE);
    engine_close(&e);
}

/* Free pages without two neighbours: a value lies in as many runs as it has pages, over arenas. */
static void values_scatter(void **state)
{
    const struct engine_shape shape = {.page_bytes = 64 << 10, .pages = 64, .arena_pages = 16};
    struct engine e;
    struct pst_location at;
    char text[1024];

    (void)state;
    engine_open(&e, &shape);
    for (uint32_t i = 0; i < 60; i++)
        put(&e, key_name("p", i), i, shape.page_bytes);
    for (uint32_t i = 0; i < 60; i += 2)
        assert_int_equal(delete_key(e.shard, key_name("p", i)), 0);
    put(&e, "scattered", 1000, 30 * shape.page_bytes + 100);
    pst_record_location(e.shard, find(e.shard, "scattered"), &at);
    assert_in_range(at.run_count, 28, 31);
    assert_in_range(pst_location_print(&at, text, sizeof(text)), 30 * 2, sizeof(text) - 1);
    assert_value(e.shard, "scattered", 1000, 30 * shape.page_bytes + 100);
    for (uint32_t i = 1; i < 60; i += 2)
        assert_value(e.shard, key_name("p", i), i, shape.page_bytes);
    engine_close(&e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stubs_take_little_beside_their_keys),
        cmocka_unit_test(sizes_are_stored_apart),
        cmocka_unit_test(reservations_are_written_between_guards),
        cmocka_unit_test(ranges_are_read_in_pieces),
        cmocka_unit_test(reads_are_planned),
        cmocka_unit_test(reads_name_a_generation),
        cmocka_unit_test(locations_find_the_bytes),
        cmocka_unit_test(check_sums_tell_damage),
        cmocka_unit_test(records_do_not_depend_on_their_address),
        cmocka_unit_test(dead_records_have_no_check),
        cmocka_unit_test(page_descriptors_follow),
        cmocka_unit_test(values_scatter),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
