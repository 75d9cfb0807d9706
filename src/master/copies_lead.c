/*
 * copies_lead.c: hands slots over to copies. The slot is held: nothing of it is served here any more, and no
 * write that begins is sent. When those that were sent have ended, the copy has all; then the master is
 * asked, until the slot has another epoch, and with it another primary or the one that it had.
 */
#include "master/copies_priv.h"

void lead_take_wants(struct pst_copies *c, const struct pst_pool_want *wants, uint32_t count)
{
    uint64_t mark;
    bool any = false;

    for (uint32_t i = 0; i < count && c->view && !c->quit; i++) {
        const struct pst_pool_want *want = &wants[i];
        struct slot *s = want->slot < PST_SLOTS ? &c->slots[want->slot] : NULL;

        if (!want->leads || !s || !copies_primary(c, want->slot) || pst_gate_held(c->gate, want->slot) ||
            c->view->slots[want->slot].epoch != want->slot_epoch || s->phase != JOIN_NONE ||
            s->dropped_epoch == want->slot_epoch ||
            pst_view_copy_at(&c->view->slots[want->slot], want->member) < 1)
            continue;
        pst_gate_hold(c->gate, want->slot, true);
        s->led_epoch = want->slot_epoch;
        s->heir = want->member;
        s->heir_epoch = want->member_epoch;
        s->led_mark = 0;
        any = true;
    }
    if (!any)
        return;
    pthread_mutex_lock(&c->lock); /* what asks from now on finds it held */
    mark = c->number;
    pthread_mutex_unlock(&c->lock);
    for (uint32_t i = 0; i < PST_SLOTS; i++)
        if (c->slots[i].led_epoch && !c->slots[i].led_mark)
            c->slots[i].led_mark = mark;
    c->changes_ns = 0;
}

bool lead_stops(const struct pst_copies *c, uint32_t slot, const struct pst_replica *replica)
{
    return c->slots[slot].led_epoch && replica->number > c->slots[slot].led_mark;
}

bool lead_is_ready(const struct pst_copies *c, uint32_t slot)
{
    return c->slots[slot].led_epoch && copies_ended(c, c->slots[slot].led_mark);
}

bool lead_follow_view(struct pst_copies *c, uint32_t slot)
{
    struct slot *s = &c->slots[slot];
    bool ours = copies_primary(c, slot);

    if (!s->led_epoch)
        return false;
    if (ours && c->view->slots[slot].epoch == s->led_epoch)
        return true;
    s->led_epoch = 0;
    /* The gate has the view in a moment: until then it is to keep what is another's now. */
    if (ours)
        pst_gate_hold(c->gate, slot, false);
    return true;
}

bool lead_was_handed(const struct pst_copies *c, const struct pst_view_slot *slot,
                     const struct pst_view_slot *before)
{
    return before && before->state == PST_VIEW_SERVED && slot->epoch == before->epoch + 1 &&
           before->copies[0] != slot->copies[0] && pst_view_copy_at(before, slot->copies[0]) > 0 &&
           pst_view_copy_at(slot, before->copies[0]) > 0 && c->known_member == slot->copies[0];
}
