/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sign_priv.h: AWS Signature Version 4 of S3's requests, in the Authorization field or in the query of a
 * presigned URL, and of the chunks of a body. Included by all of s3. Pure, the time comes from the caller;
 * any thread. Nothing of a request is acted on before its signature was found good.
 */
#ifndef PST_S3_SIGN_PRIV_H
#define PST_S3_SIGN_PRIV_H

#include "gateway/s3/wire/digest_priv.h"
#include "gateway/s3/wire/target_priv.h"

enum {
    S3_SKEW_S = 15 * 60,
    S3_EXPIRES_S_MAX = 7 * 24 * 3600,
    S3_SCOPE_BYTES = 128,
    S3_TIME_BYTES = 16, /* of "20130524T000000Z" */
    S3_SECRET_BYTES_MAX = 256,
};

enum s3_signed { S3_UNSIGNED, S3_SIGNED_HEAD, S3_SIGNED_QUERY };

/* Parts of the request that it was read from. */
struct s3_signature {
    enum s3_signed kind;
    struct pst_bytes access_key, date, region, fields, signature, time;
    uint64_t expires_s;       /* of a presigned one */
    struct pst_bytes payload; /* what the head says of the body's digest */
};

/* What the signatures of a body's chunks go on from. */
struct s3_signer {
    uint8_t key[S3_SHA256_BYTES];
    char time[S3_TIME_BYTES + 1];
    char scope[S3_SCOPE_BYTES]; /* "20130524/us-east-1/s3/aws4_request" */
    char before[S3_SHA256_HEX + 1];
};

/* Finds the signature. Without any: S3_OK and S3_UNSIGNED. */
enum s3_code s3_sign_read(const struct s3_head *head, const struct s3_target *target,
                          struct s3_signature *out);
/* @now_s: since 1970. Checks the time, then the signature with the secret of its access key. */
enum s3_code s3_sign_check(const struct s3_signature *signature, const struct s3_head *head,
                           const struct s3_target *target, struct pst_bytes secret, int64_t now_s,
                           struct s3_signer *out);
/* Of the next chunk, whose SHA-256 is @digest. Return: whether @shown is its signature. */
bool s3_sign_chunk(struct s3_signer *signer, const uint8_t digest[S3_SHA256_BYTES], struct pst_bytes shown);
/* Of the trailer, whose lines "name:value\n" have that SHA-256. */
bool s3_sign_trailer(struct s3_signer *signer, const uint8_t digest[S3_SHA256_BYTES], struct pst_bytes shown);

#endif
