/*
 * ucx_context.c: the process's UCX context and its configuration. The environment is read, never written:
 * what the user set stays in force, except that a transport confined to loopback stays confined.
 */
#include "net/ucx_priv.h"

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

/* Sets an option of UCX unless the environment has it, under any of its (up to two) names. */
static void option_default(ucp_config_t *config, const char *name, const char *value, const char *variable,
                           const char *other_variable)
{
    pst_assert(config && name && value && variable);
    if (getenv(variable) || (other_variable && getenv(other_variable)))
        return;
    /* An option that this UCX does not know is no reason to stop: it keeps its default. */
    (void)ucp_config_modify(config, name, value);
}

/* Whether the transports that the user allows may include one of @names. UCX warns of options that it has no
 * use for. */
static bool transport_allowed(const char *const *names, size_t count)
{
    const char *tls = getenv("UCX_TLS");
    bool found = !tls || strchr(tls, '^') || strstr(tls, "all");

    pst_assert(count > 0);
    for (size_t i = 0; i < count && !found; i++)
        found = strstr(tls, names[i]) != NULL;
    return found;
}

static int configure(const struct pst_net_options *options, ucp_config_t **out)
{
    static const char *const shared[] = {"posix", "sysv", "shm", "sm", "mm"};
    static const char *const tcp[] = {"tcp"};
    ucp_config_t *config = NULL;
    ucs_status_t status = ucp_config_read(NULL, NULL, &config);

    if (status != UCS_OK)
        return ucx_errno(status);
    /* Without this UCX drops shared memory silently where endpoints handle errors. */
    if (transport_allowed(shared, pst_count_of(shared)))
        option_default(config, "MM_ERROR_HANDLING", "y", "UCX_MM_ERROR_HANDLING", "UCX_POSIX_ERROR_HANDLING");
    option_default(config, "KEEPALIVE_INTERVAL", "1s", "UCX_KEEPALIVE_INTERVAL", NULL);
    /* A connect that blocks would stop the whole port for one dead host. */
    if (transport_allowed(tcp, pst_count_of(tcp)))
        option_default(config, "CONN_NB", "y", "UCX_TCP_CONN_NB", NULL);
    if (options->loopback_only) {
        option_default(config, "TLS", "tcp,posix", "UCX_TLS", NULL);
        status = ucp_config_modify(config, "NET_DEVICES", "lo");
    } else {
        /* Left to itself UCX takes System V segments, which outlive a killed process, before posix ones. */
        option_default(config, "TLS", "^sysv", "UCX_TLS", NULL);
        if (options->devices)
            status = ucp_config_modify(config, "NET_DEVICES", options->devices);
    }
    if (status != UCS_OK) {
        ucp_config_release(config);
        return ucx_errno(status);
    }
    pst_assert(config);
    *out = config;
    return 0;
}

int pst_ucx_open(const struct pst_net_options *options, struct pst_net **out)
{
    ucp_params_t params = {
        .field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_MT_WORKERS_SHARED | UCP_PARAM_FIELD_NAME,
        .features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP,
        .mt_workers_shared = 1,
        .name = "penstock",
    };
    struct ucx_net *net = NULL;
    ucp_config_t *config = NULL;
    ucs_status_t status;
    int r = configure(options, &config);

    if (r < 0)
        return r;
    net = calloc(1, sizeof(*net));
    if (!net) {
        ucp_config_release(config);
        return -ENOMEM;
    }
    net->base = (struct pst_net){.magic = PST_NET_MAGIC, .ops = &pst_net_ucx};
    status = ucp_init(&params, config, &net->context);
    ucp_config_release(config);
    if (status != UCS_OK) {
        free(net);
        return status == UCS_ERR_NO_MEMORY ? -ENOMEM : -ENODEV;
    }
    *out = &net->base;
    return 0;
}

static void net_close(struct pst_net *base)
{
    struct ucx_net *net = ucx_net_cast(base);

    pst_assert(net->base.port_count == 0 && net->context);
    if (!net->stuck)
        ucp_cleanup(net->context);
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

    pst_assert(addr && bytes > 0);
    status = ucp_mem_map(ucx_net_cast(base)->context, &params, &handle);

    if (status != UCS_OK)
        return ucx_errno(status);
    *out_handle = handle;
    return 0;
}

static void net_unregister(struct pst_net *base, void *handle)
{
    ucs_status_t status = ucp_mem_unmap(ucx_net_cast(base)->context, handle);

    pst_assert(status == UCS_OK);
}

const struct pst_net_ops pst_net_ucx = {
    .name = "ucx",
    .net_close = net_close,
    .net_register = net_register,
    .net_unregister = net_unregister,
    .port_open = ucx_port_open,
    .port_close = ucx_port_close,
    .port_address = ucx_port_address,
    .port_progress = ucx_port_progress,
    .port_taken = ucx_port_taken,
    .port_fd = ucx_port_fd,
    .port_arm = ucx_port_arm,
    .peer_open = ucx_peer_open,
    .peer_close = ucx_peer_close,
    .peer_lane = ucx_peer_lane,
    .peer_gathers = ucx_peer_gathers,
    .peer_send = ucx_peer_send,
    .peer_send_bulk = ucx_peer_send_bulk,
    .msg_receive = ucx_msg_receive,
    .msg_free = ucx_msg_free,
};
