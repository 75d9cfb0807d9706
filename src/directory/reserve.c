/* SPDX-License-Identifier: Apache-2.0 */
/* reserve.c: room that was promised to puts which their nodes have not reported yet. A reservation ends when
 * the node reports the key, or after a while; it never outlives its member's share of it. */
#include "directory/directory_priv.h"

#include "base/ms.h"

int reserve_init(struct reservations *r, uint32_t max)
{
    uint32_t heads = 16;

    pst_assert(max > 0);
    while (heads < max)
        heads *= 2;
    r->max = max;
    r->head_mask = heads - 1;
    r->items = calloc(max, sizeof(*r->items));
    r->heads = calloc(heads, sizeof(*r->heads));
    return r->items && r->heads ? 0 : -ENOMEM;
}

void reserve_fini(struct reservations *r)
{
    pst_assert(r->live <= r->count && r->count <= r->max);
    free(r->items);
    free(r->heads);
}

static uint32_t *head_of(const struct reservations *r, const struct pst_hash128 *key)
{
    return &r->heads[key->low & r->head_mask];
}

static bool is_of(const struct reservation *item, const struct pst_hash128 *key)
{
    pst_assert(item->tier > 0 && item->tier < PST_POOL_TIERS); /* chains are of the live alone */
    return pst_hash128_equal(&item->key, key);
}

/* The room is the member's to report now, or free. */
static void release(struct pst_directory *d, uint32_t number)
{
    struct reservations *r = &d->reservations;
    struct reservation *item = &r->items[number - 1];
    struct member *m = &d->members[item->member];
    uint32_t *link = head_of(r, &item->key);

    pst_assert(item->tier);
    pst_assert(number > 0 && number <= r->max);
    pst_assert(item->member < d->settings.members_max);
    pst_assert(r->live > 0 && r->live <= r->count);
    while (*link != number) {
        pst_assert(*link); /* it is in its key's chain */
        link = &r->items[*link - 1].next;
    }
    *link = item->next;
    if (m->epoch == item->epoch) {
        pst_assert(m->tiers[item->tier].reserved_bytes >= item->bytes);
        m->tiers[item->tier].reserved_bytes -= item->bytes;
    }
    item->tier = 0;
    r->live--;
}

static void release_first(struct pst_directory *d, uint64_t now_ns)
{
    struct reservations *r = &d->reservations;

    pst_assert(r->count > 0);
    pst_assert(r->first < r->max);
    if (r->items[r->first].tier) {
        repair_later(d, now_ns); /* it counted as a copy */
        release(d, r->first + 1);
        d->counters.reservations_expired++;
    }
    r->first = (r->first + 1) % r->max;
    r->count--;
}

void reserve_add(struct pst_directory *d, const struct pst_put *put, struct pst_place place, uint64_t now_ns)
{
    struct reservations *r = &d->reservations;
    struct tier *tier = &d->members[place.member].tiers[place.tier];
    uint32_t *head = head_of(r, &put->key), at;
    uint64_t bytes;

    if (r->count == r->max)
        release_first(d, now_ns);
    /* What may be evicted makes room for itself: no more is promised than there is. */
    bytes = pst_min(put->bytes, tier->capacity_bytes - pst_min(tier->reserved_bytes, tier->capacity_bytes));
    pst_assert(r->count < r->max);
    pst_assert(place.member < d->settings.members_max);
    pst_assert(place.tier > 0 && place.tier < PST_POOL_TIERS);
    at = (r->first + r->count++) % r->max;
    pst_assert(!r->items[at].tier);
    r->items[at] = (struct reservation){.key = put->key,
                                        .bytes = bytes,
                                        .expires_ns = pst_deadline_ns(now_ns, d->settings.reserve_ms),
                                        .epoch = d->members[place.member].epoch,
                                        .member = place.member,
                                        .tier = place.tier,
                                        .copies = (uint8_t)pst_min(put->replicas, PST_PLACES_MAX),
                                        .next = *head};
    *head = at + 1;
    r->live++;
    tier->reserved_bytes += bytes;
    pst_assert(r->live <= r->count);
    d->counters.reservations++;
}

void reserve_find(const struct pst_directory *d, const struct pst_hash128 *key, struct pst_places *places)
{
    const struct reservations *r = &d->reservations;

    places->count = 0;
    for (uint32_t at = *head_of(r, key); at && places->count < PST_PLACES_MAX; at = r->items[at - 1].next)
        if (is_of(&r->items[at - 1], key) &&
            r->items[at - 1].epoch == d->members[r->items[at - 1].member].epoch)
            places->items[places->count++] =
                (struct pst_place){.member = r->items[at - 1].member, .tier = r->items[at - 1].tier};
    pst_assert(places->count <= PST_PLACES_MAX);
}

uint8_t reserve_met(struct pst_directory *d, const struct pst_hash128 *key, uint16_t member)
{
    const struct reservations *r = &d->reservations;
    uint8_t copies = 0;

    for (uint32_t at = *head_of(r, key), next; at; at = next) {
        const struct reservation *item = &r->items[at - 1];

        next = item->next;
        if (!is_of(item, key))
            continue;
        copies = item->copies > copies ? item->copies : copies;
        if (item->member != member)
            continue;
        release(d, at);
        d->counters.reservations_met++;
    }
    return copies;
}

void reserve_tick(struct pst_directory *d, uint64_t now_ns)
{
    struct reservations *r = &d->reservations;

    while (r->count > 0 && (!r->items[r->first].tier || now_ns >= r->items[r->first].expires_ns))
        release_first(d, now_ns);
}
