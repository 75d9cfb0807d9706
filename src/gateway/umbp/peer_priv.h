/* SPDX-License-Identifier: Apache-2.0 */
/* peer_priv.h: one call of a node's own service, by gRPC. Any thread, which waits. */
#ifndef PST_UMBP_PEER_PRIV_H
#define PST_UMBP_PEER_PRIV_H

#include "base/base.h"

enum { PEER_ANSWER_BYTES_MAX = 16 << 20 }; /* that are passed over; behind more the call is given up */

/*
 * Calls "/umbp.UMBPPeer/@method" at @address, "host:port", with @message; the answer is passed over. Return:
 * 0, -EREMOTEIO the peer answers another status than OK, -ETIMEDOUT, -EPROTO, -ECONNRESET, or as of
 * pst_boot_connect().
 */
int peer_call(const char *address, const char *method, struct pst_bytes message, uint64_t deadline_ns);

#endif
