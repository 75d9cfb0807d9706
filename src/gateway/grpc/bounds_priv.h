/* SPDX-License-Identifier: Apache-2.0 */
/* bounds_priv.h: a door's bounds, and the numbers that gRPC has given. */
#ifndef PST_GRPC_BOUNDS_PRIV_H
#define PST_GRPC_BOUNDS_PRIV_H

/* Bounds, as docs/reference/limits.md has them. */
enum {
    HEAD_BYTES_MAX = 64,            /* of an answer, in front of its body */
    STREAMS_MAX = 2048,             /* of the door, those that wait for their last operation included */
    CONNECTION_STREAMS_MAX = 256,   /* what a client is told */
    HEADER_BYTES_MAX = 16 << 10,    /* of one call, names and values */
    DOOR_INPUT_BYTES = 256 << 10,   /* received at a time */
    OUT_BYTES = 256 << 10,          /* of a connection, on their way into the socket */
    FRAME_BYTES_MAX = 64 << 10,     /* that are sent in one DATA frame */
    FRAME_BYTES_IN_MAX = 1 << 20,   /* that a client may send in one */
    WINDOW_BYTES = 80 << 10,        /* what a stream may send before the door has said more */
    LARGE_BYTES = 2 << 20,          /* window and memory of a stream that writes more than that */
    LARGE_MAX = 32,                 /* streams that have it at once */
    GATHERED_BYTES_MAX = 256 << 20, /* of messages that are gathered, and of answers that are, at once */
    LISTS_MAX = 64,                 /* listings at once: 32 KiB a shard each */
    OUT_FRAMES_MAX = 2048,          /* of a connection, that wait for room in it */
    SETTLE_MS = 10000,     /* from accept to the client's SETTINGS; from a call's first header to its last */
    CALL_MS = 600000,      /* of a call whose client names no time */
    CALL_MS_MAX = 3600000, /* of one whose client does */
    LINE_HASTE = 8,        /* so many times less patience with who has what others wait for */
};

/* gRPC's, of those that doors give. */
enum status_code {
    STATUS_OK = 0,
    STATUS_UNKNOWN = 2,
    STATUS_INVALID = 3,
    STATUS_DEADLINE = 4,
    STATUS_EXISTS = 6,
    STATUS_DENIED = 7,
    STATUS_EXHAUSTED = 8,
    STATUS_PRECONDITION = 9,
    STATUS_ABORTED = 10,
    STATUS_RANGE = 11,
    STATUS_UNIMPLEMENTED = 12,
    STATUS_INTERNAL = 13,
    STATUS_UNAVAILABLE = 14,
    STATUS_DATA_LOSS = 15,
};

#endif
