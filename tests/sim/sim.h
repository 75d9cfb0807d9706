/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sim.h: a pool in one thread and out of one seed: a directory, nodes and clients, a network that loses,
 * delays, doubles and reorders, processes that crash, freeze and return, clocks that run and jump as they
 * like. The directory, the nodes' reports and their leases are the product's; what is around them is drawn.
 *
 * world.c  time, chance, the network and the run      master.c  drives the directory, stores its pool map
 * share.c  processes that have a share of the directory
 * node.c   membership, heartbeats, keys anywhere      home.c    partitions: primaries, backups, joins
 * client.c what users ask for                         check.c   what must never be, and what must be in the
 * end fault.c  what goes wrong, and when
 *
 * In sim_copies the part of home.c is the product's, too: copies.c drives src/master/copies*.c and serving.c.
 */
#ifndef PST_SIM_H
#define PST_SIM_H

#include "directory/directory.h"
#include "directory/figures.h"
#include "directory/route.h"
#include "directory/share.h"
#include "pool/lease.h"
#include "pool/report.h"

#define MS 1000000ull

enum {
    USED = 16,          /* partitions that clients use */
    PARTITION_KEYS = 2, /* in each */
    KEYS_MAX = 400,     /* that may lie anywhere */
    KEY_BYTES = 1000,
    NODE_BYTES = 150 * KEY_BYTES,
    CLIENTS = 12,
    MASTER = -1,
    SHARES_MAX = 8,     /* of the directory; the first is the master's, */
    SHARE_0 = -100,     /* and who has another is so much below this */
    REPORT_EVENTS = 12, /* a node's queue, small enough to overflow */
    MESSAGE_EVENTS = 8,
    REPAIR_KEYS = 40,
};

/* Rules that a run breaks, so that a violation must be found. */
#define PLANTS(X)                                                                                            \
    X(none, "nothing")                                                                                       \
    X(no_lease, "primaries serve without asking for their lease")                                            \
    X(slow_clock, "clocks of nodes run at half speed")                                                       \
    X(early_answer, "primaries acknowledge before their backups have the value")                             \
    X(empty_join, "primaries have copies join that they did not fill")                                       \
    X(memory_join, "who joins has what is durable in memory alone")                                          \
    X(old_deal, "who is dealt a partition anew keeps what it had of it")                                     \
    X(old_disk, "nodes whose disk is another one say that it is the one that they had")                      \
    X(serves_on, "nodes that leave serve until they are told")                                               \
    X(two_minds, "primaries go on serving what they hand over")                                              \
    X(one_round, "newcomers get a write before copies may refuse it")                                        \
    X(old_copy, "who joins keeps what it had, and says that it dropped it")                                  \
    X(no_balance, "partitions stay where they are")                                                          \
    X(no_repair, "nodes do not look for keys with too few copies")                                           \
    X(hasty_share, "who has a share calls missing what has not been reported")                               \
    X(deaf_to_gaps, "nodes do not report in full when they are asked to")                                    \
    X(hearsay, "maps are heard of before they are stored")

enum plant {
#define X(name, text) PLANT_##name,
    PLANTS(X)
#undef X
        PLANT_COUNT
};

enum kind {
    TO_REGISTER, /* to the master */
    TO_HEARTBEAT,
    TO_FETCH,
    TO_CHANGE,
    TO_CHANGES, /* several at once */
    TO_ROUTE_PUT,
    TO_ROUTE_GET,
    TO_SUSPECT,
    TO_REPAIR,
    TO_UNREGISTER,
    TO_SHARE,
    IS_REGISTERED, /* from it */
    IS_BEAT,
    IS_MAP,
    IS_CHANGED,
    IS_ROUTED,
    IS_FOUND,
    IS_REPAIRED,
    IS_SHARED,
    NODE_STATE, /* between nodes, about a partition */
    NODE_STATE_TAKEN,
    NODE_WRITE,
    NODE_WRITTEN,
    NODE_ASKED, /* an operation of a sender of copies, */
    NODE_ANSWERS,
    NODE_ARRIVED, /* and its word about a write, to itself */
    NODE_COPY,    /* of a key that may lie anywhere */
    ASK_WRITE,    /* a client of a node */
    ASK_READ,
    ASK_STORE,
    TOLD_WRITE, /* and back */
    TOLD_READ,
    TOLD_REFUSED,
    TIMER, /* someone's own */
    KIND_COUNT,
};

