/* SPDX-License-Identifier: Apache-2.0 */
/* map.c: pool maps, and pool maps as bytes. */
#include "pool/map.h"

#include "base/hex.h"
#include "base/reader.h"

#include <stdio.h>

#define COUNT_MAX (UINT64_MAX >> 2)

enum {
    MAP_MAGIC = 0x76747370, /* "pstv" */
    MAP_FORMAT = 2,
    MAP_FORMAT_SHARES = 3, /* of a directory in several shares alone: others stay legible to older programs */
    MEMBER_GONE = 1,       /* flags */
    MEMBER_DRAINS = 2,
    MEMBER_KEPT = 4,
    PARTITION_LOST = 1, /* and how many are sparse, in the bits above */
    PARTITION_SPARSE = 2,
    HEAD_BYTES = 60,
    PARTITION_BYTES_MAX = 19 + 2 * PST_MAP_REPLICAS_MAX,
    MEMBER_BYTES_MAX = 70 + 2 * PST_MAP_ADDRESS_BYTES + PST_MAP_TAGS_BYTES,
    PREFIX_BYTES_MAX = 3 + PST_MAP_PREFIX_BYTES_MAX,
    SHARE_BYTES_MAX = 9 + PST_MAP_ADDRESS_BYTES,
};

_Static_assert(sizeof(struct pst_id) == 16, "an id as bytes");
_Static_assert(PST_MAP_MEMBERS_MAX < PST_MAP_NONE, "no member has the number of none");
_Static_assert(PST_MAP_REPLICAS_MAX *PARTITION_SPARSE + PARTITION_LOST <= UINT8_MAX, "a partition's flags");
_Static_assert(PST_MAP_ADDRESS_BYTES <= UINT8_MAX + 1 && PST_MAP_TAGS_BYTES <= UINT8_MAX + 1,
               "texts have a byte of length");

void pst_id_print(const struct pst_id *id, char text[PST_ID_TEXT_BYTES])
{
    pst_hex_print(id->bytes, sizeof(id->bytes), text);
}

int pst_id_parse(const char *text, struct pst_id *id)
{
    if (strlen(text) != PST_ID_TEXT_BYTES - 1 ||
        strspn(text, "0123456789abcdefABCDEF") != PST_ID_TEXT_BYTES - 1)
        return -EINVAL;
    for (size_t i = 0; i < sizeof(id->bytes); i++) {
        unsigned byte = 0;

        sscanf(text + 2 * i, "%2x", &byte);
        id->bytes[i] = (uint8_t)byte;
    }
    return 0;
}

int pst_map_open(uint32_t members_max, uint64_t seed, struct pst_map **out)
{
    struct pst_map *map;

    pst_assert(members_max >= 1 && members_max <= PST_MAP_MEMBERS_MAX);
    map = calloc(1, sizeof(*map) + members_max * sizeof(map->members[0]));
    if (!map)
        return -ENOMEM;
    map->members_max = members_max;
    map->epoch_next = 1;
    map->share_count = 1;
    map->seed = seed;
    *out = map;
    return 0;
}

struct pst_map *pst_map_close(struct pst_map *map)
{
    free(map);
    return NULL;
}

void pst_map_copy(struct pst_map *to, const struct pst_map *from)
{
    pst_assert(to != from);
    pst_assert(to->members_max == from->members_max);
    memcpy(to, from, sizeof(*to) + from->members_max * sizeof(from->members[0]));
}

uint16_t pst_map_find(const struct pst_map *map, const struct pst_id *id)
{
    pst_assert(map->members_max <= PST_MAP_MEMBERS_MAX);
    for (uint32_t i = 0; i < map->members_max; i++)
        if (map->members[i].epoch && pst_id_equal(&map->members[i].id, id))
            return (uint16_t)i;
    return PST_MAP_NONE;
}

const struct pst_map_prefix *pst_map_prefix_of(const struct pst_map *map, struct pst_bytes key)
{
    const struct pst_map_prefix *longest = NULL;

    pst_assert(map->prefix_count <= PST_MAP_PREFIXES_MAX);
    for (uint32_t i = 0; i < map->prefix_count; i++) {
        const struct pst_map_prefix *prefix = &map->prefixes[i];

        if (pst_bytes_begin(key, pst_map_prefix_text(prefix)) && (!longest || prefix->bytes > longest->bytes))
            longest = prefix;
    }
    return longest;
}

uint32_t pst_map_replicas(const struct pst_map *map)
{
    uint32_t most = 0;

    for (uint32_t i = 0; i < map->prefix_count; i++)
        if (map->prefixes[i].placement == PST_PLACE_HOME)
            most = (uint32_t)pst_max(most, map->prefixes[i].replicas);
    return most;
}

