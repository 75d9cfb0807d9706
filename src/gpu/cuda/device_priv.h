/* SPDX-License-Identifier: Apache-2.0 */
/*
 * device_priv.h: a GPU as the files of this folder share it. Its calls are made between cuda_enter() and
 * cuda_leave(), which give the thread the device's primary context. Any thread.
 */
#ifndef PST_GPU_CUDA_DEVICE_PRIV_H
#define PST_GPU_CUDA_DEVICE_PRIV_H

#include "gpu/cuda/driver_priv.h"
#include "gpu/gpu.h"

struct cuda_device {
    struct pst_gpu gpu;
    const struct cuda_driver *driver;
    int device;
    void *context;
    void *stream; /* on which its copies happen in order */
};

struct cuda_memory {
    struct pst_gpu_memory memory;
    cuda_address at;
    enum { CUDA_OWN, CUDA_IMPORTED, CUDA_FOUND } origin;
};

struct cuda_device *cuda_device_of(const struct pst_gpu *gpu);
struct cuda_memory *cuda_memory_of(const struct pst_gpu_memory *memory);
int cuda_enter(struct cuda_device *device);
void cuda_leave(struct cuda_device *device);

/*
 * imports.c: memory of another process, in the device's context. The driver opens a handle once in a process,
 * so those who import the same memory share it. Return: 0; -ESTALE it is gone, or was never exported;
 * -ENOMEM.
 */
int cuda_import_open(struct cuda_device *device, const struct cuda_ipc_handle *ipc, cuda_address *at);
/* Ends the mapping with the last who has it. */
void cuda_import_close(struct cuda_device *device, cuda_address at);

#endif
