/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_request.c: what a client asks, through the node's checks to the store and back: requests and bulk
 * messages, out of operations that the input describes and of its bytes. Whatever is asked, each operation
 * has its result, each answer decodes, and when the session has ended and every key is deleted, nothing is
 * left.
 */
#include "fuzz.h"
#include "stub_net.h"

#include "base/clock.h"
#include "call/replica.h"
#include "node/commit.h"
#include "node/node_priv.h"
#include "node/request.h"
#include "store/figures.h"
#include "store/keys.h"

#include <penstock/penstock.h>
#include <stdio.h>

enum { MESSAGES_MAX = 24, BULK_BYTES_MAX = 300 << 10, KEYS = 8, PLACES = 4, USES_MAX = 1000 };

static struct {
    struct pst_node node;
    struct pst_worker worker;
    struct pst_session session;
    struct pst_shard_session *shard_session;
    struct stub_port *port;
    uint32_t asked, answered; /* operations */
    bool uncounted;           /* a request has come whose number is not one of ours */
    uint32_t used[PLACES];    /* by place of a request: its number's uses so far */
} n;

/* The library's encoder puts no copies where they mean nothing: a hostile one writes its own second byte. */
static uint8_t *put_with_copies(uint8_t *at, struct pst_wire_op op)
{
    uint8_t copies = op.copies, *end;

    op.copies = 0;
    end = pst_wire_put_op(at, &op);
    at[1] = copies;
    return end;
}

/* What was decoded is written as it was read. */
static void check_op(const struct pst_wire_op *op, const uint8_t *from, const uint8_t *to)
{
    size_t bytes = pst_wire_op_bytes(op);
    uint8_t *again = malloc(bytes);

    pst_assert(again && bytes == (size_t)(to - from));
    pst_assert(put_with_copies(again, *op) == again + bytes && memcmp(again, from, bytes) == 0);
    free(again);
}

static void check_result(const struct pst_wire_result *result, const uint8_t *from, const uint8_t *to)
{
    size_t bytes = (size_t)(to - from);
    uint8_t *again = malloc(bytes);

    pst_assert(again && pst_wire_put_result(again, result) == again + bytes);
    pst_assert(memcmp(again, from, bytes) == 0);
    free(again);
}

static void on_sent(void *ctx, struct pst_bytes header, struct pst_bytes data)
{
    const uint8_t *at = data.data, *end = at + data.len;
    struct pst_wire_head head;
    int r = pst_wire_get_head(header, &head);

    (void)ctx;
    pst_assert(r == 0 && head.token == n.session.token);
    if (head.type != PST_WIRE_REPLY)
        return;
    for (uint32_t i = 0; i < head.count; i++) {
        const uint8_t *from = at;
        struct pst_wire_result result;

        r = pst_wire_get_result(&at, end, &result);
        pst_assert(r == 0);
        check_result(&result, from, at);
    }
    pst_assert(at == end);
    n.answered += head.count;
}

/* ---- the node's part in a pool: a member that has copies of partitions, as of epoch 1 ---- */

static int may_serve(void *ctx, struct pst_bytes key)
{
    (void)ctx;
    return key.len == 2 ? PENSTOCK_BUSY : 0;
}

static bool is_copied(void *ctx, struct pst_bytes key)
{
    (void)ctx;
    return key.len == 1 && *(const char *)key.data == 'd';
}

static bool is_stranded(void *ctx, struct pst_bytes key)
{
    (void)ctx;
    return key.len == 3;
}

/* The copies have it, refuse it, or nobody knows. */
static void replicate(void *ctx, struct pst_replica *replica)
{
    static const int results[] = {0, 0, -EHOSTUNREACH, PENSTOCK_UNKNOWN};

    (void)ctx;
    pst_assert(replica->write_count > 0);
    replica->done(replica, results[replica->writes[0].value_bytes % pst_count_of(results)]);
}

static void replicated(void *ctx, struct pst_replica *replica)
{
    (void)ctx;
    (void)replica;
}

