/* SPDX-License-Identifier: Apache-2.0 */
/*
 * client.c: the client's end of the bootstrap socket: driven step by step until the session stands, then
 * by ticks. One thread. The node proves that it knows the secret before anything it says is used.
 */
#include "net/handshake/dial.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/ms.h"
#include "net/stream.h"
#include "net/stream/channel.h"
#include "net/tls/tls.h"
#include "net/ucx/version.h"

#include <poll.h>
#include <stdio.h>
#include <sys/socket.h>

enum {
    LINK_MAGIC = 0x7e7e0020,
};

/* Descriptors that came in while the welcome was read. */
struct passed {
    int fds[PST_BOOT_ARENAS_MAX];
    uint32_t count;
    bool bad; /* more than there may be */
};

/* In their order; the caller's turn is between the last two. */
enum link_step { LINK_DIAL, LINK_START, LINK_CHALLENGE, LINK_WELCOME, LINK_WELCOMED, LINK_READY, LINK_UP };

struct pst_boot_link {
    uint32_t magic;
    enum link_step step;
    struct stream_channel *channel; /* NULL: not yet connected */
    bool local;                     /* a unix socket, over which descriptors may come */
    struct pst_tls *tls;            /* the caller's; NULL: plain */
    char host[256];                 /* whom its certificate has to name */
    bool secured;                   /* the channel is TLS */
    uint64_t deadline_ns;           /* of the steps */
    struct boot_dial dial;
    struct pst_bytes secret; /* our copy */
    struct pst_bytes key;    /* of the proofs: the secret, or in TLS bound_key */
    uint8_t bound_key[BOOT_MAC_BYTES];
    bool network_only;
    enum pst_boot_transport transport;
    bool stream; /* the session uses it */
    uint64_t token;
    uint32_t ucx, node_ucx;
    uint16_t version; /* of the session; until the node's challenge, what is asked for */
    uint8_t transcript[BOOT_TRANSCRIPT_BYTES];
    uint64_t ping_sent_ns; /* of the last one */
    uint64_t waiting_ns;   /* of the oldest one without an answer; 0: none */
    uint32_t ping_left;    /* bytes of a ping that the socket did not take yet */
    struct passed passed;
    struct pst_boot_welcome *welcome; /* until the caller has it */
    uint32_t out_at, out_bytes;       /* a frame that the socket has not taken all of yet */
    uint8_t out[BOOT_FRAME_SMALL_MAX];
    uint32_t in_bytes;
    uint8_t in[BOOT_FRAME_SMALL_MAX];
    uint8_t *large; /* a frame that is longer, in place of in */
};

static void passed_close(struct passed *passed)
{
    pst_assert(passed->count <= PST_BOOT_ARENAS_MAX);
    for (uint32_t i = 0; i < passed->count; i++)
        close(passed->fds[i]);
    passed->count = 0;
}

static void passed_take(struct passed *passed, struct msghdr *message)
{
    pst_assert(passed->count <= PST_BOOT_ARENAS_MAX);
    if (message->msg_flags & MSG_CTRUNC)
        passed->bad = true;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(message); c; c = CMSG_NXTHDR(message, c)) {
        size_t bytes = c->cmsg_len - CMSG_LEN(0);

        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
            continue;
        for (size_t i = 0; i < bytes / sizeof(int); i++) {
            int fd;

            memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(fd));
            if (passed->count < PST_BOOT_ARENAS_MAX) {
                passed->fds[passed->count++] = fd;
            } else {
                close(fd);
                passed->bad = true;
            }
        }
    }
}

/* Reads what is there, up to @cap bytes, and descriptors with it. Return: bytes, 0 at the end of file,
 * -errno. */
