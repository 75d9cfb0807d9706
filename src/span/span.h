/* SPDX-License-Identifier: Apache-2.0 */
/*
 * span.h: what parts of traced requests took, for those who look at traces. Whoever did a part pushes it as a
 * *span*; a process has one ring of them, and one thread that sends them to a collector of OpenTelemetry, as
 * OTLP over HTTP with JSON. Off unless it was opened.
 *
 * A push never waits and never fails: while the ring is full, spans are dropped, and counted. A collector
 * that is down, slow or busy costs that alone: what it did not take is sent again, later and later, while it
 * lies in the ring.
 *
 * Bounds: 4,096 spans, 512 of them in a message, which has 5 s; seven tries of one.
 */
#ifndef PST_SPAN_H
#define PST_SPAN_H

#include "base/options.h"
#include "base/traceparent.h"

#include <stdatomic.h>

/* X(TYPE, name, default, min, max, unit, text) */
#define PST_SPAN_OPTIONS(X)                                                                                  \
    X(STRING, otlp, "", 0, 0, "URL",                                                                         \
      "collector of OpenTelemetry, http://HOST:4318, that gets the spans of traced requests")                \
    X(STRING, trace_sample, "", 0, 0, "RATIO",                                                               \
      "share of the requests without a trace for which a node begins one, such as 0.001")

struct pst_span_settings {
    PST_SPAN_OPTIONS(PST_OPTION_MEMBER)
    const char *service; /* its name in traces */
    void (*log)(void *ctx, const char *line);
    void *log_ctx;
};

enum pst_span_kind { PST_SPAN_INTERNAL = 1, PST_SPAN_SERVER = 2, PST_SPAN_CLIENT = 3 }; /* as OTLP has them */

struct pst_span {
    struct pst_traceparent trace;         /* with its own id */
    uint8_t parent_id[PST_SPAN_ID_BYTES]; /* zeros: it begins the trace */
    enum pst_span_kind kind;
    const char *operation;     /* static, as the next */
    const char *tier;          /* where values lay; NULL: not said */
    uint32_t op_count;         /* operations in it */
    int result;                /* the first failure, -errno; 0: none */
    int http_status;           /* of an answer over HTTP, whose operation is a method; 0: not so */
    uint64_t begin_ns, end_ns; /* of the monotonic clock */
    uint64_t in_bytes, out_bytes;
};

/* Whether the settings may stand in a log. Return: 0, or -EINVAL with @fault. */
int pst_spans_check(const struct pst_span_settings *settings, char fault[PST_FAULT_BYTES]);
/* @settings: borrowed during the call; without `otlp` it stays off. Return: 0, or -errno with @fault. */
int pst_spans_open(const struct pst_span_settings *settings, char fault[PST_FAULT_BYTES]);
/* Sends what there is, for a second, or two if the collector hangs. Nobody pushes any more. */
void pst_spans_close(void);
/* Of a library, whose process may have opened it itself, or not know of it: opens it unless that was tried
 * before, to end with the process. Return: 0, also then, or -errno. */
int pst_spans_open_once(const struct pst_span_settings *settings);
/* The same, if variables of the environment say where spans go. @service: unless they say that, too. */
void pst_spans_open_by_environment(const char *service);
/* Nobody of the library may push for long: sends what there is, for a second at the most, if the library
 * opened it. A collector that does not take spans now is not waited for. */
void pst_spans_flush(void);

/* Whether spans of the trace are kept: it is sampled, and there is somebody to send them to. */
bool pst_spans_wanted(const struct pst_traceparent *trace);
void pst_spans_push(const struct pst_span *span);
/* Whether there is a trace_sample. */
extern _Atomic uint32_t pst_spans_share;
static inline bool pst_spans_sampling(void)
{
    return pst_unlikely(atomic_load_explicit(&pst_spans_share, memory_order_relaxed) > 0);
}
/* Gives a trace to what has none, if its turn has come by that. Return: whether it has; @out is a trace
 * without a span. */
bool pst_spans_sample(struct pst_traceparent *out);
/* Its id in the trace is a new one; the one before is its parent's. */
void pst_span_enter(struct pst_traceparent *trace, uint8_t parent_id[PST_SPAN_ID_BYTES]);

struct pst_span_counts {
    uint64_t sent, dropped;
};

struct pst_span_counts pst_spans_count(void);

/* ---- environment.c ---- */

struct pst_post;

/* Gives @post the headers that OTEL_EXPORTER_OTLP_HEADERS names, such as a collector's token. Return: 0, or
 * -errno with @fault, which holds no value: -EINVAL it is no list of NAME=VALUE, -ENOMEM. */
int pst_spans_add_headers(struct pst_post *post, char fault[PST_FAULT_BYTES]);

/* ---- otlp.c ---- */

struct pst_spans_of {
    const char *service;
    const struct pst_span *spans;
    uint32_t count;
    uint64_t wall_ns, now_ns; /* both clocks at one time */
};

/* The body of a POST to /v1/traces, malloc()ed; NULL: no memory. */
char *pst_otlp_print(const struct pst_spans_of *of, size_t *bytes);

#endif
