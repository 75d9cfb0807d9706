/* SPDX-License-Identifier: Apache-2.0 */
/* root.c: names beneath the root, opened, listed and made. remove.c has the removals. */
#include "files/root_priv.h"
#include "base/error.h"

#include <fcntl.h>
#include <stdio.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#define ROOT_MAGIC 0x726f6f74u

enum {
    OPEN_TRIES = 128,   /* the kernel gives up a look-up that a rename got in the way of */
    FOLDER_MODE = 0755, /* of folders that are made, less the umask */
};

struct pst_root {
    uint32_t magic;
    int fd;
};

int pst_root_fd(const struct pst_root *root)
{
    pst_assert(root->magic == ROOT_MAGIC);
    pst_assert(root->fd >= 0);
    return root->fd;
}

int pst_beneath_open(int folder_fd, const char *path, int flags)
{
    const struct open_how how = {
        .flags = (uint64_t)(flags | O_CLOEXEC),
        .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS,
    };

    pst_assert(folder_fd >= 0);
    pst_assert(!(flags & (O_CREAT | O_TRUNC)));
    for (int tries = 0; tries < OPEN_TRIES; tries++) {
        long fd = syscall(SYS_openat2, folder_fd, *path ? path : ".", &how, sizeof(how));

        if (fd >= 0)
            return (int)fd;
        if (errno != EAGAIN && errno != EINTR)
            return -errno;
    }
    return -EAGAIN;
}

int pst_beneath_chmod(int fd, mode_t mode)
{
    char path[64];

    pst_assert(fd >= 0);
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd); /* which leads there, whatever the name is now */
    return chmod(path, mode) < 0 ? -errno : 0;
}

bool pst_beneath_open_up(int folder_fd)
{
    struct stat st;

    return fstat(folder_fd, &st) == 0 && st.st_uid == geteuid() && (st.st_mode & S_IRWXU) != S_IRWXU &&
           pst_beneath_chmod(folder_fd, (st.st_mode & 07777) | S_IRWXU) == 0;
}

