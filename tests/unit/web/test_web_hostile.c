/* SPDX-License-Identifier: Apache-2.0 */
/* Clients that are slow, many, or send what is no request; meanwhile others are served. */
#include "lib/web_rig.h"

#include "base/hash.h"

#include <malloc.h>
#include <poll.h>
#include <sys/socket.h>

#define GET "GET /x HTTP/1.1\r\nHost: h\r\n\r\n"

static char buf[65536];

static void others_are_served(struct web_rig *rig)
{
    assert_int_equal(web_ask(rig, GET, buf, sizeof(buf)), 200);
}

/* Says @first, then @more every tenth of the stall, and must be closed before @stalls of them are over. */
static void expect_slow_ends(struct web_rig *rig, const char *first, const char *more, unsigned stalls)
{
    uint64_t stall_ns = rig->settings.stall_ms * 1000000ull, until = pst_now_ns() + stalls * stall_ns;
    int fd = web_connect(rig);
    struct pollfd p = {.fd = fd, .events = POLLIN};

    web_say(fd, first);
    while (pst_now_ns() < until && poll(&p, 1, (int)(rig->settings.stall_ms / 10)) == 0) {
        web_say(fd, more);
        others_are_served(rig);
    }
    assert_true(pst_now_ns() < until);
    assert_true(web_ends(fd));
    close(fd);
}

static void the_slow_are_ended(void **state)
{
    struct web_rig rig = {.hold = false};

    (void)state;
    web_rig_open(&rig);
    expect_slow_ends(&rig, "", "a", 6);
    expect_slow_ends(&rig, "", "\r\n", 6);
    expect_slow_ends(&rig, "GET / HTTP/1.1\r\nX: ", "a", 6);
    expect_slow_ends(&rig, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1000000\r\n\r\n", "a", 6);
    web_wait_empty(&rig);
    web_rig_close(&rig);
}

/* Half of rsync's greeting and the end of the stream: nothing more will come to wait for. */
static void half_a_greeting_is_ended(void **state)
{
    struct web_rig rig = {.settings = {.stall_ms = 60000}};
    int fd;

    (void)state;
    web_rig_open(&rig);
    fd = web_connect(&rig);
    web_say(fd, "@RSYN");
    shutdown(fd, SHUT_WR);
    assert_true(web_ends(fd));
    close(fd);
    web_rig_close(&rig);
}

static void who_says_nothing_is_ended(void **state)
{
    struct web_rig rig = {.hold = false};
    int fds[64];

    (void)state;
    web_rig_open(&rig);
    for (int i = 0; i < 64; i++)
        fds[i] = web_connect(&rig);
    others_are_served(&rig);
    web_wait_empty(&rig);
    for (int i = 0; i < 64; i++)
        close(fds[i]);
    web_rig_close(&rig);
}

/* A client that has asked for much, and has little room for it. */
static int ask_for_much(struct web_rig *rig)
{
    int fd = web_connect(rig), small = 4096;

    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small));
    web_say(fd, "GET /big HTTP/1.1\r\nHost: h\r\n\r\n");
    return fd;
}

static void who_takes_no_answer_is_ended(void **state)
{
    struct web_rig rig = {.hold = false};
    int fd;

    (void)state;
    web_rig_open(&rig);
    fd = ask_for_much(&rig);
    web_wait_count(&rig.answers, 1);
    others_are_served(&rig);
    web_wait_empty(&rig);
    close(fd);
    web_rig_close(&rig);
}

