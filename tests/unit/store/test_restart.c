/* SPDX-License-Identifier: Apache-2.0 */
/* test_restart.c: stores that begin with what another left in the arenas. */
#include "lib/restart_rig.h"

static void values_outlive_their_process(void **state)
{
    static const uint32_t shards[] = {3, 3, 1, 16, 5, 3};
    struct engine e;

    (void)state;
    open_kept(&e, 3);
    put_all(&e);
    for (size_t i = 0; i < pst_count_of(shards); i++) {
        reopen(&e, shards[i]);
        expect_all(&e);
        assert_true(i != 1 || pst_store_restored(e.store)->moved == 0);
        assert_true(i != 2 || pst_store_restored(e.store)->moved > 0);
    }
    /* It is a store like any other. */
    for (uint32_t i = 0; i < KEYS; i++)
        assert_int_equal(put_key(&e, key_name(i % 3 ? "k" : "c", i), i + 1), 0);
    reopen(&e, 3);
    for (uint32_t i = 0; i < KEYS; i++)
        assert_true(holds(&e, key_name(i % 3 ? "k" : "c", i), i + 1));
    clear(&e);
    reopen(&e, 3);
    assert_int_equal(keys_of(&e), 0);
    assert_int_equal(engine_pages_used(&e), 0);
    engine_close(&e);
}

static void what_went_stays_away(void **state)
{
    struct engine e;
    struct pst_put half;
    struct pst_pending pending;
    struct pst_answer answer;

    (void)state;
    open_kept(&e, 1);
    put_all(&e);
    for (uint32_t i = 0; i < KEYS; i += 2)
        assert_int_equal(delete_key(e.shard, key_name(i % 3 ? "k" : "c", i)), 0);
    assert_int_equal(pst_shard_ref(e.shard, find(e.shard, key_name("k", 11))), 0);
    assert_int_equal(delete_key(e.shard, key_name("k", 11)), 0); /* in transfer when the process ends */
    half = put_of(e.shard, "half", 100000);
    assert_int_equal(pst_shard_reserve(e.shard, &half, e.now_ns, &pending, &answer), 0);
    assert_int_equal(pst_pending_iov(e.shard, &pending, &(struct iovec){0}, 0), -E2BIG);
    reopen(&e, 1);
    assert_int_equal(keys_of(&e), KEYS / 2 - 1);
    for (uint32_t i = 0; i < KEYS; i++)
        assert_int_equal(holds(&e, key_name(i % 3 ? "k" : "c", i), i), i % 2 == 1 && i != 11);
    assert_null(find(e.shard, "half"));
    clear(&e);
    engine_close(&e);
}

static void generations_go_on(void **state)
{
    struct engine e;
    uint64_t before;

    (void)state;
    open_kept(&e, 2);
    put(&e, "k", 1, 10);
    before = e.shard->generation += 1ull << 50; /* a clock that was set back since */
    put(&e, "k", 2, 10);
    assert_int_equal(delete_key(e.shard, "k"), 0);
    reopen(&e, 7);
    for (uint32_t i = 0; i < 7; i++)
        assert_true(pst_store_shard(e.store, i)->generation > before + 256);
    assert_int_equal(e.shard->generation & 255, 0);
    clear(&e);
    engine_close(&e);
}

/* One that leaves no room to count on is damage, and is not gone on from. */
static void a_damaged_generation_leaves_room(void **state)
{
    struct engine e;

    (void)state;
    open_kept(&e, 1);
    put(&e, "k", 1, 10);
    atomic_store(&e.store->kept->generation, PST_GENERATION_MAX - 1);
    reopen(&e, 1);
    assert_true(e.shard->generation < PST_GENERATION_MARKER_MAX);
    put(&e, "k", 2, 10);
    assert_true(find(e.shard, "k")->generation < PST_GENERATION_MARKER_MAX);
    clear(&e);
    engine_close(&e);
}

