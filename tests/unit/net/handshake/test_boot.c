/* SPDX-License-Identifier: Apache-2.0 */
/* The bootstrap between a node and its clients: sessions, what they are told, how they end. */
#include "lib/boot_rig.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <netinet/in.h>

static void sessions_stand(void **state)
{
    static const char *const secrets[] = {"", "s3cret"};
    struct rig rig;

    (void)state;
    for (size_t i = 0; i < pst_count_of(secrets); i++) {
        rig_open(&rig, secrets[i], 4, 4);
        rig_run(&rig);
        expect_session(&rig, &rig.tcp, secrets[i]);
        assert_true(rig.same_host && !rig.descriptors);
        expect_session(&rig, &rig.path, secrets[i]);
        assert_true(rig.same_host && rig.descriptors);
        assert_int_equal(rig.connects, 2);
        assert_int_equal(rig.refusals, 0);
        rig_close(&rig);
    }
}

static void descriptors_are_passed(void **state)
{
    char name[] = "/tmp/pst_arenaXXXXXX", buf[8] = "";
    struct client *c = calloc(1, sizeof(*c));
    struct stat ours, theirs;
    struct rig rig;
    int fd;

    (void)state;
    rig_open(&rig, "x", 4, 4);
    fd = mkstemp(name);
    assert_int_equal(write(fd, "arena", 5), 5);
    rig.arena_fd = open(name, O_RDONLY | O_CLOEXEC);
    close(fd);
    unlink(name);
    rig_run(&rig);
    assert_int_equal(dial(c, &rig.path, "x", false), 0);
    assert_int_equal(c->welcome.arena_count, 1);
    assert_int_equal(fcntl(c->fds[0], F_GETFL) & O_ACCMODE, O_RDONLY);
    assert_true(fcntl(c->fds[0], F_GETFD) & FD_CLOEXEC);
    assert_int_equal(write(c->fds[0], "x", 1), -1);
    assert_int_equal(pread(c->fds[0], buf, 5, 0), 5);
    assert_string_equal(buf, "arena");
    assert_int_equal(fstat(rig.arena_fd, &ours) | fstat(c->fds[0], &theirs), 0);
    assert_int_equal(ours.st_ino, theirs.st_ino);
    close(c->fds[0]);
    pst_boot_link_close(c->link);
    assert_int_equal(dial(c, &rig.path, "x", true), 0); /* network only: none */
    assert_int_equal(c->welcome.arena_count, 0);
    assert_false(c->welcome.same_host);
    assert_false(rig.same_host || rig.descriptors);
    pst_boot_link_close(c->link);
    assert_int_equal(dial(c, &rig.tcp, "x", false), 0); /* TCP: none */
    assert_int_equal(c->welcome.arena_count, 0);
    pst_boot_link_close(c->link);
    rig_close(&rig);
    free(c);
}

static void expect_refusal(struct rig *rig, const char *secret, int error, const char *fault)
{
    struct client *c = calloc(1, sizeof(*c));

    assert_int_equal(dial(c, &rig->tcp, secret, false), error);
    assert_string_equal(c->fault, fault);
    assert_null(c->link);
    assert_int_equal(dial(c, &rig->path, secret, false), error);
    assert_string_equal(c->fault, fault);
    free(c);
}

static void secrets_have_to_match(void **state)
{
    struct rig rig;

    (void)state;
    rig_open(&rig, "right", 4, 4);
    rig_run(&rig);
    expect_refusal(&rig, "wrong", -EACCES, "wrong secret");
    expect_refusal(&rig, "", -EACCES, "the node wants a secret");
    await_count(&rig.refusals, 4);
    assert_int_equal(rig.welcomes, 0);
    rig_close(&rig);
    rig_open(&rig, "", 4, 4);
    rig_run(&rig);
    expect_refusal(&rig, "mine", -EACCES, "the node does not know the secret");
    rig_close(&rig);
}

