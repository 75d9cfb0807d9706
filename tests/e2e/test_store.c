/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_store.c: the end-to-end suite: `test_store KIND SHARDS PAGE_SIZE [PATTERN]` with KIND mem, tcp, node,
 * unix, pool or memory runs every test (named like PATTERN) on that kind of store; `test_store serve` runs
 * the tests of a node inside the test's own process.
 */
#include "e2e.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
    TESTS_MAX = 200,
    SUITE_SECONDS_MAX = 290, /* a hang ends the program */
};

struct fixture fixture;

/* ---- the store ---- */

/* Pages of a store that is to spill soon are small. */
static const char *page_size(const struct place *place)
{
    return *place->ssd || place->hbm ? "64K" : fixture.page_size;
}

/* Valgrind does not see what a ring fills. */
static const char *ssd_driver(void)
{
    return getenv("TEST_VALGRIND") ? "posix" : "";
}

static void place_url(struct place *place, const char *dram, const char *cache_prefix)
{
    switch (place->kind) {
    case KIND_MEM:
        snprintf(place->url, sizeof(place->url), "mem:?dram=%s&shards=%u&page_size=%s%s%s%s%s%s%s%s%s%s%s",
                 dram, fixture.shards, page_size(place), cache_prefix ? "&cache=" : "",
                 cache_prefix ? cache_prefix : "", place->hbm ? "&hbm=" : "", place->hbm ? place->hbm : "",
                 *place->ssd ? "&ssd_segment=2M&ssd=" : "", place->ssd, *place->ssd ? "&ssd_bytes=" : "",
                 place->ssd_bytes, *place->ssd ? "&ssd_driver=" : "", *place->ssd ? ssd_driver() : "");
        break;
    case KIND_TCP:
        snprintf(place->url, sizeof(place->url), "%s?lane=tcp", place->daemon.url_tcp);
        break;
    case KIND_NODE:
        snprintf(place->url, sizeof(place->url), "%s", place->daemon.url_tcp);
        break;
    case KIND_UNIX:
        snprintf(place->url, sizeof(place->url), "%s", place->daemon.url_unix);
        break;
    case KIND_POOL:
        snprintf(place->url, sizeof(place->url), "pool%s", place->master.url_tcp + strlen("node"));
        break;
    case KIND_MEMORY:
        snprintf(place->url, sizeof(place->url), "%s", penstock_node_url(place->node, 0));
        break;
    }
}

bool place_has_views(void)
{
    return fixture.kind != KIND_TCP && fixture.kind != KIND_NODE;
}

bool place_is_private(void)
{
    return fixture.kind == KIND_MEM || fixture.kind == KIND_MEMORY;
}

static void node_start(struct place *place, const char *dram, const char *class)
{
    char text[9][128];
    const char *const settings[] = {text[0],
                                    text[1],
                                    text[2],
                                    text[3],
                                    text[4],
                                    place->hbm ? text[7] : text[4],
                                    *place->ssd ? text[5] : NULL,
                                    text[6],
                                    "ssd_segment=2M",
                                    text[8],
                                    NULL};
    struct penstock_node_options options = {.size = sizeof(options), .settings = settings};

    strcpy(place->folder, "/tmp/penstock-e2e-XXXXXX");
    assert_non_null(mkdtemp(place->folder));
    snprintf(text[0], sizeof(text[0]), "unix=%s/socket", place->folder);
    snprintf(text[1], sizeof(text[1]), "dram=%s", dram);
    snprintf(text[2], sizeof(text[2]), "shards=%u", fixture.shards);
    snprintf(text[3], sizeof(text[3]), "page_size=%s", page_size(place));
    snprintf(text[4], sizeof(text[4]), "class=%s", class);
    snprintf(text[5], sizeof(text[5]), "ssd=%s", place->ssd);
    snprintf(text[6], sizeof(text[6]), "ssd_bytes=%s", place->ssd_bytes);
    snprintf(text[7], sizeof(text[7]), "hbm=%s", place->hbm ? place->hbm : "");
    snprintf(text[8], sizeof(text[8]), "ssd_driver=%s", ssd_driver());
    assert_result(penstock_node_open(&options, &place->node), 0);
}

