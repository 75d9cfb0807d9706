/* SPDX-License-Identifier: Apache-2.0 */
/*
 * apply.c: a batch's operations, by code, and the reply that they write. The batch is prefetched as a whole.
 */
#include "node/commit.h"
#include "node/grants.h"
#include "node/node_priv.h"
#include "node/op.h"
#include "node/op/op_priv.h"
#include "base/limits.h"
#include "store/claim.h"
#include "store/figures.h"
#include "wire/pool.h"

enum { RESULT_ROOM = PST_WIRE_RESULT_BYTES_MAX + 8 + PST_ATTR_BYTES_MAX };
_Static_assert((int)PST_WIRE_OPS_MAX *(int)RESULT_ROOM <= (int)REPLY_BYTES,
               "each operation of a batch has room for its result");

size_t pst_reply_room(const struct pst_request *q, uint32_t index)
{
    size_t rest = (size_t)(q->count - index - 1) * RESULT_ROOM + RESULT_ROOM;

    pst_assert(q->reply_bytes + rest <= REPLY_BYTES);
    pst_assert(index < q->count);
    return REPLY_BYTES - q->reply_bytes - rest;
}

void pst_reply_add(struct pst_request *q, const struct pst_wire_result *result)
{
    q->reply_bytes = (size_t)(pst_wire_put_result(q->reply + q->reply_bytes, result) - q->reply);
    pst_assert(q->reply_bytes <= REPLY_BYTES);
}

/* Errors of -errno and outcomes fit into 16 bits. */
struct pst_wire_result pst_reply_result(int result, const struct pst_answer *answer)
{
    pst_assert(result >= INT16_MIN && result <= INT16_MAX);
    if (result < 0 && answer->limit_bytes) /* as long as the other: it may come in its place */
        return (struct pst_wire_result){.result = (int16_t)result,
                                        .flags = PST_WIRE_DETAIL,
                                        .prefix_bytes = answer->prefix_bytes,
                                        .limit_bytes = answer->limit_bytes};
    return (struct pst_wire_result){.result = (int16_t)result,
                                    .flags = PST_WIRE_SIZE,
                                    .generation = answer->generation,
                                    .value_bytes = answer->value_bytes};
}

void pst_workers_relieve(struct pst_worker *w)
{
    for (uint32_t i = 0; i < w->node->worker_count; i++)
        pst_worker_wake(&w->node->workers[i]);
}

/* ---- figures ---- */

/* What clients were told at the door is the node's: its first shard says so for all. */
static void add_refusals(const struct pst_worker *w, struct pst_shard_later *out)
{
    const _Atomic uint64_t *refused = w->node->refused;

    out->malformed = w->malformed;
    out->forbidden = w->forbidden;
    if (w->number > 0)
        return;
    out->refused_secret = refused[PST_BOOT_REFUSED_SECRET];
    out->refused_version = refused[PST_BOOT_REFUSED_VERSION];
    out->refused_busy = refused[PST_BOOT_REFUSED_BUSY];
    out->refused_other = refused[PST_BOOT_REFUSED_OTHER];
    out->refused_plain = refused[PST_BOOT_REFUSED_PLAIN];
    out->refused_tls = refused[PST_BOOT_REFUSED_TLS];
    out->refused_certificate = refused[PST_BOOT_REFUSED_CERTIFICATE];
    out->refused_expired = refused[PST_BOOT_REFUSED_EXPIRED];
    out->refused_replayed = refused[PST_BOOT_REFUSED_REPLAYED];
    out->refused_by_client = refused[PST_BOOT_REFUSED_BY_CLIENT];
}

