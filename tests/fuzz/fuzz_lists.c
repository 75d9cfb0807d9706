/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_lists.c: what a node answers to questions about many keys, to stat and to view, as the client reads
 * it: a store whose backend takes its answers from the input. Whatever they are, each call ends, and what it
 * gives lies inside of what came.
 */
#include "fuzz.h"

#include "client/client_priv.h"
#include "client/view_priv.h"

enum { ANSWERS_MAX = 64, ENTRIES_MAX = 2000 };

static struct fuzz input;
static int answers_left;

static void submit(struct penstock *store, struct penstock_op *op, int shard, struct pst_op_list *done)
{
    int r = pst_op_begin(op, shard, done);
    uint8_t how = (uint8_t)fuzz_number(&input, 1);
    size_t bytes;
    uint8_t *answer;

    (void)store;
    if (r == 0 && (how == 0xff || answers_left-- <= 0))
        r = -ECONNRESET;
    if (r < 0) {
        pst_op_end(op, r);
        return;
    }
    answer = fuzz_take(&input, pst_min(fuzz_number(&input, 2), op->bytes), &bytes);
    pst_op_copy_in(op, 0, answer, bytes);
    free(answer);
    op->generation = how & 1;
    op->value_bytes = bytes;
    pst_op_end(op, 0);
}

static void flush(struct penstock *store)
{
    (void)store;
}

static bool poll_nothing(struct penstock *store)
{
    (void)store;
    return false;
}

static uint32_t shards(struct penstock *store)
{
    (void)store;
    return 2;
}

static uint32_t shard_of(struct penstock *store, struct pst_bytes key)
{
    (void)store;
    return key.len & 1;
}

/* The node's word is taken for the places; remote.c compares them with the arenas. */
static int map(struct penstock *store, int shard, uint64_t session, const struct pst_wire_piece *pieces,
               uint32_t count, struct penstock_view *view)
{
    uint64_t sum = 0;

    (void)store;
    (void)shard;
    (void)session;
    pst_assert(count <= PST_VIEW_PIECES_MAX);
    for (uint32_t i = 0; i < count; i++) {
        pst_assert(pieces[i].bytes <= view->bytes);
        sum += pieces[i].bytes;
    }
    pst_assert(sum == view->bytes);
    view->data = "";
    return view->bytes & 1 ? -EOPNOTSUPP : 0;
}

static void unmap(struct penstock *store, struct penstock_view *view)
{
    (void)store;
    pst_assert(view->data);
}

static bool view_lives(struct penstock *store, const struct penstock_view *view)
{
    (void)store;
    return view->bytes & 2;
}

static const struct pst_backend backend = {
    .submit = submit,
    .flush = flush,
    .poll = poll_nothing,
    .shards = shards,
    .shard_of = shard_of,
    .map = map,
    .unmap = unmap,
    .view_lives = view_lives,
};

/* Keys come in order, each once, so the listing ends with the input. */
static void list(struct penstock *store)
{
    struct penstock_list_options options = {.size = sizeof(options), .prefix = "p", .prefix_bytes = 1};
    uint8_t last[2][PENSTOCK_KEY_BYTES_MAX];
    struct pst_bytes before = {last[0], 0};
    struct penstock_list *listing;
    struct penstock_entry entry;
    int r = penstock_list_open(store, &options, &listing);

    for (int i = 0; r == 0 && i < ENTRIES_MAX; i++) {
        int next = penstock_list_next(listing, &entry);

        if (next != 1)
            break;
        pst_assert(entry.key_bytes >= 1 && entry.key_bytes <= PENSTOCK_KEY_BYTES_MAX);
        memcpy(last[i & 1], entry.key, entry.key_bytes);
        pst_assert(pst_bytes_compare(before, (struct pst_bytes){last[i & 1], entry.key_bytes}) <= 0);
        before = (struct pst_bytes){last[i & 1], entry.key_bytes};
    }
    if (r == 0)
        penstock_list_close(listing);
}

static void view(struct penstock *store)
{
    struct penstock_view view = {.bytes = 77};
    int r = penstock_view(store, "key", 3, &view);

    pst_assert(r == 0 || view.bytes == 77); /* written on success only */
    if (r == 0)
        penstock_view_release(store, &view);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static struct penstock store = {.magic = PST_STORE_MAGIC, .backend = &backend, .url = "node://fuzz"};
    struct penstock_stat stat = {.size = sizeof(stat)};
    uint64_t count;

    input = (struct fuzz){data, bytes};
    answers_left = ANSWERS_MAX;
    switch (fuzz_number(&input, 1) & 7) {
    case 0:
        view(&store);
        break;
    case 1:
        penstock_stat(&store, &stat);
        break;
    case 2:
        penstock_clear(&store, &count);
        break;
    case 3:
        penstock_delete_prefix(&store, "key", 3, &count);
        break;
    default:
        list(&store);
    }
    return 0;
}
