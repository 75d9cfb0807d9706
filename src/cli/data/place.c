/* SPDX-License-Identifier: Apache-2.0 */
/* place.c: folders of this host that a transfer needs, has, or leaves behind. */
#include "cli/data/move.h"

#include <fts.h>
#include <sys/stat.h>

int pst_place_mkdirs(const char *path)
{
    pst_cleanup_free char *copy = strdup(path);
    struct stat st;

    if (!copy)
        return -ENOMEM;
    for (char *at = copy + 1; *copy && *at; at++) {
        if (*at != '/')
            continue;
        *at = 0;
        if (mkdir(copy, 0777) < 0 && errno != EEXIST)
            return -errno;
        *at = '/';
    }
    if (mkdir(path, 0777) == 0)
        return 0;
    if (errno != EEXIST)
        return -errno;
    if (stat(path, &st) < 0)
        return -errno;
    return S_ISDIR(st.st_mode) ? 0 : -ENOTDIR;
}

static FTS *place_walk(const char *path)
{
    pst_cleanup_free char *root = strdup(path);
    char *const roots[] = {root, NULL};

    return root ? fts_open(roots, FTS_PHYSICAL | FTS_NOCHDIR, NULL) : NULL;
}

int pst_place_remove(const char *path)
{
    FTS *tree = place_walk(path);
    FTSENT *entry;
    int r = tree ? 0 : -ENOMEM;

    while (r == 0 && (entry = fts_read(tree)) != NULL) {
        bool is_folder = entry->fts_info == FTS_DP;

        if (entry->fts_info == FTS_D || entry->fts_info == FTS_NS)
            continue;
        if ((is_folder ? rmdir(entry->fts_accpath) : unlink(entry->fts_accpath)) < 0)
            r = -errno;
    }
    if (tree)
        fts_close(tree);
    return r;
}

int pst_place_remove_named(const char *path, const char *name)
{
    FTS *tree = place_walk(path);
    FTSENT *entry;
    int r = tree ? 0 : -ENOMEM;

    while (r == 0 && (entry = fts_read(tree)) != NULL) {
        if (entry->fts_info != FTS_D || entry->fts_level == 0 || strcmp(entry->fts_name, name) != 0)
            continue;
        fts_set(tree, entry, FTS_SKIP);
        r = pst_place_remove(entry->fts_path);
    }
    if (tree)
        fts_close(tree);
    return r;
}

bool pst_place_has_links(const char *path)
{
    FTS *tree = place_walk(path);
    FTSENT *entry;
    bool found = false;

    while (tree && !found && (entry = fts_read(tree)) != NULL)
        found = entry->fts_info == FTS_SL || entry->fts_info == FTS_SLNONE;
    if (tree)
        fts_close(tree);
    return found;
}
