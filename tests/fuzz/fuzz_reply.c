/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_reply.c: what a node answers, as a channel reads it: replies and bulk messages, genuine heads with the
 * input's contents and bytes without any sense. Whatever comes, every operation ends once, its buffers are
 * touched while it is underway only, and a read that succeeded brought what it says.
 */
#include "fuzz.h"
#include "stub_net.h"

#include "call/call_priv.h"

enum { OPS_MAX = 12, ACTIONS_MAX = 48, TOKEN = 0x1234, BULK_BYTES_MAX = 64 << 10, MEMBERS_MAX = 3 };

struct asked {
    struct penstock_op op;
    struct penstock_op members[MEMBERS_MAX]; /* of a commit */
    struct iovec pieces[2];
    bool ended;
};

static struct {
    struct pst_channel *channel;
    struct stub_port *port;
    struct pst_op_list done;
    struct asked *asked[OPS_MAX];
    int asked_count, ended_count;
} client;

static void drop_sent(void *ctx, struct pst_bytes header, struct pst_bytes data)
{
    struct pst_wire_head head;
    const uint8_t *at = data.data ? data.data : (const uint8_t *)"", *end = at + data.len;

    (void)ctx;
    pst_assert(pst_wire_get_head(header, &head) == 0 && head.token == TOKEN);
    for (uint32_t i = 0; head.type == PST_WIRE_REQUEST && i < head.count; i++) {
        struct pst_wire_op op;
        int r = pst_wire_get_op(&at, end, &op);

        pst_assert(r == 0);
    }
    pst_assert(head.type != PST_WIRE_REQUEST || at == end);
}

static void open_channel(uint16_t version)
{
    struct pst_channel *ch = calloc(1, sizeof(*ch));
    int r;

    pst_assert(ch);
    client.port = stub_port_open(drop_sent, NULL);
    ch->magic = PST_CHANNEL_MAGIC;
    ch->state = CHANNEL_UP;
    ch->port = stub_port_base(client.port);
    ch->welcome.token = TOKEN;
    ch->welcome.version = version;
    ch->welcome.shard_count = 2;
    ch->welcome.page_bytes = 64 << 10;
    ch->tick_ns = UINT64_MAX / 2; /* nothing happens by itself */
    ch->options.timeout_ms = 1000;
    pst_bulk_park_init(&ch->park);
    pst_list_init(&ch->idle);
    pst_list_init(&ch->unsent);
    pst_list_init(&ch->sent);
    for (uint32_t i = 0; i < ch->welcome.shard_count; i++, ch->peers_open++) {
        r = pst_peer_open(ch->port, "", 1, ch, &ch->peers[i]);
        pst_assert(r == 0);
    }
    client.channel = ch;
    client.done = (struct pst_op_list){0};
    client.asked_count = client.ended_count = 0;
}

/* ---- operations ---- */

static struct asked *new_asked(uint8_t code, uint64_t bytes)
{
    struct asked *a = calloc(1, sizeof(*a));

    pst_assert(a && client.asked_count < OPS_MAX);
    penstock_prep(&a->op, (enum penstock_code)code, "key", 3);
    a->op.bytes = bytes;
    a->op.data = calloc(1, bytes ? bytes : 1);
    client.asked[client.asked_count++] = a;
    return a;
}

static void in_pieces(struct asked *a)
{
    uint8_t *data = a->op.data;
    uint64_t bytes = a->op.bytes;

    a->pieces[0] = (struct iovec){data, bytes / 3};
    a->pieces[1] = (struct iovec){data + bytes / 3, bytes - bytes / 3};
    a->op.iov = a->pieces;
    a->op.iov_count = 2;
}

static void with_attrs(struct asked *a, struct fuzz *in)
{
    a->op.attr_bytes = (uint8_t)fuzz_number(in, 1);
    a->op.attrs = calloc(1, a->op.attr_bytes ? a->op.attr_bytes : 1);
}

