/* SPDX-License-Identifier: Apache-2.0 */
/*
 * evict_priv.h: what the engine asks of evict/: order of records, room, quotas of prefixes, ends of values.
 * Files by which records come, go or are used include it.
 */
#ifndef PST_STORE_EVICT_PRIV_H
#define PST_STORE_EVICT_PRIV_H

#include "store/memory_priv.h"
#include "store/shard_priv.h"

struct pst_put;

/* ---- recency.c ---- */

void pst_recency_add(struct pst_shard *s, struct pst_record *r, uint64_t now_ns);
void pst_recency_remove(struct pst_shard *s, struct pst_record *r);
/* Corrects the neighbours after @r moved here from where @from named it. */
void pst_recency_moved(struct pst_shard *s, struct pst_record *r, uint64_t from);
/* Tells other shards that there may be something to evict here again. */
void pst_recency_loosened(struct pst_shard *s);
/* Tells other shards how cold this one's cold end is. */
void pst_recency_publish(struct pst_shard *s);
/* Puts a record that may not go to the young end of its line. */
void pst_recency_spare(struct pst_shard *s, struct pst_record *r, uint64_t now_ns);

/* ---- prefix_quota.c ---- */

int pst_prefix_quotas_open(struct pst_store *store, const struct pst_prefix_number *options, uint32_t count);
void pst_prefix_quotas_close(struct pst_store *store);
/* Which lines the key's record is in; 0: those of no quota. */
uint32_t pst_key_group(const struct pst_store *store, struct pst_bytes key);
/* Counts a record that is there already, or one that goes. */
void pst_prefix_quota_count(struct pst_shard *s, const struct pst_record *r, bool comes);
/* The same for a value of a cache key that goes to the SSD, or leaves it. */
void pst_prefix_quota_count_away(struct pst_shard *s, const struct pst_record *stub, bool more);
/* Makes room for a value among those of its quota, and counts it. Return: 0: its record gives that back when
 * it goes; PST_BUSY other shards can make room, or -ENOSPC with *@answer: see pst_shard_reserve(). */
int pst_prefix_quota_take(struct pst_shard *s, const struct pst_put *put, uint64_t now_ns,
                          struct pst_answer *answer);
/* There will be no such record. */
void pst_prefix_quota_give(struct pst_shard *s, const struct pst_put *put);
/* Nothing keeps the record any more: it may go again. */
void pst_prefix_quota_loosened(struct pst_shard *s, const struct pst_record *r);
/* Evicts for writes in other shards. Return: true when there is more to do. */
bool pst_prefix_quotas_tick(struct pst_shard *s, int evictions_max, uint64_t now_ns);

int pst_prefix_numbers_copy(const struct pst_prefix_number *from, uint32_t count,
                            struct pst_prefix_number **out);

/* ---- expiry.c ---- */

#define PST_TTL_MS_MAX (1ull << 40)

/* When a value that is put now ends; 0: never. */
uint64_t pst_put_expires_ms(const struct pst_shard *s, const struct pst_put *put);
/* For a record with an end that is being written: what pst_expiry_add() will need. Return: 0 or -ENOMEM. */
int pst_expiry_prepare(struct pst_shard *s);
void pst_expiry_abandon(struct pst_shard *s);
void pst_expiry_add(struct pst_shard *s, const struct pst_record *r);
/* The same with a record that an earlier process left. */
void pst_expiry_restored(struct pst_shard *s, const struct pst_record *r);
/* One that was added is no key's any more. */
void pst_expiry_remove(struct pst_shard *s);
/* Takes an expired record of this key, which nobody finds, out of the indexes. */
void pst_expiry_make_way(struct pst_shard *s, const struct pst_lookup *lookup);
/* Drops values whose time is over. Return: true when there is more to do at once. */
bool pst_expiries_tick(struct pst_shard *s);
/* The same for who needs room. Return: whether any was dropped. */
bool pst_expiries_drop(struct pst_shard *s);
void pst_expiries_fini(struct pst_shard *s);

static inline bool pst_record_expired(const struct pst_shard *s, const struct pst_record *r)
{
    return pst_unlikely(r->flags & PST_RECORD_EXPIRES) && !(r->state & PST_STATE_RESERVED) &&
           pst_record_expires_ms(r) <= s->expiries.wall_ms;
}

/* ---- evict.c ---- */

/* Evicts one record of a group's lines, though not @spared. Return: false when nothing can be. */
bool pst_group_evict(struct pst_shard *s, uint32_t group, const struct pst_record *spared, uint64_t now_ns);

/* Evicts one record. Return: false when nothing can be. */
bool pst_shard_evict(struct pst_shard *s, uint64_t now_ns);
/* Evicts this one. */
void pst_record_evict(struct pst_shard *s, struct pst_record *r);
/*
 * Makes room after an allocation failed that needs @pages pages at once (0: any room will do). Nothing goes
 * for one that cannot have them even when all of the shard has gone. Return: true when it is worth trying
 * again.
 */
bool pst_shard_make_room(struct pst_shard *s, uint32_t pages, uint64_t now_ns);
/* The same after a take of pages that said @result. For -E2BIG nothing goes unless that joins enough pages.
 */
bool pst_shard_make_runs(struct pst_shard *s, struct pst_wanted *wanted, int result, uint64_t now_ns);
/* False when what stays holds too many of the store's pages for a write of @pages. */
bool pst_store_pages_obtainable(const struct pst_store *store, uint32_t pages);
/* True when other shards can make room for a write of @pages pages. */
bool pst_store_evictable_elsewhere(const struct pst_shard *s, uint32_t pages);

#endif
