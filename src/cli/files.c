/* SPDX-License-Identifier: Apache-2.0 */
/*
 * files.c: many files through one process: a window of operations on a queue, files mapped on the way in,
 * buffers reused on the way out.
 */
#include "cli/files.h"

#include "base/clock.h"
#include "base/hex.h"

#include <fcntl.h>
#include <inttypes.h>
#include <openssl/evp.h>
#include <sys/mman.h>
#include <sys/stat.h>

enum {
    WINDOW = 16,                  /* files underway at once */
    WINDOW_BYTES_MAX = 256 << 20, /* of their values, unless one alone is larger */
    TRIES_MAX = 16,
};

struct run {
    struct pst_cli *cli;
    struct penstock_queue *queue;
    struct pst_file_list list;
    size_t begun, ended;
    size_t moved; /* with their bytes in bytes_done */
    size_t there; /* of put --if-absent: keys that there were already */
    uint64_t bytes_done, bytes_underway;
    struct pst_progress progress;
    uint64_t start_ns;
    uint64_t files_ns; /* of the time since: with files and digests, while nothing is sent or received */
    int code;
};

/* ---- the list ---- */

int pst_file_list_add(struct pst_file_list *list, const char *path, const char *key, uint64_t bytes)
{
    struct pst_file file = {.path = strdup(path), .key = strdup(key), .bytes = bytes};

    pst_assert(list->count <= list->room);
    if (list->count == list->room) {
        size_t room = list->room ? 2 * list->room : 64;
        struct pst_file *larger = realloc(list->files, room * sizeof(*larger));

        list->files = larger ? larger : list->files;
        list->room = larger ? room : list->room;
    }
    if (list->count == list->room || !file.path || !file.key) {
        free(file.path);
        free(file.key);
        return -ENOMEM;
    }
    list->files[list->count++] = file;
    list->bytes += bytes;
    return 0;
}

static void list_free(struct pst_file_list *list)
{
    for (size_t i = 0; i < list->count; i++) {
        free(list->files[i].path);
        free(list->files[i].key);
    }
    free(list->files);
    if (list->root >= 0)
        close(list->root);
}

static int list_line(struct run *run, const char *path)
{
    pst_cleanup_free char *key = NULL;
    struct stat st;

    if (asprintf(&key, "%s%s", run->cli->prefix ? run->cli->prefix : "", path) < 0)
        return -ENOMEM;
    return pst_file_list_add(&run->list, path, key, stat(path, &st) == 0 ? (uint64_t)st.st_size : 0);
}

/* --files */
static int list_lines(struct run *run)
{
    FILE *lines = fopen(run->cli->files, "re");
    char *line = NULL;
    size_t room = 0;
    ssize_t len;
    int r = lines ? 0 : -errno;

    while (r == 0 && (len = getline(&line, &room, lines)) > 0) {
        if (line[len - 1] == '\n')
            line[--len] = '\0';
        if (len)
            r = list_line(run, line);
    }
    if (r == 0 && ferror(lines)) /* a folder, for one, opens but cannot be read */
        r = errno ? -errno : -EIO;
    free(line);
    if (lines)
        fclose(lines);
    if (r < 0)
        fprintf(stderr, "penstock: %s: %s\n", run->cli->files, strerror(-r));
    return r < 0 ? PST_EXIT_OTHER : 0;
}

/* --files, or --recursive DIR PREFIX */
static int list_put(struct run *run)
{
    if (run->cli->files)
        return list_lines(run);
    return pst_tree_list_folder(&run->list, run->cli->args[0], run->cli->args[1]);
}

/* --files, or --recursive PREFIX DIR, or --recursive --sha256 PREFIX */
static int list_get(struct run *run)
{
    const char *folder = run->cli->args[1];

    if (run->cli->files)
        return list_lines(run);
    if (folder) {
        mkdir(folder, 0777);
        run->list.root = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (run->list.root < 0) {
            fprintf(stderr, "penstock: %s: %s\n", folder, strerror(errno));
            return PST_EXIT_OTHER;
        }
    }
    return pst_tree_list_prefix(&run->list, run->cli->store, run->cli->args[0]);
}

/* ---- the window ---- */

static bool window_open(const struct run *run)
{
    size_t underway = run->begun - run->ended;

    pst_assert(run->ended <= run->begun && run->begun <= run->list.count);
    pst_assert(underway <= WINDOW);
    if (run->begun == run->list.count || underway == WINDOW || run->code)
        return false;
    return underway == 0 || run->bytes_underway + run->list.files[run->begun].bytes <= WINDOW_BYTES_MAX;
}

static void fault(struct run *run, const struct pst_file *file, const char *why, int code)
{
    pst_assert(code != PST_EXIT_OK);
    fprintf(stderr, "penstock: %s: %s\n", file->path, why);
    run->code = run->code ? run->code : code;
}

/* What one direction does with its list, with a file before its operation and with it after. */
struct direction {
    const char *name;
    int (*list)(struct run *run);
    int (*begin)(struct run *run, struct pst_file *file);
    bool (*again)(struct run *run, struct pst_file *file); /* true: its operation is to go once more */
    bool (*end)(struct run *run, struct pst_file *file);   /* false: it could not be written */
};