static void too_many_are_refused(void **state)
{
    enum { MAX = 8 };
    struct web_rig rig = {.settings = {.connections_max = MAX, .stall_ms = 60000}, .hold = true};
    int fds[MAX], fd;

    (void)state;
    web_rig_open(&rig);
    for (int i = 0; i < MAX; i++) {
        fds[i] = web_connect(&rig);
        web_say(fds[i], "GET /hold HTTP/1.1\r\nHost: h\r\n\r\n");
    }
    web_wait_count(&rig.held, 4);
    while (pst_web_connections(rig.web) < MAX)
        usleep(1000);
    usleep(50000); /* until all have said what they want */
    for (int i = 0; i < 10; i++) {
        fd = web_connect(&rig);
        assert_int_equal(web_read_answer(fd, buf, sizeof(buf)), 503);
        assert_true(web_ends(fd));
        close(fd);
    }
    rig.hold = false;
    for (int i = 0; i < MAX; i++)
        assert_int_equal(web_read_answer(fds[i], buf, sizeof(buf)), 200);
    for (int i = 0; i < 2 * MAX; i++) /* those that ask for nothing any more make room, the oldest first */
        others_are_served(&rig);
    web_say(fds[MAX - 1], GET);
    assert_int_equal(web_read_answer(fds[MAX - 1], buf, sizeof(buf)), 200);
    for (int i = 0; i < MAX; i++)
        close(fds[i]);
    web_wait_empty(&rig);
    web_rig_close(&rig);
}

static void who_says_nothing_makes_room(void **state)
{
    enum { MAX = 8 };
    struct web_rig rig = {.settings = {.connections_max = MAX, .stall_ms = 60000}};
    static const char *const says[] = {"", "GET / HT",
                                       "PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\na"};
    int slow[4 * MAX], known;

    (void)state;
    web_rig_open(&rig);
    known = web_connect(&rig);
    web_say(known, GET);
    assert_int_equal(web_read_answer(known, buf, sizeof(buf)), 200);
    for (size_t i = 0; i < pst_count_of(slow); i++) {
        slow[i] = web_connect(&rig);
        if (i % 2) { /* one that has been answered, too */
            web_say(slow[i], GET);
            assert_int_equal(web_read_answer(slow[i], buf, sizeof(buf)), 200);
        }
        web_say(slow[i], says[i % 3]);
        others_are_served(&rig);
    }
    assert_true(web_ends(slow[0]));
    web_say(known, GET);
    assert_int_equal(web_read_answer(known, buf, sizeof(buf)), 200);
    for (size_t i = 0; i < pst_count_of(slow); i++)
        close(slow[i]);
    close(known);
    web_wait_empty(&rig);
    web_rig_close(&rig);
}

static void other_sites_are_refused(void **state)
{
    static const struct {
        const char *text;
        int status;
    } cases[] = {
        {"POST / HTTP/1.1\r\nHost: h:1\r\nOrigin: http://h:1\r\nContent-Length: 0\r\n\r\n", 200},
        {"POST / HTTP/1.1\r\nHost: h:1\r\nContent-Length: 0\r\n\r\n", 200},
        {"GET / HTTP/1.1\r\nHost: h:1\r\nOrigin: http://evil\r\n\r\n", 200},
        {"POST / HTTP/1.1\r\nHost: h:1\r\nOrigin: http://evil\r\nContent-Length: 0\r\n\r\n", 403},
        {"POST / HTTP/1.1\r\nHost: h:1\r\nOrigin: null\r\nContent-Length: 0\r\n\r\n", 403},
        {"DELETE / HTTP/1.1\r\nHost: h:1\r\nOrigin: http://h:12\r\n\r\n", 403},
        {"GET / HTTP/1.1\r\nHost: localhost:1\r\n\r\n", 200},
        {"GET / HTTP/1.1\r\nHost: 127.0.0.1:1\r\n\r\n", 200},
        {"GET / HTTP/1.1\r\nHost: [::1]:1\r\n\r\n", 200},
        {"GET / HTTP/1.1\r\nHost: [::1]\r\n\r\n", 200},
        {"GET / HTTP/1.1\r\nHost: x.localhost:1\r\n\r\n", 200},
        {"GET / HTTP/1.1\r\nHost: Store.Example:1\r\n\r\n", 200},
        {"GET / HTTP/1.1\r\nHost: localhost.\r\n\r\n", 200},
        {"GET / HTTP/1.1\r\nHost: store.default.svc.cluster.local:8081\r\n\r\n", 200},
        {"GET / HTTP/1.1\r\nHost: store.default.svc:8081\r\n\r\n", 200},
        {"GET / HTTP/1.1\r\nHost: evil.example.\r\n\r\n", 403},
        {"GET / HTTP/1.1\r\nHost: evil.example:1\r\nOrigin: http://evil.example:1\r\n\r\n", 403},
        {"GET / HTTP/1.1\r\nHost: store.example.evil:1\r\n\r\n", 403},
        {"GET / HTTP/1.1\r\nHost: xlocalhost.evil\r\n\r\n", 403},
        {"GET /ws/x HTTP/1.1\r\nHost: h\r\nOrigin: http://evil\r\nUpgrade: websocket\r\nConnection: "
         "upgrade\r\n"
         "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n",
         403},
    };
    struct web_rig rig = {.settings = {.name = "store.example"}};

    (void)state;
    web_rig_open(&rig);
    for (size_t i = 0; i < pst_count_of(cases); i++)
        assert_int_equal(web_ask(&rig, cases[i].text, buf, sizeof(buf)), cases[i].status);
    web_wait_empty(&rig);
    web_rig_close(&rig);
}

