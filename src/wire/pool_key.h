/* SPDX-License-Identifier: Apache-2.0 */
/* pool_key.h: where keys are and are to go: asked by clients, and by members that repair. */
#ifndef PST_WIRE_POOL_KEY_H
#define PST_WIRE_POOL_KEY_H

#include "base/hash.h"
#include "wire/pool.h"

/* In front of a client's keys. */
struct pst_pool_asker {
    uint8_t pool[PST_POOL_ID_BYTES];
    uint8_t host[PST_POOL_ID_BYTES];
};
_Static_assert(sizeof(struct pst_pool_asker) == 32, "pool asker");

/* A put's question: where to. */
struct pst_pool_want_place {
    struct pst_hash128 key;
    uint64_t bytes;
    uint8_t replicas;
    uint8_t evictable;
    uint8_t spare[6];
};
_Static_assert(sizeof(struct pst_pool_want_place) == 32, "pool place");

struct pst_pool_place {
    uint64_t generation;
    uint16_t member;
    uint8_t tier;
    uint8_t spare[5];
};
_Static_assert(sizeof(struct pst_pool_place) == 16, "pool place of a key");

/* In front of a node's keys, struct pst_pool_want_place. */
struct pst_pool_repair {
    uint8_t pool[PST_POOL_ID_BYTES];
    uint64_t epoch;
    uint64_t repair; /* of the heartbeat's answer */
    uint64_t bytes;
    uint32_t done, failed; /* of what it was told to send, since it last asked */
    uint16_t member;
    uint8_t flags; /* enum pst_repair_flag's */
    uint8_t spare[5];
};
_Static_assert(sizeof(struct pst_pool_repair) == 56, "pool repair");

enum pst_pool_status {
    PST_POOL_ROUTED = 0,      /* put: there; get: read there */
    PST_POOL_EXISTS = 1,      /* put: it is there already */
    PST_POOL_UNAVAILABLE = 2, /* put: no node has room */
    PST_POOL_MISS = 3,
    PST_POOL_INCOMPLETE = 4, /* not found, and not all nodes have reported */
};

struct pst_pool_route {
    uint8_t status;
    uint8_t place_count;
    uint8_t spare[6];
    struct pst_pool_place places[PST_POOL_ROUTE_PLACES_MAX]; /* on the wire as many as there are */
};

enum { PST_POOL_ROUTE_BYTES_MAX = sizeof(struct pst_pool_route) };

uint8_t *pst_pool_put_route(uint8_t *at, const struct pst_pool_route *route);
/* Reads one at *@at and moves on. */
int pst_pool_get_route(const uint8_t **at, const uint8_t *end, struct pst_pool_route *route);

#endif
