/* SPDX-License-Identifier: Apache-2.0 */
/*
 * older.c: the log's copy of a value that was overwritten in memory. It is what a crash would bring back, so
 * it stays alive until the log has the newer value and that is durable, or until the key is deleted. A table
 * by the key and its newer value's generation, which other keys may have as well, from other nodes; with open
 * addressing. Most stores have a few entries at any time.
 */
#include "store/place.h"
#include "store/tier/tier_priv.h"
#include "store/tiering_priv.h"

enum { ROOM_MIN = 64 };

static uint64_t home_of(const struct pst_olders *o, const struct pst_older *older)
{
    pst_assert(o->room > 0);
    return ((older->newer ^ older->key_hash) * 0x9e3779b97f4a7c15ull >> 32) & (o->room - 1);
}

static struct pst_older *place_of(const struct pst_olders *o, const struct pst_older *older)
{
    uint64_t i = home_of(o, older);

    pst_assert(o->count < o->room);
    pst_assert((o->room & (o->room - 1)) == 0);
    while (o->places[i].newer &&
           (o->places[i].newer != older->newer || o->places[i].key_hash != older->key_hash))
        i = (i + 1) & (o->room - 1);
    return &o->places[i];
}

static bool olders_grow(struct pst_olders *o)
{
    struct pst_olders more = {.room = pst_max(2 * o->room, ROOM_MIN), .count = o->count};

    if (4 * (o->count + 1) < 3 * o->room)
        return true;
    more.places = calloc(more.room, sizeof(*more.places));
    if (!more.places)
        return false;
    for (uint64_t i = 0; i < o->room; i++) {
        if (o->places[i].newer)
            *place_of(&more, &o->places[i]) = o->places[i];
    }
    free(o->places);
    *o = more;
    pst_assert(o->count < o->room);
    return true;
}

static void olders_take_out(struct pst_olders *o, struct pst_older *place)
{
    uint64_t hole = (uint64_t)(place - o->places), i = hole;

    pst_assert(o->count > 0);
    pst_assert(hole < o->room);
    pst_assert(place->newer);
    o->count--;
    for (;;) { /* what would not be found any more moves up */
        i = (i + 1) & (o->room - 1);
        if (!o->places[i].newer)
            break;
        if (((i - home_of(o, &o->places[i])) & (o->room - 1)) < ((i - hole) & (o->room - 1)))
            continue;
        o->places[hole] = o->places[i];
        hole = i;
    }
    o->places[hole] = (struct pst_older){0};
}

static void older_set_newer(const struct pst_tier *t, const struct pst_record *r, struct pst_older *older)
{
    pst_assert(r->generation > 0);
    older->newer = r->generation;
    older->key_hash = pst_shard_lookup(t->shard, pst_record_key(r)).hash;
}

struct pst_older *pst_older_find(struct pst_tier *t, const struct pst_record *r)
{
    struct pst_older wanted, *place;

    if (t->olders.count == 0)
        return NULL;
    older_set_newer(t, r, &wanted);
    pst_assert(t->olders.count < t->olders.room);
    pst_assert(wanted.newer > 0);
    place = place_of(&t->olders, &wanted);
    return place->newer ? place : NULL;
}

bool pst_older_add(struct pst_tier *t, const struct pst_record *r, struct pst_older older)
{
    pst_assert(r->generation > older.generation);
    pst_assert(!pst_older_find(t, r));
    if (!olders_grow(&t->olders))
        return false;
    older_set_newer(t, r, &older);
    *place_of(&t->olders, &older) = older;
    t->olders.count++;
    return true;
}

struct pst_log_value pst_older_value(const struct pst_older *older, struct pst_bytes key)
{
    pst_assert(older->generation > 0);
    pst_assert(key.len > 0);
    return (struct pst_log_value){.key = key,
                                  .attrs = {NULL, older->attr_bytes},
                                  .generation = older->generation,
                                  .value_bytes = older->value_bytes};
}

void pst_older_delete(struct pst_tier *t, const struct pst_record *r, uint64_t ticket)
{
    struct pst_older *older = pst_older_find(t, r);
    struct pst_log_value value;

    if (!older)
        return;
    pst_assert(older->generation < r->generation);
    value = pst_older_value(older, pst_record_key(r));
    if (pst_log_delete_after(t->lane, &value, older->place, ticket) < 0)
        t->shard->stat_later.ssd_errors++;
    olders_take_out(&t->olders, older);
}

void pst_tier_supersede(struct pst_tier *t, struct pst_record *old, const struct pst_record *r)
{
    struct pst_older *before = pst_older_find(t, old);
    struct pst_older older = {.generation = old->generation,
                              .place = pst_record_place(old),
                              .value_bytes = old->value_bytes & PST_VALUE_BYTES_MASK,
                              .attr_bytes = old->attr_bytes};

    pst_assert(!before || !pst_record_placed(old));
    if (t->lane)
        pst_save_superseded(t, old, r);
    if (before) {
        older = *before;
        olders_take_out(&t->olders, before);
    }
    if (!older.place.segment && !older.place.offset)
        return;
    if (pst_older_add(t, r, older)) {
        if (!before)
            pst_record_set_place(old, (struct pst_log_place){0, 0}); /* not its business any more */
    } else if (before) { /* without memory for it a crash may lose it */
        struct pst_log_value value = pst_older_value(&older, pst_record_key(old));

        if (pst_log_delete(t->lane, &value, older.place) < 0)
            t->shard->stat_later.ssd_errors++;
    }
}
