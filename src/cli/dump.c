/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dump.c: every value as one stream. Small values are read in batches; large ones in pieces, each of the same
 * generation, so that memory stays bounded. A value that is overwritten meanwhile leaves a void record behind
 * and is read again.
 */
#include "cli/cli.h"

#include "base/clock.h"
#include "wire/dump.h"

#include <fcntl.h>
#include <inttypes.h>

enum {
    WINDOW_KEYS = 128,
    WINDOW_BYTES = 16 << 20,
    PIECES_TRIES = 4, /* of a large value that changes; then it is read at once, whatever its size */
    WHOLE_TRIES = 16,
};

struct item {
    char *key;
    uint8_t attrs[PENSTOCK_ATTR_BYTES_MAX];
};

struct dump {
    struct pst_cli *cli;
    const char *path;
    FILE *out;
    struct pst_dump_writer writer;
    struct penstock_op ops[WINDOW_KEYS];
    struct item items[WINDOW_KEYS];
    uint32_t count;
    uint64_t window_bytes;
    uint8_t *buffer; /* WINDOW_BYTES */
    uint64_t value_bytes;
    struct pst_progress progress;
    int code; /* of the first failure */
};

/* ---- elements ---- */

static bool put_bytes(struct dump *d, const void *data, size_t len)
{
    pst_assert(d->out);
    pst_assert(!d->code);
    if (fwrite(data, 1, len, d->out) == len)
        return true;
    fprintf(stderr, "penstock: %s: %s\n", d->path, strerror(errno));
    d->code = PST_EXIT_OTHER;
    return false;
}

static bool put_record(struct dump *d, const struct penstock_op *op, uint64_t value_bytes, uint16_t depth)
{
    uint8_t names[PST_DUMP_NAMES_BYTES_MAX];
    const struct pst_dump_record record = {.key = {op->key, op->key_bytes},
                                           .attrs = {op->attrs, op->attr_bytes},
                                           .value_bytes = value_bytes,
                                           .depth = depth};

    pst_assert(op->key_bytes > 0);
    pst_assert(op->attr_bytes <= PENSTOCK_ATTR_BYTES_MAX);
    return put_bytes(d, names, pst_dump_put_record(&d->writer, &record, names));
}

static bool put_piece(struct dump *d, const uint8_t *data, uint64_t len)
{
    uint8_t element[PST_DUMP_SMALL_BYTES_MAX];

    pst_assert(len > 0 && len <= PST_DUMP_PIECE_BYTES_MAX);
    d->value_bytes += len;
    return put_bytes(d, element,
                     pst_dump_put_piece(&d->writer, (struct pst_bytes){data, (size_t)len}, element)) &&
           put_bytes(d, data, (size_t)len);
}

static bool put_done(struct dump *d, bool whole)
{
    uint8_t element[PST_DUMP_SMALL_BYTES_MAX];

    return put_bytes(d, element, pst_dump_put_done(&d->writer, whole, element));
}

static bool put_whole(struct dump *d, const struct penstock_op *op, const uint8_t *value, uint16_t depth)
{
    pst_assert(op->result == 0);
    if (!put_record(d, op, op->value_bytes, depth))
        return false;
    for (uint64_t at = 0, len; at < op->value_bytes; at += len) {
        len = pst_min(op->value_bytes - at, PST_DUMP_PIECE_BYTES_MAX);
        if (!put_piece(d, value + at, len))
            return false;
    }
    return put_done(d, true);
}

/* ---- one value, large or in motion ---- */

/* Keeps the exit code of a read that failed; a key that is gone meanwhile is no failure. */
static bool fail(struct dump *d, int result)
{
    pst_assert(result != 0);
    if (result != PENSTOCK_MISS)
        d->code = pst_cli_fail(result);
    return false;
}

