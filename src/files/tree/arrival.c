/* SPDX-License-Identifier: Apache-2.0 */
/* arrival.c: what of a manifest has to come. */
#include "files/tree/arrival_priv.h"

#include "base/clock.h"
#include "files/root_priv.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

enum { TURN_LOOK_US = 20000 };

int arrival_fail(struct pst_arrival *a, int error, const char *path)
{
    pst_assert(error < 0);
    snprintf(a->fault, sizeof(a->fault), "%.80s%s%.120s: %s", a->leaf, *path ? "/" : "", path,
             strerror(-error));
    return error;
}

const char *pst_arrival_fault(const struct pst_arrival *a)
{
    return a->fault;
}

void arrival_name(char name[PST_ARRIVAL_NAME_BYTES], const char *what, const char *path)
{
    uint8_t sha256[PST_SHA256_BYTES];
    char text[PST_SHA256_TEXT_BYTES];

    pst_sha256(path, strlen(path), sha256);
    pst_sha256_print(sha256, text);
    pst_assert(snprintf(name, PST_ARRIVAL_NAME_BYTES, "%s-%s", what, text) < PST_ARRIVAL_NAME_BYTES);
}

int arrival_parent(struct pst_arrival *a, struct arrival_folder *folder, const char *path, const char **leaf)
{
    const char *slash = strrchr(path, '/');
    size_t bytes = slash ? (size_t)(slash - path) : 0;
    int fd;

    if (!*path) {
        *leaf = folder == &a->made ? "tree" : a->leaf;
        return folder == &a->made ? a->hidden_fd : a->parent_fd;
    }
    *leaf = slash ? slash + 1 : path;
    if (folder->fd >= 0 && strlen(folder->path) == bytes && memcmp(folder->path, path, bytes) == 0)
        return folder->fd;
    pst_assert(bytes < sizeof(folder->path));
    if (folder->root_fd < 0)
        return -ENOENT;
    memcpy(folder->path, path, bytes);
    folder->path[bytes] = 0;
    fd = pst_beneath_open(folder->root_fd, folder->path, O_PATH | O_DIRECTORY);
    pst_close_fd(&folder->fd);
    folder->fd = fd < 0 ? -1 : fd;
    return fd;
}

void arrival_times(const struct pst_entry *entry, struct timespec times[2])
{
    int64_t seconds = entry->modified_ns / 1000000000, rest = entry->modified_ns % 1000000000;

    if (rest < 0) { /* before 1970 */
        seconds--;
        rest += 1000000000;
    }
    times[0] = (struct timespec){.tv_nsec = UTIME_OMIT};
    times[1] = (struct timespec){.tv_sec = seconds, .tv_nsec = rest};
}

/* ---- what has to come ---- */

bool arrival_in_place(const struct pst_arrival *a)
{
    return a->flags & PST_ARRIVAL_IN_PLACE && a->m->entries[0].kind == PST_ENTRY_FOLDER;
}

/* What lies at the entry's path beneath @folder, a mode of 0 if nothing does. */
static void arrival_stat(struct pst_arrival *a, struct arrival_folder *folder, const struct pst_entry *entry,
                         struct stat *st)
{
    const char *leaf;
    int fd = arrival_parent(a, folder, entry->path, &leaf);

    if (fd < 0 || fstatat(fd, leaf, st, AT_SYMLINK_NOFOLLOW) < 0)
        *st = (struct stat){.st_mode = 0};
}

int arrival_check_place(struct pst_arrival *a, const struct pst_entry *entry, struct stat *st)
{
    *st = (struct stat){.st_mode = 0};
    if (a->exists && entry->kind != PST_ENTRY_FOLDER)
        arrival_stat(a, &a->there, entry, st);
    return S_ISDIR(st->st_mode) ? arrival_fail(a, -EISDIR, entry->path) : 0;
}

/* What an arrival that broke off has written of the file. @made: it lies in "tree". Return: whether it is
 * worth looking at. */
static bool arrival_turn_old(struct pst_arrival *a, const struct pst_entry *entry, bool made)
{
    char fresh[PST_ARRIVAL_NAME_BYTES], old[PST_ARRIVAL_NAME_BYTES];
    const char *leaf;
    struct stat st;
    int fd;

    arrival_name(fresh, "fresh", entry->path);
    arrival_name(old, "old", entry->path);
    if (fstatat(a->hidden_fd, old, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode)) {
        unlinkat(a->hidden_fd, fresh, 0); /* which broke off before it had taken over what is there */
        return st.st_size >= PST_ARRIVAL_OLD_BYTES_MIN;
    }
    if (renameat(a->hidden_fd, fresh, a->hidden_fd, old) < 0 && made) {
        fd = arrival_parent(a, &a->made, entry->path, &leaf);
        if (fd < 0 || renameat(fd, leaf, a->hidden_fd, old) < 0)
            return false;
    }
    return fstatat(a->hidden_fd, old, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode) &&
           st.st_size >= PST_ARRIVAL_OLD_BYTES_MIN;
}

