/* SPDX-License-Identifier: Apache-2.0 */
/* pool.c: a store of many nodes: the backend over channels to them and to a master, and how it is opened. */
#include "client/pool/pool_priv.h"
#include "client/view_priv.h"

#include "base/clock.h"
#include "base/host.h"
#include "base/ms.h"
#include "base/options.h"

#include <inttypes.h>
#include <stdio.h>
#include <sys/epoll.h>

enum {
    CLOSE_NS = 1000000000, /* for the last word to a master */
    ELECTION_US = 50000,   /* between two questions whether a master leads */
};

struct pool *pst_pool_of(struct penstock *store)
{
    pst_assert(store->pool && store->pool->magic == PST_POOL_MAGIC);
    return store->pool;
}

uint32_t pst_pool_shares(struct penstock *store)
{
    uint32_t count = 1;

    if (!store->pool)
        return count;
    pst_enter(store);
    if (pst_pool_of(store)->map)
        count = pst_pool_of(store)->map->share_count;
    pst_leave(store);
    return count;
}

/* ---- progress ---- */

static void pool_flush(struct penstock *store)
{
    struct pool *pool = pst_pool_of(store);

    pst_pool_pool_ops_set_out(pool);
    pst_pool_ask(pool);
    pst_list_each (it, &pool->busy) {
        struct pool_peer *peer = pst_list_entry(it, struct pool_peer, link);

        pst_assert(peer->underway > 0);
        if (peer->dirty && peer->channel)
            pst_channel_flush(peer->channel);
        peer->dirty = false;
    }
}

static bool take_ended(struct pool *pool)
{
    struct penstock_op *op;
    bool any = false;

    for (; (op = pst_op_list_pop(&pool->ended)) != NULL; any = true)
        pst_pool_attempt_ended(pool, op);
    for (; (op = pst_op_list_pop(&pool->answered)) != NULL; any = true)
        pst_pool_answered(pool, op);
    return any;
}

static bool pool_poll(struct penstock *store)
{
    struct pool *pool = pst_pool_of(store);
    bool something = false;

    pst_list_each (it, &pool->busy) {
        struct pool_peer *peer = pst_list_entry(it, struct pool_peer, link);

        something |= peer->channel && pst_channel_poll(peer->channel);
    }
    something |= take_ended(pool);
    something |= pst_pool_pool_ops_due(pool);
    pool_flush(store);
    return something;
}

static int pool_fd(struct penstock *store)
{
    return pst_pool_of(store)->poll_fd;
}

/* Once each: a descriptor with nothing underway wakes nobody again. Ports come and go with their sessions. */
static int watch(const struct pool *pool, int fd)
{
    struct epoll_event event = {.events = EPOLLIN | EPOLLONESHOT, .data.fd = fd};

    if (epoll_ctl(pool->poll_fd, EPOLL_CTL_MOD, fd, &event) == 0)
        return 0;
    return epoll_ctl(pool->poll_fd, EPOLL_CTL_ADD, fd, &event) < 0 ? -EBUSY : 0;
}

static int pool_arm(struct penstock *store)
{
    struct pool *pool = pst_pool_of(store);
    struct epoll_event events[16];
    int busy = pst_list_empty(&pool->waiting) && pst_list_empty(&pool->refused) ? 0 : -EBUSY;

    if (pool->ended.count || pool->answered.count)
        return -EAGAIN;
    epoll_wait(pool->poll_fd, events, pst_count_of(events), 0); /* those of before have had their turn */
    pst_list_each (it, &pool->busy) {
        struct pool_peer *peer = pst_list_entry(it, struct pool_peer, link);
        int fd = peer->channel ? pst_channel_fd(peer->channel) : -1;
        int r = fd < 0 ? -EBUSY : watch(pool, fd);

        if (r == 0)
            r = pst_channel_arm(peer->channel);
        if (r == -EAGAIN)
            return r;
        busy = r < 0 ? r : busy;
    }
    return busy;
}

/* ---- shards ---- */

static uint32_t pool_shards(struct penstock *store)
{
    return pst_pool_of(store)->shard_count;
}

static int pool_shard_at(struct penstock *store, uint32_t shard)
{
    const struct pool_shard *side;

    pst_assert(shard < POOL_SHARDS_MAX);
    side = &pst_pool_of(store)->shards[shard];
    return side->node ? (int)side->shard : -1;
}

