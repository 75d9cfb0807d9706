/*
 * pool_priv.h: a pool of nodes as its files see it: the processes that are talked to, and what is known of
 * them. Everything runs on the thread that leads the store, with the store's lock held.
 */
#ifndef PST_POOL_PRIV_H
#define PST_POOL_PRIV_H

#include "client/client_priv.h"

#include "base/list.h"
#include "directory/view.h"
#include "wire/pool.h"

#define PST_POOL_MAGIC 0x706f6f6cu

enum {
    POOL_MASTERS_MAX = 8,
    POOL_SIDES_MAX = 4096,
    POOL_TRIPS_MAX = 16384, /* operations on keys; more wait for their turn */
    POOL_TRIED_MAX = 8,
    POOL_SHARD_OF_MASTER = 0xfff0, /* a number of no node's */
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

/* A process that is talked to, a master or a node. */
struct pool_end {
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
    struct pool_end end;
    struct pst_list link; /* among those that have ended */
    struct pst_id id, host;
    uint64_t epoch;
    uint16_t member;
    bool ended;  /* a member no more; closed when nothing is underway */
    bool drains; /* it is given nothing new */
    uint32_t side_first, side_count;
    struct pst_arena_map *arena_map; /* of its present session, where it is on this host */
};

/* A shard of a node, by a number that stays its own. */
struct pool_side {
    struct pool_node *node; /* NULL: it has ended */
    uint32_t shard;
};

struct trip; /* pool_trip_priv.h */

/* The view on its way here, piece by piece. */
struct pool_fetch {
    struct penstock_op op;
    bool underway, again;
    uint64_t begun_ns;
    uint8_t *bytes;
    size_t at;
    uint64_t version;
    struct pst_op_list askers; /* operations that end with it */
    uint8_t piece[60 << 10];
};

struct pool {
    uint32_t magic;
    struct penstock *store;
    struct pst_channel_options options;
    uint32_t replicas; /* at least that many copies of what lies anywhere */
    struct pst_id host;
    int poll_fd;
    struct pst_net *net; /* for memory that is registered */
    struct pool_end masters[POOL_MASTERS_MAX];
    uint32_t master_count, master;
    struct pst_view *view;
    struct pool_fetch fetch;
    struct pool_node *nodes[PST_VIEW_MEMBERS_MAX]; /* by number */
    uint32_t node_count;
    struct pst_list ended_nodes;
    struct pool_side sides[POOL_SIDES_MAX];
    uint32_t side_count;
    struct pst_list busy;              /* ends with something underway */
    struct pst_op_list ended;          /* legs */
    struct pst_op_list answered;       /* by a master */
    struct pst_op_list pending;        /* operations without a trip yet */
    struct pst_list idle, waiting;     /* trips */
    struct pst_list refused;           /* legs, by nodes that were busy */
    uint64_t refused_ns;               /* when they are sent again */
    struct pst_list locating, placing; /* trips for the next questions */
    struct pst_list noted;             /* what a master was told, and nobody waits for */
    uint64_t due_ns;                   /* of the first that waits */
    uint32_t trip_count;               /* made so far */
    struct pool_cache *cache;
    uint64_t counts_closed[2]; /* messages over channels that are closed, to masters and nodes */
    struct {
#define X(name, text) uint64_t name;
        PST_POOL_COUNTERS(X)
#undef X
    } counters;
};

struct pool *pst_pool_of(struct penstock *store);

/* ---- pool_end.c: ends, nodes and sides ---- */

/* Sees that it has a channel, which connects by itself, unless that failed a moment ago. Return: 0 or -errno.
 */
int pst_pool_end_open(struct pool *pool, struct pool_end *end);
/* Keeps a text for what its channel came to, and returns it. */
int pst_pool_end_explain(const struct pool *pool, const struct pool_end *end, int error);
/* Its channel fails: it is left alone for a while. */
void pst_pool_end_failed(struct pool_end *end, int error);
void pst_pool_end_submit(struct pool *pool, struct pool_end *end, struct penstock_op *op, int shard,
                         struct pst_op_list *done, uint64_t until_ns);
/* One of its operations has ended. */
void pst_pool_end_back(struct pool *pool, struct pool_end *end);
void pst_pool_end_close(struct pool *pool, struct pool_end *end);
/* Nodes as the view names them. */
void pst_pool_nodes_take(struct pool *pool);
/* The node of a member; NULL: it is none. */
struct pool_node *pst_pool_node(struct pool *pool, uint16_t member);
void pst_pool_node_back(struct pool *pool, struct pool_node *node);
/* Sees that its shards have numbers, for which it may have to be reached first: then the store's lock was let
 * go. Return: 0 or -errno, explained. */
int pst_pool_node_sides(struct pool *pool, struct pool_node *node);
void pst_pool_nodes_close(struct pool *pool);

/* ---- pool_view.c: the view, and questions to the master ---- */

/* Fetches it, in a moment. */
void pst_pool_view_fetch(struct pool *pool);
/* @asker ends with it: a request for the newest view. */
void pst_pool_view_ask(struct pool *pool, struct penstock_op *asker);
/* Sends what trips want to know. */
void pst_pool_ask(struct pool *pool);
/* @asker ends with what a master answers to it: of what only the caller and the master understand. */
void pst_pool_relay(struct pool *pool, struct penstock_op *asker);
void pst_pool_answered(struct pool *pool, struct penstock_op *op);
/* The master is told that a member does not answer. */
void pst_pool_suspect(struct pool *pool, const struct pool_node *node);
/* Those that were not answered; no channel knows them any more. */
void pst_pool_notes_free(struct pool *pool);

/* ---- pool_trip.c ---- */

void pst_pool_submit(struct penstock *store, struct penstock_op *op, int shard, struct pst_op_list *done);
void pst_pool_leg_ended(struct pool *pool, struct penstock_op *op);
/* @route: NULL when no master answers. */
void pst_pool_routed(struct pool *pool, struct trip *trip, const struct pst_pool_route *route, int error);
/* Operations that were submitted since. Return: true when there were any. */
bool pst_pool_trips_set_out(struct pool *pool);
/* Those whose time has come. Return: true when there were any. */
bool pst_pool_trips_due(struct pool *pool);
void pst_pool_trips_free(struct pool *pool);

/* ---- pool_home.c, pool_anywhere.c ---- */

bool pst_pool_key_home(const struct pool *pool, struct pst_bytes key);
/* The node with the key's slot; NULL: there is none. */
struct pool_node *pst_pool_primary(struct pool *pool, struct pst_bytes key);
/* The nearest node that is known to have a key that may lie anywhere; NULL: none is. */
struct pool_node *pst_pool_place_of(struct pool *pool, struct pst_bytes key);

/* ---- pool_cache.c: where keys were found or put ---- */

struct pool_cache *pst_pool_cache_open(void);
void pst_pool_cache_add(struct pool_cache *cache, const struct pst_hash128 *key, uint16_t member);
void pst_pool_cache_drop(struct pool_cache *cache, const struct pst_hash128 *key);
/* Return: how many @places. */
uint32_t pst_pool_cache_find(const struct pool_cache *cache, const struct pst_hash128 *key,
                             uint16_t places[PST_POOL_ROUTE_PLACES_MAX]);

#endif
