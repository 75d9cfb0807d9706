/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sockets_priv.h: WebSockets of pods. What a path's route keeps of each begins with a struct pod_socket, and
 * is allocated and zeroed when the socket opens. Callbacks come on the loop's thread, which may not wait.
 */
#ifndef PST_AGENT_SOCKETS_PRIV_H
#define PST_AGENT_SOCKETS_PRIV_H

#include "agent/store/store_priv.h"
#include "files/group/tree.h"

struct pod_socket {
    const struct socket_ops *ops;
    struct pst_web_socket *web; /* while it is open */
    bool closed;
    uint32_t waiting; /* messages of it in an inbox, or taken from there */
    char group[PST_TREE_GROUP_BYTES_MAX + 1], namespace[PST_NAME_BYTES_MAX + 1];
};

struct socket_ops {
    size_t bytes; /* of what begins with a struct pod_socket */
    void (*message)(struct pst_data_store *store, struct pod_socket *socket, struct pst_bytes text);
    /* The last call, which sees that it is freed. */
    void (*close)(struct pst_data_store *store, struct pod_socket *socket);
};

/* {"event": "error", "message": text}. NULL without memory. */
struct pst_json *socket_error(const char *text);
/* Queues @text, which may be NULL: there was no memory for it. A socket that cannot have it ends. One that
 * has closed is told nothing, by this and the next. */
void socket_send(struct pod_socket *socket, const char *text);
/* Once all that was queued is sent. */
void socket_end(struct pod_socket *socket);

extern const struct socket_ops broadcast_sockets; /* broadcast.c */
extern const struct socket_ops exchange_sockets;  /* exchange.c */

#endif