/* All keys lie home: what they promise is what a node alone promises. */
static void master_start(struct place *place)
{
    const char *const args[] = {
        "--role", "master",     "--pool-map", place->view,         "--place", "=home", "--heartbeat-ms",
        "50",     "--lease-ms", "1000",       "--lease-margin-ms", "20",      NULL};
    static unsigned count;

    snprintf(place->view, sizeof(place->view), "/tmp/penstock-view-%d-%u", (int)getpid(), count++);
    daemon_start(&place->master, args);
}

/* A master deals partitions in portions, one behind the other: among so many keys each has some. */
static void await_all_partitions(struct penstock *store)
{
    enum { KEYS = 512 };
    struct penstock_op ops[KEYS] = {0};
    char keys[KEYS][16];

    for (int i = 0; i < KEYS; i++) {
        int len = snprintf(keys[i], sizeof(keys[i]), "none%d", i);

        penstock_prep(&ops[i], PENSTOCK_STAT_KEY, keys[i], (size_t)len);
    }
    assert_result(penstock_batch(store, ops, KEYS), KEYS);
    for (int i = 0; i < KEYS; i++)
        assert_result(ops[i].result, PENSTOCK_MISS);
}

/* Opens the store; a pool's, when its node serves all of it: what a watch sees does not change then. */
static void store_open(struct place *place)
{
    const struct penstock_options options = {.size = sizeof(options), .timeout_ms = 10000 * slowness()};

    assert_result(penstock_open(place->url, &options, &place->store), 0);
    if (place->kind == KIND_POOL)
        await_all_partitions(place->store);
}

static void place_start(struct place *place, const char *dram, const char *cache_prefix)
{
    char shards[16], class[64] = "none/=keep";
    enum kind kind = place->kind;
    char master[64] = "";
    const char *const args[] = {"--dram",
                                dram,
                                "--shards",
                                shards,
                                "--page-size",
                                page_size(place),
                                "--class",
                                class,
                                kind == KIND_POOL ? "--master" : "--class",
                                kind == KIND_POOL ? master : class,
                                place->hbm ? "--hbm" : "--class",
                                place->hbm ? place->hbm : class,
                                *place->ssd ? "--ssd" : NULL,
                                place->ssd,
                                "--ssd-bytes",
                                place->ssd_bytes,
                                "--ssd-segment",
                                "2M",
                                "--ssd-driver",
                                ssd_driver(),
                                NULL};

    snprintf(shards, sizeof(shards), "%u", fixture.shards);
    if (cache_prefix)
        snprintf(class, sizeof(class), "%s=cache", cache_prefix);
    if (kind == KIND_POOL) {
        master_start(place);
        snprintf(master, sizeof(master), "%s", place->master.url_tcp + strlen("node://"));
    }
    if (kind == KIND_MEMORY)
        node_start(place, dram, class);
    else if (kind != KIND_MEM)
        daemon_start(&place->daemon, args);
    place_url(place, dram, cache_prefix);
    store_open(place);
}

void place_open(struct place *place, enum kind kind, const char *dram, const char *cache_prefix)
{
    *place = (struct place){.kind = kind};
    place_start(place, dram, cache_prefix);
}

void place_open_ssd(struct place *place, enum kind kind, const char *dram, const char *cache_prefix,
                    const char *ssd_bytes)
{
    *place = (struct place){.kind = kind, .ssd = "/var/tmp/penstock-ssd-XXXXXX"};
    assert_non_null(mkdtemp(place->ssd));
    snprintf(place->ssd_bytes, sizeof(place->ssd_bytes), "%s", ssd_bytes);
    place_start(place, dram, cache_prefix);
}

void place_open_hbm(struct place *place, enum kind kind, const char *dram, const char *cache_prefix,
                    const char *hbm, bool ssd)
{
    *place = (struct place){.kind = kind, .hbm = hbm};
    if (ssd) {
        strcpy(place->ssd, "/var/tmp/penstock-ssd-XXXXXX");
        strcpy(place->ssd_bytes, "256M");
        assert_non_null(mkdtemp(place->ssd));
    }
    place_start(place, dram, cache_prefix);
}

