/* SPDX-License-Identifier: Apache-2.0 */
/* test_arrival.c: trees that arrive while others are at the hidden folder, or on disks that cannot be
 * written.
 */
#include "files/tree/arrival.h"

#include "lib/cm.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>

enum { LARGE = 1, LARGE_BYTES = 1 << 20, CHUNK_BYTES = 64 << 10 };

static char folder[] = "/dev/shm/penstock-arrival-XXXXXX";
static char victim[PATH_MAX];
static int folder_fd;
static const char *swapped = ""; /* of this name somebody makes a link to the victim, in between */
static int looks_before;         /* what lies there is looked at so often before that */
static int syncs_bad;            /* so many fail */
static int writes_full;          /* so many find no room */
static bool is_network;          /* folders have locks of one host alone, and this process is two hosts */

static void swap(int fd, const char *name)
{
    unlinkat(fd, name, 0);
    assert_int_equal(symlinkat(victim, fd, name), 0);
    swapped = "";
}

/* In the place of libc's. */
int mkdirat(int fd, const char *name, mode_t mode)
{
    if (strcmp(name, swapped) == 0)
        swap(fd, name);
    return (int)syscall(SYS_mkdirat, fd, name, mode);
}

/* The same, once a file has been looked at. */
int fstatat(int fd, const char *name, struct stat *st, int flags)
{
    int r = (int)syscall(SYS_newfstatat, fd, name, st, flags);

    if (r == 0 && S_ISREG(st->st_mode) && strcmp(name, swapped) == 0 && looks_before-- == 0)
        swap(fd, name);
    return r;
}

/* The same: a disk says once that it could not be written. */
int syncfs(int fd)
{
    assert_true(fd >= 0);
    if (syncs_bad == 0)
        return 0;
    syncs_bad--;
    errno = EIO;
    return -1;
}

/* The same: a host does not see another one's locks of folders. */
int flock(int fd, int operation)
{
    struct stat st;

    assert_int_equal(fstat(fd, &st), 0);
    return is_network && S_ISDIR(st.st_mode) ? 0 : (int)syscall(SYS_flock, fd, operation);
}

/* The same: a disk is full. */
ssize_t pwrite(int fd, const void *data, size_t bytes, off_t at)
{
    if (writes_full == 0)
        return syscall(SYS_pwrite64, fd, data, bytes, at);
    writes_full--;
    errno = ENOSPC;
    return -1;
}

static void add(struct pst_manifest *m, enum pst_entry_kind kind, const char *path)
{
    const struct pst_entry entry = {.kind = kind,
                                    .mode = kind == PST_ENTRY_FOLDER ? 0750 : 0640,
                                    .bytes = kind == PST_ENTRY_FILE ? 5 : 0,
                                    .modified_ns = 1700000000000000000,
                                    .path = path,
                                    .target = ""};

    assert_int_equal(pst_manifest_add(m, &entry), 0);
}

/* A folder with a file of which chunks are taken over. */
static struct pst_manifest make_large(void)
{
    struct pst_manifest m = {.entries = NULL};
    const struct pst_entry large = {.kind = PST_ENTRY_FILE,
                                    .mode = 0640,
                                    .bytes = LARGE_BYTES,
                                    .modified_ns = 1700000000000000000,
                                    .path = "l",
                                    .target = ""};

    add(&m, PST_ENTRY_FOLDER, "");
    assert_int_equal(pst_manifest_add(&m, &large), 0);
    return m;
}

/* A folder with two files, and one with a file. */
enum { ROOT, FILE_A, FILE_B, FOLDER_C, FILE_D };

static struct pst_manifest make_manifest(void)
{
    struct pst_manifest m = {.entries = NULL};

    add(&m, PST_ENTRY_FOLDER, "");
    add(&m, PST_ENTRY_FILE, "a");
    add(&m, PST_ENTRY_FILE, "b");
    add(&m, PST_ENTRY_FOLDER, "c");
    add(&m, PST_ENTRY_FILE, "c/d");
    return m;
}

