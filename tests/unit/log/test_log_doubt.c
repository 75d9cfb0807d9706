/* SPDX-License-Identifier: Apache-2.0 */
/* test_log_doubt.c: what a sync that failed, of this process or at a start, may have left behind. */
#include "lib/log_rig.h"

#include "base/clock.h"
#include "base/fault.h"
#include "disk/simulated.h"
#include "log/lane_priv.h"
#include "log/reclaim.h"

#include <fcntl.h>

/* The sync of a durable value's successor fails. Until the newer one is durable elsewhere the older one
 * stays: no tombstone is written, and its segment is not freed. */
static void what_a_failed_sync_should_replace_stays(void **state)
{
    struct kept kept[VALUES];
    struct rig rig;

    driver = rig_driver(*state);
    for (uint64_t seed = 0; seed < 16; seed++) {
        bool reclaims = seed % 2;
        struct pst_log_value old;
        struct pst_log_place at;

        set_up(&rig);
        name_all(kept);
        for (int i = 0; i < 6; i++) /* the segment of the first is full then */
            assert_int_equal(append(&rig, &kept[i], i ? 1006 : 1005, true), 0);
        if (reclaims) {
            assert_int_equal(pst_log_reclaim_begin(rig.lane, 100), 1);
            kept[0].there = false;
            move_all(&rig, kept);
            flush(&rig);
        }
        old = value_of(&kept[0], bytes_of(1005));
        at = kept[0].place;
        assert_int_equal(append(&rig, &kept[0], 2000, false), 0);
        assert_int_equal(pst_log_delete_after(rig.lane, &old, at, kept[0].ticket), 0);
        pst_faults_arm("disk_sync_eio:nth=1");
        flush_fails(&rig);
        pst_faults_arm("");
        for (int i = 6; i < 9; i++) /* tombstones go along */
            assert_int_equal(append(&rig, &kept[i], 1010, true), 0);
        flush_fails(&rig);
        if (reclaims)
            end_reclaim(&rig);
        pst_simulated_cut(seed);
        close_log(&rig);
        pst_simulated_restore();
        open_log(&rig);
        assert_true(copies_of(&rig, kept[0].key) > 0);
        tear_down(&rig);
    }
}

/* What the owner does with two generations of a key. Return: how many were found. */
static int keep_the_newest(struct rig *rig)
{
    struct pst_log_found found, newest = {0};
    struct pst_log_scan *again;
    int count = 0;

    assert_int_equal(pst_log_scan_open(rig->log, &again), 0);
    for (; pst_log_scan_next(again, &found) == 1; count++) {
        pst_log_adopt(rig->log, &found);
        assert_true(count == 0 || found.value.generation > newest.value.generation);
        if (count > 0)
            assert_int_equal(pst_log_delete(rig->lane, &newest.value, newest.place), 0);
        newest = found;
    }
    pst_log_scan_close(again, NULL);
    return count;
}

/* A process is killed, and the sync of what it wrote fails at the next one's start. The older value, which is
 * durable, goes only when the newer one is durable elsewhere. */
static void what_a_restart_cannot_sync_replaces_nothing(void **state)
{
    struct kept kept[VALUES];
    char keep[600], cut_power[600];
    struct rig rig;

    driver = *state;
    for (int moved = 0; moved < 2; moved++) {
        set_up(&rig);
        name_all(kept);
        assert_int_equal(append(&rig, &kept[0], 1005, true), 0);
        snprintf(keep, sizeof(keep), "cd %s && cp segment-%05u durable", rig.folder, kept[0].place.segment);
        snprintf(cut_power, sizeof(cut_power), "cd %s && cp durable segment-%05u", rig.folder,
                 kept[0].place.segment);
        assert_int_equal(system(keep), 0);
        assert_int_equal(append(&rig, &kept[0], 2000, false), 0);
        close_log(&rig);

        pst_faults_arm("disk_sync_eio:nth=1");
        open_log(&rig);
        assert_int_equal(keep_the_newest(&rig), 2);
        flush_fails(&rig);
        if (moved)
            reclaim(&rig, kept);
        assert_int_equal(append(&rig, &kept[6], 1010, true), 0); /* tombstones go along */
        close_log(&rig);
        if (!moved)
            assert_int_equal(system(cut_power), 0);
        open_log(&rig);
        assert_int_equal(copies_of(&rig, kept[0].key), 1);
        tear_down(&rig);
    }
}

