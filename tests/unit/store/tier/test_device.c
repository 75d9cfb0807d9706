/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_device.c: values in device memory: up, down, full, and copies that fail. The device is the host's, or
 * with TEST_CUDA one of the driver for which tests/unit/gpu/fake_cuda.c stands in, whose copies take their
 * time.
 */
#include "lib/disk_rig.h"
#include "lib/engine.h"

#include "base/fault.h"
#include "gpu/gpu.h"
#include "store/exec.h"
#include "store/tier/tier_priv.h"

enum { PAGE = 64 << 10, VALUE = 100000 }; /* a value takes two pages of the device */

struct setup {
    const char *folder; /* of an SSD; NULL: none */
    uint32_t dram_pages, device_pages;
    const char *cache_prefix;
};

static const struct pst_gpu_ops *device(void)
{
    return getenv("TEST_CUDA") ? &pst_gpu_cuda : &pst_gpu_host;
}

static void device_open(struct engine *e, const struct setup *setup)
{
    engine_open(e, &(struct engine_shape){.page_bytes = PAGE,
                                          .pages = setup->dram_pages,
                                          .watermark_percent = 95,
                                          .cache_prefix = setup->cache_prefix,
                                          .ssd = setup->folder,
                                          .ssd_bytes = 64 << 20,
                                          .segment_bytes = 2 << 20,
                                          .device = device(),
                                          .device_pages = setup->device_pages});
    pst_faults_arm("");
}

static struct pst_shard_device figures(const struct engine *e)
{
    struct pst_shard_device out;

    pst_shard_stat_device(e->shard, &out);
    return out;
}

/* Until nothing moves any more. */
static void settle(struct engine *e)
{
    while (pst_shard_poll(e->shard, pst_now_ns()) || pst_shard_tick(e->shard, pst_now_ns()))
        ;
}

static bool is_up(const struct engine *e, const char *key)
{
    const struct pst_record *r = find(e->shard, key);

    assert_non_null(r);
    return r->flags & PST_RECORD_ON_DEVICE;
}

/* As a get does: plans, fetches if it must, reads. Return: the result. */
static int try_read(struct engine *e, const char *key, uint32_t seed, uint64_t offset, uint64_t bytes)
{
    struct pst_record *r = find(e->shard, key);
    uint64_t at = offset;
    struct pst_tier_wait wait = {0};
    int result;

    if (!r)
        return PST_MISS;
    result = pst_get_locate(e->shard, &r, &at, bytes);
    if (result == PST_BUSY) {
        result = pst_tier_fetch(e->shard, r, offset, bytes, pst_now_ns(), &wait);
        if (result != 0)
            return result;
        while (!wait.ended)
            pst_shard_poll(e->shard, pst_now_ns());
        assert_ptr_equal(pst_tier_ended(e->shard), &wait);
        result = wait.result;
        r = find(e->shard, key);
        at = offset;
        if (result == 0)
            result = pst_get_locate(e->shard, &r, &at, bytes);
    }
    if (result == 0) {
        assert_range(e->shard, r, at, bytes, pattern(seed) + offset);
        pst_shard_read(e->shard, r);
    }
    if (wait.ended)
        pst_tier_leave(e->shard, &wait);
    return result;
}

static void read_all(struct engine *e, const char *key, uint32_t seed, uint64_t bytes)
{
    assert_int_equal(try_read(e, key, seed, 0, bytes), 0);
}

