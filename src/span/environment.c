/* SPDX-License-Identifier: Apache-2.0 */
/* environment.c: what variables say of spans: where those of a process go that has no options of its own for
 * it, and what a collector wants to hear. */
#include "span/span.h"

#include "base/percent.h"
#include "http/post.h"

#include <stdio.h>

enum { HEADER_BYTES_MAX = 4096, HEADERS_MAX = 32 };

static const char *set_variable(const char *name)
{
    const char *value = getenv(name);

    return value && *value ? value : NULL;
}

/* NULL: nowhere. OpenTelemetry's own variable may name a collector that speaks another protocol. */
static const char *collector(void)
{
    const char *url = set_variable("PENSTOCK_OTLP"), *protocol = set_variable("OTEL_EXPORTER_OTLP_PROTOCOL");

    if (!url && (!protocol || strncmp(protocol, "http/", 5) == 0))
        url = set_variable("OTEL_EXPORTER_OTLP_ENDPOINT");
    return url;
}

/* What HTTP has in a header's name, and in its value. */
static bool is_name(struct pst_bytes text)
{
    static const char others[] =
        "!#$%&'*+-.^_`|~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    const char *at = text.data;

    for (size_t i = 0; i < text.len; i++)
        if (at[i] == '\0' || !strchr(others, at[i]))
            return false;
    return text.len > 0;
}

static bool is_value(const char *text, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        if ((uint8_t)text[i] < ' ' || text[i] == 0x7f)
            return false;
    return bytes > 0;
}

static struct pst_bytes trimmed(const char *from, const char *to)
{
    pst_assert(from <= to);
    while (from < to && (*from == ' ' || *from == '\t'))
        from++;
    while (from < to && (to[-1] == ' ' || to[-1] == '\t'))
        to--;
    return (struct pst_bytes){from, (size_t)(to - from)};
}

/* "NAME=VALUE", whose value is percent-encoded, as the header that it means. Return: 0, -EINVAL. */
static int print_header(const char *from, const char *to, char line[HEADER_BYTES_MAX])
{
    const char *equals = memchr(from, '=', (size_t)(to - from));
    struct pst_bytes name = trimmed(from, equals ? equals : from);
    size_t at = name.len + 2;
    int n;

    if (!is_name(name) || at >= HEADER_BYTES_MAX)
        return -EINVAL;
    pst_assert(equals); /* there is no name without it */
    memcpy(line, name.data, name.len);
    memcpy(line + name.len, ": ", 2);
    n = pst_percent_decode(trimmed(equals + 1, to), false, line + at, HEADER_BYTES_MAX - at - 1);
    if (n < 0 || !is_value(line + at, (size_t)n))
        return -EINVAL;
    line[at + (size_t)n] = '\0';
    pst_assert(strlen(line) == at + (size_t)n);
    return 0;
}

int pst_spans_add_headers(struct pst_post *post, char fault[PST_FAULT_BYTES])
{
    static const char name[] = "OTEL_EXPORTER_OTLP_HEADERS";
    const char *from = set_variable(name);
    char line[HEADER_BYTES_MAX];
    int r = 0;

    for (int part = 1; from && r == 0; part++) {
        const char *to = strchrnul(from, ',');

        if (part > HEADERS_MAX || print_header(from, to, line) < 0) {
            snprintf(fault, PST_FAULT_BYTES, "%s: part %d of it is no NAME=VALUE that fits a header", name,
                     part);
            r = -EINVAL;
        } else {
            r = pst_post_header(post, line);
            if (r < 0)
                snprintf(fault, PST_FAULT_BYTES, "out of memory");
        }
        from = *to ? to + 1 : NULL;
    }
    return r;
}

void pst_spans_open_by_environment(const char *service)
{
    struct pst_span_settings settings = {.otlp = (char *)(uintptr_t)collector(),
                                         .service = set_variable("OTEL_SERVICE_NAME")};

    pst_assert(service);
    settings.service = settings.service ? settings.service : service;
    if (settings.otlp)
        (void)pst_spans_open_once(&settings); /* a library has nobody to tell */
}
