/*
 * pool.h: what a pool's master is asked, and answers: the operations from PST_WIRE_ROLE_FIRST on, as
 * docs/protocol.md ("The pool") draws them. The question is an operation's attributes, the answer its
 * result's data. Pure: encodes into and decodes from memory that the caller gives, whatever its alignment.
 */
#ifndef PST_WIRE_POOL_H
#define PST_WIRE_POOL_H

#include "base/hash.h"
#include "wire/wire.h"

enum pst_pool_code {
    PST_POOL_JOIN = PST_WIRE_ROLE_FIRST,
    PST_POOL_LEAVE,
    PST_POOL_HEARTBEAT,
    PST_POOL_VIEW, /* if_generation: the version that is known; offset: where the piece begins. No question */
    PST_POOL_SUSPECT,
    PST_POOL_LOCATE,
    PST_POOL_PLACE,
    PST_POOL_FIGURES, /* no question; the answer is text, "name value" lines */
    PST_POOL_COPIES,  /* of slots: struct pst_pool_copy, in any number. No answer: the view tells */
    PST_POOL_REPAIR,  /* a node's keys: what of them is to be sent where */
    PST_POOL_DRAIN,   /* struct pst_pool_drain. No answer */
    PST_POOL_NODES,   /* offset: the first member's number. Answer: struct pst_pool_node, in any number */
    PST_POOL_FORGIVE, /* no question, no answer: slots that lost values are like others */
    PST_POOL_REPORT = 80,
    PST_POOL_REVOKE,
    PST_POOL_MATCH, /* depth 1: counts as a hit. The question is hashes, as that of the next */
    PST_POOL_HITS,
};

enum {
    PST_POOL_ID_BYTES = 16,
    PST_POOL_ADDRESS_BYTES = 128, /* texts are with their NUL here; on the wire without */
    PST_POOL_TAGS_BYTES = 64,
    PST_POOL_TIER_COUNT = 3, /* tier 1 HBM, 2 DRAM, 3 SSD */
    PST_POOL_EVENTS_MAX = 2048,
    PST_POOL_EVENT_BYTES = 26, /* on the wire, without what is spare */
    PST_POOL_WANT_COUNT_MAX = 256,
    PST_POOL_LOCATE_MAX = 256,
    PST_POOL_PLACE_MAX = 256,
    PST_POOL_ROUTE_PLACES_MAX = 6,
    PST_POOL_NODES_MAX = 128, /* in one answer */
    PST_POOL_REPORT_MAX = 256,
    PST_POOL_MATCH_MAX = 256,
    PST_POOL_NO_PRIMARY = 7, /* result of an operation on a key: all copies of its slot are gone, for now */
    PST_POOL_COPIES_MAX = 1024,
    PST_POOL_REVOKE_MAX = 16384, /* that go at a time; as many: there may be more, ask again */
    PST_POOL_BLOCK_TIERS = 4,    /* of what engines hold: 0 unknown, 1 HBM, 2 DRAM, 3 SSD */
};

/* ---- members ---- */

struct pst_pool_join {
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
    uint64_t epoch;
    uint64_t version; /* of the view that has it */
    uint64_t seed;    /* of fingerprints and slots */
    uint32_t heartbeat_ms;
    uint16_t member;
    uint16_t spare;
};
_Static_assert(sizeof(struct pst_pool_joined) == 32, "pool joined");

/* A membership, to leave it or to complain of it. */
struct pst_pool_member {
    uint64_t epoch;
    uint16_t member;
    uint8_t spare[6];
};
_Static_assert(sizeof(struct pst_pool_member) == 16, "pool member");

struct pst_pool_use {
    uint64_t capacity_bytes, used_bytes;
};

enum pst_pool_copy_change {
    PST_POOL_COPY_DROP,
    PST_POOL_COPY_JOIN,
    PST_POOL_COPY_LEAD,
    PST_POOL_COPY_TAKE,
};

/* What a primary asks for. */
struct pst_pool_copy {
    uint64_t epoch; /* of the primary's membership */
    uint64_t slot_epoch;
    uint64_t copy_epoch;
    uint16_t member;
    uint16_t slot;
    uint16_t copy;
    uint8_t change;
    uint8_t spare;
};
_Static_assert(sizeof(struct pst_pool_copy) == 32, "pool copy");

/* Whether a node is to be needed for nothing any more. */
struct pst_pool_drain {
    uint8_t id[PST_POOL_ID_BYTES];
    uint8_t drains;
    uint8_t spare[7];
};
_Static_assert(sizeof(struct pst_pool_drain) == 24, "pool drain");

enum pst_pool_node_flag {
    PST_POOL_NODE_DRAINS = 1,
    PST_POOL_NODE_DRAINED = 2,
    PST_POOL_NODE_SUSPECT = 4,
};

