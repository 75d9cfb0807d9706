/* SPDX-License-Identifier: Apache-2.0 */
/* follow_priv.h: a master that has a share of the directory and follows the one that leads; for master.c and
 * answer.c. */
#ifndef PST_MASTER_FOLLOW_PRIV_H
#define PST_MASTER_FOLLOW_PRIV_H

#include "call/call.h"
#include "directory/share.h"
#include "master/master_priv.h"
#include "pool/map_fetch.h"
#include "wire/pool_share.h"

#include <stdatomic.h>

struct pst_follower {
    struct pst_channel_options options;
    struct pst_boot_address leaders[PST_STRINGS_MAX];
    uint32_t leader_count, leader_at;
    struct pst_channel *channel; /* to leaders[leader_at]; NULL: none */
    struct pst_pool_share self;
    struct pst_map_fetch fetch;
    _Atomic uint64_t heard_ns; /* CLOCK_BOOTTIME: when it last asked what the leading master answered */
    bool hurries;              /* the lock: the leading master may have a later pool map */
    char told[PST_FAULT_BYTES];
    uint8_t answer[PST_POOL_ANSWER_BYTES];
};

int pst_follow_open(struct pst_master *m, const struct pst_master_leader *leader, char *fault);
/* Its thread has ended. */
void pst_follow_close(struct pst_master *m);
/* The thread; the lock is held, and let go of meanwhile. */
void pst_follow_run(struct pst_master *m);
/* As of a master that leads while the leading one is heard: then what is not found is missing. */
enum pst_standing pst_follow_hold(const struct pst_master *m);
/* The lock is held. */
void pst_follow_hurry(struct pst_master *m);

#endif
