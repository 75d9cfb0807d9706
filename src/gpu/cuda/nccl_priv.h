/* SPDX-License-Identifier: Apache-2.0 */
/* nccl_priv.h: the calls of NCCL that are used here, declared by ourselves. Source: NCCL's API. */
#ifndef PST_GPU_CUDA_NCCL_PRIV_H
#define PST_GPU_CUDA_NCCL_PRIV_H

#include "gpu/nccl.h"

/* ncclUniqueId, which is passed by value. */
struct nccl_id {
    char bytes[PST_NCCL_ID_BYTES];
};

/* ncclResult_t and ncclDataType_t, as far as they mean something here. */
enum { NCCL_OK = 0 };
enum { NCCL_UINT8 = 1 };

/* X(name, the library's symbol, parameters): each returns an ncclResult_t. */
#define NCCL_CALLS(X)                                                                                        \
    X(id, "ncclGetUniqueId", (struct nccl_id * id))                                                          \
    X(init, "ncclCommInitRank", (void **comm, int size, struct nccl_id id, int rank))                        \
    X(broadcast, "ncclBroadcast",                                                                            \
      (const void *from, void *to, size_t count, int type, int root, void *comm, void *stream))              \
    X(async_error, "ncclCommGetAsyncError", (void *comm, int *result))                                       \
    X(destroy, "ncclCommDestroy", (void *comm))                                                              \
    X(abort, "ncclCommAbort", (void *comm))

/* The same of calls that return a text, which is the library's. */
#define NCCL_TEXTS(X)                                                                                        \
    X(error_text, "ncclGetErrorString", (int result))                                                        \
    X(last_error, "ncclGetLastError", (void *comm))

struct nccl_calls {
#define X(name, symbol, parameters) int(*name) parameters;
    NCCL_CALLS(X)
#undef X
#define X(name, symbol, parameters) const char *(*name)parameters;
    NCCL_TEXTS(X)
#undef X
};

#endif
