/* SPDX-License-Identifier: Apache-2.0 */
/* dial.h: opening the client's socket; for client.c. */
#ifndef PST_BOOT_DIAL_H
#define PST_BOOT_DIAL_H

#include "net/handshake/handshake_priv.h"

#include <sys/socket.h>

enum { BOOT_DIAL_MAX = 8 };

/* Addresses that are tried one after the other. */
struct boot_dial {
    struct sockaddr_storage at[BOOT_DIAL_MAX];
    socklen_t bytes[BOOT_DIAL_MAX];
    uint32_t count, next;
    int fd; /* under way to the next one; -1: none */
    uint64_t until_ns, deadline_ns;
    int error; /* of the last that failed */
};

/* Asks the name service. Return: 0, or the errno of pst_boot_link_open() with *@fault set. */
int boot_dial_init(struct boot_dial *dial, const struct pst_boot_address *address, uint64_t deadline_ns,
                   const char **fault);
/* Return: a connected, non-blocking descriptor, the caller's; -EAGAIN not yet; the errno of
 * pst_boot_link_open() with *@fault set. */
int boot_dial_step(struct boot_dial *dial, const char **fault);
/* Until there may be something to do, or until then. */
void boot_dial_wait(const struct boot_dial *dial, uint64_t until_ns);
void boot_dial_fini(struct boot_dial *dial);
/* Waits for poll(2)'s @what, or until then. */
void boot_wait(int fd, short what, uint64_t until_ns);

#endif