static ssize_t read_some(struct pst_boot_link *link, void *buf, size_t cap, struct passed *passed)
{
    union {
        char bytes[CMSG_SPACE(PST_BOOT_ARENAS_MAX * sizeof(int))];
        struct cmsghdr align;
    } control;
    struct iovec iov = {.iov_base = buf, .iov_len = cap};
    struct msghdr message = {.msg_iov = &iov,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = sizeof(control.bytes)};
    ssize_t n;

    pst_assert(cap > 0);
    if (!passed || !link->local)
        return stream_channel_readv(link->channel, &iov, 1);
    n = recvmsg(stream_channel_fd(link->channel), &message, MSG_CMSG_CLOEXEC);
    if (n < 0)
        return -errno;
    passed_take(passed, &message);
    return n;
}

/* Return: 0 when @bytes are there, -EAGAIN not yet, -ECONNRESET, -errno. */
static int link_fill(struct pst_boot_link *link, uint8_t *buf, size_t bytes, struct passed *passed)
{
    pst_assert(bytes > 0 && bytes <= BOOT_FRAME_WELCOME_MAX);
    while (link->in_bytes < bytes) {
        ssize_t n = read_some(link, buf + link->in_bytes, bytes - link->in_bytes, passed);

        pst_assert(n <= (ssize_t)(bytes - link->in_bytes));
        if (n > 0)
            link->in_bytes += (uint32_t)n;
        else if (n == 0)
            return -ECONNRESET;
        else if (n != -EINTR)
            return (int)n;
    }
    return 0;
}

static int link_flush(struct pst_boot_link *link)
{
    pst_assert(link->out_at <= link->out_bytes && link->out_bytes <= sizeof(link->out));
    while (link->out_at < link->out_bytes) {
        struct iovec iov = {link->out + link->out_at, link->out_bytes - link->out_at};
        ssize_t n = stream_channel_writev(link->channel, &iov, 1);

        if (n > 0)
            link->out_at += (uint32_t)n;
        else if (n == -EPIPE || n == -ECONNRESET) /* one that refuses; its reason may be there still */
            link->out_at = link->out_bytes;
        else
            return (int)n;
    }
    return 0;
}

/* It is on its way when the next step has flushed it. */
static void put_frame(struct pst_boot_link *link, enum boot_type type, const uint8_t *body, uint32_t bytes)
{
    pst_assert(bytes <= sizeof(link->out) - BOOT_HEAD_BYTES);
    pst_assert(link->out_at == link->out_bytes);
    boot_frame_head(link->out, link->version, type, bytes);
    memcpy(link->out + BOOT_HEAD_BYTES, body, bytes);
    link->out_at = 0;
    link->out_bytes = BOOT_HEAD_BYTES + bytes;
}

static const char *version_fault(uint16_t node_version)
{
    static _Thread_local char text[80];

    snprintf(text, sizeof(text), "the node speaks version %u, this client %d to %d", node_version,
             PST_BOOT_VERSION_OLDEST, PST_BOOT_VERSION);
    return text;
}

static const char *ucx_fault(const struct pst_boot_link *link)
{
    static _Thread_local char text[100];
    char node[PST_UCX_TEXT_BYTES], own[PST_UCX_TEXT_BYTES];

    pst_ucx_print(link->node_ucx, node);
    pst_ucx_print(link->ucx, own);
    snprintf(text, sizeof(text), "the node has UCX %s, which does not go with this client's %s", node, own);
    return text;
}

/* Which of its two ends found what wrong with TLS, unless the connection has just ended. */
static void tls_fault(const struct pst_boot_link *link, const char **fault)
{
    static _Thread_local char text[PST_TLS_TEXT_BYTES];
    const char *said = "";

    if (!link->secured || pst_tls_channel_fault(link->channel, &said) <= PST_TLS_FAULT_ENDED)
        return;
    snprintf(text, sizeof(text), "%s", said);
    *fault = text;
}