/* A process is killed, and what it wrote of the dead cannot be synced: a flush tells of it elsewhere, also
 * one that ends just when nothing that lives there is left, and each lane's. */
static void what_a_restart_cannot_sync_stays_dead(void **state)
{
    char keep[600], cut_power[600];
    struct kept kept[VALUES];
    struct rig rig;

    driver = *state;
    for (int lives = 0; lives < 2; lives++) {
        set_up(&rig);
        name_all(kept);
        assert_int_equal(append(&rig, &kept[0], 1005, true), 0);
        if (lives)
            assert_int_equal(append(&rig, &kept[1], 1005, true), 0);
        snprintf(keep, sizeof(keep), "cd %s && cp segment-%05u durable", rig.folder, kept[0].place.segment);
        snprintf(cut_power, sizeof(cut_power), "cd %s && cp durable segment-%05u", rig.folder,
                 kept[0].place.segment);
        assert_int_equal(system(keep), 0);
        bury(&rig, &kept[0]);
        flush(&rig);
        close_log(&rig);

        pst_faults_arm("disk_sync_eio:nth=1");
        rig.lanes = 2;
        open_log(&rig);
        scan(&rig, kept, NULL);
        if (lives) {
            flush_fails(&rig);
            assert_int_equal(append(&rig, &kept[2], 1005, false), 0);
            bury(&rig, &kept[1]);
        }
        rig.lane = pst_log_lane(rig.log, lives ? 0 : 1);
        flush(&rig);
        close_log(&rig);
        assert_int_equal(system(cut_power), 0);
        open_log(&rig);
        assert_int_equal(copies_of(&rig, kept[0].key), 0);
        tear_down(&rig);
    }
}

/* A start that cannot sync a file system believes no later sync of what earlier processes wrote there: an
 * error is told once. */
static void what_a_file_system_cannot_sync_is_in_doubt(void **state)
{
    struct kept kept[VALUES];
    struct rig rig;

    driver = *state;
    set_up(&rig);
    name_all(kept);
    for (int n = 0; n < 5; n++) /* the first segment is full then */
        assert_int_equal(append(&rig, &kept[n], n ? 1006 : 1005, true), 0);
    bury(&rig, &kept[0]);
    reclaim(&rig, kept); /* it is free, and has been used */
    close_log(&rig);
    pst_faults_arm("disk_sync_eio:nth=1");
    open_log(&rig);
    scan(&rig, kept, NULL);
    flush_fails(&rig);
    reclaim_all(&rig, kept);
    flush(&rig);
    assert_all(&rig, kept);
    tear_down(&rig);
}

static void read_heads(const struct rig *rig, uint32_t segment, uint8_t heads[2][PST_LOG_ALIGN_BYTES])
{
    char path[600];
    FILE *file;

    snprintf(path, sizeof(path), "%s/segment-%05u", rig->folder, segment);
    file = fopen(path, "rb");
    assert_non_null(file);
    assert_int_equal(fread(heads, PST_LOG_ALIGN_BYTES, 2, file), 2);
    assert_int_equal(fclose(file), 0);
}

/* A process is killed before it has synced that a segment is free, and the next one is told that a sync
 * failed: it says so anew, or the segment is not free until it could. */
