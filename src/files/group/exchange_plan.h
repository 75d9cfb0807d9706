/* SPDX-License-Identifier: Apache-2.0 */
/*
 * exchange_plan.h: who sends which tensors to whom, once an exchange has closed. Pods have ranks: members of
 * one address are one pod. NCCL's broadcasts are calls that all ranks make in the same order, so one pod,
 * rank 0, sends, and all others receive the same keys:
 *
 *     a getter's key is offered             it comes
 *     by a putter of its own pod            by a copy within the pod: local
 *     by others alone                       from rank 0
 *
 * Rank 0 is the pod of the first putter, by joining, that offers every key of the second kind. A pod that
 * neither sends nor receives is alone: rank 0 of 1.
 *
 * Pure; any thread. A plan borrows the exchange.
 */
#ifndef PST_FILES_EXCHANGE_PLAN_H
#define PST_FILES_EXCHANGE_PLAN_H

#include "files/group/exchange.h"

struct pst_exchange_transfer {
    const struct pst_exchange_tensor *source;
    const struct pst_exchange_tensor *destination; /* NULL: in other pods */
};

/* Its transfers are sorted by their keys, bytewise; all receivers' are of the same keys as rank 0's sends. */
struct pst_exchange_pod {
    const char *ip, *master_ip; /* @master_ip: rank 0's */
    uint32_t rank, world_size;  /* of pods */
    uint32_t member_count;
    const struct pst_exchange_transfer *sends, *receives, *locals;
    uint32_t send_count, receive_count, local_count;
};

struct pst_exchange_plan {
    struct pst_exchange_pod *pods; /* in the order in which their first members joined */
    uint32_t pod_count;
    uint32_t *pod_of; /* of each member, in the order of joining, the index of its pod */
};

/**
 * pst_exchange_plan_open() - make the plan of an exchange that has closed
 * Return: 0 and *@out. -EINVAL: the members do not fit together; *@fault, malloc()ed, names what does not.
 * -ENOMEM.
 */
int pst_exchange_plan_open(const struct pst_exchange *exchange, struct pst_exchange_plan **out, char **fault);
/* Returns NULL. */
struct pst_exchange_plan *pst_exchange_plan_close(struct pst_exchange_plan *plan);

#endif
