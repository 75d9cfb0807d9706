/*
 * The bootstrap over real sockets: a server that a thread polls, clients in the test's thread. The server's
 * clock can be set, so that no test waits for a timeout.
 */
#include "cm.h"

#include "base/clock.h"
#include "base/hash.h"
#include "net/boot_priv.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <signal.h>
#include <sys/wait.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <netinet/in.h>
#include <arpa/inet.h>

#define SECOND_NS 1000000000ull

struct rig {
    struct pst_boot_server *server;
    struct pst_boot_address tcp, path;
    pthread_t thread;
    bool running;
    atomic_bool stop;
    atomic_ullong fixed_ns; /* 0: the real clock */
    atomic_int welcomes, connects, ends, refusals;
    atomic_int welcome_error, connect_error;
    bool same_host, descriptors;
    int arena_fd;
    char why[64], address[64];
    pthread_mutex_t lock;
};

static int on_welcome(void *ctx, const char *peer, bool same_host, bool descriptors,
                      struct pst_boot_welcome *welcome, const int **fds, void **session)
{
    struct rig *rig = ctx;

    assert_true(peer && *peer);
    if (rig->welcome_error)
        return rig->welcome_error;
    rig->same_host = same_host;
    rig->descriptors = descriptors;
    welcome->token = 0x1122334455667788;
    welcome->slot_seed = 99;
    welcome->page_bytes = 2 << 20;
    welcome->arena_bytes = 1ull << 40;
    welcome->value_bytes_max = 1ull << 30;
    welcome->shard_count = PST_BOOT_SHARDS_MAX;
    for (uint32_t i = 0; i < welcome->shard_count; i++) {
        welcome->shards[i].bytes = PST_NET_ADDRESS_BYTES_MAX;
        memset(welcome->shards[i].data, (int)i, PST_NET_ADDRESS_BYTES_MAX);
    }
    if (descriptors && rig->arena_fd >= 0) {
        welcome->arena_count = 1;
        *fds = &rig->arena_fd;
    }
    *session = rig;
    rig->welcomes++;
    return 0;
}

static int on_connected(void *ctx, void *session, const void *address, size_t bytes)
{
    struct rig *rig = ctx;

    assert_ptr_equal(session, rig);
    assert_true(bytes < sizeof(rig->address));
    memcpy(rig->address, address, bytes);
    rig->connects++;
    return rig->connect_error;
}

static void on_ended(void *ctx, void *session, const char *why)
{
    struct rig *rig = ctx;

    assert_ptr_equal(session, rig);
    pthread_mutex_lock(&rig->lock);
    snprintf(rig->why, sizeof(rig->why), "%s", why);
    pthread_mutex_unlock(&rig->lock);
    rig->ends++;
}

static void on_refused(void *ctx, const char *peer, const char *why)
{
    struct rig *rig = ctx;

    assert_true(strlen(peer) > 0);
    pthread_mutex_lock(&rig->lock);
    snprintf(rig->why, sizeof(rig->why), "%s", why);
    pthread_mutex_unlock(&rig->lock);
    rig->refusals++;
}

static const struct pst_boot_server_ops ops = {
    .welcome = on_welcome, .connected = on_connected, .ended = on_ended, .refused = on_refused};

static uint64_t rig_now(struct rig *rig)
{
    uint64_t fixed_ns = rig->fixed_ns;

    return fixed_ns ? fixed_ns : pst_now_ns();
}

static void *serve(void *arg)
{
    struct rig *rig = arg;

    while (!rig->stop) {
        struct pollfd p = {.fd = pst_boot_server_fd(rig->server), .events = POLLIN};
        int ms = pst_boot_server_poll(rig->server, rig_now(rig));

        poll(&p, 1, ms < 5 ? ms : 5);
    }
    return NULL;
}

static void rig_run(struct rig *rig)
{
    rig->stop = false;
    rig->running = true;
    assert_int_equal(pthread_create(&rig->thread, NULL, serve, rig), 0);
}

static void rig_halt(struct rig *rig)
{
    if (!rig->running)
        return;
    rig->stop = true;
    pthread_join(rig->thread, NULL);
    rig->running = false;
}

static void rig_open(struct rig *rig, const char *secret, uint32_t sessions_max, uint32_t handshakes_max)
{
    struct pst_boot_server_options options = {
        .secret = {secret, strlen(secret)}, .sessions_max = sessions_max, .handshakes_max = handshakes_max};
    const char *fault;

    memset(rig, 0, sizeof(*rig));
    pthread_mutex_init(&rig->lock, NULL);
    rig->arena_fd = -1;
    assert_int_equal(pst_boot_server_open(&options, &ops, rig, &rig->server), 0);
    assert_int_equal(pst_boot_address_parse("127.0.0.1:0", &rig->tcp, &fault), 0);
    assert_int_equal(pst_boot_server_listen(rig->server, &rig->tcp), 0);
    assert_true(rig->tcp.port > 0);
    snprintf(rig->path.path, sizeof(rig->path.path), "/tmp/pst_boot_%d.sock", getpid());
    assert_int_equal(pst_boot_server_listen(rig->server, &rig->path), 0);
}

