/*
 * policy.h: which cache record goes first. A shard keeps them in *lines*, from young to cold, and a policy
 * says where in them a record comes and what a use changes. All of it is amortised O(1) and nothing is
 * searched; what a use costs, every read pays.
 *
 * The lines of one *group* are ordered by themselves. Used by one thread at a time, as all of a shard.
 */
#ifndef PST_POLICY_H
#define PST_POLICY_H

#include "base/base.h"
#include "store/record.h"

#include <stdatomic.h>

struct pst_shard;

enum { PST_LINES = 2 };

/* By reference: 0 is none. */
struct pst_line {
    uint64_t newest, oldest;
    uint64_t count;
};

/* Keys that went, by a part of their hash. */
struct pst_ghosts {
    uint32_t *entries; /* tag and time; 0: none */
    uint32_t count;    /* a power of two, or 0 */
    uint64_t evictions;
};

struct pst_lines {
    struct pst_line line[PST_LINES];
    uint64_t tail_ms;       /* of the coldest of the lines' ends; UINT64_MAX: they are empty */
    _Atomic uint64_t count; /* of records, for other shards to read */
    uint64_t chain;         /* the record that came last: deeper ones of its chain come behind it */
    uint64_t chain_ms;      /* when one came last, to stay or not */
    struct pst_ghosts ghosts;
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

extern const struct pst_policy pst_policy_lru, pst_policy_prefix, pst_policy_s3fifo;

/* NULL or "": the default. Return: NULL when there is none of that name. */
const struct pst_policy *pst_policy_find(const char *name);

/* ---- recency.c: for policies ---- */

/* At the young end; with @chained behind the one that came last, when that was just now and @r is deeper. */
void pst_line_add(struct pst_shard *s, struct pst_lines *lines, uint32_t line, struct pst_record *r,
                  bool chained, uint64_t now_ms);
/* To the young end of a line, which may be another one than it is in. */
void pst_line_move(struct pst_shard *s, struct pst_lines *lines, uint32_t line, struct pst_record *r);

/* ---- ghosts.c ---- */

/* Makes the table fit for so many; one that grows is empty, and without memory it stays as it is. */
void pst_ghosts_fit(struct pst_ghosts *ghosts, uint64_t records);
void pst_ghosts_add(struct pst_ghosts *ghosts, uint64_t hash);
/* Whether this key is among about the last @evictions that went. It is forgotten. */
bool pst_ghosts_take(struct pst_ghosts *ghosts, uint64_t hash, uint64_t evictions);
void pst_ghosts_fini(struct pst_ghosts *ghosts);

#endif
