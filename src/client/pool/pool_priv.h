/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pool_priv.h: a pool of nodes as its files see it: the processes that are talked to, and what is known of
 * them. Everything runs on the thread that leads the store, with the store's lock held.
 */
#ifndef PST_POOL_PRIV_H
#define PST_POOL_PRIV_H

#include "client/client_priv.h"
#include "client/pool/cache_priv.h"
#include "client/pool/end_priv.h"

#include "base/list.h"
#include "pool/map_fetch.h"
#include "wire/pool.h"
#include "wire/pool_key.h"

#define PST_POOL_MAGIC 0x706f6f6cu

enum {
    POOL_MASTERS_MAX = 8,
    POOL_SHARDS_MAX = 4096,
    POOL_POOL_OPS_MAX = 16384, /* operations on keys; more wait for their turn */
    POOL_TRIED_MAX = 8,
    POOL_SHARD_OF_MASTER = 0xff00, /* a number of no node's; those behind it are of the other shares of the
                                      directory */
    POOL_GRACE_NS =
        700000000, /* behind an operation's deadline: for another node, when the first said nothing */
};

/* name, text; members of struct penstock_stat with "pool_" before the name */
#define PST_POOL_COUNTERS(X)                                                                                 \
    X(master_requests, "messages to the master")                                                             \
    X(node_requests, "messages to nodes")                                                                    \
    X(located, "look-ups that no master was asked for")                                                      \
    X(existed, "puts of values that were there, of which no byte was sent")                                  \
    X(put_bytes, "bytes of values sent to nodes")                                                            \
    X(retries, "operations that were tried again")                                                           \
    X(failovers, "operations that went on to another node")

struct pool_op; /* pool_op_priv.h */

/* The pool map on its way here, piece by piece. */
struct pool_fetch {
    struct penstock_op op;
    bool underway, again;
    uint64_t begun_ns;
    struct pst_map_fetch map;
    struct pst_op_list askers; /* operations that end with it */
    uint8_t piece[PST_POOL_ANSWER_BYTES];
};

struct pool {
    uint32_t magic;
    struct penstock *store;
    struct pst_channel_options options;
    uint32_t replicas; /* at least that many copies of what lies anywhere */
    struct pst_id host;
    int poll_fd;
    struct pst_net *net; /* for memory that is registered */
    struct pool_peer masters[POOL_MASTERS_MAX];
    uint32_t master_count, master;
    struct pool_peer shares[PST_MAP_SHARES_MAX]; /* of the directory; of the first the masters know */
    bool untrusted;                              /* no master listens to what this client says of nodes */
    struct pst_map *map;
    bool newest; /* the pool map was, when all nodes were asked last */
    struct pool_fetch fetch;
    struct pool_node *nodes[PST_MAP_MEMBERS_MAX]; /* by number */
    uint32_t node_count;
    struct pst_list ended_nodes;
    struct pool_shard shards[POOL_SHARDS_MAX];
    uint32_t shard_count;
    struct pst_list busy;              /* ends with something underway */
    struct pst_op_list ended;          /* attempts */
    struct pst_op_list answered;       /* by a master */
    struct pst_op_list pending;        /* operations without a pool operation yet */
    struct pst_list idle, waiting;     /* pool operations */
    struct pst_list refused;           /* attempts, by nodes that were busy */
    uint64_t refused_ns;               /* when they are sent again */
    struct pst_list locating, placing; /* pool operations for the next questions */
    struct pst_list noted;             /* what a master was told, and nobody waits for */
    uint64_t due_ns;                   /* of the first that waits */
    uint32_t pool_op_count;            /* made so far */
    struct pool_cache *cache;
    uint64_t counts_closed[2]; /* messages over channels that are closed, to masters and nodes */
    struct {
#define X(name, text) uint64_t name;
        PST_POOL_COUNTERS(X)
#undef X
    } counters;
};

struct pool *pst_pool_of(struct penstock *store);
/* Of the directory, by the pool map that is known; 1 of a store that is no pool. */
uint32_t pst_pool_shares(struct penstock *store);

/* ---- map.c: the pool map, and questions to the master ---- */

/* Fetches it, in a moment. */
void pst_pool_map_fetch(struct pool *pool);
/* Fetches it at once, and again if that is underway: what comes is not older than this. */
void pst_pool_map_want(struct pool *pool);
/* @asker ends with it: a request for the newest pool map. */
void pst_pool_map_ask(struct pool *pool, struct penstock_op *asker);
/* Sends what pool operations want to know. */
void pst_pool_ask(struct pool *pool);
/* @asker ends with what a master answers to it, or who has that share of the directory: of what only the
 * caller and the master understand. */
void pst_pool_relay(struct pool *pool, struct penstock_op *asker, uint32_t share);
void pst_pool_answered(struct pool *pool, struct penstock_op *op);
/* The master is told that a member does not answer. */
void pst_pool_suspect(struct pool *pool, const struct pool_node *node);
/* Those that were not answered; no channel knows them any more. */
void pst_pool_notes_free(struct pool *pool);

/* ---- pool operation.c ---- */

void pst_pool_submit(struct penstock *store, struct penstock_op *op, int shard, struct pst_op_list *done);
void pst_pool_attempt_ended(struct pool *pool, struct penstock_op *op);
/* @route: NULL when no master answers. */
void pst_pool_routed(struct pool *pool, struct pool_op *pool_op, const struct pst_pool_route *route,
                     int error);
/* Operations that were submitted since. Return: true when there were any. */
bool pst_pool_pool_ops_set_out(struct pool *pool);
/* Those whose time has come. Return: true when there were any. */
bool pst_pool_pool_ops_due(struct pool *pool);
/* A pool map has been fetched, or cannot be: the time of those that await it has come. */
void pst_pool_map_ended(struct pool *pool);
void pst_pool_pool_ops_free(struct pool *pool);

/* ---- home.c, anywhere.c ---- */

bool pst_pool_key_home(const struct pool *pool, struct pst_bytes key);
/* The node with the key's partition; NULL: there is none. */
struct pool_node *pst_pool_primary(struct pool *pool, struct pst_bytes key);
/* The nearest node that is known to have a key that may lie anywhere; NULL: none is. */
struct pool_node *pst_pool_place_of(struct pool *pool, struct pst_bytes key);

#endif
