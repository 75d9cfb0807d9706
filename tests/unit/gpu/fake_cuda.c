/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fake_cuda.c: libcuda.so.1 for machines without a GPU: the calls that gpu/cuda uses, on files of memory that
 * several processes can have. Copies are queued, and done when an event behind them is waited for or has been
 * asked a second time, so that nobody can do without events. Calls without a context fail, as the driver's.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    BAD_VALUE = 1,
    NO_MEMORY = 2,
    NO_DEVICE = 100,
    BAD_DEVICE = 101,
    NO_CONTEXT = 201,
    ALREADY_MAPPED = 208,
    BAD_HANDLE = 400,
    NOT_READY = 600
};
enum { DEVICES = 2, ALLOCATIONS = 64, COPIES = 65536, NAME_BYTES = 64, MEMORY_MAX = 1 << 30 };

struct ipc {
    char bytes[64];
};

static struct allocation {
    char *at;
    size_t bytes;
    char name[NAME_BYTES];
    int fd; /* its memory's; -1: another process's */
} allocations[ALLOCATIONS];

static struct copy {
    void *to;
    const void *from;
    size_t bytes;
} copies[COPIES];

struct event {
    int upto, asked;
};

static int copy_count, copies_done, contexts, pushed, streams, events, locked;

static void do_copies(int upto)
{
    for (; copies_done < upto; copies_done++)
        memmove(copies[copies_done].to, copies[copies_done].from, copies[copies_done].bytes);
}

#pragma GCC visibility push(default)

/* What is left: for tests. */
int fake_cuda_left(void);
int fake_cuda_left(void)
{
    int left = contexts + pushed + streams + events + locked;

    for (int i = 0; i < ALLOCATIONS; i++)
        left += allocations[i].at != NULL;
    return left;
}

/* Where the allocation lies that was made last: for tests. */
void *fake_cuda_last(void);
void *fake_cuda_last(void)
{
    void *last = NULL;

    for (int i = 0; i < ALLOCATIONS; i++)
        last = allocations[i].at ? allocations[i].at : last;
    return last;
}

/* Does all copies, as whoever else uses the stream sees them, such as fake_nccl.c. Returns whether the caller
 * has a context. */
int fake_cuda_flush(void);
int fake_cuda_flush(void)
{
    do_copies(copy_count);
    return pushed > 0;
}

static struct allocation *find(uint64_t at)
{
    for (int i = 0; i < ALLOCATIONS; i++) {
        if (allocations[i].at == (char *)(uintptr_t)at && at)
            return &allocations[i];
    }
    return NULL;
}

static struct allocation *find_inside(uint64_t at)
{
    for (int i = 0; i < ALLOCATIONS; i++) {
        if (allocations[i].at && at - (uintptr_t)allocations[i].at < allocations[i].bytes)
            return &allocations[i];
    }
    return NULL;
}

/* @fd: the memory's, or of another's -1: @name says where that is. */
static int map(const char *name, int fd, uint64_t *at)
{
    int opened = fd < 0 ? open(name, O_RDWR | O_CLOEXEC) : fd;
    struct stat st;
    void *mapped;

    if (opened < 0)
        return BAD_VALUE;
    fstat(opened, &st);
    mapped = mmap(NULL, (size_t)st.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, opened, 0);
    if (fd < 0)
        close(opened);
    for (int i = 0; i < ALLOCATIONS && mapped != MAP_FAILED; i++) {
        if (allocations[i].at)
            continue;
        allocations[i] = (struct allocation){.at = mapped, .bytes = (size_t)st.st_size, .fd = fd};
        snprintf(allocations[i].name, NAME_BYTES, "%s", name);
        *at = (uintptr_t)mapped;
        return 0;
    }
    return NO_MEMORY;
}

/* A file of memory goes with its process, as a GPU's memory does; others open it by this process's number. */
static int make(size_t bytes, uint64_t *at)
{
    int fd = memfd_create("penstock-fake-cuda", MFD_CLOEXEC);
    char name[NAME_BYTES];

    if (fd < 0 || ftruncate(fd, (off_t)bytes) < 0)
        return NO_MEMORY;
    snprintf(name, sizeof(name), "/proc/%d/fd/%d", (int)getpid(), fd);
    return map(name, fd, at);
}

static int unmap(uint64_t at, int own)
{
    struct allocation *one = find(at);

    if (!pushed)
        return NO_CONTEXT;
    if (!one || (one->fd >= 0) != own)
        return BAD_VALUE;
    munmap(one->at, one->bytes);
    if (own)
        close(one->fd);
    *one = (struct allocation){0};
    return 0;
}

static int queue(void *to, const void *from, size_t bytes, void *stream)
{
    if (!pushed)
        return NO_CONTEXT;
    if (!stream)
        return BAD_HANDLE;
    if (copy_count == COPIES)
        do_copies(copy_count), copy_count = copies_done = 0;
    copies[copy_count++] = (struct copy){to, from, bytes};
    return 0;
}

#define CALL(name, parameters)                                                                               \
    int name parameters;                                                                                     \
    int name parameters

CALL(cuInit, (unsigned flags))
{
    return getenv("FAKE_CUDA_NO_DEVICE") ? NO_DEVICE : flags ? BAD_VALUE : 0;
}

CALL(cuGetErrorString, (int result, const char **text))
{
    *text = result == NO_DEVICE ? "no CUDA-capable device is detected" : "another error";
    return 0;
}

