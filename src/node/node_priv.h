/* SPDX-License-Identifier: Apache-2.0 */
/* node_priv.h: a node: its store, its shards' threads, its sessions and what it is besides. */
#ifndef PST_NODE_PRIV_H
#define PST_NODE_PRIV_H

#include "net/handshake.h"
#include "node/node.h"
#include "node/session.h"
#include "node/worker.h"
#include "wire/route.h"

#define PST_NODE_MAGIC 0x6e6f6465u

struct pst_grants;

struct pst_node {
    uint32_t magic;
    struct pst_store *store;
    struct pst_net *net;    /* UCX's; NULL: not offered */
    struct pst_net *stream; /* NULL: not offered */
    struct pst_boot_server *boot;
    struct pst_tls *tls; /* NULL: none */
    struct pst_worker *workers;
    uint32_t worker_count;
    uint32_t requests_max;
    uint32_t session_requests_max;
    uint64_t slow_ns;    /* requests that take longer are logged; 0: none */
    uint64_t value_ns;   /* that large values may be on their way */
    uint64_t silent_ns;  /* that a client may move nothing when requests are scarce */
    uint64_t request_ns; /* that any request may take, whatever its client says */
    uint32_t waits_max, session_waits_max;
    uint32_t watches_max, session_watches_max;
    uint32_t sessions_max;
    struct pst_quota quota; /* the limits of every session */
    uint32_t spin_us;
    bool keeps;       /* its memory outlives it */
    bool opens_first; /* shards open their way to a client before it may use its port */
    uint64_t start_ns;
    struct pst_session **sessions;
    _Atomic uint32_t session_count;
    pthread_t control;
    bool controlled;
    struct {
        uint64_t since_ns;
        uint32_t count;
    } refusals; /* control thread: of the last second in which there were any */
    _Atomic uint64_t refused[PST_BOOT_REFUSALS];
    uint64_t device_errors; /* that have been told */
    int wake_fd;
    _Atomic bool stopping;
    _Atomic uint32_t commits; /* underway */
    struct pst_node_role role;
    pst_log log;
    void *log_ctx;
    uint8_t secret[PST_BOOT_SECRET_BYTES_MAX];
    size_t secret_bytes;
    struct pst_grants *grants; /* NULL: who is let in may do anything */
    char urls[PST_STRINGS_MAX + 1][300];
    int url_count;
};

/* tls.c: opens what the settings ask for, and says who may do without it. The secret has been read. Return:
 * 0, or -errno with the reason in @fault. */
int pst_node_open_tls(struct pst_node *node, const struct pst_node_settings *settings, char *fault);
/* Any thread; logs what came of it. */
void pst_node_reload_tls(struct pst_node *node);
enum pst_boot_plain pst_node_plain(const struct pst_node_settings *settings);

/* The shard that has the key. */
static inline uint32_t pst_node_route(const struct pst_node *node, struct pst_bytes key)
{
    return pst_route_shard(key, pst_store_partition_seed(node->store), node->worker_count);
}

/* Whether the node's role lets an operation on the key be carried out. Return: 0 or the operation's result.
 */
static inline int pst_node_may_serve(const struct pst_node *node, struct pst_bytes key)
{
    return pst_likely(!node->role.may_serve) ? 0 : node->role.may_serve(node->role.ctx, key);
}

/* Whether a write of the key shows only when other nodes have it. */
static inline bool pst_node_copied(const struct pst_node *node, struct pst_bytes key)
{
    return pst_unlikely(node->role.copied) && node->role.copied(node->role.ctx, key);
}

/* Wakes the control thread. */
void pst_node_wake(struct pst_node *node);
void pst_node_log(const struct pst_node *node, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* ---- descriptors.c ---- */

/*
 * Lowers the number of sessions to what the process has descriptors for, and says how many handshakes there
 * may be at once. Called when all but the sockets is open. Return: 0 or -errno with the reason in @fault.
 */
int pst_node_fit_descriptors(struct pst_node *node, uint32_t listeners, uint32_t *handshakes_max,
                             char *fault);

#endif
