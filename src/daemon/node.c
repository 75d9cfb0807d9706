/* SPDX-License-Identifier: Apache-2.0 */
/* node.c: a node with its gateways, its part in a pool, and what it follows; or a pool's master, which is
 * one.
 */
#include "daemon/daemon.h"

#include <penstock/penstock.h>

#include <stdio.h>

enum { URL_BYTES = 1024 };

struct daemon_node {
    struct pst_served *node;
    struct pst_door *door; /* NULL: not asked for, as the rest */
    struct pst_s3 *s3;
    struct pst_door *umbp;
    struct pst_master *master;
    bool follows; /* another master */
    struct pst_monitor *monitor;
    struct penstock *mirror; /* this node, for what it follows */
    struct penstock_follow *follow;
    uint8_t secret[PST_BOOT_SECRET_BYTES_MAX]; /* of a master that follows another */
};

static int serve_door(struct daemon_node *served, const struct settings *settings, char *fault)
{
    char line[320];
    struct pst_node_secret own;
    int r;

    pst_assert(served->node);
    r = pst_node_own_secret(pst_serve_node(served->node), settings->tsgrpc.tsgrpc_grant, &own, fault);
    if (r == 0)
        r = pst_tsgrpc_serve(served->door, pst_serve_unix_url(served->node),
                             (struct pst_bytes){own.data, own.bytes}, fault);
    explicit_bzero(&own, sizeof(own));
    if (r < 0)
        return r;
    snprintf(line, sizeof(line), "tsgrpc: listening on %s", pst_door_address(served->door));
    daemon_log(NULL, line);
    return 0;
}

/* A member of a pool serves the pool's values, wherever they are. Return: false the masters do not fit. */
static bool print_pool_url(const struct settings *settings, char *url, size_t cap)
{
    const struct pst_strings *masters = &settings->serve.member.master;
    const char *fabric = settings->serve.node.fabric;
    size_t used = (size_t)snprintf(url, cap, "pool://");

    pst_assert(masters->count > 0);
    for (uint32_t i = 0; i < masters->count && used < cap; i++)
        used += (size_t)snprintf(url + used, cap - used, "%s%s", i ? "," : "", masters->items[i]);
    if (fabric && used < cap)
        used += (size_t)snprintf(url + used, cap - used, "?fabric=%s", fabric);
    return used < cap;
}

/* What S3 proves: to its node, or to a pool, whose nodes know nothing of this process. */
static int s3_secret(const struct daemon_node *served, const struct settings *settings, bool in_pool,
                     struct pst_node_secret *out, char *fault)
{
    const char *file = settings->serve.node.secret_file;
    int r = 0;

    if (!in_pool)
        return pst_node_own_secret(pst_serve_node(served->node), settings->s3.s3_grant, out, fault);
    if (settings->s3.s3_grant) {
        snprintf(fault, PST_FAULT_BYTES,
                 "s3_grant: a member of a pool serves the whole pool, with all rights");
        return -EINVAL;
    }
    if (file)
        r = pst_secret_read(file, out->data, sizeof(out->data), fault);
    out->bytes = r > 0 ? (size_t)r : 0;
    pst_assert(out->bytes <= sizeof(out->data));
    return r < 0 ? r : 0;
}