static void values_go_up(void **state)
{
    struct engine e;
    uint64_t free_before;

    (void)state;
    device_open(&e, &(struct setup){.dram_pages = 64, .device_pages = 64});
    put(&e, "small", 1, PAGE - 1);
    free_before = e.store->pages.free_count;
    for (uint32_t i = 0; i < 20; i++)
        put(&e, key_name("k", i), i, VALUE + i);
    settle(&e);
    assert_false(is_up(&e, "small"));
    for (uint32_t i = 0; i < 20; i++) {
        assert_true(is_up(&e, key_name("k", i)));
        read_all(&e, key_name("k", i), i, VALUE + i);
        assert_int_equal(try_read(&e, key_name("k", i), i, 70001, 100), 0);
        assert_true(is_up(&e, key_name("k", i)));
    }
    assert_in_range(e.store->pages.free_count, free_before - 2, free_before); /* records remain */
    assert_int_equal(figures(&e).hbm_keys, 20);
    assert_int_equal(figures(&e).hbm_used_bytes, 40 * PAGE);
    assert_int_equal(figures(&e).hbm_capacity_bytes, 64 * PAGE);
    assert_int_equal(figures(&e).hbm_promotions, 20);
    assert_int_equal(figures(&e).hbm_hits, 40);
    for (uint32_t i = 0; i < 20; i++)
        assert_int_equal(delete_key(e.shard, key_name("k", i)), 0);
    assert_int_equal(figures(&e).hbm_keys, 0);
    assert_int_equal(figures(&e).hbm_used_bytes, 0);
    assert_int_equal(figures(&e).hbm_bytes, 0);
    engine_close(&e);
}

/* Memory and device together hold what neither does; nothing of `keep` values is lost. */
static void both_are_filled(void **state)
{
    struct engine e;
    uint32_t count = 0;
    int r = 0;

    (void)state;
    device_open(&e, &(struct setup){.dram_pages = 64, .device_pages = 64});
    for (; count < 200; count++) {
        while ((r = try_put(e.shard, key_name("k", count), count, VALUE, pst_now_ns())) == PST_BUSY)
            settle(&e);
        if (r != 0)
            break;
    }
    assert_int_equal(r, -ENOSPC);
    assert_true(count > 50); /* of 2 pages: 60 fit in all, those that are kept free left out */
    settle(&e);
    for (int round = 0; round < 3; round++) {
        for (uint32_t i = 0; i < count; i++)
            read_all(&e, key_name("k", i), i, VALUE);
    }
    assert_int_equal(shard_stat(e.shard).keys, count);
    assert_int_equal(shard_stat(e.shard).evictions, 0);
    engine_close(&e);
}

/* Room that comes back up there is used, though nobody reads what stayed in memory for want of it. */
static void room_comes_back(void **state)
{
    struct engine e;
    uint32_t count = 0, up = 0, more = 0;
    int r = 0;

    (void)state;
    device_open(&e, &(struct setup){.dram_pages = 64, .device_pages = 64});
    for (; r == 0 && count < 200; count += r == 0) {
        while ((r = try_put(e.shard, key_name("k", count), count, VALUE, pst_now_ns())) == PST_BUSY)
            settle(&e);
    }
    assert_int_equal(r, -ENOSPC);
    settle(&e);
    for (uint32_t i = 0; i < count; i++) {
        if (is_up(&e, key_name("k", i))) {
            assert_int_equal(delete_key(e.shard, key_name("k", i)), 0);
            up++;
        }
    }
    for (r = 0; r == 0 && more < 200; more += r == 0) {
        while ((r = try_put(e.shard, key_name("m", more), more, VALUE, pst_now_ns())) == PST_BUSY)
            settle(&e);
    }
    assert_int_equal(r, -ENOSPC);
    assert_in_range(more, up - 1, up + 1);
    for (uint32_t i = 0; i < more; i++)
        read_all(&e, key_name("m", i), i, VALUE);
    engine_close(&e);
}

/* What is read again takes the place of what is not, which comes down. */
static void what_is_read_again_is_up(void **state)
{
    struct engine e;

    (void)state;
    device_open(&e, &(struct setup){.dram_pages = 256, .device_pages = 64});
    for (uint32_t i = 0; i < 60; i++) {
        put(&e, key_name("k", i), i, VALUE);
        settle(&e);
    }
    assert_true(is_up(&e, key_name("k", 0)));
    assert_false(is_up(&e, key_name("k", 59)));
    for (int round = 0; round < 2; round++) {
        for (uint32_t i = 40; i < 60; i++) {
            read_all(&e, key_name("k", i), i, VALUE);
            settle(&e);
        }
    }
    for (uint32_t i = 45; i < 60; i++)
        assert_true(is_up(&e, key_name("k", i)));
    assert_false(is_up(&e, key_name("k", 0)));
    assert_true(figures(&e).hbm_demotions > 10);
    for (uint32_t i = 0; i < 60; i++)
        read_all(&e, key_name("k", i), i, VALUE);
    assert_int_equal(shard_stat(e.shard).evictions, 0);
    engine_close(&e);
}

