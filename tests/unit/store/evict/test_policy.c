/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/policy_rig.h"

static const char *const policies[] = {"lru", "prefix", "s3fifo", "chains"};

/* One that comes when there are @keys of them lets another go. */
static void put_among(struct engine *e, const char *key, uint64_t keys)
{
    if (shard_stat(e->shard).cache_keys >= keys)
        assert_true(pst_shard_evict(e->shard, e->now_ns));
    put(e, key, 1, 100);
}

static void names_find_policies(void **state)
{
    const struct pst_store_options bad = {
        .arenas = {.bytes = 2 << 20, .page_bytes = 64 << 10}, .shard_count = 1, .policy = "random"};
    struct pst_store *store;
    const char *fault = "";

    (void)state;
    for (size_t i = 0; i < pst_count_of(policies); i++)
        assert_string_equal(pst_policy_find(policies[i])->name, policies[i]);
    assert_ptr_equal(pst_policy_find(NULL), &pst_policy_chains);
    assert_ptr_equal(pst_policy_find(""), &pst_policy_chains);
    assert_null(pst_policy_find("lru2"));
    assert_int_equal(pst_store_open(&bad, &store, &fault), -EINVAL);
    assert_non_null(strstr(fault, "policy"));
}

static void lru_knows_no_depth(void **state)
{
    struct engine e;

    (void)state;
    open_with(&e, "lru");
    for (uint16_t i = 0; i < 6; i++)
        put_deep(&e, key_name("c/", i), i);
    touch(&e, "c/0000001");
    assert_victim(&e, "c/0000000");
    for (uint16_t i = 2; i < 6; i++)
        assert_victim(&e, key_name("c/", i));
    assert_victim(&e, "c/0000001");
    engine_close(&e);
}

/* Where a whole line is kept, those of others go, although it is the one whose turn it is. */
static void kept_lines_hide_none(void **state)
{
    (void)state;
    for (size_t p = 0; p < pst_count_of(policies); p++) {
        struct engine e;

        open_with(&e, policies[p]);
        for (uint32_t i = 0; i < 60; i++) {
            put(&e, key_name("c/", i), 1, 100);
            touch(&e, key_name("c/", i));
            assert_int_equal(pin(&e, key_name("c/", i), 0), 0);
        }
        assert_false(pst_shard_evict(e.shard, e.now_ns));
        put(&e, "c/loose", 1, 100);
        put(&e, "c/too", 1, 100);
        assert_true(pst_shard_evict(e.shard, e.now_ns));
        assert_true(pst_shard_evict(e.shard, e.now_ns));
        assert_null(find(e.shard, "c/loose"));
        assert_null(find(e.shard, "c/too"));
        assert_false(pst_shard_evict(e.shard, e.now_ns));
        assert_int_equal(shard_stat(e.shard).cache_keys, 60);
        engine_close(&e);
    }
}

/* Pages come and are read from the first on, and go from the last. */
static void chains_go_from_their_end(void **state)
{
    (void)state;
    for (size_t p = 1; p < pst_count_of(policies); p++) {
        struct engine e;

        open_with(&e, policies[p]);
        for (uint16_t chain = 0; chain < 3; chain++) {
            for (uint16_t i = 0; i < 6; i++)
                put_deep(&e, key_name(chain == 0 ? "c/a" : chain == 1 ? "c/b" : "c/c", i), i);
        }
        for (uint16_t i = 0; i < 3; i++)
            touch(&e, key_name("c/a", i));
        for (uint16_t i = 6; i > 3; i--)
            assert_victim(&e, key_name("c/a", i - 1));
        for (uint16_t i = 6; i > 0; i--)
            assert_victim(&e, key_name("c/b", i - 1));
        for (uint16_t i = 6; i > 1; i--)
            assert_victim(&e, key_name("c/c", i - 1));
        assert_int_equal(delete_key(e.shard, "c/c0000000"), 0); /* s3fifo spares what came last */
        for (uint16_t i = 3; i > 0; i--)
            assert_victim(&e, key_name("c/a", i - 1));
        assert_false(pst_shard_evict(e.shard, e.now_ns));
        engine_close(&e);
    }
}

/* What goes on behind a page that went stands where that stood: of a chain that is longer than the cache the
 * front stays. */
static void chains_lose_their_end(void **state)
{
    (void)state;
    for (size_t p = 1; p < pst_count_of(policies); p++) {
        struct engine e;

        open_with(&e, policies[p]);
        put_deep(&e, "c/other", 0);
        for (uint16_t i = 0; i < 100; i++) {
            put_deep(&e, key_name("c/", i), i);
            if (i >= 10)
                assert_true(pst_shard_evict(e.shard, e.now_ns));
        }
        assert_null(find(e.shard, "c/other"));
        for (uint16_t i = 0; i < 11; i++)
            assert_non_null(find(e.shard, key_name("c/", i)));
        engine_close(&e);
    }
}

