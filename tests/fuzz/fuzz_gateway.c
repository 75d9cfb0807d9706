/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_gateway.c: clients of penstockd --tsgrpc, with time. The input says what they send, when their sockets
 * take what comes and when they stall, how the clock goes and jumps, when and how the store answers. Nothing
 * that a client says ends the door; each client gets whole values of one generation; who moves nothing holds
 * nothing for long; and in the end a client that behaves is served.
 */
#include "fuzz.h"
#include "stub_gateway.h"

#include <nghttp2/nghttp2.h>
#include <stdio.h>

enum {
    STREAMS = 32, /* of a client: 1, 3, 5... */
    STEPS_MAX = 400,
    FRAME_HEAD_BYTES = 9,
    FRAME_TAKEN_MAX = 1 << 20,
    PATIENCE_MS = 60000,
    SLACK_MS = 5000,
    ROOM_ALWAYS = 1 << 30,
};

enum {
    DATA,
    HEADERS,
    PRIORITY,
    RST_STREAM,
    SETTINGS,
    PUSH_PROMISE,
    PING,
    GOAWAY,
    WINDOW_UPDATE,
    CONTINUATION
};
enum { END_STREAM = 1, END_HEADERS = 4 };

struct call {
    bool asked, ended; /* by its answer */
    bool reads, whole; /* a value, all of it */
    int64_t window;    /* bytes that the door may send */
    int64_t room;      /* bytes that the client may */
    uint64_t written;  /* of a value */
    bool key_sent;
    struct stub_bytes answer;
};

struct client {
    bool greeted, wild; /* wild: it has sent what nobody can tell the meaning of */
    uint32_t next;      /* call */
    uint32_t last;      /* that was opened */
    int64_t window, first_window, first_room, room;
    struct stub_bytes taken;
    nghttp2_hd_inflater *inflater;
    struct call calls[STREAMS];
};

static struct fuzz in;
static struct client clients[STUB_CLIENTS];
static uint32_t steps, ending;
static bool honest_served;

/* ---- what clients say ---- */

static void say_frame(uint32_t client, uint8_t kind, uint8_t flags, uint32_t id, const void *data,
                      size_t bytes)
{
    uint8_t head[FRAME_HEAD_BYTES] = {
        (uint8_t)(bytes >> 16), (uint8_t)(bytes >> 8), (uint8_t)bytes,     kind,       flags,
        (uint8_t)(id >> 24),    (uint8_t)(id >> 16),   (uint8_t)(id >> 8), (uint8_t)id};

    stub_send(client, head, sizeof(head));
    stub_send(client, data, bytes);
}

static void say_u32(uint32_t client, uint8_t kind, uint32_t id, uint32_t number)
{
    const uint8_t bytes[] = {(uint8_t)(number >> 24), (uint8_t)(number >> 16), (uint8_t)(number >> 8),
                             (uint8_t)number};

    say_frame(client, kind, 0, id, bytes, sizeof(bytes));
}

static void connect_client(uint32_t i)
{
    struct client *c = &clients[i];

    if (stub.sockets[i].open)
        return;
    *c = (struct client){.window = 65535, .room = 65535, .first_room = 65535};
    pst_assert(nghttp2_hd_inflate_new(&c->inflater) == 0);
    stub.sockets[i] = (struct stub_socket){.open = true, .portion = SIZE_MAX, .room = ROOM_ALWAYS};
}

static void greet(uint32_t i, uint32_t window, bool whole)
{
    static const char preface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    const uint8_t entry[] = {
        0, 4, (uint8_t)(window >> 24), (uint8_t)(window >> 16), (uint8_t)(window >> 8), (uint8_t)window};

    if (!stub.sockets[i].open || clients[i].greeted)
        return;
    clients[i].greeted = true;
    clients[i].first_window = window;
    stub_send(i, preface, whole ? sizeof(preface) - 1 : 20);
    if (!whole)
        clients[i].wild = true;
    else
        say_frame(i, SETTINGS, 0, 0, entry, sizeof(entry));
}

