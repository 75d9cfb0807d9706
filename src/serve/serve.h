/* SPDX-License-Identifier: Apache-2.0 */
/*
 * serve.h: a node with its part in a pool, in one piece: a store that others reach, and where its settings
 * name a master, the member that joins it and the role between the two. What the daemon runs, and any process
 * may.
 *
 * Thread: the caller's to open and close; what runs meanwhile are the rooms' own.
 */
#ifndef PST_SERVE_H
#define PST_SERVE_H

#include "member/member.h"
#include "node/node.h"
#include "replica/copies.h"

struct pst_serve_settings {
    struct pst_node_settings node;
    struct pst_member_settings member;
    struct pst_copies_settings copying;
};

extern const struct pst_options pst_serve_options;

struct pst_served;

/* Names a unix socket for @who, in the node's folder, where the settings have none. Return: 0 or -ENOMEM. */
int pst_serve_name_socket(struct pst_serve_settings *settings, const char *who, char fault[PST_FAULT_BYTES]);
/*
 * @settings: borrowed during the call, and given a unix socket where a member needs one; @role: what the node
 * is besides, if it joins no pool. Return: 0 or -errno with the reason in @fault.
 */
int pst_serve_open(struct pst_serve_settings *settings, const struct pst_node_role *role, pst_log log,
                   void *log_ctx, struct pst_served **out, char fault[PST_FAULT_BYTES]);
/* Becomes readable when the node's pool counts on it (member.h), which it leaves at -1 if it is
 * in none. */
int pst_serve_ready_fd(const struct pst_served *served);
/* Waits for that, @ms at the most. Return: 0 or -errno with the reason in @fault. */
int pst_serve_wait(struct pst_served *served, uint64_t ms, char fault[PST_FAULT_BYTES]);
/* Leaves the pool, then ends the node. NULL is fine. Returns NULL. */
struct pst_served *pst_serve_close(struct pst_served *served);

struct pst_node *pst_serve_node(const struct pst_served *served);
/* How this process opens it; the settings had a unix socket. */
const char *pst_serve_unix_url(const struct pst_served *served);

#endif
