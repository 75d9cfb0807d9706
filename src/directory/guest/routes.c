/* SPDX-License-Identifier: Apache-2.0 */
/* routes.c: where guests' keys are, where new ones go, and which are to be evicted. */
#include "directory/guest/guests_priv.h"

#include "base/ms.h"

enum { ALONE_MS = 1000, ALONE_STEPS = 4 }; /* one that was told in vain */

void pst_guests_ask(struct pst_guests *g, struct pst_bytes asker)
{
    guests_check(g);
    g->question++;
    g->asker = node_find(g, asker);
}

void pst_guests_exclude(struct pst_guests *g, struct pst_bytes name)
{
    int number = node_find(g, name);

    pst_assert(g->question > 0);
    if (number >= 0)
        g->nodes[number].excluded = g->question;
}

static bool may_be_place(const struct pst_guests *g, uint32_t number)
{
    pst_assert(number < g->nodes_max);
    return g->nodes[number].there && g->nodes[number].excluded != g->question;
}

/* ---- gets ---- */

/* Less is better: the tier, then whether it is the asker's; others in an order that each key has anew at each
 * question. */
static uint64_t distance(const struct pst_guests *g, const struct place *place)
{
    uint32_t number = place->owner / GUEST_TIERS, tier = place->owner % GUEST_TIERS;
    bool own = g->asker == (int)number;
    uint64_t mixed = (place->key->hash + g->question) * 0x9e3779b97f4a7c15 ^ number * 0xc2b2ae3d27d4eb4full;

    pst_assert(place->owner < g->keys.owner_count);
    return (uint64_t)tier << 62 | (own ? 0 : mixed >> 2 | 1);
}

bool pst_guests_route_get(struct pst_guests *g, struct pst_bytes name, uint64_t now_ns,
                          struct pst_guest_place *out)
{
    struct key *key = keys_find(&g->keys, name);
    const struct place *best = NULL;

    guests_check(g);
    for (const struct place *at = key ? key->places : NULL; at; at = at->next)
        if (keys_count_place(&g->keys, at) && may_be_place(g, at->owner / GUEST_TIERS) &&
            (!best || distance(g, at) < distance(g, best)))
            best = at;
    if (!best)
        return false;
    keys_use(&g->keys, key);
    key->lease_ns = pst_deadline_ns(now_ns, g->settings.umbp_lease_ms);
    out->tier = best->owner % GUEST_TIERS + PST_POOL_HBM;
    out->bytes = best->bytes;
    node_tell(g, best->owner / GUEST_TIERS, &out->guest);
    return true;
}

bool pst_guests_has(const struct pst_guests *g, struct pst_bytes name)
{
    const struct key *key = keys_find(&g->keys, name);

    guests_check(g);
    for (const struct place *at = key ? key->places : NULL; at; at = at->next)
        if (keys_count_place(&g->keys, at))
            return true;
    return false;
}

/* ---- puts ---- */

static uint64_t free_bytes(const struct pst_tier_use *tier)
{
    pst_assert(tier->used_bytes <= tier->capacity_bytes);
    return tier->capacity_bytes - tier->used_bytes;
}

/* The guest with most room there that is enough; -1: none has. */
static int roomiest(const struct pst_guests *g, uint32_t tier, uint64_t bytes)
{
    uint64_t most = 0;
    int best = -1;

    pst_assert(tier >= PST_POOL_HBM && tier < PST_POOL_TIERS);
    for (uint32_t i = 0; i < g->nodes_max; i++) {
        uint64_t room = may_be_place(g, i) ? free_bytes(&g->nodes[i].tiers[tier]) : 0;

        if (room < bytes || room <= most)
            continue;
        most = room;
        best = (int)i;
    }
    return best;
}

