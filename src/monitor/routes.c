/* SPDX-License-Identifier: Apache-2.0 */
/* routes.c: from a request to what answers it; whether the node lives and serves. */
#include "monitor/monitor_priv.h"

#include "monitor/page.h"
#include "web/reply.h"

#include <stdio.h>

void monitor_detail(struct pst_web_answer *answer, int status, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    pst_web_reply_detail(answer, status, format, arguments);
    va_end(arguments);
}

int monitor_lines(struct pst_monitor *monitor, char **out)
{
    char *text = malloc(MONITOR_FIGURES_BYTES);
    size_t bytes = 0;
    int r = 0;

    if (!text)
        return -ENOMEM;
    if (monitor->ops->figures)
        bytes = monitor->ops->figures(monitor->ctx, text, MONITOR_FIGURES_BYTES - 1);
    else
        r = penstock_pool_stat(monitor->store, text, MONITOR_FIGURES_BYTES);
    if (monitor->ops->figures || r == -EOPNOTSUPP) { /* it is in no pool, and has no grants */
        text[bytes] = '\0';
        r = 0;
    }
    if (r < 0)
        free(text);
    else
        *out = text;
    return r;
}

static void status(struct pst_web_answer *answer, int code, const char *word, const char *detail)
{
    struct pst_json *json = pst_json_new_object();

    pst_json_add_text(json, "status", word);
    if (detail && pst_json_add_text(json, "detail", detail) == -EILSEQ)
        pst_json_add_null(json, "detail");
    pst_web_reply_json(answer, code, json);
}

/* On the web's loop. */
static void health(struct pst_monitor *monitor, const struct pst_web_request *request,
                   struct pst_web_answer *answer)
{
    (void)monitor;
    (void)request;
    status(answer, 200, "healthy", NULL);
}

/* On the web's loop. */
static void status_page(struct pst_monitor *monitor, const struct pst_web_request *request,
                        struct pst_web_answer *answer)
{
    (void)monitor;
    (void)request;
    answer->text = strdup(monitor_page);
    answer->content_type = "text/html; charset=utf-8";
    if (!answer->text)
        answer->status = 503;
}

static void ready(struct pst_monitor *monitor, const struct pst_web_request *request,
                  struct pst_web_answer *answer)
{
    char fault[PST_FAULT_BYTES] = "";

    (void)request;
    if (penstock_ping(monitor->store, NULL) < 0)
        status(answer, 503, "not ready", penstock_error());
    else if (monitor->ops->ready(monitor->ctx, fault) < 0)
        status(answer, 503, "not ready", fault);
    else
        status(answer, 200, "ready", *fault ? fault : NULL);
}

static const struct {
    const char *path;
    void (*answer)(struct pst_monitor *monitor, const struct pst_web_request *request,
                   struct pst_web_answer *answer);
    bool without_store; /* while the node is starting, too */
} routes[] = {
    {"/", status_page, true},
    {"/health", health, true},
    {"/ready", ready, false},
    {"/metrics", monitor_metrics, false},
    {"/api/v1/pool/stats", monitor_stats, false},
    {"/api/v1/pool/keys", monitor_keys, false},
    {"/api/v1/pool/nodes", monitor_nodes, false},
    {"/api/v1/pool/map", monitor_map, false},
};

void monitor_answer(void *ctx, const struct pst_web_request *request, struct pst_web_answer *answer)
{
    struct pst_monitor *monitor = monitor_cast(ctx);
    size_t i = 0;

    while (i < pst_count_of(routes) && !pst_bytes_equal(request->path, pst_bytes_of(routes[i].path)))
        i++;
    if (i == pst_count_of(routes))
        monitor_detail(answer, 404, "Not Found");
    else if (strcmp(request->method, "GET") != 0 && strcmp(request->method, "HEAD") != 0)
        monitor_detail(answer, 405, "Method Not Allowed");
    else if (!routes[i].without_store && !monitor->store)
        status(answer, 503, "not ready", "the node is starting");
    else
        routes[i].answer(monitor, request, answer);
}
