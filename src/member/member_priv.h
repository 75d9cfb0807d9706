/* SPDX-License-Identifier: Apache-2.0 */
/* member_priv.h: a member as its files see it. All but the flag `stopping` is its thread's. */
#ifndef PST_MEMBER_PRIV_H
#define PST_MEMBER_PRIV_H

#include "member/identity.h"
#include "member/member.h"
#include "member/ready.h"
#include "member/repair.h"
#include "pool/lease.h"
#include "pool/report.h"

#include <penstock/penstock.h>

#include <poll.h>
#include <pthread.h>

enum { RETRY_MS = 200 /* after a master that could not be reached, or would not have us */ };

enum { BUSY_MS = 5 /* a channel that nobody waits for connects */ };

#define MEMBER_MAGIC 0x6d656d62u

/* What is told of one share of the directory's keys (tellers.c). Of the first, which the leading master has,
 * the report alone is here. */
struct pst_teller {
    struct pst_member *member;
    uint16_t share;
    struct pst_report *report;
    char walked[PENSTOCK_KEY_BYTES_MAX]; /* a full report has come so far */
    size_t walked_bytes;
    bool walking;               /* a full report is underway */
    bool missed;                /* changes: another one is due, but not at once ... */
    uint64_t walk_ns;           /* ... when one has begun then, */
    uint64_t missed_ns;         /* only from then on */
    bool named;                 /* the pool map says who has the share: */
    uint64_t start;             /* that process, */
    struct pst_boot_address at; /* there */
    uint64_t epoch;             /* of the membership that it is told about */
    bool tried;                 /* since then, with or without success */
    struct pst_channel *channel;
    bool underway;
    struct penstock_op op;
    struct pst_op_list done;
    uint64_t sequence;          /* of the heartbeat underway */
    uint64_t beat_ns, retry_ns; /* not before both */
    uint32_t alone_ms;
    char said[PST_FAULT_BYTES]; /* the trouble that was logged last */
    uint8_t question[PST_WIRE_QUESTION_BYTES_MAX];
    uint8_t answer[PST_POOL_ANSWER_BYTES];
};

struct pst_member {
    uint32_t magic;
    struct penstock *store; /* its node */
    struct penstock_watch *watch;
    struct pst_teller *tellers[PST_MAP_SHARES_MAX]; /* as many as the pool map has shares */
    uint32_t teller_count;
    bool unfit; /* to be given partitions; said once */
    struct pst_boot_address masters[PST_STRINGS_MAX];
    uint32_t master_count, master_at;
    uint32_t alone_ms; /* for how long the last one that did not want us was left alone */
    struct pst_channel_options options;
    uint8_t secret[PST_BOOT_SECRET_BYTES_MAX];
    struct pst_channel *channel; /* to masters[master_at]; NULL: none */
    struct pst_identity identity;
    struct pst_pool_join self;
    bool joined;
    struct pst_pool_joined as;
    struct pst_tier_use tiers[PST_POOL_TIERS];
    uint64_t report_ms;
    bool copies_asked; /* for some of the node's keys */
    struct pst_serving *serving;
    struct pst_member_counters *counters;
    const struct pst_member_sender *sender;
    bool sending; /* it is open */
    struct pst_repairer *repairer;
    int changed_fd;      /* shards, or the sender, have something for the master */
    uint64_t version;    /* of the pool map that shards have, */
    uint64_t term;       /* and the latest of a pool map, or a lease */
    uint32_t placements; /* as `serving` counts them, of what is reported */
    struct pst_lease lease;
    uint64_t beat_ns;                            /* when the next heartbeat is due */
    uint64_t stat_ns;                            /* when to look at the node's memory again */
    char told[PST_STRINGS_MAX][PST_FAULT_BYTES]; /* the trouble with each master that was logged last */
    struct pst_ready ready;
    struct pst_pool_event events[PST_HEARTBEAT_EVENTS_MAX];
    uint8_t question[PST_WIRE_QUESTION_BYTES_MAX];
    uint8_t answer[PST_POOL_ANSWER_BYTES];
    int stop_fd;
    _Atomic bool stopping;
    pthread_t thread;
    bool running;
    void (*log)(void *ctx, const char *line);
    void *log_ctx;
};

/* ---- masters.c ---- */

void pst_member_say(const struct pst_member *m, const char *text);
/* The same trouble with a master is logged once, until there is another with it or the node has joined.
 * @result: as of the call that failed. */
void pst_member_trouble(struct pst_member *m, int result, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Sleeps until the end, @fd (or -1), or @ms have passed. */
void pst_member_nap(struct pst_member *m, int fd, uint64_t ms);

/* A channel to the next master. Return: whether there is one. */
bool pst_member_dial(struct pst_member *m);
void pst_member_hang_up(struct pst_member *m);
/* This master is none of ours: it is left alone for a moment, and nothing is believed of it. */
void pst_member_other_pool(struct pst_member *m);
/* The same of one that was ours: another has led since, and may have moved what it says is the node's. */
void pst_member_is_late(struct pst_member *m);
/* The same of one that began with a pool map of before. */
void pst_member_map_of_before(struct pst_member *m);
/*
 * Asks, with @bytes of the question, and waits for the answer. Return: the result, its data op->value_bytes
 * long; after an error of the connection there is none any more.
 */
int pst_member_ask(struct pst_member *m, struct penstock_op *op, size_t bytes);

/* ---- member.c ---- */

/* The pool that it has joined. */
const struct pst_id *pst_member_pool(const struct pst_member *m);

/* ---- tellers.c ---- */

/* The first. Return: 0 or -ENOMEM. */
int pst_tellers_open(struct pst_member *m);
void pst_tellers_close(struct pst_member *m);
/* One for each share of the pool map's. Return: 0 or -ENOMEM: some are not told. */
int pst_tellers_follow(struct pst_member *m, const struct pst_map *map);
void pst_tellers_take_changes(struct pst_member *m);
/* Whether changes were missed, so that all has to be told again. */
void pst_tellers_miss(struct pst_member *m, bool missed);
/* Sends what is due to the other shares, and takes their answers; waits for nothing but the own node. */
void pst_tellers_turn(struct pst_member *m);
/* What wakes whoever waits for them, and for how long he may. Return: how many descriptors. */
uint32_t pst_tellers_arm(struct pst_member *m, struct pollfd *fds, uint64_t *ms);
/* Each of the other shares has heard of this membership, or could not be told. */
bool pst_tellers_tried(const struct pst_member *m);
/* A heartbeat as a question. Return: bytes. */
size_t pst_teller_put(struct pst_member *m, const struct pst_heartbeat *message, uint64_t sent_ns,
                      uint8_t *question);

#endif
