/*
 * files.c: many files through one process: a window of operations on a queue, files mapped on the way in,
 * buffers reused on the way out.
 */
#include "cli/cli.h"

#include "base/clock.h"

#include <fcntl.h>
#include <inttypes.h>
#include <openssl/evp.h>
#include <sys/mman.h>
#include <sys/stat.h>

enum {
    WINDOW = 16,                  /* files underway at once */
    WINDOW_BYTES_MAX = 256 << 20, /* of their values, unless one alone is larger */
};

struct file {
    struct penstock_op op; /* first: an operation is its file */
    char *path;
    char *key;
    uint64_t bytes;
    void *data;
};

struct run {
    struct pst_cli *cli;
    struct penstock_queue *queue;
    struct file *files;
    size_t count, begun, ended;
    uint64_t bytes_all, bytes_done, bytes_underway;
    struct pst_progress progress;
    uint64_t start_ns;
    uint64_t files_ns; /* of the time since: with files and digests, while nothing is sent or received */
    int code;
};

/* ---- the list ---- */

static int add_file(struct run *run, const char *path)
{
    struct file *larger = realloc(run->files, (run->count + 1) * sizeof(*larger)), *file;
    struct stat st;
    const char *prefix = run->cli->prefix ? run->cli->prefix : "";
    size_t key_bytes = strlen(prefix) + strlen(path) + 1;

    if (!larger)
        return -ENOMEM;
    run->files = larger;
    file = &run->files[run->count];
    *file = (struct file){.path = strdup(path), .key = malloc(key_bytes)};
    if (!file->path || !file->key) {
        free(file->path);
        free(file->key);
        return -ENOMEM;
    }
    snprintf(file->key, key_bytes, "%s%s", prefix, path);
    run->count++;
    if (stat(path, &st) == 0)
        file->bytes = (uint64_t)st.st_size;
    run->bytes_all += file->bytes;
    return 0;
}

static int read_list(struct run *run)
{
    FILE *list = fopen(run->cli->files, "re");
    char *line = NULL;
    size_t room = 0;
    ssize_t len;
    int r = list ? 0 : -errno;

    while (r == 0 && (len = getline(&line, &room, list)) > 0) {
        if (line[len - 1] == '\n')
            line[--len] = '\0';
        if (len)
            r = add_file(run, line);
    }
    if (r == 0 && ferror(list)) /* a folder, for one, opens but cannot be read */
        r = errno ? -errno : -EIO;
    free(line);
    if (list)
        fclose(list);
    if (r < 0)
        fprintf(stderr, "penstock: %s: %s\n", run->cli->files, strerror(-r));
    return r < 0 ? PST_EXIT_OTHER : 0;
}

static void free_list(struct run *run)
{
    for (size_t i = 0; i < run->count; i++) {
        free(run->files[i].path);
        free(run->files[i].key);
    }
    free(run->files);
}

/* ---- the window ---- */

static bool window_open(const struct run *run)
{
    size_t underway = run->begun - run->ended;

    pst_assert(run->ended <= run->begun && run->begun <= run->count && underway <= WINDOW);
    if (run->begun == run->count || underway == WINDOW || run->code)
        return false;
    return underway == 0 || run->bytes_underway + run->files[run->begun].bytes <= WINDOW_BYTES_MAX;
}

static void fault(struct run *run, const struct file *file, const char *why, int code)
{
    pst_assert(code != PST_EXIT_OK);
    fprintf(stderr, "penstock: %s: %s\n", file->path, why);
    run->code = run->code ? run->code : code;
}

/* Drives @begin for each file and @end for each that came back, in any order. */
static int drive(struct run *run, int (*begin)(struct run *, struct file *),
                 void (*end)(struct run *, struct file *))
{
    struct penstock_op *done[WINDOW];
    int r = penstock_queue_open(run->cli->store, &run->queue);

    if (r < 0)
        return pst_cli_fail(r);
    while (run->ended < run->count && (!run->code || run->begun > run->ended)) {
        while (window_open(run)) {
            struct file *file = &run->files[run->begun];

            if (begin(run, file) < 0)
                break;
            run->begun++;
            run->bytes_underway += file->bytes;
            penstock_submit(run->queue, &file->op, 1);
        }
        r = penstock_reap(run->queue, done, WINDOW, -1);
        for (int i = 0; i < r; i++) {
            struct file *file = (struct file *)(void *)done[i];

            pst_assert(file >= run->files && file < run->files + run->begun);
            pst_assert(run->ended < run->begun && run->bytes_underway >= file->bytes);
            run->ended++;
            run->bytes_underway -= file->bytes;
            run->bytes_done += file->bytes;
            if (file->op.result)
                fault(run, file, penstock_result_text(file->op.result), pst_cli_exit_code(file->op.result));
            end(run, file);
        }
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
            what, run->ended, run->bytes_done, (double)ns / 1e9, gb_per_s(run->bytes_done, ns),
            (double)transfer_ns / 1e9, gb_per_s(run->bytes_done, transfer_ns));
}

