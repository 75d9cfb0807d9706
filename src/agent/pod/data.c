/* SPDX-License-Identifier: Apache-2.0 */
/*
 * data.c: what is offered, by its own path below a module "data", as clients of kubetorch ask for it. They
 * show no token.
 */
#include "agent/pod/pod_priv.h"

#include <stdio.h>

static int data_daemon(void *ctx)
{
    return offers_rsync_port(ctx);
}

static void data_place(void *ctx, const char *path, char place[PST_RSYNC_FRONT_PLACE_BYTES])
{
    offers_place_of(ctx, path, place);
}

static const struct pst_rsync_front_ops ops = {.daemon = data_daemon, .place = data_place};

static int data_fail(int error, const char *why, char fault[PST_FAULT_BYTES])
{
    pst_assert(error < 0);
    snprintf(fault, PST_FAULT_BYTES, "agent_data_port: %s", why);
    return error;
}

int data_open(struct pst_pod *pod, char fault[PST_FAULT_BYTES])
{
    struct pst_boot_address address = pod->tcp_address;
    char line[64];
    int fd, r;

    if (pod->settings->agent_data_port == 0)
        return 0;
    if (pod->token_bytes > 0)
        return data_fail(-EINVAL, "its clients have no token to show", fault);
    address.port = (uint16_t)pod->settings->agent_data_port;
    pst_assert(!pod->front);
    pst_assert(!pod->rsyncd);
    pst_assert(!pod->serves_data);
    fd = pst_boot_listen_tcp(&address);
    if (fd < 0)
        return data_fail(fd, strerror(-fd), fault);
    pod->serves_data = true; /* its threads look at that */
    r = pst_rsync_front_open(fd, pod->rsync_host[0] ? pod->rsync_host : "127.0.0.1", &ops, pod, &pod->front);
    if (r < 0)
        return data_fail(r, strerror(-r), fault);
    snprintf(line, sizeof(line), "agent: module 'data' on port %u", address.port);
    pod->log(pod->log_ctx, line);
    return 0;
}

void data_close(struct pst_pod *pod)
{
    pst_assert(!pod->acceptor);
    pod->front = pst_rsync_front_close(pod->front);
    pst_assert(!pod->front);
}
