/* SPDX-License-Identifier: Apache-2.0 */
/* node.c: the nodes of a pool: which there are, that one is to be needed no more, that one is missed no more.
 */
#include "cli/cli.h"

#include "base/clock.h"
#include "base/hex.h"
#include "base/ms.h"

#include <inttypes.h>
#include <time.h>

enum { NODES_MAX = 8192, DRAIN_LOOK_MS = 200 };

static void print_json(const struct penstock_pool_node *node)
{
    char hex[33];

    pst_hex_print(node->id, sizeof(node->id), hex);
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

    pst_hex_print(node->id, sizeof(node->id), hex);
    printf("%s  %-24s %-8s  partitions %4" PRIu32 " + %4" PRIu32 "  keys left %8" PRIu64 "  used %5.1f %%\n",
           hex, node->address, penstock_pool_node_state(node), node->primaries, node->copies, node->keys_left,
           node->capacity_bytes ? 100.0 * (double)node->used_bytes / (double)node->capacity_bytes : 0.0);
}

/* By its id, or the address that the list shows. */
static bool is_named(const struct penstock_pool_node *node, const char *name)
{
    char hex[33];

    pst_hex_print(node->id, sizeof(node->id), hex);
    return strcmp(hex, name) == 0 || (*node->address && strcmp(node->address, name) == 0);
}

/* Return: 0, -ENOENT there is no such node, -errno. */
static int find(struct pst_cli *cli, struct penstock_pool_node *nodes, const char *name,
                const struct penstock_pool_node **out)
{
    size_t count = NODES_MAX;
    int r = penstock_pool_nodes(cli->store, nodes, &count);

    *out = NULL;
    for (size_t i = 0; r == 0 && i < pst_min(count, NODES_MAX) && !*out; i++)
        *out = is_named(&nodes[i], name) ? &nodes[i] : NULL;
    return r < 0 || *out ? r : -ENOENT;
}

static int fail(const char *name, int r)
{
    pst_assert(r < 0);
    if (r != -ENOENT)
        return pst_cli_fail(r);
    fprintf(stderr, "penstock: no node '%.100s' in the pool: 'penstock node list' names them\n", name);
    return PST_EXIT_NOT_FOUND;
}

/* A drain that is stuck goes on when another node joins, and a master that is away comes back: time alone
 * ends the wait, unless the node has gone or serves again. */
static int await_drained(struct pst_cli *cli, struct penstock_pool_node *nodes, const char *name,
                         uint64_t wait_ms)
{
    const struct timespec pause = {.tv_nsec = DRAIN_LOOK_MS * 1000000};
    uint64_t end_ns = wait_ms > 0 ? pst_deadline_ns(pst_now_ns(), wait_ms) : UINT64_MAX;
    const struct penstock_pool_node *node;
    int r;

    while ((r = find(cli, nodes, name, &node)) != -ENOENT) {
        if (r == 0 && node->flags & PENSTOCK_NODE_DRAINED)
            return PST_EXIT_OK;
        if (r == 0 && !(node->flags & PENSTOCK_NODE_DRAINS)) {
            fprintf(stderr, "penstock: node %.100s drains no more: somebody took that back\n", name);
            return PST_EXIT_OTHER;
        }
        if (pst_now_ns() >= end_ns) {
            fprintf(stderr, "penstock: node %.100s is not drained after %" PRIu64 " ms\n", name, wait_ms);
            return PST_EXIT_OTHER;
        }
        nanosleep(&pause, NULL);
    }
    return fail(name, r);
}

static int drain(struct pst_cli *cli, struct penstock_pool_node *nodes, bool drains)
{
    const char *name = cli->args[1];
    const struct penstock_pool_node *node;
    uint64_t wait_ms = 0;
    int code = cli->wait ? pst_cli_wait_ms(cli, &wait_ms) : PST_EXIT_OK, r;

    if (code != PST_EXIT_OK)
        return code;
    r = find(cli, nodes, name, &node);
    if (r == 0)
        r = penstock_pool_drain(cli->store, node->id, drains);
    if (r == 0)
        r = find(cli, nodes, name, &node);
    if (r < 0)
        return fail(name, r);
    /* That a drain cannot end is said at once, and not for the operator to find out. */
    if (node->flags & PENSTOCK_NODE_STUCK)
        fprintf(stderr,
                "penstock: node %.128s drains, but the other nodes are on too few hosts for the copies that "
                "are wanted: it ends when another node has joined\n",
                node->address);
    return drains && cli->wait ? await_drained(cli, nodes, name, wait_ms) : PST_EXIT_OK;
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
    if (!lists)
        return drain(cli, nodes, drains);
    r = penstock_pool_nodes(cli->store, nodes, &count);
    if (r != 0)
        return pst_cli_fail(r);
    count = pst_min(count, NODES_MAX);
    for (size_t i = 0; i < count; i++)
        cli->json ? print_json(&nodes[i]) : print_line(&nodes[i]);
    return PST_EXIT_OK;
}
