/* SPDX-License-Identifier: Apache-2.0 */
/* main.c: soak_churn NUMBER CLIENTS SEED MS TABLE PLANT URL [URL]: one client; its figures are the last line,
 * as JSON. */
#include "churn.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    VIOLATIONS_TOLD_MAX = 20,
    VIOLATIONS_MAX = 1000, /* then the rest tells nothing new */
    LIST_EVERY = 150,
    SWEEP_EVERY = 250,
    VIEW_EVERY = 3,
    TIMEOUT_MS = 20000, /* an operation that ends for want of time counts as failed */
};

uint64_t churn_now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

void churn_violation(struct client *c, const struct key *key, const char *format, ...)
{
    va_list arguments;

    if (++c->counts.violations > VIOLATIONS_TOLD_MAX)
        return;
    printf("violation: client %u: ", c->number);
    if (key)
        printf("%.40s%s: ", key->text, key->bytes > 40 ? "..." : "");
    va_start(arguments, format);
    vprintf(format, arguments);
    va_end(arguments);
    printf("\n");
    fflush(stdout);
}

static void churn(struct client *c, uint64_t for_ms)
{
    uint64_t end_ms = churn_now_ms() + for_ms;

    while (churn_now_ms() < end_ms && c->counts.violations < VIOLATIONS_MAX) {
        acts_step(c);
        if (draw(c, VIEW_EVERY) == 0)
            views_open(c);
        views_tend(c, false);
        if (draw(c, LIST_EVERY) == 0)
            walks_list(c);
        if (draw(c, SWEEP_EVERY) == 0)
            walks_sweep(c);
    }
    views_tend(c, true);
    walks_end(c);
}

static enum plant plant_of(const char *word)
{
    if (strcmp(word, "byte") == 0)
        return PLANT_BYTE;
    return strcmp(word, "write") == 0 ? PLANT_WRITE : PLANT_NONE;
}

static bool open_stores(struct client *c, char **urls, int count)
{
    struct penstock_options options = {.size = sizeof(options), .timeout_ms = TIMEOUT_MS};

    for (int i = 0; i < count && i < STORES_MAX; i++) {
        if (penstock_open(urls[i], &options, &c->stores[c->store_count]) != 0) {
            fprintf(stderr, "soak_churn: %s\n", penstock_error());
            return false;
        }
        c->store_count++;
    }
    return true;
}

static bool open_client(struct client *c, char **urls, int count, const char *table)
{
    int r = ledger_open(c, table);

    if (r < 0) {
        fprintf(stderr, "soak_churn: %s: %s\n", table, strerror(-r));
        return false;
    }
    for (size_t i = 0; i < BATCH_MAX; i++) {
        c->buffers[i] = malloc(VALUE_BYTES_MAX);
        if (!c->buffers[i])
            return false;
    }
    return open_stores(c, urls, count);
}

static void close_client(struct client *c)
{
    for (uint32_t i = 0; i < c->store_count; i++)
        penstock_close(c->stores[i]);
    for (size_t i = 0; i < BATCH_MAX; i++)
        free(c->buffers[i]);
    ledger_close(c);
}

static void print_counts(const struct client *c)
{
    printf("{\"client\": %u", c->number);
#define X(name) printf(", \"" #name "\": %llu", (unsigned long long)c->counts.name);
    COUNTS(X)
#undef X
    printf("}\n");
}

int main(int argc, char **argv)
{
    struct client c = {0};
    bool open;

    if (argc < 8) {
        fprintf(stderr, "usage: soak_churn NUMBER CLIENTS SEED MS TABLE PLANT URL [URL]\n");
        return 2;
    }
    c.number = (uint32_t)strtoul(argv[1], NULL, 10);
    c.client_count = (uint32_t)strtoul(argv[2], NULL, 10);
    c.seed = strtoull(argv[3], NULL, 10);
    c.random = mix(c.seed + c.number);
    c.plant = plant_of(argv[6]);
    if (c.client_count > CLIENTS_MAX || c.number >= c.client_count)
        return 2;
    open = open_client(&c, argv + 7, argc - 7, argv[5]);
    if (open) {
        churn(&c, strtoull(argv[4], NULL, 10));
        print_counts(&c);
    }
    close_client(&c);
    return !open ? 2 : c.counts.violations ? 1 : 0;
}
