/* directory_priv.h: what a directory consists of; its parts are directory.c, members.c, copies.c, repair.c,
 * balance.c, route.c, reserve.c. */
#ifndef PST_DIRECTORY_PRIV_H
#define PST_DIRECTORY_PRIV_H

#include "directory/directory.h"

#define NS_PER_MS 1000000ull

struct tier {
    uint64_t capacity_bytes, used_bytes; /* the node's to say */
    uint64_t reserved_bytes;             /* ours: given out to puts that the node has not reported */
};

/* What is known of a member of the view in effect, by its number there. */
struct member {
    uint64_t epoch; /* 0: the view has none */
    uint64_t heard_ns;
    uint64_t joined_ns; /* 0: so long ago that it is warm */
    uint64_t suspect_until_ns;
    uint64_t sequence_next; /* 0: only a full report is taken */
    uint64_t lease_version; /* no lease before this view is in effect, and none by one before it */
    uint32_t want_at;       /* the slot to look at next for missing copies */
    bool synced;            /* it has reported in full */
    bool filling;           /* it is about to */
    uint32_t slots;         /* that it has by the last tick's draft, once those that move have moved; */
    uint32_t primaries;     /* of them, as their primary */
    bool looked;            /* since it drains it has been through its keys, */
    uint64_t keys_left;     /* which found so many that are needed, */
    uint64_t keys_found;    /* and now, so far, so many */
    struct tier tiers[PST_POOL_TIERS];
};

struct reservation {
    struct pst_hash128 key;
    uint64_t bytes;
    uint64_t expires_ns;
    uint64_t epoch;
    uint16_t member;
    uint8_t tier;   /* 0: met already */
    uint8_t copies; /* that the key is to have */
    uint32_t next;
};

/* In the order in which they expire, and by key; places are numbered from 1, modulo their number. */
struct reservations {
    struct reservation *items;
    uint32_t *heads;
    uint32_t max, head_mask;
    uint32_t first, count;
    uint64_t live;
};

/* A slot that its primary is asked to share with the member, or, if that is a copy, to hand over to it. */
struct move {
    uint64_t slot_epoch, member_epoch; /* it has ended when the slot has another */
    uint64_t until_ns;
    uint16_t slot, from, member;
};

enum { MOVES_MAX = 256 };

struct pst_directory {
    uint32_t magic;
    bool storing_now;
    struct pst_directory_settings settings;
    uint64_t awake_ns;                       /* when it was asked something, or ticked */
    uint64_t reap_ns;                        /* when to look for silent members */
    struct pst_view *view, *storing, *draft; /* in effect; on its way to become so; the next one */
    struct pst_keys *keys;
    uint32_t unreported;    /* members that have not reported in full */
    uint64_t repair;        /* counts when nodes are to look for keys with too few copies */
    uint64_t repair_due_ns; /* when to count on, UINT64_MAX: not */
    bool copies_wanted;     /* more than one of some keys */
    struct member *members;
    struct move moves[MOVES_MAX];
    uint32_t move_count;
    uint32_t surplus;    /* slots with a copy too many, by the last tick */
    uint32_t balance_at; /* the slot to look at next */
    uint64_t *weights;   /* of members below and with a number, for one batch */
    struct reservations reservations;
    struct pst_directory_counters counters;
    uint64_t incomplete_ns[PST_SLOTS]; /* since when */
};

/* ---- directory.c ---- */

void directory_check(const struct pst_directory *d);
/* The draft, for a change. */
struct pst_view *directory_draft(struct pst_directory *d);

/* ---- members.c ---- */

/* A member that the view has and the draft keeps. */
bool member_stays(const struct pst_directory *d, uint16_t number);
/* Nothing is to be left to it. */
bool member_drains(const struct pst_directory *d, uint16_t number);
/* All leases that it was granted have run out. */
bool member_lease_is_over(const struct pst_directory *d, uint16_t number, uint64_t now_ns);
bool member_is_suspect(const struct pst_directory *d, uint16_t number, uint64_t now_ns);
/* Before anything that looks at who is silent: while the directory did not run it could hear nobody. */
void members_wake(struct pst_directory *d, uint64_t now_ns);
/* A view has taken effect. */
void members_follow_view(struct pst_directory *d, uint64_t now_ns);
void members_tick(struct pst_directory *d, uint64_t now_ns);

/* ---- copies.c ---- */

/* A member ends, in the draft: its slots go to others, or wait for it. Return: true when any does. */
bool copies_leave(struct pst_directory *d, uint16_t member, uint64_t now_ns);
/* Whether of each slot of a member, which is silent, another copy has been heard of since its lease ended, or
 * none may live: of those that fail together each seems to have outlived those heard before it. */
bool copies_are_told(const struct pst_directory *d, uint16_t member, uint64_t now_ns);

enum kept { KEPT_NOTHING, KEPT_DURABLE, KEPT_ALL };

/* A member of that number begins anew: slots that wait for it are its, if it has @kept what it had. */
void copies_return(struct pst_directory *d, uint16_t member, enum kept kept, uint64_t now_ns);
void copies_tick(struct pst_directory *d, uint64_t now_ns);
void copies_wanted(struct pst_directory *d, uint16_t member, uint64_t now_ns,
                   struct pst_heartbeat_answer *answer);

/* A copy that may take over: its node is there, as far as one can know. */
bool copy_is_fresh(const struct pst_directory *d, uint16_t member, uint64_t now_ns);
/* How many of its copies do not drain. */
uint32_t copies_lasting(const struct pst_directory *d, const struct pst_view_slot *slot);

/* ---- balance.c ---- */

/* Counts who has what; then finds slots that would better be another's. */
void balance_tick(struct pst_directory *d, uint64_t now_ns);
/* The place of the copy that goes, of a slot with one too many; -1: none for now. */
int balance_spare(const struct pst_directory *d, const struct pst_view_slot *slot, uint32_t replicas,
                  uint64_t now_ns);
/* What the member is asked for. */
void balance_wanted(const struct pst_directory *d, uint16_t member, uint64_t now_ns,
                    struct pst_heartbeat_answer *answer);

/* ---- repair.c ---- */

/* Members came or went. */
void repair_all(struct pst_directory *d);
/* Copies were wanted, and are not there for now. */
void repair_later(struct pst_directory *d, uint64_t now_ns);
void repair_tick(struct pst_directory *d, uint64_t now_ns);
/* Which time it is; 0: nobody needs to look. */
uint64_t repair_time(const struct pst_directory *d);

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

/* ---- reserve.c ---- */

int reserve_init(struct reservations *r, uint32_t max);
void reserve_fini(struct reservations *r);
void reserve_add(struct pst_directory *d, const struct pst_put *put, struct pst_place place, uint64_t now_ns);
/* Where the key's puts underway go. */
void reserve_find(const struct pst_directory *d, const struct pst_hash128 *key, struct pst_places *places);
/* The member has the key: what was reserved for it there is its use now. Return: how many copies its puts
 * underway are to make; 0: there are none. */
uint8_t reserve_met(struct pst_directory *d, const struct pst_hash128 *key, uint16_t member);
void reserve_tick(struct pst_directory *d, uint64_t now_ns);

#endif
