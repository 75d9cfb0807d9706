/* SPDX-License-Identifier: Apache-2.0 */
/*
 * body_priv.h: the body of a request, as its reader sees it: the object's bytes, without HTTP's and S3's
 * chunks, checked against all that the request says of them. Belongs to the connection's thread.
 */
#ifndef PST_S3_BODY_PRIV_H
#define PST_S3_BODY_PRIV_H

#include "gateway/s3/link/link_priv.h"
#include "gateway/s3/wire/chunks_priv.h"
#include "gateway/s3/wire/sign_priv.h"

#define S3_BYTES_UNKNOWN UINT64_MAX

enum { S3_CHECKS_MAX = 4 };

/* A checksum of the whole body, in a field or in the trailer. */
struct s3_check {
    struct s3_digest digest;
    bool in_trailer;
    char wanted[S3_DIGEST_TEXT_MAX], found[S3_DIGEST_TEXT_MAX];
};

struct s3_body {
    struct s3_link *link;
    bool awaits_continue;
    bool http_chunked, aws_chunked, outer_ended, ended;
    uint64_t left;  /* of the bytes that the socket brings, unless HTTP chunks them */
    uint64_t bytes; /* of the object; S3_BYTES_UNKNOWN */
    uint64_t got;
    struct pst_bytes raw; /* inside of HTTP's chunks, and not looked at */
    struct s3_chunks outer, inner;
    struct s3_signer *signer; /* NULL: chunks have no signatures that are looked at */
    bool trailer_is_signed, trailer_signature_came;
    struct s3_digest chunk, trailer; /* for signatures of chunks, and of the trailer */
    struct s3_digest sha256;
    char sha256_wanted[S3_SHA256_HEX + 1]; /* "": none */
    struct s3_check checks[S3_CHECKS_MAX];
    uint32_t check_count;
};

/* Nothing is read yet. @payload: what the request says of the body's digest. @signer: of a signed request,
 * borrowed; NULL without. To be closed either way. */
enum s3_code s3_body_open(struct s3_body *body, struct s3_link *link, const struct s3_head *head,
                          struct pst_bytes payload, struct s3_signer *signer);
/* Fills @buf as far as the body goes. Return: S3_OK and *@got, less than @bytes only at the end, when all was
 * found right; else what is wrong. */
enum s3_code s3_body_read(struct s3_body *body, void *buf, size_t bytes, size_t *got);
/* Takes checksums out of a body that they are not of, before it is read. Return: how many; the caller closes
 * their digests. */
uint32_t s3_body_take_checks(struct s3_body *body, struct s3_check out[S3_CHECKS_MAX]);
/* Everything has been added: whether it is what was wanted. */
bool s3_check_holds(struct s3_check *check);
void s3_body_close(struct s3_body *body);

/* Nothing of it is left on the way, so that what comes next is another request. */
static inline bool s3_body_is_taken(const struct s3_body *body)
{
    return body->http_chunked ? body->outer_ended : body->left == 0;
}

#endif
