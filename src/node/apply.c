/*
 * apply.c: what each operation does to the shard and what it puts into the reply. A batch is prefetched as a
 * whole; small values go into the reply at once, large ones leave a read or a write behind that the request's
 * later steps carry out.
 */
#include "node/node_priv.h"

#include "base/fault.h"

enum { RESULT_ROOM = PST_WIRE_RESULT_BYTES_MAX + 8 + PST_ATTR_BYTES_MAX };

size_t pst_reply_room(const struct pst_request *q, uint32_t index)
{
    size_t rest = (size_t)(q->count - index - 1) * RESULT_ROOM + RESULT_ROOM;

    pst_assert(q->reply_bytes + rest <= REPLY_BYTES);
    return REPLY_BYTES - q->reply_bytes - rest;
}

void pst_reply_add(struct pst_request *q, const struct pst_wire_result *result)
{
    q->reply_bytes = (size_t)(pst_wire_put_result(q->reply + q->reply_bytes, result) - q->reply);
    pst_assert(q->reply_bytes <= REPLY_BYTES);
}

/* Errors of -errno and outcomes fit into 16 bits. */
struct pst_wire_result pst_reply_result(int result, const struct pst_answer *answer)
{
    return (struct pst_wire_result){.result = (int16_t)result,
                                    .flags = PST_WIRE_SIZE,
                                    .generation = answer->generation,
                                    .value_bytes = answer->value_bytes};
}

void pst_workers_relieve(struct pst_worker *w)
{
    for (uint32_t i = 0; i < w->node->worker_count; i++)
        pst_worker_wake(&w->node->workers[i]);
}

/* ---- one key ---- */

void pst_begin_write(struct pst_request *q, const struct pst_put *put,
                     const struct pst_reservation *reservation, uint32_t index, bool refused)
{
    struct pst_write *write = &q->writes[q->write_count++];

    pst_assert(q->write_count <= q->count && refused == !reservation->record);

    *write = (struct pst_write){.put = *put,
                                .bytes_left = put->value_bytes,
                                .op = index,
                                .reply_at = (uint32_t)q->reply_bytes,
                                .refused = refused,
                                .durable = q->worker->ops[index].flags & PST_WIRE_DURABLE};
    if (refused)
        return;
    write->reservation = *reservation;
    write->put.lookup.key = pst_record_key(reservation->record);
    write->put.attrs = (struct pst_bytes){NULL, 0};
    q->writes_open++;
}

struct pst_put pst_asked_put(const struct pst_worker *w, uint32_t index)
{
    const struct pst_wire_op *op = &w->ops[index];

    return (struct pst_put){.lookup = w->lookups[index],
                            .attrs = op->attrs,
                            .value_bytes = op->bytes,
                            .if_generation = op->if_generation,
                            .ttl_ms = op->flags & PST_WIRE_RANGE ? op->offset : 0,
                            .depth = op->depth,
                            .flags = op->flags & (PST_PUT_IF_ABSENT | PST_PUT_IF_GENERATION)};
}

static void apply_put(struct pst_request *q, uint32_t index)
{
    struct pst_worker *w = q->worker;
    const struct pst_wire_op *op = &w->ops[index];
    struct pst_put put = pst_asked_put(w, index);
    bool bulk = op->flags & PST_WIRE_VALUE_IN_BULK, durable = op->flags & PST_WIRE_DURABLE;
    struct pst_reservation reservation = {0};
    struct pst_answer answer = {0};
    struct pst_wire_result result;
    int r = durable ? pst_put_check_durable(w->shard, &put, &answer) : 0;

    if (r == 0 && !bulk && pst_node_copied(w->node, op->key)) {
        pst_apply_alone(q, index);
        return;
    }
    put.value_crc = op->crc;
    put.flags |= op->flags & PST_PUT_CHECKSUM;
    if (pst_node_route(w->node, op->key) != w->number)
        r = -ESTALE; /* the client routes by another table */
    else if (r == 0 && bulk)
        r = pst_shard_reserve(w->shard, &put, w->now_ns, &reservation, &answer);
    else if (r == 0)
        r = pst_shard_put(w->shard, &put, op->value, w->now_ns, &answer);
    if (bulk)
        pst_begin_write(q, &put, &reservation, index, r != 0);
    else if (r == 0 && durable)
        r = pst_request_save(q, pst_shard_find(w->shard, &put.lookup), (uint32_t)q->reply_bytes);
    if (r == PST_BUSY)
        pst_workers_relieve(w);
    result = pst_reply_result(r, &answer);
    pst_reply_add(q, &result);
}

