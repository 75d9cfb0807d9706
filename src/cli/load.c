/* SPDX-License-Identifier: Apache-2.0 */
/*
 * load.c: a dump back into a store. A value is there when its record's checksum was right, never before:
 * small ones are put in batches, a large one is streamed and committed with its record's end, so that memory
 * stays bounded. The first fault ends the run and is named by record, key and place.
 */
#include "cli/cli.h"

#include "base/clock.h"
#include "wire/dump.h"

#include <fcntl.h>
#include <inttypes.h>
#include <sys/stat.h>

enum {
    READ_BYTES = 4 << 20,
    WINDOW_KEYS = 128,
    WINDOW_BYTES = 16 << 20, /* a larger value is streamed */
};

struct load {
    struct pst_cli *cli;
    const char *path;
    int fd;
    struct pst_dump_reader reader;
    struct penstock_op ops[WINDOW_KEYS]; /* the records that wait to be put, and the one underway */
    uint32_t count;
    uint64_t window_bytes;
    uint64_t value_at;              /* of the record underway */
    struct penstock_stream *stream; /* its value, when it is larger than a window */
    uint64_t stored, skipped, value_bytes;
    struct pst_progress progress;
    int code;
};

static void release(struct penstock_op *op)
{
    free((void *)(uintptr_t)op->key);
    free(op->data);
    *op = (struct penstock_op){0};
}

static void count_result(struct load *l, struct penstock_op *op)
{
    pst_assert(op->key);
    if (op->result == 0)
        l->stored++;
    else if (op->result == PENSTOCK_EXISTS)
        l->skipped++;
    else if (!l->code) {
        fprintf(stderr, "penstock: key '%.*s': %s\n", (int)pst_min(op->key_bytes, 100), (const char *)op->key,
                penstock_result_text(op->result));
        l->code = pst_cli_exit_code(op->result);
    }
    release(op);
}

/* Puts the first @count operations. */
static void flush_window(struct load *l)
{
    pst_assert(l->count <= WINDOW_KEYS);
    pst_assert(l->window_bytes <= WINDOW_BYTES);
    penstock_batch(l->cli->store, l->ops, l->count);
    for (uint32_t i = 0; i < l->count; i++)
        count_result(l, &l->ops[i]);
    l->count = 0;
    l->window_bytes = 0;
}

/* ---- events ---- */

static int begin_record(struct load *l)
{
    const struct pst_dump_record *record = &l->reader.record;
    bool streamed = record->value_bytes > WINDOW_BYTES;
    struct penstock_op *op;
    uint8_t *names, *value;

    if (l->count == WINDOW_KEYS || l->window_bytes + record->value_bytes > WINDOW_BYTES)
        flush_window(l);
    if (l->code)
        return -ECANCELED;
    pst_assert(l->count < WINDOW_KEYS);
    pst_assert(!l->stream);
    op = &l->ops[l->count];
    pst_assert(!op->data);
    pst_assert(!op->key); /* the one before was released */
    names = malloc(record->key.len + record->attrs.len);
    value = streamed ? NULL : malloc(record->value_bytes ? record->value_bytes : 1);
    if (!names || !(value || streamed)) {
        free(names);
        free(value);
        fprintf(stderr, "penstock: %s: no memory for a value of %" PRIu64 " bytes\n", l->path,
                record->value_bytes);
        l->code = PST_EXIT_OTHER;
        return -ECANCELED;
    }
    memcpy(names, record->key.data, record->key.len);
    if (record->attrs.len)
        memcpy(names + record->key.len, record->attrs.data, record->attrs.len);
    penstock_prep_put(op, names, record->key.len, value, record->value_bytes);
    op->attrs = names + record->key.len;
    op->attr_bytes = (uint16_t)record->attrs.len;
    op->depth = record->depth;
    op->flags = (l->cli->if_absent ? PENSTOCK_IF_ABSENT : 0) | (l->cli->checksum ? PENSTOCK_CHECKSUM : 0);
    l->value_at = 0;
    if (streamed)
        op->result = penstock_stream_open(l->cli->store, op, &l->stream);
    return 0;
}

static int take_piece(struct load *l, struct pst_bytes piece)
{
    struct penstock_op *op = &l->ops[l->count];

    pst_assert(op->key);
    pst_assert(piece.len <= op->bytes - l->value_at);
    if (op->data)
        memcpy((uint8_t *)op->data + l->value_at, piece.data, piece.len);
    else if (op->result == 0)
        op->result = penstock_stream_write(l->stream, piece.data, piece.len);
    l->value_at += piece.len;
    if (op->result == 0 || op->result == PENSTOCK_EXISTS) /* which skips the rest */
        return 0;
    l->stream = penstock_stream_abort(l->stream);
    count_result(l, op);
    return -ECANCELED;
}

static void end_record(struct load *l, bool whole)
{
    struct penstock_op *op = &l->ops[l->count];

    pst_assert(l->count < WINDOW_KEYS);
    pst_assert(op->key);
    pst_assert(!whole || l->value_at == op->bytes); /* the reader has seen to it */
    if (!whole) {
        l->stream = penstock_stream_abort(l->stream);
        release(op);
        return;
    }
    l->value_bytes += op->bytes;
    if (op->data) {
        l->window_bytes += op->bytes;
        l->count++;
        return;
    }
    if (l->stream)
        op->result = penstock_stream_commit(l->stream, NULL);
    l->stream = NULL;
    count_result(l, op);
}