static void values_that_may_go_fill_both(void **state)
{
    struct engine e;
    uint32_t there = 0;

    (void)state;
    device_open(&e, &(struct setup){.dram_pages = 64, .device_pages = 64, .cache_prefix = "k"});
    for (uint32_t i = 0; i < 400; i++) {
        int r;

        while ((r = try_put(e.shard, key_name("k", i), i, VALUE, pst_now_ns())) == PST_BUSY)
            settle(&e);
        assert_int_equal(r, 0);
        if (i % 3 == 0 && find(e.shard, key_name("k", i / 2)))
            assert_in_range(try_read(&e, key_name("k", i / 2), i / 2, 0, VALUE), 0, PST_BUSY);
        settle(&e);
    }
    for (uint32_t i = 0; i < 400; i++) {
        if (find(e.shard, key_name("k", i))) {
            read_all(&e, key_name("k", i), i, VALUE);
            there++;
        }
    }
    assert_in_range(there, 45, 64);
    engine_close(&e);
}

/* While its value is on its way, a key is overwritten or deleted: the new value counts. */
static void changes_while_it_moves(void **state)
{
    struct engine e;
    struct pst_put second;
    struct pst_answer answer = {0};

    (void)state;
    device_open(&e, &(struct setup){.dram_pages = 128, .device_pages = 128});
    put(&e, "over", 1, 400000);
    put(&e, "gone", 2, 400000);
    put(&e, "same", 3, 400000);
    pst_shard_poll(e.shard, pst_now_ns()); /* a piece of the first */
    put(&e, "over", 4, 300000);
    assert_int_equal(delete_key(e.shard, "gone"), 0);
    settle(&e);
    assert_null(find(e.shard, "gone"));
    assert_true(is_up(&e, "over"));
    assert_int_equal(figures(&e).hbm_keys, 2);
    read_all(&e, "over", 4, 300000);
    /* A condition names the generation, which is the same up there. */
    second = put_of(e.shard, "same", 500);
    second.flags = PST_PUT_IF_GENERATION;
    second.if_generation = find(e.shard, "same")->generation + 1;
    assert_int_equal(pst_shard_put(e.shard, &second, pattern(5), e.now_ns, &answer), PST_STALE);
    second.if_generation = find(e.shard, "same")->generation;
    assert_int_equal(pst_shard_put(e.shard, &second, pattern(5), e.now_ns, &answer), 0);
    assert_value(e.shard, "same", 5, 500);
    assert_int_equal(figures(&e).hbm_keys, 1);
    settle(&e);
    engine_close(&e);
}

/* A reader of a value that is deleted or overwritten has what was there when it began. */
static void readers_keep_what_they_read(void **state)
{
    struct engine e;
    struct pst_tier_wait wait;
    struct pst_record *r;

    (void)state;
    device_open(&e, &(struct setup){.dram_pages = 128, .device_pages = 128});
    put(&e, "k", 1, 450000);
    settle(&e);
    r = find(e.shard, "k");
    assert_int_equal(pst_tier_fetch(e.shard, r, 0, 450000, pst_now_ns(), &wait), 0);
    pst_shard_poll(e.shard, pst_now_ns());
    put(&e, "k", 2, 300000);
    settle(&e);
    while (!wait.ended)
        pst_shard_poll(e.shard, pst_now_ns());
    assert_in_range(wait.result, 0, PST_BUSY);
    assert_ptr_equal(pst_tier_ended(e.shard), &wait);
    pst_tier_leave(e.shard, &wait);
    settle(&e);
    read_all(&e, "k", 2, 300000);
    assert_int_equal(figures(&e).hbm_used_bytes, 5 * PAGE);
    engine_close(&e);
}

