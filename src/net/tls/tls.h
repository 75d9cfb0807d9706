/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tls.h: TLS 1.3 over a connected socket, for the handshake's sockets on both sides.
 *
 * A *pst_tls* is what one process knows: certificate, key and certificate authorities, or the shared secret,
 * from which both sides derive the key of TLS's own handshake (an external PSK, with a fresh Diffie-Hellman).
 * Any thread. A channel (net/stream/channel.h) takes what is valid when it is opened, and keeps that.
 *
 * Left out on purpose: TLS before 1.3, tickets, early data, client certificates after the handshake.
 * OpenSSL waits for nobody here, writes nothing but through our own calls, and asks nobody for a passphrase.
 */
#ifndef PST_TLS_H
#define PST_TLS_H

#include "base/base.h"
#include "base/options.h"
#include "net/stream/channel.h"

enum {
    PST_TLS_FIRST_BYTE = 0x16, /* of whoever begins TLS */
    PST_TLS_BINDING_BYTES = 32,
    PST_TLS_TEXT_BYTES = 128,
};

/* Files are PEM. What is empty is NULL. */
struct pst_tls_settings {
    const char *certificate; /* this side's, with the chain up to its authority, */
    const char *key;         /* and its private key, its user's alone */
    const char *ca;   /* whose certificates the other side may have: a file, or OpenSSL's hashed folder */
    const char *name; /* that a server's certificate must have; NULL: of the address that is asked for */
    struct pst_bytes secret;   /* in place of certificates, if there is none of the three files */
    bool serves, connects;     /* what it is for: each needs other files */
    bool certificate_optional; /* a client may come without one: something else proves who it is */
};

/* Why a connection did not come about. */
enum pst_tls_fault {
    PST_TLS_FAULT_NONE,
    PST_TLS_FAULT_ENDED,       /* the connection did, without a word why */
    PST_TLS_FAULT_EXPIRED,     /* its certificate, or not yet valid */
    PST_TLS_FAULT_CERTIFICATE, /* none, of an unknown issuer, of another host, for another purpose */
    PST_TLS_FAULT_SECRET,      /* another one */
    PST_TLS_FAULT_REPLAYED,    /* a record that belongs to no handshake with us */
    PST_TLS_FAULT_TURNED_DOWN, /* the other side did so, for our certificate or our lack of one */
    PST_TLS_FAULT_PROTOCOL,    /* no TLS, not 1.3, too long, nothing in common */
};

struct pst_tls;

/* Reads the files. @settings: copied. Return: 0, -EINVAL files that do not go together or say nothing,
 * -EACCES one that others may change or read, -errno, with the reason in @fault. */
int pst_tls_open(const struct pst_tls_settings *settings, struct pst_tls **out, char fault[PST_FAULT_BYTES]);
/* Reads them again, for channels from here on; if it fails, all stays as it was. As pst_tls_open(). */
int pst_tls_reload(struct pst_tls *tls, char fault[PST_FAULT_BYTES]);
/* Channels go on. Returns NULL, and takes it. */
struct pst_tls *pst_tls_close(struct pst_tls *tls);
/* Whether a client can tell by it that a node is the right one. */
bool pst_tls_proves_nodes(const struct pst_tls *tls);

/*
 * A channel over @fd, which it owns if it succeeds. @host: whom a client asked for, a name or an address,
 * which the certificate must have; NULL at a server. stream_channel_start() fails with -EACCES (a
 * certificate, the secret), -EPROTONOSUPPORT (not TLS 1.3), -EPROTO, -ECONNRESET; a server may turn a client
 * down only once that has started: then its first read fails so. Return: 0 or -ENOMEM.
 */
int pst_tls_channel(struct pst_tls *tls, int fd, const char *host, struct stream_channel **out);
/* Of a channel of this kind that failed. Text: valid as long as the channel. */
enum pst_tls_fault pst_tls_channel_fault(const struct stream_channel *channel, const char **text);
/* What both ends of a channel that has started know, and nobody between them: RFC 9266. Return: 0, -ENOMEM.
 */
int pst_tls_channel_binding(const struct stream_channel *channel, uint8_t out[PST_TLS_BINDING_BYTES]);

#endif
