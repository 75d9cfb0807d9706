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

static int explain(struct penstock *store, struct penstock_op *op)
{
    if (op->result == -EOPNOTSUPP)
        return pst_fail(op->result, "%s: no pool's master, which alone knows what engines hold", store->url);
    return pst_explain(store, op, op->result);
}

static int ask(struct penstock *store, struct penstock_op *op)
{
    int shard = store->pool ? POOL_SHARD_OF_MASTER : 0;

    pst_run(store, op, 1, &shard);
    return explain(store, op);
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

/* How a pool's blocks are hashed, and how many shares of the directory have them. */
struct pool_of_blocks {
    uint64_t seed;
    uint32_t shares;
};

/* Learns of the pool as it is now. */
static int learn(struct penstock *store, struct pool_of_blocks *known)
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
    if (r == 0)
        *known = (struct pool_of_blocks){map_of(store)->seed, map_of(store)->share_count};
    pst_leave(store);
    if (r == 0 && !store->pool && known->shares > 1)
        return pst_fail(-EOPNOTSUPP, "%s: one of the %u shares of the pool's directory: open the pool",
                        store->url, known->shares);
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

/* To who has one of the shares. */
struct question {
    uint32_t count;
    uint16_t places[PST_POOL_MATCH_MAX]; /* of its hashes among the names */
    uint8_t asks[sizeof(struct pst_pool_blocks) + PST_POOL_REPORT_MAX * sizeof(struct pst_hash128)];
    uint8_t answer[NODES_MAX * sizeof(struct pst_pool_match)];
};

/* To all of those that are concerned, which travel together. */
struct questions {
    struct pool_of_blocks known;
    uint32_t count;
    struct question *items;  /* room for one to each share; the first @count are asked */
    struct penstock_op *ops; /* likewise */
    int numbers[PST_MAP_SHARES_MAX];
};

_Static_assert((int)PST_POOL_REPORT_MAX == (int)PST_POOL_MATCH_MAX, "names in a question");

static void questions_fini(struct questions *qs)
{
    free(qs->items);
    free(qs->ops);
}

#define questions_cleanup __attribute__((cleanup(questions_fini)))

/* Learns of the pool. Return: 0 or -errno, explained. */
static int questions_init(struct penstock *store, struct questions *qs)
{
    int r;

    qs->items = NULL;
    qs->ops = NULL;
    r = learn(store, &qs->known);
    if (r != 0)
        return r;
    pst_assert(qs->known.shares >= 1 && qs->known.shares <= PST_MAP_SHARES_MAX);
    qs->items = calloc(qs->known.shares, sizeof(*qs->items));
    qs->ops = calloc(qs->known.shares, sizeof(*qs->ops));
    return qs->items && qs->ops ? 0 : pst_explain(store, NULL, -ENOMEM);
}

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

/* A question to the share, without hashes yet. */
static struct question *add_question(struct questions *qs, struct penstock *store, uint32_t share)
{
    struct question *q = &qs->items[qs->count];

    pst_assert(qs->count < qs->known.shares);
    pst_assert(share < qs->known.shares);
    q->count = 0;
    qs->numbers[qs->count++] = store->pool ? POOL_SHARD_OF_MASTER + (int)share : 0;
    return q;
}

/* Return: 0, or what the first of them that failed came to, explained. */
static int ask_all(struct penstock *store, struct questions *qs, uint8_t code, uint32_t flags,
                   const struct pst_pool_blocks *head, struct pst_hash128 (*hashes)[PST_POOL_MATCH_MAX])
{
    size_t head_bytes = head ? sizeof(*head) : 0;

    pst_assert(qs->count > 0);
    for (uint32_t i = 0; i < qs->count; i++) {
        struct question *q = &qs->items[i];

        qs->ops[i] = (struct penstock_op){
            .code = code, .flags = flags, .attrs = q->asks, .data = q->answer, .bytes = sizeof(q->answer)};
        qs->ops[i].attr_bytes = (uint16_t)pst_pool_put_items(q->asks, head, head_bytes, hashes[i],
                                                             sizeof(hashes[i][0]), q->count);
        pst_assert(qs->ops[i].attr_bytes <= sizeof(q->asks));
    }
    pst_run(store, qs->ops, qs->count, qs->numbers);
    for (uint32_t i = 0; i < qs->count; i++) {
        int r = explain(store, &qs->ops[i]);

        if (r != 0)
            return r;
    }
    return 0;
}

/* Asks with the first @count of @names behind @head, each of which falls to one share. */
static int ask_names(struct penstock *store, struct questions *qs, uint8_t code, uint32_t flags,
                     const struct pst_pool_blocks *head, const struct iovec *names, uint32_t count)
{
    struct question *of_share[PST_MAP_SHARES_MAX] = {NULL};
    pst_cleanup_free struct pst_hash128(*hashes)[PST_POOL_MATCH_MAX] =
        malloc(qs->known.shares * sizeof(*hashes));

    pst_assert(count <= PST_POOL_MATCH_MAX);
    if (!hashes)
        return pst_explain(store, NULL, -ENOMEM);
    qs->count = 0;
    for (uint32_t i = 0; i < count; i++) {
        struct pst_hash128 hash = pst_hash128(names[i].iov_base, names[i].iov_len, qs->known.seed);
        uint32_t share = pst_map_share_of(&hash, qs->known.shares);
        struct question *q = of_share[share] ? of_share[share] : add_question(qs, store, share);

        pst_assert(q->count < PST_POOL_MATCH_MAX);
        of_share[share] = q;
        hashes[q - qs->items][q->count] = hash;
        q->places[q->count++] = (uint16_t)i;
    }
    return ask_all(store, qs, code, flags, head, hashes);
}

/* Asks the share about all that there is behind @head. */
static int ask_share(struct penstock *store, struct questions *qs, uint32_t share, uint8_t code,
                     const struct pst_pool_blocks *head)
{
    struct pst_hash128 none[1][PST_POOL_MATCH_MAX];

    qs->count = 0;
    add_question(qs, store, share);
    return ask_all(store, qs, code, 0, head, none);
}

static int check_tier(int tier)
{
    _Static_assert((int)PENSTOCK_BLOCK_TIERS == (int)PST_POOL_BLOCK_TIERS, "tiers of blocks");
    return tier >= 0 && tier < PENSTOCK_BLOCK_TIERS ? 0 : pst_fail(-EINVAL, "%d is no tier of blocks", tier);
}

static int begin(struct penstock *store, const uint8_t node_id[16], int tier, uint8_t scope,
                 struct pst_pool_blocks *head, struct questions *qs)
{
    if (check_tier(tier) < 0)
        return -EINVAL;
    if (!node_id)
        return pst_fail(-EINVAL, "whose blocks they are is not said");
    *head = (struct pst_pool_blocks){.tier = (uint8_t)tier, .scope = scope};
    memcpy(head->id, node_id, sizeof(head->id));
    return questions_init(store, qs);
}

int penstock_blocks_report(struct penstock *store, const uint8_t node_id[16], int tier,
                           const struct iovec *names, size_t count, size_t *refused)
{
    questions_cleanup struct questions qs = {.count = 0};
    struct pst_pool_blocks head;
    size_t without_room = 0;
    int r = check_names(names, count);

    if (r == 0)
        r = begin(store, node_id, tier, PST_POOL_OF_HASHES, &head, &qs);
    for (size_t at = 0; r == 0 && at < count; at += part_of(count - at)) {
        r = ask_names(store, &qs, PST_POOL_REPORT, 0, &head, names + at, part_of(count - at));
        if (r == -ESTALE)
            r = pst_fail(-EHOSTUNREACH, "%s: the node whose blocks they are is no member of the pool",
                         store->url);
        for (uint32_t i = 0; i < qs.count; i++)
            without_room += qs.ops[i].generation;
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
    questions_cleanup struct questions qs = {.count = 0};
    struct pst_pool_blocks head;
    int r = check_names(names, count);

    if (r == 0)
        r = begin(store, node_id, tier, PST_POOL_OF_HASHES, &head, &qs);
    for (size_t at = 0; r == 0 && at < count; at += part_of(count - at))
        r = gone_is_done(ask_names(store, &qs, PST_POOL_REVOKE, 0, &head, names + at, part_of(count - at)));
    return r;
}

int penstock_blocks_revoke_tier(struct penstock *store, const uint8_t node_id[16], int tier)
{
    questions_cleanup struct questions qs = {.count = 0};
    struct pst_pool_blocks head;
    int r = begin(store, node_id, tier, PST_POOL_OF_TIER, &head, &qs);

    for (uint32_t share = 0; r == 0 && share < qs.known.shares; share++) {
        do
            r = gone_is_done(ask_share(store, &qs, share, PST_POOL_REVOKE, &head));
        while (r == 0 && qs.ops[0].result == 0 && qs.ops[0].generation == PST_POOL_REVOKE_MAX);
    }
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

/* A row of an answer; @at: which name is the first of the questions. */
static void add_row(struct penstock *store, struct found *found, const struct pst_pool_match *row, size_t at,
                    const struct question *q)
{
    size_t node = place_of(store, found, row->id);

    if (node == found->nodes_max)
        return;
    pst_assert(node < found->node_count);
    pst_assert(q->count <= PST_POOL_MATCH_MAX);
    for (uint32_t i = 0; i < q->count; i++) {
        uint8_t *tiers = &found->tiers[node * found->count + at + q->places[i]];

        pst_assert(at + q->places[i] < found->count);
        for (int tier = 0; tier < PENSTOCK_BLOCK_TIERS; tier++)
            *tiers |= (uint8_t)((row->tiers[tier][i / 64] >> i % 64 & 1) << tier);
        found->nodes[node].block_count += *tiers != 0;
    }
}

static void add_answers(struct penstock *store, struct found *found, const struct questions *qs, size_t at)
{
    struct pst_pool_match row;

    for (uint32_t i = 0; i < qs->count; i++) {
        pst_assert(qs->ops[i].value_bytes <= sizeof(qs->items[i].answer));
        for (size_t end = sizeof(row); end <= qs->ops[i].value_bytes; end += sizeof(row)) {
            memcpy(&row, qs->items[i].answer + end - sizeof(row), sizeof(row));
            add_row(store, found, &row, at, &qs->items[i]);
        }
    }
}

int penstock_blocks_match(struct penstock *store, const struct iovec *names, size_t count, int is_hit,
                          struct penstock_block_node *nodes, uint8_t *tiers, size_t *node_count)
{
    struct found found = {.nodes = nodes, .tiers = tiers, .count = count};
    questions_cleanup struct questions qs = {.count = 0};
    int r = check_names(names, count);

    if (r < 0)
        return r;
    if (!nodes || !tiers || !node_count || *node_count == 0)
        return pst_fail(-EINVAL, "no room for the nodes that have blocks");
    found.nodes_max = *node_count;
    if (count)
        r = questions_init(store, &qs);
    for (size_t at = 0; r == 0 && at < count; at += part_of(count - at)) {
        r = ask_names(store, &qs, PST_POOL_MATCH, is_hit ? PST_WIRE_HIT : 0, NULL, names + at,
                      part_of(count - at));
        if (r == 0)
            add_answers(store, &found, &qs, at);
    }
    if (r == 0)
        *node_count = found.node_count;
    return r;
}

static int take_hits(struct penstock *store, const struct questions *qs, uint32_t *hits)
{
    for (uint32_t i = 0; i < qs->count; i++) {
        const struct question *q = &qs->items[i];

        _Static_assert(PST_POOL_MATCH_MAX * sizeof(*hits) <= sizeof(q->answer), "counts in an answer");
        pst_assert(q->count <= PST_POOL_MATCH_MAX);
        if (qs->ops[i].value_bytes != q->count * sizeof(*hits))
            return pst_explain(store, NULL, -EPROTO);
        for (uint32_t at = 0; at < q->count; at++)
            memcpy(&hits[q->places[at]], q->answer + at * sizeof(*hits), sizeof(*hits));
    }
    return 0;
}

int penstock_blocks_hits(struct penstock *store, const struct iovec *names, size_t count, uint32_t *hits)
{
    questions_cleanup struct questions qs = {.count = 0};
    int r = check_names(names, count);

    if (r < 0 || count == 0)
        return r;
    if (!hits)
        return pst_fail(-EINVAL, "no room for the counts of hits");
    r = questions_init(store, &qs);
    for (size_t at = 0; r == 0 && at < count; at += part_of(count - at)) {
        r = ask_names(store, &qs, PST_POOL_HITS, 0, NULL, names + at, part_of(count - at));
        if (r == 0)
            r = take_hits(store, &qs, hits + at);
    }
    return r;
}
