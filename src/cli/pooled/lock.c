/* SPDX-License-Identifier: Apache-2.0 */
/* lock.c: values that say that a put or a prune is underway. */
#include "cli/data/report.h"
#include "cli/pooled/trees_priv.h"

#include "base/clock.h"
#include "base/hash.h"

#include <inttypes.h>

enum {
    LOCK_MS = 60000,  /* how long it lasts behind its last write */
    WRITE_MS = 15000, /* when it is written again */
    LOOK_US = 100000,
    TURN_MS = 600000, /* how long a put waits for others */
};

/* A lock's time goes on while the host sleeps. */
static uint64_t lock_now_ns(void)
{
    return pst_clock_read_ns(CLOCK_BOOTTIME);
}

/* Whether the value is this lock's, after a write whose outcome is not known. */
static int lock_look(struct trees *trees, struct trees_lock *lock)
{
    char said[sizeof(lock->token)];
    struct penstock_op op = {0};
    int r;

    penstock_prep_get(&op, lock->key, strlen(lock->key), said, sizeof(said));
    r = trees_run(trees, &op);
    if (r == -ENOBUFS ||
        (r == 0 && (op.value_bytes != strlen(lock->token) || memcmp(said, lock->token, op.value_bytes) != 0)))
        return PENSTOCK_STALE;
    if (r == 0)
        lock->generation = op.generation;
    return r == PENSTOCK_MISS ? PENSTOCK_STALE : r;
}

/* Return: 0; PENSTOCK_STALE somebody else has it, or nobody; the store's result. */
static int lock_write(struct trees *trees, struct trees_lock *lock)
{
    struct penstock_op op = {0};
    uint64_t now_ns = lock_now_ns();
    int r;

    penstock_prep_put(&op, lock->key, strlen(lock->key), lock->token, strlen(lock->token));
    op.flags = PENSTOCK_IF_GENERATION | PENSTOCK_TTL;
    op.if_generation = lock->generation;
    op.ttl_ms = LOCK_MS;
    r = trees_run(trees, &op);
    if (r == PENSTOCK_UNKNOWN)
        return lock_look(trees, lock); /* it is written again soon, as its time may be the old one */
    if (r == 0) {
        lock->generation = op.generation;
        lock->written_ns = now_ns;
    }
    return r == PENSTOCK_EXISTS ? PENSTOCK_STALE : r;
}

/* A store that orders no writes of a key can keep neither locks nor roots. */
static int lock_fail(struct trees *trees, const struct trees_lock *lock, int result)
{
    if (result == -EOPNOTSUPP)
        return trees_fail(trees, result,
                          "%.60s: the pool has such keys anywhere: its master wants --place tree=home:N",
                          lock->key);
    return trees_fail_key(trees, lock->key, result);
}

int trees_lock_take(struct trees *trees, struct trees_lock *lock, const char *key, uint32_t wait_ms)
{
    uint64_t until_ms = pst_now_ms() + wait_ms, number;
    bool told = false;
    int r;

    *lock = (struct trees_lock){.generation = 0};
    pst_random(&number, sizeof(number));
    snprintf(lock->key, sizeof(lock->key), "%s", key);
    snprintf(lock->token, sizeof(lock->token), "%016" PRIx64, number);
    while ((r = lock_write(trees, lock)) == PENSTOCK_STALE && pst_now_ms() < until_ms) {
        if (!told)
            pst_report_line("%.150s: another command has it, or had it and was killed: waiting", key);
        told = true;
        usleep(LOOK_US);
    }
    if (r == PENSTOCK_STALE)
        return trees_fail(trees, -EBUSY, "%.150s: another command on it is underway", key);
    return r ? lock_fail(trees, lock, r) : 0;
}

int trees_lock_tree(struct trees *trees, struct trees_lock *lock)
{
    uint64_t until_ms = pst_now_ms() + TURN_MS;
    char key[TREES_KEY_BYTES];

    snprintf(key, sizeof(key), TREES_LOCKS "%s", trees->name);
    while (pst_now_ms() < until_ms) {
        int r = trees_lock_take(trees, lock, key, TURN_MS);

        if (r < 0)
            return r;
        r = penstock_exists(trees->store, TREES_PRUNE, strlen(TREES_PRUNE));
        if (r == PENSTOCK_MISS)
            return 0;
        trees_lock_give(trees, lock);
        if (r != 0)
            return trees_fail_key(trees, TREES_PRUNE, r);
        usleep(LOOK_US);
    }
    return trees_fail(trees, -EBUSY, "a prune is underway");
}

int trees_lock_prove(struct trees *trees, struct trees_lock *lock)
{
    int r;

    pst_assert(lock->generation);
    r = lock_write(trees, lock);
    if (r == PENSTOCK_STALE)
        return trees_fail(trees, -ESTALE, "%.150s: held up for too long; do it again", lock->key);
    return r ? lock_fail(trees, lock, r) : 0;
}

int trees_lock_keep(struct trees *trees, struct trees_lock *lock)
{
    return lock_now_ns() - lock->written_ns < WRITE_MS * 1000000ull ? 0 : trees_lock_prove(trees, lock);
}

bool trees_lock_give(struct trees *trees, struct trees_lock *lock)
{
    struct penstock_op op = {0};
    int r;

    if (!lock->generation)
        return false;
    penstock_prep(&op, PENSTOCK_DELETE, lock->key, strlen(lock->key));
    op.flags = PENSTOCK_IF_GENERATION;
    op.if_generation = lock->generation;
    lock->generation = 0;
    r = trees_run(trees, &op);
    if (r == 0 || r == PENSTOCK_STALE || r == PENSTOCK_MISS)
        return r == 0;
    return lock_now_ns() - lock->written_ns < LOCK_MS * 1000000ull; /* it ends by itself, later */
}
