/* SPDX-License-Identifier: Apache-2.0 */
/* claims.c: who has a say about a key: reservations that own it, commits that have locked it. And what a
 * session may hold. */
#include "store/claim.h"
#include "store/quota.h"
#include "store/shard_priv.h"
#include "store/write_priv.h"

static struct pst_claim **bucket_of(struct pst_claims *claims, uint64_t hash)
{
    return &claims->buckets[hash % PST_CLAIM_BUCKETS];
}

bool pst_claim_is(const struct pst_claim *claim, const struct pst_lookup *lookup)
{
    pst_assert(claim->key.len > 0);
    return claim->hash == lookup->hash && pst_bytes_equal(claim->key, lookup->key);
}

void pst_claim_add(struct pst_shard *s, struct pst_claim *claim)
{
    struct pst_claim **head = bucket_of(&s->claims, claim->hash);

    pst_assert(claim != *head);
    pst_assert(claim->kind <= PST_CLAIM_WHOLE);
    claim->next = *head;
    *head = claim;
    s->claims.locks += claim->kind != PST_CLAIM_RESERVATION;
}

void pst_claim_remove(struct pst_shard *s, struct pst_claim *claim)
{
    struct pst_claim **at = bucket_of(&s->claims, claim->hash);

    while (*at != claim) {
        pst_assert(*at);
        at = &(*at)->next;
    }
    pst_assert(claim->kind == PST_CLAIM_RESERVATION || s->claims.locks > 0);
    pst_assert(claim->kind <= PST_CLAIM_WHOLE);
    *at = claim->next;
    s->claims.locks -= claim->kind != PST_CLAIM_RESERVATION;
}

bool pst_claim_find(struct pst_shard *s, const struct pst_lookup *lookup, enum pst_claim_kind kind)
{
    const struct pst_claim *claim = *bucket_of(&s->claims, lookup->hash);

    pst_assert(kind <= PST_CLAIM_WHOLE);
    pst_assert(lookup->key.len > 0);
    while (claim && (claim->kind != kind || !pst_claim_is(claim, lookup)))
        claim = claim->next;
    return claim != NULL;
}

const uint32_t *pst_shard_locks(const struct pst_shard *s)
{
    return &s->claims.locks;
}

bool pst_shard_locked(const struct pst_shard *s, const struct pst_lookup *lookup, bool for_reading)
{
    const struct pst_claim *claim;

    if (pst_likely(!s->claims.locks))
        return false;
    pst_assert(lookup->key.len > 0);
    claim = s->claims.buckets[lookup->hash % PST_CLAIM_BUCKETS];
    for (; claim; claim = claim->next) {
        bool bars = claim->kind == PST_CLAIM_WHOLE || (claim->kind == PST_CLAIM_SHARED && !for_reading);

        if (bars && pst_claim_is(claim, lookup))
            return true;
    }
    return false;
}

/* ---- quotas ---- */

static int quota_take(_Atomic uint64_t *count, uint64_t more, uint64_t max)
{
    uint64_t before = atomic_fetch_add_explicit(count, more, memory_order_relaxed);

    if (!max || (before <= max && more <= max - before))
        return 0;
    pst_assert(max > 0);
    atomic_fetch_sub_explicit(count, more, memory_order_relaxed);
    return -EDQUOT;
}

static void quota_give(_Atomic uint64_t *count, uint64_t less)
{
    uint64_t before = atomic_fetch_sub_explicit(count, less, memory_order_relaxed);

    pst_assert(before >= less);
}

int pst_quota_take_reservation(struct pst_quota *q)
{
    int r = q ? quota_take(&q->reservations, 1, q->reservations_max) : 0;

    if (!q || r != 0 || !q->above)
        return r;
    r = pst_quota_take_reservation(q->above);
    if (r != 0)
        quota_give(&q->reservations, 1);
    return r;
}

int pst_quota_take_pin(struct pst_quota *q)
{
    int r = q ? quota_take(&q->pins, 1, q->pins_max) : 0;

    if (!q || r != 0 || !q->above)
        return r;
    r = pst_quota_take_pin(q->above);
    if (r != 0)
        quota_give(&q->pins, 1);
    return r;
}

int pst_quota_take_underway(struct pst_quota *q, uint64_t bytes)
{
    uint64_t max = q ? atomic_load_explicit(&q->bytes_max, memory_order_relaxed) : 0, kept;
    int r;

    if (!q)
        return 0;
    if (quota_take(&q->bytes, bytes, max) < 0) {
        pst_assert(max > 0); /* else there is no bound to be beyond */
        kept = atomic_load_explicit(&q->kept, memory_order_relaxed);
        return bytes <= max && kept <= max - bytes ? PST_BUSY : -EDQUOT;
    }
    r = pst_quota_take_underway(q->above, bytes);
    if (r != 0)
        quota_give(&q->bytes, bytes);
    return r;
}

int pst_quota_take_bytes(struct pst_quota *q, uint64_t bytes)
{
    int r = pst_quota_take_underway(q, bytes);

    for (; r == 0 && q; q = q->above)
        atomic_fetch_add_explicit(&q->kept, bytes, memory_order_relaxed);
    return r;
}

void pst_quota_give_reservation(struct pst_quota *q)
{
    for (; q; q = q->above)
        quota_give(&q->reservations, 1);
}

void pst_quota_give_pins(struct pst_quota *q, uint64_t count)
{
    pst_assert(count > 0);
    for (; q; q = q->above)
        quota_give(&q->pins, count);
}

void pst_quota_give_bytes(struct pst_quota *q, uint64_t bytes)
{
    for (struct pst_quota *at = q; at; at = at->above)
        quota_give(&at->kept, bytes);
    pst_quota_give_underway(q, bytes);
}

void pst_quota_give_underway(struct pst_quota *q, uint64_t bytes)
{
    for (; q; q = q->above)
        quota_give(&q->bytes, bytes);
}
