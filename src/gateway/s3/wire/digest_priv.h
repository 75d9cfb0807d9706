/* SPDX-License-Identifier: Apache-2.0 */
/*
 * digest_priv.h: digests of bytes and of bodies that come in pieces, and their texts. Included by all of s3.
 * A digest belongs to one thread at a time.
 */
#ifndef PST_S3_DIGEST_PRIV_H
#define PST_S3_DIGEST_PRIV_H

#include "base/base.h"

enum {
    S3_SHA256_BYTES = 32,
    S3_SHA256_HEX = 64,
    S3_DIGEST_BYTES_MAX = 32,
    S3_DIGEST_TEXT_MAX = 48, /* of base64, with a NUL */
};

enum s3_digest_kind { S3_SHA256, S3_SHA1, S3_MD5, S3_CRC32, S3_CRC32C, S3_CRC64NVME, S3_DIGEST_KINDS };

struct s3_digest {
    enum s3_digest_kind kind;
    void *state;  /* OpenSSL's; NULL: a CRC */
    uint64_t crc; /* so far */
};

/* "sha256", as in x-amz-checksum-sha256. */
const char *s3_digest_name(enum s3_digest_kind kind);
/* Return: 0 or -ENOMEM; then s3_digest_close() is all that is allowed. */
int s3_digest_open(struct s3_digest *digest, enum s3_digest_kind kind);
void s3_digest_add(struct s3_digest *digest, const void *data, size_t bytes);
/* The digest of all that was added, after which it begins anew. Return: its bytes. */
size_t s3_digest_end(struct s3_digest *digest, uint8_t out[S3_DIGEST_BYTES_MAX]);
/* An empty digest, of zeros, is fine. */
void s3_digest_close(struct s3_digest *digest);

void s3_hmac_sha256(struct pst_bytes key, struct pst_bytes text, uint8_t out[S3_SHA256_BYTES]);
/* The text of base64 for @bytes of S3_DIGEST_BYTES_MAX at the most. */
void s3_base64(const uint8_t *data, size_t bytes, char out[S3_DIGEST_TEXT_MAX]);
/* In a time that does not depend on where they differ. */
bool s3_same(struct pst_bytes a, struct pst_bytes b);

#endif