static void node_refuses(void **state)
{
    struct client *c = calloc(1, sizeof(*c));
    struct rig rig;

    (void)state;
    rig_open(&rig, "s", 4, 4);
    rig_run(&rig);
    rig.welcome_error = -EBUSY;
    expect_refusal(&rig, "s", -EBUSY, "the node has no room for another session");
    rig.welcome_error = 0;
    rig.connect_error = -EIO;
    assert_int_equal(dial(c, &rig.tcp, "s", false), 0);
    assert_int_equal(client_address(c), -ECONNRESET);
    pst_boot_link_close(c->link);
    await_count(&rig.ends, 1);
    rig.connect_error = -EBUSY;
    assert_int_equal(dial(c, &rig.tcp, "s", false), 0);
    assert_int_equal(client_address(c), -EBUSY);
    pst_boot_link_close(c->link);
    await_count(&rig.ends, 2);
    rig_close(&rig);
    free(c);
}

/* The node's answer to a hello of version @asked is a frame of type @type and version @spoken. */
static void expect_version(struct rig *rig, uint16_t asked, enum boot_type type, uint16_t spoken)
{
    uint8_t hello[BOOT_HEAD_BYTES + BOOT_HELLO_BYTES], buf[256];
    struct boot_frame frame;
    const char *fault;
    size_t n;
    int fd = raw_connect(rig);

    hello_frame(hello);
    memcpy(hello + 4, &asked, sizeof(asked));
    assert_int_equal(send(fd, hello, sizeof(hello), 0), sizeof(hello));
    if (type != BOOT_REFUSED)
        shutdown(fd, SHUT_WR);
    n = raw_drain(fd, buf, sizeof(buf));
    assert_int_equal(boot_frame_parse(buf, n, BOOT_FRAME_SMALL_MAX, &frame), n);
    assert_int_equal(frame.type, type);
    assert_int_equal(frame.version, spoken);
    if (type == BOOT_REFUSED)
        assert_int_equal(boot_refused_decode(&frame, &fault), -EPROTONOSUPPORT);
    close(fd);
}

static void versions_are_agreed(void **state)
{
    struct rig rig;

    (void)state;
    rig_open(&rig, "s", 4, 4);
    rig_run(&rig);
    for (uint16_t version = 0; version < PST_BOOT_VERSION_OLDEST; version++)
        expect_version(&rig, version, BOOT_REFUSED, PST_BOOT_VERSION);
    for (uint16_t version = PST_BOOT_VERSION_OLDEST; version <= PST_BOOT_VERSION; version++)
        expect_version(&rig, version, BOOT_CHALLENGE, version);
    expect_version(&rig, PST_BOOT_VERSION + 1, BOOT_CHALLENGE, PST_BOOT_VERSION); /* a client of tomorrow */
    expect_version(&rig, UINT16_MAX, BOOT_CHALLENGE, PST_BOOT_VERSION);
    expect_session(&rig, &rig.tcp, "s");
    rig_close(&rig);
}

static void await_word(const struct client *c)
{
    assert_int_equal(poll(&(struct pollfd){.fd = pst_boot_link_fd(c->link), .events = POLLIN}, 1, 10000), 1);
}

/* Nothing runs in a client between its calls: silence is no fault. */
static void idle_client_is_kept(void **state)
{
    struct client *c = calloc(1, sizeof(*c));
    struct rig rig;

    (void)state;
    rig_open(&rig, "s", 4, 4);
    rig.fixed_ns = SECOND_NS * 1000;
    rig_run(&rig);
    assert_int_equal(dial(c, &rig.path, "s", false), 0);
    assert_int_equal(client_address(c), 0);
    rig.fixed_ns += 3600 * SECOND_NS;
    assert_int_equal(pst_boot_link_tick(c->link, pst_now_ns()), 0); /* a ping */
    await_word(c);
    assert_int_equal(pst_boot_link_tick(c->link, pst_now_ns()), 0);
    assert_int_equal(rig.ends, 0);
    pst_boot_link_close(c->link);
    await_count(&rig.ends, 1);
    rig_close(&rig);
    free(c);
}

static void client_without_address_is_ended(void **state)
{
    struct client *c = calloc(1, sizeof(*c));
    struct rig rig;

    (void)state;
    rig_open(&rig, "s", 4, 4);
    rig.fixed_ns = SECOND_NS * 1000;
    rig_run(&rig);
    assert_int_equal(dial(c, &rig.path, "s", false), 0);
    assert_int_equal(rig.ends, 0);
    rig.fixed_ns += 6 * SECOND_NS;
    await_count(&rig.ends, 1);
    assert_string_equal(rig.why, "gave no address");
    pst_boot_link_close(c->link);
    rig_close(&rig);
    free(c);
}