CALL(cuDeviceGet, (int *device, int ordinal))
{
    *device = ordinal;
    return ordinal < DEVICES ? 0 : BAD_DEVICE;
}

CALL(cuDevicePrimaryCtxRetain, (void **context, int device))
{
    *context = &contexts; /* one will do for all */
    contexts++;
    return device < DEVICES ? 0 : BAD_DEVICE;
}

CALL(cuDevicePrimaryCtxRelease_v2, (int device))
{
    contexts--;
    return device < DEVICES ? 0 : BAD_DEVICE;
}

CALL(cuCtxPushCurrent_v2, (void *context))
{
    pushed++;
    return context == &contexts ? 0 : NO_CONTEXT;
}

CALL(cuCtxPopCurrent_v2, (void **context))
{
    *context = &contexts;
    return pushed-- > 0 ? 0 : NO_CONTEXT;
}

int cuCtxSynchronize(void);
int cuCtxSynchronize(void)
{
    do_copies(copy_count);
    return pushed ? 0 : NO_CONTEXT;
}

CALL(cuMemAlloc_v2, (uint64_t * at, size_t bytes))
{
    return !pushed ? NO_CONTEXT : bytes > MEMORY_MAX ? NO_MEMORY : make(bytes, at);
}

CALL(cuMemFree_v2, (uint64_t at))
{
    return unmap(at, 1);
}

CALL(cuMemGetAddressRange_v2, (uint64_t * base, size_t *bytes, uint64_t at))
{
    struct allocation *one = find_inside(at);

    if (!one)
        return BAD_VALUE;
    *base = (uintptr_t)one->at;
    *bytes = one->bytes;
    return 0;
}

/* 2: the kind of memory, 2 of a device; 9: which device. */
CALL(cuPointerGetAttribute, (void *value, int attribute, uint64_t at))
{
    if (!find_inside(at) || (attribute != 2 && attribute != 9))
        return BAD_VALUE;
    *(int *)value = attribute == 2 ? 2 : 0;
    return 0;
}

CALL(cuIpcGetMemHandle, (struct ipc * handle, uint64_t at))
{
    struct allocation *one = find(at);

    if (!one)
        return BAD_VALUE;
    memset(handle, 0, sizeof(*handle));
    memcpy(handle->bytes, one->name, strlen(one->name));
    return 0;
}

CALL(cuIpcOpenMemHandle_v2, (uint64_t * at, struct ipc handle, unsigned flags))
{
    handle.bytes[sizeof(handle.bytes) - 1] = 0;
    for (int i = 0; i < ALLOCATIONS; i++) {
        if (allocations[i].at && strcmp(allocations[i].name, handle.bytes) == 0)
            return allocations[i].fd >= 0 ? NO_CONTEXT : ALREADY_MAPPED;
    }
    return !pushed ? NO_CONTEXT : flags != 1 ? BAD_VALUE : map(handle.bytes, -1, at);
}

CALL(cuIpcCloseMemHandle, (uint64_t at))
{
    return unmap(at, 0);
}

CALL(cuMemHostRegister_v2, (void *at, size_t bytes, unsigned flags))
{
    if (!pushed)
        return NO_CONTEXT;
    if (!at || !bytes || flags != 1)
        return BAD_VALUE;
    locked++;
    return 0;
}

CALL(cuMemHostUnregister, (void *at))
{
    if (!pushed)
        return NO_CONTEXT;
    locked -= at != NULL;
    return 0;
}

CALL(cuMemcpyHtoDAsync_v2, (uint64_t to, const void *from, size_t bytes, void *stream))
{
    return queue((void *)(uintptr_t)to, from, bytes, stream);
}

CALL(cuMemcpyDtoHAsync_v2, (void *to, uint64_t from, size_t bytes, void *stream))
{
    return queue(to, (void *)(uintptr_t)from, bytes, stream);
}

CALL(cuMemcpyDtoDAsync_v2, (uint64_t to, uint64_t from, size_t bytes, void *stream))
{
    return queue((void *)(uintptr_t)to, (void *)(uintptr_t)from, bytes, stream);
}

CALL(cuStreamCreate, (void **stream, unsigned flags))
{
    *stream = &streams;
    streams += pushed > 0;
    return !pushed ? NO_CONTEXT : flags == 1 ? 0 : BAD_VALUE;
}

CALL(cuStreamDestroy_v2, (void *stream))
{
    streams--;
    return stream == &streams ? 0 : BAD_HANDLE;
}

CALL(cuEventCreate, (void **event, unsigned flags))
{
    *event = pushed && flags == 2 ? calloc(1, sizeof(struct event)) : NULL;
    events += *event != NULL;
    return *event ? 0 : NO_CONTEXT;
}

CALL(cuEventRecord, (void *event, void *stream))
{
    ((struct event *)event)->upto = copy_count;
    return stream == &streams ? 0 : BAD_HANDLE;
}

CALL(cuEventQuery, (void *event))
{
    struct event *one = event;

    if (one->asked++ == 0)
        return NOT_READY;
    do_copies(one->upto);
    return 0;
}

CALL(cuEventSynchronize, (void *event))
{
    do_copies(((struct event *)event)->upto);
    return 0;
}

CALL(cuEventDestroy_v2, (void *event))
{
    free(event);
    events--;
    return 0;
}
