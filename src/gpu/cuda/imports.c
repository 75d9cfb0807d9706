/* SPDX-License-Identifier: Apache-2.0 */
/* imports.c: what this process has opened of other processes' memory. A mapping belongs to its device's
 * primary context, which is one for all who have opened that device. */
#include "gpu/cuda/device_priv.h"

#include "base/list.h"

#include <pthread.h>

struct import {
    struct pst_list link;
    int device;
    struct cuda_ipc_handle ipc;
    cuda_address at;
    uint32_t users;
};

static struct {
    pthread_mutex_t lock;
    struct pst_list all;
} imports = {PTHREAD_MUTEX_INITIALIZER, {&imports.all, &imports.all}};

static struct import *imports_find(int device, const struct cuda_ipc_handle *ipc)
{
    pst_list_each (it, &imports.all) {
        struct import *import = pst_list_entry(it, struct import, link);

        if (import->device == device && memcmp(&import->ipc, ipc, sizeof(*ipc)) == 0)
            return import;
    }
    return NULL;
}

static int imports_add(struct cuda_device *device, const struct cuda_ipc_handle *ipc, struct import **out)
{
    struct import *import = calloc(1, sizeof(*import));
    int r;

    pst_assert(device->driver);
    if (!import)
        return -ENOMEM;
    *import = (struct import){.device = device->device, .ipc = *ipc};
    r = cuda_errno(device->driver->ipc_open(&import->at, *ipc, CUDA_IPC_LAZY_PEER_ACCESS));
    if (r < 0) {
        free(import);
        return r == -EINVAL ? -ESTALE : r;
    }
    pst_list_push_back(&imports.all, &import->link);
    *out = import;
    return 0;
}

int cuda_import_open(struct cuda_device *device, const struct cuda_ipc_handle *ipc, cuda_address *at)
{
    struct import *import;
    int r = 0;

    pthread_mutex_lock(&imports.lock);
    import = imports_find(device->device, ipc);
    if (!import)
        r = imports_add(device, ipc, &import);
    if (r == 0) {
        pst_assert(import->users < UINT32_MAX);
        import->users++;
        *at = import->at;
    }
    pthread_mutex_unlock(&imports.lock);
    return r;
}

void cuda_import_close(struct cuda_device *device, cuda_address at)
{
    bool found = false;

    pthread_mutex_lock(&imports.lock);
    pst_list_each_safe (it, &imports.all) {
        struct import *import = pst_list_entry(it, struct import, link);

        if (import->device != device->device || import->at != at)
            continue;
        found = true;
        pst_assert(import->users > 0);
        if (--import->users > 0)
            continue;
        device->driver->ipc_close(at);
        pst_list_remove(&import->link);
        free(import);
    }
    pthread_mutex_unlock(&imports.lock);
    pst_assert(found);
}
