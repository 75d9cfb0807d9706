/* SPDX-License-Identifier: Apache-2.0 */
/* native.c: a path and a socket for pst_carry_put() and pst_carry_get(). */
#include "cli/data/native.h"

#include <fcntl.h>
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

/* The name of a folder that is named by a link to it, or by ".". NULL: it is not there, or no folder. */
static char *folder_of_its_own(const char *path)
{
    struct stat st;

    return stat(path, &st) == 0 && S_ISDIR(st.st_mode) ? realpath(path, NULL) : NULL;
}

int pst_native_folder(const char *path, char leaf[NAME_MAX + 1], char fault[PST_FAULT_BYTES])
{
    pst_cleanup_free char *real = folder_of_its_own(path);
    char copy[PATH_MAX];
    size_t bytes;
    const char *slash;
    int fd = -1;

    path = real ? real : path;
    bytes = strlen(path);
    while (bytes > 1 && path[bytes - 1] == '/')
        bytes--;
    if (bytes < sizeof(copy)) {
        snprintf(copy, sizeof(copy), "%.*s", (int)bytes, path);
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
