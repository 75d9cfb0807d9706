/* SPDX-License-Identifier: Apache-2.0 */
/* node.c: the control thread: sessions come and go. And a node's beginning and end. */
#include "node/grants.h"
#include "node/node_priv.h"
#include "base/fault.h"

#include "base/clock.h"
#include "base/hash.h"
#include "base/ms.h"
#include "net/tls/tls.h"
#include "net/ucx/version.h"

#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/eventfd.h>

enum {
    CONTROL_MS_MAX = 1000,
    REFUSALS_NS = 1000000000,
    REFUSALS_TOLD_MAX = 20,
    REQUEST_MS = 10 * 60 * 1000, /* that any request may take; more if large values have more */
    CONTROL_MS_ENDING = 20,      /* while sessions wait for their shards */
};

void pst_node_log(const struct pst_node *node, const char *format, ...)
{
    char line[512];
    va_list args;

    if (!node->log)
        return;
    va_start(args, format);
    vsnprintf(line, sizeof(line), format, args);
    va_end(args);
    node->log(node->log_ctx, line);
}

/* ---- sessions ---- */

static struct pst_node *node_cast(void *p)
{
    struct pst_node *node = p;

    pst_assert(node && node->magic == PST_NODE_MAGIC);
    pst_assert(node->session_count <= node->sessions_max);
    return node;
}

static struct pst_session *session_cast(void *p)
{
    struct pst_session *session = p;

    pst_assert(session && session->magic == PST_SESSION_MAGIC);
    return session;
}

static struct pst_session *session_new(struct pst_node *node)
{
    struct pst_session *session =
        pst_fault(PST_FAULT_node_session_enomem) ? NULL : calloc(1, sizeof(*session));

    pst_assert(node->worker_count > 0);
    if (session)
        session->session_events =
            calloc((size_t)PST_SESSION_EVENT_KINDS * node->worker_count, sizeof(*session->session_events));
    for (uint32_t place = 0; session && session->session_events && place < node->sessions_max; place++) {
        if (node->sessions[place])
            continue;
        pst_random(&session->token, sizeof(session->token));
        session->magic = PST_SESSION_MAGIC;
        session->token = (session->token & ~0xffffull) | place;
        session->quota = node->quota;
        node->sessions[place] = session;
        node->session_count++;
        pst_assert(node->session_count <= node->sessions_max);
        return session;
    }
    if (session)
        free(session->session_events);
    free(session);
    return NULL;
}

static void session_free(struct pst_node *node, struct pst_session *session)
{
    pst_assert(session->magic == PST_SESSION_MAGIC);
    pst_assert(session->shards_left == 0);
    pst_assert(session->shards_opening == 0);
    pst_assert(node->sessions[session->token & 0xffff] == session);
    pst_assert(node->session_count > 0);
    node->sessions[session->token & 0xffff] = NULL;
    session->magic = 0;
    node->session_count--;
    pst_grant_leave(node->grants, session->grant);
    free(session->session_events);
    free(session);
}

static int on_welcome(void *ctx, const char *peer, bool same_host, bool descriptors,
                      struct pst_boot_welcome *welcome, const int **fds, void **out)
{
    struct pst_node *node = node_cast(ctx);
    const struct pst_arenas *arenas = pst_store_arenas(node->store);
    struct pst_session *session;
    struct pst_grant *grant;
    bool within;

