/* SPDX-License-Identifier: Apache-2.0 */
/*
 * acceptor.h: sockets that listen, and a thread for each connection. For servers with few connections that
 * last, where each may wait for a file or for another process. The number of threads is bounded, and all of
 * them have ended when the acceptor has.
 */
#ifndef PST_ACCEPTOR_H
#define PST_ACCEPTOR_H

#include "base/base.h"

enum { PST_ACCEPTOR_LISTENERS_MAX = 2 };

struct pst_acceptor_listener {
    int fd;                   /* does not block; the caller's */
    uint32_t connections_max; /* at a time */
    bool greets;              /* connections that pst_acceptor_keep() has not named make room for others */
};

struct pst_acceptor_ops {
    /* On the connection's own thread, which ends with it. @fd is closed afterwards. Once the acceptor closes
     * it is shut down. */
    void (*serve)(void *ctx, int fd, uint32_t listener);
    /* There are too many: a last word that does not wait. NULL: none. On the acceptor's thread. */
    void (*refuse)(void *ctx, int fd, uint32_t listener);
};

struct pst_acceptor;

/* @listeners is copied, @ops and @ctx are borrowed until closed. *@out is set before the first
 * connection is served. Return: 0 or -errno. */
int pst_acceptor_open(const struct pst_acceptor_listener *listeners, uint32_t count,
                      const struct pst_acceptor_ops *ops, void *ctx, struct pst_acceptor **out);
/* The connection @fd, which is being served, stays. */
void pst_acceptor_keep(struct pst_acceptor *acceptor, int fd);
/* It may make room again, as one that is idle between two requests. */
void pst_acceptor_let_yield(struct pst_acceptor *acceptor, int fd);
/* No connection comes from here on; those that are there go on. The listeners may be closed. NULL: nothing.
 */
void pst_acceptor_stop(struct pst_acceptor *acceptor);
/* Stops, shuts the connections down and waits for their threads. Returns NULL. */
struct pst_acceptor *pst_acceptor_close(struct pst_acceptor *acceptor);

#endif