static void master_stop(struct place *place)
{
    char lock[80], note[80];

    daemon_stop(&place->master);
    snprintf(lock, sizeof(lock), "%s.lock", place->view);
    unlink(place->view);
    unlink(lock);
    snprintf(note, sizeof(note), "%s/pool", place->ssd);
    if (*place->ssd) /* the node's values are to be the next pool's */
        unlink(note);
}

static void place_stop(struct place *place)
{
    assert_null(penstock_close(place->store));
    if (place->kind == KIND_MEMORY) {
        assert_null(penstock_node_close(place->node));
        assert_int_equal(rmdir(place->folder), 0);
    } else if (place->kind != KIND_MEM) {
        daemon_stop(&place->daemon);
    }
    if (place->kind == KIND_POOL)
        master_stop(place);
}

void place_again(struct place *place, const char *dram, const char *cache_prefix, bool crash)
{
    if (crash)
        daemon_kill(&place->daemon);
    if (crash)
        assert_null(penstock_close(place->store));
    if (crash && place->kind == KIND_POOL)
        master_stop(place);
    if (!crash)
        place_stop(place);
    place_start(place, dram, cache_prefix);
}

void place_close(struct place *place)
{
    char command[128];

    place_stop(place);
    snprintf(command, sizeof(command), "rm -r '%s'", place->ssd);
    if (*place->ssd)
        assert_int_equal(system(command), 0);
}

struct penstock *place_handle(struct place *place)
{
    struct penstock *store = place->store;

    if (place->kind != KIND_MEM)
        assert_result(penstock_open(place->url, NULL, &store), 0);
    return store;
}

void place_handle_close(struct place *place, struct penstock *handle)
{
    if (handle != place->store)
        penstock_close(handle);
}

int empty_store(void **state)
{
    uint64_t deleted;

    (void)state;
    assert_result(penstock_delete_prefix(STORE, "", 0, &deleted), 0);
    assert_int_equal(stat_of(STORE).keys, 0);
    return 0;
}

/* ---- values ---- */

static uint64_t word(uint64_t seed, uint64_t place)
{
    uint64_t x = (seed + place + 1) * 0x9e3779b97f4a7c15ull;

    return x ^ x >> 29;
}

void fill(void *buf, uint64_t bytes, uint64_t seed)
{
    uint8_t *at = buf;

    for (uint64_t i = 0; i < bytes; i += 8) {
        uint64_t w = word(seed * 0x100000001b3ull, i / 8);

        memcpy(at + i, &w, bytes - i < 8 ? bytes - i : 8);
    }
}

bool filled_from(const void *buf, uint64_t offset, uint64_t bytes, uint64_t seed)
{
    const uint8_t *at = buf;

    for (uint64_t i = 0; i < bytes; i += 8) {
        uint64_t w = word(seed * 0x100000001b3ull, (offset + i) / 8);

        if (memcmp(at + i, &w, bytes - i < 8 ? bytes - i : 8) != 0)
            return false;
    }
    return true;
}

bool filled(const void *buf, uint64_t bytes, uint64_t seed)
{
    return filled_from(buf, 0, bytes, seed);
}

void *bytes_new(uint64_t bytes)
{
    void *buf = malloc(bytes ? bytes : 1);

    assert_non_null(buf);
    return buf;
}

uint64_t next_random(uint64_t *state)
{
    *state = *state * 6364136223846793005ull + 1442695040888963407ull;
    return *state >> 33;
}

/* ---- short forms ---- */

void e2e_assert_result(int got, int wanted, const char *call, const char *file, int line)
{
    if (got == wanted)
        return;
    print_error("%s:%d: %s is %d (%s), not %d; %s\n", file, line, call, got, penstock_result_text(got),
                wanted, penstock_error());
    _fail(file, line);
}

int put_filled(struct penstock *store, const char *key, uint64_t bytes, uint64_t seed)
{
    void *value = bytes_new(bytes);
    int r;

    fill(value, bytes, seed);
    r = penstock_put(store, key, strlen(key), value, bytes);
    free(value);
    return r;
}

void put_value(struct penstock *store, const char *key, uint64_t bytes, uint64_t seed)
{
    assert_result(put_filled(store, key, bytes, seed), 0);
}

