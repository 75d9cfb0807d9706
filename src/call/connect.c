/* SPDX-License-Identifier: Apache-2.0 */
/*
 * connect.c: how a session comes about: the node's socket, addresses swapped, a hello to each shard and back.
 * A step goes as far as what has come allows, so that nobody waits who has other channels to look after.
 */
#include "call/call_priv.h"

#include "base/clock.h"
#include "base/ms.h"
#include "net/tls/tls.h"
#include "net/ucx/version.h"

#include <sched.h>
#include <stdio.h>

enum {
    HELLO_NS = 500000000,
    HELLO_TRIES = 3,
    PAUSE_NS = 50000000,
    DOUBLINGS_MAX = 3, /* of a pause */
    RECONNECT_NS = 1000000000,
    MOMENT_NS = 10000000,
};

/* ---- the node's socket ---- */

/* What TLS protects on the way to the node's socket is not to travel unprotected over UCX. */
static enum pst_boot_transport wished_transport(const struct pst_channel *ch)
{
    const struct pst_boot_address *to = ch->attempt.far ? &ch->options.address : &ch->options.near;
    bool secured = ch->options.tls && !to->path[0];
    bool chooses = ch->options.transport == PST_BOOT_AUTO;

    return chooses && (ch->attempt.stream || secured) ? PST_BOOT_STREAM : ch->options.transport;
}

static int link_open(struct pst_channel *ch, const char **fault)
{
    struct connect_attempt *attempt = &ch->attempt;
    struct pst_boot_client_options options = {.secret = ch->options.secret,
                                              .tls = ch->options.tls,
                                              .transport = wished_transport(ch),
                                              .network_only = ch->options.network_only,
                                              .deadline_ns = attempt->deadline_ns};

    pst_assert(!ch->boot);
    pst_assert(!ch->port);
    if (options.transport != PST_BOOT_STREAM)
        options.ucx = pst_ucx_version();
    return pst_boot_link_open(attempt->far ? &ch->options.address : &ch->options.near, &options, &ch->boot,
                              fault);
}

static int wrap_in_tls(void *ctx, int fd, const char *host, struct stream_channel **out)
{
    return pst_tls_channel(ctx, fd, host, out);
}

/* Return: 0 with *@out, the net of the session's transport, or -errno. */
static int open_net(struct pst_channel *ch, struct pst_net **out)
{
    struct pst_net **net = ch->welcome.stream ? &ch->stream : &ch->net;
    struct pst_net_options options = {.transport = ch->welcome.stream ? PST_NET_STREAM : PST_NET_UCX,
                                      .loopback_only = !ch->options.fabric_trusted,
                                      .wrap = ch->options.tls ? wrap_in_tls : NULL,
                                      .wrap_ctx = ch->options.tls,
                                      .seal = ch->options.tls ? pst_boot_seal_attach : NULL};
    int r = *net ? 0 : pst_net_open(&options, net);

    pst_assert(!ch->port);
    if (r == 0)
        *out = *net;
    return r;
}

static int offer_address(struct pst_channel *ch, const char **fault)
{
    uint8_t address[PST_NET_ADDRESS_BYTES_MAX];
    struct pst_net *net = NULL;
    int r;

    pst_assert(ch->boot);
    r = open_net(ch, &net);
    *fault = r < 0 ? pst_net_fault(r) : "the transport could not be set up";
    if ((r == -ENODEV || r == -ELIBACC) && ch->options.transport == PST_BOOT_AUTO)
        ch->attempt.stream = true;
    if (r == 0)
        r = pst_port_open(net, BULK_MESSAGES_MAX, &ch->port);
    if (r == 0)
        r = pst_port_address(ch->port, !ch->welcome.same_host, address, sizeof(address));
    if (r < 0)
        return r;
    pst_assert(r > 0);
    pst_assert((size_t)r <= sizeof(address));
    *fault = "out of memory";
    return pst_boot_link_offer(ch->boot, address, (size_t)r, ch->attempt.deadline_ns);
}

static int welcome_step(struct pst_channel *ch, uint64_t now_ns, const char **fault)
{
    int r = pst_boot_link_welcome(ch->boot, &ch->welcome, ch->arena_fds, fault);

    (void)now_ns;
    if (r < 0)
        return r;
    pst_assert(ch->welcome.arena_count <= PST_BOOT_ARENAS_MAX);
    pst_assert(ch->welcome.shard_count > 0);
    ch->arena_count = ch->welcome.arena_count;
    ch->grant = pst_grant_number(ch->welcome.grant);
    return offer_address(ch, fault);
}

/* ---- the transport ---- */

