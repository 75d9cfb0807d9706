/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench.c: measures one operation on one connection: batches of it, several underway, keys uniformly at
 * random. Every byte that is read or written lies in a buffer as large as the key space, up to 1 GiB, so that
 * nothing is warmer than the values are.
 */
#include "cli/cli.h"

#include "base/clock.h"
#include "base/hash.h"
#include "base/ms.h"

#include <inttypes.h>

enum {
    NUMBER_BYTES = 16, /* of a key, behind its prefix */
    KEY_BYTES_MAX = 256,
    BUFFER_BYTES_MAX = 1 << 30,
    SAMPLES_MAX = 1 << 20,
    MIX_MAX = 16,
};

struct batch {
    struct penstock_op *ops;
    char (*keys)[KEY_BYTES_MAX];
    uint64_t begun_ns;
    uint32_t left;
};

struct bench {
    struct pst_cli *cli;
    struct penstock_queue *queue;
    struct batch *batches;
    enum penstock_code code;
    uint8_t *buffer;
    uint64_t buffer_bytes, buffer_at;
    const char *prefix;
    uint32_t key_bytes;
    uint64_t random;
    uint64_t next_key; /* with fill: each once */
    uint64_t ops, misses, failures;
    int first_failure;
    double seconds;
    uint32_t *samples_ns; /* of batches */
    uint64_t sample_count;
};

static uint64_t next_random(struct bench *b)
{
    pst_assert(b->random != 0); /* it would stay so */
    b->random ^= b->random << 13;
    b->random ^= b->random >> 7;
    b->random ^= b->random << 17;
    return b->random;
}

/* ---- values and keys ---- */

static int make_buffer(struct bench *b, uint64_t value_bytes)
{
    uint64_t window = b->cli->batch * b->cli->inflight * value_bytes;

    pst_assert(!b->buffer);
    pst_assert(b->cli->batch);
    pst_assert(b->cli->inflight);
    b->buffer_bytes = pst_max(window, pst_min(b->cli->keys * value_bytes, BUFFER_BYTES_MAX));
    b->buffer = aligned_alloc(4096, pst_round_up(b->buffer_bytes + 1, 4096));
    if (!b->buffer)
        return -ENOMEM;
    memset(b->buffer, 0x5a, b->buffer_bytes); /* every page is there before the clock runs */
    return 0;
}

static void *next_buffer(struct bench *b, uint64_t bytes)
{
    pst_assert(b->buffer);
    pst_assert(bytes <= b->buffer_bytes);
    pst_assert(b->buffer_at <= b->buffer_bytes);
    void *at;

    if (b->buffer_at + bytes > b->buffer_bytes)
        b->buffer_at = 0;
    at = b->buffer + b->buffer_at;
    b->buffer_at += bytes;
    return at;
}

static void make_key(const struct bench *b, char *key, uint64_t number)
{
    uint32_t begin = b->key_bytes - NUMBER_BYTES;

    memcpy(key, b->prefix, begin);
    for (uint32_t i = b->key_bytes; i > begin; number /= 10)
        key[--i] = (char)('0' + number % 10);
}

/* ---- batches ---- */

static int make_batches(struct bench *b)
{
    uint64_t count = b->cli->inflight, ops = b->cli->batch;

    pst_assert(!b->batches);
    pst_assert(count > 0);
    pst_assert(ops > 0);
    b->batches = calloc(count, sizeof(*b->batches));
    b->samples_ns = malloc(SAMPLES_MAX * sizeof(*b->samples_ns));
    if (!b->batches || !b->samples_ns)
        return -ENOMEM;
    for (uint64_t i = 0; i < count; i++) {
        b->batches[i].ops = calloc(ops, sizeof(struct penstock_op));
        b->batches[i].keys = calloc(ops, sizeof(*b->batches[i].keys));
        if (!b->batches[i].ops || !b->batches[i].keys)
            return -ENOMEM;
    }
    return 0;
}

