/* SPDX-License-Identifier: Apache-2.0 */
/*
 * place.h: a tensor that another process has: its memory, by a handle, the device, and how it lies there.
 * Whoever copies between places opens each device once, and closes all at the end. One thread at a time per
 * set of devices.
 */
#ifndef PST_GPU_PLACE_H
#define PST_GPU_PLACE_H

#include "gpu/gpu.h"

enum { PST_GPU_ORDINALS_MAX = 64 };

struct pst_gpu_place {
    struct pst_gpu_handle handle;
    struct pst_gpu_tensor layout;
    uint32_t ordinal; /* of its device */
    int fd;           /* the host's memory; -1: a GPU's has none */
};

/* Those that were asked for. All zeros: none. */
struct pst_gpu_devices {
    struct pst_gpu *cuda[PST_GPU_ORDINALS_MAX];
};

/* "cpu", "cuda" or "cuda:N", as torch calls a device. Return: 0 and which one, or -EINVAL. */
int pst_gpu_ordinal_parse(uint8_t kind, const char *device, uint32_t *ordinal);

/* The device of that kind and number; a GPU's stays until all are closed. Return: 0, or -errno with the
 * reason in @fault. */
int pst_gpu_devices_get(struct pst_gpu_devices *devices, uint8_t kind, uint32_t ordinal, struct pst_gpu **out,
                        char fault[PST_FAULT_BYTES]);
/* All of their memory was given back before. */
void pst_gpu_devices_close(struct pst_gpu_devices *devices);

/* Imports the memory of @place, which is to be given back. Return: 0, or -errno with the reason in @fault. */
int pst_gpu_place_import(struct pst_gpu_devices *devices, const struct pst_gpu_place *place, bool writable,
                         struct pst_gpu_memory **out, char fault[PST_FAULT_BYTES]);
/*
 * Copies a tensor into another one of the same dtype and shape, and waits until it is there. Return: 0;
 * -EINVAL they are not alike; -EXDEV they lie on two GPUs; -ENOMEM the host has not the memory that they
 * could take; -errno; with the reason in @fault.
 */
int pst_gpu_place_copy(struct pst_gpu_devices *devices, const struct pst_gpu_place *to,
                       const struct pst_gpu_place *from, char fault[PST_FAULT_BYTES]);

#endif