/* Return: true when the record is whole; false with result 0 when the value changed under way. */
static bool put_in_pieces(struct dump *d, const struct penstock_op *stat, uint16_t depth, int *result)
{
    struct penstock_op op = {0};
    uint64_t len = 0;

    pst_assert(stat->result == 0);
    pst_assert(stat->code == PENSTOCK_STAT_KEY);
    *result = 0;
    if (!put_record(d, stat, stat->value_bytes, depth))
        return false;
    for (uint64_t at = 0; at < stat->value_bytes; at += len) {
        len = pst_min(stat->value_bytes - at, PST_DUMP_PIECE_BYTES_MAX);
        penstock_prep_get_range(&op, stat->key, stat->key_bytes, at, d->buffer, len);
        penstock_batch(d->cli->store, &op, 1);
        if (op.result || op.generation != stat->generation) {
            *result = op.result == PENSTOCK_MISS || op.result == -ERANGE ? 0 : op.result;
            put_done(d, false);
            return false;
        }
        if (!put_piece(d, d->buffer, len))
            return false;
        pst_progress_show(&d->progress, d->value_bytes);
    }
    return put_done(d, true);
}

/* In one read, which shows one value whatever happens meanwhile. */
static bool put_at_once(struct dump *d, const struct penstock_op *stat, uint16_t depth)
{
    uint8_t attrs[PENSTOCK_ATTR_BYTES_MAX], *value = NULL;
    uint64_t room = stat->value_bytes;
    struct penstock_op op = {0};
    bool done = false;

    pst_assert(stat->key_bytes > 0);
    op.result = -ENOBUFS;
    for (int tries = 0; tries < WHOLE_TRIES && op.result == -ENOBUFS; tries++) {
        free(value);
        value = malloc(room ? room : 1);
        if (!value) {
            op.result = -ENOMEM;
            break;
        }
        penstock_prep_get(&op, stat->key, stat->key_bytes, value, room);
        op.attrs = attrs;
        op.attr_bytes = sizeof(attrs);
        penstock_batch(d->cli->store, &op, 1);
        room = op.value_bytes + op.value_bytes / 4; /* it may go on growing */
    }
    done = op.result == 0 ? put_whole(d, &op, value, depth) : fail(d, op.result);
    free(value);
    return done;
}

static bool dump_alone(struct dump *d, const char *key, size_t key_bytes, uint16_t depth)
{
    uint8_t attrs[PENSTOCK_ATTR_BYTES_MAX];
    struct penstock_op stat = {0};
    int result = 0;

    pst_assert(key_bytes > 0 && key_bytes <= PENSTOCK_KEY_BYTES_MAX);
    for (int tries = 0; tries < PIECES_TRIES; tries++) {
        penstock_prep(&stat, PENSTOCK_STAT_KEY, key, key_bytes);
        stat.attrs = attrs;
        stat.attr_bytes = sizeof(attrs);
        penstock_batch(d->cli->store, &stat, 1);
        if (stat.result)
            return fail(d, stat.result);
        if (put_in_pieces(d, &stat, depth, &result))
            return true;
        if (d->code) /* the output, named already */
            return false;
        if (result)
            return fail(d, result);
    }
    return put_at_once(d, &stat, depth);
}

/* ---- windows ---- */

static void flush_window(struct dump *d)
{
    pst_assert(d->count <= WINDOW_KEYS);
    pst_assert(d->window_bytes <= WINDOW_BYTES);
    penstock_batch(d->cli->store, d->ops, d->count);
    for (uint32_t i = 0; i < d->count; i++) {
        struct penstock_op *op = &d->ops[i];

        if (!d->code && op->result == 0)
            put_whole(d, op, op->data, op->depth);
        else if (!d->code && op->result == -ENOBUFS) /* it has grown since it was listed */
            dump_alone(d, d->items[i].key, op->key_bytes, op->depth);
        else if (!d->code)
            fail(d, op->result);
        free(d->items[i].key);
    }
    d->count = 0;
    d->window_bytes = 0;
    pst_progress_show(&d->progress, d->value_bytes);
}