    pst_assert(node->worker_count <= pst_count_of(welcome->shards));
    for (uint32_t i = 0; i < node->worker_count; i++) {
        struct pst_worker *w = &node->workers[i];
        int r = 0;

        if (welcome->stream)
            pst_worker_stream_address(w, welcome->shards[i].data, &welcome->shards[i].bytes);
        else
            r = pst_worker_address(w, !same_host, welcome->shards[i].data, &welcome->shards[i].bytes);
        if (r < 0)
            return r;
    }
    if (pst_grant_enter(welcome->owner, &grant, &within) < 0)
        return -EBUSY;
    session = session_new(node);
    if (!session) {
        pst_grant_leave(node->grants, grant);
        return -EBUSY;
    }
    session->grant = grant;
    session->within = within;
    session->quota.above = grant ? &grant->quota : NULL;
    snprintf(welcome->grant, sizeof(welcome->grant), "%s", grant ? grant->name : "");
    session->version = welcome->version;
    session->same_host = same_host;
    session->stream = welcome->stream;
    snprintf(session->peer, sizeof(session->peer), "%s", peer);
    session->views = descriptors;
    session->shares = descriptors || same_host;
    welcome->token = session->token;
    welcome->partition_seed = pst_store_partition_seed(node->store);
    welcome->page_bytes = arenas->page_bytes;
    welcome->arena_bytes = arenas->stride;
    welcome->value_bytes_max = pst_store_value_bytes_max(node->store);
    welcome->shard_count = node->worker_count;
    welcome->arena_count = descriptors ? arenas->arena_count : 0;
    welcome->same_host = same_host;
    *fds = arenas->fds_readonly;
    *out = session;
    return 0;
}

static int on_connected(void *ctx, void *arg, const void *address, size_t bytes)
{
    struct pst_node *node = node_cast(ctx);
    struct pst_session *session = session_cast(arg);

    pst_assert(!session->ended);
    pst_assert(session->address_bytes == 0);
    pst_assert(session->shards_left == 0);
    pst_assert(session->shards_opening == 0);
    pst_assert(!session->ready);
    if (bytes > sizeof(session->address))
        return -EPROTO;
    memcpy(session->address, address, bytes);
    session->address_bytes = bytes;
    session->shards_opening = node->worker_count;
    for (uint32_t i = 0; i < node->worker_count; i++) {
        session->shards_left++;
        pst_worker_tell(&node->workers[i], session, PST_SESSION_BEGINS);
    }
    return 1;
}

static int on_attach(void *ctx, const struct pst_boot_attachment *attachment)
{
    struct pst_node *node = node_cast(ctx);

    return attachment->shard < node->worker_count
               ? pst_worker_attach(&node->workers[attachment->shard], attachment)
               : -EPROTO;
}

/* The client has gone, or has to go; what it shares stays until its process lets go of the socket. */
static void on_parted(void *ctx, void *arg)
{
    struct pst_node *node = node_cast(ctx);
    struct pst_session *session = session_cast(arg);

    pst_assert(session->shares);
    pst_assert(!session->ended);
    if (session->parted)
        return;
    session->parted = true;
    for (uint32_t i = 0; i < node->worker_count && session->address_bytes; i++)
        pst_worker_tell(&node->workers[i], session, PST_SESSION_PARTS);
}

static void on_ended(void *ctx, void *arg, const char *why)
{
    struct pst_node *node = node_cast(ctx);
    struct pst_session *session = session_cast(arg);
    const char *kick = session->kick;

    pst_assert(!session->ended);
    pst_assert(node->session_count > 0);
    session->ended = true;
    pst_node_log(node, "session %04x ended: %s", (unsigned)(session->token & 0xffff), kick ? kick : why);
    for (uint32_t i = 0; i < node->worker_count && session->address_bytes; i++)
        pst_worker_tell(&node->workers[i], session, PST_SESSION_ENDS);
}

/* A flood at the door does not fill the log: so many refusals a second are told, the others counted. */
static void on_refused(void *ctx, const char *peer, enum pst_boot_refusal kind, const char *why)
{
    struct pst_node *node = node_cast(ctx);
    uint64_t now_ns = pst_now_ns();

    pst_assert(kind < PST_BOOT_REFUSALS);
    node->refused[kind]++;
    if (now_ns - node->refusals.since_ns > REFUSALS_NS) {
        if (node->refusals.count > REFUSALS_TOLD_MAX)
            pst_node_log(node, "refused %u more", node->refusals.count - REFUSALS_TOLD_MAX);
        node->refusals.since_ns = now_ns;
        node->refusals.count = 0;
    }
    if (++node->refusals.count <= REFUSALS_TOLD_MAX)
        pst_node_log(node, "refused %s: %s", peer, why);
}

