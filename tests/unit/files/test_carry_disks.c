/* SPDX-License-Identifier: Apache-2.0 */
/* test_carry_disks.c: trees on disks that are slow, or do less than others. */
#include "files/relay/broadcasts.h"
#include "files/relay/relay.h"

#include "lib/cm.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/syscall.h>

enum { STALL_MS = 2000, SLOW_US = 3000000, MUCH_BYTES = 1 << 20 };

static char folder[] = "/tmp/penstock-meanwhile-XXXXXX";
static _Atomic int syncs;
static _Atomic bool is_simple;
static uint32_t names_left; /* that readdir() makes up */
static _Atomic int slow_syncs, slow_reads;

/* In the place of libc's: a disk that has much to write. */
int syncfs(int fd)
{
    assert_true(fd >= 0);
    if (syncs++ == 0)
        usleep(SLOW_US);
    return 0;
}

int fdatasync(int fd)
{
    assert_true(fd >= 0);
    if (slow_syncs > 0) {
        slow_syncs--;
        usleep(SLOW_US);
    }
    return 0;
}

/* The same: a disk from which much is read at once. */
ssize_t pread(int fd, void *into, size_t bytes, off_t at)
{
    if (slow_reads > 0 && bytes > MUCH_BYTES) {
        slow_reads--;
        usleep(STALL_MS * 1000 / 2);
    }
    return syscall(SYS_pread64, fd, into, bytes, at);
}

/* The same: a file system that takes no flags, such as NFS. */
int renameat2(int from_fd, const char *from, int to_fd, const char *to, unsigned flags)
{
    if (is_simple && flags) {
        errno = EINVAL;
        return -1;
    }
    return (int)syscall(SYS_renameat2, from_fd, from, to_fd, to, flags);
}

/* The same: a folder with more names than a tree has, none of which it takes. */
struct dirent *readdir(DIR *dir)
{
    static struct dirent entry = {.d_type = DT_REG};
    struct dirent *(*next)(DIR * dir);

    *(void **)&next = dlsym(RTLD_NEXT, "readdir64");
    if (names_left == 0)
        return next(dir);
    names_left--;
    memcpy(entry.d_name, ".penstock-x", sizeof(".penstock-x"));
    return &entry;
}

static int resolve(void *ctx, const char *name, bool writes, int *folder_fd, char leaf[256],
                   char fault[PST_FAULT_BYTES])
{
    (void)ctx;
    (void)writes;
    (void)fault;
    *folder_fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    snprintf(leaf, 256, "%s", name);
    return 0;
}

/* Puts "from" of the folder as "to". Return: what the call does. */
static int put_with(int folder_fd, uint32_t flags, char fault[PST_FAULT_BYTES])
{
    const struct pst_carry_server_settings settings = {
        .host = "127.0.0.1", .stall_ms = STALL_MS, .resolve = resolve};
    const struct pst_carry_options options = {.stall_ms = STALL_MS, .flags = flags};
    const struct pst_carry_place from = {.folder_fd = folder_fd, .leaf = "from"};
    struct pst_carry_server *server;
    struct pst_arrival_result result;
    int fd, r;

    assert_int_equal(pst_carry_server_open(&settings, &server, fault), 0);
    fd = pst_carry_connect("127.0.0.1", pst_carry_server_port(server), STALL_MS, fault);
    assert_true(fd >= 0);
    r = pst_carry_put(fd, &from, "to", &options, &result, fault);
    close(fd);
    pst_carry_server_close(server);
    return r;
}

static int put(int folder_fd, char fault[PST_FAULT_BYTES])
{
    return put_with(folder_fd, 0, fault);
}

static void make_file(int folder_fd, const char *name)
{
    int fd = openat(folder_fd, name, O_WRONLY | O_CREAT, 0600);

    assert_int_equal(write(fd, "bytes", 5), 5);
    close(fd);
}

static void expect_file(int folder_fd, const char *name)
{
    char text[8];
    int fd = openat(folder_fd, name, O_RDONLY);

    assert_int_equal(read(fd, text, sizeof(text)), 5);
    assert_memory_equal(text, "bytes", 5);
    close(fd);
}

static void a_slow_disk_is_waited_for(void **state)
{
    int folder_fd = open(folder, O_RDONLY | O_DIRECTORY);
    char fault[PST_FAULT_BYTES];

    (void)state;
    make_file(folder_fd, "from");
    if (put(folder_fd, fault) < 0)
        fail_msg("%s", fault);
    assert_true(syncs >= 2);
    expect_file(folder_fd, "to");
    unlinkat(folder_fd, "from", 0);
    unlinkat(folder_fd, "to", 0);
    close(folder_fd);
}

/* A file of zeros, which is as new each time. */
static void make_large_file(int folder_fd, const char *name, off_t bytes)
{
    static time_t seconds = 1700000000;
    const struct timespec times[] = {{.tv_sec = ++seconds}, {.tv_sec = seconds}};
    int fd = openat(folder_fd, name, O_WRONLY | O_CREAT, 0600);

    assert_int_equal(ftruncate(fd, bytes), 0);
    assert_int_equal(futimens(fd, times), 0);
    close(fd);
}

/* Files that get their place one by one are each written to the disk: one that comes, and then one all of
 * whose chunks are there. */
