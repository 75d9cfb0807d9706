/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gateway.h: other people's protocols in front of a node: TensorStore's tsgrpc_kvstore, gRPC over HTTP/2
 * without encryption. A door is a client of its node like any other and lives beside it in penstockd; it owns
 * its sockets and one thread, which does everything.
 *
 * It never has more than its bounds of connections, streams and memory, and never sends a value in parts of
 * two generations.
 */
#ifndef PST_GATEWAY_H
#define PST_GATEWAY_H

#include "base/options.h"

/* X(TYPE, name, default, min, max, unit, text) */
#define PST_TSGRPC_OPTIONS(X)                                                                                \
    X(STRING, tsgrpc, "", 0, 0, "ADDRESS",                                                                   \
      "HOST:PORT on which TensorStore's tsgrpc_kvstore is served, too; port 0 picks one")                    \
    X(FLAG, tsgrpc_network, "no", 0, 0, "",                                                                  \
      "tsgrpc may be off loopback, where everyone who gets there may read and write")                        \
    X(STRING, tsgrpc_grant, "", 0, 0, "NAME",                                                                \
      "of --grants: what clients of tsgrpc may do; anything if not set")                                     \
    X(NUMBER, tsgrpc_connections, "256", 1, 4096, "clients", "connections of tsgrpc at once")                \
    X(NUMBER, tsgrpc_stall_ms, "60000", 100, 3600000, "ms",                                                  \
      "a client that moves less than 64 KiB in this time, while a call waits for it, loses the call")

struct pst_tsgrpc_settings {
    PST_TSGRPC_OPTIONS(PST_OPTION_MEMBER)
};

struct pst_door;

/*
 * Binds the address of settings->tsgrpc and lets clients wait there. Return: 0, -EINVAL no address, -EACCES
 * one off loopback, -errno; with the reason in @fault.
 */
int pst_tsgrpc_open(const struct pst_tsgrpc_settings *settings, struct pst_door **out,
                    char fault[PST_FAULT_BYTES]);
/* host:port, with the port that was picked. */
const char *pst_door_address(const struct pst_door *door);
/*
 * Opens the store and begins to serve. @url: of the node, on a unix socket; @secret: what the gateway proves,
 * which says what its clients may do; empty: none. Both borrowed during the call. Return: 0 or -errno with
 * the reason in @fault.
 */
int pst_tsgrpc_serve(struct pst_door *door, const char *url, struct pst_bytes secret,
                     char fault[PST_FAULT_BYTES]);
/* Ends what is underway; before the node's end. Returns NULL. */
struct pst_door *pst_door_close(struct pst_door *door);

#endif