/* Every shard has opened its way to the client. */
static void begin_session(struct pst_node *node, struct pst_session *session)
{
    if (session->ready || session->ended || !session->address_bytes || session->shards_opening)
        return;
    pst_assert(session->shards_left == node->worker_count);
    pst_assert(node->boot);
    session->ready = true;
    pst_boot_server_ready(node->boot, session);
}

/* Begins sessions whose shards are ready, ends those that a shard gave up, frees those that every shard has
 * let go. Return: true while some wait for a shard. */
static bool sweep_sessions(struct pst_node *node)
{
    bool waiting = false;

    for (uint32_t place = 0; place < node->sessions_max; place++) {
        struct pst_session *session = node->sessions[place];

        if (!session)
            continue;
        pst_assert((session->token & 0xffff) == place);
        begin_session(node, session);
        if (session->kick && !session->ended && !session->parted) {
            pst_boot_server_end(node->boot, session);
            if (session->shares) {
                pst_node_log(node, "session %04x told to go: %s", (unsigned)(session->token & 0xffff),
                             session->kick);
                on_parted(node, session);
            }
        }
        if (session->ended && session->shards_left == 0)
            session_free(node, session);
        else
            waiting |= session->ended;
    }
    return waiting;
}

/* Grants that were read again come into force. */
static void renew_grants(struct pst_node *node)
{
    char line[PST_FAULT_BYTES];

    if (!node->grants || pst_grants_renew(node->grants, node->boot, node->worker_count, line) == 0)
        return;
    pst_node_log(node, "%s", line);
    for (uint32_t place = 0; place < node->sessions_max; place++) {
        struct pst_session *session = node->sessions[place];
        const char *none = NULL, *why = NULL;

        if (session && session->grant)
            why = pst_grant_ends(session->grant, session->shares && !session->within);
        if (why)
            atomic_compare_exchange_strong(&session->kick, &none, why);
    }
}

void pst_node_wake(struct pst_node *node)
{
    pst_event_set(node->wake_fd);
}

/* A device's failures would fill the log as well: how many there were is told once a round. */
static void tell_device_errors(struct pst_node *node)
{
    uint64_t errors = pst_store_device_errors(node->store);

    if (errors == node->device_errors)
        return;
    pst_node_log(node, "hbm: the device failed %llu copies; %llu since the start",
                 (unsigned long long)(errors - node->device_errors), (unsigned long long)errors);
    node->device_errors = errors;
}

static void *control_main(void *arg)
{
    struct pst_node *node = node_cast(arg);

    while (!node->stopping) {
        struct pollfd fds[] = {{.fd = pst_boot_server_fd(node->boot), .events = POLLIN},
                               {.fd = node->wake_fd, .events = POLLIN}};
        int wait_ms = pst_boot_server_poll(node->boot, pst_now_ns());

        renew_grants(node);
        tell_device_errors(node);
        if (sweep_sessions(node))
            wait_ms = (int)pst_min(wait_ms, CONTROL_MS_ENDING);
        if (poll(fds, pst_count_of(fds), (int)pst_min(wait_ms, CONTROL_MS_MAX)) > 0 && fds[1].revents)
            pst_event_clear(node->wake_fd);
    }
    return NULL;
}

/* ---- beginning ---- */

static void tell_restored(const struct pst_node *node, const char *name)
{
    const struct pst_restored *found = pst_store_restored(node->store);

    if (found->taken_up)
        pst_node_log(
            node, "keep %s: %llu keys, %llu bytes found in %llu ms; %llu dropped, %llu moved to other shards",
            name, (unsigned long long)found->keys, (unsigned long long)found->value_bytes,
            (unsigned long long)found->ms, (unsigned long long)found->dropped,
            (unsigned long long)found->moved);
    if (found->held)
        pst_node_log(node, "keep %s: %llu pages stay as they are for clients of an earlier node", name,
                     (unsigned long long)found->held);
    if (found->ssd_keys + found->ssd_dropped > 0)
        pst_node_log(node, "ssd: %llu keys found in %llu ms; %llu dropped",
                     (unsigned long long)found->ssd_keys, (unsigned long long)found->ssd_ms,
                     (unsigned long long)found->ssd_dropped);
}