struct snapshot { /* of a pool map that was stored */
    uint32_t refs;
    struct pst_map *map;
};

struct value {
    uint64_t number; /* later writes have higher ones; 0: there is none */
    uint64_t id;
    uint64_t epoch; /* of the partition, when it was written */
};

enum told { TOLD_VALUE, TOLD_MISS, TOLD_LOST };

enum left { LEFT_NOTHING, LEFT_DISK, LEFT_ALL }; /* by a crash */

/* Every other write is. */
static inline bool is_durable(struct value value)
{
    return value.id & 1;
}

struct message {
    uint32_t refs;
    enum kind kind;
    int from, to;     /* nodes from 0, MASTER, clients below it */
    uint64_t session; /* of the process or the membership that it is for; 0: whoever is there */
    uint64_t request; /* of a client: which of its requests */
    int result;
    struct snapshot *snapshot;
    struct pst_event *events;
    struct pst_heartbeat_answer *answer;
    struct pst_copy_request *changes;
    struct asked *asked;
    struct pst_put *keys;     /* of a node that looks for those with too few copies, */
    struct pst_route *routes; /* and where they are to go */
    union {
        struct pst_register registration;
        struct pst_registered registered;
        struct {
            uint32_t number;
            uint64_t start;
            char address[32];
        } share;
        struct pst_heartbeat heartbeat;
        struct {
            struct pst_repair head;
            uint32_t count;
            uint32_t numbers[REPAIR_KEYS];
        } repair;
        uint64_t sequence; /* which the answer is to */
        struct pst_copy_request change;
        uint32_t change_count;
        struct {
            uint16_t number;
            enum pst_left left; /* of one that leaves */
            uint64_t epoch;
        } member;
        struct {
            uint32_t used, key;
            uint16_t member; /* who sends */
            uint64_t epoch, attempt;
            enum told told;
            struct value values[PARTITION_KEYS]; /* of a write: the first */
            struct value disk[PARTITION_KEYS];
        } home;
        struct {
            uint32_t key;
            struct pst_put put;
            struct pst_route route;
        } any;
    };
};

struct pending {
    bool busy;
    int client;
    uint64_t request;
    struct value value;
    uint64_t since_ns;
    uint32_t waiting_count;
    uint16_t waiting[PST_MAP_REPLICAS_MAX + 1];
};

/* A node's part in a partition. */
struct home { /* in sim_copies the first five alone */
    struct value values[PARTITION_KEYS], disk[PARTITION_KEYS];
    bool sparse;         /* its disk alone was left, and it has not been filled since */
    uint64_t data_epoch; /* of what it has */
    uint64_t taken_epoch, taken_attempt;
    uint64_t led_epoch; /* as primary: which it has begun */
    uint64_t attempt, counter;
    bool state_busy; /* state is on its way to @waiting: copies in a new epoch, or who is to join */
    uint64_t since_ns;
    uint32_t waiting_count;
    uint16_t waiting[PST_MAP_REPLICAS_MAX + 1];
    uint16_t joining; /* PST_MAP_NONE: nobody */
    uint64_t joining_epoch;
    bool joined;  /* it has all, and the directory has been asked */
    bool leaving; /* the directory has been asked to make another one primary */
    uint16_t heir;
    uint64_t leaving_ns;
    struct pending pending[PARTITION_KEYS];
};

/* What a node tells of the keys of one share. */
struct telling {
    const struct node *node;
    uint32_t share;
    struct pst_report *report;
    uint32_t walk_at;
    uint64_t beat_ns, sent_ns; /* when the last one was sent; first, by its own clock */
    bool hurries;
    uint64_t repair, repaired; /* which time it is, and the last that all keys were asked about */
    uint64_t repair_epoch;     /* of the membership that this is about */
    uint32_t repair_at;        /* the first key that is not */
    uint64_t repair_ns;        /* when it asked */
};

