/* SPDX-License-Identifier: Apache-2.0 */
/* span_priv.h: the span of a request over HTTP whose client says to which trace it belongs. A worker's
 * thread. */
#ifndef PST_WEB_SPAN_PRIV_H
#define PST_WEB_SPAN_PRIV_H

#include "span/span.h"
#include "web/web.h"

struct web_span {
    struct pst_traceparent trace; /* if any */
    uint64_t begin_ns;
};

/* @field: of the head; what is no traceparent counts for nothing. */
void web_span_begin(struct web_span *span, struct pst_bytes field);
void web_span_end(struct web_span *span, const struct pst_web_request *request,
                  const struct pst_web_answer *answer);

#endif
