/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shard.h: the keys of one shard: found, kept in place, pinned, deleted. Whoever works in a shard includes
 * it.
 */
#ifndef PST_STORE_SHARD_H
#define PST_STORE_SHARD_H

#include "base/base.h"

struct pst_holder;
struct pst_record;
struct pst_shard;

/* Outcomes that the caller must handle; errors are negative errno. */
enum pst_outcome {
    PST_OK = 0,
    PST_MISS = 1,
    PST_EXISTS = 2,
    PST_STALE = 3,
    PST_BUSY = 4,
    PST_OWNED = 6, /* a reservation has the key */
};

/* A key and its hash in this store, so that a batch can prefetch; then also what the prefetch saw. */
struct pst_lookup {
    struct pst_bytes key;
    uint64_t hash;
    uint64_t seen_ref;     /* the one record that it may be; 0: not known */
    uint64_t seen_changes; /* of the shard: a later change makes seen_ref worthless */
};

struct pst_lookup pst_shard_lookup(const struct pst_shard *shard, struct pst_bytes key);
void pst_shard_prefetch(const struct pst_shard *shard,
                        const struct pst_lookup *lookup); /* first: the bucket */
void pst_shard_prefetch_record(const struct pst_shard *shard,
                               struct pst_lookup *lookup); /* then: the record */
/* Says what time it is: whatever expires before is not found any more. As pst_shard_tick() does. */
void pst_shard_time(struct pst_shard *shard, uint64_t now_ns);
/* True while some key has an end. */
bool pst_shard_expires(const struct pst_shard *shard);
/* When pst_shard_tick() is to give memory of such keys back. Return: ms from now; UINT64_MAX: there are none.
 */
uint64_t pst_shard_expires_in_ms(const struct pst_shard *shard);
/* Return: the record, or NULL. No side effect. Valid until the shard's next change. */
struct pst_record *pst_shard_find(const struct pst_shard *shard, const struct pst_lookup *lookup);
/* Counts as a use for eviction. */
void pst_shard_touch(struct pst_shard *shard, struct pst_record *record, uint64_t now_ns);

/* What a put, delete or look-up tells: of the value that is there now, or of the one that was removed. */
struct pst_answer {
    uint64_t generation;
    uint64_t value_bytes;
    uint64_t limit_bytes;  /* -EFBIG: of the largest value; -ENOSPC by a quota: what it allows */
    uint32_t prefix_bytes; /* -ENOSPC by a quota: the length of its prefix */
};

/* @conditional: only the value of this generation. Return: 0, PST_MISS, PST_STALE. */
int pst_shard_delete(struct pst_shard *shard, const struct pst_lookup *lookup, bool conditional,
                     uint64_t if_generation, struct pst_answer *answer);

/* The last one that was given; values from now on have later ones than @generation, which is below
 * PST_GENERATION_MAX. */
uint64_t pst_shard_generation(const struct pst_shard *shard);
void pst_shard_pass_generation(struct pst_shard *shard, uint64_t generation);
/* Deletes a value of @generation or before, as another store did. Return: 0, PST_MISS, PST_BUSY. */
int pst_shard_delete_replica(struct pst_shard *shard, const struct pst_lookup *lookup, uint64_t generation);
/* What the clock says of a value with an end, and back: ms since 1970. */
uint64_t pst_shard_wall_ms(const struct pst_shard *shard);
/* Keeps a record's bytes in place. Return: 0 or -ENOMEM. */
int pst_shard_ref(struct pst_shard *shard, struct pst_record *record);
void pst_shard_unref(struct pst_shard *shard, struct pst_record *record);

/*
 * Keeps a key from eviction: for @ttl_ms, or with 0 until unpinned (hard pins count). Overwriting keeps the
 * pin. A hard pin counts against the holder that made it until it or the holder goes; NULL: against nobody.
 * Return: 0, PST_MISS, -ENOMEM, -EDQUOT. Unpin takes back one of the holder's, else any: -EINVAL when the key
 * has no hard pin, PST_BUSY when it would go with its last while a commit relies on it.
 */
int pst_shard_pin(struct pst_shard *shard, struct pst_holder *holder, const struct pst_lookup *lookup,
                  uint64_t ttl_ms, uint64_t now_ns);
int pst_shard_unpin(struct pst_shard *shard, struct pst_holder *holder, const struct pst_lookup *lookup);
bool pst_shard_pinned(struct pst_shard *shard, const struct pst_lookup *lookup, uint64_t now_ns);

/*
 * Evicts above the watermark when this shard's tail is the coldest, helps a shard that waits for pages, ends
 * pins whose time is over. Bounded. Return: true when there is more to do at once.
 */
bool pst_shard_tick(struct pst_shard *shard, uint64_t now_ns);

#endif
