/* SPDX-License-Identifier: Apache-2.0 */
/* words_priv.h: what the library notes in an operation while it is underway. For call/ alone. */
#ifndef PST_CALL_WORDS_PRIV_H
#define PST_CALL_WORDS_PRIV_H

#include "call/call.h"
#include "net/handshake.h"

enum {
    OP_NEXT,
    OP_DONE_LIST,
    OP_DEADLINE,
    OP_SHARD,
    OP_TRACE = PST_OP_TRACE,
    /* Of one that has ended: */
    OP_COPIES = OP_DEADLINE,
    OP_SESSION = OP_DEADLINE, /* of a view */
};

/* OP_SHARD holds the shard, plus one, in its low 16 bits, and above them the number of the request that the
 * operation was sent in last; the number stays when it has ended. */
enum { OP_SHARD_BITS = 16 };

_Static_assert(PST_BOOT_SHARDS_MAX < 1 << OP_SHARD_BITS, "a shard, plus one, fits its bits");

#endif
