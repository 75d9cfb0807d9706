/* SPDX-License-Identifier: Apache-2.0 */
/*
 * copies_join.c: gives a member copies of partitions, some hundred at a time. First it drops what it has of
 * them. From then on writes go to it as well; when those that were begun before have ended, it is told which
 * generations have been given, and every key is listed and sent, each under a lock of its own, so that no
 * later write is overtaken. Only who has all is asked for.
 */
#include "replica/copies_priv.h"

enum { JOIN_SENDS_MAX = 32 };

/* What may follow a step. Each but the first may fail. */
static const uint8_t step_next[STEPS] = {
    [STEP_IDLE] = 1 << STEP_CLEAR,
    [STEP_CLEAR] = 1 << STEP_DRAIN,
    [STEP_DRAIN] = 1 << STEP_COUNT,
    [STEP_COUNT] = 1 << STEP_PASS,
    [STEP_PASS] = 1 << STEP_LIST,
    [STEP_LIST] = 1 << STEP_SEND,
    [STEP_SEND] = 1 << STEP_LIST | 1 << STEP_IDLE,
};

static void join_go(struct join *j, enum step next)
{
    pst_assert(j->step < STEPS);
    pst_assert(next < STEPS);
    pst_assert(next == STEP_FAILED ? j->step != STEP_IDLE : step_next[j->step] >> next & 1);
    j->step = next;
}

/* The newcomer gets its writes, and is not asked for yet. */
static bool is_filled(const struct pst_copies *c, uint32_t partition)
{
    const struct partition *s = &c->partitions[partition];

    return s->state == PARTITION_FILLS && s->other_epoch == c->join.epoch;
}

/* All that the join is still about. */
static void move_all(struct pst_copies *c, enum partition_event event)
{
    const struct join *j = &c->join;

    for (uint32_t i = 0; i < j->partition_count; i++)
        if (c->partitions[j->partitions[i].partition].other_epoch == j->epoch)
            partition_move(c, j->partitions[i].partition, event, j->member, j->epoch);
}

static void abandon(struct pst_copies *c)
{
    move_all(c, EVENT_NEWCOMER_FAILS);
    join_go(&c->join, STEP_FAILED);
}

/* ---- the steps ---- */

static void end(struct pst_copies *c)
{
    pst_assert(c->join.sends == 0);
    pst_assert(!c->join.waits);
    c->join = (struct join){.step = STEP_IDLE};
}

void join_take_wants(struct pst_copies *c, const struct pst_pool_want *wants, uint32_t count)
{
    struct join *j = &c->join;
    bool busy;

    if (j->step != STEP_IDLE || !c->map || c->quit)
        return;
    pst_assert(count <= PST_POOL_WANT_COUNT_MAX);
    pst_assert(j->partition_count == 0);
    pst_assert(!j->peer);
    for (uint32_t i = 0; i < count; i++) {
        const struct pst_pool_want *want = &wants[i];
        uint32_t partition = want->partition;

        if (want->leads || partition >= PST_PARTITIONS || !want->member_epoch ||
            !copies_primary(c, partition) || pst_serving_held(c->serving, partition) ||
            c->map->partitions[partition].epoch != want->partition_epoch ||
            c->partitions[partition].state != PARTITION_SHARED ||
            copies_member_epoch(c, want->member) != want->member_epoch ||
            pst_map_replica_at(&c->map->partitions[partition], want->member) >= 0 ||
            (j->partition_count && j->epoch != want->member_epoch))
            continue;
        pst_assert(j->partition_count < pst_count_of(j->partitions));
        j->member = want->member;
        j->epoch = want->member_epoch;
        j->partitions[j->partition_count++] =
            (struct pst_wire_cleared){.partition_epoch = want->partition_epoch, .partition = want->partition};
    }
    if (!j->partition_count)
        return;
    j->peer = copies_peer(c, j->member, j->epoch, &busy);
    if (!j->peer) {
        end(c);
        return;
    }
    for (uint32_t i = 0; i < j->partition_count; i++)
        partition_move(c, j->partitions[i].partition, EVENT_CLEAR, j->member, j->epoch);
    join_go(j, STEP_CLEAR);
}