/* Pinned values stay in memory; those that are pinned up there stay there. */
static void pins_keep_a_value_where_it_is(void **state)
{
    struct engine e;

    (void)state;
    device_open(&e, &(struct setup){.dram_pages = 128, .device_pages = 64});
    put(&e, "up", 1, VALUE);
    settle(&e);
    assert_int_equal(pin(&e, "up", 0), 0);
    put(&e, "down", 2, VALUE);
    assert_int_equal(pin(&e, "down", 0), 0);
    settle(&e);
    assert_true(is_up(&e, "up"));
    for (uint32_t i = 0; i < 40; i++) {
        put(&e, key_name("k", i), i, VALUE);
        settle(&e);
    }
    for (int round = 0; round < 2; round++) {
        for (uint32_t i = 0; i < 40; i++)
            read_all(&e, key_name("k", i), i, VALUE);
        settle(&e);
    }
    assert_true(is_up(&e, "up"));
    read_all(&e, "up", 1, VALUE);
    read_all(&e, "down", 2, VALUE);
    assert_int_equal(unpin(&e, "up"), 0);
    assert_int_equal(unpin(&e, "down"), 0);
    engine_close(&e);
}

static void a_device_that_fails(void **state)
{
    struct engine e;

    (void)state;
    device_open(&e, &(struct setup){.dram_pages = 256, .device_pages = 128, .cache_prefix = "c"});
    put(&e, "keep", 1, VALUE);
    put(&e, "cache", 2, VALUE);
    settle(&e);
    pst_faults_arm("device_copy_eio:per_million=1000000");
    assert_int_equal(try_read(&e, "keep", 1, 0, VALUE), -EIO);
    assert_int_equal(try_read(&e, "cache", 2, 0, VALUE), PST_BUSY);
    assert_int_equal(try_read(&e, "cache", 2, 0, VALUE), PST_MISS);
    assert_int_equal(figures(&e).hbm_errors, 2);
    assert_int_equal(pst_store_device_errors(e.store), 2);
    put(&e, "new", 3, VALUE);
    settle(&e);
    assert_false(is_up(&e, "new"));
    read_all(&e, "new", 3, VALUE);
    put(&e, "newer", 4, VALUE); /* the third failure was the last that it was tried for */
    assert_int_equal(e.store->lifts, 0);
    pst_faults_arm("");
    read_all(&e, "keep", 1, VALUE);
    put(&e, "newest", 5, VALUE);
    settle(&e);
    assert_true(is_up(&e, "newest"));
    engine_close(&e);
}

static void open_below(struct engine *e, const char *folder)
{
    device_open(e, &(struct setup){.folder = folder, .dram_pages = 64, .device_pages = 64});
}

/* What both cannot hold is on the SSD, and all of it after a restart in order. */
static void an_ssd_below(void **state)
{
    char *folder = rig_folder();
    struct engine e;

    (void)state;
    open_below(&e, folder);
    for (uint32_t i = 0; i < 150; i++) {
        int r;

        while ((r = try_put(e.shard, key_name("k", i), i, VALUE, pst_now_ns())) == PST_BUSY)
            settle(&e);
        assert_int_equal(r, 0);
    }
    settle(&e);
    assert_true(figures(&e).hbm_keys > 20);
    assert_true(e.shard->stat_later.ssd_keys > 50);
    for (int round = 0; round < 2; round++) {
        for (uint32_t i = 0; i < 150; i++) {
            int r;

            while ((r = try_read(&e, key_name("k", i), i, 0, VALUE)) == PST_BUSY)
                settle(&e);
            assert_int_equal(r, 0);
        }
    }
    assert_int_equal(shard_stat(e.shard).evictions, 0);
    engine_close(&e);

    open_below(&e, folder);
    for (uint32_t i = 0; i < 150; i++) {
        int r;

        while ((r = try_read(&e, key_name("k", i), i, 0, VALUE)) == PST_BUSY)
            settle(&e);
        assert_int_equal(r, 0);
    }
    engine_close(&e);
    rig_remove(folder);
}

