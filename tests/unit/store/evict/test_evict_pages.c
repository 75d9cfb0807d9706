/* SPDX-License-Identifier: Apache-2.0 */
/* test_evict_pages.c: pages of slabs that are taken back, and values that go so that free pages join. */
#include "lib/evict_rig.h"

/* ---- slab pages taken back ---- */

struct scatter {
    uint64_t value_bytes;
    uint32_t stored, every; /* of how many each one survives */
    const char *prefix;
};

/* Fills the store with small values and deletes most, so that no page is free and all are nearly empty. */
static void scatter_values(struct engine *e, struct scatter *s)
{
    for (s->stored = 0;
         try_put(e->shard, key_name(s->prefix, s->stored), s->stored, s->value_bytes, e->now_ns) == 0;)
        s->stored++;
    for (uint32_t i = 0; i < s->stored; i++) {
        if (i % s->every)
            assert_int_equal(delete_key(e->shard, key_name(s->prefix, i)), PST_OK);
    }
}

static void assert_survivors(const struct engine *e, const struct scatter *s)
{
    for (uint32_t i = 0; i < s->stored; i++) {
        if (i % s->every == 0)
            assert_value(e->shard, key_name(s->prefix, i), i, s->value_bytes);
        else
            assert_null(find(e->shard, key_name(s->prefix, i)));
    }
}

static void sparse_pages_are_taken_back(void **state)
{
    static const struct scatter kinds[] = {
        {.value_bytes = 100, .every = 25, .prefix = "s/"},
        {.value_bytes = 1900, .every = 13, .prefix = "s/"},
        {.value_bytes = 3000,
         .every = 7,
         .prefix = "s/"}, /* a record and a tail in reservations of different classes */
    };
    const uint64_t page_bytes = 64 << 10;

    (void)state;
    for (size_t k = 0; k < pst_count_of(kinds); k++) {
        struct scatter s = kinds[k];
        struct engine e;

        engine_open(&e, &(struct engine_shape){.page_bytes = page_bytes, .pages = 64});
        scatter_values(&e, &s);
        for (uint32_t i = 0; i < 40; i++) {
            put(&e, key_name("page", i), i, page_bytes);
            assert_survivors(&e, &s);
        }
        for (uint32_t i = 0; i < 40; i++)
            assert_value(e.shard, key_name("page", i), i, page_bytes);
        assert_true(shard_stat(e.shard).moved > 0);
        assert_int_equal(shard_stat(e.shard).evictions, 0);
        sweep_all(&e, range_of("", ""), false);
        assert_int_equal(engine_pages_used(&e), 0);
        engine_close(&e);
    }
}

/* Pins move with their record, and so does its place among the recently used. */
static void pins_and_order_move_along(void **state)
{
    const struct engine_shape shape = {.page_bytes = 64 << 10, .pages = 64, .cache_prefix = "nothing"};
    struct scatter s = {.value_bytes = 100, .every = 50, .prefix = "s/"};
    struct engine e;

    (void)state;
    engine_open(&e, &shape);
    scatter_values(&e, &s);
    for (uint32_t i = 0; i < s.stored; i += s.every)
        assert_int_equal(pin(&e, key_name("s/", i), i % 100 ? 1000 : 0), 0);
    for (uint32_t i = 0; i < 50; i++)
        put(&e, key_name("page", i), i, 64 << 10);
    assert_survivors(&e, &s);
    assert_true(shard_stat(e.shard).moved > 0);
    for (uint32_t i = 0; i < s.stored; i += s.every)
        assert_int_equal(unpin(&e, key_name("s/", i)), i % 100 ? -EINVAL : 0);
    engine_close(&e);
}

static void cache_records_stay_in_order(void **state)
{
    enum { KEYS = 3000, LEFT_EVERY = 10 };
    const struct engine_shape shape = {.page_bytes = 64 << 10, .pages = 64, .cache_prefix = "c/"};
    struct engine e;

    (void)state;
    engine_open(&e, &shape);
    for (uint32_t i = 0; i < KEYS; i++)
        put_at(&e, e.shard, key_name("c/", i), 300, i * 2);
    for (uint32_t i = 0; i < KEYS; i++) {
        if (i % LEFT_EVERY)
            assert_int_equal(delete_key(e.shard, key_name("c/", i)), PST_OK);
    }
    for (int i = 0; i < 30; i++)
        pst_shard_take_back(e.shard, 90);
    assert_true(shard_stat(e.shard).moved > 0);
    for (uint32_t i = 0; i < KEYS; i += LEFT_EVERY) {
        assert_value(e.shard, key_name("c/", i), 1, 300);
        assert_victims(&e, 2 * KEYS, VICTIMS(key_name("c/", i)));
    }
    engine_close(&e);
}