static void submit(struct asked *a, uint8_t how, bool flush)
{
    int shard = pst_op_public(&a->op) ? -1 : (how >> 4) & 1;

    pst_channel_submit(client.channel, &a->op, shard, &client.done);
    if (flush)
        pst_channel_flush(client.channel);
}

static void ask(struct fuzz *in)
{
    static const uint8_t codes[] = {PENSTOCK_PUT,    PENSTOCK_GET,  PENSTOCK_GET,  PENSTOCK_STAT_KEY,
                                    PENSTOCK_DELETE, PST_WIRE_LIST, PST_WIRE_VIEW, PST_WIRE_STAT};
    uint8_t how = (uint8_t)fuzz_number(in, 1);
    uint64_t bytes = fuzz_number(in, 2);
    struct asked *a;

    if (client.asked_count == OPS_MAX)
        return;
    a = new_asked(codes[how % pst_count_of(codes)], bytes);
    if (a->op.code == PENSTOCK_GET && how & 0x40)
        a->op.flags = PENSTOCK_RANGE;
    if (a->op.code == PENSTOCK_GET && how & 0x20)
        in_pieces(a);
    if (how & 0x80)
        with_attrs(a, in);
    submit(a, how, how & 0x08);
}

/* The members are the caller's like the operation, which has them in place of data. */
static void fill_commit(struct asked *a, struct fuzz *in)
{
    static const uint8_t codes[] = {PENSTOCK_PUT, PENSTOCK_DELETE, PENSTOCK_CHECK};

    free(a->op.data);
    a->op.data = a->members;
    a->op.bytes = fuzz_below(in, MEMBERS_MAX) + 1;
    for (uint64_t i = 0; i < a->op.bytes; i++) {
        struct penstock_op *member = &a->members[i];

        penstock_prep(member, (enum penstock_code)codes[fuzz_below(in, pst_count_of(codes))], "key", 3);
        member->flags = PENSTOCK_IF_GENERATION;
        if (member->code != PENSTOCK_PUT)
            continue;
        member->data = (void *)(uintptr_t) "value";
        member->bytes = 5;
        if (fuzz_below(in, 2) == 1) /* the value is in a reservation */
            member->flags |= PST_WIRE_IN_RESERVATION;
    }
}

/* What the client's calls for reservations, waits and watches ask. */
static void ask_more(struct fuzz *in)
{
    static const uint8_t codes[] = {
        PENSTOCK_RESERVE,           PENSTOCK_WRITE_AT, PENSTOCK_RESERVATION_COMMIT,
        PENSTOCK_RESERVATION_ABORT, PENSTOCK_GET,      PST_WIRE_WATCH_OPEN,
        PST_WIRE_WATCH_NEXT,        PST_WIRE_COMMIT,   PST_WIRE_WATCH_CLOSE};
    uint8_t how = (uint8_t)fuzz_number(in, 1), code = codes[(how & 0x0f) % pst_count_of(codes)];
    uint64_t bytes = code == PENSTOCK_RESERVE ? sizeof(struct penstock_reservation) : fuzz_number(in, 2);
    struct asked *a;

    if (client.asked_count == OPS_MAX)
        return;
    a = new_asked(code, bytes);
    a->op.handle = fuzz_number(in, 1); /* or the generation of a condition */
    if (code == PENSTOCK_GET)
        a->op.flags = PENSTOCK_WAIT;
    if (code == PENSTOCK_WRITE_AT)
        a->op.offset = fuzz_number(in, 2);
    if (code == PST_WIRE_WATCH_NEXT)
        a->op.wait_ms = (uint32_t)fuzz_number(in, 2);
    if (how & 0x20 && (code == PENSTOCK_GET || code == PENSTOCK_WRITE_AT))
        in_pieces(a);
    if (how & 0x40 &&
        (code == PENSTOCK_GET || code == PENSTOCK_RESERVE || code == PENSTOCK_RESERVATION_COMMIT))
        with_attrs(a, in);
    if (code == PST_WIRE_COMMIT)
        fill_commit(a, in);
    submit(a, how, how & 0x80);
}

