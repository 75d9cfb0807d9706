/* SPDX-License-Identifier: Apache-2.0 */
/* test_turn.c: what a shard does for its SSD in one turn of its thread ends with the turn's time, by a clock
 * of the test's own: however many values wait, and however large they are. */
#include "lib/disk_rig.h"
#include "lib/engine.h"

#include "store/tier/tier_priv.h"

enum {
    LARGE_BYTES = 1 << 20,
    SMALL_BYTES = 8000,
    SMALLS = 20,
    WALK_POLLS = 2 * SMALLS, /* of a flush that has a key in a turn, until it comes to one that it begins */
};

static uint64_t clock_ns, look_ns;

/* Each look at it takes look_ns, all work none. */
static uint64_t test_clock(void)
{
    return clock_ns += look_ns;
}

/* Each piece of work takes all of a turn. */
static void be_slow(void)
{
    look_ns = PST_TIER_TURN_NS;
}

static void be_fast(void)
{
    look_ns = 0;
}

static char *folder;

static void set_up(struct engine *e)
{
    folder = rig_folder();
    engine_open(e, &(struct engine_shape){.page_bytes = 64 << 10,
                                          .pages = 512,
                                          .ssd = folder,
                                          .ssd_bytes = 64 << 20,
                                          .segment_bytes = 4 << 20});
    e->shard->tier->clock = test_clock;
}

static void tear_down(struct engine *e)
{
    engine_close(e);
    rig_remove(folder);
}

static void put_one(struct engine *e, const char *key, uint64_t value_bytes)
{
    uint8_t *value = calloc(1, value_bytes);
    struct pst_put put = put_of(e->shard, key, value_bytes);
    struct pst_answer answer;

    assert_non_null(value);
    assert_int_equal(pst_shard_put(e->shard, &put, value, e->now_ns, &answer), 0);
    free(value);
}

/* Return: how many polls did something before the wait was over. */
static int polls_for(struct engine *e, struct pst_tier_wait *wait)
{
    int polls = 0;

    while (!wait->ended) {
        if (pst_shard_poll(e->shard, pst_now_ns()))
            polls++;
        else
            rig_sleep(pst_tier_descriptor(e->shard));
    }
    assert_int_equal(wait->result, 0);
    pst_tier_leave(e->shard, wait);
    return polls;
}

static int flush(struct engine *e)
{
    struct pst_tier_wait wait;

    pst_tier_flush(e->shard, &wait);
    return polls_for(e, &wait);
}

static int fetch(struct engine *e, const char *key)
{
    struct pst_record *r = find(e->shard, key);
    struct pst_tier_wait wait;

    assert_true(pst_record_away(r));
    assert_int_equal(pst_tier_fetch(e->shard, r, 0, r->value_bytes, e->now_ns, &wait), 0);
    return polls_for(e, &wait);
}

/* A slow clock makes of the checksums of a value 16 turns a block and more, one that stands still a few in
 * all. */
static void a_large_value_is_written_and_read_in_many_turns(void **state)
{
    const int blocks = LARGE_BYTES / PST_LOG_BLOCK_BYTES;
    struct engine e;

    (void)state;
    set_up(&e);
    for (int slow = 0; slow < 2; slow++) {
        const char *key = slow ? "slow" : "fast";
        int polls;

        slow ? be_slow() : be_fast();
        put_one(&e, key, LARGE_BYTES);
        polls = flush(&e);
        assert_true(slow ? polls > 4 * blocks : polls < blocks);
        assert_true(pst_tier_demote(e.shard->tier, find(e.shard, key), e.now_ns)); /* the log has it */
        polls = fetch(&e, key);
        assert_true(slow ? polls > 4 * blocks : polls < blocks);
    }
    tear_down(&e);
}

/* Return: how many saves the first poll that began any did begin. */
static uint32_t begun_by_a_poll(struct engine *e, char prefix)
{
    struct pst_tier_wait wait;
    uint32_t begun = 0;

    for (uint32_t i = 0; i < SMALLS; i++)
        put_one(e, key_name((char[]){prefix, '\0'}, i), SMALL_BYTES);
    pst_tier_flush(e->shard, &wait);
    for (int i = 0; i < WALK_POLLS && begun == 0; i++) {
        pst_shard_poll(e->shard, pst_now_ns());
        begun = e->shard->tier->saves_underway;
    }
    polls_for(e, &wait);
    return begun;
}

static void many_values_are_written_in_many_turns(void **state)
{
    struct engine e;

    (void)state;
    set_up(&e);
    be_fast();
    assert_int_equal(begun_by_a_poll(&e, 'f'), SMALLS);
    be_slow();
    assert_int_equal(begun_by_a_poll(&e, 's'), 1);
    tear_down(&e);
}

/* Return: how many values could give their memory up before the log was busy. */
static uint32_t demoted(struct engine *e, char prefix)
{
    uint32_t count = 0;

    while (
        count < SMALLS &&
        pst_tier_demote(e->shard->tier, find(e->shard, key_name((char[]){prefix, '\0'}, count)), e->now_ns))
        count++;
    return count;
}

/* Whoever makes room for a put has others wait as well: between two polls that takes a turn, but never
 * nothing. */
static void demotions_between_polls_take_a_turn(void **state)
{
    struct engine e;

    (void)state;
    set_up(&e);
    for (uint32_t i = 0; i < SMALLS; i++) {
        put_one(&e, key_name("f", i), SMALL_BYTES);
        put_one(&e, key_name("s", i), SMALL_BYTES);
        put_one(&e, key_name("t", i), SMALL_BYTES);
    }
    be_fast();
    pst_shard_poll(e.shard, pst_now_ns());
    assert_int_equal(demoted(&e, 'f'), SMALLS);
    be_slow();
    pst_shard_poll(e.shard, pst_now_ns());
    assert_int_equal(demoted(&e, 's'), 1);
    assert_true(pst_tier_busy(e.shard->tier));
    pst_shard_poll(e.shard, pst_now_ns());
    assert_int_equal(demoted(&e, 't'), 1);
    flush(&e);
    tear_down(&e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_large_value_is_written_and_read_in_many_turns),
        cmocka_unit_test(many_values_are_written_in_many_turns),
        cmocka_unit_test(demotions_between_polls_take_a_turn),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
