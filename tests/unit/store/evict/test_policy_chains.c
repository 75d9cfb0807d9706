/* SPDX-License-Identifier: Apache-2.0 */
/* test_policy_chains.c: the policy that learns how chains of pages are used. */
#include "lib/policy_rig.h"

/* ---- chains ---- */

/* A page that was used again outlives those that came once. */
static void chains_keep_what_was_used(void **state)
{
    struct engine e;

    (void)state;
    open_with(&e, "chains");
    for (uint16_t i = 0; i < 6; i++)
        put_deep(&e, key_name("c/used", i), i);
    for (uint16_t i = 0; i < 6; i++)
        touch(&e, key_name("c/used", i));
    for (uint32_t chain = 0; chain < 50; chain++) {
        for (uint16_t i = 0; i < 6; i++)
            put_deep(&e, key_name("c/once", chain * 6 + i), i);
        for (uint16_t i = 0; chain > 4 && i < 6; i++)
            assert_true(pst_shard_evict(e.shard, e.now_ns));
    }
    for (uint16_t i = 0; i < 6; i++)
        assert_non_null(find(e.shard, key_name("c/used", i)));
    engine_close(&e);
}

/* Where a walk goes on differently, what stood behind goes first, from its end. */
static void chains_let_go_what_is_left(void **state)
{
    struct engine e;

    (void)state;
    open_with(&e, "chains");
    for (uint16_t i = 0; i < 3; i++)
        put_deep(&e, key_name("c/older", i), i);
    for (uint16_t i = 0; i < 8; i++)
        put_deep(&e, key_name("c/a", i), i);
    for (uint16_t i = 0; i < 5; i++)
        touch(&e, key_name("c/a", i));
    for (uint16_t i = 5; i < 8; i++)
        put_deep(&e, key_name("c/b", i), i);
    for (uint16_t i = 8; i > 5; i--)
        assert_victim(&e, key_name("c/a", i - 1));
    for (uint16_t i = 3; i > 0; i--)
        assert_victim(&e, key_name("c/older", i - 1));
    engine_close(&e);
}

/* However much what is left is taken to be worth, it goes if there is nothing else. */
static void chains_let_go_of_the_last(void **state)
{
    struct engine e;

    (void)state;
    open_with(&e, "chains");
    for (uint16_t i = 0; i < 8; i++)
        put_deep(&e, key_name("c/a", i), i);
    for (uint16_t i = 0; i < 5; i++)
        touch(&e, key_name("c/a", i));
    for (uint16_t i = 5; i < 8; i++)
        put_deep(&e, key_name("c/b", i), i);
    for (uint16_t i = 0; i < 8; i++)
        pst_shard_unlink(e.shard, find(e.shard, key_name(i < 5 ? "c/a" : "c/b", i)));
    assert_int_equal(e.shard->lines[0].line[PST_LINE_LEFT].count, 3);
    assert_int_equal(e.shard->listed, 3);
    for (int i = 0; i < PST_OCTAVES; i++)
        e.store->learnt[0].index[PST_LINE_LEFT][i] = 2;
    for (uint16_t i = 8; i > 5; i--)
        assert_victim(&e, key_name("c/a", i - 1));
    assert_false(pst_shard_evict(e.shard, e.now_ns));
    engine_close(&e);
}

/* Of a page that only the first of all requests have in common nothing is left behind. */
static void chains_part_behind_the_first_page(void **state)
{
    struct engine e;

    (void)state;
    open_with(&e, "chains");
    put_deep(&e, "c/older", 0);
    for (uint16_t i = 0; i < 4; i++)
        put_deep(&e, key_name("c/a", i), i);
    touch(&e, "c/a0000000");
    put_deep(&e, "c/b", 1);
    assert_victim(&e, "c/older");
    engine_close(&e);
}