static void file_ended(struct run *run, const struct direction *direction, struct pst_file *file)
{
    int result = file->op.result;
    bool moved = result == 0 || result == PENSTOCK_EXISTS;

    pst_assert(file >= run->list.files && file < run->list.files + run->begun);
    pst_assert(run->ended < run->begun);
    pst_assert(run->bytes_underway >= file->bytes);
    if (direction->again && direction->again(run, file)) {
        penstock_submit(run->queue, &file->op, 1);
        return;
    }
    run->ended++;
    run->bytes_underway -= file->bytes;
    if (!moved)
        fault(run, file, penstock_result_text(result), pst_cli_exit_code(result));
    if (!direction->end(run, file) || !moved)
        return;
    run->there += result == PENSTOCK_EXISTS;
    run->moved++;
    run->bytes_done += file->bytes;
}

/* Begins each file, and ends each that came back, in any order. */
static int drive(struct run *run, const struct direction *direction)
{
    struct penstock_op *done[WINDOW];
    int r = penstock_queue_open(run->cli->store, &run->queue);

    if (r < 0)
        return pst_cli_fail(r);
    while (run->ended < run->list.count && (!run->code || run->begun > run->ended)) {
        while (window_open(run)) {
            struct pst_file *file = &run->list.files[run->begun];

            if (direction->begin(run, file) < 0)
                break;
            run->begun++;
            run->bytes_underway += file->bytes;
            penstock_submit(run->queue, &file->op, 1);
        }
        r = penstock_reap(run->queue, done, WINDOW, -1);
        for (int i = 0; i < r; i++)
            file_ended(run, direction, (struct pst_file *)(void *)done[i]);
        run->progress.files = run->moved;
        pst_progress_show(&run->progress, run->bytes_done);
        if (r <= 0)
            break;
    }
    pst_assert(r < 0 || (run->begun == run->ended && run->bytes_underway == 0));
    penstock_queue_close(run->queue);
    return run->code;
}

static double gb_per_s(uint64_t bytes, uint64_t ns)
{
    return ns ? (double)bytes / (double)ns : 0;
}

/* All of it, and the transfer apart: this thread alone reads and writes files and moves bytes, one at a time.
 */
static void report_run(const struct run *run, const char *what, FILE *out)
{
    uint64_t ns = pst_now_ns() - run->start_ns, transfer_ns = ns - run->files_ns;

    pst_assert(run->files_ns <= ns);
    fprintf(out,
            run->cli->json ? "{\"op\":\"%s\",\"files\":%zu,\"bytes\":%" PRIu64
                             ",\"seconds\":%.3f,\"gb_per_s\":%.3f,\"transfer_seconds\":%.3f,"
                             "\"transfer_gb_per_s\":%.3f}\n"
                           : "%s %zu files, %" PRIu64
                             " bytes in %.2f s, %.2f GB/s; without files and digests "
                             "%.2f s, %.2f GB/s\n",
            what, run->moved, run->bytes_done, (double)ns / 1e9, gb_per_s(run->bytes_done, ns),
            (double)transfer_ns / 1e9, gb_per_s(run->bytes_done, transfer_ns));
    if (run->there && !run->cli->json)
        fprintf(out, "%zu of them were there already\n", run->there);
}

static int run_files(struct pst_cli *cli, const struct direction *direction, FILE *report)
{
    struct run run = {.cli = cli, .list.root = -1};
    int code = direction->list(&run);

    if (code == 0) {
        pst_progress_begin(&run.progress, direction->name, run.list.bytes);
        run.start_ns = pst_now_ns();
        code = drive(&run, direction);
        pst_progress_end(&run.progress);
        report_run(&run, direction->name, report);
    }
    list_free(&run.list);
    return code;
}

/* ---- put ---- */

int pst_file_map(int fd, uint64_t bytes, void **data)
{
    void *at = NULL;

    pst_assert(fd >= 0);
    pst_assert(data);
    if (bytes) {
        /* Without a reserve, or a file larger than the memory could not be mapped. */
        at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE, fd, 0);
        if (at == MAP_FAILED)
            return -errno;
        /* MAP_POPULATE would write to each page, and so copy it. Linux before 5.14 reads when asked. */
        (void)madvise(at, bytes, MADV_POPULATE_READ);
    }
    *data = at;
    return 0;
}

static int map_file(struct run *run, struct pst_file *file)
{
    pst_cleanup_close int fd = open(file->path, O_RDONLY | O_CLOEXEC);
    struct stat st;
    int r;

    pst_assert(!file->data);
    pst_assert(file->path);
    if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode)) {
        fault(run, file, fd < 0 ? strerror(errno) : "not a regular file", PST_EXIT_OTHER);
        return -EINVAL;
    }
    file->bytes = (uint64_t)st.st_size;
    r = pst_file_map(fd, file->bytes, &file->data);
    if (r < 0)
        fault(run, file, strerror(-r), PST_EXIT_OTHER);
    return r;
}

