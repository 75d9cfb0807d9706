/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuda.c: a GPU's memory. A device has its primary context, which every call makes its thread's for as long
 * as it lasts, and one stream, on which copies happen in order.
 */
#include "gpu/cuda/device_priv.h"

#include <stdio.h>

struct cuda_event {
    struct pst_gpu_event event;
    void *handle;
};

struct cuda_device *cuda_device_of(const struct pst_gpu *gpu)
{
    pst_assert(gpu->ops == &pst_gpu_cuda);
    return pst_container_of(gpu, struct cuda_device, gpu);
}

struct cuda_memory *cuda_memory_of(const struct pst_gpu_memory *memory)
{
    pst_assert(memory->gpu->ops == &pst_gpu_cuda);
    return pst_container_of(memory, struct cuda_memory, memory);
}

int cuda_enter(struct cuda_device *device)
{
    pst_assert(device->driver && device->context);
    return cuda_errno(device->driver->context_push(device->context));
}

void cuda_leave(struct cuda_device *device)
{
    void *context;

    device->driver->context_pop(&context);
}

/* ---- devices ---- */

static void cuda_close(struct pst_gpu *gpu)
{
    struct cuda_device *device = cuda_device_of(gpu);

    if (device->stream && cuda_enter(device) == 0) {
        device->driver->stream_destroy(device->stream);
        cuda_leave(device);
    }
    if (device->context)
        device->driver->context_release(device->device);
    free(device);
}

static int device_begin(struct cuda_device *device, uint32_t ordinal)
{
    const struct cuda_driver *driver = device->driver;
    int r = ordinal > INT32_MAX ? -ENODEV : cuda_errno(driver->device(&device->device, (int)ordinal));

    if (r == 0)
        r = cuda_errno(driver->context_retain(&device->context, device->device));
    if (r == 0)
        r = cuda_enter(device);
    if (r == 0) {
        r = cuda_errno(driver->stream_create(&device->stream, CUDA_STREAM_NON_BLOCKING));
        cuda_leave(device);
    }
    return r;
}

static int cuda_open(uint32_t ordinal, struct pst_gpu **out, char fault[PST_FAULT_BYTES])
{
    const struct cuda_driver *driver;
    struct cuda_device *device;
    int r = cuda_driver_load(&driver, fault);

    if (r < 0)
        return r;
    device = calloc(1, sizeof(*device));
    if (!device) {
        snprintf(fault, PST_FAULT_BYTES, "out of memory");
        return -ENOMEM;
    }
    device->gpu.ops = &pst_gpu_cuda;
    device->driver = driver;
    r = device_begin(device, ordinal);
    if (r < 0) {
        snprintf(fault, PST_FAULT_BYTES, "CUDA device %u cannot be opened: %s", ordinal, strerror(-r));
        cuda_close(&device->gpu);
        return r;
    }
    *out = &device->gpu;
    return 0;
}

/* ---- memory ---- */

static struct cuda_memory *cuda_new(struct pst_gpu *gpu, uint64_t bytes, int origin, bool writable)
{
    struct cuda_memory *cuda = calloc(1, sizeof(*cuda));

    pst_assert(bytes > 0);
    if (cuda)
        *cuda = (struct cuda_memory){.memory = {.gpu = gpu, .bytes = bytes, .writable = writable},
                                     .origin = origin};
    return cuda;
}

static int cuda_allocate(struct pst_gpu *gpu, uint64_t bytes, struct pst_gpu_memory **out)
{
    struct cuda_device *device = cuda_device_of(gpu);
    struct cuda_memory *cuda = bytes > 0 ? cuda_new(gpu, bytes, CUDA_OWN, true) : NULL;
    int r = bytes == 0 ? -EINVAL : !cuda ? -ENOMEM : cuda_enter(device);

    if (r == 0) {
        r = cuda_errno(device->driver->alloc(&cuda->at, bytes));
        cuda_leave(device);
    }
    if (r < 0) {
        free(cuda);
        return r;
    }
    *out = &cuda->memory;
    return 0;
}

static int cuda_export(const struct pst_gpu_memory *memory, struct pst_gpu_handle *handle, int *fd)
{
    struct cuda_device *device = cuda_device_of(memory->gpu);
    struct cuda_memory *cuda = cuda_memory_of(memory);
    struct cuda_ipc_handle ipc;
    int r = cuda->origin == CUDA_OWN ? cuda_enter(device) : -EINVAL;

    if (r < 0)
        return r;
    r = cuda_errno(device->driver->ipc_get(&ipc, cuda->at));
    cuda_leave(device);
    if (r < 0)
        return r;
    *handle = (struct pst_gpu_handle){.kind = PST_GPU_CUDA, .memory_bytes = memory->bytes};
    memcpy(handle->cuda, ipc.bytes, sizeof(ipc.bytes));
    *fd = -1;
    return 0;
}

