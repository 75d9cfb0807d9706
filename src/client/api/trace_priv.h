/* SPDX-License-Identifier: Apache-2.0 */
/* trace_priv.h: to which trace operations belong that were begun together, and their span. */
#ifndef PST_CLIENT_TRACE_PRIV_H
#define PST_CLIENT_TRACE_PRIV_H

#include "client/client_priv.h"
#include "span/span.h"

/* To which trace operations that were submitted together belong; once they have ended nothing of it is left.
 */
struct pst_traced {
    struct pst_traceparent trace; /* with a span of their own, if that is kept */
    size_t left;                  /* that have not been reaped */
    struct pst_span span;         /* which is kept if it has begun */
};

/* What @count operations that this thread begins belong to; NULL: to none. @t: gets it, and stays until they
 * have ended. */
const struct pst_traceparent *pst_traced_begin(struct pst_traced *t, size_t count);
/* All of them have ended, and it had begun. */
void pst_traced_end(struct pst_traced *t, const struct penstock_op *ops, size_t count);
/* The same of operations of a queue, which ends with the last of them; without memory they belong to none. */
const struct pst_traceparent *pst_traced_submit(size_t count);
void pst_traced_reaped(struct penstock_op *op);

#endif
