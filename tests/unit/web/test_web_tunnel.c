/* SPDX-License-Identifier: Apache-2.0 */
/* The tunnel: every byte both ways, whoever ends first, and the real rsync through it and beside it. */
#include "lib/web_rig.h"

#include "base/hash.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <malloc.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

enum {
    BYTES = 24 << 20,
    PIECE = 64 << 10,
};

static uint8_t *bytes_sent, *bytes_got; /* BYTES each */
static char buf[1 << 20];

/* A server with a tunnel to a listener of the test's. */
struct tunnel_rig {
    struct web_rig web;
    int listener;
    char to[32];
};

static void open_rig(struct tunnel_rig *rig)
{
    uint16_t port;

    *rig = (struct tunnel_rig){.web = {.hold = false}};
    rig->listener = web_listen(&port);
    snprintf(rig->to, sizeof(rig->to), "127.0.0.1:%u", port);
    rig->web.settings.tunnels[0] = (struct pst_web_tunnel){"/rsync/", rig->to};
    web_rig_open(&rig->web);
}

static void close_rig(struct tunnel_rig *rig)
{
    web_wait_empty(&rig->web);
    web_rig_close(&rig->web);
    close(rig->listener);
}

static int accept_daemon(struct tunnel_rig *rig)
{
    struct timeval limit = {.tv_sec = 10 * slowness()};
    int fd = accept(rig->listener, NULL, NULL);

    assert_true(fd >= 0);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
    return fd;
}

static int open_tunnel(struct tunnel_rig *rig)
{
    int status, fd = web_upgrade(&rig->web, "/rsync/default/", "", &status);

    assert_int_equal(status, 101);
    return fd;
}

struct sender {
    int fd;
    bool frames;
    pthread_t thread;
};

static void *sender_main(void *arg)
{
    struct sender *s = arg;
    size_t piece = 1;

    for (size_t at = 0; at < BYTES; at += piece, piece = piece * 3 % PIECE + 1) {
        piece = pst_min(piece, BYTES - at);
        if (s->frames)
            web_frame(s->fd, FRAME_FINAL | FRAME_BINARY, bytes_sent + at, piece);
        else
            web_send(s->fd, bytes_sent + at, piece);
    }
    return NULL;
}

static void send_all(struct sender *s, int fd, bool frames)
{
    *s = (struct sender){.fd = fd, .frames = frames};
    assert_int_equal(pthread_create(&s->thread, NULL, sender_main, s), 0);
}

static void expect_plain(int fd)
{
    size_t at = 0;
    ssize_t n = 1;

    memset(bytes_got, 0, BYTES);
    while (at < BYTES && (n = recv(fd, bytes_got + at, BYTES - at, 0)) > 0)
        at += (size_t)n;
    assert_int_equal(at, BYTES);
    assert_memory_equal(bytes_got, bytes_sent, BYTES);
}

static void expect_frames(int fd)
{
    size_t at = 0, bytes;

    while (at < BYTES) {
        assert_int_equal(web_frame_read(fd, buf, PIECE, &bytes), FRAME_FINAL | FRAME_BINARY);
        assert_true(bytes <= BYTES - at && memcmp(buf, bytes_sent + at, bytes) == 0);
        at += bytes;
    }
}

static int close_code(int fd)
{
    size_t bytes;
    int head = web_frame_read(fd, buf, sizeof(buf), &bytes);

    return head == (FRAME_FINAL | FRAME_CLOSE) && bytes >= 2 ? (uint8_t)buf[0] << 8 | (uint8_t)buf[1] : -1;
}

static void bytes_go_both_ways(void **state)
{
    struct sender to_daemon, to_client;
    struct tunnel_rig rig;
    int client, daemon;

    (void)state;
    open_rig(&rig);
    client = open_tunnel(&rig);
    daemon = accept_daemon(&rig);
    send_all(&to_daemon, client, true);
    expect_plain(daemon);
    pthread_join(to_daemon.thread, NULL);
    send_all(&to_client, daemon, false);
    expect_frames(client);
    pthread_join(to_client.thread, NULL);
    web_frame(client, FRAME_FINAL | FRAME_PING, "p", 1);
    close(client);
    assert_true(web_ends(daemon));
    close(daemon);
    close_rig(&rig);
}

