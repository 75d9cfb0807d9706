/* SPDX-License-Identifier: Apache-2.0 */
/*
 * link_priv.h: a key's record enters the indexes or leaves them. Files that make a record a key's value, or
 * take it away, include it; the functions are shard.c's, and of those who are told watch.c's.
 */
#ifndef PST_STORE_LINK_PRIV_H
#define PST_STORE_LINK_PRIV_H

#include "store/shard_priv.h"
#include "wire/wire.h"

/* Makes a reserved record, which the indexes name, its key's value; @old is what they named before. */
void pst_shard_expose(struct pst_shard *s, struct pst_record *r, struct pst_record *old, uint64_t now_ns,
                      struct pst_answer *answer);

/* Gives a record the generation that it will be found with; 0: the next one. Return: the checksum that makes
 * it whole. */
uint32_t pst_record_number(struct pst_shard *s, struct pst_record *r, uint64_t generation);

int pst_shard_link(struct pst_shard *s, const struct pst_lookup *lookup, struct pst_record *r,
                   struct pst_record *old);
/* Takes a record out of the indexes; its memory goes now or with its last reference. @what: what happened to
 * its key. */
void pst_shard_unlink_as(struct pst_shard *s, struct pst_record *r, enum pst_wire_what what);

static inline void pst_shard_unlink(struct pst_shard *s, struct pst_record *r)
{
    pst_shard_unlink_as(s, r, PST_WIRE_CHANGE_DELETED);
}

/* A record becomes its key's value, or ceases to be: as far as the shard's figures go. */
void pst_key_count(struct pst_shard *s, const struct pst_record *r, bool comes);

/* Lets the record's memory go now or with its last reference; it is in no index any more. */
void pst_shard_drop(struct pst_shard *s, struct pst_record *r);

/* A record enters its shard's recency list, or leaves it, should it be one of those. */
void pst_record_list(struct pst_shard *s, struct pst_record *r, uint64_t now_ns);
void pst_record_unlist(struct pst_shard *s, struct pst_record *r);

/* Takes the key out of the indexes, not its record. */
void pst_shard_unname(struct pst_shard *s, struct pst_record *r);

/* Where listings and watches say that the value lies. */
static inline enum pst_wire_away pst_record_where(const struct pst_record *r)
{
    if (r->flags & PST_RECORD_ON_DISK)
        return PST_WIRE_ON_SSD;
    return r->flags & PST_RECORD_ON_DEVICE ? PST_WIRE_ON_DEVICE : PST_WIRE_IN_MEMORY;
}

int pst_listeners_open(struct pst_shard *s);
void pst_listeners_close(struct pst_shard *s);
/* Tells of a change while s->listener_count is above 0. */
void pst_shard_tell(struct pst_shard *s, const struct pst_record *r, enum pst_wire_what what);

#endif
