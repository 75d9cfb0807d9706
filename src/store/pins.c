/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pins.c: who keeps a record: references of transfers and views, and pins that people put on keys. Few
 * records have any, so they live in a table beside the records; the record's state says whether to look.
 */
#include "base/fault.h"
#include "base/ms.h"
#include "store/claim.h"
#include "store/evict_priv.h"
#include "store/link_priv.h"
#include "store/pins_priv.h"
#include "store/shard_priv.h"
#include "store/reservation.h"

/* Hard pins of one session on one key. */
struct share {
    struct pst_list of_pin, of_holder;
    struct pst_holder *holder;
    uint64_t count;
};

static uint64_t bucket_of(const struct pst_pins *pins, uint64_t ref)
{
    pst_assert(pins->bucket_count > 0);
    pst_assert((pins->bucket_count & (pins->bucket_count - 1)) == 0);
    return (ref * 0x9e3779b97f4a7c15ull >> 20) & (pins->bucket_count - 1);
}

struct pst_pin *pst_pins_find(const struct pst_pins *pins, uint64_t ref)
{
    struct pst_pin *pin = pins->bucket_count ? pins->buckets[bucket_of(pins, ref)] : NULL;

    while (pin && pin->ref != ref)
        pin = pin->next;
    return pin;
}

static void pins_push(struct pst_pins *pins, struct pst_pin *pin)
{
    struct pst_pin **head = &pins->buckets[bucket_of(pins, pin->ref)];

    pst_assert(pin->ref);
    pst_assert(pins->bucket_count > 0);
    pst_assert((pins->bucket_count & (pins->bucket_count - 1)) == 0);
    pin->next = *head;
    *head = pin;
}

static void pins_pull(struct pst_pins *pins, struct pst_pin *pin)
{
    struct pst_pin **at = &pins->buckets[bucket_of(pins, pin->ref)];

    while (*at != pin) {
        pst_assert(*at);
        at = &(*at)->next;
    }
    *at = pin->next;
}

static int pins_grow(struct pst_pins *pins)
{
    struct pst_pins larger = {.bucket_count = pins->bucket_count ? 2 * pins->bucket_count : 64};

    larger.buckets = calloc(larger.bucket_count, sizeof(*larger.buckets));
    if (!larger.buckets)
        return -ENOMEM;
    for (uint64_t i = 0; i < pins->bucket_count; i++) {
        for (struct pst_pin *pin = pins->buckets[i], *next; pin; pin = next) {
            next = pin->next;
            pins_push(&larger, pin);
        }
    }
    pst_assert(larger.bucket_count > pins->count);
    pst_assert((larger.bucket_count & (larger.bucket_count - 1)) == 0);
    larger.count = pins->count;
    larger.bytes = pins->bytes;
    free(pins->buckets);
    *pins = larger;
    return 0;
}

struct pst_pin *pst_pins_add(struct pst_pins *pins, uint64_t ref, uint64_t value_bytes)
{
    struct pst_pin *pin = pst_pins_find(pins, ref);

    if (pin)
        return pin;
    if (pins->count >= pins->bucket_count && pins_grow(pins) < 0)
        return NULL;
    pin = pst_fault(PST_FAULT_pin_enomem) ? NULL : calloc(1, sizeof(*pin));
    if (!pin)
        return NULL;
    pin->ref = ref;
    pin->value_bytes = value_bytes;
    pst_list_init(&pin->shares);
    pst_assert(ref);
    pst_assert(pins->bucket_count > 0);
    pins_push(pins, pin);
    pins->count++;
    pins->bytes += value_bytes;
    pst_assert(pins->count <= pins->bucket_count);
    return pin;
}

/* Takes back @count of a session's pins; the share goes with the last. */
static void share_less(struct share *share, uint64_t count)
{
    pst_assert(count > 0 && share->count >= count);
    pst_quota_give_pins(share->holder->quota, count);
    share->count -= count;
    if (share->count > 0)
        return;
    pst_list_remove(&share->of_pin);
    pst_list_remove(&share->of_holder);
    free(share);
}

static void shares_end(struct pst_list *shares, size_t member)
{
    while (!pst_list_empty(shares)) {
        struct share *share = (struct share *)(void *)((uint8_t *)shares->next - member);

        share_less(share, share->count);
    }
    pst_assert(pst_list_empty(shares));
}

