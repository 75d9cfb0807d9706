/* SPDX-License-Identifier: Apache-2.0 */
/* trace.h: what the log will say of a request, should it take long. */
#ifndef PST_NODE_TRACE_H
#define PST_NODE_TRACE_H

#include "base/traceparent.h"

struct pst_request;

/* A request's steps, in order: see request.h. */
#define PST_REQUEST_STEPS(X) X(fetches) X(values) X(answers) X(reply) X(drain)

enum {
#define X(name) PST_STEP_##name,
    PST_REQUEST_STEPS(X)
#undef X
        PST_STEP_COUNT
};

enum { PST_TRACE_ROLE = 63 };

/* Times are those of the worker's rounds. */
struct pst_trace {
    uint64_t begin_ns, since_ns;
    uint64_t step_ns[PST_STEP_COUNT];
    struct pst_traceparent trace; /* that it belongs to, if any; the span is its own, if that is kept */
    uint8_t parent_id[PST_SPAN_ID_BYTES];
    bool kept, fetched;
    uint64_t kept_ns,
        fetched_ns; /* of what is kept, to the instant: when it began, and what it read was there */
    uint64_t codes; /* a bit for each code among the operations, PST_TRACE_ROLE for all of a role's */
    uint64_t body_bytes;
    uint32_t key_bytes;
    uint8_t key[60]; /* of the first operation, its beginning */
};

/* @trace: that it belongs to; NULL: none. */
void pst_trace_begin(struct pst_request *q, const struct pst_traceparent *trace, size_t body_bytes);
/* The request leaves this step. */
void pst_trace_step(struct pst_request *q, int step);
/* Logs it. */
void pst_trace_end(struct pst_request *q);
/* It is kept: pushes its spans. */
void pst_trace_push(struct pst_request *q);

#endif
