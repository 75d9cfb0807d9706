/* SPDX-License-Identifier: Apache-2.0 */
/*
 * copies_partition.c: what a primary does with each of its partitions, as states and what moves them. Another
 * epoch of the partition begins anew: what the master was asked for has been done, or will not be.
 */
#include "replica/copies_priv.h"

/*
 * A newcomer that is being filled is none of the partition's copies, and never will be without being asked
 * for. Once it was, the pool map may count it at any moment: only another epoch tells whether it does. And
 * only another epoch keeps what was sent to one that failed from being carried out while it is filled again.
 */
#define STAYS(state)                                                                                         \
    {                                                                                                        \
        state, state, state, state, state, state, state                                                      \
    }
static const uint8_t moves[PARTITION_STATES][PARTITION_EVENTS] = {
    /* clear, cleared, filled, newcomer fails, newcomer ends, copy fails, lead */
    [PARTITION_SHARED] = {PARTITION_CLEARS, PARTITION_SHARED, PARTITION_SHARED, PARTITION_SHARED,
                          PARTITION_SHARED, PARTITION_DROPS, PARTITION_LEADS},
    [PARTITION_CLEARS] = {PARTITION_CLEARS, PARTITION_FILLS, PARTITION_CLEARS, PARTITION_SPOILT,
                          PARTITION_SPOILT, PARTITION_DROPS, PARTITION_CLEARS},
    [PARTITION_FILLS] = {PARTITION_FILLS, PARTITION_FILLS, PARTITION_ASKED, PARTITION_SPOILT,
                         PARTITION_SPOILT, PARTITION_DROPS, PARTITION_FILLS},
    [PARTITION_ASKED] = {PARTITION_ASKED, PARTITION_ASKED, PARTITION_ASKED, PARTITION_DROPS, PARTITION_SPOILT,
                         PARTITION_DROPS, PARTITION_ASKED},
    [PARTITION_SPOILT] = {PARTITION_SPOILT, PARTITION_SPOILT, PARTITION_SPOILT, PARTITION_SPOILT,
                          PARTITION_SPOILT, PARTITION_DROPS, PARTITION_SPOILT},
    [PARTITION_DROPS] = STAYS(PARTITION_DROPS),
    [PARTITION_LEADS] = {PARTITION_LEADS, PARTITION_LEADS, PARTITION_LEADS, PARTITION_LEADS, PARTITION_LEADS,
                         PARTITION_STOPS, PARTITION_LEADS},
    [PARTITION_STOPS] = STAYS(PARTITION_STOPS),
};

bool partition_feeds(const struct partition *s)
{
    return s->state == PARTITION_FILLS || s->state == PARTITION_ASKED;
}

bool partition_waits(const struct partition *s)
{
    return s->state == PARTITION_DROPS || s->state == PARTITION_STOPS;
}

bool partition_leads(const struct partition *s)
{
    return s->state == PARTITION_LEADS || s->state == PARTITION_STOPS;
}

enum partition_state partition_move(struct pst_copies *c, uint32_t partition, enum partition_event event,
                                    uint16_t other, uint64_t other_epoch)
{
    struct partition *s = &c->partitions[partition];
    enum partition_state next;

    pst_assert(partition < PST_PARTITIONS);
    pst_assert(s->state < PARTITION_STATES);
    pst_assert(event < PARTITION_EVENTS);
    pst_assert(s->seen_epoch == c->map->partitions[partition].epoch); /* each state is this epoch's */
    pst_assert(event != EVENT_CLEARED || s->state == PARTITION_CLEARS);
    pst_assert(event != EVENT_LEAD ||
               (s->state == PARTITION_SHARED && pst_serving_held(c->serving, partition)));
    pst_assert((event != EVENT_COPY_FAILS && event != EVENT_LEAD) ||
               pst_map_replica_at(&c->map->partitions[partition], other) >= 0);
    next = moves[s->state][event];
    if (next != s->state || event == EVENT_COPY_FAILS) {
        s->state = next;
        s->other = other;
        s->other_epoch = other_epoch;
        c->changes_ns = 0;
    }
    return next;
}

bool partition_follow_map(struct pst_copies *c, uint32_t partition)
{
    struct partition *s = &c->partitions[partition];
    uint64_t epoch = c->map->partitions[partition].epoch;
    bool led = partition_leads(s);

    pst_assert(partition < PST_PARTITIONS);
    pst_assert(s->state < PARTITION_STATES);
    if (s->seen_epoch == epoch)
        return led;
    led = led && pst_map_lineage(s->seen_epoch) == pst_map_lineage(epoch); /* else it is taken over */
    s->seen_epoch = epoch;
    s->state = PARTITION_SHARED;
    /* The serving has the pool map in a moment: until then it is to keep what is another's now. */
    if (led && copies_primary(c, partition))
        pst_serving_hold(c->serving, partition, false);
    return led;
}