/* What a whole frame means where one of @type is due. The challenge settles the session's version. */
static int judge_frame(struct pst_boot_link *link, enum boot_type type, const struct boot_frame *frame,
                       const char **fault)
{
    bool settles = type == BOOT_CHALLENGE && frame->version >= PST_BOOT_VERSION_OLDEST &&
                   frame->version <= link->version;

    pst_assert(link->version >= PST_BOOT_VERSION_OLDEST && link->version <= PST_BOOT_VERSION);
    if (frame->type == BOOT_REFUSED) {
        int r = boot_refused_decode(frame, fault);

        if (r == -EPROTONOSUPPORT)
            *fault = link->node_ucx ? ucx_fault(link) : version_fault(frame->version);
        return r;
    }
    if (frame->version != link->version && !settles) {
        *fault = version_fault(frame->version);
        return -EPROTONOSUPPORT;
    }
    link->version = frame->version;
    return frame->type == type ? 0 : -EPROTO;
}

/*
 * Reads one frame of type @type of any length up to @max; it stays until the next is read. Return: 0, -EAGAIN
 * not yet, or what pst_boot_link_welcome() returns, with *@fault set.
 */
static int read_frame(struct pst_boot_link *link, enum boot_type type, size_t max, struct passed *passed,
                      struct boot_frame *frame, const char **fault)
{
    int r = link->in_bytes < BOOT_HEAD_BYTES ? link_fill(link, link->in, BOOT_HEAD_BYTES, passed) : 0;
    uint8_t *buf = link->in;

    pst_assert(max >= BOOT_HEAD_BYTES && max <= BOOT_FRAME_WELCOME_MAX);
    *fault = "the node closed the connection";
    if (r < 0 && r != -EAGAIN)
        tls_fault(link, fault);
    if (r < 0)
        return r;
    *fault = "not a penstock node";
    r = boot_frame_parse(link->in, BOOT_HEAD_BYTES, max, frame);
    if (r < 0)
        return r;
    if (BOOT_HEAD_BYTES + frame->bytes > sizeof(link->in)) {
        *fault = "out of memory";
        buf = link->large = link->large ? link->large : malloc(BOOT_HEAD_BYTES + frame->bytes);
        if (!buf)
            return -ENOMEM;
        memcpy(buf, link->in, BOOT_HEAD_BYTES);
    }
    *fault = "the node closed the connection";
    r = link_fill(link, buf, BOOT_HEAD_BYTES + frame->bytes, passed);
    if (r < 0)
        return r;
    link->in_bytes = 0;
    frame->body = buf + BOOT_HEAD_BYTES;
    *fault = "not a penstock node";
    r = judge_frame(link, type, frame, fault);
    pst_assert(frame->bytes <= max - BOOT_HEAD_BYTES);
    return r;
}

/* ---- steps. Return: 0 done, -EAGAIN not yet, or what pst_boot_link_welcome() returns ---- */

static int dial_step(struct pst_boot_link *link, const char **fault)
{
    int r, fd = boot_dial_step(&link->dial, fault);

    if (fd < 0)
        return fd;
    pst_assert(!link->channel);
    pst_assert(link->step == LINK_DIAL);
    *fault = "out of memory";
    link->secured = link->tls && !link->local; /* nobody is between the ends of a unix socket */
    r = link->secured ? pst_tls_channel(link->tls, fd, link->host, &link->channel)
                      : stream_channel_plain(fd, &link->channel);
    if (r < 0) {
        close(fd);
        return r;
    }
    /* Whoever may write to a socket's folder can serve there. */
    return link->local && link->secret.len == 0 ? boot_check_server(fd, fault) : 0;
}

/* TLS has failed with @error. A node may say in a plain frame that it has no room for the handshake, or no
 * TLS; nothing else is heard outside of TLS. Return: what pst_boot_link_welcome() returns. */
static int plain_refusal(struct pst_boot_link *link, int error, const char **fault)
{
    uint8_t said[BOOT_HEAD_BYTES + 4];
    ssize_t n = recv(stream_channel_fd(link->channel), said, sizeof(said), MSG_PEEK);
    struct boot_frame frame;

    pst_assert(link->secured);
    pst_assert(link->step == LINK_START);
    if (n <= 0 || boot_frame_parse(said, (size_t)n, sizeof(said), &frame) <= 0 || frame.type != BOOT_REFUSED)
        return error;
    return judge_frame(link, BOOT_CHALLENGE, &frame, fault);
}