static int may_copy(void *ctx, uint32_t reservation, uint64_t partition_epoch)
{
    (void)ctx;
    (void)reservation;
    return partition_epoch == 1 ? 0 : partition_epoch > 1 ? PENSTOCK_BUSY : -ESTALE;
}

static uint32_t partition_of(void *ctx, struct pst_bytes key)
{
    (void)ctx;
    return (uint32_t)key.len;
}

static void open_node(void)
{
    struct pst_store_options options = {
        .arenas = {.bytes = 4 << 20, .page_bytes = 64 << 10, .arena_bytes = 2 << 20},
        .shard_count = 1,
        .watermark_percent = 90,
    };
    const char *prefix = "c", *fault;
    int r;

    options.cache_prefixes = &prefix;
    options.cache_prefix_count = 1;
    r = pst_store_open(&options, &n.node.store, &fault);
    pst_assert(r == 0);
    n.node.workers = &n.worker;
    n.node.worker_count = 1;
    n.node.requests_max = 4;
    n.node.request_ns = 600 * 1000000000ull;
    n.node.sessions_max = 1;
    n.node.wake_fd = -1;
    n.node.role = (struct pst_node_role){.may_serve = may_serve,
                                         .copied = is_copied,
                                         .replicate = replicate,
                                         .replicated = replicated,
                                         .may_copy = may_copy,
                                         .stranded = is_stranded,
                                         .partition_of = partition_of};
    r = pst_worker_init(&n.worker, &n.node, 0);
    pst_assert(r == 0);
    n.node.wake_fd = n.worker.wake_fd;
}

static void begin(uint8_t how)
{
    struct pst_shard_session *v;
    int r;

    n.port = stub_port_open(on_sent, NULL);
    n.worker.port = stub_port_base(n.port);
    n.worker.now_ns = pst_now_ns();
    n.session = (struct pst_session){.magic = PST_SESSION_MAGIC,
                                     .token = 0x770000,
                                     .version = how & 2 ? PST_WIRE_VERSION_OLDEST : PST_WIRE_VERSION,
                                     .views = how & 1,
                                     .shards_left = 1};
    memset(n.used, 0, sizeof(n.used));
    r = pst_shard_session_add(&n.worker, &n.session);
    pst_assert(r == 0);
    v = n.worker.by_place[0];
    r = pst_peer_open(n.worker.port, "", 1, v, &v->peer);
    pst_assert(r == 0);
    n.shard_session = v;
    n.uncounted = false;
    n.asked = n.answered = 0;
}

static void poll_port(void)
{
    struct pst_net_event event;

    while (!pst_list_empty(&n.worker.commit_messages)) {
        struct pst_commit_message *mail =
            pst_list_first(&n.worker.commit_messages, struct pst_commit_message, link);

        pst_list_remove(&mail->link);
        pst_commit_receive(&n.worker, mail);
    }
    while (pst_port_poll(n.worker.port, &event, 1) > 0) {
        if (event.kind == PST_NET_RECEIVED)
            pst_request_received(event.arg, event.status);
        else if (event.kind == PST_NET_PEER_GONE)
            pst_shard_session_peer_gone(n.shard_session);
    }
}

/* A request is carried out once: a later copy of it, or of an earlier one of its place, is dropped. */
static bool number_is_fresh(uint32_t number)
{
    uint32_t place = number % PST_WIRE_PLACES, use = number / PST_WIRE_PLACES + 1;

    if (place >= PLACES || use > USES_MAX)
        n.uncounted = true;
    if (n.uncounted || use <= n.used[place])
        return false;
    n.used[place] = use;
    return true;
}

static uint32_t some_number(struct fuzz *in)
{
    uint32_t place = fuzz_below(in, PLACES), use = n.used[place];

    return place + PST_WIRE_PLACES * (fuzz_below(in, 16) == 1 && use > 0 ? use - 1 : use);
}

