/* SPDX-License-Identifier: Apache-2.0 */
/* hidden.c: the hidden folder of an arrival: where it lies, and whose turn it is. */
#include "files/tree/arrival_priv.h"

#include "base/error.h"
#include "base/own.h"
#include "files/root_priv.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>

#define HIDDEN_BACK ".tree"

enum { HIDDEN_TRIES = 100 };

void pst_arrival_name_of(const char *leaf, const char *suffix, char out[PST_ARRIVAL_NAME_BYTES])
{
    int bytes = snprintf(out, PST_ARRIVAL_NAME_BYTES, PST_KEY_RESERVED "%s%s", leaf, suffix);

    if (bytes >= PST_ARRIVAL_NAME_BYTES) {
        arrival_name(out, PST_KEY_RESERVED, leaf);
        strcat(out, suffix);
    }
    pst_assert(strlen(out) < PST_ARRIVAL_NAME_BYTES);
}

/* For NFS a folder's lock is the host's own, and a file's is all hosts'. Return: 0; -EBUSY another host has
 * it; -ENOENT, -ESTALE it has gone meanwhile; -errno. */
static int hidden_lock_file(int hidden_fd, int *lock_fd)
{
    const int flags = O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;
    struct stat locked, named;

    pst_assert(hidden_fd >= 0);
    pst_assert(*lock_fd < 0);
    *lock_fd = openat(hidden_fd, ARRIVAL_LOCK, flags, 0600);
    if (*lock_fd < 0 && (errno == ENOSPC || errno == EDQUOT)) /* what is left is to be removed all the same */
        return 0;
    if (*lock_fd < 0)
        return -errno;
    if (flock(*lock_fd, LOCK_EX | LOCK_NB) < 0 && errno == EWOULDBLOCK) /* not all file systems know it */
        return -EBUSY;
    return fstat(*lock_fd, &locked) == 0 &&
                   fstatat(hidden_fd, ARRIVAL_LOCK, &named, AT_SYMLINK_NOFOLLOW) == 0 &&
                   locked.st_ino == named.st_ino
               ? 0
               : -ESTALE;
}

/* Locks the hidden folder. Return: 0, *@fd and *@lock_fd; -ENOENT there is none; -ESTALE another host has
 * removed it meanwhile; -EPERM another user may use it, with pst_error_text(); -EBUSY an arrival is underway;
 * -errno. */
