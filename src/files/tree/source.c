/* SPDX-License-Identifier: Apache-2.0 */
/* source.c: a tree's files, and where they have bytes. */
#include "files/tree/source.h"

#include "files/root_priv.h"

#include <fcntl.h>

int pst_source_list(const struct pst_source *source, const struct pst_filters *filters,
                    struct pst_manifest *m, uint32_t *odd, char fault[PST_FAULT_BYTES])
{
    int r = pst_manifest_scan(source->folder_fd, source->leaf, filters, source->ended, m, odd, fault);

    for (uint32_t i = 0; source->munged && i < m->count; i++) {
        struct pst_entry *entry = &m->entries[i];

        if (entry->kind == PST_ENTRY_LINK && strncmp(entry->target, PST_MUNGED, strlen(PST_MUNGED)) == 0 &&
            entry->target[strlen(PST_MUNGED)])
            entry->target += strlen(PST_MUNGED);
    }
    return r;
}

int pst_source_open(const struct pst_source *source, const struct pst_entry *entry, bool *has_holes)
{
    int flags = O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;
    int fd = *entry->path ? pst_beneath_open(source->root_fd, entry->path, flags)
                          : openat(source->folder_fd, source->leaf, flags);
    struct stat st;

    if (fd < 0)
        return *entry->path ? fd : -errno;
    if (fstat(fd, &st) < 0 || !pst_entry_is(entry, &st)) {
        close(fd);
        return -ESTALE;
    }
    *has_holes = (uint64_t)st.st_blocks * 512 < entry->bytes;
    return fd;
}

int pst_source_open_root(struct pst_source *source, const struct pst_manifest *m)
{
    pst_assert(source->root_fd < 0);
    pst_assert(m->count > 0);
    if (m->entries[0].kind != PST_ENTRY_FOLDER)
        return 0;
    source->root_fd = openat(source->folder_fd, source->leaf, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    return source->root_fd < 0 ? -errno : 0;
}

int pst_source_check(int fd, const struct pst_entry *entry)
{
    struct stat st;

    if (fstat(fd, &st) < 0)
        return -errno;
    return pst_entry_is(entry, &st) ? 0 : -ESTALE;
}

void pst_source_next_data(int fd, uint64_t from, uint64_t bytes, uint64_t *begin, uint64_t *end)
{
    off_t data = lseek(fd, (off_t)from, SEEK_DATA), hole;

    pst_assert(from < bytes);
    if (data < 0)
        data = errno == ENXIO ? (off_t)bytes : (off_t)from; /* nothing but a hole; or it cannot tell */
    *begin = pst_min((uint64_t)data, bytes);
    hole = *begin < bytes ? lseek(fd, (off_t)*begin, SEEK_HOLE) : (off_t)bytes;
    *end = hole < 0 ? bytes : pst_min((uint64_t)hole, bytes);
}