static void rig_close(struct rig *rig)
{
    struct stat st;

    rig_halt(rig);
    rig->server = pst_boot_server_close(rig->server);
    assert_int_equal(rig->welcomes, rig->ends);
    assert_int_not_equal(stat(rig->path.path, &st), 0);
    if (rig->arena_fd >= 0)
        close(rig->arena_fd);
}

struct client {
    struct pst_boot_welcome welcome;
    int fds[PST_BOOT_ARENAS_MAX];
    struct pst_boot_link *link;
    const char *fault;
};

static int dial(struct client *c, const struct pst_boot_address *address, const char *secret,
                bool network_only)
{
    struct pst_boot_client_options options = {.secret = {secret, strlen(secret)},
                                              .network_only = network_only,
                                              .deadline_ns = pst_now_ns() + 10 * SECOND_NS};

    c->link = NULL;
    c->fault = NULL;
    return pst_boot_connect(address, &options, &c->welcome, c->fds, &c->link, &c->fault);
}

static int client_address(struct client *c)
{
    return pst_boot_link_address(c->link, "my address", 10, pst_now_ns() + 10 * SECOND_NS, &c->fault);
}

/* Waits until @count reached @wanted. */
static void await_count(const atomic_int *count, int wanted)
{
    uint64_t deadline_ns = pst_now_ns() + 10 * SECOND_NS;

    while (*count < wanted && pst_now_ns() < deadline_ns)
        poll(NULL, 0, 1);
    assert_int_equal(*count, wanted);
}

static void expect_session(struct rig *rig, const struct pst_boot_address *address, const char *secret)
{
    struct client *c = calloc(1, sizeof(*c));
    int ends = rig->ends;

    assert_int_equal(dial(c, address, secret, false), 0);
    assert_int_equal(c->welcome.token, 0x1122334455667788);
    assert_int_equal(c->welcome.slot_seed, 99);
    assert_int_equal(c->welcome.arena_bytes, 1ull << 40);
    assert_int_equal(c->welcome.shard_count, PST_BOOT_SHARDS_MAX);
    for (uint32_t i = 0; i < c->welcome.shard_count; i++) {
        assert_int_equal(c->welcome.shards[i].bytes, PST_NET_ADDRESS_BYTES_MAX);
        assert_int_equal(c->welcome.shards[i].data[0], i);
        assert_int_equal(c->welcome.shards[i].data[PST_NET_ADDRESS_BYTES_MAX - 1], i);
    }
    assert_true(c->welcome.same_host);
    assert_int_equal(client_address(c), 0);
    assert_memory_equal(rig->address, "my address", 10);
    assert_int_equal(pst_boot_link_tick(c->link, pst_now_ns()), 0);
    pst_boot_link_close(c->link);
    await_count(&rig->ends, ends + 1);
    free(c);
}

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

static int raw_connect(struct rig *rig)
{
    struct sockaddr_in sa = {.sin_family = AF_INET, .sin_port = htons(rig->tcp.port)};
    struct timeval limit = {.tv_sec = 10};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    sa.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)), 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&sa, sizeof(sa)), 0);
    return fd;
}

/* Reads up to the end of file. Return: bytes read. */
static size_t raw_drain(int fd, uint8_t *buf, size_t cap)
{
    size_t done = 0;
    ssize_t n;

    while (done < cap && (n = recv(fd, buf + done, cap - done, 0)) > 0)
        done += (size_t)n;
    return done;
}

static size_t hello_frame(uint8_t out[BOOT_HEAD_BYTES + BOOT_HELLO_BYTES])
{
    struct boot_hello hello = {.flags = BOOT_HELLO_HAS_SECRET};

    boot_frame_head(out, PST_BOOT_VERSION, BOOT_HELLO, BOOT_HELLO_BYTES);
    boot_hello_encode(&hello, out + BOOT_HEAD_BYTES);
    return BOOT_HEAD_BYTES + BOOT_HELLO_BYTES;
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
    expect_version(&rig, 0, BOOT_REFUSED, PST_BOOT_VERSION);
    expect_version(&rig, 1, BOOT_REFUSED, PST_BOOT_VERSION);
    expect_version(&rig, 2, BOOT_CHALLENGE, 2);
    expect_version(&rig, 3, BOOT_CHALLENGE, 3);
    expect_version(&rig, 4, BOOT_CHALLENGE, PST_BOOT_VERSION); /* a client of tomorrow */
    expect_version(&rig, UINT16_MAX, BOOT_CHALLENGE, PST_BOOT_VERSION);
    expect_session(&rig, &rig.tcp, "s");
    rig_close(&rig);
}

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
    assert_int_equal(poll(&(struct pollfd){.fd = pst_boot_link_fd(c->link), .events = POLLIN}, 1, 10000), 1);
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

