/* SPDX-License-Identifier: Apache-2.0 */
/* nodes.c: who is a guest, and what each reports. */
#include "directory/guest/guests_priv.h"

#include "base/ms.h"

enum {
    GUESTS_MAGIC = 0x67756573,
    GIVEN_BACK_A_TICK = 16384, /* places and blocks */
};

void guests_check(const struct pst_guests *g)
{
    pst_assert(g->magic == GUESTS_MAGIC);
    pst_assert(g->count <= g->nodes_max);
    pst_assert(g->keys.count <= g->keys.count_max);
}

/* ---- life ---- */

int pst_guests_open(const struct pst_guest_settings *settings, struct pst_external *external,
                    uint32_t external_first, uint64_t seed, uint64_t now_ns, struct pst_guests **out)
{
    struct pst_guests *g = calloc(1, sizeof(*g));
    int r;

    pst_assert(external);
    pst_assert(settings->umbp_keys > 0);
    pst_assert(settings->umbp_nodes > 0 && settings->umbp_nodes <= UINT16_MAX);
    if (!g)
        return -ENOMEM;
    g->magic = GUESTS_MAGIC;
    g->settings = *settings;
    g->external = external;
    g->external_first = external_first;
    g->epoch = seed;
    g->awake_ns = now_ns;
    g->nodes_max = (uint32_t)settings->umbp_nodes;
    g->asker = -1;
    g->question = 1; /* more than any node was excluded from */
    g->nodes = calloc(g->nodes_max, sizeof(*g->nodes));
    r = keys_init(&g->keys, settings->umbp_keys, g->nodes_max * GUEST_TIERS, seed);
    if (r < 0 || !g->nodes) {
        pst_guests_close(g);
        return -ENOMEM;
    }
    *out = g;
    return 0;
}

struct pst_guests *pst_guests_close(struct pst_guests *g)
{
    if (!g)
        return NULL;
    guests_check(g);
    keys_fini(&g->keys);
    samples_fini(&g->samples);
    free(g->nodes);
    g->magic = 0;
    free(g);
    return NULL;
}

uint64_t pst_guests_epoch(const struct pst_guests *g)
{
    guests_check(g);
    return g->epoch;
}

struct pst_guest_totals *pst_guests_totals(struct pst_guests *g)
{
    guests_check(g);
    return &g->totals;
}

uint64_t pst_guests_heartbeat_ms(const struct pst_guests *g)
{
    guests_check(g);
    return g->settings.umbp_heartbeat_ms;
}

uint64_t pst_guests_keys(const struct pst_guests *g)
{
    guests_check(g);
    return g->keys.count;
}

uint32_t pst_guests_count(const struct pst_guests *g)
{
    guests_check(g);
    return g->count;
}

/* ---- names ---- */

static uint64_t name_hash(const struct pst_guests *g, struct pst_bytes name)
{
    return pst_hash64(name.data, name.len, g->epoch);
}

static bool is_named(const struct node *node, struct pst_bytes name, uint64_t hash)
{
    pst_assert(node->name_bytes <= PST_GUEST_NAME_BYTES_MAX);
    return node->name_hash == hash && pst_bytes_equal((struct pst_bytes){node->name, node->name_bytes}, name);
}

int node_find(const struct pst_guests *g, struct pst_bytes name)
{
    uint64_t hash = name_hash(g, name);

    guests_check(g);
    for (uint32_t i = 0; i < g->nodes_max; i++)
        if (g->nodes[i].there && is_named(&g->nodes[i], name, hash))
            return (int)i;
    return -1;
}

void node_tell(const struct pst_guests *g, uint32_t number, struct pst_guest *out)
{
    const struct node *node = &g->nodes[number];

    pst_assert(number < g->nodes_max);
    pst_assert(node->there);
    *out = (struct pst_guest){.number = number,
                              .name = {node->name, node->name_bytes},
                              .node_address = {node->node_address, node->node_address_bytes},
                              .peer_address = {node->peer_address, node->peer_address_bytes},
                              .tags = {node->tags, node->tags_bytes},
                              .counters = &node->counters};
    memcpy(out->tiers, node->tiers, sizeof(out->tiers));
    memcpy(out->keys, node->kept_keys, sizeof(out->keys));
}

bool pst_guests_next(const struct pst_guests *g, uint32_t first, struct pst_guest *out)
{
    pst_assert(g->nodes);
    guests_check(g);
    while (first < g->nodes_max && !g->nodes[first].there)
        first++;
    if (first >= g->nodes_max)
        return false;
    node_tell(g, first, out);
    return true;
}

bool pst_guests_find(const struct pst_guests *g, struct pst_bytes name, struct pst_guest *out)
{
    int number = node_find(g, name);

    if (number < 0)
        return false;
    node_tell(g, (uint32_t)number, out);
    return true;
}

