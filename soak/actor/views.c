/* SPDX-License-Identifier: Apache-2.0 */
/* views.c: values looked at in place, over and over: their bytes stay, whatever becomes of key and session.
 */
#include "actor.h"

#include <errno.h>
#include <string.h>

enum { HELD_MS_MAX = 3000, LOOK_EVERY = 3 };

static void look(struct actor *a, struct held_view *held)
{
    uint64_t found = value_read(held->key, held->view.data, held->view.bytes);

    a->history->counts.view_looks++;
    a->history->counts.checked++;
    a->history->counts.checked_bytes += held->view.bytes;
    if (a->plant == PLANT_VIEW)
        found++;
    if (found != held->write)
        violation(a, "a view of key %u, write %llx, shows %s", held->key, (unsigned long long)held->write,
                  found ? "another write" : "no whole value");
}

/* A view counts as a read in the history. */
static int open_view(struct actor *a, struct held_view *held, struct record *record)
{
    char text[32];
    int r = penstock_view(a->store, text, key_text(held->key, text), &held->view);

    record->result = r;
    if (r == 0) {
        held->write = value_read(held->key, held->view.data, held->view.bytes);
        record->write = held->write;
        record->generation = held->view.generation;
        if (!held->write)
            violation(a, "a view of key %u is no whole value", held->key);
    }
    record->ended_ns = now_ns();
    return r;
}

void views_open(struct actor *a)
{
    struct held_view *held = &a->held[draw(a, HELD_VIEWS_MAX)];
    struct record *record = held->held || !a->views ? NULL : history_begin(a, 1);
    int r;

    if (!record)
        return;
    held->key = (uint16_t)draw(a, KEYS);
    record->key = held->key;
    record->code = PENSTOCK_GET;
    a->history->counts.underway = FOCUS_VIEW;
    r = open_view(a, held, record);
    a->history->counts.underway = 0;
    a->history->counts.unknown += r == PENSTOCK_UNKNOWN;
    if (r == -EOPNOTSUPP)
        a->views = false; /* this session has no shared memory */
    else if (r < 0 && r != -ETIMEDOUT && r != -ECONNRESET && r != -ECONNREFUSED && r != -EHOSTUNREACH &&
             r != -E2BIG)
        violation(a, "a view of key %u: %s", held->key, penstock_error());
    else if (a->calm && r != 0 && r != PENSTOCK_MISS && r != -E2BIG)
        violation(a, "a view of key %u, though nothing disturbs it: %s", held->key, penstock_result_text(r));
    if (r != 0)
        return;
    held->held = true;
    held->until_ns = now_ns() + draw(a, HELD_MS_MAX) * 1000000;
    a->history->counts.views++;
}

void views_tend(struct actor *a, bool all)
{
    for (size_t i = 0; i < HELD_VIEWS_MAX; i++) {
        struct held_view *held = &a->held[i];
        bool over = all || now_ns() >= held->until_ns;

        if (!held->held || (!over && draw(a, LOOK_EVERY) != 0))
            continue;
        look(a, held);
        if (!over)
            continue;
        penstock_view_release(a->store, &held->view);
        held->held = false;
    }
}
