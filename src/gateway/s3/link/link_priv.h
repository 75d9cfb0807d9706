/* SPDX-License-Identifier: Apache-2.0 */
/*
 * link_priv.h: bytes from and to a client, plain or by TLS. A call waits for the client, as long as that
 * moves 64 KiB in the time of a stall. Belongs to the connection's thread; the socket is the acceptor's.
 */
#ifndef PST_S3_LINK_PRIV_H
#define PST_S3_LINK_PRIV_H

#include "base/base.h"
#include "gateway/pace_priv.h"

#include <sys/types.h>

enum { S3_LINK_BYTES = 64 << 10 }; /* that are read ahead */

struct s3_link {
    int fd;
    void *tls; /* NULL: plain */
    bool more; /* what is written now goes out with what follows it at once */
    uint64_t patience_ns;
    struct pace pace;
    size_t at, bytes; /* of @in, that are there and not taken */
    uint8_t in[S3_LINK_BYTES];
};

/* @tls_context: s3_tls_open()'s, NULL: plain. Return: 0 or -errno, with TLS if the client does not do it. */
int s3_link_open(struct s3_link *link, int fd, void *tls_context, uint64_t patience_ns);
void s3_link_close(struct s3_link *link);
/* The client's time begins anew. */
void s3_link_begin(struct s3_link *link);
/* Reads more behind what is there. Return: bytes, 0 the client has ended, -ENOBUFS no room, -ETIMEDOUT,
 * -errno. */
ssize_t s3_link_fill(struct s3_link *link);
/* Into the caller's memory, what is there first. Return: as above. */
ssize_t s3_link_read(struct s3_link *link, void *buf, size_t bytes);
/* Return: 0, -ETIMEDOUT, -errno. */
int s3_link_write(struct s3_link *link, const void *data, size_t bytes);
/* Ends what we send, and reads for a second at most what the client has still sent: a socket that is closed
 * before takes the answer back. */
void s3_link_linger(struct s3_link *link);

static inline struct pst_bytes s3_link_here(const struct s3_link *link)
{
    return (struct pst_bytes){link->in + link->at, link->bytes};
}

static inline void s3_link_take(struct s3_link *link, size_t bytes)
{
    pst_assert(bytes <= link->bytes);
    link->at += bytes;
    link->bytes -= bytes;
}

/* ---- tls.c ---- */

/* @certificate, @private_key: PEM files. Return: 0, -EINVAL with *@fault the reason, valid until this
 * thread's next call; -ENOMEM. */
int s3_tls_open(const char *certificate, const char *private_key, void **out, const char **fault);
void s3_tls_close(void *context);
/* As recv() and send() that do not wait; -EAGAIN: *@events of the socket are to be waited for. */
ssize_t s3_tls_read(void *tls, void *buf, size_t bytes, short *events);
ssize_t s3_tls_write(void *tls, const void *data, size_t bytes, short *events);
/* Return: 0 the handshake is done, -EAGAIN as above, -EPROTO. */
int s3_tls_start(void *tls, short *events);
void *s3_tls_accept(void *context, int fd);
void s3_tls_end(void *tls);

#endif
