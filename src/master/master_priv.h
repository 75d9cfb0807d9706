/* SPDX-License-Identifier: Apache-2.0 */
/* master_priv.h: what the files of the master share. */
#ifndef PST_MASTER_PRIV_H
#define PST_MASTER_PRIV_H

#include "directory/external.h"
#include "master/master.h"
#include "master/map_file.h"

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

/* What a master counts, at one time. */
struct pst_master_figures {
    uint64_t map_version, term;
    struct pst_directory_state state;
    struct pst_directory_counters counters;
    uint64_t partitions_absent, malformed, located, location_hits;
    struct pst_external_stats external;
    struct pst_master_call calls[PST_MASTER_CALL_COUNT];
};

struct pst_master {
    uint32_t magic;
    struct pst_directory *directory;
    struct pst_external *external;
    uint64_t *external_epochs; /* of the members whose blocks these are, by their numbers */
    struct pst_map_file *file;
    void (*log)(void *ctx, const char *line);
    void *log_ctx;
    uint32_t members_max;
    uint32_t partitions_incomplete; /* in the pool map in effect */
    uint64_t heartbeat_ms, tick_ms;
    uint8_t *map, *map_next; /* the one in effect as bytes; where the next one is made */
    size_t map_bytes, map_room;
    pthread_mutex_t lock;
    pthread_cond_t stir; /* there is a pool map to store, or the end has come */
    pthread_t thread;
    bool running, stopping;
    bool failing;           /* to store pool maps; said once */
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

/* ---- figures.c ---- */

/* The lock is held. */
void pst_master_figures_take(const struct pst_master *m, uint64_t now_ns, struct pst_master_figures *out);
/* The lock is held: for pst_master_published(), unless it is just being read. */
void pst_master_publish(struct pst_master *m);
/* "name value" lines. Return: bytes, 0 when they do not fit. */
size_t pst_master_figures_print(const struct pst_master_figures *f, char *to, size_t room);

#endif