struct node {
    bool up;
    uint64_t kept_epoch;                    /* the last membership, unless it has lost all since */
    bool kept_durable;                      /* it has lost its memory, and has its disk */
    uint64_t restart_ns;                    /* while it is down */
    uint64_t frozen_until_ns, cut_until_ns; /* cut off from the master */
    uint64_t peer_cut_until_ns;             /* and from other nodes */
    uint64_t process;                       /* which messages and timers are for */
    uint64_t start;                         /* drawn anew by a process that has left */
    double rate;
    uint64_t clock_ns, clock_at_ns, jumped_back_ns;
    uint16_t member;
    uint64_t epoch, member_ns;
    struct pst_lease lease;
    uint32_t share_count;
    struct telling tellings[SHARES_MAX];
    uint64_t granted_ns;  /* when the last grant of a lease came */
    uint64_t unsteady_ns; /* when it was last no member, or out of reach */
    uint64_t fetch_ns;
    struct snapshot *snapshot;
    uint64_t held[KEYS_MAX];    /* generations, */
    uint64_t held_ns[KEYS_MAX]; /* and since when */
    uint32_t held_count;
    struct home homes[USED];
    struct sender *sender; /* NULL: home.c is the sender */
};

struct client {
    uint64_t request, since_ns;
    enum kind kind;
    uint32_t used, key;
    uint64_t floor, losses; /* when it began */
    struct pst_hash128 found;
};

/* A directory and who asks it: the master's, or of who has a share. */
struct seat {
    struct pst_directory *directory;
    int who;
    uint64_t now_ns;
    bool fresh; /* what it does not find is missing */
    struct snapshot *snapshot;
};

/* A process that has a share of the directory. */
struct share {
    struct pst_directory *directory; /* NULL: it has not heard of the master yet, or is away */
    bool up;
    uint64_t session, start, offset_ns, restart_ns;
    uint64_t frozen_until_ns;
    uint64_t heard_ns, asked_ns, tick_ns;
    char address[32];
    struct snapshot *snapshot;
};

struct sim {
    uint64_t seed, dice, now_ns, end_ns, quiet_ns; /* from quiet_ns on nothing goes wrong any more */
    enum plant plant;
    bool gentle; /* one loss at a time: nothing that was acknowledged may be lost */
    bool trace;
    uint32_t node_count, host_count, key_count, replicas;
    uint32_t drop_per_million, double_per_million;
    uint64_t slow_ms; /* the longest delay */
    struct heap *heap;
    uint64_t digest, events;
    struct node *nodes;
    struct client clients[CLIENTS];
    /* the master */
    struct pst_directory_settings settings;
    struct pst_directory *directory;
    uint64_t master_frozen_until_ns;
    uint64_t master_offset_ns, master_session, tick_ns;
    struct held *answers; /* until their version is stored */
    uint8_t *disk, *disk_next;
    size_t disk_bytes, disk_next_bytes, disk_cap;
    uint64_t storing_version, durable_version;
    struct snapshot *current;
    uint64_t term;
    uint32_t share_count;
    struct share shares[SHARES_MAX]; /* from 1 on */
    /* the model */
    uint64_t generation, value_id;
    uint32_t holders[KEYS_MAX];             /* nodes that have a key */
    uint64_t floors[USED][PARTITION_KEYS];  /* highest number that anyone was told, */
    uint64_t durable[USED][PARTITION_KEYS]; /* and of a value that is durable */
    uint64_t losses[USED];
    uint8_t *refused; /* by id: the write was, and must not show; NULL: none has been */
    uint64_t refused_max;
    uint64_t fault_ns;
    uint64_t drop_ns; /* when a copy was last asked to be dropped, which may be granted later */
    uint64_t checked, violations;
    struct {
        uint64_t writes, reads, puts, crashes, leaves, ends, master_crashes, freezes, cuts, jumps, losses,
            beats, hand_overs, drains, repairs, balanced, power_failures, recovered, refused, shares_lost,
            missing;
    } counts;
};

