/* SPDX-License-Identifier: Apache-2.0 */
/*
 * address.h: addresses of sockets, and sockets that listen at one or connect to it. Any thread; the name
 * service may block.
 */
#ifndef PST_NET_ADDRESS_H
#define PST_NET_ADDRESS_H

#include "base/base.h"

/* Where a socket listens or connects. */
struct pst_boot_address {
    char host[256]; /* without brackets; empty for a unix path */
    uint16_t port;
    char path[108]; /* unix socket, empty for TCP */
};

/*
 * Parses "host:port", "[v6]:port" or "unix:///path" and "/path".
 * Return: 0, or -EINVAL with *@fault naming what is wrong: "server address must be host:port", "invalid port
 * number", "unix path too long".
 */
int pst_boot_address_parse(const char *text, struct pst_boot_address *out, const char **fault);
void pst_boot_address_print(const struct pst_boot_address *address, char *buf, size_t cap);
bool pst_boot_address_loopback(const struct pst_boot_address *address); /* unix paths count as loopback */
bool pst_boot_address_wildcard(const struct pst_boot_address *address); /* 0.0.0.0, ::, * or an empty host */
/* Listens on a TCP address, and writes the port that it got where that was 0. Return: a descriptor that does
 * not block, -errno. */
int pst_boot_listen_tcp(struct pst_boot_address *address);
/* The same on a unix socket of mode 0600, in place of one that nobody serves any more. *@inode tells the
 * socket's file from a successor's, for the second call, which removes it. -EADDRINUSE: it is served, or no
 * socket. */
int pst_boot_listen_unix(const struct pst_boot_address *address, uint64_t *inode);
void pst_boot_unlisten_unix(const struct pst_boot_address *address, uint64_t inode);
/* Removes this user's unix sockets of the folder whose name begins so and that nobody serves, and did not a
 * minute ago. */
void pst_boot_sweep(const char *folder, const char *prefix);

/* Connects to a listener of any protocol, each address of its name in turn, and waits. Return: a descriptor
 * that does not block; -ECONNREFUSED, -EHOSTUNREACH, -ETIMEDOUT, -errno with *@fault set. */
int pst_boot_connect(const struct pst_boot_address *address, uint64_t deadline_ns, const char **fault);

#endif
