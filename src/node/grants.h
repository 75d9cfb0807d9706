/* SPDX-License-Identifier: Apache-2.0 */
/*
 * grants.h: the grants that a node gives, while it runs. Whoever has sessions, or carries out what they ask
 * for, includes it.
 *
 * A *grant* lives as long as it is in the file, or a session has it. Its *terms* may be replaced at any time:
 * each shard session has a reference to those that it looked at last, and takes the new ones with its next
 * request. A session without a grant may do anything: of a node that has no file, or of the node's own
 * secret.
 *
 * Threads: a grant is made, changed and ended by the control thread. Shards look at terms, count in their own
 * cache line, and in the quota; only what is refused meets a lock.
 */
#ifndef PST_NODE_GRANTS_H
#define PST_NODE_GRANTS_H

#include "base/list.h"
#include "node/grant_file.h"
#include "store/quota.h"

#include <pthread.h>
#include <stdatomic.h>

struct pst_terms {
    _Atomic uint32_t refs;
    struct pst_grant_terms are;
};

/* What a grant's sessions have underway in one shard; its thread's. */
struct pst_grant_shard {
    _Alignas(64) uint32_t underway;
};

struct pst_grant {
    uint32_t magic;
    struct pst_list link; /* of the node's */
    char name[PST_GRANT_NAME_BYTES_MAX + 1];
    bool given;                     /* in the file; else it ends with its last session */
    uint32_t sessions;              /* control thread's, as `given` */
    uint32_t kept;                  /* file as of which it is there */
    struct pst_quota quota;         /* of all its sessions together */
    struct pst_grant_shard *shards; /* by number */
    _Atomic uint64_t version;       /* of the terms */
    _Atomic uint64_t sessions_told; /* `sessions`, for figures */
    _Atomic uint64_t refused[PST_RIGHT_COUNT];
    pthread_mutex_t lock; /* of the next */
    struct pst_terms *terms;
};

struct pst_grants;

/* @path: of the file; @secret: proves anything, too, or is empty. Nothing is in force yet. Return: 0 or
 * -errno with the reason in @fault. */
int pst_grants_open(const char *path, struct pst_bytes secret, struct pst_grants **out,
                    char fault[PST_FAULT_BYTES]);
/* Every session has ended. NULL is fine. Returns NULL. */
struct pst_grants *pst_grants_close(struct pst_grants *grants);

/* Any thread: reads the file again, for pst_grants_renew(). Return: 0 or -errno with the reason in @fault:
 * what is in force stays. */
int pst_grants_reload(struct pst_grants *grants, char fault[PST_FAULT_BYTES]);
/*
 * Control thread: puts a file that was read into force, and the server takes its secrets. Return: 1 and
 * @line, what to log; 0: there is none; -ENOMEM and @line.
 */
int pst_grants_renew(struct pst_grants *grants, struct pst_boot_server *server, uint32_t shard_count,
                     char line[PST_FAULT_BYTES]);

/*
 * A secret that only this process knows, for a part of it that is a client of its node: as grant @name, or of
 * NULL for anything. Return: 0, -ENOENT no such grant.
 */
int pst_grants_own_secret(struct pst_grants *grants, const char *name, uint8_t *secret, size_t *bytes);
enum { PST_GRANTS_OWN_SECRET_BYTES_MAX = 32 + PST_GRANT_NAME_BYTES_MAX };

/* "grant.NAME.refused_read 3" and the like, as text in lines. Return: bytes. */
size_t pst_grants_print(struct pst_grants *grants, char *to, size_t room);

/* ---- sessions, on the control thread ---- */

/* Counts a session of whose secret @owner is. Return: 0 and *@out, NULL without a grant; -EBUSY it has as
 * many as it may. @within: a part of this process has it. */
int pst_grant_enter(void *owner, struct pst_grant **out, bool *within);
/* NULL is fine. */
void pst_grant_leave(struct pst_grants *grants, struct pst_grant *grant);
/* Why a session of the grant has to end; NULL: it may go on. @shares: it has memory of this host. */
const char *pst_grant_ends(const struct pst_grant *grant, bool shares);

/* ---- shards ---- */

/* A reference to the terms as they are now, and their version. */
struct pst_terms *pst_grant_terms_ref(struct pst_grant *grant, uint64_t *version);
/* NULL is fine. Returns NULL. */
struct pst_terms *pst_terms_unref(struct pst_terms *terms);
/* Counts what was refused for want of @right. Return: true when it is to be logged, too: so many a second
 * are.
 * *@untold: how many were not since the last one. */
bool pst_grant_refused(struct pst_grants *grants, struct pst_grant *grant, uint8_t right, uint32_t *untold);

#endif