static size_t put_header(uint8_t *at, const char *name, const char *value)
{
    size_t name_bytes = strlen(name), value_bytes = strlen(value);

    pst_assert(name_bytes < 127 && value_bytes < 127);
    at[0] = 0;
    at[1] = (uint8_t)name_bytes;
    memcpy(at + 2, name, name_bytes);
    at[2 + name_bytes] = (uint8_t)value_bytes;
    memcpy(at + 3 + name_bytes, value, value_bytes);
    return 3 + name_bytes + value_bytes;
}

static const char *const methods[] = {"Read", "Write", "Delete", "List", "Compact"};

/* Return: the call, NULL there is none left. */
static struct call *ask(uint32_t i, uint32_t method, uint32_t timeout, uint8_t flags)
{
    static const char *const timeouts[] = {"", "1m", "1S", "20S", "99999999H", "x"};
    struct client *c = &clients[i];
    uint8_t block[512];
    char path[128];
    size_t bytes = 0;

    if (!c->greeted || c->next == STREAMS)
        return NULL;
    c->last = c->next++;
    c->calls[c->last] = (struct call){.asked = true, .window = c->first_window, .room = c->first_room};
    c->calls[c->last].reads = method == 0;
    snprintf(path, sizeof(path), "/tensorstore_grpc.kvstore.KvStoreService/%s",
             methods[method % pst_count_of(methods)]);
    bytes += put_header(block, ":method", "POST");
    bytes += put_header(block + bytes, ":scheme", "http");
    bytes += put_header(block + bytes, ":path", path);
    bytes += put_header(block + bytes, ":authority", "x");
    if (timeout % 16 != 15)
        bytes += put_header(block + bytes, "content-type", "application/grpc");
    if (timeout % pst_count_of(timeouts))
        bytes += put_header(block + bytes, "grpc-timeout", timeouts[timeout % pst_count_of(timeouts)]);
    stub.sockets[i].busy = true;
    say_frame(i, HEADERS, flags, 2 * c->last + 1, block, bytes);
    return &c->calls[c->last];
}

/* Data that the windows allow, in frames of @frame_bytes. */
static void say_data(uint32_t i, uint32_t id, const uint8_t *data, size_t bytes, size_t frame_bytes, bool end)
{
    struct client *c = &clients[i];
    struct call *call = &c->calls[id / 2 % STREAMS];

    stub.sockets[i].busy = true;
    call->room -= (int64_t)bytes;
    c->room -= (int64_t)bytes;
    do {
        size_t count = pst_min(bytes, frame_bytes);

        bytes -= count;
        say_frame(i, DATA, end && !bytes ? END_STREAM : 0, id, data, count);
        data += count;
    } while (bytes);
}

/* A request of one message for key @key. */
static void say_request(uint32_t i, uint32_t id, uint32_t method, uint32_t key, uint32_t form)
{
    static const uint8_t range[] = {0x2a, 4, 0x08, 1, 0x10, 9};
    uint8_t body[32] = {0, 0, 0, 0, 3, 0x0a, 1, (uint8_t)('0' + key % (STUB_KEYS + 1))};
    size_t bytes = 8;

    if (method == 3 || (method == 2 && form % 4 == 3)) { /* everything */
        body[4] = method == 3 ? 0 : 2;
        body[5] = 0x12;
        body[6] = 0;
        bytes = method == 3 ? 5 : 7;
    } else if (method == 0 && form % 4 == 1) {
        memcpy(body + bytes, range, sizeof(range));
        body[4] = 3 + sizeof(range);
        bytes += sizeof(range);
    }
    clients[i].calls[id / 2 % STREAMS].whole = form % 4 != 1;
    say_data(i, id, body, bytes, form % 8 == 7 ? 1 : bytes, form % 16 != 14);
}

static void whole_call(uint32_t i)
{
    uint32_t method = fuzz_below(&in, 4), key = fuzz_below(&in, 16), form = fuzz_below(&in, 256);

    if (ask(i, method, fuzz_below(&in, 64), END_HEADERS))
        say_request(i, 2 * clients[i].last + 1, method, key, form);
}

