/* SPDX-License-Identifier: Apache-2.0 */
/* rsync.c: rsync's command line, its words, and what its end means. */
#include "cli/data/rsync.h"

#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/prctl.h>
#include <sys/wait.h>

enum { STALL_S = 60, CONNECT_S = 10, WORDS_BYTES = 2048, NO_PROGRAM = 127 };

/* What the child says, line by line. */
struct words {
    char line[512], kept[WORDS_BYTES];
    size_t line_bytes, kept_bytes;
    struct pst_progress bar;
    struct pst_arrival_result result;
};

/* ---- the command line ---- */

void pst_rsync_add(struct pst_rsync *rsync, const char *format, ...)
{
    va_list args;
    int r = -1;

    va_start(args, format);
    if (rsync->count < PST_RSYNC_ARGS_MAX)
        r = vasprintf(&rsync->args[rsync->count], format, args);
    va_end(args);
    rsync->failed |= r < 0;
    rsync->count += r >= 0;
    rsync->args[rsync->count] = NULL;
}

void pst_rsync_init(struct pst_rsync *rsync)
{
    *rsync = (struct pst_rsync){.count = 0};
    pst_rsync_add(rsync, "rsync");
    pst_rsync_add(rsync, "--archive");
    pst_rsync_add(rsync, "--no-devices"); /* whoever sends, nobody gets powers that way */
    pst_rsync_add(rsync, "--no-specials");
    pst_rsync_add(rsync, "--chmod=ug-s,o-t");
    pst_rsync_add(rsync, "--stats");
    pst_rsync_add(rsync, "--no-human-readable");
    if (isatty(STDERR_FILENO))
        pst_rsync_add(rsync, "--info=progress2");
    pst_rsync_add(rsync, "--timeout=%d", STALL_S);
    pst_rsync_add(rsync, "--contimeout=%d", CONNECT_S);
}

void pst_rsync_fini(struct pst_rsync *rsync)
{
    for (uint32_t i = 0; i < rsync->count; i++)
        free(rsync->args[i]);
    rsync->count = 0;
}

void pst_rsync_add_filters(struct pst_rsync *rsync, const struct pst_strings *filters)
{
    for (uint32_t i = 0; i < filters->count; i++) {
        const char *pattern = filters->items[i] + 1;

        pst_assert(filters->items[i][0] == '+' || filters->items[i][0] == '-');
        pst_rsync_add(rsync, "--filter=%c %s%s", filters->items[i][0],
                      strchr(pattern, '/') && *pattern != '/' ? "/" : "", pattern);
    }
}

/* ---- its words ---- */

/* The number behind @label, if the line begins with that. */
static bool figure(const char *line, const char *label, uint64_t *out)
{
    size_t bytes = strlen(label);

    if (strncmp(line, label, bytes) != 0)
        return false;
    *out = strtoull(line + bytes, NULL, 10);
    return true;
}

/* "  1234  5% 31.25MB/s  0:00:00 (xfr#1, to-chk=0/2)" */
static bool take_progress(struct words *words, const char *line)
{
    unsigned long long bytes = 0;
    unsigned percent = 0;
    const char *files = strstr(line, "xfr#");

    if (sscanf(line, " %llu %u%%", &bytes, &percent) != 2)
        return false;
    words->bar.total_bytes = percent ? bytes * 100 / percent : 0;
    words->bar.files = files ? strtoull(files + 4, NULL, 10) : words->bar.files;
    pst_progress_show(&words->bar, bytes);
    return true;
}

/* Return: whether it is one of the lines of --stats. */
static bool take_stats(struct words *words, const char *line)
{
    static const char *const others[] = {"Number of ", "Total ", "File list ", "sent ", "total size is "};
    struct pst_arrival_result *result = &words->result;
    const char *regular = strstr(line, "(reg: ");
    uint64_t files;

    if (figure(line, "Number of files: ", &files)) {
        result->files = regular ? strtoull(regular + 6, NULL, 10) : 0;
        return true;
    }
    if (figure(line, "Total file size: ", &result->bytes) || figure(line, "Literal data: ", &result->moved) ||
        figure(line, "Matched data: ", &result->matched))
        return true;
    for (size_t i = 0; i < pst_count_of(others); i++)
        if (strncmp(line, others[i], strlen(others[i])) == 0)
            return true;
    return false;
}

/* The last of what is neither progress nor figures explains a failure. */
static void keep_line(struct words *words)
{
    size_t bytes = words->line_bytes;

    if (words->kept_bytes + bytes + 2 > sizeof(words->kept)) {
        size_t drop = pst_min(words->kept_bytes, sizeof(words->line) + 2);

        memmove(words->kept, words->kept + drop, words->kept_bytes - drop);
        words->kept_bytes -= drop;
    }
    if (words->kept_bytes)
        words->kept[words->kept_bytes++] = ' ';
    memcpy(words->kept + words->kept_bytes, words->line, bytes);
    words->kept_bytes += bytes;
    words->kept[words->kept_bytes] = 0;
}

