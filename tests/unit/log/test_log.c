/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/log_rig.h"

#include "base/error.h"
#include "base/fault.h"
#include "base/limits.h"

#include <sys/mman.h>
#include <sys/resource.h>

static void fill(struct rig *rig, struct kept *kept)
{
    name_all(kept);
    for (int i = 0; i < VALUES; i++)
        assert_int_equal(append(rig, &kept[i], 1000 + (uint64_t)i, i % 50 == 0), 0);
}

static void values_of_all_sizes_come_back(void **state)
{
    struct pst_log_stat stat;
    struct kept kept[VALUES];
    struct rig rig;

    driver = rig_driver(*state);
    set_up(&rig);
    fill(&rig, kept);
    assert_all(&rig, kept);
    for (int i = 0; i < VALUES; i++) { /* parts */
        uint64_t bytes = bytes_of(kept[i].generation);

        assert_int_equal(read_span(&rig, &kept[i], bytes / 3, bytes / 3), 0);
        assert_int_equal(read_span(&rig, &kept[i], bytes - bytes / 5, bytes / 5), 0);
    }
    pst_log_stat(rig.log, &stat);
    assert_true(stat.written_bytes >= stat.appended_bytes && stat.corrupt == 0 && stat.failed == 0);
    tear_down(&rig);
}

/* However large a value is, no turn computes more than a part of its checksums when it is over at once; a
 * flush waits for it all the same. */
static void a_large_value_is_no_long_turn(void **state)
{
    enum { BYTES = 2 * MIB, POLLS_MIN = BYTES / PST_LOG_BLOCK_BYTES };
    struct kept k = {.key = "large", .generation = 1};
    struct pst_log_sync f = {0};
    struct pst_log_stat stat;
    struct pst_turn turn;
    struct pst_list done;
    struct rig rig;
    struct iovec piece;
    struct pst_log_append a = {.iov = &piece, .iov_count = 1}, other = a;
    uint32_t ended = 0;
    int polls = 0;

    driver = rig_driver(*state);
    set_up(&rig);
    pst_list_init(&done);
    piece = (struct iovec){rig.memory, BYTES};
    a.value = other.value = value_of(&k, BYTES);
    assert_int_equal(pst_log_append(rig.lane, &a), 0);
    assert_int_equal(pst_log_append(rig.lane, &other), -EBUSY);
    pst_log_sync(rig.lane, &f);
    for (pst_log_stat(rig.log, &stat); stat.written_bytes == 0; pst_log_stat(rig.log, &stat)) {
        assert_true(pst_list_empty(&done));
        turn = pst_turn_begin(pst_now_ns, 0);
        assert_true(pst_lane_poll(rig.lane, &turn, &done));
        polls++;
    }
    pst_list_each (link, &done) { /* a disk may be faster than the poll that writes */
        assert_int_equal(pst_list_entry(link, struct pst_log_op, link)->result, 0);
        ended++;
    }
    assert_true(polls >= POLLS_MIN);
    assert_true(f.op.ticket > 0); /* it does not wait for what comes now */
    assert_int_equal(wait_all(&rig, 2 - ended), 0);
    assert_true(a.op.ticket > 0 && a.place.offset > 0);
    tear_down(&rig);
}

/* A third overwritten, a third deleted; over a flush, and a second start. */
static void a_restart_finds_what_was_flushed(void **state)
{
    struct pst_log_scanned told;
    struct kept kept[VALUES];
    struct rig rig;

    driver = rig_driver(*state);
    set_up(&rig);
    fill(&rig, kept);
    for (int i = 0; i < VALUES; i++) {
        struct pst_log_value v = value_of(&kept[i], bytes_of(kept[i].generation));

        if (i % 3 == 0)
            continue;
        assert_int_equal(pst_log_delete(rig.lane, &v, kept[i].place), 0);
        kept[i].there = false;
        if (i % 3 == 1)
            assert_int_equal(append(&rig, &kept[i], 2000 + (uint64_t)i, false), 0);
    }
    flush(&rig);
    for (int start = 0; start < 2; start++) {
        close_log(&rig);
        open_log(&rig);
        scan(&rig, kept, &told);
        assert_int_equal(told.deleted, 2 * VALUES / 3);
        assert_int_equal(told.damaged_values + told.damaged_groups + told.damaged_segments, 0);
        assert_true(pst_log_generation_floor(rig.log) >= 2000 + VALUES - 2);
        assert_all(&rig, kept);
    }
    assert_int_equal(append(&rig, &kept[0], 3000, true), 0);
    assert_all(&rig, kept);
    tear_down(&rig);
}