static void apply_stat(struct pst_request *q, uint32_t index)
{
    struct pst_worker *w = q->worker;
    struct pst_figures figures;
    uint64_t bytes = pst_min(w->ops[index].bytes, sizeof(figures));
    struct pst_wire_result result = {.data = &figures, .bytes = (uint32_t)bytes};

    pst_figures_read(w->node->store, w->shard, &figures);
    figures.sessions = w->node->session_count;
    pst_assert(figures.sessions <= w->node->sessions_max);
    memcpy(figures.times, w->times.of, sizeof(figures.times));
    add_refusals(w, &figures.later);
    if (bytes < PST_FIGURES_BYTES_MIN || pst_reply_room(q, index) < bytes)
        result = (struct pst_wire_result){.result = -ENOBUFS};
    pst_reply_add(q, &result);
}

/* ---- what the node is besides ---- */

/* A node's figures have those of its grants among them, for who may administer it. */
static void add_grants(const struct pst_request *q, size_t room, struct pst_wire_result *result)
{
    struct pst_worker *w = q->worker;
    const struct pst_terms *terms = q->shard_session->terms;

    if (!w->node->grants || (terms && !(terms->are.rights & PST_RIGHT_ADMIN)) ||
        (result->result != 0 && result->result != -EOPNOTSUPP))
        return;
    if (result->result != 0) /* the node is nothing besides that would have figures */
        *result = (struct pst_wire_result){.data = w->scratch};
    pst_assert(result->bytes <= room);
    result->bytes +=
        (uint32_t)pst_grants_print(w->node->grants, (char *)w->scratch + result->bytes, room - result->bytes);
    pst_assert(result->bytes <= room);
}

static void apply_role(struct pst_request *q, uint32_t index)
{
    struct pst_worker *w = q->worker;
    const struct pst_node_role *role = &w->node->role;
    uint64_t room = pst_min(pst_min(w->ops[index].bytes, pst_reply_room(q, index)), SCRATCH_BYTES);
    struct pst_wire_result result = {.result = -EOPNOTSUPP};

    if (role->carry_out) {
        result = (struct pst_wire_result){.data = w->scratch};
        role->carry_out(role->ctx, &w->ops[index], w->now_ns, w->scratch, room, &result);
        pst_assert(result.bytes <= room);
        if (result.result == -ENOBUFS && room < w->ops[index].bytes)
            result.result = PST_BUSY; /* its neighbours in the batch take the room */
    }
    if (pst_unlikely(w->ops[index].code == PST_POOL_FIGURES))
        add_grants(q, room, &result);
    pst_reply_add(q, &result);
}

/* ---- a batch ---- */

static void apply_flush(struct pst_request *q, uint32_t index)
{
    struct pst_wire_result result = {.result = (int16_t)pst_request_flush(q, (uint32_t)q->reply_bytes)};

    (void)index;
    pst_reply_add(q, &result);
}

/* It is answered so, in place of the store; a value that comes for it is let go by. */
static void refuse(struct pst_request *q, uint32_t index, struct pst_wire_result result)
{
    const struct pst_wire_op *op = &q->worker->ops[index];
    const struct pst_put put = {.value_bytes = op->bytes};
    const struct pst_pending none = {0};

    pst_assert(index < q->count);
    if (pst_wire_in_bulk(op))
        pst_begin_write(q, &put, &none, index, true);
    pst_reply_add(q, &result);
}

static void apply_ping(struct pst_request *q, uint32_t index)
{
    const struct pst_wire_result result = {0};

    (void)index;
    pst_reply_add(q, &result);
}

