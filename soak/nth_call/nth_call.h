/* SPDX-License-Identifier: Apache-2.0 */
/* nth_call.h: what the files of soak_nth_call share: an operation that is retried with each of its calls
 * failing. */
#ifndef SOAK_NTH_CALL_H
#define SOAK_NTH_CALL_H

#include "wrap.h"

#include <penstock/penstock.h>

#include <stdint.h>

enum {
    SMALL_BYTES = 100,
    LARGE_BYTES = 300 << 10,
    MANY = 40, /* keys of a batch and of a listing */
};

/* Where an operation runs. */
struct world {
    const char *url;
    const char *folder; /* for sockets and arenas */
    struct penstock *store;
    struct penstock_node *node;
    uint8_t *buf; /* LARGE_BYTES */
};

struct operation {
    const char *name;
    bool opens; /* brings its own store */
    void (*before)(struct world *w);
    int (*run)(struct world *w);                /* with a call failing */
    void (*after)(struct world *w, int result); /* is it true? */
};

extern const struct operation operations[], serving_operations[];
extern const size_t operation_count, serving_operation_count;

/* main.c: a violation of the operation underway. */
void violation(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Checks what must be so while nothing fails. */
void expect(bool good, const char *what);

#endif
