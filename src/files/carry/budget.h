/* SPDX-License-Identifier: Apache-2.0 */
/*
 * budget.h: what all connections of a server hold of manifests, and of lists of chunks. However many clients
 * ask for large trees and read slowly, or list large files, these together stay within a bound.
 *
 * A get waits for its turn: few trees are listed at a time, and none while three quarters are taken. A put
 * whose entries or chunks pass the bound fails, unless they are few: it may be one of many that would wait
 * for each other. Any thread.
 */
#ifndef PST_FILES_CARRY_BUDGET_H
#define PST_FILES_CARRY_BUDGET_H

#include "files/carry/link.h"
#include "files/tree/manifest.h"

#include <pthread.h>

struct carry_budget {
    pthread_mutex_t lock;
    pthread_cond_t freed;
    uint64_t bytes, bytes_max;
    uint32_t listing; /* trees that are being listed */
};

/* What one connection has of it. Zeroed, with @budget NULL where nothing is bounded: a client's. */
struct carry_share {
    struct carry_budget *budget;
    uint64_t bytes;
};

void carry_budget_init(struct carry_budget *budget, uint64_t bytes_max);
void carry_budget_fini(struct carry_budget *budget);

/* Waits until a tree may be listed; the peer sees that this side lives. carry_share_listed() is due behind 0.
 * Return: 0 or the link's error. */
int carry_share_list(struct carry_share *share, struct link *link);
void carry_share_listed(struct carry_share *share, const struct pst_manifest *m);
/* The connection has @bytes by now, or again. Return: 0, -EBUSY unless they are fewer. */
int carry_share_set(struct carry_share *share, uint64_t bytes);
void carry_share_end(struct carry_share *share);

#endif
