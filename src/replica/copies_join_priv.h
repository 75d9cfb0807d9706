/* SPDX-License-Identifier: Apache-2.0 */
/*
 * copies_join_priv.h: filling one member with copies of partitions, step by step; one at a time.
 */
#ifndef PST_COPIES_JOIN_PRIV_H
#define PST_COPIES_JOIN_PRIV_H

#include "replica/copies_peer_priv.h"
#include "wire/pool_member.h"

_Static_assert(PST_POOL_WANT_COUNT_MAX * sizeof(struct pst_wire_cleared) <= PST_WIRE_QUESTION_BYTES_MAX,
               "partitions that are cleared at once fit an operation");

enum step {
    STEP_IDLE,
    STEP_CLEAR, /* it drops what it has, shard by shard */
    STEP_DRAIN, /* writes that were begun before end */
    STEP_COUNT, /* which generations were given, is asked of each shard here */
    STEP_PASS,  /* and told to each of its shards */
    STEP_LIST,  /* a portion of the keys is listed, */
    STEP_SEND,  /* and sent */
    STEP_FAILED,
    STEPS,
};

/* Partitions that one member is filled with, all together. */
struct join {
    enum step step;
    struct peer *peer;
    uint16_t member;
    uint64_t epoch;
    uint32_t partition_count;
    struct pst_wire_cleared partitions[PST_POOL_WANT_COUNT_MAX];
    uint32_t shard;   /* at which it is */
    uint64_t mark;    /* what was begun before does not go to it */
    uint64_t passed;  /* generation that this node had given by then */
    uint32_t sends;   /* of keys, underway */
    bool waits;       /* for the answer to its one request */
    bool shard_ended; /* the list has */
    uint8_t resume[PST_WIRE_KEY_BYTES_MAX];
    size_t resume_bytes;
    uint8_t data[PST_POOL_ANSWER_BYTES];
    size_t data_bytes, data_at;
};

void join_take_wants(struct pst_copies *c, const struct pst_pool_want *wants, uint32_t count);
void join_step(struct pst_copies *c, uint64_t now_ns);

#endif