static void free_bench(struct bench *b)
{
    for (uint64_t i = 0; b->batches && i < b->cli->inflight; i++) {
        free(b->batches[i].ops);
        free(b->batches[i].keys);
    }
    free(b->batches);
    free(b->samples_ns);
    free(b->buffer);
}

/* Return: the operations begun; fewer than a batch at a fill's end. */
static uint32_t begin_batch(struct bench *b, struct batch *batch)
{
    uint64_t count = b->cli->batch, size = b->cli->size;

    pst_assert(batch->left == 0);
    pst_assert(b->queue);
    pst_assert(!b->cli->fill || b->next_key <= b->cli->keys);
    if (b->cli->fill)
        count = pst_min(count, b->cli->keys - b->next_key);
    for (uint64_t i = 0; i < count; i++) {
        struct penstock_op *op = &batch->ops[i];

        make_key(b, batch->keys[i], b->cli->fill ? b->next_key++ : next_random(b) % b->cli->keys);
        penstock_prep(op, b->code, batch->keys[i], b->key_bytes);
        op->user = batch;
        op->bytes = b->code == PENSTOCK_STAT_KEY ? 0 : size;
        op->data = b->code == PENSTOCK_STAT_KEY ? NULL : next_buffer(b, size);
    }
    batch->left = (uint32_t)count;
    batch->begun_ns = pst_now_ns();
    if (count)
        penstock_submit(b->queue, batch->ops, count);
    return (uint32_t)count;
}

static void end_op(struct bench *b, const struct penstock_op *op)
{
    b->ops++;
    if (op->result == PENSTOCK_MISS)
        b->misses++;
    else if (op->result) {
        b->first_failure = b->failures++ ? b->first_failure : op->result;
    }
}

static void sample(struct bench *b, uint64_t ns)
{
    pst_assert(b->samples_ns);
    /* Past the room for them, samples replace earlier ones at random. */
    uint64_t at = b->sample_count < SAMPLES_MAX ? b->sample_count : next_random(b) % SAMPLES_MAX;

    b->samples_ns[at] = (uint32_t)pst_min(ns, UINT32_MAX);
    b->sample_count++;
}

static int run_batches(struct bench *b)
{
    struct penstock_op *done[512];
    uint64_t begin_ns, end_ns, underway = 0, now_ns = 0;
    int r = penstock_queue_open(b->cli->store, &b->queue);

    if (r < 0)
        return r;
    begin_ns = pst_now_ns();
    end_ns = b->cli->fill ? UINT64_MAX : pst_deadline_ns(begin_ns, b->cli->seconds * 1000);
    for (uint64_t i = 0; i < b->cli->inflight; i++)
        underway += begin_batch(b, &b->batches[i]) > 0;
    while (underway && (r = penstock_reap(b->queue, done, pst_count_of(done), -1)) > 0) {
        for (int i = 0; i < r; i++) {
            struct batch *batch = done[i]->user;

            pst_assert(batch >= b->batches && batch < b->batches + b->cli->inflight);
            pst_assert(batch->left > 0);
            end_op(b, done[i]);
            if (--batch->left)
                continue;
            now_ns = pst_now_ns();
            sample(b, now_ns - batch->begun_ns);
            if (now_ns >= end_ns || begin_batch(b, batch) == 0)
                underway--;
        }
    }
    pst_assert(r < 0 || underway == 0);
    b->seconds = (double)(pst_now_ns() - begin_ns) / 1e9;
    penstock_queue_close(b->queue);
    return r < 0 ? r : 0;
}

/* ---- views ---- */

static uint64_t walk(const struct penstock_view *view)
{
    const volatile uint8_t *at = view->data;
    uint64_t sum = 0;

    pst_assert(view->bytes == 0 || view->data);
    for (uint64_t i = 0; i < view->bytes; i += 4096)
        sum += at[i];
    return sum;
}

