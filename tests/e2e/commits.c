/* SPDX-License-Identifier: Apache-2.0 */
/* commits.c: several keys at once: all or nothing, seen as one moment, whatever happens to who commits. */
#include "e2e.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LARGE = 300000 };

static struct penstock_op put_op(const char *key, const void *value, uint64_t bytes)
{
    struct penstock_op op = {0};

    penstock_prep_put(&op, key, strlen(key), value, bytes);
    return op;
}

static struct penstock_op check_op(const char *key, uint64_t generation)
{
    struct penstock_op op = {.if_generation = generation};

    penstock_prep(&op, PENSTOCK_CHECK, key, strlen(key));
    return op;
}

static struct penstock_op delete_op(const char *key, uint64_t generation)
{
    struct penstock_op op = {.if_generation = generation};

    penstock_prep(&op, PENSTOCK_DELETE, key, strlen(key));
    op.flags = generation ? PENSTOCK_IF_GENERATION : 0;
    return op;
}

static uint64_t generation_of(const char *key)
{
    struct penstock_op op = {0};

    penstock_prep(&op, PENSTOCK_STAT_KEY, key, strlen(key));
    assert_result(run_op(STORE, &op), 0);
    return op.generation;
}

static void all_of_it(void **state)
{
    uint8_t *large = bytes_new(LARGE), small[100];
    struct penstock_op ops[6];

    (void)state;
    fill(large, LARGE, 1);
    fill(small, sizeof(small), 2);
    put_value(STORE, "checked", 10, 9);
    put_value(STORE, "gone", 10, 9);
    put_value(STORE, "old", LARGE, 9);
    ops[0] = check_op("checked", generation_of("checked"));
    ops[1] = delete_op("gone", generation_of("gone"));
    ops[2] = put_op("old", small, sizeof(small));
    ops[3] = put_op("fresh", large, LARGE);
    ops[3].flags = PENSTOCK_IF_ABSENT | PENSTOCK_CHECKSUM;
    ops[4] = delete_op("was never there", 0);
    ops[5] = check_op("was never there either", 0);
    assert_result(penstock_commit(STORE, ops, 6), 0);
    for (int i = 0; i < 6; i++)
        assert_int_equal(ops[i].result, i == 4 ? PENSTOCK_MISS : 0);
    assert_int_equal(ops[2].generation, generation_of("old"));
    assert_int_equal(ops[3].generation, generation_of("fresh"));
    expect_bytes(STORE, "old", sizeof(small), 2);
    expect_bytes(STORE, "fresh", LARGE, 1);
    assert_result(penstock_exists(STORE, "gone", 4), PENSTOCK_MISS);
    assert_int_equal(stat_of(STORE).keys, 3);
    expect_unpinned(STORE);
    assert_int_equal(stat_of(STORE).reservations, 0);
    free(large);
}

static void or_nothing(void **state)
{
    uint8_t *large = bytes_new(LARGE);
    struct penstock_op ops[5];
    uint64_t there, pages_used;

    (void)state;
    fill(large, LARGE, 1);
    put_value(STORE, "there", 10, 9);
    there = generation_of("there");
    pages_used = stat_of(STORE).pages_used;
    for (int wrong = 0; wrong < 4; wrong++) {
        static const int wanted[] = {PENSTOCK_STALE, PENSTOCK_EXISTS, PENSTOCK_STALE, PENSTOCK_MISS};

        ops[0] = put_op("large", large, LARGE);
        ops[1] = put_op("small", large, 100);
        ops[2] = check_op("there", there);
        ops[3] = check_op("absent", 0);
        if (wrong == 0)
            ops[4] = check_op("a", 77);
        if (wrong == 1) {
            ops[2] = put_op("there", large, LARGE);
            ops[2].flags = PENSTOCK_IF_ABSENT;
            ops[4] = check_op("a", 0);
        }
        if (wrong == 2) {
            ops[2] = delete_op("there", there + 256);
            ops[4] = check_op("a", 5); /* two are wrong, and both say so */
        }
        if (wrong == 3)
            ops[4] = delete_op("a", 5);
        assert_result(penstock_commit(STORE, ops, 5), wanted[wrong]);
        assert_int_equal(ops[0].result, 0);
        assert_int_equal(ops[1].result, 0);
        assert_int_equal(ops[2].result, wrong == 1 ? PENSTOCK_EXISTS : wrong == 2 ? PENSTOCK_STALE : 0);
        assert_int_equal(ops[4].result, wrong == 1 ? 0 : wrong == 3 ? PENSTOCK_MISS : PENSTOCK_STALE);
        if (ops[2].result)
            assert_int_equal(ops[2].generation, there);
        assert_int_equal(stat_of(STORE).keys, 1);
        assert_int_equal(stat_of(STORE).reservations, 0);
        assert_int_equal(stat_of(STORE).pages_used, pages_used);
        expect_bytes(STORE, "there", 10, 9);
    }
    expect_unpinned(STORE);
    free(large);
}

