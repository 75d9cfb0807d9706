/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_pool.c: what a pool's master is asked and answers. What is taken is taken within its bounds, and says
 * the same when it has been written again.
 */
#include "fuzz.h"

#include "wire/pool.h"
#include "wire/pool_key.h"
#include "wire/pool_member.h"
#include "wire/pool_share.h"

static uint8_t again[PST_WIRE_QUESTION_BYTES_MAX + 4096];

static void fuzz_join(struct pst_bytes from)
{
    struct pst_pool_join one = {.start = 0}, two = {.start = 0};
    size_t bytes;

    if (pst_pool_get_join(from, &one) < 0)
        return;
    bytes = pst_pool_put_join(again, &one);
    pst_assert(bytes == from.len && pst_pool_get_join((struct pst_bytes){again, bytes}, &two) == 0);
    pst_assert(memcmp(&one, &two, sizeof(one)) == 0);
}

static void fuzz_heartbeat(struct pst_bytes from)
{
    static struct pst_pool_event events[PST_POOL_EVENTS_MAX];
    struct pst_pool_heartbeat beat;

    if (pst_pool_get_heartbeat(from, &beat, events) < 0)
        return;
    pst_assert(pst_pool_put_heartbeat(again, &beat, events) == from.len);
    pst_assert(memcmp(again, from.data, from.len) == 0);
}

static void fuzz_beat(struct pst_bytes from)
{
    struct pst_pool_want wants[PST_POOL_WANT_COUNT_MAX];
    struct pst_pool_beat beat;

    if (pst_pool_get_beat(from, &beat, wants) < 0)
        return;
    pst_assert(pst_pool_put_beat(again, &beat, wants) == from.len);
    pst_assert(memcmp(again, from.data, from.len) == 0);
}

static void fuzz_share(struct pst_bytes from)
{
    struct pst_pool_share share;

    if (pst_pool_get_share(from, &share) < 0)
        return;
    pst_assert(from.len == sizeof(share) && strlen(share.address) < sizeof(share.address));
    for (const char *at = share.address; *at; at++)
        pst_assert(*at >= 0x20 && *at <= 0x7e);
}

static void fuzz_items(struct pst_bytes from)
{
    struct pst_pool_want_place items[PST_POOL_PLACE_MAX];
    uint8_t host[PST_POOL_ID_BYTES];
    int count = pst_pool_get_items(from, host, sizeof(host), items, sizeof(items[0]), PST_POOL_PLACE_MAX);

    if (count < 0)
        return;
    pst_assert(pst_pool_put_items(again, host, sizeof(host), items, sizeof(items[0]), (uint32_t)count) ==
               from.len);
    pst_assert(memcmp(again, from.data, from.len) == 0);
}

static void fuzz_routes(struct pst_bytes from)
{
    const uint8_t *at = from.data, *end = at + from.len;
    struct pst_pool_route route;

    for (;;) {
        const uint8_t *begin = at;

        if (pst_pool_get_route(&at, end, &route) < 0) {
            pst_assert(at == begin);
            break;
        }
        pst_assert(at > begin && at <= end);
        pst_assert(pst_pool_put_route(again, &route) == again + (at - begin));
        pst_assert(memcmp(again, begin, (size_t)(at - begin)) == 0);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static void (*const decoders[])(struct pst_bytes from) = {fuzz_join,  fuzz_heartbeat, fuzz_beat,
                                                              fuzz_items, fuzz_routes,    fuzz_share};
    struct fuzz in = {data, bytes};
    uint32_t which = fuzz_below(&in, pst_count_of(decoders));
    size_t taken;
    uint8_t *copy = fuzz_take(&in, in.left, &taken);

    decoders[which]((struct pst_bytes){copy, taken});
    free(copy);
    return 0;
}
