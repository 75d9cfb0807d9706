/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tombstones_priv.h: tombstones of a lane: those that go with the next group, and those that wait for a sync.
 * The files of log/ that delete_value or write them include it.
 */
#ifndef PST_LOG_TOMBSTONES_PRIV_H
#define PST_LOG_TOMBSTONES_PRIV_H

#include "log/format.h"

struct pst_group;
struct pst_lane;

/* A tombstone that may not be durable before what it makes room for is. */
struct pst_later {
    struct pst_log_tombstone tombstone;
    uint64_t ticket;
};

/* Return: 0 or -ENOMEM. */
int pst_lane_add_tombstone(struct pst_lane *lane, const struct pst_log_tombstone *tombstone);
/* Of a value in that segment, once @ticket is synced. */
int pst_lane_add_tombstone_at(struct pst_lane *lane, struct pst_log_tombstone tombstone, uint32_t segment,
                              uint64_t ticket);
void pst_lane_add_tombstones(struct pst_lane *lane, struct pst_group *group);
/* The tombstones of an index, again, once nothing is in doubt. Return: 0, -ENOMEM. */
int pst_lane_tombstones_later(struct pst_lane *lane, const void *entries, uint64_t bytes);
/* Whether there are some, up to a ticket that is synced, which a doubt has held back; 0: a start's alone. */
bool pst_lane_doubt_held(const struct pst_lane *lane, uint64_t upto);
/* Those whose time has come. */
void pst_lane_laters_synced(struct pst_lane *lane);
/* A flush may have to sync twice: what they make room for, then them. */
bool pst_lane_laters_wait(const struct pst_lane *lane);

#endif
