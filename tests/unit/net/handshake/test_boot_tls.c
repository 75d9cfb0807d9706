/* SPDX-License-Identifier: Apache-2.0 */
/* The bootstrap inside of TLS: who is let in, who is not and by what name, and who stands between. */
#include "lib/boot_rig.h"
#include "lib/tls_rig.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <sys/socket.h>

static const struct tls_side node = {.certificate = "node", .ca = "ca"};
static const struct tls_side client = {.certificate = "client", .ca = "ca"};

/* Secrets: NULL: none. Sides: NULL: plain. */
struct meeting {
    const struct tls_side *node, *client;
    const char *node_secret, *client_secret;
    enum pst_boot_plain plain;
};

static struct pst_tls *side_open(const struct tls_side *side, bool serves)
{
    char fault[PST_FAULT_BYTES];
    struct pst_tls *tls = NULL;

    if (side)
        assert_int_equal(tls_side_open(side, serves, &tls, fault), 0);
    return tls;
}

static struct pst_bytes secret_of(const char *text)
{
    return pst_bytes_of(text ? text : "");
}

/* @rig gets a node that runs. Return: its TLS, to be closed behind it. */
static struct pst_tls *node_open(struct rig *rig, const struct meeting *m)
{
    struct pst_boot_server_options options = {.secret = secret_of(m->node_secret),
                                              .tls = side_open(m->node, true),
                                              .plain = m->plain,
                                              .sessions_max = 4,
                                              .handshakes_max = 4};

    rig_open_with(rig, &options);
    rig_run(rig);
    return options.tls;
}

/* Return: as pst_boot_link_welcome(). The session that came about is over. */
static int meet_at(struct rig *rig, const struct pst_boot_address *address, const struct meeting *m,
                   const char **fault)
{
    struct pst_boot_client_options options = {.secret = secret_of(m->client_secret),
                                              .tls = side_open(m->client, false),
                                              .deadline_ns = pst_now_ns() + 10 * SECOND_NS};
    struct client *c = calloc(1, sizeof(*c));
    int r = dial_with(c, address, &options);

    *fault = c->fault;
    if (r == 0) {
        int ends = rig->ends;

        assert_int_equal(c->welcome.shards[PST_BOOT_SHARDS_MAX - 1].data[PST_NET_ADDRESS_BYTES_MAX - 1], 255);
        assert_int_equal(client_address(c), 0);
        assert_memory_equal(rig->address, "my address", 10);
        for (int i = 0; i < 3; i++) {
            struct pollfd p = {.fd = pst_boot_link_fd(c->link), .events = POLLIN};

            assert_int_equal(pst_boot_link_tick(c->link, pst_now_ns() + (uint64_t)(i + 1) * 2 * SECOND_NS),
                             0); /* a ping */
            assert_int_equal(poll(&p, 1, 10000), 1);
        }
        pst_boot_link_close(c->link);
        await_count(&rig->ends, ends + 1);
    }
    pst_tls_close(options.tls);
    free(c);
    return r;
}

static void expect(const struct meeting *m, bool over_unix, int error, const char *text, int kind,
                   const char *why)
{
    const char *fault = NULL;
    struct rig rig;
    struct pst_tls *tls = node_open(&rig, m);
    int r = meet_at(&rig, over_unix ? &rig.path : &rig.tcp, m, &fault);

    if (error < 0)
        assert_string_equal(fault, text);
    assert_int_equal(r, error);
    await_count(&rig.refusals, error < 0);
    assert_int_equal(rig.welcomes, error == 0);
    if (error < 0) {
        assert_string_equal(rig.why, why);
        assert_int_equal(rig.kind, kind);
    }
    rig_close(&rig);
    pst_tls_close(tls);
}

static void those_who_may_come_in(void **state)
{
    static const struct tls_side by_secret = {.secret = "s"}, checks = {.ca = "ca"},
                                 own = {.certificate = "node"};
    static const struct tls_side lenient = {.certificate = "node", .ca = "ca", .optional = true};
    static const struct meeting meetings[] = {
        {&by_secret, &by_secret, "s", "s", PST_BOOT_PLAIN_NOBODY},
        {&node, &client, NULL, NULL, PST_BOOT_PLAIN_NOBODY},
        {&node, &client, "s", "s", PST_BOOT_PLAIN_NOBODY},
        {&own, &checks, "s", "s", PST_BOOT_PLAIN_NOBODY},
        {&lenient, &checks, "s", "s", PST_BOOT_PLAIN_NOBODY},
        {&own, NULL, "s", "s", PST_BOOT_PLAIN_LOOPBACK},
        {&own, NULL, "s", "s", PST_BOOT_PLAIN_ANYBODY},
    };

    (void)state;
    for (size_t i = 0; i < pst_count_of(meetings); i++)
        expect(&meetings[i], false, 0, NULL, 0, NULL);
    for (size_t i = 0; i < pst_count_of(meetings); i++) /* a unix socket is the kernel's affair */
        expect(&meetings[i], true, 0, NULL, 0, NULL);
}

