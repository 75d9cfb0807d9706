/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/disk_rig.h"
#include "lib/engine.h"

#include "store/place.h"
#include "store/tier/tier_priv.h"

#include <pthread.h>

static const struct pst_prefix_number some[] = {
    {.prefix = {"c/small/", 8}, .number = 10000},  {.prefix = {"k/", 2}, .number = 5000},
    {.prefix = {"k/wide/", 7}, .number = 20000},   {.prefix = {"c/wide/", 7}, .number = 400000},
    {.prefix = {"c/many/", 7}, .number = 1500000},
};

/* @folder: of an SSD; NULL: there is none. */
static void open_on(struct engine *e, uint32_t shards, const char *folder)
{
    static const char *const prefixes[] = {"c/"};
    const struct pst_store_options options = {.arenas = {.bytes = 4 << 20, .page_bytes = 64 << 10},
                                              .shard_count = shards,
                                              .watermark_percent = 100,
                                              .cache_prefixes = prefixes,
                                              .cache_prefix_count = 1,
                                              .quotas = some,
                                              .quota_count = pst_count_of(some),
                                              .ssd = {.folders = &folder,
                                                      .folder_count = folder ? 1 : 0,
                                                      .bytes = 64 << 20,
                                                      .segment_bytes = 4 << 20,
                                                      .driver = "posix"}};
    const char *fault = "";

    if (pst_store_open(&options, &e->store, &fault) < 0)
        fail_msg("%s", fault);
    e->shard = pst_store_shard(e->store, 0);
    e->now_ns = pst_now_ns();
}

static void open_with(struct engine *e, uint32_t shards)
{
    open_on(e, shards, NULL);
}

static uint64_t held(const struct engine *e, int quota)
{
    return atomic_load(&e->store->quotas[quota].bytes);
}

static void texts_are_read(void **state)
{
    static const char *const bad[] = {"", "x", "x=", "x=1Q", "x=-1", "=", "x=1=", NULL};
    struct pst_strings texts = {.count = 1};
    struct pst_prefix_number out[2];
    char fault[PST_FAULT_BYTES];

    (void)state;
    for (int i = 0; bad[i]; i++) {
        texts.items[0] = (char *)(uintptr_t)bad[i];
        assert_int_equal(pst_prefix_numbers_parse(&texts, "quota", out, fault), -EINVAL);
        assert_non_null(strstr(fault, "PREFIX=NUMBER"));
    }
    texts.items[0] = (char *)(uintptr_t) "a=b/=2K";
    texts.items[1] = (char *)(uintptr_t) "=7";
    texts.count = 2;
    assert_int_equal(pst_prefix_numbers_parse(&texts, "quota", out, fault), 0);
    assert_true(pst_bytes_equal(out[0].prefix, bytes_of("a=b/")));
    assert_int_equal(out[0].number, 2048);
    assert_int_equal(out[1].prefix.len, 0);
    assert_int_equal(out[1].number, 7);
}

static void the_longest_prefix_counts(void **state)
{
    struct engine e;

    (void)state;
    open_with(&e, 1);
    assert_int_equal(pst_key_group(e.store, bytes_of("k/1")), 2);
    assert_int_equal(pst_key_group(e.store, bytes_of("k/wide/1")), 3);
    assert_int_equal(pst_key_group(e.store, bytes_of("k/wide")), 2);
    assert_int_equal(pst_key_group(e.store, bytes_of("k")), 0);
    put(&e, "k/wide/1", 1, 20000);
    put(&e, "k/1", 1, 5000);
    assert_int_equal(held(&e, 1), 5000);
    assert_int_equal(held(&e, 2), 20000);
    engine_close(&e);
}

/* Both new values are there beside the old ones for a moment. */
static void values_that_replace_others_need_no_more(void **state)
{
    static const char *const keys[] = {"k/1", "k/2"};
    struct pst_pending pending[2];
    struct pst_answer answer;
    struct pst_put puts[2];
    struct engine e;

    (void)state;
    open_with(&e, 1);
    for (int i = 0; i < 2; i++)
        put(&e, keys[i], 1, 2500);
    for (int i = 0; i < 2; i++) {
        puts[i] = put_of(e.shard, keys[i], 2500);
        assert_int_equal(pst_shard_reserve(e.shard, &puts[i], e.now_ns, &pending[i], &answer), 0);
    }
    for (int i = 0; i < 2; i++)
        assert_int_equal(pst_shard_commit(e.shard, &puts[i], &pending[i], e.now_ns, &answer), 0);
    assert_int_equal(held(&e, 1), 5000);
    puts[0] = put_of(e.shard, "k/3", 1);
    assert_int_equal(pst_shard_reserve(e.shard, &puts[0], e.now_ns, &pending[0], &answer), -ENOSPC);
    engine_close(&e);
}

