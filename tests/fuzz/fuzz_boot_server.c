/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_boot_server.c: a bootstrap server on a unix socket, and a client that says what the input tells it to:
 * raw bytes, genuine frames, genuine frames with a few bytes changed, silence. Whatever it says, the server
 * answers in whole frames, tells the node of an end for every begin, and has nothing left when the client is
 * gone.
 */
#include "fuzz.h"

#include "net/handshake/server_priv.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/un.h>

enum { ACTIONS_MAX = 64, SHARDS = 3 };

static const char secret[] = "a secret";

static struct {
    struct pst_boot_server *server;
    struct pst_boot_address address;
    uint64_t now_ns;
    int sessions; /* begun and not ended */
    bool refuses; /* the node has no room */
    bool fails;   /* the session cannot be opened */
} node;

static struct {
    int fd;
    uint16_t version;
    uint8_t transcript[BOOT_TRANSCRIPT_BYTES];
    size_t in_bytes;
    uint8_t in[64 << 10];
} client;

static int on_welcome(void *ctx, const char *peer, bool same_host, bool descriptors,
                      struct pst_boot_welcome *welcome, const int **fds, void **session)
{
    static int arenas[2] = {-1, -1};

    (void)ctx;
    (void)same_host; /* descriptors without it: a client of another UCX */
    pst_assert(*peer);
    for (int i = 0; i < 2 && arenas[i] < 0; i++)
        arenas[i] = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (node.refuses)
        return -EBUSY;
    *welcome =
        (struct pst_boot_welcome){.page_bytes = 2 << 20, .arena_bytes = 1 << 30, .shard_count = SHARDS};
    welcome->arena_count = descriptors ? 2 : 0;
    for (uint32_t i = 0; i < SHARDS; i++)
        welcome->shards[i].bytes = (uint16_t)(1 + i * 1000);
    *fds = arenas;
    *session = &node;
    node.sessions++;
    return 0;
}

static int on_connected(void *ctx, void *session, const void *address, size_t bytes)
{
    (void)ctx;
    pst_assert(session == &node && bytes >= 1 && bytes <= PST_NET_ADDRESS_BYTES_MAX);
    pst_assert(((const uint8_t *)address)[0] == 'a'); /* of a genuine frame: others do not come this far */
    return node.fails ? -EIO : 0;
}

static void on_ended(void *ctx, void *session, const char *why)
{
    (void)ctx;
    pst_assert(session == &node && why && node.sessions > 0);
    node.sessions--;
}

static void on_refused(void *ctx, const char *peer, enum pst_boot_refusal kind, const char *why)
{
    (void)ctx;
    pst_assert(*peer && *why && kind < PST_BOOT_REFUSALS);
}

static void remove_socket(void)
{
    unlink(node.address.path);
}

static void open_server(void)
{
    static const struct pst_boot_server_ops ops = {
        .welcome = on_welcome, .connected = on_connected, .ended = on_ended, .refused = on_refused};
    struct pst_boot_server_options options = {
        .secret = {secret, sizeof(secret) - 1}, .sessions_max = 4, .handshakes_max = 4};
    int r;

    snprintf(node.address.path, sizeof(node.address.path), "/tmp/penstock-fuzz-%d", (int)getpid());
    node.now_ns = 1000000000;
    r = pst_boot_server_open(&options, &ops, &node, &node.server);
    pst_assert(r == 0);
    r = pst_boot_server_listen(node.server, &node.address);
    pst_assert(r == 0);
    atexit(remove_socket);
}

static void poll_server(void)
{
    pst_boot_server_poll(node.server, node.now_ns);
}

static void dial(void)
{
    struct sockaddr_un un;
    int r;

    client.fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    pst_assert(client.fd >= 0);
    boot_address_unix(&node.address, &un);
    r = connect(client.fd, (const struct sockaddr *)&un, sizeof(un));
    pst_assert(r == 0);
    client.in_bytes = 0;
    poll_server();
}

/* Takes what the server says; a challenge becomes part of the transcript. */
static void listen_to_server(void)
{
    ssize_t n = recv(client.fd, client.in + client.in_bytes, sizeof(client.in) - client.in_bytes, 0);
    struct boot_frame frame;
    int bytes;

    client.in_bytes += n > 0 ? (size_t)n : 0;
    while ((bytes = boot_frame_parse(client.in, client.in_bytes, BOOT_FRAME_WELCOME_MAX, &frame)) > 0) {
        pst_assert(frame.version >= PST_BOOT_VERSION_OLDEST && frame.version <= PST_BOOT_VERSION);
        pst_assert(frame.type >= BOOT_CHALLENGE);
        if (frame.type == BOOT_CHALLENGE)
            memcpy(client.transcript + BOOT_HEAD_BYTES + BOOT_HELLO_BYTES, client.in, (size_t)bytes);
        client.in_bytes -= (size_t)bytes;
        memmove(client.in, client.in + bytes, client.in_bytes);
    }
    pst_assert(bytes == 0); /* the server speaks in frames */
}