int pst_map_replica_at(const struct pst_map_partition *partition, uint16_t member)
{
    pst_assert(partition->replica_count <= PST_MAP_REPLICAS_MAX);
    for (int i = 0; i < partition->replica_count; i++)
        if (partition->replicas[i] == member)
            return i;
    return -1;
}

bool pst_map_partition_is_good(const struct pst_map *map, const struct pst_map_partition *partition)
{
    if (partition->replica_count > PST_MAP_REPLICAS_MAX || partition->base > partition->epoch ||
        (partition->state == PST_MAP_EMPTY) != (partition->replica_count == 0) ||
        partition->sparse > (partition->state == PST_MAP_INCOMPLETE ? partition->replica_count : 0))
        return false;
    for (uint32_t i = 0; i < partition->replica_count; i++) {
        const struct pst_map_member *member;

        if (partition->replicas[i] >= map->members_max)
            return false;
        member = &map->members[partition->replicas[i]];
        if (!member->epoch || pst_map_replica_at(partition, partition->replicas[i]) != (int)i)
            return false;
        if (member->gone && partition->state == PST_MAP_SERVED)
            return false;
    }
    return true;
}

/* ---- to bytes ---- */

static void put_number(uint8_t **at, uint64_t number, size_t bytes)
{
    pst_assert(bytes == sizeof(number) || number >> 8 * bytes == 0);
    for (size_t i = 0; i < bytes; i++)
        *(*at)++ = (uint8_t)(number >> 8 * i);
}

static void put_bytes(uint8_t **at, const void *data, size_t bytes)
{
    memcpy(*at, data, bytes);
    *at += bytes;
}

static void put_text(uint8_t **at, const char *text, size_t bytes)
{
    pst_assert(bytes <= UINT8_MAX);
    put_number(at, bytes, 1);
    put_bytes(at, text, bytes);
}

static uint32_t member_count(const struct pst_map *map)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < map->members_max; i++)
        count += map->members[i].epoch != 0;
    pst_assert(count <= map->members_max);
    return count;
}

static void put_head(uint8_t **at, const struct pst_map *map)
{
    pst_assert(map->prefix_count <= PST_MAP_PREFIXES_MAX);
    pst_assert(map->epoch_next > 0);
    put_number(at, MAP_MAGIC, 4);
    put_number(at, map->share_count > 1 ? MAP_FORMAT_SHARES : MAP_FORMAT, 2);
    put_number(at, map->prefix_count, 2);
    put_number(at, member_count(map), 4);
    put_bytes(at, &map->pool, sizeof(map->pool));
    put_number(at, map->version, 8);
    put_number(at, map->term, 8);
    put_number(at, map->epoch_next, 8);
    put_number(at, map->seed, 8);
}

static void put_member(uint8_t **at, const struct pst_map_member *member, uint32_t number, bool stored)
{
    bool kept = stored && member->kept_epoch;

    pst_assert(member->epoch > 0);
    pst_assert(number < PST_MAP_MEMBERS_MAX);
    put_number(at, number, 2);
    put_number(at,
               (member->gone ? MEMBER_GONE : 0) | (member->drains ? MEMBER_DRAINS : 0) |
                   (kept ? MEMBER_KEPT : 0),
               1);
    put_bytes(at, &member->id, sizeof(member->id));
    put_bytes(at, &member->host, sizeof(member->host));
    put_number(at, member->epoch, 8);
    put_number(at, member->start, 8);
    put_number(at, member->page_bytes, 8);
    put_text(at, member->address, strlen(member->address));
    put_text(at, member->unix_path, strlen(member->unix_path));
    put_text(at, member->tags, strlen(member->tags));
    if (kept)
        put_number(at, member->kept_epoch, 8);
}

static void put_partition(uint8_t **at, const struct pst_map_partition *partition)
{
    pst_assert(partition->replica_count <= PST_MAP_REPLICAS_MAX &&
               partition->sparse <= partition->replica_count);
    put_number(at, partition->epoch, 8);
    put_number(at, partition->base, 8);
    put_number(at, partition->state, 1);
    put_number(at, (partition->lost ? PARTITION_LOST : 0) | partition->sparse * PARTITION_SPARSE, 1);
    put_number(at, partition->replica_count, 1);
    for (uint32_t i = 0; i < partition->replica_count; i++)
        put_number(at, partition->replicas[i], 2);
}

static void put_shares(uint8_t **at, const struct pst_map *map)
{
    pst_assert(map->share_count >= 1 && map->share_count <= PST_MAP_SHARES_MAX);
    if (map->share_count == 1)
        return;
    put_number(at, map->share_count, 2);
    for (uint32_t i = 1; i < map->share_count; i++) {
        put_number(at, map->shares[i].start, 8);
        put_text(at, map->shares[i].address, strlen(map->shares[i].address));
    }
}

