/*
 * directory.h: what the master of a pool knows and decides: who is a member, who has which slot, where keys
 * are and where new ones go. One thread at a time. Pure: it is handed messages and the time (monotonic) and
 * returns what to answer; it never waits, reads no clock, and draws no number that its seed does not
 * determine.
 *
 * *The view* (view.h) is all that lasts. A decision that changes it makes a *draft*; nobody may hear of a
 * draft before it is stored. So calls that change the view return the version to wait for:
 *
 *     r = pst_directory_register(d, &message, now_ns, &out);     out.version: hold the answer back until
 *     while (pst_directory_unstored(d)) {                         the view has that version
 *         bytes = pst_directory_store_begin(d, buf, cap, &version);
 *         ... write, fsync; or compare-and-swap from version - 1 ...
 *         pst_directory_stored(d, version, now_ns);
 *     }
 *
 * More decisions may be made while a view is being stored; they go into the next one. When storing fails for
 * good, or another directory has stored a view, close and open again from what is stored.
 *
 * *One directory at a time* serves a pool: the caller sees to that (a lock on the file, a lease in etcd). A
 * new one may begin at once after the last has stopped: it grants leases anew, and moves no slot before all
 * that the last one granted have run out.
 *
 * Everything else is soft, and comes from the nodes: until all known ones have reported, a key that is not
 * found is INCOMPLETE, never a miss.
 */
#ifndef PST_DIRECTORY_H
#define PST_DIRECTORY_H

#include "directory/keys.h"
#include "directory/tables.h"
#include "directory/view.h"

enum pst_pool_tier { /* fastest first; the numbers are the wire's */
                     PST_POOL_HBM = 1,
                     PST_POOL_DRAM = 2,
                     PST_POOL_SSD = 3,
                     PST_POOL_TIERS,
};

struct pst_directory;

/*
 * From the stored view, or with @stored empty from nothing. @seed: of all chance, and of a new pool's hashes.
 * Return: 0, -ENOMEM, or what pst_view_decode() says.
 */
int pst_directory_open(const struct pst_directory_settings *settings, struct pst_bytes stored, uint64_t seed,
                       uint64_t now_ns, struct pst_directory **out);
struct pst_directory *pst_directory_close(struct pst_directory *d);
/* The defaults of the table. */
void pst_directory_preset(struct pst_directory_settings *settings);

/* ---- the view ---- */

/* The one in effect: the last that was stored. Valid until the next pst_directory_stored(). */
const struct pst_view *pst_directory_view(const struct pst_directory *d);
/* Whether there is a draft that nobody is storing yet. */
bool pst_directory_unstored(const struct pst_directory *d);
/* Encodes the draft, @cap at least pst_view_bytes_max(). One at a time. Return: bytes. */
size_t pst_directory_store_begin(struct pst_directory *d, uint8_t *to, size_t cap, uint64_t *version);
/* It is stored, and takes effect. */
void pst_directory_stored(struct pst_directory *d, uint64_t version, uint64_t now_ns);

/* Sets the placement of a prefix. Return: 0 (@version: answer then), -EINVAL, -ENOSPC. */
int pst_directory_place(struct pst_directory *d, struct pst_bytes prefix, enum pst_placement placement,
                        uint32_t replicas, uint64_t *version);
/* What was lost is known: keys of lost slots that are not found are missing from now on. */
void pst_directory_forgive(struct pst_directory *d, uint64_t *version); /* answer then */

/* ---- members ---- */

struct pst_register {
    struct pst_id id, host;
    uint64_t start; /* drawn by the process: asking again is not another node */
    uint64_t page_bytes;
    uint64_t
        kept_epoch;    /* a membership: of all that it acknowledged in that one, it has lost nothing; or 0 */
    bool kept_durable; /* nothing that was durable, that is */
    const char *address; /* texts: shorter than the view's bounds */
    const char *unix_path;
    const char *tags;
};

struct pst_registered {
    uint16_t member;
    uint64_t epoch;
    uint64_t version; /* answer when the view has it */
    uint64_t heartbeat_ms;
    const struct pst_view_member *holder; /* -EEXIST: who has the id; until the next call */
};

/*
 * Return: 0, -EEXIST another process has the id and its lease may not have ended, -EAGAIN one is about to be
 * registered or removed, or it is not known yet whether others have more than it, -ENOSPC no number free,
 * -EINVAL.
 */
