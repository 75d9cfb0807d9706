/* SPDX-License-Identifier: Apache-2.0 */
/* paths.h: where things lie when nobody says. */
#ifndef PST_PATHS_H
#define PST_PATHS_H

#include <stdbool.h>
#include <stddef.h>

/* Of a node, and of a pod's agent. */
#define PST_NODE_SOCKET  "penstock.sock"
#define PST_AGENT_SOCKET "penstock-agent.sock"

/*
 * The unix socket @name that a process serves on and its clients try by default, in a folder to which no
 * other user may write: /run for root, else XDG_RUNTIME_DIR, else /run/user/UID, else /tmp/penstock-UID,
 * which who @serves makes. Return: 0, or -errno with the thread's error text, which names what to set.
 */
int pst_default_socket(const char *name, bool serves, char *buf, size_t cap);

#endif
