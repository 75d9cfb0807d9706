/* SPDX-License-Identifier: Apache-2.0 */
/* test_doubt.c: values whose sync failed, and whose copy the disk has dropped or spoilt since. */
#include "lib/tier_rig.h"

#include "base/fault.h"
#include "log/log_priv.h"
#include "store/place.h"

enum { PAGE = 64 << 10 };

static void open_tiered(struct engine *e, const char *folder)
{
    engine_open(
        e,
        &(struct engine_shape){
            .page_bytes = PAGE, .pages = 64, .ssd = folder, .ssd_bytes = 32 << 20, .segment_bytes = 2 << 20});
}

/* What a failed sync was to carry is in doubt until it has been moved, also where another process began the
 * segment. */
static void a_failed_sync_leaves_doubt(void **state)
{
    char *folder = rig_folder(), *copy;
    struct engine before, e;
    const struct pst_record *r;
    int result;

    (void)state;
    open_tiered(&before, folder);
    put(&before, "a", 1, PAGE);
    assert_int_equal(flush(&before), 0);
    copy = copy_of(folder);
    open_tiered(&e, copy);
    put(&e, "b", 2, PAGE);
    assert_int_equal(pst_faults_arm("disk_sync_eio:per_million=1000000"), 0);
    assert_int_equal(flush(&e), -EIO);
    pst_faults_arm("");
    r = find(e.shard, "b");
    for (int tries = 0; (result = flush(&e)) != 0; tries++) {
        assert_int_equal(result, -EIO);
        assert_true(tries < 1000);
        usleep(10000); /* it is moved meanwhile */
    }
    assert_false(e.store->log->segments[pst_record_place(r).segment].unsynced);
    engine_close(&e);
    engine_close(&before);
    rig_remove(copy);
    rig_remove(folder);
}

/* A page of the value there. */
static void spoil(const char *folder, struct pst_log_place place)
{
    char damage[400];

    snprintf(damage, sizeof(damage),
             "dd if=/dev/urandom of=%s/segment-%05u bs=4096 seek=%u count=1 conv=notrunc 2>/dev/null", folder,
             place.segment, (place.offset + PAGE / 2) / 4096);
    assert_int_equal(system(damage), 0);
}

/* No sync of a flush succeeds, and the disk drops the value of @key that it should have carried. Return:
 * where. */
static struct pst_log_place fail_and_spoil(struct engine *e, const char *folder, const char *key)
{
    struct pst_log_place place;

    assert_int_equal(pst_faults_arm("disk_sync_eio:per_million=1000000"), 0);
    assert_int_equal(flush(e), -EIO);
    pst_faults_arm("");
    place = pst_record_place(find(e->shard, key));
    spoil(folder, place);
    return place;
}

/* Polls until nothing there is in doubt any more, or for so long. Return: whether it is. */
static bool doubt_ends(struct engine *e, struct pst_log_place place, uint64_t seconds)
{
    uint64_t until = pst_now_ns() + seconds * SECOND_NS;

    while (pst_segment_doubtful(&e->store->log->segments[place.segment]) && pst_now_ns() < until) {
        pst_shard_poll(e->shard, pst_now_ns());
        pst_shard_tick(e->shard, pst_now_ns());
    }
    return !pst_segment_doubtful(&e->store->log->segments[place.segment]);
}

/* The disk drops what a failed sync was to carry. Where the value is in memory it is written from there, and
 * what it should replace stays until that is durable. */
static void a_spoilt_copy_in_doubt_is_written_from_memory(void **state)
{
    char *folder = rig_folder(), *copy;
    struct engine e, after;

    (void)state;
    open_tiered(&e, folder);
    put(&e, "a", 1, PAGE);
    assert_int_equal(flush(&e), 0);
    for (uint32_t i = 0; i < 31; i++) /* the segment is full then */
        put(&e, key_name("k", i), i, PAGE);
    for (int rounds = 0; e.shard->stat_later.ssd_corrupt == 0; rounds++) {
        struct pst_log_place place;

        assert_true(rounds < 100); /* in some it has been read before it is spoilt */
        put(&e, "a", 2, PAGE);
        place = fail_and_spoil(&e, folder, "a");
        doubt_ends(&e, place, 60);
    }
    put(&e, "other", 3, PAGE); /* tombstones go along */
    copy = copy_of(folder);
    open_tiered(&after, copy);
    assert_non_null(find(after.shard, "a"));
    assert_true(pst_record_placed(find(e.shard, "a")));
    for (int tries = 0; flush(&e) != 0; tries++) { /* other segments are in doubt */
        assert_true(tries < 1000);
        usleep(10000);
    }
    engine_close(&after);
    engine_close(&e);
    rig_remove(copy);
    rig_remove(folder);
}

