/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/evict_rig.h"

static void classes_go_by_prefix(void **state)
{
    const char *const prefixes[] = {"c/", "kv/pages/", "x"};
    const struct pst_store_options options = {.arenas = {.bytes = 2 << 20, .page_bytes = 64 << 10},
                                              .shard_count = 1,
                                              .watermark_percent = 100,
                                              .cache_prefixes = prefixes,
                                              .cache_prefix_count = 3};
    static const char *const cache[] = {"c/", "c/1", "kv/pages/", "kv/pages/abc", "x", "xyz"};
    static const char *const keep[] = {"c", "C/1", "kv/page", "kv/pagesx", " x", "ac/1"};
    struct engine e;
    const char *fault;

    (void)state;
    assert_int_equal(pst_store_open(&options, &e.store, &fault), 0);
    e.shard = pst_store_shard(e.store, 0);
    e.now_ns = pst_now_ns();
    for (int i = 0; i < 6; i++) {
        put(&e, cache[i], 1, 100);
        put(&e, keep[i], 1, 100);
        assert_true(find(e.shard, cache[i])->flags & PST_RECORD_CACHE);
        assert_false(find(e.shard, keep[i])->flags & PST_RECORD_CACHE);
    }
    assert_int_equal(shard_stat(e.shard).cache_keys, 6);
    for (int i = 0; i < 6; i++)
        assert_true(evict_at(&e, 1));
    assert_false(evict_at(&e, 1));
    assert_int_equal(shard_stat(e.shard).evictions, 6);
    assert_int_equal(shard_stat(e.shard).evicted_bytes, 600);
    for (int i = 0; i < 6; i++)
        assert_value(e.shard, keep[i], 1, 100);
    engine_close(&e);
}

static void the_longest_unused_goes_first(void **state)
{
    struct engine e;

    (void)state;
    engine_open(&e, &small);
    for (uint32_t i = 0; i < 6; i++)
        put_at(&e, e.shard, key_name("c/", i), 100, i * 10);
    put_at(&e, e.shard, "c/0000002", 100, 70); /* writing is a use */
    touch_at(&e, "c/0000000", 80);
    touch_at(&e, "c/0000004", 90);
    touch_at(&e, "c/0000004", 100); /* the youngest again */
    assert_victims(&e, 110,
                   VICTIMS("c/0000001", "c/0000003", "c/0000005", "c/0000002", "c/0000000", "c/0000004"));
    assert_false(evict_at(&e, 110));
    engine_close(&e);
}

static void the_deepest_of_one_moment_goes_first(void **state)
{
    struct engine e;

    (void)state;
    engine_open(&e, &small);
    put_deep(&e, "c/root", 0, e.now_ns + 10 * SECOND_NS);
    put_deep(&e, "c/mid", 5, e.now_ns + 10 * SECOND_NS + 1000);
    put_deep(&e, "c/leaf", 9, e.now_ns + 10 * SECOND_NS + SECOND_NS / 2);
    put_deep(&e, "c/none", PST_DEPTH_NONE, e.now_ns + 10 * SECOND_NS + SECOND_NS / 2);
    put_deep(&e, "c/later", 100, e.now_ns + 25 * SECOND_NS); /* deep, but of another moment */
    assert_victims(&e, 30, VICTIMS("c/leaf", "c/mid", "c/root", "c/none", "c/later"));
    engine_close(&e);
}

/* A record's time is that of its last use even where its place in the list does not change. */
static void the_youngest_is_touched_too(void **state)
{
    struct engine e;

    (void)state;
    engine_open(&e, &small);
    put_deep(&e, "c/old", 1, e.now_ns);
    put_deep(&e, "c/deep", 9, e.now_ns);
    touch_at(&e, "c/deep", 100);
    assert_victims(&e, 100, VICTIMS("c/old", "c/deep"));
    engine_close(&e);
}

