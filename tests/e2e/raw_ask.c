/* SPDX-License-Identifier: Apache-2.0 */
/*
 * raw_ask.c: raw_ask ADDRESS QUESTION: asks a node of two shards what no client of the library would, and
 * prints the results, the last line "over" when the node ended the session instead of answering.
 */
#include "lib/raw_session.h"

#include "base/clock.h"

#include <stdio.h>

enum { BIG = 8 << 20, HELD = 64 << 10, ANSWER_NS = 3000000000ll };

static struct {
    struct raw *raw;
    uint32_t request; /* that is awaited */
    bool answered, over;
    struct pst_wire_result results[PST_WIRE_OPS_MAX];
    uint64_t handle; /* of the reservation that was reserved */
} q;

static struct raw_body body;

static void heard(void *ctx, uint32_t shard, const struct pst_wire_head *head, struct pst_bytes data)
{
    const uint8_t *at = data.data, *end = at + data.len;

    (void)ctx;
    (void)shard;
    if (head->type != PST_WIRE_REPLY || head->request != q.request)
        return;
    for (uint32_t i = 0; i < head->count; i++) {
        int r = pst_wire_get_result(&at, end, &q.results[i]);

        pst_assert(r == 0);
        printf("%d ", q.results[i].result);
        if (q.results[i].bytes >= sizeof(q.handle))
            memcpy(&q.handle, q.results[i].data, sizeof(q.handle));
    }
    printf("\n");
    q.answered = true;
}

static struct pst_bytes key_of(uint32_t shard, const char *base)
{
    static char keys[16][16];
    static int next;
    char *key = keys[next++ % 16];
    int i = 0;

    do
        snprintf(key, sizeof(keys[0]), "%s%d", base, i++);
    while (raw_shard_of(q.raw, (struct pst_bytes){key, strlen(key)}) != shard);
    return (struct pst_bytes){key, strlen(key)};
}

static void add(struct pst_wire_op op)
{
    bool room = raw_add(&body, &op);

    pst_assert(room);
}

static void send_question(uint32_t timeout_ms)
{
    int r;

    q.request++;
    q.answered = false;
    r = raw_ask(q.raw, 0, q.request, timeout_ms, &body);
    pst_assert(r == 0);
    body.count = 0;
    body.bytes = 0;
}

static void send_value(uint32_t op, uint32_t index, uint64_t bytes)
{
    const struct pst_wire_part part = {.op = op, .bytes = bytes};
    int r = raw_send(q.raw, 0, q.request, index, &part, 1, bytes);

    pst_assert(r == 0);
}

/* Return: false: the session is over. */
static bool await_answer(void)
{
    uint64_t until_ns = pst_now_ns() + ANSWER_NS;

    while (!q.answered && !q.over && pst_now_ns() < until_ns)
        q.over = !raw_poll(q.raw);
    return q.answered;
}

/* A commit's put that says that its value is in a reservation, and names none. */
static void ask_null_value(void)
{
    add((struct pst_wire_op){.code = PST_WIRE_COMMIT, .bytes = 1});
    add((struct pst_wire_op){
        .code = PST_WIRE_PUT, .flags = PST_WIRE_IN_RESERVATION, .key = key_of(0, "k"), .bytes = 100});
    send_question(10000);
}

/* A commit that changes a key twice, once among others. */
static void ask_twice(void)
{
    struct pst_bytes k = key_of(0, "k");

    add((struct pst_wire_op){.code = PST_WIRE_COMMIT, .bytes = 3});
    add((struct pst_wire_op){.code = PST_WIRE_PUT, .key = k, .bytes = 1, .value = "x"});
    add((struct pst_wire_op){.code = PST_WIRE_PUT, .key = key_of(1, "l"), .bytes = 1, .value = "x"});
    add((struct pst_wire_op){.code = PST_WIRE_DELETE, .key = k});
    send_question(10000);
}

/* A reservation is written to while a commit has it. */
static void ask_lent_reservation(bool bulk)
{
    struct pst_bytes key = key_of(0, "k");
    struct pst_wire_op write = {
        .code = PST_WIRE_WRITE_AT, .flags = PST_WIRE_VALUE_IN_BULK, .key = key, .bytes = BIG};

    add((struct pst_wire_op){.code = PST_WIRE_RESERVE, .flags = PST_WIRE_REPLACE, .key = key, .bytes = BIG});
    send_question(10000);
    if (!await_answer())
        return;
    write.handle = q.handle;
    add(write);
    send_question(10000);
    send_value(0, 0, BIG);
    if (!await_answer())
        return;
    add((struct pst_wire_op){.code = PST_WIRE_COMMIT, .bytes = 2});
    add((struct pst_wire_op){.code = PST_WIRE_PUT,
                             .flags = PST_WIRE_IN_RESERVATION,
                             .key = key,
                             .bytes = BIG,
                             .value_reservation = q.handle});
    add((struct pst_wire_op){.code = PST_WIRE_PUT, .key = key_of(1, "l"), .bytes = 1, .value = "x"});
    if (!bulk) {
        write.flags = 0;
        write.bytes = 6;
        write.value = "silent";
    }
    add(write);
    send_question(10000);
    if (bulk)
        send_value(3, 0, BIG);
}