static int secure(struct pst_boot_link *link, const char **fault)
{
    uint8_t binding[PST_TLS_BINDING_BYTES];
    int r = stream_channel_start(link->channel, fault);

    _Static_assert(sizeof(binding) == BOOT_MAC_BYTES, "one binding");
    if (r < 0 && r != -EAGAIN) {
        tls_fault(link, fault);
        r = plain_refusal(link, r, fault);
    }
    if (r < 0)
        return r;
    *fault = "out of memory";
    r = pst_tls_channel_binding(link->channel, binding);
    if (r < 0)
        return r;
    link->key = boot_mac_key(link->secret, binding, link->bound_key);
    return link->key.data ? 0 : -ENOMEM;
}

static int start_step(struct pst_boot_link *link, const char **fault)
{
    struct boot_hello hello = {.flags = 0};
    uint8_t body[BOOT_HELLO_BYTES];
    int r = link->secured ? secure(link, fault) : 0;

    pst_assert(link->step == LINK_START);
    if (r < 0)
        return r;
    if (link->network_only)
        hello.flags |= BOOT_HELLO_NETWORK_ONLY;
    if (link->secret.len > 0)
        hello.flags |= BOOT_HELLO_HAS_SECRET | BOOT_HELLO_ASKS_GRANT;
    if (link->transport == PST_BOOT_STREAM)
        hello.flags |= BOOT_HELLO_STREAM;
    hello.flags |= link->ucx << BOOT_UCX_SHIFT;
    boot_identity_own(&hello.identity);
    pst_random(hello.nonce, sizeof(hello.nonce));
    boot_hello_encode(&hello, body);
    put_frame(link, BOOT_HELLO, body, sizeof(body));
    memcpy(link->transcript, link->out, BOOT_HEAD_BYTES + BOOT_HELLO_BYTES);
    return 0;
}

/* The session's transport, of those that the node offers. */
static int choose_transport(struct pst_boot_link *link, uint32_t offered, const char **fault)
{
    bool only = offered & BOOT_CHALLENGE_NO_UCX;

    link->stream = link->transport == PST_BOOT_STREAM || only;
    if (link->stream && !(offered & BOOT_CHALLENGE_STREAM))
        *fault = "the node does not offer the stream transport";
    else if (only && link->transport == PST_BOOT_UCX)
        *fault = "the node does not offer UCX";
    else
        return 0;
    return -EPROTONOSUPPORT;
}

static int challenge_step(struct pst_boot_link *link, const char **fault)
{
    struct boot_challenge challenge;
    struct boot_frame frame;
    uint8_t mac[BOOT_MAC_BYTES];
    int r = read_frame(link, BOOT_CHALLENGE, BOOT_FRAME_SMALL_MAX, NULL, &frame, fault);

    pst_assert(link->step == LINK_CHALLENGE);
    if (r < 0)
        return r;
    *fault = "not a penstock node";
    if (boot_challenge_decode(&frame, &challenge) < 0)
        return -EPROTO;
    link->node_ucx = challenge.flags >> BOOT_UCX_SHIFT;
    memcpy(link->transcript + BOOT_HEAD_BYTES + BOOT_HELLO_BYTES, link->in,
           BOOT_HEAD_BYTES + BOOT_CHALLENGE_BYTES);
    if (!(challenge.flags & BOOT_CHALLENGE_SECRET) && link->secret.len > 0) {
        *fault = "the node does not know the secret";
        return -EACCES;
    }
    if (challenge.flags & BOOT_CHALLENGE_SECRET && link->secret.len == 0) {
        *fault = "the node wants a secret";
        return -EACCES;
    }
    r = choose_transport(link, challenge.flags, fault);
    if (r < 0)
        return r;
    *fault = "out of memory";
    r = boot_mac(link->key, BOOT_LABEL_CLIENT, link->transcript, NULL, 0, mac);
    if (r == 0)
        put_frame(link, BOOT_PROOF, mac, sizeof(mac));
    return r;
}

