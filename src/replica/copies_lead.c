/* SPDX-License-Identifier: Apache-2.0 */
/*
 * copies_lead.c: hands partitions over to copies. The partition is held: nothing of it is served here any
 * more, and no write that begins is sent. When those that were sent have ended, the copy has all; then the
 * master is asked, until the partition has another epoch, and with it another primary or the one that it had.
 */
#include "replica/copies_priv.h"

/* Nothing is underway that changes whose the partition is: what asks from now on finds it held, and what
 * asked before is numbered up to @mark. */
static bool lead_hold(struct pst_copies *c, uint32_t partition, uint64_t *mark)
{
    bool holds;

    pst_assert(copies_primary(c, partition));
    pst_assert(!partition_leads(&c->partitions[partition]));
    pthread_mutex_lock(&c->lock);
    holds = !c->next && !pst_serving_held(c->serving, partition);
    if (holds)
        pst_serving_lead(c->serving, partition);
    *mark = c->number;
    pthread_mutex_unlock(&c->lock);
    return holds;
}

void lead_take_wants(struct pst_copies *c, const struct pst_pool_want *wants, uint32_t count)
{
    uint64_t mark = 0;

    pst_assert(count <= PST_POOL_WANT_COUNT_MAX);
    for (uint32_t i = 0; i < count && c->map && !c->quit; i++) {
        const struct pst_pool_want *want = &wants[i];
        struct partition *s = want->partition < PST_PARTITIONS ? &c->partitions[want->partition] : NULL;

        if (!want->leads || !s || !copies_primary(c, want->partition) ||
            c->map->partitions[want->partition].epoch != want->partition_epoch ||
            s->state != PARTITION_SHARED || !want->member_epoch ||
            copies_member_epoch(c, want->member) != want->member_epoch ||
            pst_map_replica_at(&c->map->partitions[want->partition], want->member) < 1 ||
            !lead_hold(c, want->partition, &mark))
            continue;
        partition_move(c, want->partition, EVENT_LEAD, want->member, want->member_epoch);
        pst_assert(mark >= s->led_mark);
        pst_assert(s->state == PARTITION_LEADS);
        s->led_mark = mark;
    }
}

bool lead_stops(const struct pst_copies *c, uint32_t partition, const struct pst_replica *replica)
{
    pst_assert(partition < PST_PARTITIONS);
    pst_assert(replica->number > 0);
    return partition_leads(&c->partitions[partition]) && replica->number > c->partitions[partition].led_mark;
}

bool lead_is_ready(const struct pst_copies *c, uint32_t partition)
{
    pst_assert(partition_leads(&c->partitions[partition]));
    pst_assert(c->partitions[partition].led_mark <= c->number);
    pst_list_each (at, &c->underway) {
        const struct pst_replica *replica = pst_list_entry(at, const struct pst_replica, link);

        if (replica->number > c->partitions[partition].led_mark)
            break;
        /* A partition that is handed over has no newcomer; what else is sent to one takes its time. */
        if (replica->writes[0].what != PST_REPLICA_SEND)
            return false;
    }
    return true;
}
