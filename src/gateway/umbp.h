/* SPDX-License-Identifier: Apache-2.0 */
/*
 * umbp.h: UMBP's master, for clients of ROCm's mori: gRPC over HTTP/2 without encryption. It owns its sockets
 * and two threads: one serves its clients, the other tells nodes that are too full what to evict. It keeps
 * nothing itself: each call asks whoever leads the pool, for
 * a bounded number of steps at a time.
 */
#ifndef PST_UMBP_H
#define PST_UMBP_H

#include "directory/guest/desk.h"
#include "gateway/gateway.h"

/* X(TYPE, name, default, min, max, unit, text) */
#define PST_UMBP_OPTIONS(X)                                                                                  \
    X(STRING, umbp, "", 0, 0, "ADDRESS",                                                                     \
      "HOST:PORT at which clients of ROCm's mori find a master, of role=master; port 0 picks one")           \
    X(FLAG, umbp_network, "no", 0, 0, "",                                                                    \
      "umbp may be off loopback, where everyone who gets there may register nodes and ask")                  \
    X(NUMBER, umbp_connections, "1024", 1, 4096, "clients", "connections of umbp at once")                   \
    X(NUMBER, umbp_stall_ms, "60000", 100, 3600000, "ms",                                                    \
      "a client that moves less than 64 KiB in this time, while a call waits for it, loses the call")        \
    X(NUMBER, umbp_evict_ms, "5000", 0, 3600000, "ms",                                                       \
      "time between two looks for nodes that are to evict; 0: none is told to")

struct pst_umbp_settings {
    PST_UMBP_OPTIONS(PST_OPTION_MEMBER)
};

struct pst_umbp_ops {
    /* Any thread. Nobody else has the desk until it is left. Return: false: this master does not lead, and
     * nothing is to be left. */
    bool (*enter)(void *ctx, struct pst_guest_desk *out);
    void (*leave)(void *ctx);
};

/* As pst_tsgrpc_open(). */
int pst_umbp_open(const struct pst_umbp_settings *settings, struct pst_door **out,
                  char fault[PST_FAULT_BYTES]);
/* Begins to serve. @ops, @ctx: borrowed until the door is closed. Return: 0 or -errno with the reason in
 * @fault. */
int pst_umbp_serve(struct pst_door *door, const struct pst_umbp_settings *settings,
                   const struct pst_umbp_ops *ops, void *ctx, char fault[PST_FAULT_BYTES]);

#endif
