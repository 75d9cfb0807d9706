/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tensors_priv.h: tensors that processes of this pod share. The agent knows where each lies, and keeps a
 * descriptor of the memory, which it does not map. A tensor goes with its owner; who has its memory mapped by
 * then reads on, and who asks for it from then on is told that it has gone.
 *
 * They lie in an array in the order of their keys, so that those of a state dict, "KEY/flat.name", follow
 * each other. Any thread.
 */
#ifndef PST_AGENT_TENSORS_PRIV_H
#define PST_AGENT_TENSORS_PRIV_H

#include "agent/pod/pod_priv.h"
#include "gpu/gpu.h"

enum {
    POD_TENSORS_MAX = 32768,
    POD_MEMORIES_MAX = 4096, /* one descriptor each */
    POD_GONE_LIFE_MS = 600 * 1000,
    POD_DEVICE_BYTES = 24,
};

struct pod_memory;

struct pod_tensor {
    struct owner owner;
    struct pod_memory *memory; /* NULL: not put yet, or gone */
    uint64_t put_ms;           /* since 1970 */
    uint64_t gone_ms;          /* pst_now_ns() clock; 0: it is not */
    uint32_t below_bytes;      /* of the key of the state dict with which it was put; 0: with none */
    struct pst_gpu_handle handle;
    struct pst_gpu_tensor layout;
    char device[POD_DEVICE_BYTES]; /* "cpu", "cuda:0" */
    char key[];
};

/* Several that are put at once. */
struct pod_batch {
    struct pod_tensor **tensors;
    uint32_t count;
    const char
        *below; /* what lies below this key is replaced by them, all of it; NULL: only their own keys */
};

/* A tensor that was found, while the table is locked. @fd: its memory's, borrowed, -1: a GPU has none;
 * @memory: the memory's number, which no other has. Return: 0, or -errno, which ends it. */
typedef int (*pod_tensor_visit)(void *ctx, const struct pod_tensor *tensor, int fd, uint64_t memory);

int tensors_open(struct pst_pod *pod);
void tensors_close(struct pst_pod *pod);

/*
 * Puts all of @batch or none. What is put leaves the batch. Return: 0; -EEXIST another living process has
 * something there; -ENOSPC too many; -EINVAL, -EPERM, -ERANGE what came is no such memory; -EMFILE, -ENOMEM;
 * with a text in @fault.
 */
int tensors_put(struct pst_pod *pod, struct pod_batch *batch, const struct pod_fds *came,
                char fault[PST_FAULT_BYTES]);
void tensors_free(struct pod_batch *batch);
/* Visits the one under @key. Return: the visit's; -ENOENT nobody put it; -ESTALE it has gone; with a text. */
int tensors_find(struct pst_pod *pod, const char *key, pod_tensor_visit visit, void *ctx,
                 char fault[PST_FAULT_BYTES]);
/* Visits the one under @key and all below. Return: as tensors_find(). */
int tensors_find_below(struct pst_pod *pod, const char *key, pod_tensor_visit visit, void *ctx,
                       char fault[PST_FAULT_BYTES]);
void tensors_each(struct pst_pod *pod, pod_tensor_visit visit, void *ctx);
/* Removes the one under @key, and with @all what lies below. @pid: 0 or its owner's. Return: how many;
 * -EPERM.
 */
int tensors_remove(struct pst_pod *pod, const char *key, bool all, pid_t pid);
/* Gives the memory back of processes that have ended. */
void tensors_sweep(struct pst_pod *pod);

#endif
