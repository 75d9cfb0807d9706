/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_tls_server.c: a bootstrap server with TLS on loopback, and clients that say what the input tells them
 * to: raw bytes, a genuine beginning of TLS whole or cut or changed, a plain hello, an end. Nobody gets in,
 * nobody is refused without a reason, and nothing is left when the client is gone.
 */
#include "fuzz.h"

#include "net/handshake/server_priv.h"
#include "net/tls/tls.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <sys/socket.h>

enum { ACTIONS_MAX = 32 };

static struct {
    struct pst_boot_server *server;
    struct pst_boot_address address;
    struct pst_tls *tls;
    uint64_t now_ns;
    uint8_t hello[4096]; /* of a client with the right secret */
    size_t hello_bytes;
} node;

static int client_fd = -1;

static int on_welcome(void *ctx, const char *peer, bool same_host, bool descriptors,
                      struct pst_boot_welcome *welcome, const int **fds, void **session)
{
    (void)ctx;
    (void)peer;
    (void)same_host;
    (void)descriptors;
    (void)welcome;
    (void)fds;
    pst_assert(!session); /* never called: nobody has proved anything */
    return -EBUSY;
}

static int on_connected(void *ctx, void *session, const void *address, size_t bytes)
{
    (void)ctx;
    (void)session;
    (void)address;
    (void)bytes;
    return -EIO;
}

static void on_ended(void *ctx, void *session, const char *why)
{
    (void)ctx;
    (void)session;
    pst_assert(*why);
}

static void on_refused(void *ctx, const char *peer, enum pst_boot_refusal kind, const char *why)
{
    (void)ctx;
    pst_assert(*peer && *why && kind < PST_BOOT_REFUSALS);
}

/* What a client says first. */
static void record_hello(void)
{
    const struct pst_tls_settings settings = {.secret = {"a secret", 8}, .connects = true};
    char fault[PST_FAULT_BYTES];
    struct stream_channel *channel;
    struct pst_tls *tls;
    const char *text;
    int fds[2], r = socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds);

    pst_assert(r == 0);
    r = pst_tls_open(&settings, &tls, fault);
    pst_assert(r == 0);
    r = pst_tls_channel(tls, fds[0], "localhost", &channel);
    pst_assert(r == 0);
    r = stream_channel_start(channel, &text);
    pst_assert(r == -EAGAIN);
    node.hello_bytes = (size_t)recv(fds[1], node.hello, sizeof(node.hello), 0);
    pst_assert(node.hello_bytes > 100 && node.hello[0] == PST_TLS_FIRST_BYTE);
    stream_channel_close(channel);
    pst_tls_close(tls);
    close(fds[1]);
}

static void open_server(void)
{
    static const struct pst_boot_server_ops ops = {
        .welcome = on_welcome, .connected = on_connected, .ended = on_ended, .refused = on_refused};
    const struct pst_tls_settings settings = {.secret = {"a secret", 8}, .serves = true};
    struct pst_boot_server_options options = {
        .secret = settings.secret, .plain = PST_BOOT_PLAIN_LOOPBACK, .sessions_max = 4, .handshakes_max = 4};
    char fault[PST_FAULT_BYTES];
    int r = pst_tls_open(&settings, &node.tls, fault);

    pst_assert(r == 0);
    options.tls = node.tls;
    strcpy(node.address.host, "127.0.0.1");
    node.now_ns = 1000000000;
    r = pst_boot_server_open(&options, &ops, &node, &node.server);
    pst_assert(r == 0);
    r = pst_boot_server_listen(node.server, &node.address);
    pst_assert(r == 0);
    record_hello();
}

static void poll_server(void)
{
    pst_boot_server_poll(node.server, node.now_ns);
}

static void dial(void)
{
    struct sockaddr_in sa = {.sin_family = AF_INET, .sin_port = htons(node.address.port)};
    const struct linger at_once = {.l_onoff = 1};
    int r;

    sa.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    client_fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    pst_assert(client_fd >= 0);
    setsockopt(client_fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once)); /* else ports run out */
    r = connect(client_fd, (const struct sockaddr *)&sa, sizeof(sa));
    pst_assert(r == 0);
    poll_server();
}

static void hang_up(void)
{
    close(client_fd);
    poll_server();
}

static void say(const uint8_t *data, size_t bytes)
{
    (void)!send(client_fd, data, bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
    poll_server();
}

static void say_bytes(struct fuzz *in)
{
    size_t bytes;
    uint8_t *copy = fuzz_take(in, fuzz_below(in, 2000), &bytes);

    say(copy, bytes);
    free(copy);
}

static void say_hello(struct fuzz *in, bool genuine)
{
    uint8_t copy[sizeof(node.hello)];
    size_t bytes = node.hello_bytes;

    memcpy(copy, node.hello, bytes);
    for (uint32_t changes = genuine ? 0 : fuzz_below(in, 4); changes > 0; changes--)
        copy[fuzz_below(in, (uint32_t)bytes)] = (uint8_t)fuzz_number(in, 1);
    if (!genuine && fuzz_number(in, 1) & 1)
        bytes = fuzz_below(in, (uint32_t)bytes);
    say(copy, bytes);
}

static void say_plain(void)
{
    struct boot_hello hello = {.flags = BOOT_HELLO_HAS_SECRET};
    uint8_t frame[BOOT_HEAD_BYTES + BOOT_HELLO_BYTES];

    boot_frame_head(frame, PST_BOOT_VERSION, BOOT_HELLO, BOOT_HELLO_BYTES);
    boot_hello_encode(&hello, frame + BOOT_HEAD_BYTES);
    say(frame, sizeof(frame));
}

static void act(struct fuzz *in)
{
    uint8_t byte = (uint8_t)fuzz_number(in, 1);

    switch (byte & 7) {
    case 0:
        return say_hello(in, true);
    case 1:
    case 2:
        return say_hello(in, false);
    case 3:
        return say_plain();
    case 4:
        node.now_ns += fuzz_number(in, 2) * 1000000;
        return poll_server();
    case 5:
        hang_up();
        return dial();
    default:
        return say_bytes(in);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct fuzz in = {data, bytes};

    if (!node.server)
        open_server();
    dial();
    for (int i = 0; i < ACTIONS_MAX && in.left > 0; i++)
        act(&in);
    hang_up();
    node.now_ns += 20000000000ull; /* what was half open has had its time */
    poll_server();
    poll_server();
    pst_assert(node.server->session_count == 0 && node.server->handshake_count == 0);
    return 0;
}