static void node_ends_a_session(void **state)
{
    struct client *c = calloc(1, sizeof(*c));
    struct rig rig;

    (void)state;
    rig_open(&rig, "s", 4, 4);
    rig_run(&rig);
    assert_int_equal(dial(c, &rig.path, "s", false), 0);
    assert_int_equal(client_address(c), 0);
    rig_halt(&rig);
    pst_boot_server_end(rig.server, &rig);
    assert_int_equal(rig.ends, 0); /* told by a poll */
    rig_run(&rig);
    await_count(&rig.ends, 1);
    assert_string_equal(rig.why, "ended by the node");
    assert_int_equal(pst_boot_link_tick(c->link, pst_now_ns()), -ECONNRESET);
    pst_boot_link_close(c->link);
    rig_close(&rig);
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
    assert_int_equal(pst_boot_server_open(&options, &ops, &rig, &other), 0);
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
    assert_int_equal(pst_boot_server_open(&options, &ops, &rig, &other), 0);
    assert_int_equal(pst_boot_server_listen(other, &address), -EADDRINUSE); /* somebody's file */
    pst_boot_server_close(other);
    assert_int_equal(unlink(address.path), 0);
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
    expect_stranger(answer, 0, -EPROTO, "the node closed the connection");
    boot_frame_head(answer, 4, BOOT_CHALLENGE, BOOT_CHALLENGE_BYTES);
    expect_stranger(answer, BOOT_HEAD_BYTES + BOOT_CHALLENGE_BYTES, -EPROTONOSUPPORT,
                    "the node speaks version 4, this client 2 to 3");
    boot_frame_head(answer, 0, BOOT_CHALLENGE, BOOT_CHALLENGE_BYTES);
    expect_stranger(answer, BOOT_HEAD_BYTES + BOOT_CHALLENGE_BYTES, -EPROTONOSUPPORT,
                    "the node speaks version 0, this client 2 to 3");
    boot_frame_head(answer, 9, BOOT_REFUSED, 4);
    boot_refused_encode(BOOT_REFUSED_VERSION, answer + BOOT_HEAD_BYTES);
    expect_stranger(answer, BOOT_HEAD_BYTES + 4, -EPROTONOSUPPORT,
                    "the node speaks version 9, this client 2 to 3");
    /* One that claims to know the secret, welcomes, and cannot prove it. */
    boot_frame_head(at, PST_BOOT_VERSION, BOOT_CHALLENGE, BOOT_CHALLENGE_BYTES);
    boot_challenge_encode(&challenge, at + BOOT_HEAD_BYTES);
    at += BOOT_HEAD_BYTES + BOOT_CHALLENGE_BYTES;
    boot_frame_head(at, PST_BOOT_VERSION, BOOT_WELCOME, BOOT_MAC_BYTES + BOOT_WELCOME_FIXED_BYTES);
    memset(at + BOOT_HEAD_BYTES, 0, BOOT_MAC_BYTES + BOOT_WELCOME_FIXED_BYTES);
    at += BOOT_HEAD_BYTES + BOOT_MAC_BYTES + BOOT_WELCOME_FIXED_BYTES;
    expect_stranger(answer, (size_t)(at - answer), -EACCES, "the node does not know the secret");
}

static void silent_stranger_times_out(void **state)
{
    struct pst_boot_client_options options = {.deadline_ns = pst_now_ns() + SECOND_NS / 5};
    struct client *c = calloc(1, sizeof(*c));
    struct rig rig;

    (void)state;
    rig_open(&rig, "", 4, 4); /* nobody polls it: connects, and says nothing */
    assert_int_equal(pst_boot_connect(&rig.tcp, &options, &c->welcome, c->fds, &c->link, &c->fault),
                     -ETIMEDOUT);
    options.deadline_ns = pst_now_ns() + SECOND_NS / 5;
    assert_int_equal(pst_boot_connect(&rig.path, &options, &c->welcome, c->fds, &c->link, &c->fault),
                     -ETIMEDOUT);
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
        assert_int_equal(pst_boot_connect(&address, &options, &c->welcome, c->fds, &c->link, &c->fault),
                         -ETIMEDOUT);
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
    uint8_t buf[4096];
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
        cmocka_unit_test(garbage_is_survived),
        cmocka_unit_test(long_frames_are_refused),
        cmocka_unit_test(slow_client_blocks_nobody),
        cmocka_unit_test(handshakes_are_limited),
        cmocka_unit_test(sessions_are_limited),
        cmocka_unit_test(idle_client_is_kept),
        cmocka_unit_test(client_without_address_is_ended),
        cmocka_unit_test(silent_node_is_noticed),
        cmocka_unit_test(node_ends_a_session),
        cmocka_unit_test(unix_paths_are_taken_over),
        cmocka_unit_test(nothing_listens),
        cmocka_unit_test(strangers_are_told_apart),
        cmocka_unit_test(silent_stranger_times_out),
        cmocka_unit_test(full_queues_time_out),
        cmocka_unit_test(no_descriptors_left),
        cmocka_unit_test(welcome_is_checked),
        cmocka_unit_test(welcome_sizes_are_checked),
        cmocka_unit_test(forked_child_holds_nothing_up),
    };

    /* Valgrind keeps descriptors above the limit to itself, and closes a connection that it accepts there. */
    if (getenv("TEST_VALGRIND"))
        cmocka_set_skip_filter("no_descriptors_left");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
