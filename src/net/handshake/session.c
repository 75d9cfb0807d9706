/* SPDX-License-Identifier: Apache-2.0 */
/*
 * session.c: what the server says on one connection: a table with a row per step. Nothing here waits; a
 * socket that takes no more keeps its bytes in the connection. Before the proof a client costs one fixed
 * block and no work but a hash.
 */
#include "net/handshake/server_priv.h"
#include "base/hash.h"
#include "net/ucx/version.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/socket.h>

static const char why_protocol[] = "not a penstock client";
static const char why_reset[] = "connection closed";

static void conn_end_because(struct boot_conn *conn, const char *why)
{
    pst_assert(why);
    if (!conn->ending)
        conn->ending = why;
}

static void protocol_error(struct boot_conn *conn)
{
    pst_assert(conn->magic == BOOT_CONN_MAGIC);
    if (!conn->welcomed && !conn->ending)
        boot_server_refused(conn, PST_BOOT_REFUSED_OTHER, why_protocol);
    conn_end_because(conn, why_protocol);
}

static ssize_t send_first(struct boot_conn *conn, const uint8_t *data, size_t bytes)
{
    union {
        char bytes[CMSG_SPACE(PST_BOOT_ARENAS_MAX * sizeof(int))];
        struct cmsghdr align;
    } control = {.bytes = {0}};
    size_t fd_bytes = conn->fd_count * sizeof(int);
    struct iovec iov = {.iov_base = (void *)(uintptr_t)data, .iov_len = bytes};
    struct msghdr message = {.msg_iov = &iov, .msg_iovlen = 1};
    struct cmsghdr *c;
    ssize_t n;

    pst_assert(conn->unix_socket);
    pst_assert(!conn->secured);
    pst_assert(conn->fd_count <= PST_BOOT_ARENAS_MAX);
    message.msg_control = control.bytes;
    message.msg_controllen = CMSG_SPACE(fd_bytes);
    c = CMSG_FIRSTHDR(&message);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(fd_bytes);
    memcpy(CMSG_DATA(c), conn->fds, fd_bytes);
    do
        n = sendmsg(conn->fd, &message, MSG_NOSIGNAL);
    while (n < 0 && errno == EINTR);
    return n < 0 ? -errno : n;
}

void boot_session_flush(struct boot_conn *conn)
{
    const uint8_t *out = conn->out_big ? conn->out_big : conn->out_small;

    pst_assert(conn->magic == BOOT_CONN_MAGIC);
    pst_assert(conn->out_done <= conn->out_bytes);
    while (conn->out_done < conn->out_bytes) {
        size_t left = conn->out_bytes - conn->out_done;
        struct iovec iov = {(void *)(uintptr_t)(out + conn->out_done), left};
        ssize_t n = conn->fd_count > 0 ? send_first(conn, out + conn->out_done, left)
                                       : stream_channel_writev(conn->channel, &iov, 1);

        if (n == -EAGAIN)
            return;
        if (n < 0) {
            conn_end_because(conn, why_reset);
            return;
        }
        pst_assert((size_t)n <= left);
        conn->fd_count = 0; /* they went with the first byte */
        conn->out_done += (size_t)n;
    }
    free(conn->out_big);
    conn->out_big = NULL;
    conn->out_bytes = conn->out_done = 0;
    pst_assert(!conn->out_big);
    pst_assert(conn->out_bytes == 0);
}

/* Queues a short frame. Return: false when the client leaves too much unread. */
static bool conn_say(struct boot_conn *conn, enum boot_type type, const void *body, uint32_t bytes)
{
    pst_assert(BOOT_HEAD_BYTES + bytes <= sizeof(conn->out_small));
    if (conn->out_big || sizeof(conn->out_small) - conn->out_bytes < BOOT_HEAD_BYTES + bytes)
        return false;
    boot_frame_head(conn->out_small + conn->out_bytes, conn->version, type, bytes);
    if (bytes > 0)
        memcpy(conn->out_small + conn->out_bytes + BOOT_HEAD_BYTES, body, bytes);
    conn->out_bytes += BOOT_HEAD_BYTES + bytes;
    boot_session_flush(conn);
    return true;
}