static void recency_survives(void **state)
{
    struct engine e;
    uint64_t tail_ms;

    (void)state;
    open_kept(&e, 1);
    for (uint32_t i = 0; i < 40; i++)
        assert_int_equal(try_put(e.shard, key_name("c", i), i, i % 4 ? 100 : 70000, e.now_ns + i * SECOND_NS),
                         0);
    for (uint32_t i = 0; i < 20; i++)
        pst_shard_touch(e.shard, find(e.shard, key_name("c", 19 - i)), e.now_ns + (100 + i) * SECOND_NS);
    reopen(&e, 1);
    assert_int_equal(shard_stat(e.shard).cache_keys, 40);
    tail_ms = e.shard->tail_ms;
    assert_int_equal(try_put(e.shard, "cyoung", 1, 10, e.now_ns), 0);
    assert_true(e.shard->tail_ms == tail_ms); /* it is the youngest */
    for (uint32_t i = 0; i < 40; i++) {
        const char *oldest = key_name("c", i < 20 ? 20 + i : 39 - i);

        assert_non_null(find(e.shard, oldest));
        assert_true(pst_shard_evict(e.shard, e.now_ns));
        assert_null(find(e.shard, oldest));
    }
    clear(&e);
    engine_close(&e);
}

/* ---- what is not as it was ---- */

static void damage_is_told_at_the_first_read(void **state)
{
    struct engine e;
    struct pst_put put;
    struct pst_answer answer;
    struct pst_record *r;
    struct iovec piece;

    (void)state;
    open_kept(&e, 1);
    for (uint32_t i = 0; i < 3; i++) {
        put = put_of(e.shard, key_name("k", i), i == 2 ? 1000 : 150000);
        put.flags = PST_PUT_CHECKSUM;
        put.value_crc = pst_crc32c(0, pattern(i), put.value_bytes);
        assert_int_equal(pst_shard_put(e.shard, &put, pattern(i), e.now_ns, &answer), 0);
        assert_int_equal(pst_record_verify(e.shard, find(e.shard, key_name("k", i))), 0);
    }
    assert_true(pst_record_piece(e.shard, find(e.shard, key_name("k", 1)), 149999, 1, &piece));
    *(uint8_t *)piece.iov_base ^= 1;
    assert_true(pst_record_piece(e.shard, find(e.shard, key_name("k", 2)), 500, 1, &piece));
    *(uint8_t *)piece.iov_base ^= 1;
    reopen(&e, 1);
    assert_int_equal(keys_of(&e), 2); /* a small value goes with its record */
    assert_null(find(e.shard, key_name("k", 2)));
    assert_int_equal(pst_record_verify(e.shard, find(e.shard, key_name("k", 0))), 0);
    r = find(e.shard, key_name("k", 1));
    assert_int_equal(pst_record_verify(e.shard, r), -EBADMSG);
    assert_int_equal(pst_record_verify(e.shard, r), -EBADMSG);
    assert_int_equal(put_key(&e, key_name("k", 1), 12), 0);
    assert_int_equal(pst_record_verify(e.shard, find(e.shard, key_name("k", 1))), 0);
    clear(&e);
    engine_close(&e);
}

/* Records with a right checksum whose pages others have, too, are outside, or are too few. */
static void memory_is_not_shared(void **state)
{
    (void)state;
    for (int fault = 0; fault < 6; fault++) {
        struct engine e;
        struct pst_record *r, *other;
        struct pst_external *x;

        open_kept(&e, 1);
        assert_int_equal(put_key(&e, "k0", 12) | put_key(&e, "k1", 11) | put_key(&e, "k2", 3), 0);
        r = find(e.shard, "k0");
        other = find(e.shard, "k1");
        x = pst_record_external(r);
        assert_true(x->run_count == 1 && x->tail_bytes > 0);
        if (fault == 0)
            pst_external_runs(x)->page = pst_external_runs(pst_record_external(other))->page;
        else if (fault == 1)
            pst_external_runs(x)->page = PAGES - 1;
        else if (fault == 2)
            pst_external_runs(x)->count = 1;
        else if (fault == 3)
            x->tail_offset = pst_record_external(other)->tail_offset;
        else if (fault == 4)
            x->tail_offset = ~0ull << 20;
        else
            pst_external_runs(x)->page = pst_offset_page(&e.store->arenas, pst_record_offset(e.shard, r));
        r->check = pst_record_check(r, e.store->check_seed, pst_record_offset(e.shard, r));
        reopen(&e, 1);
        assert_int_equal(pst_store_restored(e.store)->dropped, 1);
        assert_int_equal(keys_of(&e), 2);
        assert_true(holds(&e, "k1", 11) || fault == 0 || fault == 3); /* either of the two goes */
        assert_true(holds(&e, "k2", 3));
        clear(&e);
        engine_close(&e);
        remove_files(NULL);
    }
}