static void kept_keys_are_no_victims(void **state)
{
    struct engine e;
    struct pst_record *r;

    (void)state;
    engine_open(&e, &small);
    put_at(&e, e.shard, "c/hard", 100, 0);
    put_at(&e, e.shard, "c/ttl", 100, 1);
    put_at(&e, e.shard, "c/ref", 100, 2);
    put_at(&e, e.shard, "c/loose", 100, 3);
    put_at(&e, e.shard, "keep", 100, 0);
    assert_int_equal(pin(&e, "c/hard", 0), 0);
    assert_int_equal(pin(&e, "c/hard", 0), 0); /* they count */
    assert_int_equal(pin(&e, "c/ttl", 60000), 0);
    r = find(e.shard, "c/ref");
    assert_int_equal(pst_shard_ref(e.shard, r), 0);
    assert_victims(&e, 10, VICTIMS("c/loose"));
    assert_false(evict_at(&e, 59));
    assert_victims(&e, 60, VICTIMS("c/ttl"));
    pst_shard_unref(e.shard, r);
    assert_victims(&e, 70, VICTIMS("c/ref"));
    assert_int_equal(unpin(&e, "c/hard"), 0);
    assert_false(evict_at(&e, 80));
    assert_int_equal(unpin(&e, "c/hard"), 0);
    assert_victims(&e, 90, VICTIMS("c/hard"));
    assert_false(evict_at(&e, 1000));
    assert_value(e.shard, "keep", 1, 100);
    engine_close(&e);
}

static void pins_add_up(void **state)
{
    struct engine e;

    (void)state;
    engine_open(&e, &small);
    assert_int_equal(pin(&e, "c/1", 0), PST_MISS);
    assert_int_equal(unpin(&e, "c/1"), PST_MISS);
    put(&e, "c/1", 1, 100);
    assert_int_equal(unpin(&e, "c/1"), -EINVAL);
    assert_int_equal(pin(&e, "c/1", 30000), 0);
    assert_int_equal(unpin(&e, "c/1"), -EINVAL); /* a TTL pin ends by itself only */
    assert_int_equal(pin(&e, "c/1", 10000), 0);  /* the longer one counts */
    assert_false(evict_at(&e, 29));
    assert_int_equal(pin(&e, "c/1", 0), 0);
    assert_false(evict_at(&e, 31));
    put(&e, "c/1", 2, 50000); /* pins are the key's, not the value's */
    assert_false(evict_at(&e, 31));
    assert_int_equal(unpin(&e, "c/1"), 0);
    assert_victims(&e, 31, VICTIMS("c/1"));
    assert_int_equal(shard_stat(e.shard).pinned, 0);
    put(&e, "c/1", 1, 100); /* a new key has none of them */
    assert_victims(&e, 32, VICTIMS("c/1"));
    engine_close(&e);
}

static void cache_gives_way_to_writes(void **state)
{
    struct engine e;

    (void)state;
    engine_open(&e, &small);
    for (uint32_t i = 0; i < 500; i++)
        put_at(&e, e.shard, key_name("c/", i), 64 << 10, i * 10);
    assert_int_equal(shard_stat(e.shard).keys, 31);
    assert_int_equal(shard_stat(e.shard).evictions, 500 - 31);
    for (uint32_t i = 500 - 31; i < 500; i++)
        assert_value(e.shard, key_name("c/", i), 1, 64 << 10);
    fill_pages(&e, e.shard, "keep", 31, 6000); /* kept values push the last of them out */
    assert_int_equal(shard_stat(e.shard).cache_keys, 0);
    assert_int_equal(try_put(e.shard, "more", 1, 64 << 10, e.now_ns + 7000 * SECOND_NS), -ENOSPC);
    assert_int_equal(try_put(e.shard, "c/more", 1, 64 << 10, e.now_ns + 7000 * SECOND_NS), -ENOSPC);
    for (uint32_t i = 0; i < 31; i++)
        assert_value(e.shard, key_name("keep", i), 1, 64 << 10);
    engine_close(&e);
}

/* What is evicted for a write that then does not fit would be lost for nothing. */
static void a_hopeless_write_evicts_nothing(void **state)
{
    struct pst_shard *other;
    struct engine e;

    (void)state;
    two_shards(&e, &other);
    fill_pages(&e, e.shard, "keep", 12, 0);
    fill_pages(&e, e.shard, "c/", 8, 1);
    fill_pages(&e, other, "c/", 8, 2); /* keys that stay hold 12 of 32 pages */
    assert_int_equal(try_put(e.shard, "wide", 1, 21 * 65536, e.now_ns + 3 * SECOND_NS), -ENOSPC);
    assert_int_equal(try_put(e.shard, "c/wide", 1, 21 * 65536, e.now_ns + 3 * SECOND_NS), -ENOSPC);
    assert_false(pst_shard_tick(other, e.now_ns + 3 * SECOND_NS)); /* nor was it asked to make room */
    assert_int_equal(shard_stat(e.shard).evictions + shard_stat(other).evictions, 0);
    assert_int_equal(shard_stat(e.shard).cache_keys + shard_stat(other).cache_keys, 16);
    assert_int_equal(shard_stat(e.shard).no_space, 2);
    engine_close(&e);
}

