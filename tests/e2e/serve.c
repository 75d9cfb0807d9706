/* SPDX-License-Identifier: Apache-2.0 */
/* serve.c: a node inside the test's own process, used from there and from others. */
#include "e2e.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { LARGE_BYTES = 40 << 20 };

struct log {
    _Atomic int lines, listening, slow;
    char last_slow[512]; /* written before it is counted */
};

static void count_line(void *ctx, const char *line)
{
    struct log *log = ctx;

    log->lines++;
    if (strstr(line, "listening on ") && strstr(line, "UCX worker ready"))
        log->listening++;
    if (strncmp(line, "slow: ", 6) == 0 && strstr(line, "put") && !log->slow) {
        snprintf(log->last_slow, sizeof(log->last_slow), "%s", line);
        log->slow++;
    }
}

struct served {
    struct penstock_node *node;
    struct log log;
    char folder[64], socket_path[96];
};

static void serve(struct served *s, const char *shards)
{
    char unix_setting[128], shards_setting[32];
    const char *const settings[] = {"listen=127.0.0.1:0", "listen=127.0.0.1:0", unix_setting,
                                    "dram=64M",           "page_size=64K",      shards_setting,
                                    "class=c/=cache",     "slow_ms=1",          NULL};
    struct penstock_node_options options = {
        .size = sizeof(options), .settings = settings, .log = count_line, .log_ctx = &s->log};

    *s = (struct served){.folder = "/tmp/penstock-e2e-XXXXXX"};
    assert_non_null(mkdtemp(s->folder));
    snprintf(s->socket_path, sizeof(s->socket_path), "%s/socket", s->folder);
    snprintf(unix_setting, sizeof(unix_setting), "unix=%s", s->socket_path);
    snprintf(shards_setting, sizeof(shards_setting), "shards=%s", shards);
    assert_result(penstock_node_open(&options, &s->node), 0);
}

static void stop(struct served *s)
{
    assert_null(penstock_node_close(s->node));
    assert_int_equal(access(s->socket_path, F_OK), -1);
    assert_int_equal(rmdir(s->folder), 0);
}

static void same_process(void **state)
{
    struct penstock *store;
    struct served s;

    (void)state;
    serve(&s, "3");
    assert_int_equal(s.log.listening, 3);
    assert_true(strncmp(penstock_node_url(s.node, 0), "node://127.0.0.1:", 17) == 0);
    assert_true(strncmp(penstock_node_url(s.node, 1), "node://127.0.0.1:", 17) == 0);
    assert_true(strcmp(penstock_node_url(s.node, 0), penstock_node_url(s.node, 1)) != 0);
    assert_true(strncmp(penstock_node_url(s.node, 2), "node+unix:///", 13) == 0);
    assert_null(penstock_node_url(s.node, 3));
    assert_null(penstock_node_url(s.node, -1));
    for (int i = 0; i < 3; i++) {
        char key[16];

        snprintf(key, sizeof(key), "url/%d", i);
        assert_result(penstock_open(penstock_node_url(s.node, i), NULL, &store), 0);
        put_value(store, key, 3 << 20, i);
        put_value(store, "small", 30, i);
        expect_bytes(store, key, 3 << 20, i);
        expect_bytes(store, "small", 30, i);
        assert_null(penstock_close(store));
    }
    for (int i = 0; i < 500 && penstock_node_keys(s.node) != 4; i++)
        usleep(10000);
    assert_int_equal(penstock_node_keys(s.node), 4);
    stop(&s);
}

/* Return: 0 when the node that another process runs works. */
static int use_node(const char *url)
{
    uint64_t bytes = 500000, got = 0;
    uint8_t *value = malloc(bytes), *back = calloc(1, bytes);
    struct penstock *store;
    int r;

    if (!value || !back || penstock_open(url, NULL, &store) != 0)
        return 1;
    fill(value, bytes, 8);
    r = penstock_put(store, "from the child", 14, value, bytes);
    if (r == 0)
        r = penstock_get(store, "from the child", 14, back, bytes, &got);
    if (r == 0)
        r = got == bytes && filled(back, bytes, 8) ? 0 : 2;
    if (r == 0)
        r = penstock_get(store, "from the parent", 15, back, bytes, &got);
    if (r == 0)
        r = got == 3000 && filled(back, 3000, 9) ? 0 : 3;
    penstock_close(store);
    return r ? 4 : 0;
}

static void forked_process(void **state)
{
    struct penstock *store;
    struct served s;

    (void)state;
    serve(&s, "2");
    assert_result(penstock_open(penstock_node_url(s.node, 2), NULL, &store), 0);
    put_value(store, "from the parent", 3000, 9);
    for (int i = 0; i < 3; i++) {
        char url[200];
        pid_t pid;
        int status;

        snprintf(url, sizeof(url), "%s", penstock_node_url(s.node, i));
        pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) {
            alarm(20);
            _exit(use_node(url));
        }
        status = wait_for_child(pid, 30);
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), 0);
        expect_bytes(store, "from the child", 500000, 8);
        assert_result(penstock_delete(store, "from the child", 14), 0);
    }
    assert_null(penstock_close(store));
    stop(&s);
}

