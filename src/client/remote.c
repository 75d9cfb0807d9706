/* remote.c: a store that a node serves: the backend over a channel, and the node's arenas mapped for views.
 */
#include "client/client_priv.h"

#include "base/clock.h"
#include "base/options.h"
#include "directory/view.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>

enum {
    TIMEOUT_MS = 10000,
    CONNECT_MS = 5000,
};

#define REMOTE_OPTIONS(X)                                                                                    \
    X(STRING, lane, "", 0, 0, "LANE", "'tcp' keeps shared memory out")                                       \
    X(STRING, fabric, "", 0, 0, "trusted", "'trusted': UCX may use the network")                             \
    X(STRING, secret_file, "", 0, 0, "FILE", "shared secret")                                                \
    X(NUMBER, timeout_ms, "0", 0, 86400000, "ms", "a call's time to its end")                                \
    X(NUMBER, connect_ms, "0", 0, 86400000, "ms", "time to connect")                                         \
    X(NUMBER, replicas, "1", 1, PST_VIEW_COPIES_MAX, "copies",                                               \
      "pool: of values that may lie on any node, each on a host of its own")                                 \
    X(STRING, host, "", 0, 0, "NAME", "pool: the client's machine; by its boot if not set")

struct remote_settings {
    REMOTE_OPTIONS(PST_OPTION_MEMBER)
};

#define PST_OPTION_SETTINGS struct remote_settings
static const struct pst_options remote_options = PST_OPTION_TABLE(REMOTE_OPTIONS);

#define ARENA_MAP_MAGIC 0x616d6170u

/* The arenas of one session, read-only. Views keep it after the session has gone. */
struct pst_arena_map {
    uint32_t magic;
    uint32_t refs; /* the store's and one for each view; under the store's lock */
    uint64_t session;
    uint8_t *base;
    size_t bytes;
    uint64_t stride;
    int hold_fd; /* the session's socket: keeps the node from reusing what views show */
    int fds[PST_BOOT_ARENAS_MAX];
    uint64_t sizes[PST_BOOT_ARENAS_MAX];
    uint32_t count;
};

static void map_unref(struct pst_arena_map *map)
{
    pst_assert(!map || (map->magic == ARENA_MAP_MAGIC && map->refs > 0));
    if (!map || --map->refs)
        return;
    map->magic = 0;
    if (map->bytes)
        munmap(map->base, map->bytes);
    for (uint32_t i = 0; i < map->count; i++)
        close(map->fds[i]);
    pst_close_fd(&map->hold_fd);
    free(map);
}

/* Maps one arena at its place in the reserved range, page tables filled. */
static int map_arena(struct pst_arena_map *map, int fd)
{
    struct stat st;
    uint32_t index = map->count;
    void *at = map->base + index * map->stride;

    pst_assert(index < PST_BOOT_ARENAS_MAX && (index + 1) * map->stride <= map->bytes);
    if (fstat(fd, &st) < 0)
        return -errno;
    if ((uint64_t)st.st_size > map->stride)
        return -EPROTO;
    map->fds[index] = fcntl(fd, F_DUPFD_CLOEXEC, 3);
    if (map->fds[index] < 0)
        return -errno;
    map->sizes[index] = (uint64_t)st.st_size;
    map->count++;
    if (mmap(at, (size_t)st.st_size, PROT_READ, MAP_SHARED | MAP_FIXED | MAP_POPULATE, fd, 0) == MAP_FAILED)
        return -errno;
    return 0;
}

