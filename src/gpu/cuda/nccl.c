/* SPDX-License-Identifier: Apache-2.0 */
/* nccl.c: a communicator of NCCL on one device and its stream. */
#include "gpu/cuda/nccl_priv.h"

#include "gpu/cuda/device_priv.h"

#include <pthread.h>
#include <stdio.h>

static const struct cuda_symbol symbols[] = {
#define X(name, symbol, parameters) {symbol, offsetof(struct nccl_calls, name)},
    NCCL_CALLS(X) NCCL_TEXTS(X)
#undef X
};
static const struct cuda_library library = {"NCCL", "libnccl.so.2", symbols, pst_count_of(symbols)};

static struct {
    pthread_mutex_t lock;
    void *handle; /* NULL: not loaded */
    struct nccl_calls calls;
} loaded = {.lock = PTHREAD_MUTEX_INITIALIZER};

struct pst_nccl {
    struct cuda_device *device;
    void *comm;
    uint32_t size;
};

int pst_nccl_load(char fault[PST_FAULT_BYTES])
{
    int r = 0;

    pthread_mutex_lock(&loaded.lock);
    if (!loaded.handle)
        r = cuda_library_open(&library, &loaded.calls, &loaded.handle, fault);
    pthread_mutex_unlock(&loaded.lock);
    return r;
}

/* @comm: NULL: none yet. */
static int nccl_fail(const char *what, int result, void *comm, char fault[PST_FAULT_BYTES])
{
    const char *text = loaded.calls.error_text(result), *last = loaded.calls.last_error(comm);

    pst_assert(loaded.handle);
    pst_assert(result != NCCL_OK);
    snprintf(fault, PST_FAULT_BYTES, "NCCL %s: %.60s%s%.120s", what, text ? text : "",
             last && *last ? ": " : "", last ? last : "");
    return -EIO;
}

int pst_nccl_id(uint8_t id[PST_NCCL_ID_BYTES], char fault[PST_FAULT_BYTES])
{
    struct nccl_id made;
    int r = pst_nccl_load(fault), result;

    if (r < 0)
        return r;
    result = loaded.calls.id(&made);
    if (result != NCCL_OK)
        return nccl_fail("makes no id", result, NULL, fault);
    memcpy(id, made.bytes, sizeof(made.bytes));
    return 0;
}

int pst_nccl_open(struct pst_gpu *gpu, const uint8_t id[PST_NCCL_ID_BYTES], uint32_t rank, uint32_t size,
                  struct pst_nccl **out, char fault[PST_FAULT_BYTES])
{
    struct pst_nccl *nccl;
    struct nccl_id made;
    int r = pst_nccl_load(fault), result;

    pst_assert(rank < size && size <= INT32_MAX);
    if (r < 0)
        return r;
    nccl = calloc(1, sizeof(*nccl));
    if (!nccl)
        return cuda_library_fail(-ENOMEM, library.what, strerror(ENOMEM), fault);
    *nccl = (struct pst_nccl){.device = cuda_device_of(gpu), .size = size};
    memcpy(made.bytes, id, sizeof(made.bytes));
    r = cuda_enter(nccl->device);
    if (r == 0) {
        result = loaded.calls.init(&nccl->comm, (int)size, made, (int)rank);
        cuda_leave(nccl->device);
        r = result == NCCL_OK ? 0 : nccl_fail("cannot begin", result, NULL, fault);
    } else {
        snprintf(fault, PST_FAULT_BYTES, "NCCL: its GPU: %s", strerror(-r));
    }
    if (r < 0)
        free(nccl);
    else
        *out = nccl;
    return r;
}

int pst_nccl_broadcast(struct pst_nccl *nccl, struct pst_gpu_memory *memory, uint64_t offset, uint64_t bytes,
                       uint32_t root, char fault[PST_FAULT_BYTES])
{
    void *at = (void *)(uintptr_t)(cuda_memory_of(memory)->at + offset);
    int r, result;

    pst_assert(memory->gpu == &nccl->device->gpu);
    pst_assert(root < nccl->size);
    pst_assert(offset <= memory->bytes && bytes <= memory->bytes - offset);
    r = cuda_enter(nccl->device);
    if (r < 0)
        return r;
    result = loaded.calls.broadcast(at, at, bytes, NCCL_UINT8, (int)root, nccl->comm, nccl->device->stream);
    cuda_leave(nccl->device);
    return result == NCCL_OK ? 0 : nccl_fail("broadcast", result, nccl->comm, fault);
}

int pst_nccl_check(struct pst_nccl *nccl, char fault[PST_FAULT_BYTES])
{
    int result, failed = NCCL_OK;

    pst_assert(nccl->comm);
    result = loaded.calls.async_error(nccl->comm, &failed);
    result = result == NCCL_OK ? failed : result;
    return result == NCCL_OK ? 0 : nccl_fail("broadcast", result, nccl->comm, fault);
}

struct pst_nccl *pst_nccl_close(struct pst_nccl *nccl, bool failed)
{
    if (!nccl)
        return NULL;
    pst_assert(nccl->comm);
    if (cuda_enter(nccl->device) == 0) {
        (failed ? loaded.calls.abort : loaded.calls.destroy)(nccl->comm);
        cuda_leave(nccl->device);
    }
    free(nccl);
    return NULL;
}