/* ---- world.c ---- */
uint64_t draw(struct sim *s, uint64_t limit);
bool chance(struct sim *s, uint32_t per_million);
struct message *message_new(enum kind kind, int from, int to);
void message_drop(struct message *m);
/* Takes the message. */
void send(struct sim *s, struct message *m);
void send_after(struct sim *s, struct message *m, uint64_t ns);
void timer(struct sim *s, int who, uint64_t session, uint64_t ns);
void snapshot_drop(struct snapshot *snapshot);
struct snapshot *snapshot_ref(struct snapshot *snapshot);
struct sim *sim_open(uint64_t seed, uint32_t nodes, uint32_t shares, uint64_t ms, enum plant plant);
void sim_run(struct sim *s);
void sim_close(struct sim *s);
void note(struct sim *s, const char *format, ...) __attribute__((format(printf, 2, 3)));
void violation(struct sim *s, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* ---- master.c ---- */
void master_start(struct sim *s);
void master_crash(struct sim *s);
void master_take(struct sim *s, struct message *m);
uint64_t master_now(const struct sim *s);

/* What any directory is asked. */
void seat_take(struct sim *s, const struct seat *seat, const struct message *m);

/* ---- share.c ---- */
void share_start(struct sim *s, uint32_t number);
void share_crash(struct sim *s, uint32_t number);
void share_close(struct sim *s, uint32_t number);
void share_take(struct sim *s, uint32_t number, const struct message *m);
/* Whom to ask of a key, and who knows of it; NULL: nobody is there for now. */
int share_who(const struct sim *s, uint32_t key);
struct pst_directory *share_directory(const struct sim *s, uint32_t number);
struct pst_directory *directory_of(const struct sim *s, uint32_t key);

/* ---- node.c ---- */
uint32_t share_of(uint32_t key, uint32_t share_count);
void node_start(struct sim *s, int number);
void node_crash(struct sim *s, int number, enum left left);
void node_take(struct sim *s, int number, struct message *m);
void node_leave(struct sim *s, int number);
void node_end(struct sim *s, int number);
void node_close(struct node *n);
uint64_t node_now(const struct sim *s, const struct node *n);
const struct pst_map *node_map(const struct node *n);
int node_of_member(const struct sim *s, const struct pst_map *map, uint16_t member);
bool node_reaches_master(const struct sim *s, int number);
void node_fetch(struct sim *s, int number);

/* ---- home.c ---- */
extern const uint64_t home_quiet_ms; /* until all partitions have their copies again, and are balanced */
uint32_t partition_of_used(uint32_t used);
bool home_serves(const struct sim *s, const struct node *n, uint32_t used);
void home_crash(struct home *home, enum left left);
/* A process begins and ends; it leaves the pool; a message or a timer of it has been seen to. */
void home_start(struct sim *s, int number);
void home_stop(struct sim *s, int number);
void home_leave(struct node *n);
void home_turn(struct sim *s, int number);
/* What a crash leaves, where that depends on the node. */
enum left home_left(const struct sim *s, int number, enum left left);
/* The node has an SSD, so that what is durable can be there. */
bool home_promises(const struct sim *s, int number);
void home_follow_map(struct sim *s, struct node *n);
void home_take_up(struct sim *s, int number);
void home_step(struct sim *s, int number, uint32_t used);
void home_take(struct sim *s, int number, struct message *m);
void home_wanted(struct sim *s, int number, const struct pst_heartbeat_answer *answer);
void home_changed(struct sim *s, int number, const struct message *m);

/* ---- client.c ---- */
void client_take(struct sim *s, int number, struct message *m);

/* ---- fault.c ---- */
void faults_step(struct sim *s);

/* ---- check.c ---- */
struct pst_hash128 key_of(uint32_t key);
void check_map(struct sim *s, const struct pst_map *before, const struct pst_map *after);
void check_leases(struct sim *s);
void check_places(struct sim *s);
/* A key was said to be nowhere. */
void check_missing(struct sim *s, const struct seat *seat, struct pst_hash128 key);
/* The write shows: all that count as copies must have it. */
void check_written(struct sim *s, int primary, uint32_t used, uint32_t key, struct value value);
/* A primary that answers, and has no write of the key underway, has what its copies have. */
void check_read(struct sim *s, int primary, uint32_t used, uint32_t key);
/* It never must: nor may who counts as a copy have it. */
void check_refused(struct sim *s, struct value value);
void check_none_refused(struct sim *s);
bool was_refused(const struct sim *s, struct value value);
void check_end(struct sim *s);
bool healthy(const struct sim *s);

#endif