/* Of keys that lie home; POOL_SIDES_MAX, which no shard has: any, or none, has it. */
static uint32_t pool_shard_of(struct penstock *store, struct pst_bytes key)
{
    struct pool *pool = pst_pool_of(store);
    struct pool_node *node = pst_pool_key_home(pool, key) ? pst_pool_primary(pool, key) : NULL;

    if (!node || pst_pool_node_shards(pool, node) < 0)
        return POOL_SHARDS_MAX;
    pst_assert(node->shard_first + node->shard_count <= pool->shard_count);
    return node->shard_first + pst_channel_shard_of(node->peer.channel, key);
}

static int pool_refresh(struct penstock *store)
{
    struct pool *pool = pst_pool_of(store);
    struct penstock_op op = {.code = PST_POOL_MAP};
    int shard = POOL_SHARD_OF_MASTER, r = 0;

    pst_assert(pool->master_count > 0);
    pst_run(store, &op, 1, &shard); /* without a master the pool map that is known counts */
    pst_enter(store);
    pool->newest = op.result == 0;
    for (uint32_t i = 0; i < PST_MAP_MEMBERS_MAX && r == 0; i++) {
        if (pool->nodes[i])
            r = pst_pool_node_shards(pool, pool->nodes[i]);
        if (r < 0)
            pst_fail(r, "%s: node %s: %s", store->url, pool->map->members[i].address,
                     penstock_result_text(r));
    }
    pst_leave(store);
    return r;
}

/* All keys in [@start, @end) begin with it. */
static bool has_all_of(const struct pst_map_prefix *prefix, struct pst_bytes start, struct pst_bytes end)
{
    uint8_t behind[PENSTOCK_KEY_BYTES_MAX];
    struct pst_bytes first = {behind, pst_prefix_end(prefix->text, prefix->bytes, behind)};

    pst_assert(prefix->bytes <= PST_MAP_PREFIX_BYTES_MAX);
    return pst_bytes_begin(start, pst_map_prefix_text(prefix)) &&
           (!first.len || (end.len && pst_bytes_compare(end, first) <= 0));
}

/* Whether keys in [@start, @end) have a home; an empty @end: no end. */
static bool range_has_homes(const struct pst_map *map, struct pst_bytes start, struct pst_bytes end)
{
    uint32_t longest = 0; /* of those that all keys begin with: shorter ones have no say */

    pst_assert(map->prefix_count <= PST_MAP_PREFIXES_MAX);
    for (uint32_t i = 0; i < map->prefix_count; i++) {
        if (has_all_of(&map->prefixes[i], start, end))
            longest = (uint32_t)pst_max(longest, map->prefixes[i].bytes);
    }
    for (uint32_t i = 0; i < map->prefix_count; i++) {
        const struct pst_map_prefix *prefix = &map->prefixes[i];
        struct pst_bytes text = pst_map_prefix_text(prefix);
        bool around = pst_bytes_begin(start, text) && prefix->bytes >= longest;
        bool within = pst_bytes_compare(start, text) < 0 && (!end.len || pst_bytes_compare(text, end) < 0);

        if (prefix->placement == PST_PLACE_HOME && (around || within))
            return true;
    }
    return false;
}

static int pool_whole(struct penstock *store, struct pst_bytes start, struct pst_bytes end)
{
    const struct pst_map *map;
    uint32_t away = 0;
    bool homes;

    pst_enter(store);
    map = pst_pool_of(store)->map;
    pst_assert(map);
    homes = range_has_homes(map, start, end);
    for (uint32_t i = 0; homes && i < PST_PARTITIONS; i++)
        away +=
            map->partitions[i].state == PST_MAP_INCOMPLETE && !pst_map_partition_dealt(&map->partitions[i]);
    pst_leave(store);
    return away ? pst_fail(-EHOSTUNREACH,
                           "%s: the members that have %" PRIu32
                           " of the %d partitions are away: keys would be missing",
                           store->url, away, PST_PARTITIONS)
                : 0;
}

/* True where it is not known who is asked: nobody serves the partition, or no master says who does by now. */
static bool pool_finds(struct penstock *store, uint32_t shard, struct pst_bytes key)
{
    struct pool *pool = pst_pool_of(store);
    const struct pool_node *primary =
        pool->newest && pst_pool_key_home(pool, key) ? pst_pool_primary(pool, key) : NULL;

    pst_assert(shard < pool->shard_count);
    return !primary || pool->shards[shard].node == primary;
}

