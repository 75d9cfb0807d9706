/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lease.h: what a node may do for a partition, by the pool map that it has and the lease that it was granted.
 * Pure; the caller's clock is one that goes on while the machine sleeps.
 *
 * A lease is counted from the *sending* of the heartbeat whose answer grants it, so a node never believes in
 * it for longer than the directory does. An answer grants it for pool maps from a version on: who has an
 * older one has to fetch the pool map first, since it may say that another is primary now.
 */
#ifndef PST_LEASE_H
#define PST_LEASE_H

#include "pool/map.h"

/* Zero-initialise: no lease. */
struct pst_lease {
    uint64_t until_ns;
    uint64_t version; /* of the pool map that it needs */
    uint64_t term;    /* of the directory that granted it */
};

enum pst_serve {
    PST_SERVE_YES,
    PST_SERVE_BUSY,       /* no lease, or a pool map that is too old for it: in a moment, here or elsewhere */
    PST_SERVE_ELSEWHERE,  /* another is primary */
    PST_SERVE_INCOMPLETE, /* nobody is */
};

enum pst_epoch {
    PST_EPOCH_SAME,
    PST_EPOCH_OLD, /* the sender has to fetch the pool map; what it wants is refused */
    PST_EPOCH_NEW, /* we have to, and then see */
};

/* An answer has come to a heartbeat sent at @sent_ns. Return: false, and nothing changed, when it is from a
 * directory before the one that granted the last. */
bool pst_lease_grant(struct pst_lease *lease, uint64_t sent_ns, uint64_t lease_ms, uint64_t version,
                     uint64_t term);
/* Before the node says that it leaves. */
void pst_lease_drop(struct pst_lease *lease);
bool pst_lease_holds(const struct pst_lease *lease, uint64_t map_version, uint64_t now_ns);

/* Whether a member may read, acknowledge and evict in a partition at this moment: asked again before each
 * answer.
 */
enum pst_serve pst_lease_serve(const struct pst_lease *lease, const struct pst_map *map, uint16_t member,
                               uint64_t member_epoch, uint32_t partition, uint64_t now_ns);
/* What a replica does with a message about a partition. */
enum pst_epoch pst_lease_epoch(const struct pst_map *map, uint32_t partition, uint64_t message_epoch);

#endif
