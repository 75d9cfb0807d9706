/* SPDX-License-Identifier: Apache-2.0 */
/* trace.c: one line in the log for each request that took long, and where its time went. */
#include "base/clock.h"
#include "base/hex.h"
#include "node/node_priv.h"
#include "node/request.h"
#include "span/span.h"

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
    t->kept = t->fetched = false;
    t->body_bytes = body_bytes;
    memset(t->step_ns, 0, sizeof(t->step_ns));
    if (pst_unlikely(trace || (pst_spans_sampling() && pst_spans_sample(&t->trace))))
        t->kept = pst_spans_wanted(&t->trace);
    if (pst_unlikely(t->kept)) {
        pst_span_enter(&t->trace, t->parent_id);
        t->kept_ns = pst_now_ns();
    }
    if (!q->worker->node->slow_ns)
        return;
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
    if (step == PST_STEP_fetches && t->kept) {
        t->fetched = true;
        t->fetched_ns = pst_now_ns();
    }
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

static uint64_t bytes_in(const struct pst_request *q)
{
    uint64_t bytes = q->trace.body_bytes;

    for (uint32_t i = 0; i < q->write_count; i++)
        bytes += q->writes[i].put.value_bytes;
    return bytes;
}

static uint64_t bytes_out(const struct pst_request *q)
{
    uint64_t bytes = q->reply_bytes;

    pst_assert(q->read_count <= q->count);
    for (uint32_t i = 0; i < q->read_count; i++)
        bytes += q->reads[i].bytes;
    return bytes;
}

void pst_trace_end(struct pst_request *q)
{
    const struct pst_session *session = q->shard_session->session;
    const struct pst_trace *t = &q->trace;
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
    for (int i = 0; i < PST_STEP_COUNT; i++)
        at += (size_t)snprintf(times + at, sizeof(times) - at, "%s%s %" PRIu64, i ? ", " : "", steps[i],
                               t->step_ns[i] / 1000000);
    pst_assert(at < sizeof(times)); /* years would fit */
    pst_node_log(q->worker->node,
                 "slow: request %04x%08x of %s, %u operations (%s), first key '%s', %" PRIu64
                 " bytes in, %" PRIu64 " out, %" PRIu64 " ms: %s%s",
                 (unsigned)(session->token & 0xffff), q->id, session->peer, q->count, codes, key, bytes_in(q),
                 bytes_out(q), (q->worker->now_ns - t->begin_ns) / 1000000, times, trace);
}

/* Of the results in the reply; 0: all went well. */
static int first_failure(const struct pst_request *q)
{
    const uint8_t *at = q->reply, *end = at + q->reply_bytes;
    struct pst_wire_result result;

    for (uint32_t i = 0; i < q->count && pst_wire_get_result(&at, end, &result) == 0; i++)
        if (result.result < 0)
            return result.result;
    return q->shard_session->leaving ? -ECONNRESET : 0;
}

/* One word for all of it. */
static const char *word_of(uint64_t codes)
{
    uint8_t code = codes ? (uint8_t)__builtin_ctzll(codes) : 0;

    if (codes & (codes - 1))
        return "mixed";
    return codes ? pst_code_word(code == PST_TRACE_ROLE ? PST_WIRE_ROLE_FIRST : code) : "other";
}

void pst_trace_push(struct pst_request *q)
{
    const struct pst_trace *t = &q->trace;
    struct pst_span span = {.trace = t->trace,
                            .kind = PST_SPAN_SERVER,
                            .operation = word_of(t->codes),
                            .op_count = q->count,
                            .result = first_failure(q),
                            .begin_ns = t->kept_ns,
                            .end_ns = pst_now_ns(),
                            .in_bytes = bytes_in(q),
                            .out_bytes = bytes_out(q),
                            .tier = t->fetched ? "ssd" : "dram"};

    pst_assert(t->kept);
    pst_assert(span.operation);
    memcpy(span.parent_id, t->parent_id, sizeof(span.parent_id));
    pst_spans_push(&span);
    if (!t->fetched)
        return;
    span = (struct pst_span){.trace = t->trace,
                             .kind = PST_SPAN_INTERNAL,
                             .operation = "ssd read",
                             .tier = "ssd",
                             .begin_ns = t->kept_ns,
                             .end_ns = t->fetched_ns};
    pst_span_enter(&span.trace, span.parent_id);
    pst_spans_push(&span);
}
