/* SPDX-License-Identifier: Apache-2.0 */
/*
 * guests.h: nodes of ROCm's mori, whose clients take a pool's master for theirs: who they are, which keys
 * they have on which tiers, and where new keys go. Guests are in no pool map: they hold no partitions, since
 * they speak none of penstock's protocol. What they report is soft, and ends with the master.
 *
 * A guest's key is kept with its name and its size, which its readers ask for, and in the order of its last
 * use, by which a master chooses what a full guest is to evict. Their blocks stand in the table of those that
 * the pool's own members report (external.h), under numbers of their own.
 *
 * One thread at a time. Pure: time is handed in.
 */
#ifndef PST_GUESTS_H
#define PST_GUESTS_H

#include "base/options.h"
#include "directory/external.h"
#include "pool/report.h"

/* TYPE, name, default, min, max, unit, text */
#define PST_GUEST_OPTIONS(X)                                                                                 \
    X(NUMBER, umbp_nodes, "1024", 1, 2048, "nodes", "bound of mori's nodes")                                 \
    X(NUMBER, umbp_keys, "4194304", 1024, 1073741824, "keys",                                                \
      "bound of keys that mori's nodes report, each on each of its places")                                  \
    X(NUMBER, umbp_heartbeat_ms, "5000", 10, 60000, "ms", "time between two heartbeats of such a node")      \
    X(NUMBER, umbp_ttl_ms, "30000", 50, 3600000, "ms", "silent for so long, such a node is gone")            \
    X(NUMBER, umbp_lease_ms, "2000", 0, 600000, "ms", "a key whose place was asked for is kept so long")     \
    X(NUMBER, umbp_high, "90", 1, 100, "percent", "such a node is told to evict at this share of a tier")    \
    X(NUMBER, umbp_low, "70", 0, 100, "percent", "down to this share")

struct pst_guest_settings {
    PST_GUEST_OPTIONS(PST_OPTION_MEMBER)
};

enum {
    PST_GUEST_NAME_BYTES_MAX = 255, /* of a node, and of each of its addresses */
    PST_GUEST_TAGS_BYTES_MAX = 1023,
    PST_GUEST_KEY_BYTES_MAX = 4096,
    PST_GUEST_EVENTS_A_STEP = 4096, /* or look-ups, before others have their turn */
};

/* What is counted of a guest: name, text */
#define PST_GUEST_COUNTERS(X)                                                                                \
    X(route_put, "puts that were sent to it")                                                                \
    X(route_get, "gets that were sent to it")                                                                \
    X(batch_route_put, "puts of batches that were sent to it")                                               \
    X(batch_route_get, "gets of batches that were sent to it")                                               \
    X(events, "keys that it reported as come or gone")                                                       \
    X(gaps, "heartbeats with one missing before them")

struct pst_guest_counters {
#define X(name, text) uint64_t name;
    PST_GUEST_COUNTERS(X)
#undef X
    /* By tier, 0 for one that has no name here. */
    uint64_t report_calls[PST_EXTERNAL_TIERS], report_blocks[PST_EXTERNAL_TIERS];
    uint64_t revoke_calls[PST_EXTERNAL_TIERS], revoke_blocks[PST_EXTERNAL_TIERS];
    uint64_t revoke_all_calls;
};

/* One that is there. Its bytes are borrowed until anything changes. */
struct pst_guest {
    uint32_t number;
    struct pst_bytes name, node_address, peer_address, tags; /* tags: each with its NUL */
    struct pst_tier_use tiers[PST_POOL_TIERS];
    uint64_t keys[PST_POOL_TIERS]; /* as it counts them */
    const struct pst_guest_counters *counters;
};

/* Of all guests, those that are gone included: name, text */
#define PST_GUEST_TOTALS(X)                                                                                  \
    X(registered, "nodes of mori's that came")                                                               \
    X(expired, "nodes of mori's that ended without a word")                                                  \
    X(unknown, "heartbeats of nodes of mori's that are not known")                                           \
    X(synced, "full reports of mori's nodes taken")                                                          \
    X(dropped, "keys reported by mori's nodes that there was no room for")                                   \
    X(told_to_evict, "keys that mori's nodes were told to evict")                                            \
    X(tellings_failed, "calls to evict that mori's nodes did not answer, or refused")                        \
    X(match_calls, "questions of mori's clients for who holds blocks")                                       \
    X(match_queried, "blocks that mori's clients asked for")                                                 \
    X(match_matched, "blocks found for them, at each node that holds one")                                   \
    X(samples_dropped, "samples that mori's clients reported and that were dropped")                         \
    X(reports_refused, "reports of blocks by nodes of mori's that are not there")

struct pst_guest_totals {
#define X(name, text) uint64_t name;
    PST_GUEST_TOTALS(X)
#undef X
};

struct pst_guests;

/*
 * @external: where guests' blocks stand, numbered from @external_first on; borrowed. @seed: of hashes, and of
 * pst_guests_epoch(). Return: 0 or -ENOMEM.
 */
int pst_guests_open(const struct pst_guest_settings *settings, struct pst_external *external,
                    uint32_t external_first, uint64_t seed, uint64_t now_ns, struct pst_guests **out);