void boot_session_refuse(struct boot_conn *conn, enum boot_refusal code, const char *why)
{
    static const enum pst_boot_refusal kinds[] = {
        [BOOT_REFUSED_VERSION] = PST_BOOT_REFUSED_VERSION,
        [BOOT_REFUSED_NO_SECRET] = PST_BOOT_REFUSED_SECRET,
        [BOOT_REFUSED_WRONG_SECRET] = PST_BOOT_REFUSED_SECRET,
        [BOOT_REFUSED_BUSY] = PST_BOOT_REFUSED_BUSY,
        [BOOT_REFUSED_FAILED] = PST_BOOT_REFUSED_OTHER,
        [BOOT_REFUSED_UCX] = PST_BOOT_REFUSED_VERSION,
        [BOOT_REFUSED_NO_TLS] = PST_BOOT_REFUSED_TLS,
        [BOOT_REFUSED_PLAIN] = PST_BOOT_REFUSED_PLAIN,
        [BOOT_REFUSED_TRANSPORT] = PST_BOOT_REFUSED_VERSION,
    };
    uint8_t body[4];

    pst_assert(!conn->ending);
    pst_assert(why);
    boot_refused_encode(code, body);
    conn_say(conn, BOOT_REFUSED, body, sizeof(body));
    if (!conn->welcomed)
        boot_server_refused(conn, kinds[code], why);
    conn->ending = why;
}

static void refuse_version(struct boot_conn *conn, uint16_t version)
{
    pst_assert(version < PST_BOOT_VERSION_OLDEST);
    snprintf(conn->why, sizeof(conn->why), "version %u asked for, %d to %d spoken", version,
             PST_BOOT_VERSION_OLDEST, PST_BOOT_VERSION);
    boot_session_refuse(conn, BOOT_REFUSED_VERSION, conn->why);
}

static void refuse_ucx(struct boot_conn *conn)
{
    char theirs[PST_UCX_TEXT_BYTES], ours[PST_UCX_TEXT_BYTES];

    pst_assert(conn->step == BOOT_STEP_PROOF);
    pst_assert(!conn->welcomed);
    pst_ucx_print(conn->hello.flags >> BOOT_UCX_SHIFT, theirs);
    pst_ucx_print(conn->server->options.ucx, ours);
    snprintf(conn->why, sizeof(conn->why), "it has UCX %s, the node %s", theirs, ours);
    boot_session_refuse(conn, BOOT_REFUSED_UCX, conn->why);
}

void boot_session_dismiss(struct boot_conn *conn)
{
    uint8_t body[4];

    pst_assert(conn->welcomed);
    pst_assert(conn->shares);
    boot_refused_encode(BOOT_REFUSED_FAILED, body);
    (void)conn_say(conn, BOOT_REFUSED, body, sizeof(body)); /* else it finds out over UCX */
}

void boot_session_ready(struct boot_conn *conn)
{
    pst_assert(conn->welcomed);
    pst_assert(conn->step == BOOT_STEP_PING);
    if (!conn_say(conn, BOOT_READY, NULL, 0))
        protocol_error(conn);
}

static void session_hello(struct boot_conn *conn, const struct boot_frame *frame)
{
    struct boot_challenge challenge = {.flags = 0};
    uint8_t body[BOOT_CHALLENGE_BYTES], *at = conn->transcript;
    bool secret = conn->server->secrets[0].secret.len > 0;

    pst_assert(conn->step == BOOT_STEP_HELLO);
    pst_assert(!conn->welcomed);
    if (frame->version < PST_BOOT_VERSION_OLDEST) {
        refuse_version(conn, frame->version);
        return;
    }
    conn->version = (uint16_t)pst_min(frame->version, PST_BOOT_VERSION);
    if (boot_hello_decode(frame, &conn->hello) < 0) {
        protocol_error(conn);
        return;
    }
    if (!conn->secured && !boot_secure_excuses(conn)) {
        boot_session_refuse(conn, BOOT_REFUSED_PLAIN, "no TLS");
        return;
    }
    if (secret && !(conn->hello.flags & BOOT_HELLO_HAS_SECRET)) {
        boot_session_refuse(conn, BOOT_REFUSED_NO_SECRET, "no secret");
        return;
    }
    conn->stream = conn->hello.flags & BOOT_HELLO_STREAM || conn->server->options.no_ucx;
    challenge.flags = (secret ? BOOT_CHALLENGE_SECRET : 0u) |
                      (conn->server->options.stream ? BOOT_CHALLENGE_STREAM : 0u) |
                      (conn->server->options.no_ucx ? BOOT_CHALLENGE_NO_UCX : 0u) |
                      conn->server->options.ucx << BOOT_UCX_SHIFT;
    pst_random(challenge.nonce, sizeof(challenge.nonce));
    boot_challenge_encode(&challenge, body);
    memcpy(at, frame->body - BOOT_HEAD_BYTES, BOOT_HEAD_BYTES + BOOT_HELLO_BYTES);
    at += BOOT_HEAD_BYTES + BOOT_HELLO_BYTES;
    boot_frame_head(at, conn->version, BOOT_CHALLENGE, sizeof(body));
    memcpy(at + BOOT_HEAD_BYTES, body, sizeof(body));
    conn->step = BOOT_STEP_PROOF;
    if (!conn_say(conn, BOOT_CHALLENGE, body, sizeof(body)))
        protocol_error(conn);
}

