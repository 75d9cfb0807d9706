/* SPDX-License-Identifier: Apache-2.0 */
/*
 * share.c: a directory in several shares. The leading master's names in its pool map who has which, and has
 * the first itself. A process with another share *follows* that pool map: it has the same members, hears
 * from each of them of the share's keys, and decides nothing but where keys go.
 */
#include "directory/directory_priv.h"

#include "base/ms.h"

/* ---- the leader's ---- */

void share_begin(struct pst_directory *d, uint64_t now_ns)
{
    uint32_t count = (uint32_t)d->settings.directory_shards;

    pst_assert(count >= 1 && count <= PST_MAP_SHARES_MAX);
    for (uint32_t i = 0; i < PST_MAP_SHARES_MAX; i++) /* whoever has one may be heard of yet */
        d->shares_heard_ns[i] = now_ns;
    if (d->draft->share_count == count)
        return;
    d->draft->share_count = count;
    memset(d->draft->shares, 0, sizeof(d->draft->shares));
}

static bool is_same(const struct pst_map_share *share, uint64_t start, const char *address)
{
    return share->start == start && strcmp(share->address, address) == 0;
}

int pst_directory_take_share(struct pst_directory *d, uint32_t number, uint64_t start, const char *address,
                             uint64_t now_ns, uint64_t *version)
{
    struct pst_map_share *share;

    directory_check(d);
    pst_assert(!d->follows);
    members_wake(d, now_ns);
    if (number == 0 || number >= d->draft->share_count || start == 0 || !*address ||
        strnlen(address, PST_MAP_ADDRESS_BYTES) == PST_MAP_ADDRESS_BYTES)
        return -EINVAL;
    share = &d->draft->shares[number];
    /* Two processes have not one address: the one before has ended. */
    if (share->start && share->start != start && strcmp(share->address, address) != 0 &&
        now_ns < d->shares_heard_ns[number] + members_late_ns(d))
        return -EEXIST;
    d->shares_heard_ns[number] = now_ns;
    if (!is_same(share, start, address)) {
        share = &directory_draft(d)->shares[number];
        *share = (struct pst_map_share){.start = start};
        memcpy(share->address, address, strlen(address));
    }
    *version = is_same(&d->map->shares[number], start, address) ? d->map->version : d->draft->version;
    pst_assert(*version <= d->draft->version);
    return 0;
}

/* ---- a follower's ---- */

int pst_directory_open_share(const struct pst_directory_settings *settings, const struct pst_map *map,
                             uint32_t number, uint64_t start, uint64_t now_ns, struct pst_directory **out)
{
    struct pst_directory *d;
    int r;

    pst_assert(map->members_max == settings->members_max);
    pst_assert(number > 0 && number < map->share_count);
    r = pst_directory_open(settings, (struct pst_bytes){NULL, 0}, &map->pool, now_ns, &d);
    if (r < 0)
        return r;
    d->follows = true;
    d->share = (uint16_t)number;
    d->repair = (uint32_t)start; /* another time than any of the process before this one */
    d->map->share_count = d->draft->share_count = map->share_count;
    d->map->version = d->draft->version = d->map->term = d->draft->term = 0;
    r = pst_directory_follow(d, map, now_ns);
    pst_assert(r == 0); /* everything succeeds a directory that knows nothing */
    for (uint32_t i = 0; i < settings->members_max; i++)
        d->members[i].joined_ns = 0;
    *out = d;
    return 0;
}

static bool succeeds(const struct pst_directory *d, const struct pst_map *map)
{
    if (!pst_id_equal(&map->pool, &d->map->pool) || map->version < d->map->version ||
        map->term < d->map->term || map->epoch_next < d->map->epoch_next ||
        map->share_count != d->map->share_count)
        return false;
    for (uint32_t i = 0; i < map->members_max; i++)
        if (map->members[i].epoch && !map->members[i].gone && map->members[i].epoch < d->members[i].epoch)
            return false;
    return true;
}

int pst_directory_follow(struct pst_directory *d, const struct pst_map *map, uint64_t now_ns)
{
    directory_check(d);
    pst_assert(d->follows);
    pst_assert(map->members_max == d->settings.members_max);
    members_wake(d, now_ns);
    if (!succeeds(d, map))
        return -ESTALE;
    for (uint32_t i = 0; i < map->members_max; i++)
        if (map->members[i].drains != d->map->members[i].drains)
            members_drain(d, (uint16_t)i);
    pst_map_copy(d->map, map);
    pst_map_copy(d->draft, map);
    d->counters.maps++;
    members_follow_map(d, now_ns);
    directory_check(d);
    return 0;
}

/* What the member has got meanwhile is not known here, until it has reported in full. */
static void doubt(struct pst_directory *d, struct member *m)
{
    pst_assert(m->synced);
    m->synced = false;
    m->sequence_next = 0;
    d->unreported++;
}

void share_wake(struct pst_directory *d)
{
    pst_assert(d->follows);
    for (uint32_t i = 0; i < d->settings.members_max; i++)
        if (d->members[i].epoch && d->members[i].synced)
            doubt(d, &d->members[i]);
    pst_assert(d->unreported <= d->settings.members_max);
}

void share_tick(struct pst_directory *d, uint64_t now_ns)
{
    pst_assert(d->follows);
    for (uint32_t i = 0; i < d->settings.members_max; i++) {
        struct member *m = &d->members[i];

        /* Its leader may hear of it still. */
        if (m->epoch && m->synced && now_ns >= pst_deadline_ns(m->heard_ns, d->settings.member_ttl_ms))
            doubt(d, m);
    }
    pst_assert(d->unreported <= d->settings.members_max);
}

/* ---- both ---- */

bool pst_directory_has_share_of(const struct pst_directory *d, const struct pst_hash128 *keys, uint32_t count)
{
    directory_check(d);
    pst_assert(d->share < d->map->share_count);
    for (uint32_t i = 0; i < count && d->map->share_count > 1; i++)
        if (pst_map_share_of(&keys[i], d->map->share_count) != d->share)
            return false;
    return true;
}

bool share_is_told(const struct pst_directory *d, const struct pst_heartbeat *message)
{
    return message->share == d->share && message->share_last + 1u == d->map->share_count;
}
