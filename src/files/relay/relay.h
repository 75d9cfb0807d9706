/* SPDX-License-Identifier: Apache-2.0 */
/*
 * relay.h: a member of a pipelined broadcast. It joins at the source, which keeps the row of members: the
 * store, or a pod's agent. It fetches the tree piece by piece from the member in front of it, and passes on
 * what it has to the one behind it. Where that lies a sink says; a tree appears at its place as that of a get
 * does (`tree/arrival.h`). It stays until nobody behind it needs it.
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
    const char *host; /* the source's port for trees */
    uint16_t port;
    const char *group;      /* of 1 to 1,024 bytes */
    const char *name;       /* of the tree: NAMESPACE/KEY */
    struct pst_bytes token; /* empty: none */
    uint32_t members;       /* that are expected, this one too; 0: not known. The first to join decides. */
    uint32_t timeout_ms;    /* without a piece; 0: PST_BROADCAST_TIMEOUT_MS */
    /* Now and then. NULL: nobody asks. */
    void (*progress)(void *ctx, uint64_t bytes, uint64_t bytes_of_all);
    void *ctx;
    const _Atomic bool *stop; /* once it is set the call ends, within seconds. NULL: nothing ends it */
};

/*
 * Where a member keeps what it fetches. Calls come one at a time, @open's from any thread. Return: 0, or
 * -errno with a text in @fault.
 */
struct pst_broadcast_sink {
    /* The whole manifest, which is borrowed until @close. */
    int (*begin)(void *ctx, const struct pst_manifest *m, char fault[PST_FAULT_BYTES]);
    /* Each byte of a file comes once; @data NULL: zeros; no bytes: of an empty file. */
    int (*write)(void *ctx, uint32_t entry, uint64_t at, const void *data, size_t bytes,
                 char fault[PST_FAULT_BYTES]);
    /* Everything has come. */
    int (*end)(void *ctx, char fault[PST_FAULT_BYTES]);
    /* A file of which something has come, for reading; the caller's. Return: -errno. */
    int (*open)(void *ctx, uint32_t entry);
    /* Nothing comes or is read any more, unless it begins anew. */
    void (*close)(void *ctx);
};

/*
 * Fetches what is broadcast. Return: 0; PST_BROADCAST_COPIES: nothing was fetched, since so few members have
 * so small a tree sooner if each gets a copy; -ETIMEDOUT: no piece has come for timeout_ms; -ECANCELED: it
 * was stopped; -errno, with a text in @fault.
 */
int pst_broadcast_receive(const struct pst_broadcast_options *options, const struct pst_broadcast_sink *sink,
                          void *sink_ctx, char fault[PST_FAULT_BYTES]);
/* sink.c: fetches a tree to @to. Return: the same, and *@result. */
int pst_broadcast_get(const struct pst_broadcast_options *options, const struct pst_carry_place *to,
                      struct pst_arrival_result *result, char fault[PST_FAULT_BYTES]);

#endif