/* Gives @leaf of a folder, which is of @type, its mode: no link's target, whatever was there before.
 * Return: 0 or -errno. */
static int arrival_chmod(int folder_fd, const char *leaf, mode_t type, mode_t mode)
{
    pst_cleanup_close int fd = openat(folder_fd, leaf, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    struct stat st;

    pst_assert(type == S_IFDIR || type == S_IFREG);
    if (fd < 0 || fstat(fd, &st) < 0)
        return -errno;
    return (st.st_mode & S_IFMT) == type ? pst_beneath_chmod(fd, mode) : type == S_IFDIR ? -ENOTDIR : -EEXIST;
}

/* Gives what lies in "tree" the entry's mode, which the time does not tell of. */
static bool arrival_made_mode(struct pst_arrival *a, const struct pst_entry *entry, const struct stat *made)
{
    const char *leaf;
    int fd = arrival_parent(a, &a->made, entry->path, &leaf);

    return (made->st_mode & 07777) == entry->mode ||
           (fd >= 0 && arrival_chmod(fd, leaf, S_IFREG, entry->mode) == 0);
}

/* What a file needs. @there: what is in its place. *@made: what lies in "tree", its mode 0 if nothing does.
 */
static enum pst_arrival_need arrival_decide(struct pst_arrival *a, uint32_t index, const struct stat *there,
                                            struct stat *made)
{
    const struct pst_entry *entry = &a->m->entries[index];
    bool proven = !(a->flags & PST_ARRIVAL_FORCE);

    pst_assert(entry->kind == PST_ENTRY_FILE);
    pst_assert(!a->arrived[index]);
    *made = (struct stat){.st_mode = 0};
    if (proven && pst_entry_is(entry, there)) {
        if (!a->proves)
            arrival_stat(a, &a->made, entry, made);
        return PST_ARRIVAL_HAS;
    }
    arrival_stat(a, &a->made, entry, made);
    if (proven && a->proves && pst_entry_is(entry, made) && arrival_made_mode(a, entry, made)) {
        a->arrived[index] = true;
        return PST_ARRIVAL_HAS;
    }
    a->missing++;
    if (entry->bytes < PST_ARRIVAL_OLD_BYTES_MIN || entry->bytes > PST_WANTED_FILE_BYTES_MAX)
        return PST_ARRIVAL_WHOLE;
    return arrival_turn_old(a, entry, S_ISREG(made->st_mode)) ||
                   (S_ISREG(there->st_mode) && there->st_size >= PST_ARRIVAL_OLD_BYTES_MIN)
               ? PST_ARRIVAL_DELTA
               : PST_ARRIVAL_WHOLE;
}

/* A folder of the tree in the hidden folder, where it stays writable until the end. */
static int arrival_make_folder(struct pst_arrival *a, const struct pst_entry *entry)
{
    const char *leaf;
    int fd = arrival_parent(a, &a->made, entry->path, &leaf);

    pst_assert(entry->kind == PST_ENTRY_FOLDER);
    if (fd < 0)
        return arrival_fail(a, fd, entry->path);
    if (mkdirat(fd, leaf, 0700) < 0 && errno != EEXIST)
        return arrival_fail(a, -errno, entry->path);
    if (!*entry->path) {
        fd = openat(a->hidden_fd, "tree", O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        a->made.root_fd = fd;
        fd = fd < 0 ? -errno : 0;
    } else { /* it may have been left without the owner's rights */
        fd = arrival_chmod(fd, leaf, S_IFDIR, 0700);
    }
    return fd < 0 ? arrival_fail(a, fd, entry->path) : 0;
}

/* What lies in "tree" and proved nothing makes room for the file that is asked for: once this arrival has
 * left its mark, the next one would believe it. Return: 0 or the arrival's fault. */
static int arrival_unmake(struct pst_arrival *a, const struct pst_entry *entry)
{
    const char *leaf;
    int fd = arrival_parent(a, &a->made, entry->path, &leaf);

    pst_assert(entry->kind == PST_ENTRY_FILE);
    if (fd < 0)
        return arrival_fail(a, fd, entry->path);
    return unlinkat(fd, leaf, 0) < 0 && errno != ENOENT ? arrival_fail(a, -errno, entry->path) : 0;
}

static int arrival_make_link(struct pst_arrival *a, uint32_t index)
{
    const struct pst_entry *entry = &a->m->entries[index];
    struct timespec times[2];
    char target[sizeof(PST_MUNGED) + PST_ENTRY_TEXT_BYTES_MAX];
    const char *leaf;
    int fd = arrival_parent(a, &a->made, entry->path, &leaf);

    pst_assert(entry->kind == PST_ENTRY_LINK);
    pst_assert(!a->arrived[index]);
    if (fd < 0)
        return arrival_fail(a, fd, entry->path);
    if (unlinkat(fd, leaf, 0) < 0 && errno != ENOENT)
        return arrival_fail(a, -errno, entry->path);
    snprintf(target, sizeof(target), "%s%s", a->flags & PST_ARRIVAL_MUNGE ? PST_MUNGED : "", entry->target);
    if (symlinkat(target, fd, leaf) < 0)
        return arrival_fail(a, -errno, entry->path);
    arrival_times(entry, times);
    utimensat(fd, leaf, times, AT_SYMLINK_NOFOLLOW); /* a link's time is no loss, if it cannot be set */
    a->arrived[index] = true;
    return 0;
}

int arrival_look_there(struct pst_arrival *a)
{
    bool is_folder = a->m->entries[0].kind == PST_ENTRY_FOLDER;
    struct stat st;

    if (arrival_in_place(a) && mkdirat(a->parent_fd, a->leaf, 0700) < 0 && errno != EEXIST)
        return arrival_fail(a, -errno, "");
    if (fstatat(a->parent_fd, a->leaf, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return errno == ENOENT ? 0 : arrival_fail(a, -errno, "");
    a->exists = true;
    if (is_folder != !!S_ISDIR(st.st_mode) || S_ISLNK(st.st_mode))
        return arrival_fail(a, is_folder ? -ENOTDIR : S_ISDIR(st.st_mode) ? -EISDIR : -ELOOP, "");
    if (is_folder) {
        a->there.root_fd = openat(a->parent_fd, a->leaf, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (a->there.root_fd < 0)
            return arrival_fail(a, -errno, "");
        if (!(st.st_mode & S_IXUSR)) /* its mode comes at the end */
            pst_beneath_open_up(a->there.root_fd);
    }
    return 0;
}

/* Decides on one entry, and makes it unless it is a file. */
static int arrival_begin_entry(struct pst_arrival *a, uint32_t i)
{
    const struct pst_entry *entry = &a->m->entries[i];
    struct stat there, made = {.st_mode = 0};
    int r;

    pst_assert(i < a->m->count);
    if (entry->kind == PST_ENTRY_FOLDER)
        return arrival_make_folder(a, entry);
    r = arrival_check_place(a, entry, &there);
    if (r == 0 && entry->kind == PST_ENTRY_LINK)
        r = arrival_make_link(a, i);
    else if (r == 0)
        a->needs[i] = (uint8_t)arrival_decide(a, i, &there, &made);
    if (r == 0 && made.st_mode && !a->arrived[i])
        r = arrival_unmake(a, entry);
    return r;
}

/* Files get their place one by one: what has come is there already. */
static int arrival_settle_begun(struct pst_arrival *a)
{
    int r = arrival_sync(a);

    pst_assert(arrival_in_place(a));
    for (uint32_t i = 0; r == 0 && i < a->m->count; i++) {
        const struct pst_entry *entry = &a->m->entries[i];

        if (entry->kind == PST_ENTRY_FOLDER && *entry->path)
            r = arrival_settle_folder(a, entry);
        else if (a->arrived[i])
            r = arrival_settle_arrived(a, entry);
        a->arrived[i] = false;
    }
    return r;
}

/* The tree has no place: unless an earlier one has left something there, the hidden folder goes. */
static void arrival_give_up(struct pst_arrival *a)
{
    struct pst_names names = {.count = 0};
    int fd = pst_beneath_open(a->hidden_fd, "", O_RDONLY | O_DIRECTORY);

    pst_assert(a->home_fd >= 0);
    if (fd >= 0 && pst_names_read(fd, "", true, 2, &names) == 0 && names.count <= 1) /* its lock */
        arrival_remove_hidden(a->home_fd, a->hidden, a->hidden_fd, &a->lock_fd);
    pst_names_fini(&names);
}

int pst_arrival_begin(struct pst_arrival *a, const struct pst_manifest *m)
{
    int r;

    pst_assert(a->magic == ARRIVAL_MAGIC);
    pst_assert(!a->m);
    pst_assert(m->count > 0);
    a->m = m;
    a->needs = calloc(m->count, sizeof(*a->needs));
    a->arrived = calloc(m->count, sizeof(*a->arrived));
    r = a->needs && a->arrived ? arrival_note_disk(a, a->hidden_fd) : -ENOMEM;
    r = r < 0 ? arrival_fail(a, r, "") : arrival_look_there(a);
    if (r < 0)
        arrival_give_up(a);
    else
        r = arrival_prune(a);
    for (uint32_t i = 0; r == 0 && i < m->count; i++)
        r = arrival_begin_entry(a, i);
    if (r == 0)
        arrival_mark(a);
    return r == 0 && arrival_in_place(a) ? arrival_settle_begun(a) : r;
}

enum pst_arrival_need pst_arrival_need(const struct pst_arrival *a, uint32_t entry)
{
    pst_assert(a->m && entry < a->m->count);
    return (enum pst_arrival_need)a->needs[entry];
}

/* ---- beginning and end ---- */

int pst_arrival_open(int parent_fd, const char *leaf, uint32_t flags, struct pst_arrival **out,
                     char fault[PST_FAULT_BYTES])
{
    struct pst_arrival *a = calloc(1, sizeof(*a));
    int r = 0;

    pst_assert(*leaf);
    pst_assert(!strchr(leaf, '/'));
    if (!a) {
        snprintf(fault, PST_FAULT_BYTES, "out of memory");
        return -ENOMEM;
    }
    *a = (struct pst_arrival){.magic = ARRIVAL_MAGIC,
                              .flags = flags,
                              .home_fd = -1,
                              .hidden_fd = -1,
                              .lock_fd = -1,
                              .made = {-1, -1, ""},
                              .there = {-1, -1, ""}};
    for (size_t i = 0; i < pst_count_of(a->files); i++)
        a->files[i].fd = -1;
    for (size_t i = 0; i < pst_count_of(a->disks); i++)
        a->disks[i].fd = -1;
    a->parent_fd = fcntl(parent_fd, F_DUPFD_CLOEXEC, 0);
    if (a->parent_fd < 0)
        r = arrival_fail(a, -errno, "");
    else if (snprintf(a->leaf, sizeof(a->leaf), "%s", leaf) >= PST_ARRIVAL_NAME_BYTES)
        r = arrival_fail(a, -ENAMETOOLONG, "");
    else
        r = arrival_open_hidden(a);
    if (r < 0) {
        snprintf(fault, PST_FAULT_BYTES, "%s", a->fault);
        pst_arrival_close(a);
        return r;
    }
    *out = a;
    return 0;
}

int pst_arrival_open_in_turn(int parent_fd, const char *leaf, uint32_t flags, struct pst_arrival **out,
                             int (*meanwhile)(void *ctx), void *ctx, char fault[PST_FAULT_BYTES])
{
    uint64_t until_ms = pst_now_ms() + PST_ARRIVAL_TURN_MS;
    int r, ended;

    while ((r = pst_arrival_open(parent_fd, leaf, flags, out, fault)) == -EBUSY && pst_now_ms() < until_ms) {
        ended = meanwhile ? meanwhile(ctx) : 0;
        if (ended < 0)
            return ended;
        usleep(TURN_LOOK_US);
    }
    return r;
}

struct pst_arrival *pst_arrival_close(struct pst_arrival *a)
{
    if (!a)
        return NULL;
    pst_assert(a->magic == ARRIVAL_MAGIC);
    arrival_released(a);
    for (size_t i = 0; i < pst_count_of(a->files); i++)
        pst_close_fd(&a->files[i].fd);
    for (size_t i = 0; i < pst_count_of(a->disks); i++)
        pst_close_fd(&a->disks[i].fd);
    pst_close_fd(&a->made.fd);
    pst_close_fd(&a->made.root_fd);
    pst_close_fd(&a->there.fd);
    pst_close_fd(&a->there.root_fd);
    pst_close_fd(&a->hidden_fd);
    pst_close_fd(&a->lock_fd);
    pst_close_fd(&a->home_fd);
    pst_close_fd(&a->parent_fd);
    free(a->needs);
    free(a->arrived);
    a->magic = 0;
    free(a);
    return NULL;
}
