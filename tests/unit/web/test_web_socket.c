/* SPDX-License-Identifier: Apache-2.0 */
/* WebSockets of the owner's: messages both ways, frames of every kind, and clients that take nothing. */
#include "lib/web_rig.h"

#include <sys/socket.h>

static char buf[2 << 20];

/* Return: the opcode with its final bit, as text in buf. */
static int next_frame(int fd)
{
    size_t bytes = 0;
    int head = web_frame_read(fd, buf, sizeof(buf) - 1, &bytes);

    buf[bytes] = 0;
    return head;
}

static int open_socket(struct web_rig *rig)
{
    int status, fd = web_upgrade(rig, "/ws/broadcast/g%2F1", "", &status);

    assert_int_equal(status, 101);
    web_wait_count(&rig->opens, rig->closes + 1);
    return fd;
}

/* What the server closes with, after whatever it had still to say. */
static int close_code(int fd)
{
    int head;

    do
        head = next_frame(fd);
    while (head >= 0 && head != (FRAME_FINAL | FRAME_CLOSE));
    return head < 0 ? -1 : (uint8_t)buf[0] << 8 | (uint8_t)buf[1];
}

static void texts_go_both_ways(void **state)
{
    struct web_rig rig = {.hold = false};
    char *large = malloc(PST_WEB_MESSAGE_BYTES_MAX + 1);
    int fd;

    (void)state;
    web_rig_open(&rig);
    fd = open_socket(&rig);
    web_frame(fd, FRAME_FINAL | FRAME_TEXT, "{\"action\":\"join\"}", 17);
    assert_int_equal(next_frame(fd), FRAME_FINAL | FRAME_TEXT);
    assert_string_equal(buf, "{\"action\":\"join\"}");
    web_frame(fd, FRAME_FINAL | FRAME_TEXT, "", 0);
    assert_int_equal(next_frame(fd), FRAME_FINAL | FRAME_TEXT);
    assert_string_equal(buf, "");
    memset(large, 'x', PST_WEB_MESSAGE_BYTES_MAX);
    large[PST_WEB_MESSAGE_BYTES_MAX] = 0;
    web_frame(fd, FRAME_FINAL | FRAME_TEXT, large, PST_WEB_MESSAGE_BYTES_MAX);
    assert_int_equal(next_frame(fd), FRAME_FINAL | FRAME_TEXT);
    assert_string_equal(buf, large);
    assert_int_equal(pst_web_socket_send(rig.last, "from another thread"), 0);
    assert_int_equal(next_frame(fd), FRAME_FINAL | FRAME_TEXT);
    assert_string_equal(buf, "from another thread");
    web_frame(fd, FRAME_FINAL | FRAME_TEXT, "bye", 3);
    assert_int_equal(next_frame(fd), FRAME_FINAL | FRAME_TEXT);
    assert_int_equal(close_code(fd), 1000);
    close(fd);
    web_wait_count(&rig.closes, 1);
    web_wait_empty(&rig);
    web_rig_close(&rig);
    free(large);
}

static void a_message_comes_in_fragments(void **state)
{
    struct web_rig rig = {.hold = false};
    int fd;

    (void)state;
    web_rig_open(&rig);
    fd = open_socket(&rig);
    web_frame(fd, FRAME_TEXT, "a\xc3", 2);
    web_frame(fd, FRAME_FINAL | FRAME_PING, "p", 1);
    web_frame(fd, FRAME_MORE, "\xa9", 1);
    web_frame(fd, FRAME_FINAL | FRAME_MORE, "z", 1);
    assert_int_equal(next_frame(fd), FRAME_FINAL | FRAME_PONG);
    assert_string_equal(buf, "p");
    assert_int_equal(next_frame(fd), FRAME_FINAL | FRAME_TEXT);
    assert_string_equal(buf, "a\xc3\xa9z");
    web_frame(fd, FRAME_FINAL | FRAME_PONG, "unasked", 7);
    web_frame(fd, FRAME_FINAL | FRAME_CLOSE, "\x03\xe8", 2);
    assert_int_equal(close_code(fd), 1000);
    assert_true(web_ends(fd));
    close(fd);
    web_wait_count(&rig.closes, 1);
    web_rig_close(&rig);
}

static void bad_frames_end_the_socket(void **state)
{
    static const struct {
        uint8_t head;
        const char *data;
        size_t bytes;
    } cases[] = {
        {FRAME_FINAL | FRAME_BINARY, "b", 1},
        {FRAME_FINAL | FRAME_TEXT, "\xff", 1},
        {FRAME_FINAL | FRAME_TEXT, "\xc3", 1},
        {FRAME_FINAL | FRAME_TEXT, "\xed\xa0\x80", 3},
        {FRAME_FINAL | FRAME_MORE, "m", 1},
        {FRAME_FINAL | 0x3, "r", 1},
        {FRAME_FINAL | 0xb, "r", 1},
        {FRAME_PING, "p", 1},
        {FRAME_FINAL | 0x40 | FRAME_TEXT, "r", 1},
        {FRAME_FINAL | FRAME_CLOSE, "\x00\x01", 2},
    };
    static const uint8_t long_ping[] = {FRAME_FINAL | FRAME_PING, 0x80 | 126, 1, 0, 0, 0, 0, 0};
    static const uint8_t endless[] = {
        FRAME_FINAL | FRAME_TEXT, 0x80 | 127, 0xff, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0};
    struct web_rig rig = {.hold = false};
    char *large = calloc(1, PST_WEB_MESSAGE_BYTES_MAX + 1);
    int fd;

    (void)state;
    web_rig_open(&rig);
    for (size_t i = 0; i < pst_count_of(cases); i++) {
        fd = open_socket(&rig);
        web_frame(fd, cases[i].head, cases[i].data, cases[i].bytes);
        (void)close_code(fd); /* libwebsockets has one for some; it waits 5 s for the client's */
        close(fd);
        web_wait_count(&rig.closes, rig.opens);
    }
    fd = open_socket(&rig);
    web_send(fd, long_ping, sizeof(long_ping));
    (void)close_code(fd);
    close(fd);
    fd = open_socket(&rig);
    web_send(fd, endless, sizeof(endless));
    (void)close_code(fd);
    close(fd);
    fd = open_socket(&rig);
    memset(large, 'x', PST_WEB_MESSAGE_BYTES_MAX + 1);
    web_frame(fd, FRAME_FINAL | FRAME_TEXT, large, PST_WEB_MESSAGE_BYTES_MAX + 1);
    assert_int_equal(close_code(fd), 1009);
    close(fd);
    assert_int_equal(rig.messages, 0);
    fd = open_socket(&rig); /* no mask: it may be taken or refused */
    web_send(fd, "\x81\x02hi", 4);
    web_frame(fd, FRAME_FINAL | FRAME_CLOSE, "\x03\xe8", 2);
    assert_true(web_ends(fd));
    close(fd);
    web_wait_empty(&rig);
    web_rig_close(&rig);
    free(large);
}

