/*
 * ucx_context.c: the process's UCX context and its configuration: one for all nodes and stores that confine
 * it alike. The environment is read, never written: what the user set stays in force, except that a transport
 * confined to loopback stays confined.
 */
#include "net/ucx_priv.h"

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

static const char *const shared_memory[] = {"posix", "sysv", "shm", "sm", "mm"};
static const char *const tcp[] = {"tcp"};

/*
 * Longer packets than UCX's own 64 KiB and 8 KiB: 1.4 times the bandwidth over loopback, for values of 2 MiB.
 * Both ends must have them: UCX 1.13 knows its own sizes only, and writes behind its buffers when a longer
 * packet comes. So the environment does not change them.
 */
static ucs_status_t lengthen_packets(ucp_config_t *config)
{
    ucs_status_t status = UCS_OK;

    if (transport_allowed(shared_memory, pst_count_of(shared_memory)))
        status = ucp_config_modify(config, "MM_SEG_SIZE", "32k");
    if (status == UCS_OK && transport_allowed(tcp, pst_count_of(tcp)))
        status = ucp_config_modify(config, "RX_SEG_SIZE", "512k");
    return status;
}

static int configure(const struct pst_net_options *options, ucp_config_t **out)
{
    ucp_config_t *config = NULL;
    ucs_status_t status = ucp_config_read(NULL, NULL, &config);

    if (status != UCS_OK)
        return ucx_errno(status);
    /* Without this UCX drops shared memory silently where endpoints handle errors. */
    if (transport_allowed(shared_memory, pst_count_of(shared_memory)))
        option_default(config, "MM_ERROR_HANDLING", "y", "UCX_MM_ERROR_HANDLING", "UCX_POSIX_ERROR_HANDLING");
    /*
     * Who has ended the session's socket tells. UCX's own messages fill the queue of a peer on this host that
     * does not poll, since it has nothing to ask, in a minute, and from then on keep whoever sends them
     * awake.
     */
    option_default(config, "KEEPALIVE_INTERVAL", "inf", "UCX_KEEPALIVE_INTERVAL", NULL);
    /* A connect that blocks would stop the whole port for one dead host. */
    if (transport_allowed(tcp, pst_count_of(tcp)))
        option_default(config, "CONN_NB", "y", "UCX_TCP_CONN_NB", NULL);
    /*
     * Of two sockets between the same two ports UCX keeps the one from the lower address to the higher. A
     * client that was forked accepts none, for want of UCX's thread, so the node's is to be the higher: above
     * what the kernel gives to clients.
     */
    if (options->serves && options->loopback_only && transport_allowed(tcp, pst_count_of(tcp)))
        option_default(config, "PORT_RANGE", "61000-65535", "UCX_TCP_PORT_RANGE", NULL);
    if (options->loopback_only) {
        option_default(config, "TLS", "tcp,posix", "UCX_TLS", NULL);
        /* Within one host, more would only be read from farther away. */
        if (transport_allowed(tcp, pst_count_of(tcp)))
            option_default(config, "SNDBUF", "256k", "UCX_TCP_SNDBUF", NULL);
        status = ucp_config_modify(config, "NET_DEVICES", "lo");
    } else {
        /* Left to itself UCX takes System V segments, which outlive a killed process, before posix ones. */
        option_default(config, "TLS", "^sysv", "UCX_TLS", NULL);
        if (options->devices)
            status = ucp_config_modify(config, "NET_DEVICES", options->devices);
    }
    if (status == UCS_OK && !options->short_packets)
        status = lengthen_packets(config);
    if (status != UCS_OK) {
        ucp_config_release(config);
        return ucx_errno(status);
    }
    pst_assert(config);
    *out = config;
    return 0;
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

    pst_assert(shared->refs > 0 && shared->context);
    return shared->loopback_only == options->loopback_only && shared->serves == options->serves &&
           shared->short_packets == options->short_packets && !strcmp(shared->devices, devices);
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
    int r = configure(options, &config);

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
    shared->short_packets = options->short_packets;
    pst_list_init(&shared->link);
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
    pthread_mutex_unlock(&contexts_lock);
    return r;
}

static void context_unref(struct ucx_context *shared)
{
    pthread_mutex_lock(&contexts_lock);
    pst_assert(shared->refs > 0 && !pst_list_empty(&shared->link));
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

    pst_assert(addr && bytes > 0);
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
    .peer_gathers = ucx_peer_gathers,
    .peer_send = ucx_peer_send,
    .peer_send_bulk = ucx_peer_send_bulk,
    .msg_receive = ucx_msg_receive,
    .msg_free = ucx_msg_free,
};