static void floods_of_fields_are_refused(void **state)
{
    struct web_rig rig = {.hold = false};
    size_t bytes;
    int fd;

    (void)state;
    web_rig_open(&rig);
    fd = web_connect(&rig); /* many */
    web_say(fd, "GET / HTTP/1.1\r\nHost: h\r\n");
    for (int i = 0; i < 200; i++)
        web_say(fd, "A: b\r\n");
    web_say(fd, "\r\n");
    assert_int_equal(web_read_answer(fd, buf, sizeof(buf)), 431);
    close(fd);
    fd = web_connect(&rig); /* endless */
    web_say(fd, "GET / HTTP/1.1\r\nHost: ");
    memset(buf, 'x', sizeof(buf));
    web_send(fd, buf, sizeof(buf));
    assert_int_equal(web_read_answer(fd, buf, sizeof(buf)), 431);
    close(fd);
    fd = web_connect(&rig); /* the same behind a request whose answer has no body */
    web_say(fd, "HEAD /x HTTP/1.1\r\nHost: h\r\n\r\nGET / HTTP/1.1\r\nHost: ");
    memset(buf, 'x', sizeof(buf));
    web_send(fd, buf, sizeof(buf));
    bytes = web_read_all(fd, buf, sizeof(buf));
    assert_non_null(strstr(buf, "HTTP/1.1 431"));
    assert_true(bytes > 4 && memcmp(buf + bytes - 4, "\r\n\r\n", 4) != 0);
    close(fd);
    fd = web_connect(&rig); /* a long path is fine up to there */
    web_say(fd, "GET /");
    for (int i = 0; i < 4096; i++)
        web_say(fd, "%2f%2f");
    web_say(fd, " HTTP/1.1\r\nHost: h\r\n\r\n");
    assert_int_equal(web_read_answer(fd, buf, sizeof(buf)), 200);
    close(fd);
    web_rig_close(&rig);
}

static void garbage_is_survived(void **state)
{
    struct web_rig rig = {.hold = false};
    static const char *const parts[] = {"GET ",
                                        "/",
                                        " HTTP/1.1",
                                        "\r\n",
                                        "\r\n\r\n",
                                        "Host: h",
                                        "Content-Length: 9",
                                        "\0\0",
                                        ":",
                                        " ",
                                        "%",
                                        "Upgrade: websocket\r\nConnection: Upgrade",
                                        "@RSYNCD:",
                                        "\x16\x03\x01",
                                        "Transfer-Encoding: chunked"};

    (void)state;
    web_rig_open(&rig);
    for (int round = 0; round < 600; round++) {
        int fd = web_connect(&rig);
        uint8_t dice[64];

        pst_random(dice, sizeof(dice));
        if (round % 2)
            web_send(fd, dice, sizeof(dice));
        else
            for (size_t i = 0; i < 20; i++)
                web_say(fd, parts[dice[i] % pst_count_of(parts)]);
        if (dice[63] % 2)
            shutdown(fd, SHUT_WR);
        if (dice[62] % 2)
            (void)recv(fd, buf, sizeof(buf), MSG_DONTWAIT);
        close(fd);
    }
    others_are_served(&rig);
    web_wait_empty(&rig);
    web_rig_close(&rig);
}

