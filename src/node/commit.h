/* SPDX-License-Identifier: Apache-2.0 */
/* commit.h: changes of several keys, over one shard or more, that show together; and those that other nodes
 * hold, too. */
#ifndef PST_NODE_COMMIT_H
#define PST_NODE_COMMIT_H

#include "node/request.h"

/* Begins the commit at @index of the request's operations. Return: how many behind it belong to it. */
uint32_t pst_apply_commit(struct pst_request *q, uint32_t index);
/* The same with the one change that the operation at @index makes; the result is its own. */
void pst_apply_alone(struct pst_request *q, uint32_t index);
/* And with a large put whose value is there. Return: 0, or why not: the reservation is given up. */
int pst_commit_write(struct pst_request *q, struct pst_write *write);
/* And with a reservation that pst_reservation_prepare() has looked at. Return: 0, or why not: nothing was
 * done. */
int pst_commit_reservation(struct pst_request *q, const struct pst_put *put,
                           const struct pst_reservation_named *named, uint32_t reply_at);
void pst_commit_receive(struct pst_worker *w, struct pst_commit_message *message);
/* The request ends before its commits, which then are not applied unless that was decided already. */
void pst_commit_call_off(struct pst_request *q);

#endif