static void silent_node_is_noticed(void **state)
{
    struct client *c = calloc(1, sizeof(*c));
    uint64_t now_ns = pst_now_ns();
    struct rig rig;

    (void)state;
    rig_open(&rig, "s", 4, 4);
    rig_run(&rig);
    assert_int_equal(dial(c, &rig.tcp, "s", false), 0);
    assert_int_equal(client_address(c), 0);
    rig_halt(&rig); /* frozen */
    assert_int_equal(pst_boot_link_tick(c->link, now_ns), 0);
    assert_int_equal(pst_boot_link_tick(c->link, now_ns + 9 * SECOND_NS), 0);
    assert_int_equal(pst_boot_link_tick(c->link, now_ns + 11 * SECOND_NS), -ETIMEDOUT);
    pst_boot_link_close(c->link);
    rig_close(&rig);
    free(c);
}

/* At once; where the client shares the host's memory, when it has closed its socket. */
static void node_ends_a_session(void **state)
{
    struct client *c = calloc(1, sizeof(*c));

    (void)state;
    for (int network_only = 0; network_only < 2; network_only++) {
        struct rig rig;

        rig_open(&rig, "s", 4, 4);
        rig_run(&rig);
        assert_int_equal(dial(c, &rig.tcp, "s", network_only), 0);
        assert_int_equal(client_address(c), 0);
        rig_halt(&rig);
        pst_boot_server_end(rig.server, &rig);
        assert_int_equal(rig.ends, 0); /* told by a poll */
        rig_run(&rig);
        if (network_only)
            await_count(&rig.ends, 1);
        await_word(c);
        assert_int_equal(pst_boot_link_tick(c->link, pst_now_ns()), -ECONNRESET);
        assert_int_equal(rig.ends, network_only);
        pst_boot_link_close(c->link);
        await_count(&rig.ends, 1);
        assert_string_equal(rig.why, network_only ? "ended by the node" : "connection closed");
        rig_close(&rig);
    }
    free(c);
}

static void unix_paths_are_taken_over(void **state)
{
    struct pst_boot_server_options options = {.sessions_max = 1, .handshakes_max = 1};
    struct sockaddr_un un = {.sun_family = AF_UNIX};
    struct pst_boot_address address = {.port = 0};
    struct pst_boot_server *other;
    struct rig rig;
    struct stat st;
    int fd;

    (void)state;
    rig_open(&rig, "", 4, 4);
    assert_int_equal(pst_boot_server_open(&options, &rig_ops, &rig, &other), 0);
    address = rig.path;
    assert_int_equal(pst_boot_server_listen(other, &address), -EADDRINUSE); /* a live one */
    assert_int_equal(stat(rig.path.path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    snprintf(address.path, sizeof(address.path), "/tmp/pst_stale_%d.sock", getpid());
    memcpy(un.sun_path, address.path, sizeof(un.sun_path));
    fd = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&un, sizeof(un)), 0);
    close(fd);
    assert_int_equal(pst_boot_server_listen(other, &address), 0); /* a stale one */
    pst_boot_server_close(other);
    fd = open(address.path, O_CREAT | O_EXCL | O_WRONLY, 0600);
    assert_true(fd >= 0); /* close removed the path */
    close(fd);
    assert_int_equal(pst_boot_server_open(&options, &rig_ops, &rig, &other), 0);
    assert_int_equal(pst_boot_server_listen(other, &address), -EADDRINUSE); /* somebody's file */
    pst_boot_server_close(other);
    assert_int_equal(unlink(address.path), 0);
    rig_close(&rig);
}

/* A process that serves may fork: the child's copies of the descriptors do not keep a connection going. */
static void forked_child_holds_nothing_up(void **state)
{
    uint8_t byte = 'x';
    struct rig rig;
    pid_t child;
    int fd;

    (void)state;
    rig_open(&rig, "s", 4, 4);
    fd = raw_connect(&rig);
    pst_boot_server_poll(rig.server, pst_now_ns());
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        close(fd);
        pause();
        _exit(0);
    }
    assert_int_equal(send(fd, &byte, 1, 0), 1);
    for (int i = 0; i < 4; i++) {
        pst_boot_server_poll(rig.server, pst_now_ns());
        (void)!send(fd, &byte, 1, MSG_NOSIGNAL);
    }
    assert_int_equal(rig.refusals, 1);
    assert_int_equal(recv(fd, &byte, 1, 0), 0);
    kill(child, SIGKILL);
    assert_int_equal(waitpid(child, NULL, 0), child);
    close(fd);
    rig_close(&rig);
}

