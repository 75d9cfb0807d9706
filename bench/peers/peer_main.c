/* SPDX-License-Identifier: Apache-2.0 */
/* peer_main.c: options, the windows of requests, and the JSON line. Keys are "%016u", drawn at random or in
 * order. */
#include "peer.h"
#include "peer_priv.h"

#include <errno.h>
#include <getopt.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define RECEIVE_BYTES_MIN (1U << 20)
#define INFLIGHT_MAX      1024U

struct options {
    const char *address;
    enum peer_op op;
    uint64_t value_bytes, key_count, batch, inflight, spin_us;
    double seconds;
    bool fill;
};

/* One connection. Windows are answered in order, so the oldest unanswered one is always sent_at[answered %
 * inflight]. */
struct session {
    const struct peer_protocol *protocol;
    const struct options *options;
    int fd;
    char *request, *receive, *value;
    size_t receive_room, receive_used;
    uint64_t random;
    uint64_t key_next;          /* filling only */
    uint64_t windows, answered; /* windows sent and answered */
    uint64_t replies, misses;   /* replies within the oldest window; keys that were not there */
    uint64_t sent_at_ns[INFLIGHT_MAX];
    struct peer_times times;
};

char *peer_append(char *out, const char *bytes, size_t byte_count)
{
    memcpy(out, bytes, byte_count);
    return out + byte_count;
}

char *peer_append_number(char *out, uint64_t number)
{
    char digits[20];
    size_t count = 0;

    do {
        digits[count++] = (char)('0' + number % 10);
        number /= 10;
    } while (number > 0);
    while (count > 0)
        *out++ = digits[--count];
    return out;
}

size_t peer_line(const char *in, size_t in_bytes)
{
    const char *feed = memchr(in, '\n', in_bytes);

    return feed ? (size_t)(feed - in) + 1 : 0;
}

static void write_key(char key[PEER_KEY_BYTES], uint64_t number)
{
    for (int i = PEER_KEY_BYTES - 1; i >= 0; i--) {
        key[i] = (char)('0' + number % 10);
        number /= 10;
    }
}

static uint64_t pick_key(struct session *s)
{
    if (s->options->fill)
        return s->key_next++ % s->options->key_count;
    s->random ^= s->random << 13; /* xorshift64 */
    s->random ^= s->random >> 7;
    s->random ^= s->random << 17;
    return s->random % s->options->key_count;
}

static int send_window(struct session *s)
{
    const struct options *o = s->options;
    char *end = s->request;
    char key[PEER_KEY_BYTES];

    for (uint64_t i = 0; i < o->batch; i++) {
        write_key(key, pick_key(s));
        end += s->protocol->request(end, o->op, key, s->value, o->value_bytes);
    }
    s->sent_at_ns[s->windows++ % o->inflight] = peer_now_ns();
    return peer_send_all(s->fd, s->request, (size_t)(end - s->request));
}

static void count_reply(struct session *s)
{
    if (++s->replies < s->options->batch)
        return;
    peer_times_add(&s->times, peer_now_ns() - s->sent_at_ns[s->answered++ % s->options->inflight]);
    s->replies = 0;
}

/* Receives once and consumes every whole reply. */
static int receive_replies(struct session *s)
{
    size_t at = 0;
    long reply_bytes;
    ssize_t got = peer_receive(s->fd, s->receive + s->receive_used, s->receive_room - s->receive_used,
                               s->options->spin_us * 1000);

    if (got < 0)
        return (int)got;
    s->receive_used += (size_t)got;
    while (at < s->receive_used) {
        reply_bytes = s->protocol->reply(s->receive + at, s->receive_used - at, s->options->op, &s->misses);
        if (reply_bytes == PEER_REPLY_MALFORMED)
            return -EPROTO;
        if (reply_bytes == PEER_REPLY_PARTIAL)
            break;
        at += (size_t)reply_bytes;
        count_reply(s);
    }
    s->receive_used -= at;
    memmove(s->receive, s->receive + at, s->receive_used);
    return 0;
}

/* Keeps `inflight` windows unanswered until @window_count were sent or @until_ns has passed, then waits for
 * the rest. */
static int run_windows(struct session *s, uint64_t window_count, uint64_t until_ns)
{
    int r = 0;

    for (;;) {
        bool more = s->windows < window_count && peer_now_ns() < until_ns;

        if (!more && s->answered == s->windows)
            return 0;
        if (more && s->windows - s->answered < s->options->inflight)
            r = send_window(s);
        else
            r = receive_replies(s);
        if (r < 0)
            return r;
    }
}

static void print_result(const struct session *s, double elapsed_s)
{
    static const char *const names[] = {[PEER_GET] = "get", [PEER_EXISTS] = "exists", [PEER_SET] = "set"};
    const struct options *o = s->options;
    double ops_per_s = (double)(s->answered * o->batch) / elapsed_s;

    printf("{\"op\": \"%s\", \"size\": %lu, \"batch\": %lu, \"inflight\": %lu, \"ops_per_s\": %.1f, "
           "\"bytes_per_s\": %.1f, \"p50_us\": %.3f, \"p99_us\": %.3f, \"ops\": %lu, \"misses\": %lu}\n",
           names[o->op], o->value_bytes, o->batch, o->inflight, ops_per_s, ops_per_s * (double)o->value_bytes,
           peer_times_us(&s->times, 0.50), peer_times_us(&s->times, 0.99), s->answered * o->batch, s->misses);
}

