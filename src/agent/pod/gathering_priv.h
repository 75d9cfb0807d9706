/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gathering_priv.h: tensors on their way into a broadcast: collected while their table is locked, and copied,
 * if they lie on a GPU, and written into files afterwards. One thread.
 */
#ifndef PST_AGENT_GATHERING_PRIV_H
#define PST_AGENT_GATHERING_PRIV_H

#include "agent/pod/tensors_priv.h"
#include "files/relay/broadcasts.h"

struct gathering;

/* Return: NULL without memory. */
struct gathering *gathering_open(void);
/* A visit of each, in the order of their table of the broadcast. -E2BIG: they lie in too many memories. */
int gathering_add(void *gathering, const struct pod_tensor *tensor, int fd, uint64_t memory);
/* Their files, whose descriptors are the broadcast's, in failure too. Return: 0, or -errno with the reason in
 * @fault or none. */
int gathering_finish(struct gathering *gathering, struct pst_broadcast_files *out,
                     char fault[PST_FAULT_BYTES]);
/* Returns NULL. */
struct gathering *gathering_close(struct gathering *gathering);

#endif
