/* SPDX-License-Identifier: Apache-2.0 */
/* view.c: values that a client looks at in the arenas themselves, and what keeps them there. */
#include "node/commit.h"
#include "node/node_priv.h"
#include "node/op.h"
#include "node/op/op_priv.h"

#include "base/fault.h"
#include "store/exec.h"
#include "store/read.h"

static int64_t view_place(struct pst_shard_session *v)
{
    struct pst_held_view *larger;
    uint32_t first = v->view_count, count = first ? 2 * first : 16;

    for (uint32_t i = 0; i < first; i++) {
        if (!v->views[i].record)
            return i;
    }
    pst_assert(first <= VIEWS_MAX);
    if (count > VIEWS_MAX)
        return -EMFILE;
    larger = pst_fault(PST_FAULT_view_enomem) ? NULL : realloc(v->views, count * sizeof(*larger));
    if (!larger)
        return -ENOMEM;
    memset(larger + first, 0, (count - first) * sizeof(*larger));
    v->views = larger;
    v->view_count = count;
    return first;
}

static int open_view(struct pst_request *q, uint32_t index, struct pst_record *record, struct iovec *pieces,
                     uint64_t *handle)
{
    struct pst_shard_session *v = q->shard_session;
    uint64_t room = pst_min(q->worker->ops[index].bytes, pst_reply_room(q, index));
    int64_t place;
    int count, count_r;

    if (!v->session->views)
        return -EOPNOTSUPP;
    count = pst_record_iov(q->worker->shard, record, 0, record->value_bytes, pieces, VIEW_PIECES_MAX);
    if (count < 0 || sizeof(struct pst_wire_view) + (size_t)count * sizeof(struct pst_wire_piece) > room)
        return -E2BIG;
    place = view_place(v);
    if (place < 0)
        return (int)place;
    count_r = pst_quota_take_bytes(&v->session->quota, record->value_bytes);
    if (count_r != 0)
        return count_r;
    if (pst_shard_ref(q->worker->shard, record) < 0) {
        pst_quota_give_bytes(&v->session->quota, record->value_bytes);
        return -ENOMEM;
    }
    pst_assert(place < v->view_count);
    pst_assert(!v->views[place].record);
    pst_assert(count <= VIEW_PIECES_MAX);
    pst_record_viewed(q->worker->shard, record, true);
    *handle = ++q->worker->view_uses * VIEWS_MAX + (uint64_t)place;
    v->views[place] = (struct pst_held_view){record, *handle};
    return count;
}

void pst_apply_view(struct pst_request *q, uint32_t index)
{
    struct pst_worker *w = q->worker;
    struct pst_record *record = pst_shard_find(w->shard, &w->lookups[index]);
    const uint8_t *base = pst_store_arenas(w->node->store)->base;
    struct iovec pieces[VIEW_PIECES_MAX];
    struct {
        struct pst_wire_view view;
        struct pst_wire_piece pieces[VIEW_PIECES_MAX];
    } data = {0};
    struct pst_wire_result result = {.result = PST_MISS};
    uint64_t at = 0, generation = record ? record->generation : 0;
    int count = record ? pst_get_locate(w->shard, &record, &at, record->value_bytes) : 0;

    if (record && count == 0)
        count = open_view(q, index, record, pieces, &data.view.handle);
    pst_shard_count_read(w->shard, record != NULL);
    if (record && data.view.handle) {
        pst_shard_touch(w->shard, record, w->now_ns);
        pst_shard_read(w->shard, record);
        data.view.value_bytes = record->value_bytes;
        data.view.piece_count = (uint32_t)count;
        for (int i = 0; i < count; i++)
            data.pieces[i] =
                (struct pst_wire_piece){(uint64_t)((uint8_t *)pieces[i].iov_base - base), pieces[i].iov_len};
        result = (struct pst_wire_result){
            .generation = generation,
            .data = &data,
            .bytes = (uint32_t)(sizeof(data.view) + (size_t)count * sizeof(data.pieces[0]))};
    } else if (record) {
        result.result = (int16_t)count;
    } else if (pst_node_route(w->node, w->ops[index].key) != w->number) {
        result.result = -ESTALE; /* the client routes by another table */
    }
    pst_reply_add(q, &result);
}

static void release_view(struct pst_shard_session *v, struct pst_held_view *view)
{
    pst_assert(view->record);
    pst_assert(view->handle % VIEWS_MAX == (uint64_t)(view - v->views));
    pst_quota_give_bytes(&v->session->quota, view->record->value_bytes);
    pst_record_viewed(v->worker->shard, view->record, false);
    pst_shard_unref(v->worker->shard, view->record);
    *view = (struct pst_held_view){0};
}

void pst_apply_release(struct pst_request *q, uint32_t index)
{
    struct pst_shard_session *v = q->shard_session;
    uint64_t handle = q->worker->ops[index].handle;
    struct pst_held_view *view = handle % VIEWS_MAX < v->view_count ? &v->views[handle % VIEWS_MAX] : NULL;
    struct pst_wire_result result = {.result = -EINVAL};

    if (view && view->record && view->handle == handle) {
        release_view(v, view);
        result.result = 0;
    }
    pst_reply_add(q, &result);
}

/* Of a node that stops clients still look at what they view: its pins stay to the end, and the next node has
 * to know. */
void pst_shard_session_release_views(struct pst_shard_session *v)
{
    pst_assert(v->view_count <= VIEWS_MAX);
    pst_assert(!v->views == !v->view_count);
    for (uint32_t i = 0; i < v->view_count && !v->worker->node->stopping; i++) {
        if (v->views[i].record)
            release_view(v, &v->views[i]);
    }
    free(v->views);
    v->views = NULL;
    v->view_count = 0;
}