struct pst_pool_node {
    uint8_t id[PST_POOL_ID_BYTES];
    char address[PST_POOL_ADDRESS_BYTES]; /* "host:port", or a unix socket's path; with its NUL */
    uint64_t keys_left;                   /* of one that drains: that lie on it, and on too few others */
    struct pst_pool_use dram;
    uint32_t primaries, copies; /* slots */
    uint16_t member;
    uint8_t flags;
    uint8_t spare[5];
};
_Static_assert(sizeof(struct pst_pool_node) == 184, "pool node");

enum pst_pool_beat_flag {
    PST_POOL_BEGIN = 1, /* a full report begins ... */
    PST_POOL_END = 2,   /* ... and ends with this message */
};

struct pst_pool_heartbeat {
    uint64_t epoch;
    uint64_t sequence;
    uint64_t sent_ns; /* of the sender's clock; comes back */
    uint16_t member;
    uint16_t event_count;
    uint32_t flags;
    struct pst_pool_use tiers[PST_POOL_TIER_COUNT];
};
_Static_assert(sizeof(struct pst_pool_heartbeat) == 80, "pool heartbeat");

struct pst_pool_event {
    struct pst_hash128 key;
    uint64_t generation;
    uint8_t kind; /* 0 came, 1 went, with that generation and those before */
    uint8_t tier;
    uint8_t spare[6];
};
_Static_assert(offsetof(struct pst_pool_event, spare) == PST_POOL_EVENT_BYTES, "pool event");

struct pst_pool_want {
    uint64_t slot_epoch, member_epoch;
    uint16_t slot, member;
    uint8_t leads; /* the member shall be primary; else it lacks a copy */
    uint8_t spare[3];
};
_Static_assert(sizeof(struct pst_pool_want) == 24, "pool want");

struct pst_pool_beat {
    uint64_t sequence_next; /* 0: only one with BEGIN is taken */
    uint64_t sent_ns;
    uint64_t lease_version; /* of the view that the lease needs */
    uint64_t version, term;
    uint64_t repair; /* which time that keys with too few copies are looked for; 0: never yet */
    uint32_t lease_ms;
    uint16_t want_count;
    uint8_t sync; /* report in full */
    uint8_t spare;
    /* on the wire that many wants follow */
};
_Static_assert(sizeof(struct pst_pool_beat) == 56, "pool beat");

/* Answer to a VIEW; a piece of the view's bytes follows. */
struct pst_pool_view {
    uint64_t view_bytes; /* of all of it; 0: the asker has it */
};

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
/* A struct of fixed size. Return: 0 or -EPROTO: it is not as long as @bytes. */
int pst_pool_get(struct pst_bytes from, void *to, size_t bytes);

/* ---- keys ---- */

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
    uint64_t epoch;
    uint64_t repair; /* of the heartbeat's answer */
    uint64_t bytes;
    uint32_t done, failed; /* of what it was told to send, since it last asked */
    uint16_t member;
    uint8_t flags; /* enum pst_repair_flag's */
    uint8_t spare[5];
};
_Static_assert(sizeof(struct pst_pool_repair) == 40, "pool repair");

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

/* The asker's host, then @count structs of @item_bytes each. */
size_t pst_pool_put_items(uint8_t *to, const void *host, size_t host_bytes, const void *items,
                          size_t item_bytes, uint32_t count);
/* @head gets the first @head_bytes, @items whatever follows, up to @count_max. Return: their number, or
 * -EPROTO. */
int pst_pool_get_items(struct pst_bytes from, void *head, size_t head_bytes, void *items, size_t item_bytes,
                       uint32_t count_max);
uint8_t *pst_pool_put_route(uint8_t *at, const struct pst_pool_route *route);
/* Reads one at *@at and moves on. */
int pst_pool_get_route(const uint8_t **at, const uint8_t *end, struct pst_pool_route *route);

/* ---- blocks that engines hold in memory of their own ---- */

enum pst_pool_scope { PST_POOL_OF_HASHES, PST_POOL_OF_TIER, PST_POOL_OF_NODE };

/* In front of the hashes of REPORT and REVOKE. */
struct pst_pool_blocks {
    uint8_t id[PST_POOL_ID_BYTES]; /* the node's */
    uint8_t tier;
    uint8_t scope; /* of REVOKE: what goes */
    uint8_t spare[6];
};
_Static_assert(sizeof(struct pst_pool_blocks) == 24, "pool blocks");

/* What a node has of a MATCH: bit i % 64 of word i / 64 is the question's hash i. */
struct pst_pool_match {
    uint8_t id[PST_POOL_ID_BYTES];
    uint32_t hash_count;
    uint16_t member;
    uint16_t spare;
    uint64_t tiers[PST_POOL_BLOCK_TIERS][PST_POOL_MATCH_MAX / 64];
};
_Static_assert(sizeof(struct pst_pool_match) == 152, "pool match");

#endif
