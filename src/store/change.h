/* SPDX-License-Identifier: Apache-2.0 */
/*
 * change.h: commits over several keys. Whoever carries one out includes it. A *change* is a part of one:
 * prepared in every shard that it touches, then applied in all of them or undone.
 */
#ifndef PST_STORE_CHANGE_H
#define PST_STORE_CHANGE_H

#include "store/claim.h"
#include "store/put.h"

struct pst_holder;
struct pst_reservation;
struct pst_store;

enum pst_change_kind {
    PST_CHANGE_CHECK,
    PST_CHANGE_PUT,
    PST_CHANGE_DELETE,
    PST_CHANGE_KEEP, /* the value that is there stays until the commit has ended; PST_MISS: there is none */
};

/* Where the value of a put is. */
enum pst_change_value {
    PST_VALUE_GIVEN,       /* put.value_bytes to be copied */
    PST_VALUE_RESERVATION, /* in a reservation of the holder; -ENOENT: there is none */
    PST_VALUE_WRITTEN,
};

struct pst_change {
    struct pst_change *next; /* of the same shard */
    enum pst_change_kind kind;
    struct pst_put put; /* key and conditions; of a put also its value's shape */
    enum pst_change_value from;
    const void *value;           /* PST_VALUE_GIVEN */
    uint64_t reservation_handle; /* PST_VALUE_RESERVATION */
    struct pst_pending pending;  /* PST_VALUE_WRITTEN: its record; given up in any case */
    int result;                  /* why it fails */
    struct pst_answer answer;

    /* The store's between prepare and the end. */
    struct pst_claim claim;
    struct pst_record *old, *fresh;
    uint64_t generation; /* of @fresh; of a delete: up to which values go */
    uint32_t check;      /* makes @fresh whole */
    struct pst_reservation *reservation;
    bool claimed, linked;
};

/*
 * Locks the keys, checks the conditions, reserves memory. All or none: when one change fails, nothing stays
 * behind. @holder: NULL when the session has ended. @look_only: only checks (another shard has failed
 * already). Return: true when all of them can be applied, which then cannot fail.
 */
bool pst_changes_prepare(struct pst_shard *shard, const struct pst_holder *holder, struct pst_change *first,
                         bool look_only, uint64_t now_ns);
/* All shards have prepared theirs: makes it so, in one step also for who finds the arenas later. Any of the
 * shards' threads. Apply, then, in every shard. */
void pst_changes_decide(struct pst_store *store, const struct pst_change *changes, uint32_t count);
/* One of the two ends what was prepared, and unlocks. */
void pst_changes_apply(struct pst_shard *shard, struct pst_change *first, uint64_t now_ns);
void pst_changes_undo(struct pst_shard *shard, struct pst_change *first);

#endif