/* In the context. The driver, not the handle, says how many bytes there are. */
static int import_in_context(struct cuda_device *device, const struct pst_gpu_handle *handle,
                             struct cuda_memory *cuda)
{
    struct cuda_ipc_handle ipc;
    cuda_address base;
    size_t bytes;
    int r;

    pst_assert(cuda->origin == CUDA_IMPORTED);
    _Static_assert(sizeof(ipc.bytes) == sizeof(handle->cuda), "a handle of CUDA's");
    memcpy(ipc.bytes, handle->cuda, sizeof(ipc.bytes));
    r = cuda_import_open(device, &ipc, &cuda->at);
    if (r < 0)
        return r;
    r = cuda_errno(device->driver->range(&base, &bytes, cuda->at));
    if (r == 0 && (cuda->at != base || bytes < handle->memory_bytes))
        r = -ERANGE;
    if (r < 0)
        cuda_import_close(device, cuda->at);
    return r;
}

static int cuda_import(struct pst_gpu *gpu, const struct pst_gpu_handle *handle, int fd, bool writable,
                       struct pst_gpu_memory **out)
{
    struct cuda_device *device = cuda_device_of(gpu);
    struct cuda_memory *cuda;
    int r;

    (void)fd;
    if (handle->kind != PST_GPU_CUDA || handle->memory_bytes == 0)
        return -EINVAL;
    cuda = cuda_new(gpu, handle->memory_bytes, CUDA_IMPORTED, writable);
    r = cuda ? cuda_enter(device) : -ENOMEM;
    if (r == 0) {
        r = import_in_context(device, handle, cuda);
        cuda_leave(device);
    }
    if (r < 0) {
        free(cuda);
        return r;
    }
    *out = &cuda->memory;
    return 0;
}

/* If the context cannot be entered its memory has gone with it. */
static void cuda_give(struct pst_gpu_memory *memory)
{
    struct cuda_device *device = cuda_device_of(memory->gpu);
    struct cuda_memory *cuda = cuda_memory_of(memory);

    pst_assert(memory->bytes > 0);
    if (cuda->origin != CUDA_FOUND && cuda_enter(device) == 0) {
        if (cuda->origin == CUDA_OWN)
            device->driver->free(cuda->at);
        else
            cuda_import_close(device, cuda->at);
        cuda_leave(device);
    }
    free(cuda);
}

/* Which device the address is of. Return: 0, -ENOENT. */
static int find_device(const void *at, uint32_t *ordinal)
{
    char fault[PST_FAULT_BYTES];
    const struct cuda_driver *driver;
    unsigned type = 0;
    int number = -1;

    if (!cuda_driver_is_there() || cuda_driver_load(&driver, fault) < 0 ||
        driver->pointer(&type, CUDA_POINTER_MEMORY_TYPE, (uintptr_t)at) != CUDA_OK ||
        type != CUDA_MEMORY_TYPE_DEVICE ||
        driver->pointer(&number, CUDA_POINTER_DEVICE_ORDINAL, (uintptr_t)at) != CUDA_OK || number < 0)
        return -ENOENT;
    *ordinal = (uint32_t)number;
    return 0;
}

static int find_in_context(struct cuda_device *device, cuda_address at, uint64_t bytes)
{
    pst_assert(at != 0);
    cuda_address base;
    size_t size;
    int r = cuda_errno(device->driver->range(&base, &size, at));

    if (r < 0)
        return r;
    return at >= base && at - base <= size && bytes <= size - (at - base) ? 0 : -ERANGE;
}

static int cuda_find(const void *at, uint64_t bytes, struct pst_gpu_memory **out)
{
    char fault[PST_FAULT_BYTES];
    struct cuda_memory *cuda;
    struct pst_gpu *gpu;
    uint32_t ordinal;
    int r = find_device(at, &ordinal);

    if (r == 0)
        r = cuda_open(ordinal, &gpu, fault);
    if (r < 0)
        return r;
    cuda = cuda_new(gpu, bytes, CUDA_FOUND, true);
    r = cuda ? cuda_enter(cuda_device_of(gpu)) : -ENOMEM;
    if (r == 0) {
        cuda->at = (uintptr_t)at;
        r = find_in_context(cuda_device_of(gpu), cuda->at, bytes);
        cuda_leave(cuda_device_of(gpu));
    }
    if (r < 0) {
        free(cuda);
        cuda_close(gpu);
        return r;
    }
    *out = &cuda->memory;
    return 0;
}

