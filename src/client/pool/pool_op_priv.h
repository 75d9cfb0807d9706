/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pool_op_priv.h: an operation on a key makes a *pool operation*: its place is looked up, *attempts* of it,
 * copies of the operation, are sent to nodes, and how they end decides what is next.
 *
 * A write goes to another node, or is sent again, only when it is known not to have been applied.
 */
#ifndef PST_POOL_POOL_OP_PRIV_H
#define PST_POOL_POOL_OP_PRIV_H

#include "client/pool/pool_priv.h"

#define PST_POOL_OP_MAGIC 0x74726970u

enum pool_op_kind {
    POOL_OP_SIDE,   /* to the shard that the operation names */
    POOL_OP_HOME,   /* to the primary of the key's partition */
    POOL_OP_STICKY, /* of partitions that lie anywhere: to one node, by the key */
    POOL_OP_READ,   /* anywhere: to the first place that has it */
    POOL_OP_PUT,    /* anywhere: to new places, unless there is one */
    POOL_OP_ALL,    /* anywhere: to all nodes */
};

struct pool_op;

struct attempt {
    struct penstock_op op; /* its `user` is the attempt */
    struct pst_list link;  /* alone, or among those whose node was busy */
    struct pool_op *pool_op;
    struct pool_node *node;
    int shard;
    uint64_t patient_ns; /* how long a busy node is asked again */
    bool asks;           /* whether a value to be put is there */
};

struct pool_op {
    uint32_t magic;
    enum pool_op_kind kind;
    struct pst_list link; /* idle, waiting for its time, or on its way to the master */
    struct penstock_op *op;
    struct pst_hash128 key;
    uint64_t until_ns, due_ns;
    uint32_t delay_us;
    uint32_t side;
    uint64_t generation;  /* a put: of a copy; of all: what goes with `result` */
    uint32_t attempts;    /* underway */
    struct attempt first; /* the others are made when there are more than one */
    int result;           /* what it comes to when nothing better does */
    bool cached, asked;   /* whence the places are */
    bool awaits_map;      /* it begins anew when a pool map has been fetched, ... */
    bool map_asked;       /* ... as it did already */
    /* What did not reach a node: by which pool map, and what it comes to if that is the latest. */
    int stale_result; /* 0: it has reached all, so far */
    uint64_t stale_version;
    bool written; /* a put: by us, rather than found; of all: a node had it */
    uint8_t wanted, copies;
    uint8_t place_at, place_count, tried_count;
    uint16_t places[PST_POOL_ROUTE_PLACES_MAX];
    uint16_t tried[POOL_TRIED_MAX];
};

/* ---- pool operation.c ---- */

/* @attempt: whose answer it is; NULL: none. */
void pst_pool_op_finish(struct pool *pool, struct pool_op *pool_op, const struct attempt *attempt,
                        int result);
/* It is tried again in a moment; when its time is over it ends with @result. */
void pst_pool_op_later(struct pool *pool, struct pool_op *pool_op, const struct attempt *attempt, int result);
/* @attempt: that is free. What cannot be sent ends as if it had been refused. */
void pst_attempt_send(struct pool *pool, struct attempt *attempt, struct pool_op *pool_op,
                      struct pool_node *node, int shard);
/* The pool operation's own attempt is sent to that node. */
void pst_pool_op_send_first(struct pool *pool, struct pool_op *pool_op, struct pool_node *node);
/* One of several. */
void pst_pool_op_send_another(struct pool *pool, struct pool_op *pool_op, struct pool_node *node);
/* The operation was not carried out, and the node is not there, or not the one. */
bool pst_pool_op_unreachable(int result);
/* It begins anew when a pool map has been fetched that is not older than this call, or cannot be. */
void pst_pool_op_await_map(struct pool *pool, struct pool_op *pool_op);
/* The pool has no node yet. */
void pst_pool_op_await_node(struct pool *pool, struct pool_op *pool_op);
/* Its result may be one of an old pool map: then it awaits another. Return: whether it does. */
bool pst_pool_op_doubts_map(struct pool *pool, struct pool_op *pool_op);
/* That pool map was the latest: it ends. Return: whether it does. */
bool pst_pool_op_ends_by_map(struct pool *pool, struct pool_op *pool_op);

/* ---- each kind: how a pool operation begins, and what it does when a attempt has ended ---- */

/* home.c */
void pst_home_begin(struct pool *pool, struct pool_op *pool_op);
void pst_home_ended(struct pool *pool, struct pool_op *pool_op, struct attempt *attempt, int result);

/* anywhere.c */
void pst_sticky_begin(struct pool *pool, struct pool_op *pool_op);
void pst_sticky_ended(struct pool *pool, struct pool_op *pool_op, struct attempt *attempt, int result);
void pst_all_begin(struct pool *pool, struct pool_op *pool_op);
void pst_all_ended(struct pool *pool, struct pool_op *pool_op, struct attempt *attempt, int result);
void pst_read_begin(struct pool *pool, struct pool_op *pool_op);
/* @route: NULL when no master answers, of which @error tells. */
void pst_read_routed(struct pool *pool, struct pool_op *pool_op, const struct pst_pool_route *route,
                     int error);
void pst_read_ended(struct pool *pool, struct pool_op *pool_op, struct attempt *attempt, int result);
/* Near ones first. */
void pst_pool_op_sort_places(struct pool *pool, struct pool_op *pool_op);

/* put.c */
void pst_put_begin(struct pool *pool, struct pool_op *pool_op);
void pst_put_routed(struct pool *pool, struct pool_op *pool_op, const struct pst_pool_route *route);
/* Of the question whether a value is there. */
void pst_put_asked_ended(struct pool *pool, struct pool_op *pool_op, struct attempt *attempt, int result);
void pst_put_ended(struct pool *pool, struct pool_op *pool_op, struct attempt *attempt, int result);

#endif