/* Nobody reads until everybody has sent what they can. */
static void nothing_piles_up(void **state)
{
    struct sender to_daemon, to_client;
    struct tunnel_rig rig;
    int client, daemon;
    size_t before;

    (void)state;
    open_rig(&rig);
    client = open_tunnel(&rig);
    daemon = accept_daemon(&rig);
    before = mallinfo2().uordblks;
    send_all(&to_daemon, client, true);
    send_all(&to_client, daemon, false);
    usleep(500000);
    assert_true(mallinfo2().uordblks < before + (256 << 10) + 2 * PIECE); /* the frames are the test's */
    expect_plain(daemon);
    pthread_join(to_daemon.thread, NULL);
    expect_frames(client);
    pthread_join(to_client.thread, NULL);
    close(daemon);
    assert_int_equal(close_code(client), 1000);
    close(client);
    close_rig(&rig);
}

static void the_last_bytes_arrive(void **state)
{
    struct sender sender;
    struct tunnel_rig rig;
    int client, daemon;

    (void)state;
    open_rig(&rig);
    client = open_tunnel(&rig); /* the daemon ends, the client has not begun to read */
    daemon = accept_daemon(&rig);
    send_all(&sender, daemon, false);
    usleep(20000);
    web_frame(client, FRAME_FINAL | FRAME_BINARY, "x", 1);
    expect_frames(client);
    pthread_join(sender.thread, NULL);
    shutdown(daemon, SHUT_WR);
    assert_int_equal(close_code(client), 1000);
    web_frame(client, FRAME_FINAL | FRAME_CLOSE, "\x03\xe8", 2);
    assert_int_equal(recv(daemon, buf, 1, 0), 1);
    assert_int_equal(recv(daemon, buf, 1, 0), 0);
    close(client);
    close(daemon);

    client = open_tunnel(&rig); /* the client ends, and the daemon, which is still talking, has not read */
    daemon = accept_daemon(&rig);
    send_all(&sender, client, true);
    usleep(100000);
    web_send(daemon, "talk", 4);
    expect_plain(daemon);
    pthread_join(sender.thread, NULL);
    web_frame(client, FRAME_FINAL | FRAME_BINARY, bytes_sent, 50000);
    web_frame(client, FRAME_FINAL | FRAME_CLOSE, "\x03\xe8", 2);
    close(client);
    for (size_t at = 0; at < 50000;) {
        ssize_t n = recv(daemon, buf + at, 50000 - at, 0);

        assert_true(n > 0);
        at += (size_t)n;
    }
    assert_memory_equal(buf, bytes_sent, 50000);
    assert_int_equal(recv(daemon, buf, 1, 0), 0);
    close(daemon);
    close_rig(&rig);
}