static int serve_s3(struct daemon_node *served, const struct settings *settings, char *fault)
{
    const struct pst_node_settings *node = &settings->serve.node;
    bool in_pool = settings->serve.member.master.count > 0;
    struct penstock_options opening = {.size = sizeof(opening)};
    char line[320], url[URL_BYTES];
    struct pst_node_secret secret;
    int r;

    pst_assert(served->node);
    if (in_pool && !print_pool_url(settings, url, sizeof(url))) {
        snprintf(fault, PST_FAULT_BYTES, "s3: the addresses of the masters have more than %d bytes",
                 URL_BYTES);
        return -EINVAL;
    }
    if (in_pool && pst_node_tls(pst_serve_node(served->node))) {
        opening.tls = 1;
        opening.tls_ca = node->tls_ca;
        opening.tls_certificate = node->tls_certificate;
        opening.tls_key = node->tls_key;
        opening.tls_name = node->tls_name;
    }
    r = s3_secret(served, settings, in_pool, &secret, fault);
    if (r == 0) {
        opening.secret = secret.bytes ? secret.data : NULL;
        opening.secret_bytes = secret.bytes;
        r = pst_s3_serve(served->s3, in_pool ? url : pst_serve_unix_url(served->node), &opening, fault);
    }
    explicit_bzero(&secret, sizeof(secret));
    if (r < 0)
        return r;
    snprintf(line, sizeof(line), "s3: listening on %s", pst_s3_address(served->s3));
    daemon_log(NULL, line);
    return 0;
}

static int follow_another(struct daemon_node *served, const struct settings *settings, char *fault)
{
    struct penstock_options opening = {.size = sizeof(opening)};
    const struct follow_settings *from = &settings->follow;
    const struct penstock_follow_options following = {
        .size = sizeof(following),
        .url = from->follow,
        .secret_file = from->follow_secret_file ? from->follow_secret_file : settings->serve.node.secret_file,
        .prefix = from->follow_prefix,
        .prefix_bytes = from->follow_prefix ? strlen(from->follow_prefix) : 0,
        .log = daemon_log};
    struct pst_node *node = pst_serve_node(served->node);
    struct pst_node_secret own;
    int r = 0;

    pst_assert(from->follow);
    pst_assert(!served->mirror);
    for (int i = 0; r == 0 && pst_node_url(node, i); i++)
        r = strcmp(pst_node_url(node, i), from->follow) == 0 ? -EINVAL : 0;
    if (r < 0) {
        snprintf(fault, PST_FAULT_BYTES, "follow: %s: a node cannot follow itself", from->follow);
        return r;
    }
    r = pst_node_own_secret(node, NULL, &own, fault);
    if (r < 0)
        return r;
    opening.secret = own.bytes ? own.data : NULL;
    opening.secret_bytes = own.bytes;
    r = penstock_open(pst_serve_unix_url(served->node), &opening, &served->mirror);
    explicit_bzero(&own, sizeof(own));
    if (r == 0)
        r = penstock_follow_open(served->mirror, &following, &served->follow);
    if (r < 0)
        snprintf(fault, PST_FAULT_BYTES, "follow: %s", penstock_error());
    return r;
}

static bool enter_guests(void *ctx, struct pst_guest_desk *out)
{
    const struct daemon_node *served = ctx;

    pst_assert(served->master);
    return pst_master_enter_guests(served->master, out);
}

static void leave_guests(void *ctx)
{
    const struct daemon_node *served = ctx;

    pst_assert(served->master);
    pst_master_leave_guests(served->master);
}

static int serve_umbp(struct daemon_node *served, const struct settings *settings, char *fault)
{
    static const struct pst_umbp_ops ops = {.enter = enter_guests, .leave = leave_guests};
    char line[320];
    int r;

    pst_assert(served->master);
    r = pst_umbp_serve(served->umbp, &settings->umbp, &ops, served, fault);
    if (r < 0)
        return r;
    snprintf(line, sizeof(line), "umbp: listening on %s", pst_door_address(served->umbp));
    daemon_log(NULL, line);
    return 0;
}

/* ---- what watches it ---- */

static int node_ready(void *ctx, char fault[PST_FAULT_BYTES])
{
    const struct daemon_node *served = ctx;

    pst_assert(served->node);
    return pst_serve_wait(served->node, 0, fault);
}

static int master_ready(void *ctx, char fault[PST_FAULT_BYTES])
{
    const struct daemon_node *served = ctx;

    pst_assert(served->master);
    return pst_master_ready(served->master, fault);
}

