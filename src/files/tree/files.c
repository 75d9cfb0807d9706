/* SPDX-License-Identifier: Apache-2.0 */
/* files.c: the files of an arrival, from their first byte until they are whole. */
#include "files/tree/arrival_priv.h"

#include "files/root_priv.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>

enum { RELEASE_BYTES_MIN = 1 << 20 };

enum { LONG_BYTES = 1 << 20 };

/* ---- what a file held that had to make room is given back ---- */

static void *replaced_release(void *arg)
{
    const struct arrival_replaced *replaced = arg;

    pst_assert(replaced->fd >= 0);
    close(replaced->fd);
    return NULL;
}

static bool replaced_released(struct arrival_replaced *replaced)
{
    bool underway = replaced->underway;

    if (underway)
        pst_assert(pthread_join(replaced->thread, NULL) == 0);
    replaced->underway = false;
    return underway;
}

bool arrival_released(struct pst_arrival *a)
{
    bool any = false;

    for (size_t i = 0; i < pst_count_of(a->replaced); i++)
        any = replaced_released(&a->replaced[i]) || any;
    return any;
}

/* @fd is open on what has lost its name on a tmpfs, which takes 150 ms to give back a GiB: for a large file a
 * thread does, while the next one comes. */
static void arrival_release(struct pst_arrival *a, int fd)
{
    struct arrival_replaced *replaced = &a->replaced[a->replaced_count % ARRIVAL_REPLACED_MAX];
    struct stat st;

    pst_assert(fd >= 0);
    if (fstat(fd, &st) < 0 || st.st_size < RELEASE_BYTES_MIN) {
        close(fd);
        return;
    }
    replaced_released(replaced);
    pst_assert(!replaced->underway);
    replaced->fd = fd;
    replaced->underway = pthread_create(&replaced->thread, NULL, replaced_release, replaced) == 0;
    if (!replaced->underway)
        close(fd);
    a->replaced_count++;
}

