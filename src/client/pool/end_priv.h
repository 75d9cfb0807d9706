/* SPDX-License-Identifier: Apache-2.0 */
/*
 * end_priv.h: the processes that a pool's client talks to, masters and nodes, each over a channel of its own;
 * and the numbers of nodes' shards.
 */
#ifndef PST_POOL_END_PRIV_H
#define PST_POOL_END_PRIV_H

#include "base/list.h"
#include "call/call.h"
#include "pool/map.h"

struct pool;

/* A process that is talked to, a master or a node. */
struct pool_peer {
    struct pst_list link;             /* among the busy ones; alone when nothing is underway */
    struct pst_channel *channel;      /* NULL: not opened yet */
    struct pst_boot_address near, at; /* near: its unix socket on this host; no path: none */
    size_t underway;
    uint64_t retry_ns;   /* after a failure: not before */
    uint64_t suspect_ns; /* silent of late: until then others are tried first */
    uint32_t retry_ms;
    int error;
    bool dirty; /* to be flushed */
};

struct pool_node {
    struct pool_peer peer;
    struct pst_list link; /* among those that have ended */
    struct pst_id id, host;
    uint64_t epoch;
    uint16_t member;
    bool ended;  /* a member no more; closed when nothing is underway */
    bool drains; /* it is given nothing new */
    uint32_t shard_first, shard_count;
    struct pst_arena_map *arena_map; /* of its present session, where it is on this host */
};

/* A shard of a node, by a number that stays its own. */
struct pool_shard {
    struct pool_node *node; /* NULL: it has ended */
    uint32_t shard;
};

/* Sees that it has a channel, which connects by itself, unless that failed a moment ago. Return: 0 or -errno.
 */
int pst_pool_peer_open(struct pool *pool, struct pool_peer *peer);
/* Keeps a text for what its channel came to, and returns it. */
int pst_pool_peer_explain(const struct pool *pool, const struct pool_peer *peer, int error);
/* Its channel fails: it is left alone for a while. */
void pst_pool_peer_failed(struct pool_peer *peer, int error);
void pst_pool_peer_submit(struct pool *pool, struct pool_peer *peer, struct penstock_op *op, int shard,
                          struct pst_op_list *done, uint64_t until_ns);
/* One of its operations has ended. */
void pst_pool_peer_back(struct pool *pool, struct pool_peer *peer);
void pst_pool_peer_close(struct pool *pool, struct pool_peer *peer);
/* Nodes as the view names them. */
void pst_pool_nodes_take(struct pool *pool);
/* The node of a member; NULL: it is none. */
struct pool_node *pst_pool_node(struct pool *pool, uint16_t member);
void pst_pool_node_back(struct pool *pool, struct pool_node *node);
/* Sees that its shards have numbers, for which it may have to be reached first: then the store's lock was let
 * go. Return: 0 or -errno, explained. */
int pst_pool_node_shards(struct pool *pool, struct pool_node *node);
void pst_pool_nodes_close(struct pool *pool);

#endif
