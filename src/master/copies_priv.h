/* copies_priv.h: what copies.c, copies_join.c, copies_lead.c and copies_tidy.c share. All of it is the
 * thread's, but for what `lock` covers. */
#ifndef PST_COPIES_PRIV_H
#define PST_COPIES_PRIV_H

#include "master/copies.h"

#include "base/clock.h"

#include <penstock/penstock.h>

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/eventfd.h>

enum {
    PEERS_MAX = 64,
    JOIN_SLOTS_MAX = PST_POOL_WANT_COUNT_MAX,
    JOIN_SENDS_MAX = 32,
    LIST_BYTES = 60 << 10,
    ATTRS_MAX = 256,
    SEND_MS = 10000, /* for a value that comes from a busy SSD */
};

/* A node that holds copies, or is this one. */
struct peer {
    uint16_t member;
    uint64_t epoch; /* of its membership; 0: none */
    struct pst_channel *channel;
    struct pst_op_list done;
    uint32_t underway;
    bool failed; /* it goes when nothing is underway any more */
};

enum phase { JOIN_NONE, JOIN_FILLS, JOIN_ASKED };

struct slot {
    uint64_t seen_epoch;    /* of the view that the rest is about */
    uint64_t dropped_epoch; /* the copy is to be dropped under this one; nothing is sent until it is */
    uint64_t led_epoch;     /* the heir is to have it from this one; it is held until it has another */
    uint64_t led_mark;      /* writes that began later are not sent */
    uint64_t heir_epoch;    /* of the heir's membership */
    uint64_t join_epoch;    /* of the membership of who joins */
    uint64_t since_ns;
    uint64_t kept_base;     /* of the view that `kept` is about */
    uint64_t cleared_epoch; /* in which what was here of before it was dealt out anew has gone */
    uint64_t given_up;      /* the last epoch of a filling that ended without this node being a copy */
    uint16_t dropped, joining, heir;
    uint8_t phase;
    bool kept;        /* this node is the primary, or a copy */
    bool left_behind; /* it was, or was to be, and others go on without it */
};

/* One operation underway. */
struct send {
    struct penstock_op op;
    struct peer *peer;
    void (*ended)(struct pst_copies *c, struct send *send);
    struct pst_replica *replica; /* NULL: part of a join */
    uint32_t slot;
    uint64_t slot_epoch;
    void *flat; /* a value of more pieces than an operation takes */
    struct pst_wire_copy head;
    uint8_t attrs[ATTRS_MAX];
};

enum step { STEP_IDLE, STEP_CLEAR, STEP_DRAIN, STEP_COUNT, STEP_PASS, STEP_LIST, STEP_SEND };

/* Slots that one member is filled with, all together. */
struct join {
    enum step step;
    struct peer *peer;
    uint16_t member;
    uint64_t epoch;
    uint32_t slot_count;
    struct pst_wire_cleared slots[JOIN_SLOTS_MAX];
    uint32_t shard;     /* at which it is */
    uint64_t mark;      /* what was begun before does not go to it */
    uint64_t passed;    /* generation that this node had given by then */
    uint32_t sends;     /* of keys, underway */
    bool waits, failed; /* for the answer to its one request; the rest is not done */
    bool shard_ended;   /* the list has */
    uint8_t resume[PST_WIRE_KEY_BYTES_MAX];
    size_t resume_bytes;
    uint8_t data[LIST_BYTES];
    size_t data_bytes, data_at;
};

/* Slots that are cleared here, all together. */
struct tidy {
    uint64_t due_ns; /* 0: there are none */
    uint32_t slot_count, shard;
    bool waits; /* for an answer */
    struct pst_wire_cleared slots[JOIN_SLOTS_MAX];
    uint8_t resume[PST_WIRE_KEY_BYTES_MAX];
    size_t resume_bytes;
    uint8_t data[LIST_BYTES];
};

struct pst_copies {
    pthread_mutex_t lock;
    struct pst_list inbox;    /* lock: replicas by `queue` */
    struct pst_list underway; /* lock: all that have not ended, by `link`, in their order */
    uint64_t number;          /* lock: of the last one */
    struct pst_view *next;    /* lock: a view that came */
    uint16_t next_member;
    uint64_t next_epoch;
    struct pst_pool_want wants[PST_POOL_WANT_COUNT_MAX]; /* lock */
    uint32_t want_count;
    struct pst_pool_copy changes[PST_POOL_COPIES_MAX]; /* lock */
    uint32_t change_count;
    bool stopping;    /* lock */
    uint64_t pace_ns; /* lock: nobody is given a copy before */

    struct pst_view *known; /* the member's: the last one */
    uint16_t known_member;
    uint64_t known_epoch;

    struct pst_view *view; /* NULL: none */
    uint16_t member;
    uint64_t epoch;
    struct pst_list waiting; /* for another view */
    struct peer peers[PEERS_MAX];
    struct peer self;
    struct slot slots[PST_SLOTS];
    struct join join;
    struct tidy tidy;
    uint64_t again_ns;   /* when to look at what waits, view or not */
    uint64_t changes_ns; /* when to ask again for what was not done */
    struct pst_copies_settings settings;
    struct pst_channel_options node;
    struct pst_gate *gate;
    int wake_fd, changed_fd;
    pthread_t thread;
    bool running, quit;
};

/* This node is primary of the slot, by the view. */
bool copies_primary(const struct pst_copies *c, uint32_t slot);
/* Its channel is there. */
struct peer *copies_peer(struct pst_copies *c, uint16_t member, uint64_t epoch);
/* There is a channel to this node. */
bool copies_self(struct pst_copies *c);
struct send *copies_send_new(struct peer *peer);
void copies_submit(struct send *send, int shard);
/* No write is underway that began up to @mark. The lock is held. */
bool copies_ended(const struct pst_copies *c, uint64_t mark);
/* The slot's copy is to be dropped. */
void copies_drop(struct pst_copies *c, uint32_t slot, uint16_t member);

/* ---- copies_lead.c ---- */

/* Of what the master wants, slots that a copy is to have. */
void lead_take_wants(struct pst_copies *c, const struct pst_pool_want *wants, uint32_t count);
/* The slot goes to its heir, and is not served: writes that began later are not to be sent. */
bool lead_stops(const struct pst_copies *c, uint32_t slot, const struct pst_replica *replica);
/* Nothing that its heir must have is underway: it may be asked for. The lock is held. */
bool lead_is_ready(const struct pst_copies *c, uint32_t slot);
/* Another view. Return: true: whether the slot is held is settled. */
bool lead_follow_view(struct pst_copies *c, uint32_t slot);
/* Whether by @view this node has a slot from its former primary, which handed it over with all that it had.
 */
bool lead_was_handed(const struct pst_copies *c, const struct pst_view_slot *slot,
                     const struct pst_view_slot *before);

/* ---- copies_tidy.c ---- */

/* Another view: whether this node has the slot no more. */
void tidy_follow_view(struct pst_copies *c, uint32_t slot);
void tidy_step(struct pst_copies *c, uint64_t now_ns);
/* Whether by the view this node is dealt the slot anew. */
bool tidy_takes(const struct pst_copies *c, uint32_t slot);

/* ---- copies_join.c ---- */

void join_take_wants(struct pst_copies *c, const struct pst_pool_want *wants, uint32_t count);
void join_step(struct pst_copies *c, uint64_t now_ns);
/* Another view: what of it is joined, what is void. */
void join_follow_view(struct pst_copies *c, uint32_t slot, bool changed);
/* A write did not get to who joins. */
void join_fail(struct pst_copies *c, uint32_t slot);

#endif
