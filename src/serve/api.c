/* SPDX-License-Identifier: Apache-2.0 */
/* api.c: a node inside any process: the public calls over serve.h. */
#include "base/error.h"
#include "serve/serve.h"
#include "span/span.h"

#include <penstock/penstock.h>

enum { CONNECT_MS = 5000 };

struct penstock_node {
    struct pst_served *served;
};

static int apply_settings(struct pst_serve_settings *settings, const char *const *pairs)
{
    char fault[PST_FAULT_BYTES];
    int r = pst_options_preset(&pst_serve_options, settings, fault);

    for (; r == 0 && pairs && *pairs; pairs++)
        r = pst_options_set_pair(&pst_serve_options, settings, *pairs, fault);
    return r < 0 ? pst_fail(r == -ENOMEM ? r : -EINVAL, "%s", fault) : 0;
}

/* What a program that was compiled before there was one may not say. */
static uint32_t connect_ms_of(const struct penstock_node_options *options)
{
    bool says = options->size >= sizeof(*options) && options->connect_ms;

    return says ? options->connect_ms : CONNECT_MS;
}

static int open_node(struct pst_serve_settings *settings, const struct penstock_node_options *options,
                     struct pst_served **out)
{
    char fault[PST_FAULT_BYTES];
    struct pst_served *served;
    int r = pst_serve_open(settings, NULL, options->log, options->log_ctx, &served, fault);

    if (r == 0) {
        r = pst_serve_wait(served, connect_ms_of(options), fault);
        if (r < 0)
            pst_serve_close(served);
    }
    if (r < 0)
        return pst_fail(r, "%s", fault);
    *out = served;
    return 0;
}

int penstock_node_open(const struct penstock_node_options *options, struct penstock_node **out)
{
    struct pst_serve_settings settings = {.node = {.unix = NULL}};
    struct penstock_node *node;
    int r;

    if (!options || options->size < offsetof(struct penstock_node_options, connect_ms) || !out)
        return pst_fail(-EINVAL,
                        "penstock_node_open: options without their size, or nowhere to put the node");
    node = calloc(1, sizeof(*node));
    if (!node)
        return pst_fail(-ENOMEM, "out of memory");
    r = apply_settings(&settings, options->settings);
    if (r == 0)
        pst_spans_open_by_environment("penstock-node");
    if (r == 0)
        r = open_node(&settings, options, &node->served);
    pst_options_free(&pst_serve_options, &settings);
    if (r < 0) {
        free(node);
        return r;
    }
    *out = node;
    return 0;
}

const char *penstock_node_url(struct penstock_node *node, int index)
{
    return node ? pst_node_url(pst_serve_node(node->served), index) : NULL;
}

uint64_t penstock_node_keys(struct penstock_node *node)
{
    return node ? pst_node_keys(pst_serve_node(node->served)) : 0;
}

struct penstock_node *penstock_node_close(struct penstock_node *node)
{
    if (node)
        pst_serve_close(node->served);
    free(node);
    pst_spans_flush();
    return NULL;
}