/* A message of a Write's, whose part goes on where the one before ended; @end: of all. */
static void say_part(uint32_t i, uint32_t id, size_t part_bytes, size_t frame_bytes, bool end, bool key_again)
{
    struct call *call = &clients[i].calls[id / 2 % STREAMS];
    uint8_t *message = malloc(part_bytes + 32);
    size_t at = 5;

    pst_assert(message);
    if (call->written + part_bytes > STUB_PATTERN_BYTES)
        part_bytes = 0;
    if (!call->key_sent) {
        memcpy(message + at, "\x0a\x01w", 3);
        at += 3;
    }
    message[at++] = 0x1a;
    message[at++] = (uint8_t)(part_bytes | 0x80);
    message[at++] = (uint8_t)(part_bytes >> 7 | 0x80);
    message[at++] = (uint8_t)(part_bytes >> 14 & 0x7f);
    memcpy(message + at, stub_pattern + call->written, part_bytes);
    at += part_bytes;
    if (key_again) {
        memcpy(message + at, "\x0a\x01v", 3);
        at += 3;
    }
    memcpy(message,
           (const uint8_t[]){0, (uint8_t)((at - 5) >> 24), (uint8_t)((at - 5) >> 16),
                             (uint8_t)((at - 5) >> 8), (uint8_t)(at - 5)},
           5);
    if (call->room >= (int64_t)at && clients[i].room >= (int64_t)at) {
        call->key_sent = true;
        call->written += part_bytes;
        say_data(i, id, message, at, frame_bytes, end);
    }
    free(message);
}

static void write_on(uint32_t i)
{
    struct client *c = &clients[i];
    uint32_t how = fuzz_below(&in, 256);
    size_t part_bytes = fuzz_below(&in, 256) * (how & 1 ? 1u : how & 2 ? 300u : 4000u);

    if (c->greeted && c->next)
        say_part(i, 2 * c->last + 1, part_bytes, how & 4 ? 16384 : 1000, how % 8 == 7, how / 8 == 1);
}

static void grant(uint32_t i, uint32_t id, uint32_t bytes)
{
    struct client *c = &clients[i];

    if (!c->greeted || !bytes)
        return;
    say_u32(i, WINDOW_UPDATE, id, bytes);
    if (id == 0)
        c->window += bytes;
    else
        c->calls[id / 2 % STREAMS].window += bytes;
}

static void flood(uint32_t i)
{
    static const uint8_t zeros[8];
    uint32_t kind = fuzz_below(&in, 6), count = fuzz_below(&in, 256) * 12;

    for (uint32_t n = 0; clients[i].greeted && n < count; n++) {
        uint32_t id = 2 * clients[i].last + 1;

        if (kind == 0)
            say_frame(i, PING, 0, 0, zeros, 8);
        else if (kind == 1)
            say_frame(i, SETTINGS, 0, 0, NULL, 0);
        else if (kind == 2)
            say_frame(i, PRIORITY, 0, 2 * n + 1001, zeros, 5);
        else if (kind == 3)
            say_frame(i, CONTINUATION, 0, id, zeros, 0);
        else if (kind == 4)
            grant(i, 0, 1);
        else
            say_frame(i, DATA, 0, id, NULL, 0);
    }
}

static void say_raw(uint32_t i)
{
    uint32_t kind = fuzz_below(&in, 16), flags = fuzz_below(&in, 256), id = fuzz_below(&in, 2 * STREAMS);
    size_t bytes;
    uint8_t *data = fuzz_take(&in, fuzz_below(&in, 64), &bytes);

    clients[i].wild = stub.garbage = stub.sockets[i].busy = true;
    if (kind == 15)
        stub_send(i, data, bytes);
    else
        say_frame(i, (uint8_t)kind, (uint8_t)flags, id, data, bytes);
    free(data);
}

/* ---- what clients get ---- */

static int status_of(struct client *c, const uint8_t *block, size_t bytes)
{
    int status = -1, flags = 0;
    nghttp2_nv nv;

    while (!(flags & NGHTTP2_HD_INFLATE_FINAL)) {
        ssize_t n = nghttp2_hd_inflate_hd2(c->inflater, &nv, &flags, block, bytes, 1);

        pst_assert(n >= 0 && (n || flags));
        block += n;
        bytes -= (size_t)n;
        if (flags & NGHTTP2_HD_INFLATE_EMIT && nv.namelen == 11 && memcmp(nv.name, "grpc-status", 11) == 0)
            status = atoi((const char *)nv.value);
    }
    nghttp2_hd_inflate_end_headers(c->inflater);
    return status;
}

