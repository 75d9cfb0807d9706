/* SPDX-License-Identifier: Apache-2.0 */
/*
 * handle.h: what tells another process where a tensor lies: which memory, and the offset and strides within
 * it. Of memory of the host the handle has the number of a descriptor that travels beside it, of a GPU's what
 * the driver calls an IPC handle. As text it is these bytes in hex, numbers with the lowest byte first:
 *
 *     0        4      5      6      8                16               24
 *     "pst1"   kind   rank   zero   memory's bytes   offset (bytes)   strides (8 bytes each)   memory
 *
 * The memory is 4 bytes of HOST, the number, and 64 bytes of CUDA. Pure; any thread.
 */
#ifndef PST_GPU_HANDLE_H
#define PST_GPU_HANDLE_H

#include "gpu/tensor.h"

enum { PST_GPU_HOST = 1, PST_GPU_CUDA = 2 };

enum {
    PST_GPU_CUDA_HANDLE_BYTES = 64, /* CU_IPC_HANDLE_SIZE */
    PST_GPU_HANDLE_BYTES_MAX = 24 + 8 * PST_GPU_RANK_MAX + PST_GPU_CUDA_HANDLE_BYTES,
    PST_GPU_HANDLE_TEXT_MAX = 2 * PST_GPU_HANDLE_BYTES_MAX + 1,
};

/* Memory as other processes know it. */
struct pst_gpu_handle {
    uint8_t kind;
    uint64_t memory_bytes;
    uint32_t descriptor;                     /* HOST */
    uint8_t cuda[PST_GPU_CUDA_HANDLE_BYTES]; /* CUDA */
};

/* Writes the text of a tensor in @handle's memory. Of the tensor its rank, offset and strides are said. */
void pst_gpu_handle_print(const struct pst_gpu_handle *handle, const struct pst_gpu_tensor *tensor,
                          char text[PST_GPU_HANDLE_TEXT_MAX]);
/*
 * Reads it, and the tensor's rank, offset and strides. Both are written on success alone; the caller checks
 * the tensor against the memory. Return: 0, -EINVAL no handle, -EOPNOTSUPP another kind or version of one.
 */
int pst_gpu_handle_parse(const char *text, struct pst_gpu_handle *handle, struct pst_gpu_tensor *tensor);

#endif
