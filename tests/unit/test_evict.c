#include "engine.h"

/* In order of use, where a test depends on which one goes; of other policies, test_policy.c. */
static const struct engine_shape small = {
    .page_bytes = 64 << 10, .pages = 32, .cache_prefix = "c/", .policy = "prefix"};

static void put_at(struct engine *e, struct pst_shard *shard, const char *key, uint64_t bytes,
                   uint64_t second)
{
    assert_int_equal(try_put(shard, key, 1, bytes, e->now_ns + second * SECOND_NS), 0);
}

static void put_deep(struct engine *e, const char *key, uint16_t depth, uint64_t now_ns)
{
    struct pst_put put = put_of(e->shard, key, 100);
    struct pst_answer answer;

    put.depth = depth;
    assert_int_equal(pst_shard_put(e->shard, &put, pattern(1), now_ns, &answer), 0);
}

static void touch_at(struct engine *e, const char *key, uint64_t second)
{
    pst_shard_touch(e->shard, find(e->shard, key), e->now_ns + second * SECOND_NS);
}

/* Evicts one after the other at @second and compares with @keys, which ends with NULL. */
static void assert_victims(struct engine *e, uint64_t second, const char *const *keys)
{
    for (; *keys; keys++) {
        assert_non_null(find(e->shard, *keys));
        assert_true(pst_shard_evict(e->shard, e->now_ns + second * SECOND_NS));
        if (find(e->shard, *keys))
            fail_msg("'%s' was to go", *keys);
    }
}

#define VICTIMS(...) ((const char *const[]){__VA_ARGS__, NULL})

static bool evict_at(struct engine *e, uint64_t second)
{
    return pst_shard_evict(e->shard, e->now_ns + second * SECOND_NS);
}

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

/* ---- pressure ---- */

static void fill_pages(struct engine *e, struct pst_shard *shard, const char *prefix, uint32_t count,
                       uint64_t second)
{
    for (uint32_t i = 0; i < count; i++)
        put_at(e, shard, key_name(prefix, i), 64 << 10, second);
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

/* Return: the first shard. */
static struct pst_shard *two_shards(struct engine *e, struct pst_shard **other)
{
    struct engine_shape shape = small;

    shape.shards = 2;
    engine_open(e, &shape);
    *other = pst_store_shard(e->store, 1);
    return e->shard;
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
        assert_int_equal(pst_shard_pin(other, &lookup, 0, e.now_ns), 0);
    }
    assert_int_equal(try_put(writer, "w", 3, 65536, e.now_ns + 2 * SECOND_NS), PST_BUSY);
    pst_shard_tick(other, e.now_ns + 2 * SECOND_NS);
    assert_int_equal(try_put(writer, "w", 3, 65536, e.now_ns + 2 * SECOND_NS), -ENOSPC);
    for (uint32_t i = 0; i < 30; i++) {
        lookup = lookup_of(other, key_name("c/", i));
        assert_int_equal(pst_shard_unpin(other, &lookup), 0);
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

        assert_int_equal(pst_shard_pin(other, &lookup, 10000, e.now_ns), 0);
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
         .prefix = "s/"}, /* a record and a tail in slots of different classes */
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
        cmocka_unit_test(a_named_value_is_no_victim),
        cmocka_unit_test(a_new_value_is_found_among_kept_ones),
        cmocka_unit_test(the_coldest_shard_evicts),
        cmocka_unit_test(a_hot_shard_of_one_key_is_not_cold),
        cmocka_unit_test(a_waiting_write_is_busy_until_others_evict),
        cmocka_unit_test(waiting_ends_where_nothing_can_go),
        cmocka_unit_test(waiting_sees_pins_run_out),
        cmocka_unit_test(a_write_that_gave_up_is_forgotten),
        cmocka_unit_test(sparse_pages_are_taken_back),
        cmocka_unit_test(pins_and_order_move_along),
        cmocka_unit_test(cache_records_stay_in_order),
        cmocka_unit_test(held_records_do_not_stop_it),
        cmocka_unit_test(eviction_does_not_save_a_cleared_key),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