/* A file that is whole gets its place among those that are there. Return: 0 or the arrival's fault. */
static int arrival_replace(struct pst_arrival *a, const struct pst_entry *entry, const char *fresh)
{
    const char *leaf;
    int folder_fd = arrival_parent(a, &a->there, entry->path, &leaf), old_fd = -1, r;
    struct statfs fs;

    pst_assert(arrival_in_place(a));
    /* NFS would give what is open another name, and others would find nothing meanwhile. */
    if (folder_fd >= 0 && fstatfs(folder_fd, &fs) == 0 && fs.f_type == TMPFS_MAGIC)
        old_fd = openat(folder_fd, leaf, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    r = arrival_rename(a, entry, a->hidden_fd, fresh);
    if (old_fd >= 0)
        arrival_release(a, old_fd);
    return r;
}

/* Whether a disk that was full has room by now. */
static bool arrival_has_room(struct pst_arrival *a, int error)
{
    return (error == -ENOSPC || error == -EDQUOT) && arrival_released(a);
}

/* ---- files that are begun ---- */

static struct arrival_file *arrival_find(struct pst_arrival *a, uint32_t entry)
{
    for (size_t i = 0; i < pst_count_of(a->files); i++) {
        if (a->files[i].fd >= 0 && a->files[i].entry == entry)
            return &a->files[i];
    }
    return NULL;
}

static struct arrival_file *arrival_free_place(struct pst_arrival *a)
{
    for (size_t i = 0; i < pst_count_of(a->files); i++) {
        if (a->files[i].fd < 0)
            return &a->files[i];
    }
    return NULL;
}

/* A file that is begun, or begins. *@out. -EPROTO: it is not asked for, or too many are begun. */
static int arrival_file_of(struct pst_arrival *a, uint32_t index, struct arrival_file **out)
{
    const struct pst_entry *entry = &a->m->entries[index];
    struct arrival_file *file = arrival_find(a, index);
    const int flags = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
    char name[PST_ARRIVAL_NAME_BYTES];

    *out = file;
    if (file)
        return 0;
    file = arrival_free_place(a);
    if (!file || a->arrived[index] || a->needs[index] == PST_ARRIVAL_HAS)
        return arrival_fail(a, -EPROTO, entry->path);
    arrival_name(name, "fresh", entry->path);
    unlinkat(a->hidden_fd, name, 0);
    file->fd = openat(a->hidden_fd, name, flags, 0600);
    if (file->fd < 0 && arrival_has_room(a, -errno))
        file->fd = openat(a->hidden_fd, name, flags, 0600);
    if (file->fd < 0)
        return arrival_fail(a, -errno, entry->path);
    file->entry = index;
    file->end = file->covered = file->taken = 0;
    *out = file;
    return 0;
}

static void arrival_has(struct pst_arrival *a, uint32_t index)
{
    pst_assert(a->missing > 0);
    pst_assert(!a->arrived[index]);
    if (arrival_in_place(a))
        a->needs[index] = PST_ARRIVAL_HAS;
    else
        a->arrived[index] = true;
    a->missing--;
}

/* The entry's file is whole, in the hidden folder as "fresh-HASH", and gets its place. */
static int arrival_keep(struct pst_arrival *a, uint32_t index)
{
    const struct pst_entry *entry = &a->m->entries[index];
    char fresh[PST_ARRIVAL_NAME_BYTES], old[PST_ARRIVAL_NAME_BYTES];
    const char *leaf;
    int fd, r = 0;

    pst_assert(entry->kind == PST_ENTRY_FILE);
    pst_assert(a->missing > 0);
    arrival_name(fresh, "fresh", entry->path);
    if (arrival_in_place(a)) {
        r = arrival_replace(a, entry, fresh);
    } else {
        fd = arrival_parent(a, &a->made, entry->path, &leaf);
        if (fd < 0 || renameat(a->hidden_fd, fresh, fd, leaf) < 0)
            r = arrival_fail(a, fd < 0 ? fd : -errno, entry->path);
    }
    if (r < 0)
        return r;
    if (a->needs[index] == PST_ARRIVAL_DELTA) {
        arrival_name(old, "old", entry->path);
        unlinkat(a->hidden_fd, old, 0);
    }
    arrival_has(a, index);
    return 0;
}

int arrival_seal(struct pst_arrival *a, const struct pst_entry *entry, int fd)
{
    struct timespec times[2];
    int r;

    arrival_times(entry, times);
    r = fchmod(fd, entry->mode) < 0 || futimens(fd, times) < 0 ? arrival_fail(a, -errno, entry->path) : 0;
    close(fd);
    return r;
}

static int arrival_complete(struct pst_arrival *a, struct arrival_file *file)
{
    const struct pst_entry *entry = &a->m->entries[file->entry];
    bool syncs = a->flags & PST_ARRIVAL_SYNC && arrival_in_place(a); /* others are when all have come */
    int r = 0;

    if (syncs && fdatasync(file->fd) < 0)
        r = arrival_fail(a, -errno, entry->path);
    pst_assert(file->fd >= 0);
    pst_assert(file->covered == entry->bytes);
    if (r < 0)
        return r;
    r = arrival_seal(a, entry, file->fd);
    file->fd = -1;
    return r < 0 ? r : arrival_keep(a, file->entry);
}

static int write_all(int fd, const char *data, size_t bytes, uint64_t at)
{
    while (bytes) {
        ssize_t n = pwrite(fd, data, bytes, (off_t)at);

        if (n < 0 && errno != EINTR)
            return -errno;
        if (n > 0) {
            data += n;
            at += (uint64_t)n;
            bytes -= (size_t)n;
        }
    }
    return 0;
}

/* A file all of whose bytes are there at once goes where it belongs. */
static int arrival_write_at_once(struct pst_arrival *a, uint32_t index, const void *data)
{
    const struct pst_entry *entry = &a->m->entries[index];
    const int flags = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
    const char *leaf;
    int folder_fd = arrival_parent(a, &a->made, entry->path, &leaf), fd, r;

    pst_assert(entry->bytes > 0);
    pst_assert(a->needs[index] == PST_ARRIVAL_WHOLE);
    if (folder_fd < 0)
        return arrival_fail(a, folder_fd, entry->path);
    fd = openat(folder_fd, leaf, flags, 0600);
    if (fd < 0 && errno == EEXIST && unlinkat(folder_fd, leaf, 0) == 0) /* of an arrival that broke off */
        fd = openat(folder_fd, leaf, flags, 0600);
    if (fd < 0)
        return arrival_fail(a, -errno, entry->path);
    r = write_all(fd, data, entry->bytes, 0);
    if (r < 0) {
        close(fd);
        return arrival_fail(a, r, entry->path);
    }
    r = arrival_seal(a, entry, fd);
    if (r == 0)
        arrival_has(a, index);
    return r;
}

static int arrival_cover(struct pst_arrival *a, struct arrival_file *file, uint64_t bytes)
{
    const struct pst_entry *entry = &a->m->entries[file->entry];

    pst_assert(file->covered <= entry->bytes);
    if (bytes > entry->bytes - file->covered)
        return arrival_fail(a, -EPROTO, entry->path);
    file->covered += bytes;
    return file->covered == entry->bytes ? arrival_complete(a, file) : 0;
}

static int arrival_check_range(struct pst_arrival *a, uint32_t index, uint64_t at, uint64_t bytes)
{
    const struct pst_entry *entry = &a->m->entries[index];

    pst_assert(a->magic == ARRIVAL_MAGIC);
    pst_assert(index < a->m->count);
    if (entry->kind == PST_ENTRY_FILE && bytes > 0 && at <= entry->bytes && bytes <= entry->bytes - at)
        return 0;
    return arrival_fail(a, -EPROTO, entry->path);
}

/* Bytes into their place in a file; @data NULL: a hole. @taken: of an older version. */
static int arrival_put(struct pst_arrival *a, uint32_t index, uint64_t at, const void *data, size_t bytes,
                       bool taken)
{
    struct arrival_file *file;
    int r = arrival_file_of(a, index, &file);

    if (r < 0)
        return r;
    if (data && a->needs[index] == PST_ARRIVAL_DELTA && pst_is_zeros(data, bytes))
        data = NULL; /* chunks do not tell of holes, and a place without bytes has zeros */
    pst_assert(file->fd >= 0);
    if (data) {
        r = write_all(file->fd, data, bytes, at);
        if (arrival_has_room(a, r))
            r = write_all(file->fd, data, bytes, at);
    } else if (at + bytes > file->end && ftruncate(file->fd, (off_t)(at + bytes)) < 0) {
        r = -errno;
    }
    if (r < 0)
        return arrival_fail(a, r, a->m->entries[index].path);
    file->end = pst_max(file->end, at + bytes);
    file->taken += taken ? bytes : 0;
    return arrival_cover(a, file, bytes);
}

int pst_arrival_write(struct pst_arrival *a, uint32_t index, uint64_t at, const void *data, size_t bytes)
{
    int r = arrival_check_range(a, index, at, bytes);

    if (r < 0)
        return r;
    a->result.moved += data ? bytes : 0;
    if (data && bytes == a->m->entries[index].bytes && a->needs[index] == PST_ARRIVAL_WHOLE &&
        !a->arrived[index] && !arrival_in_place(a) && !arrival_find(a, index))
        return arrival_write_at_once(a, index, data);
    return arrival_put(a, index, at, data, bytes, false);
}

int pst_arrival_take(struct pst_arrival *a, uint32_t index, uint64_t at, const void *data, size_t bytes)
{
    int r = arrival_check_range(a, index, at, bytes);

    if (r < 0)
        return r;
    a->result.matched += bytes;
    return arrival_put(a, index, at, data, bytes, true);
}

bool pst_arrival_is_long(struct pst_arrival *a, uint32_t index, uint64_t bytes)
{
    const struct pst_entry *entry = &a->m->entries[index];
    const struct arrival_file *file = arrival_find(a, index);

    pst_assert(index < a->m->count);
    return arrival_in_place(a) && (a->flags & PST_ARRIVAL_SYNC || entry->bytes >= LONG_BYTES) &&
           bytes >= entry->bytes - (file ? file->covered : 0);
}

int pst_arrival_restart(struct pst_arrival *a, uint32_t index)
{
    const struct pst_entry *entry = &a->m->entries[index];
    struct arrival_file *file = arrival_find(a, index);

    if (!file)
        return 0;
    pst_assert(a->result.matched >= file->taken);
    pst_assert(file->covered < entry->bytes);
    a->result.matched -= file->taken;
    file->end = file->covered = file->taken = 0;
    if (ftruncate(file->fd, 0) < 0)
        return arrival_fail(a, -errno, entry->path);
    return 0;
}

int pst_arrival_empty(struct pst_arrival *a, uint32_t index)
{
    struct arrival_file *file;
    int r;

    pst_assert(a->m->entries[index].bytes == 0);
    r = arrival_file_of(a, index, &file);
    return r < 0 ? r : arrival_complete(a, file);
}

int pst_arrival_open_old(struct pst_arrival *a, uint32_t index, enum pst_arrival_older which, uint64_t *bytes)
{
    const int flags = O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;
    char name[PST_ARRIVAL_NAME_BYTES];
    const char *leaf = name;
    int folder_fd = a->hidden_fd, fd;
    off_t end;

    pst_assert(which < PST_ARRIVAL_OLDER);
    if (a->needs[index] != PST_ARRIVAL_DELTA) /* whole meanwhile, of bytes that came unasked */
        return -ENOENT;
    if (which == PST_ARRIVAL_LEFTOVER)
        arrival_name(name, "old", a->m->entries[index].path);
    else
        folder_fd = arrival_parent(a, &a->there, a->m->entries[index].path, &leaf);
    if (folder_fd < 0)
        return folder_fd;
    fd = openat(folder_fd, leaf, flags);
    if (fd < 0)
        return -errno;
    end = lseek(fd, 0, SEEK_END);
    *bytes = end < 0 ? 0 : pst_min((uint64_t)end, PST_WANTED_FILE_BYTES_MAX);
    return fd;
}

void pst_arrival_forget_old(struct pst_arrival *a, uint32_t index)
{
    char name[PST_ARRIVAL_NAME_BYTES];

    pst_assert(index < a->m->count);
    arrival_name(name, "old", a->m->entries[index].path);
    unlinkat(a->hidden_fd, name, 0);
}
