/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stream.h: what is special about the stream transport: a peer there is a connection. One side dials, the
 * other waits until whoever accepts connections hands it over. A port's own address makes a peer that waits.
 */
#ifndef PST_STREAM_H
#define PST_STREAM_H

#include "net/net.h"

#include <sys/socket.h>

struct stream_channel;

/* Where a peer dials. */
struct pst_stream_dial {
    const struct sockaddr *to;
    socklen_t to_bytes;
    const char *host;         /* the connection is wrapped as the net's options say; NULL: it is plain */
    struct pst_bytes preface; /* what is said first: tells who accepts what the connection is */
};

/* An address for pst_peer_open() that dials. Return: its length, -ENOSPC. */
int pst_stream_dial_address(const struct pst_stream_dial *dial, void *buf, size_t cap);

/*
 * Gives a peer that waits its connection, and @early, which has come over it already. On the port's thread. A
 * connection that no peer waits for (@peer NULL, or it has one) is closed.
 */
void pst_stream_attach(struct pst_peer *peer, struct stream_channel *channel, struct pst_bytes early);

#endif
