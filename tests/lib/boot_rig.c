/* SPDX-License-Identifier: Apache-2.0 */
/* rig.c: see rig.h. */
#include "lib/boot_rig.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>

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
    if (welcome->owner) /* of a secret among several: its grant's name */
        snprintf(welcome->grant, sizeof(welcome->grant), "%s", (const char *)welcome->owner);
    welcome->partition_seed = 99;
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

static int on_attach(void *ctx, const struct pst_boot_attachment *attachment)
{
    struct rig *rig = ctx;

    assert_true(attachment->early.len <= sizeof(rig->early));
    rig->shard = attachment->shard;
    rig->early_bytes = attachment->early.len;
    memcpy(rig->early, attachment->early.data, attachment->early.len);
    rig->attached = attachment->channel;
    rig->attaches++;
    return 0;
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

static void on_refused(void *ctx, const char *peer, enum pst_boot_refusal kind, const char *why)
{
    struct rig *rig = ctx;

    assert_true(strlen(peer) > 0 && kind < PST_BOOT_REFUSALS);
    pthread_mutex_lock(&rig->lock);
    snprintf(rig->why, sizeof(rig->why), "%s", why);
    pthread_mutex_unlock(&rig->lock);
    rig->kind = (int)kind;
    rig->refusals++;
}

const struct pst_boot_server_ops rig_ops = {.welcome = on_welcome,
                                            .connected = on_connected,
                                            .attach = on_attach,
                                            .ended = on_ended,
                                            .refused = on_refused};

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

void rig_run(struct rig *rig)
{
    rig->stop = false;
    rig->running = true;
    assert_int_equal(pthread_create(&rig->thread, NULL, serve, rig), 0);
}

void rig_halt(struct rig *rig)
{
    if (!rig->running)
        return;
    rig->stop = true;
    pthread_join(rig->thread, NULL);
    rig->running = false;
}

void rig_open(struct rig *rig, const char *secret, uint32_t sessions_max, uint32_t handshakes_max)
{
    struct pst_boot_server_options options = {
        .secret = {secret, strlen(secret)}, .sessions_max = sessions_max, .handshakes_max = handshakes_max};

    rig_open_with(rig, &options);
}

void rig_open_with(struct rig *rig, const struct pst_boot_server_options *options)
{
    const char *fault;

    memset(rig, 0, sizeof(*rig));
    pthread_mutex_init(&rig->lock, NULL);
    rig->arena_fd = -1;
    assert_int_equal(pst_boot_server_open(options, &rig_ops, rig, &rig->server), 0);
    assert_int_equal(pst_boot_address_parse("127.0.0.1:0", &rig->tcp, &fault), 0);
    assert_int_equal(pst_boot_server_listen(rig->server, &rig->tcp), 0);
    assert_true(rig->tcp.port > 0);
    snprintf(rig->path.path, sizeof(rig->path.path), "/tmp/pst_boot_%d.sock", getpid());
    assert_int_equal(pst_boot_server_listen(rig->server, &rig->path), 0);
}

void rig_close(struct rig *rig)
{
    struct stat st;

    rig_halt(rig);
    rig->server = pst_boot_server_close(rig->server);
    assert_int_equal(rig->welcomes, rig->ends);
    assert_int_not_equal(stat(rig->path.path, &st), 0);
    if (rig->arena_fd >= 0)
        close(rig->arena_fd);
}

int dial_with(struct client *c, const struct pst_boot_address *address,
              const struct pst_boot_client_options *options)
{
    int r;

    c->link = NULL;
    c->fault = NULL;
    r = pst_boot_link_open(address, options, &c->link, &c->fault);
    if (r < 0)
        return r;
    while ((r = pst_boot_link_welcome(c->link, &c->welcome, c->fds, &c->fault)) == -EAGAIN)
        pst_boot_link_wait(c->link, UINT64_MAX);
    if (r < 0)
        c->link = pst_boot_link_close(c->link);
    return r;
}

int dial(struct client *c, const struct pst_boot_address *address, const char *secret, bool network_only)
{
    struct pst_boot_client_options options = {.secret = {secret, strlen(secret)},
                                              .network_only = network_only,
                                              .deadline_ns = pst_now_ns() + 10 * SECOND_NS};

    return dial_with(c, address, &options);
}

int client_address(struct client *c)
{
    int r = pst_boot_link_offer(c->link, "my address", 10, pst_now_ns() + 10 * SECOND_NS);

    while (r == 0 && (r = pst_boot_link_ready(c->link, &c->fault)) == -EAGAIN) {
        pst_boot_link_wait(c->link, UINT64_MAX);
        r = 0;
    }
    return r;
}

void await_count(const atomic_int *count, int wanted)
{
    uint64_t deadline_ns = pst_now_ns() + 10 * SECOND_NS;

    while (*count < wanted && pst_now_ns() < deadline_ns)
        poll(NULL, 0, 1);
    assert_int_equal(*count, wanted);
}

void expect_session(struct rig *rig, const struct pst_boot_address *address, const char *secret)
{
    struct client *c = calloc(1, sizeof(*c));
    int ends = rig->ends;

    assert_int_equal(dial(c, address, secret, false), 0);
    assert_int_equal(c->welcome.token, 0x1122334455667788);
    assert_int_equal(c->welcome.partition_seed, 99);
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

int raw_connect(struct rig *rig)
{
    struct sockaddr_in sa = {.sin_family = AF_INET, .sin_port = htons(rig->tcp.port)};
    struct timeval limit = {.tv_sec = 10};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    sa.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)), 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&sa, sizeof(sa)), 0);
    return fd;
}

size_t raw_drain(int fd, uint8_t *buf, size_t cap)
{
    size_t done = 0;
    ssize_t n;

    while (done < cap && (n = recv(fd, buf + done, cap - done, 0)) > 0)
        done += (size_t)n;
    return done;
}

size_t hello_frame(uint8_t out[BOOT_HEAD_BYTES + BOOT_HELLO_BYTES])
{
    struct boot_hello hello = {.flags = BOOT_HELLO_HAS_SECRET};

    boot_frame_head(out, PST_BOOT_VERSION, BOOT_HELLO, BOOT_HELLO_BYTES);
    boot_hello_encode(&hello, out + BOOT_HEAD_BYTES);
    return BOOT_HEAD_BYTES + BOOT_HELLO_BYTES;
}