static void what_may_not_be_free_is_freed_anew(void **state)
{
    static const char *const faults[] = {"disk_sync_eio:nth=1", "disk_sync_eio:per_million=1000000"};
    uint8_t heads[2][PST_LOG_ALIGN_BYTES];

    driver = *state;
    for (size_t i = 0; i < pst_count_of(faults); i++) {
        struct pst_log_stat before, after;
        struct kept kept[VALUES];
        char damage[600];
        uint32_t segment;
        struct rig rig;

        set_up(&rig);
        name_all(kept);
        for (int n = 0; n < 5; n++) /* the first segment is full then */
            assert_int_equal(append(&rig, &kept[n], n ? 1006 : 1005, true), 0);
        segment = kept[0].place.segment;
        bury(&rig, &kept[0]);
        reclaim(&rig, kept);
        pst_log_stat(rig.log, &before);
        close_log(&rig);
        snprintf(damage, sizeof(damage),
                 "dd if=/dev/zero of=%s/segment-%05u bs=4096 seek=1 count=1 conv=notrunc 2>/dev/null",
                 rig.folder, segment);
        assert_int_equal(system(damage), 0);

        pst_faults_arm(faults[i]);
        open_log(&rig);
        pst_faults_arm("");
        read_heads(&rig, segment, heads);
        assert_memory_equal(heads[0], heads[1], PST_LOG_ALIGN_BYTES);
        pst_log_stat(rig.log, &after);
        assert_int_equal(after.segments_free, before.segments_free - i);
        scan(&rig, kept, NULL);
        flush_fails(&rig);
        reclaim_all(&rig, kept);
        flush(&rig);
        pst_log_stat(rig.log, &after);
        assert_true(after.segments_free >= before.segments_free - 1); /* one is written to */
        assert_all(&rig, kept);
        tear_down(&rig);
    }
}

/* What is in doubt cannot be read when it is moved, and stays: no flush says that it is durable, and what it
 * should replace does not go before its owner lets go of it. */
static void what_stays_in_doubt_is_not_called_durable(void **state)
{
    struct kept kept[VALUES];
    struct rig rig;

    driver = rig_driver(*state);
    for (uint64_t seed = 0; seed < 16; seed++) {
        struct pst_log_value old, unread;
        struct pst_log_found found;
        struct pst_log_place at;
        struct pst_log_move move;
        bool cut = seed % 2;
        int r;

        set_up(&rig);
        name_all(kept);
        assert_int_equal(append(&rig, &kept[0], 1005, true), 0);
        for (int i = 1; i < 6; i++) /* the segment of the first is full then */
            assert_int_equal(append(&rig, &kept[i], 1006, true), 0);
        old = value_of(&kept[0], bytes_of(1005));
        at = kept[0].place;
        assert_int_equal(append(&rig, &kept[0], 2000, false), 0);
        assert_int_not_equal(kept[0].place.segment, at.segment);
        assert_int_equal(pst_log_delete_after(rig.lane, &old, at, kept[0].ticket), 0);
        pst_faults_arm("disk_sync_eio:nth=1");
        flush_fails(&rig);
        pst_faults_arm("");
        flush_fails(&rig);
        assert_int_equal(pst_log_reclaim_begin(rig.lane, 100), 1);
        while ((r = pst_log_reclaim_next(rig.lane, &found)) != 0) {
            if (r == -EAGAIN) {
                poll_idly(&rig);
                continue;
            }
            move = (struct pst_log_move){.value = found.value, .from = found.place, .crc = found.crc};
            if (found.value.generation == 2000)
                pst_faults_arm("disk_read_eio:nth=1");
            assert_int_equal(pst_log_move(rig.lane, &move), 0);
            r = wait_one(&rig, &move.op);
            pst_faults_arm("");
            assert_int_equal(r, found.value.generation == 2000 ? -EIO : 0);
            if (r < 0)
                continue;
            pst_log_forget(rig.lane, &found.value, found.place);
        }
        pst_log_reclaim_end(rig.lane, PST_LOG_STAYS); /* as the owner of a `keep` value says */
        while (!pst_log_reclaim_over(rig.lane))
            poll_idly(&rig);
        flush_fails(&rig);
        if (cut)
            pst_simulated_cut(seed);
        unread = value_of(&kept[0], bytes_of(2000));
        assert_int_equal(pst_log_delete(rig.lane, &unread, kept[0].place), 0);
        kept[0].there = false;
        if (!cut)
            flush(&rig);
        close_log(&rig);
        if (cut)
            pst_simulated_restore();
        open_log(&rig);
        assert_int_equal(copies_of(&rig, kept[0].key) > 0, cut);
        tear_down(&rig);
    }
}