static int welcome_step(struct pst_boot_link *link, const char **fault)
{
    struct boot_frame frame;
    int r = read_frame(link, BOOT_WELCOME, BOOT_FRAME_WELCOME_MAX, &link->passed, &frame, fault);

    pst_assert(link->step == LINK_WELCOME);
    pst_assert(link->welcome);
    if (r < 0)
        return r;
    *fault = "not a penstock node";
    if (frame.bytes < BOOT_MAC_BYTES)
        return -EPROTO;
    r = boot_mac_check(link->key, BOOT_LABEL_SERVER, link->transcript, frame.body + BOOT_MAC_BYTES,
                       frame.bytes - BOOT_MAC_BYTES, frame.body);
    if (r < 0) {
        *fault = r == -EACCES ? "the node does not know the secret" : "out of memory";
        return r;
    }
    if (boot_welcome_decode(frame.body + BOOT_MAC_BYTES, frame.bytes - BOOT_MAC_BYTES, link->welcome) < 0)
        return -EPROTO;
    link->welcome->version = link->version;
    link->welcome->stream = link->stream;
    link->token = link->welcome->token;
    return link->passed.bad || link->passed.count != link->welcome->arena_count ? -EPROTO : 0;
}

static int ready_step(struct pst_boot_link *link, const char **fault)
{
    struct boot_frame frame;

    pst_assert(link->step == LINK_READY);
    return read_frame(link, BOOT_READY, BOOT_FRAME_SMALL_MAX, NULL, &frame, fault);
}

/* Takes steps until @target is the next. */
static int link_go_to(struct pst_boot_link *link, enum link_step target, const char **fault)
{
    static int (*const steps[])(struct pst_boot_link *, const char **) = {
        [LINK_DIAL] = dial_step,       [LINK_START] = start_step, [LINK_CHALLENGE] = challenge_step,
        [LINK_WELCOME] = welcome_step, [LINK_READY] = ready_step,
    };

    pst_assert(link->magic == LINK_MAGIC);
    pst_assert(fault);
    pst_assert(link->step <= target);
    while (link->step < target) {
        int r;

        *fault = "cannot send to the node";
        r = link_flush(link);
        if (r == 0)
            r = steps[link->step](link, fault);
        if (r == -EAGAIN && pst_now_ns() >= link->deadline_ns) {
            *fault = "no answer in time";
            r = -ETIMEDOUT;
        }
        if (r < 0)
            return r;
        link->step++;
    }
    pst_assert(link->step == target);
    return 0;
}

int pst_boot_link_open(const struct pst_boot_address *address, const struct pst_boot_client_options *options,
                       struct pst_boot_link **out, const char **fault)
{
    struct pst_boot_link *link = calloc(1, sizeof(*link));
    int r;

    pst_assert(address && options && out && fault);
    pst_assert(options->secret.len <= PST_BOOT_SECRET_BYTES_MAX);
    *fault = "out of memory";
    if (!link)
        return -ENOMEM;
    link->magic = LINK_MAGIC;
    link->dial.fd = -1;
    link->local = address->path[0] != 0;
    link->tls = options->tls;
    snprintf(link->host, sizeof(link->host), "%s", address->host);
    link->version = PST_BOOT_VERSION;
    link->deadline_ns = options->deadline_ns;
    link->network_only = options->network_only;
    link->transport = options->transport;
    link->ucx = options->ucx;
    link->secret = (struct pst_bytes){boot_secret_copy(options->secret), options->secret.len};
    link->key = link->secret;
    link->welcome = calloc(1, sizeof(*link->welcome));
    r = !link->secret.data || !link->welcome
            ? -ENOMEM
            : boot_dial_init(&link->dial, address, options->deadline_ns, fault);
    if (r < 0) {
        pst_boot_link_close(link);
        return r;
    }
    pst_assert(link->step == LINK_DIAL);
    pst_assert(!link->channel);
    *out = link;
    return 0;
}

