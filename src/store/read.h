/* SPDX-License-Identifier: Apache-2.0 */
/*
 * read.h: the bytes of a value, read where they lie. Whoever answers gets includes it.
 *
 * Large values are read under a reference: pst_shard_ref() keeps a record's bytes where they are until
 * pst_shard_unref(), whatever happens to the key.
 */
#ifndef PST_STORE_READ_H
#define PST_STORE_READ_H

#include "store/record.h"
#include "store/shard.h"

#include <sys/uio.h>

struct pst_location;

/* Bytes [@offset, @offset + @bytes) of a value as pieces of arena memory. Return: pieces written, -E2BIG more
 * than @iov_max. */
int pst_record_iov(const struct pst_shard *shard, const struct pst_record *record, uint64_t offset,
                   uint64_t bytes, struct iovec *iov, int iov_max);
/* The contiguous piece that begins at @offset, at most @bytes of it. Return: false when @bytes is 0. */
bool pst_record_piece(const struct pst_shard *shard, const struct pst_record *record, uint64_t offset,
                      uint64_t bytes, struct iovec *piece);
/* Whether a value that an earlier process left is what its writer's checksum says: looked at once, before the
 * first read. Return: 0 or -EBADMSG. */
int pst_record_verify_now(struct pst_shard *shard, struct pst_record *record);
static inline int pst_record_verify(struct pst_shard *shard, struct pst_record *record)
{
    return pst_likely(!(record->state & PST_RECORD_UNVERIFIED)) ? 0 : pst_record_verify_now(shard, record);
}
/* Where a value lies, for people and for views: see struct pst_location. */
void pst_record_location(const struct pst_shard *shard, const struct pst_record *record,
                         struct pst_location *out);

/* A client begins or ends to look at a referenced record in the arenas: noted there for a later process,
 * which has to leave these bytes as they are. */
void pst_record_viewed(struct pst_shard *shard, const struct pst_record *record, bool begins);

/* The counters that the caller's paths keep: reads. */
void pst_shard_count_read(struct pst_shard *shard, bool hit);

#endif
