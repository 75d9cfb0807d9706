/* SPDX-License-Identifier: Apache-2.0 */
/* sessions_ask.c: requests and values that the input describes, noted so that their answers can be judged. */
#include "sessions_world.h"

struct question {
    struct fuzz *in;
    uint32_t session, worker;
    struct asked *asked;
    struct pst_wire_head head;
    uint8_t body[16 << 10];
    size_t bytes;
};

static uint8_t zeros[INLINE_MAX];

/* A key of the shard. Return: MODEL_KEYS: there is none. */
static uint32_t some_key(struct fuzz *in, uint32_t worker)
{
    uint32_t first = fuzz_below(in, MODEL_KEYS);

    for (uint32_t i = 0; i < MODEL_KEYS; i++) {
        if (w->keys_shard[(first + i) % MODEL_KEYS] == worker)
            return (first + i) % MODEL_KEYS;
    }
    return MODEL_KEYS;
}

static struct asked_op *add(struct question *q, struct pst_wire_op op, uint32_t key)
{
    struct asked_op *asked = &q->asked->ops[q->asked->count++];

    pst_assert(q->asked->count <= OPS_MAX);
    op.key = key < MODEL_KEYS ? key_of(key) : (struct pst_bytes){NULL, 0};
    if (pst_code_has(op.code, PST_CODE_VALUE) && !(op.flags & PST_WIRE_VALUE_IN_BULK))
        op.value = zeros;
    *asked = (struct asked_op){.code = op.code, .flags = op.flags, .key = key % MODEL_KEYS};
    q->bytes = (size_t)(pst_wire_put_op(q->body + q->bytes, &op) - q->body);
    return asked;
}

/* Return: false: the session has too much underway. */
static bool open_question(struct question *q, struct fuzz *in, uint32_t session, uint32_t worker)
{
    *q = (struct question){.in = in, .session = session, .worker = worker};
    for (uint32_t i = 0; i < PLACES; i++) {
        struct asked *asked = &w->asked[session][worker][i];

        if (asked->open)
            continue;
        q->asked = asked;
        asked->count = 0;
        asked->garbage = false;
        asked->commit = NULL;
        q->head = (struct pst_wire_head){.type = PST_WIRE_REQUEST,
                                         .version = (uint8_t)PST_WIRE_VERSION,
                                         .request = i + PST_WIRE_PLACES * asked->uses++,
                                         .token = w->sessions[session].token,
                                         .timeout_ms = 1u << fuzz_below(in, 20)};
        return true;
    }
    return false;
}

static void deliver(struct question *q)
{
    struct pst_shard_session *v = shard_session_of(q->session, q->worker);
    struct pst_net_event event;

    if (q->asked->count == 0)
        return;
    q->head.count = (uint16_t)q->asked->count;
    event = stub_message(w->ports[q->worker], PST_NET_EAGER, (struct pst_bytes){&q->head, sizeof(q->head)},
                         (struct pst_bytes){q->body, q->bytes});
    q->asked->open = true;
    pst_request_begin(v, &q->head, NULL, event.data);
    pst_msg_free(event.msg);
    run_stalled(q->worker);
    pst_assert(!v->leaving || q->asked->garbage); /* nothing was wrong with it */
    if (v->leaving)
        end_session(q->session);
}

static struct reservation *some_reservation(struct fuzz *in, uint32_t session, uint32_t worker)
{
    uint32_t first = fuzz_below(in, RESERVATIONS);

    for (uint32_t i = 0; i < RESERVATIONS; i++) {
        struct reservation *s = &w->reservations[(first + i) % RESERVATIONS];

        if (s->live && s->session == session && w->keys_shard[s->key] == worker)
            return s;
    }
    return NULL;
}