static void pool_look(struct penstock *store, struct penstock_op *op, struct pst_op_list *done)
{
    pst_assert(done);
    pst_assert(pst_pool_of(store)->master_count > 0);
    *op = (struct penstock_op){.code = PST_POOL_MAP};
    pst_pool_submit(store, op, POOL_SHARD_OF_MASTER, done);
}

static uint64_t pool_layout(struct penstock *store)
{
    const struct pst_map *map = pst_pool_of(store)->map;
    uint64_t layout = 0;

    for (uint32_t i = 0; map && i < map->members_max; i++) {
        uint64_t epoch = map->members[i].gone ? 0 : map->members[i].epoch;

        layout = pst_hash64(&epoch, sizeof(epoch), layout);
    }
    for (uint32_t i = 0; map && i < PST_PARTITIONS; i++) {
        const struct pst_map_partition *partition = &map->partitions[i];
        const uint64_t whose[] = {pst_map_lineage(partition->epoch), partition->state,
                                  partition->replicas[0]};

        layout = pst_hash64(whose, sizeof(whose), layout);
    }
    return layout;
}

static uint64_t pool_places(struct penstock *store)
{
    const struct pool *pool = pst_pool_of(store);
    uint64_t places = pool->map ? pool->map->version : 0;

    for (uint32_t i = 0; pool->map && i < pool->map->members_max; i++) {
        const struct pool_node *node = pool->nodes[i];
        uint64_t seed = node && node->peer.channel ? pst_channel_seed(node->peer.channel) : 0;

        if (seed)
            places = pst_hash64(&seed, sizeof(seed), places);
    }
    return places;
}

static int pool_one_owner(struct penstock *store, const struct penstock_op *ops, size_t count)
{
    struct pool *pool = pst_pool_of(store);
    const struct pool_node *owner = NULL;

    pst_assert(pool->map);
    pst_assert(count > 0);
    for (size_t i = 0; i < count; i++) {
        struct pst_bytes key = {ops[i].key, ops[i].key_bytes};
        const struct pool_node *node = pst_pool_primary(pool, key);

        if (!pst_pool_key_home(pool, key))
            return pst_fail(-EOPNOTSUPP, "%s: key '%.*s': keys that may lie anywhere take no commits",
                            store->url, (int)pst_min(key.len, 100), (const char *)key.data);
        if (i > 0 && node != owner)
            return pst_fail(-EOPNOTSUPP, "%s: the keys of a commit belong to more than one node", store->url);
        owner = node;
    }
    return 0;
}

static const char *pool_lane(struct penstock *store)
{
    struct pool *pool = pst_pool_of(store);
    const char *lane = "none";

    for (uint32_t i = 0; i < PST_MAP_MEMBERS_MAX; i++) {
        const char *other = pool->nodes[i] && pool->nodes[i]->peer.channel
                                ? pst_channel_lane(pool->nodes[i]->peer.channel)
                                : lane;

        if (strcmp(lane, "none") != 0 && strcmp(other, lane) != 0)
            return "mixed";
        lane = other;
    }
    return lane;
}

/* ---- memory ---- */

/* Where a look-up finds it, near ones first: a value that lies anywhere may be on this host, too. */
static int pool_shard_to_view(struct penstock *store, struct pst_bytes key, int *shard)
{
    struct pool *pool = pst_pool_of(store);
    struct penstock_op op = {0};
    struct pool_node *node;
    bool home;
    int r;

    pst_enter(store);
    home = pst_pool_key_home(pool, key);
    *shard = (int)pool_shard_of(store, key);
    pst_leave(store);
    if (home)
        return 0;
    penstock_prep(&op, PENSTOCK_STAT_KEY, key.data, key.len);
    r = pst_run_one(store, &op, -1);
    if (r)
        return r;
    pst_enter(store);
    node = pst_pool_place_of(pool, key);
    if (node && pst_pool_node_shards(pool, node) == 0)
        *shard = (int)(node->shard_first + pst_channel_shard_of(node->peer.channel, key));
    pst_leave(store);
    return 0;
}

static int pool_map(struct penstock *store, int shard, uint64_t session, const struct pst_wire_piece *pieces,
                    uint32_t count, struct penstock_view *view)
{
    struct pool_node *node;

    pst_assert(shard >= 0 && shard < POOL_SHARDS_MAX);
    node = pst_pool_of(store)->shards[shard].node;
    if (!node || !node->peer.channel)
        return -ECONNRESET;
    return pst_arena_map_view(&node->arena_map, node->peer.channel, session, pieces, count, view);
}

static void pool_unmap(struct penstock *store, struct penstock_view *view)
{
    (void)store;
    pst_arena_map_unview(view);
}

