/* SPDX-License-Identifier: Apache-2.0 */
/* handle.c: handles to text and back. */
#include "gpu/handle.h"

#include "base/hex.h"
#include "base/reader.h"

static const char magic[4] = "pst1";

enum { FAMILY_BYTES = 3 }; /* of the magic; the rest is the version */

/* Return: how many bytes, or -EINVAL. */
static int hex_parse(const char *text, uint8_t bytes[PST_GPU_HANDLE_BYTES_MAX])
{
    size_t digits = strnlen(text, PST_GPU_HANDLE_TEXT_MAX);

    if (digits % 2 != 0 || digits / 2 > PST_GPU_HANDLE_BYTES_MAX || !pst_hex_parse(text, bytes, digits / 2))
        return -EINVAL;
    return (int)(digits / 2);
}

void pst_gpu_handle_print(const struct pst_gpu_handle *handle, const struct pst_gpu_tensor *tensor,
                          char text[PST_GPU_HANDLE_TEXT_MAX])
{
    uint8_t bytes[PST_GPU_HANDLE_BYTES_MAX], *at = bytes;

    pst_assert(handle->kind == PST_GPU_HOST || handle->kind == PST_GPU_CUDA);
    pst_assert(tensor->rank <= PST_GPU_RANK_MAX);
    memcpy(at, magic, sizeof(magic));
    at = pst_write_number(at + sizeof(magic), handle->kind, 1);
    at = pst_write_number(at, tensor->rank, 1);
    at = pst_write_number(at, 0, 2);
    at = pst_write_number(at, handle->memory_bytes, 8);
    at = pst_write_number(at, tensor->offset_bytes, 8);
    for (uint32_t i = 0; i < tensor->rank; i++)
        at = pst_write_number(at, (uint64_t)tensor->strides[i], 8);
    if (handle->kind == PST_GPU_HOST) {
        at = pst_write_number(at, handle->descriptor, 4);
    } else {
        memcpy(at, handle->cuda, sizeof(handle->cuda));
        at += sizeof(handle->cuda);
    }
    pst_assert(at <= bytes + sizeof(bytes));
    pst_hex_print(bytes, (size_t)(at - bytes), text);
}

int pst_gpu_handle_parse(const char *text, struct pst_gpu_handle *handle, struct pst_gpu_tensor *tensor)
{
    uint8_t bytes[PST_GPU_HANDLE_BYTES_MAX], said[sizeof(magic)] = {0};
    struct pst_gpu_handle read = {0};
    struct pst_reader in = {.at = bytes};
    int64_t strides[PST_GPU_RANK_MAX];
    int count = hex_parse(text, bytes);
    uint64_t rank, zero, offset_bytes;

    if (count < 0)
        return count;
    in.left = (size_t)count;
    pst_read_copy(&in, said, sizeof(said));
    read.kind = (uint8_t)pst_read_number(&in, 1);
    rank = pst_read_number(&in, 1);
    zero = pst_read_number(&in, 2);
    read.memory_bytes = pst_read_number(&in, 8);
    offset_bytes = pst_read_number(&in, 8);
    if (in.bad || memcmp(said, magic, FAMILY_BYTES) != 0 || rank > PST_GPU_RANK_MAX)
        return -EINVAL;
    if (memcmp(said, magic, sizeof(magic)) != 0 || zero != 0 ||
        (read.kind != PST_GPU_HOST && read.kind != PST_GPU_CUDA))
        return -EOPNOTSUPP;
    for (uint64_t i = 0; i < rank; i++)
        strides[i] = (int64_t)pst_read_number(&in, 8);
    if (read.kind == PST_GPU_HOST)
        read.descriptor = (uint32_t)pst_read_number(&in, 4);
    else
        pst_read_copy(&in, read.cuda, sizeof(read.cuda));
    if (in.bad || in.left != 0)
        return -EINVAL;
    *handle = read;
    tensor->rank = (uint32_t)rank;
    tensor->offset_bytes = offset_bytes;
    memcpy(tensor->strides, strides, rank * sizeof(strides[0]));
    return 0;
}
