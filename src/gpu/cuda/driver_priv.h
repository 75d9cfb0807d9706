/* SPDX-License-Identifier: Apache-2.0 */
/*
 * driver_priv.h: the calls of NVIDIA's driver that are used here, declared by ourselves and found at run
 * time: penstock is built and runs without CUDA. Source: CUDA driver API, "libcuda.so.1". Any thread.
 */
#ifndef PST_GPU_CUDA_DRIVER_PRIV_H
#define PST_GPU_CUDA_DRIVER_PRIV_H

#include "base/options.h"
#include "gpu/handle.h"

typedef uint64_t cuda_address; /* CUdeviceptr */

/* CUipcMemHandle, which is passed by value. */
struct cuda_ipc_handle {
    char bytes[PST_GPU_CUDA_HANDLE_BYTES];
};

/* CUresult, as far as they mean something here. */
enum {
    CUDA_OK = 0,
    CUDA_INVALID_VALUE = 1,
    CUDA_OUT_OF_MEMORY = 2,
    CUDA_NO_DEVICE = 100,
    CUDA_INVALID_DEVICE = 101,
    CUDA_INVALID_CONTEXT = 201,
    CUDA_MAP_FAILED = 205,
    CUDA_PEER_ACCESS_UNSUPPORTED = 217,
    CUDA_INVALID_HANDLE = 400,
    CUDA_NOT_READY = 600,
    CUDA_NOT_SUPPORTED = 801,
};

enum {
    CUDA_IPC_LAZY_PEER_ACCESS = 1,
    CUDA_STREAM_NON_BLOCKING = 1,
    CUDA_EVENT_DISABLE_TIMING = 2,
    CUDA_HOST_REGISTER_PORTABLE = 1, /* for every context of the process */
    CUDA_POINTER_MEMORY_TYPE = 2,
    CUDA_POINTER_DEVICE_ORDINAL = 9,
    CUDA_MEMORY_TYPE_DEVICE = 2,
};

/* X(name, the library's symbol, parameters): each returns a CUresult. */
#define CUDA_CALLS(X)                                                                                        \
    X(init, "cuInit", (unsigned flags))                                                                      \
    X(error_text, "cuGetErrorString", (int result, const char **text))                                       \
    X(device, "cuDeviceGet", (int *device, int ordinal))                                                     \
    X(context_retain, "cuDevicePrimaryCtxRetain", (void **context, int device))                              \
    X(context_release, "cuDevicePrimaryCtxRelease_v2", (int device))                                         \
    X(context_push, "cuCtxPushCurrent_v2", (void *context))                                                  \
    X(context_pop, "cuCtxPopCurrent_v2", (void **context))                                                   \
    X(alloc, "cuMemAlloc_v2", (cuda_address * at, size_t bytes))                                             \
    X(free, "cuMemFree_v2", (cuda_address at))                                                               \
    X(range, "cuMemGetAddressRange_v2", (cuda_address * base, size_t * bytes, cuda_address at))              \
    X(pointer, "cuPointerGetAttribute", (void *value, int attribute, cuda_address at))                       \
    X(ipc_get, "cuIpcGetMemHandle", (struct cuda_ipc_handle * handle, cuda_address at))                      \
    X(ipc_open, "cuIpcOpenMemHandle_v2", (cuda_address * at, struct cuda_ipc_handle handle, unsigned flags)) \
    X(ipc_close, "cuIpcCloseMemHandle", (cuda_address at))                                                   \
    X(host_register, "cuMemHostRegister_v2", (void *at, size_t bytes, unsigned flags))                       \
    X(host_unregister, "cuMemHostUnregister", (void *at))                                                    \
    X(copy_in, "cuMemcpyHtoDAsync_v2", (cuda_address to, const void *from, size_t bytes, void *stream))      \
    X(copy_out, "cuMemcpyDtoHAsync_v2", (void *to, cuda_address from, size_t bytes, void *stream))           \
    X(copy, "cuMemcpyDtoDAsync_v2", (cuda_address to, cuda_address from, size_t bytes, void *stream))        \
    X(stream_create, "cuStreamCreate", (void **stream, unsigned flags))                                      \
    X(stream_destroy, "cuStreamDestroy_v2", (void *stream))                                                  \
    X(event_create, "cuEventCreate", (void **event, unsigned flags))                                         \
    X(event_record, "cuEventRecord", (void *event, void *stream))                                            \
    X(event_query, "cuEventQuery", (void *event))                                                            \
    X(event_wait, "cuEventSynchronize", (void *event))                                                       \
    X(event_destroy, "cuEventDestroy_v2", (void *event))

struct cuda_driver {
#define X(name, symbol, parameters) int(*name) parameters;
    CUDA_CALLS(X)
#undef X
};

/* ---- library.c ---- */

struct cuda_symbol {
    const char *symbol;
    size_t at; /* the place of its pointer in the table of calls */
};

struct cuda_library {
    const char *what, *file; /* @what: for people */
    const struct cuda_symbol *symbols;
    size_t count;
};

/*
 * Opens a library and fills the table @calls. Return: 0 and *@handle, which dlclose() takes; -ENODEV there is
 * none; -ELIBBAD it lacks a call; with the reason in @fault.
 */
int cuda_library_open(const struct cuda_library *library, void *calls, void **handle,
                      char fault[PST_FAULT_BYTES]);
/* Says that there is no such thing. @why: NULL: not known. Returns @error. */
int cuda_library_fail(int error, const char *what, const char *why, char fault[PST_FAULT_BYTES]);

/* ---- driver.c ---- */

/*
 * Loads the driver, once in a process, and it stays. Return: 0 and *@out; -ENODEV there is none, or it has
 * no device, -ELIBBAD one without a call that is used here, with the reason in @fault.
 */
int cuda_driver_load(const struct cuda_driver **out, char fault[PST_FAULT_BYTES]);
/* Whether this process has loaded it: else no address of its is a GPU's. */
bool cuda_driver_is_there(void);
/* A CUresult as -errno, 0 for CUDA_OK. */
int cuda_errno(int result);

#endif
