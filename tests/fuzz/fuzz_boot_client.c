/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_boot_client.c: a client at the bootstrap socket of something that may be a node: what it hears was
 * written beforehand, out of genuine frames and of the input's bytes. Whatever it hears, the call ends with a
 * reason, and no descriptor stays.
 */
#include "fuzz.h"

#include "base/clock.h"
#include "net/handshake/dial.h"

#include <fcntl.h>
#include <sys/socket.h>

enum { FRAMES_MAX = 8, SAID_BYTES_MAX = 96 << 10, FDS_MAX = 80 };

static const char secret[] = "a secret";

/* What the "node" says. */
static struct {
    size_t bytes;
    uint8_t data[SAID_BYTES_MAX];
    size_t welcome_at; /* descriptors go with this byte */
    uint32_t fd_count;
    uint16_t version; /* of the session */
    uint8_t transcript[BOOT_TRANSCRIPT_BYTES];
    struct pst_bytes secret;
} said;

static int client_end;

void __wrap_pst_random(void *out, size_t len);
int __wrap_boot_dial_step(struct boot_dial *dial, const char **fault);

void __wrap_pst_random(void *out, size_t len)
{
    memset(out, 0x5a, len);
}

int __wrap_boot_dial_step(struct boot_dial *dial, const char **fault)
{
    (void)dial;
    *fault = "the fuzzer has no socket";
    return client_end;
}

static void add(const void *data, size_t bytes)
{
    if (bytes > sizeof(said.data) - said.bytes)
        return;
    memcpy(said.data + said.bytes, data, bytes);
    said.bytes += bytes;
}

/* The client's HELLO is known, since its random numbers are. */
static void begin(bool has_secret, bool network_only)
{
    struct boot_hello hello = {.flags = 0};

    said.bytes = said.welcome_at = said.fd_count = 0;
    said.secret = (struct pst_bytes){secret, has_secret ? sizeof(secret) - 1 : 0};
    hello.flags = (has_secret ? BOOT_HELLO_HAS_SECRET : 0) | (network_only ? BOOT_HELLO_NETWORK_ONLY : 0);
    boot_identity_own(&hello.identity);
    memset(hello.nonce, 0x5a, sizeof(hello.nonce));
    boot_frame_head(said.transcript, PST_BOOT_VERSION, BOOT_HELLO, BOOT_HELLO_BYTES);
    boot_hello_encode(&hello, said.transcript + BOOT_HEAD_BYTES);
}

static void add_challenge(struct fuzz *in)
{
    struct boot_challenge challenge = {.flags = (uint32_t)fuzz_number(in, 1)};
    uint8_t *frame = said.transcript + BOOT_HEAD_BYTES + BOOT_HELLO_BYTES;

    boot_frame_head(frame, said.version, BOOT_CHALLENGE, BOOT_CHALLENGE_BYTES);
    boot_challenge_encode(&challenge, frame + BOOT_HEAD_BYTES);
    add(frame, BOOT_HEAD_BYTES + BOOT_CHALLENGE_BYTES);
}

/* A welcome whose mac is right, whatever is in it. */
static void add_welcome(struct fuzz *in)
{
    static struct pst_boot_welcome welcome;
    static uint8_t frame[SAID_BYTES_MAX];
    uint8_t *body = frame + BOOT_HEAD_BYTES + BOOT_MAC_BYTES;
    size_t bytes;
    uint32_t changes;

    welcome = (struct pst_boot_welcome){.page_bytes = 2 << 20, .arena_bytes = 1 << 30};
    welcome.shard_count = fuzz_below(in, 30) + 1;
    welcome.arena_count = fuzz_below(in, PST_BOOT_ARENAS_MAX + 1);
    for (uint32_t i = 0; i < welcome.shard_count; i++)
        welcome.shards[i].bytes = (uint16_t)(fuzz_below(in, PST_NET_ADDRESS_BYTES_MAX) + 1);
    bytes = boot_welcome_bytes(&welcome);
    boot_welcome_encode(&welcome, body, bytes);
    for (changes = fuzz_below(in, 4); changes > 0; changes--)
        body[fuzz_below(in, (uint32_t)bytes)] = (uint8_t)fuzz_number(in, 1);
    bytes -= fuzz_below(in, 64) == 1 ? fuzz_below(in, (uint32_t)bytes) : 0;
    boot_frame_head(frame, said.version, BOOT_WELCOME, (uint32_t)(BOOT_MAC_BYTES + bytes));
    (void)boot_mac(said.secret, BOOT_LABEL_SERVER, said.transcript, body, bytes, frame + BOOT_HEAD_BYTES);
    if (BOOT_HEAD_BYTES + BOOT_MAC_BYTES + bytes > sizeof(said.data) - said.bytes)
        return;
    said.welcome_at = said.bytes;
    said.fd_count = fuzz_number(in, 1) & 1 ? welcome.arena_count : fuzz_below(in, FDS_MAX);
    add(frame, BOOT_HEAD_BYTES + BOOT_MAC_BYTES + bytes);
}

