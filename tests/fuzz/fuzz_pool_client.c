/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_pool_client.c: what masters and nodes of a pool answer, as the library reads it: views in pieces,
 * places of keys, results of operations, rows of blocks, some of them right. Channels are the fuzzer's.
 * Whatever comes, each call ends, and what it gives lies inside of what came.
 */
#include "fuzz.h"

#include "client/pool/pool_priv.h"

#include "lib/map_random.h"
#include "wire/pool_key.h"

enum { MEMBERS = 4, VIEWS = 4, ANSWERS_MAX = 400, CALLS_MAX = 6, OPS = 4, VALUE_BYTES = 3000, NAMES = 300 };

struct pst_channel {
    uint64_t requests;
};

static struct fuzz input;
static int answers_left;
static struct {
    uint8_t *bytes;
    size_t count;
} views[VIEWS];

/* ---- answers ---- */

static void answer(struct penstock_op *op, const void *data, size_t bytes)
{
    bytes = pst_min(bytes, op->bytes);
    pst_op_copy_in(op, 0, data, bytes);
    op->value_bytes = bytes;
}

/* A piece of one of the views, mostly of the same and as it should be. */
static void answer_view(struct penstock_op *op)
{
    uint32_t twist = fuzz_below(&input, 16), which = twist == 1 ? fuzz_below(&input, VIEWS) : 0;
    uint64_t at = pst_min(op->offset, views[which].count);
    size_t piece = pst_min(views[which].count - at, op->bytes - sizeof(struct pst_pool_map));
    struct pst_pool_map head = {.map_bytes = views[which].count};
    uint8_t *data = malloc(sizeof(head) + piece);

    pst_assert(data && op->bytes > sizeof(head));
    head.map_bytes = twist == 2 ? fuzz_number(&input, 3) : head.map_bytes;
    piece = twist == 3 ? pst_min(piece, fuzz_number(&input, 2)) : piece;
    memcpy(data, &head, sizeof(head));
    memcpy(data + sizeof(head), views[which].bytes + at, piece);
    if (twist == 4 && piece > 0)
        data[sizeof(head) + fuzz_below(&input, (uint32_t)piece)] ^= 1;
    answer(op, data, sizeof(head) + piece);
    op->generation = which + 1;
    free(data);
}

static void answer_routes(struct penstock_op *op)
{
    static uint8_t data[64 << 10];
    uint8_t *at = data;

    for (uint32_t i = 0; i < 64; i++) {
        struct pst_pool_route route = {.status = (uint8_t)fuzz_below(&input, 6),
                                       .place_count = (uint8_t)fuzz_below(&input, 4)};

        for (uint32_t p = 0; p < route.place_count; p++)
            route.places[p] = (struct pst_pool_place){.generation = fuzz_number(&input, 1),
                                                      .member = (uint16_t)fuzz_below(&input, MEMBERS + 1),
                                                      .tier = (uint8_t)fuzz_below(&input, 5)};
        at = pst_pool_put_route(at, &route);
    }
    answer(op, data, (size_t)(at - data) - fuzz_below(&input, 2) * fuzz_below(&input, 40));
}

static void answer_anything(struct penstock_op *op)
{
    size_t bytes;
    uint8_t *data = fuzz_take(&input, fuzz_below(&input, 4096), &bytes);

    answer(op, data, bytes);
    op->generation = fuzz_number(&input, 1);
    free(data);
}

static int some_result(void)
{
    static const int results[] = {
        PENSTOCK_MISS, PENSTOCK_EXISTS, PENSTOCK_STALE, PENSTOCK_BUSY, PENSTOCK_UNKNOWN, PST_POOL_NO_PRIMARY,
        -ESTALE,       -ECONNRESET,     -ETIMEDOUT,     -EINVAL,       -ENOSPC,          -EOPNOTSUPP,
        -ENOBUFS,      -EPROTO};
    uint32_t at = fuzz_below(&input, 2 * pst_count_of(results));

    return at < pst_count_of(results) ? results[at] : 0;
}