int pst_boot_link_welcome(struct pst_boot_link *link, struct pst_boot_welcome *welcome,
                          int arena_fds[PST_BOOT_ARENAS_MAX], const char **fault)
{
    int r = link_go_to(link, LINK_WELCOMED, fault);

    if (r < 0)
        return r;
    pst_assert(link->welcome);
    pst_assert(link->step == LINK_WELCOMED);
    pst_assert(link->passed.count <= PST_BOOT_ARENAS_MAX);
    *welcome = *link->welcome;
    memcpy(arena_fds, link->passed.fds, link->passed.count * sizeof(int));
    link->passed.count = 0;
    free(link->welcome);
    free(link->large);
    link->welcome = NULL;
    link->large = NULL;
    return 0;
}

int pst_boot_link_offer(struct pst_boot_link *link, const void *address, size_t bytes, uint64_t deadline_ns)
{
    uint8_t body[BOOT_MAC_BYTES + PST_NET_ADDRESS_BYTES_MAX];
    int r;

    pst_assert(link->step == LINK_WELCOMED);
    pst_assert(!link->welcome);
    pst_assert(bytes >= 1 && bytes <= PST_NET_ADDRESS_BYTES_MAX);
    memcpy(body + BOOT_MAC_BYTES, address, bytes);
    r = boot_mac(link->key, BOOT_LABEL_ADDRESS, link->transcript, address, bytes, body);
    if (r < 0)
        return r;
    put_frame(link, BOOT_ADDRESS, body, (uint32_t)(BOOT_MAC_BYTES + bytes));
    link->deadline_ns = deadline_ns;
    link->step = LINK_READY;
    return 0;
}

int pst_boot_link_ready(struct pst_boot_link *link, const char **fault)
{
    pst_assert(link->step >= LINK_READY);
    return link_go_to(link, LINK_UP, fault);
}

int pst_boot_link_stream_address(const struct pst_boot_link *link, uint32_t shard, void *buf, size_t cap)
{
    uint8_t frame[BOOT_HEAD_BYTES + BOOT_ATTACH_BYTES];
    uint8_t *mac = frame + BOOT_HEAD_BYTES;
    const struct boot_dial *dial = &link->dial;
    struct pst_stream_dial shard_dial = {.to = (const struct sockaddr *)&dial->at[dial->next],
                                         .to_bytes = dial->bytes[dial->next],
                                         .host = link->secured ? link->host : NULL,
                                         .preface = {frame, sizeof(frame)}};
    int r;

    pst_assert(link->step == LINK_UP);
    pst_assert(link->stream);
    pst_assert(dial->next < dial->count);
    boot_frame_head(frame, link->version, BOOT_ATTACH, BOOT_ATTACH_BYTES);
    boot_attach_encode(link->token, shard, mac + BOOT_MAC_BYTES);
    r = boot_attach_mac(link->key, link->transcript, mac, mac);
    if (r < 0)
        return r;
    return pst_stream_dial_address(&shard_dial, buf, cap);
}

int pst_boot_seal_attach(const struct stream_channel *channel, void *preface, size_t bytes)
{
    uint8_t binding[BOOT_MAC_BYTES];
    int r = pst_tls_channel_binding(channel, binding);

    pst_assert(bytes == BOOT_HEAD_BYTES + BOOT_ATTACH_BYTES);
    return r < 0 ? r : boot_mac_bind((uint8_t *)preface + BOOT_HEAD_BYTES, binding);
}

void pst_boot_link_wait(const struct pst_boot_link *link, uint64_t until_ns)
{
    pst_assert(link->magic == LINK_MAGIC);
    until_ns = pst_min(until_ns, link->deadline_ns);
    if (link->step == LINK_DIAL)
        boot_dial_wait(&link->dial, until_ns);
    else if (!stream_channel_buffered(link->channel))
        boot_wait(stream_channel_fd(link->channel),
                  (short)((link->out_at < link->out_bytes ? POLLOUT : POLLIN) |
                          stream_channel_wants(link->channel)),
                  until_ns);
}