/* Two requests of which a shard sees one page each, the second one deeper: the one that came first goes. */
static void shards_know_that_another_walk_began(void **state)
{
    struct pst_shard *front, *back;
    struct engine e;

    (void)state;
    engine_open(
        &e, &(struct engine_shape){
                .page_bytes = 64 << 10, .pages = 64, .shards = 2, .cache_prefix = "c/", .policy = "chains"});
    front = pst_store_shard(e.store, 0);
    back = pst_store_shard(e.store, 1);
    put_deep(&e, "c/a0", 0);
    e.shard = back;
    put_deep(&e, "c/a1", 1);
    e.shard = front;
    put_deep(&e, "c/b0", 0);
    e.shard = back;
    put_deep(&e, "c/b5", 5);
    assert_victim(&e, "c/a1");
    e.shard = front;
    put_deep(&e, "c/c0", 0);
    put_deep(&e, "c/c1", 1);
    e.shard = back;
    put_deep(&e, "c/c7", 7);
    put_deep(&e, "c/c8", 8);
    assert_victim(&e, "c/b5");
    assert_victim(&e, "c/c8");
    engine_close(&e);
}

enum { TALKS = 600, TALKS_OPEN = 40, TALK_PAGES_MAX = 60, TALK_ROOM = 2400, TALK_REQUESTS = 4000 };

/* A page of a request: there and of use, there, or put, as a quota has it: its shard makes the room. */
static bool play_page(struct engine *e, const uint32_t talk, uint16_t depth, uint32_t shards, bool whole)
{
    const char *key = key_name("c/", talk * TALK_PAGES_MAX + depth);
    uint64_t keys = 0;

    e->shard = pst_store_shard(e->store, (uint32_t)(pst_hash64(key, strlen(key), 1) % shards));
    if (find(e->shard, key)) {
        touch(e, key);
        return whole;
    }
    for (uint32_t i = 0; i < shards; i++)
        keys += shard_stat(pst_store_shard(e->store, i)).cache_keys;
    if (keys >= TALK_ROOM)
        pst_shard_evict(e->shard, e->now_ns);
    put_deep(e, key, depth);
    return false;
}

/* Talks that grow and end, among twice as many requests that never come again. Return: pages that hit. */
static uint32_t play_talks(const char *policy, uint32_t shards)
{
    uint16_t pages[TALKS_OPEN] = {0};
    uint32_t names[TALKS_OPEN] = {0}, fresh = TALKS_OPEN, hits = 0;
    uint64_t seed = 88172645463325252ull;
    struct engine e;

    engine_open(
        &e,
        &(struct engine_shape){
            .page_bytes = 64 << 10, .pages = 256, .shards = shards, .cache_prefix = "c/", .policy = policy});
    for (uint32_t i = 0; i < TALK_REQUESTS; i++) {
        uint32_t talk, count;
        bool whole = true;

        seed = seed * 6364136223846793005ull + 1442695040888963407ull;
        talk = (uint32_t)(seed >> 40) % TALKS_OPEN;
        count = 4 + (uint32_t)(seed >> 33) % 12;
        if (i % 3) {
            fresh++;
        } else if (pages[talk] + count > TALK_PAGES_MAX || !pages[talk]) {
            names[talk] = fresh++;
            pages[talk] = (uint16_t)count;
        } else {
            pages[talk] = (uint16_t)(pages[talk] + count);
        }
        count = i % 3 ? count + 8 : pages[talk];
        for (uint16_t depth = 0; depth < count; depth++) {
            whole = play_page(&e, i % 3 ? fresh : names[talk], depth, shards, whole);
            hits += whole;
        }
    }
    engine_close(&e);
    return hits;
}

/* A trace hits in a store of many shards nearly as often as in one with one. */
static void shards_decide_like_one(void **state)
{
    uint32_t one = play_talks("chains", 1), many = play_talks("chains", 16);

    (void)state;
    print_message("# pages that hit: %u with one shard, %u with 16; lru %u, %u\n", one, many,
                  play_talks("lru", 1), play_talks("lru", 16));
    assert_true(many * 100 >= one * 98);
}

static double rate_of(const struct pst_learnt *learnt, uint32_t line, uint64_t age)
{
    return pst_rates_index(learnt, line, age);
}