/* Puts that are announced, and never come. */
static void ask_held_puts(void)
{
    struct pst_wire_op put = {.code = PST_WIRE_PUT, .flags = PST_WIRE_VALUE_IN_BULK, .bytes = BIG};

    put.key = key_of(0, "k");
    add(put);
    send_question(UINT32_MAX);
    put.key = key_of(0, "l");
    add(put);
    add((struct pst_wire_op){.code = PST_WIRE_RESERVE, .key = key_of(0, "m"), .bytes = BIG});
    send_question(10000);
    if (await_answer())
        q.answered = false; /* of the first there is none: the node's patience ends */
}

static void put(struct pst_bytes key, uint64_t bytes)
{
    add((struct pst_wire_op){
        .code = PST_WIRE_PUT, .flags = PST_WIRE_VALUE_IN_BULK, .key = key, .bytes = bytes});
    send_question(10000);
    send_value(0, 0, bytes);
    await_answer();
}

static void get_both(struct pst_bytes one, struct pst_bytes two, uint32_t timeout_ms)
{
    add((struct pst_wire_op){.code = PST_WIRE_GET, .key = one, .bytes = BIG});
    add((struct pst_wire_op){.code = PST_WIRE_GET, .flags = PST_WIRE_RANGE, .key = two, .bytes = BIG / 2});
    send_question(timeout_ms);
}

/* Gets whose values nobody takes, until the end of the input: more than the shared memory has places. */
static void ask_held_gets(void)
{
    struct pst_bytes k = key_of(0, "k");

    put(k, HELD);
    for (int i = 0; i < 100; i++) {
        add((struct pst_wire_op){.code = PST_WIRE_GET, .key = k, .bytes = HELD});
        send_question(UINT32_MAX);
    }
    while (getchar() != EOF)
        ;
    await_answer();
}

/* Gets of more than the session may hold: together, again, and beside a reservation. */
static void ask_large_gets(void)
{
    struct pst_bytes k = key_of(0, "k"), l = key_of(0, "l");

    put(k, BIG);
    put(l, BIG);
    for (int i = 0; i < 2; i++) {
        get_both(k, l, 10000);
        await_answer();
    }
    add((struct pst_wire_op){.code = PST_WIRE_RESERVE, .key = key_of(0, "m"), .bytes = BIG});
    send_question(10000);
    await_answer();
    get_both(k, l, 10000);
}

static void ask_one(struct raw *raw, uint8_t code, struct pst_bytes key)
{
    q.raw = raw;
    add((struct pst_wire_op){.code = code, .key = key, .bytes = code == PST_WIRE_PUT, .value = "x"});
    send_question(10000);
    await_answer();
}

/* One session takes back what the other has pinned; each may have one pin. */
static void ask_pins(struct raw *one, struct raw *two)
{
    struct pst_bytes k = key_of(0, "k"), l = key_of(0, "l");

    ask_one(one, PST_WIRE_PUT, k);
    ask_one(one, PST_WIRE_PUT, l);
    ask_one(one, PST_WIRE_PIN, k);
    ask_one(two, PST_WIRE_PIN, l);
    ask_one(two, PST_WIRE_UNPIN, k);
    ask_one(two, PST_WIRE_PIN, l);
    ask_one(one, PST_WIRE_PIN, k);
}

int main(int argc, char **argv)
{
    struct pst_net_options options = {.transport = raw_transport(), .loopback_only = true};
    struct pst_boot_address address;
    const char *fault = "usage: raw_ask ADDRESS "
                        "null_value|twice|lent_reservation|lent_reservation_inline|held_puts|held_gets|"
                        "large_gets|pins",
               *what = argc > 2 ? argv[2] : "";
    struct pst_net *net;
    struct raw *first, *other;

    if (argc != 3 || pst_boot_address_parse(argv[1], &address, &fault) < 0 ||
        pst_net_open(&options, &net) < 0) {
        fprintf(stderr, "raw_ask: %s\n", fault);
        return 2;
    }
    q.raw = raw_open(net, &address, (struct pst_bytes){NULL, 0}, heard, NULL, &fault);
    other = raw_open(net, &address, (struct pst_bytes){NULL, 0}, heard, NULL, &fault);
    first = q.raw;
    if (!q.raw || !other) {
        fprintf(stderr, "raw_ask: %s\n", fault);
        return 1;
    }
    if (strcmp(what, "null_value") == 0)
        ask_null_value();
    else if (strcmp(what, "twice") == 0)
        ask_twice();
    else if (strcmp(what, "lent_reservation") == 0)
        ask_lent_reservation(true);
    else if (strcmp(what, "lent_reservation_inline") == 0)
        ask_lent_reservation(false);
    else if (strcmp(what, "held_puts") == 0)
        ask_held_puts();
    else if (strcmp(what, "held_gets") == 0)
        ask_held_gets();
    else if (strcmp(what, "large_gets") == 0)
        ask_large_gets();
    else if (strcmp(what, "pins") == 0)
        ask_pins(other, q.raw);
    if (!await_answer())
        printf("%s\n", q.over ? "over" : "no answer");
    raw_close(q.raw == first ? other : first);
    raw_close(q.raw);
    pst_net_close(net);
    return 0;
}