static struct pst_arrival *begin(void)
{
    struct pst_arrival *a;
    char fault[PST_FAULT_BYTES];

    assert_int_equal(pst_arrival_open(folder_fd, "m", PST_ARRIVAL_SYNC, &a, fault), 0);
    return a;
}

static void fill(struct pst_arrival *a, uint32_t entry)
{
    if (pst_arrival_need(a, entry) == PST_ARRIVAL_WHOLE)
        assert_int_equal(pst_arrival_write(a, entry, 0, "bytes", 5), 0);
}

/* An arrival that breaks off when all files but the last have come. */
static void break_off(const struct pst_manifest *m)
{
    struct pst_arrival *a = begin();

    assert_int_equal(pst_arrival_begin(a, m), 0);
    fill(a, FILE_A);
    fill(a, FILE_B);
    pst_arrival_close(a);
}

/* One of the large file, when @bytes of it, all of them @byte, have come. */
static void break_off_large(const struct pst_manifest *m, size_t bytes, int byte)
{
    static char data[LARGE_BYTES];
    struct pst_arrival *a = begin();

    assert_int_equal(pst_arrival_begin(a, m), 0);
    memset(data, byte, bytes);
    assert_int_equal(pst_arrival_write(a, LARGE, 0, data, bytes), 0);
    pst_arrival_close(a);
}

static mode_t mode_of(const char *path)
{
    struct stat st;

    assert_int_equal(stat(path, &st), 0);
    return st.st_mode & 07777;
}

static int make_folder(void **state)
{
    (void)state;
    swapped = "";
    looks_before = 0;
    syncs_bad = 0;
    is_network = false;
    assert_int_equal(mkdir(folder, 0700), 0);
    snprintf(victim, sizeof(victim), "%s/victim", folder);
    assert_int_equal(mkdir(victim, 0755), 0);
    assert_int_equal(chmod(victim, 0755), 0);
    folder_fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return folder_fd < 0;
}

static int remove_folder(void **state)
{
    char command[PATH_MAX];

    (void)state;
    close(folder_fd);
    snprintf(command, sizeof(command), "rm -rf %s", folder);
    return system(command);
}

/* Who may write to the hidden folder beside the arrival, as rsync's clients of old could. */
static void a_link_in_the_place_of_a_folder_is_not_followed(void **state)
{
    struct pst_manifest m = make_manifest();
    struct pst_arrival *a = begin();

    (void)state;
    swapped = "c";
    assert_int_equal(pst_arrival_begin(a, &m), -ENOTDIR);
    assert_string_equal(swapped, "");
    assert_int_equal(mode_of(victim), 0755);
    pst_arrival_close(a);
    pst_manifest_fini(&m);
}

static void a_link_in_the_place_of_a_file_is_not_followed(void **state)
{
    struct pst_manifest m = make_manifest();
    struct pst_arrival *a;

    (void)state;
    break_off(&m);
    m.entries[FILE_A].mode = 0777; /* which what is left has to get */
    a = begin();
    swapped = "a";
    looks_before = 1; /* when what is left is listed */
    assert_int_equal(pst_arrival_begin(a, &m), 0);
    assert_string_equal(swapped, "");
    assert_int_equal(mode_of(victim), 0755);
    pst_arrival_close(a);
    pst_manifest_fini(&m);
}

/* Whether the kernel tells one mount from another, without which nothing proves itself. */
static bool hosts_prove(void)
{
    struct stat st;
    char path[PATH_MAX];

    snprintf(path, sizeof(path), "%s/.penstock-m.tree/mount", folder);
    return stat(path, &st) == 0 && st.st_size > 0;
}

static void end_with(struct pst_arrival *a, int wanted)
{
    struct pst_arrival_result result;

    for (uint32_t i = FILE_A; i <= FILE_D; i++)
        fill(a, i);
    assert_int_equal(pst_arrival_end(a, &result), wanted);
    pst_arrival_close(a);
}