static void add_entry(struct dump *d, const struct penstock_entry *entry)
{
    struct item *item = &d->items[d->count];
    struct penstock_op *op = &d->ops[d->count];

    pst_assert(entry->key_bytes > 0);
    pst_assert(d->count <= WINDOW_KEYS);
    if (d->count == WINDOW_KEYS || d->window_bytes + entry->value_bytes > WINDOW_BYTES) {
        flush_window(d);
        item = &d->items[0];
        op = &d->ops[0];
    }
    if (d->code)
        return;
    item->key = malloc(entry->key_bytes);
    if (!item->key) {
        d->code = pst_cli_fail(-ENOMEM);
        return;
    }
    memcpy(item->key, entry->key, entry->key_bytes);
    if (entry->value_bytes > PST_DUMP_PIECE_BYTES_MAX) {
        dump_alone(d, item->key, entry->key_bytes, entry->depth);
        free(item->key);
        return;
    }
    pst_assert(d->window_bytes + entry->value_bytes <= WINDOW_BYTES);
    penstock_prep_get(op, item->key, entry->key_bytes, d->buffer + d->window_bytes, entry->value_bytes);
    op->depth = entry->depth; /* a get does not look at it */
    op->attrs = item->attrs;
    op->attr_bytes = sizeof(item->attrs);
    d->window_bytes += entry->value_bytes;
    d->count++;
}

static void dump_keys(struct dump *d, const char *prefix)
{
    struct penstock_list_options options = {
        .size = sizeof(options), .prefix = prefix, .prefix_bytes = strlen(prefix)};
    uint8_t element[PST_DUMP_SMALL_BYTES_MAX];
    struct penstock_entry entry;
    struct penstock_list *list;
    int r = penstock_list_open(d->cli->store, &options, &list);

    pst_assert(d->writer.records == 0);
    pst_assert(d->count == 0);
    if (r) {
        d->code = pst_cli_fail(r);
        return;
    }
    put_bytes(d, element, pst_dump_put_head(&d->writer, element));
    while (!d->code && (r = penstock_list_next(list, &entry)) == 1)
        add_entry(d, &entry);
    flush_window(d);
    pst_assert(d->count == 0);
    pst_assert(r <= 0 || d->code);
    if (r < 0)
        d->code = pst_cli_fail(r);
    if (!d->code)
        put_bytes(d, element, pst_dump_put_end(&d->writer, element));
    penstock_list_close(list);
}

/* ---- the command ---- */

static void report(const struct dump *d, FILE *to, double seconds)
{
    fprintf(to,
            d->cli->json ? "{\"op\":\"dump\",\"keys\":%" PRIu64 ",\"bytes\":%" PRIu64 ",\"seconds\":%.3f}\n"
                         : "dumped %" PRIu64 " keys, %" PRIu64 " bytes in %.2f s\n",
            d->writer.records, d->value_bytes, seconds);
}

static int run(struct dump *d, const char *prefix)
{
    struct penstock_stat stat = {.size = sizeof(stat)};
    bool to_stdout = strcmp(d->path, "-") == 0;
    uint64_t begin_ns = pst_now_ns();

    pst_assert(!d->out);
    pst_assert(!d->buffer);
    pst_assert(!d->code);
    d->out = to_stdout ? stdout : fopen(d->path, "we");
    d->buffer = malloc(WINDOW_BYTES);
    if (!d->out || !d->buffer) {
        fprintf(stderr, "penstock: %s: %s\n", d->path, strerror(errno));
        free(d->buffer);
        if (d->out && !to_stdout)
            fclose(d->out);
        return PST_EXIT_OTHER;
    }
    if (!*prefix && penstock_stat(d->cli->store, &stat) == 0)
        pst_progress_begin(&d->progress, "dump", stat.value_bytes);
    dump_keys(d, prefix);
    pst_progress_end(&d->progress);
    if ((to_stdout ? fflush(d->out) : fclose(d->out)) != 0 && !d->code) {
        fprintf(stderr, "penstock: %s: %s\n", d->path, strerror(errno));
        d->code = PST_EXIT_OTHER;
    }
    if (!d->code)
        report(d, to_stdout ? stderr : stdout, (double)(pst_now_ns() - begin_ns) / 1e9);
    free(d->buffer);
    return d->code;
}

int pst_cmd_dump(struct pst_cli *cli)
{
    pst_cleanup_free struct dump *d = calloc(1, sizeof(*d));

    pst_assert(cli->store);
    pst_assert(cli->arg_count <= 2);
    if (!d)
        return pst_cli_fail(-ENOMEM);
    d->cli = cli;
    d->path = cli->arg_count == 2 ? cli->args[1] : "-";
    if (strcmp(d->path, "-") == 0 && isatty(fileno(stdout)))
        return pst_cli_usage("dump: name a FILE, or send standard output somewhere");
    return run(d, cli->arg_count ? cli->args[0] : "");
}