static void ask(struct pst_copies *c, struct peer *peer, struct penstock_op op,
                void (*ended)(struct pst_copies *c, struct send *send))
{
    struct join *j = &c->join;
    struct send *send;

    pst_assert(!j->waits);
    pst_assert(j->sends == 0);
    pst_assert(j->resume_bytes <= sizeof(j->resume));
    send = copies_send_new(peer);
    if (!send) {
        abandon(c);
        return;
    }
    op.key = j->resume;
    op.key_bytes = (uint16_t)j->resume_bytes;
    op.flags |= j->resume_bytes ? PST_WIRE_AFTER : 0;
    op.data = j->data;
    op.bytes = sizeof(j->data);
    send->op = op;
    send->ended = ended;
    j->waits = true;
    copies_submit(c, send, (int)j->shard);
}

static void next_shard(struct pst_copies *c, const struct peer *peer, enum step then)
{
    struct join *j = &c->join;

    pst_assert(!j->waits);
    pst_assert(j->sends == 0);
    pst_assert(peer->way);
    j->resume_bytes = 0;
    if (++j->shard < c->net->shards(c->net_ctx, peer->way))
        return;
    j->shard = 0;
    join_go(j, then);
}

/* From now on it is told of writes. */
static void begin_filling(struct pst_copies *c)
{
    struct join *j = &c->join;

    pst_assert(j->step == STEP_DRAIN);
    for (uint32_t i = 0; i < j->partition_count; i++) {
        uint32_t partition = j->partitions[i].partition;

        if (c->partitions[partition].state == PARTITION_CLEARS &&
            c->partitions[partition].other_epoch == j->epoch &&
            partition_move(c, partition, EVENT_CLEARED, j->member, j->epoch) == PARTITION_FILLS)
            pst_serving_set_replicas(c->serving, partition, true);
    }
    pthread_mutex_lock(&c->lock);
    pst_assert(c->number >= j->mark);
    j->mark = c->number;
    pthread_mutex_unlock(&c->lock);
}

static void cleared(struct pst_copies *c, struct send *send)
{
    struct join *j = &c->join;
    int r;

    pst_assert(j->step == STEP_CLEAR);
    pst_assert(j->waits);
    pst_assert(send->peer == j->peer);
    j->waits = false;
    if (send->op.result ==
        PENSTOCK_BUSY) /* until its deadline: the same again, while the partition is to join */
        return;
    r = copies_read_swept(send, j->data, j->resume, &j->resume_bytes);
    if (r < 0) {
        abandon(c);
        return;
    }
    if (r == 1)
        next_shard(c, j->peer, STEP_DRAIN);
    if (j->step == STEP_DRAIN)
        begin_filling(c);
}

static bool drained(struct pst_copies *c)
{
    bool is;

    pthread_mutex_lock(&c->lock);
    is = copies_ended(c, c->join.mark);
    pthread_mutex_unlock(&c->lock);
    return is;
}

/* What was deleted before is not sent: without this the key could have one of its generations again there. */
static void counted(struct pst_copies *c, struct send *send)
{
    struct join *j = &c->join;

    pst_assert(j->waits);
    pst_assert(j->step == STEP_COUNT || j->step == STEP_PASS);
    j->waits = false;
    if (send->op.result == PENSTOCK_BUSY)
        return;
    if (send->op.result != 0) {
        abandon(c);
    } else if (j->step == STEP_COUNT) {
        j->passed = pst_max(j->passed, send->op.generation);
        next_shard(c, &c->self, STEP_PASS);
    } else {
        next_shard(c, j->peer, STEP_LIST);
    }
}

static void listed(struct pst_copies *c, struct send *send)
{
    struct join *j = &c->join;

    pst_assert(j->waits);
    pst_assert(j->step == STEP_LIST);
    pst_assert(send->peer == &c->self);
    j->waits = false;
    j->data_at = 0;
    j->data_bytes = send->op.result == 0 ? send->op.value_bytes : 0;
    pst_assert(j->data_bytes <= sizeof(j->data)); /* the channel takes no longer answer */
    j->shard_ended = send->op.generation == 1;
    join_go(j, STEP_SEND);
    if (send->op.result != 0)
        abandon(c);
}

