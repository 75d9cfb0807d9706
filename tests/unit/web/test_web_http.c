/* SPDX-License-Identifier: Apache-2.0 */
/* Requests and their answers, the token, and the settings. */
#include "lib/web_rig.h"

#include <arpa/inet.h>
#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#define GET(path) "GET " path " HTTP/1.1\r\nHost: h\r\n\r\n"

static char buf[65536];

static const char *body_of(const char *answer)
{
    const char *end = strstr(answer, "\r\n\r\n");

    return end ? end + 4 : "";
}

static void the_path_comes_as_it_was_sent(void **state)
{
    struct web_rig rig = {.hold = false};

    (void)state;
    web_rig_open(&rig);
    assert_int_equal(web_ask(&rig, GET("/api/v1/keys/a%2Fb%2e%2E/../%00//x?q=1%262&p"), buf, sizeof(buf)),
                     200);
    assert_string_equal(body_of(buf), "GET|/api/v1/keys/a%2Fb%2e%2E/../%00//x|q=1%262&p||127.0.0.1|");
    assert_non_null(strstr(buf, "\r\nContent-Type: application/json\r\n"));
    assert_int_equal(web_ask(&rig,
                             "POST /p HTTP/1.1\r\nhOST: h\r\ncontent-TYPE:application/json \r\n"
                             "Content-Length: 5\r\n\r\n{\"a\"}",
                             buf, sizeof(buf)),
                     200);
    assert_string_equal(body_of(buf), "POST|/p||application/json|127.0.0.1|{\"a\"}");
    assert_int_equal(web_ask(&rig, "DELETE http://host:1/x HTTP/1.1\r\nHost: h\r\n\r\n", buf, sizeof(buf)),
                     200);
    assert_string_equal(body_of(buf), "DELETE|/x|||127.0.0.1|");
    assert_int_equal(web_ask(&rig, "GET http://host?x=/y HTTP/1.1\r\nHost: h\r\n\r\n", buf, sizeof(buf)),
                     400);
    assert_int_equal(web_ask(&rig, GET("/wrong"), buf, sizeof(buf)), 500);
    web_rig_close(&rig);
}

