/* SPDX-License-Identifier: Apache-2.0 */
#include "base/own.h"
#include "base/base.h"

#include <fcntl.h>

int pst_own_check(int fd, mode_t type, mode_t forbidden)
{
    struct stat st;

    pst_assert(fd >= 0);
    pst_assert(type == S_IFREG || type == S_IFDIR);
    if (fstat(fd, &st) < 0)
        return pst_fail(-errno, "%s", strerror(errno));
    if (S_ISLNK(st.st_mode))
        return pst_fail(-EPERM, "a symbolic link");
    if ((st.st_mode & S_IFMT) != type)
        return pst_fail(-EPERM, "not a %s", type == S_IFREG ? "regular file" : "folder");
    if (st.st_uid != geteuid() && st.st_uid != 0)
        return pst_fail(-EPERM, "it is user %u's, not this user's", (unsigned)st.st_uid);
    if (st.st_mode & forbidden)
        return pst_fail(-EPERM, "other users may %s it (mode %04o)", forbidden & 044 ? "use" : "write",
                        (unsigned)(st.st_mode & 07777));
    return 0;
}

int pst_own_open(int folder_fd, const char *name, int flags)
{
    /* A pipe would wait for its other end. */
    int fd = openat(folder_fd, name, flags | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY, 0600), r;
    struct stat st;

    pst_assert(!(flags & O_TRUNC)); /* nothing is done to a file before it is known whose it is */
    if (fd < 0)
        return pst_fail(-errno, "%s", errno == ELOOP ? "a symbolic link" : strerror(errno));
    r = pst_own_check(fd, S_IFREG, PST_OWN_WRITES);
    if (r == 0 && fstat(fd, &st) == 0 && st.st_nlink > 1)
        r = pst_fail(-EPERM, "it has another name, too (a hard link)");
    pst_assert(r <= 0);
    if (r < 0)
        close(fd);
    return r < 0 ? r : fd;
}

int pst_own_replace(int folder_fd, const char *name)
{
    pst_assert(name[0] != '\0');
    if (unlinkat(folder_fd, name, 0) < 0 && errno != ENOENT)
        return pst_fail(-errno, "%s", strerror(errno));
    return pst_own_open(folder_fd, name, O_WRONLY | O_CREAT | O_EXCL);
}
