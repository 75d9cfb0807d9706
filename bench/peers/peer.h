/* SPDX-License-Identifier: Apache-2.0 */
/* peer.h: one connection to a peer store, kept full of windows of pipelined requests, and timed.
 *
 * A window is `batch` requests sent with one write; `inflight` windows are unanswered at any time. The peers
 * differ only in how a request is spelled and a reply is read: struct peer_protocol. One thread, blocking
 * socket. */
#ifndef PENSTOCK_BENCH_PEER_H
#define PENSTOCK_BENCH_PEER_H

#include <stddef.h>
#include <stdint.h>

enum peer_op { PEER_GET, PEER_EXISTS, PEER_SET };

#define PEER_KEY_BYTES       16
#define PEER_REQUEST_BYTES   128 /* room for a request around its value */
#define PEER_REPLY_PARTIAL   0
#define PEER_REPLY_MALFORMED (-1)

/* Both functions work on plain memory and keep nothing. */
struct peer_protocol {
    /* Writes one request at @out, at most PEER_REQUEST_BYTES + @value_bytes; returns its length. */
    size_t (*request)(char *out, enum peer_op op, const char *key, const char *value, size_t value_bytes);
    /* Reads one reply; returns its length, PEER_REPLY_PARTIAL or PEER_REPLY_MALFORMED. Adds to @misses when
     * the key was not there. */
    long (*reply)(const char *in, size_t in_bytes, enum peer_op op, uint64_t *misses);
};

/* The whole of a peer's main(): parses the command line, fills or measures, prints one JSON line. */
int peer_main(int argc, char **argv, const struct peer_protocol *protocol);

/* Appends @bytes at @out and returns the end, for writing requests without printf. */
char *peer_append(char *out, const char *bytes, size_t byte_count);
char *peer_append_number(char *out, uint64_t number);

/* Length of the line at @in with its CR LF, or 0 when it is not whole yet. */
size_t peer_line(const char *in, size_t in_bytes);

#endif
