/* SPDX-License-Identifier: Apache-2.0 */
/* figures.h: what a directory tells of itself and its members. */
#ifndef PST_DIRECTORY_FIGURES_H
#define PST_DIRECTORY_FIGURES_H

#include "directory/directory.h"

struct pst_directory_state {
    uint32_t members, members_reporting, members_suspect;
    uint64_t entries, entries_bytes;
    uint64_t reservations;
    struct pst_tier_use tiers[PST_POOL_TIERS];
    uint64_t reserved_bytes[PST_POOL_TIERS];
};

/* One member. */
struct pst_directory_node {
    uint16_t member;
    bool drains, suspect;
    bool drained;               /* nothing is needed from it: it may stop, and nothing is lost */
    bool stuck;                 /* what is needed from it has no other place until a node joins */
    uint32_t primaries, copies; /* partitions */
    uint64_t keys_left; /* of those that lie anywhere: too few others have them, as far as it has looked */
    struct pst_tier_use tiers[PST_POOL_TIERS];
};

/* Those from number @first on, @max at the most. Return: how many. */
uint32_t pst_directory_nodes(const struct pst_directory *d, uint32_t first, uint64_t now_ns,
                             struct pst_directory_node *nodes, uint32_t max);
const struct pst_directory_counters *pst_directory_counters(const struct pst_directory *d);
void pst_directory_state(const struct pst_directory *d, uint64_t now_ns, struct pst_directory_state *out);

#endif