/* Small values go into the reply while there is room in it. */
static void answer_value(struct pst_request *q, uint32_t index, struct pst_record *record, uint64_t offset,
                         uint64_t bytes, struct pst_wire_result *result)
{
    struct pst_worker *w = q->worker;
    struct iovec piece;

    if (bytes <= PST_WIRE_INLINE_BYTES_MAX && bytes <= pst_reply_room(q, index) &&
        pst_record_iov(w->shard, record, offset, bytes, &piece, 1) >= 0) {
        result->bytes = (uint32_t)bytes;
        result->data = bytes ? piece.iov_base : NULL;
        if (bytes == result->value_bytes)
            result->flags &= (uint8_t)~PST_WIRE_SIZE;
        return;
    }
    if (pst_shard_ref(w->shard, record) < 0) {
        result->result = -ENOMEM;
        return;
    }
    result->flags |= PST_WIRE_IN_BULK;
    result->bulk_bytes = bytes;
    pst_assert(q->read_count < q->count);
    q->reads[q->read_count++] = (struct pst_read){record, offset, bytes, index};
}

/* What a get may read; flag 2 of one that waits is the time. */
int pst_plan_get(const struct pst_wire_op *op, const struct pst_record *record, uint64_t *offset,
                 uint64_t *bytes)
{
    int r = op->flags & PST_WIRE_WAIT ? 0 : pst_record_wanted(record, op->flags, op->if_generation);

    *offset = op->flags & PST_WIRE_RANGE ? pst_record_range_offset(record, op->offset) : 0;
    return r ? r
             : pst_record_plan(record, op->flags & PST_WIRE_RANGE, op->flags & PST_WIRE_EXACT, op->offset,
                               op->bytes, bytes);
}

static void apply_get(struct pst_request *q, uint32_t index)
{
    struct pst_worker *w = q->worker;
    const struct pst_wire_op *op = &w->ops[index];
    struct pst_record *record = pst_shard_find(w->shard, &w->lookups[index]);
    struct pst_wire_result result = {.result = PST_MISS};
    uint64_t offset, from = 0, bytes = 0;

    if (record) {
        result = (struct pst_wire_result){
            .flags = PST_WIRE_SIZE, .generation = record->generation, .value_bytes = record->value_bytes};
        if (op->flags & PST_WIRE_SPARE) {
            result.flags |= PST_WIRE_ATTRS;
            result.attrs = pst_record_attrs(record);
        }
    }
    if (op->code == PST_WIRE_GET) {
        pst_shard_count_read(w->shard, record != NULL);
        if (record) {
            if (record->flags & PST_RECORD_CHECKSUM) {
                result.flags |= PST_WIRE_CRC;
                result.crc = record->value_crc;
            }
            result.result = (int16_t)pst_plan_get(op, record, &offset, &bytes);
            pst_shard_touch(w->shard, record, w->now_ns);
            if (pst_unlikely(pst_record_on_disk(record)) && result.result == 0 && bytes)
                result.result = (int16_t)pst_tier_fetched(w->shard, record, offset, bytes, &record, &from);
            if (result.result == 0)
                result.result = (int16_t)pst_record_verify(w->shard, record);
            if (result.result == 0)
                answer_value(q, index, record, offset - from, bytes, &result);
        }
    }
    pst_reply_add(q, &result);
}

