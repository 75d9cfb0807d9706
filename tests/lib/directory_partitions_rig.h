/* SPDX-License-Identifier: Apache-2.0 */
/* directory_partitions_rig.h: a directory of keys that have a home, and whose partitions lie where. */
#ifndef PST_TEST_DIRECTORY_PARTITIONS_RIG_H
#define PST_TEST_DIRECTORY_PARTITIONS_RIG_H

#include "lib/directory_rig.h"

static inline const struct pst_map_partition *partition_of(const struct rig *rig, uint32_t partition)
{
    return &pst_directory_map(rig->d)->partitions[partition];
}

static inline struct rig_node primary_of(const struct rig *rig, uint32_t partition)
{
    uint16_t member = partition_of(rig, partition)->replicas[0];

    return (struct rig_node){member, pst_directory_map(rig->d)->members[member].epoch};
}

static inline void place_home(struct rig *rig, uint32_t replicas)
{
    uint64_t version;

    assert_int_equal(
        pst_directory_place(rig->d, (struct pst_bytes){"h/", 2}, PST_PLACE_HOME, replicas, &version), 0);
}

/* Nodes on hosts of their own, with all partitions dealt out among them. */
static inline struct rig *rig_with(struct rig_node *nodes, uint32_t count, uint32_t replicas)
{
    struct rig *rig = rig_open();

    rig->settings.nodes_min = count;
    pst_directory_close(rig->d);
    assert_int_equal(pst_directory_open(&rig->settings, (struct pst_bytes){NULL, 0}, &(struct pst_id){{42}},
                                        rig->now_ns, &rig->d),
                     0);
    place_home(rig, replicas);
    for (uint32_t i = 0; i < count; i++) {
        assert_int_equal(partition_of(rig, 0)->state, PST_MAP_EMPTY);
        nodes[i] = rig_join(rig, (uint8_t)(i + 1), (uint8_t)(i + 1));
        rig_tick(rig);
    }
    rig_wait(rig, 5000, nodes, count);
    return rig;
}

static inline int change(struct rig *rig, enum pst_copy_change kind, uint32_t partition, uint64_t epoch,
                         struct rig_node by, struct rig_node copy)
{
    struct pst_copy_request request = {.member = by.member,
                                       .epoch = by.epoch,
                                       .change = kind,
                                       .partition = (uint16_t)partition,
                                       .partition_epoch = epoch,
                                       .copy = copy.member,
                                       .copy_epoch = copy.epoch};
    uint64_t version;

    return pst_directory_change_copy(rig->d, &request, &version);
}

static inline struct rig_node node_of(const struct rig *rig, uint16_t member)
{
    return (struct rig_node){member, pst_directory_map(rig->d)->members[member].epoch};
}

/* Two copies of the partition, and a node without. */
static inline struct rig *rig_of_three(uint32_t partition, struct rig_node *primary, struct rig_node *backup,
                                       struct rig_node *third)
{
    struct rig_node nodes[3];
    struct rig *rig = rig_with(nodes, 3, 2);

    *primary = primary_of(rig, partition);
    *backup = node_of(rig, partition_of(rig, partition)->replicas[1]);
    *third = nodes[3 - primary->member - backup->member];
    return rig;
}

#endif
