/* SPDX-License-Identifier: Apache-2.0 */
/*
 * front.h: an rsync port in front of a daemon of ours, for clients that ask for a module "data" and a path of
 * the whole machine in it, as kubetorch's do. It reads the paths that a client asks for, asks its owner which
 * module serves them, and passes all else on. What no module serves is looked for in an empty one, so that
 * rsync itself tells its user that nothing is there. Every other module is the daemon's own affair.
 *
 * Each connection has a thread, PST_RSYNC_FRONT_MAX at the most. Source: docs/explanation/rooms.md, files.
 */
#ifndef PST_FILES_RSYNC_FRONT_H
#define PST_FILES_RSYNC_FRONT_H

#include "base/base.h"

enum {
    PST_RSYNC_FRONT_MAX = 256,
    PST_RSYNC_FRONT_PLACE_BYTES = 5000,
};

struct pst_rsync_front;

/* Called by threads of connections. */
struct pst_rsync_front_ops {
    /* Starts the daemon if need be. Return: its port, or -errno. */
    int (*daemon)(void *ctx);
    /* Writes "MODULE/PATH" for @path, without its first '/': that of an empty module if nothing serves it. */
    void (*place)(void *ctx, const char *path, char place[PST_RSYNC_FRONT_PLACE_BYTES]);
};

/* @fd: listens, and is taken over, in failure too. @daemon_host: an IPv4 address. Return: 0 or -errno. */
int pst_rsync_front_open(int fd, const char *daemon_host, const struct pst_rsync_front_ops *ops, void *ctx,
                         struct pst_rsync_front **out);
/* Ends its connections. Returns NULL. */
struct pst_rsync_front *pst_rsync_front_close(struct pst_rsync_front *front);

/*
 * The paths of a client's arguments, in place of which @out gets those that @place says. Pure.
 * @args: texts that end with NUL each, the last one empty. @module: of the places, as one connection has one.
 * Return: the bytes of @out; 0 the arguments have no paths yet, more will follow; -E2BIG; -EXDEV two modules.
 */
int pst_rsync_front_map(const char *args, size_t bytes, const struct pst_rsync_front_ops *ops, void *ctx,
                        char *out, size_t cap, char module[64]);

#endif
