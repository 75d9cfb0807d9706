/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rounds_priv.h: this pod's part in groups that move tensors between pods. A round is one execution of a
 * group. Each process of the pod that takes part asks for it, with the same words; the first one's thread
 * does the work, for all of them:
 *
 *     copies within the pod
 *     all ranks meet                 agent/round/meeting.h
 *     by NCCL, if all ranks can      agent/round/mover.h: each rank's tensors lie on one GPU
 *     else in a row                  casts_priv.h: a broadcast through the memory of the hosts
 *
 * Any thread.
 */
#ifndef PST_AGENT_ROUNDS_PRIV_H
#define PST_AGENT_ROUNDS_PRIV_H

#include "agent/pod/casts_priv.h"
#include "agent/pod/frame_priv.h"
#include "agent/round/meeting.h"
#include "base/hash.h"

enum {
    POD_ROUNDS_MAX = 256,
    POD_ROUND_TENSORS_MAX = 4096,
    POD_ROUND_PARTICIPANTS_MAX = 256,
    POD_PARTICIPANT_BYTES = 65,
    POD_ROUND_ID_BYTES = 65,
    POD_ROUND_LIFE_MS = 60 * 1000, /* of one that is over, for participants that have not asked yet */
};

struct round_copy {
    struct pst_gpu_place from, to;
};

/* What a frame asks for. */
struct round_order {
    const char *group, *host; /* @host: rank 0's; borrowed from the frame */
    /* By which the ranks know the meeting: the group's name, and the round's if it has one. */
    char meeting[PST_TREE_GROUP_BYTES_MAX + 1 + POD_ROUND_ID_BYTES];
    uint16_t port;
    uint32_t rank, world_size;
    uint64_t timeout_ms;
    char digest[ROUND_DIGEST_BYTES]; /* of the tensors that move between pods */
    struct pod_fds memories;         /* of all that follows */
    /* Those, in the order of their keys: of rank 0 where they lie, and their keys; else where they go. */
    struct pst_gpu_place *tensors;
    char **keys;
    uint32_t count;
    struct round_copy *copies;
    uint32_t copy_count;
};

/* How the tensors went between the pods. */
enum round_way { ROUND_COPIED, ROUND_BY_NCCL, ROUND_BY_ROW };

/* ---- rounds.c: participants of one round share it ---- */

int rounds_open(struct pst_pod *pod);
/* Those who wait are told that the agent ends. */
void rounds_stop(struct pst_pod *pod);
void rounds_close(struct pst_pod *pod);
void rounds_sweep(struct pst_pod *pod);

/* Does what the frame asks for, once for all participants. Return: 0, or -errno with the reason in @fault. */
typedef int (*round_work)(struct frame *frame, const struct pod_patience *patience, enum round_way *way,
                          char fault[PST_FAULT_BYTES]);
/*
 * Does @work, or waits for who does: @id is the same for all participants of a round. If @id is of this round
 * alone, a participant that asks when it is over hears how it went. One that asks a second time asks for
 * another round. Return: as @work; -EBUSY too many rounds; -E2BIG participants; -ECANCELED the agent ends, or
 * the caller is gone.
 */
int rounds_share(struct frame *frame, const struct pst_hash128 *id, bool is_unique, const char *participant,
                 round_work work, enum round_way *way);

/* ---- round_ways.c: the work itself ---- */

/* Return: 0, or -errno with the reason in @fault. */
int round_run(struct frame *frame, const struct round_order *order, const struct pod_patience *patience,
              enum round_way *way, char fault[PST_FAULT_BYTES]);

#endif
