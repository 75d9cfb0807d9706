/* SPDX-License-Identifier: Apache-2.0 */
/*
 * inbox_priv.h: what pods say on WebSockets and a route's thread has not looked at yet, in the order in which
 * it came: to read a message may take longer than the web's loop has. All calls under the route's lock. A
 * socket with a message here, or with one that the thread has taken, lives on after it has closed.
 */
#ifndef PST_AGENT_INBOX_PRIV_H
#define PST_AGENT_INBOX_PRIV_H

#include "agent/store/sockets_priv.h"
#include "base/list.h"

enum {
    INBOX_BYTES_MAX = 64 << 20,
    INBOX_SMALL_BYTES = 1024, /* such messages come in however much waits: sockets and each_max bound them */
};

struct inbox {
    struct pst_list messages;
    size_t bytes;
    uint32_t each_max; /* messages of one socket, with the one that was taken */
};

struct inbox_message {
    struct pst_list link;
    struct pod_socket *socket;
    struct pst_bytes text; /* lies behind it */
    uint64_t came_ms;
};

void inbox_init(struct inbox *inbox, uint32_t each_max);
/* Return: 0, -EBUSY too much waits already, -ENOMEM. */
int inbox_put(struct inbox *inbox, struct pod_socket *socket, struct pst_bytes text);
/* The time up to which nothing waits: now, or when the oldest message came. */
uint64_t inbox_ms(const struct inbox *inbox);
/* The oldest; NULL: there is none. */
struct inbox_message *inbox_take(struct inbox *inbox);
/* Frees what was taken, and its socket if that has closed and this was its last message. */
void inbox_done(struct inbox_message *message);
/* It has closed. Frees it, or leaves that to inbox_done(). */
void inbox_close(struct pod_socket *socket);

#endif
