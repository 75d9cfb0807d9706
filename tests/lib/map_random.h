/* SPDX-License-Identifier: Apache-2.0 */
/* map_random.h: pool maps as a directory may make them, drawn from a number. */
#ifndef PST_TEST_MAP_RANDOM_H
#define PST_TEST_MAP_RANDOM_H

#include "pool/map.h"

#include <stdio.h>

static uint64_t map_draw(uint64_t *state, uint64_t limit)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (*state >> 33) % limit;
}

static void map_random_member(struct pst_map *map, uint32_t number, uint64_t *state)
{
    struct pst_map_member *member = &map->members[number];

    member->epoch = map->epoch_next++;
    member->start = map_draw(state, UINT32_MAX);
    member->page_bytes = map_draw(state, 1 << 22);
    memcpy(member->id.bytes, &member->epoch, sizeof(member->epoch));
    member->host.bytes[0] = (uint8_t)map_draw(state, 4);
    (void)snprintf(member->address, sizeof(member->address), "10.0.0.%u:%u", number % 256,
                   (unsigned)map_draw(state, 65536));
    if (map_draw(state, 2))
        (void)snprintf(member->unix_path, sizeof(member->unix_path), "/run/penstock/%u", number);
    (void)snprintf(member->tags, sizeof(member->tags), "%.*s", (int)map_draw(state, 20),
                   "rack=7,zone=b,disk=1");
}

static void map_random_partition(struct pst_map *map, struct pst_map_partition *partition, uint64_t *state)
{
    partition->epoch = map_draw(state, 1000);
    partition->base = map_draw(state, partition->epoch + 1);
    partition->lost = map_draw(state, 5) == 0;
    for (uint32_t tries = 0; tries < PST_MAP_REPLICAS_MAX; tries++) {
        uint16_t member = (uint16_t)map_draw(state, map->members_max);

        if (map->members[member].epoch && pst_map_replica_at(partition, member) < 0)
            partition->replicas[partition->replica_count++] = member;
    }
    if (partition->replica_count > 0)
        partition->state = (uint8_t)(1 + map_draw(state, 2));
    for (uint32_t i = 0; i < partition->replica_count; i++)
        if (map->members[partition->replicas[i]].gone)
            partition->state = PST_MAP_INCOMPLETE;
    if (partition->state == PST_MAP_INCOMPLETE)
        partition->sparse = (uint8_t)map_draw(state, partition->replica_count + 1u);
}

static struct pst_map *map_random(uint32_t members_max, uint64_t seed)
{
    uint64_t state = seed;
    struct pst_map *map;
    int r = pst_map_open(members_max, seed, &map);

    pst_assert(r == 0);
    map->version = 1 + map_draw(&state, 1000);
    map->term = map_draw(&state, 10);
    for (uint32_t i = 0; i < members_max; i++)
        if (map_draw(&state, 3) > 0) {
            map_random_member(map, i, &state);
            map->members[i].gone = map_draw(&state, 8) == 0;
            map->members[i].kept_epoch = map_draw(&state, 8) == 0 ? map->epoch_next : 0;
        }
    for (uint32_t i = 0; i < map_draw(&state, PST_MAP_PREFIXES_MAX); i++) {
        struct pst_map_prefix *prefix = &map->prefixes[map->prefix_count++];

        prefix->placement = (uint8_t)map_draw(&state, 2);
        prefix->replicas = (uint8_t)(1 + map_draw(&state, PST_MAP_REPLICAS_MAX));
        prefix->bytes = (uint8_t)snprintf(prefix->text, sizeof(prefix->text), "p%03u/", i);
    }
    for (uint32_t i = 0; i < PST_PARTITIONS; i++)
        map_random_partition(map, &map->partitions[i], &state);
    map->share_count = map_draw(&state, 2) ? 1 + (uint32_t)map_draw(&state, PST_MAP_SHARES_MAX) : 1;
    for (uint32_t i = 1; i < map->share_count; i++) {
        struct pst_map_share *share = &map->shares[i];

        share->start = map_draw(&state, 3);
        if (share->start)
            (void)snprintf(share->address, sizeof(share->address), "10.0.1.%u:%u", i,
                           (unsigned)map_draw(&state, 65536));
    }
    return map;
}

#endif