static int cuda_lock(struct pst_gpu *gpu, void *at, uint64_t bytes)
{
    struct cuda_device *device = cuda_device_of(gpu);
    int r = cuda_enter(device);

    pst_assert(at || bytes == 0);
    if (r < 0)
        return r;
    r = cuda_errno(device->driver->host_register(at, bytes, CUDA_HOST_REGISTER_PORTABLE));
    cuda_leave(device);
    return r;
}

static void cuda_unlock(struct pst_gpu *gpu, void *at)
{
    struct cuda_device *device = cuda_device_of(gpu);

    pst_assert(at);
    if (cuda_enter(device) < 0)
        return;
    device->driver->host_unregister(at);
    cuda_leave(device);
}

/* ---- copies ---- */

static int cuda_copy_in(struct pst_gpu_memory *to, uint64_t offset, const void *from, uint64_t bytes)
{
    struct cuda_device *device = cuda_device_of(to->gpu);
    int r = cuda_enter(device);

    if (r < 0)
        return r;
    pst_assert(to->writable);
    pst_assert(offset + bytes <= to->bytes);
    r = cuda_errno(device->driver->copy_in(cuda_memory_of(to)->at + offset, from, bytes, device->stream));
    cuda_leave(device);
    return r;
}

static int cuda_copy_out(const struct pst_gpu_memory *from, uint64_t offset, void *to, uint64_t bytes)
{
    struct cuda_device *device = cuda_device_of(from->gpu);
    int r = cuda_enter(device);

    if (r < 0)
        return r;
    pst_assert(offset + bytes <= from->bytes);
    r = cuda_errno(device->driver->copy_out(to, cuda_memory_of(from)->at + offset, bytes, device->stream));
    cuda_leave(device);
    return r;
}

static int cuda_copy(struct pst_gpu_memory *to, uint64_t to_offset, const struct pst_gpu_memory *from,
                     uint64_t from_offset, uint64_t bytes)
{
    struct cuda_device *device = cuda_device_of(to->gpu);
    int r = cuda_enter(device);

    if (r < 0)
        return r;
    pst_assert(to->gpu == from->gpu);
    pst_assert(to->writable);
    r = cuda_errno(device->driver->copy(cuda_memory_of(to)->at + to_offset,
                                        cuda_memory_of(from)->at + from_offset, bytes, device->stream));
    cuda_leave(device);
    return r;
}

/* ---- events ---- */

static struct cuda_event *event_of(struct pst_gpu_event *event)
{
    pst_assert(event->gpu->ops == &pst_gpu_cuda);
    return pst_container_of(event, struct cuda_event, event);
}

static int record_in_context(struct cuda_device *device, struct cuda_event *event)
{
    const struct cuda_driver *driver = device->driver;
    int r = cuda_errno(driver->event_create(&event->handle, CUDA_EVENT_DISABLE_TIMING));

    pst_assert(device->stream);
    if (r < 0)
        return r;
    r = cuda_errno(driver->event_record(event->handle, device->stream));
    if (r < 0)
        driver->event_destroy(event->handle);
    return r;
}

static int cuda_record(struct pst_gpu *gpu, struct pst_gpu_event **out)
{
    struct cuda_device *device = cuda_device_of(gpu);
    struct cuda_event *event = calloc(1, sizeof(*event));
    int r = event ? cuda_enter(device) : -ENOMEM;

    if (r == 0) {
        r = record_in_context(device, event);
        cuda_leave(device);
    }
    if (r < 0) {
        free(event);
        return r;
    }
    event->event.gpu = gpu;
    *out = &event->event;
    return 0;
}

static int cuda_event_is_done(struct pst_gpu_event *event)
{
    int r = cuda_errno(cuda_device_of(event->gpu)->driver->event_query(event_of(event)->handle));

    return r == 0 ? 1 : r == -EAGAIN ? 0 : r;
}

static int cuda_event_wait(struct pst_gpu_event *event)
{
    return cuda_errno(cuda_device_of(event->gpu)->driver->event_wait(event_of(event)->handle));
}

static void cuda_event_close(struct pst_gpu_event *event)
{
    struct cuda_event *cuda = event_of(event);

    cuda_device_of(event->gpu)->driver->event_destroy(cuda->handle);
    free(cuda);
}

const struct pst_gpu_ops pst_gpu_cuda = {
    .name = "cuda",
    .kind = PST_GPU_CUDA,
    .open = cuda_open,
    .close = cuda_close,
    .allocate = cuda_allocate,
    .export_handle = cuda_export,
    .import_handle = cuda_import,
    .find = cuda_find,
    .give = cuda_give,
    .lock = cuda_lock,
    .unlock = cuda_unlock,
    .copy_in = cuda_copy_in,
    .copy_out = cuda_copy_out,
    .copy = cuda_copy,
    .record = cuda_record,
    .event_is_done = cuda_event_is_done,
    .event_wait = cuda_event_wait,
    .event_close = cuda_event_close,
};