void expect_bytes(struct penstock *store, const char *key, uint64_t bytes, uint64_t seed)
{
    uint8_t *buf = bytes_new(bytes + 64);
    uint64_t value_bytes = 0;

    memset(buf, 0xa5, bytes + 64);
    assert_result(penstock_get(store, key, strlen(key), buf, bytes, &value_bytes), 0);
    assert_int_equal(value_bytes, bytes);
    assert_true(filled(buf, bytes, seed));
    for (int i = 0; i < 64; i++) /* nothing is written behind the value */
        assert_int_equal(buf[bytes + i], 0xa5);
    free(buf);
}

int run_op(struct penstock *store, struct penstock_op *op)
{
    int failed = penstock_batch(store, op, 1);

    assert_int_equal(failed, op->result != 0);
    return op->result;
}

struct penstock_stat stat_of(struct penstock *store)
{
    struct penstock_stat stat = {.size = sizeof(stat)};

    assert_result(penstock_stat(store, &stat), 0);
    if (fixture.kind == KIND_POOL) { /* the node's own, by which it knows what to report */
        stat.sessions--;
        stat.watches -= stat.shards;
    }
    return stat;
}

void expect_unpinned(struct penstock *store)
{
    uint64_t pinned = stat_of(store).pinned;

    /* Also of what the disk has underway; more of it may begin at any time. */
    for (int i = 0; i < 3000 && pinned; i++) {
        usleep(10000);
        pinned = stat_of(store).pinned;
    }
    assert_int_equal(pinned, 0);
}

void expect_no_reservations(void)
{
    struct penstock_stat stat;

    for (int i = 0; i < 500 && (stat_of(STORE).reservations || stat_of(STORE).reservation_bytes); i++)
        usleep(10000);
    stat = stat_of(STORE);
    assert_int_equal(stat.reservations, 0);
    assert_int_equal(stat.reservation_bytes, 0);
}

/* ---- the program ---- */

static int open_fixture(void **state)
{
    (void)state;
    place_open(&fixture.place, fixture.kind, "256M", NULL);
    return 0;
}

static int close_fixture(void **state)
{
    (void)state;
    place_close(&fixture.place);
    return 0;
}

/* Return: how many tests there are now. */
static size_t add_part(const struct part *part, struct CMUnitTest *tests, size_t count)
{
    for (size_t i = 0; i < part->count; i++) {
        assert_true(count < TESTS_MAX);
        tests[count++] = part->tests[i];
    }
    return count;
}

static int run_serve(void)
{
    return _cmocka_run_group_tests("serve", part_serve.tests, part_serve.count, NULL, NULL);
}

int main(int argc, char **argv)
{
    static const char *const kinds[] = {"mem", "tcp", "node", "unix", "pool", "memory"};
    const unsigned kind_count = sizeof(kinds) / sizeof(kinds[0]);
    static const struct part *const parts[] = {
        &part_values,        &part_conditions, &part_batches, &part_threads, &part_keys,
        &part_space,         &part_views,      &part_waits,   &part_watches, &part_fork,
        &part_reservations,  &part_streams,    &part_commits, &part_stopped, &part_tiers,
        &part_tiers_durable, &part_device};
    struct CMUnitTest tests[TESTS_MAX];
    size_t count = 0;
    char name[64];
    unsigned kind = 0;

    alarm(SUITE_SECONDS_MAX * slowness());
    if (argc == 2 && strcmp(argv[1], "serve") == 0)
        return run_serve();
    while (argc >= 4 && kind < kind_count && strcmp(argv[1], kinds[kind]) != 0)
        kind++;
    if (argc < 4 || argc > 5 || kind == kind_count) {
        fprintf(stderr, "usage: test_store mem|tcp|node|unix|pool|memory SHARDS PAGE_SIZE [PATTERN], or "
                        "test_store serve\n");
        return 2;
    }
    fixture =
        (struct fixture){.kind = (enum kind)kind, .shards = (unsigned)atoi(argv[2]), .page_size = argv[3]};
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        if (!getenv("TEST_WITHOUT_SSD") || (parts[i] != &part_tiers && parts[i] != &part_tiers_durable))
            count = add_part(parts[i], tests, count);
    }
    if (argc == 5)
        cmocka_set_test_filter(argv[4]);
    snprintf(name, sizeof(name), "store_%s_%u", kinds[kind], fixture.shards);
    return _cmocka_run_group_tests(name, tests, count, open_fixture, close_fixture);
}