/* A record that a transfer holds cannot move, but the pages of others can be emptied all the same. */
static void held_records_do_not_stop_it(void **state)
{
    struct scatter s = {.value_bytes = 100, .every = 25, .prefix = "s/"};
    struct pst_record *held[3];
    struct engine e;

    (void)state;
    engine_open(&e, &(struct engine_shape){.page_bytes = 64 << 10, .pages = 64});
    scatter_values(&e, &s);
    for (uint32_t i = 0; i < 3; i++) {
        uint32_t number = s.stored / 4 * (i + 1) / s.every * s.every;

        held[i] = find(e.shard, key_name("s/", number));
        assert_int_equal(pst_shard_ref(e.shard, held[i]), 0);
        for (uint32_t k = number - 600; k < number + 600; k++) { /* their pages become the sparsest */
            if (k != number && find(e.shard, key_name("s/", k)))
                assert_int_equal(delete_key(e.shard, key_name("s/", k)), PST_OK);
        }
    }
    for (uint32_t i = 0; i < 40; i++)
        put(&e, key_name("page", i), i, 64 << 10);
    for (uint32_t i = 0; i < 3; i++) {
        assert_record(e.shard, held[i], s.stored / 4 * (i + 1) / s.every * s.every, 100);
        pst_shard_unref(e.shard, held[i]);
    }
    engine_close(&e);
}

/* A cleared key goes with its pin, also where eviction looks at it in between. */
static void eviction_does_not_save_a_cleared_key(void **state)
{
    struct engine e;

    (void)state;
    engine_open(&e, &small);
    put_deep(&e, "c/cleared", 1, e.now_ns);
    assert_int_equal(pin(&e, "c/cleared", 1000), 0);
    assert_int_equal(sweep_all(&e, range_of("", ""), true).spared, 1);
    put_deep(&e, "c/deeper", 9, e.now_ns);
    assert_victims(&e, 2, VICTIMS("c/deeper")); /* looks at the cleared one first */
    pst_shard_tick(e.shard, e.now_ns + 2 * SECOND_NS);
    assert_null(find(e.shard, "c/cleared"));
    engine_close(&e);
}

/* A record names about 4,080 runs of pages here. */
enum { RUNS_ENOUGH = 4000, RUNS_TOO_MANY = 4250, SCATTERED = 8600 };

static const struct engine_shape scattered = {
    .page_bytes = 64 << 10, .pages = SCATTERED + 300, .cache_prefix = "c/", .policy = "prefix"};

static int reserve_pages(struct engine *e, uint32_t pages)
{
    struct pst_put put = put_of(e->shard, "big", pages * scattered.page_bytes);
    struct pst_pending pending = {0};
    struct pst_answer answer;
    int r = pst_shard_reserve(e->shard, &put, e->now_ns, &pending, &answer);

    if (r == 0)
        pst_shard_abort(e->shard, &pending);
    return r;
}

/* What goes would not join what is free: each of the values lies between two that stay. */
static void nothing_goes_for_pages_too_scattered(void **state)
{
    struct engine e;

    (void)state;
    engine_open(&e, &scattered);
    for (uint32_t i = 0; i < 100; i++) {
        put(&e, key_name("c/", i), i, scattered.page_bytes);
        put(&e, key_name("kept/", i), i, scattered.page_bytes);
    }
    engine_scatter_pages(&e, engine_take_pages(&e, SCATTERED));
    assert_int_equal(reserve_pages(&e, RUNS_TOO_MANY), -ENOSPC);
    assert_int_equal(shard_stat(e.shard).evictions, 0);
    assert_int_equal(shard_stat(e.shard).no_space, 1);
    assert_int_equal(reserve_pages(&e, RUNS_ENOUGH), 0);
    assert_int_equal(shard_stat(e.shard).evictions, 0);
    engine_close(&e);
}

static void values_go_if_that_joins_pages(void **state)
{
    struct engine e;
    struct pst_run run;

    (void)state;
    engine_open(&e, &scattered);
    run = engine_take_pages(&e, SCATTERED);
    for (uint32_t i = 0; i < 250; i++)
        put(&e, key_name("c/", i), i, scattered.page_bytes);
    engine_scatter_pages(&e, run);
    assert_int_equal(reserve_pages(&e, RUNS_TOO_MANY), 0);
    assert_in_range(shard_stat(e.shard).evictions, 1, 200);
    engine_close(&e);
}

/* Those that are over go at once, though none of them may be evicted. */
static void what_is_over_joins_pages(void **state)
{
    struct pst_answer answer;
    struct engine e;
    struct pst_run run;

    (void)state;
    engine_open(&e, &scattered);
    run = engine_take_pages(&e, SCATTERED);
    for (uint32_t i = 0; i < 250; i++) {
        struct pst_put put = put_of(e.shard, key_name("k", i), scattered.page_bytes);

        put.ttl_ms = 500;
        assert_int_equal(pst_shard_put(e.shard, &put, pattern(i), e.now_ns, &answer), 0);
    }
    engine_scatter_pages(&e, run);
    assert_int_equal(reserve_pages(&e, RUNS_TOO_MANY), -ENOSPC);
    e.now_ns += SECOND_NS;
    assert_int_equal(reserve_pages(&e, RUNS_TOO_MANY), 0);
    assert_int_equal(shard_stat(e.shard).evictions, 0);
    engine_close(&e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sparse_pages_are_taken_back),
        cmocka_unit_test(pins_and_order_move_along),
        cmocka_unit_test(cache_records_stay_in_order),
        cmocka_unit_test(held_records_do_not_stop_it),
        cmocka_unit_test(eviction_does_not_save_a_cleared_key),
        cmocka_unit_test(nothing_goes_for_pages_too_scattered),
        cmocka_unit_test(values_go_if_that_joins_pages),
        cmocka_unit_test(what_is_over_joins_pages),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
