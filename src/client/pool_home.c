/* pool_home.c: operations on keys that lie home: to the primary of their slot, who decides as a node alone
 * does. */
#include "client/pool_trip_priv.h"

bool pst_pool_key_home(const struct pool *pool, struct pst_bytes key)
{
    const struct pst_view_prefix *prefix = pst_view_prefix_of(pool->view, key);

    return prefix && prefix->placement == PST_PLACE_HOME;
}

struct pool_node *pst_pool_primary(struct pool *pool, struct pst_bytes key)
{
    const struct pst_view_slot *slot = &pool->view->slots[pst_view_slot_of(pool->view, key)];

    return slot->state == PST_VIEW_SERVED ? pst_pool_node(pool, slot->copies[0]) : NULL;
}

static struct pst_bytes key_of(const struct trip *trip)
{
    return (struct pst_bytes){trip->op->key, trip->op->key_bytes};
}

void pst_home_begin(struct pool *pool, struct trip *trip)
{
    const struct pst_view_slot *slot = &pool->view->slots[pst_view_slot_of(pool->view, key_of(trip))];
    struct pool_node *node = pst_pool_primary(pool, key_of(trip));

    if (node) {
        pst_trip_send_first(pool, trip, node);
        return;
    }
    pst_pool_view_fetch(pool);
    pst_trip_later(pool, trip, NULL, slot->state == PST_VIEW_EMPTY ? PENSTOCK_BUSY : PENSTOCK_INCOMPLETE);
}

void pst_home_ended(struct pool *pool, struct trip *trip, struct leg *leg, int result)
{
    const struct pst_view_slot *slot = &pool->view->slots[pst_view_slot_of(pool->view, key_of(trip))];
    bool reads = trip->op->code == PENSTOCK_GET || trip->op->code == PENSTOCK_STAT_KEY;

    if (result == PENSTOCK_MISS && reads && slot->lost) {
        pst_pool_view_fetch(pool); /* it may be forgiven by now, which the next one is to hear of */
        result = PENSTOCK_LOST;
    }
    if (result == -ESTALE) /* another has it: no fault of the caller's, if no master says who in time */
        result = PENSTOCK_BUSY;
    if (result == PENSTOCK_BUSY || result == PENSTOCK_INCOMPLETE || pst_trip_unreachable(result)) {
        pst_pool_view_fetch(pool); /* another may have the slot by now, known to this one or not */
        pst_trip_later(pool, trip, leg, result);
    } else {
        trip->copies = (uint8_t)pst_op_copies(&leg->op);
        pst_trip_finish(pool, trip, leg, result);
    }
}
