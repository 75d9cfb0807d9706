/* SPDX-License-Identifier: Apache-2.0 */
/*
 * context.c: the process's UCX context: one for all nodes and stores that confine it alike.
 */
#include "net/ucx/ucx_priv.h"

#include <pthread.h>

int ucx_errno(ucs_status_t status)
{
    switch (status) {
    case UCS_OK:
        return 0;
    case UCS_ERR_CANCELED:
        return -ECANCELED;
    case UCS_ERR_CONNECTION_RESET:
    case UCS_ERR_ENDPOINT_TIMEOUT:
    case UCS_ERR_UNREACHABLE:
    case UCS_ERR_NOT_CONNECTED:
    case UCS_ERR_REJECTED:
        return -ECONNRESET;
    case UCS_ERR_MESSAGE_TRUNCATED:
        return -EMSGSIZE;
    case UCS_ERR_NO_MEMORY:
        return -ENOMEM;
    case UCS_ERR_NO_RESOURCE:
    case UCS_ERR_BUSY:
        return -EBUSY;
    case UCS_ERR_NO_DEVICE:
        return -ENODEV;
    default:
        return -EIO;
    }
}

/* ---- one context a process ---- */

static pthread_mutex_t contexts_lock = PTHREAD_MUTEX_INITIALIZER;
static struct pst_list contexts = {&contexts, &contexts};

/* A forked child must not touch its parent's contexts: it forgets them and makes its own. */
static void forget_contexts(void)
{
    pthread_mutex_init(&contexts_lock, NULL);
    pst_list_init(&contexts);
}

__attribute__((constructor)) static void watch_forks(void)
{
    pthread_atfork(NULL, NULL, forget_contexts);
}

static bool context_serves(const struct ucx_context *shared, const struct pst_net_options *options)
{
    const char *devices = options->devices ? options->devices : "";

    pst_assert(shared->refs > 0);
    pst_assert(shared->context);
    return shared->loopback_only == options->loopback_only && shared->serves == options->serves &&
           !strcmp(shared->devices, devices);
}

static int context_open(const struct pst_net_options *options, struct ucx_context **out)
{
    const char *devices = options->devices ? options->devices : "";
    ucp_params_t params = {
        .field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_MT_WORKERS_SHARED | UCP_PARAM_FIELD_NAME,
        .features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP,
        .mt_workers_shared = 1,
        .name = "penstock",
    };
    struct ucx_context *shared = NULL;
    ucp_config_t *config = NULL;
    ucs_status_t status;
    int r = ucx_settings_make(options, &config);

    if (r < 0)
        return r;
    shared = calloc(1, sizeof(*shared) + strlen(devices) + 1);
    if (!shared) {
        ucp_config_release(config);
        return -ENOMEM;
    }
    status = ucp_init(&params, config, &shared->context);
    ucp_config_release(config);
    if (status != UCS_OK) {
        free(shared);
        return status == UCS_ERR_NO_MEMORY ? -ENOMEM : -ENODEV;
    }
    memcpy(shared->devices, devices, strlen(devices)); /* the zero behind it is there */
    shared->loopback_only = options->loopback_only;
    shared->serves = options->serves;
    pst_list_init(&shared->link);
    pst_assert(shared->context);
    pst_assert(shared->refs == 0);
    *out = shared;
    return 0;
}

/* The process's context for @options, made when it is the first to ask. */
static int context_ref(const struct pst_net_options *options, struct ucx_context **out)
{
    struct ucx_context *found = NULL;
    int r = 0;

    pthread_mutex_lock(&contexts_lock);
    pst_list_each (it, &contexts) {
        struct ucx_context *shared = pst_list_entry(it, struct ucx_context, link);

        if (context_serves(shared, options))
            found = shared;
    }
    if (!found) {
        r = context_open(options, &found);
        if (r == 0)
            pst_list_push_back(&contexts, &found->link);
    }
    if (r == 0) {
        found->refs++;
        *out = found;
    }
    pst_assert(r < 0 || context_serves(found, options));
    pthread_mutex_unlock(&contexts_lock);
    return r;
}

static void context_unref(struct ucx_context *shared)
{
    pthread_mutex_lock(&contexts_lock);
    pst_assert(shared->refs > 0);
    pst_assert(!pst_list_empty(&shared->link));
    if (--shared->refs == 0) {
        pst_list_remove(&shared->link);
        if (!shared->stuck) /* else a worker still stands on it */
            ucp_cleanup(shared->context);
        free(shared);
    }
    pthread_mutex_unlock(&contexts_lock);
}

int pst_ucx_open(const struct pst_net_options *options, struct pst_net **out)
{
    struct ucx_net *net = calloc(1, sizeof(*net));
    int r;

    if (!net)
        return -ENOMEM;
    r = context_ref(options, &net->shared);
    if (r < 0) {
        free(net);
        return r;
    }
    net->base = (struct pst_net){.magic = PST_NET_MAGIC, .ops = &pst_net_ucx};
    pst_assert(net->shared && net->shared->context); /* its count is others' as well, under the lock */
    *out = &net->base;
    return 0;
}

static void net_close(struct pst_net *base)
{
    struct ucx_net *net = ucx_net_cast(base);

    pst_assert(net->base.port_count == 0);
    context_unref(net->shared);
    net->base.magic = 0;
    free(net);
}

static int net_register(struct pst_net *base, void *addr, size_t bytes, void **out_handle)
{
    ucp_mem_map_params_t params = {
        .field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH,
        .address = addr,
        .length = bytes,
    };
    ucp_mem_h handle;
    ucs_status_t status;

    pst_assert(addr);
    pst_assert(bytes > 0);
    status = ucp_mem_map(ucx_net_cast(base)->shared->context, &params, &handle);

    if (status != UCS_OK)
        return ucx_errno(status);
    *out_handle = handle;
    return 0;
}

static void net_unregister(struct pst_net *base, void *handle)
{
    ucs_status_t status = ucp_mem_unmap(ucx_net_cast(base)->shared->context, handle);

    pst_assert(status == UCS_OK);
}

const struct pst_net_ops pst_net_ucx = {
    .name = "ucx",
    .net_close = net_close,
    .net_register = net_register,
    .net_unregister = net_unregister,
    .port_open = ucx_port_open,
    .port_close = ucx_port_close,
    .port_abandon = ucx_port_abandon,
    .port_address = ucx_port_address,
    .port_progress = ucx_port_progress,
    .port_taken = ucx_port_taken,
    .port_fd = ucx_port_fd,
    .port_arm = ucx_port_arm,
    .peer_open = ucx_peer_open,
    .peer_close = ucx_peer_close,
    .peer_lane = ucx_peer_lane,
    .peer_direct = ucx_peer_direct,
    .peer_gathers = ucx_peer_gathers,
    .peer_send = ucx_peer_send,
    .peer_send_bulk = ucx_peer_send_bulk,
    .msg_receive = ucx_msg_receive,
    .msg_free = ucx_msg_free,
};
