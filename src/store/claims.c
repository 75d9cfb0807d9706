/* claims.c: who has a say about a key: slots that own it, commits that have locked it. And what a session may
 * hold. */
#include "store/shard_priv.h"

static struct pst_claim **bucket_of(struct pst_claims *claims, uint64_t hash)
{
    return &claims->buckets[hash % PST_CLAIM_BUCKETS];
}

bool pst_claim_is(const struct pst_claim *claim, const struct pst_lookup *lookup)
{
    return claim->hash == lookup->hash && pst_bytes_equal(claim->key, lookup->key);
}

void pst_claim_add(struct pst_shard *s, struct pst_claim *claim)
{
    struct pst_claim **head = bucket_of(&s->claims, claim->hash);

    claim->next = *head;
    *head = claim;
    s->claims.locks += claim->kind != PST_CLAIM_SLOT;
}

void pst_claim_remove(struct pst_shard *s, struct pst_claim *claim)
{
    struct pst_claim **at = bucket_of(&s->claims, claim->hash);

    while (*at != claim) {
        pst_assert(*at);
        at = &(*at)->next;
    }
    *at = claim->next;
    s->claims.locks -= claim->kind != PST_CLAIM_SLOT;
}

bool pst_claim_find(struct pst_shard *s, const struct pst_lookup *lookup, enum pst_claim_kind kind)
{
    const struct pst_claim *claim = *bucket_of(&s->claims, lookup->hash);

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
    claim = s->claims.buckets[lookup->hash % PST_CLAIM_BUCKETS];
    for (; claim; claim = claim->next) {
        bool bars = claim->kind == PST_CLAIM_WHOLE || (claim->kind == PST_CLAIM_SHARED && !for_reading);

        if (bars && pst_claim_is(claim, lookup))
            return true;
    }
    return false;
}

/* ---- quotas ---- */

static int take(_Atomic uint64_t *count, uint64_t more, uint64_t max)
{
    uint64_t before = atomic_fetch_add_explicit(count, more, memory_order_relaxed);

    if (!max || (before <= max && more <= max - before))
        return 0;
    atomic_fetch_sub_explicit(count, more, memory_order_relaxed);
    return -EDQUOT;
}

static void give(_Atomic uint64_t *count, uint64_t less)
{
    uint64_t before = atomic_fetch_sub_explicit(count, less, memory_order_relaxed);

    pst_assert(before >= less);
}

int pst_quota_take_slot(struct pst_quota *q)
{
    return q ? take(&q->slots, 1, q->slots_max) : 0;
}

int pst_quota_take_pin(struct pst_quota *q)
{
    return q ? take(&q->pins, 1, q->pins_max) : 0;
}

int pst_quota_take_bytes(struct pst_quota *q, uint64_t bytes)
{
    return q ? take(&q->bytes, bytes, q->bytes_max) : 0;
}

void pst_quota_give_slot(struct pst_quota *q)
{
    if (q)
        give(&q->slots, 1);
}

void pst_quota_give_pin(struct pst_quota *q)
{
    uint64_t pins = q ? atomic_load_explicit(&q->pins, memory_order_relaxed) : 0;

    while (pins && !atomic_compare_exchange_weak(&q->pins, &pins, pins - 1))
        ;
}

void pst_quota_give_bytes(struct pst_quota *q, uint64_t bytes)
{
    if (q)
        give(&q->bytes, bytes);
}