size_t pst_map_bytes_max(uint32_t members_max)
{
    pst_assert(members_max <= PST_MAP_MEMBERS_MAX);
    return HEAD_BYTES + (size_t)PST_MAP_PREFIXES_MAX * PREFIX_BYTES_MAX +
           (size_t)members_max * MEMBER_BYTES_MAX + (size_t)PST_PARTITIONS * PARTITION_BYTES_MAX +
           (size_t)PST_MAP_SHARES_MAX * SHARE_BYTES_MAX + sizeof(uint32_t);
}

static size_t encode(const struct pst_map *map, bool stored, uint8_t *to, size_t cap)
{
    uint8_t *at = to;

    pst_assert(map->members_max <= PST_MAP_MEMBERS_MAX);
    if (cap < pst_map_bytes_max(map->members_max))
        return 0;
    put_head(&at, map);
    pst_assert(at - to == HEAD_BYTES);
    for (uint32_t i = 0; i < map->prefix_count; i++) {
        put_number(&at, map->prefixes[i].placement, 1);
        put_number(&at, map->prefixes[i].replicas, 1);
        put_text(&at, map->prefixes[i].text, map->prefixes[i].bytes);
    }
    for (uint32_t i = 0; i < map->members_max; i++)
        if (map->members[i].epoch)
            put_member(&at, &map->members[i], i, stored);
    for (uint32_t i = 0; i < PST_PARTITIONS; i++)
        put_partition(&at, &map->partitions[i]);
    put_shares(&at, map);
    pst_assert((size_t)(at - to) + sizeof(uint32_t) <= pst_map_bytes_max(map->members_max));
    put_number(&at, pst_crc32c(0, to, (size_t)(at - to)), 4);
    pst_assert((size_t)(at - to) <= cap);
    return (size_t)(at - to);
}

size_t pst_map_encode(const struct pst_map *map, uint8_t *to, size_t cap)
{
    return encode(map, false, to, cap);
}

size_t pst_map_encode_stored(const struct pst_map *map, uint8_t *to, size_t cap)
{
    return encode(map, true, to, cap);
}

/* ---- from bytes ---- */

/* A number that may be @most. */
static uint64_t take_below(struct pst_reader *in, size_t bytes, uint64_t most)
{
    uint64_t number = pst_read_number(in, bytes);

    pst_assert(bytes <= sizeof(number));
    in->bad |= number > most;
    return in->bad ? 0 : number;
}

/* One that is counted on, and has a next one. */
static uint64_t take_count(struct pst_reader *in)
{
    return take_below(in, 8, COUNT_MAX);
}

/* Text that prints, since logs and lists show it; it gets a NUL. */
static void take_text(struct pst_reader *in, char *to, size_t cap)
{
    size_t bytes = take_below(in, 1, cap - 1);
    const uint8_t *at = pst_read_bytes(in, bytes);

    pst_assert(cap > 0 && cap <= UINT8_MAX + 1);
    if (!at)
        return;
    for (size_t i = 0; i < bytes; i++)
        in->bad |= at[i] < 0x20 || at[i] > 0x7e;
    memcpy(to, at, bytes);
}

static void take_prefix(struct pst_reader *in, struct pst_map *map, uint32_t at)
{
    struct pst_map_prefix *prefix = &map->prefixes[at];

    pst_assert(at < PST_MAP_PREFIXES_MAX);
    prefix->placement = (uint8_t)take_below(in, 1, PST_PLACE_HOME);
    prefix->replicas = (uint8_t)take_below(in, 1, PST_MAP_REPLICAS_MAX);
    prefix->bytes = (uint8_t)pst_read_number(in, 1);
    pst_read_copy(in, prefix->text, prefix->bytes);
    in->bad |= prefix->replicas == 0;
    in->bad |= at > 0 && pst_bytes_compare(pst_map_prefix_text(prefix - 1), pst_map_prefix_text(prefix)) >= 0;
}

/* Members come in the order of their numbers, from @least on; *@large: this one's goes beyond the bound.
 * Return: the least of the next. */
static uint32_t take_member(struct pst_reader *in, struct pst_map *map, uint32_t least, bool *large)
{
    uint32_t number = (uint32_t)pst_read_number(in, 2);
    struct pst_map_member *member = &map->members[number];
    uint64_t flags;

    *large = number >= map->members_max;
    in->bad |= number < least || *large;
    if (in->bad)
        return least;
    pst_assert(number < map->members_max);
    pst_assert(map->epoch_next > 0);
    flags = take_below(in, 1, MEMBER_GONE | MEMBER_DRAINS | MEMBER_KEPT);
    member->gone = flags & MEMBER_GONE;
    member->drains = flags & MEMBER_DRAINS;
    pst_read_copy(in, &member->id, sizeof(member->id));
    pst_read_copy(in, &member->host, sizeof(member->host));
    in->bad |= pst_map_find(map, &member->id) != PST_MAP_NONE;
    member->epoch = take_below(in, 8, map->epoch_next - 1);
    member->start = pst_read_number(in, 8);
    member->page_bytes = pst_read_number(in, 8);
    take_text(in, member->address, sizeof(member->address));
    take_text(in, member->unix_path, sizeof(member->unix_path));
    take_text(in, member->tags, sizeof(member->tags));
    if (flags & MEMBER_KEPT)
        member->kept_epoch = pst_read_number(in, 8);
    in->bad |= (flags & MEMBER_KEPT) && member->kept_epoch == 0;
    in->bad |= member->epoch == 0;
    return number + 1;
}