static int open_store(struct pst_node *node, const struct pst_node_settings *settings, char *fault)
{
    char *prefixes[PST_STRINGS_MAX];
    struct pst_store_options options = {
        .arenas = {.folder = settings->folder, .name = settings->keep, .prefault = true},
        .cache_prefixes = (const char *const *)prefixes,
        .ssd.held = true,
    };
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    int r = pst_classes_parse(&settings->class, prefixes, &options.cache_prefix_count, fault);

    if (r < 0)
        return r;
    options.shard_count =
        (uint32_t)(settings->shards ? settings->shards : pst_max(1, pst_min((uint64_t)cores / 2, 16)));
    r = pst_store_open_set(&settings->store, options, &node->store, fault);
    pst_classes_free(prefixes, options.cache_prefix_count);
    if (r < 0)
        return r;
    tell_restored(node, settings->keep);
    if (*pst_store_tier_note(node->store))
        pst_node_log(node, "ssd: %s", pst_store_tier_note(node->store));
    return 0;
}

static int open_workers(struct pst_node *node, char *fault)
{
    uint32_t count = pst_store_shard_count(node->store);

    pst_assert(!node->workers);
    pst_assert(!node->sessions);
    pst_assert(count > 0);
    pst_assert(node->sessions_max > 0 && node->sessions_max <= 1 << 16);
    node->workers = calloc(count, sizeof(*node->workers));
    node->worker_count = node->workers ? count : 0;
    node->sessions = calloc(node->sessions_max, sizeof(struct pst_session *));
    snprintf(fault, PST_FAULT_BYTES, "shards could not be started");
    if (!node->workers || !node->sessions)
        return -ENOMEM;
    for (uint32_t i = 0; i < node->worker_count; i++) {
        int r = pst_worker_init(&node->workers[i], node, i);

        if (r == 0)
            r = pst_worker_start(&node->workers[i]);
        if (r < 0)
            return r;
    }
    return 0;
}

/* A wildcard serves loopback only until the operator has said how clients prove who they are, and has given
 * the node TLS or called the fabric trusted. */
static int allow_address(struct pst_node *node, struct pst_boot_address *address, bool open_to_network,
                         char *fault)
{
    char text[280];

    if (pst_boot_address_loopback(address) || open_to_network)
        return 0;
    pst_boot_address_print(address, text, sizeof(text));
    if (!pst_boot_address_wildcard(address)) {
        snprintf(
            fault, PST_FAULT_BYTES,
            "listen %.150s: a network address needs secret_file, grants or tls_ca, and tls or fabric=trusted",
            text);
        return -EACCES;
    }
    pst_node_log(
        node,
        "%s serves loopback only: set secret_file, grants or tls_ca, and tls or fabric=trusted, to serve "
        "the network",
        text);
    snprintf(address->host, sizeof(address->host), "%s", strchr(address->host, ':') ? "::1" : "127.0.0.1");
    return 0;
}

static int listen_on(struct pst_node *node, const char *text, bool open_to_network, char *fault)
{
    struct pst_boot_address address;
    const char *why = "";
    char printed[280];
    int r = pst_boot_address_parse(text, &address, &why);

    if (r < 0) {
        snprintf(fault, PST_FAULT_BYTES, "listen %.150s: %s", text, why);
        return r;
    }
    r = allow_address(node, &address, open_to_network, fault);
    if (r < 0)
        return r;
    r = pst_boot_server_listen(node->boot, &address);
    pst_boot_address_print(&address, printed, sizeof(printed));
    if (r < 0) {
        snprintf(fault, PST_FAULT_BYTES, "listen %.200s: %s", printed, strerror(-r));
        return r;
    }
    pst_assert(node->url_count < (int)pst_count_of(node->urls));
    snprintf(node->urls[node->url_count++], sizeof(node->urls[0]), "%s%s",
             address.path[0] ? "node+" : "node://", printed);
    return 0;
}

