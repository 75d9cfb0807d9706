/* SPDX-License-Identifier: Apache-2.0 */
/*
 * owner.c: processes that own what the agent serves. A PID names one together with the time at which it
 * began, since PIDs come again.
 */
#include "agent/pod/pod_priv.h"

#include <fcntl.h>
#include <stdio.h>

/* The fields of /proc/PID/stat, as proc(5) counts them. */
enum { STATE_FIELD = 3, BEGAN_FIELD = 22 };

/*
 * When the process began, in the kernel's ticks. Return: 0; -ESRCH there is none, or it has ended and its
 * parent has not asked for it yet; -errno what does not say whether there is one.
 */
static int process_began(pid_t pid, uint64_t *began)
{
    char name[32], text[1024];
    pst_cleanup_close int fd = -1;
    const char *at;
    ssize_t n;

    snprintf(name, sizeof(name), "/proc/%d/stat", (int)pid);
    fd = open(name, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT ? -ESRCH : -errno;
    n = read(fd, text, sizeof(text) - 1);
    if (n <= 0)
        return n < 0 ? -errno : -EIO;
    text[n] = 0;
    at = strrchr(text, ')'); /* the name of a program may have blanks and brackets */
    for (int field = STATE_FIELD - 1; at && field < BEGAN_FIELD; field++) {
        at = strchr(at + 1, ' ');
        if (at && field == STATE_FIELD - 1 && (at[1] == 'Z' || at[1] == 'X'))
            return -ESRCH;
    }
    if (!at)
        return -EIO;
    *began = strtoull(at + 1, NULL, 10);
    return 0;
}

int owner_of(pid_t pid, struct owner *owner, char fault[PST_FAULT_BYTES])
{
    uint64_t began = 0;
    int r = pid == 0 ? 0 : process_began(pid, &began);

    if (r < 0) {
        snprintf(fault, PST_FAULT_BYTES, "there is no process %d, or it cannot be asked: %s", (int)pid,
                 strerror(-r));
        return r;
    }
    *owner = (struct owner){.pid = pid, .began = began};
    return 0;
}

bool owner_is(const struct owner *a, const struct owner *b)
{
    return a->pid == b->pid && a->began == b->began;
}

bool owner_lives(const struct owner *owner)
{
    uint64_t began = 0;
    int r = owner->pid == 0 ? 0 : process_began(owner->pid, &began);

    return r == 0 ? owner->pid == 0 || began == owner->began : r != -ESRCH;
}
