/* SPDX-License-Identifier: Apache-2.0 */
/*
 * exec.h: gets, from what is asked to the bytes. The node and the embedded store, which differ in how the
 * bytes leave and in how a get waits for the SSD, include it.
 */
#ifndef PST_STORE_EXEC_H
#define PST_STORE_EXEC_H

#include "store/put.h"
#include "store/record.h"

/* What is asked of a value. */
struct pst_get {
    uint64_t offset, bytes; /* with @range; else bytes is the room for all of it */
    uint64_t generation;
    bool only;   /* the value of @generation */
    bool unless; /* ... or any but that; not both */
    bool range;  /* from INT64_MAX + 1 on the offset counts back from the end */
    bool exact;  /* the value has just @bytes */
};

/*
 * Which bytes of the value a get reads. Return: 0 and [*@offset, + *@bytes); PST_STALE or PST_EXISTS, as it
 * is another generation or that one; -ENOBUFS, -EMSGSIZE, -ERANGE.
 */
int pst_get_plan(const struct pst_record *record, const struct pst_get *get, uint64_t *offset,
                 uint64_t *bytes);

/*
 * The same bytes where they can be read, once it is known that they are good: in *@record from *@offset on.
 * Return: 0; PST_BUSY they are on SSD alone: pst_tier_fetch(), and once that has ended again; -EBADMSG, -EIO.
 */
int pst_get_locate(struct pst_shard *shard, struct pst_record **record, uint64_t *offset, uint64_t bytes);

#endif