int pst_directory_register(struct pst_directory *d, const struct pst_register *message, uint64_t now_ns,
                           struct pst_registered *out);
/* A node leaves and serves no more: it has dropped its lease, and registers with another @start when it comes
 * back, since this may be heard late. Return: 0 (@version: answer then), -ESTALE. */
int pst_directory_unregister(struct pst_directory *d, uint16_t member, uint64_t epoch, uint64_t now_ns,
                             uint64_t *version);
/*
 * Whether the node is to be needed for nothing any more: it is given no new keys, others get its slots and
 * copies of its keys. That ends with its membership. Return: 0 (@version: answer then), -ESTALE no member has
 * the id.
 */
int pst_directory_drain(struct pst_directory *d, const struct pst_id *id, bool drains, uint64_t *version);
/* A client could not reach it: no new keys for a while, and last among places to read from. -ESTALE. */
int pst_directory_suspect(struct pst_directory *d, uint16_t member, uint64_t epoch, uint64_t now_ns);

enum pst_event_kind {
    PST_EVENT_ADD,
    PST_EVENT_DEL, /* that generation and those before */
};

struct pst_event {
    struct pst_hash128 key;
    uint64_t generation;
    uint8_t kind;
    uint8_t tier;
};

enum pst_heartbeat_flag {
    PST_HEARTBEAT_BEGIN = 1, /* a full report begins: what was known counts until its end */
    PST_HEARTBEAT_END = 2,   /* it ends with this message: what it did not name is not there */
};

enum {
    PST_HEARTBEAT_EVENTS_MAX = 2048,
    PST_WANTS_MAX = 256,
    PST_DIRECTORY_BATCH_MAX = 256,
};

struct pst_tier_use {
    uint64_t capacity_bytes, used_bytes;
};

/* A number too many, or too few, and the node has to report in full: nothing is taken out of order. */
struct pst_heartbeat {
    uint16_t member;
    uint64_t epoch;
    uint64_t sequence; /* one more with every heartbeat of a membership; from 1, with BEGIN */
    uint32_t flags;
    uint32_t event_count;
    const struct pst_event *events; /* borrowed; applied in order */
    struct pst_tier_use tiers[PST_POOL_TIERS];
};

/* What the primary of a slot is asked for. */
struct pst_want {
    uint16_t slot;
    uint16_t member;
    bool leads; /* a copy shall be primary in its place; else one is lacking: it fills the member, which joins
                 */
    uint64_t slot_epoch, member_epoch;
};

struct pst_heartbeat_answer {
    uint64_t sequence_next; /* that is taken; 0: only one with BEGIN is */
    bool sync;              /* report in full: what is known may not be what is there */
    uint64_t lease_ms;      /* from the sending on; 0: none for now */
    uint64_t lease_version; /* of the view that the lease needs: the last that took a slot from the node */
    uint64_t version;       /* of the view in effect */
    uint64_t term;
    uint64_t repair; /* which time that nodes are to look for keys with too few copies; 0: never yet */
    uint32_t want_count;
    struct pst_want wants[PST_WANTS_MAX];
};

/*
 * Return: 0 taken, -EALREADY from the past: nothing is changed or granted, -EILSEQ one is missing: nothing of
 * it but the sign of life is taken, -EINVAL, -ESTALE no such membership: register again. @answer is filled
 * unless it is -ESTALE.
 */
int pst_directory_heartbeat(struct pst_directory *d, const struct pst_heartbeat *message, uint64_t now_ns,
                            struct pst_heartbeat_answer *answer);

/* Looks after silent members, slots without a primary and what lost ones held. Every lease_margin_ms / 4, or
 * more often. */
void pst_directory_tick(struct pst_directory *d, uint64_t now_ns);

/* ---- slots ---- */

enum pst_copy_change {
    /* The copy does not answer: acknowledge without it from the new epoch on. One that was asked to join and
     * may not have is dropped as well: the new epoch sees to it that it never will by the old request. */
    PST_COPY_DROP,
    PST_COPY_JOIN, /* the copy has all; the primary already waits for it before it acknowledges */
    /* The copy shall be primary. Who asks serves the slot no more, whatever its lease says, until the slot
     * has another epoch: if nothing comes of it, that of a DROP. */
    PST_COPY_LEAD,
    /* A slot that was dealt out anew: who asks, which is its copy, has dropped what it had, for good. */
    PST_COPY_TAKE,
};