struct pst_guests *pst_guests_close(struct pst_guests *g);
/* Not that of any guests opened before. */
uint64_t pst_guests_epoch(const struct pst_guests *g);
struct pst_guest_totals *pst_guests_totals(struct pst_guests *g);
uint64_t pst_guests_heartbeat_ms(const struct pst_guests *g);
uint64_t pst_guests_keys(const struct pst_guests *g);
uint32_t pst_guests_count(const struct pst_guests *g);
/* The first from number @first on. Return: whether there is one. */
bool pst_guests_next(const struct pst_guests *g, uint32_t first, struct pst_guest *out);
/* Return: whether one of that name is there. */
bool pst_guests_find(const struct pst_guests *g, struct pst_bytes name, struct pst_guest *out);
struct pst_guest_counters *pst_guests_counters(struct pst_guests *g, uint32_t number);

/* ---- coming and going ---- */

struct pst_guest_register {
    struct pst_bytes name, node_address, peer_address, tags;
    struct pst_tier_use tiers[PST_POOL_TIERS];
};

/* Return: 0, -EEXIST one of that name is there, -ENOSPC, -EINVAL a text that is too long, or no name. */
int pst_guests_register(struct pst_guests *g, const struct pst_guest_register *message, uint64_t now_ns);
/* One that is not there is gone already. */
void pst_guests_unregister(struct pst_guests *g, struct pst_bytes name);
/* Ends silent guests, and gives back what gone ones held. Several times a umbp_heartbeat_ms. */
void pst_guests_tick(struct pst_guests *g, uint64_t now_ns);

/* For so long somebody's call has kept others from being heard, and that counts as nobody's silence. */
void pst_guests_deaf(struct pst_guests *g, uint64_t ns);

/* ---- heartbeats ---- */

/* A sign of life. Return: the guest's number, -ESTALE register again. */
int pst_guests_hear(struct pst_guests *g, struct pst_bytes name, uint64_t now_ns);
/* The last sequence number taken. */
uint64_t pst_guests_sequence(const struct pst_guests *g, uint32_t number);
void pst_guests_tiers(struct pst_guests *g, uint32_t number, const struct pst_tier_use tiers[PST_POOL_TIERS]);
void pst_guests_key_counts(struct pst_guests *g, uint32_t number, const uint64_t keys[PST_POOL_TIERS]);
/* Return: 0 its events follow, -EALREADY it was taken before, -EILSEQ one is missing before it. */
int pst_guests_bundle(struct pst_guests *g, uint32_t number, uint64_t sequence);
/* A full report begins: only what follows counts, once it has ended. */
void pst_guests_sync_begin(struct pst_guests *g, uint32_t number);
void pst_guests_sync_end(struct pst_guests *g, uint32_t number, uint64_t sequence);
/* The guest has the key on @tier. What does not fit is not remembered. */
void pst_guests_add(struct pst_guests *g, uint32_t number, struct pst_bytes key, uint32_t tier,
                    uint64_t bytes);
void pst_guests_remove(struct pst_guests *g, uint32_t number, struct pst_bytes key, uint32_t tier);

/* ---- routes ---- */

struct pst_guest_place {
    struct pst_guest guest;
    uint32_t tier;
    uint64_t bytes; /* of the value; of a get alone */
};

enum pst_guest_routed { PST_GUEST_UNAVAILABLE, PST_GUEST_ROUTED, PST_GUEST_EXISTS };

/* A question begins, of the guest @asker, whether it is there or not; it excludes none. */
void pst_guests_ask(struct pst_guests *g, struct pst_bytes asker);
/* No place of the question is to be there. */
void pst_guests_exclude(struct pst_guests *g, struct pst_bytes name);
/* The asker itself if it has the key on the fastest tier where anyone has, else one of those who have. The
 * key is not evicted for umbp_lease_ms. Return: whether there is one. */
bool pst_guests_route_get(struct pst_guests *g, struct pst_bytes key, uint64_t now_ns,
                          struct pst_guest_place *out);
/* The guest with most room on the fastest tier that has enough; never on SSD, which a guest fills itself. The
 * room is taken until the guest's next heartbeat says how much there is. */
enum pst_guest_routed pst_guests_route_put(struct pst_guests *g, struct pst_bytes key, uint64_t bytes,
                                           struct pst_guest_place *out);
/* No use of the key. */
bool pst_guests_has(const struct pst_guests *g, struct pst_bytes key);

/* ---- eviction ---- */

/* Of one guest that has a tier too full, and is not left alone: the keys that nobody has used for longest, as
 * far as they have no lease, @max at the most; each is told of anew while it is there. Return: how many. */
uint32_t pst_guests_victims(struct pst_guests *g, uint32_t *first, uint64_t now_ns,
                            struct pst_guest_place *from, struct pst_bytes *keys, uint32_t max);
/* What became of telling the guest so at @peer_address. One that fails is left alone for a while, and four
 * times as long each time, up to some minutes. Nothing when the address is not the guest's any more. */
void pst_guests_told(struct pst_guests *g, uint32_t number, struct pst_bytes peer_address, bool well,
                     uint64_t now_ns);

#endif
