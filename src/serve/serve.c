/* SPDX-License-Identifier: Apache-2.0 */
/* serve.c: a node, and the member that it may be, opened in order and closed the other way round. */
#include "serve/serve.h"

#include "base/hash.h"
#include "net/handshake.h"
#include "net/tls/tls.h"
#include "serve/role.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <unistd.h>

#define SERVED_MAGIC 0x73657276u

struct pst_served {
    uint32_t magic;
    struct pst_node *node;
    struct pst_pool_role *role; /* NULL: in no pool, as the next */
    struct pst_member *member;
    char unix_url[320]; /* "": there is no unix socket */
};

#define ROW(PART, TYPE, name, ...)                                                                           \
    {#name, .type = PST_OPTION_##TYPE, offsetof(struct pst_serve_settings, PART.name), __VA_ARGS__},
#define NODE_ROW(...)   ROW(node, __VA_ARGS__)
#define MEMBER_ROW(...) ROW(member, __VA_ARGS__)
#define COPIES_ROW(...) ROW(copying, __VA_ARGS__)
static const struct pst_option rows[] = {PST_NODE_OPTIONS(NODE_ROW) PST_MEMBER_OPTIONS(MEMBER_ROW)
                                             PST_COPIES_OPTIONS(COPIES_ROW)};
const struct pst_options pst_serve_options = {.rows = rows, .count = pst_count_of(rows)};

int pst_serve_name_socket(struct pst_serve_settings *settings, const char *who, char fault[PST_FAULT_BYTES])
{
    char path[PATH_MAX];
    uint64_t random;

    if (settings->node.unix)
        return 0;
    pst_boot_sweep(settings->node.folder, "penstock-"); /* of nodes that were killed */
    /* Everybody may write to the folder: whoever knew the name could have it before. */
    pst_random(&random, sizeof(random));
    snprintf(path, sizeof(path), "%s/penstock-%s-%d-%016" PRIx64 ".sock", settings->node.folder, who,
             (int)getpid(), random);
    return pst_options_set(&pst_serve_options, settings, "unix", path, fault);
}

static bool fabric_trusted(const struct pst_node_settings *node)
{
    return node->fabric && pst_node_proves_clients(node);
}

/* Where a node notes whose values it has; NULL: it keeps none. */
static const char *path_beside(const struct pst_node_settings *node, char path[PATH_MAX])
{
    if (node->ssd.count)
        snprintf(path, PATH_MAX, "%s/pool", node->ssd.items[0]);
    else if (node->keep)
        snprintf(path, PATH_MAX, "%s/penstock-%s.pool", node->folder, node->keep);
    return node->ssd.count || node->keep ? path : NULL;
}

/* The node's transports are its clients' in this process, too: there may be none over loopback. */
static void print_unix_url(struct pst_served *served, const struct pst_node_settings *node)
{
    const char *url = "";

    pst_assert(served->node);
    pst_assert(!served->unix_url[0]);
    for (int i = 0; url && strncmp(url, "node+", 5) != 0; i++)
        url = pst_node_url(served->node, i);
    pst_assert(url || !node->unix);
    if (url)
        snprintf(served->unix_url, sizeof(served->unix_url), "%s%s", url,
                 fabric_trusted(node) ? "?fabric=trusted" : "");
}

static int join_pool(struct pst_served *served, const struct pst_serve_settings *settings, pst_log log,
                     void *log_ctx, char *fault)
{
    const char *first = pst_node_url(served->node, 0);
    char beside[PATH_MAX];
    struct pst_member_node node = {
        .url = served->unix_url,
        .address = strncmp(first, "node://", 7) == 0 ? first + 7 : "",
        .unix_path = settings->node.unix,
        .secret_file = settings->node.secret_file,
        .fabric_trusted = fabric_trusted(&settings->node),
        .tls = pst_node_tls(served->node),
        .memory = pst_node_memory(served->node),
        .disk = pst_node_disk(served->node),
        .beside = path_beside(&settings->node, beside),
        .serving = served->role->serving,
        .counters = &served->role->counters,
        .sender = &served->role->sender,
    };

    pst_assert(!served->member);
    if (node.tls && !pst_tls_proves_nodes(node.tls)) {
        snprintf(fault, PST_FAULT_BYTES, "tls_ca: a node of a pool needs it, to know the other nodes by");
        return -EINVAL;
    }
    (void)pst_boot_transport_parse(settings->node.transport, &node.transport); /* the node has checked it */
    return pst_member_open(&settings->member, &node, log, log_ctx, &served->member, fault);
}

int pst_serve_open(struct pst_serve_settings *settings, const struct pst_node_role *role, pst_log log,
                   void *log_ctx, struct pst_served **out, char fault[PST_FAULT_BYTES])
{
    bool joins = !role && settings->member.master.count > 0; /* else it knows its masters itself */
    struct pst_served *served = calloc(1, sizeof(*served));
    struct pst_node_role member_role;
    int r = 0;

    snprintf(fault, PST_FAULT_BYTES, "out of memory");
    if (!served)
        return -ENOMEM;
    served->magic = SERVED_MAGIC;
    if (joins && settings->node.grants && !settings->node.secret_file) {
        snprintf(fault, PST_FAULT_BYTES,
                 "grants: a node of a pool has to have secret_file, too, which it proves to the others");
        r = -EINVAL;
    }
    if (r == 0 && joins) {
        r = pst_pool_role_open(&settings->copying, &served->role);
        if (r == 0)
            member_role = pst_pool_role_table(served->role);
        role = &member_role;
    }
    if (r == 0 && joins)
        r = pst_serve_name_socket(settings, "member", fault); /* it talks to its node over one */
    if (r == 0)
        r = pst_node_open(&settings->node, role, log, log_ctx, &served->node, fault);
    if (r == 0)
        print_unix_url(served, &settings->node);
    if (r == 0 && joins)
        r = join_pool(served, settings, log, log_ctx, fault);
    if (r == 0)
        r = pst_node_begin(served->node, fault);
    if (r < 0) {
        pst_serve_close(served);
        return r;
    }
    pst_assert(served->node);
    pst_assert(!joins == !served->member);
    *out = served;
    return 0;
}

struct pst_served *pst_serve_close(struct pst_served *served)
{
    if (!served)
        return NULL;
    pst_assert(served->magic == SERVED_MAGIC);
    pst_member_close(served->member);
    pst_node_close(served->node);
    pst_pool_role_close(served->role);
    free(served);
    return NULL;
}

int pst_serve_ready_fd(const struct pst_served *served)
{
    pst_assert(served->magic == SERVED_MAGIC);
    return served->member ? pst_member_ready_fd(served->member) : -1;
}

int pst_serve_wait(struct pst_served *served, uint64_t ms, char fault[PST_FAULT_BYTES])
{
    pst_assert(served->magic == SERVED_MAGIC);
    return served->member ? pst_member_wait(served->member, ms, fault) : 0;
}

struct pst_node *pst_serve_node(const struct pst_served *served)
{
    pst_assert(served->magic == SERVED_MAGIC);
    return served->node;
}

const char *pst_serve_unix_url(const struct pst_served *served)
{
    pst_assert(served->magic == SERVED_MAGIC);
    pst_assert(served->unix_url[0]);
    return served->unix_url;
}