/* Values that fill the store cannot be moved: they stay where they are. */
static void shards_change_only_with_room(void **state)
{
    const char *fault = "";
    struct engine e;
    uint32_t keys = 0;

    (void)state;
    open_kept(&e, 2);
    for (uint32_t i = 0; keys == i; i++)
        keys += try_put(shard_of(&e, key_name("k", i)), key_name("k", i), i, 20000, e.now_ns) == 0;
    assert_true(keys > 500);
    engine_close(&e);
    assert_int_equal(try_open(&e, 5, &fault), -ENOSPC);
    assert_non_null(strstr(fault, "no room to move values to 5 shards: start with 2 as before"));
    open_kept(&e, 2);
    assert_int_equal(keys_of(&e), keys);
    for (uint32_t i = 0; i < keys; i++)
        assert_value(shard_of(&e, key_name("k", i)), key_name("k", i), i, 20000);
    for (uint32_t i = 0; i < keys / 2; i++)
        assert_int_equal(delete_key(shard_of(&e, key_name("k", i)), key_name("k", i)), 0);
    reopen(&e, 5);
    for (uint32_t i = keys / 2; i < keys; i++)
        assert_value(shard_of(&e, key_name("k", i)), key_name("k", i), i, 20000);
    clear(&e);
    engine_close(&e);
}

/* Cache values give way to those that are kept, and what stays is whole. */
static void cache_values_make_room(void **state)
{
    struct engine e;
    uint32_t there = 0, kept = 0;

    (void)state;
    open_kept(&e, 2);
    for (uint32_t i = 0; kept < 100; i++) {
        kept += try_put(shard_of(&e, key_name("k", i)), key_name("k", i), i, 20000, e.now_ns) == 0;
        for (uint32_t j = 6 * i; j < 6 * i + 6; j++)
            try_put(shard_of(&e, key_name("c", j)), key_name("c", j), j, 30000, e.now_ns);
    }
    assert_int_equal(engine_pages_used(&e), PAGES);
    reopen(&e, 7);
    assert_true(pst_store_restored(e.store)->moved > 100);
    for (uint32_t i = 0; i < 100; i++)
        assert_value(shard_of(&e, key_name("k", i)), key_name("k", i), i, 20000);
    for (uint32_t j = 0; j < 600; j++) {
        if (!find(shard_of(&e, key_name("c", j)), key_name("c", j)))
            continue;
        assert_value(shard_of(&e, key_name("c", j)), key_name("c", j), j, 30000);
        there++;
    }
    assert_int_equal(keys_of(&e), 100 + there);
    assert_true(there > 50);
    clear(&e);
    engine_close(&e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(values_outlive_their_process, remove_files),
        cmocka_unit_test_teardown(what_went_stays_away, remove_files),
        cmocka_unit_test_teardown(generations_go_on, remove_files),
        cmocka_unit_test_teardown(a_damaged_generation_leaves_room, remove_files),
        cmocka_unit_test_teardown(recency_survives, remove_files),
        cmocka_unit_test_teardown(damage_is_told_at_the_first_read, remove_files),
        cmocka_unit_test_teardown(memory_is_not_shared, remove_files),
        cmocka_unit_test_teardown(shards_change_only_with_room, remove_files),
        cmocka_unit_test_teardown(cache_values_make_room, remove_files),
    };

    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
