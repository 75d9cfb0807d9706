/* SPDX-License-Identifier: Apache-2.0 */
/* carry_priv.h: the two sides of a transfer, once both have agreed on it. */
#ifndef PST_FILES_CARRY_PRIV_H
#define PST_FILES_CARRY_PRIV_H

#include "files/carry/carry.h"
#include "files/carry/link.h"

enum carry_operation { CARRY_PUT = 1, CARRY_GET = 2 };
enum carry_flags { CARRY_FORCE = 1 };

/* Both: 0 and *@result, or the link's error. */
int carry_send(struct link *link, const struct pst_carry_place *from, const struct pst_carry_options *options,
               struct pst_arrival_result *result);
int carry_receive(struct link *link, const struct pst_carry_place *to,
                  const struct pst_carry_options *options, struct pst_arrival_result *result);

#endif
