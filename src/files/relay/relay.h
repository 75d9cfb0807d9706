/* SPDX-License-Identifier: Apache-2.0 */
/*
 * relay.h: a member of a pipelined broadcast. It joins at the store, fetches the tree piece by piece from the
 * member in front of it, and passes on what it has to the one behind it. What it fetches appears at its place
 * as that of a get does (`tree/arrival.h`). It stays until nobody behind it needs it.
 *
 * A call blocks its thread, and has two more and one for each connection. Source:
 * docs/reference/tree-protocol.md, broadcasts.
 */
#ifndef PST_FILES_RELAY_H
#define PST_FILES_RELAY_H

#include "files/carry/carry.h"

enum {
    PST_BROADCAST_TIMEOUT_MS = 30000,
    PST_BROADCAST_COPIES = 1,
};

/* All of it is borrowed during the call. */
struct pst_broadcast_options {
    const char *host; /* the store's port for trees */
    uint16_t port;
    const char *group;      /* of 1 to 1,024 bytes */
    const char *name;       /* of the tree: NAMESPACE/KEY */
    struct pst_bytes token; /* empty: none */
    uint32_t members;       /* that are expected, this one too; 0: not known. The first to join decides. */
    uint32_t timeout_ms;    /* without a piece; 0: PST_BROADCAST_TIMEOUT_MS */
    /* Now and then. NULL: nobody asks. */
    void (*progress)(void *ctx, uint64_t bytes, uint64_t bytes_of_all);
    void *ctx;
};

/*
 * Fetches the tree to @to. Return: 0 and *@result; PST_BROADCAST_COPIES: nothing was fetched, since so few
 * members have so small a tree sooner if each gets a copy; -ETIMEDOUT: no piece has come for timeout_ms;
 * -errno, with a text in @fault.
 */
int pst_broadcast_get(const struct pst_broadcast_options *options, const struct pst_carry_place *to,
                      struct pst_arrival_result *result, char fault[PST_FAULT_BYTES]);

#endif
