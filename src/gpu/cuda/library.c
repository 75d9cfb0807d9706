/* SPDX-License-Identifier: Apache-2.0 */
/* library.c: NVIDIA's libraries, found at run time: penstock is built and runs without them. */
#include "gpu/cuda/driver_priv.h"

#include <dlfcn.h>
#include <stdio.h>

int cuda_library_fail(int error, const char *what, const char *why, char fault[PST_FAULT_BYTES])
{
    pst_assert(error < 0);
    snprintf(fault, PST_FAULT_BYTES, "no %s here: %.200s", what, why ? why : "the library does not say why");
    return error;
}

static int library_find(void *handle, const struct cuda_library *library, void *calls,
                        char fault[PST_FAULT_BYTES])
{
    pst_assert(library->count > 0);
    for (size_t i = 0; i < library->count; i++) {
        void *call = dlsym(handle, library->symbols[i].symbol);
        char why[PST_FAULT_BYTES];

        if (!call) {
            snprintf(why, sizeof(why), "%s has no %s", library->file, library->symbols[i].symbol);
            return cuda_library_fail(-ELIBBAD, library->what, why, fault);
        }
        memcpy((char *)calls + library->symbols[i].at, &call, sizeof(call));
    }
    return 0;
}

int cuda_library_open(const struct cuda_library *library, void *calls, void **handle,
                      char fault[PST_FAULT_BYTES])
{
    void *opened = dlopen(library->file, RTLD_NOW | RTLD_LOCAL);
    int r;

    if (!opened)
        return cuda_library_fail(-ENODEV, library->what, dlerror(), fault);
    r = library_find(opened, library, calls, fault);
    if (r < 0)
        dlclose(opened);
    else
        *handle = opened;
    return r;
}
