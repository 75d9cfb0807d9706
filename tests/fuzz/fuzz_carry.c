/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_carry.c: what a peer says of a tree, to the receiver and to the sender. Whatever it is, a transfer
 * ends, and nothing appears but the tree itself, beside which the sender's stays as it was.
 */
#include "fuzz.h"

#include "files/carry/carry_priv.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>

enum { INPUT_BYTES_MAX = 60000 }; /* what a socket takes at once */

static char base[] = "/dev/shm/fuzz-carry-XXXXXX";

static int make_base(void)
{
    static int fd = -1;

    if (fd < 0) {
        pst_assert(mkdtemp(base));
        fd = open(base, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        pst_assert(fd >= 0);
    }
    return fd;
}

/* The tree that a sender has: a folder with a file of two chunks and an empty one. */
static void make_source(int base_fd)
{
    static const char bytes[100000] = "bytes";
    int fd;

    mkdirat(base_fd, "source", 0755);
    fd = openat(base_fd, "source/file", O_WRONLY | O_CREAT, 0644);
    pst_assert(fd >= 0 && pwrite(fd, bytes, sizeof(bytes), 0) == sizeof(bytes));
    close(fd);
    close(openat(base_fd, "source/empty", O_WRONLY | O_CREAT, 0644));
}

static int count_names(void)
{
    DIR *dir = opendir(base);
    int count = 0;

    while (dir && readdir(dir))
        count++;
    closedir(dir);
    return count - 2;
}

static void clear_target(void)
{
    char command[128];

    snprintf(command, sizeof(command), "rm -rf %s/target %s/.penstock-target.tree", base, base);
    pst_assert(system(command) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct fuzz in = {data, bytes};
    bool sends = fuzz_number(&in, 1) & 1, older = fuzz_number(&in, 1) & 1;
    const struct pst_carry_options options = {.flags = 0};
    struct pst_carry_place place = {
        .folder_fd = make_base(), .leaf = sends ? "source" : "target", .munged = fuzz_below(&in, 2)};
    struct carry_share share = {.budget = NULL};
    struct pst_arrival_result result;
    char fault[PST_FAULT_BYTES];
    struct link link;
    int sides[2];

    if (in.left > INPUT_BYTES_MAX)
        return 0;
    make_source(place.folder_fd);
    if (older && !sends)
        pst_assert(linkat(place.folder_fd, "source/file", place.folder_fd, "target", 0) == 0);
    pst_assert(socketpair(AF_UNIX, SOCK_STREAM, 0, sides) == 0);
    pst_assert(write(sides[1], in.at, in.left) == (ssize_t)in.left);
    shutdown(sides[1], SHUT_WR);
    pst_assert(link_open(&link, sides[0], 50, fault) == 0);
    pst_assert(link_take_key(&link, (const uint8_t[LINK_CHALLENGE_BYTES]){0}) == 0);
    link_trust(&link);
    if (sends)
        carry_send(&link, &share, &place, &options, &result);
    else
        carry_receive(&link, &share, &place, &options, &result);
    link_close(&link);
    close(sides[0]);
    close(sides[1]);
    pst_assert(count_names() <= 3); /* the source, the target, its hidden folder */
    if (!sends)
        clear_target();
    return 0;
}