/* Pins are the key's; those without an end count against the session that made them. */
static int apply_pin(struct pst_visitor *v, const struct pst_lookup *lookup, uint64_t ttl_ms)
{
    struct pst_quota *quota = &v->session->quota;
    int r = ttl_ms ? 0 : pst_quota_take_pin(quota);

    if (r < 0)
        return r;
    r = pst_shard_pin(v->worker->shard, lookup, ttl_ms, v->worker->now_ns);
    if (r != 0 && !ttl_ms)
        pst_quota_give_pin(quota);
    return r;
}

static int apply_unpin(struct pst_visitor *v, const struct pst_lookup *lookup)
{
    int r = pst_shard_unpin(v->worker->shard, lookup);

    if (r == 0)
        pst_quota_give_pin(&v->session->quota);
    return r;
}

static void apply_small(struct pst_request *q, uint32_t index)
{
    struct pst_worker *w = q->worker;
    const struct pst_wire_op *op = &w->ops[index];
    const struct pst_lookup *lookup = &w->lookups[index];
    struct pst_answer answer = {0};
    struct pst_wire_result result;
    bool spares = op->code == PST_WIRE_DELETE && op->flags & PST_WIRE_SPARE &&
                  pst_shard_pinned(w->shard, lookup, w->now_ns);
    int r = -EOPNOTSUPP;

    if (op->code == PST_WIRE_DELETE && !spares && pst_node_copied(w->node, op->key)) {
        pst_apply_alone(q, index);
        return;
    }
    if (spares)
        r = PST_EXISTS;
    else if (op->code == PST_WIRE_DELETE)
        r = pst_shard_delete(w->shard, lookup, op->flags & PST_WIRE_IF_GENERATION, op->if_generation,
                             &answer);
    else if (op->code == PST_WIRE_PIN)
        r = apply_pin(q->visitor, lookup, op->bytes);
    else if (op->code == PST_WIRE_UNPIN)
        r = apply_unpin(q->visitor, lookup);
    result = pst_reply_result(r, &answer);
    pst_reply_add(q, &result);
}

/* ---- many keys ---- */

static struct pst_range range_of(const struct pst_wire_op *op)
{
    return (struct pst_range){.start = op->key, .end = op->attrs, .after = op->flags & PST_WIRE_AFTER};
}

/* generation 1: the end was reached. */
static void apply_list(struct pst_request *q, uint32_t index)
{
    struct pst_worker *w = q->worker;
    struct pst_range range = range_of(&w->ops[index]);
    uint64_t room = pst_min(pst_min(w->ops[index].bytes, pst_reply_room(q, index)), SCRATCH_BYTES);
    struct pst_wire_result result = {.data = w->scratch};
    bool end = false;
    int64_t bytes = pst_shard_list(w->shard, &range, w->scratch, room, &end);

    result.generation = end;
    if (bytes < 0) /* too little room is the fault of its neighbours in the batch, unless the client gave too
                      little itself */
        result.result = (int16_t)(room < w->ops[index].bytes ? PST_BUSY : bytes);
    else
        result.bytes = (uint32_t)bytes;
    pst_reply_add(q, &result);
}

static void apply_sweep(struct pst_request *q, uint32_t index)
{
    struct pst_worker *w = q->worker;
    const struct pst_wire_op *op = &w->ops[index];
    struct pst_range range = range_of(op);
    struct pst_wire_result result = {.result = PST_BUSY, .data = w->scratch};

    if (w->node->role.copied) {
        range.wanted = pst_sweeps;
        range.ctx = w->node;
    }
    if (pst_reply_room(q, index) >= PST_SWEEP_BYTES_MAX && op->bytes >= PST_SWEEP_BYTES_MAX) {
        result.bytes =
            (uint32_t)pst_shard_sweep(w->shard, &range, op->flags & PST_WIRE_SPARE, w->now_ns, w->scratch);
        result.result = result.bytes ? PST_OK : PST_BUSY;
    }
    pst_reply_add(q, &result);
}

