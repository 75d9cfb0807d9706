/* SPDX-License-Identifier: Apache-2.0 */
/*
 * chain.h: who fetches from whom in a pipelined broadcast. The members form a row, whose head is the source:
 * each fetches from the one in front of it, its parent, so that no member ever serves two. A member joins at
 * the end and gets a rank, which stays its name; the source has rank 0.
 *
 *     0 source -> 1 -> 2 -> 4 -> 5 -> 3       3 was silent, was stepped over, and joined again
 *
 * A child reports a parent that is silent: it is taken out of the row, and the child gets the one in front of
 * it. If the one that was reported lives, its next call puts it at the end again. One that passed on wrong
 * bytes is a parent to nobody any more, unless to others like it: they stay behind everyone else.
 *
 * Pure: no clock, no network. One caller at a time. Time is handed in, in ms; texts are borrowed during
 * calls. Source: docs/reference/data-store.md, broadcasts.
 */
#ifndef PST_FILES_CHAIN_H
#define PST_FILES_CHAIN_H

#include "base/base.h"

enum {
    PST_CHAIN_MEMBERS_MAX = 20000,
    PST_CHAIN_HOST_BYTES_MAX = 63,
    PST_CHAIN_GONE_MS = 10000, /* a member calls every second */
};

struct pst_chain;

/* Return: NULL without memory. */
struct pst_chain *pst_chain_open(void);
/* Returns NULL. */
struct pst_chain *pst_chain_close(struct pst_chain *chain);

struct pst_chain_address {
    const char *host; /* numeric, of 1 to PST_CHAIN_HOST_BYTES_MAX bytes */
    uint16_t port;
};

/*
 * A member joins, or asks again: @id, which it drew, is its own. Return: 0 and *@rank; -EINVAL the address
 * cannot be; -ENOSPC; -ENOMEM.
 */
int pst_chain_join(struct pst_chain *chain, uint64_t id, const struct pst_chain_address *address,
                   uint64_t now_ms, uint32_t *rank);

/* ---- calls of members; all: -ENOENT @rank is not the member @id, which leaves everything as it was ---- */

/* It has so many pieces, @done: and its tree lies in its place. */
int pst_chain_progress(struct pst_chain *chain, uint32_t rank, uint64_t id, uint32_t pieces, bool done,
                       uint64_t now_ms);

enum pst_chain_fault {
    PST_CHAIN_SILENT,
    PST_CHAIN_WRONG_BYTES,
};

enum { PST_CHAIN_IS_SOURCE = 1 };

/* Its parent @parent_rank has failed it. Return: 0; PST_CHAIN_IS_SOURCE: it is the source, in front of which
 * there is nobody. A report about somebody who is not its parent any more changes nothing. */
int pst_chain_report(struct pst_chain *chain, uint32_t rank, uint64_t id, uint32_t parent_rank,
                     enum pst_chain_fault fault, uint64_t now_ms);
/* It serves nobody any more, and calls no more. */
int pst_chain_leave(struct pst_chain *chain, uint32_t rank, uint64_t id);

/* Whether all of its members have left, or have not called for PST_CHAIN_GONE_MS. */
bool pst_chain_is_over(const struct pst_chain *chain, uint64_t now_ms);

/* Where a member stands. The host lives until the next call. */
struct pst_chain_place {
    uint32_t parent_rank;
    struct pst_chain_address parent; /* NULL and 0: the source */
    bool may_leave;                  /* it is done, and nobody waits for it */
};

/* @rank is a member that has not left. */
void pst_chain_place(const struct pst_chain *chain, uint32_t rank, struct pst_chain_place *out);

/* ---- for people ---- */

enum pst_chain_state {
    PST_CHAIN_FETCHES,
    PST_CHAIN_OUT, /* it was reported and has not called since */
    PST_CHAIN_DONE,
    PST_CHAIN_LEFT,
};

struct pst_chain_member {
    uint32_t rank, parent_rank, pieces;
    enum pst_chain_state state;
    struct pst_chain_address address;
    uint32_t reports; /* about it */
    bool refused;     /* it passed on wrong bytes */
    uint64_t heard_ms;
};

typedef void pst_chain_each(void *arg, const struct pst_chain_member *member);

/* In the order of ranks, those who have left too. */
void pst_chain_list(const struct pst_chain *chain, pst_chain_each *each, void *arg);
uint32_t pst_chain_count(const struct pst_chain *chain);

#endif
