/* SPDX-License-Identifier: Apache-2.0 */
/* tls_priv.h: what the files of this folder share: settings as OpenSSL has them, and the channel. */
#ifndef PST_TLS_PRIV_H
#define PST_TLS_PRIV_H

#include "net/tls/tls.h"

#include <openssl/ssl.h>
#include <stdatomic.h>

enum {
    TLS_PSK_BYTES = 32,
    TLS_RECORD_BYTES = 16 << 10, /* of plain text */
    TLS_OUT_BYTES = 128 << 10,   /* records that go to the socket at once */
    TLS_SEALED_BYTES_MAX = TLS_RECORD_BYTES + 256,
    TLS_READ_BYTES = 64 << 10, /* that are taken from the socket at once */
    TLS_HANDSHAKE_BYTES_MAX = 32 << 10,
    TLS_REKEYS_MAX = 64, /* and other messages after the handshake, above the reads of data */
    TLS_CHAIN_BYTES_MAX = 16 << 10,
    TLS_RECORDS_A_KEY = 1 << 22, /* AES-GCM's bound is 24 million (RFC 8446, 5.5) */
};

/* What was read from the files at one time; shared by the channels that began with it, never changed. */
struct tls_state {
    atomic_uint refs;
    SSL_CTX *ctx;
    bool by_secret; /* the PSK in place of certificates */
    bool asks;      /* clients for a certificate, */
    bool insists;   /* and does not go on without one */
    uint8_t psk[TLS_PSK_BYTES];
    char name[256]; /* that a server's certificate must have; empty: the host's */
};

struct tls_channel {
    struct stream_channel channel; /* first */
    SSL *ssl;
    struct tls_state *state;
    bool client;
    bool started;
    bool plain; /* what came first is no TLS, and is in the socket still */
    bool ended; /* the socket says so */
    bool dry;   /* the last read found less than a record */
    int error;  /* that ended it; 0: it goes on */
    enum pst_tls_fault fault;
    uint32_t handshake_bytes; /* received in it */
    uint32_t rekeys;          /* and other messages received after it, less one for each read of data */
    uint32_t records;         /* written under the present key */
    uint32_t records_a_key;
    /* Records on their way to the socket: those from out_done on. */
    uint8_t *out;
    uint32_t out_room, out_bytes, out_done;
    size_t sealed_bytes; /* plain text in them, of which no writer was told */
    char text[PST_TLS_TEXT_BYTES];
};

/* state.c: what is valid now. */
struct tls_state *tls_state_ref(struct pst_tls *tls);
void tls_state_unref(struct tls_state *state);

/* files.c. Return: as pst_tls_open(). */
int tls_files_certificate(SSL_CTX *ctx, const char *path, char *fault);
int tls_files_key(SSL_CTX *ctx, const char *path, char *fault);
int tls_files_authorities(SSL_CTX *ctx, const char *path, char *fault);

/* psk.c */
int tls_psk_derive(struct pst_bytes secret, uint8_t out[TLS_PSK_BYTES]);
/* For a context whose connections belong to channels. */
void tls_psk_use(SSL_CTX *ctx);

/* bio.c: the socket as OpenSSL sees it: reads it, and gathers what is written in the channel's own memory. */
BIO *tls_bio_new(struct tls_channel *ch);
/* Writes what was gathered. Return: 0 all of it, -EAGAIN, -errno. */
int tls_out_flush(struct tls_channel *ch);

/* fault.c: what OpenSSL's last failure on this channel means. Sets fault and text. Return: -errno. */
int tls_fault_read(struct tls_channel *ch);

static inline struct tls_channel *tls_channel_cast(const struct stream_channel *channel)
{
    pst_assert(channel->magic == STREAM_CHANNEL_MAGIC);
    return (struct tls_channel *)(uintptr_t)channel;
}

#endif
