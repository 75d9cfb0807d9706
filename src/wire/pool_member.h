/* SPDX-License-Identifier: Apache-2.0 */
/* pool_member.h: what a member tells its master, and hears: it joins, lives, and changes replicas of its
 * partitions.
 */
#ifndef PST_WIRE_POOL_MEMBER_H
#define PST_WIRE_POOL_MEMBER_H

#include "base/hash.h"
#include "wire/pool.h"

struct pst_pool_join {
    uint8_t pool[PST_POOL_ID_BYTES]; /* whose values it has; zeros: no pool's */
    uint8_t id[PST_POOL_ID_BYTES];
    uint8_t host[PST_POOL_ID_BYTES];
    uint64_t start; /* drawn by the process */
    uint64_t page_bytes;
    uint64_t kept_epoch; /* a membership of which it has lost nothing that it acknowledged; or 0 */
    bool kept_durable;   /* nothing that was durable, that is */
    char address[PST_POOL_ADDRESS_BYTES];
    char unix_path[PST_POOL_ADDRESS_BYTES];
    char tags[PST_POOL_TAGS_BYTES];
};

struct pst_pool_joined {
    uint8_t pool[PST_POOL_ID_BYTES];
    uint64_t epoch;
    uint64_t version; /* of the pool map that has it */
    uint64_t seed;    /* of fingerprints and partitions */
    uint32_t heartbeat_ms;
    uint16_t member;
    uint16_t spare;
};
_Static_assert(sizeof(struct pst_pool_joined) == 48, "pool joined");

/* What becomes of the values of a node that leaves; without any it may come back with them. */
enum pst_pool_end {
    PST_POOL_END_VALUES = 1, /* they end with it, */
    PST_POOL_END_CACHE = 2,  /* and all of them might have been evicted */
};

/* A membership, to leave it or to complain of it. */
struct pst_pool_member {
    uint8_t pool[PST_POOL_ID_BYTES];
    uint64_t epoch;
    uint16_t member;
    uint8_t ends; /* of who leaves: enum pst_pool_end */
    uint8_t spare[5];
};
_Static_assert(sizeof(struct pst_pool_member) == 32, "pool member");

enum pst_pool_copy_change {
    PST_POOL_COPY_DROP,
    PST_POOL_COPY_JOIN,
    PST_POOL_COPY_LEAD,
    PST_POOL_COPY_TAKE,
    PST_POOL_COPY_REFUSE,
};

/* What a primary asks for; in front of all of them the pool's id. */
struct pst_pool_copy {
    uint64_t epoch; /* of the primary's membership */
    uint64_t partition_epoch;
    uint64_t copy_epoch;
    uint16_t member;
    uint16_t partition;
    uint16_t copy;
    uint8_t change;
    uint8_t spare;
};
_Static_assert(sizeof(struct pst_pool_copy) == 32, "pool copy");

enum pst_pool_beat_flag {
    PST_POOL_BEGIN = 1,  /* a full report begins ... */
    PST_POOL_END = 2,    /* ... and ends with this message */
    PST_POOL_COPIED = 4, /* there are keys whose puts asked for several replicas */
};

struct pst_pool_heartbeat {
    uint8_t pool[PST_POOL_ID_BYTES];
    uint64_t epoch;
    uint64_t sequence;
    uint64_t sent_ns; /* of the sender's clock; comes back */
    uint16_t member;
    uint16_t event_count;
    uint16_t flags;
    uint8_t share,
        share_last; /* of which keys it tells: of that share of the directory, out of so many more */
    struct pst_pool_use tiers[PST_POOL_TIER_COUNT];
};
_Static_assert(sizeof(struct pst_pool_heartbeat) == 96, "pool heartbeat");

struct pst_pool_event {
    struct pst_hash128 key;
    uint64_t generation;
    uint8_t kind; /* 0 came, 1 went, with that generation and those before */
    uint8_t tier;
    uint8_t spare[6];
};
_Static_assert(offsetof(struct pst_pool_event, spare) == PST_POOL_EVENT_BYTES, "pool event");

struct pst_pool_want {
    uint64_t partition_epoch, member_epoch;
    uint16_t partition, member;
    uint8_t leads; /* the member shall be primary; else it lacks a replica */
    uint8_t spare[3];
};
_Static_assert(sizeof(struct pst_pool_want) == 24, "pool want");

struct pst_pool_beat {
    uint8_t pool[PST_POOL_ID_BYTES];
    uint64_t sequence_next; /* 0: only one with BEGIN is taken */
    uint64_t sent_ns;
    uint64_t lease_version; /* of the pool map that the lease needs */
    uint64_t version, term;
    uint64_t repair; /* which time that keys with too few replicas are looked for; 0: never yet */
    uint32_t lease_ms;
    uint16_t want_count;
    uint8_t sync; /* report in full */
    uint8_t spare;
    /* on the wire that many wants follow */
};
_Static_assert(sizeof(struct pst_pool_beat) == 72, "pool beat");

/* Encoders have PST_WIRE_QUESTION_BYTES_MAX of room, and return what they took of it. */
size_t pst_pool_put_join(uint8_t *to, const struct pst_pool_join *join);
int pst_pool_get_join(struct pst_bytes from, struct pst_pool_join *join);
size_t pst_pool_put_heartbeat(uint8_t *to, const struct pst_pool_heartbeat *beat,
                              const struct pst_pool_event *events);
/* @events: PST_POOL_EVENTS_MAX of them, decoded. */
int pst_pool_get_heartbeat(struct pst_bytes from, struct pst_pool_heartbeat *beat,
                           struct pst_pool_event *events);
size_t pst_pool_put_beat(uint8_t *to, const struct pst_pool_beat *beat, const struct pst_pool_want *wants);
int pst_pool_get_beat(struct pst_bytes from, struct pst_pool_beat *beat,
                      struct pst_pool_want wants[PST_POOL_WANT_COUNT_MAX]);

#endif
