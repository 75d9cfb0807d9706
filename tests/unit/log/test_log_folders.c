/* SPDX-License-Identifier: Apache-2.0 */
/* test_log_folders.c: folders and markers of a log: which ones it takes, and which it leaves alone. */
#include "lib/log_rig.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

/* ---- folders ---- */

static int open_says(const struct pst_log_options *options, const char *part)
{
    struct pst_log *log = NULL;
    const char *fault = "";
    int r = pst_log_open(options, &log, &fault);

    assert_null(log);
    if (r < 0 && !strstr(fault, part))
        print_message("# %s: not %s\n", fault, part);
    assert_true(r < 0 && strstr(fault, part));
    return r;
}

static void write_text(const char *folder, const char *name, const char *text)
{
    char path[256];
    FILE *f;

    snprintf(path, sizeof(path), "%s/%s", folder, name);
    f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static void folders_that_are_not_ours_are_left_alone(void **state)
{
    struct rig rig = {.folder = rig_folder(), .lanes = 1};
    struct pst_log_options options = options_of(&rig);
    char path[256];

    (void)state;
    driver = NULL;
    write_text(rig.folder, "diary", "dear");
    assert_int_equal(open_says(&options, "diary"), -EEXIST);
    snprintf(path, sizeof(path), "%s/lock", rig.folder);
    assert_int_equal(access(path, F_OK), -1); /* nothing was written */
    write_text(rig.folder, "penstock", "my notes about penstocks\n");
    assert_int_equal(open_says(&options, "not one of penstock's"), -EEXIST);
    write_text(rig.folder, "penstock", "penstock ssd 2\nwho knows\n");
    assert_int_equal(open_says(&options, "format 2"), -EPROTONOSUPPORT);
    write_text(rig.folder, "penstock", "penstock ssd 1\nstore 00\n");
    assert_int_equal(open_says(&options, "damaged"), -EBADMSG);
    rig_remove(rig.folder);
}

/* It is text, which people may read, restore from a copy, and change. */
static void markers_that_cannot_be_are_refused(void **state)
{
    static const char *const bad[][2] = {{"epoch ", "0"},
                                         {"epoch ", "4294967295"},
                                         {"epoch ", "18446744073709551615"},
                                         {"generation ", "6917529027641081856"},
                                         {"generation ", "9223372036854775807"},
                                         {"generation ", "9223372036854775808"},
                                         {"generation ", "18446744073709551615"}};
    struct pst_log_options options;
    struct rig rig;

    (void)state;
    driver = NULL;
    set_up(&rig);
    options = options_of(&rig);
    close_log(&rig);
    for (size_t i = 0; i < pst_count_of(bad); i++) {
        rig_mark(rig.folder, bad[i][0], bad[i][1]);
        assert_int_equal(open_says(&options, "damaged"), -EBADMSG);
        rig_mark(rig.folder, bad[i][0], "7");
    }
    open_log(&rig);
    /* The highest that a peer may bring, and what a log then writes, is not damage. */
    assert_int_equal(pst_log_generations(rig.log, (1ull << 62) - 1), 0);
    close_log(&rig);
    open_log(&rig);
    tear_down(&rig);
}

/* A digit that a disk has changed: the seed alone would make all that is there look like rubbish. */
static void a_marker_that_is_damaged_is_refused(void **state)
{
    static const char *const words[] = {"store ", "seed ",       "segment_bytes ",
                                        "epoch ", "generation ", "check "};
    struct pst_log_options options;
    struct rig rig;
    char path[300], text[1024] = "", *at;
    FILE *f;

    (void)state;
    driver = NULL;
    set_up(&rig);
    options = options_of(&rig);
    close_log(&rig);
    snprintf(path, sizeof(path), "%s/penstock", rig.folder);
    f = fopen(path, "r");
    assert_non_null(f);
    assert_true(fread(text, 1, sizeof(text) - 1, f) > 0);
    fclose(f);
    for (size_t i = 0; i < pst_count_of(words); i++) {
        at = strstr(text, words[i]);
        assert_non_null(at);
        at += strlen(words[i]);
        *at ^= 1;
        write_text(rig.folder, "penstock", text);
        assert_int_equal(open_says(&options, "damaged"), -EBADMSG);
        *at ^= 1;
        at[-2] ^= 1;
        write_text(rig.folder, "penstock", text);
        assert_int_equal(open_says(&options, "damaged"), -EBADMSG);
        at[-2] ^= 1;
    }
    write_text(rig.folder, "penstock", text);
    open_log(&rig);
    close_log(&rig);
    rig_mark(rig.folder, "epoch ", "7"); /* without: from before there were any */
    open_log(&rig);
    tear_down(&rig);
}

static void a_marker_older_than_its_segments_is_refused(void **state)
{
    struct kept kept = {.key = "key"};
    struct pst_log_options options;
    struct rig rig;

    (void)state;
    driver = NULL;
    set_up(&rig);
    options = options_of(&rig);
    close_log(&rig);
    rig_mark(rig.folder, "epoch ", "7");
    open_log(&rig);
    assert_int_equal(append(&rig, &kept, 9, true), 0);
    close_log(&rig);
    rig_mark(rig.folder, "epoch ", "6");
    for (int i = 0; i < 3; i++) /* nor is it any younger by being tried */
        assert_int_equal(open_says(&options, "older than its segments"), -EBADMSG);
    rig_mark(rig.folder, "epoch ", "8");
    open_log(&rig);
    tear_down(&rig);
}

/* A disk that takes a part of what is written tells no error. */
static void a_marker_that_is_cut_short_is_not_written(void **state)
{
    struct rlimit before, small;
    struct rig rig;
    int r;

    (void)state;
    driver = NULL;
    set_up(&rig);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    small = (struct rlimit){.rlim_cur = 64, .rlim_max = before.rlim_max};
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    errno = 0;
    r = pst_log_generations(rig.log, 1ull << 62);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(r, -ENOSPC);
    assert_int_equal(pst_log_generations(rig.log, 1ull << 62), 0);
    tear_down(&rig);
}

static void what_cannot_be_is_refused(void **state)
{
    struct rig rig;
    struct pst_log_options options, other;
    char pid[32];

    (void)state;
    driver = NULL;
    set_up(&rig);
    options = options_of(&rig);
    snprintf(pid, sizeof(pid), "process %d", (int)getpid());
    assert_int_equal(open_says(&options, pid), -EBUSY);
    rig.log = pst_log_close(rig.log);
    other = options;
    other.segment_bytes *= 2;
    assert_int_equal(open_says(&other, "segments of 4194304 bytes"), -EINVAL);
    other = options;
    other.bytes = 1ull << 37;
    other.segment_bytes = SEGMENT_BYTES;
    assert_int_equal(open_says(&other, "MiB more are needed"), -ENOSPC);
    other = options;
    other.bytes -= SEGMENT_BYTES;
    assert_int_equal(open_says(&other, "does not shrink"), -EINVAL);
    other.bytes = SEGMENT_BYTES;
    assert_int_equal(open_says(&other, "at least"), -EINVAL);
    open_log(&rig);
    tear_down(&rig);
}

/* Segments are dealt over them; both are needed, in their order. */
static void two_folders_are_one_log(void **state)
{
    struct rig rig = {.folder = rig_folder(), .lanes = 1};
    struct pst_log_options options = options_of(&rig);
    char *second = rig_folder(), *third = rig_folder();
    const char *both[] = {rig.folder, second}, *swapped[] = {second, rig.folder},
               *other[] = {rig.folder, third};
    const char *fault = "";
    char path[256];

    (void)state;
    driver = NULL;
    options.folders = both;
    options.folder_count = 2;
    assert_int_equal(pst_log_open(&options, &rig.log, &fault), 0);
    pst_log_close(rig.log);
    snprintf(path, sizeof(path), "%s/segment-00001", second);
    assert_int_equal(access(path, F_OK), 0);
    options.folders = swapped;
    assert_int_equal(open_says(&options, "was number 2 of 2"), -EINVAL);
    options.folders = other;
    assert_int_equal(open_says(&options, "only 1 have anything"), -EINVAL);
    options.folders = &both[1];
    options.folder_count = 1;
    assert_int_equal(open_says(&options, "was number 2 of 2"), -EINVAL);
    options.folders = both;
    options.folder_count = 2;
    assert_int_equal(pst_log_open(&options, &rig.log, &fault), 0);
    pst_log_close(rig.log);
    rig_remove(rig.folder);
    rig_remove(second);
    rig_remove(third);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(folders_that_are_not_ours_are_left_alone),
        cmocka_unit_test(markers_that_cannot_be_are_refused),
        cmocka_unit_test(a_marker_that_is_damaged_is_refused),
        cmocka_unit_test(a_marker_older_than_its_segments_is_refused),
        cmocka_unit_test(a_marker_that_is_cut_short_is_not_written),
        cmocka_unit_test(what_cannot_be_is_refused),
        cmocka_unit_test(two_folders_are_one_log),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
