/* view_random.h: views as a directory may make them, drawn from a number. */
#ifndef PST_TEST_VIEW_RANDOM_H
#define PST_TEST_VIEW_RANDOM_H

#include "directory/view.h"

#include <stdio.h>

static uint64_t view_draw(uint64_t *state, uint64_t limit)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (*state >> 33) % limit;
}

static void view_random_member(struct pst_view *view, uint32_t number, uint64_t *state)
{
    struct pst_view_member *member = &view->members[number];

    member->epoch = view->epoch_next++;
    member->start = view_draw(state, UINT32_MAX);
    member->page_bytes = view_draw(state, 1 << 22);
    memcpy(member->id.bytes, &member->epoch, sizeof(member->epoch));
    member->host.bytes[0] = (uint8_t)view_draw(state, 4);
    (void)snprintf(member->address, sizeof(member->address), "10.0.0.%u:%u", number % 256,
                   (unsigned)view_draw(state, 65536));
    if (view_draw(state, 2))
        (void)snprintf(member->unix_path, sizeof(member->unix_path), "/run/penstock/%u", number);
    (void)snprintf(member->tags, sizeof(member->tags), "%.*s", (int)view_draw(state, 20),
                   "rack=7,zone=b,disk=1");
}

static void view_random_slot(struct pst_view *view, struct pst_view_slot *slot, uint64_t *state)
{
    slot->epoch = view_draw(state, 1000);
    slot->base = view_draw(state, slot->epoch + 1);
    slot->lost = view_draw(state, 5) == 0;
    for (uint32_t tries = 0; tries < PST_VIEW_COPIES_MAX; tries++) {
        uint16_t member = (uint16_t)view_draw(state, view->members_max);

        if (view->members[member].epoch && pst_view_copy_at(slot, member) < 0)
            slot->copies[slot->copy_count++] = member;
    }
    if (slot->copy_count > 0)
        slot->state = (uint8_t)(1 + view_draw(state, 2));
    for (uint32_t i = 0; i < slot->copy_count; i++)
        if (view->members[slot->copies[i]].gone)
            slot->state = PST_VIEW_INCOMPLETE;
    if (slot->state == PST_VIEW_INCOMPLETE)
        slot->sparse = (uint8_t)view_draw(state, slot->copy_count + 1u);
}

static struct pst_view *view_random(uint32_t members_max, uint64_t seed)
{
    uint64_t state = seed;
    struct pst_view *view;
    int r = pst_view_open(members_max, seed, &view);

    pst_assert(r == 0);
    view->version = 1 + view_draw(&state, 1000);
    view->term = view_draw(&state, 10);
    for (uint32_t i = 0; i < members_max; i++)
        if (view_draw(&state, 3) > 0) {
            view_random_member(view, i, &state);
            view->members[i].gone = view_draw(&state, 8) == 0;
        }
    for (uint32_t i = 0; i < view_draw(&state, PST_VIEW_PREFIXES_MAX); i++) {
        struct pst_view_prefix *prefix = &view->prefixes[view->prefix_count++];

        prefix->placement = (uint8_t)view_draw(&state, 2);
        prefix->replicas = (uint8_t)(1 + view_draw(&state, PST_VIEW_COPIES_MAX));
        prefix->bytes = (uint8_t)snprintf(prefix->text, sizeof(prefix->text), "p%03u/", i);
    }
    for (uint32_t i = 0; i < PST_SLOTS; i++)
        view_random_slot(view, &view->slots[i], &state);
    return view;
}

#endif
