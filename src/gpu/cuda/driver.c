/* SPDX-License-Identifier: Apache-2.0 */
/* driver.c: NVIDIA's driver, found at run time, and what its results mean. */
#include "gpu/cuda/driver_priv.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>

static const char library[] = "libcuda.so.1";

static struct {
    pthread_mutex_t lock;
    bool is_loaded;
    struct cuda_driver driver;
} loaded = {.lock = PTHREAD_MUTEX_INITIALIZER};

static int driver_fail(int error, const char *why, char fault[PST_FAULT_BYTES])
{
    snprintf(fault, PST_FAULT_BYTES, "no CUDA here: %.200s", why ? why : "the driver does not say why");
    return error;
}

static int find_calls(void *handle, struct cuda_driver *driver, char fault[PST_FAULT_BYTES])
{
    static const struct {
        const char *symbol;
        size_t at;
    } calls[] = {
#define X(name, symbol, parameters) {symbol, offsetof(struct cuda_driver, name)},
        CUDA_CALLS(X)
#undef X
    };

    for (size_t i = 0; i < pst_count_of(calls); i++) {
        void *call = dlsym(handle, calls[i].symbol);
        char why[PST_FAULT_BYTES];

        if (!call) {
            snprintf(why, sizeof(why), "%s has no %s", library, calls[i].symbol);
            return driver_fail(-ELIBBAD, why, fault);
        }
        memcpy((char *)driver + calls[i].at, &call, sizeof(call));
    }
    return 0;
}

static int driver_load_locked(char fault[PST_FAULT_BYTES])
{
    void *handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    const char *why = NULL;
    int r, result;

    if (!handle)
        return driver_fail(-ENODEV, dlerror(), fault);
    r = find_calls(handle, &loaded.driver, fault);
    result = r < 0 ? CUDA_OK : loaded.driver.init(0);
    if (result != CUDA_OK) {
        loaded.driver.error_text(result, &why);
        r = driver_fail(-ENODEV, why, fault);
    }
    if (r < 0)
        dlclose(handle);
    loaded.is_loaded = r == 0;
    return r;
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
    void *handle = dlopen(library, RTLD_NOW | RTLD_NOLOAD);

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