/* Sizes that a client would have to map are looked at before it tries. */
static void welcome_sizes_are_checked(void **state)
{
    static const struct {
        uint64_t page_bytes, arena_bytes;
        uint32_t arena_count;
        int result;
    } rows[] = {
        {4096, 1 << 20, 2, 0},
        {4096, 0, 0, 0}, /* no arenas, no size */
        {0, 1 << 20, 2, -EPROTO},
        {UINT64_MAX, 1 << 20, 2, -EPROTO},
        {4096, 0, 1, -EPROTO},
        {4096, (1 << 20) + 1, 1, -EPROTO},
        {4096, 1ull << 46, 1, 0},
        {4096, 1ull << 46, 2, -EPROTO},
        {4096, (1ull << 63) + 4096, 2, -EPROTO}, /* together 8 KiB, if one does not look */
    };
    struct pst_boot_welcome *w = calloc(1, sizeof(*w)), *back = calloc(1, sizeof(*back));
    uint8_t buf[4096];

    (void)state;
    for (size_t i = 0; i < pst_count_of(rows); i++) {
        *w = (struct pst_boot_welcome){.page_bytes = rows[i].page_bytes,
                                       .arena_bytes = rows[i].arena_bytes,
                                       .arena_count = rows[i].arena_count,
                                       .shard_count = 1};
        w->shards[0].bytes = 1;
        boot_welcome_encode(w, buf, boot_welcome_bytes(w));
        assert_int_equal(boot_welcome_decode(buf, boot_welcome_bytes(w), back), rows[i].result);
    }
    free(w);
    free(back);
}

static void welcome_is_checked(void **state)
{
    struct pst_boot_welcome *w = calloc(1, sizeof(*w)), *back = calloc(1, sizeof(*back));
    uint8_t buf[4096] = {0};
    size_t bytes;

    (void)state;
    w->token = 7;
    w->page_bytes = 64 << 10;
    w->arena_bytes = 1ull << 40;
    w->shard_count = 2;
    w->arena_count = 3;
    w->same_host = true;
    w->shards[0].bytes = 1;
    w->shards[1].bytes = 1000;
    w->shards[1].data[999] = 42;
    bytes = boot_welcome_bytes(w);
    boot_welcome_encode(w, buf, bytes);
    assert_int_equal(boot_welcome_decode(buf, bytes, back), 0);
    assert_int_equal(back->shards[1].data[999], 42);
    assert_int_equal(back->arena_count, 3);
    for (size_t cut = 0; cut < bytes; cut++) {
        uint8_t *exact = malloc(cut + 1); /* for the sanitizer to see a read too far */

        memcpy(exact, buf, cut);
        assert_int_equal(boot_welcome_decode(exact, cut, back), -EPROTO);
        free(exact);
    }
    assert_int_equal(boot_welcome_decode(buf, bytes + 1, back), -EPROTO);
    buf[40] = 0xff; /* shard_count */
    buf[41] = 0xff;
    assert_int_equal(boot_welcome_decode(buf, bytes, back), -EPROTO);
    free(w);
    free(back);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sessions_stand),
        cmocka_unit_test(descriptors_are_passed),
        cmocka_unit_test(secrets_have_to_match),
        cmocka_unit_test(node_refuses),
        cmocka_unit_test(versions_are_agreed),
        cmocka_unit_test(idle_client_is_kept),
        cmocka_unit_test(client_without_address_is_ended),
        cmocka_unit_test(silent_node_is_noticed),
        cmocka_unit_test(node_ends_a_session),
        cmocka_unit_test(unix_paths_are_taken_over),
        cmocka_unit_test(welcome_is_checked),
        cmocka_unit_test(welcome_sizes_are_checked),
        cmocka_unit_test(forked_child_holds_nothing_up),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