static void a_connection_carries_many_requests(void **state)
{
    struct web_rig rig = {.hold = false};
    int fd;

    (void)state;
    web_rig_open(&rig);
    fd = web_connect(&rig);
    for (int i = 0; i < 100; i++) {
        web_say(fd, GET("/x"));
        assert_int_equal(web_read_answer(fd, buf, sizeof(buf)), 200);
        assert_non_null(strstr(buf, "Connection: keep-alive"));
    }
    for (int i = 0; i < 50; i++) /* all at once */
        web_say(fd, "POST /y HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc");
    for (int i = 0; i < 50; i++) {
        assert_int_equal(web_read_answer(fd, buf, sizeof(buf)), 200);
        assert_string_equal(body_of(buf), "POST|/y|||127.0.0.1|abc");
    }
    web_say(fd, "GET /z HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
    assert_int_equal(web_read_answer(fd, buf, sizeof(buf)), 200);
    assert_non_null(strstr(buf, "Connection: close"));
    assert_true(web_ends(fd));
    close(fd);
    fd = web_connect(&rig);
    web_say(fd, "GET /z HTTP/1.0\r\n\r\n");
    assert_int_equal(web_read_answer(fd, buf, sizeof(buf)), 200);
    assert_true(web_ends(fd));
    close(fd);
    fd = web_connect(&rig); /* whichever comes last */
    web_say(fd,
            "GET /z HTTP/1.1\r\nHost: h\r\nConnection: close, keep-alive\r\nConnection: keep-alive\r\n\r\n");
    assert_int_equal(web_read_answer(fd, buf, sizeof(buf)), 200);
    assert_non_null(strstr(buf, "Connection: close"));
    assert_true(web_ends(fd));
    close(fd);
    fd = web_connect(&rig); /* in pieces */
    for (const char *at = "HEAD /z HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"; *at; at++) {
        web_send(fd, at, 1);
        usleep(200);
    }
    shutdown(fd, SHUT_WR); /* the answer comes all the same */
    assert_true(web_read_all(fd, buf, sizeof(buf)) > 0);
    assert_string_equal(body_of(buf), "");
    close(fd);
    web_wait_empty(&rig);
    web_rig_close(&rig);
}

static void bodies_have_a_bound(void **state)
{
    struct web_rig rig = {.hold = false};
    char *body = malloc(PST_WEB_BODY_BYTES_MAX + 1), *echo = malloc(PST_WEB_BODY_BYTES_MAX + 1024);
    int fd;

    (void)state;
    memset(body, 'b', PST_WEB_BODY_BYTES_MAX);
    web_rig_open(&rig);
    fd = web_connect(&rig);
    snprintf(buf, sizeof(buf),
             "PUT /x HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n",
             PST_WEB_BODY_BYTES_MAX);
    web_say(fd, buf);
    assert_int_equal(web_read_answer(fd, buf, sizeof(buf)), 100);
    web_send(fd, body, PST_WEB_BODY_BYTES_MAX);
    assert_int_equal(web_read_answer(fd, echo, PST_WEB_BODY_BYTES_MAX + 1024), 200);
    assert_int_equal(strlen(body_of(echo)), strlen("PUT|/x|||127.0.0.1|") + PST_WEB_BODY_BYTES_MAX);
    close(fd);
    fd = web_connect(&rig);
    snprintf(buf, sizeof(buf), "PUT /x HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n",
             PST_WEB_BODY_BYTES_MAX + 1);
    web_say(fd, buf);
    web_send(fd, body, 512 << 10); /* the answer is read nevertheless */
    assert_int_equal(web_read_answer(fd, buf, sizeof(buf)), 413);
    assert_true(web_ends(fd));
    close(fd);
    assert_int_equal(rig.answers, 1);
    web_rig_close(&rig);
    free(body);
    free(echo);
}

static void wrong_requests_are_refused(void **state)
{
    static const struct {
        const char *text;
        int status;
    } cases[] = {
        {"\x01\x02\x03\r\n\r\n", 400},
        {"GET\r\n\r\n", 400},
        {"GET x HTTP/1.1\r\nHost: h\r\n\r\n", 400},
        {"GET /a b HTTP/1.1\r\nHost: h\r\n\r\n", 400},
        {"GET / HTTP/1.1\r\n\r\n", 400},
        {"GET / HTTP/1.1\r\nHost: h\r\nHost: h\r\n\r\n", 400},
        {"GET / HTTP/1.1\r\nHost: h\r\n folded\r\n\r\n", 400},
        {"GET / HTTP/1.1\r\nHost : h\r\n\r\n", 400},
        {"GET / HTTP/1.1\r\nHost: h\r\nX: a\nb\r\n\r\n", 400},
        {"GET / HTTP/2.0\r\nHost: h\r\n\r\n", 505},
        {"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505},
        {"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: -1\r\n\r\n", 400},
        {"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1x\r\n\r\n", 400},
        {"POST / HTTP/1.1\r\nHost: h\r\nContent-Length:\r\n\r\n", 400},
        {"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\na", 400},
        {"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 99999999999999999999999\r\n\r\n", 413},
        {"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n", 411},
        {"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nContent-Length: 1\r\n\r\na", 400},
        {"POST / HTTP/1.1\r\nHost: h\r\nExpect: wonders\r\n\r\n", 417},
    };
    struct web_rig rig = {.hold = false};

    (void)state;
    web_rig_open(&rig);
    for (size_t i = 0; i < pst_count_of(cases); i++) {
        int fd = web_connect(&rig), status;

        web_say(fd, cases[i].text);
        status = web_read_answer(fd, buf, sizeof(buf));
        if (status != cases[i].status)
            fail_msg("%s: %d", cases[i].text, status);
        assert_true(web_ends(fd));
        close(fd);
    }
    assert_int_equal(rig.answers, 0);
    web_wait_empty(&rig);
    web_rig_close(&rig);
}

static void without_the_token_there_is_nothing(void **state)
{
    struct web_rig rig = {.settings = {.token = {"s3cret", 6}, .token_on_loopback = true}};
    int status;

    (void)state;
    web_rig_open(&rig);
    assert_int_equal(web_ask(&rig, GET("/x"), buf, sizeof(buf)), 401);
    assert_non_null(strstr(buf, "WWW-Authenticate: Bearer"));
    assert_int_equal(web_ask(&rig, GET("/x?token=s3cret"), buf, sizeof(buf)), 401);
    assert_int_equal(
        web_ask(&rig, "GET / HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer s3cre\r\n\r\n", buf, sizeof(buf)),
        401);
    assert_int_equal(web_ask(&rig, "GET / HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer s3crets3cret\r\n\r\n",
                             buf, sizeof(buf)),
                     401);
    assert_int_equal(
        web_ask(&rig, "GET / HTTP/1.1\r\nHost: h\r\nAuthorization: Basic s3cret\r\n\r\n", buf, sizeof(buf)),
        401);
    assert_int_equal(
        web_ask(&rig, "GET / HTTP/1.1\r\nHost: h\r\nAuthorization: bearer s3cret\r\n\r\n", buf, sizeof(buf)),
        200);
    close(web_upgrade(&rig, "/ws/x", "", &status));
    assert_int_equal(status, 401);
    close(web_upgrade(&rig, "/ws/x?token=wrong!", "", &status));
    assert_int_equal(status, 401);
    close(web_upgrade(&rig, "/ws/x?a=b&token=s3%63ret", "", &status));
    assert_int_equal(status, 101);
    close(web_upgrade(&rig, "/ws/x", "Authorization: Bearer s3cret\r\n", &status));
    assert_int_equal(status, 101);
    assert_int_equal(rig.answers, 1);
    web_rig_close(&rig);

    rig = (struct web_rig){.settings = {.token = {"s3cret", 6}}};
    web_rig_open(&rig); /* loopback needs none unless told */
    assert_int_equal(web_ask(&rig, GET("/x"), buf, sizeof(buf)), 200);
    web_rig_close(&rig);
}

/* The loopback device of a network of this thread's own gets another address. Return: whether it could. */
static bool enter_network(void)
{
    struct ifreq request = {.ifr_name = "lo"};
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(0xc0000201)};
    int fd = -1;
    bool good;

    if (unshare(CLONE_NEWNET) != 0)
        return false;
    fd = socket(AF_INET, SOCK_DGRAM, 0);
    request.ifr_flags = IFF_UP | IFF_RUNNING | IFF_LOOPBACK;
    good = ioctl(fd, SIOCSIFFLAGS, &request) == 0;
    strcpy(request.ifr_name, "lo:1");
    memcpy(&request.ifr_addr, &address, sizeof(address));
    good = good && ioctl(fd, SIOCSIFADDR, &request) == 0;
    close(fd);
    return good;
}

static int ask_from_outside(struct web_rig *rig, const char *request)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_addr.s_addr = htonl(0xc0000201),
                                  .sin_port = htons(pst_web_port(rig->web))};
    int fd = socket(AF_INET, SOCK_STREAM, 0), status;

    assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    web_say(fd, request);
    status = web_read_answer(fd, buf, sizeof(buf));
    close(fd);
    return status;
}