/* An arrival of all files, which the disk could not write. */
static void end_unsynced(const struct pst_manifest *m)
{
    struct pst_arrival *a = begin();

    assert_int_equal(pst_arrival_begin(a, m), 0);
    syncs_bad = 1;
    end_with(a, -EIO);
}

/* The kernel says once that it could not write a page, and has it for clean from then on. */
static void what_a_disk_could_not_write_comes_again(void **state)
{
    struct pst_manifest m = make_manifest();
    struct pst_arrival *a;

    (void)state;
    end_unsynced(&m);
    a = begin();
    assert_int_equal(pst_arrival_begin(a, &m), 0);
    assert_int_equal(pst_arrival_need(a, FILE_A), PST_ARRIVAL_WHOLE);
    assert_int_equal(pst_arrival_need(a, FILE_B), PST_ARRIVAL_WHOLE);
    assert_int_equal(pst_arrival_need(a, FILE_D), PST_ARRIVAL_WHOLE);
    end_with(a, 0);
    pst_manifest_fini(&m);
}

/* Nor is it believed once another arrival has asked for it, which broke off before it came. */
static void what_proves_nothing_does_not_stay(void **state)
{
    struct pst_manifest m = make_manifest();
    struct pst_arrival *a;

    (void)state;
    end_unsynced(&m);
    break_off(&m);
    a = begin();
    assert_int_equal(pst_arrival_begin(a, &m), 0);
    assert_int_equal(pst_arrival_need(a, FILE_A), hosts_prove() ? PST_ARRIVAL_HAS : PST_ARRIVAL_WHOLE);
    assert_int_equal(pst_arrival_need(a, FILE_D), PST_ARRIVAL_WHOLE);
    end_with(a, 0);
    pst_manifest_fini(&m);
}

/* Nor because another arrival needed nothing in its place, since the destination had it. */
static void what_is_there_proves_nothing_in_the_tree(void **state)
{
    const struct timespec times[] = {{.tv_sec = 1700000000}, {.tv_sec = 1700000000}};
    struct pst_manifest m = make_manifest();
    struct pst_arrival *a;
    char path[PATH_MAX];
    int fd;

    (void)state;
    end_unsynced(&m);
    assert_int_equal(mkdirat(folder_fd, "m", 0700), 0);
    snprintf(path, sizeof(path), "%s/m/a", folder);
    fd = open(path, O_WRONLY | O_CREAT, 0640);
    assert_int_equal(write(fd, "right", 5), 5);
    assert_int_equal(futimens(fd, times), 0);
    close(fd);
    a = begin();
    assert_int_equal(pst_arrival_begin(a, &m), 0);
    assert_int_equal(pst_arrival_need(a, FILE_A), PST_ARRIVAL_HAS);
    pst_arrival_close(a);
    assert_int_equal(unlink(path), 0);
    a = begin();
    assert_int_equal(pst_arrival_begin(a, &m), 0);
    assert_int_equal(pst_arrival_need(a, FILE_A), PST_ARRIVAL_WHOLE);
    end_with(a, 0);
    pst_manifest_fini(&m);
}

/* A sender may list chunks twice: nothing comes to a file that is whole. */
static void a_file_that_is_whole_takes_nothing(void **state)
{
    static const char data[LARGE_BYTES] = "all of it";
    struct pst_manifest m = make_large();
    struct pst_arrival *a;

    (void)state;
    break_off_large(&m, CHUNK_BYTES, 'x');
    a = begin();
    assert_int_equal(pst_arrival_begin(a, &m), 0);
    assert_int_equal(pst_arrival_need(a, LARGE), PST_ARRIVAL_DELTA);
    assert_int_equal(pst_arrival_take(a, LARGE, 0, data, sizeof(data)), 0);
    assert_int_equal(pst_arrival_take(a, LARGE, 0, data, CHUNK_BYTES), -EPROTO);
    pst_arrival_close(a);
    pst_manifest_fini(&m);
}

