/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pair.c: one client of a node, as the matrix of UCX's versions wants it: values of each size are put,
 * replaced and got, one by one and in batches, in ranges and as views, and every byte is compared. Prints a
 * line a size, "SIZE PUT GET" with rates in MB/s (64 B: in thousands of operations a second), and "lane NAME"
 * in front.
 *
 *   pair URL MILLISECONDS   how long each rate is measured
 */
#include <penstock/penstock.h>

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { BATCH_MAX = 128, ROUNDS_MIN = 3 };

struct pair {
    struct penstock *store;
    double seconds; /* of each rate */
    uint64_t bytes; /* of a value */
    size_t count;   /* of a batch */
    uint8_t *out, *in;
    char keys[BATCH_MAX][32];
    struct penstock_op ops[BATCH_MAX];
};

static double now(void)
{
    struct timespec at;

    clock_gettime(CLOCK_MONOTONIC, &at);
    return (double)at.tv_sec + (double)at.tv_nsec / 1e9;
}

static void fail(const char *what, int result)
{
    fprintf(stderr, "%s: %s (%s)\n", what, penstock_error(), penstock_result_text(result));
    exit(1);
}

static void fill(struct pair *pair, uint64_t seed)
{
    uint64_t *words = (uint64_t *)(void *)pair->out;

    for (size_t i = 0; i < pair->count * pair->bytes / sizeof(*words); i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        words[i] = seed ^ seed >> 29;
    }
}

/* Puts what lies in @out, or gets into @in, and compares. */
static void batch(struct pair *pair, bool put)
{
    int r;

    for (size_t i = 0; i < pair->count; i++) {
        const char *key = pair->keys[i];

        pair->ops[i] = (struct penstock_op){0};
        if (put)
            penstock_prep_put(&pair->ops[i], key, strlen(key), pair->out + i * pair->bytes, pair->bytes);
        else
            penstock_prep_get(&pair->ops[i], key, strlen(key), pair->in + i * pair->bytes, pair->bytes);
    }
    r = penstock_batch(pair->store, pair->ops, pair->count);
    for (size_t i = 0; i < pair->count && r != 0; i++)
        if (pair->ops[i].result != 0)
            fail(put ? "put" : "get", pair->ops[i].result);
}

static void compare(struct pair *pair, const char *what)
{
    if (memcmp(pair->in, pair->out, pair->count * pair->bytes) != 0) {
        fprintf(stderr, "%s: other bytes than were put\n", what);
        exit(1);
    }
    memset(pair->in, 0xee, pair->count * pair->bytes);
}

/* Return: the best round's rate, MB/s or thousands a second. */
static double rate(struct pair *pair, bool put)
{
    double begun = now(), best = 0;

    for (int round = 0; round < ROUNDS_MIN || now() - begun < pair->seconds; round++) {
        double from, took;

        if (put)
            fill(pair, (uint64_t)round + 7);
        from = now();
        batch(pair, put);
        took = now() - from;
        if (!put)
            compare(pair, "batch of gets");
        if ((double)pair->count / took > best)
            best = (double)pair->count / took;
    }
    return pair->bytes <= 64 ? best / 1e3 : best * (double)pair->bytes / 1e6;
}

static void one_by_one(struct pair *pair)
{
    fill(pair, 3);
    for (size_t i = 0; i < pair->count && i < 8; i++) {
        const char *key = pair->keys[i];
        uint64_t at = pair->bytes / 3, bytes = pair->bytes / 2;
        uint8_t *out = pair->out + i * pair->bytes;
        int r = penstock_put(pair->store, key, strlen(key), out, pair->bytes);

        if (r != 0)
            fail("single put", r);
        r = penstock_get(pair->store, key, strlen(key), pair->in, pair->bytes, NULL);
        if (r != 0 || memcmp(pair->in, out, pair->bytes) != 0)
            fail("single get", r);
        r = penstock_get_range(pair->store, key, strlen(key), at, pair->in, bytes);
        if (r != 0 || memcmp(pair->in, out + at, bytes) != 0)
            fail("range", r);
    }
}

static void views(struct pair *pair)
{
    for (size_t i = 0; i < pair->count; i++) {
        struct penstock_view view;
        int r = penstock_view(pair->store, pair->keys[i], strlen(pair->keys[i]), &view);

        if (r != 0)
            fail("view", r);
        if (view.bytes != pair->bytes || memcmp(view.data, pair->out + i * pair->bytes, pair->bytes) != 0)
            fail("view: other bytes", 0);
        penstock_view_release(pair->store, &view);
    }
}

static void size_check(struct pair *pair, const char *name, uint64_t bytes, size_t count, bool with_views)
{
    double put, get;

    pair->bytes = bytes;
    pair->count = count;
    pair->out = malloc(count * bytes);
    pair->in = malloc(count * bytes);
    if (!pair->out || !pair->in)
        fail("memory", 0);
    for (size_t i = 0; i < count; i++)
        snprintf(pair->keys[i], sizeof(pair->keys[i]), "pair/%s/%zu", name, i);
    one_by_one(pair);
    put = rate(pair, true);
    get = rate(pair, false);
    if (with_views)
        views(pair);
    printf("%s %.0f %.0f\n", name, put, get);
    fflush(stdout);
    free(pair->out);
    free(pair->in);
}

int main(int argc, char **argv)
{
    struct penstock_options options = {
        .size = sizeof(options), .timeout_ms = 5000, .secret_file = getenv("PENSTOCK_SECRET_FILE")};
    struct pair *pair = calloc(1, sizeof(*pair));
    bool with_views;
    int r;

    if (argc != 3 || !pair) {
        fprintf(stderr, "usage: pair URL MILLISECONDS\n");
        return 2;
    }
    pair->seconds = atof(argv[2]) / 1e3;
    with_views = strncmp(argv[1], "node+unix:", 10) == 0;
    r = penstock_open(argv[1], &options, &pair->store);
    if (r != 0)
        fail("open", r);
    printf("lane %s\n", penstock_lane(pair->store));
    size_check(pair, "64B", 64, BATCH_MAX, with_views);
    size_check(pair, "64KiB", 64 << 10, 64, with_views);
    size_check(pair, "2MiB", 2 << 20, 16, with_views);
    penstock_close(pair->store);
    free(pair);
    return 0;
}
