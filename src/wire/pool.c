/* SPDX-License-Identifier: Apache-2.0 */
/* pool.c: encoding and decoding of what a master is asked. Lengths are compared with what is there before
 * anything is read. */
#include "wire/pool.h"
#include "wire/pool_key.h"
#include "wire/pool_member.h"
#include "wire/pool_share.h"

/* The fixed part of a JOIN, then its texts. */
struct join_fixed {
    uint8_t pool[PST_POOL_ID_BYTES];
    uint8_t id[PST_POOL_ID_BYTES];
    uint8_t host[PST_POOL_ID_BYTES];
    uint64_t start;
    uint64_t page_bytes;
    uint64_t kept_epoch;
    uint8_t address_bytes, unix_bytes, tags_bytes;
    uint8_t spare[5];
};
_Static_assert(sizeof(struct join_fixed) == 80, "pool join");

_Static_assert(sizeof(struct pst_pool_heartbeat) + PST_POOL_EVENTS_MAX * PST_POOL_EVENT_BYTES <=
                   PST_WIRE_QUESTION_BYTES_MAX,
               "events of a heartbeat");

static uint8_t *pool_put_raw(uint8_t *at, const void *data, size_t bytes)
{
    if (bytes)
        memcpy(at, data, bytes);
    return at + bytes;
}

/* ---- members ---- */

static uint8_t *pool_put_text(uint8_t *at, const char *text, size_t cap, uint8_t *bytes)
{
    size_t len = strnlen(text, cap);

    pst_assert(len < cap);
    pst_assert(len <= UINT8_MAX);
    *bytes = (uint8_t)len;
    return pool_put_raw(at, text, len);
}

/* Part of the number, so that a master which does not know of it takes it for none that it knows. */
#define KEPT_DURABLE (1ull << 63)

size_t pst_pool_put_join(uint8_t *to, const struct pst_pool_join *join)
{
    struct join_fixed fixed = {.start = join->start,
                               .page_bytes = join->page_bytes,
                               .kept_epoch = join->kept_epoch | (join->kept_durable ? KEPT_DURABLE : 0)};
    uint8_t *at = to + sizeof(fixed);

    memcpy(fixed.pool, join->pool, sizeof(fixed.pool));
    memcpy(fixed.id, join->id, sizeof(fixed.id));
    memcpy(fixed.host, join->host, sizeof(fixed.host));
    at = pool_put_text(at, join->address, sizeof(join->address), &fixed.address_bytes);
    at = pool_put_text(at, join->unix_path, sizeof(join->unix_path), &fixed.unix_bytes);
    at = pool_put_text(at, join->tags, sizeof(join->tags), &fixed.tags_bytes);
    pool_put_raw(to, &fixed, sizeof(fixed));
    pst_assert((size_t)(at - to) <= PST_WIRE_QUESTION_BYTES_MAX);
    return (size_t)(at - to);
}

/* Texts end up in logs and in others' addresses: nothing that does not print. */
static const char *pool_get_text(const char *at, uint8_t bytes, char *to, size_t cap)
{
    if (!at || bytes >= cap)
        return NULL;
    for (uint8_t i = 0; i < bytes; i++) {
        if (at[i] < 0x20 || at[i] > 0x7e)
            return NULL;
    }
    memcpy(to, at, bytes);
    to[bytes] = '\0';
    return at + bytes;
}

int pst_pool_get_join(struct pst_bytes from, struct pst_pool_join *join)
{
    struct join_fixed fixed;
    const char *at = (const char *)from.data + sizeof(fixed);

    if (from.len < sizeof(fixed))
        return -EPROTO;
    memcpy(&fixed, from.data, sizeof(fixed));
    if (from.len != sizeof(fixed) + fixed.address_bytes + fixed.unix_bytes + fixed.tags_bytes)
        return -EPROTO;
    memcpy(join->pool, fixed.pool, sizeof(fixed.pool));
    memcpy(join->id, fixed.id, sizeof(fixed.id));
    memcpy(join->host, fixed.host, sizeof(fixed.host));
    join->start = fixed.start;
    join->page_bytes = fixed.page_bytes;
    join->kept_epoch = fixed.kept_epoch & ~KEPT_DURABLE;
    join->kept_durable = fixed.kept_epoch & KEPT_DURABLE;
    at = pool_get_text(at, fixed.address_bytes, join->address, sizeof(join->address));
    at = pool_get_text(at, fixed.unix_bytes, join->unix_path, sizeof(join->unix_path));
    at = pool_get_text(at, fixed.tags_bytes, join->tags, sizeof(join->tags));
    return at ? 0 : -EPROTO;
}

int pst_pool_get(struct pst_bytes from, void *to, size_t bytes)
{
    if (from.len != bytes)
        return -EPROTO;
    memcpy(to, from.data, bytes);
    return 0;
}

