/* SPDX-License-Identifier: Apache-2.0 */
/* monitor.c: who may ask, and the order in which the port and the client of the node open and end. */
#include "monitor/monitor_priv.h"

#include "net/handshake.h"

#include <stdio.h>

enum {
    CONNECTIONS_MAX = 64,
    ANSWERS_MAX = 2,
    STALL_MS = 10000,
    NODE_MS = 2000,
    TOKEN_BYTES_MAX = 1024,
};

static const struct pst_web_ops web_ops = {.answer = monitor_answer};

static int fail(int error, char fault[PST_FAULT_BYTES], const char *what, const char *why)
{
    snprintf(fault, PST_FAULT_BYTES, "%s: %.200s", what, why);
    return error;
}

static int check(const struct pst_monitor_settings *settings, struct pst_boot_address *address,
                 char fault[PST_FAULT_BYTES])
{
    const char *why = "";
    int r = pst_boot_address_parse(settings->http, address, &why);

    if (r == 0 && address->path[0])
        r = -EINVAL, why = "server address must be host:port";
    if (r < 0)
        return fail(r, fault, "http", why);
    if (!settings->http_token_file && !settings->tls_certificate && !pst_boot_address_loopback(address))
        return fail(-EINVAL, fault, "http", "off loopback it needs http_token_file or tls_certificate");
    return 0;
}

static int listen_at(struct pst_monitor *monitor, const struct pst_monitor_settings *settings,
                     struct pst_boot_address *address, struct pst_bytes token, char fault[PST_FAULT_BYTES])
{
    const struct pst_web_settings web = {.listen = settings->http,
                                         .token = token,
                                         .token_on_loopback = true,
                                         .open_paths = {"/health", "/"},
                                         .certificate = settings->tls_certificate,
                                         .private_key = settings->tls_key,
                                         .connections_max = CONNECTIONS_MAX,
                                         .stall_ms = STALL_MS,
                                         .threads = ANSWERS_MAX};
    const char *why = "";
    int r = pst_web_open(&web, &web_ops, monitor, &monitor->web, &why);

    if (r < 0)
        return fail(r, fault, "http", why);
    address->port = pst_web_port(monitor->web);
    pst_boot_address_print(address, monitor->address, sizeof(monitor->address));
    return 0;
}

int pst_monitor_open(const struct pst_monitor_settings *settings, const struct pst_monitor_ops *ops,
                     void *ctx, struct pst_monitor **out, char fault[PST_FAULT_BYTES])
{
    struct pst_monitor *monitor = calloc(1, sizeof(*monitor));
    struct pst_boot_address address;
    char token[TOKEN_BYTES_MAX];
    int bytes = 0, r;

    pst_assert(settings->http && ops->role && ops->ready);
    if (!monitor)
        return fail(-ENOMEM, fault, "http", "out of memory");
    monitor->magic = MONITOR_MAGIC;
    monitor->ops = ops;
    monitor->ctx = ctx;
    monitor->tells_umbp = settings->metrics_umbp;
    pst_assert(!monitor->tells_umbp || (ops->enter && ops->leave));
    r = check(settings, &address, fault);
    /* TLS alone keeps nobody out. */
    monitor->tells_keys =
        settings->http_token_file || (r == 0 && !settings->guarded && pst_boot_address_loopback(&address));
    if (r == 0 && settings->http_token_file) {
        bytes = pst_secret_read(settings->http_token_file, token, sizeof(token), fault);
        r = bytes < 0 ? bytes : 0;
    }
    if (r == 0)
        r = listen_at(monitor, settings, &address, (struct pst_bytes){token, (size_t)bytes}, fault);
    explicit_bzero(token, sizeof(token));
    if (r < 0)
        pst_monitor_close(monitor);
    else
        *out = monitor;
    return r;
}

const char *pst_monitor_address(const struct pst_monitor *monitor)
{
    pst_assert(monitor->magic == MONITOR_MAGIC && monitor->web);
    return monitor->address;
}

int pst_monitor_serve(struct pst_monitor *monitor, const char *url, struct pst_bytes secret,
                      char fault[PST_FAULT_BYTES])
{
    const struct penstock_options options = {.size = sizeof(options),
                                             .timeout_ms = NODE_MS,
                                             .secret = secret.len ? secret.data : NULL,
                                             .secret_bytes = secret.len};
    struct penstock *store = NULL;
    int r = penstock_open(url, &options, &store);

    pst_assert(!monitor->store);
    if (r < 0)
        return fail(r, fault, "http", penstock_error());
    monitor->store = store;
    return 0;
}

struct pst_monitor *pst_monitor_close(struct pst_monitor *monitor)
{
    if (!monitor)
        return NULL;
    pst_assert(monitor->magic == MONITOR_MAGIC);
    pst_web_close(monitor->web);
    penstock_close(monitor->store);
    monitor->magic = 0;
    free(monitor);
    return NULL;
}