/* Said when every address is served, so that whoever reads it may use any of them. */
static void log_listening(const struct pst_node *node)
{
    uint32_t ucx = node->net ? pst_ucx_version() : 0;
    char version[PST_UCX_TEXT_BYTES];

    pst_ucx_print(ucx, version);
    if (node->net)
        pst_node_log(node, "UCX %s%s", version,
                     pst_ucx_seen(ucx) ? "" : ", with which nobody has tried this");
    for (int i = 0; i < node->url_count; i++) {
        const char *url = node->urls[i];

        pst_node_log(node, "listening on %s, %s ready",
                     url + strlen(strncmp(url, "node+", 5) == 0 ? "node+" : "node://"),
                     node->net ? "UCX worker" : "stream");
    }
}

static int give_first_grants(struct pst_node *node, char *fault)
{
    char line[PST_FAULT_BYTES];
    int r = node->grants ? pst_grants_renew(node->grants, node->boot, node->worker_count, line) : 0;

    if (r < 0)
        snprintf(fault, PST_FAULT_BYTES, "%s", line);
    else if (r > 0)
        pst_node_log(node, "%s", line);
    return r < 0 ? r : 0;
}

/* Whoever is on the network speaks TLS and proves who it is, and has the stream for its session. */
static bool stays_in_tls(const struct pst_node *node, const struct pst_node_settings *settings)
{
    return node->tls && node->stream && !settings->insecure && pst_node_proves_clients(settings);
}

static int open_sockets(struct pst_node *node, const struct pst_node_settings *settings, char *fault)
{
    static const struct pst_boot_server_ops ops = {.welcome = on_welcome,
                                                   .connected = on_connected,
                                                   .attach = on_attach,
                                                   .parted = on_parted,
                                                   .ended = on_ended,
                                                   .refused = on_refused};
    struct pst_boot_server_options options = {.secret = {node->secret, node->secret_bytes}};
    bool open_to_network = settings->fabric && pst_node_proves_clients(settings);
    char text[300];
    int r = pst_node_fit_descriptors(node, settings->listen.count + (settings->unix != NULL),
                                     &options.handshakes_max, fault);

    pst_assert(!node->boot);
    pst_assert(node->worker_count > 0);
    if (r < 0)
        return r;
    options.sessions_max = node->sessions_max;
    options.ucx = node->net ? pst_ucx_version() : 0;
    options.no_ucx = !node->net;
    options.stream = node->stream;
    options.loopback_only = !open_to_network;
    options.tls = node->tls;
    options.plain = pst_node_plain(settings);
    snprintf(fault, PST_FAULT_BYTES, "bootstrap socket");
    r = pst_boot_server_open(&options, &ops, node, &node->boot);
    if (r == 0)
        r = give_first_grants(node, fault);
    for (uint32_t i = 0; r == 0 && i < settings->listen.count; i++)
        r = listen_on(node, settings->listen.items[i], open_to_network || stays_in_tls(node, settings),
                      fault);
    if (r == 0 && settings->unix) {
        snprintf(text, sizeof(text), "unix://%s", settings->unix);
        r = listen_on(node, text, open_to_network, fault);
    }
    return r;
}

static int check_settings(const struct pst_node_settings *settings, char *fault)
{
    if (settings->fabric && strcmp(settings->fabric, "trusted") != 0) {
        snprintf(fault, PST_FAULT_BYTES, "fabric: '%.100s' is not 'trusted'", settings->fabric);
        return -EINVAL;
    }
    if (settings->listen.count == 0 && !settings->unix) {
        snprintf(fault, PST_FAULT_BYTES, "neither listen nor unix is set: nobody could reach the node");
        return -EINVAL;
    }
    return 0;
}

