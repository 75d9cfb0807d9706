/* SPDX-License-Identifier: Apache-2.0 */
/* peer.c: the processes of a pool that the client talks to: their channels, the nodes as the pool map names
 * them, and the numbers by which their shards are known. */
#include "client/pool/pool_priv.h"
#include "client/view_priv.h"

#include "base/clock.h"
#include "base/ms.h"

#include <stdio.h>

/* Each attempt costs its full time. */
#define SUSPECT_NS 5000000000ull

enum {
    RETRY_MS_MIN = 20,
    RETRY_MS_MAX = 1000,
    MASTER_MS = 3000,
};

/* ---- peers ---- */

void pst_pool_peer_failed(struct pool_peer *peer, int error)
{
    pst_assert(error < 0);
    peer->retry_ms = (uint32_t)pst_min(pst_max(2 * peer->retry_ms, RETRY_MS_MIN), RETRY_MS_MAX);
    peer->retry_ns = pst_deadline_ns(pst_now_ns(), peer->retry_ms);
    if (error == -ETIMEDOUT)
        peer->suspect_ns = pst_now_ns() + SUSPECT_NS;
    peer->error = error;
    pst_assert(peer->retry_ms >= RETRY_MS_MIN && peer->retry_ms <= RETRY_MS_MAX);
}

/* Or has a share of the directory, as a master has. */
static bool is_master(const struct pool *pool, const struct pool_peer *peer)
{
    return (peer >= pool->masters && peer < pool->masters + POOL_MASTERS_MAX) ||
           (peer >= pool->shares && peer < pool->shares + PST_MAP_SHARES_MAX);
}

/* Over its unix socket where that is in reach: views, and shared memory, want it. */
static int begin_channel(const struct pool *pool, struct pool_peer *peer, const char **fault)
{
    struct pst_channel_options options = pool->options;

    pst_assert(!peer->channel);
    options.address = peer->at;
    options.near = peer->near;
    if (is_master(pool, peer)) { /* the next one is to have its turn within an operation's time */
        options.timeout_ms = (uint32_t)pst_min(options.timeout_ms, MASTER_MS);
        options.connect_ms = (uint32_t)pst_min(options.connect_ms, MASTER_MS);
    }
    return pst_channel_begin(&options, &peer->channel, fault);
}

static int explain(const struct pool *pool, const struct pool_peer *peer, int error, const char *fault)
{
    char text[300];

    pst_boot_address_print(&peer->at, text, sizeof(text));
    return pst_fail(error, "%s: %s: %s", pool->store->url, text, fault);
}

int pst_pool_peer_explain(const struct pool *pool, const struct pool_peer *peer, int error)
{
    const char *fault = peer->channel ? pst_channel_fault(peer->channel) : "";

    pst_assert(error < 0);
    return explain(pool, peer, error, *fault ? fault : penstock_result_text(error));
}

int pst_pool_peer_open(struct pool *pool, struct pool_peer *peer)
{
    const char *fault = "";
    int r;

    if (peer->retry_ns && pst_now_ns() < peer->retry_ns)
        return peer->error;
    if (peer->channel)
        return 0;
    r = begin_channel(pool, peer, &fault);
    if (r < 0) {
        pst_pool_peer_failed(peer, r);
        return explain(pool, peer, r, fault);
    }
    return 0;
}

void pst_pool_peer_submit(struct pool *pool, struct pool_peer *peer, struct penstock_op *op, int shard,
                          struct pst_op_list *done, uint64_t until_ns)
{
    pst_assert(peer->channel);
    pst_assert((peer->underway == 0) == pst_list_empty(&peer->link));
    if (peer->underway++ == 0)
        pst_list_push_back(&pool->busy, &peer->link);
    peer->dirty = true;
    pst_channel_submit_until(peer->channel, op, shard, done, until_ns);
}

void pst_pool_peer_back(struct pool *pool, struct pool_peer *peer)
{
    pst_assert(peer->underway > 0);
    pst_assert(pool->magic == PST_POOL_MAGIC);
    pst_assert(!pst_list_empty(&peer->link));
    if (--peer->underway == 0)
        pst_list_remove(&peer->link);
}

void pst_pool_peer_close(struct pool *pool, struct pool_peer *peer)
{
    pst_assert(peer->underway == 0);
    pst_assert(pst_list_empty(&peer->link));
    if (peer->channel)
        pool->counts_closed[!is_master(pool, peer)] += pst_channel_requests(peer->channel);
    peer->channel = pst_channel_close(peer->channel);
}

/* ---- nodes ---- */

struct pool_node *pst_pool_node(struct pool *pool, uint16_t member)
{
    pst_assert(member >= PST_MAP_MEMBERS_MAX || !pool->nodes[member] ||
               pool->nodes[member]->member == member);
    return member < PST_MAP_MEMBERS_MAX ? pool->nodes[member] : NULL;
}

static void node_free(struct pool *pool, struct pool_node *node)
{
    pst_assert(node->ended);
    pst_assert(node->peer.underway == 0);
    pst_assert(node->shard_count == 0);
    pst_list_remove(&node->link);
    pst_arena_map_drop(&node->arena_map); /* views that are left keep it */
    pst_pool_peer_close(pool, &node->peer);
    free(node);
}

void pst_pool_node_back(struct pool *pool, struct pool_node *node)
{
    pst_assert(node->ended || pool->nodes[node->member] == node);
    pst_pool_peer_back(pool, &node->peer);
    if (node->peer.channel)
        pst_arena_map_check(&node->arena_map, node->peer.channel);
    if (node->ended && node->peer.underway == 0)
        node_free(pool, node);
}