static void take_data(struct client *c, struct call *call, const uint8_t *data, size_t bytes)
{
    call->window -= (int64_t)bytes;
    c->window -= (int64_t)bytes;
    pst_assert(c->wild || (call->asked && !call->ended && call->window >= 0 && c->window >= 0));
    if (!call->reads || !call->whole || !bytes)
        return;
    stub_append(&call->answer, data, bytes);
}

static void take_frame(struct client *c, const uint8_t *frame, const uint8_t *data, size_t bytes)
{
    uint32_t id = (uint32_t)frame[5] << 24 | (uint32_t)frame[6] << 16 | (uint32_t)frame[7] << 8 | frame[8];
    struct call *call = &c->calls[id / 2 % STREAMS];
    uint32_t grown;
    int status;

    switch (frame[3]) {
    case DATA:
        take_data(c, call, data, bytes);
        break;
    case HEADERS:
        pst_assert(frame[4] & END_HEADERS && (c->wild || (call->asked && !call->ended)));
        status = status_of(c, data, bytes);
        call->ended = frame[4] & END_STREAM;
        if (status == 0 && call->ended && call->reads && call->whole && !c->wild)
            stub_check_answer((struct pst_bytes){call->answer.data, call->answer.bytes});
        honest_served = honest_served || (c == &clients[STUB_CLIENTS - 1] && ending && status == 0);
        break;
    case RST_STREAM:
        call->ended = true;
        break;
    case SETTINGS:
        if (!(frame[4] & 1)) {
            grown = (80 << 10) - 65535;
            c->first_room += grown;
            for (uint32_t i = 0; i < STREAMS; i++)
                c->calls[i].room += grown;
        }
        break;
    case WINDOW_UPDATE:
        grown = (uint32_t)data[0] << 24 | (uint32_t)data[1] << 16 | (uint32_t)data[2] << 8 | data[3];
        *(id ? &call->room : &c->room) += grown;
        break;
    default:
        pst_assert(frame[3] == PING || frame[3] == GOAWAY);
    }
}

void stub_taken(uint32_t i, const uint8_t *data, size_t bytes)
{
    struct client *c = &clients[i];
    size_t at = 0;

    stub_append(&c->taken, data, bytes);
    while (c->taken.bytes - at >= FRAME_HEAD_BYTES) {
        const uint8_t *f = c->taken.data + at;
        size_t payload = (size_t)f[0] << 16 | (size_t)f[1] << 8 | f[2];

        pst_assert(payload <= FRAME_TAKEN_MAX);
        if (c->taken.bytes - at < FRAME_HEAD_BYTES + payload)
            break;
        take_frame(c, f, f + FRAME_HEAD_BYTES, payload);
        at += FRAME_HEAD_BYTES + payload;
    }
    stub_drop_front(&c->taken, at);
}

void stub_closed(uint32_t i)
{
    for (uint32_t n = 0; n < STREAMS; n++)
        free(clients[i].calls[n].answer.data);
    free(clients[i].taken.data);
    nghttp2_hd_inflate_del(clients[i].inflater);
    clients[i] = (struct client){0};
}

/* ---- time ---- */

/* Who moves nothing for as long as the door is patient holds nothing. */
static void check_pins(void)
{
    if (stub.pending || stub.ended)
        stub.moved_ns = stub.awake_ns;
    if (stub.awake_ns - stub.moved_ns > (PATIENCE_MS + SLACK_MS) * (uint64_t)STUB_MS)
        pst_assert(stub.views == 0 && stub.lists == 0 && stub.reservations == 0);
}

static uint32_t seconds_left;
static bool late; /* the store answers when the input says so */

