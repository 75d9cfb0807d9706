/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fetch.c: requests that wait for the SSD. One that reads values on SSD is parked as a whole, before anything
 * of it is done, until all of them are in memory; then it is carried out like any other. A reply to writes
 * that are to be durable waits until they are. Where a request cannot be parked, its reads of the SSD are
 * told busy.
 */
#include "node/node_priv.h"
#include "node/op.h"
#include "node/request.h"
#include "store/read.h"

static struct pst_tiered *next_item(struct pst_request *q, struct pst_tiereds *t, bool fetch)
{
    struct pst_tiered *item;

    pst_assert(t == &q->fetches || t == &q->saves);
    pst_assert(fetch == (t == &q->fetches));
    pst_assert(t->count <= PST_WIRE_OPS_MAX);
    if (!t->items)
        t->items = malloc(PST_WIRE_OPS_MAX * sizeof(*t->items));
    if (!t->items || t->count == PST_WIRE_OPS_MAX)
        return NULL;
    item = &t->items[t->count];
    *item = (struct pst_tiered){.request = q, .fetch = fetch};
    return item;
}

void pst_tiereds_end(struct pst_request *q, struct pst_tiereds *t)
{
    pst_assert(t == &q->fetches || t == &q->saves);
    pst_assert(t->left <= t->count);
    for (uint32_t i = 0; i < t->count; i++)
        pst_tier_leave(q->worker->shard, &t->items[i].wait);
    t->count = t->left = 0;
    if (t == &q->fetches) {
        free(q->body);
        q->body = NULL;
    }
}

/* ---- reads ---- */

/* Return: true when the operation reads a value on SSD: these bytes of it. */
static bool reads_disk(struct pst_worker *w, uint32_t index, struct pst_record **record, uint64_t *offset,
                       uint64_t *bytes)
{
    const struct pst_wire_op *op = &w->ops[index];

    pst_assert(index < PST_WIRE_OPS_MAX);
    if (!pst_code_has(op->code, PST_CODE_FETCHES))
        return false;
    *record = pst_shard_find(w->shard, &w->lookups[index]);
    if (!*record || !pst_record_away(*record))
        return false;
    *offset = 0;
    *bytes = (*record)->value_bytes;
    if (op->code == PST_WIRE_GET && pst_plan_get(op, *record, offset, bytes) != 0)
        return false;
    return *bytes > 0;
}

/* Values that come by themselves cannot wait in front of a request that has not begun. */
static bool awaits_values(const struct pst_request *q)
{
    for (uint32_t i = 0; i < q->count; i++)
        if (pst_wire_in_bulk(&q->worker->ops[i]))
            return true;
    return false;
}

static void fetch_one(struct pst_request *q, uint32_t index)
{
    struct pst_worker *w = q->worker;
    struct pst_record *record;
    uint64_t offset, bytes;
    struct pst_tiered *item;

    if (!reads_disk(w, index, &record, &offset, &bytes))
        return;
    pst_assert(bytes <= record->value_bytes);
    pst_assert(offset <= record->value_bytes - bytes);
    item = next_item(q, &q->fetches, true);
    if (item && pst_tier_fetch(w->shard, record, offset, bytes, w->now_ns, &item->wait) == 0) {
        q->fetches.count++;
        q->fetches.left++;
        pst_assert(q->fetches.left == q->fetches.count);
    }
}

bool pst_fetches_begin(struct pst_request *q, struct pst_bytes body)
{
    pst_assert(q->fetches.count == 0);
    pst_assert(!q->body);
    pst_assert(q->count <= PST_WIRE_OPS_MAX);
    if (!body.data || awaits_values(q))
        return false;
    for (uint32_t i = 0; i < q->count; i++) {
        if (pst_likely(!q->worker->missing_count) || !q->worker->missing[i])
            fetch_one(q, i);
    }
    if (q->fetches.count == 0)
        return false;
    q->body = malloc(body.len);
    if (!q->body) {
        pst_tiereds_end(q, &q->fetches);
        return false;
    }
    pst_assert(q->fetches.left > 0);
    memcpy(q->body, body.data, body.len);
    q->body_bytes = body.len;
    return true;
}

/* ---- writes ---- */

static void add_save(struct pst_request *q, struct pst_tiered *item, bool written, uint32_t reply_at)
{
    pst_assert(item == &q->saves.items[q->saves.count]);
    pst_assert(q->saves.count < PST_WIRE_OPS_MAX);
    pst_assert(!item->fetch);
    pst_assert(reply_at < REPLY_BYTES);
    item->written = written;
    item->reply_at = reply_at;
    q->saves.count++;
    q->saves.left++;
}

int pst_request_save(struct pst_request *q, struct pst_record *record, uint32_t reply_at)
{
    struct pst_tiered *item = q->worker->logs ? next_item(q, &q->saves, false) : NULL;
    int r = 0;

    if (!item)
        return q->worker->logs ? -EIO : -EOPNOTSUPP;
    if (record && !pst_record_away(record))
        r = pst_tier_save(q->worker->shard, record, &item->wait);
    else
        pst_tier_flush(q->worker->shard, &item->wait);
    if (r == 0)
        add_save(q, item, true, reply_at);
    return pst_tier_unsaved(r);
}

int pst_request_flush(struct pst_request *q, uint32_t reply_at)
{
    struct pst_tiered *item = q->worker->logs ? next_item(q, &q->saves, false) : NULL;

    if (!item)
        return q->worker->logs ? -ENOMEM : -EOPNOTSUPP;
    pst_tier_flush(q->worker->shard, &item->wait);
    add_save(q, item, false, reply_at);
    return 0;
}

int pst_request_sync(struct pst_request *q, uint32_t reply_at)
{
    struct pst_tiered *item = q->worker->logs ? next_item(q, &q->saves, false) : NULL;

    if (!item)
        return q->worker->logs ? -ENOMEM : 0;
    pst_tier_sync(q->worker->shard, &item->wait);
    add_save(q, item, false, reply_at);
    return 0;
}

static void settle(struct pst_request *q, const struct pst_tiered *item)
{
    int16_t result = (int16_t)(item->written ? pst_tier_unsaved(item->wait.result) : item->wait.result);

    pst_assert(!item->fetch);
    pst_assert(item->reply_at + sizeof(result) <= q->reply_bytes);
    if (result)
        memcpy(q->reply + item->reply_at, &result, sizeof(result));
}

bool pst_tiereds_run(struct pst_worker *w)
{
    struct pst_tier_wait *wait;
    bool something;

    if (pst_likely(!w->tiered))
        return false;
    something = pst_shard_poll(w->shard, w->now_ns);
    while ((wait = pst_tier_ended(w->shard))) {
        struct pst_tiered *item = pst_container_of(wait, struct pst_tiered, wait);
        struct pst_request *q = pst_request_cast(item->request);
        struct pst_tiereds *t = item->fetch ? &q->fetches : &q->saves;

        pst_assert(t->left > 0);
        pst_assert(t->left <= t->count);
        pst_assert(q->worker == w);
        something = true;
        if (!item->fetch)
            settle(q, item);
        if (--t->left == 0)
            pst_request_run(q);
    }
    return something;
}