/* ---- views ---- */

static int64_t view_slot(struct pst_visitor *v)
{
    struct pst_record **larger;
    uint32_t first = v->view_count, count = first ? 2 * first : 16;

    for (uint32_t i = 0; i < first; i++) {
        if (!v->views[i])
            return i;
    }
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
    struct pst_visitor *v = q->visitor;
    uint64_t room = pst_min(q->worker->ops[index].bytes, pst_reply_room(q, index));
    int64_t slot;
    int count;

    if (!v->session->views)
        return -EOPNOTSUPP;
    count = pst_record_iov(q->worker->shard, record, 0, record->value_bytes, pieces, VIEW_PIECES_MAX);
    if (count < 0 || sizeof(struct pst_wire_view) + (size_t)count * sizeof(struct pst_wire_piece) > room)
        return -E2BIG;
    slot = view_slot(v);
    if (slot < 0)
        return (int)slot;
    if (pst_quota_take_bytes(&v->session->quota, record->value_bytes) < 0)
        return -EDQUOT;
    if (pst_shard_ref(q->worker->shard, record) < 0) {
        pst_quota_give_bytes(&v->session->quota, record->value_bytes);
        return -ENOMEM;
    }
    pst_record_viewed(q->worker->shard, record, true);
    v->views[slot] = record;
    *handle = (uint64_t)slot + 1;
    return count;
}

