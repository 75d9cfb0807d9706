/* SPDX-License-Identifier: Apache-2.0 */
/*
 * psk.c: the shared secret as TLS 1.3's external PSK. Its identity is the same everywhere: that tells nobody
 * anything. Its key is derived from the secret, so that what TLS does with it says nothing about the proofs
 * of the bootstrap's own frames, which the secret keys, too.
 */
#include "net/tls/tls_priv.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

static const unsigned char identity[] = "penstock";
static const unsigned char cipher[] = {0x13, 0x01}; /* TLS_AES_128_GCM_SHA256 names the PSK's hash: SHA-256 */

int tls_psk_derive(struct pst_bytes secret, uint8_t out[TLS_PSK_BYTES])
{
    static const unsigned char label[16] = "pst tls psk";
    unsigned int bytes = 0;

    pst_assert(secret.len > 0 && secret.len <= INT32_MAX);
    if (!HMAC(EVP_sha256(), secret.data, (int)secret.len, label, sizeof(label), out, &bytes))
        return -ENOMEM;
    pst_assert(bytes == TLS_PSK_BYTES);
    return 0;
}

/* Return: a session of its own for each connection, since OpenSSL writes into it; NULL without memory. */
static SSL_SESSION *psk_session(SSL *ssl)
{
    const struct tls_channel *ch = SSL_get_app_data(ssl);
    const SSL_CIPHER *suite = SSL_CIPHER_find(ssl, cipher);
    SSL_SESSION *session = SSL_SESSION_new();

    pst_assert(ch->state->by_secret);
    if (session && suite && SSL_SESSION_set1_master_key(session, ch->state->psk, TLS_PSK_BYTES) &&
        SSL_SESSION_set_cipher(session, suite) && SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION))
        return session;
    SSL_SESSION_free(session);
    return NULL;
}

static int psk_offer(SSL *ssl, const EVP_MD *hash, const unsigned char **id, size_t *id_bytes,
                     SSL_SESSION **session)
{
    *id = identity;
    *id_bytes = sizeof(identity) - 1;
    *session = NULL;
    if (hash &&
        EVP_MD_get_type(hash) != NID_sha256) /* the node chose a suite that no PSK of ours goes with */
        return 1;
    *session = psk_session(ssl);
    return *session != NULL;
}

static int psk_find(SSL *ssl, const unsigned char *id, size_t id_bytes, SSL_SESSION **session)
{
    *session = NULL;
    if (id_bytes != sizeof(identity) - 1 || memcmp(id, identity, id_bytes) != 0)
        return 1; /* somebody else's; without one there is no handshake */
    *session = psk_session(ssl);
    return *session != NULL;
}

void tls_psk_use(SSL_CTX *ctx)
{
    SSL_CTX_set_psk_use_session_callback(ctx, psk_offer);
    SSL_CTX_set_psk_find_session_callback(ctx, psk_find);
}
