/* SPDX-License-Identifier: Apache-2.0 */
/* settle.c: the destination gets what has arrived. */
#include "files/tree/arrival_priv.h"

#include "files/root_priv.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

/* ---- a destination that is there: entry by entry ---- */

/* Or it is there. */
static bool settle_makes_folder(int fd, const char *leaf)
{
    struct stat st;

    return mkdirat(fd, leaf, 0700) == 0 ||
           (fstatat(fd, leaf, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode));
}

int arrival_settle_folder(struct pst_arrival *a, const struct pst_entry *entry)
{
    const char *leaf;
    int fd = arrival_parent(a, &a->there, entry->path, &leaf);

    pst_assert(entry->kind == PST_ENTRY_FOLDER);
    if (fd < 0)
        return arrival_fail(a, fd, entry->path);
    if (settle_makes_folder(fd, leaf) || (pst_beneath_open_up(fd) && settle_makes_folder(fd, leaf)))
        return 0;
    if (unlinkat(fd, leaf, 0) < 0 && errno != ENOENT) /* a file, or a link, makes room */
        return arrival_fail(a, -errno, entry->path);
    return mkdirat(fd, leaf, 0700) < 0 ? arrival_fail(a, -errno, entry->path) : 0;
}

/* Folders that their owner may not write in get back their modes at the arrival's end. */
int arrival_rename(struct pst_arrival *a, const struct pst_entry *entry, int from_fd, const char *from)
{
    const char *to;
    int to_fd = arrival_parent(a, &a->there, entry->path, &to);
    bool opened;

    if (from_fd < 0 || to_fd < 0)
        return arrival_fail(a, from_fd < 0 ? from_fd : to_fd, entry->path);
    if (renameat(from_fd, from, to_fd, to) == 0)
        return 0;
    if (errno == EACCES) {
        opened = pst_beneath_open_up(to_fd);
        if ((pst_beneath_open_up(from_fd) || opened) && renameat(from_fd, from, to_fd, to) == 0)
            return 0;
    }
    if (errno != EXDEV)
        return arrival_fail(a, -errno, entry->path);
    arrival_released(a); /* it needs the room */
    return arrival_copy(a, entry, from_fd, from, to_fd, to);
}

int arrival_settle_arrived(struct pst_arrival *a, const struct pst_entry *entry)
{
    const char *from;
    int from_fd = arrival_parent(a, &a->made, entry->path, &from);

    pst_assert(entry->kind != PST_ENTRY_FOLDER);
    return arrival_rename(a, entry, from_fd, from);
}

/* A file that was not asked for may have another mode. It is the file that was looked at that gets it: others
 * may put a link in its place at any time. */
static int settle_mode(struct pst_arrival *a, const struct pst_entry *entry)
{
    const char *leaf;
    struct stat st;
    int folder_fd = arrival_parent(a, &a->there, entry->path, &leaf), r = 0;
    pst_cleanup_close int fd = -1;

    pst_assert(entry->kind != PST_ENTRY_FOLDER);
    if (folder_fd < 0)
        return arrival_fail(a, folder_fd, entry->path);
    fd = openat(folder_fd, leaf, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) < 0)
        return arrival_fail(a, -errno, entry->path);
    if (S_ISREG(st.st_mode) && (st.st_mode & 07777) != entry->mode)
        r = pst_beneath_chmod(fd, entry->mode);
    return r < 0 ? arrival_fail(a, r, entry->path) : 0;
}

static int settle_each(struct pst_arrival *a)
{
    struct stat st;
    int r = 0;

    pst_assert(a->exists);
    pst_assert(a->missing == 0);
    for (uint32_t i = 0; r == 0 && i < a->m->count; i++)
        r = arrival_check_place(a, &a->m->entries[i], &st);
    for (uint32_t i = 0; r == 0 && i < a->m->count; i++) {
        const struct pst_entry *entry = &a->m->entries[i];

        if (entry->kind == PST_ENTRY_FOLDER)
            r = *entry->path ? arrival_settle_folder(a, entry) : 0;
        else
            r = a->arrived[i] ? arrival_settle_arrived(a, entry) : settle_mode(a, entry);
    }
    return r;
}

/* ---- both ---- */

/* A disk says only once that it could not write. Return: 0 or -errno. */
static int settle_sync_disk(struct pst_arrival *a, int fd)
{
    int r = syncfs(fd) < 0 ? -errno : 0;

    pst_assert(fd >= 0);
    if (r < 0)
        arrival_unmark(a);
    return r;
}

int arrival_note_disk(struct pst_arrival *a, int folder_fd)
{
    struct stat st;

    pst_assert(folder_fd >= 0);
    if (!(a->flags & PST_ARRIVAL_SYNC) || fstat(folder_fd, &st) < 0)
        return 0;
    for (size_t i = 0; i < pst_count_of(a->disks); i++) {
        struct arrival_disk *disk = &a->disks[i];

        if (disk->fd >= 0 && disk->device == st.st_dev)
            return 0;
        if (disk->fd >= 0)
            continue;
        disk->device = st.st_dev;
        disk->fd = fcntl(folder_fd, F_DUPFD_CLOEXEC, 0);
        return disk->fd < 0 ? -errno : 0;
    }
    return settle_sync_disk(a, folder_fd); /* there are many: each folder by itself */
}