/* The last value in doubt is lost, and no sync comes any more: a flush writes first what was held back. */
static void a_doubt_that_ends_holds_nothing_back(void **state)
{
    struct pst_log_stat before, after;
    struct pst_log_value older, lost;
    struct kept kept[VALUES];
    struct pst_log_place at;
    struct rig rig;

    driver = rig_driver(*state);
    set_up(&rig);
    name_all(kept);
    assert_int_equal(append(&rig, &kept[0], 1005, true), 0);
    assert_int_equal(append(&rig, &kept[1], 1005, false), 0);
    pst_faults_arm("disk_sync_eio:nth=1");
    flush_fails(&rig);
    pst_faults_arm("");
    older = value_of(&kept[0], bytes_of(kept[0].generation));
    at = kept[0].place;
    assert_int_equal(append(&rig, &kept[0], 1006, true), 0);
    assert_int_equal(pst_log_delete_after(rig.lane, &older, at, kept[0].ticket), 0);
    lost = value_of(&kept[1], bytes_of(kept[1].generation));
    pst_log_forget(rig.lane, &lost, kept[1].place);
    kept[1].there = false;
    pst_log_stat(rig.log, &before);
    flush(&rig);
    pst_log_stat(rig.log, &after);
    assert_int_equal(after.tombstones, before.tombstones + 1);
    assert_all(&rig, kept);
    tear_down(&rig);
}

/* A sync fails while the segment of an earlier process is emptied, which cannot be freed until what is in
 * doubt has been moved: that goes first. */
static void what_is_in_doubt_goes_before_the_common_one(void **state)
{
    struct kept kept[VALUES];
    struct rig rig;

    driver = rig_driver(*state);
    set_up(&rig);
    name_all(kept);
    for (int n = 0; n < 9; n++)
        assert_int_equal(append(&rig, &kept[n], 1006, true), 0);
    restart(&rig, kept);
    assert_int_equal(pst_log_reclaim_begin(rig.lane, 100), 1);
    assert_int_not_equal(pst_log_common(rig.lane), 0);
    assert_int_equal(append(&rig, &kept[10], 1005, false), 0);
    pst_faults_arm("disk_sync_eio:nth=1");
    assert_int_equal(append(&rig, &kept[11], 1005, true), -EIO);
    pst_faults_arm("");
    move_all(&rig, kept);
    end_reclaim(&rig);
    assert_true(pst_log_reclaim_failed(rig.lane));
    reclaim_all(&rig, kept);
    flush(&rig);
    assert_all(&rig, kept);
    tear_down(&rig);
}

/* A log as it is once it has been full, with no free segment behind an outage of its disk. */
static int fill_and_fail(struct rig *rig, struct kept *kept, int n, int stay)
{
    struct pst_log_stat stat;
    uint64_t until;

    do { /* a MiB each */
        assert_int_equal(append(rig, &kept[n++], 1006, true), 0);
        pst_log_stat(rig->log, &stat);
    } while (stat.segments_free > 4);
    for (int i = stay; i < n; i++)
        if (kept[i].there)
            bury(rig, &kept[i]);
    flush(rig);
    pst_faults_arm("disk_sync_eio:per_million=1000000");
    until = pst_now_ns() + 3000000000ull;
    do {
        struct kept failed = kept[n];
        struct pst_log_sync f = {0};

        assert_true(append(rig, &failed, 1006, true) < 0);
        pst_log_sync(rig->lane, &f);
        (void)wait_one(rig, &f.op);
        usleep(1000);
        pst_log_stat(rig->log, &stat);
    } while (stat.segments_free > 0 && pst_now_ns() < until);
    pst_faults_arm("");
    assert_int_equal(stat.segments_free, 0);
    return n;
}

