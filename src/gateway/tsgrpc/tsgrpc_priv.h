/* SPDX-License-Identifier: Apache-2.0 */
/* tsgrpc_priv.h: TensorStore's service, what its methods share. */
#ifndef PST_TSGRPC_PRIV_H
#define PST_TSGRPC_PRIV_H

#include "gateway/grpc/door_priv.h"
#include "gateway/tsgrpc/proto_priv.h"

/* Bounds, as docs/reference/limits.md has them. */
enum {
    PART_BYTES = LARGE_BYTES / 2, /* of a value, in one message */
    GET_BYTES_MAX = 64 << 10,     /* of a value that is copied; larger ones are read in place */
    SMALL_BYTES = 64 << 10,       /* of a message of Write's that needs no more than */
    SWEEP_KEYS = 512,             /* deleted from a range in one step of the loop */
};

extern const struct method method_read, method_write, method_delete, method_list;

/* An answer of one message: a generation. */
void stream_written(struct stream *st, struct generation generation);
/* A result of the store's as status; @key for the text. */
void stream_fail_result(struct stream *st, int result, struct pst_bytes key);

#endif
