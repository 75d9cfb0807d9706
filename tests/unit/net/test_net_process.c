/* SPDX-License-Identifier: Apache-2.0 */
/* The transport UCX between two processes, and what one shows of itself to its host. */
#include "lib/net_sides.h"

#include <dirent.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/wait.h>

static void exchange(int fd, struct side *side)
{
    uint8_t address[PST_NET_ADDRESS_BYTES_MAX] = {0};

    assert_true(pst_port_address(side->port, network, address, sizeof(address)) > 0);
    assert_int_equal(send(fd, address, sizeof(address), MSG_NOSIGNAL), sizeof(address));
    assert_int_equal(recv(fd, address, sizeof(address), MSG_WAITALL), sizeof(address));
    assert_int_equal(pst_peer_open(side->port, address, sizeof(address), side, &side->peer), 0);
}

static struct side *process_side(int fd, struct pst_net **net)
{
    struct side *side = calloc(1, sizeof(*side));

    *net = net_open();
    assert_int_equal(pst_port_open(*net, EVENTS_MAX, &side->port), 0);
    exchange(fd, side);
    return side;
}

/* Answers eager messages with the same, receives bulk ones and sends them back, until it is told to quit or
 * killed. */
static void echo(int fd)
{
    struct pst_net *net;
    struct side *side = process_side(fd, &net);
    uint64_t deadline_ns = pst_now_ns() + 60 * SECOND_NS;

    while (pst_now_ns() < deadline_ns) {
        struct pst_net_event e;

        side_poll(side);
        while (side_find(side, PST_NET_EAGER, &e)) {
            uint8_t *copy = malloc(e.data.len + 1), header[PST_NET_HEADER_BYTES_MAX];

            if (e.header.len == 4 && memcmp(e.header.data, "quit", 4) == 0) {
                pst_msg_free(e.msg);
                pst_port_close(side->port);
                pst_net_close(net);
                _exit(0);
            }
            memcpy(copy, e.data.data, e.data.len);
            memcpy(header, e.header.data, e.header.len);
            pst_msg_free(e.msg);
            if (pst_peer_send(side->peer, bytes_of(header, e.header.len), bytes_of(copy, e.data.len), copy) ==
                1)
                free(copy);
        }
        while (side_find(side, PST_NET_BULK, &e)) {
            struct iovec *iov = malloc(sizeof(*iov));

            *iov = (struct iovec){.iov_base = malloc(e.data.len), .iov_len = e.data.len};
            pst_msg_receive(e.msg, iov, 1, iov);
        }
        while (side_find(side, PST_NET_RECEIVED, &e)) {
            struct iovec *iov = e.arg;

            pst_peer_send_bulk(side->peer, bytes_of("back", 4), iov, 1, iov->iov_base);
            free(iov);
        }
        while (side_find(side, PST_NET_SENT, &e))
            free(e.arg);
    }
    _exit(1);
}

static struct side *child_start(pid_t *pid, int *fd, struct pst_net **net)
{
    int fds[2];

    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    *pid = fork();
    assert_true(*pid >= 0);
    if (*pid == 0) {
        close(fds[0]);
        echo(fds[1]);
    }
    close(fds[1]);
    *fd = fds[0];
    return process_side(fds[0], net);
}

static void side_end(struct side *side, struct pst_net *net, int fd)
{
    pst_port_close(side->port);
    pst_net_close(net);
    close(fd);
    free(side);
}

static void two_processes(void **state)
{
    static const size_t sizes[] = {0, 100, 5000, 8192, 65536, PST_NET_EAGER_BYTES_MAX};
    uint8_t *out = malloc(64 << 20), *in = malloc(64 << 20);
    struct pst_net_event event;
    struct pst_net *net;
    struct side *side;
    int fd, status;
    pid_t pid;

    (void)state;
    side = child_start(&pid, &fd, &net);
    assert_string_equal(pst_peer_lane(side->peer), network ? "tcp" : "posix");
    fill(out, 64 << 20, 9);
    for (size_t i = 0; i < pst_count_of(sizes) * pst_count_of(header_sizes); i++) {
        size_t h = header_sizes[i % pst_count_of(header_sizes)], d = sizes[i / pst_count_of(header_sizes)];
        int r = pst_peer_send(side->peer, bytes_of(out + 7, h), bytes_of(out, d), NULL);

        assert_true(r >= 0);
        event = await(side, NULL, PST_NET_EAGER);
        assert_int_equal(event.header.len, h);
        assert_int_equal(event.data.len, d);
        assert_true(memcmp(event.header.data, out + 7, h) == 0 && memcmp(event.data.data, out, d) == 0);
        pst_msg_free(event.msg);
        if (r == 0)
            await(side, NULL, PST_NET_SENT);
    }
    for (size_t len = 1; len <= 64 << 20; len *= 64) {
        struct iovec iov = {.iov_base = out, .iov_len = len};

        assert_int_equal(pst_peer_send_bulk(side->peer, bytes_of("go", 2), &iov, 1, NULL), 0);
        event = await(side, NULL, PST_NET_BULK);
        assert_int_equal(event.data.len, len);
        iov.iov_base = in;
        assert_int_equal(pst_msg_receive(event.msg, &iov, 1, NULL), 0);
        assert_int_equal(await(side, NULL, PST_NET_RECEIVED).status, 0);
        assert_int_equal(await(side, NULL, PST_NET_SENT).status, 0);
        assert_true(memcmp(in, out, len) == 0);
    }
    assert_true(pst_peer_send(side->peer, bytes_of("quit", 4), bytes_of("", 0), NULL) >= 0);
    for (int i = 0; waitpid(pid, &status, WNOHANG) == 0 && i < 20000; i++) {
        side_poll(side);
        poll(NULL, 0, 1);
    }
    assert_int_equal(status, 0);
    side_end(side, net, fd);
    free(out);
    free(in);
}

