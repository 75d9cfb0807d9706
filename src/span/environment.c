/* SPDX-License-Identifier: Apache-2.0 */
/* environment.c: where the spans of a process go that has no options of its own for it. */
#include "span/span.h"

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

void pst_spans_open_by_environment(const char *service)
{
    struct pst_span_settings settings = {.otlp = (char *)(uintptr_t)collector(),
                                         .service = set_variable("OTEL_SERVICE_NAME")};

    pst_assert(service);
    settings.service = settings.service ? settings.service : service;
    if (settings.otlp)
        (void)pst_spans_open_once(&settings); /* a library has nobody to tell */
}
