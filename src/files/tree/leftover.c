/* SPDX-License-Identifier: Apache-2.0 */
/* leftover.c: what an arrival that broke off has left. The tree that comes now may be another one. */
#include "files/tree/arrival_priv.h"

#include "files/root_priv.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

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

/* Removes what the tree has not, or has as something else; what a folder has comes behind it in @left. */
static int leftover_drop(struct pst_arrival *a, const struct pst_manifest *left)
{
    struct arrival_folder tree = {openat(a->hidden_fd, "tree", O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC),
                                  -1, ""};
    int r = 0;

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

int arrival_prune(struct pst_arrival *a)
{
    const struct pst_filters all = {.count = 0};
    struct pst_manifest left = {.entries = NULL};
    char fault[PST_FAULT_BYTES];
    uint32_t odd = 0;
    struct stat st;
    int r;

    if (fstatat(a->hidden_fd, "tree", &st, AT_SYMLINK_NOFOLLOW) < 0)
        return errno == ENOENT ? 0 : arrival_fail(a, -errno, "");
    r = pst_manifest_scan(a->hidden_fd, "tree", &all, &left, &odd, fault);
    if (r == 0 && (odd > 0 || left.entries[0].kind != a->m->entries[0].kind))
        r = -EEXIST;
    if (r == 0)
        r = leftover_drop(a, &left);
    if (r < 0) /* then nothing of it is of use */
        r = arrival_remove(a->hidden_fd, "tree");
    pst_manifest_fini(&left);
    return r < 0 ? arrival_fail(a, r, "") : 0;
}
