/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu.h: memory of a device, for who shares it with other processes or moves bytes in and out. There are two
 * implementations of one table of operations:
 *
 *     pst_gpu_host   this host's memory, as nameless files whose descriptors travel over unix sockets. They
 *                    are sealed, so that nobody can cut one short under a process that has it mapped.
 *     pst_gpu_cuda   a GPU's, through NVIDIA's driver, which is loaded when a device is opened.
 *
 * Copies are asynchronous: buffers of the caller stay as they are until an event that was recorded behind the
 * copy is done. Copies of one device happen in the order in which they were begun; those of the host are done
 * when they return. Any thread; a device is closed when none of its memory or events is left.
 */
#ifndef PST_GPU_GPU_H
#define PST_GPU_GPU_H

#include "base/options.h"
#include "gpu/handle.h"

struct pst_gpu_ops;

/* What every implementation's own structures begin with. */
struct pst_gpu {
    const struct pst_gpu_ops *ops;
};

struct pst_gpu_memory {
    struct pst_gpu *gpu;
    uint64_t bytes; /* of the whole allocation */
    bool writable;
};

struct pst_gpu_event {
    struct pst_gpu *gpu;
};

struct pst_gpu_ops {
    const char *name;
    uint8_t kind; /* of its handles */
    /* @ordinal: of several devices. Return: 0, or -errno with the reason in @fault. */
    int (*open)(uint32_t ordinal, struct pst_gpu **out, char fault[PST_FAULT_BYTES]);
    void (*close)(struct pst_gpu *gpu);
    /* Zeros of the host's memory; of CUDA's whatever was there. @bytes: not 0. -ENOMEM, -EINVAL. */
    int (*allocate)(struct pst_gpu *gpu, uint64_t bytes, struct pst_gpu_memory **out);
    /* The handle of memory that was allocated. *@fd: the memory's own, which travels with it; -1: none does.
     */
    int (*export_handle)(const struct pst_gpu_memory *memory, struct pst_gpu_handle *handle, int *fd);
    /*
     * Another process's memory. @fd: borrowed, what came with the handle. -ESTALE: it is gone, or was never
     * exported. -ERANGE: it has less bytes than the handle says. -EPERM: it is not sealed, or not @writable.
     */
    int (*import_handle)(struct pst_gpu *gpu, const struct pst_gpu_handle *handle, int fd, bool writable,
                         struct pst_gpu_memory **out);
    /*
     * Memory of a device that this process has at an address, as memory that begins there; who has it keeps
     * it. A device is opened for it, which is the caller's to close. Return: 0; -ENOENT it is none of such a
     * device; -ERANGE it ends before @bytes.
     */
    int (*find)(const void *at, uint64_t bytes, struct pst_gpu_memory **out);
    /* Frees it, or ends the import; what was found stays. Nothing is copied in or out any more. */
    void (*give)(struct pst_gpu_memory *memory);
    /*
     * Memory of the caller's that will be copied in and out for long is locked, so that copies of it need not
     * be waited for. They work without, as they do when this fails. Return: 0 or -errno.
     */
    int (*lock)(struct pst_gpu *gpu, void *at, uint64_t bytes);
    void (*unlock)(struct pst_gpu *gpu, void *at);
    /* Begin copies; pst_gpu_copy_in() and the like have checked ranges and devices. */
    int (*copy_in)(struct pst_gpu_memory *to, uint64_t offset, const void *from, uint64_t bytes);
    int (*copy_out)(const struct pst_gpu_memory *from, uint64_t offset, void *to, uint64_t bytes);
    int (*copy)(struct pst_gpu_memory *to, uint64_t to_offset, const struct pst_gpu_memory *from,
                uint64_t from_offset, uint64_t bytes);
    /* An event that is done when all copies are that were begun before. */
    int (*record)(struct pst_gpu *gpu, struct pst_gpu_event **out);
    int (*event_is_done)(struct pst_gpu_event *event); /* 1, 0, -errno */
    int (*event_wait)(struct pst_gpu_event *event);
    void (*event_close)(struct pst_gpu_event *event);
};

extern const struct pst_gpu_ops pst_gpu_host, pst_gpu_cuda;

/* Both accept NULL and return it. */
struct pst_gpu *pst_gpu_close(struct pst_gpu *gpu);
struct pst_gpu_memory *pst_gpu_give(struct pst_gpu_memory *memory);

/* Whatever device it is of. What was found is given back with its device by pst_gpu_lose(). */
int pst_gpu_find(const void *at, uint64_t bytes, struct pst_gpu_memory **out);
struct pst_gpu_memory *pst_gpu_lose(struct pst_gpu_memory *found);

/* Return: 0, it has begun; -ERANGE beyond the memory; -EPERM not writable; -EXDEV between two GPUs. */
int pst_gpu_copy_in(struct pst_gpu_memory *to, uint64_t offset, const void *from, uint64_t bytes);
int pst_gpu_copy_out(const struct pst_gpu_memory *from, uint64_t offset, void *to, uint64_t bytes);
int pst_gpu_copy(struct pst_gpu_memory *to, uint64_t to_offset, const struct pst_gpu_memory *from,
                 uint64_t from_offset, uint64_t bytes);
/* Records an event and waits for it: all copies that were begun are done. */
int pst_gpu_settle(struct pst_gpu *gpu);

/*
 * copy.c: a tensor into another of the same dtype and shape, whatever their strides; the memories do not
 * overlap. It is there when both devices have settled. Return: as pst_gpu_copy(); -EINVAL they are not alike,
 * or elements of @to_tensor do overlap.
 */
int pst_gpu_copy_tensor(struct pst_gpu_memory *to, const struct pst_gpu_tensor *to_tensor,
                        const struct pst_gpu_memory *from, const struct pst_gpu_tensor *from_tensor);

/*
 * host.c: whether a descriptor that came from another process is memory which that handle may name: a
 * nameless file of memory, sealed, with as many bytes. Return: 0, as import_handle(), or -errno.
 */
int pst_gpu_host_check(const struct pst_gpu_handle *handle, int fd);
/* Where the host's memory lies in this process. */
uint8_t *pst_gpu_host_at(const struct pst_gpu_memory *memory);

#endif
