/* SPDX-License-Identifier: Apache-2.0 */
/* connect.c: a socket to a server for trees. */
#include "files/carry/carry.h"

#include "base/clock.h"
#include "base/ms.h"
#include "net/handshake.h"

#include <fcntl.h>
#include <stdio.h>

int pst_carry_connect(const char *host, uint16_t port, uint32_t timeout_ms, char fault[PST_FAULT_BYTES])
{
    struct pst_boot_address address = {.port = port};
    const char *why = "cannot connect";
    int fd = -EHOSTUNREACH;

    pst_assert(timeout_ms > 0);
    if ((size_t)snprintf(address.host, sizeof(address.host), "%s", host) < sizeof(address.host))
        fd = pst_boot_connect(&address, pst_deadline_ns(pst_now_ns(), timeout_ms), &why);
    if (fd >= 0 && fcntl(fd, F_SETFL, 0) < 0) {
        close(fd);
        fd = -EIO;
    }
    if (fd < 0)
        snprintf(fault, PST_FAULT_BYTES, "%.200s:%u: %s", host, port, why);
    return fd;
}
