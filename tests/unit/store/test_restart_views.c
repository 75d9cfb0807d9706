/* SPDX-License-Identifier: Apache-2.0 */
/* test_restart_views.c: pages at which clients of an earlier store still look. */
#include "lib/restart_rig.h"

/* ---- what clients look at ---- */

/* A client's view: the arenas as it maps them, and where in them the value lies. */
struct look {
    uint32_t seed;
    struct iovec pieces[4];
    int count;
};

static void look_at(const struct engine *e, uint8_t *const maps[2], const char *key, struct look *look)
{
    struct pst_record *r = find(e->shard, key);
    const struct pst_arenas *a = &e->store->arenas;

    assert_int_equal(pst_shard_ref(e->shard, r), 0);
    pst_record_viewed(e->shard, r, true);
    look->count = pst_record_iov(e->shard, r, 0, r->value_bytes, look->pieces, 4);
    assert_in_range(look->count, 1, 4);
    for (int i = 0; i < look->count; i++) {
        uint64_t offset = (uint64_t)((uint8_t *)look->pieces[i].iov_base - a->base);

        look->pieces[i].iov_base = maps[offset / a->stride] + offset % a->stride;
    }
}

static void expect_look(const struct look *look)
{
    const uint8_t *want = pattern(look->seed);

    for (int i = 0; i < look->count; i++) {
        assert_memory_equal(look->pieces[i].iov_base, want, look->pieces[i].iov_len);
        want += look->pieces[i].iov_len;
    }
}

static void fill_up(struct engine *e)
{
    for (uint32_t i = 0, full = 0; full < 20; i++)
        full += put_key(e, key_name("f", i), 3 + i % 10) != 0;
}

/* Whatever becomes of a value and of its node, who looks at it sees what it was. */
static void viewed_bytes_stay(void **state)
{
    struct look looks[] = {{.seed = 12}, {.seed = 2}, {.seed = 8}, {.seed = 10}};
    uint8_t *maps[2];
    struct engine e;

    (void)state;
    open_kept(&e, 1);
    for (uint32_t i = 0; i < 2; i++) {
        maps[i] =
            mmap(NULL, e.store->arenas.stride, PROT_READ, MAP_SHARED, e.store->arenas.fds_readonly[i], 0);
        assert_ptr_not_equal(maps[i], MAP_FAILED);
    }
    for (uint32_t i = 0; i < pst_count_of(looks); i++) {
        assert_int_equal(put_key(&e, key_name("k", i), looks[i].seed), 0);
        look_at(&e, maps, key_name("k", i), &looks[i]);
    }
    assert_int_equal(delete_key(e.shard, key_name("k", 0)), 0);
    assert_int_equal(put_key(&e, key_name("k", 1), 5), 0);
    for (uint32_t round = 0; round < 3; round++) {
        reopen(&e, 1 + round);
        assert_true(pst_store_restored(e.store)->held >= 4);
        if (round == 1)
            assert_int_equal(delete_key(shard_of(&e, key_name("k", 2)), key_name("k", 2)), 0);
        assert_true(round > 1 || holds(&e, key_name("k", 3), 10));
        if (round == 1)
            assert_int_equal(delete_key(shard_of(&e, key_name("k", 3)), key_name("k", 3)), 0);
        fill_up(&e);
        for (uint32_t i = 0; i < pst_count_of(looks); i++)
            expect_look(&looks[i]);
        for (uint32_t i = 0; keys_of(&e) > 10; i++)
            delete_key(shard_of(&e, key_name("f", i)), key_name("f", i));
    }
    for (uint32_t i = 0; i < 2; i++)
        munmap(maps[i], e.store->arenas.stride);
    reopen(&e, 2);
    assert_int_equal(pst_store_restored(e.store)->held, 0);
    clear(&e);
    engine_close(&e);
}

/* Who still looks at one value does not keep those that others looked at. */
static void pages_wait_for_their_own_views(void **state)
{
    struct look look = {.seed = 12};
    uint8_t *maps[2];
    struct engine e;
    uint64_t held;

    (void)state;
    open_kept(&e, 1);
    for (uint32_t i = 0; i < 2; i++)
        maps[i] =
            mmap(NULL, e.store->arenas.stride, PROT_READ, MAP_SHARED, e.store->arenas.fds_readonly[i], 0);
    assert_int_equal(put_key(&e, "k", look.seed), 0);
    look_at(&e, maps, "k", &look);
    reopen(&e, 1);
    held = pst_store_restored(e.store)->held;
    assert_in_range(held, 2, 3);
    assert_int_equal(put_key(&e, "other", 12), 0);
    assert_int_equal(pst_shard_ref(e.shard, find(e.shard, "other")), 0);
    pst_record_viewed(e.shard, find(e.shard, "other"), true); /* by one that ends with this process */
    for (int i = 0; i < 2; i++) {
        reopen(&e, 1);
        assert_int_equal(pst_store_restored(e.store)->held, held);
    }
    expect_look(&look);
    for (uint32_t i = 0; i < 2; i++)
        munmap(maps[i], e.store->arenas.stride);
    reopen(&e, 1);
    clear(&e);
    engine_close(&e);
}

static void views_end_in_order(void **state)
{
    struct engine e;
    struct pst_record *r;

    (void)state;
    open_kept(&e, 1);
    assert_int_equal(put_key(&e, "k", 12), 0);
    r = find(e.shard, "k");
    for (int i = 0; i < 2; i++) {
        assert_int_equal(pst_shard_ref(e.shard, r), 0);
        pst_record_viewed(e.shard, r, true);
    }
    assert_int_equal(pst_page_desc(&e.store->arenas, pst_external_runs(pst_record_external(r))->page)->views,
                     2);
    for (int i = 0; i < 2; i++) {
        pst_record_viewed(e.shard, r, false);
        pst_shard_unref(e.shard, r);
    }
    for (uint32_t page = 0; page < PAGES; page++)
        assert_int_equal(pst_page_desc(&e.store->arenas, page)->views, 0);
    clear(&e);
    engine_close(&e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(viewed_bytes_stay, remove_files),
        cmocka_unit_test_teardown(pages_wait_for_their_own_views, remove_files),
        cmocka_unit_test_teardown(views_end_in_order, remove_files),
    };

    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