static void bad_commits(void **state)
{
    struct penstock_op ops[3] = {put_op("a", "x", 1), check_op("b", 0), put_op("a", "y", 1)};
    struct penstock_op many[PENSTOCK_COMMIT_OPS_MAX + 1];

    (void)state;
    assert_result(penstock_commit(STORE, ops, 3), -EINVAL); /* a key twice */
    assert_result(penstock_commit(STORE, ops, 0), -EINVAL);
    assert_result(penstock_commit(STORE, NULL, 1), -EINVAL);
    assert_result(penstock_commit(STORE, many, PENSTOCK_COMMIT_OPS_MAX + 1), -EINVAL);
    ops[1].code = PENSTOCK_GET;
    assert_result(penstock_commit(STORE, ops, 2), -EINVAL);
    ops[1] = check_op("", 0);
    assert_result(penstock_commit(STORE, ops, 2), -EINVAL);
    ops[1] = put_op("c", NULL, 5);
    assert_result(penstock_commit(STORE, ops, 2), -EINVAL);
    ops[1] = put_op("c", "x", 1);
    ops[1].flags = PENSTOCK_EXACT;
    assert_result(penstock_commit(STORE, ops, 2), -EINVAL);
    assert_int_equal(stat_of(STORE).keys, 0);
}

/* As many operations as there may be, of every kind of size, in pieces and with attributes. */
static void large_commits(void **state)
{
    enum { COUNT = PENSTOCK_COMMIT_OPS_MAX, BYTES_MAX = 9000 };
    struct penstock_op *ops = calloc(COUNT, sizeof(*ops));
    uint8_t *values = bytes_new(COUNT * (uint64_t)BYTES_MAX);
    struct iovec pieces[COUNT][2];
    char keys[COUNT][16];

    (void)state;
    for (uint64_t i = 0; i < COUNT; i++) {
        uint64_t bytes = i * 35 + 1;
        uint8_t *value = values + i * BYTES_MAX;

        fill(value, bytes, i);
        snprintf(keys[i], sizeof(keys[i]), "large%d", (int)i);
        ops[i] = put_op(keys[i], value, bytes);
        if (i % 3 == 0) {
            pieces[i][0] = (struct iovec){value, bytes / 2};
            pieces[i][1] = (struct iovec){value + bytes / 2, bytes - bytes / 2};
            ops[i].iov = pieces[i];
            ops[i].iov_count = 2;
        }
        if (i % 5 == 0) {
            ops[i].attrs = keys[i];
            ops[i].attr_bytes = (uint16_t)strlen(keys[i]);
        }
    }
    assert_result(penstock_commit(STORE, ops, COUNT), 0);
    for (uint64_t i = 0; i < COUNT; i++) {
        char attrs[20] = "";
        struct penstock_op stat = {.attrs = attrs, .attr_bytes = sizeof(attrs)};

        expect_bytes(STORE, keys[i], i * 35 + 1, i);
        penstock_prep(&stat, PENSTOCK_STAT_KEY, keys[i], strlen(keys[i]));
        assert_result(run_op(STORE, &stat), 0);
        assert_int_equal(stat.attr_bytes, i % 5 == 0 ? strlen(keys[i]) : 0);
        assert_int_equal(stat.generation, ops[i].generation);
    }
    assert_int_equal(stat_of(STORE).reservations, 0);
    free(values);
    free(ops);
}

static void no_space_for_all(void **state)
{
    enum { COUNT = 10, BYTES = 40 << 20 };
    struct penstock_op ops[COUNT];
    uint8_t *value = calloc(1, BYTES);
    uint64_t pages_used = stat_of(STORE).pages_used;
    char keys[COUNT][8];

    (void)state;
    for (int i = 0; i < COUNT; i++) {
        snprintf(keys[i], sizeof(keys[i]), "f%d", i);
        ops[i] = put_op(keys[i], value, BYTES);
    }
    assert_result(penstock_commit(STORE, ops, COUNT), -ENOSPC);
    assert_int_equal(stat_of(STORE).keys, 0);
    assert_int_equal(stat_of(STORE).reservations, 0);
    assert_int_equal(stat_of(STORE).pages_used, pages_used);
    free(value);
}

