/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ready.h: whether a node's pool counts on it, and why it does not yet: for member.c. The member's thread
 * tells, any other may wait.
 */
#ifndef PST_READY_H
#define PST_READY_H

#include "base/options.h"

#include <pthread.h>

struct pst_ready {
    int fd; /* becomes readable, and stays so */
    bool set;
    pthread_mutex_t lock; /* of the next two */
    char why[PST_FAULT_BYTES];
    int result; /* 0: nothing has gone wrong so far */
};

/* Return: 0 or -errno; fini() is due either way. */
int pst_ready_init(struct pst_ready *ready);
void pst_ready_fini(struct pst_ready *ready);
/* The member's thread: what went wrong last, @result as of the call that failed; and that all is well. */
void pst_ready_fails(struct pst_ready *ready, int result, const char *why);
void pst_ready_set(struct pst_ready *ready);
/* Waits @ms at the most. Return: 0, or -errno with the last trouble in @fault, -ETIMEDOUT if it has no errno.
 */
int pst_ready_wait(struct pst_ready *ready, uint64_t ms, char fault[PST_FAULT_BYTES]);

#endif