static void check_reservation(const struct penstock_op *op)
{
    const struct penstock_reservation *reservation = op->data;

    pst_assert(reservation->location_bytes <= PENSTOCK_RESERVATION_LOCATION_BYTES_MAX);
    pst_assert(reservation->location[reservation->location_bytes] == '\0');
}

/* An ended operation is its caller's again, who frees it. */
static void reap(void)
{
    struct penstock_op *op;

    while ((op = pst_op_list_pop(&client.done))) {
        struct asked *a = pst_container_of(op, struct asked, op);

        pst_assert(!a->ended);
        a->ended = true;
        client.ended_count++;
        if (op->code == PENSTOCK_GET && op->result == 0 && !(op->flags & PENSTOCK_RANGE))
            pst_assert(op->value_bytes <= op->bytes);
        if (op->result == 0 && pst_code_has(op->code, PST_CODE_ANSWERS))
            pst_assert(op->value_bytes <= op->bytes);
        if (op->code == PENSTOCK_RESERVE && op->result == 0)
            check_reservation(op);
        if (op->code != PST_WIRE_COMMIT)
            free(op->data);
        free(op->attrs);
        op->data = op->attrs = NULL;
        op->key = NULL;
        op->iov = NULL;
    }
}

/* ---- messages ---- */

static uint32_t some_request(struct fuzz *in)
{
    const struct pst_channel *ch = client.channel;
    uint32_t pick = (uint32_t)fuzz_number(in, 1);

    if (ch->call_count == 0 || pick >= 0xf0)
        return (uint32_t)fuzz_number(in, 4);
    return ch->calls[pick % ch->call_count]->id - (pick & 0x80 ? CALLS_MAX : 0);
}

static void deliver(enum pst_net_kind kind, struct pst_bytes header, struct pst_bytes data)
{
    struct pst_net_event event = stub_message(client.port, kind, header, data);

    event.arg = kind == PST_NET_BULK ? client.channel : NULL; /* of its peer */
    if (kind == PST_NET_EAGER)
        pst_channel_on_message(client.channel, &event);
    else
        pst_channel_on_bulk(client.channel, &event);
}

/* Data that begin with an 's' are a reservation's, its location as long as it says. */
static void fit_reservation(uint8_t *data, size_t bytes)
{
    struct pst_wire_reservation reservation = {.handle = 1};

    if (bytes < sizeof(reservation) || data[0] != 's')
        return;
    reservation.location_bytes = (uint16_t)(bytes - sizeof(reservation));
    memcpy(data, &reservation, sizeof(reservation));
}

/* Results that fit their operations but for what the input says. */
static void reply(struct fuzz *in)
{
    struct pst_wire_head head = {
        .type = PST_WIRE_REPLY, .version = (uint8_t)client.channel->welcome.version, .token = TOKEN};
    static uint8_t body[PST_WIRE_BODY_BYTES_MAX];
    uint8_t *at = body, *filler;
    size_t came;

    head.request = some_request(in);
    head.count = (uint16_t)fuzz_below(in, OPS_MAX + 1);
    head.bulk_count = (uint32_t)fuzz_below(in, 4);
    for (uint32_t i = 0; i < head.count; i++) {
        struct pst_wire_result result = {.result = (int8_t)fuzz_number(in, 1),
                                         .flags = (uint8_t)fuzz_below(in, 16)};

        result.bytes = fuzz_below(in, 4096);
        filler = fuzz_take(in, result.bytes, &came);
        fit_reservation(filler, came);
        result.bytes = (uint32_t)came;
        result.data = filler;
        result.value_bytes = result.flags & 2 ? fuzz_number(in, 8) : result.bytes;
        result.bulk_bytes = fuzz_number(in, 2);
        if (result.flags & PST_WIRE_IN_BULK && !(result.flags & PST_WIRE_CRC))
            result.value_bytes = result.bulk_bytes;
        result.attrs = (struct pst_bytes){"attributes and more of them than fit", result.flags & 1 ? 30 : 7};
        at = pst_wire_put_result(at, &result);
        free(filler);
    }
    deliver(PST_NET_EAGER, (struct pst_bytes){&head, sizeof(head)},
            (struct pst_bytes){body, (size_t)(at - body)});
}