static void who_cannot_be_reached_is_told(void **state)
{
    struct tunnel_rig rig;
    struct linger reset = {1, 0};
    int client, daemon, status;

    (void)state;
    open_rig(&rig);
    client = open_tunnel(&rig);
    daemon = accept_daemon(&rig);
    setsockopt(daemon, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
    close(daemon);
    assert_int_equal(close_code(client), 1011);
    close(client);
    client = open_tunnel(&rig);
    daemon = accept_daemon(&rig);
    web_frame(client, FRAME_FINAL | FRAME_TEXT, "text", 4);
    assert_int_equal(close_code(client), 1003);
    close(client);
    assert_true(web_ends(daemon));
    close(daemon);
    close(web_upgrade(&rig.web, "/rsync/", "", &status));
    assert_int_equal(status, 404);
    close(web_upgrade(&rig.web, "/rsync/a/b/", "", &status));
    assert_int_equal(status, 404);
    close(web_upgrade(&rig.web, "/rsync//", "", &status));
    assert_int_equal(status, 404);
    close(rig.listener);
    rig.listener = -1;
    client = open_tunnel(&rig);
    assert_int_equal(close_code(client), 1011);
    close(client);
    close_rig(&rig);
}

/* "@RSYNCD:" on the server's own port; each side may end its direction first. */
static void rsync_needs_no_websocket(void **state)
{
    struct sender sender;
    struct tunnel_rig rig;
    int client, daemon;

    (void)state;
    open_rig(&rig);
    for (int round = 0; round < 2; round++) {
        client = web_connect(&rig.web);
        web_say(client, "@RSY");
        usleep(50000);
        web_say(client, "NCD: 31.0\n");
        daemon = accept_daemon(&rig);
        assert_int_equal(recv(daemon, buf, 14, MSG_WAITALL), 14);
        assert_memory_equal(buf, "@RSYNCD: 31.0\n", 14);
        web_send(client, "a", 1);
        assert_int_equal(recv(daemon, buf, 1, 0), 1);
        send_all(&sender, round ? client : daemon, false);
        expect_plain(round ? daemon : client);
        pthread_join(sender.thread, NULL);
        shutdown(round ? client : daemon, SHUT_WR);
        assert_int_equal(recv(round ? daemon : client, buf, 1, 0), 0);
        web_send(round ? daemon : client, "last", 4);
        close(round ? daemon : client);
        assert_int_equal(recv(round ? client : daemon, buf, 5, MSG_WAITALL), 4);
        close(round ? client : daemon);
        web_wait_empty(&rig.web);
    }
    client = web_connect(&rig.web); /* it begins so, and is none */
    web_say(client, "@RSYNX\r\n\r\n");
    assert_int_equal(web_read_answer(client, buf, sizeof(buf)), 400);
    close(client);
    client = web_connect(&rig.web); /* nor is this, and nobody waits for it longer than for others */
    web_say(client, "@RS");
    assert_true(web_ends(client));
    close(client);
    close_rig(&rig);
}

/* One that has ended its direction is ended when it moves nothing any more, not while it takes what comes. */
static void what_moves_is_not_silent(void **state)
{
    enum { TURNS = 25 };
    struct tunnel_rig rig;
    int client, daemon;

    (void)state;
    open_rig(&rig);
    client = web_connect(&rig.web);
    web_say(client, "@RSYNCD: 31.0\n");
    daemon = accept_daemon(&rig);
    shutdown(client, SHUT_WR);
    for (int i = 0; i < TURNS; i++) {
        usleep(rig.web.settings.stall_ms * 1000 / 10);
        web_send(daemon, "x", 1);
        assert_int_equal(recv(client, buf, 1, 0), 1);
    }
    assert_true(web_ends(client));
    close(client);
    close(daemon);
    close_rig(&rig);
}

static void rsync_shows_no_token(void **state)
{
    struct web_rig rig = {
        .settings = {.tunnels = {{"/rsync/", "127.0.0.1:1"}}, .token = {"t", 1}, .token_on_loopback = true}};
    int fd;

    (void)state;
    web_rig_open(&rig);
    fd = web_connect(&rig);
    web_say(fd, "@RSYNCD: 31.0\n");
    assert_true(web_ends(fd));
    close(fd);
    web_rig_close(&rig);
}

/* ---- the real program ---- */

static pid_t spawn(const char *const *argv)
{
    posix_spawn_file_actions_t actions;
    extern char **environ;
    pid_t pid = -1;

    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
    if (posix_spawnp(&pid, argv[0], &actions, NULL, (char *const *)(uintptr_t)argv, environ) != 0)
        pid = -1;
    posix_spawn_file_actions_destroy(&actions);
    return pid;
}

static int run(const char *const *argv)
{
    pid_t pid = spawn(argv);
    int status = -1;

    if (pid > 0)
        assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* A local port for rsync, whose one connection goes through the tunnel. */
struct bridge {
    struct web_rig *web;
    int listener;
    pthread_t thread;
};

static void *bridge_main(void *arg)
{
    struct bridge *bridge = arg;
    int plain = accept(bridge->listener, NULL, NULL), status;
    int fd = web_upgrade(bridge->web, "/rsync/default/", "", &status);
    static char piece[PIECE];
    size_t bytes;

    for (;;) {
        struct pollfd p[2] = {{.fd = plain, .events = POLLIN}, {.fd = fd, .events = POLLIN}};

        poll(p, 2, 20000);
        if (p[0].revents) {
            ssize_t n = recv(plain, piece, sizeof(piece), 0);

            if (n <= 0)
                break;
            web_frame(fd, FRAME_FINAL | FRAME_BINARY, piece, (size_t)n);
        }
        if (p[1].revents) {
            if (web_frame_read(fd, piece, sizeof(piece), &bytes) != (FRAME_FINAL | FRAME_BINARY))
                break;
            web_send(plain, piece, bytes);
        }
    }
    close(plain);
    close(fd);
    return NULL;
}

static void write_file(const char *path, const void *data, size_t bytes)
{
    FILE *file = fopen(path, "w");

    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, bytes, file), bytes);
    fclose(file);
}