static bool same_host(struct boot_conn *conn)
{
    const struct boot_identity *own = &conn->server->identity;
    struct boot_identity peer = conn->hello.identity;

    pst_assert(!conn->welcomed);
    if (conn->hello.flags & BOOT_HELLO_NETWORK_ONLY)
        return false;
    if (conn->unix_socket) /* the kernel knows better than the client says */
        boot_identity_of_peer(conn->fd, &peer);
    peer.boot_id[BOOT_ID_BYTES - 1] = 0;
    return boot_identity_same(&peer, own);
}

/*
 * What UCX's versions leave of the ways to the client. Return: false when that is nothing; else *@same
 * whether shared memory is one.
 */
static bool ways_left(const struct boot_conn *conn, bool *same)
{
    const struct pst_boot_server *server = conn->server;
    uint32_t ours = server->options.ucx, theirs = conn->hello.flags >> BOOT_UCX_SHIFT;
    bool same_numbers = pst_ucx_same_numbers(ours, theirs);

    pst_assert(conn->step == BOOT_STEP_PROOF);
    *same &= same_numbers || boot_identity_initial(&server->identity);
    return pst_ucx_fits(ours, theirs) && (same_numbers || *same || !server->options.loopback_only);
}

/* Queues the welcome, its proof and its descriptors. Return: false without memory. */
static bool say_welcome(struct boot_conn *conn, const struct pst_boot_welcome *welcome, const int *fds)
{
    size_t bytes = boot_welcome_bytes(welcome), frame_bytes = BOOT_HEAD_BYTES + BOOT_MAC_BYTES + bytes;
    uint8_t *out = malloc(frame_bytes), *body = out + BOOT_HEAD_BYTES + BOOT_MAC_BYTES;

    pst_assert(frame_bytes <= BOOT_FRAME_WELCOME_MAX);
    pst_assert(!conn->out_big);
    pst_assert(conn->out_bytes == 0);
    if (!out)
        return false;
    boot_frame_head(out, conn->version, BOOT_WELCOME, (uint32_t)(BOOT_MAC_BYTES + bytes));
    boot_welcome_encode(welcome, body, bytes);
    if (boot_mac(conn->key, BOOT_LABEL_SERVER, conn->transcript, body, bytes, out + BOOT_HEAD_BYTES) < 0) {
        free(out);
        return false;
    }
    conn->out_big = out;
    conn->out_bytes = frame_bytes;
    conn->fd_count = welcome->arena_count;
    for (uint32_t i = 0; i < conn->fd_count; i++) {
        /* A client that could write would own every value of the node. */
        pst_assert((fcntl(fds[i], F_GETFL) & O_ACCMODE) == O_RDONLY);
        conn->fds[i] = fds[i];
    }
    boot_session_flush(conn);
    return true;
}

/* Says whether a check of a proof, which came to @r, lets the connection go on; else ends it. */
static bool conn_has_proved(struct boot_conn *conn, int r, const char *why)
{
    pst_assert(conn->step == BOOT_STEP_PROOF || conn->step == BOOT_STEP_ADDRESS);
    if (r == -EACCES)
        boot_session_refuse(conn, BOOT_REFUSED_WRONG_SECRET, why);
    else if (r < 0)
        boot_session_refuse(conn, BOOT_REFUSED_FAILED, "out of memory");
    return r >= 0;
}

/* Finds the secret that the client has. Return: NULL when the connection ends. */
static const struct pst_boot_secret *conn_find_secret(struct boot_conn *conn, const uint8_t *mac)
{
    const struct pst_boot_server *server = conn->server;
    const uint8_t *binding = conn->secured ? conn->binding : NULL;
    uint8_t bound[BOOT_MAC_BYTES];
    struct pst_bytes key;
    int r = boot_mac_find(server->secrets, server->secret_count, binding, conn->transcript, mac);

    pst_assert(!conn->key.data);
    if (!conn_has_proved(conn, r, conn->secured ? "wrong secret, or somebody in between" : "wrong secret"))
        return NULL;
    pst_assert((uint32_t)r < server->secret_count);
    key = boot_mac_key(server->secrets[r].secret, binding, bound);
    conn->key = (struct pst_bytes){key.data ? boot_secret_copy(key) : NULL, key.len};
    explicit_bzero(bound, sizeof(bound));
    if (conn_has_proved(conn, conn->key.data ? 0 : -ENOMEM, ""))
        return &server->secrets[r];
    conn->key.len = 0;
    return NULL;
}