static size_t master_figures(void *ctx, char *to, size_t room)
{
    const struct daemon_node *served = ctx;

    pst_assert(served->master);
    return pst_master_published(served->master, to, room);
}

static int master_map(void *ctx, struct pst_map **out)
{
    const struct daemon_node *served = ctx;

    pst_assert(served->master);
    return pst_master_map(served->master, out);
}

static int open_monitor(struct daemon_node *served, const struct settings *settings, char *fault)
{
    static const struct pst_monitor_ops node = {.role = "node", .ready = node_ready},
                                        master = {.role = "master",
                                                  .ready = master_ready,
                                                  .figures = master_figures,
                                                  .map = master_map,
                                                  .enter = enter_guests,
                                                  .leave = leave_guests};

    return pst_monitor_open(&settings->monitor, daemon_role_is(settings, "master") ? &master : &node, served,
                            &served->monitor, fault);
}

static int serve_monitor(struct daemon_node *served, char *fault)
{
    struct pst_node_secret own;
    char line[400];
    int r = pst_node_own_secret(pst_serve_node(served->node), NULL, &own, fault);

    if (r == 0)
        r = pst_monitor_serve(served->monitor, pst_serve_unix_url(served->node),
                              (struct pst_bytes){own.data, own.bytes}, fault);
    explicit_bzero(&own, sizeof(own));
    if (r < 0)
        return r;
    snprintf(line, sizeof(line), "http: listening on %s", pst_monitor_address(served->monitor));
    daemon_log(NULL, line);
    return 0;
}

/* A pool's master is a node, too, and in no pool itself. */
static int open_master(struct daemon_node *served, const struct settings *settings, char *fault)
{
    const struct pst_serve_settings *serve = &settings->serve;
    const char *address = serve->member.advertise    ? serve->member.advertise
                          : serve->node.listen.count ? serve->node.listen.items[0]
                                                     : serve->node.unix;
    struct pst_keeper *keeper = NULL;
    int r = 0;

    pst_assert(!served->master);
    if (settings->master.directory_shard && !settings->serve.member.master.count) {
        snprintf(fault, PST_FAULT_BYTES, "directory_shard: the pool's master has to be named: set master");
        return -EINVAL;
    }
    if (settings->serve.member.master.count && !settings->master.directory_shard) {
        snprintf(fault, PST_FAULT_BYTES, "master: a pool's master joins none");
        return -EINVAL;
    }
    if (settings->etcd.etcd)
        r = pst_etcd_open(&settings->etcd, address, &keeper, fault);
    return r == 0 ? pst_master_open(&settings->master, keeper, daemon_log, NULL, &served->master, fault) : r;
}

/* One that has a share of the directory follows the pool's master, which tells others where this one is. */
static int follow_leader(struct daemon_node *served, const struct settings *settings, char *fault)
{
    const struct pst_serve_settings *serve = &settings->serve;
    const char *first = pst_node_url(pst_serve_node(served->node), 0);
    const char *address = serve->member.advertise             ? serve->member.advertise
                          : strncmp(first, "node://", 7) == 0 ? first + 7
                                                              : "";
    struct pst_master_leader leader = {
        .leaders = &serve->member.master,
        .address = address,
        .channel = {.fabric_trusted = serve->node.fabric && strcmp(serve->node.fabric, "trusted") == 0,
                    .tls = pst_node_tls(pst_serve_node(served->node))}};
    struct pst_boot_address own;
    const char *why = "it listens on no TCP port";
    int r = 0;

    pst_assert(served->master);
    if (pst_boot_address_parse(address, &own, &why) < 0 || !*address ||
        (!serve->member.advertise && pst_boot_address_wildcard(&own))) {
        snprintf(fault, PST_FAULT_BYTES, "directory_shard: '%.100s' is no address for others: set advertise",
                 address);
        return -EINVAL;
    }
    if (serve->node.secret_file)
        r = pst_secret_read(serve->node.secret_file, served->secret, sizeof(served->secret), fault);
    pst_assert(r <= (int)sizeof(served->secret));
    leader.channel.secret = (struct pst_bytes){served->secret, r > 0 ? (size_t)r : 0};
    (void)pst_boot_transport_parse(serve->node.transport,
                                   &leader.channel.transport); /* the node has checked it */
    return r < 0 ? r : pst_master_follow(served->master, &leader, fault);
}