static int begin_put(struct run *run, struct pst_file *file)
{
    uint64_t from_ns = pst_now_ns();
    int r = map_file(run, file);

    run->files_ns += pst_now_ns() - from_ns;
    if (r < 0)
        return r;
    penstock_prep_put(&file->op, file->key, strlen(file->key), file->data, file->bytes);
    run->code = pst_put_options(run->cli, &file->op);
    return run->code ? -EINVAL : 0;
}

static bool end_put(struct run *run, struct pst_file *file)
{
    uint64_t from_ns = pst_now_ns();

    pst_assert(!file->bytes || file->data);
    if (file->bytes)
        munmap(file->data, file->bytes);
    run->files_ns += pst_now_ns() - from_ns;
    return true;
}

int pst_put_files(struct pst_cli *cli)
{
    static const struct direction put = {"put", list_put, begin_put, NULL, end_put};

    if (cli->recursive && (cli->files || cli->arg_count != 2))
        return pst_cli_usage("put --recursive takes DIR PREFIX");
    if (cli->if_generation)
        return pst_cli_usage("put: --if-generation is of one key, not of many");
    return run_files(cli, &put, stdout);
}

/* ---- get ---- */

/* The size comes from the store: the file here may be another by now, or none. */
static int begin_get(struct run *run, struct pst_file *file)
{
    struct penstock_op *op = &file->op;

    pst_assert(!file->data);
    pst_assert(file->key);
    penstock_prep(op, PENSTOCK_STAT_KEY, file->key, strlen(file->key));
    penstock_batch(run->cli->store, op, 1);
    if (op->result) {
        fault(run, file, penstock_result_text(op->result), pst_cli_exit_code(op->result));
        return -EINVAL;
    }
    file->bytes = op->value_bytes;
    file->data = malloc(file->bytes ? file->bytes : 1);
    if (!file->data) {
        fault(run, file, "out of memory", PST_EXIT_OTHER);
        return -ENOMEM;
    }
    penstock_prep_get(op, file->key, strlen(file->key), file->data, file->bytes);
    return 0;
}

/* The value has grown since its size was asked for. */
static bool get_again(struct run *run, struct pst_file *file)
{
    struct penstock_op *op = &file->op;
    uint64_t room = op->value_bytes + op->value_bytes / 8; /* it may grow on */

    if (op->result != -ENOBUFS || file->tries == TRIES_MAX)
        return false;
    file->tries++;
    free(file->data);
    file->data = malloc(room);
    if (!file->data) {
        op->result = -ENOMEM;
        return false;
    }
    run->bytes_underway += room - file->bytes;
    file->bytes = room;
    penstock_prep_get(op, file->key, strlen(file->key), file->data, room);
    return true;
}

static bool print_digest(struct run *run, const struct pst_file *file)
{
    unsigned char digest[EVP_MAX_MD_SIZE];
    char text[2 * sizeof(digest) + 1];
    unsigned int len = 0;

    pst_assert(file->op.result == 0);
    pst_assert(file->op.value_bytes <= file->bytes);
    if (EVP_Digest(file->data, file->op.value_bytes, digest, &len, EVP_sha256(), NULL) != 1) {
        fault(run, file, "no SHA-256 in this OpenSSL", PST_EXIT_OTHER);
        return false;
    }
    pst_hex_print(digest, len, text);
    printf("%s  %s\n", text, file->path);
    return true;
}

/* To a path that the caller named, whatever is there. */
static int write_listed(const struct pst_file *file)
{
    FILE *out = fopen(file->path, "we");
    bool ok = out && fwrite(file->data, 1, file->op.value_bytes, out) == file->op.value_bytes;

    if (out)
        ok = fclose(out) == 0 && ok;
    return ok ? 0 : -errno;
}

static bool write_back(struct run *run, const struct pst_file *file)
{
    int r;

    pst_assert(file->op.result == 0);
    pst_assert(file->op.value_bytes <= file->bytes);
    if (run->list.root < 0)
        r = write_listed(file);
    else
        r = pst_tree_write(run->list.root, file->path, file->data, file->op.value_bytes);
    if (r < 0)
        fault(run, file, strerror(-r), PST_EXIT_OTHER);
    return r == 0;
}

static bool end_get(struct run *run, struct pst_file *file)
{
    uint64_t from_ns = pst_now_ns();
    bool ok = true;

    if (file->op.result == 0) {
        ok = run->cli->sha256 ? print_digest(run, file) : write_back(run, file);
        file->bytes = file->op.value_bytes;
    }
    free(file->data);
    run->files_ns += pst_now_ns() - from_ns;
    return ok;
}

int pst_get_files(struct pst_cli *cli)
{
    static const struct direction get = {"get", list_get, begin_get, get_again, end_get};

    if (cli->recursive && (cli->files || cli->arg_count != 2 - cli->sha256))
        return pst_cli_usage("get --recursive takes PREFIX DIR, or with --sha256 PREFIX");
    if (cli->range || cli->wait)
        return pst_cli_usage("get: --range and --wait are of one key, not of many");
    return run_files(cli, &get, stderr);
}