/* The last one, as this thread does not come back from its network. */
static void off_loopback_the_token_is_needed(void **state)
{
    struct web_rig rig = {.settings = {.token = {"s3cret", 6}, .tunnels = {{"/rsync/", "127.0.0.1:1"}}}};

    (void)state;
    if (!enter_network())
        skip();
    for (int v6 = 0; v6 < 2; v6++) { /* there an IPv4 address is mapped */
        rig.settings.listen = v6 ? "[::]:0" : "0.0.0.0:0";
        web_rig_open(&rig);
        assert_int_equal(web_ask(&rig, GET("/x"), buf, sizeof(buf)), 200);
        assert_int_equal(ask_from_outside(&rig, GET("/x")), 401);
        assert_int_equal(
            ask_from_outside(&rig, "GET /x HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer s3cret\r\n\r\n"),
            200);
        assert_non_null(strstr(buf, "|192.0.2.1|"));
        assert_int_equal(ask_from_outside(&rig, "@RSYNCD: 31.0\n"), 0);
        web_rig_close(&rig);
    }
}

static void settings_are_checked(void **state)
{
    static const struct pst_web_settings wrong[] = {
        {.listen = NULL},
        {.listen = "nowhere"},
        {.listen = "/tmp/unix"},
        {.listen = "127.0.0.1:0", .certificate = "x"},
        {.listen = "127.0.0.1:0", .certificate = "/nowhere", .private_key = "/nowhere"},
        {.listen = "127.0.0.1:0", .tunnels = {{"rsync", "127.0.0.1:1"}}},
        {.listen = "127.0.0.1:0", .tunnels = {{"/rsync/", "127.0.0.1:0"}}},
        {.listen = "127.0.0.1:0", .tunnels = {{"/rsync/", "127.0.0.1"}}},
        {.listen = "127.0.0.1:0", .connections_max = 1 << 20},
        /* No certificate at all. */
        {.listen = "127.0.0.1:0", .certificate = "/proc/self/status", .private_key = "/proc/self/status"},
    };
    struct web_rig rig = {.hold = false};
    struct pst_web_settings taken = {0};
    char address[32];

    (void)state;
    web_rig_open(&rig);
    for (size_t i = 0; i < pst_count_of(wrong); i++) {
        static const struct pst_web_ops ops = {.answer = (void *)exit};
        struct pst_web *web = NULL;
        const char *fault = NULL;

        assert_true(pst_web_open(&wrong[i], &ops, NULL, &web, &fault) < 0);
        assert_true(fault && !web);
    }
    snprintf(address, sizeof(address), "127.0.0.1:%u", pst_web_port(rig.web));
    taken.listen = address;
    {
        static const struct pst_web_ops ops = {.answer = (void *)exit};
        struct pst_web *web = NULL;
        const char *fault = NULL;

        assert_int_equal(pst_web_open(&taken, &ops, NULL, &web, &fault), -EADDRINUSE);
        assert_string_equal(fault, "another process listens there");
    }
    assert_null(pst_web_close(NULL));
    web_rig_close(&rig);
}