/* Of two lines one is used 300 touches after it came, the other hardly ever. */
static void rates_tell_lines_and_ages_apart(void **state)
{
    enum { AFTER = 300, TOUCHES = 200000 };
    struct pst_learnt *learnt = pst_learnt_open(1);
    struct pst_rates *rates = pst_rates_open(learnt, 1, 0);

    (void)state;
    assert_non_null(rates);
    for (uint64_t clock = 0; clock < TOUCHES; clock++) {
        pst_rates_came(rates, clock % 2 ? PST_LINE_LONG : PST_LINE_SHORT, clock);
        if (clock % 2 && clock > AFTER)
            pst_rates_left(rates, PST_LINE_LONG, clock - AFTER, clock, true);
        pst_rates_pass(rates, clock + 1, 1000);
    }
    assert_true(rate_of(learnt, PST_LINE_LONG, 10) > 10 * rate_of(learnt, PST_LINE_SHORT, 10));
    assert_true(rate_of(learnt, PST_LINE_LONG, 200) > 1.5 * rate_of(learnt, PST_LINE_LONG, 10));
    assert_true(rate_of(learnt, PST_LINE_LONG, 200) > 10 * rate_of(learnt, PST_LINE_LONG, 5000));
    free(rates);
    pst_learnt_close(learnt, 1);
}

/* What one shard sees, all of them know, as soon as nobody else tells something. */
static void rates_are_told(void **state)
{
    struct pst_learnt *learnt = pst_learnt_open(1);
    struct pst_rates *seeing = pst_rates_open(learnt, 4, 0), *other = pst_rates_open(learnt, 4, 0);
    double before, least, most;

    (void)state;
    assert_true(learnt && seeing && other);
    before = rate_of(learnt, PST_LINE_LONG, 300);
    pthread_mutex_lock(&learnt->lock);
    for (uint64_t clock = 0; clock < 100000; clock++) {
        pst_rates_came(seeing, PST_LINE_LONG, clock);
        if (clock > 300)
            pst_rates_left(seeing, PST_LINE_LONG, clock - 300, clock, true);
        pst_rates_pass(seeing, clock + 1, 1000);
    }
    assert_true(rate_of(learnt, PST_LINE_LONG, 300) == before);
    pthread_mutex_unlock(&learnt->lock);
    pst_rates_pass(other, 200000, 1000);
    assert_true(rate_of(learnt, PST_LINE_LONG, 300) == before);
    pst_rates_pass(seeing, 200000, 1000);
    pst_rates_pass(other, 400000, 1000);
    assert_true(rate_of(learnt, PST_LINE_LONG, 300) > 10 * before);
    least = rate_of(learnt, PST_LINE_LONG, 300);
    most = pst_rates_at_most(learnt, PST_LINE_LONG, 300);
    assert_true(most >= least && most < 1.1 * least);
    assert_true(pst_rates_at_most(learnt, PST_LINE_LONG, 1 << 20) >
                10 * rate_of(learnt, PST_LINE_LONG, 1 << 20));
    free(seeing);
    free(other);
    pst_learnt_close(learnt, 1);
}

/* Epochs grow with the records, and a clock that is ahead of all stamps by far finds nothing to count. */
static void rates_forget_what_is_older_than_their_epochs(void **state)
{
    struct pst_learnt *learnt = pst_learnt_open(1);
    struct pst_rates *rates = pst_rates_open(learnt, 1, 1ull << 40);
    uint64_t clock = 1ull << 40;
    double before;

    (void)state;
    assert_non_null(rates);
    pst_rates_pass(rates, clock, 1 << 20);
    before = rate_of(learnt, PST_LINE_SHORT, 1 << 20);
    for (int i = 0; i < 1000; i++)
        pst_rates_left(rates, PST_LINE_SHORT, clock - (1ull << 39), clock, true);
    for (int i = 0; i < 1 << 20; i++)
        pst_rates_pass(rates, ++clock, 1 << 20);
    assert_true(rate_of(learnt, PST_LINE_SHORT, 1 << 20) <= before);
    free(rates);
    pst_learnt_close(learnt, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chains_keep_what_was_used),
        cmocka_unit_test(chains_let_go_what_is_left),
        cmocka_unit_test(chains_let_go_of_the_last),
        cmocka_unit_test(chains_part_behind_the_first_page),
        cmocka_unit_test(shards_know_that_another_walk_began),
        cmocka_unit_test(shards_decide_like_one),
        cmocka_unit_test(rates_are_told),
        cmocka_unit_test(rates_tell_lines_and_ages_apart),
        cmocka_unit_test(rates_forget_what_is_older_than_their_epochs),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