static void bulk(struct fuzz *in)
{
    struct {
        struct pst_wire_head head;
        struct pst_wire_part parts[8];
    } header = {.head = {.type = PST_WIRE_BULK,
                         .version = (uint8_t)client.channel->welcome.version,
                         .token = TOKEN,
                         .bulk_count = fuzz_below(in, 4)}};
    uint64_t sum = 0;

    header.head.request = some_request(in);
    header.head.count = (uint16_t)(fuzz_below(in, 8) + 1);
    for (uint32_t i = 0; i < header.head.count; i++) {
        header.parts[i] = (struct pst_wire_part){
            .op = (uint32_t)fuzz_number(in, 1), .offset = fuzz_number(in, 2), .bytes = fuzz_number(in, 2)};
        sum += header.parts[i].bytes;
    }
    sum += fuzz_below(in, 16) == 1;
    sum = pst_min(pst_max(sum, 1), BULK_BYTES_MAX);
    deliver(PST_NET_BULK,
            (struct pst_bytes){&header, sizeof(header.head) + header.head.count * sizeof(header.parts[0])},
            (struct pst_bytes){NULL, sum});
}

static void anything(struct fuzz *in)
{
    enum pst_net_kind kind = fuzz_number(in, 1) & 1 ? PST_NET_EAGER : PST_NET_BULK;
    size_t header_bytes, data_bytes;
    uint8_t *header = fuzz_take(in, fuzz_below(in, 200), &header_bytes);
    uint8_t *data = fuzz_take(in, fuzz_below(in, 2000) + 1, &data_bytes);

    deliver(kind, (struct pst_bytes){header, header_bytes}, (struct pst_bytes){data, pst_max(data_bytes, 1)});
    free(header);
    free(data);
}

static void poll_port(void)
{
    struct pst_channel *ch = client.channel;
    struct pst_net_event event;

    while (pst_port_poll(ch->port, &event, 1) > 0) {
        if (event.kind == PST_NET_RECEIVED)
            pst_channel_on_received(pst_bulk_in_cast(event.arg), event.status);
        else if (event.kind == PST_NET_PEER_GONE)
            ch->peers_open--;
    }
}

/* ---- the end: every operation has come out ---- */

static void close_channel(void)
{
    struct pst_channel *ch = client.channel;

    pst_channel_break(ch, -ECONNRESET);
    poll_port();
    pst_assert(ch->state == CHANNEL_CLOSING && ch->peers_open == 0 &&
               stub_messages(client.port) == ch->park.count);
    pst_channel_tick(ch, UINT64_MAX / 4); /* behind every deadline */
    reap();
    pst_assert(client.ended_count == client.asked_count && ch->state == CHANNEL_DOWN && !ch->port);
    for (int i = 0; i < client.asked_count; i++)
        free(client.asked[i]);
    for (uint32_t i = 0; i < ch->call_count; i++) {
        free(ch->calls[i]->body);
        free(ch->calls[i]);
    }
    free(ch);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct fuzz in = {data, bytes};

    open_channel(fuzz_number(&in, 1) & 1 ? PST_WIRE_VERSION_OLDEST : PST_WIRE_VERSION);
    for (int i = 0; i < ACTIONS_MAX && in.left > 0; i++) {
        switch (fuzz_number(&in, 1) & 7) {
        case 0:
            ask(&in);
            break;
        case 1:
            ask_more(&in);
            break;
        case 2:
            pst_channel_flush(client.channel);
            break;
        case 3:
            bulk(&in);
            break;
        case 4:
            anything(&in);
            break;
        case 5:
            poll_port();
            break;
        default:
            reply(&in);
        }
        reap();
    }
    close_channel();
    return 0;
}
