/* SPDX-License-Identifier: Apache-2.0 */
/* otlp.c: spans as OpenTelemetry's JSON: an ExportTraceServiceRequest, with ids in hexadecimal digits and
 * numbers of 64 bits as text. */
#include "span/span.h"

#include "base/hex.h"
#include "base/utf8.h"

#include <inttypes.h>
#include <stdio.h>

/* Text in JSON; what needs more than a '\\' is not in a name. */
static void print_text(FILE *to, const char *text)
{
    int last = pst_is_utf8(pst_bytes_of(text)) ? 0xff : 0x7f; /* what was cut within a character is not */

    for (fputc('"', to); *text; text++) {
        if (*text == '"' || *text == '\\')
            fputc('\\', to);
        fputc((unsigned char)*text < 0x20 || (unsigned char)*text > last ? '?' : *text, to);
    }
    fputc('"', to);
}

static void print_string(FILE *to, const char *key, const char *value, const char *before)
{
    fprintf(to, "%s{\"key\":\"%s\",\"value\":{\"stringValue\":", before, key);
    print_text(to, value);
    fputs("}}", to);
}

static void print_number(FILE *to, const char *key, uint64_t value, const char *before)
{
    fprintf(to, "%s{\"key\":\"%s\",\"value\":{\"intValue\":\"%" PRIu64 "\"}}", before, key, value);
}

/* An error's name as programs have it. */
static const char *error_word(int result)
{
    pst_assert(result < 0);
    switch (-result) {
#define X(name)                                                                                              \
    case name:                                                                                               \
        return #name;
        X(EACCES)
        X(EBADMSG)
        X(ECONNREFUSED)
        X(ECONNRESET)
        X(EDQUOT)
        X(EFBIG)
        X(EHOSTUNREACH)
        X(EINVAL)
        X(EIO)
        X(EMSGSIZE)
        X(ENOBUFS)
        X(ENOMEM)
        X(ENOSPC)
        X(EOPNOTSUPP)
        X(EPROTO)
        X(ERANGE)
        X(ESTALE)
        X(ETIMEDOUT)
#undef X
    default:
        return "_OTHER";
    }
}

/* What OpenTelemetry's conventions call it. */
static void print_operation(FILE *to, const struct pst_span *span)
{
    if (span->http_status) {
        print_string(to, "http.request.method", span->operation, "");
        print_number(to, "http.response.status_code", (uint64_t)span->http_status, ",");
        return;
    }
    print_string(to, "db.system.name", "penstock", "");
    print_string(to, "db.operation.name", span->operation, ",");
    if (span->op_count > 1)
        print_number(to, "db.operation.batch.size", span->op_count, ",");
}

static bool has_failed(const struct pst_span *span)
{
    return span->result < 0 || span->http_status >= 500; /* what a client did wrong is its failure */
}

static void print_attributes(FILE *to, const struct pst_span *span)
{
    char status[16];

    print_operation(to, span);
    if (span->in_bytes)
        print_number(to, "penstock.bytes_in", span->in_bytes, ",");
    if (span->out_bytes)
        print_number(to, "penstock.bytes_out", span->out_bytes, ",");
    if (span->tier)
        print_string(to, "penstock.tier", span->tier, ",");
    snprintf(status, sizeof(status), "%d", span->http_status);
    if (has_failed(span))
        print_string(to, "error.type", span->http_status ? status : error_word(span->result), ",");
}

static void print_span(FILE *to, const struct pst_spans_of *of, const struct pst_span *span)
{
    static const uint8_t none[PST_SPAN_ID_BYTES];
    char trace[PST_TRACE_ID_TEXT_BYTES], id[2 * PST_SPAN_ID_BYTES + 1],
        parent[2 * PST_SPAN_ID_BYTES + 1] = "";

    pst_assert(pst_traceparent_fits(&span->trace));
    pst_assert(span->operation);
    pst_assert(span->begin_ns <= span->end_ns);
    pst_hex_print(span->trace.trace_id, PST_TRACE_ID_BYTES, trace);
    pst_hex_print(span->trace.span_id, PST_SPAN_ID_BYTES, id);
    if (memcmp(span->parent_id, none, sizeof(none)) != 0)
        pst_hex_print(span->parent_id, PST_SPAN_ID_BYTES, parent);
    fprintf(to, "{\"traceId\":\"%s\",\"spanId\":\"%s\",\"parentSpanId\":\"%s\",\"flags\":%u,\"name\":", trace,
            id, parent, span->trace.flags);
    print_text(to, span->operation);
    fprintf(to,
            ",\"kind\":%d,\"startTimeUnixNano\":\"%" PRIu64 "\",\"endTimeUnixNano\":\"%" PRIu64
            "\",\"attributes\":[",
            (int)span->kind, of->wall_ns - (of->now_ns - span->begin_ns),
            of->wall_ns - (of->now_ns - span->end_ns));
    print_attributes(to, span);
    fprintf(to, "],\"status\":{%s}}", has_failed(span) ? "\"code\":2" : "");
}

char *pst_otlp_print(const struct pst_spans_of *of, size_t *bytes)
{
    char *text = NULL, host[256] = "";
    FILE *to = open_memstream(&text, bytes);
    bool failed;

    pst_assert(of->count > 0);
    if (!to)
        return NULL;
    gethostname(host, sizeof(host) - 1);
    fputs("{\"resourceSpans\":[{\"resource\":{\"attributes\":[", to);
    print_string(to, "service.name", of->service, "");
    print_string(to, "host.name", host, ",");
    print_number(to, "process.pid", (uint64_t)getpid(), ",");
    fputs("]},\"scopeSpans\":[{\"scope\":{\"name\":\"penstock\"},\"spans\":[", to);
    for (uint32_t i = 0; i < of->count; i++) {
        if (i)
            fputc(',', to);
        print_span(to, of, &of->spans[i]);
    }
    fputs("]}]}]}", to);
    failed = ferror(to);
    if (fclose(to) == 0 && !failed)
        return text;
    free(text);
    return NULL;
}
