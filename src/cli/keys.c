/* SPDX-License-Identifier: Apache-2.0 */
/* keys.c: the commands on keys: put, get, ls, rm, clear, flush, ping. */
#include "cli/files.h"

#include <fcntl.h>
#include <inttypes.h>
#include <sys/mman.h>
#include <sys/stat.h>

enum { STREAM_BYTES = 4 << 20 };

/* ---- put ---- */

static int parse_generation(const struct pst_cli *cli, struct penstock_op *op)
{
    const char *end;

    if (!cli->if_generation)
        return 0;
    op->flags |= PENSTOCK_IF_GENERATION;
    if (pst_parse_digits(cli->if_generation, &end, &op->if_generation) < 0 || *end)
        return pst_cli_usage("if-generation: '%.100s' is not a number", cli->if_generation);
    return 0;
}

/* A file of its own is mapped: it has a length, and nothing is copied. */
static int put_file(struct pst_cli *cli, struct penstock_op *op, int fd, uint64_t bytes)
{
    void *data;
    int r = pst_file_map(fd, bytes, &data);

    if (r < 0)
        return r;
    op->data = data;
    op->bytes = bytes;
    penstock_batch(cli->store, op, 1);
    if (bytes)
        munmap(data, bytes);
    return 0;
}

/* Fills @buf unless the file ends before. Return: how much was read, or -errno. */
static ssize_t read_some(int fd, uint8_t buf[STREAM_BYTES])
{
    size_t done = 0;
    ssize_t n = 1;

    while (n != 0 && done < STREAM_BYTES) {
        n = read(fd, buf + done, STREAM_BYTES - done);
        if (n < 0 && errno != EINTR)
            return -errno;
        done += n > 0 ? (size_t)n : 0;
    }
    pst_assert(done <= STREAM_BYTES);
    return (ssize_t)done;
}

/* Return: 0 and the operation's result, or -errno of the file. */
static int put_stream(struct pst_cli *cli, struct penstock_op *op, int fd, uint8_t *buf)
{
    struct penstock_stream *stream = NULL;
    ssize_t n = STREAM_BYTES;

    pst_assert(op->bytes == 0);
    op->result = penstock_stream_open(cli->store, op, &stream);
    while (op->result == 0 && n > 0) {
        op->result = penstock_stream_write(stream, buf, (uint64_t)n);
        op->bytes += (uint64_t)n;
        if (op->result == 0)
            n = n == STREAM_BYTES ? read_some(fd, buf) : 0;
    }
    if (op->result == 0 && n == 0)
        op->result = penstock_stream_commit(stream, &op->generation);
    else
        penstock_stream_abort(stream);
    return n < 0 ? (int)n : 0;
}

/* Anything else is read to its end, however far that is, and never held as a whole. What ends early is put by
 * one operation, which is sent again when its node changes; a stream is not. */
static int put_read(struct pst_cli *cli, struct penstock_op *op, int fd)
{
    pst_cleanup_free uint8_t *buf = malloc(STREAM_BYTES);
    ssize_t n = buf ? read_some(fd, buf) : -ENOMEM;

    if (n == STREAM_BYTES)
        return put_stream(cli, op, fd, buf);
    if (n < 0)
        return (int)n;
    op->data = buf;
    op->bytes = (uint64_t)n;
    penstock_batch(cli->store, op, 1);
    return 0;
}

/* Return: 0 and the operation's result, or -errno of the file. */
static int put_path(struct pst_cli *cli, struct penstock_op *op, const char *path)
{
    bool from_stdin = strcmp(path, "-") == 0;
    pst_cleanup_close int fd = from_stdin ? dup(STDIN_FILENO) : open(path, O_RDONLY | O_CLOEXEC);
    struct stat st;

    if (fd < 0 || fstat(fd, &st) < 0)
        return -errno;
    return S_ISREG(st.st_mode) && !from_stdin ? put_file(cli, op, fd, (uint64_t)st.st_size)
                                              : put_read(cli, op, fd);
}

static int parse_ttl(const struct pst_cli *cli, struct penstock_op *op)
{
    const char *end;

    if (!cli->ttl)
        return 0;
    if (pst_parse_digits(cli->ttl, &end, &op->ttl_ms) < 0 || *end || op->ttl_ms == 0)
        return pst_cli_usage("ttl: '%s' is no number of milliseconds", cli->ttl);
    if (cli->durable)
        return pst_cli_usage("durable: a value that ends (--ttl) cannot be");
    op->flags |= PENSTOCK_TTL;
    return 0;
}

int pst_put_options(const struct pst_cli *cli, struct penstock_op *op)
{
    int code;

    op->flags = (cli->if_absent ? PENSTOCK_IF_ABSENT : 0) | (cli->checksum ? PENSTOCK_CHECKSUM : 0) |
                (cli->durable ? PENSTOCK_DURABLE : 0);
    code = parse_generation(cli, op);
    return code ? code : parse_ttl(cli, op);
}