void pst_pin_soften(struct pst_pin *pin)
{
    shares_end(&pin->shares, offsetof(struct share, of_pin));
    pin->hard = 0;
    pin->until_ns = 0;
    pst_assert(pst_list_empty(&pin->shares));
}

void pst_holder_disown(struct pst_holder *holder)
{
    shares_end(&holder->pins, offsetof(struct share, of_holder));
    pst_assert(pst_list_empty(&holder->pins));
}

void pst_pins_remove(struct pst_pins *pins, struct pst_pin *pin)
{
    pst_assert(pin->refs == 0);
    pst_assert(pins->count > 0);
    pst_assert(pins->bytes >= pin->value_bytes);
    pst_pin_soften(pin);
    pins_pull(pins, pin);
    pins->count--;
    pins->bytes -= pin->value_bytes;
    free(pin);
}

void pst_pins_rename(struct pst_pins *pins, struct pst_pin *pin, uint64_t ref)
{
    pst_assert(pin);
    pst_assert(!pst_pins_find(pins, ref));
    pins_pull(pins, pin);
    pin->ref = ref;
    pins_push(pins, pin);
}

void pst_pins_fini(struct pst_pins *pins)
{
    for (uint64_t i = 0; i < pins->bucket_count; i++) {
        for (struct pst_pin *pin = pins->buckets[i], *next; pin; pin = next) {
            next = pin->next;
            pst_pin_soften(pin);
            free(pin);
        }
    }
    free(pins->buckets);
    *pins = (struct pst_pins){0};
}

static struct pst_pin *pin_add(struct pst_shard *s, struct pst_record *r)
{
    struct pst_pin *pin = pst_pins_add(&s->pins, pst_record_ref(s, r), r->value_bytes);

    if (pin)
        r->state |= PST_RECORD_PINNED;
    return pin;
}

/* Ends the pin entry when nothing is left in it. */
static void pin_settle(struct pst_shard *s, struct pst_record *r, struct pst_pin *pin)
{
    if (pin->refs || pin->hard || pin->until_ns)
        return;
    pst_assert(s->doomed_count >= pin->doomed);
    pst_assert(r->state & PST_RECORD_PINNED);
    s->doomed_count -= pin->doomed;
    pst_pins_remove(&s->pins, pin);
    r->state &= (uint8_t)~PST_RECORD_PINNED;
    if (pst_record_listed(r->flags)) {
        pst_recency_loosened(s);
        pst_prefix_quota_loosened(s, r);
    }
}

bool pst_record_loose(struct pst_shard *s, struct pst_record *r, uint64_t now_ns)
{
    struct pst_pin *pin = pst_record_pin(s, r);

    if (!pin)
        return true;
    if (pin->until_ns && pin->until_ns <= now_ns)
        pin->until_ns = 0;
    if (pin->refs || pin->hard || pin->until_ns)
        return false;
    if (!pin->doomed) /* a doomed record keeps its entry until it goes: pst_pins_expire() looks there */
        pin_settle(s, r, pin);
    return true;
}

int pst_shard_ref(struct pst_shard *s, struct pst_record *r)
{
    struct pst_pin *pin = pin_add(s, r);

    if (!pin)
        return -ENOMEM;
    pst_assert(pin->refs < UINT32_MAX);
    pin->refs++;
    return 0;
}

void pst_shard_unref(struct pst_shard *s, struct pst_record *r)
{
    struct pst_pin *pin = pst_record_pin(s, r);
    bool doomed;

    pst_assert(pin && pin->refs > 0);
    pin->refs--;
    doomed = pin->doomed;
    pst_assert(!doomed || !(r->state & PST_RECORD_UNLINKED));
    pin_settle(s, r, pin);
    if (r->state & PST_RECORD_PINNED)
        return;
    if (r->state & PST_RECORD_UNLINKED)
        pst_record_give(s, r);
    else if (doomed)
        pst_shard_unlink(s, r);
}

static struct share *share_of(const struct pst_pin *pin, const struct pst_holder *holder)
{
    pst_list_each (it, &pin->shares) {
        struct share *share = pst_list_entry(it, struct share, of_pin);

        if (share->holder == holder)
            return share;
    }
    return NULL;
}

