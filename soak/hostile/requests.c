/* SPDX-License-Identifier: Apache-2.0 */
/*
 * requests.c: soak_requests SEED COUNT MS SECRET|- PLANT ADDRESS: sessions that know the secret say COUNT
 * requests, or as many as fit into MS: anything that is well-framed, with keys of their own ("h..."),
 * reservations, commits, views, watches, values that come late, in part or not at all. Sessions that the node
 * ends begin anew. PLANT: "foreign", they also sweep what is others'; "leak", at the end one session stays
 * with all that it holds until its process is killed; "none". The figures are the last line, as JSON.
 */
#include "lib/raw_session.h"

#include "base/clock.h"

#include <sched.h>
#include <stdio.h>
#include <unistd.h>

enum {
    SESSIONS = 4,
    PLACES = 200, /* requests underway of a session in a shard */
    OPS_MAX = 10,
    KEYS = 48,
    RESERVATIONS = 64,
    HANDLES = 64,
    VALUE_MAX = 300000,
    WRONG = 1024,   /* one request of so many breaks a rule */
    LEAVES = 20000, /* one of so many sessions' steps ends it */
};

struct asked {
    bool open;
    uint32_t uses, count, bulks;
    uint8_t codes[OPS_MAX];
    uint32_t flags[OPS_MAX];
    uint16_t keys[OPS_MAX];
    uint64_t bytes[OPS_MAX], sent[OPS_MAX];
};

struct reservation {
    uint64_t handle, bytes;
    uint16_t key, location_bytes;
    char location[224];
};

struct session {
    struct raw *raw;
    struct asked asked[RAW_SHARDS_MAX][PLACES];
    struct reservation reservations[RESERVATIONS];
    uint64_t handles[HANDLES];
    uint32_t reservations_at, handles_at;
};

static struct {
    struct session sessions[SESSIONS];
    struct pst_net *net;
    struct pst_boot_address address;
    struct pst_bytes secret;
    bool foreign;
    uint64_t random;
    uint64_t requests, operations, replies, done, busy, refused, values, ended, connects;
} h;

static struct raw_body body;

static uint32_t draw(uint32_t limit)
{
    h.random += 0x9e3779b97f4a7c15ull;
    uint64_t x = (h.random ^ h.random >> 30) * 0xbf58476d1ce4e5b9ull;

    x = (x ^ x >> 27) * 0x94d049bb133111ebull;
    return (uint32_t)((x ^ x >> 31) >> 16) % limit;
}

static struct pst_bytes key_of(uint32_t number)
{
    static char texts[KEYS][8];

    snprintf(texts[number], sizeof(texts[0]), "h%u", number);
    return (struct pst_bytes){texts[number], strlen(texts[number])};
}

/* ---- answers ---- */

static void take_result(struct session *s, const struct asked *asked, uint32_t i,
                        const struct pst_wire_result *result)
{
    struct reservation *reservation = &s->reservations[s->reservations_at % RESERVATIONS];
    struct pst_wire_reservation got;

    h.done += result->result == 0;
    h.busy += result->result == 4;
    h.refused += result->result < 0;
    if (result->result != 0)
        return;
    if (asked->codes[i] == PST_WIRE_RESERVE && result->bytes >= sizeof(got)) {
        memcpy(&got, result->data, sizeof(got));
        *reservation = (struct reservation){
            .handle = got.handle,
            .bytes = got.bytes,
            .key = asked->keys[i],
            .location_bytes = (uint16_t)pst_min(got.location_bytes, sizeof(reservation->location))};
        memcpy(reservation->location, (const uint8_t *)result->data + sizeof(got),
               reservation->location_bytes);
        s->reservations_at++;
    } else if (asked->codes[i] == PST_WIRE_VIEW && result->bytes >= 8) {
        memcpy(&s->handles[s->handles_at++ % HANDLES], result->data, 8);
    } else if (asked->codes[i] == PST_WIRE_WATCH_OPEN) {
        s->handles[s->handles_at++ % HANDLES] = result->generation;
    }
}