static void add_empty(enum boot_type type)
{
    uint8_t frame[BOOT_HEAD_BYTES];

    boot_frame_head(frame, said.version, type, 0);
    add(frame, sizeof(frame));
}

static void add_bytes(struct fuzz *in)
{
    size_t bytes;
    uint8_t *copy = fuzz_take(in, fuzz_below(in, 5000), &bytes);

    add(copy, bytes);
    free(copy);
}

static void compose(struct fuzz *in)
{
    for (int i = 0; i < FRAMES_MAX && in->left > 0; i++) {
        switch (fuzz_number(in, 1) & 7) {
        case 0:
            add_bytes(in);
            break;
        case 1:
            add_challenge(in);
            break;
        case 2:
            add_welcome(in);
            break;
        case 3:
            add_empty(BOOT_READY);
            break;
        case 4:
            add_empty(BOOT_PONG);
            break;
        default: /* the genuine order, as far as it has come */
            add_challenge(in);
            add_welcome(in);
            add_empty(BOOT_READY);
        }
    }
}

static void send_fds(int fd)
{
    union {
        char bytes[CMSG_SPACE(FDS_MAX * sizeof(int))];
        struct cmsghdr align;
    } control = {.bytes = {0}};
    struct iovec iov = {.iov_base = said.data + said.welcome_at, .iov_len = 1};
    struct msghdr message = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = control.bytes};
    struct cmsghdr *c;
    int fds[FDS_MAX];
    ssize_t n;

    for (uint32_t i = 0; i < said.fd_count; i++)
        fds[i] = fd;
    message.msg_controllen = CMSG_SPACE(said.fd_count * sizeof(int));
    c = CMSG_FIRSTHDR(&message);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(said.fd_count * sizeof(int));
    memcpy(CMSG_DATA(c), fds, said.fd_count * sizeof(int));
    n = sendmsg(fd, &message, MSG_NOSIGNAL);
    pst_assert(n == 1);
}

static void write_all(int fd, const uint8_t *data, size_t bytes)
{
    ssize_t n = bytes > 0 ? send(fd, data, bytes, MSG_NOSIGNAL) : 0;

    pst_assert(n == (ssize_t)bytes);
}

/* Says it all at once; then the end of file, so that nothing is waited for. */
static int speak(void)
{
    int pair[2], r = socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair);
    size_t at = said.welcome_at, skip = said.fd_count > 0 ? 1 : 0;

    pst_assert(r == 0);
    write_all(pair[1], said.data, at);
    if (skip)
        send_fds(pair[1]);
    write_all(pair[1], said.data + at + skip, said.bytes - at - skip);
    shutdown(pair[1], SHUT_WR);
    client_end = pair[0];
    return pair[1];
}

static void use_link(struct pst_boot_link *link, uint64_t deadline_ns)
{
    uint64_t now_ns = 20000000000ull;
    const char *fault = NULL;
    int r = pst_boot_link_offer(link, "address", 7, deadline_ns);

    if (r == 0)
        r = pst_boot_link_ready(link, &fault); /* all that is said has come */
    pst_assert(r == 0 || (r < 0 && r != -EAGAIN && fault));
    for (int i = 0; i < 4 && r == 0; i++, now_ns += 4000000000ull)
        r = pst_boot_link_tick(link, now_ns);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static struct pst_boot_welcome welcome;
    static const struct pst_boot_address address = {.path = "/nowhere"};
    struct fuzz in = {data, bytes};
    uint8_t how = (uint8_t)fuzz_number(&in, 1);
    struct pst_boot_client_options options = {.network_only = how & 2,
                                              .deadline_ns = pst_now_ns() + 5000000000ull};
    struct pst_boot_link *link = NULL;
    int fds[PST_BOOT_ARENAS_MAX], before = dup(0), after, other, r;
    const char *fault = NULL;

    said.version = how & 4 ? PST_BOOT_VERSION_OLDEST : PST_BOOT_VERSION;
    begin(how & 1, how & 2);
    compose(&in);
    other = speak();
    options.secret = said.secret;
    r = pst_boot_link_open(&address, &options, &link, &fault);
    if (r == 0)
        r = pst_boot_link_welcome(link, &welcome, fds, &fault);
    pst_assert(r == 0 || (r != -EAGAIN && fault && *fault));
    for (uint32_t i = 0; r == 0 && i < welcome.arena_count; i++)
        close(fds[i]);
    if (r == 0)
        use_link(link, options.deadline_ns);
    pst_boot_link_close(link);
    close(other);
    close(before);
    after = dup(0);
    pst_assert(after == before);
    close(after);
    return 0;
}
