/* SPDX-License-Identifier: Apache-2.0 */
/* scan.c: a manifest of what lies in a file system. */
#include "files/root_priv.h"
#include "files/tree/arrival.h"
#include "files/tree/manifest.h"

#include <fcntl.h>
#include <fnmatch.h>
#include <stdio.h>
#include <sys/stat.h>

enum { NAMES_MAX = PST_MANIFEST_ENTRIES_MAX };

struct scan {
    const struct pst_filters *filters;
    const atomic_bool *ended;
    struct pst_manifest *m;
    uint32_t odd;
    char *fault;
    char path[PST_ENTRY_TEXT_BYTES_MAX + 1];
};

static int scan_fail(struct scan *scan, int error)
{
    pst_assert(error < 0);
    snprintf(scan->fault, PST_FAULT_BYTES, "%.180s: %s", scan->path,
             error == -EINVAL  ? "a name that no tree can have"
             : error == -E2BIG ? "more than a tree can have"
                               : strerror(-error));
    return error;
}

static bool scan_takes(const struct scan *scan, const char *name)
{
    for (uint32_t i = 0; scan->filters && i < scan->filters->count; i++) {
        const char *pattern = scan->filters->list[i].pattern;
        bool whole = strchr(pattern, '/') != NULL;

        if (fnmatch(pattern + (*pattern == '/'), whole ? scan->path : name, whole ? FNM_PATHNAME : 0) == 0)
            return scan->filters->list[i].takes;
    }
    return true;
}

static int scan_folder(struct scan *scan, int folder_fd);

/* The entry @name of a folder, which scan->path names whole. */
static int scan_entry(struct scan *scan, int folder_fd, const char *name)
{
    struct pst_entry entry = {.path = scan->path, .target = ""};
    char target[PST_ENTRY_TEXT_BYTES_MAX + 1];
    struct stat st;
    ssize_t n;
    int r;

    if (fstatat(folder_fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return errno == ENOENT ? 0 : scan_fail(scan, -errno); /* gone since the folder was read */
    entry.modified_ns = pst_modified_ns(&st);
    entry.mode = S_ISLNK(st.st_mode) ? 0 : st.st_mode & PST_ENTRY_MODE_MAX;
    if (S_ISLNK(st.st_mode)) {
        n = readlinkat(folder_fd, name, target, sizeof(target) - 1);
        if (n < 0)
            return scan_fail(scan, -errno);
        pst_assert((size_t)n < sizeof(target));
        target[n] = 0;
        entry.kind = PST_ENTRY_LINK;
        entry.target = target;
    } else if (S_ISREG(st.st_mode)) {
        entry.kind = PST_ENTRY_FILE;
        entry.bytes = (uint64_t)st.st_size;
    } else if (S_ISDIR(st.st_mode)) {
        entry.kind = PST_ENTRY_FOLDER;
    } else {
        scan->odd++;
        return 0;
    }
    r = pst_manifest_add(scan->m, &entry);
    if (r == 0 && entry.kind == PST_ENTRY_FOLDER) {
        int fd = pst_beneath_open(folder_fd, name, O_RDONLY | O_DIRECTORY);

        return fd < 0 ? scan_fail(scan, fd) : scan_folder(scan, fd);
    }
    return r < 0 ? scan_fail(scan, r) : 0;
}

/* What the folder behind @fd, which it takes, has. */
static int scan_folder(struct scan *scan, int fd)
{
    size_t bytes = strlen(scan->path);
    struct pst_names names = {.list = NULL};
    pst_cleanup_close int folder_fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    int r = folder_fd < 0 ? -errno : pst_names_read(fd, "", true, NAMES_MAX, &names);

    if (folder_fd < 0)
        close(fd);
    if (r == 0 && names.is_cut) { /* whether or not it takes them: nobody has looked at the rest */
        pst_names_fini(&names);
        r = -E2BIG;
    }
    if (r < 0)
        return scan_fail(scan, r);
    pst_names_sort_by_name(&names);
    for (uint32_t i = 0; r == 0 && i < names.count; i++) {
        const char *name = pst_name_text(&names, i);
        int n = snprintf(scan->path + bytes, sizeof(scan->path) - bytes, "%s%s", bytes ? "/" : "", name);

        if (scan->ended && atomic_load(scan->ended))
            r = scan_fail(scan, -ECANCELED);
        else if ((size_t)n >= sizeof(scan->path) - bytes)
            r = scan_fail(scan, -ENAMETOOLONG);
        else if (!pst_key_is_reserved(name) && scan_takes(scan, name))
            r = scan_entry(scan, folder_fd, name);
        scan->path[bytes] = 0;
    }
    pst_names_fini(&names);
    return r;
}

int pst_manifest_scan(int parent_fd, const char *leaf, const struct pst_filters *filters,
                      const atomic_bool *ended, struct pst_manifest *m, uint32_t *odd,
                      char fault[PST_FAULT_BYTES])
{
    struct scan scan = {.filters = filters, .ended = ended, .m = m, .fault = fault};
    struct stat st;
    int r = 0;

    pst_assert(m->count == 0);
    pst_assert(*leaf);
    if (fstatat(parent_fd, leaf, &st, AT_SYMLINK_NOFOLLOW) < 0)
        r = -errno;
    else if (S_ISLNK(st.st_mode))
        r = -ELOOP;
    else if (!S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode))
        r = -ENOTDIR;
    if (r < 0) {
        snprintf(fault, PST_FAULT_BYTES, "%.180s: %s", leaf, strerror(-r));
        return r;
    }
    r = scan_entry(&scan, parent_fd, leaf);
    if (r == 0 && m->count == 0) {
        snprintf(fault, PST_FAULT_BYTES, "%.180s: %s", leaf, strerror(ENOENT));
        r = -ENOENT;
    }
    if (r == 0)
        *odd = scan.odd;
    return r;
}