int pst_cmd_put(struct pst_cli *cli)
{
    struct penstock_op op = {0};
    const char *path, *key;
    int r;

    pst_assert(cli->store);
    pst_assert(cli->arg_count >= 0);
    if (cli->files || cli->recursive)
        return pst_put_files(cli);
    key = cli->args[0];
    penstock_prep_put(&op, key, strlen(key), NULL, 0);
    r = pst_put_options(cli, &op);
    if (r)
        return r;
    path = cli->arg_count == 2 ? cli->args[1] : "-";
    r = put_path(cli, &op, path);
    if (r < 0) {
        fprintf(stderr, "penstock: %s: %s\n", path, strerror(-r));
        return PST_EXIT_OTHER;
    }
    if (op.result)
        return pst_cli_fail_key(key, op.result);
    if (cli->json) {
        printf("{\"key\":");
        pst_json_string(stdout, key, strlen(key));
        printf(",\"bytes\":%" PRIu64 ",\"generation\":%" PRIu64, op.bytes, op.generation);
        if (penstock_copies(&op)) /* nobody counts those of a stream */
            printf(",\"copies\":%" PRIu32, penstock_copies(&op));
        printf("}\n");
    }
    return 0;
}

/* ---- get ---- */

static int parse_range(const struct pst_cli *cli, uint64_t *from, uint64_t *bytes)
{
    const char *end;

    pst_assert(cli->range);
    if (pst_parse_digits(cli->range, &end, from) < 0 || *end != ':' ||
        pst_parse_digits(end + 1, &end, bytes) < 0 || *end)
        return pst_cli_usage("range: '%.100s' is not FROM:BYTES", cli->range);
    return 0;
}

/* Reads the value whatever its size: the second try has a buffer that fits, unless someone has overwritten it
 * meanwhile. */
static int read_whole(struct pst_cli *cli, struct penstock_op *op, const char *key, uint64_t wait_ms)
{
    uint64_t room = 64 << 10;

    op->result = -ENOBUFS;
    for (int tries = 0; tries < 8 && op->result == -ENOBUFS; tries++) {
        free(op->data);
        penstock_prep_get(op, key, strlen(key), malloc(room), room);
        if (!op->data)
            return -ENOMEM;
        op->flags |= cli->wait ? PENSTOCK_WAIT : 0;
        op->wait_ms = (uint32_t)wait_ms;
        penstock_batch(cli->store, op, 1);
        room = op->value_bytes;
    }
    op->bytes = pst_min(op->bytes, op->value_bytes);
    return op->result;
}

static int read_range(struct pst_cli *cli, struct penstock_op *op, const char *key, uint64_t from,
                      uint64_t bytes, uint64_t wait_ms)
{
    penstock_prep_get_range(op, key, strlen(key), from, malloc(bytes ? bytes : 1), bytes);
    if (!op->data)
        return -ENOMEM;
    op->flags |= cli->wait ? PENSTOCK_WAIT : 0;
    op->wait_ms = (uint32_t)wait_ms;
    penstock_batch(cli->store, op, 1);
    return op->result;
}

static int write_all(const char *path, const uint8_t *data, uint64_t len)
{
    bool to_stdout = strcmp(path, "-") == 0;
    FILE *out = to_stdout ? stdout : fopen(path, "we");
    bool ok = out && fwrite(data, 1, len, out) == len;

    pst_assert(data || len == 0);
    if (out && !to_stdout)
        ok = fclose(out) == 0 && ok;
    if (!ok)
        fprintf(stderr, "penstock: %s: %s\n", path, strerror(errno));
    return ok ? 0 : PST_EXIT_OTHER;
}

/* Value bytes are no JSON: they go to FILE, or come as base64. */
static void print_got(const struct penstock_op *op, bool with_value)
{
    printf("{\"key\":");
    pst_json_string(stdout, op->key, op->key_bytes);
    printf(",\"bytes\":%" PRIu64 ",\"generation\":%" PRIu64, op->bytes, op->generation);
    if (with_value) {
        printf(",\"base64\":");
        pst_json_base64(stdout, op->data, op->bytes);
    }
    printf("}\n");
}

static int get_value(struct pst_cli *cli, struct penstock_op *op)
{
    const char *key = cli->args[0], *path = cli->arg_count == 2 ? cli->args[1] : "-";
    bool to_stdout = strcmp(path, "-") == 0;
    uint64_t from = 0, bytes = 0, wait_ms = 0;
    int r, code = cli->range ? parse_range(cli, &from, &bytes) : 0;

    if (code == 0 && cli->wait)
        code = pst_cli_wait_ms(cli, &wait_ms);
    if (code)
        return code;
    r = cli->range ? read_range(cli, op, key, from, bytes, wait_ms) : read_whole(cli, op, key, wait_ms);
    if (r == -ENOMEM && !op->data) {
        fprintf(stderr, "penstock: no memory for a value of %" PRIu64 " bytes\n", op->bytes);
        return PST_EXIT_OTHER;
    }
    if (r)
        return pst_cli_fail_key(key, r);
    if (!cli->json || !to_stdout)
        code = write_all(path, op->data, op->bytes);
    if (cli->json && code == 0)
        print_got(op, to_stdout);
    return code;
}