static int open_peer(struct pst_channel *ch, uint32_t shard)
{
    uint8_t address[PST_NET_ADDRESS_BYTES_MAX];
    int r;

    if (!ch->welcome.stream)
        return pst_peer_open(ch->port, ch->welcome.shards[shard].data, ch->welcome.shards[shard].bytes, ch,
                             &ch->peers[shard]);
    r = pst_boot_link_stream_address(ch->boot, shard, address, sizeof(address));
    return r < 0 ? r : pst_peer_open(ch->port, address, (size_t)r, ch, &ch->peers[shard]);
}

static int open_peers(struct pst_channel *ch)
{
    pst_assert(ch->port);
    pst_assert(ch->peers_open == 0);
    pst_assert(ch->welcome.shard_count <= PST_BOOT_SHARDS_MAX);
    for (uint32_t i = 0; i < ch->welcome.shard_count; i++) {
        int r = open_peer(ch, i);

        /* The shard may have opened its port anew since: its next welcome has another address. */
        if (r < 0)
            return r == -ENOMEM ? r : -EHOSTUNREACH;
        ch->peers_open++;
    }
    return 0;
}

static int send_hellos(struct pst_channel *ch)
{
    uint8_t version = (uint8_t)ch->welcome.version;

    pst_assert(ch->peers_open == ch->welcome.shard_count);
    ch->welcomed = 0;
    memset(ch->welcomed_by, 0, sizeof(ch->welcomed_by));
    for (uint32_t i = 0; i < ch->welcome.shard_count; i++) {
        struct pst_wire_head head = {
            .type = PST_WIRE_HELLO, .version = version, .token = ch->welcome.token, .bulk_count = i};
        int r = pst_peer_send(ch->peers[i], (struct pst_bytes){&head, sizeof(head)},
                              (struct pst_bytes){NULL, 0}, NULL);

        if (r < 0)
            return r;
    }
    return 0;
}

static int ready_step(struct pst_channel *ch, uint64_t now_ns, const char **fault)
{
    int r = pst_boot_link_ready(ch->boot, fault);

    pst_assert(ch->port);
    pst_assert(ch->peers_open == 0);
    if (r == -ECONNRESET) {
        *fault =
            ch->welcome.stream
                ? "the node ended"
                : "the node ended, or found no way back over UCX (UCX_NET_DEVICES, UCX_TLS, namespaces?)";
        return -EHOSTUNREACH;
    }
    if (r < 0)
        return r;
    *fault = ch->welcome.stream ? "no second connection to the node"
                                : "the node's UCX address leads nowhere (UCX_NET_DEVICES, UCX_TLS?)";
    r = open_peers(ch);
    ch->attempt.second = false;
    ch->attempt.error = 0;
    ch->attempt.until_ns = pst_min(now_ns + ((uint64_t)HELLO_NS << pst_min(ch->attempt.hellos, HELLO_TRIES)),
                                   ch->attempt.deadline_ns);
    return r < 0 ? r : send_hellos(ch);
}

/* Every shard must answer over the transport before the session counts. The second message to a peer makes
 * the transport ready for bulk ones: better now than with requests in its queues. */
static int hello_step(struct pst_channel *ch, uint64_t now_ns, const char **fault)
{
    bool all = ch->welcomed == ch->welcome.shard_count;
    int r;

    pst_assert(ch->welcomed <= ch->welcome.shard_count);
    pst_assert(ch->peers_open == ch->welcome.shard_count);
    *fault = ch->welcome.stream
                 ? "the node's shards do not answer over the stream"
                 : "the node answers on its socket but not over UCX (UCX_NET_DEVICES, UCX_TLS, firewall?)";
    ch->attempt.silent = !all && now_ns > ch->attempt.until_ns;
    if (ch->attempt.error || ch->attempt.silent)
        return -EHOSTUNREACH;
    if (!all)
        return -EAGAIN;
    if (ch->attempt.second)
        return 0;
    ch->attempt.second = true;
    r = send_hellos(ch);
    return r < 0 ? r : -EAGAIN;
}

/* ---- attempts ---- */

static void close_arenas(struct pst_channel *ch)
{
    pst_assert(ch->arena_count <= PST_BOOT_ARENAS_MAX);
    for (uint32_t i = 0; i < ch->arena_count; i++)
        close(ch->arena_fds[i]);
    ch->arena_count = 0;
}

void pst_session_drop(struct pst_channel *ch)
{
    pst_assert(ch->magic == PST_CHANNEL_MAGIC);
    pst_bulk_park_fini(&ch->park);
    ch->port = pst_port_close(ch->port);
    ch->peers_open = 0;
    memset(ch->peers, 0, sizeof(ch->peers));
    ch->boot = pst_boot_link_close(ch->boot);
    close_arenas(ch);
    ch->state = CHANNEL_DOWN;
}

/* A node that ends or begins just now: it takes a connection, and lets it go without an answer. If nothing
 * listens, a wrong address is likelier. Who has lost a session learns of it, and asks again by itself. */
static bool waits_for_a_node(const struct pst_channel *ch, int error)
{
    pst_assert(error < 0);
    return ch->options.insists && !ch->session && ch->attempt.far &&
           (error == -ECONNRESET || error == -ETIMEDOUT);
}