/* By code. wire/check.c lets no other through; COMMIT is pst_apply()'s, and a role's are the role's. */
static void (*const operations[])(struct pst_request *q, uint32_t index) = {
    [PST_WIRE_PUT] = pst_apply_put,
    [PST_WIRE_GET] = pst_apply_get,
    [PST_WIRE_STAT_KEY] = pst_apply_get,
    [PST_WIRE_DELETE] = pst_apply_delete,
    [PST_WIRE_PIN] = pst_apply_pin,
    [PST_WIRE_UNPIN] = pst_apply_unpin,
    [PST_WIRE_LIST] = pst_apply_list,
    [PST_WIRE_SWEEP] = pst_apply_sweep,
    [PST_WIRE_STAT] = apply_stat,
    [PST_WIRE_PING] = apply_ping,
    [PST_WIRE_VIEW] = pst_apply_view,
    [PST_WIRE_RELEASE] = pst_apply_release,
    [PST_WIRE_RESERVE] = pst_apply_reserve,
    [PST_WIRE_WRITE_AT] = pst_apply_reservation_write,
    [PST_WIRE_RESERVATION_COMMIT] = pst_apply_reservation_commit,
    [PST_WIRE_RESERVATION_ABORT] = pst_apply_reservation_abort,
    [PST_WIRE_FLUSH] = apply_flush,
    [PST_WIRE_COPY] = pst_apply_copy,
    [PST_WIRE_COPY_SEND] = pst_apply_alone,
    [PST_WIRE_COPY_CLEAR] = pst_apply_copy_clear,
    [PST_WIRE_WATCH_OPEN] = pst_apply_watch_open,
    [PST_WIRE_WATCH_NEXT] = pst_apply_watch_next,
    [PST_WIRE_WATCH_CLOSE] = pst_apply_watch_close,
};

static void apply_one(struct pst_request *q, uint32_t index)
{
    struct pst_worker *w = q->worker;
    uint8_t code = w->ops[index].code;
    uint32_t traits;
    int r = 0;

    if (pst_unlikely(pst_code_of_role(code))) {
        apply_role(q, index);
        return;
    }
    pst_assert(code < pst_count_of(operations));
    pst_assert(operations[code]);
    traits = pst_code_traits(code);
    if (pst_unlikely(w->node->role.may_serve) && traits & PST_CODE_SERVED)
        r = pst_node_may_serve(w->node, w->ops[index].key);
    if (pst_unlikely(*w->locks) && r == 0 && traits & PST_CODE_LOCKED &&
        pst_shard_locked(w->shard, &w->lookups[index], true))
        r = PST_BUSY;
    if (pst_unlikely(r != 0))
        refuse(q, index, (struct pst_wire_result){.result = (int16_t)r});
    else
        operations[code](q, index);
}

/* Look-ups of a whole batch overlap: first all buckets, then all records. */
void pst_apply_prefetch(struct pst_worker *w, uint32_t count)
{
    pst_assert(count <= PST_WIRE_OPS_MAX);
    for (uint32_t i = 0; i < count; i++) {
        w->lookups[i] = pst_shard_lookup(w->shard, w->ops[i].key);
        pst_shard_prefetch(w->shard, &w->lookups[i]);
    }
    for (uint32_t i = 0; i < count; i++)
        pst_shard_prefetch_record(w->shard, &w->lookups[i]);
}

/* The operation, or the whole commit, goes beyond its client's grant. Return: how many behind it are part of
 * it. */
static uint32_t forbid(struct pst_request *q, uint32_t index)
{
    const struct pst_worker *w = q->worker;
    uint32_t members = w->ops[index].code == PST_WIRE_COMMIT ? (uint32_t)w->ops[index].member_count : 0;
    struct pst_wire_result result = {.result = -EACCES, .flags = PST_WIRE_DETAIL};

    pst_assert(members < q->count - index);
    pst_request_forbidden(q->shard_session, index);
    for (uint32_t i = 0; i <= members; i++) {
        result.prefix_bytes = w->missing[index + i]; /* 0: another of the commit's lacks one */
        refuse(q, index + i, result);
    }
    return members;
}

void pst_apply(struct pst_request *q)
{
    bool forbids = pst_unlikely(q->worker->missing_count > 0);

    for (uint32_t i = 0; i < q->count; i++) {
        q->trace.codes |= 1ull << pst_min(q->worker->ops[i].code, PST_TRACE_ROLE);
        if (forbids && q->worker->missing[i])
            i += forbid(q, i);
        else if (pst_unlikely(q->worker->ops[i].code == PST_WIRE_COMMIT))
            i += pst_apply_commit(q, i);
        else
            apply_one(q, i);
    }
    pst_assert(q->write_count <= q->count);
    pst_assert(q->read_count <= q->count);
    pst_assert(q->writes_open <= q->write_count);
}
