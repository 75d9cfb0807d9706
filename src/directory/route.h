/* SPDX-License-Identifier: Apache-2.0 */
/* route.h: where keys are and where they are to go; a directory's side of what clients and repairing members
 * ask. */
#ifndef PST_DIRECTORY_ROUTE_H
#define PST_DIRECTORY_ROUTE_H

#include "directory/directory.h"

enum pst_routed {
    PST_ROUTE_TO,          /* put: there; get: read there */
    PST_ROUTE_EXISTS,      /* put: it is there already */
    PST_ROUTE_UNAVAILABLE, /* put: no node has room */
    PST_ROUTE_MISS,        /* get */
    PST_ROUTE_INCOMPLETE,  /* get: not found, and not all nodes have reported */
};

struct pst_put {
    struct pst_hash128 key;
    uint64_t bytes;
    uint32_t replicas; /* wanted, on distinct hosts */
    bool evictable;    /* a full node makes room */
};

/* Who asks, as to what is near. */
struct pst_caller {
    struct pst_id host;
};

struct pst_route {
    enum pst_routed status;
    struct pst_places places; /* put: as many copies as were found a place, or are known */
};

/* Up to PST_DIRECTORY_BATCH_MAX keys each. A put that was routed before and has not been reported yet goes to
 * the same places. */
void pst_directory_route_put(struct pst_directory *d, const struct pst_caller *caller,
                             const struct pst_put *puts, uint32_t count, uint64_t now_ns,
                             struct pst_route *routes);
/* Places in the order in which to try them: the caller's host, then the rest; each fastest tier first; who is
 * suspected, last. */
void pst_directory_route_get(struct pst_directory *d, const struct pst_caller *caller,
                             const struct pst_hash128 *keys, uint32_t count, uint64_t now_ns,
                             struct pst_route *routes);
enum pst_repair_flag {
    PST_REPAIR_BEGIN = 1, /* these are the first of the node's keys */
    PST_REPAIR_END = 2,   /* all have been asked about */
};

struct pst_repair {
    uint16_t member;
    uint64_t epoch;
    uint64_t repair; /* of the heartbeat's answer */
    uint32_t flags;
    uint32_t done, failed; /* of what it was told to send, since it last asked */
    uint64_t bytes;
};

/*
 * What a node with these keys sends where, so that each has as many copies as it was put to have, or as @keys
 * says where nobody knows. Up to PST_DIRECTORY_BATCH_MAX keys. Of all that have a key one is to send it.
 * Statuses: TO, EXISTS (nothing to do for this node), UNAVAILABLE (no node has room). Return: 0, -ESTALE no
 * such membership, or it is for another time.
 */
int pst_directory_repair(struct pst_directory *d, const struct pst_repair *message,
                         const struct pst_put *keys, uint32_t count, uint64_t now_ns,
                         struct pst_route *routes);
/* The places alone; any number of keys. */
void pst_directory_look_up(struct pst_directory *d, const struct pst_hash128 *keys, uint32_t count,
                           struct pst_places *places);

#endif