/* Return: 0, or how a start was refused that should find @kept. */
static int start(struct rig *rig, struct kept *kept)
{
    struct pst_log_options options = options_of(rig);
    struct pst_log_found found;
    struct pst_log_scan *at = NULL;
    const char *fault = "";
    int count = 0, r = pst_log_open(&options, &rig->log, &fault);

    if (r == 0)
        r = pst_log_scan_open(rig->log, &at);
    while (r == 0 && (r = pst_log_scan_next(at, &found)) == 1) {
        assert_true(kept[atoi((const char *)found.value.key.data + 4)].there);
        r = 0;
        count++;
    }
    pst_log_scan_close(at, NULL);
    assert_true(r < 0 || count == VALUES);
    if (rig->log)
        rig->log = pst_log_close(rig->log);
    return r;
}

/* It may have replaced or deleted what can be read: a start is refused, and the next one has all. */
static void what_cannot_be_read_refuses_the_start(void **state)
{
    struct kept kept[VALUES];
    uint64_t reads;
    struct rig rig;

    driver = rig_driver(*state);
    set_up(&rig);
    fill(&rig, kept);
    for (int closed = 0; closed < 2; closed++) {
        close_log(&rig);
        assert_int_equal(pst_faults_arm("log_read_eio:nth=100000"), 0);
        assert_int_equal(start(&rig, kept), 0);
        reads = pst_fault_passes(PST_FAULT_log_read_eio);
        assert_true(reads > SEGMENTS);
        for (uint64_t nth = 1; nth <= reads; nth++) {
            char text[64];

            snprintf(text, sizeof(text), "log_read_eio:nth=%d", (int)nth);
            assert_int_equal(pst_faults_arm(text), 0);
            assert_int_equal(start(&rig, kept), -EIO);
            assert_non_null(strstr(pst_error_text(), rig.folder));
            assert_non_null(strstr(pst_error_text(), "segment-000"));
        }
        assert_int_equal(pst_faults_arm(""), 0);
        open_log(&rig);
        scan(&rig, kept, &(struct pst_log_scanned){0});
        assert_all(&rig, kept);
        flush(&rig);
    }
    tear_down(&rig);
}

/* Such a number is in no log that this program wrote. Counting on from it would end in a marker that no start
 * believes. */
static void a_generation_that_no_log_has_is_damage(void **state)
{
    struct pst_log_scanned told;
    struct kept kept[VALUES];
    struct rig rig;

    driver = rig_driver(*state);
    set_up(&rig);
    name_all(kept);
    assert_int_equal(append(&rig, &kept[0], PST_GENERATION_LOG_MAX, true), 0);
    kept[0].there = false;
    close_log(&rig);
    open_log(&rig);
    scan(&rig, kept, &told);
    assert_true(pst_log_generation_floor(rig.log) < PST_GENERATION_LOG_MAX);
    tear_down(&rig);
}

static void a_full_log_says_so(void **state)
{
    struct pst_log_stat stat;
    struct kept kept[VALUES];
    struct rig rig;
    int r = 0, i;

    driver = rig_driver(*state);
    set_up(&rig);
    name_all(kept);
    for (i = 0; i < VALUES && r == 0; i++)
        r = append(&rig, &kept[i], 1006 + 18 * (uint64_t)i, false); /* a MiB each */
    assert_int_equal(bytes_of(1006), MIB);
    assert_int_equal(r, -ENOSPC);
    assert_in_range(i, 2 * SEGMENTS, 4 * SEGMENTS);
    pst_log_stat(rig.log, &stat);
    assert_int_equal(stat.segments_free, 1); /* what tombstones and moves may have */
    assert_all(&rig, kept);
    tear_down(&rig);
}

