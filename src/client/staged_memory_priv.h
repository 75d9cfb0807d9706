/* SPDX-License-Identifier: Apache-2.0 */
/*
 * staged_memory_priv.h: the device memory that a caller has registered with its store. client_priv.h includes
 * it for its size; api/staged.c keeps it.
 */
#ifndef PST_CLIENT_STAGED_MEMORY_PRIV_H
#define PST_CLIENT_STAGED_MEMORY_PRIV_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

enum { STAGED_MAX = 256 };

struct pst_gpu_memory;

struct pst_staged_memory {
    const void *addr;
    uint64_t bytes;
    struct pst_gpu_memory *memory;
};

struct pst_staged {
    pthread_mutex_t lock;
    _Atomic uint32_t count;
    struct pst_staged_memory items[STAGED_MAX];
};

#endif
