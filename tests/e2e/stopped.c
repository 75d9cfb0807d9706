/* SPDX-License-Identifier: Apache-2.0 */
/* stopped.c: a node or a client that stands still and goes on later: whoever waits for it is told in time. */
#include "e2e.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    KEYS = 8,
    TIMEOUT_MS = 400,
    LARGE = 3 << 20,
};

static uint64_t size_of(int key)
{
    static const uint64_t sizes[] = {50, 2000, 70000, LARGE};

    return sizes[key % 4];
}

static struct penstock *open_impatient(const char *url)
{
    struct penstock_options options = {
        .size = sizeof(options), .timeout_ms = TIMEOUT_MS, .connect_ms = 10000};
    struct penstock *store;

    assert_result(penstock_open(url, &options, &store), 0);
    return store;
}

static void stop(pid_t pid)
{
    int status;

    assert_int_equal(kill(pid, SIGSTOP), 0);
    assert_int_equal(waitpid(pid, &status, WUNTRACED), pid);
    assert_true(WIFSTOPPED(status));
}

/* ---- the node stands still ---- */

/* Half of the keys are written anew, the others read. Return: how many of the writes may have happened. */
static int batch_to_nobody(struct penstock *store, uint64_t seed)
{
    struct penstock_op ops[KEYS] = {{0}};
    char names[KEYS][8];
    void *bufs[KEYS];
    int unknown = 0;

    for (int i = 0; i < KEYS; i++) {
        snprintf(names[i], sizeof(names[i]), "k%d", i);
        bufs[i] = bytes_new(size_of(i));
        fill(bufs[i], size_of(i), seed + i);
        if (i < KEYS / 2)
            penstock_prep_put(&ops[i], names[i], strlen(names[i]), bufs[i], size_of(i));
        else
            penstock_prep_get(&ops[i], names[i], strlen(names[i]), bufs[i], size_of(i));
    }
    assert_int_equal(penstock_batch(store, ops, KEYS), KEYS);
    for (int i = 0; i < KEYS; i++) {
        unknown += ops[i].result == PENSTOCK_UNKNOWN;
        assert_true(ops[i].result == -ETIMEDOUT || ops[i].result == -ECONNRESET ||
                    (i < KEYS / 2 && ops[i].result == PENSTOCK_UNKNOWN));
        free(bufs[i]);
    }
    return unknown;
}

/* The value is one of those that were written, whole. */
static void expect_one_of(struct penstock *store, int key, uint64_t seed, uint64_t other_seed)
{
    uint8_t *buf = bytes_new(size_of(key));
    uint64_t value_bytes;
    char name[16];
    int r = -1;

    snprintf(name, sizeof(name), "k%d", key);
    for (int tries = 0; r && tries < 50; tries++) /* connecting anew has its own time-out */
        r = penstock_get(store, name, strlen(name), buf, size_of(key), &value_bytes);
    assert_result(r, 0);
    assert_int_equal(value_bytes, size_of(key));
    assert_true(filled(buf, value_bytes, seed + key) || filled(buf, value_bytes, other_seed + key));
    free(buf);
}

static void stopped_node(void **state)
{
    struct penstock_options hasty = {.size = sizeof(hasty), .connect_ms = TIMEOUT_MS};
    struct penstock_stat stat = {.size = sizeof(stat)};
    struct penstock *store, *other = NULL;
    struct place place;
    int unknown = 0;
    char name[8];

    (void)state;
    if (place_is_private())
        return;
    place_open(&place, fixture.kind, "64M", NULL);
    store = open_impatient(place.url);
    for (int round = 0; round < 2; round++) { /* in its first session, and in one that was made anew */
        for (int i = 0; i < KEYS; i++) {
            snprintf(name, sizeof(name), "k%d", i);
            put_value(place.store, name, size_of(i), 1000 + i);
        }
        expect_one_of(store, 0, 1000, 1000); /* it is connected */
        stop(place.daemon.pid);
        unknown += batch_to_nobody(store, 2000);
        assert_true(penstock_stat(store, &stat) < 0);
        if (fixture.kind != KIND_POOL) /* which has a master, that answers */
            assert_true(penstock_open(place.url, &hasty, &other) < 0);
        assert_null(other);
        assert_int_equal(kill(place.daemon.pid, SIGCONT), 0);
        for (int i = 0; i < KEYS; i++)
            expect_one_of(store, i, 1000, i < KEYS / 2 ? 2000 : 1000);
        for (int tries = 0; put_filled(store, "k0", size_of(0), 3000); tries++)
            assert_true(tries < 50);
        usleep(100000);
        expect_bytes(place.store, "k0", size_of(0), 3000); /* nothing of before came behind it */
    }
    assert_true(unknown > 0);
    assert_null(penstock_close(store));
    place_close(&place);
}