static int measure(struct session *s)
{
    const struct options *o = s->options;
    uint64_t begin_ns = peer_now_ns();
    int r;

    if (o->fill)
        r = run_windows(s, (o->key_count + o->batch - 1) / o->batch, UINT64_MAX);
    else
        r = run_windows(s, UINT64_MAX, begin_ns + (uint64_t)(o->seconds * 1e9));
    if (r < 0)
        return r;
    print_result(s, (double)(peer_now_ns() - begin_ns) / 1e9);
    return 0;
}

/* Fills in a zeroed session; a failure leaves it to session_fini. */
static int session_init(struct session *s, const struct peer_protocol *protocol, const struct options *o)
{
    s->protocol = protocol;
    s->options = o;
    s->random = 0x9e3779b97f4a7c15U;
    s->receive_room = 2 * (o->value_bytes + PEER_REQUEST_BYTES);
    if (s->receive_room < RECEIVE_BYTES_MIN)
        s->receive_room = RECEIVE_BYTES_MIN;
    s->value = malloc(o->value_bytes + 1);
    s->request = malloc(o->batch * (PEER_REQUEST_BYTES + (o->op == PEER_SET ? o->value_bytes : 0)));
    s->receive = malloc(s->receive_room);
    if (!s->value || !s->request || !s->receive)
        return -ENOMEM;
    memset(s->value, 'v', o->value_bytes);
    s->fd = peer_connect(o->address);
    return s->fd < 0 ? s->fd : 0;
}

static void session_fini(struct session *s)
{
    if (s->fd > 0)
        close(s->fd);
    free(s->value);
    free(s->request);
    free(s->receive);
}

static int parse_op(const char *name, enum peer_op *op)
{
    if (strcmp(name, "get") == 0)
        *op = PEER_GET;
    else if (strcmp(name, "exists") == 0)
        *op = PEER_EXISTS;
    else if (strcmp(name, "set") == 0)
        *op = PEER_SET;
    else
        return -EINVAL;
    return 0;
}

static int parse_options(int argc, char **argv, struct options *o)
{
    static const struct option known[] = {
        {"connect", required_argument, NULL, 'c'}, {"op", required_argument, NULL, 'o'},
        {"size", required_argument, NULL, 's'},    {"keys", required_argument, NULL, 'k'},
        {"batch", required_argument, NULL, 'b'},   {"inflight", required_argument, NULL, 'i'},
        {"seconds", required_argument, NULL, 't'}, {"spin-us", required_argument, NULL, 'p'},
        {"fill", no_argument, NULL, 'f'},          {NULL, 0, NULL, 0},
    };
    int option, r = 0;

    while (r == 0 && (option = getopt_long(argc, argv, "", known, NULL)) != -1) {
        switch (option) {
        case 'c':
            o->address = optarg;
            break;
        case 'o':
            r = parse_op(optarg, &o->op);
            break;
        case 's':
            o->value_bytes = strtoul(optarg, NULL, 10);
            break;
        case 'k':
            o->key_count = strtoul(optarg, NULL, 10);
            break;
        case 'b':
            o->batch = strtoul(optarg, NULL, 10);
            break;
        case 'i':
            o->inflight = strtoul(optarg, NULL, 10);
            break;
        case 't':
            o->seconds = strtod(optarg, NULL);
            break;
        case 'p':
            o->spin_us = strtoul(optarg, NULL, 10);
            break;
        case 'f':
            o->fill = true;
            break;
        default:
            r = -EINVAL;
        }
    }
    if (!o->address || o->key_count == 0 || o->batch == 0 || o->inflight == 0 || o->inflight > INFLIGHT_MAX)
        r = -EINVAL;
    if (o->fill)
        o->op = PEER_SET;
    return r;
}

int peer_main(int argc, char **argv, const struct peer_protocol *protocol)
{
    static struct session session;
    struct options options = {
        .value_bytes = 64, .key_count = 1000000, .batch = 1, .inflight = 1, .seconds = 3.0};
    int r = parse_options(argc, argv, &options);

    if (r < 0) {
        fprintf(stderr,
                "usage: %s --connect HOST:PORT|/PATH [--op get|exists|set] [--size BYTES] [--keys N] "
                "[--batch N] [--inflight N] [--seconds S] [--spin-us N] [--fill]\n",
                argv[0]);
        return 2;
    }
    r = session_init(&session, protocol, &options);
    if (r == 0)
        r = measure(&session);
    session_fini(&session);
    if (r < 0)
        fprintf(stderr, "%s: %s: %s\n", argv[0], options.address, strerror(-r));
    return r < 0 ? 1 : 0;
}