/* Opens a view, reads a byte of every page, lets it go; the walk alone is timed. */
static int run_walks(struct bench *b)
{
    uint64_t begin_ns = pst_now_ns(), end_ns = pst_deadline_ns(begin_ns, b->cli->seconds * 1000);
    volatile uint64_t sink = 0;
    char key[KEY_BYTES_MAX];

    pst_assert(b->cli->keys > 0);
    pst_assert(b->code == 0);
    while (pst_now_ns() < end_ns) {
        struct penstock_view view;
        uint64_t start_ns;
        int r;

        make_key(b, key, next_random(b) % b->cli->keys);
        r = penstock_view(b->cli->store, key, b->key_bytes, &view);
        if (r)
            return r;
        for (int pass = 0; pass < 16; pass++) {
            start_ns = pst_now_ns();
            sink = sink + walk(&view);
            sample(b, pst_now_ns() - start_ns);
            b->ops++;
        }
        penstock_view_release(b->cli->store, &view);
    }
    b->seconds = (double)(pst_now_ns() - begin_ns) / 1e9;
    return 0;
}

/* ---- mixed sizes ---- */

struct mix {
    uint64_t bytes[MIX_MAX];
    uint64_t percent[MIX_MAX];
    int count;
    uint64_t bytes_max;
};

static int parse_mix(const char *text, struct mix *mix)
{
    uint64_t sum = 0;

    pst_assert(mix->count == 0);
    pst_assert(mix->bytes_max == 0);
    while (*text && mix->count < MIX_MAX) {
        char item[64], *colon;

        snprintf(item, sizeof(item), "%.*s", (int)pst_min(strcspn(text, ","), sizeof(item) - 1), text);
        colon = strchr(item, ':');
        if (!colon)
            return -EINVAL;
        *colon = '\0';
        if (pst_parse_size(item, &mix->bytes[mix->count]) < 0 ||
            pst_parse_size(colon + 1, &mix->percent[mix->count]) < 0)
            return -EINVAL;
        sum += mix->percent[mix->count];
        mix->bytes_max = pst_max(mix->bytes_max, mix->bytes[mix->count++]);
        text += strcspn(text, ",");
        text += *text == ',';
    }
    return sum == 100 && !*text ? 0 : -EINVAL;
}

static uint64_t pick(struct bench *b, const struct mix *mix)
{
    uint64_t at = next_random(b) % 100;
    int i = 0;

    while (at >= mix->percent[i])
        at -= mix->percent[i++];
    pst_assert(i < mix->count); /* they sum to 100 */
    return mix->bytes[i];
}

/* Puts values of mixed sizes under new keys until there is no space, and says how many bytes went in. */
static int run_until_full(struct bench *b)
{
    struct mix mix = {0};
    uint64_t value_bytes = 0, keys = 0, begin_ns = pst_now_ns();
    int r = 0;

    if (!b->cli->mix || parse_mix(b->cli->mix, &mix) < 0)
        return pst_cli_usage("mix: '%.100s' is not up to %d SIZE:PERCENT,... with percents that sum to 100",
                             b->cli->mix ? b->cli->mix : "", MIX_MAX);
    if (make_buffer(b, mix.bytes_max) < 0)
        return pst_cli_fail(-ENOMEM);
    for (; r == 0; keys++) {
        char key[KEY_BYTES_MAX];
        uint64_t bytes = pick(b, &mix);

        pst_assert(bytes <= b->buffer_bytes);
        make_key(b, key, keys);
        r = penstock_put(b->cli->store, key, b->key_bytes, b->buffer, bytes);
        value_bytes += r == 0 ? bytes : 0;
    }
    if (r != -ENOSPC)
        return pst_cli_fail(r);
    printf("{\"op\":\"put\",\"keys\":%" PRIu64 ",\"value_bytes\":%" PRIu64 ",\"seconds\":%.2f}\n", keys - 1,
           value_bytes, (double)(pst_now_ns() - begin_ns) / 1e9);
    return 0;
}

/* ---- the report ---- */

static int by_value(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

    return (x > y) - (x < y);
}

static double percentile_us(const struct bench *b, uint64_t percent)
{
    uint64_t count = pst_min(b->sample_count, SAMPLES_MAX);

    pst_assert(percent <= 100);
    return count ? b->samples_ns[pst_min(count * percent / 100, count - 1)] / 1000.0 : 0;
}

