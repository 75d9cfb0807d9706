/* boot_dial.h: opening the client's socket; for boot_client.c. */
#ifndef PST_BOOT_DIAL_H
#define PST_BOOT_DIAL_H

#include "net/boot_priv.h"

/* Return: a connected, non-blocking descriptor, or the errno of pst_boot_connect() with *@fault set. */
int boot_dial(const struct pst_boot_address *address, uint64_t deadline_ns, const char **fault);
/* Waits for poll(2)'s @what. Return: 0, -ETIMEDOUT or -errno. */
int boot_wait(int fd, short what, uint64_t deadline_ns);

#endif