struct pst_copy_request {
    uint16_t member; /* the primary that asks */
    uint64_t epoch;
    enum pst_copy_change change;
    uint16_t slot;
    uint64_t slot_epoch;
    uint16_t copy;
    uint64_t copy_epoch;
};

/* Return: 0 (@version: answer then), -ESTALE the slot's epoch, or a member, is another, -EINVAL. */
int pst_directory_change_copy(struct pst_directory *d, const struct pst_copy_request *request,
                              uint64_t *version);

/* ---- keys ---- */

enum pst_routed {
    PST_ROUTE_TO,          /* put: there; get: read there */
    PST_ROUTE_EXISTS,      /* put: it is there already */
    PST_ROUTE_UNAVAILABLE, /* put: no node has room */
    PST_ROUTE_MISS,        /* get */
    PST_ROUTE_INCOMPLETE,  /* get: not found, and not all nodes have reported */
};

struct pst_put {
    struct pst_hash128 key;
    uint64_t bytes;
    uint32_t replicas; /* wanted, on distinct hosts */
    bool evictable;    /* a full node makes room */
};

/* Who asks, as to what is near. */
struct pst_caller {
    struct pst_id host;
};

struct pst_route {
    enum pst_routed status;
    struct pst_places places; /* put: as many copies as were found a place, or are known */
};

/* Up to PST_DIRECTORY_BATCH_MAX keys each. A put that was routed before and has not been reported yet goes to
 * the same places. */
void pst_directory_route_put(struct pst_directory *d, const struct pst_caller *caller,
                             const struct pst_put *puts, uint32_t count, uint64_t now_ns,
                             struct pst_route *routes);
/* Places in the order in which to try them: the caller's host, then the rest; each fastest tier first; who is
 * suspected, last. */
void pst_directory_route_get(struct pst_directory *d, const struct pst_caller *caller,
                             const struct pst_hash128 *keys, uint32_t count, uint64_t now_ns,
                             struct pst_route *routes);
enum pst_repair_flag {
    PST_REPAIR_BEGIN = 1, /* these are the first of the node's keys */
    PST_REPAIR_END = 2,   /* all have been asked about */
};

struct pst_repair {
    uint16_t member;
    uint64_t epoch;
    uint64_t repair; /* of the heartbeat's answer */
    uint32_t flags;
    uint32_t done, failed; /* of what it was told to send, since it last asked */
    uint64_t bytes;
};

/*
 * What a node with these keys sends where, so that each has as many copies as it was put to have, or as @keys
 * says where nobody knows. Up to PST_DIRECTORY_BATCH_MAX keys. Of all that have a key one is to send it.
 * Statuses: TO, EXISTS (nothing to do for this node), UNAVAILABLE (no node has room). Return: 0, -ESTALE no
 * such membership, or it is for another time.
 */
int pst_directory_repair(struct pst_directory *d, const struct pst_repair *message,
                         const struct pst_put *keys, uint32_t count, uint64_t now_ns,
                         struct pst_route *routes);
/* The places alone; any number of keys. */
void pst_directory_look_up(struct pst_directory *d, const struct pst_hash128 *keys, uint32_t count,
                           struct pst_places *places);

/* ---- figures ---- */

struct pst_directory_state {
    uint32_t members, members_reporting, members_suspect;
    uint64_t entries, entries_bytes;
    uint64_t reservations;
    struct pst_tier_use tiers[PST_POOL_TIERS];
    uint64_t reserved_bytes[PST_POOL_TIERS];
};

/* One member. */
struct pst_directory_node {
    uint16_t member;
    bool drains, suspect;
    bool drained;               /* nothing is needed from it: it may stop, and nothing is lost */
    uint32_t primaries, copies; /* slots */
    uint64_t keys_left; /* of those that lie anywhere: too few others have them, as far as it has looked */
    struct pst_tier_use tiers[PST_POOL_TIERS];
};

/* Those from number @first on, @max at the most. Return: how many. */
uint32_t pst_directory_nodes(const struct pst_directory *d, uint32_t first, uint64_t now_ns,
                             struct pst_directory_node *nodes, uint32_t max);
const struct pst_directory_counters *pst_directory_counters(const struct pst_directory *d);
void pst_directory_state(const struct pst_directory *d, uint64_t now_ns, struct pst_directory_state *out);

#endif