/* The same where it is pins that leave too little. */
static void pinned_values_make_a_write_hopeless(void **state)
{
    struct engine e;

    (void)state;
    engine_open(&e, &small);
    fill_pages(&e, e.shard, "c/", 31, 0);
    for (uint32_t i = 0; i < 10; i++)
        assert_int_equal(pin(&e, key_name("c/", 3 * i), 0), 0);
    assert_int_equal(try_put(e.shard, "wide", 1, 23 * 65536, e.now_ns + SECOND_NS), -ENOSPC);
    assert_int_equal(shard_stat(e.shard).evictions, 0);
    assert_int_equal(shard_stat(e.shard).keys, 31);
    assert_int_equal(try_put(e.shard, "wide", 1, 20 * 65536, e.now_ns + SECOND_NS), 0);
    assert_in_range(shard_stat(e.shard).evictions, 20, 21); /* its record takes a page, too */
    engine_close(&e);
}

static void all_pinned_is_full(void **state)
{
    struct engine e;

    (void)state;
    engine_open(&e, &small);
    fill_pages(&e, e.shard, "c/", 31, 0);
    for (uint32_t i = 0; i < 31; i++)
        assert_int_equal(pin(&e, key_name("c/", i), i % 2 ? 0 : 60000), 0);
    for (uint64_t second = 0; second < 60; second++)
        assert_int_equal(try_put(e.shard, "c/more", 1, 64 << 10, e.now_ns + second * SECOND_NS), -ENOSPC);
    assert_int_equal(shard_stat(e.shard).keys, 31);
    assert_int_equal(try_put(e.shard, "c/0000099", 2, 64 << 10, e.now_ns + 60 * SECOND_NS), 0);
    assert_value(e.shard, "c/0000099", 2, 64 << 10);
    assert_int_equal(shard_stat(e.shard).evictions, 1);
    engine_close(&e);
}

static void watermark_evicts_ahead_of_writes(void **state)
{
    struct engine_shape shape = small;
    struct engine e;

    (void)state;
    shape.watermark_percent = 75;
    engine_open(&e, &shape);
    for (uint32_t i = 0; i < 300; i++) {
        uint64_t now_ns = e.now_ns + i * SECOND_NS;
        uint64_t evicted = shard_stat(e.shard).evictions;

        put_at(&e, e.shard, key_name("c/", i), 64 << 10, i);
        assert_int_equal(shard_stat(e.shard).evictions, evicted); /* no write waits for one */
        while (pst_shard_tick(e.shard, now_ns))
            ;
        assert_in_range(engine_pages_used(&e), 0, 24);
    }
    assert_int_equal(shard_stat(e.shard).keys, 23);
    assert_int_equal(shard_stat(e.shard).no_space, 0);
    engine_close(&e);
}

/* A tick does a bounded amount, and says when there is more. */
static void ticks_are_bounded(void **state)
{
    const struct engine_shape shape = {
        .page_bytes = 64 << 10, .pages = 512, .cache_prefix = "c/", .watermark_percent = 10};
    uint64_t evicted = 0, ticks = 0;
    struct engine e;

    (void)state;
    engine_open(&e, &shape);
    fill_pages(&e, e.shard, "c/", 400, 0);
    while (pst_shard_tick(e.shard, e.now_ns)) {
        assert_in_range(shard_stat(e.shard).evictions - evicted, 1, 100);
        evicted = shard_stat(e.shard).evictions;
        ticks++;
    }
    assert_in_range(ticks, 4, 400);
    assert_in_range(engine_pages_used(&e), 40, 52);
    assert_false(pst_shard_tick(e.shard, e.now_ns));
    engine_close(&e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(classes_go_by_prefix),
        cmocka_unit_test(the_longest_unused_goes_first),
        cmocka_unit_test(the_deepest_of_one_moment_goes_first),
        cmocka_unit_test(the_youngest_is_touched_too),
        cmocka_unit_test(kept_keys_are_no_victims),
        cmocka_unit_test(pins_add_up),
        cmocka_unit_test(cache_gives_way_to_writes),
        cmocka_unit_test(a_hopeless_write_evicts_nothing),
        cmocka_unit_test(pinned_values_make_a_write_hopeless),
        cmocka_unit_test(all_pinned_is_full),
        cmocka_unit_test(watermark_evicts_ahead_of_writes),
        cmocka_unit_test(ticks_are_bounded),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