/* A failed write or sync is told to whoever it hits, and the log goes on elsewhere. */
static void failures_hit_what_they_hit(void **state)
{
    static const char *const faults[] = {"disk_write_eio:nth=1", "disk_write_enospc:nth=2",
                                         "disk_sync_eio:nth=1"};
    struct pst_log_stat stat;
    struct kept kept[VALUES];
    struct rig rig;

    driver = rig_driver(*state);
    set_up(&rig);
    name_all(kept);
    for (size_t i = 0; i < pst_count_of(faults); i++) {
        uint32_t failed = 0;

        pst_faults_arm(faults[i]);
        for (int n = 0; n < 8; n++) {
            int r = append(&rig, &kept[8 * i + (size_t)n], 1000 + 8 * i + (uint64_t)n, true);

            assert_true(r == 0 || r == -EIO || r == -ENOSPC);
            failed += r < 0;
        }
        assert_in_range(failed, 1, 4);
    }
    pst_faults_arm("");
    pst_log_stat(rig.log, &stat);
    assert_int_equal(stat.segments_failed, pst_count_of(faults));
    assert_all(&rig, kept);
    pst_faults_arm("disk_read_eio:nth=1");
    for (int i = 0; i < VALUES; i++) {
        if (kept[i].there && bytes_of(kept[i].generation) > 0) {
            assert_int_equal(read_span(&rig, &kept[i], 0, bytes_of(kept[i].generation)), -EIO);
            break;
        }
    }
    tear_down(&rig);
}

/* Nothing asks for a sync meanwhile, and each holds a value that the next one is to carry. */
static void more_segments_fail_than_a_sync_carries(void **state)
{
    enum { FAILED = SEGMENTS - 2 };
    struct pst_log_stat stat;
    struct kept kept[VALUES];
    struct rig rig;

    driver = rig_driver(*state);
    set_up(&rig);
    name_all(kept);
    for (uint64_t i = 0; i < FAILED; i++) {
        assert_int_equal(append(&rig, &kept[2 * i], 1000 + i, false), 0);
        pst_faults_arm("disk_write_eio:nth=1");
        assert_int_equal(append(&rig, &kept[2 * i + 1], 2000 + i, false), -EIO);
        pst_faults_arm("");
    }
    pst_log_stat(rig.log, &stat);
    assert_int_equal(stat.segments_failed, FAILED);
    flush(&rig);
    assert_all(&rig, kept);
    tear_down(&rig);
}

/* A large value begins on a block: a file that says otherwise is not asked for it. */
static void a_place_between_blocks_is_refused(void **state)
{
    struct kept kept[VALUES];
    struct rig rig;
    int large = 0;

    driver = rig_driver(*state);
    set_up(&rig);
    fill(&rig, kept);
    for (int i = 0; i < VALUES; i++) {
        uint64_t bytes = bytes_of(kept[i].generation);

        if (bytes <= PST_LOG_BLOCK_BYTES)
            continue;
        kept[i].place.offset += 64;
        assert_int_equal(read_span(&rig, &kept[i], 0, bytes), -EINVAL);
        kept[i].place.offset -= 64;
        large++;
    }
    assert_true(large > 0);
    assert_all(&rig, kept);
    tear_down(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        OVER_EACH(values_of_all_sizes_come_back),
        OVER_EACH(a_large_value_is_no_long_turn),
        OVER_EACH(what_cannot_be_read_refuses_the_start),
        OVER_EACH(a_restart_finds_what_was_flushed),
        OVER_EACH(a_full_log_says_so),
        OVER_EACH(failures_hit_what_they_hit),
        OVER_EACH(a_generation_that_no_log_has_is_damage),
        OVER_EACH(a_place_between_blocks_is_refused),
        OVER_EACH(more_segments_fail_than_a_sync_carries),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