static void peer_killed_in_transfer(void **state)
{
    enum { LEN = 64 << 20, COUNT = 8 };
    uint8_t *out = calloc(1, LEN);
    struct iovec iov = {.iov_base = out, .iov_len = LEN};
    struct pst_net_event event;
    struct pst_net *net;
    struct side *side;
    int fd, ends;
    pid_t pid;

    (void)state;
    side = child_start(&pid, &fd, &net);
    for (int i = 0; i < COUNT; i++)
        assert_int_equal(pst_peer_send_bulk(side->peer, bytes_of("go", 2), &iov, 1, NULL), 0);
    event = await(side, NULL, PST_NET_BULK);
    assert_int_equal(pst_msg_receive(event.msg, &iov, 1, NULL), 0);
    for (int i = 0; i < 5; i++)
        side_poll(side);
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    if (strcmp(pst_peer_lane(side->peer), "tcp") == 0) { /* else a socket beside it tells */
        event = await(side, NULL, PST_NET_PEER_LOST);
        assert_ptr_equal(event.arg, side);
        assert_int_equal(event.status, -ECONNRESET);
        assert_int_equal(pst_peer_send(side->peer, bytes_of("x", 1), bytes_of("", 0), NULL), -ECONNRESET);
        assert_int_equal(pst_peer_send_bulk(side->peer, bytes_of("x", 1), &iov, 1, NULL), -ECONNRESET);
    }
    pst_peer_close(side->peer);
    await(side, NULL, PST_NET_PEER_GONE);
    ends = 0;
    for (int i = 0; i < side->count; i++)
        ends += side->got[i].kind == PST_NET_SENT || side->got[i].kind == PST_NET_RECEIVED;
    assert_int_equal(ends, COUNT + 1);                        /* every one, before the peer's own */
    assert_false(side_find(side, PST_NET_PEER_LOST, &event)); /* once */
    side_end(side, net, fd);
    free(out);
}

/* A peer that stops and goes on after we have given it up: its late bytes do not land. */
static void peer_stopped_in_transfer(void **state)
{
    enum { LEN = 64 << 20 };
    uint8_t *out = calloc(1, LEN), *in = calloc(1, LEN), *clean = malloc(LEN);
    struct iovec iov = {.iov_base = out, .iov_len = LEN};
    struct pst_net_event event;
    struct pst_net *net;
    struct side *side;
    uint64_t until_ns;
    int fd, status;
    pid_t pid;

    (void)state;
    side = child_start(&pid, &fd, &net);
    assert_int_equal(pst_peer_send_bulk(side->peer, bytes_of("go", 2), &iov, 1, NULL), 0);
    event = await(side, NULL, PST_NET_BULK);
    iov.iov_base = in;
    assert_int_equal(pst_msg_receive(event.msg, &iov, 1, NULL), 0);
    side_poll(side);
    assert_int_equal(kill(pid, SIGSTOP), 0);
    assert_int_equal(waitpid(pid, &status, WUNTRACED), pid);
    pst_peer_close(side->peer);
    await(side, NULL, PST_NET_PEER_GONE);
    assert_int_equal(await(side, NULL, PST_NET_RECEIVED).status, -ECANCELED);
    memset(in, 0xaa, LEN);
    memset(clean, 0xaa, LEN);
    assert_int_equal(kill(pid, SIGCONT), 0);
    until_ns = pst_now_ns() + SECOND_NS / 2;
    while (pst_now_ns() < until_ns)
        side_poll(side);
    assert_true(memcmp(in, clean, LEN) == 0);
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    side_end(side, net, fd);
    free(out);
    free(in);
    free(clean);
}

