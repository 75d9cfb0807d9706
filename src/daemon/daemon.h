/* SPDX-License-Identifier: Apache-2.0 */
/* daemon.h: what penstockd runs, by its role, and its log. */
#ifndef PST_DAEMON_H
#define PST_DAEMON_H

#include "daemon/settings.h"

/* A line of the log, on any thread. */
void daemon_log(void *ctx, const char *line);
void daemon_log_settings(const struct settings *settings);

struct daemon_node;

/* @settings: borrowed until closed, and completed. Return: 0 or -errno with the reason in @fault; *@out is to
 * be closed either way. */
int daemon_node_open(struct settings *settings, struct daemon_node **out, char fault[PST_FAULT_BYTES]);
/* Becomes readable when the node's pool counts on it; -1: it is in none. */
int daemon_node_ready_fd(const struct daemon_node *node);
uint64_t daemon_node_keys(const struct daemon_node *node);
/* Reads again what may change while it runs, and logs what came of that. */
void daemon_node_reload(const struct daemon_node *node);
void daemon_node_close(struct daemon_node *node);

#endif