static void add_put(struct question *q, uint32_t key)
{
    struct pst_wire_op op = {
        .code = PST_WIRE_PUT, .depth = 0xffff, .bytes = 1 + fuzz_below(q->in, INLINE_MAX)};
    uint8_t id = next_id();
    uint32_t dice = fuzz_below(q->in, 8);

    op.flags = dice == 1 ? PST_WIRE_IF_ABSENT : dice == 2 ? PST_WIRE_IF_GENERATION : 0;
    op.if_generation = fuzz_below(q->in, 2) ? w->model.keys[key].generation : 0;
    memset(zeros, id, sizeof(zeros));
    add(q, op, key)->id = id;
}

static void add_reserve(struct question *q, uint32_t key)
{
    static const uint64_t sizes[] = {1, 50, 3000, 70000, 150000, UINT64_MAX};
    uint8_t id = next_id();
    struct asked_op *asked = add(q,
                                 (struct pst_wire_op){.code = PST_WIRE_RESERVE,
                                                      .flags = fuzz_below(q->in, 4) ? PST_WIRE_REPLACE : 0,
                                                      .bytes = sizes[fuzz_below(q->in, pst_count_of(sizes))]},
                                 key);

    asked->id = id;
    asked->reservation = fuzz_below(q->in, RESERVATIONS);
    if (w->reservations[asked->reservation]
            .live) /* its place is needed: the node keeps it to the session's end */
        w->reservations[asked->reservation].live = false;
}

/* All of a small one, a piece of others; on a reservation that grows anywhere. */
static void add_reservation_op(struct question *q, struct reservation *s, uint8_t code)
{
    struct pst_wire_op op = {.code = code, .handle = s->handle};
    struct asked_op *asked;

    if (code == PST_WIRE_WRITE_AT) {
        op.bytes = pst_min(s->bytes, 1 + fuzz_below(q->in, INLINE_MAX));
        op.offset = fuzz_below(q->in, 4) ? 0 : fuzz_number(q->in, 2);
        memset(zeros, s->id, sizeof(zeros));
    } else if (code == PST_WIRE_RESERVATION_COMMIT) {
        op.bytes = s->bytes == UINT64_MAX ? fuzz_below(q->in, INLINE_MAX) : s->bytes;
        op.attrs = (struct pst_bytes){s->location, s->location_bytes};
        op.tier = 2;
    }
    asked = add(q, op, s->key);
    asked->id = s->id;
    asked->handle = s->handle;
    asked->reservation = (uint32_t)(s - w->reservations);
}

static void add_view(struct question *q, uint32_t key)
{
    uint32_t at = fuzz_below(q->in, VIEWS);
    struct view *v = &w->views[at];

    if (v->live && v->session == q->session && v->worker == q->worker) {
        v->live = false;
        add(q, (struct pst_wire_op){.code = PST_WIRE_RELEASE, .handle = v->handle}, MODEL_KEYS);
    } else if (!v->live) {
        add(q, (struct pst_wire_op){.code = PST_WIRE_VIEW, .bytes = 4096}, key)->reservation = at;
    }
}

static void add_sweep(struct question *q)
{
    uint32_t flags = fuzz_below(q->in, 2) ? PST_WIRE_SPARE : 0;

    add(q, (struct pst_wire_op){.code = PST_WIRE_SWEEP, .flags = flags, .bytes = 8192}, MODEL_KEYS);
    for (uint32_t i = 0; i < MODEL_KEYS; i++)
        w->model.keys[i].vague |= w->keys_shard[i] == q->worker;
    doom(q->worker);
}

