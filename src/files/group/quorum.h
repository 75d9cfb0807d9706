/* SPDX-License-Identifier: Apache-2.0 */
/*
 * quorum.h: broadcasts that begin once enough pods are there. Pods join a quorum by its name; it closes when
 * one of its conditions holds, and then its members stay as they are: who joins that name later opens
 * another.
 *
 * Pure: no clock, no network. One caller at a time. Time is handed in, in ms; texts are borrowed during
 * calls. Source: docs/reference/data-store.md, quorums.
 */
#ifndef PST_FILES_QUORUM_H
#define PST_FILES_QUORUM_H

#include "files/catalogue/catalogue.h"

enum {
    PST_QUORUMS_MAX = 1024, /* then the oldest that has closed is forgotten */
    PST_QUORUM_MEMBERS_MAX = 4096,
    PST_QUORUM_NAME_BYTES_MAX = PST_NAME_BYTES_MAX + 1 + 4096, /* a namespace, a slash, and a name in it */
    PST_QUORUM_ID_CAP = 32,
    PST_QUORUM_TIMEOUT_MS_MAX = 24 * 3600 * 1000,
    PST_QUORUM_LIFE_MS = 3600 * 1000, /* after the last call for it */
};

struct pst_quorums;

/* Return: NULL without memory. */
struct pst_quorums *pst_quorums_open(void);
/* Returns NULL. */
struct pst_quorums *pst_quorums_close(struct pst_quorums *quorums);

/* It closes when any of those that are set holds; the first to join sets them. */
struct pst_quorum_window {
    uint64_t timeout_ms; /* after the first has joined; 0: not set */
    uint32_t world_size; /* so many addresses; 0: not set */
    const char *const *ips;
    uint32_t ip_count; /* all of them; 0: not set */
};

enum pst_quorum_state {
    PST_QUORUM_WAITING,
    PST_QUORUM_READY,
    PST_QUORUM_COMPLETED, /* every member has said so */
};

struct pst_quorum_member {
    const char *ip, *pod_name;
    bool is_putter;
};

struct pst_quorum_info {
    const char *id;
    enum pst_quorum_state state;
    bool is_member; /* the one who asks */
    uint32_t putters, getters;
};

typedef void pst_quorum_each(void *arg, const struct pst_quorum_member *member);

/*
 * Joins the open quorum @name, or opens it. A member that joins again is told where it is, also after the
 * quorum has closed. Return: 0 and *@out, whose id lives until the next call; -EINVAL a text is empty or too
 * long, or the window has no condition; -ENOSPC too many members, or quorums that
 * wait; -ENOMEM.
 */
int pst_quorum_join(struct pst_quorums *quorums, const char *name, const struct pst_quorum_member *member,
                    const struct pst_quorum_window *window, uint64_t now_ms, struct pst_quorum_info *out);
/* @each: NULL, or called for every member, in the order of joining. Return: 0, -ENOENT no such quorum. */
int pst_quorum_status(struct pst_quorums *quorums, const char *id, const char *ip, uint64_t now_ms,
                      struct pst_quorum_info *out, pst_quorum_each *each, void *arg);
/* The member has what it came for. Return: 0, -ENOENT no such quorum or member, -EAGAIN it has not closed. */
int pst_quorum_complete(struct pst_quorums *quorums, const char *id, const char *ip, uint64_t now_ms,
                        struct pst_quorum_info *out);
/* Forgets quorums that nobody has called for. */
void pst_quorums_forget(struct pst_quorums *quorums, uint64_t now_ms);

#endif