static void heard(void *ctx, uint32_t shard, const struct pst_wire_head *head, struct pst_bytes data)
{
    const uint8_t *at = data.data, *end = at + data.len;
    struct session *s = ctx;
    uint32_t place = head->request % PST_WIRE_PLACES;

    (void)shard;
    if (head->type != PST_WIRE_REPLY)
        return;
    h.replies++;
    for (uint32_t i = 0; i < RAW_SHARDS_MAX && place < PLACES; i++) { /* a reply does not say whose it is */
        struct asked *asked = &s->asked[i][place];

        if (!asked->open || (asked->uses - 1) * PST_WIRE_PLACES + place != head->request ||
            asked->count != head->count)
            continue;
        asked->open = false;
        for (uint32_t op = 0; op < head->count; op++) {
            struct pst_wire_result result;

            if (pst_wire_get_result(&at, end, &result) < 0)
                break;
            take_result(s, asked, op, &result);
        }
        return;
    }
}

/* ---- sessions ---- */

static void leave(struct session *s)
{
    s->raw = raw_close(s->raw);
    memset(s, 0, sizeof(*s));
    h.ended++;
}

static bool there(struct session *s)
{
    const char *fault;

    if (s->raw)
        return true;
    s->raw = raw_open(h.net, &h.address, h.secret, heard, s, &fault);
    h.connects += s->raw != NULL;
    if (!s->raw)
        usleep(1000);
    return s->raw != NULL;
}

/* ---- operations ---- */

static uint64_t some_size(void)
{
    switch (draw(8)) {
    case 0:
        return 0;
    case 1:
        return draw(draw(8) ? 8000 : VALUE_MAX);
    case 2:
        return UINT64_MAX - draw(3);
    default:
        return draw(3000);
    }
}

static const struct reservation *some_reservation(const struct session *s)
{
    return &s->reservations[draw(RESERVATIONS)];
}

/* What a code's operation may look like. */
static struct pst_wire_op some_op(const struct session *s, uint32_t *key)
{
    static const uint8_t codes[] = {1,  1,  1,  1,  2,  2,  2,  3,  4,  5,  5,  6,  16, 17,
                                    18, 19, 20, 20, 21, 21, 22, 22, 22, 23, 23, 23, 23, 24,
                                    24, 25, 27, 28, 29, 30, 32, 33, 34, 64, 70, 95};
    const struct reservation *reservation = some_reservation(s);
    struct pst_wire_op op = {.code = codes[draw(pst_count_of(codes))], .depth = (uint16_t)draw(3)};

    op.flags = (draw(2) ? 1u << draw(24) : draw(UINT32_MAX)) & pst_wire_may(op.code, false);
    op.bytes = some_size();
    op.offset = draw(4) ? draw(5000) : UINT64_MAX - draw(3);
    op.handle = draw(2) ? s->handles[draw(HANDLES)] : draw(4);
    if (pst_code_has(op.code, PST_CODE_RESERVATION) && op.code != PST_WIRE_RESERVE && draw(8)) {
        *key = reservation->key;
        op.handle = reservation->handle;
        op.offset = 0;
        op.bytes = reservation->bytes == UINT64_MAX ? draw(3000) : reservation->bytes;
    }
    if (op.code == PST_WIRE_RESERVATION_COMMIT) {
        op.tier = 2;
        op.attrs = (struct pst_bytes){reservation->location, reservation->location_bytes};
    }
    if (op.code == PST_WIRE_GET || op.code == PST_WIRE_VIEW || op.code == PST_WIRE_LIST)
        op.bytes = 1 + draw(VALUE_MAX);
    if (op.code == PST_WIRE_PIN)
        op.pin_ms = draw(1000);
    if (op.code == PST_WIRE_WATCH_NEXT)
        op.wait_ms = draw(20);
    return op;
}

