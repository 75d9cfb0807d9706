/*
 * copies_tidy.c: what this node had of slots that others have without it goes a moment later: it would be
 * listed, and take room. Of a slot that was given up it stays, since no other has it.
 */
#include "master/copies_priv.h"

enum { TIDY_NS = 1000000000 };

void tidy_follow_view(struct pst_copies *c, uint32_t slot)
{
    const struct pst_view_slot *now = &c->view->slots[slot];
    struct slot *s = &c->slots[slot];
    bool keeps = pst_view_copy_at(now, c->member) >= 0;

    if (!keeps && now->state != PST_VIEW_SERVED)
        return;
    if (!keeps && s->kept && s->kept_base == now->base) {
        s->left_behind = true;
        c->tidy.due_ns = c->tidy.due_ns ? c->tidy.due_ns : pst_now_ns() + TIDY_NS;
    }
    s->kept = keeps;
    s->kept_base = now->base;
}

/* Return: whether there are any. */
static bool gather(struct pst_copies *c)
{
    struct tidy *t = &c->tidy;

    t->shard = 0;
    t->resume_bytes = 0;
    for (uint32_t i = 0; i < PST_SLOTS && t->slot_count < JOIN_SLOTS_MAX; i++) {
        if (c->slots[i].left_behind && !c->slots[i].kept)
            t->slots[t->slot_count++] = (struct pst_wire_cleared){.slot = (uint16_t)i};
        c->slots[i].left_behind = false;
    }
    return t->slot_count > 0;
}

static void cleared(struct pst_copies *c, struct send *send)
{
    struct tidy *t = &c->tidy;
    struct pst_wire_sweep swept;

    t->waits = false;
    if (send->op.result != 0 || send->op.value_bytes < sizeof(swept)) {
        t->due_ns = pst_now_ns() + TIDY_NS;
        return;
    }
    memcpy(&swept, t->data, sizeof(swept));
    t->resume_bytes = 0;
    if (!swept.done && swept.resume_bytes <= send->op.value_bytes - sizeof(swept)) {
        memcpy(t->resume, t->data + sizeof(swept), swept.resume_bytes);
        t->resume_bytes = swept.resume_bytes;
    } else if (++t->shard >= pst_channel_shards(c->self.channel)) {
        t->slot_count = 0;
    }
}

void tidy_step(struct pst_copies *c, uint64_t now_ns)
{
    struct tidy *t = &c->tidy;
    struct send *send;

    if (!t->due_ns || now_ns < t->due_ns || t->waits || !c->view || c->quit)
        return;
    if (!t->slot_count && !gather(c)) {
        t->due_ns = 0;
        return;
    }
    send = copies_self(c) ? copies_send_new(&c->self) : NULL;
    if (!send) {
        t->due_ns = now_ns + TIDY_NS;
        return;
    }
    send->op = (struct penstock_op){.code = PST_WIRE_COPY_CLEAR,
                                    .flags = t->resume_bytes ? PST_WIRE_AFTER : 0,
                                    .key = t->resume,
                                    .key_bytes = (uint16_t)t->resume_bytes,
                                    .attrs = t->slots,
                                    .attr_bytes = (uint16_t)(t->slot_count * sizeof(t->slots[0])),
                                    .data = t->data,
                                    .bytes = sizeof(t->data)};
    send->ended = cleared;
    t->waits = true;
    copies_submit(send, (int)t->shard);
}
