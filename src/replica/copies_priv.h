/* SPDX-License-Identifier: Apache-2.0 */
/*
 * copies_priv.h: the sender of copies as a whole, and how it is driven: copies_net.c does with a thread and
 * channels, tests/sim with a simulated network and clock. All of it is one thread's, unless `lock` covers it.
 */
#ifndef PST_COPIES_PRIV_H
#define PST_COPIES_PRIV_H

#include "replica/copies.h"

#include "replica/copies_join_priv.h"
#include "replica/copies_peer_priv.h"
#include "replica/copies_partition_priv.h"
#include "replica/copies_tidy_priv.h"

#include <penstock/penstock.h>

#include <pthread.h>
#include <sys/eventfd.h>

struct pst_copies {
    pthread_mutex_t lock;
    struct pst_list inbox;    /* lock: replicas by `queue` */
    struct pst_list underway; /* lock: all that have not ended, by `link`, in their order */
    uint64_t number;          /* lock: of the last one */
    struct pst_map *next;     /* lock: a pool map that came */
    uint16_t next_member;
    uint64_t next_epoch;
    struct pst_pool_want wants[PST_POOL_WANT_COUNT_MAX]; /* lock */
    uint32_t want_count;
    struct pst_pool_copy changes[PST_POOL_COPIES_MAX]; /* lock */
    uint32_t change_count;
    bool stopping;    /* lock */
    uint64_t pace_ns; /* lock: nobody is given a copy before */

    struct pst_map *known; /* the member's: the last one */
    uint16_t known_member;
    uint64_t known_epoch;

    struct pst_map *map; /* NULL: none */
    uint16_t member;
    uint64_t epoch;
    struct pst_list waiting; /* for another pool map */
    struct peer peers[PEERS_MAX];
    struct peer self;
    struct partition partitions[PST_PARTITIONS];
    struct join join;
    struct tidy tidy;
    uint64_t again_ns;        /* when to look at what waits, pool map or not */
    uint64_t changes_ns;      /* when to ask again for what was not done */
    uint64_t now_ns, wall_ns; /* of this turn */
    struct pst_copies_settings settings;
    const struct copies_net *net;
    void *net_ctx;
    struct pst_serving *serving;
    int wake_fd, changed_fd;
    bool quit;
};

/* ---- who drives it ---- */

/* @c is zeroed. Return: 0 or -errno; copies_fini() in any case. */
int copies_init(struct pst_copies *c, const struct pst_copies_settings *settings, struct pst_serving *serving,
                int changed_fd, const struct copies_net *net, void *net_ctx);
/* Takes what has come, and sends what is due. */
void copies_turn(struct pst_copies *c, uint64_t now_ns, uint64_t wall_ns);
/* Any thread: nothing new begins. */
void copies_stop(struct pst_copies *c);
void copies_fini(struct pst_copies *c);

/* ---- copies.c ---- */

/* This node is primary of the partition, by the pool map. */
bool copies_primary(const struct pst_copies *c, uint32_t partition);
/* No write is underway that began up to @mark. The lock is held. */
bool copies_ended(const struct pst_copies *c, uint64_t mark);

#endif
