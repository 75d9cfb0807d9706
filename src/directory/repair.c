/* SPDX-License-Identifier: Apache-2.0 */
/*
 * repair.c: keys that may lie anywhere and have fewer copies than they were put to have, since a node that
 * had one has ended, or there was no room. The directory knows hashes alone, so nodes go through the keys
 * that they have, and ask: all of them once, whenever members came or went and all have reported, and again
 * after a while where a copy could not be made.
 */
#include "directory/directory_priv.h"

#include "base/ms.h"

enum { TERM_SHIFT = 32 };

void repair_later(struct pst_directory *d, uint64_t now_ns)
{
    pst_assert(d->settings.repair_again_ms > 0);
    d->repair_due_ns = pst_min(d->repair_due_ns, pst_deadline_ns(now_ns, d->settings.repair_again_ms));
}

void repair_tick(struct pst_directory *d, uint64_t now_ns)
{
    if (now_ns < d->repair_due_ns)
        return;
    d->repair_due_ns = UINT64_MAX;
    d->repair++;
}

/* By who drains, the prefixes that the pool map names, and what puts asked for. */
static bool copies_are_wanted(const struct pst_directory *d)
{
    bool wanted = d->copies_wanted;

    for (uint32_t i = 0; i < d->settings.members_max && !wanted; i++)
        wanted = member_stays(d, (uint16_t)i) && member_drains(d, (uint16_t)i);
    for (uint32_t i = 0; i < d->map->prefix_count; i++)
        wanted |= d->map->prefixes[i].placement == PST_PLACE_ANYWHERE && d->map->prefixes[i].replicas > 1;
    return wanted;
}

/* Another directory counts from the beginning, in a term of its own. */
uint64_t repair_time(const struct pst_directory *d)
{
    bool looks = d->unreported == 0 && copies_are_wanted(d);

    return looks ? d->map->term << TERM_SHIFT | (uint32_t)d->repair : 0;
}

/* What counts as a copy: one on each host, with those that are underway. */
static void add_copies(const struct pst_directory *d, const struct pst_places *from, struct pst_places *to)
{
    pst_assert(from->count <= PST_PLACES_MAX);
    for (uint32_t i = 0; i < from->count && to->count < PST_PLACES_MAX; i++)
        if (member_stays(d, from->items[i].member) && !member_drains(d, from->items[i].member) &&
            !route_has_host(d, to, from->items[i].member))
            to->items[to->count++] = from->items[i];
    pst_assert(to->count <= PST_PLACES_MAX);
}

/* As it was put, or as its node says. */
static uint32_t copies_of(const struct pst_places *known, uint32_t otherwise)
{
    uint32_t copies = 0;

    pst_assert(known->count <= PST_PLACES_MAX);
    for (uint32_t i = 0; i < known->count; i++)
        copies = known->items[i].copies > copies ? known->items[i].copies : copies;
    return (uint32_t)pst_min(copies ? copies : otherwise, PST_MAP_REPLICAS_MAX);
}

/* Of those that have the key, the same whoever asks. */
static uint16_t sender(const struct pst_directory *d, const struct pst_places *known,
                       const struct pst_hash128 *key, uint16_t asker, uint64_t now_ns)
{
    uint16_t able[PST_PLACES_MAX];
    uint32_t count = 0;

    pst_assert(known->count <= PST_PLACES_MAX);
    for (uint32_t i = 0; i < known->count; i++)
        if (member_stays(d, known->items[i].member) && !member_is_suspect(d, known->items[i].member, now_ns))
            able[count++] = known->items[i].member;
    pst_assert(count <= PST_PLACES_MAX);
    return count ? able[key->low % count] : asker;
}

/* A node on another host, whether or not it has room or is there for now. */
static bool could_be_more(const struct pst_directory *d, const struct pst_places *places)
{
    for (uint32_t i = 0; i < d->settings.members_max; i++)
        if (member_stays(d, (uint16_t)i) && !member_drains(d, (uint16_t)i) &&
            !route_has_host(d, places, (uint16_t)i))
            return true;
    return false;
}

