/* SPDX-License-Identifier: Apache-2.0 */
/*
 * e2e.h: the end-to-end suite's fixture: one store, reached by the kind of URL that the program's arguments
 * name. Tests use the public header alone, and begin with an empty store.
 */
#ifndef E2E_E2E_H
#define E2E_E2E_H

#include "check.h"
#include "daemon.h"

#include <penstock/penstock.h>

#include <stdbool.h>

enum kind {
    KIND_MEM,    /* mem: */
    KIND_TCP,    /* node://HOST:PORT?lane=tcp */
    KIND_NODE,   /* node://HOST:PORT */
    KIND_UNIX,   /* node+unix://PATH */
    KIND_POOL,   /* pool://HOST:PORT, of one node */
    KIND_MEMORY, /* the same, of a node in this process, over the transport that PENSTOCK_NET names */
};

/* A store of its own settings; a node behind it unless embedded. */
struct place {
    enum kind kind;
    struct daemon daemon;
    struct daemon master;       /* KIND_POOL */
    char view[64];              /* its file */
    struct penstock_node *node; /* KIND_MEMORY */
    char folder[64];
    char ssd[64], ssd_bytes[16]; /* folder of its SSD; "": none */
    const char *hbm;             /* device memory, as an option; NULL: none */
    char url[320];
    struct penstock *store;
};

struct fixture {
    enum kind kind;
    unsigned shards;
    const char *page_size;
    struct place place; /* roomy, shared by most tests */
};

extern struct fixture fixture;

/* The shared store. */
#define STORE (fixture.place.store)

/* @dram: as an option. @cache_prefix: a class of keys that may be evicted, or NULL. */
void place_open(struct place *place, enum kind kind, const char *dram, const char *cache_prefix);
/* The same with an SSD in a folder of its own; place_again() ends store and node and begins them anew on that
 * folder, as a crash would have left them or not. */
void place_open_ssd(struct place *place, enum kind kind, const char *dram, const char *cache_prefix,
                    const char *ssd_bytes);
/* The same with device memory above, and with or without an SSD. */
void place_open_hbm(struct place *place, enum kind kind, const char *dram, const char *cache_prefix,
                    const char *hbm, bool ssd);
void place_again(struct place *place, const char *dram, const char *cache_prefix, bool crash);
void place_close(struct place *place);
/* One more handle on the same store; embedded, the same one, since there is only one. */
struct penstock *place_handle(struct place *place);
void place_handle_close(struct place *place, struct penstock *handle);

/* Whether the node can hand out views. */
bool place_has_views(void);
/* Whether no other process can reach the store. */
bool place_is_private(void);

/* ---- values: bytes that only depend on a seed and their place ---- */

void fill(void *buf, uint64_t bytes, uint64_t seed);
bool filled(const void *buf, uint64_t bytes, uint64_t seed);
/* The same for bytes [@offset, + @bytes) of a value; @offset a multiple of 8. */
bool filled_from(const void *buf, uint64_t offset, uint64_t bytes, uint64_t seed);
void *bytes_new(uint64_t bytes);

/* A generator of test data; the same numbers in every run. */
uint64_t next_random(uint64_t *state);

/* ---- short forms ---- */

void put_value(struct penstock *store, const char *key, uint64_t bytes, uint64_t seed);
/* Fails unless @key holds just these bytes. */
void expect_bytes(struct penstock *store, const char *key, uint64_t bytes, uint64_t seed);
int put_filled(struct penstock *store, const char *key, uint64_t bytes, uint64_t seed);
/* One operation as a batch. Return: its result. */
int run_op(struct penstock *store, struct penstock_op *op);
struct penstock_stat stat_of(struct penstock *store);
/* Waits, for 5 s at the most, until the store says that nothing is pinned. */
void expect_unpinned(struct penstock *store);
void expect_no_reservations(void);

/* ---- the parts ---- */

struct part {
    const struct CMUnitTest *tests;
    size_t count;
};

extern const struct part part_values, part_conditions, part_batches, part_threads, part_keys, part_space,
    part_views, part_waits, part_watches, part_fork, part_serve, part_reservations, part_commits,
    part_stopped, part_tiers, part_tiers_durable, part_streams, part_device;

int empty_store(void **state);

#define PART(name, tests) const struct part name = {tests, sizeof(tests) / sizeof((tests)[0])}
#define TEST(function)    cmocka_unit_test_setup(function, empty_store)

#endif