/* Answers both ports of its parent twice, announces a value to the second and never looks at anything again.
 */
static void deaf(int fd)
{
    static uint8_t value[1 << 20];
    struct iovec iov = {.iov_base = value, .iov_len = sizeof(value)};
    struct side *first, second = {0};
    struct pst_net *net;

    first = process_side(fd, &net);
    second.port = first->port;
    exchange(fd, &second);
    for (int i = 0; i < 4; i++) {
        pst_msg_free(await(first, NULL, PST_NET_EAGER).msg);
        assert_true(
            pst_peer_send(i < 2 ? first->peer : second.peer, bytes_of("in", 2), bytes_of("", 0), NULL) >= 0);
    }
    assert_int_equal(pst_peer_send_bulk(second.peer, bytes_of("go", 2), &iov, 1, NULL), 0);
    assert_int_equal(send(fd, "", 1, MSG_NOSIGNAL), 1);
    for (;;)
        pause();
}

static void greet_twice(struct side *side)
{
    for (int i = 0; i < 2; i++) {
        send_whole(side, NULL, bytes_of("out", 3), bytes_of("", 0));
        pst_msg_free(await(side, NULL, PST_NET_EAGER).msg);
    }
}

/* A bulk message from a peer that dies with its queue full asks nothing of us that could not be sent. */
static void announced_by_the_dead(void **state)
{
    enum { SENDS_MAX = 10000 };
    struct side first = {0}, second = {0};
    struct pst_net *net;
    int fds[2], sends = 0;
    pid_t pid;
    char told;

    (void)state;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0)
        deaf(fds[1]);
    net = net_open();
    assert_int_equal(pst_port_open(net, EVENTS_MAX, &first.port), 0);
    assert_int_equal(pst_port_open(net, EVENTS_MAX, &second.port), 0);
    exchange(fds[0], &first);
    exchange(fds[0], &second);
    greet_twice(&first);
    greet_twice(&second);
    assert_int_equal(recv(fds[0], &told, 1, 0), 1);
    while (pst_peer_send(first.peer, bytes_of("full", 4), bytes_of("", 0), NULL) == 1)
        assert_true(sends++ < SENDS_MAX);
    assert_true(sends > 0);
    settle(&first, &second);
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    pst_peer_close(second.peer);
    await(&second, NULL, PST_NET_PEER_GONE);
    pst_port_close(second.port);
    pst_port_close(first.port);
    pst_net_close(net);
    close(fds[0]);
    close(fds[1]);
}

static bool inode_is_ours(unsigned long inode)
{
    char path[300], target[64], wanted[64];
    DIR *dir = opendir("/proc/self/fd");
    struct dirent *entry;
    bool ours = false;

    snprintf(wanted, sizeof(wanted), "socket:[%lu]", inode);
    while (dir && (entry = readdir(dir))) {
        ssize_t n;

        snprintf(path, sizeof(path), "/proc/self/fd/%s", entry->d_name);
        n = readlink(path, target, sizeof(target) - 1);
        target[n > 0 ? n : 0] = 0;
        ours = ours || strcmp(target, wanted) == 0;
    }
    closedir(dir);
    return ours;
}

/* Return: this process's listening sockets in @file; *@strays those elsewhere than on @loopback. */
static int listeners(const char *file, const char *loopback, int *strays)
{
    FILE *f = fopen(file, "re");
    char line[512], local[128];
    unsigned long inode;
    unsigned socket_state;
    int count = 0;

    while (f && fgets(line, sizeof(line), f)) {
        if (sscanf(line, " %*d: %127s %*s %x %*s %*s %*s %*s %*s %lu", local, &socket_state, &inode) != 3 ||
            socket_state != 10 || !inode_is_ours(inode))
            continue;
        count++;
        *strays += strncmp(local, loopback, strlen(loopback)) != 0;
    }
    if (f)
        fclose(f);
    return count;
}

static void everything_listens_on_loopback(void **state)
{
    struct pair *p = pair_open();
    int strays = 0, count;

    (void)state;
    assert_int_equal(setenv("UCX_NET_DEVICES", "eth0", 1), 0); /* what the user says does not widen it */
    count = listeners("/proc/net/tcp", "0100007F:", &strays) +
            listeners("/proc/net/tcp6", "00000000000000000000000001000000:", &strays);
    assert_true(count >= 2);
    assert_int_equal(strays, 0);
    pair_close(p);
    p = pair_open();
    strays = 0;
    assert_true(listeners("/proc/net/tcp", "0100007F:", &strays) >= 2);
    assert_int_equal(strays, 0);
    pair_close(p);
    unsetenv("UCX_NET_DEVICES");
}

