/* SPDX-License-Identifier: Apache-2.0 */
/*
 * claim.h: who has a say about a key: reservations, and commits underway. Reservations and changes embed
 * claims; whoever must wait for a commit includes it.
 */
#ifndef PST_STORE_CLAIM_H
#define PST_STORE_CLAIM_H

#include "store/shard.h"

enum pst_claim_kind {
    PST_CLAIM_RESERVATION, /* a reservation that other reservations of the key have to respect */
    PST_CLAIM_SHARED,      /* a commit relies on the key: no writes until it has ended */
    PST_CLAIM_WHOLE,       /* a commit changes the key: no reads either */
};

/* Who has a say about a key, in one table a shard. */
struct pst_claim {
    struct pst_claim *next;
    struct pst_bytes key; /* its owner's */
    uint64_t hash;
    enum pst_claim_kind kind;
};

/* How many keys commits have locked at present, for a look without a call; lives as long as the shard. */
const uint32_t *pst_shard_locks(const struct pst_shard *shard);
/* True when a commit underway keeps an operation on the key waiting. */
bool pst_shard_locked(const struct pst_shard *shard, const struct pst_lookup *lookup, bool for_reading);

#endif