/* Twists what the rules would refuse until they do not; a hostile one stays as it is. */
static void fit(struct pst_wire_op *op, uint32_t key, bool member)
{
    static uint8_t zeros[PST_WIRE_INLINE_BYTES_MAX], copy[sizeof(struct pst_wire_copy)] = {1, [8] = 1};
    uint32_t may = pst_wire_may(op->code, member);

    op->key = key_of(key);
    if (op->code == PST_WIRE_COPY)
        op->attrs = (struct pst_bytes){copy, sizeof(copy)};
    for (int i = 0; i < 3 * 256 && pst_wire_check(op, member) < 0; i++) {
        op->flags = draw(UINT32_MAX) & may;
        if (i >= 256)
            op->attrs = (struct pst_bytes){NULL, 0};
        if (i >= 512)
            op->key = (struct pst_bytes){NULL, 0};
    }
    if (pst_code_has(op->code, PST_CODE_VALUE) && !(op->flags & PST_WIRE_VALUE_IN_BULK)) {
        op->bytes = pst_min(op->bytes, sizeof(zeros));
        op->value = zeros;
    }
    if (op->code == PST_WIRE_SWEEP || op->code == PST_WIRE_LIST || op->code == PST_WIRE_COPY_CLEAR) {
        op->key = (struct pst_bytes){"h", h.foreign ? 0 : 1};
        op->attrs = (struct pst_bytes){"i", h.foreign || op->code == PST_WIRE_COPY_CLEAR ? 0 : 1};
        op->bytes = pst_max(op->bytes, 8192);
    }
    if (op->code == PST_WIRE_COMMIT)
        op->attrs = op->key = (struct pst_bytes){NULL, 0};
}

static void add(struct asked *asked, const struct pst_wire_op *op, uint32_t key)
{
    if (asked->count == OPS_MAX || !raw_add(&body, op))
        return;
    asked->codes[asked->count] = op->code;
    asked->flags[asked->count] = op->flags;
    asked->keys[asked->count] = (uint16_t)key;
    asked->bytes[asked->count] = op->bytes;
    asked->sent[asked->count++] = 0;
    h.operations++;
}

static void add_commit(const struct session *s, struct asked *asked)
{
    static const uint8_t codes[] = {PST_WIRE_PUT, PST_WIRE_PUT, PST_WIRE_PUT, PST_WIRE_DELETE,
                                    PST_WIRE_CHECK};
    uint32_t count = 1 + draw(OPS_MAX - asked->count - 1);
    struct pst_wire_op op = {.code = PST_WIRE_COMMIT, .bytes = count};

    add(asked, &op, 0);
    for (uint32_t i = 0; i < count; i++) {
        const struct reservation *reservation = some_reservation(s);
        uint32_t key = draw(KEYS);

        op = (struct pst_wire_op){
            .code = codes[draw(pst_count_of(codes))], .bytes = draw(2000), .if_generation = draw(3)};
        if (op.code == PST_WIRE_PUT && draw(2)) {
            op.flags = PST_WIRE_IN_RESERVATION;
            op.value_reservation = draw(8) ? reservation->handle : draw(2);
            op.bytes = reservation->bytes;
            key = reservation->key;
        }
        fit(&op, key, true);
        add(asked, &op, key);
        asked->flags[asked->count - 1] = 0; /* no value follows */
    }
}

/* ---- steps ---- */

/* A piece of a value that was announced. */
static void send_piece(struct session *s, uint32_t shard, uint32_t place, uint32_t op, bool whole)
{
    struct asked *asked = &s->asked[shard][place];
    struct pst_wire_part part = {.op = op, .offset = asked->sent[op]};
    uint64_t left = asked->bytes[op] - asked->sent[op];

    if (!pst_code_has(asked->codes[op], PST_CODE_VALUE) || !(asked->flags[op] & PST_WIRE_VALUE_IN_BULK) ||
        left == 0 || left > VALUE_MAX)
        return;
    part.bytes = whole ? left : 1 + draw((uint32_t)left);
    part.offset += draw(4096) == 0;
    if (raw_send(s->raw, shard, (asked->uses - 1) * PST_WIRE_PLACES + place, asked->bulks, &part, 1,
                 part.bytes) < 0)
        return;
    asked->bulks++;
    asked->sent[op] += part.bytes;
    h.values++;
}

