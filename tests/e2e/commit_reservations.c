/* SPDX-License-Identifier: Apache-2.0 */
/*
 * commit_reservations.c: commits reservations of a pool with copies, for tests/e2e/test_home.py:
 *
 *     commit_reservations URL again         each reservation a second time
 *     commit_reservations URL durable       durably, then as it is if that is refused
 *     commit_reservations URL busy PID      more of them at once than a node has under way, while node PID
 * stands still
 *
 * Exits with 1 and a line if a commit does not do what penstock.h says.
 */
#include <penstock/penstock.h>

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MANY = 7000, FEW = 12, BYTES = 100, STANDS_US = 700000 };

static struct penstock *store;
static struct penstock_reservation reservations[MANY];
static struct penstock_op ops[MANY];
static char keys[MANY][16];

static int fail(const char *what, int number, int result)
{
    printf("%s: reservation %d: %s (%s)\n", what, number, penstock_result_text(result), penstock_error());
    exit(1);
}

static void run(const char *what, int count)
{
    int r = penstock_batch(store, ops, (size_t)count);

    for (int i = 0; i < count; i++)
        if (ops[i].result)
            fail(what, i, ops[i].result);
    if (r)
        fail(what, -1, r);
}

/* Some did not say how large they would be. */
static bool grows(int at)
{
    return at < FEW && at % 3 == 0;
}

/* Reservations that wait for nothing but their commit. */
static void reserve(int count)
{
    static char value[BYTES];

    for (int i = 0; i < count; i++) {
        snprintf(keys[i], sizeof(keys[i]), "reservation%d", i);
        ops[i] = (struct penstock_op){0};
        penstock_prep_reserve(&ops[i], keys[i], strlen(keys[i]), grows(i) ? PENSTOCK_BYTES_UNKNOWN : BYTES,
                              &reservations[i]);
    }
    run("reserve", count);
    for (int i = 0; i < count; i++) {
        ops[i] = (struct penstock_op){0};
        penstock_prep_write_at(&ops[i], keys[i], strlen(keys[i]), &reservations[i], 0, value, BYTES);
        reservations[i].bytes = BYTES;
    }
    run("write", count);
}

static void prepare(int at, int flags)
{
    ops[at] = (struct penstock_op){0};
    penstock_prep_reservation_commit(&ops[at], keys[at], strlen(keys[at]), &reservations[at]);
    ops[at].flags = (uint32_t)flags;
}

static int commit(int at, int flags, uint64_t *generation)
{
    struct penstock_op *op = &ops[at];

    prepare(at, flags);
    penstock_batch(store, op, 1);
    *generation = op->generation;
    return op->result;
}

static void again(void)
{
    uint64_t first, second;

    reserve(FEW);
    for (int i = 0; i < FEW; i++) {
        int r = commit(i, 0, &first), twice = commit(i, 0, &second);

        if (r || twice)
            fail(r ? "commit" : "commit again", i, r ? r : twice);
        if (!first || first != second)
            fail("commit again: another generation", i, 0);
    }
}

/* Says how many were refused. */
static void durable(void)
{
    static char more[3 * BYTES];
    uint64_t generation;
    int refused = 0;

    reserve(FEW);
    for (int i = 0; i < FEW; i++) {
        int r = commit(i, PENSTOCK_DURABLE, &generation);

        if (r == 0)
            continue;
        if (r != -EOPNOTSUPP)
            fail("durable commit", i, r);
        refused++;
        r = grows(i) ? penstock_write_at(store, keys[i], strlen(keys[i]), &reservations[i], BYTES, more,
                                         sizeof(more))
                     : 0;
        if (r)
            fail("write behind a refused commit", i, r);
        reservations[i].bytes += grows(i) ? sizeof(more) : 0;
        r = commit(i, 0, &generation);
        if (r)
            fail("commit that need not last", i, r);
    }
    printf("%d\n", refused);
}

static void *go_on(void *pid)
{
    usleep(STANDS_US);
    kill(*(pid_t *)pid, SIGCONT);
    return NULL;
}

static void busy(pid_t pid)
{
    pthread_t waker;

    reserve(MANY);
    for (int i = 0; i < MANY; i++)
        prepare(i, 0);
    kill(pid, SIGSTOP);
    if (pthread_create(&waker, NULL, go_on, &pid))
        fail("thread", -1, 0);
    run("commit", MANY);
    pthread_join(waker, NULL);
}

int main(int argc, char **argv)
{
    struct penstock_options options = {.size = sizeof(options), .timeout_ms = 20000};

    if (argc < 3 || penstock_open(argv[1], &options, &store))
        fail("open", -1, 0);
    if (argc > 3)
        busy(atoi(argv[3]));
    else if (strcmp(argv[2], "again") == 0)
        again();
    else
        durable();
    penstock_close(store);
    return 0;
}
