/* SPDX-License-Identifier: Apache-2.0 */
/*
 * wire.h: the messages between a client and a node, as docs/reference/protocol.md draws them. Pure: encodes
 * into and decodes from memory that the caller gives; decoded structs point into it. All numbers
 * little-endian, nothing padded but what is drawn.
 *
 * Every message is a head (in the transport's header), then for REQUEST and REPLY a body of operations, for
 * BULK the list of parts behind the head.
 */
#ifndef PST_WIRE_H
#define PST_WIRE_H

#include "base/base.h"
#include "base/traceparent.h"
#include "wire/copy.h"
#include "wire/op.h"
#include "wire/result.h"

enum {
    /* Version of a session: the highest that both sides speak, agreed on the bootstrap socket. */
    PST_WIRE_VERSION = 8,
    PST_WIRE_VERSION_OLDEST = 8,

    PST_WIRE_PLACES = 1024, /* of requests underway, in a session and shard */
    PST_WIRE_BODY_BYTES_MAX = 120 << 10,
    PST_WIRE_PARTS_MAX = 128, /* in one bulk message */
};

_Static_assert(PST_WIRE_VERSION_OLDEST <= PST_WIRE_VERSION, "wire versions");
_Static_assert((PST_WIRE_PLACES & (PST_WIRE_PLACES - 1)) == 0, "a request's place is its low bits");
_Static_assert(PST_WIRE_OP_BYTES_MAX + PST_WIRE_QUESTION_BYTES_MAX <= PST_WIRE_BODY_BYTES_MAX,
               "any operation fits a request of its own");
_Static_assert(PST_WIRE_OPS_MAX <= UINT16_MAX && PST_WIRE_PARTS_MAX <= UINT16_MAX, "counts of a head");

enum pst_wire_type {
    PST_WIRE_HELLO = 1, /* client to shard: are you there; answered by WELCOME */
    PST_WIRE_WELCOME = 2,
    PST_WIRE_REQUEST = 3, /* op_count operations */
    PST_WIRE_REPLY = 4,   /* op_count results, in the order of the request */
    PST_WIRE_BULK = 5,    /* bytes of large values of a request or a reply */
};

struct pst_wire_head {
    uint8_t type;
    uint8_t version;
    uint16_t count;      /* operations or parts */
    uint32_t request;    /* the client's number of the request, returned in everything that belongs to it:
                            its place in the low bits, how often the place was used above them */
    uint64_t token;      /* of the session */
    uint32_t timeout_ms; /* REQUEST: time left until the client gives up */
    uint32_t bulk_count; /* REPLY: bulk messages that belong to it; BULK: its index among them; HELLO,
                            WELCOME: shard */
};
_Static_assert(sizeof(struct pst_wire_head) == 24, "wire head");

/* The header of a REQUEST that belongs to a trace, which stands behind the head. */
struct pst_wire_traced_head {
    struct pst_wire_head head;
    struct pst_traceparent trace;
};
enum { PST_WIRE_TRACED_BYTES = sizeof(struct pst_wire_head) + sizeof(struct pst_traceparent) };
_Static_assert(offsetof(struct pst_wire_traced_head, trace) + sizeof(struct pst_traceparent) ==
                   (size_t)PST_WIRE_TRACED_BYTES,
               "the trace is right behind the head");

struct pst_wire_part {
    uint32_t op; /* its place in the request */
    uint32_t spare;
    uint64_t offset; /* inside the operation's bytes */
    uint64_t bytes;
};
_Static_assert(sizeof(struct pst_wire_part) == 24, "wire part");

/* Return: 0 or -EPROTO: short, a version that is not spoken, unknown type, count over its bound, parts or a
 * trace cut off, a trace that is none. */
int pst_wire_get_head(struct pst_bytes header, struct pst_wire_head *head);
/* Part @index of a BULK header that pst_wire_get_head() accepted. */
struct pst_wire_part pst_wire_get_part(struct pst_bytes header, uint32_t index);
/* The trace of a REQUEST that pst_wire_get_head() accepted, with its header's life; NULL: it has none. */
static inline const struct pst_traceparent *pst_wire_get_trace(struct pst_bytes header)
{
    const void *behind = (const uint8_t *)header.data + sizeof(struct pst_wire_head);

    _Static_assert(_Alignof(struct pst_traceparent) == 1, "it may lie anywhere");
    return pst_likely(header.len == sizeof(struct pst_wire_head)) ? NULL : behind;
}
/* Of two numbers of one place: whether @request was given out after @earlier. Counts wrap around. */
static inline bool pst_wire_later(uint32_t request, uint32_t earlier)
{
    pst_assert(request % PST_WIRE_PLACES == earlier % PST_WIRE_PLACES);
    return (int32_t)(request - earlier) > 0;
}

#endif
