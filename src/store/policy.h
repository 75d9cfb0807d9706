/* SPDX-License-Identifier: Apache-2.0 */
/*
 * policy.h: which cache record goes first. The policies, and the files that keep their lines, include it. A
 * shard keeps them in *lines*, from young to cold, and a policy says where in them a record comes and what a
 * use changes. All of it is amortised O(1) and nothing is searched; what a use costs, every read pays.
 *
 * The lines of one *group* are ordered by themselves. Used by one thread at a time, as all of a shard.
 */
#ifndef PST_POLICY_H
#define PST_POLICY_H

#include "base/base.h"

#include <pthread.h>
#include <stdatomic.h>

#define PST_POLICY_NAMES "chains, s3fifo, prefix, lru"

struct pst_record;
struct pst_shard;

enum {                 /* the lines of a group */
       PST_LINE_SHORT, /* came for the first time, or all there are */
       PST_LINE_LONG,  /* used again, or came back */
       PST_LINE_LEFT,  /* were behind the page where a chain went on differently */
       PST_LINES
};

_Static_assert(PST_LINES <= 1 << 4, "4 bits of a record's recency");

/* By reference: 0 is none. */
struct pst_line {
    uint64_t newest, oldest;
    uint64_t count;
};

/* Keys that went, by a part of their hash. */
struct pst_ghosts {
    uint32_t *entries; /* tag, line and time; 0: none */
    uint32_t count;    /* a power of two, or 0 */
};

/* One that went: its line, and when it was touched, as far as that is known still. */
struct pst_ghost {
    uint32_t line;
    uint64_t stamp;
};

enum { PST_OCTAVES = 32 }; /* of ages */

/* What all shards know of a group, so that they decide alike. A shard tells it what it saw now and then. */
struct pst_learnt {
    _Atomic uint64_t clock __attribute__((aligned(64))); /* touches, as far as they were told */
    _Atomic uint32_t walk __attribute__((aligned(64)));  /* the number of the last walk that began */
    _Atomic double index[PST_LINES][PST_OCTAVES] __attribute__((aligned(64)));
    _Atomic double at_most[PST_LINES][PST_OCTAVES];
    pthread_mutex_t lock;   /* of what follows; nobody waits for it */
    uint64_t told, weighed; /* the clock when rates were told, and the index was made of them */
    double hits[PST_LINES][PST_OCTAVES], at_risk[PST_LINES][PST_OCTAVES];
};

struct pst_rates; /* rates.c: what one shard saw, and has not told yet */

/* The chain that a shard is walked through: pages whose depth grows, as far as the shard can tell. */
struct pst_walk {
    uint32_t number;     /* what it has in all shards */
    uint64_t stamp;      /* the clock at its first page, which all its records get */
    uint32_t depth;      /* of the last one; PST_DEPTH_NONE: none underway */
    uint32_t left_depth; /* of the page that was used last */
    uint64_t left;       /* the record that stood behind it; 0: none */
    uint64_t left_stamp; /* its stamp, before the walk came by */
};

struct pst_lines {
    struct pst_line line[PST_LINES];
    uint64_t tail_ms;       /* of the coldest of the lines' ends; UINT64_MAX: they are empty */
    _Atomic uint64_t count; /* of records, for other shards to read; of a quota's, how many lie on SSD: */
    _Atomic uint64_t away;
    _Atomic uint64_t kept_until_ns; /* none of them may go, as far as is known */
    struct pst_hand *hand;          /* prefix_quota.c's; NULL: none has gone from the SSD yet */
    uint64_t chain;                 /* the record that came last: deeper ones of its chain come behind it */
    uint64_t chain_ms;              /* when one came last, to stay or not */
    struct pst_ghosts ghosts;
    struct pst_learnt *learnt; /* the store's */
    struct pst_rates *rates;   /* NULL: no chain was seen, or no memory */
    struct pst_walk walk;
    uint64_t clock; /* counts touches; where chains are, those of all shards */
    uint64_t told;  /* what it was when it was told to the others */
};

struct pst_policy {
    const char *name;
    /* A record that is in no line comes into one. */
    void (*added)(struct pst_shard *s, struct pst_lines *lines, struct pst_record *r, uint64_t now_ms);
    /* A record is read, or written again. */
    void (*used)(struct pst_shard *s, struct pst_lines *lines, struct pst_record *r, uint64_t now_ms);
    /* Return: the record that should go now, still in its line; NULL: the lines are empty. */
    struct pst_record *(*next)(struct pst_shard *s, struct pst_lines *lines, uint64_t now_ms);
    /* A record is about to go for want of memory; NULL: it is of no interest. */
    void (*evicted)(struct pst_shard *s, const struct pst_record *r);
};

extern const struct pst_policy pst_policy_lru, pst_policy_prefix, pst_policy_s3fifo, pst_policy_chains;

/* NULL or "": the default. Return: NULL when there is none of that name. */
const struct pst_policy *pst_policy_find(const char *name);

/* ---- recency.c: for policies ---- */

/* At the young end; with @chained behind the one that came last, when that was just now and @r is deeper. */
void pst_line_add(struct pst_shard *s, struct pst_lines *lines, uint32_t line, struct pst_record *r,
                  bool chained, uint64_t now_ms);
/* To the young end of a line, which may be another one than it is in. */
void pst_line_move(struct pst_shard *s, struct pst_lines *lines, uint32_t line, struct pst_record *r);

/* Out of its line, to be added again. */
void pst_line_take(struct pst_shard *s, struct pst_lines *lines, struct pst_record *r);
/* At the young end of a line with @newer 0, else behind that record of it. */
void pst_line_move_behind(struct pst_shard *s, struct pst_lines *lines, uint32_t line, struct pst_record *r,
                          uint64_t newer);

/* ---- ghosts.c ---- */

/* Makes the table fit for so many; one that grows is empty, and without memory it stays as it is. */
void pst_ghosts_fit(struct pst_ghosts *ghosts, uint64_t records);
void pst_ghosts_add(struct pst_ghosts *ghosts, uint64_t hash, struct pst_ghost ghost, uint64_t clock);
/* Whether this key is in the table, and *@out. It is forgotten. */
bool pst_ghosts_take(struct pst_ghosts *ghosts, uint64_t hash, uint64_t clock, struct pst_ghost *out);
void pst_ghosts_fini(struct pst_ghosts *ghosts);

/* ---- rates.c ---- */

/* For so many groups. Return: NULL without memory. */
struct pst_learnt *pst_learnt_open(uint32_t count);
struct pst_learnt *pst_learnt_close(struct pst_learnt *learnt, uint32_t count);

/* @shards of them learn together. Return: NULL without memory. */
struct pst_rates *pst_rates_open(struct pst_learnt *learnt, uint32_t shards, uint64_t clock);
/* The clock has gone on; bounded work once in an epoch. @records: of all shards. */
void pst_rates_pass(struct pst_rates *rates, uint64_t clock, uint64_t records);
/* A record comes into a line. */
void pst_rates_came(struct pst_rates *rates, uint32_t line, uint64_t stamp);
/* One that came there is used, be it a ghost, or will not be waited for. */
void pst_rates_left(struct pst_rates *rates, uint32_t line, uint64_t stamp, uint64_t clock, bool used);
/* What a record of this line and age is worth, and what it may be worth if too little was seen of its like.
 */
double pst_rates_index(const struct pst_learnt *learnt, uint32_t line, uint64_t age);
double pst_rates_at_most(const struct pst_learnt *learnt, uint32_t line, uint64_t age);

#endif