static void sent(struct pst_copies *c, struct send *send)
{
    pst_assert(c->join.sends > 0);
    pst_assert(c->join.step == STEP_SEND || c->join.step == STEP_FAILED);
    c->join.sends--;
    if (send->op.result != 0 && send->op.result != PENSTOCK_MISS)
        abandon(c);
}

static bool fills(const struct pst_copies *c, struct pst_bytes key)
{
    uint32_t partition = pst_serving_partition_of(c->serving, key);

    return partition < PST_PARTITIONS && is_filled(c, partition);
}

static void send_key(struct pst_copies *c, struct pst_bytes key)
{
    struct join *j = &c->join;
    struct send *send = copies_send_new(&c->self);

    pst_assert(j->sends < JOIN_SENDS_MAX);
    pst_assert(key.len > 0);
    if (!send) {
        abandon(c);
        return;
    }
    send->op =
        (struct penstock_op){.code = PST_WIRE_COPY_SEND, .key = key.data, .key_bytes = (uint16_t)key.len};
    send->ended = sent;
    j->sends++;
    copies_submit(c, send, (int)j->shard);
}

/* Keys stay where they lie in the list until all of it has gone. */
static void send_keys(struct pst_copies *c, uint64_t now_ns)
{
    struct join *j = &c->join;
    struct pst_wire_entry entry;

    pst_assert(j->data_at <= j->data_bytes && j->data_bytes <= sizeof(j->data));
    while (j->data_at < j->data_bytes && j->step == STEP_SEND) {
        const uint8_t *at = j->data + j->data_at;
        struct pst_bytes key = {at + sizeof(entry), 0};

        if (j->sends >= JOIN_SENDS_MAX)
            return;
        if (j->data_bytes - j->data_at < sizeof(entry))
            break;
        memcpy(&entry, at, sizeof(entry));
        key.len = entry.key_bytes;
        if (key.len > j->data_bytes - j->data_at - sizeof(entry) || key.len > sizeof(j->resume))
            break;
        if (fills(c, key)) {
            if (!pst_copies_may_send(c, entry.value_bytes, now_ns))
                return;
            send_key(c, key);
        }
        memcpy(j->resume, key.data, key.len);
        j->resume_bytes = key.len;
        j->data_at += sizeof(entry) + key.len;
    }
    if (j->sends > 0 || j->step != STEP_SEND)
        return;
    if (j->shard_ended)
        next_shard(c, &c->self, STEP_IDLE);
    if (j->step == STEP_SEND)
        join_go(j, STEP_LIST);
}

void join_step(struct pst_copies *c, uint64_t now_ns)
{
    struct join *j = &c->join;

    if (j->step == STEP_IDLE || j->waits)
        return;
    pst_assert(j->peer);
    pst_assert(j->partition_count > 0);
    pst_assert(j->sends <= JOIN_SENDS_MAX);
    if (j->peer->failed || c->quit)
        abandon(c);
    if (j->step == STEP_FAILED) {
        if (j->sends == 0)
            end(c);
        return;
    }
    if (j->step == STEP_CLEAR)
        ask(c, j->peer,
            (struct penstock_op){.code = PST_WIRE_COPY_CLEAR,
                                 .attrs = j->partitions,
                                 .attr_bytes = (uint16_t)(j->partition_count * sizeof(j->partitions[0]))},
            cleared);
    else if (j->step == STEP_DRAIN && drained(c))
        join_go(j, STEP_COUNT);
    else if ((j->step == STEP_COUNT || j->step == STEP_LIST) && !copies_self(c))
        abandon(c);
    else if (j->step == STEP_COUNT || j->step == STEP_PASS)
        ask(c, j->step == STEP_COUNT ? &c->self : j->peer,
            (struct penstock_op){
                .code = PST_WIRE_COPY_CLEAR, .flags = PST_WIRE_FLOOR, .generation_floor = j->passed},
            counted);
    else if (j->step == STEP_LIST)
        ask(c, &c->self, (struct penstock_op){.code = PST_WIRE_LIST}, listed);
    else if (j->step == STEP_SEND)
        send_keys(c, now_ns);
    if (j->step == STEP_IDLE) {
        move_all(c, EVENT_FILLED);
        end(c);
    }
}
