/* SPDX-License-Identifier: Apache-2.0 */
/*
 * descriptors.c: how many clients the process has descriptors for. The transport does not survive running out
 * of them, so the bounds are worked out before the first client comes: sessions and handshakes together never
 * need more than there are.
 */
#include "node/node_priv.h"

#include <dirent.h>
#include <stdio.h>
#include <sys/resource.h>

enum {
    HANDSHAKES_MAX = 64,
    HANDSHAKES_SHARD = 4, /* more of them: a client of the stream opens a connection to each shard at once */
    HANDSHAKES_SHARE = 4, /* at most one in so many of the descriptors waits to be authenticated */
    RESERVE = 12,         /* a port that is opened anew, and files that are open for a moment */
    LISTENERS_RESERVE = 2,
    EACH_SHARD = 2, /* of a session: one connection, and for a moment its other direction */
};

/* Return: those that the process may still open, or -errno. */
static int64_t left(void)
{
    DIR *dir = opendir("/proc/self/fd");
    struct rlimit limit;
    int64_t open_count = -3; /* ".", ".." and the folder's own */

    if (!dir)
        return -errno;
    while (readdir(dir))
        open_count++;
    closedir(dir);
    if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
        return -errno;
    if (limit.rlim_cur == RLIM_INFINITY || limit.rlim_cur > INT32_MAX)
        return INT32_MAX;
    return (int64_t)limit.rlim_cur - open_count;
}

int pst_node_fit_descriptors(struct pst_node *node, uint32_t listeners, uint32_t *handshakes_max, char *fault)
{
    int64_t free_count = left(), each = 1 + EACH_SHARD * (int64_t)node->worker_count, sessions;
    uint32_t most = HANDSHAKES_MAX + (node->stream ? HANDSHAKES_SHARD * node->worker_count : 0);

    pst_assert(node->worker_count > 0);
    pst_assert(node->sessions_max > 0);
    if (free_count < 0) {
        snprintf(fault, PST_FAULT_BYTES, "counting descriptors in /proc/self/fd: %s",
                 strerror((int)-free_count));
        return (int)free_count;
    }
    free_count -= RESERVE + LISTENERS_RESERVE + (int64_t)listeners;
    *handshakes_max = (uint32_t)pst_min(most, (uint64_t)(free_count > 0 ? free_count / HANDSHAKES_SHARE : 0));
    sessions = (free_count - *handshakes_max) / each;
    if (*handshakes_max == 0 || sessions < 1) {
        snprintf(fault, PST_FAULT_BYTES,
                 "the limit on open files (RLIMIT_NOFILE) leaves no room for a client: %lld are missing",
                 (long long)(each + HANDSHAKES_SHARE - free_count));
        return -EMFILE;
    }
    if (sessions < node->sessions_max) {
        pst_node_log(node, "the limit on open files leaves room for %lld of %u sessions", (long long)sessions,
                     node->sessions_max);
        node->sessions_max = (uint32_t)sessions;
    }
    pst_assert(node->sessions_max > 0);
    pst_assert(*handshakes_max > 0);
    return 0;
}