static void a_cache_prefix_evicts_its_own(void **state)
{
    struct engine e;

    (void)state;
    open_with(&e, 1);
    put(&e, "c/other", 1, 1000);
    put(&e, "c/wide/other", 1, 1000);
    put(&e, "keep", 1, 1000);
    for (uint32_t i = 0; i < 100; i++) {
        put(&e, key_name("c/small/", i), i, 1000);
        assert_in_range(held(&e, 0), 1000, 10000);
    }
    assert_int_equal(held(&e, 0), 10000);
    assert_int_equal(shard_stat(e.shard).evictions, 90);
    assert_int_equal(shard_stat(e.shard).keys, 13);
    assert_value(e.shard, "c/small/0000099", 99, 1000);
    assert_value(e.shard, "c/other", 1, 1000);
    assert_value(e.shard, "c/wide/other", 1, 1000);
    engine_close(&e);
}

/* What can never fit lets nothing go. */
static void larger_than_its_quota(void **state)
{
    struct pst_answer answer = {0};
    struct pst_put large;
    struct engine e;

    (void)state;
    open_with(&e, 1);
    put(&e, "c/small/1", 1, 9000);
    large = put_of(e.shard, "c/small/2", 10001);
    assert_int_equal(pst_shard_put(e.shard, &large, pattern(1), e.now_ns, &answer), -ENOSPC);
    assert_int_equal(answer.limit_bytes, 10000);
    assert_int_equal(answer.prefix_bytes, 8);
    assert_value(e.shard, "c/small/1", 1, 9000);
    assert_int_equal(shard_stat(e.shard).no_space, 1);
    put(&e, "c/small/2", 2, 10000);
    assert_null(find(e.shard, "c/small/1"));
    engine_close(&e);
}

/* What has to go for one write goes in pieces: others have their turns between them. */
static void a_large_write_evicts_in_pieces(void **state)
{
    struct engine e;

    (void)state;
    open_with(&e, 1);
    for (uint32_t i = 0; i < 5000; i++)
        put(&e, key_name("c/many/", i), i, 300);
    assert_int_equal(try_put(e.shard, "c/many/large", 1, 1500000, e.now_ns), PST_BUSY);
    assert_in_range(shard_stat(e.shard).evictions, 1, 4999);
    assert_int_equal(try_put(e.shard, "c/many/large", 1, 1500000, e.now_ns), 0);
    assert_int_equal(shard_stat(e.shard).evictions, 5000);
    assert_int_equal(held(&e, 4), 1500000);
    engine_close(&e);
}

static void a_keep_prefix_is_full(void **state)
{
    struct engine e;

    (void)state;
    open_with(&e, 1);
    for (uint32_t i = 0; i < 5; i++)
        put(&e, key_name("k/", i), i, 1000);
    assert_int_equal(try_put(e.shard, "k/more", 1, 1, e.now_ns), -ENOSPC);
    put(&e, "k/none", 1, 0);
    put(&e, "k/0000003", 7, 1000); /* in place of what is there */
    assert_int_equal(try_put(e.shard, "k/0000003", 1, 1001, e.now_ns), -ENOSPC);
    assert_value(e.shard, "k/0000003", 7, 1000);
    put(&e, "k/0000003", 7, 900);
    put(&e, "k/more", 1, 100);
    assert_int_equal(delete_key(e.shard, "k/0000001"), 0);
    put(&e, "k/next", 2, 1000);
    assert_int_equal(held(&e, 1), 5000);
    sweep_all(&e, range_of("", ""), false);
    assert_int_equal(held(&e, 1), 0);
    engine_close(&e);
}

