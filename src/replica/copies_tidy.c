/* SPDX-License-Identifier: Apache-2.0 */
/*
 * copies_tidy.c: what this node has of partitions and should not. Of those that others have without it, which
 * were its own or were being filled here, it goes a moment later: it would be listed, and take room. Of a
 * partition that was given up it stays, since no other has it, until the partition is dealt out anew to this
 * node: then it goes first, for good, since it may be older than what was lost; and only then is the
 * partition asked for. A node whose SSD cannot do that gives the partition back.
 */
#include "replica/copies_priv.h"

enum {
    TIDY_NS = 1000000000,
    FAILURES_MAX = 2,
};

void tidy_follow_map(struct pst_copies *c, uint32_t partition)
{
    const struct pst_map_partition *now = &c->map->partitions[partition];
    struct partition *s = &c->partitions[partition];
    uint64_t filled = pst_serving_filled(c->serving, partition);
    bool keeps = pst_map_replica_at(now, c->member) >= 0;

    pst_assert(partition < PST_PARTITIONS);
    pst_assert(s->part <= PART_LEFT);
    if (tidy_takes(c, partition) && s->cleared_epoch != now->epoch)
        c->tidy.due_ns = c->now_ns;
    if (!keeps && now->state != PST_MAP_SERVED)
        return;
    if (keeps) {
        s->part = PART_COPY;
    } else if ((s->part == PART_COPY && s->part_base == now->base) ||
               (filled > s->given_up && filled >= now->base && filled < now->epoch)) {
        s->part = PART_LEFT;
        s->given_up = pst_min(filled, now->epoch - 1);
        c->tidy.due_ns = c->tidy.due_ns ? c->tidy.due_ns : c->now_ns + TIDY_NS;
    } else if (s->part == PART_COPY) {
        s->part = PART_NONE;
    }
    s->part_base = now->base;
}

bool tidy_takes(const struct pst_copies *c, uint32_t partition)
{
    const struct pst_map_partition *s = &c->map->partitions[partition];

    return pst_map_partition_dealt(s) && s->replicas[0] == c->member &&
           c->map->members[c->member].epoch == c->epoch;
}

/* Whether the partition is to be cleared now: by the serving, too, where the pool map may come later than
 * here.
 * *@due_ns: when to ask again, if not. */
static bool is_due(const struct pst_copies *c, uint32_t partition, uint64_t now_ns, uint64_t *due_ns)
{
    const struct partition *s = &c->partitions[partition];
    uint64_t epoch = c->map->partitions[partition].epoch;

    if (tidy_takes(c, partition) && s->cleared_epoch != epoch && s->refused_epoch != epoch) {
        if (pst_serving_may_replicate(c->serving, partition, epoch) == 0)
            return true;
        *due_ns = now_ns;
    } else if (s->part == PART_LEFT) {
        if (pst_serving_elsewhere(c->serving, partition))
            return true;
        *due_ns = pst_min(*due_ns, now_ns + TIDY_NS);
    }
    return false;
}

/* Return: whether there are any; without, it is due when the rest is. */
static bool gather(struct pst_copies *c, uint64_t now_ns)
{
    struct tidy *t = &c->tidy;
    uint64_t due_ns = UINT64_MAX;

    pst_assert(t->partition_count == 0);
    pst_assert(!t->waits);
    t->shard = 0;
    t->resume_bytes = 0;
    for (uint32_t i = 0; i < PST_PARTITIONS && t->partition_count < PST_POOL_WANT_COUNT_MAX; i++) {
        struct partition *s = &c->partitions[i];

        if (!is_due(c, i, now_ns, &due_ns))
            continue;
        t->partitions[t->partition_count++] = (struct pst_wire_cleared){
            .partition_epoch = tidy_takes(c, i) ? c->map->partitions[i].epoch : 0, .partition = (uint16_t)i};
        if (s->part == PART_LEFT)
            s->part = PART_NONE;
    }
    if (!t->partition_count)
        t->due_ns = due_ns < UINT64_MAX ? due_ns : 0;
    return t->partition_count > 0;
}

/* All shards have been gone through, or one did not do it: then all of it @again, another time. */
static void end(struct pst_copies *c, bool again)
{
    struct tidy *t = &c->tidy;

    pst_assert(t->partition_count > 0 && t->partition_count <= PST_POOL_WANT_COUNT_MAX);
    pst_assert(!t->waits);
    for (uint32_t i = 0; i < t->partition_count; i++) {
        const struct pst_wire_cleared *one = &t->partitions[i];

        pst_assert(one->partition < PST_PARTITIONS);
        if (again && one->partition_epoch && t->failures >= FAILURES_MAX)
            c->partitions[one->partition].refused_epoch = one->partition_epoch;
        else if (again && one->partition_epoch == 0 && c->partitions[one->partition].part == PART_NONE)
            c->partitions[one->partition].part = PART_LEFT;
        else if (!again && one->partition_epoch)
            c->partitions[one->partition].cleared_epoch = one->partition_epoch;
    }
    if (again)
        t->due_ns = c->now_ns + TIDY_NS;
    t->partition_count = 0;
    c->changes_ns = 0;
}

static void cleared(struct pst_copies *c, struct send *send)
{
    struct tidy *t = &c->tidy;
    int r;

    pst_assert(t->waits);
    pst_assert(send->peer == &c->self);
    r = copies_read_swept(send, t->data, t->resume, &t->resume_bytes);
    t->waits = false;
    t->failures = send->op.result < 0 && send->op.result != -ESTALE ? t->failures + 1 : 0;
    if (r == 1)
        t->resume_bytes = 0;
    if (r < 0 || (r == 1 && ++t->shard >= c->net->shards(c->net_ctx, c->self.way)))
        end(c, r < 0);
}

void tidy_step(struct pst_copies *c, uint64_t now_ns)
{
    struct tidy *t = &c->tidy;
    struct send *send;

    if (!t->due_ns || now_ns < t->due_ns || t->waits || !c->map || c->quit)
        return;
    if (!t->partition_count && !gather(c, now_ns))
        return;
    send = copies_self(c) ? copies_send_new(&c->self) : NULL;
    if (!send) {
        t->due_ns = now_ns + TIDY_NS;
        return;
    }
    send->op = (struct penstock_op){.code = PST_WIRE_COPY_CLEAR,
                                    .flags = PST_WIRE_FLOOR | (t->resume_bytes ? PST_WIRE_AFTER : 0),
                                    .generation_floor = c->wall_ns, /* of what was lost; nobody says it */
                                    .key = t->resume,
                                    .key_bytes = (uint16_t)t->resume_bytes,
                                    .attrs = t->partitions,
                                    .attr_bytes = (uint16_t)(t->partition_count * sizeof(t->partitions[0])),
                                    .data = t->data,
                                    .bytes = sizeof(t->data)};
    pst_assert(t->resume_bytes <= sizeof(t->resume));
    send->ended = cleared;
    t->waits = true;
    copies_submit(c, send, (int)t->shard);
}
