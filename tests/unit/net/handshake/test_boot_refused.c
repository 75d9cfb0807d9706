/* SPDX-License-Identifier: Apache-2.0 */
/* The bootstrap with those who are no client or no node, do nothing, or are too many. */
#include "lib/boot_rig.h"

#include "base/hash.h"

#include <poll.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <netinet/in.h>

static void garbage_is_survived(void **state)
{
    uint8_t buf[8192], hello[BOOT_HEAD_BYTES + BOOT_HELLO_BYTES];
    struct rig rig;

    (void)state;
    rig_open(&rig, "s", 4, 2);
    rig_run(&rig);
    hello_frame(hello);
    for (uint64_t round = 0; round < 300; round++) {
        int fd = raw_connect(&rig);
        size_t bytes = round * 7 % sizeof(hello);

        if (round % 3 == 0) { /* a hello that is cut off */
            (void)!send(fd, hello, bytes, MSG_NOSIGNAL);
        } else if (round % 3 == 1) { /* one with a wrong bit */
            memcpy(buf, hello, sizeof(hello));
            buf[bytes] ^= (uint8_t)(1u << round % 8);
            (void)!send(fd, buf, sizeof(hello), MSG_NOSIGNAL);
        } else {
            pst_random(buf, sizeof(buf));
            (void)!send(fd, buf, sizeof(buf), MSG_NOSIGNAL);
        }
        shutdown(fd, SHUT_WR);
        raw_drain(fd, buf, sizeof(buf));
        close(fd);
    }
    expect_session(&rig, &rig.tcp, "s");
    assert_int_equal(rig.welcomes, 1);
    rig_close(&rig);
}

static void long_frames_are_refused(void **state)
{
    uint8_t head[BOOT_HEAD_BYTES], byte;
    struct rig rig;
    int fd;

    (void)state;
    rig_open(&rig, "s", 4, 4);
    rig_run(&rig);
    fd = raw_connect(&rig);
    boot_frame_head(head, PST_BOOT_VERSION, BOOT_HELLO, BOOT_FRAME_SMALL_MAX - BOOT_HEAD_BYTES + 1);
    assert_int_equal(send(fd, head, sizeof(head), 0), sizeof(head));
    assert_int_equal(recv(fd, &byte, 1, 0), 0);
    close(fd);
    assert_int_equal(rig.refusals, 1);
    assert_string_equal(rig.why, "not a penstock client");
    rig_close(&rig);
}

static void slow_client_blocks_nobody(void **state)
{
    uint8_t hello[BOOT_HEAD_BYTES + BOOT_HELLO_BYTES], byte;
    struct rig rig;
    int fd;

    (void)state;
    rig_open(&rig, "s", 4, 4);
    rig.fixed_ns = SECOND_NS * 1000;
    rig_run(&rig);
    fd = raw_connect(&rig);
    hello_frame(hello);
    assert_int_equal(send(fd, hello, 20, 0), 20);
    expect_session(&rig, &rig.tcp, "s");
    rig.fixed_ns += 6 * SECOND_NS;
    assert_int_equal(recv(fd, &byte, 1, 0), 0); /* its time is over */
    close(fd);
    await_count(&rig.refusals, 1);
    rig_close(&rig);
}

static void handshakes_are_limited(void **state)
{
    struct client *c = calloc(1, sizeof(*c));
    uint8_t byte;
    struct rig rig;
    int fd, r = -EBUSY;

    (void)state;
    rig_open(&rig, "s", 4, 1);
    rig.fixed_ns = SECOND_NS * 1000;
    rig_run(&rig);
    fd = raw_connect(&rig);
    assert_int_equal(dial(c, &rig.tcp, "s", false), -EBUSY);
    rig.fixed_ns += 2 * SECOND_NS; /* idle for long enough to make room, once the server looks at the clock */
    for (int i = 0; i < 1000 && r == -EBUSY; i++)
        r = dial(c, &rig.tcp, "s", false);
    assert_int_equal(r, 0);
    assert_int_equal(recv(fd, &byte, 1, 0), 0);
    close(fd);
    pst_boot_link_close(c->link);
    rig_close(&rig);
    free(c);
}

