/* SPDX-License-Identifier: Apache-2.0 */
/* sign.c: the source signs the digests of pieces batch by batch, so that the first go out before the last are
 * made. */
#include "files/relay/relay_priv.h"

#include <openssl/evp.h>

#define SIGN_WORDS "penstock broadcast 1" /* in front of what is signed */

enum {
    SIGNED_BYTES_MAX = sizeof(SIGN_WORDS) + PST_SHA256_BYTES + 4 + RELAY_BATCH_PIECES_MAX * PST_SHA256_BYTES
};

struct relay_signer {
    EVP_PKEY *key;
};

struct relay_signer *relay_signer_open(uint8_t public_key[RELAY_KEY_BYTES])
{
    struct relay_signer *signer = calloc(1, sizeof(*signer));
    size_t bytes = RELAY_KEY_BYTES;

    if (!signer)
        return NULL;
    signer->key = EVP_PKEY_Q_keygen(NULL, NULL, "ED25519");
    if (!signer->key || EVP_PKEY_get_raw_public_key(signer->key, public_key, &bytes) != 1)
        return relay_signer_close(signer);
    pst_assert(bytes == RELAY_KEY_BYTES);
    return signer;
}

struct relay_signer *relay_signer_close(struct relay_signer *signer)
{
    if (signer)
        EVP_PKEY_free(signer->key);
    free(signer);
    return NULL;
}

/* What is signed of a batch: it belongs to this manifest, and there to this place. Return: its bytes. */
static size_t signed_bytes(const struct relay_plan *plan, uint32_t batch, uint8_t out[SIGNED_BYTES_MAX])
{
    uint32_t first = batch * plan->batch_pieces, number = htole32(first);
    size_t digests = relay_batch_count(plan, batch) * sizeof(*plan->digests), at = 0;

    memcpy(out, SIGN_WORDS, sizeof(SIGN_WORDS));
    at += sizeof(SIGN_WORDS);
    memcpy(out + at, plan->manifest_digest, sizeof(plan->manifest_digest));
    at += sizeof(plan->manifest_digest);
    memcpy(out + at, &number, sizeof(number));
    at += sizeof(number);
    memcpy(out + at, plan->digests[first], digests);
    pst_assert(at + digests <= SIGNED_BYTES_MAX);
    return at + digests;
}

void relay_sign(const struct relay_signer *signer, struct relay_plan *plan, uint32_t batch)
{
    uint8_t text[SIGNED_BYTES_MAX];
    size_t bytes = signed_bytes(plan, batch, text), written = RELAY_SIGNATURE_BYTES;
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();

    pst_assert(ctx);
    pst_assert(EVP_DigestSignInit(ctx, NULL, NULL, NULL, signer->key) == 1);
    pst_assert(EVP_DigestSign(ctx, plan->signatures[batch], &written, text, bytes) == 1);
    pst_assert(written == RELAY_SIGNATURE_BYTES);
    EVP_MD_CTX_free(ctx);
}

bool relay_verify(const uint8_t public_key[RELAY_KEY_BYTES], const struct relay_plan *plan, uint32_t batch)
{
    uint8_t text[SIGNED_BYTES_MAX];
    size_t bytes = signed_bytes(plan, batch, text);
    EVP_PKEY *key = EVP_PKEY_new_raw_public_key(EVP_PKEY_ED25519, NULL, public_key, RELAY_KEY_BYTES);
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();
    bool good = key && ctx && EVP_DigestVerifyInit(ctx, NULL, NULL, NULL, key) == 1 &&
                EVP_DigestVerify(ctx, plan->signatures[batch], RELAY_SIGNATURE_BYTES, text, bytes) == 1;

    EVP_MD_CTX_free(ctx);
    EVP_PKEY_free(key);
    return good;
}
