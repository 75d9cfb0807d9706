/* SPDX-License-Identifier: Apache-2.0 */
/* op.h: what each operation does. A shard's thread. */
#ifndef PST_NODE_OP_H
#define PST_NODE_OP_H

#include "node/request.h"

/* ---- apply.c: a batch and its reply ---- */

/* What the operations behind this one leave of the reply's room. */
size_t pst_reply_room(const struct pst_request *q, uint32_t index);
void pst_reply_add(struct pst_request *q, const struct pst_wire_result *result);
struct pst_wire_result pst_reply_result(int result, const struct pst_answer *answer);
/* Someone else has to evict. */
void pst_workers_relieve(struct pst_worker *w);
/* Begins the look-ups of the worker's operations. */
void pst_apply_prefetch(struct pst_worker *w, uint32_t count);
/* Does the worker's decoded operations for @q and writes its reply as far as it is known. */
void pst_apply(struct pst_request *q);

/* ---- value.c ---- */

/* What the worker's operation at @index, a put or a reserve, asks of the store; without a put's checksum. */
struct pst_put pst_asked_put(const struct pst_worker *w, uint32_t index);
/* Memory for a value that comes by bulk messages, counted against its session. Return: as
 * pst_shard_reserve(), -EDQUOT. */
int pst_reserve_write(struct pst_request *q, const struct pst_put *put, struct pst_pending *pending,
                      struct pst_answer *answer);
/* One more value is to come, before the node's patience ends. */
void pst_await_value(struct pst_request *q);
/* Lets go of what a get reads, which it has counted. */
void pst_end_read(struct pst_request *q, const struct pst_read *read);
/* A put with its result to come, whose value comes by bulk messages. */
void pst_begin_write(struct pst_request *q, const struct pst_put *put, const struct pst_pending *pending,
                     uint32_t index, bool refused);

/* Which bytes a get of @record sends. Return: 0 and *@offset, *@bytes, or the get's result. */
int pst_plan_get(const struct pst_wire_op *op, const struct pst_record *record, uint64_t *offset,
                 uint64_t *bytes);

/* ---- copy.c: what a partition's primary has other nodes do ---- */

/* Makes a large one visible. Return: 0 or its result; the reservation is given up. */
int pst_copy_landed(struct pst_request *q, struct pst_write *write, struct pst_answer *answer);
/* Whether a client's sweep takes the key: not one that copies have, too, since they would not hear of it.
 * @node: a struct pst_node. */
bool pst_sweeps(void *node, struct pst_bytes key);
/* Whether what it takes is the key's value, and not what is left of one that is elsewhere. */
bool pst_sweep_counts(void *node, struct pst_bytes key);

#endif