static void deliver(struct pst_bytes header, struct pst_bytes data, enum pst_net_kind kind)
{
    struct pst_net_event event = stub_message(n.port, kind, header, data);
    struct pst_wire_head head;

    if (n.shard_session->leaving || pst_wire_get_head(event.header, &head) < 0) {
        pst_msg_free(event.msg);
    } else if (kind == PST_NET_BULK && head.type == PST_WIRE_BULK) {
        pst_request_bulk(n.shard_session, &head, &event);
    } else {
        if (kind == PST_NET_EAGER && head.type == PST_WIRE_REQUEST) {
            bool fresh = number_is_fresh(head.request);

            pst_request_begin(n.shard_session, &head, pst_wire_get_trace(event.header), event.data);
            n.asked += n.shard_session->leaving || !fresh ? 0 : head.count;
        }
        pst_msg_free(event.msg);
    }
}

static const char *const keys[KEYS] = {"", "a", "ab", "b", "c", "c1", "c2", "d"};

static uint64_t some_epoch(struct fuzz *in)
{
    uint32_t dice = fuzz_below(in, 8);

    return dice < 3 ? dice : 1;
}

/* What a primary says of a value, or of reservations. Return: its length. */
static size_t put_from_primary(struct fuzz *in, uint8_t code, uint8_t *to)
{
    struct pst_wire_cleared cleared[] = {{some_epoch(in), (uint16_t)fuzz_below(in, 5), {0}},
                                         {some_epoch(in), (uint16_t)fuzz_number(in, 2), {0}}};
    struct pst_wire_copy copy = {.partition_epoch = some_epoch(in),
                                 .generation = fuzz_number(in, fuzz_below(in, 8) ? 2 : 8),
                                 .expires_ms = fuzz_below(in, 4) ? 0 : fuzz_number(in, 8),
                                 .what = (uint8_t)fuzz_below(in, 3),
                                 .checksum = (uint8_t)fuzz_below(in, 2)};

    if (code == PST_WIRE_COPY_CLEAR) {
        memcpy(to, cleared, sizeof(cleared));
        return sizeof(cleared[0]) * fuzz_below(in, 3);
    }
    memcpy(to, &copy, sizeof(copy));
    memcpy(to + sizeof(copy), "attrs", 5);
    return sizeof(copy) + fuzz_below(in, 6);
}

/* Makes of it what may be asked for: other flags, then with less else. */
static void fit(struct pst_wire_op *op, bool member)
{
    uint32_t flags = op->flags, may = pst_wire_may(op->code, member);

    op->copies = 0;
    for (uint32_t i = 0; i < 3 * 256 && pst_wire_check(op, member) < 0; i++) {
        op->flags = (flags + i * 0x9e3779b1u) & may;
        if (i >= 256 && op->code != PST_WIRE_COPY)
            op->attrs = (struct pst_bytes){NULL, 0};
        if (i >= 256 && op->bytes == 0)
            op->bytes = 1;
        if (i >= 512)
            op->key = (struct pst_bytes){"a", op->key.len == 0};
    }
}

/* An operation that is well-formed, with sizes that the store likes and does not like. @left: how many
 * follow; *@members: those of them that belong to a commit. */