static bool pool_view_lives(struct penstock *store, const struct penstock_view *view)
{
    const struct pool_node *node = pst_pool_of(store)->shards[(intptr_t)view->reserved[VIEW_SHARD]].node;

    return node && node->peer.channel && node->arena_map == view->reserved[VIEW_MAP] &&
           pst_arena_map_live(view, node->peer.channel);
}

static int pool_add_memory(struct penstock *store, void *addr, size_t bytes, void **handle)
{
    struct pool *pool = pst_pool_of(store);
    struct pst_net_options options = {.loopback_only = !pool->options.fabric_trusted};
    int r = pool->net ? 0 : pst_net_open(&options, &pool->net);

    if (r == -ENODEV || r == -ELIBACC) { /* nodes are reached over the stream, which has no use for it */
        *handle = NULL;
        return 0;
    }
    return r < 0 ? r : pst_net_register(pool->net, addr, bytes, handle);
}

static void pool_drop_memory(struct penstock *store, void *handle)
{
    if (handle)
        pst_net_unregister(pst_pool_of(store)->net, handle);
}

/* ---- figures ---- */

static void count_requests(const struct pool *pool, uint64_t *master, uint64_t *node)
{
    pst_assert(pool->master_count <= POOL_MASTERS_MAX);
    *master = pool->counts_closed[0];
    *node = pool->counts_closed[1];
    for (uint32_t i = 0; i < pool->master_count; i++) {
        if (pool->masters[i].channel)
            *master += pst_channel_requests(pool->masters[i].channel);
    }
    for (uint32_t i = 0; i < PST_MAP_SHARES_MAX; i++) {
        if (pool->shares[i].channel)
            *master += pst_channel_requests(pool->shares[i].channel);
    }
    for (uint32_t i = 0; i < PST_MAP_MEMBERS_MAX; i++) {
        if (pool->nodes[i] && pool->nodes[i]->peer.channel)
            *node += pst_channel_requests(pool->nodes[i]->peer.channel);
    }
    pst_assert(*node >= pool->counts_closed[1]);
}

static void pool_stat(struct penstock *store, struct penstock_stat *stat)
{
    struct pool *pool = pst_pool_of(store);

    pst_assert(pool->node_count <= PST_MAP_MEMBERS_MAX);
    count_requests(pool, &pool->counters.master_requests, &pool->counters.node_requests);
    stat->nodes = pool->node_count;
#define X(name, text) stat->pool_##name = pool->counters.name;
    PST_POOL_COUNTERS(X)
#undef X
}

/* ---- opening and closing ---- */

static void close_master(struct pool *pool, struct pool_peer *peer)
{
    peer->underway = 0; /* what is left waits for a master that says nothing */
    pst_list_remove(&peer->link);
    pst_pool_peer_close(pool, peer);
}

static void pool_close(struct penstock *store)
{
    struct pool *pool = pst_pool_of(store);
    uint64_t end_ns = pst_now_ns() + CLOSE_NS;

    pst_assert(pool->store == store);
    while (!pst_list_empty(&pool->busy) && pst_now_ns() < end_ns) {
        if (!pool_poll(store))
            usleep(200);
    }
    for (uint32_t i = 0; i < pool->master_count; i++)
        close_master(pool, &pool->masters[i]);
    for (uint32_t i = 0; i < PST_MAP_SHARES_MAX; i++)
        close_master(pool, &pool->shares[i]);
    pst_pool_nodes_close(pool);
    pst_pool_notes_free(pool);
    pst_pool_pool_ops_free(pool);
    while (store->memory_count)
        pool_drop_memory(store, store->memory[--store->memory_count].handle);
    pst_net_close(pool->net);
    pst_close_fd(&pool->poll_fd);
    pst_map_close(pool->map);
    pst_map_fetch_fini(&pool->fetch.map);
    free(pool->cache);
    pool->magic = 0;
    free(pool);
    store->pool = NULL;
}

const struct pst_backend pst_backend_pool = {
    .submit = pst_pool_submit,
    .flush = pool_flush,
    .poll = pool_poll,
    .fd = pool_fd,
    .arm = pool_arm,
    .shards = pool_shards,
    .shard_of = pool_shard_of,
    .shard_at = pool_shard_at,
    .shard_to_view = pool_shard_to_view,
    .refresh = pool_refresh,
    .whole = pool_whole,
    .finds = pool_finds,
    .look = pool_look,
    .layout = pool_layout,
    .places = pool_places,
    .one_owner = pool_one_owner,
    .stat = pool_stat,
    .lane = pool_lane,
    .map = pool_map,
    .unmap = pool_unmap,
    .view_lives = pool_view_lives,
    .add_memory = pool_add_memory,
    .drop_memory = pool_drop_memory,
    .close = pool_close,
};