static void say(struct fuzz *in, const uint8_t *frame, size_t bytes, bool genuine)
{
    uint8_t copy[BOOT_FRAME_SMALL_MAX];
    uint32_t changes = genuine ? 0 : fuzz_below(in, 3) + 1;
    size_t first = bytes;

    memcpy(copy, frame, bytes);
    while (changes-- > 0)
        copy[fuzz_below(in, (uint32_t)bytes)] = (uint8_t)fuzz_number(in, 1);
    if (fuzz_number(in, 1) & 1) /* in two pieces, the second one much later or never */
        first = fuzz_below(in, (uint32_t)bytes);
    (void)!send(client.fd, copy, first, MSG_NOSIGNAL);
    poll_server();
    if (first < bytes && fuzz_number(in, 1) & 1)
        (void)!send(client.fd, copy + first, bytes - first, MSG_NOSIGNAL);
}

static void say_hello(struct fuzz *in, bool genuine)
{
    struct boot_hello hello = {.flags = BOOT_HELLO_HAS_SECRET};

    if (!genuine)
        hello.flags = (uint32_t)fuzz_number(in, 1);
    boot_identity_own(&hello.identity);
    boot_frame_head(client.transcript, client.version, BOOT_HELLO, BOOT_HELLO_BYTES);
    boot_hello_encode(&hello, client.transcript + BOOT_HEAD_BYTES);
    say(in, client.transcript, BOOT_HEAD_BYTES + BOOT_HELLO_BYTES, genuine);
}

static void say_proved(struct fuzz *in, enum boot_type type, bool genuine)
{
    struct pst_bytes key = {secret, sizeof(secret) - 1};
    uint8_t frame[BOOT_FRAME_SMALL_MAX], *mac = frame + BOOT_HEAD_BYTES, *rest = mac + BOOT_MAC_BYTES;
    uint32_t bytes = type == BOOT_ADDRESS ? fuzz_below(in, PST_NET_ADDRESS_BYTES_MAX + 2) : 0;

    boot_frame_head(frame, client.version, type, BOOT_MAC_BYTES + bytes);
    memset(rest, 'a', bytes);
    (void)boot_mac(key, type == BOOT_ADDRESS ? BOOT_LABEL_ADDRESS : BOOT_LABEL_CLIENT, client.transcript,
                   rest, bytes, mac);
    say(in, frame, BOOT_HEAD_BYTES + BOOT_MAC_BYTES + bytes, genuine);
}

static void say_ping(struct fuzz *in, bool genuine)
{
    uint8_t frame[BOOT_HEAD_BYTES];

    boot_frame_head(frame, client.version, BOOT_PING, 0);
    say(in, frame, sizeof(frame), genuine);
}

static void say_bytes(struct fuzz *in)
{
    size_t bytes;
    uint8_t *copy = fuzz_take(in, fuzz_below(in, 6000), &bytes);

    (void)!send(client.fd, copy, bytes, MSG_NOSIGNAL);
    free(copy);
}

static void hang_up(void)
{
    close(client.fd);
    poll_server();
}

static void act(struct fuzz *in)
{
    uint8_t byte = (uint8_t)fuzz_number(in, 1);
    bool genuine = byte & 0x80;

    switch (byte & 0x0f) {
    case 0:
        return say_bytes(in);
    case 1:
        return say_hello(in, genuine);
    case 2:
        return say_proved(in, BOOT_PROOF, genuine);
    case 3:
        return say_proved(in, BOOT_ADDRESS, genuine);
    case 4:
        return say_ping(in, genuine);
    case 5:
        node.now_ns += fuzz_number(in, 2) * 1000000;
        return;
    case 6:
        node.refuses = genuine;
        return;
    case 7:
        node.fails = genuine;
        return;
    case 8:
        if (node.sessions > 0)
            pst_boot_server_end(node.server, &node);
        return;
    case 9:
        hang_up();
        return dial();
    default:
        return listen_to_server();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct fuzz in = {data, bytes};

    if (!node.server)
        open_server();
    node.refuses = node.fails = false;
    client.version = fuzz_number(&in, 1) & 1 ? PST_BOOT_VERSION_OLDEST : PST_BOOT_VERSION;
    dial();
    for (int i = 0; i < ACTIONS_MAX && in.left > 0; i++) {
        act(&in);
        poll_server();
        pst_assert(node.server->session_count == (uint32_t)node.sessions);
    }
    hang_up();
    node.now_ns += 20000000000ull; /* what was half open has had its time */
    poll_server();
    poll_server();
    pst_assert(node.sessions == 0 && node.server->session_count == 0 && node.server->handshake_count == 0);
    return 0;
}