static int run_files(struct pst_cli *cli, const char *what, FILE *report,
                     int (*begin)(struct run *, struct file *), void (*end)(struct run *, struct file *))
{
    struct run run = {.cli = cli};
    int code = read_list(&run);

    if (code == 0) {
        pst_progress_begin(&run.progress, what, run.bytes_all);
        run.start_ns = pst_now_ns();
        code = drive(&run, begin, end);
        pst_progress_end(&run.progress);
        report_run(&run, what, report);
    }
    free_list(&run);
    return code;
}

/* ---- put ---- */

static int map_file(struct run *run, struct file *file)
{
    pst_cleanup_close int fd = open(file->path, O_RDONLY | O_CLOEXEC);
    struct stat st;

    pst_assert(!file->data && file->path);
    if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode)) {
        fault(run, file, fd < 0 ? strerror(errno) : "not a regular file", PST_EXIT_OTHER);
        return -EINVAL;
    }
    file->bytes = (uint64_t)st.st_size;
    file->data = file->bytes ? mmap(NULL, file->bytes, PROT_READ, MAP_PRIVATE | MAP_POPULATE, fd, 0) : NULL;
    if (file->data == MAP_FAILED) {
        fault(run, file, strerror(errno), PST_EXIT_OTHER);
        return -EINVAL;
    }
    return 0;
}

static int begin_put(struct run *run, struct file *file)
{
    uint64_t from_ns = pst_now_ns();
    int r = map_file(run, file);

    run->files_ns += pst_now_ns() - from_ns;
    if (r < 0)
        return r;
    penstock_prep_put(&file->op, file->key, strlen(file->key), file->data, file->bytes);
    file->op.flags =
        (uint8_t)((run->cli->checksum ? PENSTOCK_CHECKSUM : 0) | (run->cli->durable ? PENSTOCK_DURABLE : 0));
    return 0;
}

static void end_put(struct run *run, struct file *file)
{
    uint64_t from_ns = pst_now_ns();

    pst_assert(!file->bytes || (file->data && file->data != MAP_FAILED));
    if (file->bytes)
        munmap(file->data, file->bytes);
    run->files_ns += pst_now_ns() - from_ns;
}

int pst_put_files(struct pst_cli *cli)
{
    return run_files(cli, "put", stdout, begin_put, end_put);
}

/* ---- get ---- */

/* The size comes from the store: the file here may be another by now, or none. */
static int begin_get(struct run *run, struct file *file)
{
    struct penstock_op *op = &file->op;

    pst_assert(!file->data && file->key);
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

static void print_digest(struct run *run, const struct file *file)
{
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned int len = 0;

    pst_assert(file->op.result == 0 && file->op.value_bytes <= file->bytes);
    if (EVP_Digest(file->data, file->op.value_bytes, digest, &len, EVP_sha256(), NULL) != 1) {
        fault(run, file, "no SHA-256 in this OpenSSL", PST_EXIT_OTHER);
        return;
    }
    for (unsigned int i = 0; i < len; i++)
        printf("%02x", digest[i]);
    printf("  %s\n", file->path);
}

static void write_back(struct run *run, const struct file *file)
{
    FILE *out = fopen(file->path, "we");
    bool ok = out && fwrite(file->data, 1, file->op.value_bytes, out) == file->op.value_bytes;

    pst_assert(file->op.result == 0 && file->op.value_bytes <= file->bytes);
    if (out)
        ok = fclose(out) == 0 && ok;
    if (!ok)
        fault(run, file, strerror(errno), PST_EXIT_OTHER);
}

static void end_get(struct run *run, struct file *file)
{
    uint64_t from_ns = pst_now_ns();

    if (file->op.result == 0)
        run->cli->sha256 ? print_digest(run, file) : write_back(run, file);
    free(file->data);
    run->files_ns += pst_now_ns() - from_ns;
}

int pst_get_files(struct pst_cli *cli)
{
    return run_files(cli, "get", stderr, begin_get, end_get);
}
