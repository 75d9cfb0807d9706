/* SPDX-License-Identifier: Apache-2.0 */
/*
 * main.c: soak_hostile SEED COUNT MS SECRET|- ADDRESS...: says COUNT hostile things, or as many as fit into
 * MS, to bootstrap sockets: bytes without sense, genuine handshakes cut off, changed or replayed, proofs that
 * are wrong, connections that say nothing or one byte at a time, and floods of them. Its figures are the last
 * line, as JSON.
 */
#include "base/clock.h"
#include "net/handshake/handshake_priv.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/un.h>

enum {
    ADDRESSES_MAX = 4,
    HELD_MAX = 48,     /* connections that are slow or silent */
    ANSWER_MS = 20,    /* how long an answer is waited for */
    SOURCES = 200,     /* loopback addresses to come from, so that ports do not run out */
    RANDOM_MAX = 4200, /* bytes without sense: more than a frame may have */
};

#define KINDS(X)                                                                                             \
    X(random)                                                                                                \
    X(cut_off)                                                                                               \
    X(changed) X(wrong_proof) X(replayed) X(too_long) X(hang_up) X(slow) X(silent) X(after_challenge)

enum kind {
#define X(name) KIND_##name,
    KINDS(X)
#undef X
        KIND_COUNT
};

static const char *const kind_names[] = {
#define X(name) #name,
    KINDS(X)
#undef X
};

static struct {
    struct pst_boot_address addresses[ADDRESSES_MAX];
    uint32_t address_count;
    struct pst_bytes secret;
    uint64_t random;
    int held[HELD_MAX];
    uint32_t held_at;
    uint8_t replay[BOOT_HEAD_BYTES + BOOT_MAC_BYTES]; /* a proof that was right once */
    bool has_replay;
    uint64_t said[KIND_COUNT];
    uint64_t refused_connects;
} h;

static uint32_t draw(uint32_t limit)
{
    h.random += 0x9e3779b97f4a7c15ull;
    uint64_t x = (h.random ^ h.random >> 30) * 0xbf58476d1ce4e5b9ull;

    x = (x ^ x >> 27) * 0x94d049bb133111ebull;
    return (uint32_t)((x ^ x >> 31) >> 16) % limit;
}

/* ---- connections ---- */

/* Ends with a reset, so that no port waits for its time. */
static void hang_up(int fd)
{
    struct linger at_once = {.l_onoff = 1};

    if (fd < 0)
        return;
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
    close(fd);
}

static int dial(void)
{
    const struct pst_boot_address *address = &h.addresses[draw(h.address_count)];
    struct sockaddr_in from = {.sin_family = AF_INET}, to = {.sin_family = AF_INET};
    int fd = socket(address->path[0] ? AF_UNIX : AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), r;
    struct sockaddr_un un;

    pst_assert(fd >= 0);
    if (address->path[0]) {
        boot_address_unix(address, &un);
        r = connect(fd, (const struct sockaddr *)&un, sizeof(un));
    } else {
        from.sin_addr.s_addr = htonl(0x7f000101 + draw(SOURCES));
        to.sin_addr.s_addr = inet_addr(address->host);
        to.sin_port = htons(address->port);
        r = bind(fd, (const struct sockaddr *)&from, sizeof(from));
        if (r == 0)
            r = connect(fd, (const struct sockaddr *)&to, sizeof(to));
    }
    if (r == 0 || errno == EINPROGRESS)
        return fd;
    h.refused_connects++; /* the queue at the door is full */
    close(fd);
    return -1;
}

static void say(int fd, const void *data, size_t bytes)
{
    struct pollfd p = {.fd = fd, .events = POLLOUT};

    if (poll(&p, 1, ANSWER_MS) > 0)
        (void)!send(fd, data, bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* Return: whether @bytes came. */
static bool hear(int fd, uint8_t *out, size_t bytes)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};

    return poll(&p, 1, ANSWER_MS) > 0 && recv(fd, out, bytes, MSG_DONTWAIT) == (ssize_t)bytes;
}

/* ---- what is said ---- */

static void make_hello(uint8_t frame[BOOT_HEAD_BYTES + BOOT_HELLO_BYTES])
{
    struct boot_hello hello = {.flags = h.secret.len > 0 ? BOOT_HELLO_HAS_SECRET : 0};

    boot_identity_own(&hello.identity);
    boot_frame_head(frame, PST_BOOT_VERSION, BOOT_HELLO, BOOT_HELLO_BYTES);
    boot_hello_encode(&hello, frame + BOOT_HEAD_BYTES);
}

/* A handshake up to its challenge. Return: whether there was one; the transcript is both frames. */
static bool greet(int fd, uint8_t transcript[BOOT_TRANSCRIPT_BYTES])
{
    size_t hello_bytes = BOOT_HEAD_BYTES + BOOT_HELLO_BYTES;

    make_hello(transcript);
    say(fd, transcript, hello_bytes);
    return hear(fd, transcript + hello_bytes, BOOT_HEAD_BYTES + BOOT_CHALLENGE_BYTES);
}

static void scramble(uint8_t *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++)
        bytes[i] = (uint8_t)draw(256);
}

static void say_random(int fd, bool behind_head)
{
    uint8_t bytes[RANDOM_MAX];
    size_t count = draw(RANDOM_MAX - BOOT_HEAD_BYTES) + BOOT_HEAD_BYTES;

    scramble(bytes, count);
    if (behind_head)
        boot_frame_head(bytes, (uint16_t)(draw(3)), (enum boot_type)draw(12),
                        draw(2) ? (uint32_t)(count - BOOT_HEAD_BYTES) : draw(8192));
    say(fd, bytes, count);
}

