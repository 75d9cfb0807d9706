/* SPDX-License-Identifier: Apache-2.0 */
/*
 * own.h: files and folders that no other user can have made or can change. Whoever may write to a folder can
 * put a link, or a file of theirs, at any name in it. So a name is opened first, and what was opened is asked
 * whose it is.
 */
#ifndef PST_OWN_H
#define PST_OWN_H

#include "base/error.h"

#include <sys/stat.h>

enum {
    PST_OWN_WRITES = 022, /* what others may not: write it, */
    PST_OWN_USES = 077,   /* nor do anything with it */
};

/*
 * Whether the open @fd is of @type (S_IFREG, S_IFDIR), belongs to this user or root, and none of @forbidden
 * is allowed to others. Return: 0, or -EPERM with the reason as the thread's error text.
 */
int pst_own_check(int fd, mode_t type, mode_t forbidden);
/*
 * Opens a regular file that only this user may write, as openat() does. Links of both kinds are refused: they
 * may lead to another file of this user's. One that is made has mode 0600. Return: a descriptor, or -errno
 * with the reason as the thread's error text.
 */
int pst_own_open(int folder_fd, const char *name, int flags);
/* The same for a new file, in place of whatever had its name. */
int pst_own_replace(int folder_fd, const char *name);

#endif
