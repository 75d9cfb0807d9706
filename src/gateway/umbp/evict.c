/* SPDX-License-Identifier: Apache-2.0 */
/*
 * evict.c: the thread that tells nodes which are too full what to evict, by EvictKey of their own service.
 * What became of it comes with their heartbeats: a key that is still there is told of again.
 */
#include "gateway/umbp/umbp_priv.h"

#include "base/ms.h"
#include "base/wait.h"
#include "gateway/umbp/peer_priv.h"

#include <stdio.h>

enum {
    VICTIMS_A_CALL = 4096,
    CALL_BYTES_MAX = 1 << 20, /* gRPC takes 4 MiB unless it is told to take more */
    PEER_MS = 1000,           /* as mori's own master gives a node */
    FIELD_KEYS = 1,
    FIELD_TIERS = 2, /* of nodes that tell their media apart; others pass over it */
};

/* What one node is told. */
struct telling {
    uint32_t number; /* of the guest */
    char address[PST_GUEST_NAME_BYTES_MAX + 1];
    struct answer request, tiers;
    struct pst_bytes keys[VICTIMS_A_CALL];
};

/* The next node from *@first on that is too full. Return: whether there is one. */
static bool next_telling(const struct umbp *umbp, uint32_t *first, struct telling *t)
{
    struct pst_guest_desk desk;
    struct pst_guest_place from;
    uint32_t count, told = 0;

    pst_assert(t->request.bytes == 0 && t->tiers.bytes == 0);
    if (!umbp->ops->enter(umbp->ctx, &desk))
        return false;
    count = pst_guests_victims(desk.guests, first, pst_now_ns(), &from, t->keys, VICTIMS_A_CALL);
    pst_assert(count <= VICTIMS_A_CALL);
    pst_assert(count == 0 || from.guest.peer_address.len < sizeof(t->address));
    for (; told < count && t->request.bytes < CALL_BYTES_MAX; told++) {
        answer_text(&t->request, FIELD_KEYS, t->keys[told]);
        answer_packed(&t->tiers, from.tier);
    }
    pst_guests_totals(desk.guests)->told_to_evict += told;
    if (count > 0) {
        t->number = from.guest.number;
        snprintf(t->address, sizeof(t->address), "%.*s", (int)from.guest.peer_address.len,
                 (const char *)from.guest.peer_address.data);
    }
    umbp->ops->leave(umbp->ctx);
    return count > 0;
}

static void note_answer(const struct umbp *umbp, const struct telling *t, bool well)
{
    struct pst_guest_desk desk;

    pst_assert(t->address[0]);
    if (!umbp->ops->enter(umbp->ctx, &desk))
        return;
    pst_guests_told(desk.guests, t->number, pst_bytes_of(t->address), well, pst_now_ns());
    umbp->ops->leave(umbp->ctx);
}

/* All that are too full now, one behind the other. */
static void tell_all(const struct umbp *umbp)
{
    struct telling *t = calloc(1, sizeof(*t));
    uint32_t first = 0;

    while (t && !umbp->stopping && next_telling(umbp, &first, t)) {
        struct pst_bytes message;

        answer_part(&t->request, FIELD_TIERS, &t->tiers);
        message = (struct pst_bytes){t->request.data, t->request.bytes};
        if (!t->request.failed)
            note_answer(umbp, t,
                        peer_call(t->address, "EvictKey", message, pst_deadline_ns(pst_now_ns(), PEER_MS)) ==
                            0);
        answer_free(&t->request);
    }
    free(t);
}

static void *evict_main(void *arg)
{
    struct umbp *umbp = arg;

    pst_assert(umbp->evict_ms > 0);
    pst_assert(umbp->ops && umbp->ops->enter);
    pthread_mutex_lock(&umbp->lock);
    while (!umbp->stopping) {
        pst_cond_wait_until(&umbp->stir, &umbp->lock, pst_deadline_ns(pst_now_ns(), umbp->evict_ms));
        pthread_mutex_unlock(&umbp->lock);
        if (!umbp->stopping)
            tell_all(umbp);
        pthread_mutex_lock(&umbp->lock);
    }
    pthread_mutex_unlock(&umbp->lock);
    return NULL;
}

int evict_begin(struct umbp *umbp)
{
    int r;

    pst_assert(!umbp->evicting);
    pthread_mutex_init(&umbp->lock, NULL);
    pst_cond_init(&umbp->stir);
    r = umbp->evict_ms > 0 ? -pthread_create(&umbp->thread, NULL, evict_main, umbp) : 0;
    umbp->evicting = r == 0 && umbp->evict_ms > 0;
    return r;
}

void evict_end(struct umbp *umbp)
{
    pst_assert(!umbp->stopping);
    pthread_mutex_lock(&umbp->lock);
    umbp->stopping = true;
    pthread_cond_signal(&umbp->stir);
    pthread_mutex_unlock(&umbp->lock);
    if (umbp->evicting)
        pthread_join(umbp->thread, NULL);
    umbp->evicting = false;
    pthread_cond_destroy(&umbp->stir);
    pthread_mutex_destroy(&umbp->lock);
}
