/* SPDX-License-Identifier: Apache-2.0 */
/*
 * root.h: a folder of which keys are the paths beneath it, as `key.h` makes them. Whoever may write there can
 * put a symbolic link at any name, at any time. So every name is opened through openat2(), which resolves it
 * beneath the root and follows no link. A link is an entry like a file: it is listed, and removed itself.
 *
 * Any thread: a root does not change once it is open. Calls wait for the file system. Failures leave a reason
 * as the thread's error text only where it says so. Source: docs/explanation/rooms.md, files.
 *
 * Every call that takes a key may return, besides what it says:
 *     -EINVAL        the key has no normal form
 *     -ENOENT        nothing is there
 *     -ENOTDIR       a part in front of the last one is a file
 *     -ELOOP         one is a symbolic link
 *     -EAGAIN        folders were renamed again and again while it looked
 *     -EACCES, -EIO, -EMFILE, ...  what the file system said
 */
#ifndef PST_FILES_ROOT_H
#define PST_FILES_ROOT_H

#include "base/base.h"

enum {
    PST_ROOT_ENTRIES_MAX = 1 << 17, /* of one listing, or of names with one prefix */
    PST_ROOT_DEPTH_MAX = 256,       /* folders within each other that a removal holds at a time */
};

struct pst_root;

/* Opens the folder @path, which is there; links on the way to it are its owner's choice. Return: 0 and *out,
 * or -errno with the reason, -ENOSYS where the kernel has no openat2() (before 5.6) among them. */
int pst_root_open(const char *path, struct pst_root **out);
/* Returns NULL. */
struct pst_root *pst_root_close(struct pst_root *root);

struct pst_root_entry {
    const char *name; /* borrowed during the call */
    bool is_directory;
};

typedef void pst_root_each(void *arg, const struct pst_root_entry *entry);

/*
 * Calls @each for what the folder @key has: directories first, then by name. Names that begin with a dot are
 * left out. @each may call back. Return: 0, -ENOTDIR @key is no folder, -E2BIG more than
 * PST_ROOT_ENTRIES_MAX. On failure @each was not called.
 */
int pst_root_list(const struct pst_root *root, const char *key, pst_root_each *each, void *arg);

struct pst_root_stat {
    bool is_directory, is_link;
    uint64_t bytes;      /* of a file */
    int64_t modified_ms; /* since 1970 */
};

/* Of @key itself; a link at its end is not followed. */
int pst_root_stat(const struct pst_root *root, const char *key, struct pst_root_stat *out);

/* What has been written below the root survives a power failure. Return: 0 or -errno. */
int pst_root_sync(const struct pst_root *root);

/* Makes the folder @key and those in front of it, as far as they are missing. Return: 0, also if it was
 * there; -ENOTDIR a file is there, or in front of it. */
int pst_root_mkdir(const struct pst_root *root, const char *key);

/*
 * @by takes the place of @key at once, whatever each of them is, and what @key had is removed. A folder's
 * place is taken only if all that it has are files whose names begin with @values, or what has not arrived:
 * also once nobody finds it any more, as what came meanwhile would go with it. Return: 0; -ENOTEMPTY it has
 * more, and both are where they were; -EINVAL also: one is the other, or lies in it.
 */
int pst_root_replace(const struct pst_root *root, const char *key, const char *by, const char *values);

/* The folder @key, open for names in it. Return: a descriptor, or -errno. */
int pst_root_open_folder(const struct pst_root *root, const char *key);

/*
 * Removes @key: a file, a link, an empty folder; if @recursive a folder with all that it has. *removed grows
 * by what was removed, also if the call fails later. A folder of the user's that it may not write in is no
 * obstacle below @key. Return: 0, -ENOTEMPTY. -EINVAL also: @key is the root's, which ".." in a key ends at,
 * so that no request that climbs too high removes everything.
 */
int pst_root_remove(const struct pst_root *root, const char *key, bool recursive, uint64_t *removed);

/*
 * Removes each entry whose key begins with @prefix, up to the next slash: of "a/mo" those in "a" whose names
 * begin with "mo", names with a dot in front too. An entry that cannot be removed does not keep the others.
 * The first fault is returned, otherwise 0, also if there is none. *removed and -EINVAL as above, -E2BIG as
 * in a listing.
 */
int pst_root_remove_prefix(const struct pst_root *root, const char *prefix, bool recursive,
                           uint64_t *removed);

#endif