static int open_all(struct settings *settings, struct daemon_node *served, char *fault)
{
    struct pst_node_role role = {.carry_out = pst_master_carry_out};
    int r = 0;

    pst_assert(!served->node);
    if (settings->tsgrpc.tsgrpc)
        r = pst_tsgrpc_open(&settings->tsgrpc, &served->door, fault);
    if (r == 0 && settings->s3.s3)
        r = pst_s3_open(&settings->s3, &served->s3, fault);
    if (r == 0 && settings->umbp.umbp)
        r = pst_umbp_open(&settings->umbp, &served->umbp, fault);
    if (r == 0 && settings->monitor.http)
        r = open_monitor(served, settings, fault);
    /* Gateways read values in place, and a follower and a monitor talk to their node, over a unix socket. */
    if (r == 0 && (served->door || served->s3 || settings->follow.follow || served->monitor))
        r = pst_serve_name_socket(&settings->serve,
                                  served->door              ? "tsgrpc"
                                  : served->s3              ? "s3"
                                  : settings->follow.follow ? "follower"
                                                            : "http",
                                  fault);
    if (r < 0)
        return r;
    daemon_log_settings(settings);
    if (daemon_role_is(settings, "master"))
        r = open_master(served, settings, fault);
    role.ctx = served->master;
    if (r == 0)
        r = pst_serve_open(&settings->serve, served->master ? &role : NULL, daemon_log, NULL, &served->node,
                           fault);
    served->follows = served->master && settings->master.directory_shard > 0;
    if (r == 0 && served->follows)
        r = follow_leader(served, settings, fault);
    if (r == 0 && served->door)
        r = serve_door(served, settings, fault);
    if (r == 0 && served->s3)
        r = serve_s3(served, settings, fault);
    if (r == 0 && served->umbp)
        r = serve_umbp(served, settings, fault);
    if (r == 0 && settings->follow.follow)
        r = follow_another(served, settings, fault);
    if (r == 0 && served->monitor)
        r = serve_monitor(served, fault);
    return r;
}

int daemon_node_open(struct settings *settings, struct daemon_node **out, char fault[PST_FAULT_BYTES])
{
    *out = calloc(1, sizeof(**out));
    if (*out)
        return open_all(settings, *out, fault);
    snprintf(fault, PST_FAULT_BYTES, "out of memory");
    return -ENOMEM;
}

void daemon_node_reload(const struct daemon_node *node)
{
    char fault[PST_FAULT_BYTES], line[PST_FAULT_BYTES + 40];

    if (pst_node_reload(pst_serve_node(node->node), fault) == 0)
        return; /* the node says what is in force */
    snprintf(line, sizeof(line), "%s; the grants of before stay", fault);
    daemon_log(NULL, line);
}

int daemon_node_ready_fd(const struct daemon_node *node)
{
    return pst_serve_ready_fd(node->node);
}

uint64_t daemon_node_keys(const struct daemon_node *node)
{
    return pst_node_keys(pst_serve_node(node->node));
}

void daemon_node_close(struct daemon_node *node)
{
    if (!node)
        return;
    pst_monitor_close(node->monitor);
    penstock_follow_close(node->follow);
    penstock_close(node->mirror);
    pst_door_close(node->door);
    pst_s3_close(node->s3);
    pst_door_close(node->umbp);
    if (node->master && node->follows)
        pst_master_stop(node->master); /* its node's certificates are its own */
    pst_serve_close(node->node);
    pst_master_close(node->master);
    explicit_bzero(node->secret, sizeof(node->secret));
    free(node);
}