/* Also of one that takes its time, while it comes and when its end has gone. */
static void slow_chains_lose_their_end(void **state)
{
    (void)state;
    for (size_t p = 1; p < pst_count_of(policies); p++) {
        struct engine e;

        open_with(&e, policies[p]);
        for (uint16_t i = 0; i < 100; i++, e.now_ns += 2 * SECOND_NS) {
            put_deep(&e, key_name("c/", i), i);
            if (i >= 50)
                assert_true(pst_shard_evict(e.shard, e.now_ns));
        }
        for (uint16_t i = 0; i < 50; i++)
            assert_non_null(find(e.shard, key_name("c/", i)));
        engine_close(&e);
    }
}

static struct pst_shard *coldest_shard(const struct engine *e)
{
    struct pst_shard *coldest = e->shard;

    for (uint32_t i = 1; i < pst_store_shard_count(e->store); i++) {
        struct pst_shard *s = pst_store_shard(e->store, i);

        if (s->tail_ms < coldest->tail_ms)
            coldest = s;
    }
    return coldest;
}

/* A chain lies in all shards, and all of them lose of its end: none is left without its front. */
static void shards_lose_the_end_together(void **state)
{
    enum { SHARDS = 16, PAGES = 800, KEPT = 400 };

    (void)state;
    for (size_t p = 1; p < pst_count_of(policies); p++) {
        uint32_t front = 0;
        struct engine e;

        engine_open(&e, &(struct engine_shape){.page_bytes = 64 << 10,
                                               .pages = 256,
                                               .shards = SHARDS,
                                               .cache_prefix = "c/",
                                               .policy = policies[p]});
        for (uint32_t i = 0; i < PAGES; i++, e.now_ns += 5000000) {
            e.shard = pst_store_shard(e.store, i * 7 % SHARDS);
            put_deep(&e, key_name("c/", i), (uint16_t)i);
            if (i >= KEPT)
                assert_true(pst_shard_evict(coldest_shard(&e), e.now_ns));
        }
        for (uint32_t i = 0; i < KEPT; i++)
            front += !!find(pst_store_shard(e.store, i * 7 % SHARDS), key_name("c/", i));
        assert_in_range(front, KEPT - KEPT / 10, KEPT);
        engine_close(&e);
    }
}

/* Many that are used once push nothing out that was used more. */
static void s3fifo_withstands_scans(void **state)
{
    struct engine e;

    (void)state;
    open_with(&e, "s3fifo");
    for (uint32_t i = 0; i < 40; i++) {
        put_among(&e, key_name("c/hot", i), 100);
        touch(&e, key_name("c/hot", i));
    }
    for (uint32_t i = 0; i < 2000; i++)
        put_among(&e, key_name("c/scan", i), 100);
    for (uint32_t i = 0; i < 40; i++)
        assert_non_null(find(e.shard, key_name("c/hot", i)));
    assert_int_equal(shard_stat(e.shard).cache_keys, 100);
    engine_close(&e);
}

/* What comes back soon after it went was worth keeping. */
static void s3fifo_remembers_who_went(void **state)
{
    struct engine e;

    (void)state;
    open_with(&e, "s3fifo");
    for (uint32_t i = 0; i < 200; i++)
        put_among(&e, key_name("c/", i), 100);
    put_among(&e, "c/0000050", 100); /* went 50 ago */
    for (uint32_t i = 200; i < 299; i++)
        put_among(&e, key_name("c/", i), 100);
    assert_non_null(find(e.shard, "c/0000050"));
    assert_null(find(e.shard, "c/0000190"));
    engine_close(&e);
}

/* An eviction ends though everything was used, and leaves the next ones little to do. */
static void s3fifo_gives_a_bounded_number_of_turns(void **state)
{
    struct engine e;

    (void)state;
    open_with(&e, "s3fifo");
    for (uint32_t i = 0; i < 15000; i++) {
        put(&e, key_name("c/", i), 1, 100);
        for (int use = 0; use < 5; use++)
            touch(&e, key_name("c/", i));
    }
    for (uint64_t i = 1; i <= 15000; i++) {
        assert_true(pst_shard_evict(e.shard, e.now_ns));
        assert_int_equal(shard_stat(e.shard).cache_keys, 15000 - i);
    }
    engine_close(&e);
}

static void an_existing_page_counts_as_used(void **state)
{
    struct pst_answer answer;
    struct pst_put put;
    struct engine e;

    (void)state;
    open_with(&e, "lru");
    put_deep(&e, "c/a", 0);
    put_deep(&e, "c/b", 0);
    put = put_of(e.shard, "c/a", 100);
    put.flags = PST_PUT_IF_ABSENT;
    assert_int_equal(pst_shard_put(e.shard, &put, pattern(1), e.now_ns, &answer), PST_EXISTS);
    assert_victim(&e, "c/b");
    engine_close(&e);
}

/* ---- whatever happens ---- */

