/* SPDX-License-Identifier: Apache-2.0 */
/* across.c: an entry whose place is on another file system than the hidden folder: a tree with a mounted
 * folder in it. It is copied beside its place, and gets that by a rename, too. */
#include "files/tree/arrival_priv.h"
#include "files/tree/source.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/sendfile.h>
#include <sys/stat.h>

static int copy_range(int from, int to, off_t at, off_t end)
{
    pst_assert(at <= end);
    if (lseek(to, at, SEEK_SET) < 0)
        return -errno;
    while (at < end) {
        ssize_t n = sendfile(to, from, &at, (size_t)(end - at));

        if (n < 0 && errno != EINTR)
            return -errno;
        if (n == 0)
            return -ESTALE;
    }
    return 0;
}

/* All bytes, and between them the holes. */
static int copy_bytes(int from, int to, off_t bytes)
{
    uint64_t at = 0, begin;
    int r = ftruncate(to, bytes) < 0 ? -errno : 0;

    pst_assert(bytes >= 0);
    while (r == 0 && at < (uint64_t)bytes) {
        pst_source_next_data(from, at, (uint64_t)bytes, &begin, &at);
        r = copy_range(from, to, (off_t)begin, (off_t)at);
    }
    return r;
}

static int copy_file(struct pst_arrival *a, const struct pst_entry *entry, int from, int to)
{
    int r = copy_bytes(from, to, (off_t)entry->bytes);

    pst_assert(entry->kind == PST_ENTRY_FILE);
    if (r == 0 && a->flags & PST_ARRIVAL_SYNC && fdatasync(to) < 0)
        r = -errno;
    return r < 0 ? arrival_fail(a, r, entry->path) : 0;
}

/* Makes @fresh, a copy of the entry @from. */
static int copy_entry(struct pst_arrival *a, const struct pst_entry *entry, int from_fd, const char *from,
                      int to_fd, const char *fresh)
{
    pst_cleanup_close int source = -1;
    char lead[sizeof(PST_MUNGED) + PST_ENTRY_TEXT_BYTES_MAX];
    struct timespec times[2];
    ssize_t bytes;
    int target, r;

    pst_assert(entry->kind != PST_ENTRY_FOLDER);
    unlinkat(to_fd, fresh, 0);
    if (entry->kind == PST_ENTRY_LINK) {
        arrival_times(entry, times);
        bytes = readlinkat(from_fd, from, lead, sizeof(lead) - 1);
        lead[pst_max(bytes, 0)] = 0;
        if (bytes < 0 || symlinkat(lead, to_fd, fresh) < 0)
            return arrival_fail(a, -errno, entry->path);
        utimensat(to_fd, fresh, times, AT_SYMLINK_NOFOLLOW);
        return 0;
    }
    source = openat(from_fd, from, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    target = openat(to_fd, fresh, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (source < 0 || target < 0) {
        r = arrival_fail(a, -errno, entry->path);
        pst_close_fd(&target);
        return r;
    }
    r = copy_file(a, entry, source, target);
    if (r == 0)
        return arrival_seal(a, entry, target);
    close(target);
    return r;
}

int arrival_copy(struct pst_arrival *a, const struct pst_entry *entry, int from_fd, const char *from,
                 int to_fd, const char *to)
{
    char fresh[PST_ARRIVAL_NAME_BYTES];
    int r;

    arrival_name(fresh, ".penstock", entry->path);
    snprintf(fresh + strlen(fresh), sizeof(fresh) - strlen(fresh), ".tree"); /* which no tree takes in */
    r = copy_entry(a, entry, from_fd, from, to_fd, fresh);
    if (r == 0 && renameat(to_fd, fresh, to_fd, to) < 0)
        r = arrival_fail(a, -errno, entry->path);
    if (r < 0)
        unlinkat(to_fd, fresh, 0);
    else
        unlinkat(from_fd, from, 0); /* what is there twice takes room */
    return r;
}
