/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pod.h: a pod's agent, `penstockd --role agent`: it serves the files and folders that processes of this pod
 * offer, and tells other pods where a tree of a broadcast lies here. Processes of the pod speak to it over a
 * unix socket, other pods over TCP; both in frames of JSON. Files go out through an rsync daemon, which
 * starts with the first offer. Source: docs/reference/data-store.md, "The agent".
 */
#ifndef PST_AGENT_POD_H
#define PST_AGENT_POD_H

#include "base/options.h"

/* X(TYPE, name, default, min, max, unit, text) */
#define PST_POD_OPTIONS(X)                                                                                   \
    X(STRING, agent_socket, "", 0, 0, "PATH",                                                                \
      "unix socket of an agent, for processes of its pod; penstock-agent.sock beside a node's if not set")   \
    X(STRING, agent_listen, "127.0.0.1:29400", 0, 0, "ADDRESS",                                              \
      "HOST:PORT of an agent for other pods, its rsync's host, too; port 0 picks one")                       \
    X(NUMBER, agent_data_port, "0", 0, 65535, "port",                                                        \
      "of an agent's rsync for kubetorch's clients, which have 873 and a module 'data'; 0: none")            \
    X(NUMBER, agent_broadcast_port, "0", 0, 65535, "port",                                                   \
      "of an agent's broadcasts of tensors, which opens with the first; 0 picks one")                        \
    X(FLAG, agent_network, "no", 0, 0, "",                                                                   \
      "agent_listen may be off loopback without a token, where everyone who gets there may read what is "    \
      "offered")

struct pst_pod_settings {
    PST_POD_OPTIONS(PST_OPTION_MEMBER)
    /* As of the data store's options with these names. */
    uint64_t rsync_port;
    const char *token_file;
};

struct pst_pod;

/*
 * Starts it, and serves from then on. @settings: borrowed until closed; @log: any thread. Return: 0, -EINVAL
 * a setting, -EADDRINUSE another agent has the socket or the port, or -errno, with the reason in @fault.
 */
int pst_pod_open(const struct pst_pod_settings *settings, void (*log)(void *ctx, const char *line),
                 void *log_ctx, struct pst_pod **out, char fault[PST_FAULT_BYTES]);
/* Ends connections, and the rsync daemon. Returns NULL. */
struct pst_pod *pst_pod_close(struct pst_pod *pod);

/* The argument with which an agent starts its own program again, to move tensors from GPU to GPU: its main()
 * is pst_pod_move(), which returns the exit code. */
#define PST_POD_MOVER "--move-tensors"

int pst_pod_move(void);

#endif
