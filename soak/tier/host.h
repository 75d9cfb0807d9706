/* SPDX-License-Identifier: Apache-2.0 */
/* host.h: a penstockd with an SSD, as a child process: started, killed, ended. */
#ifndef HOST_H
#define HOST_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct host {
    char program[300], folder[200]; /* the socket, the SSD and the log lie there */
    const char *faults;             /* for PENSTOCK_FAULTS, or NULL */
    const char *driver;             /* of the SSD, or NULL */
    uint32_t shards;
    pid_t pid;
};

void host_start(struct host *h);
/* Whether it is still there; *@status as of waitpid() if not. */
bool host_lives(struct host *h, int *status);
/* Kills it, and waits for its end. Return: its status. */
int host_kill(struct host *h);
/* The same in order; of one that does not end in time: -1. */
int host_stop(struct host *h);
void host_ssd(const struct host *h, char path[256]);
/* The end of what it said. */
void host_said(const struct host *h, char *text, uint32_t room);

#endif
