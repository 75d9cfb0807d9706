/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/raw_session.h"

#include "base/clock.h"
#include "wire/route.h"

#include <sched.h>
#include <unistd.h>

enum {
    EVENTS_MAX = 4096,
    VALUE_BYTES_MAX = 64 << 20,
    CONNECT_NS = 1000000000,
    TICK_NS = 100000000,
};

struct raw {
    struct pst_boot_link *link;
    struct pst_boot_welcome welcome;
    int fds[PST_BOOT_ARENAS_MAX];
    uint32_t fd_count;
    struct pst_port *port;
    struct pst_peer *peers[RAW_SHARDS_MAX];
    uint32_t peer_count, welcomed;
    uint64_t tick_ns;
    bool over;
    bool borrowed; /* the transport still reads the request that was sent last */
    raw_heard heard;
    void *ctx;
};

/* Bytes of values: only looked at by the transport. */
static uint8_t zeros[VALUE_BYTES_MAX];

static void on_message(struct raw *raw, struct pst_net_event *event)
{
    struct pst_wire_head head;

    if (pst_wire_get_head(event->header, &head) == 0) {
        if (head.type == PST_WIRE_WELCOME)
            raw->welcomed++;
        else
            raw->heard(raw->ctx, head.bulk_count, &head,
                       event->kind == PST_NET_EAGER ? event->data : (struct pst_bytes){NULL, 0});
    }
    pst_msg_free(event->msg);
}

bool raw_poll(struct raw *raw)
{
    struct pst_net_event events[64];
    int count = pst_port_poll(raw->port, events, 64);
    uint64_t now_ns = pst_now_ns();

    for (int i = 0; i < count; i++) {
        if (events[i].kind == PST_NET_EAGER || events[i].kind == PST_NET_BULK)
            on_message(raw, &events[i]);
        raw->over |= events[i].kind == PST_NET_PEER_LOST;
        if (events[i].kind == PST_NET_SENT && events[i].arg == raw)
            raw->borrowed = false;
    }
    if (now_ns >= raw->tick_ns) {
        raw->tick_ns = now_ns + TICK_NS;
        raw->over |= pst_boot_link_tick(raw->link, now_ns) < 0;
    }
    return !raw->over;
}

/* ---- connecting ---- */

static int say_hello(struct raw *raw)
{
    uint64_t until_ns = pst_now_ns() + CONNECT_NS;

    raw->welcomed = 0;
    for (uint32_t i = 0; i < raw->peer_count; i++) {
        struct pst_wire_head head = {.type = PST_WIRE_HELLO,
                                     .version = (uint8_t)raw->welcome.version,
                                     .token = raw->welcome.token,
                                     .bulk_count = i};
        int r = pst_peer_send(raw->peers[i], (struct pst_bytes){&head, sizeof(head)},
                              (struct pst_bytes){NULL, 0}, NULL);

        if (r < 0)
            return r;
    }
    while (raw->welcomed < raw->peer_count) {
        if (!raw_poll(raw) || pst_now_ns() > until_ns)
            return -ETIMEDOUT;
        sched_yield();
    }
    return 0;
}

static int await_welcome(struct raw *raw, uint64_t until_ns, const char **fault)
{
    int r;

    while ((r = pst_boot_link_welcome(raw->link, &raw->welcome, raw->fds, fault)) == -EAGAIN)
        pst_boot_link_wait(raw->link, until_ns);
    if (r == 0)
        raw->fd_count = raw->welcome.arena_count;
    return r == 0 && raw->welcome.shard_count > RAW_SHARDS_MAX ? -E2BIG : r;
}

static int offer(struct raw *raw, uint64_t until_ns)
{
    uint8_t address[PST_NET_ADDRESS_BYTES_MAX];
    int r = pst_port_address(raw->port, !raw->welcome.same_host, address, sizeof(address));

    return r < 0 ? r : pst_boot_link_offer(raw->link, address, (size_t)r, until_ns);
}

static int await_ready(struct raw *raw, uint64_t until_ns, const char **fault)
{
    int r;

    while ((r = pst_boot_link_ready(raw->link, fault)) == -EAGAIN)
        pst_boot_link_wait(raw->link, until_ns);
    return r;
}

enum pst_net_transport raw_transport(void)
{
    const char *wanted = getenv("PENSTOCK_TRANSPORT");

    return wanted && strcmp(wanted, "stream") == 0 ? PST_NET_STREAM : PST_NET_UCX;
}