static void report(struct bench *b)
{
    const struct pst_cli *cli = b->cli;
    double rate = (double)b->ops / b->seconds;
    uint64_t moved = b->code == PENSTOCK_STAT_KEY ? 0 : b->ops - b->misses - b->failures;
    double bytes_per_s = (double)moved * (double)cli->size / b->seconds;

    pst_assert(b->ops >= b->misses + b->failures);
    pst_assert(b->samples_ns);
    qsort(b->samples_ns, pst_min(b->sample_count, SAMPLES_MAX), sizeof(*b->samples_ns), by_value);
    if (cli->json) {
        printf("{\"op\":\"%s\",\"size\":%" PRIu64 ",\"batch\":%" PRIu64 ",\"inflight\":%" PRIu64
               ",\"lane\":\"%s\",",
               cli->op, cli->size, cli->batch, cli->inflight, penstock_lane(cli->store));
        printf("\"ops\":%" PRIu64 ",\"misses\":%" PRIu64
               ",\"seconds\":%.3f,\"ops_per_s\":%.1f,\"bytes_per_s\":%.0f,",
               b->ops, b->misses, b->seconds, rate, bytes_per_s);
        printf("\"p50_us\":%.3f,\"p99_us\":%.3f}\n", percentile_us(b, 50), percentile_us(b, 99));
        return;
    }
    printf("%s of %" PRIu64 " B, batches of %" PRIu64 ", %" PRIu64 " underway, lane %s\n", cli->op, cli->size,
           cli->batch, cli->inflight, penstock_lane(cli->store));
    printf("  %.0f ops/s, %.3f GB/s, %" PRIu64 " not found; a batch takes %.1f us (p50), %.1f us (p99)\n",
           rate, bytes_per_s / 1e9, b->misses, percentile_us(b, 50), percentile_us(b, 99));
}

static int parse_op(struct bench *b)
{
    static const struct {
        const char *name;
        enum penstock_code code;
    } ops[] = {{"get", PENSTOCK_GET}, {"put", PENSTOCK_PUT}, {"exists", PENSTOCK_STAT_KEY}, {"view-walk", 0}};

    for (size_t i = 0; i < pst_count_of(ops); i++) {
        if (strcmp(b->cli->op ? b->cli->op : "", ops[i].name) == 0) {
            b->code = ops[i].code;
            return 0;
        }
    }
    return pst_cli_usage("op: '%s' is not get, put, exists or view-walk", b->cli->op ? b->cli->op : "");
}

static int measure(struct bench *b)
{
    int r = parse_op(b);

    if (r == 0 && b->key_bytes > KEY_BYTES_MAX)
        r = pst_cli_usage("prefix: more than %d bytes", KEY_BYTES_MAX - NUMBER_BYTES);
    if (r)
        return r;
    if (b->cli->until_full)
        return run_until_full(b);
    r = make_batches(b);
    if (r == 0 && b->code)
        r = make_buffer(b, b->cli->size);
    if (r == -ENOMEM) {
        fprintf(stderr,
                "penstock: no memory for the values of %" PRIu64 " batches of %" PRIu64 ", %" PRIu64
                " bytes each\n",
                b->cli->inflight, b->cli->batch, b->cli->size);
        return PST_EXIT_OTHER;
    }
    if (r == 0)
        r = b->code ? run_batches(b) : run_walks(b);
    if (r == 0 && b->failures)
        r = b->first_failure;
    if (r)
        return pst_cli_fail(r);
    report(b);
    return 0;
}

int pst_cmd_bench(struct pst_cli *cli)
{
    struct bench b = {.cli = cli, .prefix = cli->prefix ? cli->prefix : ""};
    int code;

    pst_assert(cli->store);
    pst_assert(cli->arg_count == 0);
    b.key_bytes = (uint32_t)pst_min(strlen(b.prefix), KEY_BYTES_MAX) + NUMBER_BYTES;
    pst_random(&b.random, sizeof(b.random));
    b.random |= 1;
    code = measure(&b);
    free_bench(&b);
    return code;
}
