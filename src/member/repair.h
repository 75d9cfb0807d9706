/* SPDX-License-Identifier: Apache-2.0 */
/*
 * repair.h: keys of this node that may lie on any: whenever the master of the pool says that it is time, goes
 * through all of them, asks the master which lack copies that this node is to make, and has the node send
 * them. One thread of its own; what it sends counts against what a node may send to give others copies.
 *
 * Never looks at values, keeps no list of keys, and holds up neither its node nor its heartbeats.
 */
#ifndef PST_MASTER_REPAIR_H
#define PST_MASTER_REPAIR_H

#include "call/call.h"
#include "member/member.h"

struct pst_repairer;

/* What the master has told, and which it is. */
struct pst_repair_time {
    uint64_t repair; /* another number is another time; 0: there is nothing to do */
    uint64_t epoch;  /* of this node's membership */
    uint64_t seed;   /* of fingerprints */
    struct pst_id pool;
    uint16_t member;
    uint16_t share, share_last; /* of which keys it tells, as in a heartbeat */
    struct pst_boot_address master;
};

/*
 * @node: address and secret of this node; @store: the node, opened; all borrowed until the end. @ask_ms: what
 * a question to the master may take. Return: 0 or -errno.
 */
int pst_repairer_open(const struct pst_channel_options *node, struct penstock *store,
                      struct pst_serving *serving, const struct pst_member_sender *sender, uint64_t ask_ms,
                      struct pst_repairer **out);
/* Begins to end: closing waits for that. NULL is fine. */
void pst_repairer_stop(struct pst_repairer *r);
struct pst_repairer *pst_repairer_close(struct pst_repairer *r);

/* Any thread. */
void pst_repairer_tell(struct pst_repairer *r, const struct pst_repair_time *time);

#endif