/* A client that outlives the node is told, soon; a new node on the same path is found again. */
static void node_goes_and_comes_back(void **state)
{
    struct penstock_options options = {.size = sizeof(options), .timeout_ms = 2000, .connect_ms = 1000};
    struct penstock *store;
    char path[96], setting[128];
    const char *const settings[] = {setting, "dram=16M", NULL};
    struct penstock_node_options again = {.size = sizeof(again), .settings = settings};
    struct penstock_node *node;
    struct served s;
    int r;

    (void)state;
    serve(&s, "1");
    assert_result(penstock_open(penstock_node_url(s.node, 2), &options, &store), 0);
    put_value(store, "k", 100, 1);
    strcpy(path, s.socket_path);
    assert_null(penstock_node_close(s.node));
    r = penstock_exists(store, "k", 1);
    assert_true(r == -ECONNREFUSED || r == -ECONNRESET);
    snprintf(setting, sizeof(setting), "unix=%s", path);
    assert_result(penstock_node_open(&again, &node), 0);
    assert_result(penstock_exists(store, "k", 1), PENSTOCK_MISS); /* it is another store */
    put_value(store, "k", 100, 2);
    expect_bytes(store, "k", 100, 2);
    assert_null(penstock_close(store));
    s.node = node;
    stop(&s);
}

/* Takes every connection and never says a word. */
static int listen_silently(const char *path)
{
    struct sockaddr_un un = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    snprintf(un.sun_path, sizeof(un.sun_path), "%s", path);
    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&un, sizeof(un)), 0);
    assert_int_equal(listen(fd, 1024), 0);
    return fd;
}

/* How long a call to such a node takes; the quickest of several, since a busy machine may add to any. */
static long quickest_failure_ms(struct penstock *store)
{
    long quickest_ms = INT32_MAX;

    for (int i = 0; i < 4; i++) {
        struct timespec from, to;
        long ms;

        clock_gettime(CLOCK_MONOTONIC, &from);
        assert_true(penstock_exists(store, "k", 1) < 0);
        clock_gettime(CLOCK_MONOTONIC, &to);
        ms = (to.tv_sec - from.tv_sec) * 1000 + (to.tv_nsec - from.tv_nsec) / 1000000;
        quickest_ms = ms < quickest_ms ? ms : quickest_ms;
    }
    return quickest_ms;
}

/* What a store says whose operations have less time than a connect may take. */
static int exists_in_the_end(struct penstock *store)
{
    int r = -1;

    for (int i = 0; r < 0 && i < 500; i++)
        r = penstock_exists(store, "k", 1);
    return r;
}

/* An attempt to connect may last a second, an operation that waits for it only its own time. */
static void looking_for_a_node_ends_in_time(void **state)
{
    struct penstock_options options = {.size = sizeof(options), .timeout_ms = 600};
    struct penstock_options hasty = {.size = sizeof(hasty), .timeout_ms = 20};
    char setting[128];
    const char *const settings[] = {setting, "dram=16M", NULL};
    struct penstock_node_options again = {.size = sizeof(again), .settings = settings};
    struct penstock *store, *other;
    struct served s;
    int fd;

    (void)state;
    serve(&s, "1");
    assert_result(penstock_open(penstock_node_url(s.node, 2), &options, &store), 0);
    assert_result(penstock_open(penstock_node_url(s.node, 2), &hasty, &other), 0);
    assert_null(penstock_node_close(s.node));
    fd = listen_silently(s.socket_path);
    assert_true(quickest_failure_ms(store) < 1000);
    assert_int_equal(unlink(s.socket_path), 0);
    close(fd);
    snprintf(setting, sizeof(setting), "unix=%s", s.socket_path);
    assert_result(penstock_node_open(&again, &s.node), 0);
    assert_result(exists_in_the_end(store), PENSTOCK_MISS);
    assert_result(exists_in_the_end(other), PENSTOCK_MISS);
    assert_null(penstock_close(other));
    assert_null(penstock_close(store));
    stop(&s);
}

static void expect_fault(const char *setting, int wanted, const char *word)
{
    const char *const settings[] = {"listen=127.0.0.1:0", "dram=16M", setting, NULL};
    struct penstock_node_options options = {.size = sizeof(options), .settings = settings, .connect_ms = 200};
    struct penstock_node *node = NULL;

    assert_result(penstock_node_open(&options, &node), wanted);
    assert_null(node);
    if (!strstr(penstock_error(), word))
        fail_msg("'%s' does not name '%s'", penstock_error(), word);
}