static uint8_t *put_some_op(struct fuzz *in, uint32_t left, uint32_t *members, uint8_t *at)
{
    static const uint8_t zeros[PST_WIRE_INLINE_BYTES_MAX];
    static const uint8_t codes[] = {1,  1,  1,  2,  2,  3,  4,  5,  6,  7,  16, 17, 18, 19, 20, 21,
                                    22, 22, 23, 23, 24, 25, 26, 26, 28, 28, 28, 29, 30, 32, 33, 34};
    const char *key = keys[fuzz_below(in, KEYS)], *end = keys[fuzz_below(in, KEYS)];
    uint8_t said[64];
    struct pst_wire_op op = {.code = codes[fuzz_below(in, pst_count_of(codes))],
                             .flags = (uint32_t)fuzz_number(in, 4),
                             .copies = (uint8_t)fuzz_below(in, 9),
                             .depth = (uint16_t)fuzz_number(in, 1),
                             .key = {key, strlen(key)},
                             .attrs = {end, strlen(end)}};

    if (op.code == PST_WIRE_COPY || op.code == PST_WIRE_COPY_CLEAR)
        op.attrs = (struct pst_bytes){said, put_from_primary(in, op.code, said)};
    op.bytes = fuzz_number(in, 1 + (fuzz_below(in, 8) ? 1 : 7));
    op.bytes *= op.flags & PST_WIRE_VALUE_IN_BULK ? 16 : 1;
    op.if_generation = fuzz_number(in, 1);
    op.offset = fuzz_number(in, op.flags & 1 ? 1 : 8);
    op.value_crc = (uint32_t)fuzz_number(in, 1); /* or the time to wait */
    if (*members > 0)
        op.code = (uint8_t[]){PST_WIRE_PUT, PST_WIRE_DELETE, PST_WIRE_CHECK}[op.code % 3];
    if (op.code == PST_WIRE_COMMIT)
        op.bytes = left > 0 ? 1 + op.bytes % left : 1;
    if (fuzz_below(in, 64) != 1)
        fit(&op, *members > 0);
    if (*members > 0)
        --*members;
    else if (op.code == PST_WIRE_COMMIT)
        *members = (uint32_t)op.bytes;
    if (pst_code_has(op.code, PST_CODE_VALUE) && !(op.flags & PST_WIRE_VALUE_IN_BULK)) {
        op.bytes = pst_min(op.bytes, sizeof(zeros));
        op.value = zeros;
    }
    return put_with_copies(at, op);
}

static struct pst_wire_head head_of(struct fuzz *in, enum pst_wire_type type, uint32_t count)
{
    return (struct pst_wire_head){.type = (uint8_t)type,
                                  .version = (uint8_t)n.session.version,
                                  .count = (uint16_t)count,
                                  .request = some_number(in),
                                  .token = n.session.token,
                                  .timeout_ms = (uint32_t)fuzz_number(in, 4)};
}

/* A request, now and then of a trace, or of what is none. */
static void request(struct fuzz *in, const struct pst_wire_head *head, struct pst_bytes body)
{
    struct pst_wire_traced_head header = {.head = *head};
    uint32_t dice = fuzz_below(in, 8);
    size_t bytes = dice < 2    ? PST_WIRE_TRACED_BYTES
                   : dice == 2 ? fuzz_below(in, sizeof(header))
                               : sizeof(*head);

    header.trace.trace_id[0] = (uint8_t)(dice == 0 ? 1 : fuzz_below(in, 2));
    header.trace.span_id[0] = (uint8_t)(dice == 0 ? 1 : fuzz_below(in, 2));
    header.trace.flags = (uint8_t)fuzz_below(in, 5);
    deliver((struct pst_bytes){&header, bytes}, body, PST_NET_EAGER);
}

static void ask(struct fuzz *in)
{
    struct pst_wire_head head = head_of(in, PST_WIRE_REQUEST, fuzz_below(in, 20));
    static uint8_t body[64 << 10];
    const uint8_t *from = body;
    uint32_t members = 0;
    uint8_t *at = body;

    for (uint32_t i = 0; i < head.count; i++)
        at = put_some_op(in, head.count - i - 1, &members, at);
    for (uint32_t i = 0; i < head.count; i++) {
        const uint8_t *begin_at = from;
        struct pst_wire_op op;
        int r = pst_wire_get_op(&from, at, &op);

        pst_assert(r == 0);
        check_op(&op, begin_at, from);
    }
    request(in, &head, (struct pst_bytes){body, (size_t)(at - body)});
}

/* The input's own bytes for operations. */
static void ask_anything(struct fuzz *in)
{
    struct pst_wire_head head = head_of(in, PST_WIRE_REQUEST, fuzz_below(in, 4));
    size_t bytes;
    uint8_t *body = fuzz_take(in, fuzz_below(in, 5000), &bytes);
    const uint8_t *at = body, *from = body;
    struct pst_wire_op op;

    while (pst_wire_get_op(&at, body + bytes, &op) == 0) {
        check_op(&op, from, at);
        from = at;
    }
    request(in, &head, (struct pst_bytes){body, bytes});
    free(body);
}

