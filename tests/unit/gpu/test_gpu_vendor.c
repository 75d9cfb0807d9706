/* SPDX-License-Identifier: Apache-2.0 */
/* Our declarations of the driver's and NCCL's calls against the vendor's own headers, on a machine that has
 * them: constants and sizes when it is compiled, names when it runs. */
#include "lib/cm.h"

#include "gpu/cuda/driver_priv.h"
#include "gpu/cuda/nccl_priv.h"

#include <cuda.h>
#include <nccl.h>
#include <string.h>

_Static_assert(sizeof(struct cuda_ipc_handle) == sizeof(CUipcMemHandle), "a handle");
_Static_assert(sizeof(cuda_address) == sizeof(CUdeviceptr), "an address");
_Static_assert(sizeof(struct nccl_id) == sizeof(ncclUniqueId), "an id");
_Static_assert((int)NCCL_OK == (int)ncclSuccess && (int)NCCL_UINT8 == (int)ncclUint8, "NCCL's numbers");

#define SAME(ours, theirs) _Static_assert((int)(ours) == (int)(theirs), #ours)
SAME(CUDA_OK, CUDA_SUCCESS);
SAME(CUDA_INVALID_VALUE, CUDA_ERROR_INVALID_VALUE);
SAME(CUDA_OUT_OF_MEMORY, CUDA_ERROR_OUT_OF_MEMORY);
SAME(CUDA_NO_DEVICE, CUDA_ERROR_NO_DEVICE);
SAME(CUDA_INVALID_DEVICE, CUDA_ERROR_INVALID_DEVICE);
SAME(CUDA_INVALID_CONTEXT, CUDA_ERROR_INVALID_CONTEXT);
SAME(CUDA_MAP_FAILED, CUDA_ERROR_MAP_FAILED);
SAME(CUDA_PEER_ACCESS_UNSUPPORTED, CUDA_ERROR_PEER_ACCESS_UNSUPPORTED);
SAME(CUDA_INVALID_HANDLE, CUDA_ERROR_INVALID_HANDLE);
SAME(CUDA_NOT_READY, CUDA_ERROR_NOT_READY);
SAME(CUDA_NOT_SUPPORTED, CUDA_ERROR_NOT_SUPPORTED);
SAME(CUDA_IPC_LAZY_PEER_ACCESS, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
SAME(CUDA_STREAM_NON_BLOCKING, CU_STREAM_NON_BLOCKING);
SAME(CUDA_EVENT_DISABLE_TIMING, CU_EVENT_DISABLE_TIMING);
SAME(CUDA_HOST_REGISTER_PORTABLE, CU_MEMHOSTREGISTER_PORTABLE);
SAME(CUDA_POINTER_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_MEMORY_TYPE);
SAME(CUDA_POINTER_DEVICE_ORDINAL, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL);
SAME(CUDA_MEMORY_TYPE_DEVICE, CU_MEMORYTYPE_DEVICE);

#define TEXT(name)    TEXT_OF(name)
#define TEXT_OF(name) #name

/* Calls that changed have a version in their names, which the header's macros give. */
static void names_are_those_of_the_headers(void **state)
{
    static const struct {
        const char *plain, *versioned;
    } names[] = {
        {"cuDevicePrimaryCtxRelease", TEXT(cuDevicePrimaryCtxRelease)},
        {"cuCtxPushCurrent", TEXT(cuCtxPushCurrent)},
        {"cuCtxPopCurrent", TEXT(cuCtxPopCurrent)},
        {"cuMemAlloc", TEXT(cuMemAlloc)},
        {"cuMemFree", TEXT(cuMemFree)},
        {"cuMemGetAddressRange", TEXT(cuMemGetAddressRange)},
        {"cuIpcOpenMemHandle", TEXT(cuIpcOpenMemHandle)},
        {"cuMemHostRegister", TEXT(cuMemHostRegister)},
        {"cuMemcpyHtoDAsync", TEXT(cuMemcpyHtoDAsync)},
        {"cuMemcpyDtoHAsync", TEXT(cuMemcpyDtoHAsync)},
        {"cuMemcpyDtoDAsync", TEXT(cuMemcpyDtoDAsync)},
        {"cuStreamDestroy", TEXT(cuStreamDestroy)},
        {"cuEventDestroy", TEXT(cuEventDestroy)},
        {"cuIpcGetMemHandle", TEXT(cuIpcGetMemHandle)},
        {"cuEventRecord", TEXT(cuEventRecord)},
    };
    static const char *const ours[] = {
#define X(name, symbol, parameters) symbol,
        CUDA_CALLS(X)
#undef X
    };
    size_t found = 0;

    (void)state;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        size_t bytes = strlen(names[i].plain);

        for (size_t j = 0; j < sizeof(ours) / sizeof(ours[0]); j++) {
            if (strncmp(ours[j], names[i].plain, bytes) != 0 || (ours[j][bytes] && ours[j][bytes] != '_'))
                continue;
            assert_string_equal(ours[j], names[i].versioned);
            found++;
        }
    }
    assert_int_equal(found, sizeof(names) / sizeof(names[0]));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(names_are_those_of_the_headers)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
