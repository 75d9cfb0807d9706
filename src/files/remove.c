/* SPDX-License-Identifier: Apache-2.0 */
/*
 * remove.c: removals beneath a root. A removal holds a descriptor for each folder on its way down, and names
 * entries only by such a descriptor and one part. A folder that becomes a link meanwhile is not entered: the
 * link is removed. It holds a bounded number of each folder's names at a time.
 */
#include "files/root_priv.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

enum {
    BATCH = 1024,     /* names of a folder that are held at a time */
    AGAIN_MAX = 1024, /* surprises in one removal: others put names into what is being emptied */
};

/* A folder underway, and how far its removal is. The first level is the folder that the removal begins in. */
struct level {
    int fd; /* O_PATH */
    uint32_t at;
    struct pst_names names;
};

struct removal {
    bool recursive;
    uint32_t depth, again, moved;
    uint64_t *removed;
    struct level levels[1 + PST_ROOT_DEPTH_MAX];
};

static int level_read(struct level *level)
{
    int fd = pst_beneath_open(level->fd, "", O_RDONLY | O_DIRECTORY);

    pst_names_fini(&level->names);
    level->at = 0;
    return fd < 0 ? fd : pst_names_read(fd, "", true, BATCH, &level->names);
}

static void removal_leave(struct removal *removal)
{
    struct level *level = &removal->levels[removal->depth];

    pst_assert(removal->depth > 0);
    pst_assert(level->fd >= 0);
    pst_names_fini(&level->names);
    pst_close_fd(&level->fd);
    removal->depth--;
}

static int removal_enter(struct removal *removal, int fd, const char *name)
{
    struct level *level;
    int r;

    pst_assert(removal->depth < PST_ROOT_DEPTH_MAX);
    r = pst_beneath_open(fd, name, O_PATH | O_DIRECTORY);
    if (r < 0)
        return r;
    level = &removal->levels[++removal->depth];
    *level = (struct level){.fd = r};
    r = level_read(level);
    if (r == -EACCES && pst_beneath_open_up(level->fd))
        r = level_read(level);
    if (r < 0)
        removal_leave(removal);
    return r;
}

static int removal_again(struct removal *removal)
{
    return ++removal->again <= AGAIN_MAX ? 0 : -EAGAIN;
}

/* A folder that lies too deep goes on with its removal in the first one that is being emptied. */
static int removal_lift(struct removal *removal, int fd, const char *name)
{
    char lifted[32];
    pst_cleanup_close int folder_fd = -1;
    int r;

    pst_assert(removal->depth == PST_ROOT_DEPTH_MAX);
    snprintf(lifted, sizeof(lifted), PST_KEY_RESERVED "deep-%u", removal->moved++);
    r = pst_beneath_rename_new(fd, name, removal->levels[1].fd, lifted);
    if (r == -EACCES && (folder_fd = pst_beneath_open(fd, name, O_PATH | O_DIRECTORY)) >= 0 &&
        pst_beneath_open_up(folder_fd)) /* its ".." changes, too */
        r = pst_beneath_rename_new(fd, name, removal->levels[1].fd, lifted);
    return r == -EEXIST ? removal_again(removal) : r;
}

static int unlink_any(int fd, const char *name)
{
    if (unlinkat(fd, name, 0) == 0)
        return 0;
    if (errno != EISDIR)
        return -errno;
    if (unlinkat(fd, name, AT_REMOVEDIR) == 0)
        return 0;
    return errno == EEXIST ? -ENOTEMPTY : -errno;
}

/* Whether @error says that another process has changed what lies at a name since it was looked at. */
static bool is_surprise(int error)
{
    return error == -ENOTDIR || error == -ELOOP || error == -EISDIR || error == -ENOENT;
}