static int put_durably(struct engine *e, const char *key, uint32_t seed)
{
    struct pst_tier_wait wait;
    int result;

    put(e, key, seed, PAGE);
    result = pst_tier_save(e->shard, find(e->shard, key), &wait);
    assert_int_equal(result, 0);
    while (!wait.ended) {
        pst_shard_poll(e->shard, pst_now_ns());
        pst_shard_tick(e->shard, pst_now_ns());
    }
    result = wait.result;
    pst_tier_leave(e->shard, &wait);
    return result;
}

/* One sync fails and its data is dropped; the value is overwritten in memory before it is looked at. Other
 * keys are written durably, over and over. */
static void an_overwritten_copy_in_doubt_does_not_stop_the_log(void **state)
{
    char *folder = rig_folder();
    struct engine e;
    struct pst_log_place place;
    int rounds = 0, result = 0, good = 0, last;

    (void)state;
    open_tiered(&e, folder);
    put(&e, "a", 1, PAGE);
    assert_int_equal(flush(&e), 0);
    for (; e.shard->stat_later.ssd_corrupt == 0; rounds++) {
        assert_true(rounds < 50); /* in some it has been moved before it is spoilt */
        put(&e, "a", 2, PAGE);
        place = fail_and_spoil(&e, folder, "a");
        put(&e, "a", 3, PAGE);
        assert_true(doubt_ends(&e, place, 60));
    }
    for (; good < 2000 && result == 0; good++)
        result = put_durably(&e, "b", (uint32_t)good);
    last = flush(&e);
    for (int i = 0; last != 0 && i < 3; i++) {
        usleep(100000);
        last = flush(&e);
    }
    if (result || last)
        fail_msg("durable write %d of one key of 64 KiB: %d; flushes then: %d; %d segments of %d are free",
                 good, result, last, (int)e.store->log->free_count, (int)e.store->log->segment_count);
    engine_close(&e);
    rig_remove(folder);
}

/* Its bytes in memory are not what the writer's checksum says either: a save would tell. */
static void what_is_wrong_in_memory_gets_no_new_checksum(void **state)
{
    uint32_t crc = pst_crc32c(0, pattern(2), PAGE);
    char *folder = rig_folder(), *copy;
    struct engine e, after;
    struct pst_record *r;

    (void)state;
    open_tiered(&e, folder);
    for (int rounds = 0; e.shard->stat_later.ssd_corrupt == 0; rounds++) {
        struct pst_put put = put_of(e.shard, "a", PAGE);
        struct pst_answer answer;
        struct pst_log_place place;
        struct iovec piece;

        assert_true(rounds < 100);
        put.flags = PST_PUT_CHECKSUM;
        put.value_crc = crc;
        assert_int_equal(pst_shard_put(e.shard, &put, pattern(2), e.now_ns, &answer), 0);
        place = fail_and_spoil(&e, folder, "a");
        r = find(e.shard, "a");
        assert_true(r->flags & PST_RECORD_CHECKSUM);
        assert_true(pst_record_piece(e.shard, r, 0, PAGE, &piece));
        ((uint8_t *)piece.iov_base)[100] ^= 1;
        doubt_ends(&e, place, 2);
    }
    (void)flush(&e);
    copy = copy_of(folder);
    open_tiered(&after, copy);
    r = find(after.shard, "a");
    assert_true(!r || r->value_crc == crc);
    engine_close(&after);
    engine_close(&e);
    rig_remove(copy);
    rig_remove(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_failed_sync_leaves_doubt),
        cmocka_unit_test(a_spoilt_copy_in_doubt_is_written_from_memory),
        cmocka_unit_test(an_overwritten_copy_in_doubt_does_not_stop_the_log),
        cmocka_unit_test(what_is_wrong_in_memory_gets_no_new_checksum),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
