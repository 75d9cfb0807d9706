/*
 * copies_tidy.c: what this node has of slots and should not. Of those that others have without it, which were
 * its own or were being filled here, it goes a moment later: it would be listed, and take room. Of a slot
 * that was given up it stays, since no other has it, until the slot is dealt out anew to this node: then it
 * goes first, for good, since it may be older than what was lost; and only then is the slot asked for.
 */
#include "master/copies_priv.h"

enum { TIDY_NS = 1000000000 };

void tidy_follow_view(struct pst_copies *c, uint32_t slot)
{
    const struct pst_view_slot *now = &c->view->slots[slot];
    struct slot *s = &c->slots[slot];
    uint64_t filled = pst_gate_filled(c->gate, slot);
    bool keeps = pst_view_copy_at(now, c->member) >= 0;

    if (tidy_takes(c, slot) && s->cleared_epoch != now->epoch)
        c->tidy.due_ns = pst_now_ns();
    if (!keeps && now->state != PST_VIEW_SERVED)
        return;
    if (!keeps && ((s->kept && s->kept_base == now->base) ||
                   (filled > s->given_up && filled >= now->base && filled < now->epoch))) {
        s->left_behind = true;
        s->given_up = pst_min(filled, now->epoch - 1);
        c->tidy.due_ns = c->tidy.due_ns ? c->tidy.due_ns : pst_now_ns() + TIDY_NS;
    }
    s->kept = keeps;
    s->kept_base = now->base;
}

bool tidy_takes(const struct pst_copies *c, uint32_t slot)
{
    const struct pst_view_slot *s = &c->view->slots[slot];

    return pst_view_slot_dealt(s) && s->copies[0] == c->member &&
           c->view->members[c->member].epoch == c->epoch;
}

/* Whether the slot is to be cleared now: by the gate, too, where the view may come later than here. *@due_ns:
 * when to ask again, if not. */
static bool is_due(const struct pst_copies *c, uint32_t slot, uint64_t now_ns, uint64_t *due_ns)
{
    const struct slot *s = &c->slots[slot];
    uint64_t epoch = c->view->slots[slot].epoch;

    if (tidy_takes(c, slot) && s->cleared_epoch != epoch) {
        if (pst_gate_may_copy(c->gate, slot, epoch) == 0)
            return true;
        *due_ns = now_ns;
    } else if (s->left_behind) {
        if (pst_gate_elsewhere(c->gate, slot))
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

    t->shard = 0;
    t->resume_bytes = 0;
    for (uint32_t i = 0; i < PST_SLOTS && t->slot_count < JOIN_SLOTS_MAX; i++) {
        struct slot *s = &c->slots[i];

        s->left_behind &= !s->kept;
        if (!is_due(c, i, now_ns, &due_ns))
            continue;
        t->slots[t->slot_count++] = (struct pst_wire_cleared){
            .slot_epoch = tidy_takes(c, i) ? c->view->slots[i].epoch : 0, .slot = (uint16_t)i};
        s->left_behind = false;
    }
    if (!t->slot_count)
        t->due_ns = due_ns < UINT64_MAX ? due_ns : 0;
    return t->slot_count > 0;
}

/* All shards have been gone through, or one did not do it: then all of it @again, another time. */
static void end(struct pst_copies *c, bool again)
{
    struct tidy *t = &c->tidy;

    for (uint32_t i = 0; i < t->slot_count; i++) {
        const struct pst_wire_cleared *one = &t->slots[i];

        if (again)
            c->slots[one->slot].left_behind |= one->slot_epoch == 0;
        else if (one->slot_epoch)
            c->slots[one->slot].cleared_epoch = one->slot_epoch;
    }
    if (again)
        t->due_ns = pst_now_ns() + TIDY_NS;
    t->slot_count = 0;
    c->changes_ns = 0;
}

static void cleared(struct pst_copies *c, struct send *send)
{
    struct tidy *t = &c->tidy;
    struct pst_wire_sweep swept;

    t->waits = false;
    if (send->op.result != 0 || send->op.value_bytes < sizeof(swept)) {
        end(c, true);
        return;
    }
    memcpy(&swept, t->data, sizeof(swept));
    t->resume_bytes = 0;
    if (!swept.done && swept.resume_bytes <= send->op.value_bytes - sizeof(swept)) {
        memcpy(t->resume, t->data + sizeof(swept), swept.resume_bytes);
        t->resume_bytes = swept.resume_bytes;
    } else if (++t->shard >= pst_channel_shards(c->self.channel)) {
        end(c, false);
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
                                    .flags = PST_WIRE_IF_GENERATION | (t->resume_bytes ? PST_WIRE_AFTER : 0),
                                    .if_generation = pst_wall_ns(), /* of what was lost; nobody says it */
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