/* ---- a client stands still ---- */

static int set_nonblocking(int fd)
{
    return fcntl(fd, F_SETFL, O_NONBLOCK);
}

/* What an operation says whose node had no time for it until its deadline. */
static bool may_fail(int result)
{
    return result == -ETIMEDOUT || result == -ECONNRESET || result == -EHOSTUNREACH;
}

/* Return: 0 when all that happens to the child is documented. */
static int live(const char *url, int began_fd, int end_fd)
{
    struct penstock_options options = {
        .size = sizeof(options), .timeout_ms = TIMEOUT_MS, .connect_ms = 60000};
    uint8_t *value = malloc(LARGE), *back = malloc(LARGE);
    struct penstock *store;
    uint64_t value_bytes;
    char end;

    if (!value || !back || penstock_open(url, &options, &store) < 0)
        return 1;
    for (uint64_t round = 0; read(end_fd, &end, 1) < 0; round++) { /* until the parent closes its end */
        uint64_t bytes = size_of((int)(round % 4));
        int r;

        fill(value, bytes, round);
        r = penstock_put(store, "child", 5, value, bytes);
        if (r < 0 && !may_fail(r))
            return 2;
        if (write(began_fd, "", 1) != 1 || r != PENSTOCK_OK)
            continue;
        r = penstock_get(store, "child", 5, back, LARGE, &value_bytes);
        if (r != PENSTOCK_OK && !may_fail(r))
            return 3;
        if (r == PENSTOCK_OK && (value_bytes != bytes || !filled(back, bytes, round)))
            return 4;
    }
    penstock_close(store);
    free(value);
    free(back);
    return 0;
}

static void wait_for_signs_of_life(int fd)
{
    char bytes[4096];

    (void)!read(fd, bytes, sizeof(bytes)); /* those of before */
    for (int i = 0; i < 3; i++)
        assert_int_equal(read(fd, bytes, 1), 1);
}

static void stopped_client(void **state)
{
    int began[2], end[2], status;
    pid_t pid;

    (void)state;
    if (place_is_private())
        return;
    assert_int_equal(pipe(began), 0);
    assert_int_equal(pipe(end), 0);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        alarm(100);
        close(end[1]);
        /* Without an end to read yet, reading must not wait. */
        _exit(dup2(end[0], 0) < 0 || set_nonblocking(0) < 0 ? 9 : live(fixture.place.url, began[1], 0));
    }
    close(end[0]);
    close(began[1]); /* so that the child's end is seen */
    for (int round = 0; round < 2; round++) {
        wait_for_signs_of_life(began[0]);
        stop(pid);
        for (int i = 0; i < 200; i++) { /* nobody else notices */
            put_value(STORE, "parent", size_of(i), i);
            expect_bytes(STORE, "parent", size_of(i), i);
        }
        usleep(2 * TIMEOUT_MS * 1000);
        assert_int_equal(kill(pid, SIGCONT), 0);
    }
    wait_for_signs_of_life(began[0]);
    close(end[1]);
    status = wait_for_child(pid, 60);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    close(began[0]);
    expect_unpinned(STORE);
    for (int i = 0; i < 500 && stat_of(STORE).sessions != 1; i++)
        usleep(10000);
    assert_int_equal(stat_of(STORE).sessions, 1);
    assert_int_equal(stat_of(STORE).reservations, 0);
    assert_int_equal(stat_of(STORE).keys, 2);
}

static const struct CMUnitTest tests[] = {
    TEST(stopped_node),
    TEST(stopped_client),
};

PART(part_stopped, tests);
