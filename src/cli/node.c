/* SPDX-License-Identifier: Apache-2.0 */
/* node.c: the nodes of a pool: which there are, that one is to be needed no more, that one is missed no more.
 */
#include "cli/cli.h"

#include <inttypes.h>

enum { NODES_MAX = 8192 };

static void hex_of(const struct penstock_pool_node *node, char hex[33])
{
    for (size_t i = 0; i < sizeof(node->id); i++)
        snprintf(hex + 2 * i, 3, "%02x", node->id[i]);
}

static void print_json(const struct penstock_pool_node *node)
{
    char hex[33];

    hex_of(node, hex);
    printf("{\"member\":%" PRIu32 ",\"id\":\"%s\",\"address\":", node->member, hex);
    pst_json_string(stdout, node->address, strlen(node->address));
    printf(",\"state\":\"%s\",\"primaries\":%" PRIu32 ",\"copies\":%" PRIu32 ",\"keys_left\":%" PRIu64
           ",\"used_bytes\":%" PRIu64 ",\"capacity_bytes\":%" PRIu64 "}\n",
           penstock_pool_node_state(node), node->primaries, node->copies, node->keys_left, node->used_bytes,
           node->capacity_bytes);
}

static void print_line(const struct penstock_pool_node *node)
{
    char hex[33];

    hex_of(node, hex);
    printf("%s  %-24s %-8s  partitions %4" PRIu32 " + %4" PRIu32 "  keys left %8" PRIu64 "  used %5.1f %%\n",
           hex, node->address, penstock_pool_node_state(node), node->primaries, node->copies, node->keys_left,
           node->capacity_bytes ? 100.0 * (double)node->used_bytes / (double)node->capacity_bytes : 0.0);
}

/* By its id, or the address that the list shows. */
static bool is_named(const struct penstock_pool_node *node, const char *name)
{
    char hex[33];

    hex_of(node, hex);
    return strcmp(hex, name) == 0 || (*node->address && strcmp(node->address, name) == 0);
}

/* That a drain cannot end is said at once, and not for the operator to find out. */
static int tell_if_stuck(struct pst_cli *cli, struct penstock_pool_node *nodes, const uint8_t id[16])
{
    size_t count = NODES_MAX;
    int r = penstock_pool_nodes(cli->store, nodes, &count);

    for (size_t i = 0; r == 0 && i < pst_min(count, NODES_MAX); i++)
        if (memcmp(nodes[i].id, id, sizeof(nodes[i].id)) == 0 && nodes[i].flags & PENSTOCK_NODE_STUCK)
            fprintf(
                stderr,
                "penstock: node %.128s drains, but the other nodes are on too few hosts for the copies that "
                "are wanted: it ends when another node has joined\n",
                nodes[i].address);
    return r == 0 ? PST_EXIT_OK : pst_cli_fail(r);
}

static int drain(struct pst_cli *cli, struct penstock_pool_node *nodes, size_t count, bool drains)
{
    const struct penstock_pool_node *node = NULL;
    uint8_t id[sizeof(node->id)];
    int r;

    for (size_t i = 0; i < count && !node; i++)
        node = is_named(&nodes[i], cli->args[1]) ? &nodes[i] : NULL;
    if (!node) {
        fprintf(stderr, "penstock: no node '%.100s' in the pool: 'penstock node list' names them\n",
                cli->args[1]);
        return PST_EXIT_NOT_FOUND;
    }
    memcpy(id, node->id, sizeof(id));
    r = penstock_pool_drain(cli->store, id, drains);
    return r == 0 ? tell_if_stuck(cli, nodes, id) : pst_cli_fail(r);
}

int pst_cmd_node(struct pst_cli *cli)
{
    bool lists = strcmp(cli->args[0], "list") == 0, drains = strcmp(cli->args[0], "drain") == 0;
    bool forgives = strcmp(cli->args[0], "forgive") == 0;
    pst_cleanup_free struct penstock_pool_node *nodes = NULL;
    size_t count = NODES_MAX;
    int r;

    if (!lists && !drains && !forgives && strcmp(cli->args[0], "undrain") != 0)
        return pst_cli_usage("node: list, drain, undrain or forgive, not '%.100s'", cli->args[0]);
    if (cli->arg_count != (lists || forgives ? 1 : 2))
        return pst_cli_usage("node %s takes %s", cli->args[0],
                             lists || forgives ? "no more arguments" : "a node");
    if (forgives) {
        r = penstock_pool_forgive(cli->store);
        return r == 0 ? PST_EXIT_OK : pst_cli_fail(r);
    }
    nodes = calloc(NODES_MAX, sizeof(*nodes));
    if (!nodes)
        return pst_cli_fail(-ENOMEM);
    r = penstock_pool_nodes(cli->store, nodes, &count);
    if (r != 0)
        return pst_cli_fail(r);
    count = pst_min(count, NODES_MAX);
    if (!lists)
        return drain(cli, nodes, count, drains);
    for (size_t i = 0; i < count; i++)
        cli->json ? print_json(&nodes[i]) : print_line(&nodes[i]);
    return PST_EXIT_OK;
}