/* Those who ask and go leave nothing behind, though no worker has time. */
static void who_has_gone_costs_nothing(void **state)
{
    struct web_rig rig = {.settings = {.threads = 1}, .hold = true};
    static char body[1 << 20];
    size_t before;
    int fd, held;

    (void)state;
    web_rig_open(&rig);
    held = web_connect(&rig);
    web_say(held, "GET /hold HTTP/1.1\r\nHost: h\r\n\r\n");
    web_wait_count(&rig.held, 1);
    before = mallinfo2().uordblks;
    for (int i = 0; i < 100; i++) {
        struct linger reset = {1, 0};

        fd = web_connect(&rig);
        web_say(fd, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1048576\r\n\r\n");
        web_send(fd, body, sizeof(body));
        setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
        close(fd);
    }
    for (int i = 0; i < 5000 && pst_web_connections(rig.web) > 1; i++)
        usleep(1000);
    assert_int_equal(pst_web_connections(rig.web), 1);
    assert_true(mallinfo2().uordblks < before + sizeof(body));
    rig.hold = false;
    assert_int_equal(web_read_answer(held, buf, sizeof(buf)), 200);
    close(held);
    assert_int_equal(rig.answers, 1);
    web_rig_close(&rig);
}

/* All bodies together have a bound. */
static void bodies_share_a_bound(void **state)
{
    enum { CLIENTS = 20 };
    struct web_rig rig = {.settings = {.stall_ms = 60000}};
    char *body = calloc(1, PST_WEB_BODY_BYTES_MAX);
    int fds[CLIENTS], refused = 0;

    (void)state;
    web_rig_open(&rig);
    for (int i = 0; i < CLIENTS; i++) {
        struct pollfd p;

        fds[i] = web_connect(&rig);
        web_say(fds[i], "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 4194304\r\n\r\n");
        web_send(fds[i], body, PST_WEB_BODY_BYTES_MAX - 1);
        p = (struct pollfd){.fd = fds[i], .events = POLLIN};
        if (poll(&p, 1, i < 15 ? 0 : 300) > 0) {
            assert_int_equal(web_read_answer(fds[i], buf, sizeof(buf)), 503);
            refused++;
        }
    }
    assert_true(refused >= 3 && refused < 10);
    others_are_served(&rig);
    for (int i = 0; i < CLIENTS; i++)
        close(fds[i]);
    web_wait_empty(&rig);
    web_rig_close(&rig);
    free(body);
}

/* So do answers that nobody takes; who asks for a little is served. */
static void answers_share_a_bound(void **state)
{
    struct web_rig rig = {.settings = {.stall_ms = 60000}};
    int fds[6], refused = 0;

    (void)state;
    web_rig_open(&rig);
    for (size_t i = 0; i < pst_count_of(fds); i++) {
        struct pollfd p = {.events = POLLIN};
        char first[16] = "";

        p.fd = fds[i] = web_connect(&rig);
        web_say(fds[i], "GET /big HTTP/1.1\r\nHost: h\r\n\r\n");
        assert_int_equal(poll(&p, 1, 60000), 1);
        assert_true(recv(fds[i], first, sizeof(first) - 1, MSG_PEEK) > 12);
        refused += strncmp(first, "HTTP/1.1 503", 12) == 0;
    }
    assert_int_equal(refused, 3); /* of 64 MiB three fit, with their heads */
    others_are_served(&rig);
    for (size_t i = 0; i < pst_count_of(fds); i++)
        close(fds[i]);
    web_wait_empty(&rig);
    web_rig_close(&rig);
}

/* A large answer is not taken a little at a time for hours. */
static void large_answers_have_their_time(void **state)
{
    struct web_rig rig = {.hold = false};
    int fd;

    (void)state;
    web_rig_open(&rig);
    fd = ask_for_much(&rig);
    for (int i = 0; i < 100 && pst_web_connections(rig.web) == (i > 0); i++) { /* 128 KiB for each stall */
        (void)!recv(fd, buf, sizeof(buf), MSG_DONTWAIT);
        usleep(rig.settings.stall_ms * 1000 / 4);
    }
    web_wait_empty(&rig);
    close(fd);
    web_rig_close(&rig);
}

/* Without the token the open path may be read, and nothing more; however much the workers have to do. */
static void the_open_path_is_open(void **state)
{
    struct web_rig rig = {.settings = {.token = pst_bytes_of("secret"),
                                       .token_on_loopback = true,
                                       .open_paths = {"/health"},
                                       .threads = 1},
                          .hold = true};
    int held;

    (void)state;
    web_rig_open(&rig);
    held = web_connect(&rig);
    web_say(held, "GET /hold HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer secret\r\n\r\n");
    web_wait_count(&rig.held, 1);
    assert_int_equal(web_ask(&rig, "GET /health HTTP/1.1\r\nHost: h\r\n\r\n", buf, sizeof(buf)), 200);
    assert_int_equal(
        web_ask(&rig, "GET /health HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\n", buf, sizeof(buf)), 401);
    assert_int_equal(
        web_ask(&rig, "POST /health HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n", buf, sizeof(buf)),
        401);
    assert_int_equal(web_ask(&rig, "GET /health/ HTTP/1.1\r\nHost: h\r\n\r\n", buf, sizeof(buf)), 401);
    rig.hold = false;
    assert_int_equal(web_read_answer(held, buf, sizeof(buf)), 200);
    close(held);
    web_rig_close(&rig);
}

/* As tunnels do: beyond their share, the one that has been silent longest makes room for one that comes. */
static void sockets_leave_seats_for_others(void **state)
{
    enum { MAX = 8, SOCKETS = 6 };
    struct web_rig rig = {.settings = {.connections_max = MAX, .stall_ms = 1000 * slowness()}};
    int sockets[SOCKETS], refused, late, status;
    size_t bytes;

    (void)state;
    web_rig_open(&rig);
    for (int i = 0; i < SOCKETS; i++) {
        sockets[i] = web_upgrade(&rig, "/ws/x", "", &status);
        assert_int_equal(status, 101);
    }
    refused = web_upgrade(&rig, "/ws/x", "", &status);
    assert_int_equal(status, 503);
    close(refused);
    others_are_served(&rig);
    usleep(rig.settings.stall_ms * 1200);
    web_frame(sockets[0], FRAME_FINAL | FRAME_TEXT, "x", 1);
    assert_int_equal(web_frame_read(sockets[0], buf, sizeof(buf), &bytes), FRAME_FINAL | FRAME_TEXT);
    late = web_upgrade(&rig, "/ws/x", "", &status);
    assert_int_equal(status, 101);
    assert_true(web_ends(sockets[1]));
    web_frame(sockets[0], FRAME_FINAL | FRAME_TEXT, "y", 1);
    assert_int_equal(web_frame_read(sockets[0], buf, sizeof(buf), &bytes), FRAME_FINAL | FRAME_TEXT);
    others_are_served(&rig);
    for (int i = 0; i < SOCKETS; i++)
        close(sockets[i]);
    close(late);
    web_wait_empty(&rig);
    web_rig_close(&rig);
}

/* Takes all seats with clients that ask so and read nothing. */
static void take_seats(struct web_rig *rig, int *fds, const char *request)
{
    for (uint32_t i = 0; i < rig->settings.connections_max; i++) {
        int small = 4096;

        fds[i] = web_connect(rig);
        setsockopt(fds[i], SOL_SOCKET, SO_RCVBUF, &small, sizeof(small));
        web_say(fds[i], request);
    }
    while (pst_web_connections(rig->web) < rig->settings.connections_max)
        usleep(1000);
}

/* Who has shown no token keeps no seat with what the open path, or a refusal, says. */
static void unread_answers_to_strangers_make_room(void **state)
{
    enum { MAX = 3 }; /* more would not have the memory for their answers */
    static const char asks[] = "GET /x HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer secret\r\n\r\n";
    static const char *const strangers[] = {"GET /big HTTP/1.1\r\nHost: h\r\n\r\n",
                                            "GET /x HTTP/1.1\r\nHost: h\r\n\r\n"};
    struct web_rig rig = {.settings = {.token = pst_bytes_of("secret"),
                                       .token_on_loopback = true,
                                       .open_paths = {"/big"},
                                       .connections_max = MAX,
                                       .stall_ms = 60000}};
    int fds[MAX], served[MAX];

    (void)state;
    web_rig_open(&rig);
    for (size_t i = 0; i < pst_count_of(strangers); i++) {
        take_seats(&rig, fds, strangers[i]);
        for (int j = 0; j < MAX; j++) {
            served[j] = web_connect(&rig);
            web_say(served[j], asks);
            assert_int_equal(web_read_answer(served[j], buf, sizeof(buf)), 200);
        }
        for (int j = 0; j < MAX; j++) {
            close(fds[j]);
            close(served[j]);
        }
        web_wait_empty(&rig);
    }
    web_rig_close(&rig);
}

static void unread_answers_to_others_keep_the_seat(void **state)
{
    enum { MAX = 3 };
    struct web_rig rig = {.settings = {.connections_max = MAX, .stall_ms = 60000}};
    int fds[MAX], fd;

    (void)state;
    web_rig_open(&rig);
    take_seats(&rig, fds, "GET /big HTTP/1.1\r\nHost: h\r\n\r\n");
    web_wait_count(&rig.answers, MAX);
    fd = web_connect(&rig);
    assert_int_equal(web_read_answer(fd, buf, sizeof(buf)), 503);
    close(fd);
    for (int i = 0; i < MAX; i++)
        close(fds[i]);
    web_wait_empty(&rig);
    web_rig_close(&rig);
}

/* Messages that come in part count as bodies do, and have their time. */
static void unfinished_messages_are_bounded(void **state)
{
    enum { CLIENTS = 80, PART = 900 << 10 };
    struct web_rig rig = {.settings = {.stall_ms = 60000}};
    char *part = malloc(PART);
    int fds[CLIENTS], status, ended = 0;

    (void)state;
    memset(part, 'a', PART);
    web_rig_open(&rig);
    for (int i = 0; i < CLIENTS; i++) {
        fds[i] = web_upgrade(&rig, "/ws/x", "", &status);
        assert_int_equal(status, 101);
        web_frame(fds[i], FRAME_TEXT, part, PART);
    }
    for (int tries = 0; tries < 1000 && ended < CLIENTS - 64; tries++) {
        usleep(10000);
        ended = 0;
        for (int i = 0; i < CLIENTS; i++)
            ended += poll(&(struct pollfd){.fd = fds[i], .events = POLLIN}, 1, 0) == 1;
    }
    assert_in_range(ended, CLIENTS - 64, CLIENTS - 60);
    others_are_served(&rig);
    for (int i = 0; i < CLIENTS; i++)
        close(fds[i]);
    web_wait_empty(&rig);
    web_rig_close(&rig);
    free(part);
}

static void an_unfinished_message_is_ended(void **state)
{
    struct web_rig rig = {.hold = false};
    int fd, status;

    (void)state;
    web_rig_open(&rig);
    fd = web_upgrade(&rig, "/ws/x", "", &status);
    assert_int_equal(status, 101);
    web_frame(fd, FRAME_TEXT, "a", 1);
    for (int i = 0; i < 40 && pst_web_connections(rig.web) > 0; i++) { /* it says more, and no end */
        web_frame(fd, FRAME_MORE, "a", 1);
        usleep(rig.settings.stall_ms * 1000 / 10);
    }
    web_wait_empty(&rig);
    close(fd);
    web_rig_close(&rig);
}

static int open_passage(struct web_rig *rig, bool raw)
{
    int fd, status;

    if (!raw) {
        fd = web_upgrade(rig, "/rsync/default/", "", &status);
        assert_int_equal(status, 101);
        return fd;
    }
    fd = web_connect(rig);
    web_say(fd, "@RSYNCD: 31.0\n");
    return fd;
}

/* Silent clients of a tunnel leave seats for HTTP; the one that has not moved for the longest makes room. */
static void tunnels_leave_seats_for_others(void **state)
{
    enum { MAX = 8, PASSED = 6 };
    struct web_rig rig = {.settings = {.connections_max = MAX}};
    int clients[PASSED], servers[PASSED + 1], refused, late, status, listener;
    char to[32];
    uint16_t port;

    (void)state;
    listener = web_listen(&port);
    snprintf(to, sizeof(to), "127.0.0.1:%u", port);
    rig.settings.tunnels[0] = (struct pst_web_tunnel){"/rsync/", to};
    rig.settings.stall_ms = 1000 * slowness();
    web_rig_open(&rig);
    for (int i = 0; i < PASSED; i++) {
        clients[i] = open_passage(&rig, i % 2);
        servers[i] = accept(listener, NULL, NULL);
    }
    refused = web_upgrade(&rig, "/rsync/default/", "", &status);
    assert_int_equal(status, 503);
    close(refused);
    refused = open_passage(&rig, true);
    assert_true(web_read_all(refused, buf, sizeof(buf)) > 0);
    assert_memory_equal(buf, "@ERROR: ", 8);
    close(refused);
    others_are_served(&rig);
    usleep(rig.settings.stall_ms * 1200);
    web_send(servers[0], "x", 1);
    assert_int_equal(recv(clients[1], buf, 1, MSG_DONTWAIT), -1);
    late = open_passage(&rig, true);
    servers[PASSED] = accept(listener, NULL, NULL);
    assert_true(web_ends(clients[1]));
    others_are_served(&rig);
    for (int i = 0; i < PASSED; i++)
        close(clients[i]);
    close(late);
    for (int i = 0; i <= PASSED; i++)
        close(servers[i]);
    web_wait_empty(&rig);
    close(listener);
    web_rig_close(&rig);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_slow_are_ended),
        cmocka_unit_test(who_says_nothing_is_ended),
        cmocka_unit_test(who_takes_no_answer_is_ended),
        cmocka_unit_test(too_many_are_refused),
        cmocka_unit_test(who_says_nothing_makes_room),
        cmocka_unit_test(other_sites_are_refused),
        cmocka_unit_test(floods_of_fields_are_refused),
        cmocka_unit_test(garbage_is_survived),
        cmocka_unit_test(half_a_greeting_is_ended),
        cmocka_unit_test(who_has_gone_costs_nothing),
        cmocka_unit_test(bodies_share_a_bound),
        cmocka_unit_test(answers_share_a_bound),
        cmocka_unit_test(large_answers_have_their_time),
        cmocka_unit_test(the_open_path_is_open),
        cmocka_unit_test(unread_answers_to_strangers_make_room),
        cmocka_unit_test(unread_answers_to_others_keep_the_seat),
        cmocka_unit_test(sockets_leave_seats_for_others),
        cmocka_unit_test(tunnels_leave_seats_for_others),
        cmocka_unit_test(unfinished_messages_are_bounded),
        cmocka_unit_test(an_unfinished_message_is_ended),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