static void end_line(struct words *words)
{
    words->line[words->line_bytes] = 0;
    if (words->line_bytes && !take_progress(words, words->line) && !take_stats(words, words->line))
        keep_line(words);
    words->line_bytes = 0;
}

static void take_words(struct words *words, const char *data, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        if (data[i] == '\n' || data[i] == '\r' || words->line_bytes + 1 == sizeof(words->line))
            end_line(words);
        if (data[i] != '\n' && data[i] != '\r')
            words->line[words->line_bytes++] = data[i];
    }
}

/* ---- its end ---- */

/* Whether this host is at fault, such as its full disk, and no other source would serve better. */
static bool is_local_fault(int status, const char *words)
{
    static const uint8_t own[] = {3, 11, 13, 14, 20, 21, 22, NO_PROGRAM};

    if (strstr(words, "auth failed")) /* the pod answers */
        return true;
    if (status == 23 || status == 24) /* a transfer that one of both sides cut short */
        return !strstr(words, "[sender]") && (strstr(words, "[receiver]") || strstr(words, "[generator]"));
    return memchr(own, status, sizeof(own)) != NULL;
}

static int error_of(int status, const char *words)
{
    if (strstr(words, "No space left"))
        return -ENOSPC;
    if (strstr(words, "auth failed") || strstr(words, "Permission denied"))
        return -EACCES;
    if (status == 23 && strstr(words, "No such file"))
        return -ENOENT;
    switch (status) {
    case 10:
        return -ECONNREFUSED;
    case 12:
        return -ECONNRESET;
    case 30:
    case 35:
        return -ETIMEDOUT;
    default:
        return -EIO;
    }
}

static int tell_end(struct pst_rsync *rsync, int how, const struct words *words, char fault[PST_FAULT_BYTES])
{
    int status = WIFEXITED(how) ? WEXITSTATUS(how) : -1;
    const char *kept = words->kept_bytes ? words->kept : "it said nothing";

    if (status == 0)
        return 0;
    rsync->is_local = status < 0 || is_local_fault(status, words->kept);
    if (status == NO_PROGRAM && words->kept_bytes == 0)
        snprintf(fault, PST_FAULT_BYTES, "there is no program rsync on the PATH");
    else if (status < 0)
        snprintf(fault, PST_FAULT_BYTES, "rsync was ended by signal %d", WTERMSIG(how));
    else
        snprintf(fault, PST_FAULT_BYTES, "rsync ended with %d: %.200s", status, kept);
    return error_of(status, words->kept);
}

/* ---- the process ---- */

/* In the child. It ends with its parent, and never asks a terminal for a password. */
static _Noreturn void run_child(char *const *args, const char *password, int out, pid_t parent)
{
    int none = open("/dev/null", O_RDONLY);

    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (none < 0 || getppid() != parent || dup2(none, STDIN_FILENO) < 0 || dup2(out, STDOUT_FILENO) < 0 ||
        dup2(out, STDERR_FILENO) < 0 || setenv("RSYNC_PASSWORD", password, 1) < 0)
        _exit(NO_PROGRAM);
    execvp("rsync", args);
    _exit(NO_PROGRAM);
}

static void read_words(int fd, struct words *words)
{
    char data[4096];
    ssize_t n;

    while ((n = read(fd, data, sizeof(data))) != 0) {
        if (n > 0)
            take_words(words, data, (size_t)n);
        else if (errno != EINTR)
            break;
    }
    end_line(words);
}

static int run_process(struct pst_rsync *rsync, const char *password, struct words *words,
                       char fault[PST_FAULT_BYTES])
{
    pid_t parent = getpid(), child;
    int ends[2] = {-1, -1}, how = 0;

    child = pipe2(ends, O_CLOEXEC) < 0 ? -1 : fork();
    if (child == 0)
        run_child(rsync->args, password, ends[1], parent);
    if (child < 0) {
        how = -errno;
        snprintf(fault, PST_FAULT_BYTES, "rsync: %s", strerror(-how));
    }
    pst_close_fd(&ends[1]);
    if (child > 0)
        read_words(ends[0], words);
    pst_close_fd(&ends[0]);
    if (child < 0)
        return how;
    while (waitpid(child, &how, 0) < 0 && errno == EINTR)
        ;
    return tell_end(rsync, how, words, fault);
}

int pst_rsync_run(struct pst_rsync *rsync, const char *what, const char *password,
                  struct pst_arrival_result *result, char fault[PST_FAULT_BYTES])
{
    struct words words = {.kept_bytes = 0};
    int r;

    pst_assert(rsync->count > 0);
    pst_assert(result);
    pst_progress_begin(&words.bar, what, 0);
    if (rsync->failed) {
        snprintf(fault, PST_FAULT_BYTES, "rsync: out of memory, or too many arguments");
        return -ENOMEM;
    }
    r = run_process(rsync, password, &words, fault);
    pst_progress_end(&words.bar);
    if (r < 0)
        return r;
    pst_arrival_result_add(result, &words.result);
    return 0;
}
