/* SPDX-License-Identifier: Apache-2.0 */
/* carry_priv.h: the two sides of a transfer, once both have agreed on it. */
#ifndef PST_FILES_CARRY_PRIV_H
#define PST_FILES_CARRY_PRIV_H

#include "files/carry/budget.h"
#include "files/carry/carry.h"
#include "files/carry/link.h"

enum carry_operation {
    CARRY_PUT = 1,
    CARRY_GET = 2,
    CARRY_CALL = 3,   /* a member of a broadcast asks the store */
    CARRY_FOLLOW = 4, /* or fetches from its parent */
};

/* What a client may ask for. */
enum { CARRY_FLAGS = PST_ARRIVAL_FORCE | PST_ARRIVAL_IN_PLACE };

/* Says who one is and what is wanted. Return: 0, or the link's error. */
int carry_greet(struct link *link, enum carry_operation operation, const char *name,
                const struct pst_carry_options *options);

/* Calls @work, which does not use the link, and tells the peer each second that this side is alive. @gone,
 * unless it is NULL, is set once the link has ended: nobody needs the work. Return: what it returns. */
int carry_meanwhile(struct link *link, int (*work)(void *arg), void *arg, atomic_bool *gone);

/* The manifest as frames. Both: 0 or the link's error. */
int carry_send_entries(struct link *link, const struct pst_manifest *m);
int carry_receive_entries(struct link *link, struct carry_share *share, struct pst_manifest *m);

/* Both: 0 and *@result, or the link's error. */
int carry_send(struct link *link, struct carry_share *share, const struct pst_carry_place *from,
               const struct pst_carry_options *options, struct pst_arrival_result *result);
int carry_receive(struct link *link, struct carry_share *share, const struct pst_carry_place *to,
                  const struct pst_carry_options *options, struct pst_arrival_result *result);

#endif
