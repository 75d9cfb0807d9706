/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nccl.h: broadcasts between GPUs of several processes, by NVIDIA's NCCL, which is loaded at run time. Each
 * process is a rank of one communicator, with a GPU of its own. All ranks begin the same broadcasts in the
 * same order. **A rank that has gone holds the others up for ever**, in pst_nccl_open() and when they wait
 * for their copies: whoever calls this is a process that another one can end. One thread. Source: NCCL's API,
 * "libnccl.so.2", 2.13 and later.
 */
#ifndef PST_GPU_NCCL_H
#define PST_GPU_NCCL_H

#include "gpu/gpu.h"

enum { PST_NCCL_ID_BYTES = 128 };

struct pst_nccl;

/* Whether there is NCCL. Return: 0; -ENODEV, -ELIBBAD with the reason in @fault. */
int pst_nccl_load(char fault[PST_FAULT_BYTES]);
/* A new communicator's id. This process serves those who open it, until it ends. Return: 0 or -errno. */
int pst_nccl_id(uint8_t id[PST_NCCL_ID_BYTES], char fault[PST_FAULT_BYTES]);
/* Waits until all @size ranks have opened it. @gpu: of CUDA, borrowed. Return: 0; -errno with a text in
 * @fault. */
int pst_nccl_open(struct pst_gpu *gpu, const uint8_t id[PST_NCCL_ID_BYTES], uint32_t rank, uint32_t size,
                  struct pst_nccl **out, char fault[PST_FAULT_BYTES]);
/*
 * Begins a broadcast of @root's bytes into the same number of everyone's, in order with the device's copies:
 * it is done when the device has settled and pst_nccl_check() finds nothing. Return: as pst_gpu_copy(), or
 * -EIO with the reason in @fault.
 */
int pst_nccl_broadcast(struct pst_nccl *nccl, struct pst_gpu_memory *memory, uint64_t offset, uint64_t bytes,
                       uint32_t root, char fault[PST_FAULT_BYTES]);
/* What went wrong since the last broadcast began. Return: 0, or -EIO with the reason in @fault. */
int pst_nccl_check(struct pst_nccl *nccl, char fault[PST_FAULT_BYTES]);
/* @failed: without the other ranks. Returns NULL. */
struct pst_nccl *pst_nccl_close(struct pst_nccl *nccl, bool failed);

#endif