static void a_slow_disk_is_waited_for_in_place(void **state)
{
    int folder_fd = open(folder, O_RDONLY | O_DIRECTORY);
    char fault[PST_FAULT_BYTES];

    (void)state;
    assert_int_equal(mkdirat(folder_fd, "from", 0700), 0);
    for (int again = 0; again < 2; again++) {
        make_large_file(folder_fd, "from/file", PST_ARRIVAL_OLD_BYTES_MIN);
        slow_syncs = 1;
        if (put_with(folder_fd, PST_ARRIVAL_IN_PLACE, fault) < 0)
            fail_msg("%d: %s", again, fault);
        assert_int_equal(slow_syncs, 0);
    }
    unlinkat(folder_fd, "from/file", 0), unlinkat(folder_fd, "to/file", 0);
    assert_int_equal(unlinkat(folder_fd, "from", AT_REMOVEDIR), 0);
    assert_int_equal(unlinkat(folder_fd, "to", AT_REMOVEDIR), 0);
    close(folder_fd);
}

/* A frame of a list has chunks of 200 MiB. */
static void a_slow_disk_is_listed(void **state)
{
    int folder_fd = open(folder, O_RDONLY | O_DIRECTORY);
    char fault[PST_FAULT_BYTES];

    (void)state;
    for (int again = 0; again < 2; again++) {
        make_large_file(folder_fd, "from", 24 << 20);
        slow_reads = again ? 5 : 0;
        if (put(folder_fd, fault) < 0)
            fail_msg("%s", fault);
    }
    assert_int_equal(slow_reads, 0);
    unlinkat(folder_fd, "from", 0);
    unlinkat(folder_fd, "to", 0);
    close(folder_fd);
}

static void a_simple_disk_does(void **state)
{
    int folder_fd = open(folder, O_RDONLY | O_DIRECTORY);
    char fault[PST_FAULT_BYTES];

    (void)state;
    is_simple = true;
    for (int folders = 0; folders < 2; folders++) {
        if (folders)
            assert_int_equal(mkdirat(folder_fd, "from", 0700), 0);
        make_file(folder_fd, folders ? "from/file" : "from");
        for (int again = 0; again < 2; again++) {
            if (put(folder_fd, fault) < 0)
                fail_msg("%s", fault);
            expect_file(folder_fd, folders ? "to/file" : "to");
        }
        if (folders)
            unlinkat(folder_fd, "from/file", 0), unlinkat(folder_fd, "to/file", 0);
        assert_int_equal(unlinkat(folder_fd, "from", folders ? AT_REMOVEDIR : 0), 0);
        assert_int_equal(unlinkat(folder_fd, "to", folders ? AT_REMOVEDIR : 0), 0);
    }
    is_simple = false;
    close(folder_fd);
}

static int resolve_slowly(void *ctx, const char *name, bool writes, int *folder_fd, char leaf[256],
                          char fault[PST_FAULT_BYTES])
{
    usleep(SLOW_US);
    return resolve(ctx, name, writes, folder_fd, leaf, fault);
}

static int serve(void *ctx, struct link *link, uint32_t operation, const char *name)
{
    return pst_broadcasts_serve(ctx, link, operation, name);
}

/* The first member of a broadcast waits for its listing, longer than it would for a store that is silent. */
static void a_slow_listing_is_waited_for(void **state)
{
    const struct pst_broadcasts_settings source = {.resolve = resolve_slowly};
    struct pst_broadcasts *broadcasts = pst_broadcasts_open(&source);
    const struct pst_carry_server_settings settings = {
        .host = "127.0.0.1", .stall_ms = STALL_MS, .resolve = resolve, .serve = serve, .ctx = broadcasts};
    int folder_fd = open(folder, O_RDONLY | O_DIRECTORY);
    const struct pst_carry_place to = {.folder_fd = folder_fd, .leaf = "to"};
    struct pst_carry_server *server;
    struct pst_arrival_result result;
    char fault[PST_FAULT_BYTES] = "";
    struct pst_broadcast_options options = {
        .host = "127.0.0.1", .group = "g", .name = "from", .members = 1, .timeout_ms = STALL_MS};
    int r;

    (void)state;
    make_file(folder_fd, "from");
    assert_int_equal(pst_carry_server_open(&settings, &server, fault), 0);
    options.port = pst_carry_server_port(server);
    r = pst_broadcast_get(&options, &to, &result, fault);
    if (r != PST_BROADCAST_COPIES)
        fail_msg("%d: %s", r, fault);
    pst_broadcasts_stop(broadcasts);
    pst_carry_server_close(server);
    pst_broadcasts_close(broadcasts);
    unlinkat(folder_fd, "from", 0);
    close(folder_fd);
}

/* Also if none of those that were read is taken: what lies behind them would be left out. */
static void a_folder_with_too_many_names_is_no_tree(void **state)
{
    int folder_fd = open(folder, O_RDONLY | O_DIRECTORY);
    struct pst_manifest m = {.entries = NULL};
    const struct pst_filters all = {.count = 0};
    char fault[PST_FAULT_BYTES] = "";
    uint32_t odd = 0;

    (void)state;
    assert_int_equal(mkdirat(folder_fd, "many", 0700), 0);
    names_left = PST_MANIFEST_ENTRIES_MAX + 1;
    assert_int_equal(pst_manifest_scan(folder_fd, "many", &all, NULL, &m, &odd, fault), -E2BIG);
    assert_non_null(strstr(fault, "more than a tree can have"));
    pst_manifest_fini(&m);
    names_left = 0;
    assert_int_equal(unlinkat(folder_fd, "many", AT_REMOVEDIR), 0);
    close(folder_fd);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {cmocka_unit_test(a_slow_disk_is_waited_for),
                                              cmocka_unit_test(a_slow_disk_is_waited_for_in_place),
                                              cmocka_unit_test(a_slow_disk_is_listed),
                                              cmocka_unit_test(a_simple_disk_does),
                                              cmocka_unit_test(a_slow_listing_is_waited_for),
                                              cmocka_unit_test(a_folder_with_too_many_names_is_no_tree)};
    int failed;

    if (!mkdtemp(folder))
        return 1;
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    rmdir(folder);
    return failed;
}
