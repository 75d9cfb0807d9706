/* SPDX-License-Identifier: Apache-2.0 */
/* route.c: where keys are and where new ones go. */
#include "directory/directory_priv.h"

#include "base/ms.h"

enum {
    DRAWS_MAX = 8,      /* at random, before all members are looked through */
    WARM_UP_SHARES = 8, /* a new member begins with one of so many */
};

static uint64_t tier_free_bytes(const struct tier *tier)
{
    uint64_t taken = tier->used_bytes + tier->reserved_bytes;

    return taken < tier->capacity_bytes ? tier->capacity_bytes - taken : 0;
}

static bool may_be_given_keys(const struct pst_directory *d, uint16_t member, uint64_t now_ns)
{
    return member_stays(d, member) && !member_is_suspect(d, member, now_ns) && !member_drains(d, member);
}

/* The fastest tier with room for the put; 0: none has. HBM is filled by its owner alone. */
static uint8_t tier_for(const struct member *m, const struct pst_put *put)
{
    const struct tier *dram = &m->tiers[PST_POOL_DRAM];

    if (tier_free_bytes(dram) >= put->bytes)
        return PST_POOL_DRAM;
    if (tier_free_bytes(&m->tiers[PST_POOL_SSD]) >= put->bytes)
        return PST_POOL_SSD;
    return put->evictable && dram->capacity_bytes >= put->bytes ? PST_POOL_DRAM : 0;
}

/*
 * A member's share of new keys, in KiB: mostly what is free, and some of what it has, since full nodes make
 * room; so an empty one among full ones draws a few times its part, and not nearly all. One that has just
 * come begins with less.
 */
static uint64_t share(const struct pst_directory *d, const struct member *m, uint64_t now_ns)
{
    const struct tier *tier =
        &m->tiers[m->tiers[PST_POOL_DRAM].capacity_bytes ? PST_POOL_DRAM : PST_POOL_SSD];
    uint64_t kib = (tier->capacity_bytes / 4 >> 10) + (tier_free_bytes(tier) >> 10) * 3 / 4;
    uint64_t age_ms = (now_ns - m->joined_ns) / PST_NS_PER_MS, warm_ms = d->settings.warm_up_ms;

    if (m->joined_ns && age_ms < warm_ms)
        kib = kib / WARM_UP_SHARES + (kib - kib / WARM_UP_SHARES) / warm_ms * age_ms;
    return kib + 1; /* however small, it can be drawn */
}

/* ---- puts ---- */

void route_begin(struct routing *w)
{
    struct pst_directory *d = w->d;

    pst_assert(w->weight == 0);
    pst_assert(w->near_count == 0);
    pst_assert(d->map->members_max == d->settings.members_max);
    for (uint32_t i = 0; i < d->settings.members_max; i++) {
        if (may_be_given_keys(d, (uint16_t)i, w->now_ns)) {
            w->weight += share(d, &d->members[i], w->now_ns);
            if (w->near_count < pst_count_of(w->near) &&
                pst_id_equal(&d->map->members[i].host, &w->caller->host))
                w->near[w->near_count++] = (uint16_t)i;
        }
        d->weights[i] = w->weight;
    }
    pst_assert(w->near_count <= pst_count_of(w->near));
}

/* By the key: what was evicted comes back to the node whose policy remembers it, as long as shares change
 * little. */
static uint16_t draw_member(const struct routing *w, const struct pst_hash128 *key, uint64_t again)
{
    uint64_t at = (uint64_t)((unsigned __int128)pst_hash64(key, sizeof(*key), again) * w->weight >> 64);
    uint32_t low = 0, high = (uint32_t)w->d->settings.members_max - 1;

    pst_assert(w->weight > 0);
    pst_assert(w->weight == w->d->weights[w->d->settings.members_max - 1]);
    pst_assert(w->d->settings.members_max > 0);
    while (low < high) {
        uint32_t middle = (low + high) / 2;

        if (w->d->weights[middle] > at)
            high = middle;
        else
            low = middle + 1;
    }
    pst_assert(w->d->weights[low] > at); /* it has a share */
    return (uint16_t)low;
}

bool route_has_host(const struct pst_directory *d, const struct pst_places *places, uint16_t member)
{
    pst_assert(places->count <= PST_PLACES_MAX);
    pst_assert(member < d->settings.members_max);
    for (uint32_t i = 0; i < places->count; i++)
        if (pst_id_equal(&d->map->members[places->items[i].member].host, &d->map->members[member].host))
            return true;
    return false;
}

/* Adds the member to the route when it has room, on a host that has none yet. */
static bool add_place(struct routing *w, const struct pst_put *put, uint16_t member, struct pst_route *route)
{
    struct pst_directory *d = w->d;
    struct pst_place place = {.member = member, .tier = tier_for(&d->members[member], put)};

    pst_assert(member < d->settings.members_max);
    pst_assert(route->places.count <= PST_PLACES_MAX);
    if (!place.tier || !may_be_given_keys(d, member, w->now_ns) || route_has_host(d, &route->places, member))
        return false;
    pst_assert(route->places.count < PST_PLACES_MAX);
    route->places.items[route->places.count++] = place;
    pst_assert(place.tier < PST_POOL_TIERS);
    reserve_add(d, put, place, w->now_ns);
    return true;
}

