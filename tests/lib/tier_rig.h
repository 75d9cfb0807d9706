/* SPDX-License-Identifier: Apache-2.0 */
/* tier_rig.h: a store with an SSD: waiting for what it does there, and copies of its folder. */
#ifndef PST_TEST_TIER_RIG_H
#define PST_TEST_TIER_RIG_H

#include "lib/disk_rig.h"
#include "lib/engine.h"

#include "store/tier/tier_priv.h"

static inline char *copy_of(const char *folder)
{
    char *copy = rig_folder(), command[512];

    snprintf(command, sizeof(command), "cp '%s'/* '%s'", folder, copy);
    assert_int_equal(system(command), 0);
    return copy;
}

static inline void wait_until_ended(struct engine *e, const struct pst_tier_wait *wait)
{
    while (!wait->ended)
        pst_shard_poll(e->shard, pst_now_ns());
}

static inline int flush(struct engine *e)
{
    struct pst_tier_wait wait;
    int result;

    pst_tier_flush(e->shard, &wait);
    wait_until_ended(e, &wait);
    result = wait.result;
    pst_tier_leave(e->shard, &wait);
    return result;
}

#endif
