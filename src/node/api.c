/* api.c: a node inside any process: the public calls over node.h. */
#include "base/error.h"
#include "node/node.h"

#include <penstock/penstock.h>

struct penstock_node {
    struct pst_node *node;
};

static int apply_settings(struct pst_node_settings *settings, const char *const *pairs)
{
    char fault[PST_FAULT_BYTES];
    int r = pst_options_preset(&pst_node_options, settings, fault);

    for (; r == 0 && pairs && *pairs; pairs++)
        r = pst_options_set_pair(&pst_node_options, settings, *pairs, fault);
    return r < 0 ? pst_fail(r == -ENOMEM ? r : -EINVAL, "%s", fault) : 0;
}

int penstock_node_open(const struct penstock_node_options *options, struct penstock_node **out)
{
    struct pst_node_settings settings = {0};
    struct penstock_node *node;
    char fault[PST_FAULT_BYTES];
    int r;

    if (!options || options->size < sizeof(*options) || !out)
        return pst_fail(-EINVAL,
                        "penstock_node_open: options without their size, or nowhere to put the node");
    node = calloc(1, sizeof(*node));
    if (!node)
        return pst_fail(-ENOMEM, "out of memory");
    r = apply_settings(&settings, options->settings);
    if (r == 0) {
        r = pst_node_open(&settings, NULL, options->log, options->log_ctx, &node->node, fault);
        if (r < 0)
            pst_fail(r, "%s", fault);
    }
    pst_options_free(&pst_node_options, &settings);
    if (r < 0) {
        free(node);
        return r;
    }
    *out = node;
    return 0;
}

const char *penstock_node_url(struct penstock_node *node, int index)
{
    return node ? pst_node_url(node->node, index) : NULL;
}

uint64_t penstock_node_keys(struct penstock_node *node)
{
    return node ? pst_node_keys(node->node) : 0;
}

struct penstock_node *penstock_node_close(struct penstock_node *node)
{
    if (node)
        pst_node_close(node->node);
    free(node);
    return NULL;
}