bool route_find_place(struct routing *w, const struct pst_put *put, struct pst_route *route)
{
    uint32_t count = (uint32_t)w->d->settings.members_max, at = 0;
    uint64_t first = pst_hash64(&put->key, sizeof(put->key), 0);

    for (uint32_t i = 0; i < w->near_count; i++)
        if (add_place(w, put, w->near[(first + i) % w->near_count], route))
            return true;
    if (w->weight == 0)
        return false;
    for (uint32_t i = 0; i < DRAWS_MAX; i++) {
        at = draw_member(w, &put->key, i);
        if (add_place(w, put, (uint16_t)at, route))
            return true;
    }
    for (uint32_t i = 1; i < count; i++)
        if (add_place(w, put, (uint16_t)((at + i) % count), route))
            return true;
    return false;
}

/* Leaves the places whose nodes can be relied on. */
static void keep_good(const struct pst_directory *d, struct pst_places *places, uint64_t now_ns)
{
    uint32_t count = 0;

    pst_assert(places->count <= PST_PLACES_MAX);
    for (uint32_t i = 0; i < places->count; i++)
        if (may_be_given_keys(d, places->items[i].member, now_ns))
            places->items[count++] = places->items[i];
    places->count = count;
    pst_assert(places->count <= PST_PLACES_MAX);
}

/* @known: where the key is. */
static void route_one(struct routing *w, const struct pst_put *put, const struct pst_places *known,
                      struct pst_route *route)
{
    uint32_t replicas = (uint32_t)pst_min(pst_max(put->replicas, 1), PST_MAP_REPLICAS_MAX);

    route->status = PST_ROUTE_EXISTS;
    route->places = *known;
    keep_good(w->d, &route->places, w->now_ns);
    if (route->places.count > 0)
        return;
    route->status = PST_ROUTE_TO;
    reserve_find(w->d, &put->key, &route->places);
    keep_good(w->d, &route->places, w->now_ns);
    while (route->places.count < replicas && route_find_place(w, put, route))
        continue;
    w->d->copies_wanted |= replicas > 1;
    if (route->places.count < replicas)
        repair_later(w->d, w->now_ns);
    if (route->places.count == 0) {
        route->status = PST_ROUTE_UNAVAILABLE;
        w->d->counters.puts_unavailable++;
    }
}

void pst_directory_route_put(struct pst_directory *d, const struct pst_caller *caller,
                             const struct pst_put *puts, uint32_t count, uint64_t now_ns,
                             struct pst_route *routes)
{
    struct routing w = {.d = d, .caller = caller, .now_ns = now_ns};
    struct pst_hash128 keys[PST_DIRECTORY_BATCH_MAX];
    struct pst_places known[PST_DIRECTORY_BATCH_MAX];

    pst_assert(count <= PST_DIRECTORY_BATCH_MAX);
    for (uint32_t i = 0; i < count; i++)
        keys[i] = puts[i].key;
    pst_directory_look_up(d, keys, count, known);
    reserve_tick(d, now_ns);
    route_begin(&w);
    for (uint32_t i = 0; i < count; i++)
        route_one(&w, &puts[i], &known[i], &routes[i]);
}

/* ---- gets ---- */

/* Less is better. */
static uint32_t distance(const struct pst_directory *d, const struct pst_caller *caller,
                         const struct pst_place *place, uint64_t now_ns)
{
    bool near = pst_id_equal(&d->map->members[place->member].host, &caller->host);

    pst_assert(place->member < d->settings.members_max);
    return (member_is_suspect(d, place->member, now_ns) ? 16u : 0u) + (near ? 0u : 8u) + place->tier;
}

static void sort_places(const struct pst_directory *d, const struct pst_caller *caller, uint64_t now_ns,
                        struct pst_places *places)
{
    pst_assert(places->count <= PST_PLACES_MAX);
    for (uint32_t i = 1; i < places->count; i++) {
        struct pst_place place = places->items[i];
        uint32_t far = distance(d, caller, &place, now_ns), at = i;

        for (; at > 0 && distance(d, caller, &places->items[at - 1], now_ns) > far; at--)
            places->items[at] = places->items[at - 1];
        places->items[at] = place;
    }
}

void pst_directory_route_get(struct pst_directory *d, const struct pst_caller *caller,
                             const struct pst_hash128 *keys, uint32_t count, uint64_t now_ns,
                             struct pst_route *routes)
{
    struct pst_places places[PST_DIRECTORY_BATCH_MAX];
    bool lost = d->doubtful && now_ns < d->strange_until_ns; /* its pool map, that is */
    enum pst_routed missing;

    pst_assert(count <= PST_DIRECTORY_BATCH_MAX);
    if (d->follows)
        members_wake(d, now_ns);
    missing = d->unreported || lost ? PST_ROUTE_INCOMPLETE : PST_ROUTE_MISS;
    pst_directory_look_up(d, keys, count, places);
    for (uint32_t i = 0; i < count; i++) {
        if (places[i].count == 0) /* put perhaps, and not reported yet: its reader finds out */
            reserve_find(d, &keys[i], &places[i]);
        sort_places(d, caller, now_ns, &places[i]);
        routes[i] = (struct pst_route){places[i].count > 0 ? PST_ROUTE_TO : missing, places[i]};
    }
}

void pst_directory_look_up(struct pst_directory *d, const struct pst_hash128 *keys, uint32_t count,
                           struct pst_places *places)
{
    directory_check(d);
    pst_keys_look_up(d->keys, keys, count, places);
    d->counters.lookups += count;
}
