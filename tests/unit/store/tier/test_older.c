/* SPDX-License-Identifier: Apache-2.0 */
/* test_older.c: what the log has of keys that were overwritten in memory since, with the generations that
 * other nodes gave. */
#include "lib/disk_rig.h"
#include "lib/engine.h"

#include "store/tier/tier_priv.h"

static void open_tiered(struct engine *e, const char *folder)
{
    engine_open(e, &(struct engine_shape){.page_bytes = 64 << 10,
                                          .pages = 64,
                                          .ssd = folder,
                                          .ssd_bytes = 16 << 20,
                                          .segment_bytes = 2 << 20});
}

/* As the primary of the key's reservation has it. */
static void copy(struct engine *e, const char *key, uint32_t seed, uint64_t generation)
{
    struct pst_put put = put_of(e->shard, key, 100 * seed);
    struct pst_answer answer;

    put.generation = generation;
    assert_int_equal(pst_shard_put(e->shard, &put, pattern(seed), e->now_ns, &answer), 0);
}

static void wait_for(struct engine *e, struct pst_tier_wait *wait)
{
    while (!wait->ended)
        pst_shard_poll(e->shard, pst_now_ns());
    assert_int_equal(wait->result, 0);
    pst_tier_leave(e->shard, wait);
}

static void save(struct engine *e, const char *key)
{
    struct pst_tier_wait wait;

    assert_int_equal(pst_tier_save(e->shard, find(e->shard, key), &wait), 0);
    wait_for(e, &wait);
}

/* Two primaries may give one generation, to a key each. */
static void keys_of_one_generation(void **state)
{
    uint64_t generation = pst_wall_ns();
    char *folder = rig_folder();
    struct pst_tier_wait wait;
    struct engine e;

    (void)state;
    open_tiered(&e, folder);
    for (uint32_t i = 0; i < 100; i++) {
        copy(&e, key_name("k", i), 1 + i % 4, generation + i);
        save(&e, key_name("k", i));
    }
    for (uint32_t i = 0; i < 100; i++)
        copy(&e, key_name("k", i), 5 + i % 4, generation + 1000 + i / 10);
    assert_int_equal(e.shard->tier->olders.count, 100);
    for (uint32_t i = 0; i < 50; i++)
        assert_int_equal(delete_key(e.shard, key_name("k", i)), 0);
    assert_int_equal(e.shard->tier->olders.count, 50);
    pst_tier_flush(e.shard, &wait);
    wait_for(&e, &wait);
    assert_int_equal(e.shard->tier->olders.count, 0);
    engine_close(&e);

    open_tiered(&e, folder);
    for (uint32_t i = 0; i < 100; i++) {
        const struct pst_record *r = find(e.shard, key_name("k", i));

        assert_int_equal(r != NULL, i >= 50);
        if (r)
            assert_int_equal(r->value_bytes, 100 * (5 + i % 4));
    }
    engine_close(&e);
    rig_remove(folder);
}

/* A key that was given up comes again as another store has it, though the process began anew meanwhile. */
static void a_generation_comes_again(void **state)
{
    uint64_t generation = pst_wall_ns();
    char *folder = rig_folder();
    struct pst_tier_wait wait;
    struct engine e;

    (void)state;
    open_tiered(&e, folder);
    copy(&e, "k", 1, generation);
    save(&e, "k");
    assert_int_equal(delete_key(e.shard, "k"), 0);
    pst_tier_new_era(e.shard);
    pst_tier_flush(e.shard, &wait);
    wait_for(&e, &wait);
    engine_close(&e);
    for (int life = 0; life < 2; life++) {
        open_tiered(&e, folder);
        assert_int_equal(find(e.shard, "k") != NULL, life > 0);
        if (life == 0) {
            copy(&e, "k", 1, generation);
            save(&e, "k");
        }
        engine_close(&e);
    }
    rig_remove(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_generation_comes_again),
        cmocka_unit_test(keys_of_one_generation),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
