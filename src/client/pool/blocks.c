/* SPDX-License-Identifier: Apache-2.0 */
/*
 * blocks.c: which blocks engines hold in memory of their own, as a pool's master knows it. Blocks are asked
 * for by name; what travels is a hash, keyed as the pool's pool map says, and the answers' bits are names
 * again by their places in the question.
 */
#include "client/pool/pool_priv.h"
#include "wire/pool_block.h"

#include <stdio.h>

enum {
    MAP_RESTARTS_MAX = 100, /* of a fetch, as pool maps change meanwhile */
    NODES_MAX = 64,         /* in one answer */
};

static int ask(struct penstock *store, struct penstock_op *op)
{
    int shard = store->pool ? POOL_SHARD_OF_MASTER : 0;

    pst_run(store, op, 1, &shard);
    if (op->result == -EOPNOTSUPP)
        return pst_fail(op->result, "%s: no pool's master, which alone knows what engines hold", store->url);
    return pst_explain(store, op, op->result);
}

/* ---- the pool's pool map: the seed of hashes, and where members are ---- */

/* *@out is NULL when the pool map is that of version @known. */
static int fetch_map(struct penstock *store, uint8_t piece[PST_POOL_ANSWER_BYTES], uint64_t known,
                     struct pst_map **out)
{
    struct pst_map_fetch fetch = {.bytes = NULL};
    int r = 1;

    *out = NULL;
    while (r == 1 && fetch.restarts < MAP_RESTARTS_MAX) {
        struct penstock_op op = {.code = PST_POOL_MAP,
                                 .known_version = known,
                                 .offset = fetch.at,
                                 .data = piece,
                                 .bytes = PST_POOL_ANSWER_BYTES};

        r = ask(store, &op);
        if (r != 0) {
            pst_map_fetch_fini(&fetch);
            return r;
        }
        r = pst_map_fetch_take(&fetch, (struct pst_bytes){piece, op.value_bytes}, op.generation);
    }
    if (r == 0 && fetch.map_bytes)
        r = pst_map_fetch_decode(&fetch, PST_MAP_MEMBERS_MAX, out);
    pst_map_fetch_fini(&fetch);
    return r == 0 ? 0 : pst_explain(store, NULL, r < 0 ? r : PENSTOCK_BUSY);
}

/* The store is entered. */
static const struct pst_map *map_of(const struct penstock *store)
{
    return store->pool ? store->pool->map : store->map;
}

/* Asks the store itself, which may be the master. */
static int learn_by_itself(struct penstock *store)
{
    pst_cleanup_free uint8_t *piece = NULL;
    struct pst_map *map;
    uint64_t known;
    int r;

    if (!store->channel)
        return pst_fail(-EOPNOTSUPP, "%s: no pool's master, which alone knows what engines hold", store->url);
    piece = malloc(PST_POOL_ANSWER_BYTES);
    if (!piece)
        return pst_explain(store, NULL, -ENOMEM);
    pst_assert(!store->pool);
    pst_enter(store);
    known = store->map ? store->map->version : 0;
    pst_leave(store);
    r = fetch_map(store, piece, known, &map);
    if (r == 0) {
        pst_enter(store);
        if (map) {
            pst_map_close(store->map);
            store->map = map;
        }
        pst_leave(store);
    }
    return r;
}

/* Learns of the pool as it is now, and how its blocks are hashed. */
static int learn(struct penstock *store, uint64_t *seed)
{
    int r = pst_store_check(store);

    if (r < 0)
        return r;
    if (store->pool) {
        struct penstock_op op = {.code = PST_POOL_MAP};

        r = ask(store, &op);
    } else {
        r = learn_by_itself(store);
    }
    if (r != 0)
        return r;
    pst_enter(store);
    r = map_of(store) ? 0 : -EPROTO;
    *seed = r == 0 ? map_of(store)->seed : 0;
    pst_leave(store);
    return pst_explain(store, NULL, r);
}

static void name_node(struct penstock *store, const uint8_t id[16], struct penstock_block_node *node)
{
    const struct pst_map *map;
    struct pst_id member;
    uint16_t number;

    _Static_assert(sizeof(node->address) == PST_MAP_ADDRESS_BYTES && sizeof(node->id) == sizeof(member),
                   "a member's name");
    memcpy(node->id, id, sizeof(node->id));
    memcpy(&member, id, sizeof(member));
    pst_enter(store);
    map = map_of(store);
    number = pst_map_find(map, &member);
    pst_assert(number == PST_MAP_NONE || number < map->members_max);
    if (number != PST_MAP_NONE)
        memcpy(node->address, map->members[number].address, sizeof(node->address));
    pst_leave(store);
}

