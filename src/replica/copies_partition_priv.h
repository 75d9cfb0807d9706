/* SPDX-License-Identifier: Apache-2.0 */
/*
 * copies_partition_priv.h: what a primary does with each of its partitions: states, what moves them, and
 * handing over. Copies.c and the parts that fill and clear partitions drive it.
 */
#ifndef PST_COPIES_PARTITION_PRIV_H
#define PST_COPIES_PARTITION_PRIV_H

#include "call/replica.h"
#include "pool/map.h"
#include "wire/pool_member.h"

struct pst_copies;

/* What a primary does with a partition, until the partition has another epoch. */
enum partition_state {
    PARTITION_SHARED, /* writes go to its copies */
    PARTITION_CLEARS, /* and a newcomer drops what it has of it */
    PARTITION_FILLS,  /* writes go to the newcomer, too, which is sent what there is */
    PARTITION_ASKED,  /* the newcomer has all: the master is asked to count it, and may have done so */
    PARTITION_SPOILT, /* a newcomer failed, and may hear this epoch's messages late: the master is asked for
                    another */
    PARTITION_DROPS,  /* a copy failed: the master is asked to drop it, and no write is sent */
    PARTITION_LEADS,  /* held: the master is asked for an successor as soon as that has all; no later write is
                         sent */
    PARTITION_STOPS,  /* both: held, and a copy is to be dropped */
    PARTITION_STATES,
};

enum partition_event {
    EVENT_CLEAR,
    EVENT_CLEARED,
    EVENT_FILLED,
    EVENT_NEWCOMER_FAILS, /* it may have less than it should, or more */
    EVENT_NEWCOMER_ENDS,  /* its membership: it will not be counted */
    EVENT_COPY_FAILS,
    EVENT_LEAD,
    PARTITION_EVENTS,
};

/* What this node has of a partition. */
enum partition_part {
    PART_NONE,
    PART_COPY, /* it is the primary, or a copy */
    PART_LEFT, /* it was, or was to be, and others go on without it: what is here goes */
};

struct partition {
    uint64_t seen_epoch; /* of the pool map that the rest is about */
    enum partition_state state;
    uint16_t other; /* the newcomer, who is to be dropped, or the successor */
    uint64_t other_epoch;
    uint64_t led_mark; /* writes that began later are not sent */
    enum partition_part part;
    uint64_t part_base;     /* of the pool map that `part` is about */
    uint64_t cleared_epoch; /* in which what was here of before it was dealt out anew has gone */
    uint64_t refused_epoch; /* in which that could not be done */
    uint64_t given_up;      /* the last epoch of a filling that ended without this node being a copy */
};

/* Of @other, as the event says. Return: the partition's state from now on, which may be the one that it had.
 */
enum partition_state partition_move(struct pst_copies *c, uint32_t partition, enum partition_event event,
                                    uint16_t other, uint64_t other_epoch);
/* A newcomer gets its writes. */
bool partition_feeds(const struct partition *s);
/* No write of it may be sent before it has another epoch. */
bool partition_waits(const struct partition *s);
/* It is being handed over. */
bool partition_leads(const struct partition *s);
/* A new pool map is there. Return: true: whether the partition is held is settled. */
bool partition_follow_map(struct pst_copies *c, uint32_t partition);

/* ---- copies_lead.c ---- */

/* Of what the master wants, partitions that a copy is to have. */
void lead_take_wants(struct pst_copies *c, const struct pst_pool_want *wants, uint32_t count);
/* The partition goes to its successor, and is not served: writes that began later are not to be sent. */
bool lead_stops(const struct pst_copies *c, uint32_t partition, const struct pst_replica *replica);
/* Nothing that its successor must have is underway: it may be asked for. The lock is held. */
bool lead_is_ready(const struct pst_copies *c, uint32_t partition);

#endif
