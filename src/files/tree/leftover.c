/* SPDX-License-Identifier: Apache-2.0 */
/* leftover.c: what an arrival that broke off has left. The tree that comes now may be another one. */
#include "files/tree/arrival_priv.h"

#include "files/root_priv.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/stat.h>

enum { LEFT_MAX = 1 << 20 };

int arrival_remove(int folder_fd, const char *name)
{
    struct pst_root *root = NULL;
    char path[64];
    uint64_t removed = 0;
    int r;

    snprintf(path, sizeof(path), "/proc/self/fd/%d", folder_fd);
    r = pst_root_open(path, &root);
    if (r == 0)
        r = pst_root_remove(root, name, true, &removed);
    pst_root_close(root);
    return r;
}

int arrival_remove_hidden(int home_fd, const char *hidden, int hidden_fd, int *lock_fd)
{
    struct pst_names names = {.count = 0};
    int fd = pst_beneath_open(hidden_fd, "", O_RDONLY | O_DIRECTORY);
    int r = fd < 0 ? fd : pst_names_read(fd, "", true, LEFT_MAX, &names);

    for (uint32_t i = 0; r == 0 && i < names.count; i++) {
        if (strcmp(pst_name_text(&names, i), ARRIVAL_LOCK) != 0)
            r = arrival_remove(hidden_fd, pst_name_text(&names, i));
    }
    pst_names_fini(&names);
    if (r < 0)
        return r;
    unlinkat(hidden_fd, ARRIVAL_LOCK, 0);
    pst_close_fd(lock_fd); /* a file that is open and has no name has one still on NFS */
    return unlinkat(home_fd, hidden, AT_REMOVEDIR) < 0 ? -errno : 0;
}

/* ---- files, folders and links that were whole ---- */

/* Removes what the tree has not, or has as something else; what a folder has comes behind it in @left. */
static int leftover_drop(struct pst_arrival *a, const struct pst_manifest *left)
{
    struct arrival_folder tree = {openat(a->hidden_fd, "tree", O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC),
                                  -1, ""};
    int r = 0;

    pst_assert(left->count > 0);
    for (uint32_t i = left->count - 1; r == 0 && i > 0; i--) {
        const struct pst_entry *entry = &left->entries[i], *named = pst_manifest_find(a->m, entry->path);
        const char *leaf;
        int fd;

        if (named && named->kind == entry->kind)
            continue;
        fd = arrival_parent(a, &tree, entry->path, &leaf);
        if (fd < 0 || unlinkat(fd, leaf, entry->kind == PST_ENTRY_FOLDER ? AT_REMOVEDIR : 0) < 0)
            r = fd < 0 ? fd : -errno;
    }
    pst_close_fd(&tree.fd);
    pst_close_fd(&tree.root_fd);
    return r;
}

/* ---- files that were begun ---- */

static bool leftover_is_begun(const char *name)
{
    return strncmp(name, "fresh-", 6) == 0 || strncmp(name, "old-", 4) == 0;
}

/* Where @name is among @names, which are sorted. UINT32_MAX: nowhere. */
static uint32_t leftover_find(const struct pst_names *names, const char *name)
{
    uint32_t from = 0, to = names->count;

    while (from < to) {
        uint32_t middle = from + (to - from) / 2;
        int order = strcmp(pst_name_text(names, middle), name);

        if (order == 0)
            return middle;
        if (order < 0)
            from = middle + 1;
        else
            to = middle;
    }
    return UINT32_MAX;
}

/* Removes those that are of no file of the tree that comes. */
static void leftover_drop_begun(struct pst_arrival *a, const struct pst_names *names, bool *wanted)
{
    static const char *const kinds[] = {"fresh", "old"};
    char name[PST_ARRIVAL_NAME_BYTES];

    for (uint32_t i = 0; i < 2 * a->m->count; i++) {
        uint32_t at;

        if (a->m->entries[i / 2].kind != PST_ENTRY_FILE)
            continue;
        arrival_name(name, kinds[i % 2], a->m->entries[i / 2].path);
        at = leftover_find(names, name);
        pst_assert(at == UINT32_MAX || at < names->count);
        if (at != UINT32_MAX)
            wanted[at] = true;
    }
    for (uint32_t i = 0; i < names->count; i++) {
        if (!wanted[i] && leftover_is_begun(pst_name_text(names, i)))
            unlinkat(a->hidden_fd, pst_name_text(names, i), 0);
    }
}