static pid_t start_daemon(const char *folder, uint16_t port)
{
    char config[128], data[128], text[512], option[160], at[32];
    const char *argv[] = {"rsync", "--daemon", "--no-detach", "--address=127.0.0.1", at, option, NULL};
    pid_t pid;

    snprintf(data, sizeof(data), "%s/data", folder);
    snprintf(config, sizeof(config), "%s/rsyncd.conf", folder);
    assert_int_equal(mkdir(data, 0700), 0);
    snprintf(text, sizeof(text),
             "use chroot = no\nlog file = /dev/null\n%s[data]\npath = %s\nread only = no\n",
             geteuid() == 0 ? "uid = root\ngid = root\n" : "", data);
    write_file(config, text, strlen(text));
    snprintf(option, sizeof(option), "--config=%s", config);
    snprintf(at, sizeof(at), "--port=%u", port);
    pid = spawn(argv);
    for (int i = 0; i < 1000; i++) {
        struct sockaddr_in address = {
            .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons(port)};
        int fd = socket(AF_INET, SOCK_STREAM, 0),
            r = connect(fd, (struct sockaddr *)&address, sizeof(address));

        close(fd);
        if (r == 0)
            return pid;
        usleep(10000);
    }
    fail_msg("rsync's daemon does not listen");
    return pid;
}

/* Puts the tree and gets it back under @name. */
static void put_and_get(const char *folder, uint16_t port, const char *name, struct bridge *bridge)
{
    char from[160], url[160], back[160];
    const char *put[] = {"rsync", "-a", "--timeout=20", from, url, NULL};
    const char *get[] = {"rsync", "-a", "--timeout=20", url, back, NULL};
    const char *compare[] = {"diff", "-r", from, back, NULL};

    snprintf(from, sizeof(from), "%s/tree/", folder);
    snprintf(url, sizeof(url), "rsync://127.0.0.1:%u/data/%s/", port, name);
    snprintf(back, sizeof(back), "%s/back-%s/", folder, name);
    for (int round = 0; round < 2; round++) {
        if (bridge)
            assert_int_equal(pthread_create(&bridge->thread, NULL, bridge_main, bridge), 0);
        assert_int_equal(run(round ? get : put), 0);
        if (bridge)
            pthread_join(bridge->thread, NULL);
    }
    assert_int_equal(run(compare), 0);
}

static void real_rsync_goes_both_ways(void **state)
{
    static const char *const version[] = {"rsync", "--version", NULL};
    char folder[] = "/tmp/pst_tunnel_XXXXXX", path[64];
    const char *remove[] = {"rm", "-rf", folder, NULL};
    struct bridge bridge;
    struct tunnel_rig rig;
    uint16_t port;
    pid_t daemon;

    (void)state;
    if (run(version) != 0)
        skip();
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof(path), "%s/tree", folder);
    assert_int_equal(mkdir(path, 0755), 0);
    for (int i = 0; i < 40; i++) {
        snprintf(path, sizeof(path), "%s/tree/file%d", folder, i);
        write_file(path, bytes_sent + i, i == 0 ? BYTES / 2 : 3000 * (size_t)i);
    }
    close(web_listen(&port)); /* free, as far as one can tell */
    daemon = start_daemon(folder, port);
    rig = (struct tunnel_rig){.listener = -1};
    snprintf(rig.to, sizeof(rig.to), "127.0.0.1:%u", port);
    rig.web.settings.tunnels[0] = (struct pst_web_tunnel){"/rsync/", rig.to};
    rig.web.settings.stall_ms = 10000;
    web_rig_open(&rig.web);
    put_and_get(folder, pst_web_port(rig.web.web), "raw", NULL);
    bridge.web = &rig.web;
    bridge.listener = web_listen(&port);
    put_and_get(folder, port, "tunnel", &bridge);
    close(bridge.listener);
    web_wait_empty(&rig.web);
    web_rig_close(&rig.web);
    kill(daemon, SIGTERM);
    assert_int_equal(waitpid(daemon, NULL, 0), daemon);
    assert_int_equal(run(remove), 0);
}