static void sessions_are_limited(void **state)
{
    struct client *a = calloc(1, sizeof(*a)), *b = calloc(1, sizeof(*b));
    struct rig rig;

    (void)state;
    rig_open(&rig, "s", 1, 4);
    rig_run(&rig);
    assert_int_equal(dial(a, &rig.tcp, "s", false), 0);
    assert_int_equal(dial(b, &rig.tcp, "s", false), -EBUSY);
    pst_boot_link_close(a->link);
    await_count(&rig.ends, 1);
    assert_int_equal(dial(b, &rig.tcp, "s", false), 0);
    pst_boot_link_close(b->link);
    rig_close(&rig);
    free(a);
    free(b);
}

static void no_descriptors_left(void **state)
{
    struct rlimit saved, low;
    uint8_t hello[BOOT_HEAD_BYTES + BOOT_HELLO_BYTES];
    int fd, taken[256], count = 0;
    struct pollfd p;
    struct rig rig;

    (void)state;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &saved), 0);
    rig_open(&rig, "s", 4, 4);
    rig.fixed_ns = SECOND_NS * 1000;
    fd = raw_connect(&rig);
    hello_frame(hello);
    assert_int_equal(send(fd, hello, sizeof(hello), 0), sizeof(hello));
    low = saved;
    low.rlim_cur = 64;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
    while (count < 256 && (taken[count] = dup(0)) >= 0)
        count++;
    assert_int_equal(errno, EMFILE);
    assert_in_range(pst_boot_server_poll(rig.server, rig.fixed_ns), 1, 1000); /* rests, does not spin */
    p = (struct pollfd){.fd = pst_boot_server_fd(rig.server), .events = POLLIN};
    assert_int_equal(poll(&p, 1, 0), 0);
    while (count > 0)
        close(taken[--count]);
    rig.fixed_ns += SECOND_NS;
    for (int i = 0; i < 4; i++)
        pst_boot_server_poll(rig.server, rig.fixed_ns);
    assert_int_equal(recv(fd, hello, BOOT_HEAD_BYTES, MSG_WAITALL), BOOT_HEAD_BYTES);
    assert_int_equal(hello[6], BOOT_CHALLENGE);
    close(fd);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &saved), 0);
    rig_close(&rig);
}

static void nothing_listens(void **state)
{
    struct client *c = calloc(1, sizeof(*c));
    struct pst_boot_address address;
    struct rig rig;

    (void)state;
    rig_open(&rig, "", 4, 4);
    address = rig.tcp;
    rig_close(&rig);
    assert_int_equal(dial(c, &address, "", false), -ECONNREFUSED);
    assert_int_equal(dial(c, &rig.path, "", false), -ECONNREFUSED);
    strcpy(address.host, "no-such-host.invalid");
    assert_int_equal(dial(c, &address, "", false), -EHOSTUNREACH);
    assert_string_equal(c->fault, "no such host");
    free(c);
}

/* A server of another kind: takes one connection, reads @wants bytes, answers with @answer. */
struct stranger {
    int fd;
    struct pst_boot_address address;
    const uint8_t *answer;
    size_t answer_bytes;
    size_t wants;
};

static void *stranger_serve(void *arg)
{
    struct stranger *s = arg;
    uint8_t buf[4096];
    int fd = accept(s->fd, NULL, NULL);

    assert_true(fd >= 0);
    while (s->wants > 0) {
        ssize_t n = recv(fd, buf, s->wants, 0);

        assert_true(n > 0);
        s->wants -= (size_t)n;
    }
    assert_int_equal(send(fd, s->answer, s->answer_bytes, MSG_NOSIGNAL), s->answer_bytes);
    shutdown(fd, SHUT_WR);
    raw_drain(fd, buf, sizeof(buf));
    close(fd);
    return NULL;
}