/* A value that the log has too is read from there when the device fails. */
static void the_log_stands_in(void **state)
{
    char *folder = rig_folder();
    struct pst_tier_wait wait;
    struct engine e;

    (void)state;
    open_below(&e, folder);
    put(&e, "k", 1, VALUE);
    assert_int_equal(pst_tier_save(e.shard, find(e.shard, "k"), &wait), 0);
    while (!wait.ended)
        pst_shard_poll(e.shard, pst_now_ns());
    assert_int_equal(wait.result, 0);
    assert_ptr_equal(pst_tier_ended(e.shard), &wait);
    pst_tier_leave(e.shard, &wait);
    settle(&e);
    read_all(&e, "k", 1, VALUE);
    settle(&e);
    assert_true(is_up(&e, "k"));
    pst_faults_arm("device_copy_eio:per_million=1000000");
    assert_int_equal(try_read(&e, "k", 1, 0, VALUE), PST_BUSY);
    assert_int_equal(try_read(&e, "k", 1, 70000, 100), 0);
    read_all(&e, "k", 1, VALUE);
    settle(&e);
    assert_false(is_up(&e, "k"));
    read_all(&e, "k", 1, VALUE);
    pst_faults_arm("");
    engine_close(&e);
    rig_remove(folder);
}

/* A flush has what the device alone has come down and be written; one that cannot is told. */
static void a_flush_brings_values_down(void **state)
{
    char *folder = rig_folder();
    struct pst_tier_wait wait;
    struct engine e;

    (void)state;
    open_below(&e, folder);
    for (uint32_t i = 0; i < 20; i++)
        put(&e, key_name("k", i), i, VALUE);
    settle(&e);
    assert_int_equal(figures(&e).hbm_keys, 20);
    pst_faults_arm("device_copy_eio:nth=1");
    pst_tier_flush(e.shard, &wait);
    while (!wait.ended)
        pst_shard_poll(e.shard, pst_now_ns());
    assert_int_equal(wait.result, -EIO);
    pst_tier_leave(e.shard, &wait);
    pst_faults_arm("");
    pst_tier_flush(e.shard, &wait);
    while (!wait.ended)
        pst_shard_poll(e.shard, pst_now_ns());
    assert_int_equal(wait.result, 0);
    pst_tier_leave(e.shard, &wait);
    for (uint32_t i = 0; i < 20; i++)
        assert_true(pst_tier_saves(e.shard, find(e.shard, key_name("k", i))));
    engine_close(&e);
    rig_remove(folder);
}

static void what_cannot_be_is_said(void **state)
{
    struct pst_store_options options = {.arenas = {.bytes = 16 * PAGE, .page_bytes = PAGE},
                                        .shard_count = 2,
                                        .watermark_percent = 95,
                                        .hbm = {.ops = device(), .bytes = PAGE}};
    char wanted[64];
    struct pst_store *store = NULL;
    const char *fault = "";

    (void)state;
    assert_int_equal(pst_store_open(&options, &store, &fault), -EINVAL);
    assert_string_equal(fault, "hbm: 65536 bytes for 2 shards: each has a page of 64 KiB at the least");
    options.hbm.bytes = 1ull << 46;
    assert_int_equal(pst_store_open(&options, &store, &fault), -ENOMEM);
    snprintf(wanted, sizeof(wanted), "hbm: no 35184372088832 bytes of %s memory", device()->name);
    assert_non_null(strstr(fault, wanted));
    assert_null(store);
    if (device() == &pst_gpu_cuda) {
        options.hbm.ordinal = 7;
        assert_int_equal(pst_store_open(&options, &store, &fault), -ENODEV);
        assert_string_equal(fault, "hbm: CUDA device 7 cannot be opened: No such device");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_go_up),
        cmocka_unit_test(both_are_filled),
        cmocka_unit_test(room_comes_back),
        cmocka_unit_test(what_is_read_again_is_up),
        cmocka_unit_test(values_that_may_go_fill_both),
        cmocka_unit_test(changes_while_it_moves),
        cmocka_unit_test(readers_keep_what_they_read),
        cmocka_unit_test(pins_keep_a_value_where_it_is),
        cmocka_unit_test(a_device_that_fails),
        cmocka_unit_test(an_ssd_below),
        cmocka_unit_test(the_log_stands_in),
        cmocka_unit_test(a_flush_brings_values_down),
        cmocka_unit_test(what_cannot_be_is_said),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
