/* SPDX-License-Identifier: Apache-2.0 */
/* views.c: values that are looked at in place, for a while, whatever becomes of their keys. */
#include "churn.h"

#include <string.h>

enum { HELD_MS_MAX = 1500, HELD_BRIEFLY_MS_MAX = 40, LOOK_AGAIN_EVERY = 20 };

/* Which write the view shows: its first word says so; what is shorter is known of own keys only. */
static bool write_of(const struct client *c, const struct key *key, const struct penstock_view *view,
                     uint64_t *write)
{
    const struct memory *m = &c->memory[key->id];

    if (view->bytes >= sizeof(*write)) {
        memcpy(write, view->data, sizeof(*write));
        return true;
    }
    *write = m->write;
    return ledger_mine(c, key) && m->present && !m->uncertain;
}

static void check(struct client *c, const struct held_view *held)
{
    c->counts.checked++;
    if (held->known)
        value_check(c, held->key, held->write, 0, held->view.data, held->view.bytes, "view");
}

static void check_first(struct client *c, struct held_view *held, const struct sight *sight)
{
    uint64_t bytes;

    held->known = write_of(c, held->key, &held->view, &held->write);
    if (!held->known)
        return;
    bytes = value_bytes(c, held->key, held->write);
    if (bytes != held->view.bytes) {
        churn_violation(c, held->key, "a view of %llu bytes names write %llu, which has %llu",
                        (unsigned long long)held->view.bytes, (unsigned long long)held->write,
                        (unsigned long long)bytes);
        held->known = false;
        return;
    }
    ledger_saw(c, held->key, sight, held->write, held->view.generation);
    check(c, held);
}

void views_open(struct client *c)
{
    const struct key *any = &c->keys[draw(c, c->key_count)];
    const struct key *key = draw(c, 3) == 0 ? ledger_hot(c, any->client) : any;
    struct held_view *held = &c->held[draw(c, HELD_VIEWS_MAX)];
    struct sight sight;
    int r;

    if (held->key)
        return;
    sight = ledger_sight(c, key);
    held->store = c->stores[0];
    r = penstock_view(held->store, key->text, key->bytes, &held->view);
    if (r == PENSTOCK_MISS) {
        ledger_missed(c, key, &sight);
        return;
    }
    if (r) {
        churn_violation(c, key, "view: %s", penstock_error());
        return;
    }
    held->key = key;
    held->until_ms = churn_now_ms() + draw(c, draw(c, 10) == 0 ? HELD_MS_MAX : HELD_BRIEFLY_MS_MAX);
    c->counts.views++;
    check_first(c, held, &sight);
}

void views_tend(struct client *c, bool all)
{
    uint64_t now_ms = churn_now_ms();

    for (size_t i = 0; i < HELD_VIEWS_MAX; i++) {
        struct held_view *held = &c->held[i];
        bool over = all || now_ms >= held->until_ms;

        if (!held->key || (!over && draw(c, LOOK_AGAIN_EVERY) != 0))
            continue;
        check(c, held);
        if (!over)
            continue;
        c->counts.views_outlived +=
            held->known && atomic_load(&c->progress[held->key->id].acked) / 2 > held->write;
        penstock_view_release(held->store, &held->view);
        held->key = NULL;
    }
}
