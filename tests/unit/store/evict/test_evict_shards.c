/* SPDX-License-Identifier: Apache-2.0 */
/* test_evict_shards.c: which of two shards evicts, and how long a write waits for that. */
#include "lib/evict_rig.h"

/* ---- two shards ---- */

/* A conditional put of a cache key makes room, and not by evicting the value that its condition names. */
static void a_named_value_is_no_victim(void **state)
{
    struct engine e;
    struct pst_put put;
    struct pst_answer answer;

    (void)state;
    engine_open(&e, &small);
    put_at(&e, e.shard, "c/named", 64 << 10, 0); /* the oldest */
    for (uint32_t i = 0; engine_pages_used(&e) < small.pages; i++)
        put_at(&e, e.shard, key_name("c/", i), 64 << 10, 0);
    assert_int_equal(shard_stat(e.shard).evictions, 0);
    put = put_of(e.shard, "c/named", 64 << 10);
    put.flags = PST_PUT_IF_GENERATION;
    put.if_generation = find(e.shard, "c/named")->generation;
    assert_int_equal(pst_shard_put(e.shard, &put, pattern(2), e.now_ns, &answer), 0);
    assert_value(e.shard, "c/named", 2, 64 << 10);
    assert_int_equal(shard_stat(e.shard).pinned, 0);
    engine_close(&e);
}

/* That all are kept is found out once, and forgotten when one is added. */
static void a_new_value_is_found_among_kept_ones(void **state)
{
    struct engine e;

    (void)state;
    engine_open(&e, &small);
    for (uint32_t i = 0; i < 10; i++) {
        put_at(&e, e.shard, key_name("c/", i), 100, 0);
        assert_int_equal(pin(&e, key_name("c/", i), 0), 0);
    }
    assert_false(pst_shard_make_room(e.shard, 0, e.now_ns));
    assert_false(evict_at(&e, 0));
    put_at(&e, e.shard, "c/new", 100, 0);
    assert_victims(&e, 0, VICTIMS("c/new"));
    assert_false(pst_shard_make_room(e.shard, 0, e.now_ns));
    assert_int_equal(unpin(&e, key_name("c/", 3)), 0);
    assert_victims(&e, 0, VICTIMS(key_name("c/", 3)));
    engine_close(&e);
}

static void the_coldest_shard_evicts(void **state)
{
    struct engine_shape shape = small;
    struct pst_shard *cold, *hot;
    struct engine e;

    (void)state;
    shape.shards = 2;
    shape.watermark_percent = 50;
    engine_open(&e, &shape);
    hot = pst_store_shard(e.store, 0);
    cold = pst_store_shard(e.store, 1);
    fill_pages(&e, hot, "c/", 8, 100);
    fill_pages(&e, cold, "c/", 12, 50);
    assert_false(pst_shard_tick(hot, e.now_ns + 100 * SECOND_NS));
    assert_int_equal(shard_stat(hot).evictions, 0);
    while (pst_shard_tick(cold, e.now_ns + 100 * SECOND_NS))
        ;
    assert_in_range(shard_stat(cold).evictions, 6, 12);
    assert_int_equal(shard_stat(hot).evictions, 0);
    assert_in_range(engine_pages_used(&e), 0, 16);
    engine_close(&e);
}

/* One hot key a shard: to read it again and again keeps the shard from looking cold. */
static void a_hot_shard_of_one_key_is_not_cold(void **state)
{
    struct engine_shape shape = small;
    struct pst_shard *other;
    struct engine e;

    (void)state;
    shape.shards = 2;
    shape.watermark_percent = 50;
    engine_open(&e, &shape);
    other = pst_store_shard(e.store, 1);
    put_at(&e, e.shard, "c/hot", 64 << 10, 0);
    fill_pages(&e, other, "c/", 20, 50);
    touch_at(&e, "c/hot", 100);
    pst_shard_tick(e.shard, e.now_ns + 100 * SECOND_NS);
    assert_non_null(find(e.shard, "c/hot"));
    pst_shard_tick(other, e.now_ns + 100 * SECOND_NS);
    assert_in_range(shard_stat(other).evictions, 5, 20);
    engine_close(&e);
}

static void a_waiting_write_is_busy_until_others_evict(void **state)
{
    uint64_t now_ns;
    struct pst_shard *writer, *other;
    struct engine e;

    (void)state;
    writer = two_shards(&e, &other);
    put_at(&e, writer, "keep", 100, 0);
    fill_pages(&e, other, "c/", 30, 1);
    now_ns = e.now_ns + 10 * SECOND_NS;
    for (uint32_t i = 0; i < 5; i++) {
        assert_int_equal(try_put(writer, "wide", 3, 4 * 65536, now_ns), PST_BUSY);
        assert_false(pst_shard_tick(writer, now_ns));
    }
    assert_int_equal(shard_stat(writer).no_space, 0);
    while (pst_shard_tick(other, now_ns))
        ;
    assert_int_equal(try_put(writer, "wide", 3, 4 * 65536, now_ns), PST_OK);
    assert_value(writer, "wide", 3, 4 * 65536);
    assert_in_range(shard_stat(other).evictions, 4, 6);
    assert_int_equal(shard_stat(writer).evictions, 0);
    engine_close(&e);
}