static void expect_stranger(const uint8_t *answer, size_t bytes, int error, const char *fault)
{
    struct stranger s = {
        .answer = answer, .answer_bytes = bytes, .wants = BOOT_HEAD_BYTES + BOOT_HELLO_BYTES};
    struct sockaddr_in sa = {.sin_family = AF_INET};
    struct client *c = calloc(1, sizeof(*c));
    socklen_t len = sizeof(sa);
    pthread_t thread;

    sa.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    s.fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(s.fd, (struct sockaddr *)&sa, sizeof(sa)) | listen(s.fd, 1), 0);
    assert_int_equal(getsockname(s.fd, (struct sockaddr *)&sa, &len), 0);
    strcpy(s.address.host, "127.0.0.1");
    s.address.port = ntohs(sa.sin_port);
    assert_int_equal(pthread_create(&thread, NULL, stranger_serve, &s), 0);
    assert_int_equal(dial(c, &s.address, "secret", false), error);
    assert_string_equal(c->fault, fault);
    pthread_join(thread, NULL);
    close(s.fd);
    free(c);
}

static void strangers_are_told_apart(void **state)
{
    struct boot_challenge challenge = {.flags = BOOT_CHALLENGE_SECRET};
    uint8_t answer[256] = "HTTP/1.1 400 Bad Request\r\n\r\n", *at = answer;

    (void)state;
    expect_stranger(answer, 28, -EPROTO, "not a penstock node");
    expect_stranger(answer, 0, -ECONNRESET, "the node closed the connection");
    boot_frame_head(answer, PST_BOOT_VERSION + 1, BOOT_CHALLENGE, BOOT_CHALLENGE_BYTES);
    expect_stranger(answer, BOOT_HEAD_BYTES + BOOT_CHALLENGE_BYTES, -EPROTONOSUPPORT,
                    "the node speaks version 9, this client 8 to 8");
    boot_frame_head(answer, 0, BOOT_CHALLENGE, BOOT_CHALLENGE_BYTES);
    expect_stranger(answer, BOOT_HEAD_BYTES + BOOT_CHALLENGE_BYTES, -EPROTONOSUPPORT,
                    "the node speaks version 0, this client 8 to 8");
    boot_frame_head(answer, 9, BOOT_REFUSED, 4);
    boot_refused_encode(BOOT_REFUSED_VERSION, answer + BOOT_HEAD_BYTES);
    expect_stranger(answer, BOOT_HEAD_BYTES + 4, -EPROTONOSUPPORT,
                    "the node speaks version 9, this client 8 to 8");
    /* One that claims to know the secret, welcomes, and cannot prove it. */
    boot_frame_head(at, PST_BOOT_VERSION, BOOT_CHALLENGE, BOOT_CHALLENGE_BYTES);
    boot_challenge_encode(&challenge, at + BOOT_HEAD_BYTES);
    at += BOOT_HEAD_BYTES + BOOT_CHALLENGE_BYTES;
    boot_frame_head(at, PST_BOOT_VERSION, BOOT_WELCOME, BOOT_MAC_BYTES + BOOT_WELCOME_FIXED_BYTES);
    memset(at + BOOT_HEAD_BYTES, 0, BOOT_MAC_BYTES + BOOT_WELCOME_FIXED_BYTES);
    at += BOOT_HEAD_BYTES + BOOT_MAC_BYTES + BOOT_WELCOME_FIXED_BYTES;
    expect_stranger(answer, (size_t)(at - answer), -EACCES, "the node does not know the secret");
}

/* Ports of clients are handed out one after the other, so that within so many attempts one is the port asked
 * for. */
