/* SPDX-License-Identifier: Apache-2.0 */
/* test_meanwhile.c: a side that syncs its disk for longer than its peer waits. */
#include "files/carry/carry.h"

#include "lib/cm.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/stat.h>

enum { STALL_MS = 2000, SYNC_US = 3000000 };

static char folder[] = "/tmp/penstock-meanwhile-XXXXXX";
static _Atomic int syncs;

/* In the place of libc's: a disk that has much to write. */
int syncfs(int fd)
{
    assert_true(fd >= 0);
    if (syncs++ == 0)
        usleep(SYNC_US);
    return 0;
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

static void a_slow_disk_is_waited_for(void **state)
{
    const struct pst_carry_server_settings settings = {
        .host = "127.0.0.1", .stall_ms = STALL_MS, .resolve = resolve};
    const struct pst_carry_options options = {.stall_ms = STALL_MS};
    struct pst_carry_place from = {.leaf = "from"};
    struct pst_carry_server *server;
    struct pst_arrival_result result;
    char fault[PST_FAULT_BYTES];
    struct stat st;
    int fd;

    (void)state;
    from.folder_fd = open(folder, O_RDONLY | O_DIRECTORY);
    fd = openat(from.folder_fd, "from", O_WRONLY | O_CREAT, 0600);
    assert_int_equal(write(fd, "bytes", 5), 5);
    close(fd);
    assert_int_equal(pst_carry_server_open(&settings, &server, fault), 0);
    fd = pst_carry_connect("127.0.0.1", pst_carry_server_port(server), STALL_MS, fault);
    assert_true(fd >= 0);
    if (pst_carry_put(fd, &from, "to", &options, &result, fault) < 0)
        fail_msg("%s", fault);
    assert_int_equal(result.moved, 5);
    assert_true(syncs >= 2);
    assert_int_equal(fstatat(from.folder_fd, "to", &st, 0), 0);
    assert_int_equal(st.st_size, 5);
    close(fd);
    pst_carry_server_close(server);
    unlinkat(from.folder_fd, "from", 0);
    unlinkat(from.folder_fd, "to", 0);
    close(from.folder_fd);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {cmocka_unit_test(a_slow_disk_is_waited_for)};
    int failed;

    if (!mkdtemp(folder))
        return 1;
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    rmdir(folder);
    return failed;
}