/* Removes the deepest folder's next name, or enters it; its turn then comes again once it is empty. */
static int removal_step(struct removal *removal)
{
    struct level *level = &removal->levels[removal->depth];
    struct pst_name *entry = &level->names.list[level->at];
    const char *name = pst_name_text(&level->names, level->at);
    int r = unlink_any(level->fd, name);

    pst_assert(removal->depth <= PST_ROOT_DEPTH_MAX);
    /* In a folder that goes anyway, the user makes room for itself. */
    if (r == -EACCES && removal->depth > 0 && pst_beneath_open_up(level->fd))
        r = unlink_any(level->fd, name);
    if (r == 0 || r == -ENOENT) {
        *removal->removed += r == 0;
        level->at++;
        return 0;
    }
    if (r == -EBUSY && !entry->is_entered) /* what a mounted folder has can go, unlike itself */
        r = -ENOTEMPTY;
    if (r == -ENOTEMPTY && removal->recursive && removal->depth == PST_ROOT_DEPTH_MAX) {
        r = removal_lift(removal, level->fd, name);
    } else if (r == -ENOTEMPTY && removal->recursive) {
        r = entry->is_entered ? removal_again(removal) : 0;
        entry->is_entered = true;
        if (r == 0)
            r = removal_enter(removal, level->fd, name);
    }
    return is_surprise(r) ? removal_again(removal) : r;
}

/* Works until the folder that the removal began in has its turn again. */
static int removal_sink(struct removal *removal)
{
    int r = removal_step(removal);

    while (r == 0 && removal->depth > 0) {
        struct level *level = &removal->levels[removal->depth];

        if (level->at < level->names.count)
            r = removal_step(removal);
        else if (level->names.is_cut)
            r = level_read(level);
        else
            removal_leave(removal);
    }
    while (removal->depth > 0)
        removal_leave(removal);
    pst_assert(removal->depth == 0);
    return r;
}

/* Removes @names, which it takes, of the folder @fd. Return: 0 or the first fault. */
static int remove_names(int fd, struct pst_names *names, bool recursive, uint64_t *removed)
{
    struct removal *removal = malloc(sizeof(*removal));
    struct level *first;
    int fault = 0, r;

    if (!removal) {
        pst_names_fini(names);
        return -ENOMEM;
    }
    removal->recursive = recursive;
    removal->depth = removal->again = removal->moved = 0;
    removal->removed = removed;
    pst_assert(fd >= 0);
    first = &removal->levels[0];
    *first = (struct level){.fd = fd, .names = *names};
    while (first->at < first->names.count) {
        r = removal_sink(removal);
        if (r < 0) { /* the others' turn comes all the same */
            fault = fault ? fault : r;
            removal->again = 0;
            first->at++;
        }
    }
    pst_assert(removal->depth == 0);
    pst_names_fini(&first->names);
    free(removal);
    return fault;
}

int pst_root_remove(const struct pst_root *root, const char *key, bool recursive, uint64_t *removed)
{
    struct pst_names names = {0};
    pst_cleanup_close int fd = -1;
    struct stat st;
    int r;

    if (!pst_key_is_normal(key) || key[0] == '\0')
        return -EINVAL;
    fd = pst_beneath_parent(root, key);
    if (fd < 0)
        return fd;
    if (fstatat(fd, pst_key_leaf(key), &st, AT_SYMLINK_NOFOLLOW) < 0)
        return -errno;
    r = pst_names_add(&names, pst_key_leaf(key), S_ISDIR(st.st_mode));
    return r < 0 ? r : remove_names(fd, &names, recursive, removed);
}

int pst_root_remove_prefix(const struct pst_root *root, const char *prefix, bool recursive, uint64_t *removed)
{
    struct pst_names names;
    pst_cleanup_close int fd = -1;
    int r;

    if (!pst_key_is_normal(prefix) || prefix[0] == '\0')
        return -EINVAL;
    fd = pst_beneath_parent(root, prefix);
    if (fd < 0)
        return fd;
    r = pst_beneath_open(fd, "", O_RDONLY | O_DIRECTORY);
    if (r >= 0)
        r = pst_names_read(r, pst_key_leaf(prefix), true, PST_ROOT_ENTRIES_MAX, &names);
    if (r < 0)
        return r;
    if (names.is_cut) {
        pst_names_fini(&names);
        return -E2BIG;
    }
    return remove_names(fd, &names, recursive, removed);
}