/* What an old file held is given back in the background: a full disk is asked again once it is. */
static void an_old_file_makes_room(void **state)
{
    static const char data[LARGE_BYTES] = "new", old[LARGE_BYTES] = "old";
    struct pst_manifest m = make_large();
    struct pst_entry other = m.entries[LARGE];
    struct pst_arrival_result result;
    struct pst_arrival *a;
    char fault[PST_FAULT_BYTES];

    (void)state;
    other.path = "o";
    assert_int_equal(pst_manifest_add(&m, &other), 0);
    assert_int_equal(mkdirat(folder_fd, "m", 0700), 0);
    for (uint32_t i = LARGE; i <= LARGE + 1; i++) {
        int fd = openat(folder_fd, i == LARGE ? "m/l" : "m/o", O_CREAT | O_WRONLY, 0600);

        assert_int_equal(write(fd, old, sizeof(old)), sizeof(old));
        close(fd);
    }
    assert_int_equal(pst_arrival_open(folder_fd, "m", PST_ARRIVAL_IN_PLACE, &a, fault), 0);
    assert_int_equal(pst_arrival_begin(a, &m), 0);
    writes_full = 1; /* and nothing is given back */
    assert_int_equal(pst_arrival_take(a, LARGE, 0, data, CHUNK_BYTES), -ENOSPC);
    assert_int_equal(pst_arrival_take(a, LARGE, 0, data, sizeof(data)), 0);
    writes_full = 1;
    assert_int_equal(pst_arrival_take(a, LARGE + 1, 0, data, sizeof(data)), 0);
    assert_int_equal(writes_full, 0);
    assert_int_equal(pst_arrival_end(a, &result), 0);
    pst_arrival_close(a);
    pst_manifest_fini(&m);
}

/* Of two hosts that have the file system by network, too. */
static void an_arrival_is_the_only_one(void **state)
{
    struct pst_manifest m = make_manifest();
    struct pst_arrival *a, *other;
    char fault[PST_FAULT_BYTES], path[PATH_MAX];

    (void)state;
    snprintf(path, sizeof(path), "%s/.penstock-m.tree", folder);
    for (int hosts = 1; hosts <= 2; hosts++) {
        is_network = hosts == 2;
        a = begin();
        assert_int_equal(pst_arrival_open(folder_fd, "m", 0, &other, fault), -EBUSY);
        assert_int_equal(pst_arrival_forget(folder_fd, "m"), -EBUSY);
        assert_int_equal(pst_arrival_begin(a, &m), 0);
        end_with(a, 0);
        assert_int_equal(access(path, F_OK), -1);
        a = begin();
        pst_arrival_close(a);
        assert_int_equal(pst_arrival_forget(folder_fd, "m"), 1);
        assert_int_equal(access(path, F_OK), -1);
    }
    pst_manifest_fini(&m);
}

/* What a second try has begun takes the place of what the first one left once it has taken that over. */
static void a_second_break_loses_nothing(void **state)
{
    static const char chunk[CHUNK_BYTES] = "a chunk";
    struct pst_manifest m = make_large();
    struct pst_arrival *a;
    uint64_t bytes;
    int fd;

    (void)state;
    break_off_large(&m, 10 * CHUNK_BYTES, 'x');
    for (int taken = 0; taken < 3; taken++) {
        a = begin();
        assert_int_equal(pst_arrival_begin(a, &m), 0);
        assert_int_equal(pst_arrival_need(a, LARGE), PST_ARRIVAL_DELTA);
        fd = pst_arrival_open_old(a, LARGE, PST_ARRIVAL_LEFTOVER, &bytes);
        assert_true(fd >= 0);
        close(fd);
        assert_int_equal(bytes, taken < 2 ? 10 * CHUNK_BYTES : CHUNK_BYTES);
        assert_int_equal(pst_arrival_take(a, LARGE, 0, chunk, sizeof(chunk)), 0);
        if (taken == 1)
            pst_arrival_forget_old(a, LARGE);
        pst_arrival_close(a);
    }
    pst_manifest_fini(&m);
}