static void queries_are_decoded_once(void **state)
{
    struct pst_bytes query = {"a=1&b=x%2520y+z&c&aa=&d=%zz&e=%00", 33};
    char text[16];

    (void)state;
    assert_int_equal(pst_web_query(query, "a", text, sizeof(text)), 1);
    assert_int_equal(pst_web_query(query, "b", text, sizeof(text)), 7);
    assert_string_equal(text, "x%20y z");
    assert_int_equal(pst_web_query(query, "b", text, 7), -ENOSPC);
    assert_int_equal(pst_web_query(query, "c", text, sizeof(text)), 0);
    assert_int_equal(pst_web_query(query, "aa", text, sizeof(text)), 0);
    assert_int_equal(pst_web_query(query, "d", text, sizeof(text)), -EINVAL);
    assert_int_equal(pst_web_query(query, "e", text, sizeof(text)), -EINVAL);
    assert_int_equal(pst_web_query(query, "x", text, sizeof(text)), -ENOENT);
    assert_int_equal(pst_web_decode((struct pst_bytes){"a+b%4", 5}, false, text, sizeof(text)), -EINVAL);
    assert_int_equal(pst_web_decode((struct pst_bytes){"a+b%4a", 6}, false, text, sizeof(text)), 4);
    assert_string_equal(text, "a+bJ");
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_path_comes_as_it_was_sent),
        cmocka_unit_test(a_connection_carries_many_requests),
        cmocka_unit_test(bodies_have_a_bound),
        cmocka_unit_test(wrong_requests_are_refused),
        cmocka_unit_test(without_the_token_there_is_nothing),
        cmocka_unit_test(settings_are_checked),
        cmocka_unit_test(queries_are_decoded_once),
        cmocka_unit_test(off_loopback_the_token_is_needed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