static void pass(void)
{
    static const uint32_t ms[] = {1, 50, 120, 1100, 2500, 9000, 100000, 4000000};
    uint32_t which = fuzz_below(&in, 16);

    if (which < pst_count_of(ms))
        stub_pass(ms[which]);
    else
        seconds_left = 5 * (which - 7); /* in steps that a door which is awake sees */
}

static void set_room(uint32_t i)
{
    static const uint32_t rooms[] = {0, 0, 100, 70000, 300000, ROOM_ALWAYS};
    uint32_t which = fuzz_below(&in, pst_count_of(rooms));

    if (stub.sockets[i].open)
        stub.sockets[i].room = rooms[which];
}

static void act(uint32_t what, uint32_t i)
{
    static const uint32_t windows[] = {INT32_MAX, 65535, 0, 1, 1 << 20};
    static const uint32_t grants[] = {1, 1000, 1 << 20, 1 << 28};
    struct stub_socket *s = &stub.sockets[i];
    uint32_t which;

    switch (what) {
    case 0:
        connect_client(i);
        which = fuzz_below(&in, 16);
        greet(i, windows[which % pst_count_of(windows)], which != 15);
        if (which % 4)
            grant(i, 0, 1 << 30);
        break;
    case 1:
        which = fuzz_below(&in, 5);
        ask(i, which, fuzz_below(&in, 64), fuzz_below(&in, 8) ? END_HEADERS : 0);
        break;
    case 2:
    case 3:
        whole_call(i);
        break;
    case 4:
        if (ask(i, 1, fuzz_below(&in, 8), END_HEADERS))
            write_on(i);
        break;
    case 5:
    case 6:
        write_on(i);
        break;
    case 7:
        which = fuzz_below(&in, STREAMS + 1);
        grant(i, which ? 2 * which - 1 : 0, grants[fuzz_below(&in, pst_count_of(grants))]);
        break;
    case 8:
        set_room(i);
        break;
    case 9:
        pass();
        break;
    case 10:
        which = fuzz_below(&in, 256);
        stub_store_answers(which, which % 4 ? 0 : which / 4);
        break;
    case 11:
        late = !late;
        break;
    case 12:
        if (clients[i].next)
            say_u32(i, RST_STREAM, 2 * fuzz_below(&in, clients[i].next) + 1, 8);
        break;
    case 13:
        which = fuzz_below(&in, 8);
        s->hung_up = s->open && which == 0;
        s->portion = which == 1 ? 1 : which == 2 ? 100 : SIZE_MAX;
        stub_store_changes(which);
        break;
    case 14:
        flood(i);
        break;
    default:
        if (clients[i].greeted)
            say_raw(i);
    }
}

/* All hang up, and one comes that behaves. Return: false it has been served, and all is over. */
static bool end(void)
{
    uint32_t last = STUB_CLIENTS - 1;

    for (uint32_t i = 0; ending == 0 && i < STUB_CLIENTS; i++) {
        stub.sockets[i].hung_up = stub.sockets[i].open;
        stub.sockets[i].portion = SIZE_MAX;
        stub.sockets[i].room = ROOM_ALWAYS;
    }
    while (stub.pending)
        stub_store_answers(0, 0);
    stub_pass(200);
    if (++ending < 8)
        return true;
    if (ending == 8) {
        pst_assert(stub.views == 0 && stub.reservations == 0 && stub.lists == 0);
        connect_client(last);
        greet(last, INT32_MAX, true);
        grant(last, 0, 1 << 30);
        ask(last, 0, 0, END_HEADERS);
        say_request(last, 1, 0, 2, 0);
    }
    pst_assert(ending < 200);
    return !honest_served;
}

bool stub_step(void)
{
    uint32_t what;

    check_pins();
    if (seconds_left) {
        seconds_left--;
        stub_pass(1000);
        return true;
    }
    if (in.left == 0 || ++steps > STEPS_MAX)
        return end();
    while (!late && stub.pending)
        stub_store_answers(0, 0);
    what = fuzz_below(&in, 256);
    act(what % 16, what / 16 % STUB_CLIENTS);
    return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    in = (struct fuzz){data, bytes};
    steps = ending = seconds_left = 0;
    honest_served = late = false;
    stub_begin();
    stub_run();
    return 0;
}