struct pst_guest_counters *pst_guests_counters(struct pst_guests *g, uint32_t number)
{
    guests_check(g);
    pst_assert(number < g->nodes_max && g->nodes[number].there);
    return &g->nodes[number].counters;
}

/* ---- coming and going ---- */

/* The clock of what was heard. */
static uint64_t heard_now(const struct pst_guests *g, uint64_t now_ns)
{
    return now_ns > g->deaf_ns ? now_ns - g->deaf_ns : 0;
}

static bool has_blocks(const struct pst_guests *g, uint32_t number)
{
    pst_assert(number < g->nodes_max);
    pst_assert(g->external);
    for (uint32_t tier = 0; tier < PST_EXTERNAL_TIERS; tier++)
        if (pst_external_count(g->external, g->external_first + number, tier) > 0)
            return true;
    return false;
}

/* The number that a node of that name had, which keeps where it was reached, or else any free one. Blocks of
 * the one that had it before are gone. Return: -1: none is free. */
static int free_number(const struct pst_guests *g, struct pst_bytes name)
{
    uint64_t hash = name_hash(g, name);
    int any = -1;

    pst_assert(name.len > 0);
    for (uint32_t i = 0; i < g->nodes_max; i++) {
        const struct node *node = &g->nodes[i];

        if (node->there || has_blocks(g, i))
            continue;
        if (node->name_bytes > 0 && is_named(node, name, hash))
            return (int)i;
        if (any < 0 || (node->name_bytes == 0 && g->nodes[any].name_bytes > 0))
            any = (int)i;
    }
    return any;
}

static uint16_t keep(char *to, struct pst_bytes text)
{
    pst_assert(text.data || text.len == 0);
    pst_assert(text.len <= PST_GUEST_TAGS_BYTES_MAX);
    if (text.len > 0)
        memcpy(to, text.data, text.len);
    to[text.len] = '\0';
    return (uint16_t)text.len;
}

int pst_guests_register(struct pst_guests *g, const struct pst_guest_register *message, uint64_t now_ns)
{
    struct pst_bytes peer = message->peer_address;
    struct node *node;
    int number;

    guests_check(g);
    if (message->name.len == 0 || message->name.len > PST_GUEST_NAME_BYTES_MAX ||
        message->node_address.len > PST_GUEST_NAME_BYTES_MAX || peer.len > PST_GUEST_NAME_BYTES_MAX ||
        message->tags.len > PST_GUEST_TAGS_BYTES_MAX)
        return -EINVAL;
    if (node_find(g, message->name) >= 0)
        return -EEXIST;
    number = free_number(g, message->name);
    if (number < 0)
        return -ENOSPC;
    node = &g->nodes[number];
    /* A client that comes again since its master did does not say where it is. */
    if (peer.len == 0 && is_named(node, message->name, name_hash(g, message->name)))
        peer = (struct pst_bytes){node->peer_address, node->peer_address_bytes};
    if (peer.data != node->peer_address)
        node->peer_address_bytes = keep(node->peer_address, peer);
    node->name_bytes = keep(node->name, message->name);
    node->node_address_bytes = keep(node->node_address, message->node_address);
    node->tags_bytes = keep(node->tags, message->tags);
    node->name_hash = name_hash(g, message->name);
    node->there = true;
    node->heard_ns = heard_now(g, now_ns);
    node->alone_ns = 0;
    node->failures = 0;
    node->sequence = 0;
    node->excluded = 0;
    memset(&node->counters, 0, sizeof(node->counters));
    memset(node->kept_keys, 0, sizeof(node->kept_keys));
    pst_guests_tiers(g, (uint32_t)number, message->tiers);
    g->count++;
    node->arrival = ++g->totals.registered;
    guests_check(g);
    return 0;
}

static void end(struct pst_guests *g, uint32_t number)
{
    pst_assert(number < g->nodes_max);
    pst_assert(g->nodes[number].there);
    pst_assert(g->count > 0);
    g->nodes[number].there = false;
    g->count--;
    if (g->asker == (int)number)
        g->asker = -1;
    for (uint32_t tier = PST_POOL_HBM; tier < PST_POOL_TIERS; tier++)
        keys_age(&g->keys, owner_of(number, tier));
}

void pst_guests_unregister(struct pst_guests *g, struct pst_bytes name)
{
    int number = node_find(g, name);

    pst_assert(g->count <= g->nodes_max);
    if (number >= 0)
        end(g, (uint32_t)number);
}