static void those_who_may_not(void **state)
{
    static const struct tls_side by_secret = {.secret = "s"}, other_secret = {.secret = "t"},
                                 checks = {.ca = "ca"};
    static const struct tls_side own = {.certificate = "node"}, old = {.certificate = "expired", .ca = "ca"};
    static const struct tls_side foreign = {.certificate = "foreign", .ca = "ca"};
    static const struct tls_side elsewhere = {.certificate = "elsewhere", .ca = "ca"};
    static const struct {
        struct meeting meeting;
        int error;
        const char *text;
        enum pst_boot_refusal kind;
        const char *why;
    } cases[] = {
        {{&own, NULL, "s", "s", PST_BOOT_PLAIN_NOBODY},
         -EACCES,
         "the node wants TLS",
         PST_BOOT_REFUSED_PLAIN,
         "no TLS"},
        {{NULL, &checks, "s", "s", PST_BOOT_PLAIN_NOBODY},
         -EPROTO,
         "the node speaks no TLS",
         PST_BOOT_REFUSED_TLS,
         "it speaks TLS, which the node has not been given"},
        {{&by_secret, &other_secret, "s", "t", PST_BOOT_PLAIN_NOBODY},
         -EACCES,
         "wrong secret",
         PST_BOOT_REFUSED_SECRET,
         "wrong secret"},
        {{&own, &checks, "s", "t", PST_BOOT_PLAIN_NOBODY},
         -EACCES,
         "wrong secret",
         PST_BOOT_REFUSED_SECRET,
         "wrong secret, or somebody in between"},
        {{&own, &checks, "s", NULL, PST_BOOT_PLAIN_NOBODY},
         -EACCES,
         "the node wants a secret",
         PST_BOOT_REFUSED_SECRET,
         "no secret"},
        {{&own, NULL, "s", "t", PST_BOOT_PLAIN_LOOPBACK},
         -EACCES,
         "wrong secret",
         PST_BOOT_REFUSED_SECRET,
         "wrong secret"},
        {{&node, &checks, NULL, NULL, PST_BOOT_PLAIN_NOBODY},
         -EACCES,
         "the node refuses this client: no certificate",
         PST_BOOT_REFUSED_CERTIFICATE,
         "no certificate"},
        {{&node, &old, NULL, NULL, PST_BOOT_PLAIN_NOBODY},
         -EACCES,
         "the node refuses this client: an expired certificate",
         PST_BOOT_REFUSED_EXPIRED,
         "its certificate has expired"},
        {{&node, &foreign, NULL, NULL, PST_BOOT_PLAIN_NOBODY},
         -EACCES,
         "the node refuses this client: a certificate with an unknown issuer",
         PST_BOOT_REFUSED_CERTIFICATE,
         "its certificate has an unknown issuer"},
        {{&old, &client, NULL, NULL, PST_BOOT_PLAIN_NOBODY},
         -EACCES,
         "the node's certificate has expired",
         PST_BOOT_REFUSED_BY_CLIENT,
         "it refuses the node: an expired certificate"},
        {{&foreign, &client, NULL, NULL, PST_BOOT_PLAIN_NOBODY},
         -EACCES,
         "the node's certificate has an unknown issuer",
         PST_BOOT_REFUSED_BY_CLIENT,
         "it refuses the node: a certificate with an unknown issuer"},
        {{&elsewhere, &client, NULL, NULL, PST_BOOT_PLAIN_NOBODY},
         -EACCES,
         "the node's certificate is of another address",
         PST_BOOT_REFUSED_BY_CLIENT,
         "it refuses the node: a wrong certificate"},
        {{&by_secret, &checks, "s", "s", PST_BOOT_PLAIN_NOBODY},
         -EPROTO,
         "nothing in common: certificates here, the secret there?",
         PST_BOOT_REFUSED_TLS,
         "TLS by certificate, and the node has the secret alone"},
    };

    (void)state;
    for (size_t i = 0; i < pst_count_of(cases); i++)
        expect(&cases[i].meeting, false, cases[i].error, cases[i].text, (int)cases[i].kind, cases[i].why);
}