/* Zeros that are taken over are a hole, which cuts nothing off that lies behind them. */
static void a_hole_cuts_nothing_off(void **state)
{
    static char chunk[CHUNK_BYTES], zeros[LARGE_BYTES], back[LARGE_BYTES];
    enum { AT = LARGE_BYTES / 2 };
    struct pst_manifest m = make_large();
    struct pst_arrival_result result;
    struct pst_arrival *a;
    int fd;

    (void)state;
    memset(chunk, 'c', sizeof(chunk));
    break_off_large(&m, CHUNK_BYTES, 'x');
    a = begin();
    assert_int_equal(pst_arrival_begin(a, &m), 0);
    assert_int_equal(pst_arrival_need(a, LARGE), PST_ARRIVAL_DELTA);
    assert_int_equal(pst_arrival_take(a, LARGE, AT, chunk, sizeof(chunk)), 0);
    assert_int_equal(pst_arrival_take(a, LARGE, 0, zeros, CHUNK_BYTES), 0);
    assert_int_equal(pst_arrival_take(a, LARGE, CHUNK_BYTES, zeros, AT - CHUNK_BYTES), 0);
    assert_int_equal(pst_arrival_take(a, LARGE, AT + CHUNK_BYTES, zeros, LARGE_BYTES - AT - CHUNK_BYTES), 0);
    assert_int_equal(pst_arrival_end(a, &result), 0);
    pst_arrival_close(a);
    fd = openat(folder_fd, "m/l", O_RDONLY);
    assert_int_equal(read(fd, back, sizeof(back)), LARGE_BYTES);
    close(fd);
    memcpy(zeros + AT, chunk, sizeof(chunk));
    assert_memory_equal(back, zeros, LARGE_BYTES);
    pst_manifest_fini(&m);
}

/* A sender may send bytes of a file before it lists its chunks: nothing is taken over once all are there. */
static void a_file_that_is_there_has_no_older_one(void **state)
{
    static const char data[LARGE_BYTES] = "all of it";
    struct pst_manifest m = make_large();
    struct pst_arrival *a;
    char fault[PST_FAULT_BYTES];
    uint64_t bytes;

    (void)state;
    break_off_large(&m, CHUNK_BYTES, 'x');
    assert_int_equal(pst_arrival_open(folder_fd, "m", PST_ARRIVAL_SYNC | PST_ARRIVAL_IN_PLACE, &a, fault), 0);
    assert_int_equal(pst_arrival_begin(a, &m), 0);
    assert_int_equal(pst_arrival_need(a, LARGE), PST_ARRIVAL_DELTA);
    assert_int_equal(pst_arrival_take(a, LARGE, 0, data, sizeof(data)), 0);
    assert_int_equal(pst_arrival_open_old(a, LARGE, PST_ARRIVAL_THERE, &bytes), -ENOENT);
    pst_arrival_close(a);
    pst_manifest_fini(&m);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, make_folder, remove_folder)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(a_link_in_the_place_of_a_folder_is_not_followed),
        CASE(a_link_in_the_place_of_a_file_is_not_followed),
        CASE(what_a_disk_could_not_write_comes_again),
        CASE(what_proves_nothing_does_not_stay),
        CASE(what_is_there_proves_nothing_in_the_tree),
        CASE(a_file_that_is_whole_takes_nothing),
        CASE(an_old_file_makes_room),
        CASE(a_second_break_loses_nothing),
        CASE(a_hole_cuts_nothing_off),
        CASE(a_file_that_is_there_has_no_older_one),
        CASE(an_arrival_is_the_only_one),
    };

    return mkdtemp(folder) && rmdir(folder) == 0 ? cmocka_run_group_tests(tests, NULL, NULL) : 1;
}
