/* SPDX-License-Identifier: Apache-2.0 */
/*
 * older_priv.h: what the log has of keys whose newer values it does not have yet. Files of tier/ that write
 * or delete values include it; the functions are older.c's.
 */
#ifndef PST_STORE_TIER_OLDER_PRIV_H
#define PST_STORE_TIER_OLDER_PRIV_H

#include "log/value.h"

struct pst_record;
struct pst_tier;

/* What the log has of a key whose newer value it does not have yet. */
struct pst_older {
    uint64_t newer; /* generation of the one in memory; 0: free */
    uint64_t key_hash;
    uint64_t generation;
    struct pst_log_place place;
    uint64_t value_bytes : 48;
    uint64_t attr_bytes : 16;
};

struct pst_olders {
    struct pst_older *places;
    uint64_t room, count;
};

/* What the log has behind @newer, which is in memory alone; NULL: nothing. */
struct pst_older *pst_older_find(struct pst_tier *t, const struct pst_record *newer);
/* Sets whom it is behind. Return: false: no memory. */
bool pst_older_add(struct pst_tier *t, const struct pst_record *newer, struct pst_older older);
struct pst_log_value pst_older_value(const struct pst_older *older, struct pst_bytes key);
/* What is behind @r is dead: as soon as @ticket is durable, by which the log has @r; 0: at once. */
void pst_older_delete(struct pst_tier *t, const struct pst_record *r, uint64_t ticket);

#endif
