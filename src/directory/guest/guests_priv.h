/* SPDX-License-Identifier: Apache-2.0 */
/* guests_priv.h: what guests consist of: nodes.c, keys.c, routes.c. */
#ifndef PST_GUESTS_PRIV_H
#define PST_GUESTS_PRIV_H

#include "base/list.h"
#include "directory/guest/guests.h"

/* A key with a place at least. */
struct key {
    struct key *next; /* of those with its head */
    struct place *places;
    uint64_t hash;
    uint64_t lease_ns; /* not evicted before */
    uint16_t name_bytes;
    char name[];
};

/* A key on one tier of one guest, which is its owner. */
struct place {
    struct place *next; /* of the key */
    struct key *key;
    struct pst_list link; /* of the owner: the one that was used longest ago first */
    uint64_t bytes;
    uint32_t owner;
    uint32_t round; /* it counts in that of its owner */
};

struct owner {
    uint32_t round;
    struct pst_list places;
    struct pst_list old; /* of rounds before: to be given back */
};

struct keys {
    struct key **heads;
    uint64_t head_mask, count, count_max, seed;
    struct owner *owners;
    uint32_t owner_count;
};

struct samples {
    struct series **series; /* in the order of names and labels */
    uint32_t count;
};

enum { GUEST_TIERS = PST_POOL_TIERS - 1 };

static inline uint32_t owner_of(uint32_t number, uint32_t tier)
{
    pst_assert(tier >= PST_POOL_HBM && tier < PST_POOL_TIERS);
    return number * GUEST_TIERS + tier - PST_POOL_HBM;
}

struct node {
    bool there;
    uint64_t name_hash;
    uint64_t heard_ns; /* by the clock that stands while nobody is listened to */
    uint64_t sequence;
    uint64_t arrival;  /* counts registrations of all nodes */
    uint64_t excluded; /* from the question of that number */
    uint64_t alone_ns; /* not told to evict before */
    uint32_t failures; /* of telling it, in a row */
    uint64_t kept_keys[PST_POOL_TIERS];
    struct pst_tier_use tiers[PST_POOL_TIERS];
    struct pst_guest_counters counters;
    uint16_t name_bytes, node_address_bytes, peer_address_bytes, tags_bytes;
    char name[PST_GUEST_NAME_BYTES_MAX + 1];
    char node_address[PST_GUEST_NAME_BYTES_MAX + 1];
    char peer_address[PST_GUEST_NAME_BYTES_MAX + 1];
    char tags[PST_GUEST_TAGS_BYTES_MAX + 1];
};

struct pst_guests {
    uint32_t magic;
    struct pst_guest_settings settings;
    struct pst_external *external;
    uint32_t external_first;
    uint64_t epoch;
    uint64_t awake_ns; /* of the last tick */
    uint64_t deaf_ns;  /* for so long in all nobody was listened to: no guest's silence */
    struct node *nodes;
    uint32_t nodes_max, count;
    struct keys keys;
    struct samples samples;
    uint64_t question;
    int asker; /* -1: not there */
    struct pst_guest_totals totals;
};

/* ---- keys.c ---- */

int keys_init(struct keys *keys, uint64_t count_max, uint32_t owner_count, uint64_t seed);
void keys_fini(struct keys *keys);
struct key *keys_find(const struct keys *keys, struct pst_bytes name);
/* Return: 0, also when it is there; -ENOSPC, -ENAMETOOLONG, -ENOMEM. */
int keys_add(struct keys *keys, struct pst_bytes name, uint32_t owner, uint64_t bytes);
void keys_remove(struct keys *keys, struct pst_bytes name, uint32_t owner);
/* The key is the one used last. */
void keys_use(struct keys *keys, struct key *key);
static inline bool keys_count_place(const struct keys *keys, const struct place *place)
{
    return place->round == keys->owners[place->owner].round;
}
/* What the owner has does not count any more. */
void keys_age(struct keys *keys, uint32_t owner);
/* Gives old places back, @max at the most. Return: how many. */
uint32_t keys_drop_old(struct keys *keys, uint32_t owner, uint32_t max);

/* ---- samples.c ---- */

void samples_fini(struct samples *samples);

/* ---- nodes.c ---- */

void guests_check(const struct pst_guests *g);
int node_find(const struct pst_guests *g, struct pst_bytes name);
void node_tell(const struct pst_guests *g, uint32_t number, struct pst_guest *out);

#endif