/* An operation that is answered as soon as it is asked. */
static void add_quick(struct question *q, uint32_t key)
{
    struct reservation *s = some_reservation(q->in, q->session, q->worker);

    switch (fuzz_below(q->in, 16)) {
    case 0:
    case 1:
    case 2:
        return add_put(q, key);
    case 3:
        add(q,
            (struct pst_wire_op){.code = PST_WIRE_DELETE, .flags = fuzz_below(q->in, 4) ? 0 : PST_WIRE_SPARE},
            key);
        return;
    case 4:
        add(q, (struct pst_wire_op){.code = PST_WIRE_PIN, .bytes = fuzz_below(q->in, 3)}, key);
        return;
    case 5:
        add(q, (struct pst_wire_op){.code = PST_WIRE_UNPIN}, key);
        return;
    case 6:
    case 7:
        return add_reserve(q, key);
    case 8:
    case 9:
        if (s)
            add_reservation_op(q, s, PST_WIRE_WRITE_AT);
        return;
    case 10:
        if (s)
            add_reservation_op(
                q, s, fuzz_below(q->in, 4) ? PST_WIRE_RESERVATION_COMMIT : PST_WIRE_RESERVATION_ABORT);
        return;
    case 11:
        return add_view(q, key);
    case 12:
        if (fuzz_below(q->in, 8) == 1)
            add_sweep(q);
        return;
    default:
        add(q, (struct pst_wire_op){.code = PST_WIRE_GET, .bytes = VALUE_MAX}, key);
    }
}

void ask_quick(struct fuzz *in, uint32_t session, uint32_t worker)
{
    uint32_t count = 1 + fuzz_below(in, OPS_MAX), key = some_key(in, worker);
    static struct question q;

    if (key == MODEL_KEYS || !open_question(&q, in, session, worker))
        return;
    for (uint32_t i = 0; i < count; i++)
        add_quick(&q, i ? some_key(in, worker) : key);
    deliver(&q);
}

/* One operation whose value comes later, or that waits. */
void ask_slow(struct fuzz *in, uint32_t session, uint32_t worker)
{
    struct reservation *s = some_reservation(in, session, worker);
    uint32_t key = some_key(in, worker);
    static struct question q;
    uint8_t id;

    if (key == MODEL_KEYS || !open_question(&q, in, session, worker))
        return;
    switch (fuzz_below(in, 4)) {
    case 0:
        id = next_id();
        add(&q,
            (struct pst_wire_op){.code = PST_WIRE_PUT,
                                 .flags = PST_WIRE_VALUE_IN_BULK,
                                 .bytes = 1 + fuzz_below(in, VALUE_MAX)},
            key)
            ->id = id;
        break;
    case 1:
        add(&q,
            (struct pst_wire_op){.code = PST_WIRE_GET,
                                 .flags = PST_WIRE_WAIT,
                                 .wait_ms = fuzz_below(in, 5000),
                                 .bytes = VALUE_MAX},
            key);
        break;
    default:
        if (!s)
            return;
        id = s->id;
        add(&q,
            (struct pst_wire_op){.code = PST_WIRE_WRITE_AT,
                                 .flags = PST_WIRE_VALUE_IN_BULK,
                                 .handle = s->handle,
                                 .bytes = s->bytes == UINT64_MAX ? 1 + fuzz_below(in, VALUE_MAX) : s->bytes},
            s->key)
            ->id = id;
    }
    deliver(&q);
}

static void add_member(struct question *q, struct model_commit *c, uint32_t key)
{
    struct reservation *s = some_reservation(q->in, q->session, w->keys_shard[key]);
    struct pst_wire_op op = {.code = PST_WIRE_PUT};
    enum model_change change = MODEL_PUT;
    struct asked_op *asked;
    uint64_t handle = 0;
    uint8_t id = next_id();

    switch (fuzz_below(q->in, 6)) {
    case 0:
        change = MODEL_CHECK;
        op = (struct pst_wire_op){.code = PST_WIRE_CHECK,
                                  .flags = PST_WIRE_IF_GENERATION,
                                  .if_generation =
                                      model_present(&w->model, key) ? w->model.keys[key].generation : 0};
        break;
    case 1:
        change = MODEL_DELETE;
        op.code = PST_WIRE_DELETE;
        break;
    case 2:
    case 3:
        op.bytes = 1 + fuzz_below(q->in, INLINE_MAX);
        memset(zeros, id, sizeof(zeros));
        break;
    default:
        handle = s && fuzz_below(q->in, 8) ? s->handle : fuzz_below(q->in, 3);
        key = s ? s->key : key;
        id = s ? s->id : id;
        op.flags = PST_WIRE_IN_RESERVATION;
        op.bytes = s ? pst_min(s->bytes, VALUE_MAX) : 1 + fuzz_below(q->in, 100);
        op.value_reservation = handle;
    }
    asked = add(q, op, key);
    asked->handle = handle;
    model_member(&w->model, c, change, key, id);
}

