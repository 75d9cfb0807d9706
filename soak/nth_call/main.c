/* SPDX-License-Identifier: Apache-2.0 */
/*
 * main.c: soak_nth_call WHERE FOLDER MS PLANT [OPERATION]: each operation with its Nth allocation or system
 * call failing, for N = 1, 2, ... until it ends without one that failed. WHERE is a store's URL, or "serve"
 * for a node in this process. Its figures are the last line, as JSON.
 */
#include "nth_call.h"

#include <dirent.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
    CALLS_MAX = 20000,
    CYCLE_S_MAX = 100, /* longer is a hang */
    SETTLE_MS_MAX = 3000,
    VIOLATIONS_MAX = 50,
};

static const char *const mode_names[] = {"fails", "is interrupted"};

static struct {
    const struct operation *operation;
    enum fail_mode mode;
    unsigned nth;
    unsigned violations, cycles, hits;
} now;

void violation(const char *format, ...)
{
    va_list args;

    now.violations++;
    printf("violation: %s, call %u (%s %s): ", now.operation->name, now.nth, fail_name(),
           mode_names[now.mode]);
    va_start(args, format);
    vprintf(format, args);
    va_end(args);
    printf("\n");
    fflush(stdout);
}

void expect(bool good, const char *what)
{
    if (!good)
        violation("not so: %s (%.200s)", what, penstock_error());
}

/* Says where it was before the process ends. */
static void on_signal(int number)
{
    char line[200];
    int n = snprintf(line, sizeof(line), "violation: %s, call %u (%s %s): %s\n",
                     now.operation ? now.operation->name : "", now.nth, fail_name(), mode_names[now.mode],
                     number == SIGALRM ? "hangs" : "ends the process");

    (void)!write(STDOUT_FILENO, line, (size_t)n);
    signal(number, SIG_DFL);
    if (number == SIGALRM)
        _exit(4);
    raise(number);
}

static uint64_t now_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

static int count_entries(const char *path)
{
    DIR *dir = opendir(path);
    int count = 0;

    while (dir && readdir(dir))
        count++;
    if (dir)
        closedir(dir);
    return count;
}

/* What the process holds. */
struct held {
    int files, threads;
    size_t blocks;
};

static struct held held(void)
{
    return (struct held){count_entries("/proc/self/fd"), count_entries("/proc/self/task"), fail_blocks()};
}

/* Descriptors and threads of the transport go by and by. */
static void expect_returned(const struct held *before)
{
    uint64_t end_ms = now_ms() + SETTLE_MS_MAX;
    struct held after = held();

    while ((after.files > before->files || after.threads > before->threads) && now_ms() < end_ms) {
        poll(NULL, 0, 5);
        after = held();
    }
    if (after.files > before->files)
        violation("%d descriptors stay open", after.files - before->files);
    if (after.threads > before->threads)
        violation("%d threads stay", after.threads - before->threads);
    if (after.blocks > before->blocks)
        violation("%zu blocks of memory stay", after.blocks - before->blocks);
}

/* One run with the Nth call failing, and one with none. Return: whether a call failed. */
static bool cycle(struct world *w, const char *url)
{
    const struct operation *operation = now.operation;
    static const struct penstock_options options = {
        .size = sizeof(options), .timeout_ms = 4000, .connect_ms = 4000};
    bool hit;
    int r;

    alarm(CYCLE_S_MAX);
    now.cycles++;
    w->url = url;
    if (!operation->opens)
        expect(penstock_open(url, &options, &w->store) == 0, "the store opens while nothing fails");
    operation->before(w);
    fail_arm(now.mode, now.nth);
    r = operation->run(w);
    hit = fail_disarm();
    now.hits += hit;
    if (!hit && r != 0)
        violation("ends with %d (%s) though nothing failed", r, penstock_error());
    operation->after(w, r);
    if (!operation->opens) {
        r = operation->run(w);
        if (r != 0)
            violation("does not work afterwards: %d (%s)", r, penstock_error());
        operation->after(w, r);
        w->store = penstock_close(w->store);
    }
    alarm(0);
    return hit;
}

/* Return: whether there was time for every call. */
static bool every_call(struct world *w, const char *url, uint64_t end_ms)
{
    struct held before;

    now.nth = 0; /* twice undisturbed: what stays from now on is lost */
    cycle(w, url);
    cycle(w, url);
    before = held();
    for (now.nth = 1; now.nth < CALLS_MAX && now.violations < VIOLATIONS_MAX; now.nth++) {
        bool hit;

        if (now_ms() > end_ms)
            return false;
        hit = cycle(w, url);
        expect_returned(&before);
        if (!hit)
            return true;
    }
    return now.nth < CALLS_MAX;
}

int main(int argc, char **argv)
{
    struct world w = {.folder = argc > 2 ? argv[2] : ""};
    bool serves = argc > 1 && strcmp(argv[1], "serve") == 0, complete = true;
    const struct operation *list = serves ? serving_operations : operations;
    size_t count = serves ? serving_operation_count : operation_count;
    uint64_t end_ms;

    if (argc < 5) {
        fprintf(stderr, "usage: soak_nth_call URL|serve FOLDER MS PLANT [OPERATION]\n");
        return 2;
    }
    end_ms = now_ms() + strtoull(argv[3], NULL, 10);
    if (strcmp(argv[4], "leak") == 0)
        fail_plant();
    signal(SIGALRM, on_signal);
    signal(SIGABRT, on_signal);
    signal(SIGSEGV, on_signal);
    signal(SIGPIPE, SIG_IGN);
    w.buf = malloc(LARGE_BYTES);
    for (size_t i = 0; i < count; i++) {
        now.operation = &list[i];
        if (argc > 5 && strcmp(argv[5], list[i].name) != 0)
            continue;
        for (now.mode = FAIL_HARD; now.mode <= FAIL_INTERRUPTED; now.mode++)
            complete &= every_call(&w, argv[1], end_ms);
    }
    free(w.buf);
    printf("{\"checked\":%u,\"failed_calls\":%u,\"violations\":%u,\"complete\":%s}\n", now.cycles, now.hits,
           now.violations, complete ? "true" : "false");
    return now.violations > 0;
}