static void slow_handshakes_block_nobody(void **state)
{
    static const struct meeting m = {&node, &client, NULL, NULL, PST_BOOT_PLAIN_NOBODY};
    const uint8_t begin[] = {0x16, 3, 1, 2, 0, 1, 0, 1};
    const char *fault;
    uint8_t rest[64];
    struct rig rig;
    struct pst_tls *tls = node_open(&rig, &m);
    int fd;

    (void)state;
    rig_halt(&rig);
    rig.fixed_ns = SECOND_NS * 1000;
    rig_run(&rig);
    fd = raw_connect(&rig);
    assert_int_equal(send(fd, begin, sizeof(begin), 0), sizeof(begin));
    assert_int_equal(meet_at(&rig, &rig.tcp, &m, &fault), 0);
    rig.fixed_ns += 6 * SECOND_NS;
    assert_int_equal(raw_drain(fd, rest, sizeof(rest)), 0); /* its time is over */
    close(fd);
    await_count(&rig.refusals, 1);
    assert_string_equal(rig.why, "too slow a handshake");
    rig_close(&rig);
    pst_tls_close(tls);
}

/* A client that speaks TLS understands a node that has no room for its handshake, and may come again. */
static void full_nodes_say_so(void **state)
{
    static const struct meeting m = {&node, &client, NULL, NULL, PST_BOOT_PLAIN_NOBODY};
    int waiting[4];
    const char *fault;
    struct rig rig;
    struct pst_tls *tls = node_open(&rig, &m);

    (void)state;
    rig_halt(&rig);
    rig.fixed_ns = SECOND_NS * 1000;
    rig_run(&rig);
    for (size_t i = 0; i < pst_count_of(waiting); i++)
        waiting[i] = raw_connect(&rig);
    assert_int_equal(meet_at(&rig, &rig.tcp, &m, &fault), -EBUSY);
    for (size_t i = 0; i < pst_count_of(waiting); i++)
        close(waiting[i]);
    rig_close(&rig);
    pst_tls_close(tls);
}

/* ---- those in between ---- */

struct between {
    struct pst_boot_address address; /* where clients find it */
    uint16_t node_port;
    int listener;
    const struct tls_side *as_node, *as_client; /* NULL: it speaks no TLS */
    uint8_t heard[4096]; /* from the client, as it came from the socket, if it speaks no TLS */
    size_t heard_bytes;
    pthread_t thread;
};

static int tcp_socket(uint16_t port, bool listens, uint16_t *got)
{
    struct sockaddr_in sa = {.sin_family = AF_INET, .sin_port = htons(port)};
    socklen_t bytes = sizeof(sa);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    sa.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (!listens) {
        assert_int_equal(connect(fd, (struct sockaddr *)&sa, sizeof(sa)), 0);
        return fd;
    }
    assert_int_equal(bind(fd, (struct sockaddr *)&sa, sizeof(sa)) | listen(fd, 1), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&sa, &bytes), 0);
    *got = ntohs(sa.sin_port);
    return fd;
}

static struct stream_channel *between_channel(int fd, struct pst_tls *tls, const char *host)
{
    struct stream_channel *channel;
    const char *fault;
    int r = -EAGAIN;

    assert_int_equal(fcntl(fd, F_SETFL, O_NONBLOCK), 0);
    assert_int_equal(pst_tls_channel(tls, fd, host, &channel), 0);
    while (r == -EAGAIN) {
        r = stream_channel_start(channel, &fault);
        poll(NULL, 0, 1);
    }
    assert_int_equal(r, 0);
    return channel;
}

/* Return: whether it goes on. */
static bool between_pass(struct stream_channel *from, struct stream_channel *to)
{
    uint8_t buf[4096];
    struct iovec iov = {buf, sizeof(buf)};
    ssize_t n = stream_channel_readv(from, &iov, 1);

    if (n == -EAGAIN)
        return true;
    if (n > 0) {
        iov = (struct iovec){buf, (size_t)n};
        assert_int_equal(stream_channel_writev(to, &iov, 1), n);
    }
    return n > 0;
}