/* Any shard may be told of any keys. */
void ask_commit(struct fuzz *in, uint32_t session, uint32_t worker)
{
    uint32_t count = 1 + fuzz_below(in, MODEL_MEMBERS_MAX);
    static struct question q;
    struct model_commit *c = model_commit(&w->model);

    if (!c)
        return;
    if (!open_question(&q, in, session, worker)) {
        c->open = false;
        return;
    }
    add(&q, (struct pst_wire_op){.code = PST_WIRE_COMMIT, .bytes = count}, MODEL_KEYS);
    q.asked->commit = c;
    for (uint32_t i = 0; i < count; i++)
        add_member(&q, c, fuzz_below(in, MODEL_KEYS));
    deliver(&q);
}

/* Whatever the bytes say: the session may end, and any key may have changed. */
void ask_anything(struct fuzz *in, uint32_t session, uint32_t worker)
{
    uint32_t count = 1 + fuzz_below(in, OPS_MAX);
    static struct question q;

    if (!open_question(&q, in, session, worker))
        return;
    q.asked->garbage = true;
    for (uint32_t i = 0; i < count; i++) {
        struct pst_wire_op op = {.code = (uint8_t)fuzz_below(in, 36),
                                 .flags = (uint32_t)fuzz_number(in, 4),
                                 .bytes = fuzz_below(in, INLINE_MAX),
                                 .offset = fuzz_below(in, 4),
                                 .if_generation = fuzz_below(in, 4)};

        add(&q, op, fuzz_below(in, MODEL_KEYS + 1));
    }
    for (uint32_t i = 0; i < MODEL_KEYS; i++)
        w->model.keys[i].vague = true;
    deliver(&q);
}

/* The next bytes of a value that is awaited: all, or half of what is left. */
void send_value(struct fuzz *in, uint32_t session, uint32_t worker)
{
    struct pst_shard_session *v = shard_session_of(session, worker);
    static uint8_t value[VALUE_MAX];
    struct {
        struct pst_wire_head head;
        struct pst_wire_part part;
    } m = {.head = {.type = PST_WIRE_BULK,
                    .version = PST_WIRE_VERSION,
                    .count = 1,
                    .token = w->sessions[session].token}};
    const struct pst_write *write;
    struct pst_net_event event;
    struct pst_request *q;

    if (pst_list_empty(&v->receiving))
        return;
    q = pst_list_first(&v->receiving, struct pst_request, link);
    write = q->write_count ? &q->writes[0] : NULL;
    if (!write || !write->bytes_left)
        return;
    m.head.request = q->id;
    m.head.bulk_count = q->bulks_next;
    m.part =
        (struct pst_wire_part){.op = write->op,
                               .offset = write->put.value_bytes - write->bytes_left,
                               .bytes = fuzz_below(in, 3) ? write->bytes_left : (write->bytes_left + 1) / 2};
    if (m.part.bytes > sizeof(value))
        return;
    memset(value, w->asked[session][worker][q->id % PST_WIRE_PLACES].ops[write->op].id, m.part.bytes);
    event = stub_message(w->ports[worker], PST_NET_BULK, (struct pst_bytes){&m, sizeof(m)},
                         (struct pst_bytes){value, m.part.bytes});
    pst_request_bulk(v, &m.head, &event);
    run_stalled(worker);
    if (v->leaving)
        end_session(session);
}