/* "host:port,host:port". */
static int read_masters(struct pool *pool, const char *addresses)
{
    while (*addresses) {
        size_t len = strcspn(addresses, ",");
        char one[300];
        const char *fault;
        struct pool_peer *peer = &pool->masters[pool->master_count];
        int r;

        if (pool->master_count == POOL_MASTERS_MAX)
            return pst_fail(-EINVAL, "%s: more than %d masters", pool->store->url, POOL_MASTERS_MAX);
        snprintf(one, sizeof(one), "%.*s", (int)pst_min(len, sizeof(one) - 1), addresses);
        r = pst_boot_address_parse(one, &peer->at, &fault);
        if (r < 0)
            return pst_fail(r, "%s: '%s': %s", pool->store->url, one, fault);
        pst_list_init(&peer->link);
        pool->master_count++;
        pst_assert(pool->master_count <= POOL_MASTERS_MAX);
        addresses += len + (addresses[len] == ',');
    }
    return pool->master_count ? 0 : pst_fail(-EINVAL, "%s: no master", pool->store->url);
}

/* A master that stands by waits for the one that leads to answer, or to be followed. */
static bool one_stands_by(const struct pool *pool)
{
    for (uint32_t i = 0; i < pool->master_count; i++) {
        if (pool->masters[i].error == PST_POOL_STANDBY)
            return true;
    }
    return false;
}

static int first_map(struct pool *pool)
{
    uint64_t end_ns = pst_deadline_ns(pst_now_ns(), pool->options.connect_ms);
    struct penstock_op op = {.code = PST_POOL_MAP};
    int shard = POOL_SHARD_OF_MASTER;

    pst_assert(pool->master_count > 0);
    pst_assert(!pool->map);
    pst_run(pool->store, &op, 1, &shard);
    while (op.result < 0 && one_stands_by(pool) && pst_now_ns() < end_ns) {
        usleep(ELECTION_US);
        op = (struct penstock_op){.code = PST_POOL_MAP};
        pst_run(pool->store, &op, 1, &shard);
    }
    if (op.result == -EOPNOTSUPP)
        return pst_fail(-EPROTO, "%s: a node answers there, and no master", pool->store->url);
    for (uint32_t i = 0; i < pool->master_count && op.result < 0; i++) {
        if (pool->masters[i].error == op.result && pool->masters[i].channel)
            return pst_pool_peer_explain(pool, &pool->masters[i], op.result);
    }
    pst_assert(op.result != 0 || pool->map);
    return op.result; /* why there is not even a channel has been said */
}

int pst_pool_open(struct penstock *store, const char *addresses, const struct pst_channel_options *options,
                  const char *host, uint32_t replicas)
{
    struct pool *pool = calloc(1, sizeof(*pool));
    int r;

    pst_assert(!store->pool);
    pst_assert(!store->backend);
    pst_assert(replicas >= 1 && replicas <= PST_MAP_REPLICAS_MAX);
    if (!pool)
        return pst_fail(-ENOMEM, "out of memory");
    pool->magic = PST_POOL_MAGIC;
    pool->store = store;
    pool->options = *options;
    pool->options.impatient = true;
    pool->options.copies = (uint8_t)(replicas > 1 ? replicas : 0);
    pool->replicas = replicas;
    pool->due_ns = UINT64_MAX;
    pst_host_id(host, pool->host.bytes);
    for (uint32_t i = 0; i < PST_MAP_SHARES_MAX; i++)
        pst_list_init(&pool->shares[i].link);
    pst_list_init(&pool->busy);
    pst_list_init(&pool->idle);
    pst_list_init(&pool->waiting);
    pst_list_init(&pool->refused);
    pst_list_init(&pool->locating);
    pst_list_init(&pool->placing);
    pst_list_init(&pool->noted);
    pst_list_init(&pool->ended_nodes);
    store->pool = pool;
    store->backend = &pst_backend_pool;
    pool->cache = pst_pool_cache_open();
    pool->poll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (!pool->cache || pool->poll_fd < 0)
        return pst_fail(-ENOMEM, "no memory or descriptors for a pool");
    r = read_masters(pool, addresses);
    return r < 0 ? r : first_map(pool);
}
