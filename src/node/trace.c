/* SPDX-License-Identifier: Apache-2.0 */
/* trace.c: one line in the log for each request that took long, and where its time went. */
#include "node/node_priv.h"
#include "node/request.h"

#include <inttypes.h>
#include <stdio.h>

enum { PST_TRACE_TEXT_BYTES = sizeof(", trace ") - 1 + PST_TRACE_ID_TEXT_BYTES };

void pst_trace_begin(struct pst_request *q, const struct pst_traceparent *trace, size_t body_bytes)
{
    const struct pst_wire_op *first = &q->worker->ops[0];
    struct pst_trace *t = &q->trace;

    pst_assert(q->step);
    pst_assert(q->reply_bytes == 0);
    t->begin_ns = t->since_ns = q->worker->now_ns;
    t->codes = 0;
    t->trace = trace ? *trace : (struct pst_traceparent){.flags = 0};
    if (!q->worker->node->slow_ns)
        return;
    memset(t->step_ns, 0, sizeof(t->step_ns));
    t->body_bytes = body_bytes;
    t->key_bytes = q->count ? (uint32_t)pst_min(first->key.len, sizeof(t->key)) : 0;
    if (t->key_bytes)
        memcpy(t->key, first->key.data, t->key_bytes);
}

void pst_trace_step(struct pst_request *q, int step)
{
    struct pst_trace *t = &q->trace;

    pst_assert(step >= 0 && step < PST_STEP_COUNT);
    pst_assert(q->worker->now_ns >= t->since_ns);
    t->step_ns[step] += q->worker->now_ns - t->since_ns;
    t->since_ns = q->worker->now_ns;
}

static void print_codes(uint64_t codes, char *to, size_t room)
{
    size_t at = 0;

    to[0] = '\0';
    for (uint8_t code = 0; code <= PST_TRACE_ROLE && at < room; code++) {
        const char *word = pst_code_word(code == PST_TRACE_ROLE ? PST_WIRE_ROLE_FIRST : code);

        if (codes >> code & 1 && word)
            at += (size_t)snprintf(to + at, room - at, "%s%s", at ? "+" : "", word);
    }
}

/* ", trace 4bf9..." */
static void print_trace(const struct pst_trace *t, char to[PST_TRACE_TEXT_BYTES])
{
    size_t at = sizeof(", trace ") - 1;

    to[0] = '\0';
    if (!pst_traceparent_is(&t->trace))
        return;
    memcpy(to, ", trace ", at);
    pst_hex_print(t->trace.trace_id, sizeof(t->trace.trace_id), to + at);
    pst_assert(strlen(to) == PST_TRACE_TEXT_BYTES - 1);
}

static void print_key(const struct pst_trace *t, char to[sizeof(t->key) + 1])
{
    pst_assert(t->key_bytes <= sizeof(t->key));
    for (uint32_t i = 0; i < t->key_bytes; i++)
        to[i] = (char)(t->key[i] >= 0x20 && t->key[i] < 0x7f ? t->key[i] : '?');
    to[t->key_bytes] = '\0';
}

void pst_trace_end(struct pst_request *q)
{
    const struct pst_session *session = q->shard_session->session;
    const struct pst_trace *t = &q->trace;
    uint64_t in_bytes = t->body_bytes, out_bytes = q->reply_bytes;
    char codes[96], key[sizeof(t->key) + 1], times[96], trace[PST_TRACE_TEXT_BYTES];
    size_t at = 0;
    static const char *const steps[] = {
#define X(name) #name,
        PST_REQUEST_STEPS(X)
#undef X
    };

    print_codes(t->codes, codes, sizeof(codes));
    print_key(t, key);
    print_trace(t, trace);
    for (uint32_t i = 0; i < q->write_count; i++)
        in_bytes += q->writes[i].put.value_bytes;
    for (uint32_t i = 0; i < q->read_count; i++)
        out_bytes += q->reads[i].bytes;
    for (int i = 0; i < PST_STEP_COUNT; i++)
        at += (size_t)snprintf(times + at, sizeof(times) - at, "%s%s %" PRIu64, i ? ", " : "", steps[i],
                               t->step_ns[i] / 1000000);
    pst_assert(at < sizeof(times)); /* years would fit */
    pst_node_log(q->worker->node,
                 "slow: request %04x%08x of %s, %u operations (%s), first key '%s', %" PRIu64
                 " bytes in, %" PRIu64 " out, %" PRIu64 " ms: %s%s",
                 (unsigned)(session->token & 0xffff), q->id, session->peer, q->count, codes, key, in_bytes,
                 out_bytes, (q->worker->now_ns - t->begin_ns) / 1000000, times, trace);
}
