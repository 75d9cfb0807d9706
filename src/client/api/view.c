/* SPDX-License-Identifier: Apache-2.0 */
/* view.c: values read in place: the store keeps the bytes where they are, this process maps them. */
#include "client/view_priv.h"

enum {
    RELEASES_MAX = 4096,
    TRIES_MAX = 4,
};

struct answer {
    struct pst_wire_view view;
    struct pst_wire_piece pieces[PST_VIEW_PIECES_MAX];
};

static int check_answer(const struct penstock_op *op, const struct answer *answer)
{
    uint64_t sum = 0;

    pst_assert(op->code == PST_WIRE_VIEW);
    pst_assert(op->result == 0);
    pst_assert(op->value_bytes <= sizeof(*answer));
    if (op->value_bytes < sizeof(answer->view) || answer->view.handle == 0 ||
        answer->view.piece_count > PST_VIEW_PIECES_MAX ||
        op->value_bytes != sizeof(answer->view) + answer->view.piece_count * sizeof(answer->pieces[0]))
        return -EPROTO;
    for (uint32_t i = 0; i < answer->view.piece_count; i++)
        if (pst_add_overflows(sum, answer->pieces[i].bytes, &sum))
            return -EPROTO;
    return sum == answer->view.value_bytes ? 0 : -EPROTO;
}

/* Those that have ended. */
static void reap_releases(struct penstock *store)
{
    struct penstock_op *op;

    while ((op = pst_op_list_pop(&store->released)) != NULL) {
        pst_assert(store->releases > 0);
        store->releases--;
        free(op);
    }
}

void pst_views_settle(struct penstock *store)
{
    if (store->releases)
        pst_wait(store, &store->released, store->releases, UINT64_MAX);
    reap_releases(store);
    pst_assert(store->releases == 0);
}

/* Sends the release and does not wait for its answer: the memory is given up here already, and what becomes
 * of the node's pin is the node's. An embedded store is done when it returns. */
static void release_handle(struct penstock *store, uint64_t handle, int shard)
{
    struct penstock_op release = {.code = PST_WIRE_RELEASE, .handle = handle};
    struct penstock_op *op = store->backend->locks_itself ? NULL : malloc(sizeof(*op));

    pst_assert(handle != 0);
    pst_assert(shard >= 0);
    if (!op) {
        pst_run(store, &release, 1, &shard);
        return;
    }
    *op = release;
    pst_enter(store);
    if (store->releases == RELEASES_MAX)
        pst_views_settle(store);
    reap_releases(store);
    store->releases++;
    pst_assert(store->releases <= RELEASES_MAX);
    store->backend->submit(store, op, shard, &store->released);
    store->backend->flush(store);
    pst_leave(store);
}

static int shard_to_view(struct penstock *store, struct pst_bytes key, int *shard)
{
    pst_assert(key.len > 0);
    if (store->backend->shard_to_view)
        return store->backend->shard_to_view(store, key, shard);
    pst_enter(store);
    *shard = (int)store->backend->shard_of(store, key);
    pst_leave(store);
    return 0;
}

/* Waits until a node answers for the key, as every operation on a key waits. Return: 0, or why none does. */
static int wait_for_node(struct penstock *store, struct pst_bytes key)
{
    struct penstock_op op = {0};

    penstock_prep(&op, PENSTOCK_STAT_KEY, key.data, key.len);
    return pst_run_one(store, &op, -1);
}

/* Asks the key's shard, whose number the view's release will need. A node that came back with other shards,
 * while the question was on its way, says so, and so does a member of a pool that has given the key away. */
static int ask(struct penstock *store, struct pst_bytes key, struct answer *answer, struct penstock_op *op,
               int *shard)
{
    int r = -ESTALE;

    for (int tries = 0; tries < TRIES_MAX && r == -ESTALE; tries++) {
        r = tries > 0 ? wait_for_node(store, key) : 0;
        if (r == 0)
            r = shard_to_view(store, key, shard);
        if (r)
            return r;
        *op = (struct penstock_op){0};
        penstock_prep(op, (enum penstock_code)PST_WIRE_VIEW, key.data, key.len);
        op->data = answer;
        op->bytes = sizeof(*answer);
        r = pst_run_one(store, op, *shard);
    }
    return r;
}

int penstock_view(struct penstock *store, const void *key, size_t key_bytes, struct penstock_view *view)
{
    pst_cleanup_free struct answer *answer = malloc(sizeof(*answer));
    struct penstock_op op;
    struct penstock_view made;
    int shard, r = pst_store_check(store);

    if (r < 0)
        return r;
    if (!view || !key || !key_bytes)
        return pst_fail(-EINVAL, "%s: %s", store->url, view ? "empty key" : "no view");
    if (key_bytes > PENSTOCK_KEY_BYTES_MAX)
        return pst_fail(-ENAMETOOLONG, "%s: key longer than %d bytes", store->url, PENSTOCK_KEY_BYTES_MAX);
    if (!answer)
        return pst_fail(-ENOMEM, "out of memory");
    r = ask(store, (struct pst_bytes){key, key_bytes}, answer, &op, &shard);
    if (r)
        return r;
    pst_assert(shard >= 0);
    r = check_answer(&op, answer);
    if (r < 0)
        return pst_explain(store, &op, r);
    made = (struct penstock_view){.bytes = answer->view.value_bytes, .generation = op.generation};
    made.reserved[VIEW_HANDLE] = (void *)(uintptr_t)answer->view.handle;
    made.reserved[VIEW_SHARD] = (void *)(intptr_t)shard;
    pthread_mutex_lock(&store->lock);
    r = store->backend->map(store, shard, pst_op_session(&op), answer->pieces, answer->view.piece_count,
                            &made);
    pthread_mutex_unlock(&store->lock);
    if (r < 0) {
        release_handle(store, answer->view.handle, shard);
        return pst_explain(store, &op, r);
    }
    pst_assert(made.data || made.bytes == 0);
    *view = made;
    return 0;
}

void penstock_view_release(struct penstock *store, struct penstock_view *view)
{
    uint64_t handle;
    bool lives;

    if (!view || pst_store_check(store) < 0)
        return;
    handle = (uint64_t)(uintptr_t)view->reserved[VIEW_HANDLE];
    if (!handle)
        return;
    pthread_mutex_lock(&store->lock);
    pst_assert(view->data || view->bytes == 0);
    lives = store->backend->view_lives(store, view);
    store->backend->unmap(store, view);
    pthread_mutex_unlock(&store->lock);
    if (lives)
        release_handle(store, handle, (int)(intptr_t)view->reserved[VIEW_SHARD]);
    *view = (struct penstock_view){0};
}
