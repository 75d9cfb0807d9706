/* SPDX-License-Identifier: Apache-2.0 */
/* tensor.c: dtypes by name, and the span of a tensor's bytes, without an overflow whatever is said. */
#include "gpu/tensor.h"

static const struct dtype {
    const char *name;
    uint32_t bytes;
} dtypes[] = {
    {"bool", 1},
    {"uint8", 1},
    {"int8", 1},
    {"uint16", 2},
    {"int16", 2},
    {"uint32", 4},
    {"int32", 4},
    {"uint64", 8},
    {"int64", 8},
    {"float16", 2},
    {"bfloat16", 2},
    {"float32", 4},
    {"float64", 8},
    {"complex32", 4},
    {"complex64", 8},
    {"complex128", 16},
    {"float8_e3m4", 1},
    {"float8_e4m3", 1},
    {"float8_e4m3b11fnuz", 1},
    {"float8_e4m3fn", 1},
    {"float8_e4m3fnuz", 1},
    {"float8_e5m2", 1},
    {"float8_e5m2fnuz", 1},
    {"float8_e8m0fnu", 1},
    {"float4_e2m1fn_x2", 1},
};

int pst_gpu_tensor_set_dtype(struct pst_gpu_tensor *tensor, const char *name)
{
    static const char torch[] = "torch.";

    if (strncmp(name, torch, sizeof(torch) - 1) == 0)
        name += sizeof(torch) - 1;
    for (size_t i = 0; i < pst_count_of(dtypes); i++) {
        if (strcmp(dtypes[i].name, name) != 0)
            continue;
        pst_assert(strlen(name) < sizeof(tensor->dtype));
        strcpy(tensor->dtype, name);
        tensor->element_bytes = dtypes[i].bytes;
        return 0;
    }
    return -EOPNOTSUPP;
}

int pst_gpu_tensor_set_dense(struct pst_gpu_tensor *tensor)
{
    int64_t stride = tensor->element_bytes, strides[PST_GPU_RANK_MAX];

    pst_assert(tensor->rank <= PST_GPU_RANK_MAX && tensor->element_bytes > 0);
    for (uint32_t i = tensor->rank; i-- > 0;) {
        strides[i] = stride;
        if (tensor->shape[i] > 1 && __builtin_mul_overflow(stride, tensor->shape[i], &stride))
            return -EOVERFLOW;
    }
    memcpy(tensor->strides, strides, tensor->rank * sizeof(strides[0]));
    return 0;
}

int pst_gpu_tensor_span(const struct pst_gpu_tensor *tensor, uint64_t memory_bytes, uint64_t *first,
                        uint64_t *end)
{
    uint64_t offset = tensor->offset_bytes;
    int64_t low = 0, high = tensor->element_bytes; /* of where elements begin, of where they end */
    bool empty = false;

    pst_assert(tensor->rank <= PST_GPU_RANK_MAX && tensor->element_bytes > 0);
    for (uint32_t i = 0; i < tensor->rank; i++)
        empty = empty || tensor->shape[i] == 0;
    for (uint32_t i = 0; i < tensor->rank && !empty; i++) {
        int64_t reach, *side = tensor->strides[i] < 0 ? &low : &high;

        if (__builtin_mul_overflow(tensor->shape[i] - 1, tensor->strides[i], &reach) ||
            __builtin_add_overflow(*side, reach, side))
            return -EOVERFLOW;
    }
    if (empty)
        low = high = 0;
    /* -low is no overflow: low began at zero, and INT64_MIN bytes are more than an offset has. */
    if (offset > memory_bytes || (low < 0 && (low == INT64_MIN || offset < (uint64_t)-low)) ||
        (uint64_t)high > memory_bytes - offset)
        return -ERANGE;
    *first = offset - (uint64_t)-low;
    *end = offset + (uint64_t)high;
    return 0;
}

bool pst_gpu_tensor_is_empty(const struct pst_gpu_tensor *tensor)
{
    pst_assert(tensor->rank <= PST_GPU_RANK_MAX);
    for (uint32_t i = 0; i < tensor->rank; i++)
        if (tensor->shape[i] == 0)
            return true;
    return false;
}

bool pst_gpu_tensor_alike(const struct pst_gpu_tensor *a, const struct pst_gpu_tensor *b)
{
    return strcmp(a->dtype, b->dtype) == 0 && a->rank == b->rank &&
           memcmp(a->shape, b->shape, a->rank * sizeof(a->shape[0])) == 0;
}
