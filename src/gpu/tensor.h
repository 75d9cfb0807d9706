/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tensor.h: how a tensor lies in memory, and whether it lies in there at all. A tensor is elements of one
 * dtype; the element with index (i, j, ...) begins at offset + i * stride 0 + j * stride 1 + ... Strides are
 * bytes, and may be negative or zero. Pure; any thread.
 */
#ifndef PST_GPU_TENSOR_H
#define PST_GPU_TENSOR_H

#include "base/base.h"

enum {
    PST_GPU_RANK_MAX = 32,
    PST_GPU_DTYPE_BYTES = 24, /* of a dtype's name, its NUL included */
};

struct pst_gpu_tensor {
    char dtype[PST_GPU_DTYPE_BYTES]; /* as torch and NumPy name it, "float32", without "torch." */
    uint32_t element_bytes;
    uint32_t rank;
    uint64_t offset_bytes;
    uint64_t shape[PST_GPU_RANK_MAX];
    int64_t strides[PST_GPU_RANK_MAX]; /* bytes */
};

/* Sets the dtype by its name, with or without "torch.". Return: 0, -EOPNOTSUPP no such dtype. */
int pst_gpu_tensor_set_dtype(struct pst_gpu_tensor *tensor, const char *name);
/* Strides as if its elements lay in the order of C, without gaps. Return: 0, -EOVERFLOW. */
int pst_gpu_tensor_set_dense(struct pst_gpu_tensor *tensor);
/*
 * The bytes that it touches, *@first up to *@end; both its offset if it has no elements. Return: 0; -ERANGE
 * not all of them lie in @memory_bytes; -EOVERFLOW no memory could hold it.
 */
int pst_gpu_tensor_span(const struct pst_gpu_tensor *tensor, uint64_t memory_bytes, uint64_t *first,
                        uint64_t *end);
/* Whether it has no elements, and so need have no memory. */
bool pst_gpu_tensor_is_empty(const struct pst_gpu_tensor *tensor);
/* Whether both have the same dtype and shape. */
bool pst_gpu_tensor_alike(const struct pst_gpu_tensor *a, const struct pst_gpu_tensor *b);

#endif
