/* SPDX-License-Identifier: Apache-2.0 */
/*
 * trace.c: to which trace operations belong. A thread says it once for what it begins from then on; whoever
 * begins operations notes it in them, since another thread may send them. If the environment names a
 * collector, what was begun together is a span there.
 */
#include "client/api/trace_priv.h"

#include "base/clock.h"

static _Thread_local struct pst_traceparent now; /* zeros: none */

int penstock_trace(const char *traceparent)
{
    struct pst_traceparent given = {.flags = 0};

    if (traceparent && *traceparent && pst_traceparent_parse(pst_bytes_of(traceparent), &given) < 0)
        return pst_fail(-EINVAL, "'%.80s' is no traceparent", traceparent);
    now = given;
    return 0;
}

/* ---- spans ---- */

/* The first that may be kept opens what keeps them. */
static bool spans_wanted(void)
{
    static _Atomic int looked = -1; /* the process that has looked for a collector */

    if (pst_likely(!(now.flags & PST_TRACE_SAMPLED)))
        return false;
    if (pst_unlikely(atomic_load_explicit(&looked, memory_order_relaxed) != getpid())) {
        pst_spans_open_by_environment("penstock-client");
        atomic_store(&looked, getpid());
    }
    return pst_spans_wanted(&now);
}

static void span_begin(struct pst_traced *t)
{
    t->span = (struct pst_span){.kind = PST_SPAN_CLIENT, .begin_ns = 0};
    if (!spans_wanted())
        return;
    pst_span_enter(&t->trace, t->span.parent_id);
    t->span.trace = t->trace;
    t->span.begin_ns = pst_now_ns();
    pst_assert(t->span.begin_ns > 0);
}

/* What became of one of them. */
static void span_take(struct pst_span *span, const struct penstock_op *op)
{
    const char *word = pst_code_word(op->code);

    span->operation = !span->operation || span->operation == word ? word : "mixed";
    span->op_count++;
    span->result = span->result ? span->result : (op->result < 0 ? op->result : 0);
    if (op->result == 0 && pst_code_has(op->code, PST_CODE_VALUE))
        span->out_bytes += op->bytes;
    else if (op->result == 0 && op->code == PENSTOCK_GET)
        span->in_bytes += pst_min(op->bytes, op->value_bytes);
}

static void span_end(struct pst_span *span)
{
    span->end_ns = pst_now_ns();
    span->operation = span->operation ? span->operation : "other"; /* a code that is none was asked for */
    pst_spans_push(span);
}

/* ---- operations ---- */

const struct pst_traceparent *pst_traced_begin(struct pst_traced *t, size_t count)
{
    if (pst_likely(!pst_traceparent_is(&now)))
        return NULL;
    t->trace = now;
    t->left = count;
    span_begin(t);
    pst_assert(pst_traceparent_fits(&t->trace));
    return &t->trace;
}

void pst_traced_end(struct pst_traced *t, const struct penstock_op *ops, size_t count)
{
    pst_assert(t->left == count);
    if (!t->span.begin_ns || count == 0)
        return;
    for (size_t i = 0; i < count; i++)
        span_take(&t->span, &ops[i]);
    span_end(&t->span);
}

const struct pst_traceparent *pst_traced_submit(size_t count)
{
    struct pst_traced *t = pst_traceparent_is(&now) && count ? malloc(sizeof(*t)) : NULL;

    return t ? pst_traced_begin(t, count) : NULL;
}

void pst_traced_reaped(struct penstock_op *op)
{
    const struct pst_traceparent *trace = pst_op_trace(op);
    struct pst_traced *t;

    pst_assert(trace);
    t = pst_container_of(trace, struct pst_traced, trace);
    pst_op_set_trace(op, NULL);
    if (t->span.begin_ns)
        span_take(&t->span, op);
    pst_assert(t->left > 0);
    if (--t->left > 0)
        return;
    if (t->span.begin_ns)
        span_end(&t->span);
    free(t);
}