int pst_pool_get_share(struct pst_bytes from, struct pst_pool_share *share)
{
    const char *nul;
    int r = pst_pool_get(from, share, sizeof(*share));

    nul = r == 0 ? memchr(share->address, '\0', sizeof(share->address)) : NULL;
    if (!nul)
        return -EPROTO;
    return pool_get_text(share->address, (uint8_t)(nul - share->address), share->address,
                         sizeof(share->address))
               ? 0
               : -EPROTO;
}

size_t pst_pool_put_heartbeat(uint8_t *to, const struct pst_pool_heartbeat *beat,
                              const struct pst_pool_event *events)
{
    uint8_t *at = pool_put_raw(to, beat, sizeof(*beat));

    pst_assert(beat->event_count <= PST_POOL_EVENTS_MAX);
    for (uint32_t i = 0; i < beat->event_count; i++)
        at = pool_put_raw(at, &events[i], PST_POOL_EVENT_BYTES);
    pst_assert((size_t)(at - to) <= PST_WIRE_QUESTION_BYTES_MAX);
    return (size_t)(at - to);
}

int pst_pool_get_heartbeat(struct pst_bytes from, struct pst_pool_heartbeat *beat,
                           struct pst_pool_event *events)
{
    const uint8_t *at = from.data;

    if (from.len < sizeof(*beat))
        return -EPROTO;
    memcpy(beat, at, sizeof(*beat));
    at += sizeof(*beat);
    if (beat->event_count > PST_POOL_EVENTS_MAX ||
        from.len != sizeof(*beat) + beat->event_count * (size_t)PST_POOL_EVENT_BYTES)
        return -EPROTO;
    for (uint32_t i = 0; i < beat->event_count; i++, at += PST_POOL_EVENT_BYTES) {
        memcpy(&events[i], at, PST_POOL_EVENT_BYTES);
        if (events[i].kind > 1 || events[i].tier < 1 || events[i].tier > PST_POOL_TIER_COUNT)
            return -EPROTO;
    }
    return 0;
}

size_t pst_pool_put_beat(uint8_t *to, const struct pst_pool_beat *beat, const struct pst_pool_want *wants)
{
    pst_assert(beat->want_count <= PST_POOL_WANT_COUNT_MAX);
    return (size_t)(pool_put_raw(pool_put_raw(to, beat, sizeof(*beat)), wants,
                                 beat->want_count * sizeof(*wants)) -
                    to);
}

int pst_pool_get_beat(struct pst_bytes from, struct pst_pool_beat *beat,
                      struct pst_pool_want wants[PST_POOL_WANT_COUNT_MAX])
{
    if (from.len < sizeof(*beat))
        return -EPROTO;
    memcpy(beat, from.data, sizeof(*beat));
    if (beat->want_count > PST_POOL_WANT_COUNT_MAX ||
        from.len != sizeof(*beat) + beat->want_count * sizeof(*wants))
        return -EPROTO;
    pool_put_raw((uint8_t *)wants, (const uint8_t *)from.data + sizeof(*beat),
                 beat->want_count * sizeof(*wants));
    return 0;
}

/* ---- keys ---- */

size_t pst_pool_put_items(uint8_t *to, const void *head, size_t head_bytes, const void *items,
                          size_t item_bytes, uint32_t count)
{
    pst_assert(item_bytes > 0);
    pst_assert(head_bytes + count * item_bytes <= PST_WIRE_QUESTION_BYTES_MAX);
    return (size_t)(pool_put_raw(pool_put_raw(to, head, head_bytes), items, count * item_bytes) - to);
}

int pst_pool_get_items(struct pst_bytes from, void *head, size_t head_bytes, void *items, size_t item_bytes,
                       uint32_t count_max)
{
    size_t bytes = from.len - head_bytes;

    pst_assert(item_bytes > 0);
    pst_assert(count_max <= INT32_MAX);
    if (from.len < head_bytes || bytes % item_bytes || bytes / item_bytes > count_max)
        return -EPROTO;
    pool_put_raw(head, from.data, head_bytes);
    pool_put_raw(items, (const uint8_t *)from.data + head_bytes, bytes);
    return (int)(bytes / item_bytes);
}

uint8_t *pst_pool_put_route(uint8_t *at, const struct pst_pool_route *route)
{
    pst_assert(route->place_count <= PST_POOL_ROUTE_PLACES_MAX);
    at = pool_put_raw(at, route, offsetof(struct pst_pool_route, places));
    return pool_put_raw(at, route->places, route->place_count * sizeof(route->places[0]));
}

int pst_pool_get_route(const uint8_t **from, const uint8_t *end, struct pst_pool_route *route)
{
    const size_t fixed = offsetof(struct pst_pool_route, places);
    size_t left = (size_t)(end - *from), bytes;

    if (left < fixed)
        return -EPROTO;
    memcpy(route, *from, fixed);
    bytes = route->place_count * sizeof(route->places[0]);
    if (route->status > PST_POOL_INCOMPLETE || route->place_count > PST_POOL_ROUTE_PLACES_MAX ||
        left - fixed < bytes)
        return -EPROTO;
    pool_put_raw((uint8_t *)route->places, *from + fixed, bytes);
    *from += fixed + bytes;
    pst_assert(*from <= end);
    return 0;
}
