/* SPDX-License-Identifier: Apache-2.0 */
/*
 * members_priv.h: what is known of each member of the pool map in effect, and whether it is there. All of
 * this room asks.
 */
#ifndef PST_DIRECTORY_MEMBERS_PRIV_H
#define PST_DIRECTORY_MEMBERS_PRIV_H

#include "pool/report.h"

struct pst_directory;

struct tier {
    uint64_t capacity_bytes, used_bytes; /* the node's to say */
    uint64_t reserved_bytes;             /* ours: given out to puts that the node has not reported */
};

/* What is known of a member of the pool map in effect, by its number there. */
struct member {
    uint64_t epoch; /* 0: the pool map has none */
    uint64_t heard_ns;
    uint64_t before_ns; /* what the directory before this one granted has run out by then */
    uint64_t joined_ns; /* 0: so long ago that it is warm */
    uint64_t suspect_until_ns;
    uint64_t sequence_next; /* 0: only a full report is taken */
    uint64_t lease_version; /* no lease before this pool map is in effect, and none by one before it */
    uint32_t want_at;       /* the partition to look at next for missing copies */
    bool heard;             /* by this directory; else heard_ns may be of the one before */
    bool synced;            /* it has reported in full */
    bool filling;           /* it is about to */
    bool unfit;             /* to be given partitions: it has refused one */
    uint32_t partitions;    /* that it has by the last tick's draft, once those that move have moved; */
    uint32_t primaries;     /* of them, as their primary */
    bool looked;            /* since it drains it has been through its keys, */
    uint64_t keys_left;     /* which found so many that are needed, */
    uint64_t keys_found;    /* and now, so far, so many */
    uint64_t alone_left;    /* of them, those that no other host could take */
    uint64_t alone_found;
    struct tier tiers[PST_POOL_TIERS];
};

/* A member that the pool map has and the draft keeps. */
bool member_stays(const struct pst_directory *d, uint16_t number);
/* Nothing is to be left to it. */
bool member_drains(const struct pst_directory *d, uint16_t number);
/* When all leases that it was granted have run out, and whether they have. */
uint64_t member_lease_end_ns(const struct pst_directory *d, uint16_t number);
bool member_lease_is_over(const struct pst_directory *d, uint16_t number, uint64_t now_ns);
/* Late by so much, it is suspect. */
uint64_t members_late_ns(const struct pst_directory *d);
bool member_is_suspect(const struct pst_directory *d, uint16_t number, uint64_t now_ns);
/* Before anything that looks at who is silent: while the directory did not run it could hear nobody. */
void members_wake(struct pst_directory *d, uint64_t now_ns);
/* A pool map has taken effect. */
void members_follow_map(struct pst_directory *d, uint64_t now_ns);
void members_tick(struct pst_directory *d, uint64_t now_ns);

#endif
