/* SPDX-License-Identifier: Apache-2.0 */
/*
 * chunks_priv.h: bodies in chunks: HTTP's own, and S3's aws-chunked, whose chunks and trailer may have
 * signatures. Included by all of s3. Pure; any thread.
 *
 *     LENGTH[;chunk-signature=HEX]\r\n  DATA \r\n   any number of times, the last with length 0 and no data
 *     [NAME:VALUE\r\n]...               the trailer; in aws-chunked \n\r\n ends a line, too
 *     \r\n
 */
#ifndef PST_S3_CHUNKS_PRIV_H
#define PST_S3_CHUNKS_PRIV_H

#include "base/base.h"

enum {
    S3_CHUNK_LINE_BYTES_MAX = 1024,
    S3_TRAILERS_MAX = 16,
};

enum s3_chunk_event {
    S3_CHUNK_MORE,  /* the input is used up */
    S3_CHUNK_PIECE, /* of a chunk's data */
    S3_CHUNK_DONE,  /* a chunk has ended, the one without data, too; its signature is s3_chunk_signature() */
    S3_CHUNK_TRAILER, /* a line: s3_chunk_line() */
    S3_CHUNK_END,     /* of the body; what is left of the input is not its */
    S3_CHUNK_BROKEN,
};

/* Zeros at first, but is_aws. */
struct s3_chunks {
    bool is_aws; /* not HTTP's own */
    int step;
    bool line_was_told; /* and the next one begins anew */
    uint64_t left;      /* of the chunk */
    uint32_t trailer_count;
    size_t line_bytes, signature_bytes;
    char line[S3_CHUNK_LINE_BYTES_MAX];
    char signature[64];
};

/* Takes bytes off @input up to the next event. @piece: of PIECE, lies in what was @input. */
enum s3_chunk_event s3_chunk_next(struct s3_chunks *chunks, struct pst_bytes *input, struct pst_bytes *piece);

static inline struct pst_bytes s3_chunk_signature(const struct s3_chunks *chunks)
{
    return (struct pst_bytes){chunks->signature, chunks->signature_bytes};
}

static inline struct pst_bytes s3_chunk_line(const struct s3_chunks *chunks)
{
    return (struct pst_bytes){chunks->line, chunks->line_bytes};
}

#endif
