/* SPDX-License-Identifier: Apache-2.0 */
/* watch.c: watches of a session; one that has nothing to tell waits in request/late.c. */
#include "node/commit.h"
#include "node/node_priv.h"
#include "node/op.h"
#include "node/op/op_priv.h"

void pst_apply_watch_open(struct pst_request *q, uint32_t index)
{
    struct pst_wire_result result = {0};
    uint64_t handle = 0;

    result.result = (int16_t)pst_shard_session_watch_open(q->shard_session, &q->worker->ops[index], &handle);
    pst_assert(result.result != 0 || handle > 0);
    result.generation = handle;
    pst_reply_add(q, &result);
}

void pst_apply_watch_next(struct pst_request *q, uint32_t index)
{
    struct pst_worker *w = q->worker;
    struct pst_watch *watch = pst_shard_session_watch(q->shard_session, w->ops[index].handle);
    uint64_t room = pst_min(pst_min(w->ops[index].bytes, pst_reply_room(q, index)), SCRATCH_BYTES);
    struct pst_wire_result result = {.data = w->scratch};
    int64_t bytes = watch ? pst_watch_read(watch, w->scratch, room) : -EBADF;

    pst_assert(bytes <= (int64_t)room);
    if (bytes < 0)
        result.result = (int16_t)bytes;
    else
        result.bytes = (uint32_t)bytes;
    pst_reply_add(q, &result);
}

void pst_apply_watch_close(struct pst_request *q, uint32_t index)
{
    struct pst_wire_result result = {0};

    result.result = (int16_t)pst_shard_session_watch_close(q->shard_session, q->worker->ops[index].handle);
    pst_reply_add(q, &result);
}
