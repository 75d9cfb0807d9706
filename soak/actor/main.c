/* SPDX-License-Identifier: Apache-2.0 */
/*
 * main.c: soak_actor HISTORY NAME=VALUE...: acts on the store at url= for for_ms=, or until SIGTERM. Numbers:
 * number seed for_ms timeout_ms pause_us calm pool; words: url, focus (all small large get batch view),
 * plant.
 */
#include "actor.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { OPEN_AGAIN_US = 20000 };

static volatile sig_atomic_t told_to_end;

static void on_term(int signal)
{
    (void)signal;
    told_to_end = 1;
}

/* Value of @name in the command line; "" when it is not there. */
static const char *word(char **argv, const char *name)
{
    size_t length = strlen(name);

    for (; *argv; argv++) {
        if (strncmp(*argv, name, length) == 0 && (*argv)[length] == '=')
            return *argv + length + 1;
    }
    return "";
}

static uint64_t number(char **argv, const char *name)
{
    return strtoull(word(argv, name), NULL, 10);
}

/* Place of @text among @words, 0 when it is none of them. */
static int choose(const char *text, const char *const *words, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (strcmp(text, words[i]) == 0)
            return (int)i;
    }
    return 0;
}

/* A node that is being restarted is tried again. */
static bool open_store(struct actor *a, const char *url, uint64_t end_ns)
{
    struct penstock_options options = {.size = sizeof(options), .timeout_ms = a->timeout_ms};

    while (penstock_open(url, &options, &a->store) != 0) {
        if (told_to_end || now_ns() >= end_ns) {
            fprintf(stderr, "soak_actor: %s\n", penstock_error());
            return false;
        }
        usleep(OPEN_AGAIN_US);
    }
    return true;
}

static bool set_up(struct actor *a, char **argv)
{
    static const char *const focuses[] = {"all", "small", "large", "get", "batch", "view"};
    static const char *const plants[] = {"none", "torn", "stale", "lost", "view", "late"};
    int r = history_open(a, argv[1]);

    if (r == 0)
        r = pulse_start();
    if (r < 0) {
        fprintf(stderr, "soak_actor: %s: %s\n", argv[1], strerror(-r));
        return false;
    }
    a->number = (uint32_t)number(argv, "number");
    a->random = mix(number(argv, "seed") + a->number);
    a->timeout_ms = (uint32_t)number(argv, "timeout_ms");
    a->pause_us = (uint32_t)number(argv, "pause_us");
    a->calm = number(argv, "calm");
    a->pool = number(argv, "pool");
    a->views = !a->pool;
    a->focus = (enum focus)choose(word(argv, "focus"), focuses, count_of(focuses));
    a->plant = (enum plant)choose(word(argv, "plant"), plants, count_of(plants));
    for (size_t i = 0; i < BATCH_MAX; i++) {
        a->buffers[i] = malloc(VALUE_BYTES_MAX);
        if (!a->buffers[i])
            return false;
    }
    return true;
}

int main(int argc, char **argv)
{
    struct actor a = {0};
    uint64_t end_ns;

    if (argc < 3) {
        fprintf(stderr, "usage: soak_actor HISTORY NAME=VALUE...\n");
        return 2;
    }
    signal(SIGTERM, on_term);
    end_ns = now_ns() + number(argv, "for_ms") * 1000000;
    if (!set_up(&a, argv) || !open_store(&a, word(argv, "url"), end_ns))
        return 2;
    while (!told_to_end && now_ns() < end_ns) {
        acts_step(&a);
        if (a.pause_us)
            usleep((useconds_t)draw(&a, 2 * a.pause_us));
    }
    views_tend(&a, true);
    penstock_close(a.store);
    for (size_t i = 0; i < BATCH_MAX; i++)
        free(a.buffers[i]);
    return a.history->counts.violations ? 1 : 0;
}