static void session_proof(struct boot_conn *conn, const struct boot_frame *frame)
{
    struct pst_boot_server *server = conn->server;
    struct pst_boot_welcome *welcome = &server->welcome;
    const struct pst_boot_secret *secret;
    const int *fds = NULL;
    bool near, same;

    pst_assert(conn->step == BOOT_STEP_PROOF);
    pst_assert(!conn->welcomed);
    if (frame->bytes != BOOT_MAC_BYTES || conn->out_bytes > 0) {
        protocol_error(conn);
        return;
    }
    secret = conn_find_secret(conn, frame->body);
    if (!secret)
        return;
    if (server->session_count >= server->options.sessions_max) {
        boot_session_refuse(conn, BOOT_REFUSED_BUSY, "session limit");
        return;
    }
    if (conn->stream && !server->options.stream) {
        boot_session_refuse(conn, BOOT_REFUSED_TRANSPORT, "the stream is not offered");
        return;
    }
    near = same = !secret->confined && same_host(conn);
    if (conn->stream) {
        same = false;
    } else if (!ways_left(conn, &same)) {
        refuse_ucx(conn);
        return;
    }
    memset(welcome, 0, sizeof(*welcome));
    welcome->version = conn->version;
    welcome->owner = secret->owner;
    welcome->stream = conn->stream;
    if (server->ops->welcome(server->ctx, conn->peer, same, near && conn->unix_socket, welcome, &fds,
                             &conn->session) < 0) {
        boot_session_refuse(conn, BOOT_REFUSED_BUSY, "the node is busy");
        return;
    }
    conn->welcomed = true;
    conn->token = welcome->token;
    boot_server_proved(conn);
    conn->step = BOOT_STEP_ADDRESS;
    welcome->same_host = same;
    if (!(conn->hello.flags & BOOT_HELLO_ASKS_GRANT))
        welcome->grant[0] = '\0'; /* a client that does not expect it */
    if (!near || !conn->unix_socket)
        welcome->arena_count = 0;
    pst_assert(welcome->arena_count == 0 || fds);
    conn->shares = same || welcome->arena_count > 0;
    if (!say_welcome(conn, welcome, fds))
        conn_end_because(conn, "out of memory");
}

static void session_address(struct boot_conn *conn, const struct boot_frame *frame)
{
    struct pst_boot_server *server = conn->server;
    const uint8_t *at = frame->body + BOOT_MAC_BYTES;
    size_t bytes = frame->bytes - BOOT_MAC_BYTES;
    int r;

    pst_assert(conn->step == BOOT_STEP_ADDRESS);
    pst_assert(conn->welcomed);
    if (frame->bytes <= BOOT_MAC_BYTES || bytes > PST_NET_ADDRESS_BYTES_MAX) {
        protocol_error(conn);
        return;
    }
    /* The transport believes what is in an address: the proof comes first. */
    r = boot_mac_check(conn->key, BOOT_LABEL_ADDRESS, conn->transcript, at, bytes, frame->body);
    if (!conn_has_proved(conn, r, "wrong proof of the address"))
        return;
    r = server->ops->connected(server->ctx, conn->session, at, bytes);
    if (conn->ending) /* by pst_boot_server_end() in there */
        return;
    if (r < 0) {
        boot_session_refuse(conn, r == -EBUSY ? BOOT_REFUSED_BUSY : BOOT_REFUSED_FAILED,
                            "cannot connect back");
        return;
    }
    pst_assert(conn->step == BOOT_STEP_ADDRESS);
    conn->step = BOOT_STEP_PING;
    if (r == 0)
        boot_session_ready(conn);
}

static void session_ping(struct boot_conn *conn, const struct boot_frame *frame)
{
    pst_assert(conn->welcomed);
    if (frame->bytes != 0)
        protocol_error(conn);
    else
        (void)conn_say(conn, BOOT_PONG, NULL, 0); /* one that does not read misses its answers */
}

/* In place of a hello: a connection for a shard of a session. What has come behind its frame is the
 * stream's. */
