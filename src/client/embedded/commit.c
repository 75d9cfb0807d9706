/* SPDX-License-Identifier: Apache-2.0 */
/* commit.c: commits over several keys of an embedded store: under the locks of all shards that they
 * touch, taken in order, so that nothing can come in between. */
#include "client/embedded/embedded_priv.h"

#include "base/clock.h"
#include "store/change.h"
#include "store/reservation.h"
#include "wire/route.h"

struct commit {
    struct pst_local *local;
    struct penstock_op *members;
    uint32_t count;
    struct pst_change changes[PST_WIRE_OPS_MAX];
    struct pst_change *first[PST_SHARDS_MAX], *last[PST_SHARDS_MAX]; /* by shard */
};

static void fill_change(struct pst_change *c, const struct penstock_op *op)
{
    bool put = op->code == PENSTOCK_PUT, reservation = op->flags & PST_WIRE_IN_RESERVATION;

    pst_assert(!reservation || put);
    *c = (struct pst_change){
        .kind = put                           ? PST_CHANGE_PUT
                : op->code == PENSTOCK_DELETE ? PST_CHANGE_DELETE
                                              : PST_CHANGE_CHECK,
        .put = {.lookup.key = {op->key, op->key_bytes},
                .attrs = {op->attrs, put && op->attrs ? op->attr_bytes : 0},
                .value_bytes = put ? op->bytes : 0,
                .if_generation = op->if_generation,
                .value_crc = put && op->flags & PENSTOCK_CHECKSUM ? pst_op_crc(op, op->bytes) : 0,
                .depth = op->depth,
                .flags = op->flags & (PST_PUT_IF_ABSENT | PST_PUT_IF_GENERATION | PST_PUT_CHECKSUM)},
        .from = reservation ? PST_VALUE_RESERVATION : PST_VALUE_GIVEN,
        .value = op->data,
        .reservation_handle = reservation ? op->value_reservation : 0,
    };
}

static void deal(struct commit *commit)
{
    struct pst_local *l = commit->local;

    pst_assert(commit->count >= 1 && commit->count <= PST_WIRE_OPS_MAX);
    memset(commit->first, 0, sizeof(commit->first));
    memset(commit->last, 0, sizeof(commit->last));
    for (uint32_t i = 0; i < commit->count; i++) {
        struct pst_change *c = &commit->changes[i];
        struct pst_bytes key = {commit->members[i].key, commit->members[i].key_bytes};
        uint32_t shard = pst_route_shard(key, pst_store_partition_seed(l->store), l->shard_count);

        pst_assert(shard < l->shard_count);
        fill_change(c, &commit->members[i]);
        c->put.lookup = pst_shard_lookup(pst_store_shard(l->store, shard), key);
        pst_assert(!commit->first[shard] == !commit->last[shard]);
        *(commit->last[shard] ? &commit->last[shard]->next : &commit->first[shard]) = c;
        commit->last[shard] = c;
    }
}

/* All locks are held. Return: true when it was applied. */
static bool change_all(struct commit *commit)
{
    struct pst_local *l = commit->local;
    uint64_t now_ns = pst_now_ns();
    bool prepared[PST_SHARDS_MAX] = {false}, ok = true;

    pst_assert(l->shard_count <= PST_SHARDS_MAX);
    for (uint32_t i = 0; i < l->shard_count; i++) {
        if (commit->first[i])
            prepared[i] = pst_changes_prepare(pst_store_shard(l->store, i), &l->holders[i], commit->first[i],
                                              !ok, now_ns) &&
                          ok;
        ok &= prepared[i] || !commit->first[i];
    }
    if (ok)
        pst_changes_decide(l->store, commit->changes, commit->count);
    for (uint32_t i = 0; i < l->shard_count; i++) {
        struct pst_shard *shard = pst_store_shard(l->store, i);

        if (prepared[i] && ok)
            pst_changes_apply(shard, commit->first[i], now_ns);
        else if (prepared[i])
            pst_changes_undo(shard, commit->first[i]);
        if (commit->first[i])
            pst_shard_tick(shard, now_ns);
    }
    return ok;
}

/* What the commit came to; busy only when nothing else is wrong with it. */
static int outcome_of(struct commit *commit)
{
    int outcome = PST_BUSY;

    for (uint32_t i = 0; i < commit->count; i++) {
        const struct pst_change *c = &commit->changes[i];
        struct penstock_op *op = &commit->members[i];

        op->result = c->result;
        pst_local_answer(op, &c->answer);
        if (outcome == PST_BUSY && c->result != 0)
            outcome = c->result;
    }
    return outcome;
}

static int commit_once(struct commit *commit)
{
    struct pst_local *l = commit->local;
    bool applied;
    int r;

    deal(commit);
    for (uint32_t i = 0; i < l->shard_count; i++) {
        if (commit->first[i])
            pst_local_lock(l, i);
    }
    applied = change_all(commit);
    for (uint32_t i = 0; i < l->shard_count; i++) {
        if (commit->first[i])
            pst_local_unlock(l, i);
    }
    r = outcome_of(commit);
    pst_assert(applied || r != PST_OK); /* what was not done has a reason */
    return applied ? PST_OK : r;
}

int pst_local_commit(struct pst_local *l, struct penstock_op *op)
{
    pst_cleanup_free struct commit *commit = malloc(sizeof(*commit));
    int tries = 0;
    int r;

    if (!commit)
        return -ENOMEM;
    pst_assert(op->member_count >= 1 && op->member_count <= PST_WIRE_OPS_MAX);
    commit->local = l;
    commit->members = op->data;
    commit->count = (uint32_t)op->member_count;
    do
        r = commit_once(commit);
    while (r == PST_BUSY && pst_local_again(l, op, &tries));
    return r;
}
