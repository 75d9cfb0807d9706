/* SPDX-License-Identifier: Apache-2.0 */
/* driver.c: NVIDIA's driver, found at run time, and what its results mean. */
#include "gpu/cuda/driver_priv.h"

#include <dlfcn.h>
#include <pthread.h>

static const struct cuda_symbol symbols[] = {
#define X(name, symbol, parameters) {symbol, offsetof(struct cuda_driver, name)},
    CUDA_CALLS(X)
#undef X
};
static const struct cuda_library library = {"CUDA", "libcuda.so.1", symbols, pst_count_of(symbols)};

static struct {
    pthread_mutex_t lock;
    bool is_loaded;
    struct cuda_driver driver;
} loaded = {.lock = PTHREAD_MUTEX_INITIALIZER};

static int driver_load_locked(char fault[PST_FAULT_BYTES])
{
    const char *why = NULL;
    void *handle;
    int r = cuda_library_open(&library, &loaded.driver, &handle, fault), result;

    pst_assert(!loaded.is_loaded);
    if (r < 0)
        return r;
    result = loaded.driver.init(0);
    if (result != CUDA_OK) {
        loaded.driver.error_text(result, &why);
        r = cuda_library_fail(-ENODEV, library.what, why, fault); /* the text is the library's */
        dlclose(handle);
        return r;
    }
    loaded.is_loaded = true;
    return 0;
}

int cuda_driver_load(const struct cuda_driver **out, char fault[PST_FAULT_BYTES])
{
    int r = 0;

    pthread_mutex_lock(&loaded.lock);
    if (!loaded.is_loaded)
        r = driver_load_locked(fault);
    pthread_mutex_unlock(&loaded.lock);
    if (r == 0)
        *out = &loaded.driver;
    return r;
}

bool cuda_driver_is_there(void)
{
    void *handle = dlopen(library.file, RTLD_NOW | RTLD_NOLOAD);

    if (handle)
        dlclose(handle); /* which only counts who has it */
    return handle != NULL;
}

int cuda_errno(int result)
{
    static const struct {
        int result, error;
    } errors[] = {
        {CUDA_OK, 0},
        {CUDA_INVALID_VALUE, -EINVAL},
        {CUDA_OUT_OF_MEMORY, -ENOMEM},
        {CUDA_NO_DEVICE, -ENODEV},
        {CUDA_INVALID_DEVICE, -ENODEV},
        {CUDA_INVALID_CONTEXT, -ESTALE}, /* cuIpcOpenMemHandle of what is this process's own, or gone */
        {CUDA_MAP_FAILED, -ESTALE},
        {CUDA_PEER_ACCESS_UNSUPPORTED, -EXDEV},
        {CUDA_INVALID_HANDLE, -ESTALE},
        {CUDA_NOT_READY, -EAGAIN},
        {CUDA_NOT_SUPPORTED, -EOPNOTSUPP},
    };

    for (size_t i = 0; i < pst_count_of(errors); i++) {
        if (errors[i].result == result)
            return errors[i].error;
    }
    return -EIO;
}
