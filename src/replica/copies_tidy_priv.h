/* SPDX-License-Identifier: Apache-2.0 */
/*
 * copies_tidy_priv.h: what this node has of partitions and should not, and how it goes.
 */
#ifndef PST_COPIES_TIDY_PRIV_H
#define PST_COPIES_TIDY_PRIV_H

#include "replica/copies_peer_priv.h"
#include "wire/pool_member.h"

/* Partitions that are cleared here, all together. */
struct tidy {
    uint64_t due_ns; /* 0: there are none */
    uint32_t partition_count, shard;
    bool waits;        /* for an answer */
    uint32_t failures; /* of the SSD, one behind the other */
    struct pst_wire_cleared partitions[PST_POOL_WANT_COUNT_MAX];
    uint8_t resume[PST_WIRE_KEY_BYTES_MAX];
    size_t resume_bytes;
    uint8_t data[PST_POOL_ANSWER_BYTES];
};

/* Another pool map: whether this node has the partition no more. */
void tidy_follow_map(struct pst_copies *c, uint32_t partition);
void tidy_step(struct pst_copies *c, uint64_t now_ns);
/* Whether by the pool map this node is dealt the partition anew. */
bool tidy_takes(const struct pst_copies *c, uint32_t partition);

#endif