/* UCX, the stream, or both; without a UCX that can be used, who left the choice to us has the stream. */
static int open_nets(struct pst_node *node, const struct pst_node_settings *settings, char *fault)
{
    struct pst_net_options options = {.devices = settings->devices, .serves = true};
    enum pst_boot_transport transport;
    int r = pst_boot_transport_parse(settings->transport, &transport);

    pst_assert(!node->net);
    pst_assert(!node->stream);
    if (r < 0) {
        snprintf(fault, PST_FAULT_BYTES, "transport: '%.100s' is not 'ucx', 'stream' or 'auto'",
                 settings->transport);
        return r;
    }
    options.loopback_only = !settings->fabric || !pst_node_proves_clients(settings);
    node->opens_first = options.loopback_only;
    if (transport != PST_BOOT_STREAM)
        r = pst_net_open(&options, &node->net);
    snprintf(fault, PST_FAULT_BYTES, "%s", pst_net_fault(r));
    if (transport == PST_BOOT_AUTO && (r == -ENODEV || r == -ELIBACC)) {
        pst_node_log(node, "%s: clients use the stream", fault);
        r = 0;
    }
    options.transport = PST_NET_STREAM;
    if (r == 0 && transport != PST_BOOT_UCX) {
        r = pst_net_open(&options, &node->stream);
        snprintf(fault, PST_FAULT_BYTES, "the stream transport: %s", pst_net_fault(r));
    }
    pst_assert(r < 0 || node->net || node->stream);
    return r;
}

static int open_all(struct pst_node *node, const struct pst_node_settings *settings, char *fault)
{
    int r = check_settings(settings, fault);

    if (r == 0 && settings->secret_file) {
        r = pst_secret_read(settings->secret_file, node->secret, sizeof(node->secret), fault);
        node->secret_bytes = r > 0 ? (size_t)r : 0;
    }
    if (r >= 0)
        r = pst_node_open_tls(node, settings, fault);
    if (r >= 0 && settings->grants)
        r = pst_grants_open(settings->grants, (struct pst_bytes){node->secret, node->secret_bytes},
                            &node->grants, fault);
    if (r < 0)
        return r;
    node->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    r = node->wake_fd < 0 ? -errno : open_store(node, settings, fault);
    if (r < 0)
        return r;
    r = open_nets(node, settings, fault);
    if (r == 0)
        r = open_workers(node, fault);
    if (r == 0)
        r = open_sockets(node, settings, fault);
    if (r < 0)
        return r;
    r = -pthread_create(&node->control, NULL, control_main, node);
    node->controlled = r == 0;
    if (r < 0)
        snprintf(fault, PST_FAULT_BYTES, "control thread: %s", strerror(-r));
    return r;
}

int pst_node_open(const struct pst_node_settings *settings, const struct pst_node_role *role, pst_log log,
                  void *log_ctx, struct pst_node **out, char fault[PST_FAULT_BYTES])
{
    struct pst_node *node = calloc(1, sizeof(*node));
    int r;

    snprintf(fault, PST_FAULT_BYTES, "out of memory");
    if (!node)
        return -ENOMEM;
    node->magic = PST_NODE_MAGIC;
    if (role)
        node->role = *role;
    node->log = log;
    node->log_ctx = log_ctx;
    node->wake_fd = -1;
    node->requests_max = (uint32_t)settings->requests;
    node->session_requests_max = (uint32_t)settings->session_requests;
    node->sessions_max = (uint32_t)settings->sessions;
    node->quota = (struct pst_quota){.reservations_max = settings->session_reservations,
                                     .pins_max = settings->session_pins,
                                     .bytes_max = settings->session_pinned_bytes};
    node->slow_ns = pst_ns_of_ms(settings->slow_ms);
    node->value_ns = pst_ns_of_ms(settings->value_ms);
    node->silent_ns = pst_ns_of_ms(settings->silent_ms);
    node->request_ns = pst_max(node->value_ns, pst_ns_of_ms(REQUEST_MS));
    node->waits_max = (uint32_t)settings->waits;
    node->session_waits_max = (uint32_t)settings->session_waits;
    node->watches_max = (uint32_t)settings->watches;
    node->session_watches_max = (uint32_t)settings->session_watches;
    node->spin_us = (uint32_t)settings->spin_us;
    node->start_ns = pst_now_ns();
    node->keeps = settings->keep != NULL;
    r = open_all(node, settings, fault);
    if (r < 0) {
        pst_node_close(node);
        return r;
    }
    *out = node;
    return 0;
}