static void say_hello(int fd, enum kind kind)
{
    uint8_t frame[BOOT_HEAD_BYTES + BOOT_HELLO_BYTES];
    size_t bytes = sizeof(frame);

    make_hello(frame);
    if (kind == KIND_cut_off)
        bytes = draw((uint32_t)bytes);
    if (kind == KIND_changed)
        scramble(frame + draw((uint32_t)bytes - 3), draw(3) + 1);
    if (kind == KIND_too_long)
        memset(frame + 8, 0xff - (int)draw(2), 4);
    say(fd, frame, bytes);
}

static void say_proof(int fd, enum kind kind)
{
    uint8_t transcript[BOOT_TRANSCRIPT_BYTES], frame[BOOT_HEAD_BYTES + BOOT_MAC_BYTES];

    if (!greet(fd, transcript))
        return;
    boot_frame_head(frame, PST_BOOT_VERSION, BOOT_PROOF, BOOT_MAC_BYTES);
    if (kind == KIND_replayed && h.has_replay)
        memcpy(frame, h.replay, sizeof(frame));
    else
        scramble(frame + BOOT_HEAD_BYTES, BOOT_MAC_BYTES);
    if (kind == KIND_after_challenge)
        say_random(fd, draw(2));
    else
        say(fd, frame, sizeof(frame));
    (void)hear(fd, transcript, 1);
}

/* Stays in the table until its place is needed; a slow one says its next byte whenever it is passed. */
static void hold(int fd)
{
    uint8_t hello[BOOT_HEAD_BYTES + BOOT_HELLO_BYTES];
    int *place = &h.held[h.held_at++ % HELD_MAX];

    hang_up(*place);
    *place = fd;
    make_hello(hello);
    for (uint32_t i = 0; i < 4; i++) {
        int slow = h.held[draw(HELD_MAX)];

        if (slow >= 0)
            (void)!send(slow, hello + draw(4), 1, MSG_NOSIGNAL | MSG_DONTWAIT);
    }
}

static void act(void)
{
    enum kind kind = (enum kind)draw(KIND_COUNT);
    int fd = dial();

    if (fd < 0)
        return;
    h.said[kind]++;
    switch (kind) {
    case KIND_random:
        say_random(fd, draw(2));
        break;
    case KIND_cut_off:
    case KIND_changed:
    case KIND_too_long:
        say_hello(fd, kind);
        break;
    case KIND_wrong_proof:
    case KIND_replayed:
    case KIND_after_challenge:
        say_proof(fd, kind);
        break;
    case KIND_slow:
        say(fd, "PST", 1);
        hold(fd);
        return;
    case KIND_silent:
        hold(fd);
        return;
    case KIND_hang_up:
    case KIND_COUNT:
        break;
    }
    if (draw(4) == 0)
        shutdown(fd, SHUT_WR);
    hang_up(fd);
}

/* ---- beginning and end ---- */

/* One proof that is right, to be said again later. */
static void record(void)
{
    uint8_t transcript[BOOT_TRANSCRIPT_BYTES];
    int fd = dial();

    if (fd >= 0 && greet(fd, transcript)) {
        boot_frame_head(h.replay, PST_BOOT_VERSION, BOOT_PROOF, BOOT_MAC_BYTES);
        boot_mac(h.secret, BOOT_LABEL_CLIENT, transcript, NULL, 0, h.replay + BOOT_HEAD_BYTES);
        say(fd, h.replay, sizeof(h.replay));
        h.has_replay = hear(fd, transcript, 1);
    }
    hang_up(fd);
}

static bool read_arguments(int argc, char **argv)
{
    static char secret[PST_BOOT_SECRET_BYTES_MAX];
    const char *fault;

    if (argc < 6 || argc > 5 + ADDRESSES_MAX)
        return false;
    h.random = strtoull(argv[1], NULL, 10);
    if (strcmp(argv[4], "-") != 0) {
        h.secret = (struct pst_bytes){secret, strlen(argv[4])};
        snprintf(secret, sizeof(secret), "%s", argv[4]);
    }
    for (int i = 5; i < argc; i++) {
        if (pst_boot_address_parse(argv[i], &h.addresses[h.address_count++], &fault) < 0)
            return false;
    }
    return true;
}

int main(int argc, char **argv)
{
    uint64_t count, end_ns, said = 0;

    if (!read_arguments(argc, argv)) {
        fprintf(stderr, "usage: soak_hostile SEED COUNT MS SECRET|- ADDRESS...\n");
        return 2;
    }
    count = strtoull(argv[2], NULL, 10);
    end_ns = pst_now_ns() + strtoull(argv[3], NULL, 10) * 1000000;
    memset(h.held, -1, sizeof(h.held));
    record();
    for (; said < count && pst_now_ns() < end_ns; said++)
        act();
    for (int i = 0; i < HELD_MAX; i++)
        hang_up(h.held[i]);
    printf("{\"refused_connects\":%llu", (unsigned long long)h.refused_connects);
    for (int i = 0; i < KIND_COUNT; i++)
        printf(",\"%s\":%llu", kind_names[i], (unsigned long long)h.said[i]);
    printf("}\n");
    return h.has_replay ? 0 : 1;
}
