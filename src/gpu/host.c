/* SPDX-License-Identifier: Apache-2.0 */
/*
 * host.c: memory of this host as memory files. One that was sealed against shrinking keeps its bytes for
 * everyone who has mapped it, even if its owner ends: no peer can take a page away and leave a SIGBUS.
 */
#include "base/list.h"
#include "gpu/gpu.h"
#include "mem/limit.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>

enum { SEALS = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL };

struct host_memory {
    struct pst_gpu_memory memory;
    struct pst_list link; /* of all mappings */
    uint8_t *at;
    int fd; /* -1: another's */
    bool is_found;
};

/* What this process has mapped, to find memory by its address. */
static struct {
    pthread_mutex_t lock;
    struct pst_list all;
} mappings = {PTHREAD_MUTEX_INITIALIZER, {&mappings.all, &mappings.all}};

static struct host_memory *host_of(const struct pst_gpu_memory *memory)
{
    pst_assert(memory->gpu->ops == &pst_gpu_host);
    return pst_container_of(memory, struct host_memory, memory);
}

uint8_t *pst_gpu_host_at(const struct pst_gpu_memory *memory)
{
    return host_of(memory)->at;
}

static int host_open(uint32_t ordinal, struct pst_gpu **out, char fault[PST_FAULT_BYTES])
{
    static struct pst_gpu host = {.ops = &pst_gpu_host}; /* there is one, and nothing to close */

    if (ordinal > 0) {
        snprintf(fault, PST_FAULT_BYTES, "host has one device, and its number is 0");
        return -EINVAL;
    }
    *out = &host;
    return 0;
}

static void host_close(struct pst_gpu *gpu)
{
    pst_assert(gpu->ops == &pst_gpu_host);
}

/* Maps @fd, which the memory keeps if @is_own. */
static int host_map(struct pst_gpu *gpu, uint64_t bytes, int fd, bool is_own, bool writable,
                    struct pst_gpu_memory **out)
{
    struct host_memory *host = calloc(1, sizeof(*host));
    void *at;

    pst_assert(gpu->ops == &pst_gpu_host);
    pst_assert(bytes > 0);
    if (!host)
        return -ENOMEM;
    at = mmap(NULL, bytes, PROT_READ | (writable ? PROT_WRITE : 0), MAP_SHARED, fd, 0);
    if (at == MAP_FAILED) {
        int r = -errno;

        free(host);
        return r == -EACCES ? -EPERM : r;
    }
    *host = (struct host_memory){
        .memory = {.gpu = gpu, .bytes = bytes, .writable = writable}, .at = at, .fd = is_own ? fd : -1};
    pthread_mutex_lock(&mappings.lock);
    pst_list_push_back(&mappings.all, &host->link);
    pthread_mutex_unlock(&mappings.lock);
    *out = &host->memory;
    return 0;
}

/* The kernel grants files of memory more pages than there are, and then ends processes. */
static int host_has_room(uint64_t bytes)
{
    struct pst_limit limit;

    if (bytes == 0)
        return -EINVAL;
    pst_limit_read("", &limit);
    return bytes > INT64_MAX || bytes > limit.left_bytes ? -ENOMEM : 0;
}

/* The pages are there when it returns: a host without memory says so here, not when they are touched. */
static int host_allocate(struct pst_gpu *gpu, uint64_t bytes, struct pst_gpu_memory **out)
{
    int fd, r = host_has_room(bytes);

    if (r < 0)
        return r;
    fd = memfd_create("penstock-tensor", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0)
        return -errno;
    r = -posix_fallocate(fd, 0, (off_t)bytes);
    if (r == 0 && fcntl(fd, F_ADD_SEALS, SEALS) < 0)
        r = -errno;
    if (r == 0)
        r = host_map(gpu, bytes, fd, true, true, out);
    if (r < 0)
        close(fd);
    return r == -ENOSPC || r == -EFBIG ? -ENOMEM : r;
}

static int host_export(const struct pst_gpu_memory *memory, struct pst_gpu_handle *handle, int *fd)
{
    const struct host_memory *host = host_of(memory);

    if (host->fd < 0)
        return -EINVAL;
    pst_assert(!host->is_found);
    *handle = (struct pst_gpu_handle){.kind = PST_GPU_HOST, .memory_bytes = memory->bytes};
    *fd = host->fd;
    return 0;
}

int pst_gpu_host_check(const struct pst_gpu_handle *handle, int fd)
{
    struct statfs system;
    struct stat st;
    int seals;

    pst_assert(handle->kind == PST_GPU_HOST);
    if (fstat(fd, &st) < 0 || fstatfs(fd, &system) < 0)
        return -errno;
    seals = fcntl(fd, F_GET_SEALS);
    /* Huge pages can run out when they are touched, also those of a file that keeps its size. */
    if (seals < 0 || !(seals & F_SEAL_SHRINK) || !S_ISREG(st.st_mode) || system.f_type != TMPFS_MAGIC)
        return -EPERM;
    return (uint64_t)st.st_size == handle->memory_bytes ? 0 : -ERANGE;
}