static void repair_one(struct routing *w, const struct pst_put *key, const struct pst_places *known,
                       uint16_t asker, struct pst_route *route)
{
    struct pst_directory *d = w->d;
    struct pst_put put = *key;
    struct pst_places underway;
    uint32_t there;

    *route = (struct pst_route){.status = PST_ROUTE_EXISTS};
    put.replicas = copies_of(known, key->replicas);
    add_copies(d, known, &route->places);
    if (route->places.count < put.replicas) {
        d->members[asker].keys_found++;
        d->members[asker].alone_found += !could_be_more(d, &route->places);
    }
    pst_assert(asker < d->settings.members_max);
    pst_assert(put.replicas <= PST_MAP_REPLICAS_MAX);
    reserve_find(d, &key->key, &underway);
    add_copies(d, &underway, &route->places);
    there = route->places.count;
    if (known->count == PST_PLACES_MAX) /* one more would not be remembered, and sent again and again */
        put.replicas = there;
    if (there < put.replicas && sender(d, known, &key->key, asker, w->now_ns) == asker) {
        while (route->places.count < put.replicas && route_find_place(w, &put, route))
            continue;
        route->status = route->places.count > there ? PST_ROUTE_TO : PST_ROUTE_UNAVAILABLE;
        d->counters.repairs += route->places.count - there;
        d->counters.repairs_none += route->places.count < put.replicas && could_be_more(d, &route->places);
    }
    /* Who is to send it may have asked when another one was: before the last copy came, say. */
    if (route->places.count < put.replicas && could_be_more(d, &route->places))
        repair_later(d, w->now_ns);
    pst_assert(there <= route->places.count && route->places.count <= PST_PLACES_MAX);
    route->places.count -= there;
    memmove(route->places.items, route->places.items + there, route->places.count * sizeof(struct pst_place));
}

/* One that drains looks on: soon while that helps, until nothing is left, and then for what comes still. */
static void end_of_keys(struct pst_directory *d, struct member *m, uint64_t now_ns)
{
    bool helps = m->keys_found > 0 && (!m->looked || m->keys_found < m->keys_left);

    pst_assert(m >= d->members && m < d->members + d->settings.members_max);
    pst_assert(m->alone_found <= m->keys_found);
    m->keys_left = m->keys_found;
    m->alone_left = m->alone_found;
    m->looked = true;
    if (!member_drains(d, (uint16_t)(m - d->members)))
        return;
    repair_later(d, now_ns);
    if (helps)
        d->repair_due_ns = pst_min(d->repair_due_ns, pst_deadline_ns(now_ns, d->settings.heartbeat_ms));
}

int pst_directory_repair(struct pst_directory *d, const struct pst_repair *message,
                         const struct pst_put *keys, uint32_t count, uint64_t now_ns,
                         struct pst_route *routes)
{
    static const struct pst_caller nobody;
    struct routing w = {.d = d, .caller = &nobody, .now_ns = now_ns};
    struct pst_hash128 hashes[PST_DIRECTORY_BATCH_MAX];
    struct pst_places known[PST_DIRECTORY_BATCH_MAX];

    directory_check(d);
    pst_assert(count <= PST_DIRECTORY_BATCH_MAX);
    if (message->member >= d->settings.members_max || message->epoch == 0 ||
        d->members[message->member].epoch != message->epoch || !member_stays(d, message->member))
        return -ESTALE;
    d->counters.repairs_done += message->done;
    d->counters.repairs_failed += message->failed;
    d->counters.repair_bytes += message->bytes;
    if (message->failed)
        repair_later(d, now_ns);
    if (message->repair != repair_time(d))
        return -ESTALE;
    for (uint32_t i = 0; i < count; i++)
        hashes[i] = keys[i].key;
    pst_directory_look_up(d, hashes, count, known);
    reserve_tick(d, now_ns);
    route_begin(&w);
    if (message->flags & PST_REPAIR_BEGIN)
        d->members[message->member].keys_found = d->members[message->member].alone_found = 0;
    for (uint32_t i = 0; i < count; i++)
        repair_one(&w, &keys[i], &known[i], message->member, &routes[i]);
    if (message->flags & PST_REPAIR_END)
        end_of_keys(d, &d->members[message->member], now_ns);
    return 0;
}
