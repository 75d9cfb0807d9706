/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mover.h: a process that moves the tensors of one rank by NCCL. It is this program again, started for one
 * round: CUDA and NCCL live there alone, and whatever they do, the agent can end it. They talk in lines of
 * JSON (lines.h):
 *
 *     agent                     mover
 *     rank, tensors  --------->         opens the memory, loads NCCL
 *                    <---------  ready  (rank 0: with the communicator's id)
 *     id             --------->         waits for the other ranks, moves
 *                    <---------  {}     each time that something has moved
 *                    <---------  done
 *
 * or an error in place of any answer. One thread.
 */
#ifndef PST_AGENT_ROUND_MOVER_H
#define PST_AGENT_ROUND_MOVER_H

#include "gpu/nccl.h"
#include "gpu/place.h"

/* Borrowed during the call. All tensors are in one GPU's memory, and none is
 * empty. Rank 0 has them, the others get them, in the same order. */
struct mover_plan {
    uint32_t rank, world_size;
    const struct pst_gpu_place *tensors;
    uint32_t count;
};

struct mover;

/* Starts it. Return: 0, or -errno with the reason in @fault. */
int mover_open(const struct mover_plan *plan, struct mover **out, char fault[PST_FAULT_BYTES]);
/* Becomes readable when it says something. */
int mover_fd(const struct mover *mover);
/* Hears what it has said. Return: 0, or -errno with the reason in @fault: it failed, or has ended. */
int mover_hear(struct mover *mover, char fault[PST_FAULT_BYTES]);
/* What was heard. */
bool mover_is_ready(const struct mover *mover);
bool mover_is_done(const struct mover *mover);
uint64_t mover_moved_ms(const struct mover *mover); /* pst_now_ms() of the last word */
/* Of rank 0's that is ready. */
const uint8_t *mover_id(const struct mover *mover);
/* Lets one that is ready go. Return: as mover_hear(). */
int mover_go(struct mover *mover, const uint8_t id[PST_NCCL_ID_BYTES], char fault[PST_FAULT_BYTES]);
/* Ends it if it has not ended. Returns NULL. */
struct mover *mover_close(struct mover *mover);

/* worker.c has the mover's own side: pst_pod_move(), in agent/pod.h. */

#endif
