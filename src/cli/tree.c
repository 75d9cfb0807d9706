/* SPDX-License-Identifier: Apache-2.0 */
/* tree.c: a folder as keys and a prefix as a folder. Nothing is written outside of the folder, whatever a key
 * is. */
#include "cli/files.h"

#include "base/hash.h"

#include <fcntl.h>
#include <fts.h>
#include <inttypes.h>
#include <sys/stat.h>

/* @prefix and @path with one '/' between them. Return: the key, for free(); NULL without memory. */
static char *key_of(const char *prefix, const char *path)
{
    size_t len = strlen(prefix);
    char *key = NULL;

    pst_assert(*path != '/');
    return asprintf(&key, "%s%s%s", prefix, len && prefix[len - 1] != '/' ? "/" : "", path) < 0 ? NULL : key;
}

/* ---- from a folder ---- */

static int list_file(struct pst_file_list *list, const FTSENT *entry, const char *folder, const char *prefix)
{
    const char *below = entry->fts_path + strlen(folder);
    pst_cleanup_free char *key = NULL;

    pst_assert(strncmp(entry->fts_path, folder, strlen(folder)) == 0);
    key = key_of(prefix, below + strspn(below, "/"));
    return key ? pst_file_list_add(list, entry->fts_path, key, (uint64_t)entry->fts_statp->st_size) : -ENOMEM;
}

/* Return: 0 or -errno of what makes the whole list wrong. */
static int list_entry(struct pst_file_list *list, const FTSENT *entry, const char *folder, const char *prefix)
{
    switch (entry->fts_info) {
    case FTS_D:
    case FTS_DP:
        return 0;
    case FTS_F:
        return entry->fts_level > 0 ? list_file(list, entry, folder, prefix) : -ENOTDIR;
    case FTS_DC:
        return -ELOOP;
    case FTS_SLNONE:
        return -ENOENT;
    case FTS_DNR:
    case FTS_ERR:
    case FTS_NS:
        return -entry->fts_errno;
    default:
        fprintf(stderr, "penstock: %s: left out, as no regular file\n", entry->fts_path);
        return 0;
    }
}

int pst_tree_list_folder(struct pst_file_list *list, const char *folder, const char *prefix)
{
    pst_cleanup_free char *root = strdup(folder);
    char *const roots[] = {root, NULL};
    FTS *tree = root ? fts_open(roots, FTS_LOGICAL | FTS_NOCHDIR, NULL) : NULL;
    FTSENT *entry;
    int r = tree ? 0 : -ENOMEM;

    while (r == 0) {
        errno = 0;
        entry = fts_read(tree);
        if (!entry) {
            r = -errno;
            break;
        }
        r = list_entry(list, entry, folder, prefix);
        if (r < 0)
            fprintf(stderr, "penstock: %s: %s\n", entry->fts_path, strerror(-r));
    }
    if (tree)
        fts_close(tree);
    return r < 0 ? PST_EXIT_OTHER : 0;
}

/* ---- from a prefix ---- */

/* A path whose parts are all names: it cannot leave the folder that it begins in. */
static bool stays_below(const char *path, size_t bytes)
{
    if (strlen(path) != bytes)
        return false; /* a NUL within */
    for (;; path++) {
        size_t len = strcspn(path, "/");

        if (len == 0 || (len == 1 && *path == '.') || (len == 2 && memcmp(path, "..", 2) == 0))
            return false;
        path += len;
        if (!*path)
            return true;
    }
}

static int list_key(struct pst_file_list *list, const struct penstock_entry *entry, size_t prefix_bytes)
{
    char key[PENSTOCK_KEY_BYTES_MAX + 1];

    pst_assert(entry->key_bytes < sizeof(key) && entry->key_bytes >= prefix_bytes);
    memcpy(key, entry->key, entry->key_bytes);
    key[entry->key_bytes] = '\0';
    if (stays_below(key + prefix_bytes, entry->key_bytes - prefix_bytes))
        return pst_file_list_add(list, key + prefix_bytes, key, entry->value_bytes);
    fprintf(stderr, "penstock: key '%.100s': cannot be a path below a folder; nothing was written\n", key);
    return -EINVAL;
}

int pst_tree_list_prefix(struct pst_file_list *list, struct penstock *store, const char *prefix)
{
    pst_cleanup_free char *below = key_of(prefix, "");
    struct penstock_list_options options = {.size = sizeof(options), .prefix = below};
    struct penstock_entry entry;
    struct penstock_list *keys;
    int r;

    if (!below)
        return pst_cli_fail(-ENOMEM);
    options.prefix_bytes = strlen(below);
    r = penstock_list_open(store, &options, &keys);
    if (r)
        return pst_cli_fail(r);
    while ((r = penstock_list_next(keys, &entry)) == 1) {
        if (list_key(list, &entry, options.prefix_bytes) < 0) {
            penstock_list_close(keys);
            return PST_EXIT_OTHER;
        }
    }
    penstock_list_close(keys);
    if (r == 0 && list->count == 0) {
        fprintf(stderr, "penstock: no key begins with '%.100s'\n", below);
        return PST_EXIT_NOT_FOUND;
    }
    return r ? pst_cli_fail(r) : 0;
}

/* ---- to a folder ---- */

/* Opens, or makes, the folder of @path below @root. *@name: what is left. Return: a descriptor or -errno. */
static int open_folder_of(int root, const char *path, const char **name)
{
    int folder = dup(root);

    for (const char *slash; folder >= 0 && (slash = strchr(path, '/')); path = slash + 1) {
        pst_cleanup_free char *part = strndup(path, (size_t)(slash - path));
        int next = -1;

        if (part && (mkdirat(folder, part, 0777) == 0 || errno == EEXIST))
            next = openat(folder, part, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (next < 0) {
            int r = -errno;

            close(folder);
            return r;
        }
        close(folder);
        folder = next;
    }
    *name = path;
    return folder < 0 ? -errno : folder;
}

static int write_whole(int fd, const uint8_t *data, uint64_t bytes)
{
    while (bytes) {
        ssize_t n = write(fd, data, bytes);

        if (n < 0 && errno != EINTR)
            return -errno;
        data += n < 0 ? 0 : n;
        bytes -= n < 0 ? 0 : (uint64_t)n;
    }
    return 0;
}

int pst_tree_write(int root, const char *path, const void *data, uint64_t bytes)
{
    char part[32];
    const char *name = path;
    uint64_t number;
    pst_cleanup_close int folder = open_folder_of(root, path, &name);
    pst_cleanup_close int fd = -1;
    int r;

    pst_assert(stays_below(path, strlen(path)));
    if (folder < 0)
        return folder;
    pst_random(&number, sizeof(number)); /* a process may have the number of one that was killed here */
    snprintf(part, sizeof(part), ".penstock-%016" PRIx64, number);
    fd = openat(folder, part, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (fd < 0)
        return -errno;
    r = write_whole(fd, data, bytes);
    if (r == 0 && renameat(folder, part, folder, name) < 0)
        r = -errno;
    if (r < 0)
        unlinkat(folder, part, 0);
    return r;
}
