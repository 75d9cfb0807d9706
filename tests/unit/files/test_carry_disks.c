/* SPDX-License-Identifier: Apache-2.0 */
/* test_carry_disks.c: trees on disks that are slow, or do less than others. */
#include "files/carry/carry.h"

#include "lib/cm.h"

#include <fcntl.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/syscall.h>

enum { STALL_MS = 2000, SYNC_US = 3000000 };

static char folder[] = "/tmp/penstock-meanwhile-XXXXXX";
static _Atomic int syncs;
static _Atomic bool is_simple;

/* In the place of libc's: a disk that has much to write. */
int syncfs(int fd)
{
    assert_true(fd >= 0);
    if (syncs++ == 0)
        usleep(SYNC_US);
    return 0;
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

static int resolve(void *ctx, const char *name, bool writes, int *folder_fd, char leaf[256],
                   char fault[PST_FAULT_BYTES])
{
    (void)ctx;
    (void)fault;
    assert_true(writes);
    *folder_fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    snprintf(leaf, 256, "%s", name);
    return 0;
}

/* Puts "from" of the folder as "to". Return: what the call does. */
static int put(int folder_fd, char fault[PST_FAULT_BYTES])
{
    const struct pst_carry_server_settings settings = {
        .host = "127.0.0.1", .stall_ms = STALL_MS, .resolve = resolve};
    const struct pst_carry_options options = {.stall_ms = STALL_MS};
    const struct pst_carry_place from = {folder_fd, "from"};
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

int main(void)
{
    static const struct CMUnitTest tests[] = {cmocka_unit_test(a_slow_disk_is_waited_for),
                                              cmocka_unit_test(a_simple_disk_does)};
    int failed;

    if (!mkdtemp(folder))
        return 1;
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    rmdir(folder);
    return failed;
}