static void tunnels_end_with_the_server(void **state)
{
    struct tunnel_rig rig;
    int clients[6], daemons[6];

    (void)state;
    open_rig(&rig);
    for (int i = 0; i < 6; i++) {
        clients[i] = i % 2 ? open_tunnel(&rig) : web_connect(&rig.web);
        if (i % 2 == 0)
            web_say(clients[i], "@RSYNCD: 31.0\n");
        daemons[i] = accept_daemon(&rig);
        web_send(daemons[i], bytes_sent, 200000);
    }
    web_rig_close(&rig.web);
    for (int i = 0; i < 6; i++) {
        assert_true(web_ends(clients[i]) && web_ends(daemons[i]));
        close(clients[i]);
        close(daemons[i]);
    }
    close(rig.listener);
}

/* Connections that wait cost no time, ended on one side or not. */
static void who_waits_does_not_spin(void **state)
{
    struct tunnel_rig rig;
    int held, socket, half, raw, daemons[2], status;
    uint64_t before_ns;

    (void)state;
    open_rig(&rig);
    rig.web.hold = true;
    held = web_connect(&rig.web);
    web_say(held, "GET /hold HTTP/1.1\r\nHost: h\r\n\r\nmore");
    shutdown(held, SHUT_WR);
    socket = web_upgrade(&rig.web, "/ws/x", "", &status);
    half = open_tunnel(&rig);
    daemons[0] = accept_daemon(&rig);
    raw = web_connect(&rig.web);
    web_say(raw, "@RSYNCD: 31.0\n");
    daemons[1] = accept_daemon(&rig);
    shutdown(daemons[1], SHUT_WR);
    web_wait_count(&rig.web.held, 1);
    usleep(50000);
    before_ns = pst_clock_read_ns(CLOCK_PROCESS_CPUTIME_ID);
    usleep(300000);
    /* The answer that is held looks a thousand times a second whether it may go. */
    assert_true(pst_clock_read_ns(CLOCK_PROCESS_CPUTIME_ID) - before_ns < 150000000);
    rig.web.hold = false;
    assert_int_equal(web_read_answer(held, buf, sizeof(buf)), 200);
    close(held);
    close(socket);
    close(half);
    close(raw);
    assert_true(web_ends(daemons[0]) && web_ends(daemons[1]));
    close(daemons[0]);
    close(daemons[1]);
    close_rig(&rig);
}

static int make_bytes(void **state)
{
    (void)state;
    bytes_sent = malloc(BYTES);
    bytes_got = malloc(BYTES);
    if (!bytes_sent || !bytes_got)
        return -1;
    pst_random(bytes_sent, BYTES);
    return 0;
}

static int drop_bytes(void **state)
{
    (void)state;
    free(bytes_sent);
    free(bytes_got);
    return 0;
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_go_both_ways),          cmocka_unit_test(nothing_piles_up),
        cmocka_unit_test(the_last_bytes_arrive),       cmocka_unit_test(who_cannot_be_reached_is_told),
        cmocka_unit_test(rsync_needs_no_websocket),    cmocka_unit_test(what_moves_is_not_silent),
        cmocka_unit_test(rsync_shows_no_token),        cmocka_unit_test(real_rsync_goes_both_ways),
        cmocka_unit_test(tunnels_end_with_the_server), cmocka_unit_test(who_waits_does_not_spin),
    };

    return cmocka_run_group_tests(tests, make_bytes, drop_bytes);
}