static int settle_one_folder(struct pst_arrival *a, const struct arrival_folder *beneath,
                             const struct pst_entry *entry)
{
    pst_cleanup_close int fd = pst_beneath_open(beneath->root_fd, entry->path, O_RDONLY | O_DIRECTORY);
    struct timespec times[2];
    int r;

    pst_assert(entry->kind == PST_ENTRY_FOLDER);
    if (fd < 0)
        return arrival_fail(a, fd, entry->path);
    arrival_times(entry, times);
    r = fchmod(fd, entry->mode) < 0 || futimens(fd, times) < 0 ? -errno : arrival_note_disk(a, fd);
    return r < 0 ? arrival_fail(a, r, entry->path) : 0;
}

/* Modes and times of folders but the tree's own, the last first: what is done within them changes the times.
 */
static int settle_folders(struct pst_arrival *a, const struct arrival_folder *beneath)
{
    int r = 0;

    pst_assert(a->m->count > 0);
    for (uint32_t i = a->m->count - 1; r == 0 && i > 0; i--) {
        if (a->m->entries[i].kind == PST_ENTRY_FOLDER)
            r = settle_one_folder(a, beneath, &a->m->entries[i]);
    }
    return r;
}

int arrival_sync(struct pst_arrival *a)
{
    int r = 0;

    for (size_t i = 0; r == 0 && i < pst_count_of(a->disks); i++)
        r = a->disks[i].fd >= 0 ? settle_sync_disk(a, a->disks[i].fd) : 0;
    return r < 0 ? arrival_fail(a, r, "") : 0;
}

/* A destination that was not there gets all at once. Return: 0, -EEXIST it is there now. */
static int settle_at_once(struct pst_arrival *a)
{
    int r = 0;

    pst_assert(!a->exists);
    pst_assert(a->missing == 0);
    if (a->m->entries[0].kind == PST_ENTRY_FOLDER)
        r = settle_folders(a, &a->made);
    if (r < 0)
        return r;
    r = pst_beneath_rename_new(a->hidden_fd, "tree", a->parent_fd, a->leaf);
    return r < 0 ? arrival_fail(a, r, "") : 0;
}

/* The destination was a folder that has been removed since, and nothing of it is needed. */
static bool settle_is_free_again(const struct pst_arrival *a)
{
    struct stat st;

    pst_assert(a->exists);
    pst_assert(a->arrived);
    if (a->there.root_fd < 0 || fstat(a->there.root_fd, &st) < 0 || st.st_nlink > 0)
        return false;
    for (uint32_t i = 0; i < a->m->count; i++) {
        if (a->m->entries[i].kind != PST_ENTRY_FOLDER && !a->arrived[i])
            return false;
    }
    return true;
}

/* Where the destination was, another one may be by now. Return: 0 or the arrival's fault. */
static int settle_look_again(struct pst_arrival *a)
{
    pst_assert(a->exists);
    if (!settle_is_free_again(a))
        return 0;
    pst_close_fd(&a->there.fd);
    pst_close_fd(&a->there.root_fd);
    a->exists = false;
    return arrival_look_there(a);
}

/* The destination becomes the tree, but for a folder's own mode and time. */
static int settle_all(struct pst_arrival *a)
{
    bool is_folder = a->m->entries[0].kind == PST_ENTRY_FOLDER;
    int r = a->exists ? settle_look_again(a) : 0;

    if (r == 0 && !a->exists)
        r = settle_at_once(a);
    if (r == -EEXIST)
        r = arrival_look_there(a);
    if (r == 0 && a->exists) {
        r = settle_each(a);
        if (r == 0 && is_folder)
            r = settle_folders(a, &a->there);
    }
    return r;
}

/* They come last: the hidden folder may have been in there, and not everyone can rename a folder without the
 * right to write. */
static int settle_root(struct pst_arrival *a)
{
    const struct pst_entry *root = &a->m->entries[0];

    return root->kind == PST_ENTRY_FOLDER ? settle_one_folder(a, a->exists ? &a->there : &a->made, root) : 0;
}

int pst_arrival_end(struct pst_arrival *a, struct pst_arrival_result *result)
{
    int r;

    pst_assert(a->magic == ARRIVAL_MAGIC);
    pst_assert(a->m);
    pst_assert(!a->settled);
    if (a->missing > 0)
        return arrival_fail(a, -EPROTO, "");
    arrival_released(a); /* what comes next has the room */
    r = arrival_sync(a); /* bytes before the names and times that say that they are there, and those now */
    if (r == 0)
        r = settle_all(a);
    if (r < 0)
        return r;
    arrival_remove_hidden(a->home_fd, a->hidden, a->hidden_fd,
                          &a->lock_fd); /* what cannot be removed is in nobody's way */
    r = settle_root(a);
    if (r == 0)
        r = arrival_sync(a);
    if (r < 0)
        return r;
    pst_assert(a->missing == 0);
    a->settled = true;
    a->result.files = a->m->file_count;
    a->result.bytes = a->m->file_bytes;
    *result = a->result;
    return 0;
}
