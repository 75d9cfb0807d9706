/* SPDX-License-Identifier: Apache-2.0 */
/* external_rig.h: a table of what engines hold, for few nodes. */
#ifndef PST_TEST_EXTERNAL_RIG_H
#define PST_TEST_EXTERNAL_RIG_H

#include "lib/cm.h"

#include "base/hash.h"
#include "directory/external.h"

enum {
    UNKNOWN = PST_EXTERNAL_UNKNOWN,
    HBM = PST_EXTERNAL_HBM,
    DRAM = PST_EXTERNAL_DRAM,
    SSD = PST_EXTERNAL_SSD
};
enum { NODES = 4, TTL_NS = 1000 };

static inline struct pst_external *open_external(uint32_t nodes_max, uint32_t entries_max, uint32_t hits_max)
{
    struct pst_external *x = NULL;
    struct pst_external_settings settings = {
        .nodes_max = nodes_max, .entries_max = entries_max, .hits_max = hits_max, .hit_ttl_ns = TTL_NS};

    assert_int_equal(pst_external_open(&settings, &x), 0);
    return x;
}

static inline struct pst_hash128 block(uint64_t number)
{
    return pst_hash128(&number, sizeof(number), 3);
}

static inline uint32_t hits_of(struct pst_external *x, uint64_t number, uint64_t now_ns)
{
    uint32_t hits = 77;

    pst_external_hit_counts(x, (struct pst_hash128[]){block(number)}, 1, now_ns, &hits);
    return hits;
}

#endif
