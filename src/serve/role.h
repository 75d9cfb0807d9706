/* SPDX-License-Identifier: Apache-2.0 */
/* role.h: what a node asks its part in a pool while it serves (node.h), on the shards' threads. */
#ifndef PST_SERVE_ROLE_H
#define PST_SERVE_ROLE_H

#include "member/member.h"
#include "node/node.h"
#include "replica/copies.h"

struct pst_pool_role {
    struct pst_serving *serving;
    struct pst_copies_settings copying;
    struct pst_copies *_Atomic copies; /* NULL until there is a member */
    struct pst_member_counters counters;
    struct pst_member_sender sender; /* for pst_member_open() */
};

/* Return: 0 or -ENOMEM. */
int pst_pool_role_open(const struct pst_copies_settings *copying, struct pst_pool_role **out);
/* Behind the node's end. NULL is fine. Returns NULL. */
struct pst_pool_role *pst_pool_role_close(struct pst_pool_role *role);
/* For pst_node_open(). */
struct pst_node_role pst_pool_role_table(struct pst_pool_role *role);

#endif
