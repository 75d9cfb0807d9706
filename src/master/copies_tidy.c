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

/* Those that the gate knows to be others': the view may have come here first. Return: whether there are any;
 * without, it is due when the rest is. */
static bool gather(struct pst_copies *c, uint64_t now_ns)
{
    struct tidy *t = &c->tidy;
    bool later = false;

    t->shard = 0;
    t->resume_bytes = 0;
    t->spared = false;
    for (uint32_t i = 0; i < PST_SLOTS && t->slot_count < JOIN_SLOTS_MAX; i++) {
        struct slot *s = &c->slots[i];

        s->left_behind &= !s->kept;
        if (!s->left_behind)
            continue;
        if (!pst_gate_elsewhere(c->gate, i)) {
            later = true;
            continue;
        }
        t->slots[t->slot_count++] = (struct pst_wire_cleared){.slot = (uint16_t)i};
        s->left_behind = false;
    }
    if (!t->slot_count)
        t->due_ns = later ? now_ns + TIDY_NS : 0;
    return t->slot_count > 0;
}

/* All shards have been gone through. What was in use goes another time. */
static void end(struct pst_copies *c)
{
    struct tidy *t = &c->tidy;

    for (uint32_t i = 0; i < t->slot_count && t->spared; i++)
        c->slots[t->slots[i].slot].left_behind = true;
    if (t->spared)
        t->due_ns = pst_now_ns() + TIDY_NS;
    t->slot_count = 0;
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
    t->spared |= swept.spared > 0;
    t->resume_bytes = 0;
    if (!swept.done && swept.resume_bytes <= send->op.value_bytes - sizeof(swept)) {
        memcpy(t->resume, t->data + sizeof(swept), swept.resume_bytes);
        t->resume_bytes = swept.resume_bytes;
    } else if (++t->shard >= pst_channel_shards(c->self.channel)) {
        end(c);
    }
}

void tidy_step(struct pst_copies *c, uint64_t now_ns)
{
    struct tidy *t = &c->tidy;
    struct send *send;

    if (!t->due_ns || now_ns < t->due_ns || t->waits || !c->view || c->quit)
        return;
    if (!t->slot_count && !gather(c, now_ns))
        return;
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
