/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reclaim_priv.h: the segment that a shard takes back, and the values that it moves from there. reclaim.c
 * does it; the tier has one.
 */
#ifndef PST_STORE_TIER_RECLAIM_PRIV_H
#define PST_STORE_TIER_RECLAIM_PRIV_H

#include "base/list.h"
#include "log/reclaim.h"

struct pst_tier;

enum { PST_MOVES_MAX = 32 };

/* A value on its way from a segment that is taken back to another one. */
struct pst_move {
    struct pst_list link; /* idle */
    struct pst_log_move log;
};

enum pst_reclaiming_state {
    PST_RECLAIMING_NONE,
    PST_RECLAIMING_WALK,
    PST_RECLAIMING_MOVES, /* the last of them end */
    PST_RECLAIMING_END,   /* the log frees it */
};

/* The segment that is taken back. */
struct pst_reclaiming {
    uint8_t state;
    bool dense;       /* values that may be evicted are, instead of being moved */
    bool pending;     /* `found` could not be moved yet */
    bool counted;     /* among those that the store waits for */
    bool failed_last; /* the last one ended badly */
    bool failed;      /* a value could not be moved now */
    bool stays;       /* one could not be read */
    uint32_t moving;
    uint64_t look_ns;       /* next */
    uint64_t rest_until_ns; /* the last one gained too little */
    uint64_t common;        /* as pst_log_common() said last */
    uint64_t joins_until_ns;
    bool joins;           /* others may wait for this shard */
    uint64_t moved_bytes; /* of its values */
    struct pst_log_found found;
    struct pst_move moves[PST_MOVES_MAX];
    struct pst_list idle;
};

/* Whether the log takes more, or will when some shard has taken a segment back. */
bool pst_reclaim_gains(const struct pst_tier *t);
void pst_reclaim_init(struct pst_tier *t);
void pst_move_done(struct pst_tier *t, struct pst_move *move);
/* Takes segments back when few are free. Return: true when something happened. */
bool pst_reclaim_run(struct pst_tier *t, uint64_t now_ns);

#endif
