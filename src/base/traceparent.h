/* SPDX-License-Identifier: Apache-2.0 */
/*
 * traceparent.h: to which trace an operation belongs, as W3C's Trace Context has it: the trace, the span that
 * asks, and flags. The struct is what travels in a request; the text is what people and other programs write.
 */
#ifndef PST_TRACEPARENT_H
#define PST_TRACEPARENT_H

#include "base/base.h"

enum {
    PST_TRACE_SAMPLED = 1, /* who began the trace wants its spans kept */
    PST_TRACE_RANDOM = 2,  /* its id is random */
    PST_TRACE_FLAGS = PST_TRACE_SAMPLED | PST_TRACE_RANDOM,
    PST_TRACE_ID_BYTES = 16,
    PST_SPAN_ID_BYTES = 8,
    PST_TRACEPARENT_TEXT_BYTES = 56, /* with its NUL */
    PST_TRACE_ID_TEXT_BYTES = 2 * PST_TRACE_ID_BYTES + 1,
};

/* All zeros: none. */
struct pst_traceparent {
    uint8_t trace_id[PST_TRACE_ID_BYTES];
    uint8_t span_id[PST_SPAN_ID_BYTES];
    uint8_t flags;
};
_Static_assert(sizeof(struct pst_traceparent) == 25, "traceparent on the wire");

/* Reads "00-TRACE-SPAN-FLAGS", or what a later version puts behind that. Flags that nobody here knows are
 * left out. Return: 0 or -EINVAL. */
int pst_traceparent_parse(struct pst_bytes text, struct pst_traceparent *out);
void pst_traceparent_print(const struct pst_traceparent *from, char to[PST_TRACEPARENT_TEXT_BYTES]);
/* Whether what a peer sent is one: ids that are not zero, flags that are known. */
bool pst_traceparent_fits(const struct pst_traceparent *given);

static inline bool pst_traceparent_is(const struct pst_traceparent *given)
{
    static const uint8_t none[PST_TRACE_ID_BYTES];

    return memcmp(given->trace_id, none, sizeof(none)) != 0;
}

#endif