/* ---- channels ---- */

int __wrap_pst_channel_begin(const struct pst_channel_options *options, struct pst_channel **out,
                             const char **fault);
struct pst_channel *__wrap_pst_channel_close(struct pst_channel *channel);
void __wrap_pst_channel_submit_until(struct pst_channel *channel, struct penstock_op *op, int shard,
                                     struct pst_op_list *done, uint64_t until_ns);
void __wrap_pst_channel_flush(struct pst_channel *channel);
bool __wrap_pst_channel_poll(struct pst_channel *channel);
int __wrap_pst_channel_fd(struct pst_channel *channel);
int __wrap_pst_channel_arm(struct pst_channel *channel);
bool __wrap_pst_channel_connecting(const struct pst_channel *channel);
const char *__wrap_pst_channel_fault(const struct pst_channel *channel);
uint32_t __wrap_pst_channel_shards(const struct pst_channel *channel);
uint32_t __wrap_pst_channel_shard_of(const struct pst_channel *channel, struct pst_bytes key);
uint64_t __wrap_pst_channel_seed(const struct pst_channel *channel);
const char *__wrap_pst_channel_lane(const struct pst_channel *channel);
uint32_t __wrap_pst_channel_arenas(const struct pst_channel *channel, const int **fds, uint64_t *stride);
uint64_t __wrap_pst_channel_requests(const struct pst_channel *channel);
uint64_t __wrap_pst_channel_session(const struct pst_channel *channel);

int __wrap_pst_channel_begin(const struct pst_channel_options *options, struct pst_channel **out,
                             const char **fault)
{
    (void)options;
    *fault = "the fuzzer says so";
    if (fuzz_below(&input, 64) == 1)
        return -ECONNREFUSED;
    *out = calloc(1, sizeof(**out));
    pst_assert(*out);
    return 0;
}

struct pst_channel *__wrap_pst_channel_close(struct pst_channel *channel)
{
    free(channel);
    return NULL;
}

void __wrap_pst_channel_submit_until(struct pst_channel *channel, struct penstock_op *op, int shard,
                                     struct pst_op_list *done, uint64_t until_ns)
{
    int r = pst_op_begin(op, shard, done);

    (void)until_ns;
    channel->requests++;
    if (r == 0 && answers_left-- <= 0)
        r = -ECONNRESET;
    if (r == 0 && op->code == PST_POOL_MAP)
        answer_view(op);
    else if (r == 0 && (r = some_result()) == 0 &&
             (op->code == PST_POOL_LOCATE || op->code == PST_POOL_PLACE))
        answer_routes(op);
    else if (r == 0)
        answer_anything(op);
    pst_op_end(op, r);
}

void __wrap_pst_channel_flush(struct pst_channel *channel)
{
    (void)channel;
}

bool __wrap_pst_channel_poll(struct pst_channel *channel)
{
    (void)channel;
    return false;
}

int __wrap_pst_channel_fd(struct pst_channel *channel)
{
    (void)channel;
    return -1;
}

int __wrap_pst_channel_arm(struct pst_channel *channel)
{
    (void)channel;
    return 0;
}

bool __wrap_pst_channel_connecting(const struct pst_channel *channel)
{
    (void)channel;
    return false;
}

const char *__wrap_pst_channel_fault(const struct pst_channel *channel)
{
    (void)channel;
    return "";
}

uint32_t __wrap_pst_channel_shards(const struct pst_channel *channel)
{
    (void)channel;
    return 2;
}

uint32_t __wrap_pst_channel_shard_of(const struct pst_channel *channel, struct pst_bytes key)
{
    (void)channel;
    return key.len & 1;
}

uint64_t __wrap_pst_channel_seed(const struct pst_channel *channel)
{
    (void)channel;
    return 1;
}

const char *__wrap_pst_channel_lane(const struct pst_channel *channel)
{
    (void)channel;
    return "";
}

