/* SPDX-License-Identifier: Apache-2.0 */
/* span.c: spans of requests, which name the method alone: a path may have a key. */
#include "web/span_priv.h"

#include "base/clock.h"

void web_span_begin(struct web_span *span, struct pst_bytes field)
{
    *span = (struct web_span){.begin_ns = 0};
    if (pst_likely(field.len == 0) || pst_traceparent_parse(field, &span->trace) < 0)
        return;
    if (pst_spans_wanted(&span->trace))
        span->begin_ns = pst_now_ns();
}

/* A client may make methods up. */
static const char *method_of(const struct pst_web_request *request)
{
    static const char *const known[] = {"GET", "HEAD", "PUT", "POST", "DELETE"};

    for (size_t i = 0; i < pst_count_of(known); i++)
        if (strcmp(request->method, known[i]) == 0)
            return known[i];
    return "_OTHER";
}

void web_span_end(struct web_span *span, const struct pst_web_request *request,
                  const struct pst_web_answer *answer)
{
    struct pst_span done = {.kind = PST_SPAN_SERVER,
                            .operation = method_of(request),
                            .op_count = 1,
                            .http_status = answer->status,
                            .begin_ns = span->begin_ns,
                            .in_bytes = request->body.len};

    if (pst_likely(!span->begin_ns))
        return;
    pst_span_enter(&span->trace, done.parent_id);
    done.trace = span->trace;
    if (answer->text)
        done.out_bytes = answer->text_bytes ? answer->text_bytes : strlen(answer->text);
    done.end_ns = pst_now_ns();
    pst_assert(done.end_ns >= done.begin_ns);
    pst_spans_push(&done);
}