/* The longer the more often there was no node; the last attempt has some time, too. */
static uint64_t pause_until(struct connect_attempt *attempt, uint64_t now_ns, bool absent)
{
    uint64_t pause_ns = (uint64_t)PAUSE_NS << (absent ? pst_min(attempt->absences++, DOUBLINGS_MAX) : 0);

    pst_assert(now_ns + PAUSE_NS < attempt->deadline_ns);
    return pst_min(now_ns + pause_ns, attempt->deadline_ns - PAUSE_NS);
}

/*
 * What passes by itself is tried again: a node with too many handshakes, a shard that opens its port anew,
 * and with more time each time a node that has no core for its shards. Then there may be another address;
 * behind that, who can go nowhere else waits for such a node, or for one to come, as long as there is time.
 * Return: false when it is over.
 */
static bool attempt_once_more(struct pst_channel *ch, uint64_t now_ns, int error)
{
    struct connect_attempt *attempt = &ch->attempt;
    bool waits = attempt->silent && attempt->far && !ch->options.impatient;
    bool falls = attempt->stream && (error == -ENODEV || error == -ELIBACC);
    bool absent = waits_for_a_node(ch, error);
    bool passes = falls || absent || error == -EBUSY ||
                  (error == -EHOSTUNREACH && (++attempt->hellos < HELLO_TRIES || waits));

    pst_assert(error < 0);
    pst_assert(ch->state == CHANNEL_DOWN);
    if (now_ns + PAUSE_NS >= attempt->deadline_ns)
        return false;
    if (!passes && (attempt->far || error == -ETIMEDOUT))
        return false;
    attempt->far |= !passes;
    if (!passes || absent) /* another address, or another node */
        attempt->hellos = 0;
    attempt->silent = false;
    attempt->until_ns = passes ? pause_until(attempt, now_ns, absent) : now_ns;
    ch->state = CHANNEL_PAUSE;
    return true;
}

static void attempt_failed(struct pst_channel *ch, uint64_t now_ns, int error, const char *fault)
{
    pst_assert(error < 0);
    pst_assert(error != -EAGAIN);
    pst_assert(fault);
    snprintf(ch->fault, sizeof(ch->fault), "%s", fault);
    pst_session_drop(ch);
    if (!attempt_once_more(ch, now_ns, error))
        ch->down_error = error;
}

static void channel_is_up(struct pst_channel *ch)
{
    pst_assert(ch->boot);
    pst_assert(ch->port);
    pst_assert(ch->welcomed == ch->welcome.shard_count);
    ch->state = CHANNEL_UP;
    ch->session++;
    ch->down_error = 0;
}

static int pause_step(struct pst_channel *ch, uint64_t now_ns, const char **fault)
{
    pst_assert(ch->attempt.deadline_ns >= ch->attempt.begun_ns);
    return now_ns < ch->attempt.until_ns ? -EAGAIN : link_open(ch, fault);
}

void pst_connect_begin(struct pst_channel *ch, uint64_t now_ns)
{
    pst_assert(ch->state == CHANNEL_DOWN);
    pst_assert(!ch->port);
    pst_assert(pst_list_empty(&ch->sent));
    ch->attempt = (struct connect_attempt){
        .begun_ns = now_ns,
        .deadline_ns = now_ns + (ch->session ? RECONNECT_NS : pst_ns_of_ms(ch->options.connect_ms)),
        .far = !*ch->options.near.path,
    };
    ch->state = CHANNEL_PAUSE;
}

void pst_connect_step(struct pst_channel *ch, uint64_t now_ns)
{
    static int (*const steps[])(struct pst_channel *, uint64_t, const char **) = {
        [CHANNEL_PAUSE] = pause_step,
        [CHANNEL_WELCOME] = welcome_step,
        [CHANNEL_READY] = ready_step,
        [CHANNEL_HELLO] = hello_step,
    };

    while (pst_connecting(ch)) {
        const char *fault = "";
        int r = steps[ch->state](ch, now_ns, &fault);

        pst_assert(r <= 0);
        if (r == -EAGAIN)
            return;
        if (r < 0)
            attempt_failed(ch, now_ns, r, fault);
        else if (ch->state == CHANNEL_HELLO)
            channel_is_up(ch);
        else
            ch->state++;
    }
}

void pst_connect_wait(const struct pst_channel *ch)
{
    uint64_t until_ns = pst_now_ns() + MOMENT_NS;

    pst_assert(ch->magic == PST_CHANNEL_MAGIC);
    if (ch->state == CHANNEL_WELCOME || ch->state == CHANNEL_READY)
        pst_boot_link_wait(ch->boot, until_ns);
    else if (ch->state == CHANNEL_PAUSE)
        usleep(1000);
    else
        sched_yield(); /* the node may be waiting for this very core */
}