static bool one_comes_free(struct rig *rig, struct kept *kept)
{
    struct pst_log_stat stat;

    for (int tries = 0; tries < 20; tries++) {
        if (pst_log_reclaim_begin(rig->lane, 50) == 1) {
            move_all(rig, kept);
            end_reclaim(rig);
        }
        pst_log_stat(rig->log, &stat);
        if (stat.segments_free > 0)
            return true;
        usleep(1000);
    }
    return false;
}

static void cut_power(struct rig *rig, uint64_t seed)
{
    pst_simulated_cut(seed);
    close_log(rig);
    pst_simulated_restore();
    open_log(rig);
}

/* A segment has a tombstone that is needed, and nothing alive. What was taken along of it is in memory alone
 * as long as no flush finds room. */
static void a_tombstone_that_is_in_memory_alone_keeps_its_segment(void **state)
{
    int back = 0;

    driver = rig_driver(*state);
    for (uint64_t seed = 0; seed < 16; seed++) {
        struct kept kept[VALUES];
        struct rig rig;
        int n = 0;

        set_up(&rig);
        name_all(kept);
        for (; n < 4; n++)
            assert_int_equal(append(&rig, &kept[n], 1006, true), 0);
        bury(&rig, &kept[0]); /* its segment has two more, which live */
        flush(&rig);          /* that says: it is dead */
        fill_and_fail(&rig, kept, n, 3);
        if (one_comes_free(&rig, kept)) {
            cut_power(&rig, seed);
            back += copies_of(&rig, kept[0].key);
        }
        tear_down(&rig);
    }
    assert_int_equal(back, 0);
}

/* The newer value of a key is durable, and the word that the older one is dead waits in memory, when the
 * newer one is deleted, too. */
static void what_was_overwritten_durably_does_not_come_back(void **state)
{
    int back = 0;

    driver = rig_driver(*state);
    for (uint64_t seed = 0; seed < 16; seed++) {
        struct kept kept[VALUES];
        struct pst_log_value old;
        struct pst_log_place at;
        struct rig rig;
        int n = 0;

        set_up(&rig);
        name_all(kept);
        for (; n < 3; n++)
            assert_int_equal(append(&rig, &kept[n], 1006, true), 0);
        old = value_of(&kept[0], bytes_of(1006));
        at = kept[0].place;
        assert_int_equal(append(&rig, &kept[0], 1024, true), 0); /* in the next segment */
        assert_int_not_equal(kept[0].place.segment, at.segment);
        fill_and_fail(&rig, kept, n, 3);
        assert_int_equal(pst_log_delete_after(rig.lane, &old, at, kept[0].ticket), 0);
        bury(&rig, &kept[0]);
        if (one_comes_free(&rig, kept)) {
            struct pst_log_scan *again;
            struct pst_log_found found;

            cut_power(&rig, seed);
            assert_int_equal(pst_log_scan_open(rig.log, &again), 0);
            while (pst_log_scan_next(again, &found) == 1)
                back += found.value.generation == 1006 &&
                        pst_bytes_equal(found.value.key, (struct pst_bytes){kept[0].key, 5});
            pst_log_scan_close(again, NULL);
        }
        tear_down(&rig);
    }
    assert_int_equal(back, 0);
}

/* The sync of a full segment's index fails, and the disk drops it: what lies there was synced before, and can
 * be read. */