/* For file systems that take no flags, such as NFS: a plain rename replaces a folder only if it is empty. */
static int beneath_rename_plain(int from_fd, const char *from, int to_fd, const char *to)
{
    struct stat st;
    int r;

    if (fstatat(from_fd, from, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return -errno;
    if (S_ISDIR(st.st_mode)) {
        if (mkdirat(to_fd, to, 0700) < 0)
            return -errno;
        if (renameat(from_fd, from, to_fd, to) == 0)
            return 0;
        r = -errno;
        unlinkat(to_fd, to, AT_REMOVEDIR);
        return r;
    }
    return linkat(from_fd, from, to_fd, to, 0) < 0 || unlinkat(from_fd, from, 0) < 0 ? -errno : 0;
}

int pst_beneath_rename_new(int from_fd, const char *from, int to_fd, const char *to)
{
    pst_assert(from_fd >= 0);
    pst_assert(to_fd >= 0);
    if (renameat2(from_fd, from, to_fd, to, RENAME_NOREPLACE) == 0)
        return 0;
    return errno == EINVAL ? beneath_rename_plain(from_fd, from, to_fd, to) : -errno;
}

int pst_beneath_parent(const struct pst_root *root, const char *key)
{
    char folder[PST_KEY_CAP];
    const char *leaf = pst_key_leaf(key);
    size_t len = leaf == key ? 0 : (size_t)(leaf - key - 1);

    pst_assert(len < sizeof(folder));
    memcpy(folder, key, len);
    folder[len] = '\0';
    return pst_beneath_open(pst_root_fd(root), folder, O_PATH | O_DIRECTORY);
}

int pst_root_open(const char *path, struct pst_root **out)
{
    struct pst_root *root = malloc(sizeof(*root));
    int fd, r;

    if (!root)
        return pst_fail(-ENOMEM, "out of memory");
    *root = (struct pst_root){ROOT_MAGIC, open(path, O_PATH | O_DIRECTORY | O_CLOEXEC)};
    if (root->fd < 0) {
        r = pst_fail(-errno, "folder %s: %s", path, strerror(errno));
        pst_root_close(root);
        return r;
    }
    fd = pst_beneath_open(root->fd, "", O_RDONLY | O_DIRECTORY);
    if (fd < 0) {
        pst_root_close(root);
        return pst_fail(fd, "folder %s: opening names beneath it (openat2): %s", path, strerror(-fd));
    }
    close(fd);
    *out = root;
    return 0;
}

struct pst_root *pst_root_close(struct pst_root *root)
{
    if (!root)
        return NULL;
    pst_assert(root->magic == ROOT_MAGIC);
    root->magic = 0;
    pst_close_fd(&root->fd);
    free(root);
    return NULL;
}

int pst_root_list(const struct pst_root *root, const char *key, pst_root_each *each, void *arg)
{
    struct pst_names names;
    int r;

    if (!pst_key_is_normal(key))
        return -EINVAL;
    r = pst_beneath_open(pst_root_fd(root), key, O_RDONLY | O_DIRECTORY);
    if (r >= 0)
        r = pst_names_read(r, "", false, PST_ROOT_ENTRIES_MAX, &names);
    if (r < 0)
        return r;
    if (names.is_cut) {
        pst_names_fini(&names);
        return -E2BIG;
    }
    pst_names_sort(&names);
    for (uint32_t i = 0; i < names.count; i++)
        each(arg, &(struct pst_root_entry){pst_name_text(&names, i), names.list[i].is_directory});
    pst_names_fini(&names);
    return 0;
}

int pst_root_stat(const struct pst_root *root, const char *key, struct pst_root_stat *out)
{
    pst_cleanup_close int fd = -1;
    struct stat st;
    int r;

    if (!pst_key_is_normal(key))
        return -EINVAL;
    fd = *key ? pst_beneath_parent(root, key) : pst_beneath_open(pst_root_fd(root), "", O_PATH | O_DIRECTORY);
    if (fd < 0)
        return fd;
    r = *key ? fstatat(fd, pst_key_leaf(key), &st, AT_SYMLINK_NOFOLLOW) : fstat(fd, &st);
    if (r < 0)
        return -errno;
    *out = (struct pst_root_stat){
        .is_directory = S_ISDIR(st.st_mode),
        .is_link = S_ISLNK(st.st_mode),
        .bytes = S_ISREG(st.st_mode) ? (uint64_t)st.st_size : 0,
        .modified_ms = st.st_mtim.tv_sec * 1000 + st.st_mtim.tv_nsec / 1000000,
    };
    return 0;
}

/* ---- one in another's place ---- */

/* Those of @names that are no more than @values, or what has not arrived: 0, else -ENOTEMPTY. */
static int names_give_way(const struct pst_names *names, const char *values)
{
    pst_assert(*values);
    pst_assert(names->count <= PST_ROOT_ENTRIES_MAX);
    for (uint32_t i = 0; i < names->count; i++) {
        const char *name = pst_name_text(names, i);
        bool goes = !names->list[i].is_directory && strncmp(name, values, strlen(values)) == 0;

        if (!goes && !pst_key_is_reserved(name))
            return -ENOTEMPTY;
    }
    return 0;
}

/* What the folder @key has, nothing if it is none. Return: as of names_give_way(); *out is to be freed then,
 * too. */
static int folder_look(const struct pst_root *root, const char *key, const char *values,
                       struct pst_names *out)
{
    int r = pst_beneath_open(pst_root_fd(root), key, O_RDONLY | O_DIRECTORY);

    pst_assert(pst_key_is_normal(key));
    *out = (struct pst_names){0};
    if (r < 0)
        return r == -ENOTDIR || r == -ENOENT || r == -ELOOP ? 0 : r;
    r = pst_names_read(r, "", true, PST_ROOT_ENTRIES_MAX, out);
    return r < 0 ? r : names_give_way(out, values);
}

static int folder_gives_way(const struct pst_root *root, const char *key, const char *values)
{
    struct pst_names names;
    int r = folder_look(root, key, values, &names);

    pst_names_fini(&names);
    return r;
}

/* Removes @key, and of a folder what gives way and nothing else: whoever came into it before it was hidden
 * may still put names there. */
static int remove_replaced(const struct pst_root *root, const char *key, const char *values)
{
    uint64_t removed = 0;
    int r = -ENOTEMPTY;

    pst_assert(pst_key_is_normal(key) && *key);
    for (int tries = 0; r == -ENOTEMPTY && tries < OPEN_TRIES; tries++) {
        struct pst_names names;

        r = folder_look(root, key, values, &names);
        pst_names_sort_by_name(&names); /* values go last */
        for (uint32_t i = 0; r == 0 && i < names.count; i++) {
            char path[PST_KEY_CAP];

            if (snprintf(path, sizeof(path), "%s/%s", key, pst_name_text(&names, i)) >= PST_KEY_CAP)
                r = -ENAMETOOLONG;
            else
                r = pst_root_remove(root, path, true, &removed);
            r = r == -ENOENT ? 0 : r;
        }
        pst_names_fini(&names);
        if (r < 0)
            return r;
        r = pst_root_remove(root, key, false, &removed);
    }
    return r == -ENOENT ? 0 : r;
}

int pst_root_replace(const struct pst_root *root, const char *key, const char *by, const char *values)
{
    pst_cleanup_close int to_fd = -1, from_fd = -1;
    bool exchanged = false;
    int r = -EEXIST;

    if (!pst_key_is_normal(key) || !*key || !pst_key_is_normal(by) || !*by || strcmp(key, by) == 0)
        return -EINVAL;
    to_fd = pst_beneath_parent(root, key);
    if (to_fd < 0)
        return to_fd;
    from_fd = pst_beneath_parent(root, by);
    if (from_fd < 0)
        return from_fd;
    for (int tries = 0; r == -EEXIST && tries < OPEN_TRIES;
         tries++) { /* others make and remove @key, now and then */
        r = folder_gives_way(root, key, values);
        if (r == 0 && renameat2(from_fd, pst_key_leaf(by), to_fd, pst_key_leaf(key), RENAME_EXCHANGE) == 0)
            exchanged = true;
        else if (r == 0)
            r = errno == ENOENT ? pst_beneath_rename_new(from_fd, pst_key_leaf(by), to_fd, pst_key_leaf(key))
                                : -errno;
    }
    if (exchanged && (r = remove_replaced(root, by, values)) < 0)
        renameat2(from_fd, pst_key_leaf(by), to_fd, pst_key_leaf(key), RENAME_EXCHANGE);
    return r;
}

/* The folder @name of @fd, made if it is missing. Another process may remove it in between, now and then. */
static int step_into(int fd, const char *name)
{
    int r = -ENOENT;

    pst_assert(fd >= 0);
    for (int tries = 0; r == -ENOENT && tries < OPEN_TRIES; tries++) {
        if (mkdirat(fd, name, FOLDER_MODE) < 0 && errno != EEXIST)
            return -errno;
        r = pst_beneath_open(fd, name, O_PATH | O_DIRECTORY);
    }
    return r;
}

int pst_root_mkdir(const struct pst_root *root, const char *key)
{
    char parts[PST_KEY_CAP], *rest = parts, *part;
    int fd, next;

    if (!pst_key_is_normal(key))
        return -EINVAL;
    strcpy(parts, key);
    fd = pst_beneath_open(pst_root_fd(root), "", O_PATH | O_DIRECTORY);
    while (fd >= 0 && (part = strsep(&rest, "/")) && *part) {
        next = step_into(fd, part);
        close(fd);
        fd = next;
    }
    if (fd < 0)
        return fd;
    close(fd);
    return 0;
}

int pst_root_open_folder(const struct pst_root *root, const char *key)
{
    return pst_key_is_normal(key) ? pst_beneath_open(pst_root_fd(root), key, O_RDONLY | O_DIRECTORY)
                                  : -EINVAL;
}

int pst_root_sync(const struct pst_root *root)
{
    pst_cleanup_close int fd = pst_beneath_open(pst_root_fd(root), "", O_RDONLY | O_DIRECTORY);

    return fd < 0 ? fd : syncfs(fd) < 0 ? -errno : 0;
}