static int host_import(struct pst_gpu *gpu, const struct pst_gpu_handle *handle, int fd, bool writable,
                       struct pst_gpu_memory **out)
{
    int r = handle->kind == PST_GPU_HOST ? pst_gpu_host_check(handle, fd) : -EINVAL;

    if (r == 0 && handle->memory_bytes == 0)
        r = -EINVAL;
    return r < 0 ? r : host_map(gpu, handle->memory_bytes, fd, false, writable, out);
}

static void host_give(struct pst_gpu_memory *memory)
{
    struct host_memory *host = host_of(memory);

    if (!host->is_found) {
        pthread_mutex_lock(&mappings.lock);
        pst_list_remove(&host->link);
        pthread_mutex_unlock(&mappings.lock);
        pst_assert(munmap(host->at, memory->bytes) == 0);
    }
    pst_close_fd(&host->fd);
    free(host);
}

static bool host_has(const struct host_memory *host, const uint8_t *at)
{
    return at >= host->at && at < host->at + host->memory.bytes;
}

static int host_find(const void *at, uint64_t bytes, struct pst_gpu_memory **out)
{
    const uint8_t *begin = at;
    struct host_memory *found = calloc(1, sizeof(*found));
    int r = found ? -ENOENT : -ENOMEM;

    pthread_mutex_lock(&mappings.lock);
    pst_list_each (it, &mappings.all) {
        const struct host_memory *host = pst_list_entry(it, struct host_memory, link);

        if (r != -ENOENT || !host_has(host, begin))
            continue;
        r = bytes <= (uint64_t)(host->at + host->memory.bytes - begin) ? 0 : -ERANGE;
        *found = (struct host_memory){
            .memory = host->memory, .at = (uint8_t *)(uintptr_t)begin, .fd = -1, .is_found = true};
        found->memory.bytes = bytes;
    }
    pthread_mutex_unlock(&mappings.lock);
    if (r < 0) {
        free(found);
        return r;
    }
    *out = &found->memory;
    return 0;
}

static int host_lock(struct pst_gpu *gpu, void *at, uint64_t bytes)
{
    pst_assert(gpu->ops == &pst_gpu_host && at && bytes > 0);
    return 0;
}

static void host_unlock(struct pst_gpu *gpu, void *at)
{
    pst_assert(gpu->ops == &pst_gpu_host && at);
}

static int host_copy_in(struct pst_gpu_memory *to, uint64_t offset, const void *from, uint64_t bytes)
{
    pst_assert(to->writable);
    pst_assert(offset + bytes <= to->bytes);
    memcpy(host_of(to)->at + offset, from, bytes);
    return 0;
}

static int host_copy_out(const struct pst_gpu_memory *from, uint64_t offset, void *to, uint64_t bytes)
{
    pst_assert(offset + bytes <= from->bytes);
    memcpy(to, host_of(from)->at + offset, bytes);
    return 0;
}

/* Two imports may be of one memory. */
static int host_copy(struct pst_gpu_memory *to, uint64_t to_offset, const struct pst_gpu_memory *from,
                     uint64_t from_offset, uint64_t bytes)
{
    pst_assert(to->writable);
    pst_assert(to_offset + bytes <= to->bytes);
    pst_assert(from_offset + bytes <= from->bytes);
    memmove(host_of(to)->at + to_offset, host_of(from)->at + from_offset, bytes);
    return 0;
}

static int host_record(struct pst_gpu *gpu, struct pst_gpu_event **out)
{
    struct pst_gpu_event *event = calloc(1, sizeof(*event));

    pst_assert(gpu->ops == &pst_gpu_host);
    if (!event)
        return -ENOMEM;
    event->gpu = gpu;
    *out = event;
    return 0;
}

static int host_event_is_done(struct pst_gpu_event *event)
{
    pst_assert(event->gpu->ops == &pst_gpu_host);
    return 1;
}

static int host_event_wait(struct pst_gpu_event *event)
{
    return host_event_is_done(event) == 1 ? 0 : -EIO;
}

static void host_event_close(struct pst_gpu_event *event)
{
    pst_assert(event->gpu->ops == &pst_gpu_host);
    free(event);
}

const struct pst_gpu_ops pst_gpu_host = {
    .name = "host",
    .kind = PST_GPU_HOST,
    .open = host_open,
    .close = host_close,
    .allocate = host_allocate,
    .export_handle = host_export,
    .import_handle = host_import,
    .find = host_find,
    .give = host_give,
    .lock = host_lock,
    .unlock = host_unlock,
    .copy_in = host_copy_in,
    .copy_out = host_copy_out,
    .copy = host_copy,
    .record = host_record,
    .event_is_done = host_event_is_done,
    .event_wait = host_event_wait,
    .event_close = host_event_close,
};