uint32_t __wrap_pst_channel_arenas(const struct pst_channel *channel, const int **fds, uint64_t *stride)
{
    (void)channel;
    (void)fds;
    (void)stride;
    return 0;
}

uint64_t __wrap_pst_channel_requests(const struct pst_channel *channel)
{
    return channel->requests;
}

uint64_t __wrap_pst_channel_session(const struct pst_channel *channel)
{
    (void)channel;
    return 1;
}

/* ---- calls ---- */

static void batch(struct penstock *store)
{
    static const char *const keys[] = {"a", "bb", "h/c", "h/dd"};
    static uint8_t values[OPS][VALUE_BYTES];
    struct penstock_op ops[OPS] = {{.code = 0}};

    for (uint32_t i = 0; i < OPS; i++) {
        const char *key = keys[fuzz_below(&input, pst_count_of(keys))];
        uint32_t kind = fuzz_below(&input, 4);

        penstock_prep(&ops[i],
                      kind == 0   ? PENSTOCK_PUT
                      : kind == 1 ? PENSTOCK_DELETE
                      : kind == 2 ? PENSTOCK_STAT_KEY
                                  : PENSTOCK_GET,
                      key, strlen(key));
        ops[i].data = kind == 0 || kind == 3 ? values[i] : NULL;
        ops[i].bytes = ops[i].data ? sizeof(values[i]) : 0;
    }
    penstock_batch(store, ops, OPS);
    for (uint32_t i = 0; i < OPS; i++)
        if (ops[i].code == PENSTOCK_GET && ops[i].result == 0)
            pst_assert(ops[i].value_bytes <= sizeof(values[i]));
}

static void blocks(struct penstock *store)
{
    static uint8_t tiers[3 * NAMES];
    struct penstock_block_node nodes[3];
    struct iovec names[NAMES];
    uint32_t hits[NAMES];
    size_t count = pst_count_of(nodes);

    for (uint32_t i = 0; i < NAMES; i++)
        names[i] = (struct iovec){(void *)(uintptr_t) "block", 1 + i % 5};
    if (penstock_blocks_match(store, names, NAMES, 0, nodes, tiers, &count) == 0)
        pst_assert(count <= pst_count_of(nodes));
    (void)penstock_blocks_hits(store, names, NAMES, hits);
}

static void list(struct penstock *store)
{
    struct penstock_list *listing;
    struct penstock_entry entry;

    if (penstock_list_open(store, NULL, &listing) != 0)
        return;
    for (int i = 0; i < 100 && penstock_list_next(listing, &entry) == 1; i++)
        pst_assert(entry.key_bytes >= 1 && entry.key_bytes <= PENSTOCK_KEY_BYTES_MAX);
    penstock_list_close(listing);
}

static void make_views(void)
{
    for (uint32_t i = 0; i < VIEWS; i++) {
        struct pst_map *view = map_random(MEMBERS, i + 1);
        size_t room = pst_map_bytes_max(MEMBERS);

        view->pool.bytes[0] = i == VIEWS - 1; /* the last one is another pool's */
        views[i].bytes = malloc(room);
        pst_assert(views[i].bytes);
        views[i].count = pst_map_encode(view, views[i].bytes, room);
        pst_map_close(view);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static void (*const calls[])(struct penstock * store) = {batch, batch, batch, blocks, list};
    struct penstock_options options = {.size = sizeof(options), .timeout_ms = 1, .connect_ms = 1};
    struct penstock_stat stat = {.size = sizeof(stat)};
    struct penstock *store;

    if (!views[0].bytes)
        make_views();
    input = (struct fuzz){data, bytes};
    answers_left = ANSWERS_MAX;
    if (penstock_open("pool://127.0.0.1:1,127.0.0.1:2", &options, &store) != 0)
        return 0;
    for (int i = 0; i < CALLS_MAX && input.left > 0; i++)
        calls[fuzz_below(&input, pst_count_of(calls))](store);
    (void)penstock_stat(store, &stat);
    penstock_close(store);
    return 0;
}
