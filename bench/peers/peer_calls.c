/* SPDX-License-Identifier: Apache-2.0 */
/* peer_calls.c: what calls of the C library cost on a store inside the process, as calls.py measures them
 * from Python.
 *
 * get: one value of 64 B at a time. batch: 128 keys are put, then read, a batch each; 64 such batches in
 * turn. */
#include <penstock/penstock.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { BATCH = 128, BATCHES = 64, VALUE_BYTES = 64, KEY_BYTES = 16, SINGLE_CALLS = 1000 };

static struct penstock *store;
static char keys[BATCHES][BATCH][KEY_BYTES];
static char values[BATCH][VALUE_BYTES];
static struct penstock_op ops[BATCH];

static double now_s(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static void check(int result)
{
    if (result == 0)
        return;
    fprintf(stderr, "peer_calls: %s\n", penstock_error());
    exit(1);
}

static void put_batch(int batch)
{
    for (int i = 0; i < BATCH; i++)
        penstock_prep_put(&ops[i], keys[batch][i], KEY_BYTES - 1, values[i], VALUE_BYTES);
    check(penstock_batch(store, ops, BATCH));
}

static void get_batch(int batch)
{
    for (int i = 0; i < BATCH; i++)
        penstock_prep_get(&ops[i], keys[batch][i], KEY_BYTES - 1, values[i], VALUE_BYTES);
    check(penstock_batch(store, ops, BATCH));
}

/* Operations of a pass, which takes some 20 ms or less. */
static long pass_of_batches(void)
{
    for (int batch = 0; batch < BATCHES; batch++) {
        put_batch(batch);
        get_batch(batch);
    }
    return 2L * BATCHES * BATCH;
}

static long pass_of_gets(void)
{
    uint64_t bytes;

    for (int i = 0; i < SINGLE_CALLS; i++)
        check(penstock_get(store, keys[0][5], KEY_BYTES - 1, values[0], VALUE_BYTES, &bytes));
    return SINGLE_CALLS;
}

/* peer_calls get|batch SECONDS: the fastest pass counts, since what disturbs one only makes it slower. */
int main(int argc, char **argv)
{
    double end_s, best_s = 1e9;

    if (argc != 3)
        return 2;
    check(penstock_open("mem:", NULL, &store));
    for (int batch = 0; batch < BATCHES; batch++) {
        for (int i = 0; i < BATCH; i++)
            snprintf(keys[batch][i], KEY_BYTES, "key/%03d/%07d", batch, i);
        put_batch(batch);
    }
    end_s = now_s() + atof(argv[2]);
    do {
        double begin_s = now_s();
        long count = strcmp(argv[1], "get") == 0 ? pass_of_gets() : pass_of_batches();
        double each_s = (now_s() - begin_s) / (double)count;

        best_s = each_s < best_s ? each_s : best_s;
    } while (now_s() < end_s);
    printf("{\"us\": %.4f, \"ops_per_s\": %.0f}\n", best_s * 1e6, 1 / best_s);
    penstock_close(store);
    return 0;
}
