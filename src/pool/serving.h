/* SPDX-License-Identifier: Apache-2.0 */
/*
 * serving.h: which keys a node of a pool may serve at this moment, by the pool map that it has and the lease
 * that it was granted (pool/lease.h): all of those that may lie anywhere, and of those with a home the ones
 * whose primary it is. The member's thread tells; the shards' threads ask, without a lock.
 *
 * Closed until there is a pool map: a node that begins anew does not know what was moved away from it.
 */
#ifndef PST_SERVING_H
#define PST_SERVING_H

#include "pool/map.h"

struct pst_serving;

/* Return: 0 or -ENOMEM. */
int pst_serving_open(struct pst_serving **out);
/* Nobody asks any more. Returns NULL. */
struct pst_serving *pst_serving_close(struct pst_serving *serving);

/*
 * What a node's role is asked (node.h). Return: 0, or what an operation on the key is answered: busy (no
 * lease, or no pool map), -ESTALE another member is the key's primary, PST_POOL_NO_PRIMARY.
 */
int pst_serving_allows(const struct pst_serving *serving, struct pst_bytes key);
/* The same for the answer to a write that all replicas hold: a node that hands a partition over answers what
 * it sent before. Its successor waits for that. */
int pst_serving_allows_answer(const struct pst_serving *serving, struct pst_bytes key);

/* Whether what happens to the key here happens to it in the pool: this node is its primary, with a lease or
 * without, or it may lie anywhere. */
bool pst_serving_tells(const struct pst_serving *serving, struct pst_bytes key);

/* The key's partition in the pool; PST_PARTITIONS: it has no home. */
uint32_t pst_serving_partition_of(const struct pst_serving *serving, struct pst_bytes key);
/* Replicas that the pool map wants of a key. */
uint32_t pst_serving_replicas(const struct pst_serving *serving, struct pst_bytes key);
/* Whether others hold the key's value, too. */
bool pst_serving_has_replicas(const struct pst_serving *serving, struct pst_bytes key);
/* Whether the primary of the partition's epoch may change values here: busy until this node has heard of it,
 * -ESTALE it has been succeeded. Epoch 0: whether the key is one that may lie anywhere. */
int pst_serving_may_replicate(struct pst_serving *serving, uint32_t partition, uint64_t partition_epoch);
/* The last partition epoch in which another node was let change values here; 0: none has. */
uint64_t pst_serving_filled(const struct pst_serving *serving, uint32_t partition);
/* Whether the key has a home, which is elsewhere, with all replicas that there are or are made. */
bool pst_serving_stranded(const struct pst_serving *serving, struct pst_bytes key);
/* Whether the partition is, as far as shards have heard. */
bool pst_serving_elsewhere(const struct pst_serving *serving, uint32_t partition);

/* A partition is not served, although it is this node's ... */
void pst_serving_hold(struct pst_serving *serving, uint32_t partition, bool held);
/* ... since it is handed over. */
void pst_serving_lead(struct pst_serving *serving, uint32_t partition);
bool pst_serving_held(const struct pst_serving *serving, uint32_t partition);
/* Its writes go to others first. */
void pst_serving_set_replicas(struct pst_serving *serving, uint32_t partition, bool on);
/* Somebody has a newer pool map, since this was asked last; @fd is written to when that happens, -1: none. */
bool pst_serving_behind(struct pst_serving *serving);
void pst_serving_wakes(struct pst_serving *serving, int fd);

/* How often the placement of keys has been another one than before. The thread that tells of pool maps. */
uint32_t pst_serving_placements(const struct pst_serving *serving);
/* Whether a partition has had a later epoch here: the pool map is older, and names former owners. */
bool pst_serving_is_later(const struct pst_serving *serving, const struct pst_map *map);
/* The node has this pool map, as that member. Return: 0 or -ENOMEM: nothing has changed. */
int pst_serving_map(struct pst_serving *serving, const struct pst_map *map, uint16_t member, uint64_t epoch);
/* The node is about to leave: what has a home is another's from now on. What is underway is answered. */
void pst_serving_leave(struct pst_serving *serving);
/* The lease holds until then, of CLOCK_BOOTTIME; 0: there is none. Behind the pool map that it needs. */
void pst_serving_lease(struct pst_serving *serving, uint64_t until_ns);

#endif