/* A write that fails while there is something to read, in the middle of a packet: UCX's own way to write
 * aborts here. */
static void peer_ends_within_a_packet(void **state)
{
    uint8_t *data = calloc(1, 50000);

    (void)state;
    network = true;
    setenv("UCX_TCP_SNDBUF", "16k", 1);
    for (int round = 0; round < 20; round++) {
        struct pair *p = pair_open();

        for (int i = 0; i < 20; i++) {
            assert_true(pst_peer_send(p->a.peer, bytes_of("h", 1), bytes_of(data, 50000), NULL) >= 0);
            if (i == 0)
                pst_msg_free(await(&p->b, &p->a, PST_NET_EAGER).msg);
            assert_true(pst_peer_send(p->b.peer, bytes_of("h", 1), bytes_of(data, 1000), NULL) >= 0);
        }
        p->b.port = pst_port_close(p->b.port);
        for (int i = 0; i < 50; i++)
            side_poll(&p->a);
        pair_close(p);
    }
    unsetenv("UCX_TCP_SNDBUF");
    free(data);
}

/* A lane whose packets are too short for long headers: they travel apart. */
static void short_packets(void **state)
{
    static const char *const segments[] = {"2K", "300"};

    (void)state;
    network = true;
    for (size_t s = 0; s < pst_count_of(segments); s++) {
        struct pair *p;
        uint8_t header[PST_NET_HEADER_BYTES_MAX];

        assert_int_equal(setenv("UCX_TCP_TX_SEG_SIZE", segments[s], 1), 0);
        p = pair_open();
        for (size_t i = 0; i < pst_count_of(header_sizes); i++) {
            struct pst_net_event event;

            bulk_once(&p->a, &p->b, header_sizes[i], 300000, 1, 3);
            bulk_once(&p->b, &p->a, header_sizes[i], 10, 2, 1);
            fill(header, header_sizes[i], 8);
            send_whole(&p->a, &p->b, bytes_of(header, header_sizes[i]), bytes_of("data", 4));
            event = await(&p->b, &p->a, PST_NET_EAGER);
            assert_int_equal(event.header.len, header_sizes[i]);
            expect_filled(event.header.data, event.header.len, 8);
            assert_memory_equal(event.data.data, "data", 4);
            pst_msg_free(event.msg);
        }
        pst_peer_send_bulk(p->a.peer, bytes_of(header, sizeof(header)), &(struct iovec){header, 100}, 1,
                           NULL);
        settle(&p->a, &p->b);
        pair_close(p);
    }
    unsetenv("UCX_TCP_TX_SEG_SIZE");
}

/* Error handling and shared memory together take an option that the user may also turn off. */
static void user_options_stay(void **state)
{
    struct pair *p;

    (void)state;
    network = false;
    setenv("UCX_MM_ERROR_HANDLING", "n", 1);
    p = pair_open();
    assert_string_equal(pst_peer_lane(p->a.peer), "tcp");
    pair_close(p);
    unsetenv("UCX_MM_ERROR_HANDLING");
    setenv("UCX_TLS", "tcp", 1);
    p = pair_open();
    assert_string_equal(pst_peer_lane(p->a.peer), "tcp");
    pair_close(p);
    unsetenv("UCX_TLS");
}

/* Without confinement, too, one host is shared memory. */
static void unconfined_net(void **state)
{
    struct pst_net_options options = {.loopback_only = false};
    struct pair *p = calloc(1, sizeof(*p));

    (void)state;
    for (int i = 0; i < 2; i++) {
        network = i;
        assert_int_equal(pst_net_open(&options, &p->net), 0);
        assert_int_equal(pst_port_open(p->net, EVENTS_MAX, &p->a.port), 0);
        assert_int_equal(pst_port_open(p->net, EVENTS_MAX, &p->b.port), 0);
        side_connect(&p->a, &p->b);
        side_connect(&p->b, &p->a);
        if (!network)
            assert_string_equal(pst_peer_lane(p->a.peer), "posix");
        bulk_once(&p->a, &p->b, 4096, 256 << 10, 3, 2);
        pst_port_close(p->a.port);
        pst_port_close(p->b.port);
        pst_net_close(p->net);
    }
    free(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        /* those that fork first: a child inherits no transport */
        BOTH(two_processes),
        BOTH(peer_killed_in_transfer),
        BOTH(peer_stopped_in_transfer),
        {"posix: announced_by_the_dead", announced_by_the_dead, over_memory, NULL, NULL},
        cmocka_unit_test(everything_listens_on_loopback),
        cmocka_unit_test(peer_ends_within_a_packet),
        cmocka_unit_test(short_packets),
        cmocka_unit_test(user_options_stay),
        cmocka_unit_test(unconfined_net),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