/* One more, which its session counts. Return: 0, -EDQUOT, -ENOMEM. */
static int share_more(struct pst_pin *pin, struct pst_holder *holder)
{
    struct share *share = share_of(pin, holder);
    int r = pst_quota_take_pin(holder->quota);

    if (r < 0)
        return r;
    if (!share) {
        share = calloc(1, sizeof(*share));
        if (!share) {
            pst_quota_give_pins(holder->quota, 1);
            return -ENOMEM;
        }
        share->holder = holder;
        pst_list_push_back(&pin->shares, &share->of_pin);
        pst_list_push_back(&holder->pins, &share->of_holder);
    }
    share->count++;
    pst_assert(share->holder == holder);
    return 0;
}

/* Whose pin it is that is taken back: the holder's own, else one that no session counts, else anyone's. */
static struct share *share_to_end(const struct pst_pin *pin, const struct pst_holder *holder)
{
    struct share *own = holder ? share_of(pin, holder) : NULL;
    uint64_t counted = 0;

    if (own || pst_list_empty(&pin->shares))
        return own;
    pst_list_each (it, &pin->shares)
        counted += pst_list_entry(it, struct share, of_pin)->count;
    pst_assert(counted <= pin->hard);
    return counted < pin->hard ? NULL : pst_list_first(&pin->shares, struct share, of_pin);
}

int pst_shard_pin(struct pst_shard *s, struct pst_holder *holder, const struct pst_lookup *lookup,
                  uint64_t ttl_ms, uint64_t now_ns)
{
    int result = 0;
    struct pst_record *r = pst_shard_find(s, lookup);
    struct pst_pin *pin;

    if (!r)
        return PST_MISS;
    pin = pin_add(s, r);
    if (!pin)
        return -ENOMEM;
    if (ttl_ms)
        pin->until_ns = pst_max(pin->until_ns, pst_deadline_ns(now_ns, pst_min(ttl_ms, UINT32_MAX)));
    else if (holder && holder->quota)
        result = share_more(pin, holder);
    pin->hard += !ttl_ms && result == 0;
    pin_settle(s, r, pin);
    pst_assert(result <= 0);
    return result;
}

int pst_shard_unpin(struct pst_shard *s, struct pst_holder *holder, const struct pst_lookup *lookup)
{
    struct pst_record *r = pst_shard_find(s, lookup);
    struct share *share;
    struct pst_pin *pin;

    if (!r)
        return PST_MISS;
    pin = pst_record_pin(s, r);
    if (!pin || !pin->hard)
        return -EINVAL;
    if (pin->doomed && pst_shard_locked(s, lookup, false))
        return PST_BUSY;
    share = share_to_end(pin, holder);
    if (share)
        share_less(share, 1);
    pin->hard--;
    if (pin->doomed && !pin->hard && !pin->until_ns)
        pst_shard_unlink(s, r); /* transfers and views keep its bytes, not its name */
    else
        pin_settle(s, r, pin);
    return 0;
}

int pst_pins_inherit(struct pst_shard *s, struct pst_record *from, struct pst_record *to)
{
    struct pst_pin *old = pst_record_pin(s, from), *pin;

    pst_assert(from != to);
    if (!old || !(old->hard || old->until_ns))
        return 0;
    pin = pin_add(s, to);
    if (!pin)
        return -ENOMEM;
    pin->hard = old->hard;
    pin->until_ns = old->until_ns;
    pst_list_splice(&pin->shares, &old->shares);
    pst_pin_soften(old);
    pin_settle(s, from, old);
    return 0;
}

void pst_pins_expire(struct pst_shard *s, uint64_t now_ns)
{
    pst_assert(s->doomed_count <= s->pins.count);
    if (!s->doomed_count)
        return;
    for (uint64_t i = 0; i < s->pins.bucket_count; i++) {
        for (struct pst_pin *pin = s->pins.buckets[i], *next; pin; pin = next) {
            struct pst_record *r = pst_ref_record(s, pin->ref);

            next = pin->next;
            if (pin->doomed && pst_record_loose(s, r, now_ns))
                pst_shard_unlink(s, r);
        }
    }
}
