/* SPDX-License-Identifier: Apache-2.0 */
/* place.c: other processes' tensors, and copies between them. */
#include "gpu/place.h"

#include "mem/limit.h"

#include <stdio.h>
#include <sys/stat.h>

enum { STAT_BLOCK_BYTES = 512 };

static int place_fail(int error, const char *why, char fault[PST_FAULT_BYTES])
{
    pst_assert(error < 0);
    snprintf(fault, PST_FAULT_BYTES, "%.200s", why);
    return error;
}

int pst_gpu_ordinal_parse(uint8_t kind, const char *device, uint32_t *ordinal)
{
    const char *at = device;

    pst_assert(kind == PST_GPU_HOST || kind == PST_GPU_CUDA);
    *ordinal = 0;
    if (kind == PST_GPU_HOST)
        return strcmp(device, "cpu") == 0 ? 0 : -EINVAL;
    if (strcmp(device, "cuda") == 0)
        return 0;
    if (strncmp(device, "cuda:", 5) != 0 || !device[5] || strlen(device) > 8)
        return -EINVAL;
    for (at += 5; *at >= '0' && *at <= '9'; at++)
        *ordinal = *ordinal * 10 + (uint32_t)(*at - '0');
    return *at ? -EINVAL : 0;
}

int pst_gpu_devices_get(struct pst_gpu_devices *devices, uint8_t kind, uint32_t ordinal, struct pst_gpu **out,
                        char fault[PST_FAULT_BYTES])
{
    int r;

    if (kind == PST_GPU_HOST)
        return pst_gpu_host.open(ordinal, out, fault);
    if (ordinal >= PST_GPU_ORDINALS_MAX)
        return place_fail(-ENODEV, "no GPU has such a number", fault);
    if (!devices->cuda[ordinal]) {
        r = pst_gpu_cuda.open(ordinal, &devices->cuda[ordinal], fault);
        if (r < 0)
            return r;
    }
    pst_assert(devices->cuda[ordinal]->ops == &pst_gpu_cuda);
    *out = devices->cuda[ordinal];
    return 0;
}

void pst_gpu_devices_close(struct pst_gpu_devices *devices)
{
    for (size_t i = 0; i < pst_count_of(devices->cuda); i++)
        devices->cuda[i] = pst_gpu_close(devices->cuda[i]);
}

int pst_gpu_place_import(struct pst_gpu_devices *devices, const struct pst_gpu_place *place, bool writable,
                         struct pst_gpu_memory **out, char fault[PST_FAULT_BYTES])
{
    struct pst_gpu *gpu;
    int r = pst_gpu_devices_get(devices, place->handle.kind, place->ordinal, &gpu, fault);

    if (r < 0)
        return r;
    pst_assert((place->handle.kind == PST_GPU_HOST) == (place->fd >= 0));
    r = gpu->ops->import_handle(gpu, &place->handle, place->fd, writable, out);
    if (r < 0)
        return place_fail(r, r == -ESTALE ? "its memory is gone" : strerror(-r), fault);
    return 0;
}

/* A file of memory can have holes, which are filled when they are copied from, or to. */
static bool place_has_room(const struct pst_gpu_place *place)
{
    uint64_t first, end, holes, there;
    struct pst_limit limit;
    struct stat st;

    if (place->handle.kind != PST_GPU_HOST || fstat(place->fd, &st) < 0 ||
        pst_gpu_tensor_span(&place->layout, place->handle.memory_bytes, &first, &end) < 0)
        return true; /* what is wrong is said elsewhere */
    there = (uint64_t)st.st_blocks * STAT_BLOCK_BYTES;
    holes = place->handle.memory_bytes - pst_min(there, place->handle.memory_bytes);
    pst_limit_read("", &limit);
    return pst_min(holes, end - first) <= limit.left_bytes / 2;
}

static int copy_imported(struct pst_gpu_memory *to, const struct pst_gpu_tensor *to_layout,
                         struct pst_gpu_memory *from, const struct pst_gpu_tensor *from_layout,
                         char fault[PST_FAULT_BYTES])
{
    int r = pst_gpu_copy_tensor(to, to_layout, from, from_layout);

    pst_assert(to->writable);
    if (r == -EXDEV)
        return place_fail(r, "it lies on another GPU than its destination", fault);
    if (r == 0)
        r = pst_gpu_settle(to->gpu);
    if (r == 0 && from->gpu != to->gpu)
        r = pst_gpu_settle(from->gpu);
    return r < 0 ? place_fail(r, strerror(-r), fault) : 0;
}

int pst_gpu_place_copy(struct pst_gpu_devices *devices, const struct pst_gpu_place *to,
                       const struct pst_gpu_place *from, char fault[PST_FAULT_BYTES])
{
    struct pst_gpu_memory *out = NULL, *in = NULL;
    int r;

    if (!pst_gpu_tensor_alike(&to->layout, &from->layout))
        return place_fail(-EINVAL, "its destination has another dtype or shape", fault);
    if (pst_gpu_tensor_is_empty(&to->layout))
        return 0;
    if (!place_has_room(to) || !place_has_room(from))
        return place_fail(-ENOMEM, strerror(ENOMEM), fault);
    r = pst_gpu_place_import(devices, from, false, &in, fault);
    if (r == 0)
        r = pst_gpu_place_import(devices, to, true, &out, fault);
    if (r == 0)
        r = copy_imported(out, &to->layout, in, &from->layout, fault);
    pst_gpu_give(out);
    pst_gpu_give(in);
    return r;
}
