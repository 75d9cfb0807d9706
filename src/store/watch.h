/* SPDX-License-Identifier: Apache-2.0 */
/*
 * watch.h: being told of changes. Whoever waits for a key, or watches a prefix, includes it. A *wait* is the
 * caller's: it becomes ready with the next write of its key, or as soon as its watch has something to tell. A
 * *watch* keeps what happened to the keys of one prefix in a ring of fixed size; what no longer fits pushes
 * out the oldest, and their number is told instead.
 *
 * As everything of a shard, this is used by one thread at a time. With nobody to tell, a write costs one
 * branch more.
 */
#ifndef PST_WATCH_H
#define PST_WATCH_H

#include "base/list.h"
#include "store/shard.h"

struct pst_watch;

enum { PST_WATCH_RING_BYTES = 64 << 10 };

/* ---- waits ---- */

struct pst_wait {
    struct pst_list link; /* among those of its hash, at no place while it waits for a watch, or ready */
    struct pst_bytes key; /* borrowed while it waits */
    uint64_t hash;
    struct pst_watch *watch;
};

/* Becomes ready with the next write of the looked-up key. */
void pst_shard_wait(struct pst_shard *shard, const struct pst_lookup *lookup, struct pst_wait *wait);
/* Becomes ready when the watch has something to tell, or is closed. One wait a watch. */
void pst_watch_wait(struct pst_watch *watch, struct pst_wait *wait);
/* Ends a wait, ready or not. */
void pst_shard_unwait(struct pst_shard *shard, struct pst_wait *wait);
/* The next wait that is ready, which it then no longer is; or NULL. */
struct pst_wait *pst_shard_ready(struct pst_shard *shard);
bool pst_shard_has_ready(const struct pst_shard *shard);

/* ---- watches ---- */

/* Tells of keys that begin with @prefix (0 bytes: all) from now on; with @moves also of values that went to
 * the SSD or came back. Return: 0 or -ENOMEM. */
int pst_watch_open(struct pst_shard *shard, struct pst_bytes prefix, bool moves, struct pst_watch **out);
/* From now on it tells of keys alone of which @tells says so when something happens to them. */
void pst_watch_limit(struct pst_watch *watch, bool (*tells)(void *ctx, struct pst_bytes key), void *ctx);
/* Makes the watch's wait ready. NULL is fine. Returns NULL. */
struct pst_watch *pst_watch_close(struct pst_watch *watch);
/* True when there is something to read. */
bool pst_watch_pending(const struct pst_watch *watch);
/* True when nothing waits for the watch. */
bool pst_watch_free(const struct pst_watch *watch);
/*
 * Moves what happened to @buf, as many struct pst_wire_change with their keys as fit, in order. Return:
 * bytes, 0 nothing has happened, -ENOBUFS not even one fits.
 */
int64_t pst_watch_read(struct pst_watch *watch, void *buf, size_t room);

#endif