int pst_node_begin(struct pst_node *node, char fault[PST_FAULT_BYTES])
{
    const char *why = "";
    int r = pst_store_begin(node->store, &why);

    pst_assert(node->magic == PST_NODE_MAGIC);
    pst_assert(node->controlled);
    pst_assert(!node->stopping);
    if (r < 0)
        snprintf(fault, PST_FAULT_BYTES, "%s", why);
    else
        log_listening(node);
    return r;
}

/* ---- end ---- */

struct pst_node *pst_node_close(struct pst_node *node)
{
    int r;

    if (!node)
        return NULL;
    pst_assert(node->magic == PST_NODE_MAGIC);
    node->stopping = true;
    if (node->controlled) {
        pst_node_wake(node);
        pthread_join(node->control, NULL);
    }
    node->boot = pst_boot_server_close(node->boot);
    node->tls = pst_tls_close(node->tls);
    for (uint32_t i = 0; i < node->worker_count; i++)
        pst_worker_stop(&node->workers[i]);
    for (uint32_t i = 0; i < node->worker_count; i++)
        pst_worker_fini(&node->workers[i]);
    for (uint32_t i = 0; node->sessions && i < node->sessions_max; i++) {
        if (node->sessions[i])
            session_free(node, node->sessions[i]);
    }
    pst_assert(node->session_count == 0);
    pst_assert(node->commits == 0);
    free(node->workers);
    free(node->sessions);
    pst_grants_close(node->grants);
    pst_net_close(node->net);
    pst_net_close(node->stream);
    if (node->store && (r = pst_store_settle(node->store)) < 0)
        pst_node_log(node, "ssd: not all that was in memory could be written: %s", strerror(-r));
    pst_store_close(node->store);
    pst_close_fd(&node->wake_fd);
    node->magic = 0;
    explicit_bzero(node->secret, sizeof(node->secret));
    free(node);
    return NULL;
}

const char *pst_node_url(const struct pst_node *node, int index)
{
    return index >= 0 && index < node->url_count ? node->urls[index] : NULL;
}

int pst_node_reload(struct pst_node *node, char fault[PST_FAULT_BYTES])
{
    int r;

    if (!node->grants && !node->tls) {
        snprintf(fault, PST_FAULT_BYTES, "there are no grants to read again, and no certificates");
        return -EOPNOTSUPP;
    }
    pst_node_reload_tls(node);
    if (!node->grants)
        return 0;
    r = pst_grants_reload(node->grants, fault);
    if (r == 0)
        pst_node_wake(node);
    return r;
}

int pst_node_own_secret(struct pst_node *node, const char *grant, struct pst_node_secret *out,
                        char fault[PST_FAULT_BYTES])
{
    int r = -ENOENT;

    if (!node->grants && !grant) {
        pst_assert(node->secret_bytes <= sizeof(out->data));
        memcpy(out->data, node->secret, node->secret_bytes);
        out->bytes = node->secret_bytes;
        return 0;
    }
    if (node->grants)
        r = pst_grants_own_secret(node->grants, grant, out->data, &out->bytes);
    if (r < 0)
        snprintf(fault, PST_FAULT_BYTES, "there is no grant '%.100s'", grant);
    return r < 0 ? -EINVAL : 0;
}

uint64_t pst_node_memory(const struct pst_node *node)
{
    const struct pst_restored *found = pst_store_restored(node->store);

    return node->keeps && found->dropped == 0 && found->ssd_dropped == 0
               ? pst_store_partition_seed(node->store)
               : 0;
}

uint64_t pst_node_disk(const struct pst_node *node)
{
    return pst_store_tier_name(node->store);
}

uint64_t pst_node_keys(const struct pst_node *node)
{
    uint64_t keys = 0;

    for (uint32_t i = 0; i < node->worker_count; i++)
        keys += atomic_load_explicit(&node->workers[i].keys, memory_order_relaxed);
    return keys;
}
