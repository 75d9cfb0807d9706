/* SPDX-License-Identifier: Apache-2.0 */
/* test_log_reclaim.c: what a log keeps when segments are emptied, when the power goes, and when syncs fail.
 */
#include "lib/log_rig.h"

#include "base/clock.h"
#include "base/fault.h"
#include "disk/simulated.h"
#include "log/reclaim.h"

/* A value that could not be written to one segment is written to another; a restart later it is moved, and
 * not to where the word of the first one's end would find it. */
static void what_failed_is_not_moved_to_its_grave(void **state)
{
    static const char *const faults[] = {"disk_write_eio:nth=2", "disk_sync_eio:nth=1"};
    struct kept kept[VALUES];
    struct rig rig;

    driver = rig_driver(*state);
    for (size_t i = 0; i < pst_count_of(faults); i++) {
        set_up(&rig);
        name_all(kept);
        pst_faults_arm(faults[i]);
        assert_int_equal(append(&rig, &kept[0], 1005, true), -EIO);
        pst_faults_arm("");
        for (int n = 0; n < 5; n++) /* the segment is full then */
            assert_int_equal(append(&rig, &kept[n], n ? 1006 : 1005, true), 0);
        for (int start = 0; start < 2; start++) {
            struct pst_log_place place;

            flush(&rig);
            close_log(&rig);
            open_log(&rig);
            scan(&rig, kept, NULL);
            assert_int_equal(append(&rig, &kept[5 + start], 1006, true), 0); /* written on where that goes */
            place = kept[0].place;
            for (int n = 0; n < SEGMENTS && start == 0 && kept[0].place.segment == place.segment; n++)
                reclaim(&rig, kept);
            assert_true(start == 1 || kept[0].place.segment != place.segment);
        }
        assert_all(&rig, kept);
        tear_down(&rig);
    }
}

/* A key that was given up comes again, with the generation that it had, or an earlier one. */
static void what_comes_again_in_another_era_lives(void **state)
{
    struct kept kept[VALUES];
    struct rig rig;

    driver = rig_driver(*state);
    for (int other = 0; other < 2; other++) {
        set_up(&rig);
        name_all(kept);
        for (int i = 0; i < 20; i++)
            assert_int_equal(append(&rig, &kept[i], 1020, true), 0);
        for (int i = 0; i < 20; i++)
            bury(&rig, &kept[i]);
        if (other)
            pst_log_new_era(rig.log);
        for (int i = 0; i < 20; i++) {
            assert_int_equal(append(&rig, &kept[i], i % 2 ? 1020 : 1010, true), 0);
            kept[i].there = other;
        }
        restart(&rig, kept);
        if (other) {
            reclaim(&rig, kept);
            restart(&rig, kept);
            for (int i = 0; i < 10; i++)
                bury(&rig, &kept[i]);
            restart(&rig, kept);
        }
        assert_all(&rig, kept);
        tear_down(&rig);
    }
}

static void read_whole(struct rig *rig, const struct pst_log_found *found, uint64_t seed)
{
    struct iovec iov = {rig->memory + MEMORY_BYTES, found->value.value_bytes};
    struct pst_log_read read = {.value = found->value,
                                .place = found->place,
                                .crc = found->crc,
                                .bytes = iov.iov_len,
                                .iov = &iov,
                                .iov_count = 1};

    assert_int_equal(pst_log_read(rig->lane, &read), 0);
    assert_int_equal(wait_one(rig, &read.op), 0);
    rig_fill(rig->memory, iov.iov_len, seed);
    assert_memory_equal(iov.iov_base, rig->memory, iov.iov_len);
}

/* Power fails with appends underway; what was acknowledged as durable is there, and nothing is that never
 * was. */
static void a_power_cut_loses_nothing_durable(void **state)
{
    struct kept kept[VALUES];
    struct rig rig;

    driver = rig_driver(*state);
    for (uint64_t seed = 0; seed < 12; seed++) {
        struct pst_log_scanned told;
        struct pst_log_scan *again;
        struct pst_log_found found;
        struct pst_log_append last[4] = {0};
        uint32_t last_count = 0;

        set_up(&rig);
        name_all(kept);
        for (int i = 0; i < 40; i++)
            assert_int_equal(append(&rig, &kept[i], 1000 + 40 * seed + (uint64_t)i, true), 0);
        for (; last_count < 4; last_count++) { /* never waited for */
            struct pst_log_append *a = &last[last_count];
            static struct iovec iov;

            iov = (struct iovec){rig.memory, 3 * MIB / 2};
            rig_fill(rig.memory, iov.iov_len, 99);
            a->value = value_of(&kept[100 + last_count], iov.iov_len);
            a->value.generation = 5000 + last_count;
            a->iov = &iov;
            a->iov_count = 1;
            if (pst_log_append(rig.lane, a) < 0)
                break;
        }
        pst_simulated_cut(seed);
        wait_all(&rig, last_count);
        close_log(&rig);
        pst_simulated_restore();
        open_log(&rig);
        for (int i = 0; i < 40; i++)
            kept[i].found = false;
        assert_int_equal(pst_log_scan_open(rig.log, &again), 0);
        while (pst_log_scan_next(again, &found) == 1) {
            int i = atoi((const char *)found.value.key.data + 4);

            if (i < 40)
                kept[i].found = true;
            else /* may be there, when it is whole */
                read_whole(&rig, &found, 99);
        }
        pst_log_scan_close(again, &told);
        for (int i = 0; i < 40; i++)
            assert_true(kept[i].found);
        assert_all(&rig, kept);
        tear_down(&rig);
    }
}

