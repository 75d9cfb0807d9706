/* SPDX-License-Identifier: Apache-2.0 */
/*
 * copy.c: tensors into tensors. Dimensions in which both lie without gaps are one run of bytes; the outer
 * ones are counted through.
 */
#include "gpu/gpu.h"

struct walk {
    uint32_t rank; /* of the dimensions that are counted, those behind are a run */
    uint64_t run_bytes;
    uint64_t runs;
    uint64_t index[PST_GPU_RANK_MAX];
};

/* Return: 0 it has none; -EOVERFLOW. */
static int count_elements(const struct pst_gpu_tensor *tensor, uint64_t *count)
{
    bool over = false;

    *count = 1;
    for (uint32_t i = 0; i < tensor->rank; i++) {
        if (tensor->shape[i] == 0)
            return *count = 0, 0;
        over = over || __builtin_mul_overflow(*count, tensor->shape[i], count);
    }
    return over ? -EOVERFLOW : 0;
}

static void walk_begin(const struct pst_gpu_tensor *to, const struct pst_gpu_tensor *from, uint64_t elements,
                       struct walk *walk)
{
    *walk = (struct walk){.rank = to->rank, .run_bytes = to->element_bytes};
    while (walk->rank > 0) {
        uint32_t last = walk->rank - 1;
        int64_t run = (int64_t)walk->run_bytes;

        if (to->shape[last] != 1 && (to->strides[last] != run || from->strides[last] != run))
            break;
        walk->run_bytes *= to->shape[last];
        walk->rank = last;
    }
    walk->runs = elements / (walk->run_bytes / to->element_bytes);
}

/* The next run's offsets. */
static void walk_step(struct walk *walk, const struct pst_gpu_tensor *to, const struct pst_gpu_tensor *from,
                      uint64_t *to_offset, uint64_t *from_offset)
{
    for (uint32_t i = walk->rank; i-- > 0;) {
        *to_offset += (uint64_t)to->strides[i];
        *from_offset += (uint64_t)from->strides[i];
        if (++walk->index[i] < to->shape[i])
            return;
        walk->index[i] = 0;
        *to_offset -= (uint64_t)to->strides[i] * to->shape[i];
        *from_offset -= (uint64_t)from->strides[i] * to->shape[i];
    }
}

int pst_gpu_copy_tensor(struct pst_gpu_memory *to, const struct pst_gpu_tensor *to_tensor,
                        const struct pst_gpu_memory *from, const struct pst_gpu_tensor *from_tensor)
{
    uint64_t to_offset = to_tensor->offset_bytes, from_offset = from_tensor->offset_bytes, first, end,
             elements = 0;
    struct walk walk;
    int r = pst_gpu_tensor_alike(to_tensor, from_tensor) ? 0 : -EINVAL;

    if (r == 0)
        r = pst_gpu_tensor_span(to_tensor, to->bytes, &first, &end);
    if (r == 0)
        r = pst_gpu_tensor_span(from_tensor, from->bytes, &first, &end);
    if (r == 0)
        r = count_elements(to_tensor, &elements);
    if (r < 0 || elements == 0)
        return r;
    /* More elements than the memory has room for lie on top of each other, and could be copied for years. */
    if (elements > to->bytes / to_tensor->element_bytes)
        return -EINVAL;
    walk_begin(to_tensor, from_tensor, elements, &walk);
    for (uint64_t run = 0; r == 0 && run < walk.runs; run++) {
        r = pst_gpu_copy(to, to_offset, from, from_offset, walk.run_bytes);
        walk_step(&walk, to_tensor, from_tensor, &to_offset, &from_offset);
    }
    return r;
}