/* While nobody listened nobody was heard. */
static void wake(struct pst_guests *g, uint64_t now_ns)
{
    uint64_t slept_ns = now_ns > g->awake_ns ? now_ns - g->awake_ns : 0;

    pst_assert(g->settings.umbp_ttl_ms > 0);
    g->awake_ns += slept_ns;
    if (slept_ns >= pst_ns_of_ms(g->settings.umbp_ttl_ms) / 4 * 3)
        g->deaf_ns += slept_ns;
}

void pst_guests_deaf(struct pst_guests *g, uint64_t ns)
{
    guests_check(g);
    g->deaf_ns += ns;
}

void pst_guests_tick(struct pst_guests *g, uint64_t now_ns)
{
    uint32_t left = GIVEN_BACK_A_TICK;

    guests_check(g);
    wake(g, now_ns);
    for (uint32_t i = 0; i < g->nodes_max; i++) {
        struct node *node = &g->nodes[i];

        if (node->there && heard_now(g, now_ns) >= pst_deadline_ns(node->heard_ns, g->settings.umbp_ttl_ms)) {
            end(g, i);
            g->totals.expired++;
        }
        for (uint32_t tier = PST_POOL_HBM; tier < PST_POOL_TIERS; tier++)
            left -= keys_drop_old(&g->keys, owner_of(i, tier), left);
        if (!node->there && left > 0 && has_blocks(g, i))
            left -= pst_external_revoke_node(g->external, g->external_first + i, left);
        pst_assert(left <= GIVEN_BACK_A_TICK);
    }
}

/* ---- heartbeats ---- */

int pst_guests_hear(struct pst_guests *g, struct pst_bytes name, uint64_t now_ns)
{
    int number = node_find(g, name);

    if (number < 0) {
        g->totals.unknown++;
        return -ESTALE;
    }
    g->nodes[number].heard_ns = heard_now(g, now_ns);
    return number;
}

static struct node *node_of(struct pst_guests *g, uint32_t number)
{
    guests_check(g);
    pst_assert(number < g->nodes_max);
    pst_assert(g->nodes[number].there);
    return &g->nodes[number];
}

uint64_t pst_guests_sequence(const struct pst_guests *g, uint32_t number)
{
    guests_check(g);
    pst_assert(number < g->nodes_max && g->nodes[number].there);
    return g->nodes[number].sequence;
}

/* What does not fit counts as nothing. */
void pst_guests_tiers(struct pst_guests *g, uint32_t number, const struct pst_tier_use tiers[PST_POOL_TIERS])
{
    struct node *node = node_of(g, number);

    pst_assert(tiers);
    for (uint32_t i = 0; i < PST_POOL_TIERS; i++) {
        node->tiers[i] = tiers[i];
        if (tiers[i].capacity_bytes > PST_TIER_BYTES_MAX || tiers[i].used_bytes > tiers[i].capacity_bytes)
            node->tiers[i] = (struct pst_tier_use){0};
    }
}

void pst_guests_key_counts(struct pst_guests *g, uint32_t number, const uint64_t keys[PST_POOL_TIERS])
{
    pst_assert(keys);
    memcpy(node_of(g, number)->kept_keys, keys, PST_POOL_TIERS * sizeof(keys[0]));
}

int pst_guests_bundle(struct pst_guests *g, uint32_t number, uint64_t sequence)
{
    struct node *node = node_of(g, number);

    if (sequence > 0 && sequence <= node->sequence)
        return -EALREADY;
    if (sequence != node->sequence + 1) {
        node->counters.gaps++;
        return -EILSEQ;
    }
    node->sequence = sequence;
    return 0;
}

void pst_guests_sync_begin(struct pst_guests *g, uint32_t number)
{
    node_of(g, number);
    for (uint32_t tier = PST_POOL_HBM; tier < PST_POOL_TIERS; tier++)
        keys_age(&g->keys, owner_of(number, tier));
}

void pst_guests_sync_end(struct pst_guests *g, uint32_t number, uint64_t sequence)
{
    node_of(g, number)->sequence = sequence;
    g->totals.synced++;
}

void pst_guests_add(struct pst_guests *g, uint32_t number, struct pst_bytes key, uint32_t tier,
                    uint64_t bytes)
{
    struct node *node = node_of(g, number);

    node->counters.events++;
    if (tier < PST_POOL_HBM || tier >= PST_POOL_TIERS ||
        keys_add(&g->keys, key, owner_of(number, tier), bytes) < 0)
        g->totals.dropped++;
}

void pst_guests_remove(struct pst_guests *g, uint32_t number, struct pst_bytes key, uint32_t tier)
{
    struct node *node = node_of(g, number);

    node->counters.events++;
    if (tier >= PST_POOL_HBM && tier < PST_POOL_TIERS)
        keys_remove(&g->keys, key, owner_of(number, tier));
}