/* What a write of a request underway waits for, or something near it. */
static void send_value(struct fuzz *in)
{
    struct {
        struct pst_wire_head head;
        struct pst_wire_part parts[4];
    } m = {.head = head_of(in, PST_WIRE_BULK, fuzz_below(in, 4) + 1)};
    struct pst_request *q = NULL;
    uint64_t sum = 0;

    if (!pst_list_empty(&n.shard_session->receiving))
        q = pst_list_first(&n.shard_session->receiving, struct pst_request, link);
    m.head.bulk_count = fuzz_below(in, 8) == 1 ? fuzz_below(in, 4) : q ? q->bulks_next : 0;
    if (q)
        m.head.request = q->id;
    for (uint32_t i = 0; i < m.head.count; i++) {
        const struct pst_write *write = q && i < q->write_count ? &q->writes[i] : NULL;
        uint8_t twist = (uint8_t)fuzz_number(in, 1);

        if (write)
            m.parts[i] =
                (struct pst_wire_part){.op = write->op,
                                       .offset = write->put.value_bytes - write->bytes_left,
                                       .bytes = twist & 1 ? write->bytes_left : write->bytes_left / 2};
        m.parts[i].op += twist == 2;
        m.parts[i].offset += twist == 4;
        m.parts[i].bytes += twist == 6;
        sum += pst_min(m.parts[i].bytes, BULK_BYTES_MAX);
    }
    sum = pst_min(pst_max(sum + (fuzz_below(in, 32) == 1), 1), BULK_BYTES_MAX);
    deliver((struct pst_bytes){&m, sizeof(m.head) + m.head.count * sizeof(m.parts[0])},
            (struct pst_bytes){NULL, sum}, PST_NET_BULK);
}

static void deliver_anything(struct fuzz *in)
{
    enum pst_net_kind kind = fuzz_number(in, 1) & 1 ? PST_NET_EAGER : PST_NET_BULK;
    size_t header_bytes, data_bytes;
    uint8_t *header = fuzz_take(in, fuzz_below(in, 200), &header_bytes);
    uint8_t *data = fuzz_take(in, fuzz_below(in, 2000) + 1, &data_bytes);

    deliver((struct pst_bytes){header, header_bytes}, (struct pst_bytes){data, pst_max(data_bytes, 1)}, kind);
    free(header);
    free(data);
}

/* The session ends, the keys go: the store is as it was. */
static void end(void)
{
    struct pst_shard *shard = n.worker.shard;
    uint8_t answer[PST_SWEEP_BYTES_MAX];
    struct pst_wire_sweep swept = {.done = 0};
    struct pst_shard_stat stat;
    struct pst_store_stat store;

    pst_shard_session_end(n.shard_session);
    poll_port();
    pst_assert(n.session.shards_left == 0 && !n.worker.by_place[0]);
    pst_assert(stub_messages(n.port) == 0 && n.worker.underway == 0);
    stub_port_close(n.port);
    for (struct pst_range all = {.after = false}; !swept.done;) {
        pst_shard_sweep(shard, &all, false, n.worker.now_ns, answer);
        memcpy(&swept, answer, sizeof(swept));
    }
    pst_shard_stat(shard, &stat);
    pst_store_stat(n.node.store, &store);
    pst_assert(stat.keys == 0 && stat.value_bytes == 0 && stat.pinned == 0 && stat.slab_bytes == 0);
    pst_assert(store.pages_used == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct fuzz in = {data, bytes};

    if (!n.node.store)
        open_node();
    begin((uint8_t)fuzz_number(&in, 1));
    for (int i = 0; i < MESSAGES_MAX && in.left > 0; i++) {
        switch (fuzz_number(&in, 1) & 7) {
        case 0:
            ask_anything(&in);
            break;
        case 1:
            deliver_anything(&in);
            break;
        case 2:
        case 3:
            send_value(&in);
            break;
        case 4:
            poll_port();
            break;
        default:
            ask(&in);
        }
    }
    /* Nothing waits for the transport here: a request without large puts has its answer. */
    poll_port();
    pst_assert(n.uncounted || n.answered <= n.asked);
    pst_assert(n.uncounted || !pst_list_empty(&n.shard_session->requests) || n.shard_session->leaving ||
               n.answered == n.asked);
    end();
    return 0;
}