/* Takes every whole frame out of the buffer: all that may come now are answers to pings. */
static int link_frames(struct pst_boot_link *link)
{
    uint32_t done = 0;

    pst_assert(link->in_bytes <= sizeof(link->in));
    for (;;) {
        struct boot_frame frame;
        int n = boot_frame_parse(link->in + done, link->in_bytes - done, sizeof(link->in), &frame);

        if (n < 0 || (n > 0 && (frame.type != BOOT_PONG || frame.version != link->version)))
            return -ECONNRESET;
        if (n == 0)
            break;
        link->waiting_ns = 0;
        done += (uint32_t)n;
    }
    pst_assert(done <= link->in_bytes);
    memmove(link->in, link->in + done, link->in_bytes - done);
    link->in_bytes -= done;
    return 0;
}

static int link_read(struct pst_boot_link *link)
{
    pst_assert(link->in_bytes < sizeof(link->in)); /* a whole frame always fits, and is taken out */
    for (int round = 0; round < 16; round++) {
        ssize_t n = read_some(link, link->in + link->in_bytes, sizeof(link->in) - link->in_bytes, NULL);
        int r;

        if (n == -EAGAIN)
            return 0;
        if (n <= 0)
            return -ECONNRESET;
        link->in_bytes += (uint32_t)n;
        pst_assert(link->in_bytes <= sizeof(link->in));
        r = link_frames(link);
        if (r < 0)
            return r;
    }
    return 0;
}

static int link_ping(struct pst_boot_link *link, uint64_t now_ns)
{
    uint8_t frame[BOOT_HEAD_BYTES];
    struct iovec iov;
    ssize_t n;

    if (link->ping_left == 0 && now_ns < pst_deadline_ns(link->ping_sent_ns, BOOT_PING_MS))
        return 0;
    if (link->ping_left == 0) {
        link->ping_left = BOOT_HEAD_BYTES;
        link->ping_sent_ns = now_ns;
        if (link->waiting_ns == 0)
            link->waiting_ns = now_ns;
    }
    pst_assert(link->ping_left <= sizeof(frame));
    boot_frame_head(frame, link->version, BOOT_PING, 0);
    iov = (struct iovec){frame + sizeof(frame) - link->ping_left, link->ping_left};
    n = stream_channel_writev(link->channel, &iov, 1);
    if (n < 0)
        return n == -EAGAIN ? 0 : -ECONNRESET;
    pst_assert((size_t)n <= link->ping_left);
    link->ping_left -= (uint32_t)n;
    return 0;
}

int pst_boot_link_tick(struct pst_boot_link *link, uint64_t now_ns)
{
    int r;

    pst_assert(link->magic == LINK_MAGIC);
    pst_assert(link->step == LINK_UP);
    r = link_read(link);
    if (r == 0)
        r = link_ping(link, now_ns);
    if (r < 0)
        return r;
    /* Counted from an unanswered ping, not from what came last: the caller may have slept longer than that
     * itself. */
    if (link->waiting_ns > 0 && now_ns > pst_deadline_ns(link->waiting_ns, BOOT_SILENCE_MS))
        return -ETIMEDOUT;
    return 0;
}

int pst_boot_link_fd(struct pst_boot_link *link)
{
    pst_assert(link->magic == LINK_MAGIC);
    return stream_channel_fd(link->channel);
}

struct pst_boot_link *pst_boot_link_close(struct pst_boot_link *link)
{
    if (!link)
        return NULL;
    pst_assert(link->magic == LINK_MAGIC);
    if (link->channel) /* the session ends even where a duplicate stays open */
        shutdown(stream_channel_fd(link->channel), SHUT_WR);
    stream_channel_close(link->channel);
    boot_dial_fini(&link->dial);
    passed_close(&link->passed);
    boot_secret_free(link->secret);
    explicit_bzero(link->bound_key, sizeof(link->bound_key));
    free(link->welcome);
    free(link->large);
    link->magic = 0;
    free(link);
    return NULL;
}
