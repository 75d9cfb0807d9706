/* SPDX-License-Identifier: Apache-2.0 */
/*
 * index.h: the compact hash index of one shard: 64-bit hash to a 40-bit record reference. One thread.
 *
 * Extendible: a directory of 64 KiB segments, each 1,024 buckets of one cache line (eight 8-byte entries:
 * 24-bit tag, 40-bit reference). A key has two buckets in its segment; a full pair moves an entry to its
 * other bucket, else the segment splits, so that growth never stops the shard for more than one segment;
 * shrunken neighbours join again. Keys are the caller's: the index returns candidates whose tag matches, the
 * caller compares whole keys.
 */
#ifndef PST_INDEX_H
#define PST_INDEX_H

#include "base/base.h"

enum { PST_INDEX_CANDIDATES_MAX = 16 };
#define PST_INDEX_REF_MAX ((1ull << 40) - 1) /* references are 1 .. this */

struct pst_index;

/* @hash_of recomputes the (uniform) hash of a reference when a segment splits. Return: 0 or -ENOMEM. */
int pst_index_open(uint64_t (*hash_of)(void *ctx, uint64_t ref), void *ctx, struct pst_index **out);
struct pst_index *pst_index_close(struct pst_index *index);

void pst_index_prefetch(const struct pst_index *index, uint64_t hash);
/* Writes the references whose tag matches. Return: their number. */
int pst_index_candidates(const struct pst_index *index, uint64_t hash,
                         uint64_t refs[PST_INDEX_CANDIDATES_MAX]);
/*
 * The caller has made sure that the key is absent. Return: 0 or -ENOMEM (no entry changed), also when
 * PST_INDEX_CANDIDATES_MAX other keys have the same hash.
 */
int pst_index_insert(struct pst_index *index, uint64_t hash, uint64_t ref);
/* Return: 0 or -ENOENT. */
int pst_index_remove(struct pst_index *index, uint64_t hash, uint64_t ref);
int pst_index_replace(struct pst_index *index, uint64_t hash, uint64_t old_ref, uint64_t new_ref);

uint64_t pst_index_count(const struct pst_index *index);
uint64_t pst_index_memory_bytes(const struct pst_index *index);

#endif
