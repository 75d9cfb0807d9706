/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stub_net.h: a transport for fuzzers: sends are handed to the fuzzer at once, what the other side says comes
 * from the input, and everything else ends when the port is polled.
 */
#ifndef PST_FUZZ_STUB_NET_H
#define PST_FUZZ_STUB_NET_H

#include "net/net_priv.h"

struct stub_port;

/* What goes out, whole; of a bulk message the first piece. */
typedef void (*stub_sent)(void *ctx, struct pst_bytes header, struct pst_bytes data);

struct stub_port *stub_port_open(stub_sent sent, void *ctx);
struct pst_port *stub_port_base(struct stub_port *port);
struct stub_port *stub_port_close(struct stub_port *port);

/* An event as the transport would give it; the receiver ends the message's life. A bulk message's data are
 * zeros when @data is NULL. */
struct pst_net_event stub_message(struct stub_port *port, enum pst_net_kind kind, struct pst_bytes header,
                                  struct pst_bytes data);
/* Messages that nobody has freed or received. */
uint32_t stub_messages(const struct stub_port *port);

#endif