static void forget_sides(struct pool *pool, struct pool_node *node)
{
    pst_assert(node->shard_first + node->shard_count <= pool->shard_count);
    for (uint32_t i = 0; i < node->shard_count; i++) {
        pst_assert(pool->shards[node->shard_first + i].node == node);
        pool->shards[node->shard_first + i].node = NULL;
    }
    node->shard_count = 0;
}

static void node_end(struct pool *pool, struct pool_node *node)
{
    pst_assert(!node->ended);
    pst_assert(pool->nodes[node->member] == node);
    pst_assert(pool->node_count > 0);
    pool->nodes[node->member] = NULL;
    pool->node_count--;
    forget_sides(pool, node);
    node->ended = true;
    pst_list_push_back(&pool->ended_nodes, &node->link);
    if (node->peer.underway == 0)
        node_free(pool, node);
}

/* Its addresses are a peer's words: one that cannot be parsed is nowhere. */
static void node_begin(struct pool *pool, uint16_t number)
{
    const struct pst_map_member *member = &pool->map->members[number];
    struct pool_node *node = calloc(1, sizeof(*node));
    char path[PST_MAP_ADDRESS_BYTES + 8];
    const char *fault;

    pst_assert(!pool->nodes[number]);
    pst_assert(member->epoch);
    pst_assert(pool->node_count < PST_MAP_MEMBERS_MAX);
    if (!node || pst_boot_address_parse(member->address, &node->peer.at, &fault) < 0) {
        free(node); /* as a node that cannot be reached: the next pool map brings it again */
        return;
    }
    snprintf(path, sizeof(path), "unix://%s", member->unix_path);
    if (!*member->unix_path || !pst_id_equal(&member->host, &pool->host) ||
        pst_boot_address_parse(path, &node->peer.near, &fault) < 0)
        node->peer.near = (struct pst_boot_address){0};
    node->id = member->id;
    node->host = member->host;
    node->epoch = member->epoch;
    node->member = number;
    pst_list_init(&node->link);
    pst_list_init(&node->peer.link);
    pool->nodes[number] = node;
    pool->node_count++;
}

/* A node that came back to its place keeps its channel, which connects anew by itself. */
static bool node_stays(const struct pool_node *node, const struct pst_map_member *member)
{
    struct pst_boot_address at;
    const char *fault;

    return member->epoch && !member->gone && pst_id_equal(&member->id, &node->id) &&
           pst_boot_address_parse(member->address, &at, &fault) == 0 && at.port == node->peer.at.port &&
           strcmp(at.host, node->peer.at.host) == 0;
}

void pst_pool_nodes_take(struct pool *pool)
{
    const struct pst_map *map = pool->map;

    pst_assert(map->members_max <= PST_MAP_MEMBERS_MAX);
    for (uint32_t i = 0; i < PST_MAP_MEMBERS_MAX; i++) {
        static const struct pst_map_member none;
        const struct pst_map_member *member = i < map->members_max ? &map->members[i] : &none;
        struct pool_node *node = pool->nodes[i];

        if (node && !node_stays(node, member)) {
            node_end(pool, node);
            node = NULL;
        }
        if (node && node->epoch != member->epoch) { /* it registered anew: it may be reached again */
            node->epoch = member->epoch;
            node->peer.retry_ns = 0;
        }
        if (!node && member->epoch && !member->gone)
            node_begin(pool, (uint16_t)i);
        if (pool->nodes[i])
            pool->nodes[i]->drains = member->drains;
    }
}

/* Its first session says how many shards it has. Lets go of the store's lock meanwhile. */
static int first_session(struct pool *pool, struct pool_node *node)
{
    struct penstock_op op = {.code = PST_WIRE_PING};
    struct pst_op_list done = {0};
    int r;

    pst_assert(!node->ended);
    pst_assert(node->peer.channel);
    pst_pool_peer_submit(pool, &node->peer, &op, 0, &done, UINT64_MAX);
    pst_wait(pool->store, &done, 1, UINT64_MAX);
    r = pst_channel_shards(node->peer.channel) ? 0 : op.result < 0 ? op.result : -ECONNRESET;
    if (r < 0) {
        pst_pool_peer_failed(&node->peer, r);
        pst_pool_peer_explain(pool, &node->peer, r);
    }
    if (node->ended)
        r = -ECONNRESET;
    pst_pool_node_back(pool, node);
    return r;
}

int pst_pool_node_shards(struct pool *pool, struct pool_node *node)
{
    int r = pst_pool_peer_open(pool, &node->peer);
    uint32_t shards;

    if (r == 0 && !pst_channel_shards(node->peer.channel))
        r = first_session(pool, node);
    if (r < 0)
        return r;
    shards = pst_channel_shards(node->peer.channel);
    if (node->shard_count == shards)
        return 0;
    forget_sides(pool, node); /* it came back with others */
    pst_assert(pool->shard_count <= POOL_SHARDS_MAX);
    pst_assert(!node->ended);
    if (pool->shard_count + shards > POOL_SHARDS_MAX)
        return pst_fail(-EMFILE, "%s: more than %d shards in the pool so far: open it anew", pool->store->url,
                        POOL_SHARDS_MAX);
    pst_assert(node->shard_count == 0);
    node->shard_first = pool->shard_count;
    node->shard_count = shards;
    for (uint32_t i = 0; i < shards; i++)
        pool->shards[pool->shard_count++] = (struct pool_shard){node, i};
    return 0;
}

void pst_pool_nodes_close(struct pool *pool)
{
    for (uint32_t i = 0; i < PST_MAP_MEMBERS_MAX; i++) {
        if (!pool->nodes[i])
            continue;
        pst_arena_map_close(&pool->nodes[i]->arena_map);
        node_end(pool, pool->nodes[i]);
    }
    pst_assert(pst_list_empty(&pool->ended_nodes));
    pst_assert(pool->node_count == 0);
}
