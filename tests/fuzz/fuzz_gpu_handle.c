/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_gpu_handle.c: handles that come from other processes, with the dtype and the shape that come beside
 * them. A handle that is one prints as it was read; a tensor that lies in its memory touches none of the
 * bytes around, whichever element is asked for.
 */
#include "fuzz.h"

#include "gpu/handle.h"

static void check_elements(const struct pst_gpu_tensor *tensor, uint64_t first, uint64_t end, struct fuzz *in)
{
    uint64_t at = tensor->offset_bytes;

    for (uint32_t i = 0; i < tensor->rank; i++) {
        if (tensor->shape[i] == 0)
            return;
        /* Within the span nothing is so far away that the sum would wrap. */
        at += (fuzz_number(in, 8) % tensor->shape[i]) * (uint64_t)tensor->strides[i];
    }
    pst_assert(at >= first && at <= end && tensor->element_bytes <= end - at);
}

static void check_shape(struct pst_gpu_tensor *tensor, const struct pst_gpu_handle *handle, struct fuzz *in)
{
    static const char *const dtypes[] = {"bool", "torch.bfloat16", "float32", "float64", "complex128"};
    uint64_t first, end;
    int r;

    pst_assert(pst_gpu_tensor_set_dtype(tensor, dtypes[fuzz_below(in, pst_count_of(dtypes))]) == 0);
    for (uint32_t i = 0; i < tensor->rank; i++)
        tensor->shape[i] = fuzz_number(in, fuzz_below(in, 2) ? 8 : 1);
    r = pst_gpu_tensor_span(tensor, handle->memory_bytes, &first, &end);
    pst_assert(r == 0 || r == -ERANGE || r == -EOVERFLOW);
    if (r < 0)
        return;
    pst_assert(first <= end && end <= handle->memory_bytes);
    check_elements(tensor, first, end, in);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct fuzz in = {data, bytes};
    const uint8_t *line = memchr(data, '\n', bytes);
    char *text = fuzz_text(&in, line ? (size_t)(line - data) : bytes), back[PST_GPU_HANDLE_TEXT_MAX];
    struct pst_gpu_tensor tensor = {.rank = 99};
    struct pst_gpu_handle handle = {.kind = 99};
    int r = pst_gpu_handle_parse(text, &handle, &tensor);

    if (r < 0) {
        pst_assert((r == -EINVAL || r == -EOPNOTSUPP) && handle.kind == 99 && tensor.rank == 99);
    } else {
        pst_gpu_handle_print(&handle, &tensor, back);
        pst_assert(strcmp(back, text) == 0);
        check_shape(&tensor, &handle, &in);
    }
    free(text);
    return 0;
}
