/* SPDX-License-Identifier: Apache-2.0 */
/*
 * copies.h: what other nodes hold of a node's `home` partitions: sends every write of a partition that has
 * copies to them before it shows, drops those that do not answer, and fills those that the pool's master
 * wants to join. One thread of its own, which is a client of the other nodes and, for what it fills them
 * with, of its own.
 *
 * A write counts only as long as the pool map that it was sent under: whenever the pool map changes meanwhile
 * it is sent again, under that. Never says that a write is done with fewer holders than the pool map names.
 */
#ifndef PST_COPIES_H
#define PST_COPIES_H

#include "base/options.h"
#include "call/call.h"
#include "call/replica.h"
#include "pool/serving.h"
#include "wire/pool.h"
#include "wire/pool_member.h"

/* X(TYPE, name, default, min, max, unit, text) */
#define PST_COPIES_OPTIONS(X)                                                                                \
    X(NUMBER, replica_ms, "1000", 10, 60000, "ms",                                                           \
      "a copy of a partition that does not answer so long is dropped")                                       \
    X(SIZE, repair_bytes, "256M", 1 << 10, 1ull << 40, "bytes/s",                                            \
      "what a node may send to others to give them copies of its partitions")

struct pst_copies_settings {
    PST_COPIES_OPTIONS(PST_OPTION_MEMBER)
};

struct pst_copies;

/* @node: address and secret of this node, borrowed, as is @serving. @wake_fd: written to when there is
 * something for pst_copies_changes(). Return: 0 or -errno. */
int pst_copies_open(const struct pst_copies_settings *settings, const struct pst_channel_options *node,
                    struct pst_serving *serving, int wake_fd, struct pst_copies **out);
/* Ends the thread: what is underway ends first, within some replica_ms, what comes later at once. */
void pst_copies_stop(struct pst_copies *copies);
/* Behind the node's end. Returns NULL. */
struct pst_copies *pst_copies_close(struct pst_copies *copies);

/* A node's role (node.h). Any thread. */
void pst_copies_replicate(struct pst_copies *copies, struct pst_replica *replica);
void pst_copies_replicated(struct pst_copies *copies, struct pst_replica *replica);

/* Whether so many bytes may be sent to give others copies, by repair_bytes: they count if so. Any thread. */
bool pst_copies_may_send(struct pst_copies *copies, uint64_t bytes, uint64_t now_ns);

/* Whether no write is underway. Any thread. */
bool pst_copies_idle(struct pst_copies *copies);

/* ---- the member's thread ---- */

/* In front of pst_serving_map(), with the same. Return: 0 or -ENOMEM. */
int pst_copies_map(struct pst_copies *copies, const struct pst_map *map, uint16_t member, uint64_t epoch);
/* What the master wants of this node, by the pool map that it has. */
void pst_copies_wants(struct pst_copies *copies, const struct pst_pool_want *wants, uint32_t count);
/* What to ask the master for. Return: how many. */
uint32_t pst_copies_changes(struct pst_copies *copies, struct pst_pool_copy changes[PST_POOL_COPIES_MAX]);

#endif
