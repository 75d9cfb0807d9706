/* SPDX-License-Identifier: Apache-2.0 */
/* test_acceptor.c: connections with a thread each, and their end. */
#include "net/acceptor.h"

#include "lib/cm.h"

#include <netinet/in.h>
#include <poll.h>
#include <stdatomic.h>
#include <sys/socket.h>

enum { MOST = 3 };

static atomic_int served, ended;

/* Echoes bytes until the connection ends, each with its listener's number. */
static void serve(void *ctx, int fd, uint32_t listener)
{
    char byte;

    assert_ptr_equal(ctx, &served);
    served++;
    while (recv(fd, &byte, 1, 0) == 1) {
        byte = (char)(byte + (char)listener);
        assert_int_equal(send(fd, &byte, 1, MSG_NOSIGNAL), 1);
    }
    ended++;
}

static void refuse(void *ctx, int fd, uint32_t listener)
{
    (void)ctx;
    (void)listener;
    send(fd, "!", 1, MSG_NOSIGNAL);
}

static int listen_somewhere(struct sockaddr_in *at)
{
    socklen_t bytes = sizeof(*at);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);

    *at = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    assert_int_equal(bind(fd, (struct sockaddr *)at, sizeof(*at)), 0);
    assert_int_equal(listen(fd, 16), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)at, &bytes), 0);
    return fd;
}

static int dial(const struct sockaddr_in *at)
{
    int fd = socket(AF_INET, SOCK_STREAM, 0);

    assert_int_equal(connect(fd, (const struct sockaddr *)at, sizeof(*at)), 0);
    return fd;
}

/* The next byte that comes; 0: the end. */
static char next_of(int fd)
{
    char byte = 0;

    assert_true(recv(fd, &byte, 1, 0) >= 0);
    return byte;
}

static char echo_of(int fd, char byte)
{
    assert_int_equal(send(fd, &byte, 1, MSG_NOSIGNAL), 1);
    return next_of(fd);
}

/* A connection that echoes: the place of one that was closed is free once its thread has ended. */
static int dial_served(const struct sockaddr_in *at)
{
    for (;;) {
        char byte = 0;
        int fd = dial(at);

        if (send(fd, "a", 1, MSG_NOSIGNAL) == 1 && recv(fd, &byte, 1, 0) == 1 && byte == 'a')
            return fd;
        close(fd);
    }
}

static void connections_come_and_go(void **state)
{
    static const struct pst_acceptor_ops ops = {.serve = serve, .refuse = refuse};
    struct sockaddr_in at[2];
    struct pst_acceptor_listener listeners[2];
    struct pst_acceptor *acceptor = NULL;
    int clients[MOST], other, late;

    (void)state;
    for (int i = 0; i < 2; i++)
        listeners[i] = (struct pst_acceptor_listener){listen_somewhere(&at[i]), MOST, false};
    assert_int_equal(pst_acceptor_open(listeners, 2, &ops, &served, &acceptor), 0);
    for (int i = 0; i < MOST; i++) {
        clients[i] = dial(&at[0]);
        assert_int_equal(echo_of(clients[i], 'a'), 'a');
    }
    late = dial(&at[0]);
    assert_int_equal(next_of(late), '!');
    assert_int_equal(next_of(late), 0);
    close(late);
    other = dial(&at[1]); /* has a bound of its own */
    assert_int_equal(echo_of(other, 'a'), 'b');
    close(clients[0]);
    while (ended < 1)
        poll(NULL, 0, 1);
    late = dial_served(&at[0]);
    pst_acceptor_stop(acceptor);
    assert_int_equal(echo_of(clients[1], 'x'), 'x'); /* those that are there go on */
    assert_null(pst_acceptor_close(acceptor));
    assert_int_equal(ended, served);
    assert_int_equal(next_of(clients[1]), 0);
    close(clients[1]);
    close(clients[2]);
    close(late);
    close(other);
    close(listeners[0].fd);
    close(listeners[1].fd);
    assert_null(pst_acceptor_close(NULL));
}

/* The first byte of a client is its greeting; with an 'i' it says that it is idle. */
static void keep(void *ctx, int fd, uint32_t listener)
{
    struct pst_acceptor **acceptor = ctx;
    char byte;

    (void)listener;
    while (recv(fd, &byte, 1, 0) == 1) {
        pst_acceptor_keep(*acceptor, fd);
        if (byte == 'i')
            pst_acceptor_let_yield(*acceptor, fd);
        pst_assert(send(fd, &byte, 1, MSG_NOSIGNAL) == 1);
    }
}

static void who_has_not_greeted_makes_room(void **state)
{
    static const struct pst_acceptor_ops ops = {.serve = keep, .refuse = refuse};
    struct pst_acceptor *acceptor = NULL;
    struct sockaddr_in at;
    struct pst_acceptor_listener listener = {listen_somewhere(&at), MOST, true};
    int known, silent[4 * MOST];

    (void)state;
    assert_int_equal(pst_acceptor_open(&listener, 1, &ops, &acceptor, &acceptor), 0);
    known = dial(&at);
    assert_int_equal(echo_of(known, 'k'), 'k');
    for (size_t i = 0; i < pst_count_of(silent); i++)
        silent[i] = dial(&at);
    assert_int_equal(next_of(silent[0]), 0); /* the oldest */
    for (int i = 0; i < 20; i++)
        close(dial_served(&at));
    assert_int_equal(echo_of(known, 'k'), 'k');
    assert_null(pst_acceptor_close(acceptor));
    for (size_t i = 0; i < pst_count_of(silent); i++)
        close(silent[i]);
    close(known);
    close(listener.fd);
}

static void who_is_idle_makes_room(void **state)
{
    static const struct pst_acceptor_ops ops = {.serve = keep, .refuse = refuse};
    struct pst_acceptor *acceptor = NULL;
    struct sockaddr_in at;
    struct pst_acceptor_listener listener = {listen_somewhere(&at), MOST, true};
    int clients[MOST], late;

    (void)state;
    assert_int_equal(pst_acceptor_open(&listener, 1, &ops, &acceptor, &acceptor), 0);
    for (int i = 0; i < MOST; i++) {
        clients[i] = dial(&at);
        assert_int_equal(echo_of(clients[i], i == 1 ? 'i' : 'k'), i == 1 ? 'i' : 'k');
    }
    late = dial(&at);
    assert_int_equal(echo_of(late, 'k'), 'k');
    assert_int_equal(next_of(clients[1]), 0);
    for (int i = 0; i < MOST; i++)
        if (i != 1)
            assert_int_equal(echo_of(clients[i], 'k'), 'k');
    assert_null(pst_acceptor_close(acceptor));
    for (int i = 0; i < MOST; i++)
        close(clients[i]);
    close(late);
    close(listener.fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(connections_come_and_go),
                                       cmocka_unit_test(who_has_not_greeted_makes_room),
                                       cmocka_unit_test(who_is_idle_makes_room)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
