/* SPDX-License-Identifier: Apache-2.0 */
/* names.c: the names that a folder has, read at once: what is done with them may change the folder. */
#include "files/root_priv.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>

enum { NAMES_FIRST = 64, TEXT_FIRST = 2048 };

static int make_room(struct pst_names *names, size_t bytes)
{
    pst_assert(names->count <= names->cap);
    pst_assert(names->text_bytes <= names->text_cap);
    if (names->count == names->cap) {
        uint32_t cap = names->cap ? 2 * names->cap : NAMES_FIRST;
        struct pst_name *list = reallocarray(names->list, cap, sizeof(*list));

        if (!list)
            return -ENOMEM;
        names->list = list;
        names->cap = cap;
    }
    if (names->text_cap - names->text_bytes < bytes) {
        size_t cap = pst_max(2 * names->text_cap, TEXT_FIRST);
        char *text = realloc(names->text, cap);

        if (!text)
            return -ENOMEM;
        names->text = text;
        names->text_cap = cap;
    }
    pst_assert(names->text_cap - names->text_bytes >= bytes);
    return 0;
}

int pst_names_add(struct pst_names *names, const char *name, bool is_directory)
{
    size_t bytes = strlen(name) + 1;
    int r = make_room(names, bytes);

    if (r < 0)
        return r;
    pst_assert(names->count < names->cap);
    memcpy(names->text + names->text_bytes, name, bytes);
    names->list[names->count++] = (struct pst_name){names->text_bytes, is_directory, false};
    names->text_bytes += bytes;
    pst_assert(names->text_bytes <= names->text_cap);
    return 0;
}

/* Not every file system says with the name what it is. One that is gone since is no directory. */
static bool is_directory(int fd, const struct dirent *entry)
{
    struct stat st;

    if (entry->d_type != DT_UNKNOWN)
        return entry->d_type == DT_DIR;
    return fstatat(fd, entry->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode);
}

static bool is_wanted(const char *name, const char *prefix, bool hidden)
{
    if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
        return false;
    return (hidden || name[0] != '.') && strncmp(name, prefix, strlen(prefix)) == 0;
}

int pst_names_read(int fd, const char *prefix, bool hidden, uint32_t max, struct pst_names *out)
{
    DIR *dir = fdopendir(fd);
    struct dirent *entry;
    int r = 0;

    *out = (struct pst_names){0};
    if (!dir) {
        r = -errno;
        close(fd);
        return r;
    }
    while (r == 0 && !out->is_cut) {
        errno = 0; /* at the end of a folder readdir() leaves it */
        entry = readdir(dir);
        if (!entry) {
            r = -errno;
            break;
        }
        if (!is_wanted(entry->d_name, prefix, hidden))
            continue;
        out->is_cut = out->count == max;
        if (!out->is_cut)
            r = pst_names_add(out, entry->d_name, is_directory(fd, entry));
    }
    pst_assert(out->count <= max);
    closedir(dir);
    if (r < 0)
        pst_names_fini(out);
    return r;
}

static int compare_names(const void *a, const void *b, void *text)
{
    const struct pst_name *first = a, *second = b;

    return strcmp((const char *)text + first->at, (const char *)text + second->at);
}

static int compare(const void *a, const void *b, void *text)
{
    const struct pst_name *first = a, *second = b;

    if (first->is_directory != second->is_directory)
        return first->is_directory ? -1 : 1;
    return compare_names(a, b, text);
}

void pst_names_sort(struct pst_names *names)
{
    if (names->count > 0)
        qsort_r(names->list, names->count, sizeof(*names->list), compare, names->text);
}

void pst_names_sort_by_name(struct pst_names *names)
{
    if (names->count > 0)
        qsort_r(names->list, names->count, sizeof(*names->list), compare_names, names->text);
}

void pst_names_fini(struct pst_names *names)
{
    free(names->list);
    free(names->text);
    *names = (struct pst_names){0};
}
