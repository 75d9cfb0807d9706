/* SPDX-License-Identifier: Apache-2.0 */
/* digest.c: OpenSSL's digests and the CRCs of base, in one form. */
#include "gateway/s3/wire/digest_priv.h"

#include "base/hash.h"

#include <openssl/evp.h>

const char *s3_digest_name(enum s3_digest_kind kind)
{
    static const char *const names[S3_DIGEST_KINDS] = {
        [S3_SHA256] = "sha256", [S3_SHA1] = "sha1",     [S3_MD5] = "md5",
        [S3_CRC32] = "crc32",   [S3_CRC32C] = "crc32c", [S3_CRC64NVME] = "crc64nvme"};

    pst_assert(kind < S3_DIGEST_KINDS);
    return names[kind];
}

static const EVP_MD *digest_method(enum s3_digest_kind kind)
{
    switch (kind) {
    case S3_SHA256:
        return EVP_sha256();
    case S3_SHA1:
        return EVP_sha1();
    case S3_MD5:
        return EVP_md5();
    default:
        return NULL;
    }
}

/* Return: false there is no memory. */
static bool digest_begin(struct s3_digest *digest)
{
    pst_assert(digest->kind < S3_DIGEST_KINDS);
    digest->crc = 0;
    return !digest->state || EVP_DigestInit_ex(digest->state, digest_method(digest->kind), NULL) == 1;
}

int s3_digest_open(struct s3_digest *digest, enum s3_digest_kind kind)
{
    pst_assert(kind < S3_DIGEST_KINDS);
    *digest = (struct s3_digest){.kind = kind};
    if (!digest_method(kind))
        return 0;
    digest->state = EVP_MD_CTX_new();
    return digest->state && digest_begin(digest) ? 0 : -ENOMEM;
}

void s3_digest_add(struct s3_digest *digest, const void *data, size_t bytes)
{
    if (bytes == 0)
        return;
    if (digest->state)
        pst_assert(EVP_DigestUpdate(digest->state, data, bytes) == 1); /* has its memory */
    else if (digest->kind == S3_CRC64NVME)
        digest->crc = pst_crc64nvme(digest->crc, data, bytes);
    else if (digest->kind == S3_CRC32C)
        digest->crc = pst_crc32c((uint32_t)digest->crc, data, bytes);
    else
        digest->crc = pst_crc32((uint32_t)digest->crc, data, bytes);
}

size_t s3_digest_end(struct s3_digest *digest, uint8_t out[S3_DIGEST_BYTES_MAX])
{
    unsigned bytes = digest->kind == S3_CRC64NVME ? 8 : 4;

    if (digest->state)
        pst_assert(EVP_DigestFinal_ex(digest->state, out, &bytes) == 1);
    else
        for (unsigned i = 0; i < bytes; i++)
            out[i] = (uint8_t)(digest->crc >> 8 * (bytes - 1 - i));
    pst_assert(bytes <= S3_DIGEST_BYTES_MAX);
    pst_assert(digest_begin(digest));
    return bytes;
}

void s3_digest_close(struct s3_digest *digest)
{
    EVP_MD_CTX_free(digest->state);
    *digest = (struct s3_digest){.state = NULL};
}

/* HMAC (RFC 2104) over whole texts. */
void s3_hmac_sha256(struct pst_bytes key, struct pst_bytes text, uint8_t out[S3_SHA256_BYTES])
{
    size_t bytes = 0;

    pst_assert(EVP_Q_mac(NULL, "HMAC", NULL, "SHA256", NULL, key.data, key.len, text.data, text.len, out,
                         S3_SHA256_BYTES, &bytes));
    pst_assert(bytes == S3_SHA256_BYTES);
}

void s3_base64(const uint8_t *data, size_t bytes, char out[S3_DIGEST_TEXT_MAX])
{
    pst_assert(bytes <= S3_DIGEST_BYTES_MAX);
    EVP_EncodeBlock((unsigned char *)out, data, (int)bytes);
}

bool s3_same(struct pst_bytes a, struct pst_bytes b)
{
    const volatile uint8_t *one = a.data, *two = b.data;
    unsigned difference = a.len != b.len;

    for (size_t i = 0; i < a.len && i < b.len; i++)
        difference |= one[i] ^ two[i];
    return difference == 0;
}
