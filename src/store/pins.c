/*
 * pins.c: who keeps a record: references of transfers and views, and pins that people put on keys. Few
 * records have any, so they live in a table beside the records; the record's state says whether to look.
 */
#include "store/shard_priv.h"
#include "base/fault.h"

static uint64_t bucket_of(const struct pst_pins *pins, uint64_t ref)
{
    return (ref * 0x9e3779b97f4a7c15ull >> 20) & (pins->bucket_count - 1);
}

struct pst_pin *pst_pins_find(const struct pst_pins *pins, uint64_t ref)
{
    struct pst_pin *pin = pins->bucket_count ? pins->buckets[bucket_of(pins, ref)] : NULL;

    while (pin && pin->ref != ref)
        pin = pin->next;
    return pin;
}

static void push(struct pst_pins *pins, struct pst_pin *pin)
{
    struct pst_pin **head = &pins->buckets[bucket_of(pins, pin->ref)];

    pin->next = *head;
    *head = pin;
}

static void pull(struct pst_pins *pins, struct pst_pin *pin)
{
    struct pst_pin **at = &pins->buckets[bucket_of(pins, pin->ref)];

    while (*at != pin) {
        pst_assert(*at);
        at = &(*at)->next;
    }
    *at = pin->next;
}

static int grow(struct pst_pins *pins)
{
    struct pst_pins larger = {.bucket_count = pins->bucket_count ? 2 * pins->bucket_count : 64};

    larger.buckets = calloc(larger.bucket_count, sizeof(*larger.buckets));
    if (!larger.buckets)
        return -ENOMEM;
    for (uint64_t i = 0; i < pins->bucket_count; i++) {
        for (struct pst_pin *pin = pins->buckets[i], *next; pin; pin = next) {
            next = pin->next;
            push(&larger, pin);
        }
    }
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
    if (pins->count >= pins->bucket_count && grow(pins) < 0)
        return NULL;
    pin = pst_fault(PST_FAULT_pin_enomem) ? NULL : calloc(1, sizeof(*pin));
    if (!pin)
        return NULL;
    pin->ref = ref;
    pin->value_bytes = value_bytes;
    push(pins, pin);
    pins->count++;
    pins->bytes += value_bytes;
    return pin;
}

void pst_pins_remove(struct pst_pins *pins, struct pst_pin *pin)
{
    pull(pins, pin);
    pins->count--;
    pins->bytes -= pin->value_bytes;
    free(pin);
}

void pst_pins_rename(struct pst_pins *pins, struct pst_pin *pin, uint64_t ref)
{
    pull(pins, pin);
    pin->ref = ref;
    push(pins, pin);
}

void pst_pins_fini(struct pst_pins *pins)
{
    for (uint64_t i = 0; i < pins->bucket_count; i++) {
        for (struct pst_pin *pin = pins->buckets[i], *next; pin; pin = next) {
            next = pin->next;
            free(pin);
        }
    }
    free(pins->buckets);
    *pins = (struct pst_pins){0};
}

static struct pst_pin *pin_of(const struct pst_shard *s, const struct pst_record *r)
{
    struct pst_pin *pin;

    if (!(r->state & PST_RECORD_PINNED))
        return NULL;
    pin = pst_pins_find(&s->pins, pst_record_ref(s, r));
    pst_assert(pin);
    return pin;
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
    s->doomed_count -= pin->doomed;
    pst_pins_remove(&s->pins, pin);
    r->state &= (uint8_t)~PST_RECORD_PINNED;
    if (pst_record_listed(r->flags))
        pst_recency_loosened(s);
}

bool pst_record_loose(struct pst_shard *s, struct pst_record *r, uint64_t now_ns)
{
    struct pst_pin *pin = pin_of(s, r);

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
    pin->refs++;
    return 0;
}

void pst_shard_unref(struct pst_shard *s, struct pst_record *r)
{
    struct pst_pin *pin = pin_of(s, r);
    bool doomed;

    pst_assert(pin && pin->refs > 0);
    pin->refs--;
    doomed = pin->doomed;
    pin_settle(s, r, pin);
    if (r->state & PST_RECORD_PINNED)
        return;
    if (r->state & PST_RECORD_UNLINKED)
        pst_record_give(s, r);
    else if (doomed)
        pst_shard_unlink(s, r);
}

int pst_shard_pin(struct pst_shard *s, const struct pst_lookup *lookup, uint64_t ttl_ms, uint64_t now_ns)
{
    struct pst_record *r = pst_shard_find(s, lookup);
    struct pst_pin *pin;

    if (!r)
        return PST_MISS;
    pin = pin_add(s, r);
    if (!pin)
        return -ENOMEM;
    if (ttl_ms)
        pin->until_ns = pst_max(pin->until_ns, now_ns + pst_min(ttl_ms, UINT32_MAX) * 1000000);
    else
        pin->hard++;
    return 0;
}

int pst_shard_unpin(struct pst_shard *s, const struct pst_lookup *lookup)
{
    struct pst_record *r = pst_shard_find(s, lookup);
    struct pst_pin *pin;

    if (!r)
        return PST_MISS;
    pin = pin_of(s, r);
    if (!pin || !pin->hard)
        return -EINVAL;
    pin->hard--;
    if (pin->doomed && !pin->hard && !pin->until_ns)
        pst_shard_unlink(s, r); /* transfers and views keep its bytes, not its name */
    else
        pin_settle(s, r, pin);
    return 0;
}

int pst_pins_inherit(struct pst_shard *s, struct pst_record *from, struct pst_record *to)
{
    struct pst_pin *old = pin_of(s, from), *pin;

    if (!old || !(old->hard || old->until_ns))
        return 0;
    pin = pin_add(s, to);
    if (!pin)
        return -ENOMEM;
    pin->hard = old->hard;
    pin->until_ns = old->until_ns;
    old->hard = 0;
    old->until_ns = 0;
    pin_settle(s, from, old);
    return 0;
}

void pst_pins_expire(struct pst_shard *s, uint64_t now_ns)
{
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
