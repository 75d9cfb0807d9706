/* SPDX-License-Identifier: Apache-2.0 */
/* map_file.c: a new pool map goes beside the old one, to the disk, and then into its place. */
#include "master/map_file.h"

#include "base/own.h"

#include <fcntl.h>
#include <limits.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>

struct map_file {
    struct pst_keeper keeper;
    int folder_fd, lock_fd;
    uint64_t version; /* stored last by us; 0: nothing yet */
    char path[PATH_MAX];
    char name[NAME_MAX - 8];
};

static struct map_file *map_file_of(struct pst_keeper *keeper)
{
    return pst_container_of(keeper, struct map_file, keeper);
}

static int refuse(char *fault, const char *path, const char *what)
{
    int error = errno;

    snprintf(fault, PST_FAULT_BYTES, "pool map %.150s: %s: %s", path, what, strerror(error));
    return -error;
}

static int refuse_name(char *fault, const char *path, const char *what, int error)
{
    snprintf(fault, PST_FAULT_BYTES, "pool map %.120s: %s: %.90s", path, what, pst_error_text());
    return error;
}

static int open_folder(struct map_file *file, const char *path, char *fault)
{
    const char *slash = strrchr(path, '/');
    size_t folder_bytes = slash ? pst_max((size_t)(slash - path), 1) : 0; /* "/" is its own */
    char folder[PATH_MAX];

    pst_assert(file->folder_fd < 0);
    if ((size_t)snprintf(file->name, sizeof(file->name), "%s", slash ? slash + 1 : path) >=
            sizeof(file->name) ||
        folder_bytes >= sizeof(folder)) {
        errno = ENAMETOOLONG;
        return refuse(fault, path, "its name");
    }
    snprintf(folder, sizeof(folder), "%.*s", (int)folder_bytes, slash ? path : "");
    file->folder_fd = open(slash ? folder : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return file->folder_fd < 0 ? refuse(fault, path, "its folder") : 0;
}

/* The lock is a file of its own, since the pool map's is another one after each change. */
static int take_lock(struct map_file *file, const char *path, char *fault)
{
    char name[NAME_MAX], pid[32] = "";
    int len;

    pst_assert(file->folder_fd >= 0);
    pst_assert(file->lock_fd < 0);
    snprintf(name, sizeof(name), "%s.lock", file->name);
    file->lock_fd = pst_own_open(file->folder_fd, name, O_RDWR | O_CREAT);
    if (file->lock_fd < 0)
        return refuse_name(fault, path, "its lock", file->lock_fd);
    if (flock(file->lock_fd, LOCK_EX | LOCK_NB) < 0) {
        if (errno != EWOULDBLOCK || pread(file->lock_fd, pid, sizeof(pid) - 1, 0) < 0)
            return refuse(fault, path, "its lock");
        pid[strcspn(pid, "\n")] = '\0';
        snprintf(fault, PST_FAULT_BYTES, "pool map %.150s is in use by process %s", path, pid);
        return -EBUSY;
    }
    len = snprintf(pid, sizeof(pid), "%d\n", (int)getpid());
    if (ftruncate(file->lock_fd, 0) < 0 || pwrite(file->lock_fd, pid, (size_t)len, 0) != len)
        return refuse(fault, path, "its lock");
    return 0;
}

static int read_all(struct map_file *file, const char *path, size_t bytes_max, struct pst_bytes *stored,
                    char *fault)
{
    pst_cleanup_close int fd = pst_own_open(file->folder_fd, file->name, O_RDONLY);
    struct stat st;
    uint8_t *data;

    *stored = (struct pst_bytes){NULL, 0};
    pst_assert(file->lock_fd >= 0);
    if (fd < 0)
        return fd == -ENOENT ? 0 : refuse_name(fault, path, "opening it", fd);
    if (fstat(fd, &st) < 0)
        return refuse(fault, path, "reading it");
    if ((uint64_t)st.st_size > bytes_max || st.st_size == 0) {
        snprintf(fault, PST_FAULT_BYTES, "pool map %.150s is not a pool map", path);
        return -EBADMSG;
    }
    data = malloc((size_t)st.st_size);
    if (!data) {
        errno = ENOMEM;
        return refuse(fault, path, "reading it");
    }
    for (off_t at = 0; at < st.st_size;) {
        ssize_t n = pread(fd, data + at, (size_t)(st.st_size - at), at);

        if (n <= 0) {
            errno = n < 0 ? errno : EIO;
            free(data);
            return refuse(fault, path, "reading it");
        }
        at += n;
    }
    *stored = (struct pst_bytes){data, (size_t)st.st_size};
    return 0;
}

static int file_take(struct pst_keeper *keeper, size_t bytes_max, struct pst_bytes *stored,
                     char fault[PST_FAULT_BYTES])
{
    struct map_file *file = map_file_of(keeper);
    int r = open_folder(file, file->path, fault);

    if (r == 0)
        r = take_lock(file, file->path, fault);
    return r == 0 ? read_all(file, file->path, bytes_max, stored, fault) : r;
}

static int write_all(int fd, struct pst_bytes map)
{
    const uint8_t *at = map.data, *end = at + map.len;

    while (at < end) {
        ssize_t n = write(fd, at, (size_t)(end - at));

        if (n < 0 && errno != EINTR)
            return -errno;
        at += n > 0 ? n : 0;
    }
    return fsync(fd) < 0 ? -errno : 0;
}

static int replace(struct map_file *file, struct pst_bytes map)
{
    pst_cleanup_close int fd = -1;
    char name[NAME_MAX];
    int r;

    pst_assert(file->folder_fd >= 0);
    pst_assert(file->lock_fd >= 0); /* others read it, nobody else writes it */
    snprintf(name, sizeof(name), "%s.new", file->name);
    fd = pst_own_replace(file->folder_fd, name);
    r = fd < 0 ? fd : write_all(fd, map);
    if (r == 0 && renameat(file->folder_fd, name, file->folder_fd, file->name) < 0)
        r = -errno;
    if (r == 0 && fsync(file->folder_fd) < 0)
        r = -errno;
    return r;
}

static int file_swap(struct pst_keeper *keeper, uint64_t version_before, uint64_t version,
                     struct pst_bytes map, char fault[PST_FAULT_BYTES])
{
    struct map_file *file = map_file_of(keeper);
    int r;

    pst_assert(version == version_before + 1);
    pst_assert(map.len > 0);
    if (file->version && file->version != version_before) {
        snprintf(fault, PST_FAULT_BYTES, "%s", strerror(ESTALE));
        return -ESTALE;
    }
    r = replace(file, map);
    if (r < 0) {
        snprintf(fault, PST_FAULT_BYTES, "%s", strerror(-r));
        return r == -ESTALE ? -EIO : r; /* NFS's, of a handle: the lock keeps other masters away */
    }
    file->version = version;
    return 0;
}

static struct pst_hold file_hold(struct pst_keeper *keeper, char fault[PST_FAULT_BYTES])
{
    if (fault)
        *fault = '\0';
    pst_assert(map_file_of(keeper)->lock_fd >= 0);
    return (struct pst_hold){.leads_until_ns = UINT64_MAX, .speaks_until_ns = UINT64_MAX};
}

static void file_give(struct pst_keeper *keeper)
{
    struct map_file *file = map_file_of(keeper);

    pst_close_fd(&file->folder_fd);
    pst_close_fd(&file->lock_fd);
}

static void file_close(struct pst_keeper *keeper)
{
    file_give(keeper);
    free(map_file_of(keeper));
}

static const struct pst_keeper_ops file_ops = {
    .take = file_take, .swap = file_swap, .hold = file_hold, .give = file_give, .close = file_close};

int pst_map_file_open(const char *path, struct pst_keeper **out, char fault[PST_FAULT_BYTES])
{
    struct map_file *file;

    if (strlen(path) >= sizeof(file->path)) {
        errno = ENAMETOOLONG;
        return refuse(fault, path, "its name");
    }
    file = calloc(1, sizeof(*file));
    snprintf(fault, PST_FAULT_BYTES, "out of memory");
    if (!file)
        return -ENOMEM;
    snprintf(file->path, sizeof(file->path), "%s", path);
    file->keeper = (struct pst_keeper){.ops = &file_ops, .name = file->path};
    file->folder_fd = file->lock_fd = -1;
    *out = &file->keeper;
    return 0;
}
