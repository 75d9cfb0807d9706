/* SPDX-License-Identifier: Apache-2.0 */
/*
 * frame_priv.h: frames of our own over byte channels.
 *
 * A frame, little-endian like everything in it:
 *
 *   0      1      2              4            8      16      24
 *   +------+------+--------------+------------+------+-------+----------------+--------------+
 *   | type | zero | header_bytes | body_bytes | id   | value | header         | body         |
 *   | u8   | u8   | u16          | u32        | u64  | u64   | header_bytes B | body_bytes B |
 *   +------+------+--------------+------------+------+-------+----------------+--------------+
 *
 *   1 EAGER    header and body are the message; id and value 0
 *   2 BULK     announces a bulk message: its header; id: the sender's operation, value: the total
 *   3 GO       answers BULK: id as there, value: the receiver's operation
 *   4 REFUSED  answers BULK: id as there; none of its bytes are wanted
 *   5 BODY     the next bytes of a bulk message; id: the receiver's operation
 */
#ifndef PST_STREAM_FRAME_PRIV_H
#define PST_STREAM_FRAME_PRIV_H

#include "net/net.h"

enum {
    STREAM_HEAD_BYTES = 24,
    STREAM_BODY_BYTES_MAX = 1 << 20, /* of one BODY */
};

#define STREAM_BULK_BYTES_MAX (1ull << 46)

enum stream_type { STREAM_EAGER = 1, STREAM_BULK, STREAM_GO, STREAM_REFUSED, STREAM_BODY };

struct stream_head {
    uint8_t type;
    uint8_t zero;
    uint16_t header_bytes;
    uint32_t body_bytes;
    uint64_t id;
    uint64_t value;
};

_Static_assert(sizeof(struct stream_head) == STREAM_HEAD_BYTES, "a head is as it is drawn");
_Static_assert(PST_NET_HEADER_BYTES_MAX <= UINT16_MAX, "a header's length fits");

/* Whether the head may be one. Return: 0 or -EPROTO. */
int stream_head_check(const struct stream_head *head);

#endif