int pst_cmd_get(struct pst_cli *cli)
{
    struct penstock_op op = {0};
    int code;

    pst_assert(cli->store);
    pst_assert(cli->arg_count >= 0);
    if (cli->files || cli->recursive)
        return pst_get_files(cli);
    code = get_value(cli, &op);
    free(op.data);
    return code;
}

/* ---- ls ---- */

static void print_entry(const struct pst_cli *cli, const struct penstock_entry *e)
{
    char size[PST_SIZE_TEXT_BYTES];

    pst_assert(e->key_bytes > 0 && e->key_bytes <= PENSTOCK_KEY_BYTES_MAX);
    if (cli->json) {
        printf("{\"key\":");
        pst_json_string(stdout, e->key, e->key_bytes);
        printf(",\"bytes\":%" PRIu64 ",\"generation\":%" PRIu64 ",\"class\":\"%s\"}\n", e->value_bytes,
               e->generation, e->cache ? "cache" : "keep");
        return;
    }
    if (cli->long_)
        printf("%14s %20" PRIu64 " %-5s ", pst_cli_size(cli, e->value_bytes, size), e->generation,
               e->cache ? "cache" : "keep");
    fwrite(e->key, 1, e->key_bytes, stdout);
    putchar('\n');
}

int pst_cmd_ls(struct pst_cli *cli)
{
    const char *prefix = cli->arg_count ? cli->args[0] : "";
    struct penstock_list_options options = {
        .size = sizeof(options), .prefix = prefix, .prefix_bytes = strlen(prefix)};
    struct penstock_entry entry;
    struct penstock_list *list;
    int r;

    pst_assert(cli->store);
    pst_assert(cli->arg_count <= 1);
    r = penstock_list_open(cli->store, &options, &list);
    if (r)
        return pst_cli_fail(r);
    while ((r = penstock_list_next(list, &entry)) == 1)
        print_entry(cli, &entry);
    penstock_list_close(list);
    return r ? pst_cli_fail(r) : 0;
}

/* ---- rm, clear ---- */

static int rm_one(struct pst_cli *cli, const char *key)
{
    struct penstock_op op = {0};
    int code;

    penstock_prep(&op, PENSTOCK_DELETE, key, strlen(key));
    code = parse_generation(cli, &op);
    if (code)
        return code;
    penstock_batch(cli->store, &op, 1);
    return op.result ? pst_cli_fail_key(key, op.result) : 0;
}

int pst_cmd_rm(struct pst_cli *cli)
{
    uint64_t deleted = 0;
    int code = 0, r;

    pst_assert(cli->store);
    pst_assert(!cli->prefix == !!cli->arg_count);
    if (cli->prefix && cli->if_generation)
        return pst_cli_usage("rm: --if-generation is of one key, not of a prefix");
    if (cli->prefix) {
        r = penstock_delete_prefix(cli->store, cli->prefix, strlen(cli->prefix), &deleted);
        if (r)
            return pst_cli_fail(r);
    }
    for (int i = 0; i < cli->arg_count; i++) {
        r = rm_one(cli, cli->args[i]);
        deleted += r == 0;
        code = code ? code : r;
    }
    if (cli->json)
        printf("{\"deleted\":%" PRIu64 "}\n", deleted);
    else if (cli->prefix)
        printf("%" PRIu64 " keys deleted\n", deleted);
    return code;
}

int pst_cmd_clear(struct pst_cli *cli)
{
    uint64_t remaining;
    int r = penstock_clear(cli->store, &remaining);

    if (r)
        return pst_cli_fail(r);
    if (cli->json)
        printf("{\"remaining\":%" PRIu64 "}\n", remaining);
    else if (remaining)
        printf("%" PRIu64 " pinned keys go when their last pin does\n", remaining);
    return 0;
}

/* ---- flush, ping ---- */

int pst_cmd_flush(struct pst_cli *cli)
{
    int r = penstock_flush(cli->store);

    return r ? pst_cli_fail(r) : 0;
}

int pst_cmd_ping(struct pst_cli *cli)
{
    uint64_t ns = 0;
    int r = penstock_ping(cli->store, &ns);

    if (r)
        return pst_cli_fail(r);
    if (cli->json)
        printf("{\"round_trip_us\":%.1f,\"lane\":\"%s\"}\n", (double)ns / 1000, penstock_lane(cli->store));
    else
        printf("all shards answered in %.1f us over %s\n", (double)ns / 1000, penstock_lane(cli->store));
    return 0;
}
