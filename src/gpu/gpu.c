/* SPDX-License-Identifier: Apache-2.0 */
/* gpu.c: what is checked for every implementation alike. */
#include "gpu/gpu.h"

struct pst_gpu *pst_gpu_close(struct pst_gpu *gpu)
{
    if (gpu)
        gpu->ops->close(gpu);
    return NULL;
}

struct pst_gpu_memory *pst_gpu_give(struct pst_gpu_memory *memory)
{
    if (memory)
        memory->gpu->ops->give(memory);
    return NULL;
}

int pst_gpu_find(const void *at, uint64_t bytes, struct pst_gpu_memory **out)
{
    int r = pst_gpu_host.find(at, bytes, out);

    return r == -ENOENT ? pst_gpu_cuda.find(at, bytes, out) : r;
}

struct pst_gpu_memory *pst_gpu_lose(struct pst_gpu_memory *found)
{
    struct pst_gpu *gpu = found ? found->gpu : NULL;

    pst_gpu_give(found);
    pst_gpu_close(gpu);
    return NULL;
}

static int check_range(const struct pst_gpu_memory *memory, uint64_t offset, uint64_t bytes)
{
    pst_assert(memory->gpu);
    return offset <= memory->bytes && bytes <= memory->bytes - offset ? 0 : -ERANGE;
}

int pst_gpu_copy_in(struct pst_gpu_memory *to, uint64_t offset, const void *from, uint64_t bytes)
{
    int r = to->writable ? check_range(to, offset, bytes) : -EPERM;

    return r < 0 || bytes == 0 ? r : to->gpu->ops->copy_in(to, offset, from, bytes);
}

int pst_gpu_copy_out(const struct pst_gpu_memory *from, uint64_t offset, void *to, uint64_t bytes)
{
    int r = check_range(from, offset, bytes);

    return r < 0 || bytes == 0 ? r : from->gpu->ops->copy_out(from, offset, to, bytes);
}

static bool is_host(const struct pst_gpu_memory *memory)
{
    return memory->gpu->ops == &pst_gpu_host;
}

int pst_gpu_copy(struct pst_gpu_memory *to, uint64_t to_offset, const struct pst_gpu_memory *from,
                 uint64_t from_offset, uint64_t bytes)
{
    int r = to->writable ? check_range(to, to_offset, bytes) : -EPERM;

    if (r == 0)
        r = check_range(from, from_offset, bytes);
    if (r < 0 || bytes == 0)
        return r;
    if (to->gpu == from->gpu)
        return to->gpu->ops->copy(to, to_offset, from, from_offset, bytes);
    if (is_host(from))
        return to->gpu->ops->copy_in(to, to_offset, pst_gpu_host_at(from) + from_offset, bytes);
    if (is_host(to))
        return from->gpu->ops->copy_out(from, from_offset, pst_gpu_host_at(to) + to_offset, bytes);
    return -EXDEV;
}

int pst_gpu_settle(struct pst_gpu *gpu)
{
    struct pst_gpu_event *event;
    int r = gpu->ops->record(gpu, &event);

    pst_assert(gpu);
    if (r < 0)
        return r;
    pst_assert(event->gpu == gpu);
    r = gpu->ops->event_wait(event);
    gpu->ops->event_close(event);
    return r;
}
