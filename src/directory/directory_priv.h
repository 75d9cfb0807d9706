/* SPDX-License-Identifier: Apache-2.0 */
/* directory_priv.h: what a directory consists of; its parts are directory.c, members.c, copies.c, repair.c,
 * balance.c, route.c, reserve.c, share.c. */
#ifndef PST_DIRECTORY_PRIV_H
#define PST_DIRECTORY_PRIV_H

#include "directory/directory.h"
#include "directory/figures.h"
#include "directory/members_priv.h"
#include "directory/reserve_priv.h"
#include "directory/route.h"
#include "directory/share.h"

/* A partition that its primary is asked to share with the member, or, if that is a copy, to hand over to it.
 */
struct move {
    uint64_t partition_epoch, member_epoch; /* it has ended when the partition has another */
    uint64_t until_ns;
    uint16_t partition, from, member;
};

enum { MOVES_MAX = 256 };

struct pst_directory {
    uint32_t magic;
    bool storing_now;
    bool follows;   /* the leading master's pool map: it makes none of its own, and grants no leases */
    uint16_t share; /* of the keys: 0 is the leading master's */
    struct pst_directory_settings settings;
    uint64_t lease_before_ms;              /* of leases by the directory before this one; 0: not known */
    uint64_t awake_ns;                     /* when it was asked something, or ticked */
    uint64_t reap_ns;                      /* when to look for silent members */
    struct pst_map *map, *storing, *draft; /* in effect; on its way to become so; the next one */
    struct pst_keys *keys;
    uint32_t unreported;       /* members that have not reported in full */
    uint64_t strange_until_ns; /* members of another pool were here a moment ago, */
    bool doubtful;             /* for the first time when this one had never had any */
    uint64_t repair;           /* counts when nodes are to look for keys with too few copies */
    uint64_t repair_due_ns;    /* when to count on, UINT64_MAX: not */
    bool copies_wanted;        /* more than one of some keys */
    struct member *members;
    uint64_t shares_heard_ns[PST_MAP_SHARES_MAX]; /* when who has them last said so */
    struct move moves[MOVES_MAX];
    uint32_t move_count;
    uint32_t surplus;    /* partitions with a copy too many, by the last tick */
    uint32_t balance_at; /* the partition to look at next */
    uint64_t *weights;   /* of members below and with a number, for one batch */
    struct reservations reservations;
    struct pst_directory_counters counters;
    uint64_t incomplete_ns[PST_PARTITIONS]; /* since when */
};

/* ---- directory.c ---- */

void directory_check(const struct pst_directory *d);
/* The draft, for a change. */
struct pst_map *directory_draft(struct pst_directory *d);

/* ---- copies.c ---- */

/* A member ends, in the draft: its partitions go to others, wait for it, or are given up. Return: true when
 * any waits. */
bool copies_leave(struct pst_directory *d, uint16_t member, enum pst_left left, uint64_t now_ns);
/* Whether of each partition of a member, which is silent, another copy has been heard of since its lease
 * ended, or none may live: of those that fail together each seems to have outlived those heard before it. */
bool copies_are_told(const struct pst_directory *d, uint16_t member, uint64_t now_ns);

/* ---- members.c ---- */

/* Whether keys are to go from the member is to be looked at anew. */
void members_drain(struct pst_directory *d, uint16_t number);

enum kept { KEPT_NOTHING, KEPT_DURABLE, KEPT_ALL };

/* A member of that number begins anew: partitions that wait for it are its, if it has @kept what it had. */
void copies_return(struct pst_directory *d, uint16_t member, enum kept kept, uint64_t now_ns);
void copies_tick(struct pst_directory *d, uint64_t now_ns);
void copies_wanted(struct pst_directory *d, uint16_t member, uint64_t now_ns,
                   struct pst_heartbeat_answer *answer);

/* A copy that may take over: its node is there, as far as one can know. */
bool copy_is_fresh(const struct pst_directory *d, uint16_t member, uint64_t now_ns);
/* How many of its copies do not drain. */
uint32_t copies_lasting(const struct pst_directory *d, const struct pst_map_partition *partition);

/* ---- balance.c ---- */

/* Counts who has what; then finds partitions that would better be another's. */
void balance_tick(struct pst_directory *d, uint64_t now_ns);
/* The place of the copy that goes, of a partition with one too many; -1: none for now. */
int balance_spare(const struct pst_directory *d, const struct pst_map_partition *partition, uint32_t replicas,
                  uint64_t now_ns);
/* What the member is asked for. */
void balance_wanted(const struct pst_directory *d, uint16_t member, uint64_t now_ns,
                    struct pst_heartbeat_answer *answer);

/* ---- repair.c ---- */

/* Copies were wanted, and are not there for now. */
void repair_later(struct pst_directory *d, uint64_t now_ns);
void repair_tick(struct pst_directory *d, uint64_t now_ns);
/* Which time it is; 0: nobody needs to look. */
uint64_t repair_time(const struct pst_directory *d);

/* ---- share.c ---- */

/* The pool map is to have as many shares as the settings say, in the draft. */
void share_begin(struct pst_directory *d, uint64_t now_ns);
/* Of a follower: it did not run for a while, and others reported and asked meanwhile: what is missing is not
 * known before all have reported anew. */
void share_wake(struct pst_directory *d);
/* Of a follower: keys of members that have been silent for long are not known to be missing. */
void share_tick(struct pst_directory *d, uint64_t now_ns);
/* The heartbeat tells of the keys that this directory has. */
bool share_is_told(const struct pst_directory *d, const struct pst_heartbeat *message);

/* ---- route.c ---- */

/* A batch of puts that is being routed. */
struct routing {
    struct pst_directory *d;
    const struct pst_caller *caller;
    uint64_t now_ns;
    uint64_t weight; /* of all members */
    uint16_t near[PST_PLACES_MAX];
    uint32_t near_count;
};

/* Whether one of the places is on the member's host. */
bool route_has_host(const struct pst_directory *d, const struct pst_places *places, uint16_t member);
/* Behind this, @w->d's weights are those of the batch. */
void route_begin(struct routing *w);
/* Adds a place to the route, on a host that it does not name yet, and reserves room there. Return: whether
 * there is one. */
bool route_find_place(struct routing *w, const struct pst_put *put, struct pst_route *route);

#endif