/* When all that others have is kept, waiting ends: full. When it is loose again, waiting makes sense again.
 */
static void waiting_ends_where_nothing_can_go(void **state)
{
    struct pst_shard *writer, *other;
    struct pst_lookup lookup;
    struct engine e;

    (void)state;
    writer = two_shards(&e, &other);
    put_at(&e, writer, "keep", 100, 0);
    fill_pages(&e, other, "c/", 30, 1);
    for (uint32_t i = 0; i < 30; i++) {
        lookup = lookup_of(other, key_name("c/", i));
        assert_int_equal(pst_shard_pin(other, NULL, &lookup, 0, e.now_ns), 0);
    }
    assert_int_equal(try_put(writer, "w", 3, 65536, e.now_ns + 2 * SECOND_NS), PST_BUSY);
    pst_shard_tick(other, e.now_ns + 2 * SECOND_NS);
    assert_int_equal(try_put(writer, "w", 3, 65536, e.now_ns + 2 * SECOND_NS), -ENOSPC);
    for (uint32_t i = 0; i < 30; i++) {
        lookup = lookup_of(other, key_name("c/", i));
        assert_int_equal(pst_shard_unpin(other, NULL, &lookup), 0);
    }
    assert_int_equal(try_put(writer, "w", 3, 65536, e.now_ns + 3 * SECOND_NS), PST_BUSY);
    pst_shard_tick(other, e.now_ns + 3 * SECOND_NS);
    assert_int_equal(try_put(writer, "w", 3, 65536, e.now_ns + 3 * SECOND_NS), PST_OK);
    engine_close(&e);
}

/* The same where pins end by time. */
static void waiting_sees_pins_run_out(void **state)
{
    struct pst_shard *writer, *other;
    struct engine e;

    (void)state;
    writer = two_shards(&e, &other);
    put_at(&e, writer, "keep", 100, 0);
    fill_pages(&e, other, "c/", 30, 1);
    for (uint32_t i = 0; i < 30; i++) {
        struct pst_lookup lookup = lookup_of(other, key_name("c/", i));

        assert_int_equal(pst_shard_pin(other, NULL, &lookup, 10000, e.now_ns), 0);
    }
    assert_int_equal(try_put(writer, "w", 3, 65536, e.now_ns + 2 * SECOND_NS), PST_BUSY);
    pst_shard_tick(other, e.now_ns + 2 * SECOND_NS);
    assert_int_equal(try_put(writer, "w", 3, 65536, e.now_ns + 2 * SECOND_NS), -ENOSPC);
    pst_shard_tick(other, e.now_ns + 20 * SECOND_NS);
    assert_int_equal(try_put(writer, "w", 3, 65536, e.now_ns + 20 * SECOND_NS), PST_BUSY);
    pst_shard_tick(other, e.now_ns + 20 * SECOND_NS);
    assert_int_equal(try_put(writer, "w", 3, 65536, e.now_ns + 20 * SECOND_NS), PST_OK);
    engine_close(&e);
}

/* A write that gave up waiting is forgotten: caches may fill again. */
static void a_write_that_gave_up_is_forgotten(void **state)
{
    uint64_t now_ns;
    struct pst_shard *writer, *other;
    struct engine e;

    (void)state;
    writer = two_shards(&e, &other);
    fill_pages(&e, writer, "keep", 20, 0);
    fill_pages(&e, other, "c/", 10, 1);
    now_ns = e.now_ns + 10 * SECOND_NS;
    assert_int_equal(try_put(writer, "wide", 3, 12 * 65536, now_ns), PST_BUSY);
    while (pst_shard_tick(other, now_ns))
        ;
    assert_int_equal(try_put(writer, "wide", 3, 12 * 65536, now_ns), -ENOSPC);
    fill_pages(&e, other, "c/", 8, 20);
    for (int i = 0; i < 5; i++)
        pst_shard_tick(other, e.now_ns + 20 * SECOND_NS);
    assert_int_equal(shard_stat(other).keys, 8);
    engine_close(&e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_named_value_is_no_victim),
        cmocka_unit_test(a_new_value_is_found_among_kept_ones),
        cmocka_unit_test(the_coldest_shard_evicts),
        cmocka_unit_test(a_hot_shard_of_one_key_is_not_cold),
        cmocka_unit_test(a_waiting_write_is_busy_until_others_evict),
        cmocka_unit_test(waiting_ends_where_nothing_can_go),
        cmocka_unit_test(waiting_sees_pins_run_out),
        cmocka_unit_test(a_write_that_gave_up_is_forgotten),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