static void session_attach(struct boot_conn *conn, const struct boot_frame *frame)
{
    struct pst_boot_server *server = conn->server;
    const uint8_t *end = frame->body + frame->bytes;
    struct pst_boot_attachment attachment = {.early = {end, conn->in_bytes - (size_t)(end - conn->in)}};
    struct boot_conn *session;
    int r;

    pst_assert(conn->step == BOOT_STEP_HELLO);
    pst_assert(!conn->welcomed);
    if (!server->options.stream || boot_attach_decode(frame, &attachment.token, &attachment.shard) < 0) {
        protocol_error(conn);
        return;
    }
    session = boot_server_session(server, attachment.token);
    r = session && session->stream && session->secured == conn->secured
            ? boot_attach_check(session->key, session->transcript, conn->secured ? conn->binding : NULL,
                                frame->body)
            : -EACCES;
    if (r < 0) {
        boot_session_refuse(conn, r == -EACCES ? BOOT_REFUSED_WRONG_SECRET : BOOT_REFUSED_FAILED,
                            "a connection of no session");
        return;
    }
    attachment.channel = boot_server_detach(conn);
    conn->ending = "attached";
    if (server->ops->attach(server->ctx, &attachment) < 0)
        stream_channel_close(attachment.channel);
}

static const struct {
    enum boot_type type;
    void (*run)(struct boot_conn *conn, const struct boot_frame *frame);
} steps[BOOT_STEP_COUNT] = {
    [BOOT_STEP_HELLO] = {BOOT_HELLO, session_hello},
    [BOOT_STEP_PROOF] = {BOOT_PROOF, session_proof},
    [BOOT_STEP_ADDRESS] = {BOOT_ADDRESS, session_address},
    [BOOT_STEP_PING] = {BOOT_PING, session_ping},
};

/* Runs every whole frame of the buffer. */
static void session_frames(struct boot_conn *conn)
{
    uint32_t done = 0;

    pst_assert(conn->step < BOOT_STEP_COUNT);
    pst_assert(conn->in_bytes <= sizeof(conn->in));
    while (!conn->ending) {
        struct boot_frame frame;
        int n = boot_frame_parse(conn->in + done, conn->in_bytes - done, sizeof(conn->in), &frame);
        bool early = conn->step == BOOT_STEP_ADDRESS && n > 0 && frame.type == BOOT_PING;
        bool attaches = conn->step == BOOT_STEP_HELLO && n > 0 && frame.type == BOOT_ATTACH;

        if (n == 0)
            break;
        if (n < 0 || (frame.type != steps[conn->step].type && !early && !attaches) ||
            (frame.version != conn->version && conn->step != BOOT_STEP_HELLO)) {
            protocol_error(conn);
            break;
        }
        if (conn->welcomed && !early)
            conn->heard_ns = conn->server->now_ns;
        if (early) /* its port takes a while to open */
            session_ping(conn, &frame);
        else if (attaches)
            session_attach(conn, &frame);
        else
            steps[conn->step].run(conn, &frame);
        done += (uint32_t)n;
    }
    pst_assert(done <= conn->in_bytes);
    memmove(conn->in, conn->in + done, conn->in_bytes - done);
    conn->in_bytes -= done;
}

/* What TLS has taken from the socket wakes nobody later. No client has so much to say: @round bounds it. */
static bool more_in_hand(struct boot_conn *conn, int round)
{
    enum { ROUNDS_MAX = 64 };

    if (!stream_channel_buffered(conn->channel))
        return false;
    if (round == ROUNDS_MAX)
        protocol_error(conn);
    return round < ROUNDS_MAX;
}

void boot_session_read(struct boot_conn *conn)
{
    pst_assert(conn->magic == BOOT_CONN_MAGIC);
    if (!conn->started && !boot_secure_step(conn))
        return;
    /* A few rounds only: who sends without end waits for its turn like everyone. */
    for (int round = 0; !conn->ending && (round < 4 || more_in_hand(conn, round)); round++) {
        struct iovec iov = {conn->in + conn->in_bytes, sizeof(conn->in) - conn->in_bytes};
        ssize_t n = stream_channel_readv(conn->channel, &iov, 1);

        pst_assert(iov.iov_len > 0); /* a whole frame always fits, and is taken out */
        if (n == -EAGAIN)
            break;
        if (n == 0 && conn->shares && conn->unix_socket && conn->step == BOOT_STEP_PING &&
            conn->server->ops->parted) {
            conn->parted = true;
            conn->server->ops->parted(conn->server->ctx, conn->session);
            break;
        }
        if (n < 0 && conn->secured) {
            boot_secure_failed(conn);
            break;
        }
        if (n <= 0) {
            conn_end_because(conn, why_reset);
            break;
        }
        conn->in_bytes += (uint32_t)n;
        session_frames(conn);
    }
}