/* ---- questions ---- */

struct question {
    struct penstock_op op;
    uint8_t asks[sizeof(struct pst_pool_blocks) + PST_POOL_REPORT_MAX * sizeof(struct pst_hash128)];
    uint8_t answer[NODES_MAX * sizeof(struct pst_pool_match)];
};

_Static_assert((int)PST_POOL_REPORT_MAX == (int)PST_POOL_MATCH_MAX, "names in a question");

static int check_names(const struct iovec *names, size_t count)
{
    if (count && !names)
        return pst_fail(-EINVAL, "no names of blocks");
    for (size_t i = 0; i < count; i++) {
        if (!names[i].iov_base || !names[i].iov_len)
            return pst_fail(-EINVAL, "the name of block %zu is empty", i);
    }
    return 0;
}

/* How many of @left names go into a question. */
static uint32_t part_of(size_t left)
{
    pst_assert(left > 0);
    return (uint32_t)pst_min(left, PST_POOL_MATCH_MAX);
}

/* Asks with the first @count of @names behind @head. */
static int ask_names(struct penstock *store, struct question *q, uint8_t code,
                     const struct pst_pool_blocks *head, const struct iovec *names, uint32_t count,
                     uint64_t seed)
{
    struct pst_hash128 hashes[PST_POOL_MATCH_MAX];
    uint32_t flags = q->op.flags;

    pst_assert(count <= PST_POOL_MATCH_MAX);
    for (uint32_t i = 0; i < count; i++)
        hashes[i] = pst_hash128(names[i].iov_base, names[i].iov_len, seed);
    q->op = (struct penstock_op){
        .code = code, .flags = flags, .attrs = q->asks, .data = q->answer, .bytes = sizeof(q->answer)};
    q->op.attr_bytes = (uint16_t)pst_pool_put_items(q->asks, head, head ? sizeof(*head) : 0, hashes,
                                                    sizeof(hashes[0]), count);
    pst_assert(q->op.attr_bytes <= sizeof(q->asks));
    return ask(store, &q->op);
}

static int check_tier(int tier)
{
    _Static_assert((int)PENSTOCK_BLOCK_TIERS == (int)PST_POOL_BLOCK_TIERS, "tiers of blocks");
    return tier >= 0 && tier < PENSTOCK_BLOCK_TIERS ? 0 : pst_fail(-EINVAL, "%d is no tier of blocks", tier);
}

static int begin(struct penstock *store, const uint8_t node_id[16], int tier, uint8_t scope,
                 struct pst_pool_blocks *head, uint64_t *seed)
{
    if (check_tier(tier) < 0)
        return -EINVAL;
    if (!node_id)
        return pst_fail(-EINVAL, "whose blocks they are is not said");
    *head = (struct pst_pool_blocks){.tier = (uint8_t)tier, .scope = scope};
    memcpy(head->id, node_id, sizeof(head->id));
    return learn(store, seed);
}

int penstock_blocks_report(struct penstock *store, const uint8_t node_id[16], int tier,
                           const struct iovec *names, size_t count, size_t *refused)
{
    struct pst_pool_blocks head;
    struct question q = {0};
    size_t without_room = 0;
    uint64_t seed = 0;
    int r = check_names(names, count);

    if (r == 0)
        r = begin(store, node_id, tier, PST_POOL_OF_HASHES, &head, &seed);
    for (size_t at = 0; r == 0 && at < count; at += part_of(count - at)) {
        r = ask_names(store, &q, PST_POOL_REPORT, &head, names + at, part_of(count - at), seed);
        if (r == -ESTALE)
            r = pst_fail(-EHOSTUNREACH, "%s: the node whose blocks they are is no member of the pool",
                         store->url);
        without_room += q.op.generation;
    }
    if (r == 0 && refused)
        *refused = without_room;
    return r;
}

/* What a node has that is a member no more went with it. */
static int gone_is_done(int r)
{
    return r == -ESTALE ? 0 : r;
}

int penstock_blocks_revoke(struct penstock *store, const uint8_t node_id[16], int tier,
                           const struct iovec *names, size_t count)
{
    struct pst_pool_blocks head;
    struct question q = {0};
    uint64_t seed = 0;
    int r = check_names(names, count);

    if (r == 0)
        r = begin(store, node_id, tier, PST_POOL_OF_HASHES, &head, &seed);
    for (size_t at = 0; r == 0 && at < count; at += part_of(count - at))
        r = gone_is_done(ask_names(store, &q, PST_POOL_REVOKE, &head, names + at, part_of(count - at), seed));
    return r;
}

