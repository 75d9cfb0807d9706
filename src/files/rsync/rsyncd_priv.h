/* SPDX-License-Identifier: Apache-2.0 */
/* rsyncd_priv.h: the daemon's process (rsyncd.c) and the files that it reads (rsyncd_settings.c). */
#ifndef PST_FILES_RSYNCD_PRIV_H
#define PST_FILES_RSYNCD_PRIV_H

#include "files/rsync/rsyncd.h"

#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/eventfd.h>
#include <sys/types.h>

enum { EXIT_FAILED = 126, EXIT_NO_RSYNC = 127 };

struct rsyncd_module {
    char name[PST_RSYNCD_NAME_BYTES_MAX + 1];
    bool writable;
    bool has_rules; /* a file, whose folder has others that are not offered */
};

struct pst_rsyncd {
    char folder[PATH_MAX];
    int folder_fd; /* locked: a folder has one daemon */
    bool written;  /* there is something of ours in the folder */
    int stop_fd;
    char host[64];
    uint16_t port;
    uint32_t connections_max;
    char token[PST_RSYNCD_TOKEN_BYTES_MAX + 1];
    void (*log)(void *ctx, const char *line);
    void *ctx;
    pthread_t thread;
    bool watched;           /* the thread runs */
    _Atomic pid_t pid;      /* 0: not running now */
    _Atomic int ended_with; /* the last exit status; -1: it never ended */
    _Atomic uint32_t restarts;
    pthread_mutex_t lock; /* of the modules and their file */
    struct rsyncd_module *modules;
    uint32_t module_count, module_room;
};

/* Writes the modules and the password beside what is there, then in its place. Return: 0 or -errno. */
int rsyncd_write_settings(struct pst_rsyncd *d);
void rsyncd_remove_settings(struct pst_rsyncd *d);

#endif
