/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rsyncd.h: the real rsync's daemon, kept running: a module for each folder that is offered. A thread starts
 * it, and starts it again when it ends; rsync reads its modules anew for each connection, so they come and go
 * without a restart. Any thread may call. Source: docs/explanation/rooms.md, files.
 */
#ifndef PST_FILES_RSYNCD_H
#define PST_FILES_RSYNCD_H

#include "base/base.h"
#include "base/options.h"

enum {
    PST_RSYNCD_NAME_BYTES_MAX = 64, /* of a module: letters, digits, '-', '_' and '.' */
    PST_RSYNCD_MODULES_MAX = 8193,
    PST_RSYNCD_TOKEN_BYTES_MAX = 256,
};

/* The user whose password the token is. */
#define PST_RSYNCD_USER "penstock"

struct pst_rsyncd;

/* All strings are borrowed during the call. */
struct pst_rsyncd_settings {
    const char *folder;       /* of its own, for its settings: made with mode 0700 unless it is there */
    const char *host;         /* an IPv4 address of this host; NULL: all */
    uint16_t port;            /* 0: one that is free */
    struct pst_bytes token;   /* empty: whoever reaches the port is let in */
    uint32_t connections_max; /* of a module at once; 0: no bound */
    void (*log)(void *ctx, const char *line); /* any thread */
    void *ctx;
};

/*
 * Starts the daemon and waits until it listens. Return: 0; -ENOENT there is no rsync, -EADDRINUSE the port is
 * still another process's after five seconds, -EBUSY the folder is another daemon's, -EINVAL a token that
 * rsync cannot have (it takes printable ASCII without blanks), -ETIMEDOUT, -errno; the reason in @fault.
 */
int pst_rsyncd_open(const struct pst_rsyncd_settings *settings, struct pst_rsyncd **out,
                    char fault[PST_FAULT_BYTES]);
/* Whether links lie in writable modules with PST_MUNGED (files/tree/manifest.h) in front: of another user's
 * than root's daemon, which cannot be locked up in a module's folder. */
bool pst_rsyncd_munges(void);
uint16_t pst_rsyncd_port(const struct pst_rsyncd *d);
/* How often the daemon had to be started after its first time. Its connections end with it. */
uint32_t pst_rsyncd_restarts(const struct pst_rsyncd *d);
enum pst_rsyncd_flags {
    PST_RSYNCD_WRITABLE = 1, /* without trees that are arriving (files/tree/arrival.h); otherwise clients may
                                not ask the daemon to follow links */
    PST_RSYNCD_NAMED = 2,    /* the module has the folder @path alone, under its name */
};

/*
 * Offers the folder @path, absolute, as module @name from the next connection on; if @path is a file, a
 * folder that has this file alone. Such a module, and a PST_RSYNCD_NAMED one, is fetched whole: paths below
 * could lead through links to what lies beside @path. Names that differ in case alone are one to rsync.
 * Return: 0; -EEXIST, -EINVAL a name or a path that no module can have, -ENOENT no such path, -ENOTDIR
 * neither folder nor file, -ENOSPC too many, -errno.
 */
int pst_rsyncd_add(struct pst_rsyncd *d, const char *name, const char *path, int flags);
/* Also if nothing can be written just then. Connections that are underway go on to their end. Return: 0;
 * -ENOENT; -errno, and the module stays. */
int pst_rsyncd_remove(struct pst_rsyncd *d, const char *name);
/* Ends the daemon and its connections, and removes what was written. Returns NULL. */
struct pst_rsyncd *pst_rsyncd_close(struct pst_rsyncd *d);

#endif