static int hidden_lock(int home_fd, const char *hidden, int *fd, int *lock_fd)
{
    int r;

    *fd = openat(home_fd, hidden, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (*fd < 0)
        return -errno;
    r = pst_own_check(*fd, S_IFDIR, PST_OWN_USES);
    if (r == 0 && flock(*fd, LOCK_EX | LOCK_NB) < 0)
        r = errno == EWOULDBLOCK ? -EBUSY : -errno;
    return r == 0 ? hidden_lock_file(*fd, lock_fd) : r;
}

/* Makes the hidden folder, or takes the one of an arrival that broke off, and locks it. Return: 0; -ESTALE
 * another arrival has ended with it meanwhile; -errno, with the arrival's fault. */
static int arrival_try_hidden(struct pst_arrival *a)
{
    struct stat st;
    int r;

    pst_assert(a->home_fd >= 0);
    r = mkdirat(a->home_fd, a->hidden, 0700);
    if (r < 0 && errno == EACCES && a->within && pst_beneath_open_up(a->home_fd)) /* until the end */
        r = mkdirat(a->home_fd, a->hidden, 0700);
    if (r < 0 && errno != EEXIST)
        return arrival_fail(a, -errno, "");
    r = hidden_lock(a->home_fd, a->hidden, &a->hidden_fd, &a->lock_fd);
    if (r == -ENOENT || r == -ESTALE)
        return -ESTALE;
    if (r == -EPERM)
        snprintf(a->fault, sizeof(a->fault), "%.150s: %.90s", a->hidden, pst_error_text());
    else if (r == -EBUSY)
        snprintf(a->fault, sizeof(a->fault), "%.150s: it is arriving from elsewhere already", a->leaf);
    else if (r < 0)
        arrival_fail(a, r, "");
    if (r < 0)
        return r;
    return fstat(a->hidden_fd, &st) == 0 && st.st_nlink > 0 ? 0 : -ESTALE;
}

#ifndef STATX_MNT_ID_UNIQUE /* Linux 6.8 */
#define STATX_MNT_ID_UNIQUE 0x4000u
#endif

uint64_t arrival_mount_of(int fd, bool *unique)
{
    struct statx st;

    if (statx(fd, "", AT_EMPTY_PATH, STATX_MNT_ID | STATX_MNT_ID_UNIQUE, &st) < 0 ||
        !(st.stx_mask & (STATX_MNT_ID | STATX_MNT_ID_UNIQUE)))
        return 0;
    if (unique)
        *unique = st.stx_mask & STATX_MNT_ID_UNIQUE;
    return st.stx_mnt_id;
}

/* Files get their places by renames, for which both must be of one mount: of a destination that is a
 * mounted folder, or lies in one that others own, the hidden folder is within. Return: 0 or -errno. */
static int arrival_find_home(struct pst_arrival *a)
{
    pst_cleanup_close int there =
        openat(a->parent_fd, a->leaf, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    struct stat parent, st;

    a->within = there >= 0 && fstat(there, &st) == 0 && fstat(a->parent_fd, &parent) == 0 &&
                (st.st_dev != parent.st_dev ||
                 arrival_mount_of(there, NULL) != arrival_mount_of(a->parent_fd, NULL) ||
                 faccessat(a->parent_fd, ".", W_OK, AT_EACCESS) < 0);

    pst_arrival_name_of(a->within ? "" : a->leaf, HIDDEN_BACK, a->hidden);
    a->home_fd = fcntl(a->within ? there : a->parent_fd, F_DUPFD_CLOEXEC, 0);
    return a->home_fd < 0 ? -errno : 0;
}

int arrival_open_hidden(struct pst_arrival *a)
{
    int r = arrival_find_home(a);

    if (r < 0)
        return arrival_fail(a, r, "");
    r = -ESTALE;
    for (int tries = 0; r == -ESTALE && tries < HIDDEN_TRIES; tries++) {
        pst_close_fd(&a->hidden_fd);
        pst_close_fd(&a->lock_fd);
        r = arrival_try_hidden(a);
    }
    return r == -ESTALE ? arrival_fail(a, -EBUSY, "") : r;
}

/* Return: 1, 0 there is none, -errno. */
static int hidden_remove(int home_fd, const char *hidden)
{
    pst_cleanup_close int fd = -1;
    pst_cleanup_close int lock_fd = -1;
    int r = hidden_lock(home_fd, hidden, &fd, &lock_fd);

    if (r == 0)
        r = arrival_remove_hidden(home_fd, hidden, fd, &lock_fd);
    return r < 0 ? (r == -ENOENT || r == -ESTALE ? 0 : r) : 1;
}

int pst_arrival_forget(int parent_fd, const char *leaf)
{
    pst_cleanup_close int there = openat(parent_fd, leaf, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    char hidden[PST_ARRIVAL_NAME_BYTES];
    int beside, within = 0;

    pst_arrival_name_of(leaf, HIDDEN_BACK, hidden);
    beside = hidden_remove(parent_fd, hidden);
    pst_arrival_name_of("", HIDDEN_BACK, hidden);
    if (there >= 0)
        within = hidden_remove(there, hidden);
    if (beside < 0 || within < 0)
        return beside < 0 ? beside : within;
    return beside || within;
}

static bool hidden_is_one(const char *name)
{
    const size_t back = sizeof(HIDDEN_BACK) - 1;

    return strlen(name) > back && strcmp(name + strlen(name) - back, HIDDEN_BACK) == 0;
}

int pst_arrival_forget_prefix(int parent_fd, const char *prefix, uint64_t *removed)
{
    char begin[PST_ARRIVAL_NAME_BYTES];
    struct pst_names names;
    int fd, r;

    pst_assert(*prefix);
    if (snprintf(begin, sizeof(begin), PST_KEY_RESERVED "%s", prefix) >= (int)sizeof(begin))
        return 0; /* no name is as long */
    fd = pst_beneath_open(parent_fd, "", O_RDONLY | O_DIRECTORY);
    r = fd < 0 ? fd : pst_names_read(fd, begin, true, PST_ROOT_ENTRIES_MAX, &names);
    if (r < 0)
        return r;
    for (uint32_t i = 0; i < names.count; i++) {
        const char *name = pst_name_text(&names, i);

        *removed += hidden_is_one(name) && hidden_remove(parent_fd, name) > 0;
    }
    pst_names_fini(&names);
    return 0;
}
