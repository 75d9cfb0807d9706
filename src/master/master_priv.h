/* SPDX-License-Identifier: Apache-2.0 */
/* master_priv.h: what the files of the master share. */
#ifndef PST_MASTER_PRIV_H
#define PST_MASTER_PRIV_H

#include "directory/external.h"
#include "master/master.h"
#include "master/keeper.h"

#include <pthread.h>

#define PST_MASTER_MAGIC 0x6d617374u

/* X(code, name) */
#define PST_MASTER_CALLS(X)                                                                                  \
    X(PST_POOL_JOIN, join)                                                                                   \
    X(PST_POOL_LEAVE, leave)                                                                                 \
    X(PST_POOL_HEARTBEAT, heartbeat)                                                                         \
    X(PST_POOL_MAP, map)                                                                                     \
    X(PST_POOL_SUSPECT, suspect)                                                                             \
    X(PST_POOL_LOCATE, locate)                                                                               \
    X(PST_POOL_PLACE, place)                                                                                 \
    X(PST_POOL_FIGURES, figures)                                                                             \
    X(PST_POOL_COPIES, copies)                                                                               \
    X(PST_POOL_REPAIR, repair)                                                                               \
    X(PST_POOL_DRAIN, drain)                                                                                 \
    X(PST_POOL_NODES, nodes)                                                                                 \
    X(PST_POOL_FORGIVE, forgive)                                                                             \
    X(PST_POOL_SHARE, share)                                                                                 \
    X(PST_POOL_REPORT, report)                                                                               \
    X(PST_POOL_REVOKE, revoke)                                                                               \
    X(PST_POOL_MATCH, match)                                                                                 \
    X(PST_POOL_HITS, hits)

enum {
#define X(code, name) PST_MASTER_CALL_##name,
    PST_MASTER_CALLS(X)
#undef X
        PST_MASTER_CALL_COUNT,
    PST_MASTER_BUCKETS = 16, /* of latencies, each twice the one before; the first is 1 us */
};

struct pst_master_call {
    uint64_t count;
    uint64_t failed; /* answered with an error */
    uint64_t us_total;
    uint64_t us[PST_MASTER_BUCKETS];
};

/* What a master may answer, each more than the ones before it. */
enum pst_standing {
    PST_STANDS_BY, /* another one leads, or none */
    PST_SPEAKS,    /* of the pool map that it has, which it may not change: it may lead no more */
    PST_LEADS,
};

/* What a master counts, at one time. */
struct pst_master_figures {
    bool leads, directory; /* without one it counts nothing of a pool */
    uint64_t takeovers;
    uint64_t map_version, term;
    uint64_t share, shares; /* of the directory: the one that it has, of so many */
    struct pst_directory_state state;
    struct pst_directory_counters counters;
    uint64_t partitions_absent, malformed, located, location_hits;
    struct pst_external_stats external;
    bool has_guests;
    uint64_t guests, guest_keys;
    struct pst_guest_totals guest_totals;
    char leader[PST_MAP_ADDRESS_BYTES]; /* as of a master */
    struct pst_master_call calls[PST_MASTER_CALL_COUNT];
};

struct pst_follower; /* follow_priv.h */

struct pst_master {
    uint32_t magic;
    struct pst_follower *follower;   /* NULL: it leads when it may */
    struct pst_directory *directory; /* NULL, as the next: another master leads, or none */
    struct pst_external *external;
    struct pst_guests *guests; /* NULL: none are served, or it does not lead */
    uint64_t *external_epochs; /* of the members whose blocks these are, by their numbers */
    const struct pst_master_settings *settings;
    struct pst_keeper *keeper;                 /* NULL: it follows */
    uint64_t share_starts[PST_MAP_SHARES_MAX]; /* who has them, by the pool map in effect */
    void (*log)(void *ctx, const char *line);
    void *log_ctx;
    uint32_t members_max;
    uint32_t partitions_incomplete; /* in the pool map in effect */
    uint64_t heartbeat_ms, tick_ms;
    uint8_t *map, *map_next; /* the one in effect as bytes; the next one as it is stored */
    size_t map_bytes, map_room;
    size_t storing_bytes; /* of the next one, which is about to be stored with its end; 0: none is, */
    uint64_t storing_version;
    uint64_t retry_ns; /* what has failed is tried again then */
    bool begun;        /* a pool map of this directory's is stored, so that it may be asked */
    enum pst_standing told;
    char leader[PST_MAP_ADDRESS_BYTES]; /* who leads instead; "": nobody that is known */
    uint64_t takeovers;
    pthread_mutex_t lock;
    pthread_cond_t stir; /* there is a pool map to store, or the end has come */
    pthread_t thread;
    bool running, stopping;
    bool failing;           /* to store pool maps; said once */
    int untaken;            /* why they cannot be taken, an error that is said once; 0: they can */
    struct pst_id stranger; /* the last pool whose members were refused, and said to be, */
    uint64_t stranger_ns;   /* then */
    uint64_t start_ns;
    uint64_t malformed; /* questions that no decoder took */
    uint64_t located, location_hits;
    struct pst_master_call calls[PST_MASTER_CALL_COUNT];
    pthread_mutex_t published_lock; /* whoever has `lock` only tries it */
    struct pst_master_figures published;
};

void pst_master_log(const struct pst_master *m, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

enum pst_standing pst_master_standing(const struct pst_master *m);
/* By the keeper alone, which has been taken once. Any thread. */
enum pst_standing pst_master_hold(const struct pst_master *m);

/* ---- lead.c: the lock is held, and let go of meanwhile ---- */

/* Takes the pool map and begins with it. Return: 0, PST_KEEPER_OTHERS, -errno with the reason in @fault. */
int pst_lead_take(struct pst_master *m, char fault[PST_FAULT_BYTES]);
/* The same of one that masters share, unless it is taken, or not due. */
void pst_lead_step(struct pst_master *m);
/* Stores what is to be stored. Return: 0 or -errno; behind -ESTALE there is no directory any more. */
int pst_lead_store(struct pst_master *m);
void pst_lead_end(struct pst_master *m);
/* Its part that pst_lead_end() closes. Return: 0 or -ENOMEM. */
int pst_lead_open_external(struct pst_master *m);
/* The pool map in effect is another one: who came and went is logged, and what they told forgotten. */
void pst_lead_follow_map(struct pst_master *m);

/* ---- figures.c ---- */

/* The lock is held. */
void pst_master_figures_take(const struct pst_master *m, uint64_t now_ns, struct pst_master_figures *out);
/* The lock is held: for pst_master_published(), unless it is just being read. */
void pst_master_publish(struct pst_master *m);
/* "name value" lines. Return: bytes, 0 when they do not fit. */
size_t pst_master_figures_print(const struct pst_master_figures *f, char *to, size_t room);

#endif
