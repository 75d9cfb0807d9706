/* SPDX-License-Identifier: Apache-2.0 */
/*
 * copies_channel.h: what a simulated sender of copies says to other nodes, over messages that may be lost,
 * come late, and out of their order; and the keys of which it speaks.
 */
#ifndef SIM_COPIES_CHANNEL_H
#define SIM_COPIES_CHANNEL_H

#include "sim.h"

#include "replica/copies_priv.h"

enum { REPLICA_MS = 1000, SELF_MS = 11000, BUSY_MS = 3, DATA_BYTES = 2048, FLIGHTS_MAX = 4096, BUSY = 4 };

/* An operation on its way to a node, and back with its answer. */
struct asked {
    uint64_t id;
    bool done; /* the network may bring it twice */
    uint8_t code;
    uint32_t flags;
    uint32_t used, key;
    struct pst_wire_copy head;
    struct value value;
    uint64_t generation;
    uint32_t partition_count;
    struct pst_wire_cleared partitions[PST_POOL_WANT_COUNT_MAX];
    int result; /* of the answer, as the rest */
    uint64_t answered;
    size_t data_bytes;
    uint8_t data[DATA_BYTES];
};

struct flight {
    struct send *send;
    uint64_t id, deadline_ns;
    uint64_t again_ns; /* told busy: when it goes again; 0: it is underway */
    int shard;
};

/* What is prepared: its key is locked. A commit of two keys is the first one's, and `with` is the second. */
struct change {
    struct sender *sender;
    bool busy, sent, keeps; /* to others; a value that is there */
    bool waits;             /* a commit, until its keys are locked in all shards */
    uint32_t used, key;
    struct change *with;
    int verdict;
    uint64_t number; /* which one it is */
    struct value value;
    int client;
    uint64_t request;
    struct message *asked; /* to send what is there */
    struct pst_replica replica;
    struct pst_replica_write writes[2];
};

struct sender {
    struct sim *sim;
    int number;
    struct pst_serving *serving;
    struct pst_copies copies;
    uint64_t id, generation, change_number;
    uint32_t flight_count;
    struct flight flights[FLIGHTS_MAX];
    struct change changes[USED][PARTITION_KEYS];
    bool ends;
    int changed_fd; /* nobody sleeps on it */
};

extern const struct copies_net copies_channel;

/* Some text for each key, which lies in its partition. */
void copies_find_texts(const struct pst_map *map);
struct pst_bytes copies_text_of(uint32_t used, uint32_t key);
bool copies_find_key(struct pst_bytes text, uint32_t *used, uint32_t *key);
/* What nobody answers ends, and what was told busy goes again. */
void copies_tend_flights(struct sender *sender);
void copies_take_answer(struct sender *sender, const struct message *m);
void copies_land(struct sender *sender, struct flight *flight, int result);

#endif