static void unfinished_writes_count(void **state)
{
    struct pst_pending pending;
    struct pst_answer answer;
    struct pst_put first;
    struct pst_record *r;
    struct engine e;

    (void)state;
    open_with(&e, 1);
    first = put_of(e.shard, "k/1", 3000);
    assert_int_equal(pst_shard_reserve(e.shard, &first, e.now_ns, &pending, &answer), 0);
    assert_int_equal(held(&e, 1), 3000);
    assert_int_equal(try_put(e.shard, "k/2", 1, 2001, e.now_ns), -ENOSPC);
    pst_shard_abort(e.shard, &pending);
    assert_int_equal(held(&e, 1), 0);
    put(&e, "k/2", 1, 2001);
    r = find(e.shard, "k/2");
    assert_int_equal(pst_shard_ref(e.shard, r), 0);
    assert_int_equal(delete_key(e.shard, "k/2"), 0);
    assert_int_equal(held(&e, 1), 0); /* a reader's bytes are nobody's */
    pst_shard_unref(e.shard, r);
    assert_int_equal(held(&e, 1), 0);
    engine_close(&e);
}

/* A reservation stays for as long as its session likes, so both values count; a put passes by. */
static void reservations_count_beside_the_old_value(void **state)
{
    struct pst_holder holder;
    struct pst_answer answer;
    struct pst_reservation *reservation;
    struct pst_put p = {0};
    struct engine e;

    (void)state;
    open_with(&e, 1);
    pst_holder_init(&holder, NULL);
    put(&e, "k/1", 1, 3000);
    p.lookup = pst_shard_lookup(e.shard, bytes_of("k/1"));
    p.value_bytes = 3000;
    assert_int_equal(pst_reservation_reserve(e.shard, &holder, &p, true, e.now_ns, &reservation, &answer),
                     -ENOSPC);
    assert_int_equal(held(&e, 1), 3000);
    p.value_bytes = 2000;
    assert_int_equal(pst_reservation_reserve(e.shard, &holder, &p, true, e.now_ns, &reservation, &answer), 0);
    assert_int_equal(held(&e, 1), 5000);
    pst_holder_end(e.shard, &holder);
    assert_int_equal(held(&e, 1), 3000);
    put(&e, "k/1", 2, 4000);
    assert_int_equal(held(&e, 1), 4000);
    for (int i = 0; i < 2; i++) { /* of cache keys the old value may make the room */
        p.lookup = pst_shard_lookup(e.shard, bytes_of("c/small/1"));
        p.value_bytes = 6000;
        put(&e, "c/small/1", 1, 6000);
        assert_int_equal(pst_reservation_reserve(e.shard, &holder, &p, true, e.now_ns, &reservation, &answer),
                         0);
        assert_int_equal(held(&e, 0), 6000);
        pst_holder_end(e.shard, &holder);
    }
    engine_close(&e);
}

static void pinned_values_fill_a_quota(void **state)
{
    struct engine e;

    (void)state;
    open_with(&e, 1);
    for (uint32_t i = 0; i < 10; i++) {
        put(&e, key_name("c/small/", i), i, 1000);
        assert_int_equal(pin(&e, key_name("c/small/", i), 0), 0);
    }
    assert_int_equal(try_put(e.shard, "c/small/more", 1, 1000, e.now_ns), -ENOSPC);
    assert_int_equal(unpin(&e, "c/small/0000004"), 0);
    put(&e, "c/small/more", 1, 1000);
    assert_null(find(e.shard, "c/small/0000004"));
    engine_close(&e);
}

/* Those that were read are all pinned: the few that were not give way. */
static void pinned_values_hide_none_of_a_quota(void **state)
{
    struct engine e;

    (void)state;
    open_with(&e, 1);
    for (uint32_t i = 0; i < 60; i++) {
        put(&e, key_name("c/wide/", i), i, 6500);
        pst_shard_touch(e.shard, find(e.shard, key_name("c/wide/", i)), e.now_ns);
        assert_int_equal(pin(&e, key_name("c/wide/", i), 0), 0);
    }
    assert_int_equal(try_put(e.shard, "c/wide/more", 1, 20000, e.now_ns), -ENOSPC);
    put(&e, "c/wide/loose", 1, 6500);
    put(&e, "c/wide/more", 1, 6500);
    assert_null(find(e.shard, "c/wide/loose"));
    engine_close(&e);
}