static uint64_t assert_line(const struct pst_shard *s, const struct pst_line *line, uint32_t number)
{
    uint64_t newer = 0, count = 0;

    for (uint64_t ref = line->newest; ref; count++) {
        const struct pst_recency *rec = pst_record_recency(pst_ref_record(s, ref));

        assert_int_equal(rec->newer, newer);
        assert_int_equal(rec->line, number);
        newer = ref;
        ref = rec->older;
    }
    assert_int_equal(line->oldest, newer);
    assert_int_equal(line->count, count);
    return count;
}

static void assert_lines(struct pst_shard *s)
{
    uint64_t count = 0, ms = UINT64_MAX;

    for (uint32_t i = 0; i < PST_LINES; i++) {
        const struct pst_line *line = &s->lines[0].line[i];

        count += assert_line(s, line, i);
        if (line->oldest)
            ms = pst_min(ms, pst_record_recency(pst_ref_record(s, line->oldest))->touched_ms);
    }
    assert_int_equal(count, shard_stat(s).cache_keys);
    assert_int_equal(s->lines[0].tail_ms, ms);
}

static void lines_hold_every_record_once(void **state)
{
    (void)state;
    for (size_t p = 0; p < pst_count_of(policies); p++) {
        struct engine e;

        open_with(&e, policies[p]);
        for (int i = 0; i < 20000; i++) {
            uint64_t x = random_next();
            const char *key = key_name("c/", (uint32_t)(x / 8 % 500));

            e.now_ns += x / 4096 % 3000000;
            if (x % 8 < 3)
                put_deep(&e, key, x / 4096 % 4 ? (uint16_t)(x / 65536 % 20) : PST_DEPTH_NONE);
            else if (x % 8 < 6 && find(e.shard, key))
                touch(&e, key);
            else if (x % 8 == 6)
                pst_shard_evict(e.shard, e.now_ns);
            else if (x / 4096 % 4 == 0)
                delete_key(e.shard, key);
            else if (x / 4096 % 4 == 1)
                pst_shard_take_back(e.shard, 90);
            if (i % 50 == 0)
                assert_lines(e.shard);
        }
        assert_true(shard_stat(e.shard).moved > 0);
        engine_close(&e);
    }
}

/* ---- ghosts ---- */

static void ghosts_are_the_last_that_went(void **state)
{
    struct pst_ghosts g = {0};
    struct pst_ghost ghost;
    uint32_t found = 0;

    (void)state;
    pst_ghosts_add(&g, 1ull << 40, (struct pst_ghost){0}, 0); /* no table yet */
    assert_false(pst_ghosts_take(&g, 1ull << 40, 10, &ghost));
    pst_ghosts_fit(&g, 5000);
    for (uint64_t i = 0; i < 200000; i++)
        pst_ghosts_add(&g, i * 0x9e3779b97f4a7c15ull,
                       (struct pst_ghost){.line = (uint32_t)(i % 3), .stamp = i}, i);
    for (uint64_t i = 195000; i < 200000; i++) {
        if (!pst_ghosts_take(&g, i * 0x9e3779b97f4a7c15ull, 200000, &ghost))
            continue;
        found += ghost.line == i % 3;
        assert_in_range(ghost.stamp + 32, i, i + 64);
    }
    assert_in_range(found, 4950, 5000); /* few buckets overflow */
    found = 0;
    for (uint64_t i = 200000; i < 210000; i++)
        found += pst_ghosts_take(&g, i * 0x9e3779b97f4a7c15ull, 200000, &ghost);
    assert_in_range(found, 0, 40); /* never were there */
    pst_ghosts_fini(&g);
}

static void ghosts_are_forgotten_as_the_table_grows(void **state)
{
    struct pst_ghosts g = {0};
    struct pst_ghost ghost;

    (void)state;
    pst_ghosts_fit(&g, 1);
    pst_ghosts_add(&g, 5ull << 32, (struct pst_ghost){0}, 0);
    pst_ghosts_fit(&g, g.count / 2);
    assert_true(pst_ghosts_take(&g, 5ull << 32, 10, &ghost));
    pst_ghosts_add(&g, 5ull << 32, (struct pst_ghost){0}, 0);
    pst_ghosts_fit(&g, g.count / 2 + 1);
    assert_false(pst_ghosts_take(&g, 5ull << 32, 10, &ghost));
    pst_ghosts_fini(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_find_policies),
        cmocka_unit_test(lru_knows_no_depth),
        cmocka_unit_test(chains_go_from_their_end),
        cmocka_unit_test(kept_lines_hide_none),
        cmocka_unit_test(chains_lose_their_end),
        cmocka_unit_test(slow_chains_lose_their_end),
        cmocka_unit_test(shards_lose_the_end_together),
        cmocka_unit_test(s3fifo_withstands_scans),
        cmocka_unit_test(s3fifo_remembers_who_went),
        cmocka_unit_test(s3fifo_gives_a_bounded_number_of_turns),
        cmocka_unit_test(an_existing_page_counts_as_used),
        cmocka_unit_test(lines_hold_every_record_once),
        cmocka_unit_test(ghosts_are_the_last_that_went),
        cmocka_unit_test(ghosts_are_forgotten_as_the_table_grows),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
