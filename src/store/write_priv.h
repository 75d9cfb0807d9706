/* SPDX-License-Identifier: Apache-2.0 */
/*
 * write_priv.h: what the ways to write share: a put's conditions, room for its value, claims on its key. The
 * files that reserve or commit include it; the functions are those of shard.c and of write/.
 */
#ifndef PST_STORE_WRITE_PRIV_H
#define PST_STORE_WRITE_PRIV_H

#include "store/claim.h"
#include "store/memory_priv.h"
#include "store/put.h"

struct pst_reservation;
struct pst_store;

bool pst_key_evictable(const struct pst_store *store, struct pst_bytes key);
/* Takes a record's memory, making room as long as that helps, and its part of a quota. Return: 0, -ENOSPC,
 * with *@answer where that is a quota's, PST_BUSY, -ENOMEM. */
int pst_record_reserve(struct pst_shard *s, const struct pst_put *put, uint64_t now_ns,
                       struct pst_record **out, struct pst_answer *answer);
/* The same for the bytes of a value that is away, whose quota they are in, and whose class @cache tells; with
 * @spare from what writes leave, too. */
int pst_record_reserve_fetch(struct pst_shard *s, const struct pst_put *put, bool cache, bool spare,
                             uint64_t now_ns, struct pst_record **out);
/* True when a write of @pages leaves free what values that are away are read into. */
bool pst_shard_leaves_spare(const struct pst_shard *s, uint32_t pages);
/* No memory for a write that wants @pages free pages: others may have to evict. Return: -ENOSPC or PST_BUSY.
 */
int pst_shard_no_room(struct pst_shard *s, uint32_t pages, uint64_t now_ns);
/* The same after a take that said @result. Return: -ENOSPC, PST_BUSY; any other @result as it is. */
int pst_shard_no_runs(struct pst_shard *s, const struct pst_wanted *wanted, int result, uint64_t now_ns);
/* Keeps the value that the put's condition names while room is made: others go, or its commit would not find
 * it any more. *@named: NULL: there is none. Return: 0 or -ENOMEM. */
int pst_put_keep_named(struct pst_shard *s, const struct pst_put *put, struct pst_record **named);
void pst_put_let_named(struct pst_shard *s, struct pst_record *named);
/* Return: 0, -EINVAL, -ENAMETOOLONG, -EFBIG. */
int pst_put_check_shape(const struct pst_shard *s, const struct pst_put *put);
/* Return: 0 when the put may go on over @old, PST_EXISTS or PST_STALE with *@answer. */
int pst_put_check(const struct pst_put *put, const struct pst_record *old, struct pst_answer *answer);

/* A change has made its record the key's. */
void pst_pending_taken(struct pst_shard *s, struct pst_pending *pending);

bool pst_claim_is(const struct pst_claim *claim, const struct pst_lookup *lookup);
void pst_claim_add(struct pst_shard *s, struct pst_claim *claim);
void pst_claim_remove(struct pst_shard *s, struct pst_claim *claim);
bool pst_claim_find(struct pst_shard *s, const struct pst_lookup *lookup, enum pst_claim_kind kind);

/* For a commit over several keys: the record of a reservation that is written and of this key, which stays
 * the reservation's until it is taken. Return: 0, PST_BUSY, -EINVAL another key, -EMSGSIZE, -ENODATA. */
int pst_reservation_lend(struct pst_reservation *reservation, const struct pst_put *put,
                         struct pst_record **out);
void pst_reservation_return(struct pst_shard *s, struct pst_reservation *reservation, bool taken);

#endif