/* Return: 0, or what the reader found wrong. */
static int take(struct load *l, struct pst_bytes input)
{
    while (input.len) {
        struct pst_bytes piece;
        int event = pst_dump_next(&l->reader, &input, &piece);

        if (event < 0)
            return event;
        if (event == PST_DUMP_RECORD)
            event = begin_record(l);
        else if (event == PST_DUMP_PIECE)
            event = take_piece(l, piece);
        else if (event == PST_DUMP_DONE || event == PST_DUMP_VOID)
            end_record(l, event == PST_DUMP_DONE);
        if (event < 0)
            return 0; /* said already */
    }
    return 0;
}

/* ---- the command ---- */

static void name_fault(struct load *l, int fault)
{
    const struct pst_dump_reader *r = &l->reader;
    const struct pst_dump_record *record = pst_dump_underway(r);

    pst_assert(fault < 0);
    pst_assert(r->fault);
    fprintf(stderr, "penstock: %s: record %" PRIu64 ", ", l->path, record ? r->records : r->records + 1);
    if (record) {
        fprintf(stderr, "key ");
        pst_json_string(stderr, record->key.data, record->key.len);
        fprintf(stderr, ", ");
    }
    fprintf(stderr, "before offset %" PRIu64 ": %s", r->offset, r->fault);
    if (fault == -EPROTONOSUPPORT)
        fprintf(stderr, " (%u; this one reads %d)", r->version, PST_DUMP_VERSION);
    fputc('\n', stderr);
    l->code = fault == -EPROTONOSUPPORT ? PST_EXIT_OTHER : PST_EXIT_CORRUPT;
}

static void run(struct load *l, uint8_t *buffer)
{
    int fault = 0;
    ssize_t len;

    pst_assert(l->fd >= 0);
    pst_assert(l->count == 0);
    do {
        len = read(l->fd, buffer, READ_BYTES);
        if (len < 0 && errno == EINTR)
            continue;
        if (len < 0) {
            fprintf(stderr, "penstock: %s: %s\n", l->path, strerror(errno));
            l->code = PST_EXIT_OTHER;
        } else {
            fault = len ? take(l, (struct pst_bytes){buffer, (size_t)len}) : pst_dump_finish(&l->reader);
            pst_progress_show(&l->progress, l->reader.offset);
        }
    } while (len != 0 && !fault && !l->code);
    l->stream = penstock_stream_abort(l->stream);
    if (l->count < WINDOW_KEYS) /* the record underway, if there is one */
        release(&l->ops[l->count]);
    pst_progress_end(&l->progress);
    if (fault)
        name_fault(l, fault);
    flush_window(l); /* what was whole before the fault */
    pst_assert(l->code || fault || l->stored + l->skipped == l->reader.whole);
}

static int load_stream(struct load *l)
{
    pst_cleanup_free uint8_t *buffer = malloc(READ_BYTES);
    uint64_t begin_ns = pst_now_ns();
    struct stat st;

    pst_assert(l->cli);
    pst_assert(l->path);
    pst_assert(l->reader.records == 0);
    if (!buffer)
        return pst_cli_fail(-ENOMEM);
    if (fstat(l->fd, &st) == 0 && S_ISREG(st.st_mode))
        pst_progress_begin(&l->progress, "load", (uint64_t)st.st_size);
    run(l, buffer);
    printf(l->cli->json ? "{\"op\":\"load\",\"keys\":%" PRIu64 ",\"stored\":%" PRIu64 ",\"skipped\":%" PRIu64
                          ",\"bytes\":%" PRIu64 ",\"seconds\":%.3f}\n"
                        : "read %" PRIu64 " keys: %" PRIu64 " stored, %" PRIu64 " skipped, %" PRIu64
                          " bytes in %.2f s\n",
           l->reader.whole, l->stored, l->skipped, l->value_bytes, (double)(pst_now_ns() - begin_ns) / 1e9);
    return l->code;
}

int pst_cmd_load(struct pst_cli *cli)
{
    pst_cleanup_free struct load *l = calloc(1, sizeof(*l));
    const char *path = cli->arg_count ? cli->args[0] : "-";
    pst_cleanup_close int fd = -1;

    pst_assert(cli->store);
    pst_assert(cli->arg_count <= 1);
    if (cli->if_absent && cli->replace)
        return pst_cli_usage("load: either --if-absent or --replace");
    if (!l)
        return pst_cli_fail(-ENOMEM);
    fd = strcmp(path, "-") == 0 ? dup(STDIN_FILENO) : open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        fprintf(stderr, "penstock: %s: %s\n", path, strerror(errno));
        return PST_EXIT_OTHER;
    }
    l->cli = cli;
    l->path = strcmp(path, "-") == 0 ? "standard input" : path;
    l->fd = fd;
    return load_stream(l);
}