static void faults_are_named(void **state)
{
    struct penstock_node_options none = {.size = sizeof(none)};
    struct penstock_node *node = NULL;

    (void)state;
    expect_fault("colour=red", -EINVAL, "colour");
    expect_fault("dram", -EINVAL, "dram");
    expect_fault("dram=lots", -EINVAL, "lots");
    expect_fault("shards=1000", -EINVAL, "shards");
    expect_fault("page_size=100", -EINVAL, "page_size");
    expect_fault("class=nothing", -EINVAL, "nothing");
    expect_fault("fabric=any", -EINVAL, "fabric");
    expect_fault("listen=nowhere", -EINVAL, "server address must be host:port");
    expect_fault("listen=127.0.0.1:x", -EINVAL, "invalid port number");
    expect_fault("listen=192.0.2.1:7000", -EACCES, "192.0.2.1:7000");
    expect_fault("secret_file=/nowhere", -ENOENT, "/nowhere");
    expect_fault("master=127.0.0.1:1", -ECONNREFUSED, "master 127.0.0.1:1");
    assert_result(penstock_node_open(&none, &node), -EINVAL); /* nobody could reach it */
    assert_result(penstock_node_open(NULL, &node), -EINVAL);
    assert_null(penstock_node_url(NULL, 0));
    assert_int_equal(penstock_node_keys(NULL), 0);
}

/* Its options end before the last member. */
static void a_program_of_before_serves(void **state)
{
    const char *const settings[] = {"listen=127.0.0.1:0", "dram=16M", NULL};
    struct penstock_node_options options = {.size = offsetof(struct penstock_node_options, connect_ms),
                                            .settings = settings};
    struct penstock_node *node = NULL;

    (void)state;
    assert_result(penstock_node_open(&options, &node), 0);
    assert_null(penstock_node_close(node));
}

/* No node moves 40 MiB within a millisecond: the log names the request as the client does. */
static void slow_requests_are_logged(void **state)
{
    struct penstock_op op = {0};
    struct penstock *store;
    struct served s;
    char request[32];
    void *value = bytes_new(LARGE_BYTES);

    (void)state;
    fill(value, LARGE_BYTES, 1);
    serve(&s, "1");
    assert_result(penstock_open(penstock_node_url(s.node, 2), NULL, &store), 0);
    penstock_prep_put(&op, "slow key", 8, value, LARGE_BYTES);
    assert_result(run_op(store, &op), 0);
    assert_true(penstock_request_id(&op) != 0);
    snprintf(request, sizeof(request), "request %012llx ", (unsigned long long)penstock_request_id(&op));
    for (int i = 0; i < 1000 && !s.log.slow; i++)
        usleep(10000);
    assert_int_equal(s.log.slow, 1);
    assert_non_null(strstr(s.log.last_slow, request));
    assert_non_null(strstr(s.log.last_slow, "1 operations (put), first key 'slow key', 419430"));
    assert_non_null(strstr(s.log.last_slow, "ms: fetches 0, values "));
    assert_null(strstr(s.log.last_slow, ", trace "));
    assert_null(penstock_close(store));
    stop(&s);
    free(value);
}

#define TRACE "4bf92f3577b34da6a3ce929d0e0e4736"

/* A queue's operations belong to the trace of their submit, whatever the thread does meanwhile. */
static void a_trace_is_of_its_submit(void **state)
{
    struct penstock_op op = {0}, *ended;
    struct penstock_queue *queue;
    struct penstock *store;
    struct served s;
    void *value = bytes_new(LARGE_BYTES);

    (void)state;
    fill(value, LARGE_BYTES, 1);
    serve(&s, "1");
    assert_result(penstock_open(penstock_node_url(s.node, 0), NULL, &store), 0);
    assert_result(penstock_queue_open(store, &queue), 0);
    assert_result(penstock_trace("00-" TRACE "-00f067aa0ba902b7-01"), 0);
    assert_result(penstock_trace("00-" TRACE "-00f067aa0ba902b7"), -EINVAL);
    penstock_prep_put(&op, "key", 3, value, LARGE_BYTES);
    assert_result(penstock_submit(queue, &op, 1), 0);
    assert_result(penstock_trace(NULL), 0);
    assert_int_equal(penstock_reap(queue, &ended, 1, -1), 1);
    assert_result(ended->result, 0);
    for (int i = 0; i < 1000 && !s.log.slow; i++)
        usleep(10000);
    assert_int_equal(s.log.slow, 1);
    assert_non_null(strstr(s.log.last_slow, ", trace " TRACE));
    assert_null(penstock_queue_close(queue));
    assert_null(penstock_close(store));
    stop(&s);
    free(value);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(same_process),
    cmocka_unit_test(slow_requests_are_logged),
    cmocka_unit_test(a_trace_is_of_its_submit),
    cmocka_unit_test(forked_process),
    cmocka_unit_test(node_goes_and_comes_back),
    cmocka_unit_test(faults_are_named),
    cmocka_unit_test(a_program_of_before_serves),
    cmocka_unit_test(looking_for_a_node_ends_in_time),
};

PART(part_serve, tests);