/* Return: 0 or -errno. */
static int leftover_prune_begun(struct pst_arrival *a)
{
    struct pst_names names = {.count = 0};
    int fd = pst_beneath_open(a->hidden_fd, "", O_RDONLY | O_DIRECTORY);
    int r = fd < 0 ? fd : pst_names_read(fd, "", true, LEFT_MAX, &names);
    bool *wanted, any = false;

    for (uint32_t i = 0; r == 0 && i < names.count; i++)
        any |= leftover_is_begun(pst_name_text(&names, i));
    if (any) {
        pst_names_sort_by_name(&names);
        wanted = calloc(names.count, sizeof(*wanted));
        if (wanted)
            leftover_drop_begun(a, &names, wanted);
        r = wanted ? 0 : -ENOMEM;
        free(wanted);
    }
    pst_names_fini(&names);
    return r;
}

/* ---- what proves itself ---- */

#define MARK "mount"

enum { MARK_BYTES = 128 };

/* This boot of the host and this mount of the file system. A file that was written under another one may lack
 * bytes that its size and its time speak of. Return: its length, 0 it is not known. */
static int mark_make(int folder_fd, char mark[MARK_BYTES])
{
    pst_cleanup_close int boot_fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    bool unique = false;
    uint64_t mount = arrival_mount_of(folder_fd, &unique);
    char boot[37] = "";

    if (mount == 0 || !unique || boot_fd < 0 ||
        read(boot_fd, boot, sizeof(boot) - 1) != (ssize_t)sizeof(boot) - 1)
        return 0;
    return snprintf(mark, MARK_BYTES, "%s %" PRIu64 "\n", boot, mount);
}

static bool mark_is_there(int folder_fd)
{
    pst_cleanup_close int fd = openat(folder_fd, MARK, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    char mark[MARK_BYTES], there[MARK_BYTES];
    int bytes = mark_make(folder_fd, mark);

    return fd >= 0 && bytes > 0 && read(fd, there, sizeof(there)) == bytes &&
           memcmp(mark, there, (size_t)bytes) == 0;
}

void arrival_mark(struct pst_arrival *a)
{
    pst_cleanup_close int fd =
        openat(a->hidden_fd, MARK, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
    char mark[MARK_BYTES];
    int bytes = mark_make(a->hidden_fd, mark);

    pst_assert(bytes < MARK_BYTES);
    if (fd >= 0 && bytes > 0)
        (void)!write(fd, mark, (size_t)bytes); /* without it all of it is compared by content */
}

void arrival_unmark(struct pst_arrival *a)
{
    unlinkat(a->hidden_fd, MARK, 0);
}

/* ---- all of it ---- */

int arrival_prune(struct pst_arrival *a)
{
    const struct pst_filters all = {.count = 0};
    struct pst_manifest left = {.entries = NULL};
    char fault[PST_FAULT_BYTES];
    uint32_t odd = 0;
    struct stat st;
    int r = leftover_prune_begun(a);

    if (r < 0)
        return arrival_fail(a, r, "");
    a->proves = mark_is_there(a->hidden_fd);
    if (fstatat(a->hidden_fd, "tree", &st, AT_SYMLINK_NOFOLLOW) < 0)
        return errno == ENOENT ? 0 : arrival_fail(a, -errno, "");
    r = pst_manifest_scan(a->hidden_fd, "tree", &all, NULL, &left, &odd, fault);
    if (r == 0 && (odd > 0 || left.entries[0].kind != a->m->entries[0].kind))
        r = -EEXIST;
    if (r == 0)
        r = leftover_drop(a, &left);
    if (r < 0) /* then nothing of it is of use */
        r = arrival_remove(a->hidden_fd, "tree");
    pst_manifest_fini(&left);
    return r < 0 ? arrival_fail(a, r, "") : 0;
}