static void take_partition(struct pst_reader *in, const struct pst_map *map,
                           struct pst_map_partition *partition)
{
    uint64_t flags;

    partition->epoch = take_count(in);
    partition->base = pst_read_number(in, 8);
    partition->state = (uint8_t)take_below(in, 1, PST_MAP_INCOMPLETE);
    flags = take_below(in, 1, PARTITION_LOST + PST_MAP_REPLICAS_MAX * PARTITION_SPARSE);
    partition->lost = flags & PARTITION_LOST;
    partition->sparse = (uint8_t)(flags / PARTITION_SPARSE);
    partition->replica_count = (uint8_t)take_below(in, 1, PST_MAP_REPLICAS_MAX);
    for (uint32_t i = 0; i < partition->replica_count; i++)
        partition->replicas[i] = (uint16_t)pst_read_number(in, 2);
    in->bad |= !pst_map_partition_is_good(map, partition);
    pst_assert(in->bad || partition->replica_count <= PST_MAP_REPLICAS_MAX);
}

static void take_shares(struct pst_reader *in, struct pst_map *map)
{
    uint32_t count = (uint32_t)take_below(in, 2, PST_MAP_SHARES_MAX);

    in->bad |= count < 2;
    map->share_count = in->bad ? 1 : count;
    for (uint32_t i = 1; i < map->share_count && !in->bad; i++) {
        struct pst_map_share *share = &map->shares[i];

        share->start = pst_read_number(in, 8);
        take_text(in, share->address, sizeof(share->address));
        in->bad |= (share->start == 0) != (*share->address == '\0');
    }
}

static void take_map(struct pst_reader *in, uint32_t prefixes, uint32_t members, struct pst_map *map,
                     bool *large)
{
    uint32_t least = 0;

    pst_read_copy(in, &map->pool, sizeof(map->pool));
    map->version = take_count(in);
    map->term = take_count(in);
    map->epoch_next = take_count(in);
    map->seed = pst_read_number(in, 8);
    map->prefix_count = prefixes;
    in->bad |= map->epoch_next == 0 || prefixes > PST_MAP_PREFIXES_MAX;
    for (uint32_t i = 0; i < prefixes && !in->bad; i++)
        take_prefix(in, map, i);
    for (uint32_t i = 0; i < members && !in->bad; i++)
        least = take_member(in, map, least, large);
    for (uint32_t i = 0; i < PST_PARTITIONS && !in->bad; i++)
        take_partition(in, map, &map->partitions[i]);
    pst_assert(in->bad || map->prefix_count <= PST_MAP_PREFIXES_MAX);
}

int pst_map_decode(struct pst_bytes from, uint32_t members_max, struct pst_map **out)
{
    struct pst_reader in = {.at = from.data, .left = from.len};
    uint32_t format, prefixes, members, crc;
    bool large = false;
    struct pst_map *map;
    int r;

    if (from.len < HEAD_BYTES + sizeof(crc) || pst_read_number(&in, 4) != MAP_MAGIC)
        return -EBADMSG;
    format = (uint32_t)pst_read_number(&in, 2);
    if (format != MAP_FORMAT && format != MAP_FORMAT_SHARES)
        return -EPROTONOSUPPORT;
    in.left -= sizeof(crc);
    crc = (uint32_t)pst_read_number(&(struct pst_reader){.at = in.at + in.left, .left = sizeof(crc)},
                                    sizeof(crc));
    if (pst_crc32c(0, from.data, from.len - sizeof(crc)) != crc)
        return -EBADMSG;
    prefixes = (uint32_t)pst_read_number(&in, 2);
    members = (uint32_t)pst_read_number(&in, 4);
    r = pst_map_open(members_max, 0, &map);
    if (r < 0)
        return r;
    take_map(&in, prefixes, members, map, &large);
    if (format == MAP_FORMAT_SHARES)
        take_shares(&in, map);
    if (in.bad || in.left > 0) {
        pst_map_close(map);
        return large ? -E2BIG : -EBADMSG;
    }
    pst_assert(map->prefix_count == prefixes);
    pst_assert(map->epoch_next > 0);
    *out = map;
    return 0;
}