static void ask(struct session *s)
{
    uint32_t shard = draw(raw_shards(s->raw)), place = draw(PLACES), count = 1 + draw(OPS_MAX - 1);
    struct asked *asked = &s->asked[shard][place];
    bool wrong = draw(WRONG) == 0;
    int r;

    if (asked->open && draw(512))
        return; /* rarely: a place is used again although its last use has not ended */
    asked->count = asked->bulks = 0;
    asked->open = true;
    body.count = 0;
    body.bytes = 0;
    for (uint32_t i = 0; i < count && asked->count < OPS_MAX - 2; i++) {
        uint32_t key = draw(KEYS);
        struct pst_wire_op op;

        if (draw(6) == 0) {
            add_commit(s, asked);
            break;
        }
        op = some_op(s, &key);
        fit(&op, key, false);
        if (wrong)
            op.flags ^= draw(32) ? 0 : 1u << draw(32);
        if (pst_code_has(op.code, PST_CODE_VALUE) && !(op.flags & PST_WIRE_VALUE_IN_BULK))
            op.bytes = op.value ? op.bytes : 0;
        add(asked, &op, key);
    }
    r = raw_ask(s->raw, shard, asked->uses++ * PST_WIRE_PLACES + place,
                draw(16) ? 1 + draw(20000) : UINT32_MAX, &body);
    h.requests += r == 0;
    for (uint32_t i = 0; i < asked->count && r == 0 && draw(2048); i++)
        send_piece(s, shard, place, i, true);
}

/* More of a value that some request has announced. */
static void send_value(struct session *s)
{
    uint32_t shard = draw(raw_shards(s->raw)), place = draw(PLACES);
    struct asked *asked = &s->asked[shard][place];

    if (asked->open && asked->count)
        send_piece(s, shard, place, draw(asked->count), draw(3));
}

static void step(struct session *s)
{
    if (!there(s))
        return;
    if (draw(3))
        ask(s);
    else
        send_value(s);
    if (!raw_poll(s->raw) || draw(LEAVES) == 0)
        leave(s);
}

static void tell(void)
{
    printf("{\"requests\": %llu, \"operations\": %llu, \"replies\": %llu, \"done\": %llu, \"busy\": %llu, "
           "\"refused\": %llu, "
           "\"values\": %llu, \"hostile_sessions\": %llu}\n",
           (unsigned long long)h.requests, (unsigned long long)h.operations, (unsigned long long)h.replies,
           (unsigned long long)h.done, (unsigned long long)h.busy, (unsigned long long)h.refused,
           (unsigned long long)h.values, (unsigned long long)h.connects);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    struct pst_net_options options = {.transport = raw_transport(), .loopback_only = true};
    const char *fault = "usage: soak_requests SEED COUNT MS SECRET|- PLANT ADDRESS";
    uint64_t count, until_ns;

    if (argc != 7 || pst_boot_address_parse(argv[6], &h.address, &fault) < 0 ||
        pst_net_open(&options, &h.net) < 0) {
        fprintf(stderr, "soak_requests: %s\n", fault);
        return 2;
    }
    h.random = strtoull(argv[1], NULL, 0);
    count = strtoull(argv[2], NULL, 0);
    until_ns = pst_now_ns() + strtoull(argv[3], NULL, 0) * 1000000;
    if (strcmp(argv[4], "-") != 0)
        h.secret = (struct pst_bytes){argv[4], strlen(argv[4])};
    h.foreign = strcmp(argv[5], "foreign") == 0;
    while (h.requests < count && pst_now_ns() < until_ns)
        step(&h.sessions[draw(SESSIONS)]);
    tell();
    if (strcmp(argv[5], "leak") == 0)
        sleep(600);
    for (uint32_t i = 0; i < SESSIONS; i++)
        h.sessions[i].raw = raw_close(h.sessions[i].raw);
    pst_net_close(h.net);
    return 0;
}
