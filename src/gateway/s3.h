/* SPDX-License-Identifier: Apache-2.0 */
/*
 * s3.h: S3 in front of a node: its objects are the store's values, s3://BUCKET/KEY is the key BUCKET/KEY. The
 * gateway is a client of its node like any other and lives beside it in penstockd. A connection has a thread,
 * which waits for its client and for the store; their number is bounded.
 *
 * Without a file of credentials everyone who reaches the port may do everything: so it is on loopback then.
 */
#ifndef PST_S3_H
#define PST_S3_H

#include "base/options.h"

/* X(TYPE, name, default, min, max, unit, text) */
#define PST_S3_OPTIONS(X)                                                                                    \
    X(STRING, s3, "", 0, 0, "ADDRESS",                                                                       \
      "HOST:PORT on which S3 is served, too; off loopback it takes s3_credentials; port 0 picks one")        \
    X(STRING, s3_credentials, "", 0, 0, "FILE",                                                              \
      "a line for each access key of S3: its ID, a blank, its secret; mode 0600")                            \
    X(STRING, s3_grant, "", 0, 0, "NAME", "of --grants: what clients of S3 may do; anything if not set")     \
    X(STRING, s3_domain, "", 0, 0, "NAME", "buckets are also served at BUCKET.NAME")                         \
    X(NUMBER, s3_connections, "128", 1, 4096, "clients", "connections of S3 at once, 1 MiB each")            \
    X(NUMBER, s3_stall_ms, "60000", 100, 3600000, "ms",                                                      \
      "a client of S3 that moves less than 64 KiB in this time loses its connection")

struct pst_s3_settings {
    PST_S3_OPTIONS(PST_OPTION_MEMBER)
    const char *certificate, *private_key; /* PEM files, borrowed; TLS with both, one alone is -EINVAL */
};

struct pst_s3;
struct penstock_options;

/*
 * Binds the address of settings->s3 and lets clients wait there. @settings: borrowed until closed. Return: 0,
 * -EINVAL a setting, -EACCES an address off loopback without credentials, -errno; with the reason in @fault.
 */
int pst_s3_open(const struct pst_s3_settings *settings, struct pst_s3 **out, char fault[PST_FAULT_BYTES]);
/* host:port, with the port that was picked. */
const char *pst_s3_address(const struct pst_s3 *s3);
/*
 * Opens the store and begins to serve. @url: of the node, on a unix socket, or of its pool, which may be
 * there later; borrowed during the call. @options: with which it is opened; copied with their secret, files
 * that they name are borrowed until closed. The secret says what the gateway's clients may do. Return: 0 or
 * -errno with the reason in @fault.
 */
int pst_s3_serve(struct pst_s3 *s3, const char *url, const struct penstock_options *options,
                 char fault[PST_FAULT_BYTES]);
/* Ends what is underway; before the node's end. Returns NULL. */
struct pst_s3 *pst_s3_close(struct pst_s3 *s3);

#endif