/* The value leaves memory, for the SSD. */
static void send_away(struct engine *e, const char *key)
{
    struct pst_tier_wait wait;

    pst_tier_flush(e->shard, &wait);
    while (!wait.ended)
        if (!pst_shard_poll(e->shard, pst_now_ns()))
            rig_sleep(pst_tier_descriptor(e->shard));
    assert_int_equal(wait.result, 0);
    pst_tier_leave(e->shard, &wait);
    assert_true(pst_tier_demote(e->shard->tier, find(e->shard, key), e->now_ns));
    assert_true(find(e->shard, key)->flags & PST_RECORD_ON_DISK);
}

/* All were looked at, and pinned: once one on SSD is not any more it goes before one in memory, which is
 * hotter. */
static void what_was_pinned_on_ssd_goes_before_what_is_in_memory(void **state)
{
    char *folder = rig_folder();
    struct engine e;

    (void)state;
    open_on(&e, 1, folder);
    for (uint32_t i = 0; i < 3; i++) {
        put(&e, key_name("c/wide/", i), i, 100000);
        send_away(&e, key_name("c/wide/", i));
        assert_int_equal(pin(&e, key_name("c/wide/", i), 0), 0);
    }
    put(&e, "c/wide/memory", 3, 100000);
    assert_int_equal(pin(&e, "c/wide/memory", 0), 0);
    assert_int_equal(try_put(e.shard, "c/wide/more", 4, 100000, e.now_ns), -ENOSPC);
    assert_int_equal(unpin(&e, "c/wide/memory"), 0);
    assert_int_equal(unpin(&e, "c/wide/0000001"), 0);
    put(&e, "c/wide/more", 4, 100000);
    assert_null(find(e.shard, "c/wide/0000001"));
    assert_value(e.shard, "c/wide/memory", 3, 100000);
    engine_close(&e);
    rig_remove(folder);
}

/* A quota is the store's: where another shard holds it, that one has to give. */
static void other_shards_make_room(void **state)
{
    struct pst_shard *other;
    struct engine e;

    (void)state;
    open_with(&e, 2);
    other = pst_store_shard(e.store, 1);
    for (uint32_t i = 0; i < 10; i++)
        assert_int_equal(try_put(other, key_name("c/small/", i), i, 1000, e.now_ns), 0);
    assert_int_equal(try_put(e.shard, "c/small/here", 1, 2500, e.now_ns), PST_BUSY);
    assert_false(pst_shard_tick(e.shard, e.now_ns));
    assert_false(pst_shard_tick(other, e.now_ns));
    assert_int_equal(shard_stat(other).evictions, 3);
    assert_int_equal(try_put(e.shard, "c/small/here", 1, 2500, e.now_ns), 0);
    assert_int_equal(held(&e, 0), 9500);
    assert_false(pst_shard_tick(other, e.now_ns)); /* nobody waits any more */
    assert_int_equal(shard_stat(other).evictions, 3);
    delete_key(e.shard, "c/small/here");
    assert_int_equal(try_put(other, "c/small/last", 1, 2500, e.now_ns), 0);
    assert_int_equal(try_put(e.shard, "c/small/here", 1, 2500, e.now_ns), PST_BUSY);
    assert_false(pst_shard_tick(other, e.now_ns + 10 * SECOND_NS)); /* it has given up */
    assert_int_equal(shard_stat(other).evictions, 3);
    engine_close(&e);
}

/* The same with what is over there, which is not evicted. */
static void what_is_over_in_other_shards_makes_room(void **state)
{
    struct pst_shard *other;
    struct pst_answer answer;
    struct engine e;

    (void)state;
    open_with(&e, 2);
    other = pst_store_shard(e.store, 1);
    for (uint32_t i = 0; i < 5; i++) {
        struct pst_put put = put_of(other, key_name("k/", i), 1000);

        put.ttl_ms = 500;
        assert_int_equal(pst_shard_put(other, &put, pattern(i), e.now_ns, &answer), 0);
    }
    assert_int_equal(try_put(e.shard, "k/here", 1, 2500, e.now_ns), -ENOSPC);
    e.now_ns += SECOND_NS;
    assert_int_equal(try_put(e.shard, "k/here", 1, 2500, e.now_ns), PST_BUSY);
    assert_int_equal(try_put(e.shard, "k/wider", 1, 5001, e.now_ns), -ENOSPC); /* more than ever fits */
    assert_int_equal(shard_stat(e.shard).no_space, 2);
    assert_false(pst_shard_tick(other, e.now_ns));
    assert_int_equal(try_put(e.shard, "k/here", 1, 2500, e.now_ns), 0);
    assert_int_equal(held(&e, 1), 2500);
    assert_int_equal(try_put(e.shard, "k/more", 1, 2501, e.now_ns), -ENOSPC);
    engine_close(&e);
}

