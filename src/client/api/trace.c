/* SPDX-License-Identifier: Apache-2.0 */
/*
 * trace.c: to which trace operations belong. A thread says it once for what it begins from then on; whoever
 * begins operations notes it in them, since another thread may send them.
 */
#include "client/client_priv.h"

static _Thread_local struct pst_traceparent now; /* zeros: none */

int penstock_trace(const char *traceparent)
{
    struct pst_traceparent given = {.flags = 0};

    if (traceparent && *traceparent && pst_traceparent_parse(pst_bytes_of(traceparent), &given) < 0)
        return pst_fail(-EINVAL, "'%.80s' is no traceparent", traceparent);
    now = given;
    return 0;
}

bool pst_traced_now(void)
{
    return pst_unlikely(pst_traceparent_is(&now));
}

static void have_all(struct penstock_op *ops, size_t count, const struct pst_traceparent *trace)
{
    pst_assert(ops || count == 0);
    for (size_t i = 0; i < count; i++)
        pst_op_set_trace(&ops[i], trace);
}

void pst_traced_begin(struct pst_traced *t, struct penstock_op *ops, size_t count)
{
    bool traced = pst_traced_now();

    if (traced)
        *t = (struct pst_traced){.trace = now, .left = count};
    have_all(ops, count, traced ? &t->trace : NULL);
}

void pst_traced_submit(struct penstock_op *ops, size_t count)
{
    struct pst_traced *t = pst_traced_now() && count ? malloc(sizeof(*t)) : NULL;

    if (t)
        pst_traced_begin(t, ops, count);
    else
        have_all(ops, count, NULL);
}

void pst_traced_reaped(struct penstock_op *op)
{
    const struct pst_traceparent *trace = pst_op_trace(op);
    struct pst_traced *t;

    if (pst_likely(!trace))
        return;
    t = pst_container_of(trace, struct pst_traced, trace);
    pst_op_set_trace(op, NULL);
    pst_assert(t->left > 0);
    if (--t->left == 0)
        free(t);
}
