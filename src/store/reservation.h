/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reservation.h: writes that take more than one step. Whoever serves a session includes it. A *reservation*
 * is memory for a key's next value: reserved, written in pieces, then committed or aborted; nobody else sees
 * it.
 *
 * Reservations and hard pins belong to a *holder*, a session's side of one shard, and reservations end with
 * it. What all holders of a session keep is counted in its *quota*. Threads: a holder has its shard's.
 */
#ifndef PST_STORE_RESERVATION_H
#define PST_STORE_RESERVATION_H

#include "base/list.h"
#include "store/put.h"
#include "store/quota.h"

enum {
    PST_TIER_DRAM = 2,
    PST_RESERVATION_LOCATION_BYTES_MAX = 223,
    PST_RESERVATION_GAPS_MAX = 32,
};

#define PST_RESERVATION_GROWS UINT64_MAX /* value_bytes of a put whose size its commit tells */

struct pst_recent; /* commits that may be asked for again */

struct pst_holder {
    struct pst_list reservations;
    struct pst_list pins;      /* hard ones that count against the quota */
    struct pst_recent *recent; /* made with the first reservation */
    struct pst_quota *quota;   /* NULL: no limits */
};

void pst_holder_init(struct pst_holder *holder, struct pst_quota *quota);
/* Gives up all reservations, and lets go of its pins; reservations that a transfer or a commit still uses go
 * with that. */
void pst_holder_end(struct pst_shard *shard, struct pst_holder *holder);

struct pst_reservation;

/*
 * Reserves memory for a value. Without @replace the reservation owns its key: no other such reservation is
 * given, and the put is one of PST_PUT_IF_ABSENT unless it names a generation. With @replace it is like any
 * put. Return: 0, PST_EXISTS or PST_STALE with *@answer, PST_OWNED, -EDQUOT, and what pst_shard_reserve()
 * says.
 */
int pst_reservation_reserve(struct pst_shard *shard, struct pst_holder *holder, const struct pst_put *put,
                            bool replace, uint64_t now_ns, struct pst_reservation **out,
                            struct pst_answer *answer);
struct pst_reservation *pst_reservation_find(const struct pst_holder *holder, uint64_t handle);
uint64_t pst_reservation_handle(const struct pst_reservation *reservation);
/*
 * Where the reservation lies, as text of at most PST_RESERVATION_LOCATION_BYTES_MAX: the pages, or where they
 * are too many a digest of them; "" for one that grows. Return: its length.
 */
size_t pst_reservation_location(const struct pst_shard *shard, const struct pst_reservation *reservation,
                                char text[PST_RESERVATION_LOCATION_BYTES_MAX + 1]);

/*
 * Begins to write [@offset, @offset + @bytes); it may only be committed when all of it has been written.
 * Return: 0, then pst_reservation_written() ends it; -ERANGE outside of the reservation, -E2BIG more than
 * PST_RESERVATION_GAPS_MAX gaps, PST_BUSY, also while a commit has it; of a reservation that grows also
 * -ENOSPC, -EFBIG, -EDQUOT.
 */
int pst_reservation_write(struct pst_shard *shard, struct pst_reservation *reservation, uint64_t offset,
                          uint64_t bytes, uint64_t now_ns);
/* @landed: the bytes are there. */
void pst_reservation_written(struct pst_shard *shard, struct pst_reservation *reservation, uint64_t offset,
                             uint64_t bytes, bool landed);
/* The reservation's memory like pst_record_piece(); while it is being written. */
bool pst_reservation_piece(const struct pst_shard *shard, const struct pst_reservation *reservation,
                           uint64_t offset, uint64_t bytes, struct iovec *piece);
/*
 * The addresses of a reservation's memory, which may be changed there until the commit: what has not been
 * written is cleared, and all of it counts as written. Return: pieces, -E2BIG more than @max, -EOPNOTSUPP it
 * grows, -EBUSY it is being written.
 */
int pst_reservation_map(struct pst_shard *shard, struct pst_reservation *reservation, struct iovec *pieces,
                        int max);

/* What a commit says about its reservation. */
struct pst_reservation_named {
    uint64_t handle;
    struct pst_bytes key, location;
    uint64_t bytes;
    uint32_t crc; /* with @checksum */
    uint8_t tier;
    bool checksum, durable;
};

/*
 * Makes a reservation's value visible. Nothing is done with PST_BUSY, -EOPNOTSUPP it cannot be durable,
 * -EFBIG, -ESTALE the key is another node's. Anything else but PST_OK has given the reservation up:
 * PST_EXISTS, PST_STALE; PST_MISS no such reservation; -EMSGSIZE another size, -EINVAL another key, location
 * or tier, or durable with an end, -ENODATA not all of it is written. What was committed lately is answered
 * again.
 */
int pst_reservation_commit(struct pst_shard *shard, struct pst_holder *holder,
                           const struct pst_reservation_named *named, uint64_t now_ns,
                           struct pst_answer *answer);
/* The same in two steps, of a value that other nodes have to have first. With 0 it may have been committed
 * before (*@again). Else the reservation can become the key's value by a change with PST_VALUE_RESERVATION
 * and *@put; how that ended is for pst_reservation_ended(), which remembers the commit or gives the
 * reservation up. */
int pst_reservation_prepare(struct pst_shard *shard, struct pst_holder *holder,
                            const struct pst_reservation_named *named, uint64_t now_ns, struct pst_put *put,
                            bool *again, struct pst_answer *answer);
void pst_reservation_ended(struct pst_shard *shard, struct pst_holder *holder, uint64_t handle, uint64_t hash,
                           int result, const struct pst_answer *answer);
/* Harmless when there is none (any more). */
void pst_reservation_abort(struct pst_shard *shard, struct pst_holder *holder, uint64_t handle);

#endif
