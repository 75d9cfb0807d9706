/* SPDX-License-Identifier: Apache-2.0 */
/*
 * daemon.h: a penstockd for a test: a child process with a port and a unix socket of its own, ended by its
 * process number. It dies with the test. Every wait is bounded; what goes wrong fails the test.
 */
#ifndef E2E_DAEMON_H
#define E2E_DAEMON_H

#include <sys/types.h>

struct daemon {
    pid_t pid;
    char folder[64]; /* temporary, removed at the stop */
    char socket_path[96];
    char url_tcp[64];   /* node://127.0.0.1:PORT */
    char url_unix[128]; /* node+unix://PATH */
    int log_fd;         /* its standard error */
};

/* @args: options beside --listen and --unix, up to a NULL. The program is $PENSTOCK_BUILD/penstockd. */
void daemon_start(struct daemon *d, const char *const *args);
/* SIGTERM; the exit status must be 0 and the socket gone. */
void daemon_stop(struct daemon *d);

/* SIGKILL. */
void daemon_kill(struct daemon *d);

/* Waits for a child, for @seconds at the most. Return: its status as of waitpid(); a child that outlives the
 * time is killed and fails the test. */
int wait_for_child(pid_t pid, int seconds);

#endif
