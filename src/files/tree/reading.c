/* SPDX-License-Identifier: Apache-2.0 */
/* reading.c: files of an arrival are read while it goes on, and after its end. */
#include "files/tree/arrival_priv.h"

#include "files/root_priv.h"

#include <fcntl.h>

int pst_arrival_read(struct pst_arrival *a, uint32_t index)
{
    const struct pst_entry *entry = &a->m->entries[index];
    const int flags = O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;
    char name[PST_ARRIVAL_NAME_BYTES] = "tree";
    int folder_fd = a->hidden_fd, fd;

    pst_assert(!(a->flags & PST_ARRIVAL_IN_PLACE));
    pst_assert(a->magic == ARRIVAL_MAGIC);
    pst_assert(index < a->m->count);
    pst_assert(entry->kind == PST_ENTRY_FILE);
    if (a->arrived[index] && *entry->path)
        return pst_beneath_open(a->settled && a->exists ? a->there.root_fd : a->made.root_fd, entry->path,
                                flags);
    if (a->settled) {
        folder_fd = a->parent_fd;
        memcpy(name, a->leaf, sizeof(name));
    } else if (!a->arrived[index]) {
        arrival_name(name, "fresh", entry->path);
    }
    fd = openat(folder_fd, name, flags);
    return fd < 0 ? -errno : fd;
}