int penstock_blocks_revoke_tier(struct penstock *store, const uint8_t node_id[16], int tier)
{
    struct pst_pool_blocks head;
    struct question q = {0};
    uint64_t seed = 0;
    int r = begin(store, node_id, tier, PST_POOL_OF_TIER, &head, &seed);

    do {
        if (r == 0)
            r = gone_is_done(ask_names(store, &q, PST_POOL_REVOKE, &head, NULL, 0, seed));
    } while (r == 0 && q.op.result == 0 && q.op.generation == PST_POOL_REVOKE_MAX);
    return r;
}

/* ---- who has what ---- */

/* What is found of @names, of which @count is the number. */
struct found {
    struct penstock_block_node *nodes;
    uint8_t *tiers;
    size_t count, nodes_max, node_count;
};

/* The node's place among those found so far; nodes_max: there is no room for it. */
static size_t place_of(struct penstock *store, struct found *found, const uint8_t id[16])
{
    size_t i = 0;

    pst_assert(found->node_count <= found->nodes_max);
    while (i < found->node_count && memcmp(found->nodes[i].id, id, sizeof(found->nodes[i].id)) != 0)
        i++;
    if (i == found->node_count && i < found->nodes_max) {
        found->nodes[i] = (struct penstock_block_node){0};
        memset(found->tiers + i * found->count, 0, found->count);
        name_node(store, id, &found->nodes[i]);
        found->node_count++;
    }
    pst_assert(i <= found->nodes_max);
    return i;
}

/* A row of the answer to the question that began with name @at. */
static void add_row(struct penstock *store, struct found *found, const struct pst_pool_match *row, size_t at,
                    uint32_t count)
{
    size_t node = place_of(store, found, row->id);

    if (node == found->nodes_max)
        return;
    pst_assert(at + count <= found->count);
    pst_assert(node < found->node_count);
    pst_assert(count <= PST_POOL_MATCH_MAX);
    for (uint32_t i = 0; i < count; i++) {
        uint8_t *tiers = &found->tiers[node * found->count + at + i];

        for (int tier = 0; tier < PENSTOCK_BLOCK_TIERS; tier++)
            *tiers |= (uint8_t)((row->tiers[tier][i / 64] >> i % 64 & 1) << tier);
        found->nodes[node].block_count += *tiers != 0;
    }
}

int penstock_blocks_match(struct penstock *store, const struct iovec *names, size_t count, int is_hit,
                          struct penstock_block_node *nodes, uint8_t *tiers, size_t *node_count)
{
    struct found found = {.nodes = nodes, .tiers = tiers, .count = count};
    struct pst_pool_match row;
    uint64_t seed = 0;
    int r = check_names(names, count);

    if (r < 0)
        return r;
    if (!nodes || !tiers || !node_count || *node_count == 0)
        return pst_fail(-EINVAL, "no room for the nodes that have blocks");
    found.nodes_max = *node_count;
    if (count)
        r = learn(store, &seed);
    for (size_t at = 0; r == 0 && at < count; at += part_of(count - at)) {
        struct question q = {.op.flags = is_hit ? PST_WIRE_HIT : 0};

        r = ask_names(store, &q, PST_POOL_MATCH, NULL, names + at, part_of(count - at), seed);
        for (size_t end = sizeof(row); r == 0 && end <= q.op.value_bytes; end += sizeof(row)) {
            memcpy(&row, q.answer + end - sizeof(row), sizeof(row));
            add_row(store, &found, &row, at, part_of(count - at));
        }
    }
    if (r == 0)
        *node_count = found.node_count;
    return r;
}

int penstock_blocks_hits(struct penstock *store, const struct iovec *names, size_t count, uint32_t *hits)
{
    struct question q = {0};
    uint64_t seed = 0;
    int r = check_names(names, count);

    if (r < 0 || count == 0)
        return r;
    if (!hits)
        return pst_fail(-EINVAL, "no room for the counts of hits");
    r = learn(store, &seed);
    for (size_t at = 0; r == 0 && at < count; at += part_of(count - at)) {
        uint32_t part = part_of(count - at);

        r = ask_names(store, &q, PST_POOL_HITS, NULL, names + at, part, seed);
        if (r == 0 && q.op.value_bytes != part * sizeof(*hits))
            r = pst_explain(store, NULL, -EPROTO);
        if (r == 0)
            memcpy(hits + at, q.answer, part * sizeof(*hits));
    }
    return r;
}
