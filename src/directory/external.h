/* SPDX-License-Identifier: Apache-2.0 */
/*
 * external.h: which blocks engines hold in memory of their own, on which nodes and tiers, and how often the
 * blocks were asked for. Engines report and revoke; a router asks who has how much of a prompt.
 *
 * All of it is advice. What an engine calls a block is any bytes of its own (a digest, a number, text), so
 * the caller hands in their keyed pst_hash128() and no such name is stored: answers are positions in the
 * question. Two blocks that shared a hash would cost a detour, not wrong bytes.
 *
 * A table and nothing else: one thread; time is handed in; all memory is taken when it is opened. What has no
 * room is refused, or dropped where it is a count of hits, and counted.
 */
#ifndef PST_EXTERNAL_H
#define PST_EXTERNAL_H

#include "base/base.h"
#include "base/hash.h"

/* Sorted: the fastest of the known ones first. Any number above these that a peer sends is UNKNOWN. */
enum pst_external_tier {
    PST_EXTERNAL_UNKNOWN,
    PST_EXTERNAL_HBM,
    PST_EXTERNAL_DRAM,
    PST_EXTERNAL_SSD,
    PST_EXTERNAL_TIERS
};

enum {
    PST_EXTERNAL_QUERY_MAX = 256, /* hashes in a match, as many as operations in a request */
    PST_EXTERNAL_WORDS = PST_EXTERNAL_QUERY_MAX / 64,
};

struct pst_external_settings {
    uint32_t nodes_max;   /* nodes are numbers below this, which the caller gives out */
    uint32_t entries_max; /* (node, tier, hash), 48 bytes each */
    uint32_t hits_max;    /* hashes with a count of hits, 44 bytes each */
    uint64_t hit_ttl_ns;  /* a count ends so long after the last hit */
};

/* Since the table was opened, but for the first. */
struct pst_external_stats {
    uint64_t entries;      /* held now */
    uint64_t added;        /* hashes reported that were new to their node and tier */
    uint64_t refused;      /* hashes reported that there was no room for */
    uint64_t removed;      /* hashes revoked, one by one or at once */
    uint64_t matches;      /* questions */
    uint64_t hits;         /* hashes that somebody had, in questions that count as hits */
    uint64_t hits_dropped; /* counts that gave way to others before their time */
    uint64_t steps;        /* entries looked at: what all of this costs */
};

/* What one node has of a question. Bit i % 64 of word i / 64 stands for the question's hash i. */
struct pst_external_match {
    uint32_t node;
    uint32_t hash_count; /* a hash on two tiers counts once */
    uint64_t tiers[PST_EXTERNAL_TIERS][PST_EXTERNAL_WORDS];
};

struct pst_external;

/* Return: 0, -EINVAL a bound of zero or of more than 32 bits can number, -ENOMEM. */
int pst_external_open(const struct pst_external_settings *settings, struct pst_external **out);
struct pst_external *pst_external_close(struct pst_external *x);

/*
 * @node has @hashes on @tier, too: takes nothing back, and twice is once. Costs the same however many others
 * have them. Return: how many are refused for want of room, 0 when all are known now.
 */
uint32_t pst_external_report(struct pst_external *x, uint32_t node, uint32_t tier,
                             const struct pst_hash128 *hashes, uint32_t count);

/* @node no longer has @hashes on @tier. Return: how many of them it had. */
uint32_t pst_external_revoke(struct pst_external *x, uint32_t node, uint32_t tier,
                             const struct pst_hash128 *hashes, uint32_t count);
/*
 * All that @node has on @tier, or has: at most @count_max at a time, so that a loop can serve others between.
 * Costs what it removes, however much else there is. Return: how many were removed; less than @count_max when
 * nothing is left.
 */
uint32_t pst_external_revoke_tier(struct pst_external *x, uint32_t node, uint32_t tier, uint32_t count_max);
uint32_t pst_external_revoke_node(struct pst_external *x, uint32_t node, uint32_t count_max);

/*
 * Who has which of @hashes: a row for each node, the first @rows_max that come up from the first hash on, so
 * that those who have the beginning of a prompt are among them. A hash that is asked for twice is answered
 * where it comes first. UNKNOWN shows where its node has the hash on no known tier.
 * @count: up to PST_EXTERNAL_QUERY_MAX
 * @is_hit: whether this is a request of a user, which each hash that somebody has counts
 * Return: nodes that have any; above @rows_max when there are more than rows.
 */
uint32_t pst_external_match(struct pst_external *x, const struct pst_hash128 *hashes, uint32_t count,
                            uint64_t now_ns, bool is_hit, struct pst_external_match *rows, uint32_t rows_max);

/* @hits: for each hash, 0 where none is remembered. Asking is no hit. */
void pst_external_hit_counts(const struct pst_external *x, const struct pst_hash128 *hashes, uint32_t count,
                             uint64_t now_ns, uint32_t *hits);

/* Hashes of @node on @tier. */
uint32_t pst_external_count(const struct pst_external *x, uint32_t node, uint32_t tier);
struct pst_external_stats pst_external_stats(const struct pst_external *x);

#endif