static int map_arenas(struct penstock *store)
{
    struct pst_arena_map *map;
    const int *fds;
    uint64_t stride;
    uint32_t count = pst_channel_arenas(store->channel, &fds, &stride);
    int r = 0;

    map_unref(store->arena_map);
    store->arena_map = NULL;
    if (count == 0)
        return 0;
    map = calloc(1, sizeof(*map));
    if (!map)
        return -ENOMEM;
    map->magic = ARENA_MAP_MAGIC;
    map->refs = 1;
    map->hold_fd = pst_channel_hold(store->channel);
    if (map->hold_fd < 0) {
        r = map->hold_fd;
        free(map);
        return r;
    }
    map->stride = stride;
    map->session = pst_channel_session(store->channel);
    map->base = mmap(NULL, count * stride, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (map->base == MAP_FAILED) {
        r = -errno;
        map_unref(map);
        return r;
    }
    map->bytes = count * stride;
    for (uint32_t i = 0; r == 0 && i < count; i++)
        r = map_arena(map, fds[i]);
    if (r < 0)
        map_unref(map);
    else
        store->arena_map = map;
    return r;
}

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
    struct pst_arena_map *map = store->arena_map;

    if (pst_unlikely(map && map->session != pst_channel_session(store->channel))) {
        map_unref(map); /* its views alone hold the old session's socket now */
        store->arena_map = NULL;
    }
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

static const char *remote_lane(struct penstock *store)
{
    return pst_channel_lane(store->channel);
}

static bool piece_mapped(const struct pst_arena_map *map, const struct pst_wire_piece *piece)
{
    uint64_t arena = piece->offset / map->stride, at = piece->offset % map->stride;

    return arena < map->count && at <= map->sizes[arena] && piece->bytes <= map->sizes[arena] - at;
}

static int stitch(const struct pst_arena_map *map, const struct pst_wire_piece *pieces, uint32_t count,
                  struct penstock_view *view)
{
    struct pst_piece_file files[PST_VIEW_PIECES_MAX];

    pst_assert(count <= PST_VIEW_PIECES_MAX);
    for (uint32_t i = 0; i < count; i++)
        files[i] =
            (struct pst_piece_file){map->fds[pieces[i].offset / map->stride], pieces[i].offset % map->stride};
    return pst_stitch(pieces, files, count, view);
}

static int remote_map(struct penstock *store, uint64_t session, const struct pst_wire_piece *pieces,
                      uint32_t count, struct penstock_view *view)
{
    struct pst_arena_map *map = store->arena_map;
    int r = 0;

    if (session != pst_channel_session(store->channel))
        return -ECONNRESET; /* it was another session's view, and went with it */
    if (!map || map->session != pst_channel_session(store->channel))
        r = map_arenas(store);
    map = store->arena_map;
    if (r < 0 || !map)
        return r < 0 ? r : -EOPNOTSUPP;
    for (uint32_t i = 0; i < count; i++) {
        if (!piece_mapped(map, &pieces[i]))
            return -EPROTO;
    }
    if (count > 1)
        r = stitch(map, pieces, count, view);
    else
        view->data = count ? map->base + pieces[0].offset : (const void *)"";
    if (r < 0)
        return r;
    map->refs++;
    view->reserved[VIEW_MAP] = map;
    return 0;
}

static void remote_unmap(struct penstock *store, struct penstock_view *view)
{
    (void)store;
    pst_unstitch(view);
    map_unref(view->reserved[VIEW_MAP]);
}

static bool remote_view_lives(struct penstock *store, const struct penstock_view *view)
{
    const struct pst_arena_map *map = view->reserved[VIEW_MAP];

    pst_assert(!map || map->magic == ARENA_MAP_MAGIC);
    return map && map->session == pst_channel_session(store->channel);
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
    for (uint32_t i = 0; i < store->memory_count; i++)
        remote_drop_memory(store, store->memory[i].handle);
    if (store->arena_map) /* views end with their store, released or not */
        store->arena_map->refs = 1;
    map_unref(store->arena_map);
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

static int read_secret(struct penstock *store, const char *path, struct pst_bytes *out)
{
    char fault[PST_FAULT_BYTES];
    int r;

    if (!path)
        return 0;
    r = pst_secret_read(path, store->secret, sizeof(store->secret), fault);
    if (r < 0)
        return pst_fail(r, "%s", fault);
    *out = (struct pst_bytes){store->secret, (size_t)r};
    return 0;
}

/* What every channel of the store has in common. */
static int read_channel_options(struct penstock *store, const struct remote_settings *settings,
                                const struct penstock_options *options, struct pst_channel_options *out)
{
    int r;

    *out = (struct pst_channel_options){
        .connect_ms = first_set(settings->connect_ms, options->connect_ms, CONNECT_MS),
        .timeout_ms = first_set(settings->timeout_ms, options->timeout_ms, TIMEOUT_MS),
    };
    r = read_secret(store, settings->secret_file ? settings->secret_file : options->secret_file,
                    &out->secret);
    if (r < 0)
        return r;
    if (settings->lane && strcmp(settings->lane, "tcp") != 0)
        return pst_fail(-EINVAL, "%s: lane '%s' is not 'tcp'", store->url, settings->lane);
    if (settings->fabric && strcmp(settings->fabric, "trusted") != 0)
        return pst_fail(-EINVAL, "%s: fabric '%s' is not 'trusted'", store->url, settings->fabric);
    out->network_only = settings->lane != NULL;
    out->fabric_trusted = settings->fabric != NULL;
    return 0;
}

static int open_node(struct penstock *store, const char *address, struct pst_channel_options *options)
{
    const char *fault = "";
    int r = pst_boot_address_parse(address, &options->address, &fault);

    if (r == 0)
        r = pst_channel_open(options, &store->channel, &fault);
    if (r < 0)
        return pst_fail(r, "%s: %s", store->url, fault);
    store->backend = &pst_backend_node;
    r = map_arenas(store);
    return r < 0 ? pst_fail(r, "%s: mapping the node's memory: %s", store->url, strerror(-r)) : 0;
}

int pst_remote_open(struct penstock *store, const struct pst_url *url, const struct penstock_options *options)
{
    struct remote_settings settings = {0};
    struct pst_channel_options channel;
    int r = pst_query_read(&remote_options, &settings, url->query);

    if (r == 0)
        r = read_channel_options(store, &settings, options, &channel);
    if (r == 0)
        r = url->pool
                ? pst_pool_open(store, url->address, &channel, settings.host, (uint32_t)settings.replicas)
                : open_node(store, url->address, &channel);
    pst_options_free(&remote_options, &settings);
    return r;
}
