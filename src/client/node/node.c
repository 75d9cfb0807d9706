/* SPDX-License-Identifier: Apache-2.0 */
/* node.c: a store that a node serves: the backend over a channel. */
#include "client/view_priv.h"

#include "base/clock.h"
#include "base/options.h"
#include "net/tls/tls.h"
#include "pool/map.h"

#include <stdio.h>

enum {
    TIMEOUT_MS = 10000,
    CONNECT_MS = 5000,
};

#define REMOTE_OPTIONS(X)                                                                                    \
    X(STRING, lane, "", 0, 0, "LANE", "'tcp' keeps shared memory out")                                       \
    X(STRING, transport, "", 0, 0, "ucx|stream|auto", "'auto' if not set: UCX if both sides have it")        \
    X(STRING, fabric, "", 0, 0, "trusted", "'trusted': UCX may use the network")                             \
    X(STRING, secret_file, "", 0, 0, "FILE", "shared secret")                                                \
    X(FLAG, tls, "no", 0, 0, "", "TLS over TCP, by the secret unless there is an authority")                 \
    X(STRING, tls_ca, "", 0, 0, "FILE", "authorities of the node's certificate")                             \
    X(STRING, tls_certificate, "", 0, 0, "FILE", "this client's certificate")                                \
    X(STRING, tls_key, "", 0, 0, "FILE", "and its private key")                                              \
    X(STRING, tls_name, "", 0, 0, "NAME", "that the node's certificate has, if not that of its address")     \
    X(NUMBER, timeout_ms, "0", 0, 86400000, "ms", "a call's time to its end")                                \
    X(NUMBER, connect_ms, "0", 0, 86400000, "ms", "time to connect")                                         \
    X(NUMBER, replicas, "1", 1, PST_MAP_REPLICAS_MAX, "copies",                                              \
      "pool: of values that may lie on any node, each on a host of its own")                                 \
    X(STRING, host, "", 0, 0, "NAME", "pool: the client's machine; by its boot if not set")

struct remote_settings {
    REMOTE_OPTIONS(PST_OPTION_MEMBER)
};

#define PST_OPTION_SETTINGS struct remote_settings
static const struct pst_options remote_options = PST_OPTION_TABLE(REMOTE_OPTIONS);

/* ---- the backend ---- */

static void remote_submit(struct penstock *store, struct penstock_op *op, int shard, struct pst_op_list *done)
{
    pst_channel_submit(store->channel, op, shard, done);
}

static void remote_flush(struct penstock *store)
{
    pst_channel_flush(store->channel);
}

static bool remote_poll(struct penstock *store)
{
    pst_arena_map_check(&store->arena_map, store->channel);
    return pst_channel_poll(store->channel);
}

static int remote_fd(struct penstock *store)
{
    return pst_channel_fd(store->channel);
}

static int remote_arm(struct penstock *store)
{
    return pst_channel_arm(store->channel);
}

static uint32_t remote_shards(struct penstock *store)
{
    return pst_channel_shards(store->channel);
}

static uint32_t remote_shard_of(struct penstock *store, struct pst_bytes key)
{
    return pst_channel_shard_of(store->channel, key);
}

static uint64_t remote_places(struct penstock *store)
{
    return pst_channel_seed(store->channel);
}

static const char *remote_lane(struct penstock *store)
{
    return pst_channel_lane(store->channel);
}

static int remote_map(struct penstock *store, int shard, uint64_t session,
                      const struct pst_wire_piece *pieces, uint32_t count, struct penstock_view *view)
{
    (void)shard;
    return pst_arena_map_view(&store->arena_map, store->channel, session, pieces, count, view);
}

static void remote_unmap(struct penstock *store, struct penstock_view *view)
{
    (void)store;
    pst_arena_map_unview(view);
}

static bool remote_view_lives(struct penstock *store, const struct penstock_view *view)
{
    return pst_arena_map_live(view, store->channel);
}

static int remote_add_memory(struct penstock *store, void *addr, size_t bytes, void **handle)
{
    return pst_channel_register(store->channel, addr, bytes, handle);
}

static void remote_drop_memory(struct penstock *store, void *handle)
{
    pst_channel_unregister(store->channel, handle);
}

static void remote_close(struct penstock *store)
{
    pst_assert(store->memory_count <= MEMORY_MAX);
    for (uint32_t i = 0; i < store->memory_count; i++)
        remote_drop_memory(store, store->memory[i].handle);
    pst_arena_map_close(&store->arena_map);
    pst_channel_close(store->channel);
}

const struct pst_backend pst_backend_node = {
    .submit = remote_submit,
    .flush = remote_flush,
    .poll = remote_poll,
    .fd = remote_fd,
    .arm = remote_arm,
    .shards = remote_shards,
    .shard_of = remote_shard_of,
    .places = remote_places,
    .lane = remote_lane,
    .map = remote_map,
    .unmap = remote_unmap,
    .view_lives = remote_view_lives,
    .add_memory = remote_add_memory,
    .drop_memory = remote_drop_memory,
    .close = remote_close,
};

/* ---- opening ---- */

static uint32_t first_set(uint64_t a, uint32_t b, uint32_t c)
{
    return a ? (uint32_t)a : b ? b : c;
}

