/* SPDX-License-Identifier: Apache-2.0 */
/*
 * casts_priv.h: tensors between pods, by pipelined broadcasts (`files/relay/relay.h`). The agent of the pod
 * that has them is the source. What is broadcast is a folder of files:
 *
 *     0000 0001 ...   the memories in which the tensors lie, as they are; one more into which those of GPUs
 *                     were copied
 *     tensors         where each lies: the array of `put_tensor`, as JSON
 *
 * An agent that receives them writes them to memory files, which it seals, and passes them on from there.
 * Any thread.
 */
#ifndef PST_AGENT_CASTS_PRIV_H
#define PST_AGENT_CASTS_PRIV_H

#include "agent/pod/tensors_priv.h"
#include "files/chain/chain.h"

enum {
    POD_CASTS_MAX = 1024,
    POD_RECEPTIONS_MAX = 32,
    POD_TABLE_BYTES_MAX = 16 << 20, /* of "tensors" */
    POD_MEMORY_NAME_BYTES = 12,
};

#define POD_TABLE_NAME "tensors"

/* gathering.c: the name of a memory's file: all sort in their order, and in front of the table. */
void cast_memory_name(uint32_t number, char name[POD_MEMORY_NAME_BYTES]);

/* ---- casts.c: what this pod sends ---- */

int casts_open(struct pst_pod *pod);
void casts_close(struct pst_pod *pod);
/*
 * From now on members of @group ("": of any) may receive the tensors under and below @key, until they have
 * gone. Return: 0 and the port; -ENOENT, -ESTALE as tensors_find(); -ENOSPC; -errno, with a text in @fault.
 */
int casts_serve(struct pst_pod *pod, const char *group, const char *key, uint16_t *port,
                char fault[PST_FAULT_BYTES]);
/*
 * Until it is withdrawn, members of @group, which nobody else can name, may receive these tensors in this
 * order, under the group's name as the key. @keys: borrowed until then. Return: as casts_serve().
 */
int casts_lend(struct pst_pod *pod, const char *group, const char *const *keys, uint32_t key_count,
               uint16_t *port, char fault[PST_FAULT_BYTES]);
void casts_withdraw(struct pst_pod *pod, const char *group);
void casts_sweep(struct pst_pod *pod);

/* ---- receptions.c: what this pod receives ---- */

/* What one who receives says. */
struct pod_order {
    char group[PST_TREE_GROUP_BYTES_MAX + 1], key[PST_KEY_CAP];
    char host[PST_CHAIN_HOST_BYTES_MAX + 1]; /* of the source */
    uint16_t port;
    uint32_t members; /* that are expected; 0: not known */
    uint32_t timeout_ms;
};

/* Whether there is still somebody who waits, asked every half second, without a lock. */
struct pod_patience {
    bool (*is_over)(void *ctx);
    void *ctx;
};

/* Tensors that come, or have come. */
struct pod_reception;

int receptions_open(struct pst_pod *pod);
/* Those who wait are told that the agent ends. */
void receptions_stop(struct pst_pod *pod);
void receptions_close(struct pst_pod *pod);
/*
 * Receives what @order says, or joins those of this pod who are receiving it, and waits until it is there.
 * Nobody waits any more: it is given up. Return: 0 and *@out, to be dropped; -EBUSY too many at once;
 * -ECANCELED the agent ends, or it is over; what the broadcast said, with a text in @fault.
 */
int receptions_await(struct pst_pod *pod, const struct pod_patience *patience, const struct pod_order *order,
                     struct pod_reception **out, char fault[PST_FAULT_BYTES]);
/* Of one that is there: its memories, which can only be read, and the JSON of its tensors, not checked. */
const struct pod_fds *reception_memories(const struct pod_reception *reception);
struct pst_bytes reception_table(const struct pod_reception *reception);
/* Whether the caller is the first who asks: it puts the tensors into the table. */
bool reception_claim(struct pst_pod *pod, struct pod_reception *reception);
void reception_drop(struct pst_pod *pod, struct pod_reception *reception);

#endif