static void wrong_heads_get_no_socket(void **state)
{
    struct web_rig rig = {.hold = false};
    int fd, status;

    (void)state;
    web_rig_open(&rig);
    close(web_upgrade(&rig, "/other", "", &status));
    assert_int_equal(status, 404);
    close(web_upgrade(&rig, "/rsync/default/", "", &status)); /* no tunnel in these settings */
    assert_int_equal(status, 404);
    close(web_upgrade(&rig, "/ws/x", "Sec-WebSocket-Version: 8\r\n", &status));
    assert_int_equal(status, 400);
    close(web_upgrade(&rig, "/ws/x", "Content-Length: 4\r\n", &status));
    assert_int_equal(status, 400);
    fd = web_connect(&rig);
    web_say(fd, "GET /ws/x HTTP/1.1\r\nHost: h\r\nUpgrade: websocket\r\nConnection: x, upgrade\r\n"
                "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 8\r\n\r\n");
    assert_int_equal(web_read_answer(fd, buf, sizeof(buf)), 426);
    close(fd);
    fd = web_connect(&rig);
    web_say(fd, "GET /ws/x HTTP/1.1\r\nHost: h\r\nUpgrade: websocket\r\nConnection: upgrade\r\n"
                "Sec-WebSocket-Key: short\r\nSec-WebSocket-Version: 13\r\n\r\n");
    assert_int_equal(web_read_answer(fd, buf, sizeof(buf)), 400);
    close(fd);
    fd = web_upgrade(&rig, "/ws/deny", "", &status);
    assert_true(web_ends(fd));
    close(fd);
    fd = web_connect(&rig); /* the first frame comes along */
    web_say(fd, "GET /ws/x HTTP/1.1\r\nHost: h\r\nUpgrade: websocket\r\nConnection: upgrade\r\n"
                "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
                "\x81\x85\x01\x01\x01\x01idmmn");
    assert_int_equal(web_read_answer(fd, buf, sizeof(buf)), 101);
    assert_int_equal(next_frame(fd), FRAME_FINAL | FRAME_TEXT);
    assert_string_equal(buf, "hello");
    close(fd);
    web_wait_empty(&rig);
    web_rig_close(&rig);
}

/* Sends to a client that reads nothing. Return: how many texts of 64 KiB it was until the socket ended. */
static int send_unread(struct web_rig *rig, int most)
{
    static char text[64 << 10];
    int fd = open_socket(rig), small = 4096, count = 0;

    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small));
    memset(text, 'x', sizeof(text) - 1);
    for (int r = 0; r == 0 && count < most; count++) {
        struct pst_web_socket *socket = rig->last;

        r = socket ? pst_web_socket_send(socket, text) : -EPIPE;
        assert_true(r == 0 || r == -ENOBUFS);
        usleep(2000); /* the kernel takes some first */
    }
    web_wait_count(&rig->closes, rig->opens);
    close(fd);
    return count;
}

static void a_client_that_takes_nothing_is_closed(void **state)
{
    struct web_rig rig = {.hold = false};
    int count;

    (void)state;
    web_rig_open(&rig);
    count = send_unread(&rig, 100000); /* more than the queue takes */
    assert_true(count > 16 && count < 10000);
    assert_int_equal(send_unread(&rig, count - 8), count - 8); /* less, but for too long */
    web_wait_empty(&rig);
    web_rig_close(&rig);
}

static void an_open_socket_ends_with_the_server(void **state)
{
    struct web_rig rig = {.hold = false};
    int fds[8];

    (void)state;
    web_rig_open(&rig);
    for (int i = 0; i < 8; i++)
        fds[i] = open_socket(&rig);
    assert_int_equal(pst_web_socket_send(rig.last, "unsent, perhaps"), 0);
    web_rig_close(&rig);
    for (int i = 0; i < 8; i++) {
        assert_true(web_ends(fds[i]));
        close(fds[i]);
    }
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_go_both_ways),
        cmocka_unit_test(a_message_comes_in_fragments),
        cmocka_unit_test(bad_frames_end_the_socket),
        cmocka_unit_test(wrong_heads_get_no_socket),
        cmocka_unit_test(a_client_that_takes_nothing_is_closed),
        cmocka_unit_test(an_open_socket_ends_with_the_server),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