static int take_secret(struct penstock *store, const struct penstock_options *options, struct pst_bytes *out)
{
    if (!options->secret)
        return 0;
    if (options->secret_bytes < 1 || options->secret_bytes > sizeof(store->secret))
        return pst_fail(-EINVAL, "%s: a secret has 1 to %zu bytes", store->url, sizeof(store->secret));
    memcpy(store->secret, options->secret, options->secret_bytes);
    *out = (struct pst_bytes){store->secret, options->secret_bytes};
    return 0;
}

/* From @path, or if there is none from the options. */
static int read_secret(struct penstock *store, const char *path, const struct penstock_options *options,
                       struct pst_bytes *out)
{
    char fault[PST_FAULT_BYTES];
    int r;

    if (!path)
        return take_secret(store, options, out);
    r = pst_secret_read(path, store->secret, sizeof(store->secret), fault);
    if (r < 0)
        return pst_fail(r, "%s", fault);
    pst_assert(r > 0 && r <= (int)sizeof(store->secret));
    *out = (struct pst_bytes){store->secret, (size_t)r};
    return 0;
}

static const char *first_text(const char *a, const char *b)
{
    return a ? a : b;
}

/* With TLS nothing is said in plain over TCP. */
static int open_tls(struct penstock *store, const struct remote_settings *settings,
                    const struct penstock_options *options, struct pst_channel_options *out)
{
    const struct pst_tls_settings tls = {
        .ca = first_text(settings->tls_ca, options->tls_ca),
        .certificate = first_text(settings->tls_certificate, options->tls_certificate),
        .key = first_text(settings->tls_key, options->tls_key),
        .name = first_text(settings->tls_name, options->tls_name),
        .secret = out->secret,
        .connects = true,
    };
    char fault[PST_FAULT_BYTES];
    int r;

    pst_assert(!store->tls);
    if (!settings->tls && !options->tls && !tls.ca && !tls.certificate && !tls.key && !tls.name)
        return 0;
    r = pst_tls_open(&tls, &store->tls, fault);
    pst_assert(!store->tls == (r < 0));
    out->tls = store->tls;
    return r < 0 ? pst_fail(r, "%s: %s", store->url, fault) : 0;
}

/* What every channel of the store has in common. */
static int read_channel_options(struct penstock *store, const struct remote_settings *settings,
                                const struct penstock_options *options, struct pst_channel_options *out)
{
    const char *transport;
    int r;

    *out = (struct pst_channel_options){
        .connect_ms = first_set(settings->connect_ms, options->connect_ms, CONNECT_MS),
        .timeout_ms = first_set(settings->timeout_ms, options->timeout_ms, TIMEOUT_MS),
    };
    r = read_secret(store, settings->secret_file ? settings->secret_file : options->secret_file, options,
                    &out->secret);
    if (r == 0)
        r = open_tls(store, settings, options, out);
    if (r < 0)
        return r;
    if (settings->lane && strcmp(settings->lane, "tcp") != 0)
        return pst_fail(-EINVAL, "%s: lane '%s' is not 'tcp'", store->url, settings->lane);
    if (settings->fabric && strcmp(settings->fabric, "trusted") != 0)
        return pst_fail(-EINVAL, "%s: fabric '%s' is not 'trusted'", store->url, settings->fabric);
    pst_assert(out->connect_ms > 0);
    pst_assert(out->timeout_ms > 0);
    transport = first_text(settings->transport, options->transport);
    if (!transport)
        transport = getenv("PENSTOCK_TRANSPORT");
    if (pst_boot_transport_parse(transport, &out->transport) < 0)
        return pst_fail(-EINVAL, "%s: transport '%s' is not 'ucx', 'stream' or 'auto'", store->url,
                        transport);
    out->network_only = settings->lane != NULL;
    out->fabric_trusted = settings->fabric != NULL;
    return 0;
}

static int open_node(struct penstock *store, const char *address, struct pst_channel_options *options)
{
    const char *fault = "";
    int r = pst_boot_address_parse(address, &options->address, &fault);

    pst_assert(!store->channel);
    pst_assert(!store->backend);
    pst_assert(!store->arena_map);
    options->insists = true;
    if (r == 0)
        r = pst_channel_open(options, &store->channel, &fault);
    if (r < 0)
        return pst_fail(r, "%s: %s", store->url, fault);
    store->backend = &pst_backend_node;
    r = pst_arena_map_open(&store->arena_map, store->channel);
    return r < 0 ? pst_fail(r, "%s: mapping the node's memory: %s", store->url, strerror(-r)) : 0;
}

int pst_remote_open(struct penstock *store, const struct pst_url *url, const struct penstock_options *options)
{
    struct remote_settings settings = {0};
    struct pst_channel_options channel;
    int r = pst_query_read(&remote_options, &settings, url->query);

    pst_assert(!store->channel);
    pst_assert(!store->pool);
    if (r == 0)
        r = read_channel_options(store, &settings, options, &channel);
    if (r == 0)
        r = url->pool
                ? pst_pool_open(store, url->address, &channel, settings.host, (uint32_t)settings.replicas)
                : open_node(store, url->address, &channel);
    pst_options_free(&remote_options, &settings);
    return r;
}
