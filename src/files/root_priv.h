/* SPDX-License-Identifier: Apache-2.0 */
/* root_priv.h: how names are opened, and what a folder has. For root.c and its neighbours alone. */
#ifndef PST_FILES_ROOT_PRIV_H
#define PST_FILES_ROOT_PRIV_H

#include "files/key.h"
#include "files/root.h"

#include <sys/stat.h>

/* Opens @path beneath @folder_fd, "" for the folder itself, with no link on the way nor at the end. @flags:
 * of open(), without O_CREAT. Return: a descriptor or -errno. */
int pst_beneath_open(int folder_fd, const char *path, int flags);

/* Gives what is open behind @fd, O_PATH or not, its mode. Return: 0 or -errno. */
int pst_beneath_chmod(int fd, mode_t mode);
/* Lets the user read a folder of its own and write in it. Return: whether it could not before. */
bool pst_beneath_open_up(int folder_fd);

/* Renames to a name that nothing has. Return: 0, -EEXIST, -errno. */
int pst_beneath_rename_new(int from_fd, const char *from, int to_fd, const char *to);

/* Opens the folder that @key, not the root's, lies in, as a place for names: O_PATH. */
int pst_beneath_parent(const struct pst_root *root, const char *key);

int pst_root_fd(const struct pst_root *root);

/* The names that a folder has, and all of their bytes. */
struct pst_names {
    struct pst_name {
        size_t at;                     /* in text */
        bool is_directory, is_entered; /* remove.c has tried to empty it */
    } * list;
    uint32_t count, cap;
    bool is_cut; /* the folder has more */
    char *text;
    size_t text_bytes, text_cap;
};

/* Reads up to @max names of the folder behind @fd, which it takes. @hidden: with dotfiles; only names that
 * begin with @prefix. Return: 0, or -errno and *out is as pst_names_fini() leaves it. */
int pst_names_read(int fd, const char *prefix, bool hidden, uint32_t max, struct pst_names *out);
int pst_names_add(struct pst_names *names, const char *name, bool is_directory);
/* Directories first, then by name; or by name alone. */
void pst_names_sort(struct pst_names *names);
void pst_names_sort_by_name(struct pst_names *names);
void pst_names_fini(struct pst_names *names);

static inline const char *pst_name_text(const struct pst_names *names, uint32_t i)
{
    pst_assert(i < names->count);
    return names->text + names->list[i].at;
}

#endif
