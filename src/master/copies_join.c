/*
 * copies_join.c: gives a member copies of slots, some hundred at a time. First it drops what it has of them.
 * From then on writes go to it as well; when those that were begun before have ended, it is told which
 * generations have been given, and every key is listed and sent, each under a lock of its own, so that no
 * later write is overtaken. Only who has all is asked for.
 */
#include "master/copies_priv.h"

static void abandon(struct pst_copies *c)
{
    struct join *j = &c->join;

    for (uint32_t i = 0; i < j->slot_count; i++) {
        struct slot *s = &c->slots[j->slots[i].slot];

        if (s->phase == JOIN_FILLS && s->join_epoch == j->epoch)
            s->phase = JOIN_NONE;
    }
    j->failed = true;
}

void join_fail(struct pst_copies *c, uint32_t slot)
{
    struct slot *s = &c->slots[slot];

    if (s->phase == JOIN_ASKED)
        copies_drop(c, slot, s->joining);
    else if (s->phase == JOIN_FILLS && s->join_epoch == c->join.epoch)
        abandon(c);
    s->phase = JOIN_NONE;
}

void join_follow_view(struct pst_copies *c, uint32_t slot, bool changed)
{
    struct slot *s = &c->slots[slot];

    if (changed)
        s->phase = JOIN_NONE; /* joined; or its epoch is not the one that was asked under */
}

/* ---- the steps ---- */

static void end(struct pst_copies *c)
{
    c->join = (struct join){.step = STEP_IDLE};
}

void join_take_wants(struct pst_copies *c, const struct pst_pool_want *wants, uint32_t count)
{
    struct join *j = &c->join;

    if (j->step != STEP_IDLE || !c->view || c->quit)
        return;
    for (uint32_t i = 0; i < count; i++) {
        const struct pst_pool_want *want = &wants[i];
        uint32_t slot = want->slot;

        if (want->leads || slot >= PST_SLOTS || want->member >= c->view->members_max ||
            !copies_primary(c, slot) || pst_gate_held(c->gate, slot) ||
            c->view->slots[slot].epoch != want->slot_epoch || c->slots[slot].phase != JOIN_NONE ||
            c->slots[slot].led_epoch || c->slots[slot].dropped_epoch == want->slot_epoch ||
            c->view->members[want->member].epoch != want->member_epoch ||
            (j->slot_count && j->epoch != want->member_epoch))
            continue;
        j->member = want->member;
        j->epoch = want->member_epoch;
        j->slots[j->slot_count++] =
            (struct pst_wire_cleared){.slot_epoch = want->slot_epoch, .slot = want->slot};
    }
    if (!j->slot_count)
        return;
    j->peer = copies_peer(c, j->member, j->epoch);
    if (j->peer)
        j->step = STEP_CLEAR;
    else
        end(c);
}

static void ask(struct pst_copies *c, struct peer *peer, struct penstock_op op,
                void (*ended)(struct pst_copies *c, struct send *send))
{
    struct join *j = &c->join;
    struct send *send = copies_send_new(peer);

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
    copies_submit(send, (int)j->shard);
}

static void next_shard(struct pst_copies *c, const struct peer *peer, enum step then)
{
    struct join *j = &c->join;

    j->resume_bytes = 0;
    if (++j->shard < pst_channel_shards(peer->channel))
        return;
    j->shard = 0;
    j->step = then;
}

/* From now on it is told of writes. */
static void begin_filling(struct pst_copies *c)
{
    struct join *j = &c->join;

    for (uint32_t i = 0; i < j->slot_count; i++) {
        uint32_t slot = j->slots[i].slot;
        struct slot *s = &c->slots[slot];

        if (!copies_primary(c, slot) || c->view->slots[slot].epoch != j->slots[i].slot_epoch)
            continue;
        s->phase = JOIN_FILLS;
        s->joining = j->member;
        s->join_epoch = j->epoch;
        pst_gate_copy(c->gate, slot, true);
    }
    pthread_mutex_lock(&c->lock);
    j->mark = c->number;
    pthread_mutex_unlock(&c->lock);
}

