/* SPDX-License-Identifier: Apache-2.0 */
/* test_rsync_front.c: what passes between a client and the daemon, once both have said what they want. */
#include "files/rsync/front.h"

#include "lib/cm.h"

#include <arpa/inet.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

enum { MUCH_BYTES = 48 << 20, PIECE_BYTES = 64 << 10, PATIENCE_S = 20 };

static int daemon_fd, daemon_port; /* it listens */

static int port_of(int fd)
{
    struct sockaddr_in at;
    socklen_t bytes = sizeof(at);

    assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &bytes), 0);
    return ntohs(at.sin_port);
}

static int begin_listening(void)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&at, sizeof(at)), 0);
    assert_int_equal(listen(fd, 8), 0);
    return fd;
}

/* Nothing that goes on waits for so long. */
static void be_patient(int fd)
{
    const struct timeval patience = {.tv_sec = (time_t)PATIENCE_S * slowness()};

    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)), 0);
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience)), 0);
}

static int daemon_port_of(void *ctx)
{
    (void)ctx;
    return daemon_port;
}

static void no_place(void *ctx, const char *path, char place[PST_RSYNC_FRONT_PLACE_BYTES])
{
    (void)ctx;
    snprintf(place, PST_RSYNC_FRONT_PLACE_BYTES, "none/%.1000s", path);
}

static bool say(int fd, const char *text)
{
    return send(fd, text, strlen(text), MSG_NOSIGNAL) == (ssize_t)strlen(text);
}

/* Return: whether a line came. */
static bool hear_line(int fd)
{
    char letter = 0;

    while (letter != '\n') {
        if (recv(fd, &letter, 1, 0) != 1)
            return false;
    }
    return true;
}

static char byte_at(size_t at)
{
    return (char)(at % 251);
}

/* Return: bytes that were sent; MUCH_BYTES, or it stood. */
static size_t send_much(int fd)
{
    char piece[PIECE_BYTES];
    size_t sent = 0;

    while (sent < MUCH_BYTES) {
        ssize_t n;

        for (size_t i = 0; i < sizeof(piece); i++)
            piece[i] = byte_at(sent + i);
        n = send(fd, piece, pst_min(sizeof(piece), (size_t)MUCH_BYTES - sent), MSG_NOSIGNAL);
        if (n <= 0)
            break;
        sent += (size_t)n;
    }
    return sent;
}

/* Return: bytes that came as they were sent. */
static size_t receive_much(int fd)
{
    char piece[PIECE_BYTES];
    size_t got = 0;
    ssize_t n;

    while (got < MUCH_BYTES && (n = recv(fd, piece, sizeof(piece), 0)) > 0) {
        for (ssize_t i = 0; i < n; i++) {
            if (piece[i] != byte_at(got + (size_t)i))
                return got;
        }
        got += (size_t)n;
    }
    return got;
}

struct part {
    int fd;
    size_t sent, received;
    bool ended;
};

/* A daemon that takes nothing while it has something to send, as rsync's sender. */
static void *daemon_run(void *ctx)
{
    struct part *part = ctx;
    char byte;

    part->fd = accept4(daemon_fd, NULL, NULL, SOCK_CLOEXEC);
    be_patient(part->fd);
    if (say(part->fd, "@RSYNCD: 31.0\n") && hear_line(part->fd) && hear_line(part->fd)) {
        part->sent = send_much(part->fd);
        part->received = receive_much(part->fd);
        part->ended = recv(part->fd, &byte, 1, 0) == 0;
    }
    close(part->fd);
    return NULL;
}

static void *client_send(void *ctx)
{
    struct part *part = ctx;

    part->sent = send_much(part->fd);
    shutdown(part->fd, SHUT_WR);
    return NULL;
}

static int connect_to(int port)
{
    struct sockaddr_in at = {
        .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons((uint16_t)port)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    assert_int_equal(connect(fd, (struct sockaddr *)&at, sizeof(at)), 0);
    be_patient(fd);
    return fd;
}

/* A client asks for far more than the daemon has sent by then: sums of files that it has in other versions.
 */
static void both_directions_go_on_by_themselves(void **state)
{
    static const struct pst_rsync_front_ops ops = {.daemon = daemon_port_of, .place = no_place};
    struct part at_daemon = {0}, at_client = {0};
    pthread_t daemon_thread, sender;
    struct pst_rsync_front *front;
    int fd = begin_listening(), port = port_of(fd);
    char byte;

    (void)state;
    daemon_fd = begin_listening();
    daemon_port = port_of(daemon_fd);
    assert_int_equal(pst_rsync_front_open(fd, "127.0.0.1", &ops, NULL, &front), 0);
    assert_int_equal(pthread_create(&daemon_thread, NULL, daemon_run, &at_daemon), 0);
    at_client.fd = connect_to(port);
    assert_true(hear_line(at_client.fd));
    assert_true(say(at_client.fd, "@RSYNCD: 31.0\nother\n"));
    assert_int_equal(pthread_create(&sender, NULL, client_send, &at_client), 0);
    at_client.received = receive_much(at_client.fd);
    at_client.ended = recv(at_client.fd, &byte, 1, 0) == 0;
    pthread_join(sender, NULL);
    pthread_join(daemon_thread, NULL);
    pst_rsync_front_close(front);
    close(at_client.fd);
    close(daemon_fd);
    assert_int_equal(at_client.received, MUCH_BYTES);
    assert_int_equal(at_daemon.received, MUCH_BYTES);
    assert_int_equal(at_daemon.sent, MUCH_BYTES);
    assert_int_equal(at_client.sent, MUCH_BYTES);
    assert_true(at_daemon.ended && at_client.ended);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_directions_go_on_by_themselves),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