static void apply_view(struct pst_request *q, uint32_t index)
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
    uint64_t from, generation = record ? record->generation : 0;
    int count = 0;

    if (record && pst_record_on_disk(record) && record->value_bytes)
        count = pst_tier_fetched(w->shard, record, 0, record->value_bytes, &record, &from);
    if (record && count == 0)
        count = pst_record_verify(w->shard, record);

    if (record && count == 0)
        count = open_view(q, index, record, pieces, &data.view.handle);
    pst_shard_count_read(w->shard, record != NULL);
    if (record && data.view.handle) {
        pst_shard_touch(w->shard, record, w->now_ns);
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

static void release_view(struct pst_visitor *v, uint64_t slot)
{
    pst_quota_give_bytes(&v->session->quota, v->views[slot]->value_bytes);
    pst_record_viewed(v->worker->shard, v->views[slot], false);
    pst_shard_unref(v->worker->shard, v->views[slot]);
    v->views[slot] = NULL;
}

static void apply_release(struct pst_request *q, uint32_t index)
{
    struct pst_visitor *v = q->visitor;
    uint64_t handle = q->worker->ops[index].if_generation;
    struct pst_wire_result result = {.result = -EINVAL};

    if (handle >= 1 && handle <= v->view_count && v->views[handle - 1]) {
        release_view(v, handle - 1);
        result.result = 0;
    }
    pst_reply_add(q, &result);
}

/* Of a node that stops clients still look at what they view: its pins stay to the end, and the next node has
 * to know. */
void pst_visitor_release_views(struct pst_visitor *v)
{
    for (uint32_t i = 0; i < v->view_count && !v->worker->node->stopping; i++) {
        if (v->views[i])
            release_view(v, i);
    }
    free(v->views);
    v->views = NULL;
    v->view_count = 0;
}

/* ---- watches ---- */

static void apply_watch_open(struct pst_request *q, uint32_t index)
{
    struct pst_wire_result result = {0};
    uint64_t handle = 0;

    result.result = (int16_t)pst_visitor_watch_open(q->visitor, &q->worker->ops[index], &handle);
    result.generation = handle;
    pst_reply_add(q, &result);
}

static void apply_watch_next(struct pst_request *q, uint32_t index)
{
    struct pst_worker *w = q->worker;
    struct pst_watch *watch = pst_visitor_watch(q->visitor, w->ops[index].if_generation);
    uint64_t room = pst_min(pst_min(w->ops[index].bytes, pst_reply_room(q, index)), SCRATCH_BYTES);
    struct pst_wire_result result = {.data = w->scratch};
    int64_t bytes = watch ? pst_watch_read(watch, w->scratch, room) : -EBADF;

    if (bytes < 0)
        result.result = (int16_t)bytes;
    else
        result.bytes = (uint32_t)bytes;
    pst_reply_add(q, &result);
}

static void apply_watch_close(struct pst_request *q, uint32_t index)
{
    struct pst_wire_result result = {0};

    result.result = (int16_t)pst_visitor_watch_close(q->visitor, q->worker->ops[index].if_generation);
    pst_reply_add(q, &result);
}

/* ---- figures ---- */

/* What clients were told at the door is the node's: its first shard says so for all. */
static void add_refusals(const struct pst_worker *w, struct pst_shard_later *out)
{
    const _Atomic uint64_t *refused = w->node->refused;

    out->malformed = w->malformed;
    if (w->number > 0)
        return;
    out->refused_secret = refused[PST_BOOT_REFUSED_SECRET];
    out->refused_version = refused[PST_BOOT_REFUSED_VERSION];
    out->refused_busy = refused[PST_BOOT_REFUSED_BUSY];
    out->refused_other = refused[PST_BOOT_REFUSED_OTHER];
}

static void apply_stat(struct pst_request *q, uint32_t index)
{
    struct pst_worker *w = q->worker;
    struct pst_figures figures;
    uint64_t bytes = pst_min(w->ops[index].bytes, sizeof(figures));
    struct pst_wire_result result = {.data = &figures, .bytes = (uint32_t)bytes};

    pst_figures_read(w->node->store, w->shard, &figures);
    figures.sessions = w->node->session_count;
    add_refusals(w, &figures.later);
    if (bytes < PST_FIGURES_BYTES_MIN || pst_reply_room(q, index) < bytes)
        result = (struct pst_wire_result){.result = -ENOBUFS};
    pst_reply_add(q, &result);
}

/* ---- what the node is besides ---- */

static void apply_role(struct pst_request *q, uint32_t index)
{
    struct pst_worker *w = q->worker;
    const struct pst_node_role *role = &w->node->role;
    uint64_t room = pst_min(pst_min(w->ops[index].bytes, pst_reply_room(q, index)), SCRATCH_BYTES);
    struct pst_wire_result result = {.result = -EOPNOTSUPP};

    if (role->carry_out) {
        result = (struct pst_wire_result){.data = w->scratch};
        role->carry_out(role->ctx, &w->ops[index], w->now_ns, w->scratch, room, &result);
        pst_assert(result.bytes <= room);
        if (result.result == -ENOBUFS && room < w->ops[index].bytes)
            result.result = PST_BUSY; /* its neighbours in the batch take the room */
    }
    pst_reply_add(q, &result);
}

/* ---- a batch ---- */

/* A commit underway keeps an operation on its keys waiting; the client tries again. */
static bool locked(const struct pst_request *q, uint32_t index)
{
    const struct pst_wire_op *op = &q->worker->ops[index];
    bool reads = op->code == PST_WIRE_GET || op->code == PST_WIRE_STAT_KEY || op->code == PST_WIRE_VIEW ||
                 op->code == PST_WIRE_PIN || op->code == PST_WIRE_UNPIN;

    return reads && pst_shard_locked(q->worker->shard, &q->worker->lookups[index], true);
}

static void apply_flush(struct pst_request *q)
{
    struct pst_wire_result result = {.result = (int16_t)pst_request_save(q, NULL, (uint32_t)q->reply_bytes)};

    pst_reply_add(q, &result);
}

/* On a key; a slot's abort and a view's release only give something back. */
static bool on_key(uint8_t code)
{
    return code <= PST_WIRE_CHECK || code == PST_WIRE_VIEW ||
           (code >= PST_WIRE_RESERVE && code <= PST_WIRE_SLOT_COMMIT);
}

/* The node's role has it answered so, in place of the store; a value that comes for it is let go by. */
static void refuse(struct pst_request *q, uint32_t index, int r)
{
    const struct pst_wire_op *op = &q->worker->ops[index];
    const struct pst_put put = {.value_bytes = op->bytes};
    const struct pst_reservation none = {0};
    struct pst_wire_result result = {.result = (int16_t)r};

    if ((op->code == PST_WIRE_PUT || op->code == PST_WIRE_SLOT_WRITE) && op->flags & PST_WIRE_VALUE_IN_BULK)
        pst_begin_write(q, &put, &none, index, true);
    pst_reply_add(q, &result);
}

static void apply_one(struct pst_request *q, uint32_t index)
{
    struct pst_wire_result pong = {0};
    int r;

    if (pst_unlikely(q->worker->node->role.may_serve) && on_key(q->worker->ops[index].code)) {
        r = pst_node_may_serve(q->worker->node, q->worker->ops[index].key);
        if (r != 0) {
            refuse(q, index, r);
            return;
        }
    }

    if (pst_unlikely(*q->worker->locks) && locked(q, index)) {
        pong.result = PST_BUSY;
        pst_reply_add(q, &pong);
        return;
    }
    if (pst_unlikely(q->worker->ops[index].code >= PST_WIRE_ROLE_FIRST)) {
        apply_role(q, index);
        return;
    }
    switch (q->worker->ops[index].code) {
    case PST_WIRE_GET:
    case PST_WIRE_STAT_KEY:
        return apply_get(q, index);
    case PST_WIRE_PUT:
        return apply_put(q, index);
    case PST_WIRE_LIST:
        return apply_list(q, index);
    case PST_WIRE_SWEEP:
        return apply_sweep(q, index);
    case PST_WIRE_STAT:
        return apply_stat(q, index);
    case PST_WIRE_FLUSH:
        return apply_flush(q);
    case PST_WIRE_VIEW:
        return apply_view(q, index);
    case PST_WIRE_RELEASE:
        return apply_release(q, index);
    case PST_WIRE_RESERVE:
        return pst_apply_reserve(q, index);
    case PST_WIRE_SLOT_WRITE:
        return pst_apply_slot_write(q, index);
    case PST_WIRE_SLOT_COMMIT:
        return pst_apply_slot_commit(q, index);
    case PST_WIRE_SLOT_ABORT:
        return pst_apply_slot_abort(q, index);
    case PST_WIRE_WATCH_OPEN:
        return apply_watch_open(q, index);
    case PST_WIRE_WATCH_NEXT:
        return apply_watch_next(q, index);
    case PST_WIRE_WATCH_CLOSE:
        return apply_watch_close(q, index);
    case PST_WIRE_COPY:
        return pst_apply_copy(q, index);
    case PST_WIRE_COPY_SEND:
        return pst_apply_alone(q, index);
    case PST_WIRE_COPY_CLEAR:
        return pst_apply_copy_clear(q, index);
    case PST_WIRE_PING:
        return pst_reply_add(q, &pong);
    default:
        return apply_small(q, index);
    }
}

/* Look-ups of a whole batch overlap: first all buckets, then all records. */
void pst_apply_prefetch(struct pst_worker *w, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        w->lookups[i] = pst_shard_lookup(w->shard, w->ops[i].key);
        pst_shard_prefetch(w->shard, &w->lookups[i]);
    }
    for (uint32_t i = 0; i < count; i++)
        pst_shard_prefetch_record(w->shard, &w->lookups[i]);
}

void pst_apply(struct pst_request *q)
{
    for (uint32_t i = 0; i < q->count; i++) {
        q->trace.codes |= 1ull << pst_min(q->worker->ops[i].code, PST_TRACE_ROLE);
        if (pst_unlikely(q->worker->ops[i].code == PST_WIRE_COMMIT))
            i += pst_apply_commit(q, i);
        else
            apply_one(q, i);
    }
}