static int open_peer(struct raw *raw, uint32_t shard)
{
    uint8_t address[PST_NET_ADDRESS_BYTES_MAX];
    int r;

    if (!raw->welcome.stream)
        return pst_peer_open(raw->port, raw->welcome.shards[shard].data, raw->welcome.shards[shard].bytes,
                             raw, &raw->peers[shard]);
    r = pst_boot_link_stream_address(raw->link, shard, address, sizeof(address));
    return r < 0 ? r : pst_peer_open(raw->port, address, (size_t)r, raw, &raw->peers[shard]);
}

static int connect_all(struct raw *raw, struct pst_net *net, uint64_t until_ns, const char **fault)
{
    int r = await_welcome(raw, until_ns, fault);

    if (r == 0)
        r = pst_port_open(net, EVENTS_MAX, &raw->port);
    if (r == 0)
        r = offer(raw, until_ns);
    if (r == 0)
        r = await_ready(raw, until_ns, fault);
    for (uint32_t i = 0; i < raw->welcome.shard_count && r == 0; i++) {
        r = open_peer(raw, i);
        raw->peer_count += r == 0;
    }
    for (int i = 0; i < 2 && r == 0; i++) /* the second one makes the transport ready for bulk messages */
        r = say_hello(raw);
    return r;
}

struct raw *raw_open(struct pst_net *net, const struct pst_boot_address *address, struct pst_bytes secret,
                     raw_heard heard, void *ctx, const char **fault)
{
    uint64_t until_ns = pst_now_ns() + CONNECT_NS;
    struct pst_boot_client_options options = {.transport = raw_transport() == PST_NET_STREAM ? PST_BOOT_STREAM
                                                                                             : PST_BOOT_UCX,
                                              .secret = secret,
                                              .deadline_ns = until_ns};
    struct raw *raw = calloc(1, sizeof(*raw));
    int r;

    pst_assert(raw && heard);
    raw->heard = heard;
    raw->ctx = ctx;
    *fault = "no way to the node";
    r = pst_boot_link_open(address, &options, &raw->link, fault);
    if (r == 0)
        r = connect_all(raw, net, until_ns, fault);
    return r == 0 ? raw : raw_close(raw);
}

struct raw *raw_close(struct raw *raw)
{
    if (!raw)
        return NULL;
    if (raw->port)
        pst_port_close(raw->port);
    if (raw->link)
        pst_boot_link_close(raw->link);
    for (uint32_t i = 0; i < raw->fd_count; i++)
        close(raw->fds[i]);
    free(raw);
    return NULL;
}

/* ---- saying things ---- */

uint32_t raw_shards(const struct raw *raw)
{
    return raw->welcome.shard_count;
}

uint32_t raw_shard_of(const struct raw *raw, struct pst_bytes key)
{
    return pst_route_shard(key, raw->welcome.partition_seed, raw->welcome.shard_count);
}

bool raw_add(struct raw_body *body, const struct pst_wire_op *op)
{
    size_t bytes = pst_wire_op_bytes(op);

    if (body->count == PST_WIRE_OPS_MAX || bytes > sizeof(body->data) - body->bytes)
        return false;
    body->bytes = (size_t)(pst_wire_put_op(body->data + body->bytes, op) - body->data);
    body->count++;
    return true;
}

int raw_ask(struct raw *raw, uint32_t shard, uint32_t request, uint32_t timeout_ms,
            const struct raw_body *body)
{
    struct pst_wire_head head = {.type = PST_WIRE_REQUEST,
                                 .version = (uint8_t)raw->welcome.version,
                                 .count = (uint16_t)body->count,
                                 .request = request,
                                 .token = raw->welcome.token,
                                 .timeout_ms = timeout_ms};
    int r = pst_peer_send(raw->peers[shard], (struct pst_bytes){&head, sizeof(head)},
                          (struct pst_bytes){body->data, body->bytes}, raw);

    raw->borrowed = r == 0;
    while (raw->borrowed && raw_poll(raw))
        sched_yield();
    return r < 0 ? r : 0;
}

int raw_send(struct raw *raw, uint32_t shard, uint32_t request, uint32_t index,
             const struct pst_wire_part *parts, uint32_t part_count, uint64_t bytes)
{
    struct {
        struct pst_wire_head head;
        struct pst_wire_part parts[PST_WIRE_PARTS_MAX];
    } m = {.head = {.type = PST_WIRE_BULK,
                    .version = (uint8_t)raw->welcome.version,
                    .count = (uint16_t)part_count,
                    .request = request,
                    .token = raw->welcome.token,
                    .bulk_count = index}};
    struct iovec iov = {zeros, pst_min(bytes, sizeof(zeros))};
    int r;

    memcpy(m.parts, parts, part_count * sizeof(*parts));
    r = pst_peer_send_bulk(raw->peers[shard],
                           (struct pst_bytes){&m, sizeof(m.head) + part_count * sizeof(*parts)}, &iov, 1,
                           NULL);
    return r < 0 ? r : 0;
}
