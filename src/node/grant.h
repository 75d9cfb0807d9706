/* SPDX-License-Identifier: Apache-2.0 */
/*
 * grant.h: what a client may do, as the operator said it, and whether an operation is within that. Whoever
 * reads grants, or looks at operations before they are carried out, includes it. Pure; any thread.
 *
 * An operation needs one right, and that right for all keys that it names: a key lies within a grant if it
 * begins with one of its prefixes, a range or a watch if every key of it would. Keys are bytes: nothing in
 * them is decoded or resolved.
 */
#ifndef PST_NODE_GRANT_H
#define PST_NODE_GRANT_H

#include "base/base.h"
#include "wire/wire.h"

enum pst_right {
    PST_RIGHT_READ = 1,
    PST_RIGHT_WRITE = 2,
    PST_RIGHT_ADMIN = 4, /* what nodes of a pool ask each other, and their operator */
    PST_RIGHTS_ALL = PST_RIGHT_READ | PST_RIGHT_WRITE | PST_RIGHT_ADMIN,
    PST_RIGHT_NONE = 8, /* of an operation: it needs none */
};

enum { PST_GRANT_PREFIXES_MAX = 16, PST_RIGHT_COUNT = 3 };

struct pst_grant_terms {
    uint8_t rights;
    bool all_keys; /* else those of the prefixes */
    uint32_t prefix_count;
    struct pst_bytes prefixes[PST_GRANT_PREFIXES_MAX]; /* owned by whoever has the terms */
    /* Of all sessions together; 0: no bound but each session's own. */
    uint64_t connections_max;
    uint64_t requests_max; /* underway in one shard */
    uint64_t reservations_max;
    uint64_t pins_max;
    uint64_t pinned_bytes_max;
};

/* The right that an operation of this code needs; 0: no such operation. */
uint8_t pst_right_needed(uint8_t code);
/* "read", "write", "admin". */
const char *pst_right_word(uint8_t right);

/* The right that the terms do not give for the operation; 0: it may be done. A commit's operations are asked
 * for one by one. */
uint8_t pst_grant_missing(const struct pst_grant_terms *terms, const struct pst_wire_op *op);
/* Whether a watch of this prefix is within the terms. */
bool pst_grant_may_watch(const struct pst_grant_terms *terms, struct pst_bytes prefix);

/* Nothing is beyond them, so that nobody needs to look. */
static inline bool pst_grant_is_everything(const struct pst_grant_terms *terms)
{
    return terms->all_keys && terms->rights == PST_RIGHTS_ALL;
}

/* Memory of the host that holds values may be shown only to who may read all of them. */
static inline bool pst_grant_is_confined(const struct pst_grant_terms *terms)
{
    return !terms->all_keys || !(terms->rights & PST_RIGHT_READ);
}

void pst_grant_terms_fini(struct pst_grant_terms *terms);
/* Return: 0 or -ENOMEM. */
int pst_grant_terms_copy(const struct pst_grant_terms *terms, struct pst_grant_terms *out);

#endif