/* ---- many at once ---- */

enum { ACCOUNTS = 12, ACCOUNT_KEY_BYTES = 24, MONEY = 1000, MOVERS = 6, READERS = 2, MOVES = 150 };

struct account {
    int64_t money;
    uint8_t rest[4000]; /* of some, so that reservations take part */
};

struct clerk {
    pthread_t thread;
    uint64_t random;
    int done, stale, wrong;
    char first[200]; /* what went wrong first */
};

static _Atomic int movers_left;

static void wrong(struct clerk *c, const char *what, int64_t number)
{
    if (!c->wrong++)
        snprintf(c->first, sizeof(c->first), "%s: %lld %s", what, (long long)number, penstock_error());
}

static void account_key(char key[ACCOUNT_KEY_BYTES], int i)
{
    snprintf(key, ACCOUNT_KEY_BYTES, "account%d", i);
}

static uint64_t account_bytes(uint64_t random)
{
    return random % 4 ? sizeof(int64_t) : sizeof(struct account);
}

/* Reads an account. Return: its generation, 0 and an entry on failure. */
static uint64_t look(struct penstock *store, struct clerk *c, int i, int64_t *money)
{
    struct account account = {0};
    struct penstock_op op = {0};
    char key[ACCOUNT_KEY_BYTES];

    account_key(key, i);
    penstock_prep_get(&op, key, strlen(key), &account, sizeof(account));
    penstock_batch(store, &op, 1);
    if (op.result)
        wrong(c, "get", op.result);
    *money = account.money;
    return op.result ? 0 : op.generation;
}

/* Moves money between two accounts, or over three. */
static int move(struct penstock *store, struct clerk *c)
{
    int count = 2 + (int)(next_random(&c->random) % 2), first = (int)(next_random(&c->random) % ACCOUNTS);
    int64_t amount = (int64_t)(next_random(&c->random) % 10);
    struct account accounts[3] = {0};
    struct penstock_op ops[3];
    char keys[3][ACCOUNT_KEY_BYTES];

    for (int i = 0; i < count; i++) {
        int number = (first + i * 5) % ACCOUNTS;
        uint64_t generation = look(store, c, number, &accounts[i].money);

        accounts[i].money += i == 0 ? -amount * (count - 1) : amount;
        account_key(keys[i], number);
        ops[i] = put_op(keys[i], &accounts[i], account_bytes(next_random(&c->random)));
        ops[i].flags = PENSTOCK_IF_GENERATION;
        ops[i].if_generation = generation;
    }
    return penstock_commit(store, ops, (size_t)count);
}

static void *mover(void *arg)
{
    struct clerk *c = arg;

    for (int i = 0; i < MOVES; i++) {
        int r = move(STORE, c);

        c->done += r == 0;
        c->stale += r == PENSTOCK_STALE;
        if (r != 0 && r != PENSTOCK_STALE)
            wrong(c, "commit", r);
    }
    atomic_fetch_sub(&movers_left, 1);
    return NULL;
}

/* All accounts as they were at one moment, which a commit of checks confirms. Return: true when it did. */
static bool audit(struct penstock *store, struct clerk *c, int64_t *sum)
{
    struct penstock_op checks[ACCOUNTS];
    char keys[ACCOUNTS][ACCOUNT_KEY_BYTES];
    int r;

    *sum = 0;
    for (int i = 0; i < ACCOUNTS; i++) {
        int64_t money;

        account_key(keys[i], i);
        checks[i] = check_op(keys[i], look(store, c, i, &money));
        *sum += money;
    }
    r = penstock_commit(store, checks, ACCOUNTS);
    if (r != 0 && r != PENSTOCK_STALE)
        wrong(c, "commit of checks", r);
    return r == 0;
}

static void *auditor(void *arg)
{
    struct clerk *c = arg;

    while (movers_left || !c->done) {
        int64_t sum;

        if (!audit(STORE, c, &sum))
            continue;
        c->done++;
        if (sum != ACCOUNTS * MONEY)
            wrong(c, "sum", sum);
    }
    return NULL;
}

static void open_accounts(void)
{
    struct account account = {.money = MONEY};
    char key[ACCOUNT_KEY_BYTES];

    for (int i = 0; i < ACCOUNTS; i++) {
        account_key(key, i);
        assert_result(penstock_put(STORE, key, strlen(key), &account, sizeof(int64_t)), 0);
    }
}

