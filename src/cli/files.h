/* SPDX-License-Identifier: Apache-2.0 */
/*
 * files.h: the files that one `put` or `get` moves: a path on this side, a key on the other. files.c moves
 * them, a window at a time; tree.c finds those below a folder or a prefix, and writes below a folder.
 */
#ifndef PST_CLI_FILES_H
#define PST_CLI_FILES_H

#include "cli/cli.h"

struct pst_file {
    struct penstock_op op; /* first: an operation is its file */
    char *path;            /* below the list's root, if that has one */
    char *key;
    uint64_t bytes;
    uint32_t tries; /* of a get whose value grew meanwhile */
    void *data;
};

struct pst_file_list {
    struct pst_file *files;
    size_t count, room;
    uint64_t bytes;
    int root; /* get --recursive: the folder that is written to; else -1 */
};

/* Takes no ownership: both texts are copied. Return: 0 or -ENOMEM. */
int pst_file_list_add(struct pst_file_list *list, const char *path, const char *key, uint64_t bytes);

/*
 * Maps a file to put it. Its pages are the file's, and nothing is copied, unless a transport of remote DMA
 * registers them: that takes what may be written. Return: 0 or -errno; *@data is NULL where there are no
 * bytes.
 */
int pst_file_map(int fd, uint64_t bytes, void **data);

/* Every regular file below @folder, links followed, as @prefix/path. Return: 0 or the exit code of what was
 * printed. */
int pst_tree_list_folder(struct pst_file_list *list, const char *folder, const char *prefix);
/* Every key below @prefix, as a path below list->root. A key that is no such path is refused, and with it
 * all. Return: as above. */
int pst_tree_list_prefix(struct pst_file_list *list, struct penstock *store, const char *prefix);
/* Writes @path below @root, with the folders above it; the file is there whole or not at all, and no link is
 * followed. Return: 0 or -errno. */
int pst_tree_write(int root, const char *path, const void *data, uint64_t bytes);

#endif
