/* SPDX-License-Identifier: Apache-2.0 */
/* native.c: a path and a socket for pst_carry_put() and pst_carry_get(). */
#include "cli/data/native.h"

#include <fcntl.h>
#include <libgen.h>
#include <sys/stat.h>

uint32_t pst_native_flags(const struct pst_cli *cli)
{
    return (cli->force ? PST_ARRIVAL_FORCE : 0) | (cli->in_place ? PST_ARRIVAL_IN_PLACE : 0);
}

int pst_native_filters(const struct pst_strings *texts, struct pst_filter out[PST_STRINGS_MAX])
{
    for (uint32_t i = 0; i < texts->count; i++) {
        const char *text = texts->items[i];

        if ((text[0] != '+' && text[0] != '-') || !text[1])
            return pst_cli_usage("filter: '%.100s' is neither +PATTERN nor -PATTERN", text);
        out[i] = (struct pst_filter){text[0] == '+', text + 1};
    }
    return 0;
}

/* Opens the folder that @path names, by a link to it or as it is. The link must be the user's own or root's,
 * and is read where it was looked at: others may put another one there at any time. Return: -1: there is no
 * such folder. */
static int open_folder_of(const char *path)
{
    pst_cleanup_free char *copy = strdup(path);
    pst_cleanup_close int last = copy ? open(path, O_PATH | O_NOFOLLOW | O_CLOEXEC) : -1, beside = -1;
    char target[PATH_MAX] = "";
    struct stat st;

    if (last < 0 || fstat(last, &st) < 0)
        return -1;
    if (S_ISDIR(st.st_mode))
        return fcntl(last, F_DUPFD_CLOEXEC, 0);
    if (!S_ISLNK(st.st_mode) || (st.st_uid != geteuid() && st.st_uid != 0) ||
        readlinkat(last, "", target, sizeof(target) - 1) <= 0)
        return -1;
    beside = open(dirname(copy), O_PATH | O_DIRECTORY | O_CLOEXEC);
    return beside < 0 ? -1 : openat(beside, target, O_PATH | O_DIRECTORY | O_CLOEXEC);
}

/* The name of a folder that is named by a link to it, or by ".". NULL: it is not there, or no folder. */
static char *folder_of_its_own(const char *path)
{
    pst_cleanup_close int fd = open_folder_of(path);
    char link[64];

    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    return fd < 0 ? NULL : realpath(link, NULL);
}

int pst_native_folder(const char *path, char leaf[NAME_MAX + 1], char fault[PST_FAULT_BYTES])
{
    pst_cleanup_free char *real = NULL;
    char copy[PATH_MAX];
    size_t bytes = strlen(path);
    const char *slash;
    int fd = -1;

    while (bytes > 1 && path[bytes - 1] == '/')
        bytes--;
    if (bytes < sizeof(copy)) {
        snprintf(copy, sizeof(copy), "%.*s", (int)bytes, path);
        real = folder_of_its_own(copy);
        if (real)
            snprintf(copy, sizeof(copy), "%s", real);
        slash = strrchr(copy, '/');
        snprintf(leaf, NAME_MAX + 1, "%.*s", NAME_MAX, slash ? slash + 1 : copy);
        if (slash)
            copy[slash == copy ? 1 : slash - copy] = 0;
        fd = open(slash ? copy : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    } else {
        errno = ENAMETOOLONG;
    }
    if (fd < 0) {
        fd = -errno;
        snprintf(fault, PST_FAULT_BYTES, "%.200s: %s", path, strerror(-fd));
        return fd;
    }
    if (*leaf && strcmp(leaf, ".") != 0 && strcmp(leaf, "..") != 0)
        return fd;
    close(fd);
    snprintf(fault, PST_FAULT_BYTES, "%.200s: names no file or folder of its own", path);
    return -EINVAL;
}

void pst_native_progress(void *bar, uint64_t bytes, uint64_t bytes_of_all)
{
    struct pst_progress *shown = bar;

    shown->total_bytes = bytes_of_all;
    pst_progress_show(shown, bytes);
}

int pst_native_run(const struct pst_native *native, struct pst_arrival_result *result,
                   char fault[PST_FAULT_BYTES])
{
    struct pst_filter filters[PST_STRINGS_MAX];
    struct pst_progress bar = {.on = false};
    const struct pst_carry_options options = {.token = native->token,
                                              .flags = native->flags,
                                              .filters = {filters, native->filters->count},
                                              .progress = pst_native_progress,
                                              .ctx = &bar};
    char leaf[NAME_MAX + 1];
    struct pst_carry_place place = {.leaf = leaf};
    pst_cleanup_close int folder = pst_native_folder(native->local, leaf, fault);
    pst_cleanup_close int fd = -1;
    int r;

    pst_assert(pst_native_filters(native->filters, filters) == 0);
    if (folder < 0)
        return folder;
    place.folder_fd = folder;
    fd = pst_carry_connect(native->host, native->port, native->timeout_ms, fault);
    if (fd < 0)
        return PST_NATIVE_UNREACHED;
    pst_progress_begin(&bar, native->puts ? "put" : "get", 0);
    r = native->puts ? pst_carry_put(fd, &place, native->name, &options, result, fault)
                     : pst_carry_get(fd, native->name, &place, &options, result, fault);
    pst_progress_end(&bar);
    return r;
}