enum pst_guest_routed pst_guests_route_put(struct pst_guests *g, struct pst_bytes key, uint64_t bytes,
                                           struct pst_guest_place *out)
{
    guests_check(g);
    if (pst_guests_has(g, key))
        return PST_GUEST_EXISTS;
    for (uint32_t tier = PST_POOL_HBM; tier <= PST_POOL_DRAM; tier++) {
        int number = roomiest(g, tier, bytes);

        if (number < 0)
            continue;
        g->nodes[number].tiers[tier].used_bytes += bytes;
        node_tell(g, (uint32_t)number, &out->guest);
        out->tier = tier;
        out->bytes = bytes;
        return PST_GUEST_ROUTED;
    }
    return PST_GUEST_UNAVAILABLE;
}

/* ---- eviction ---- */

/* How many bytes are to leave a tier. */
static uint64_t surplus(const struct pst_guests *g, const struct pst_tier_use *tier)
{
    uint64_t percent = tier->capacity_bytes / 100, low = percent * g->settings.umbp_low;

    pst_assert(g->settings.umbp_low <= 100 && g->settings.umbp_high <= 100);
    pst_assert(tier->capacity_bytes <= PST_TIER_BYTES_MAX);
    if (tier->capacity_bytes == 0 || tier->used_bytes < percent * g->settings.umbp_high)
        return 0;
    return tier->used_bytes > low ? tier->used_bytes - low : 0;
}

/* Of one tier of a guest. Return: keys. */
static uint32_t pick(const struct pst_guests *g, uint32_t owner, uint64_t bytes, uint64_t now_ns,
                     struct pst_bytes *keys, uint32_t max)
{
    uint64_t picked_bytes = 0;
    uint32_t count = 0;

    pst_assert(owner < g->keys.owner_count);
    pst_assert(max > 0);
    pst_list_each (at, &g->keys.owners[owner].places) {
        const struct place *place = pst_list_entry(at, struct place, link);

        if (count == max || picked_bytes >= bytes)
            break;
        pst_assert(place->owner == owner && keys_count_place(&g->keys, place));
        if (now_ns < place->key->lease_ns)
            continue;
        keys[count++] = (struct pst_bytes){place->key->name, place->key->name_bytes};
        picked_bytes += pst_min(place->bytes, PST_TIER_BYTES_MAX);
    }
    return count;
}

/* A guest's SSD is its own to evict from. */
uint32_t pst_guests_victims(struct pst_guests *g, uint32_t *first, uint64_t now_ns,
                            struct pst_guest_place *from, struct pst_bytes *keys, uint32_t max)
{
    pst_assert(max > 0);
    guests_check(g);
    for (; *first < g->nodes_max * GUEST_TIERS; ++*first) {
        uint32_t number = *first / GUEST_TIERS, tier = *first % GUEST_TIERS + PST_POOL_HBM, count;
        uint64_t bytes = tier == PST_POOL_SSD ? 0 : surplus(g, &g->nodes[number].tiers[tier]);

        if (!g->nodes[number].there || bytes == 0 || g->nodes[number].peer_address_bytes == 0 ||
            now_ns < g->nodes[number].alone_ns)
            continue;
        count = pick(g, *first, bytes, now_ns, keys, max);
        if (count == 0)
            continue;
        node_tell(g, number, &from->guest);
        from->tier = tier;
        from->bytes = bytes;
        ++*first;
        return count;
    }
    return 0;
}

void pst_guests_told(struct pst_guests *g, uint32_t number, struct pst_bytes peer_address, bool well,
                     uint64_t now_ns)
{
    struct node *node = &g->nodes[number];

    guests_check(g);
    pst_assert(number < g->nodes_max);
    g->totals.tellings_failed += !well;
    if (!node->there ||
        !pst_bytes_equal(peer_address, (struct pst_bytes){node->peer_address, node->peer_address_bytes}))
        return;
    node->alone_ns = well ? 0 : now_ns + (pst_ns_of_ms(ALONE_MS) << 2 * pst_min(node->failures, ALONE_STEPS));
    node->failures = well ? 0 : node->failures + 1;
}