static void cleared(struct pst_copies *c, struct send *send)
{
    struct join *j = &c->join;
    struct pst_wire_sweep swept;

    j->waits = false;
    if (send->op.result != 0 || send->op.value_bytes < sizeof(swept)) {
        abandon(c);
        return;
    }
    memcpy(&swept, j->data, sizeof(swept));
    if (!swept.done && swept.resume_bytes <= send->op.value_bytes - sizeof(swept)) {
        memcpy(j->resume, j->data + sizeof(swept), swept.resume_bytes);
        j->resume_bytes = swept.resume_bytes;
        return;
    }
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

    j->waits = false;
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

    j->waits = false;
    j->data_at = 0;
    j->data_bytes = send->op.value_bytes;
    j->shard_ended = send->op.generation == 1;
    j->step = STEP_SEND;
    if (send->op.result != 0)
        abandon(c);
}

static void sent(struct pst_copies *c, struct send *send)
{
    c->join.sends--;
    if (send->op.result != 0 && send->op.result != PENSTOCK_MISS)
        abandon(c);
}

static bool fills(const struct pst_copies *c, struct pst_bytes key)
{
    uint32_t slot = pst_gate_slot_of(c->gate, key);

    return slot < PST_SLOTS && c->slots[slot].phase == JOIN_FILLS &&
           c->slots[slot].join_epoch == c->join.epoch;
}

static void send_key(struct pst_copies *c, struct pst_bytes key)
{
    struct join *j = &c->join;
    struct send *send = copies_send_new(&c->self);

    if (!send) {
        abandon(c);
        return;
    }
    send->op =
        (struct penstock_op){.code = PST_WIRE_COPY_SEND, .key = key.data, .key_bytes = (uint16_t)key.len};
    send->ended = sent;
    j->sends++;
    copies_submit(send, (int)j->shard);
}

/* Keys stay where they lie in the list until all of it has gone. */
static void send_keys(struct pst_copies *c, uint64_t now_ns)
{
    struct join *j = &c->join;
    struct pst_wire_entry entry;

    while (j->data_at < j->data_bytes && !j->failed) {
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
    if (j->sends > 0)
        return;
    j->step = STEP_LIST;
    if (j->shard_ended)
        next_shard(c, &c->self, STEP_IDLE);
}

static void ask_master(struct pst_copies *c)
{
    struct join *j = &c->join;

    for (uint32_t i = 0; i < j->slot_count; i++) {
        struct slot *s = &c->slots[j->slots[i].slot];

        if (s->phase == JOIN_FILLS && s->join_epoch == j->epoch)
            s->phase = JOIN_ASKED;
    }
    c->changes_ns = 0;
}

void join_step(struct pst_copies *c, uint64_t now_ns)
{
    struct join *j = &c->join;

    if (j->step == STEP_IDLE || j->waits)
        return;
    if (j->failed || j->peer->failed || c->quit) {
        if (j->sends == 0) {
            abandon(c);
            end(c);
        }
        return;
    }
    if (j->step == STEP_CLEAR)
        ask(c, j->peer,
            (struct penstock_op){.code = PST_WIRE_COPY_CLEAR,
                                 .attrs = j->slots,
                                 .attr_bytes = (uint16_t)(j->slot_count * sizeof(j->slots[0]))},
            cleared);
    else if (j->step == STEP_DRAIN && drained(c))
        j->step = STEP_COUNT;
    else if ((j->step == STEP_COUNT || j->step == STEP_LIST) && !copies_self(c))
        abandon(c);
    else if (j->step == STEP_COUNT || j->step == STEP_PASS)
        ask(c, j->step == STEP_COUNT ? &c->self : j->peer,
            (struct penstock_op){
                .code = PST_WIRE_COPY_CLEAR, .flags = PST_WIRE_IF_GENERATION, .if_generation = j->passed},
            counted);
    else if (j->step == STEP_LIST)
        ask(c, &c->self, (struct penstock_op){.code = PST_WIRE_LIST}, listed);
    else if (j->step == STEP_SEND)
        send_keys(c, now_ns);
    if (j->step == STEP_IDLE) {
        ask_master(c);
        end(c);
    }
}