static void an_index_that_was_dropped_stops_no_flush(void **state)
{
    struct kept kept[VALUES];
    char damage[600];
    struct rig rig;
    uint32_t segment;
    int fails = 0, n = 0, frees;

    driver = *state;
    set_up(&rig);
    name_all(kept);
    for (; n < 3; n++)
        assert_int_equal(append(&rig, &kept[n], 1006, true), 0);
    segment = kept[0].place.segment;
    assert_int_equal(append(&rig, &kept[n++], 1006, false), 0); /* the first is sealed */
    assert_int_not_equal(kept[3].place.segment, segment);
    while (rig.log->segments[segment].state != PST_SEGMENT_FULL)
        poll_idly(&rig);
    pst_faults_arm("disk_sync_eio:per_million=1000000"); /* of its index, and of what came last */
    flush_fails(&rig);
    pst_faults_arm("");
    snprintf(damage, sizeof(damage),
             "dd if=/dev/zero of=%s/segment-%05u bs=4096 seek=%d count=1 conv=notrunc 2>/dev/null",
             rig.folder, segment, SEGMENT_BYTES / 4096 - 1);
    assert_int_equal(system(damage), 0);
    for (int i = 0; i < 50; i++) {
        struct pst_log_sync f = {0};

        reclaim_all(&rig, kept);
        pst_log_sync(rig.lane, &f);
        fails = wait_one(&rig, &f.op) < 0 ? fails + 1 : 0;
    }
    for (; n < 12; n++)
        assert_int_equal(append(&rig, &kept[n], 1006, true), 0);
    for (int i = 3; i < 9; i++)
        bury(&rig, &kept[i]);
    frees = (int)rig.log->free_count;
    reclaim_all(&rig, kept);
    frees = (int)rig.log->free_count - frees;
    assert_all(&rig, kept);
    assert_int_equal(fails, 0);
    assert_true(frees > 0);
    tear_down(&rig);
}

/* The head of one segment cannot be written, ever: others are taken back all the same. */
static void one_bad_head_keeps_no_others(void **state)
{
    struct kept kept[VALUES];
    char path[600];
    struct rig rig;
    uint32_t segment, free_before;
    int fd;

    driver = *state;
    set_up(&rig);
    name_all(kept);
    for (int n = 0; n < 12; n++)
        assert_int_equal(append(&rig, &kept[n], 1006, true), 0);
    segment = kept[0].place.segment;
    for (int n = 0; n < 9; n++)
        bury(&rig, &kept[n]);
    flush(&rig);
    snprintf(path, sizeof(path), "%s/segment-%05u", rig.folder, segment);
    fd = open(path, O_RDONLY);
    assert_true(fd >= 0 && dup2(fd, rig.log->fds[segment]) >= 0);
    free_before = rig.log->free_count;
    for (int n = 0; n < 50 && pst_log_reclaim_begin(rig.lane, 50) == 1; n++) {
        move_all(&rig, kept);
        end_reclaim(&rig);
    }
    assert_true(rig.log->free_count >= free_before + 2);
    tear_down(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        OVER("simulated:seed=3", what_a_failed_sync_should_replace_stays),
        OVER("posix", what_a_restart_cannot_sync_replaces_nothing),
        OVER("posix", what_a_restart_cannot_sync_stays_dead),
        OVER("posix", what_a_file_system_cannot_sync_is_in_doubt),
        OVER("posix", what_may_not_be_free_is_freed_anew),
        OVER("simulated:seed=3", what_stays_in_doubt_is_not_called_durable),
        OVER_EACH(a_doubt_that_ends_holds_nothing_back),
        OVER_EACH(what_is_in_doubt_goes_before_the_common_one),
        OVER("simulated:seed=3", a_tombstone_that_is_in_memory_alone_keeps_its_segment),
        OVER("simulated:seed=3", what_was_overwritten_durably_does_not_come_back),
        OVER("posix", an_index_that_was_dropped_stops_no_flush),
        OVER("posix", one_bad_head_keeps_no_others),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