/* A durable value is overwritten while it is moved, and power fails before the newer one is durable. */
static void what_dies_while_it_is_moved_may_come_back(void **state)
{
    struct kept kept[VALUES];
    struct rig rig;

    driver = rig_driver(*state);
    for (uint64_t seed = 0; seed < 16; seed++) {
        struct pst_log_found found;
        struct pst_log_move move;
        int r;

        set_up(&rig);
        name_all(kept);
        for (int i = 0; i < 5; i++) /* its segment is full then */
            assert_int_equal(append(&rig, &kept[i], i ? 1006 : 1005, true), 0);
        assert_int_equal(pst_log_reclaim_begin(rig.lane, 100), 1);
        while ((r = pst_log_reclaim_next(rig.lane, &found)) == -EAGAIN)
            poll_idly(&rig);
        assert_true(r == 1 && found.value.generation == 1005);
        move = (struct pst_log_move){.value = found.value, .from = found.place, .crc = found.crc};
        assert_int_equal(pst_log_move(rig.lane, &move), 0);
        assert_int_equal(wait_one(&rig, &move.op), 0);
        assert_int_equal(append(&rig, &kept[0], 2000, false), 0);
        assert_int_equal(pst_log_delete_after(rig.lane, &move.value, move.from, kept[0].ticket), 0);
        assert_int_equal(pst_log_delete_moved(rig.lane, &move.value, move.to), 0);
        assert_int_equal(append(&rig, &kept[5], 1010, false), 0); /* tombstones go along */
        pst_simulated_cut(seed);
        end_reclaim(&rig);
        close_log(&rig);
        pst_simulated_restore();
        open_log(&rig);
        assert_true(copies_of(&rig, kept[0].key) > 0);
        tear_down(&rig);
    }
}

/* For a while all that is asked of the disk fails: only few segments are tried, and they come back. */
static void a_disk_that_failed_for_a_while_is_used_again(void **state)
{
    static const char *const faults[] = {"disk_write_eio:per_million=1000000",
                                         "disk_sync_eio:per_million=1000000"};
    enum { TRIES = 100, FAILED_MAX = SEGMENTS - 4, OUTAGE_NS = 500000000 };
    struct pst_log_stat stat;
    struct kept kept[VALUES];
    struct rig rig;

    driver = rig_driver(*state);
    for (size_t i = 0; i < pst_count_of(faults); i++) {
        uint64_t until_ns;
        int tries = 0;

        set_up(&rig);
        name_all(kept);
        assert_int_equal(append(&rig, &kept[0], 3006, true), 0);
        pst_faults_arm(faults[i]);
        until_ns = pst_now_ns() + OUTAGE_NS; /* lanes rest for so long a time, not for so many tries */
        for (int n = 0; n < TRIES && pst_now_ns() < until_ns; n++) {
            struct kept failed = kept[1];

            assert_true(append(&rig, &failed, 1006, true) < 0);
            usleep(1000);
        }
        pst_faults_arm("");
        pst_log_stat(rig.log, &stat);
        assert_in_range(stat.segments_failed, 1, FAILED_MAX);
        for (int n = 2; n < 3 * SEGMENTS;) {
            int r = append(&rig, &kept[n], 3006, true);

            assert_true(r == 0 || r == -EIO || r == -ENOSPC);
            n += r == 0;
            if (r == 0)
                continue;
            usleep(10000);
            if (r == -ENOSPC && pst_log_reclaim_begin(rig.lane, 100) == 1) {
                move_all(&rig, kept);
                end_reclaim(&rig);
            }
            assert_true(++tries < 10 * TRIES);
        }
        assert_all(&rig, kept);
        restart(&rig, kept);
        assert_all(&rig, kept);
        tear_down(&rig);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        OVER_EACH(what_failed_is_not_moved_to_its_grave),
        OVER_EACH(what_comes_again_in_another_era_lives),
        OVER("simulated:seed=2", a_power_cut_loses_nothing_durable),
        OVER("simulated:seed=2", what_dies_while_it_is_moved_may_come_back),
        OVER_EACH(a_disk_that_failed_for_a_while_is_used_again),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