/* With a certificate that both sides take for that of whom they want: passes on what it can read. */
static void *between_reads_all(void *arg)
{
    struct between *b = arg;
    struct pst_tls *one = side_open(b->as_node, true), *other = side_open(b->as_client, false);
    struct stream_channel *to_client = between_channel(accept(b->listener, NULL, NULL), one, NULL);
    struct stream_channel *to_node =
        between_channel(tcp_socket(b->node_port, false, NULL), other, "localhost");

    while (between_pass(to_client, to_node) && between_pass(to_node, to_client))
        poll(NULL, 0, 1);
    stream_channel_close(to_client);
    stream_channel_close(to_node);
    pst_tls_close(one);
    pst_tls_close(other);
    return NULL;
}

/* Answers in plain what a node without TLS would. */
static void *between_strips(void *arg)
{
    struct boot_challenge challenge = {.flags = BOOT_CHALLENGE_SECRET};
    uint8_t answer[BOOT_HEAD_BYTES + BOOT_CHALLENGE_BYTES];
    struct between *b = arg;
    int fd = accept(b->listener, NULL, NULL);

    boot_frame_head(answer, PST_BOOT_VERSION, BOOT_CHALLENGE, BOOT_CHALLENGE_BYTES);
    boot_challenge_encode(&challenge, answer + BOOT_HEAD_BYTES);
    b->heard_bytes = (size_t)recv(fd, b->heard, sizeof(b->heard), 0);
    assert_int_equal(send(fd, answer, sizeof(answer), MSG_NOSIGNAL), sizeof(answer));
    b->heard_bytes += raw_drain(fd, b->heard + b->heard_bytes, sizeof(b->heard) - b->heard_bytes);
    close(fd);
    return NULL;
}

static void between_open(struct between *b, void *(*run)(void *arg), const struct rig *rig)
{
    strcpy(b->address.host, "127.0.0.1");
    b->listener = tcp_socket(0, true, &b->address.port);
    b->node_port = rig ? rig->tcp.port : 0;
    assert_int_equal(pthread_create(&b->thread, NULL, run, b), 0);
}

static void between_close(struct between *b)
{
    pthread_join(b->thread, NULL);
    close(b->listener);
}

/* The proofs hold for one TLS connection: who joins two of them is found out, whatever certificate it has. */
static void nobody_stands_between(void **state)
{
    static const struct tls_side lenient = {.certificate = "node", .ca = "ca", .optional = true};
    static const struct meeting m = {&lenient, &client, "s", "s", PST_BOOT_PLAIN_NOBODY};
    struct between b = {.as_node = &lenient, .as_client = &client};
    const char *fault;
    struct rig rig;
    struct pst_tls *tls = node_open(&rig, &m);

    (void)state;
    between_open(&b, between_reads_all, &rig);
    assert_int_equal(meet_at(&rig, &b.address, &m, &fault), -EACCES);
    between_close(&b);
    await_count(&rig.refusals, 1);
    assert_string_equal(rig.why, "wrong secret, or somebody in between");
    assert_int_equal(rig.welcomes, 0);
    assert_int_equal(meet_at(&rig, &rig.tcp, &m, &fault), 0); /* it was not the secret */
    rig_close(&rig);
    pst_tls_close(tls);
}

/* Who was told to speak TLS says nothing outside of it. */
static void nobody_is_talked_out_of_it(void **state)
{
    static const struct tls_side checks = {.ca = "ca"}, by_secret = {.secret = "s"};
    static const struct meeting meetings[] = {{NULL, &checks, "s", "s", PST_BOOT_PLAIN_NOBODY},
                                              {NULL, &by_secret, "s", "s", PST_BOOT_PLAIN_NOBODY}};

    (void)state;
    for (size_t i = 0; i < pst_count_of(meetings); i++) {
        struct between b = {.as_node = NULL};
        const char *fault;

        between_open(&b, between_strips, NULL);
        assert_int_equal(meet_at(NULL, &b.address, &meetings[i], &fault), -EPROTO);
        between_close(&b);
        assert_string_equal(fault, "no TLS");
        assert_true(b.heard_bytes > 100 && b.heard[0] == PST_TLS_FIRST_BYTE);
        assert_null(memmem(b.heard, b.heard_bytes, "PSTB", 4));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(those_who_may_come_in),        cmocka_unit_test(those_who_may_not),
        cmocka_unit_test(slow_handshakes_block_nobody), cmocka_unit_test(full_nodes_say_so),
        cmocka_unit_test(nobody_stands_between),        cmocka_unit_test(nobody_is_talked_out_of_it),
    };

    return cmocka_run_group_tests(tests, tls_make_certificates, tls_remove_certificates);
}