static void nobody_is_not_oneself(void **state)
{
    struct sockaddr_in sa = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct pst_boot_address address = {.host = "127.0.0.1"};
    struct client *c = calloc(1, sizeof(*c));
    socklen_t bytes = sizeof(sa);
    int fd = socket(AF_INET, SOCK_STREAM, 0);

    (void)state;
    assert_int_equal(bind(fd, (struct sockaddr *)&sa, bytes), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&sa, &bytes), 0);
    close(fd);
    address.port = (uint16_t)(ntohs(sa.sin_port) ^ 1); /* of those that are given to clients */
    for (int i = 0; i < 60000; i++)
        assert_int_equal(dial(c, &address, "", false), -ECONNREFUSED);
    free(c);
}

static void silent_stranger_times_out(void **state)
{
    struct pst_boot_client_options options = {.deadline_ns = pst_now_ns() + SECOND_NS / 5};
    struct client *c = calloc(1, sizeof(*c));
    struct rig rig;

    (void)state;
    rig_open(&rig, "", 4, 4); /* nobody polls it: connects, and says nothing */
    assert_int_equal(dial_with(c, &rig.tcp, &options), -ETIMEDOUT);
    options.deadline_ns = pst_now_ns() + SECOND_NS / 5;
    assert_int_equal(dial_with(c, &rig.path, &options), -ETIMEDOUT);
    rig_close(&rig);
    free(c);
}

/* Whoever listens takes no connection: its queue is full. */
static void full_queues_time_out(void **state)
{
    struct pst_boot_client_options options = {0};
    struct client *c = calloc(1, sizeof(*c));
    int listener, waiting[16];
    struct rig rig;

    (void)state;
    rig_open(&rig, "", 4, 4);
    for (int over_unix = 0; over_unix < 2; over_unix++) {
        struct sockaddr_un un = {.sun_family = AF_UNIX};
        struct sockaddr_in in = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        socklen_t bytes = over_unix ? sizeof(un) : sizeof(in);
        struct sockaddr *sa = over_unix ? (struct sockaddr *)&un : (struct sockaddr *)&in;
        struct pst_boot_address address = over_unix ? rig.path : rig.tcp;

        snprintf(un.sun_path, sizeof(un.sun_path), "/tmp/penstock-test-full-%d", (int)getpid());
        listener = socket(sa->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
        assert_int_equal(bind(listener, sa, bytes), 0);
        assert_int_equal(getsockname(listener, sa, &bytes), 0);
        assert_int_equal(listen(listener, 0), 0);
        for (size_t i = 0; i < pst_count_of(waiting); i++) {
            waiting[i] = socket(sa->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
            connect(waiting[i], sa, bytes);
        }
        strcpy(address.path, over_unix ? un.sun_path : "");
        address.port = over_unix ? 0 : ntohs(in.sin_port);
        options.deadline_ns = pst_now_ns() + SECOND_NS / 5;
        assert_int_equal(dial_with(c, &address, &options), -ETIMEDOUT);
        assert_string_equal(c->fault, "no answer in time");
        assert_true(pst_now_ns() >= options.deadline_ns);
        for (size_t i = 0; i < pst_count_of(waiting); i++)
            close(waiting[i]);
        close(listener);
        unlink(un.sun_path);
    }
    rig_close(&rig);
    free(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(garbage_is_survived),       cmocka_unit_test(long_frames_are_refused),
        cmocka_unit_test(slow_client_blocks_nobody), cmocka_unit_test(handshakes_are_limited),
        cmocka_unit_test(sessions_are_limited),      cmocka_unit_test(nothing_listens),
        cmocka_unit_test(strangers_are_told_apart),  cmocka_unit_test(nobody_is_not_oneself),
        cmocka_unit_test(silent_stranger_times_out), cmocka_unit_test(full_queues_time_out),
        cmocka_unit_test(no_descriptors_left),
    };

    /* Valgrind keeps descriptors above the limit to itself, and closes a connection that it accepts there. */
    if (getenv("TEST_VALGRIND"))
        cmocka_set_skip_filter("no_descriptors_left");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
