/*
 * pool_trip_priv.h: an operation on a key makes a *trip*: its place is looked up, *legs* of it, copies of the
 * operation, are sent to nodes, and how they end decides what is next.
 *
 * A write goes to another node, or is sent again, only when it is known not to have been applied.
 */
#ifndef PST_POOL_TRIP_PRIV_H
#define PST_POOL_TRIP_PRIV_H

#include "client/pool_priv.h"

#define PST_TRIP_MAGIC 0x74726970u

enum trip_kind {
    TRIP_SIDE,   /* to the shard that the operation names */
    TRIP_HOME,   /* to the primary of the key's slot */
    TRIP_STICKY, /* of slots that lie anywhere: to one node, by the key */
    TRIP_READ,   /* anywhere: to the first place that has it */
    TRIP_PUT,    /* anywhere: to new places, unless there is one */
    TRIP_ALL,    /* anywhere: to all nodes */
};

struct trip;

struct leg {
    struct penstock_op op; /* its `user` is the leg */
    struct pst_list link;  /* alone, or among those whose node was busy */
    struct trip *trip;
    struct pool_node *node;
    int shard;
    uint64_t patient_ns; /* how long a busy node is asked again */
    bool asks;           /* whether a value to be put is there */
};

struct trip {
    uint32_t magic;
    enum trip_kind kind;
    struct pst_list link; /* idle, waiting for its time, or on its way to the master */
    struct penstock_op *op;
    struct pst_hash128 key;
    uint64_t until_ns, due_ns;
    uint32_t delay_us;
    uint32_t side;
    uint64_t generation; /* a put: of a copy */
    uint32_t legs;       /* underway */
    struct leg first;    /* the others are made when there are more than one */
    int result;          /* what it comes to when nothing better does */
    bool cached, asked;  /* whence the places are */
    bool written;        /* a put: by us, rather than found */
    uint8_t wanted, copies;
    uint8_t place_at, place_count, tried_count;
    uint16_t places[PST_POOL_ROUTE_PLACES_MAX];
    uint16_t tried[POOL_TRIED_MAX];
};

/* ---- pool_trip.c ---- */

/* @leg: whose answer it is; NULL: none. */
void pst_trip_finish(struct pool *pool, struct trip *trip, const struct leg *leg, int result);
/* It is tried again in a moment; when its time is over it ends with @result. */
void pst_trip_later(struct pool *pool, struct trip *trip, const struct leg *leg, int result);
/* @leg: that is free. What cannot be sent ends as if it had been refused. */
void pst_leg_send(struct pool *pool, struct leg *leg, struct trip *trip, struct pool_node *node, int shard);
/* The trip's own leg is sent to that node. */
void pst_trip_send_first(struct pool *pool, struct trip *trip, struct pool_node *node);
/* One of several. */
void pst_trip_send_another(struct pool *pool, struct trip *trip, struct pool_node *node);
/* The operation was not carried out, and the node is not there, or not the one. */
bool pst_trip_unreachable(int result);

/* ---- each kind: how a trip begins, and what it does when a leg has ended ---- */

/* pool_home.c */
void pst_home_begin(struct pool *pool, struct trip *trip);
void pst_home_ended(struct pool *pool, struct trip *trip, struct leg *leg, int result);

/* pool_anywhere.c */
void pst_sticky_begin(struct pool *pool, struct trip *trip);
void pst_sticky_ended(struct pool *pool, struct trip *trip, struct leg *leg, int result);
void pst_all_begin(struct pool *pool, struct trip *trip);
void pst_all_ended(struct pool *pool, struct trip *trip, struct leg *leg, int result);
void pst_read_begin(struct pool *pool, struct trip *trip);
/* @route: NULL when no master answers, of which @error tells. */
void pst_read_routed(struct pool *pool, struct trip *trip, const struct pst_pool_route *route, int error);
void pst_read_ended(struct pool *pool, struct trip *trip, struct leg *leg, int result);
/* Near ones first. */
void pst_trip_sort_places(struct pool *pool, struct trip *trip);

/* pool_put.c */
void pst_put_begin(struct pool *pool, struct trip *trip);
void pst_put_routed(struct pool *pool, struct trip *trip, const struct pst_pool_route *route);
/* Of the question whether a value is there. */
void pst_put_asked_ended(struct pool *pool, struct trip *trip, struct leg *leg, int result);
void pst_put_ended(struct pool *pool, struct trip *trip, struct leg *leg, int result);

#endif
