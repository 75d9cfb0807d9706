/* SPDX-License-Identifier: Apache-2.0 */
/* lease.c: a node's own rules; see lease.h. */
#include "pool/lease.h"

#include "base/ms.h"

bool pst_lease_grant(struct pst_lease *lease, uint64_t sent_ns, uint64_t lease_ms, uint64_t version,
                     uint64_t term)
{
    if (term < lease->term)
        return false;
    lease->term = term;
    if (lease_ms == 0)
        return true;
    lease->until_ns = pst_max(lease->until_ns, pst_deadline_ns(sent_ns, lease_ms));
    lease->version = pst_max(lease->version, version);
    pst_assert(lease->term == term);
    return true;
}

void pst_lease_drop(struct pst_lease *lease)
{
    lease->until_ns = 0;
}

bool pst_lease_holds(const struct pst_lease *lease, uint64_t map_version, uint64_t now_ns)
{
    return now_ns < lease->until_ns && map_version >= lease->version;
}

enum pst_serve pst_lease_serve(const struct pst_lease *lease, const struct pst_map *map, uint16_t member,
                               uint64_t member_epoch, uint32_t partition_number, uint64_t now_ns)
{
    const struct pst_map_partition *partition = &map->partitions[partition_number];

    pst_assert(partition_number < PST_PARTITIONS);
    pst_assert(member < map->members_max);
    if (partition->state != PST_MAP_SERVED)
        return PST_SERVE_INCOMPLETE;
    if (partition->replicas[0] != member || map->members[member].epoch != member_epoch)
        return PST_SERVE_ELSEWHERE;
    return pst_lease_holds(lease, map->version, now_ns) ? PST_SERVE_YES : PST_SERVE_BUSY;
}

enum pst_epoch pst_lease_epoch(const struct pst_map *map, uint32_t partition, uint64_t message_epoch)
{
    pst_assert(partition < PST_PARTITIONS);
    if (message_epoch == map->partitions[partition].epoch)
        return PST_EPOCH_SAME;
    return message_epoch < map->partitions[partition].epoch ? PST_EPOCH_OLD : PST_EPOCH_NEW;
}
