/* SPDX-License-Identifier: Apache-2.0 */
/* test_tier_full.c: embedded stores of which most of the SSD is alive: values that may not be evicted are
 * overwritten again and again, and each put finds the room that the one before it left; until there is none.
 */
#include "lib/disk_rig.h"

#include "base/base.h"

#include <errno.h>
#include <penstock/penstock.h>
#include <stdio.h>

#define KIB (1u << 10)
#define MIB (1u << 20)

enum {
    ALIVE_PERCENT = 80, /* of what the log says it can keep, or of what it held when it was full */
    LAPS = 2,           /* so many times that is written */
    FULL_PERCENT = 90,  /* alive in a segment that is moved, at most */
    KEYS_MAX = 40000,
    PUTS = 16, /* between looks at the figures */
    STEP = 7,  /* of the keys that are read in the end */
};

static const struct shape {
    uint32_t shards, segments, segment_mib, dram_mib, value_bytes;
    bool all; /* as much as it held: more than it promises */
} shapes[] = {
    {1, 8, 1, 4, 4 * KIB, true},    {1, 8, 8, 17, MIB, true},       {1, 64, 1, 4, 64 * KIB, true},
    {1, 4, 4, 4, 4 * KIB, false},   {2, 16, 2, 4, 4 * KIB, true},   {4, 32, 2, 4, 64 * KIB, true},
    {4, 16, 2, 4, 4 * KIB, false},  {4, 16, 2, 4, 64 * KIB, false}, {4, 16, 2, 4, 100000, false},
    {4, 10, 4, 4, 4 * KIB, false}, /* the fewest that are accepted */
    {8, 18, 4, 4, 64 * KIB, false},
};

static char *folder;
static uint8_t value[MIB];
static uint32_t laps[KEYS_MAX];

static int set_up(void **state)
{
    (void)state;
    folder = rig_folder();
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    rig_remove(folder);
    return 0;
}

static struct penstock *open_store(const struct shape *shape)
{
    struct penstock_options options = {.size = sizeof(options), .timeout_ms = 60000};
    static uint32_t number; /* each has a folder of its own */
    struct penstock *store;
    char url[300];

    snprintf(url, sizeof(url),
             "mem:?dram=%uM&page_size=64K&shards=%u&ssd=%s/%u&ssd_bytes=%uM&ssd_segment=%uM&ssd_driver=posix",
             shape->dram_mib, shape->shards, folder, ++number, shape->segments * shape->segment_mib,
             shape->segment_mib);
    if (penstock_open(url, &options, &store) != 0)
        fail_msg("%s", penstock_error());
    return store;
}

static struct penstock_stat stat_of(struct penstock *store)
{
    struct penstock_stat stat = {.size = sizeof(stat)};

    assert_int_equal(penstock_stat(store, &stat), 0);
    return stat;
}

static const char *key_of(uint32_t i)
{
    static char key[16];

    snprintf(key, sizeof(key), "k/%u", i);
    return key;
}

static int put(struct penstock *store, uint32_t i, uint32_t bytes)
{
    struct penstock_op op = {0};

    memcpy(value, &i, sizeof(i));
    memcpy(value + bytes - sizeof(laps[i]), &laps[i], sizeof(laps[i]));
    penstock_prep_put(&op, key_of(i), strlen(key_of(i)), value, bytes);
    penstock_batch(store, &op, 1);
    return op.result;
}

static void expect(struct penstock *store, uint32_t i, uint32_t bytes)
{
    struct penstock_op op = {0};

    penstock_prep_get(&op, key_of(i), strlen(key_of(i)), value, bytes);
    penstock_batch(store, &op, 1);
    assert_int_equal(op.result, 0);
    assert_memory_equal(value, &i, sizeof(i));
    assert_memory_equal(value + bytes - sizeof(laps[i]), &laps[i], sizeof(laps[i]));
}

/* Until there is no space, which is not to say "busy". Return: how many keys there are. */
static uint32_t fill(struct penstock *store, uint32_t bytes)
{
    uint32_t count = 0;
    int r;

    while ((r = put(store, count, bytes)) == 0)
        assert_true(++count < KEYS_MAX);
    assert_int_equal(r, -ENOSPC);
    return count;
}

static void overwrite(struct penstock *store, uint32_t count, uint32_t bytes, uint64_t log_bytes)
{
    struct penstock_stat before = stat_of(store), now = before;
    uint32_t random = 1;

    while (now.ssd_appended_bytes - before.ssd_appended_bytes < LAPS * log_bytes) {
        for (int n = 0; n < PUTS; n++) {
            uint32_t i;

            random = random * 1664525 + 1013904223;
            i = (uint32_t)((uint64_t)(random >> 8) * count >> 24);
            laps[i]++;
            assert_int_equal(put(store, i, bytes), 0);
        }
        now = stat_of(store);
    }
    assert_true((now.ssd_moved_bytes - before.ssd_moved_bytes) * (100 - FULL_PERCENT) <=
                (now.ssd_appended_bytes - before.ssd_appended_bytes) * FULL_PERCENT);
}

static void overwritten(const struct shape *shape)
{
    struct penstock *store = open_store(shape);
    uint32_t bytes = shape->value_bytes, count, left;
    uint64_t log_bytes, told_bytes;

    memset(laps, 0, sizeof(laps));
    count = fill(store, bytes);
    log_bytes = stat_of(store).ssd_live_bytes;
    told_bytes = stat_of(store).ssd_capacity_bytes;
    assert_true(log_bytes * 100 >= told_bytes * ALIVE_PERCENT);
    if (!shape->all)
        log_bytes = pst_min(log_bytes, told_bytes);
    left = (uint32_t)(log_bytes * ALIVE_PERCENT / 100 / bytes);
    assert_true(left < count);
    for (uint32_t i = left; i < count; i++)
        assert_int_equal(penstock_delete(store, key_of(i), strlen(key_of(i))), 0);
    overwrite(store, left, bytes, log_bytes);
    for (uint32_t i = 0; i < left; i += STEP)
        expect(store, i, bytes);
    penstock_close(store);
}

static void one_shard(void **state)
{
    (void)state;
    for (size_t i = 0; i < pst_count_of(shapes); i++) {
        if (shapes[i].shards == 1)
            overwritten(&shapes[i]);
    }
}

/* One may have nothing to take back while another has. */
static void several_shards(void **state)
{
    (void)state;
    for (size_t i = 0; i < pst_count_of(shapes); i++) {
        if (shapes[i].shards > 1)
            overwritten(&shapes[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(one_shard, set_up, tear_down),
        cmocka_unit_test_setup_teardown(several_shards, set_up, tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