/* Each round all shards want the room that one of them can have. */
enum { RACERS = 4, RACES = 20000 };

struct race {
    struct engine *e;
    pthread_barrier_t line;
    _Atomic int taken;
    _Atomic uint64_t worst;
};

struct racer {
    struct race *race;
    struct pst_shard *shard;
    char key[16];
};

static void *run_racer(void *arg)
{
    struct racer *me = arg;
    struct pst_put put = put_of(me->shard, me->key, 3000);

    for (int i = 0; i < RACES; i++) {
        struct pst_pending pending = {0};
        struct pst_answer answer;
        uint64_t bytes;

        pthread_barrier_wait(&me->race->line);
        if (pst_shard_reserve(me->shard, &put, me->race->e->now_ns, &pending, &answer) == 0)
            me->race->taken++;
        pthread_barrier_wait(&me->race->line);
        bytes = held(me->race->e, 1);
        if (bytes > me->race->worst)
            me->race->worst = bytes;
        pthread_barrier_wait(&me->race->line);
        pst_shard_abort(me->shard, &pending);
    }
    return NULL;
}

static void shards_at_once_pass_no_quota(void **state)
{
    struct race race = {0};
    struct racer racers[RACERS];
    pthread_t threads[RACERS];
    struct engine e;

    (void)state;
    open_with(&e, RACERS);
    race.e = &e;
    pthread_barrier_init(&race.line, NULL, RACERS);
    for (uint32_t i = 0; i < RACERS; i++) {
        racers[i] = (struct racer){.race = &race, .shard = pst_store_shard(e.store, i)};
        snprintf(racers[i].key, sizeof(racers[i].key), "k/%u", i);
        assert_int_equal(pthread_create(&threads[i], NULL, run_racer, &racers[i]), 0);
    }
    for (uint32_t i = 0; i < RACERS; i++)
        pthread_join(threads[i], NULL);
    pthread_barrier_destroy(&race.line);
    assert_in_range(race.worst, 3000, 5000);
    assert_int_equal(race.taken, RACES);
    assert_int_equal(held(&e, 1), 0);
    engine_close(&e);
}

static void groups_give_way_to_each_other(void **state)
{
    struct engine e;

    (void)state;
    open_with(&e, 1);
    for (uint32_t i = 0; i < 6; i++)
        assert_int_equal(try_put(e.shard, key_name("c/wide/", i), i, 65536, e.now_ns), 0);
    for (uint32_t i = 0; i < 64; i++)
        assert_int_equal(try_put(e.shard, key_name("keep", i), i, i < 57 ? 65536 : 100, e.now_ns + SECOND_NS),
                         0);
    assert_int_equal(try_put(e.shard, "keep more", 1, 4 * 65536, e.now_ns + SECOND_NS), 0);
    assert_in_range(held(&e, 3), 0, 3 * 65536);
    engine_close(&e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_are_read),
        cmocka_unit_test(the_longest_prefix_counts),
        cmocka_unit_test(values_that_replace_others_need_no_more),
        cmocka_unit_test(a_cache_prefix_evicts_its_own),
        cmocka_unit_test(larger_than_its_quota),
        cmocka_unit_test(a_large_write_evicts_in_pieces),
        cmocka_unit_test(a_keep_prefix_is_full),
        cmocka_unit_test(unfinished_writes_count),
        cmocka_unit_test(reservations_count_beside_the_old_value),
        cmocka_unit_test(pinned_values_fill_a_quota),
        cmocka_unit_test(pinned_values_hide_none_of_a_quota),
        cmocka_unit_test(what_was_pinned_on_ssd_goes_before_what_is_in_memory),
        cmocka_unit_test(other_shards_make_room),
        cmocka_unit_test(what_is_over_in_other_shards_makes_room),
        cmocka_unit_test(shards_at_once_pass_no_quota),
        cmocka_unit_test(groups_give_way_to_each_other),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