static void transfers_keep_the_sum(void **state)
{
    struct clerk clerks[MOVERS + READERS] = {0};
    int done = 0;

    (void)state;
    open_accounts();
    movers_left = MOVERS;
    for (int i = 0; i < MOVERS + READERS; i++) {
        clerks[i].random = (uint64_t)i + 1;
        assert_int_equal(pthread_create(&clerks[i].thread, NULL, i < MOVERS ? mover : auditor, &clerks[i]),
                         0);
    }
    for (int i = 0; i < MOVERS + READERS; i++) {
        pthread_join(clerks[i].thread, NULL);
        if (clerks[i].wrong)
            fail_msg("clerk %d: %d wrong, first %s", i, clerks[i].wrong, clerks[i].first);
        done += i < MOVERS ? clerks[i].done : 0;
    }
    assert_true(done > 0);
    expect_unpinned(STORE);
}

/* ---- one moment ---- */

enum { PAIR_ROUNDS = 400, PAIR_KEYS = 6 };

static _Atomic bool pairs_over;

static void *write_pairs(void *arg)
{
    struct clerk *c = arg;
    struct penstock_op ops[PAIR_KEYS];
    char keys[PAIR_KEYS][8];

    for (uint64_t round = 1; round <= PAIR_ROUNDS; round++) {
        int r;

        for (int i = 0; i < PAIR_KEYS; i++) {
            snprintf(keys[i], sizeof(keys[i]), "p%d", i);
            ops[i] = put_op(keys[i], &round, sizeof(round));
        }
        r = penstock_commit(STORE, ops, PAIR_KEYS);
        if (r)
            wrong(c, "commit", r);
    }
    pairs_over = true;
    return NULL;
}

/* Once it has seen a round in one key it sees no earlier round in any other. */
static void who_sees_one_change_sees_all(void **state)
{
    struct clerk c = {0};
    uint64_t last = 0, random = 1, round, zero = 0;
    char key[8];

    (void)state;
    for (int i = 0; i < PAIR_KEYS; i++) {
        snprintf(key, sizeof(key), "p%d", i);
        assert_result(penstock_put(STORE, key, 2, &zero, sizeof(zero)), 0);
    }
    pairs_over = false;
    assert_int_equal(pthread_create(&c.thread, NULL, write_pairs, &c), 0);
    while (!pairs_over) {
        snprintf(key, sizeof(key), "p%d", (int)(next_random(&random) % PAIR_KEYS));
        assert_result(penstock_get(STORE, key, 2, &round, sizeof(round), NULL), 0);
        assert_true(round >= last);
        last = round;
    }
    pthread_join(c.thread, NULL);
    if (c.wrong)
        fail_msg("%s", c.first);
}

/* Clients are killed while they commit: each of their commits is there or not, and no lock stays behind. */
static void killed_committers(void **state)
{
    enum { CLIENTS = 8 };

    (void)state;
    if (place_is_private())
        return; /* the store dies with its process */
    open_accounts();
    for (int i = 0; i < CLIENTS; i++) {
        struct clerk c = {.random = (uint64_t)i + 1};
        int64_t sum, tries = 0;
        pid_t pid = fork();

        assert_true(pid >= 0);
        if (pid == 0) {
            struct penstock *own;

            if (penstock_open(fixture.place.url, NULL, &own))
                _exit(1);
            for (;;)
                move(own, &c);
        }
        usleep(100000 + 13000 * (unsigned)i);
        kill(pid, SIGKILL);
        assert_int_equal(wait_for_child(pid, 20), SIGKILL);
        while (!audit(STORE, &c, &sum) && tries++ < 1000)
            ;
        if (c.wrong)
            fail_msg("%s", c.first);
        assert_int_equal(sum, ACCOUNTS * MONEY);
    }
    for (int i = 0; i < 500 && stat_of(STORE).reservations; i++)
        usleep(10000);
    assert_int_equal(stat_of(STORE).reservations, 0);
    expect_unpinned(STORE);
}

static const struct CMUnitTest tests[] = {
    TEST(all_of_it),
    TEST(or_nothing),
    TEST(bad_commits),
    TEST(large_commits),
    TEST(no_space_for_all),
    TEST(transfers_keep_the_sum),
    TEST(who_sees_one_change_sees_all),
    TEST(killed_committers),
};

PART(part_commits, tests);
