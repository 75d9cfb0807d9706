/* SPDX-License-Identifier: Apache-2.0 */
/* operations.c: each public operation once, what it needs to be there, and what must be true of its result.
 */
#include "nth_call.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct penstock_options options = {
    .size = sizeof(options), .timeout_ms = 4000, .connect_ms = 4000};

static void fill(uint8_t *buf, size_t bytes, uint8_t tag)
{
    for (size_t i = 0; i < bytes; i++)
        buf[i] = (uint8_t)(i * 7 + i / 251 + tag);
}

static bool filled(const uint8_t *buf, size_t bytes, uint8_t tag)
{
    for (size_t i = 0; i < bytes; i++) {
        if (buf[i] != (uint8_t)(i * 7 + i / 251 + tag))
            return false;
    }
    return true;
}

static void put_value(struct world *w, const char *key, size_t bytes, uint8_t tag)
{
    uint8_t *value = malloc(bytes);

    fill(value, bytes, tag);
    expect(penstock_put(w->store, key, strlen(key), value, bytes) == 0, "a put while nothing fails");
    free(value);
}

/* Bytes in @buf that no value has. */
static void clear_buf(struct world *w)
{
    memset(w->buf, 0xee, LARGE_BYTES);
}

static bool has_value(struct world *w, const char *key, size_t bytes, uint8_t tag)
{
    uint64_t size = 0;

    clear_buf(w);
    return penstock_get(w->store, key, strlen(key), w->buf, LARGE_BYTES, &size) == 0 && size == bytes &&
           filled(w->buf, bytes, tag);
}

/* ---- open ---- */

static int run_open(struct world *w)
{
    int r = penstock_open(w->url, &options, &w->store);

    if (r == 0)
        w->store = penstock_close(w->store);
    return r;
}

static void before_open(struct world *w)
{
    w->store = NULL;
}

/* Opened while nothing fails, it works. */
static void after_open(struct world *w, int result)
{
    expect(result <= 0, "penstock_open() returns 0 or -errno");
    if (result < 0)
        expect(penstock_error()[0] != '\0', "a failure is named");
    expect(penstock_open(w->url, &options, &w->store) == 0, "open while nothing fails");
    put_value(w, "opened", SMALL_BYTES, 1);
    expect(has_value(w, "opened", SMALL_BYTES, 1), "what was put is there");
    w->store = penstock_close(w->store);
}

/* ---- put and get ---- */

static void before_put_small(struct world *w)
{
    put_value(w, "key", SMALL_BYTES, 1);
}

static void before_put_large(struct world *w)
{
    put_value(w, "key", LARGE_BYTES, 1);
}

static int put(struct world *w, size_t bytes)
{
    fill(w->buf, bytes, 2);
    return penstock_put(w->store, "key", 3, w->buf, bytes);
}

static int run_put_small(struct world *w)
{
    return put(w, SMALL_BYTES);
}

static int run_put_large(struct world *w)
{
    return put(w, LARGE_BYTES);
}

static void after_put(struct world *w, int result, size_t bytes)
{
    bool is_old = has_value(w, "key", bytes, 1), is_new = has_value(w, "key", bytes, 2);

    if (result == 0)
        expect(is_new, "a put that succeeded is there");
    else if (result == PENSTOCK_UNKNOWN)
        expect(is_old || is_new, "a put of unknown end is there or is not");
    else
        expect(is_old, "a put that failed has changed nothing");
}

static void after_put_small(struct world *w, int result)
{
    after_put(w, result, SMALL_BYTES);
}

static void after_put_large(struct world *w, int result)
{
    after_put(w, result, LARGE_BYTES);
}

static int get(struct world *w, size_t bytes)
{
    uint64_t size = 0;
    int r;

    clear_buf(w);
    r = penstock_get(w->store, "key", 3, w->buf, LARGE_BYTES, &size);
    if (r == 0)
        expect(size == bytes && filled(w->buf, bytes, 1), "a get that succeeded has the value");
    return r;
}

static int run_get_small(struct world *w)
{
    return get(w, SMALL_BYTES);
}

static int run_get_large(struct world *w)
{
    return get(w, LARGE_BYTES);
}

static void after_get(struct world *w, int result)
{
    (void)w;
    expect(result <= 0 || result == PENSTOCK_BUSY, "a get of a key that is there does not miss it");
}

static int run_get_range(struct world *w)
{
    int r;

    clear_buf(w);
    r = penstock_get_range(w->store, "key", 3, 0, w->buf, LARGE_BYTES / 2);
    if (r == 0)
        expect(filled(w->buf, LARGE_BYTES / 2, 1), "a range that was read has its bytes");
    return r;
}

/* ---- delete, pin, stat, ping ---- */

static int run_delete(struct world *w)
{
    return penstock_delete(w->store, "key", 3);
}

static void after_delete(struct world *w, int result)
{
    int there = penstock_exists(w->store, "key", 3);

    expect(there == PENSTOCK_OK || there == PENSTOCK_MISS, "exists answers while nothing fails");
    if (result == 0)
        expect(there == PENSTOCK_MISS, "what was deleted is gone");
    else if (result != PENSTOCK_UNKNOWN)
        expect(there == PENSTOCK_OK, "a delete that failed has deleted nothing");
    put_value(w, "key", SMALL_BYTES, 1);
}

static int run_pin(struct world *w)
{
    return penstock_pin(w->store, "key", 3, 0);
}

static void after_pin(struct world *w, int result)
{
    int unpinned = penstock_unpin(w->store, "key", 3);

    if (result == 0)
        expect(unpinned == 0, "what was pinned can be unpinned");
    else if (result != PENSTOCK_UNKNOWN)
        expect(unpinned == -EINVAL, "a pin that failed has pinned nothing");
}

static int run_stat(struct world *w)
{
    struct penstock_stat stat = {.size = sizeof(stat)};
    int r = penstock_stat(w->store, &stat);

    if (r == 0)
        expect(stat.keys >= 1 && stat.pages > 0, "figures of a store that holds a key");
    return r;
}

static int run_ping(struct world *w)
{
    uint64_t ns = 0;
    int r = penstock_ping(w->store, &ns);

    if (r == 0)
        expect(ns > 0, "a round trip takes time");
    return r;
}

/* ---- many ---- */

static void before_many(struct world *w)
{
    char key[16];

    put_value(w, "key", SMALL_BYTES, 1);
    for (int i = 0; i < MANY; i++) {
        snprintf(key, sizeof(key), "many/%02d", i);
        put_value(w, key, i % 8 == 0 ? 5000 : SMALL_BYTES, (uint8_t)i);
    }
}

static int run_batch(struct world *w)
{
    static struct penstock_op ops[MANY];
    static char keys[MANY][16];
    int failed;

    memset(ops, 0, sizeof(ops));
    memset(w->buf, 0xee, LARGE_BYTES);
    for (int i = 0; i < MANY; i++) {
        snprintf(keys[i], sizeof(keys[i]), "many/%02d", i);
        penstock_prep_get(&ops[i], keys[i], strlen(keys[i]), w->buf + i * 6000, 6000);
    }
    failed = penstock_batch(w->store, ops, MANY);
    for (int i = 0; i < MANY; i++) {
        if (ops[i].result == 0 && failed >= 0)
            expect(filled(w->buf + i * 6000, ops[i].value_bytes, (uint8_t)i),
                   "a get of a batch has its value");
        else
            expect(failed != 0 && ops[i].result != PENSTOCK_MISS, "a batch counts what failed");
    }
    return failed;
}

static void after_batch(struct world *w, int result)
{
    (void)w;
    expect(result <= MANY, "a batch fails as many operations as it has at the most");
}

/* ... of a store that does not know yet where they are. */
static int run_open_batch(struct world *w)
{
    int r = penstock_open(w->url, &options, &w->store);

    if (r == 0 && strncmp(w->url, "mem:", 4) != 0) /* which is empty anew */
        r = run_batch(w);
    w->store = penstock_close(w->store);
    return r;
}

static void before_open_batch(struct world *w)
{
    expect(penstock_open(w->url, &options, &w->store) == 0, "the store opens while nothing fails");
    before_many(w);
    w->store = penstock_close(w->store);
}

static int put_results[MANY];

static int run_put_batch(struct world *w)
{
    static struct penstock_op ops[MANY];
    static char keys[MANY][16];
    int failed;

    memset(ops, 0, sizeof(ops));
    for (int i = 0; i < MANY; i++) {
        snprintf(keys[i], sizeof(keys[i]), "put/%02d", i);
        fill(w->buf + i * 6000, 6000, (uint8_t)i);
        penstock_prep_put(&ops[i], keys[i], strlen(keys[i]), w->buf + i * 6000, 6000);
    }
    failed = penstock_batch(w->store, ops, MANY);
    for (int i = 0; i < MANY; i++)
        put_results[i] = failed < 0 ? failed : ops[i].result;
    return failed;
}

static void after_put_batch(struct world *w, int result)
{
    char key[16];
    int failed = 0;

    for (int i = 0; i < MANY; i++) {
        int r = put_results[i], there;

        snprintf(key, sizeof(key), "put/%02d", i);
        there = penstock_exists(w->store, key, strlen(key));
        failed += r != 0;
        if (r == 0)
            expect(has_value(w, key, 6000, (uint8_t)i), "a put of a batch that succeeded is there");
        else if (r != PENSTOCK_UNKNOWN)
            expect(there == PENSTOCK_MISS, "a put of a batch that failed is not there");
    }
    expect(result < 0 || result == failed, "a batch counts what failed");
    expect(penstock_delete_prefix(w->store, "put/", 4, NULL) == 0, "a sweep while nothing fails");
}

static int run_list(struct world *w)
{
    struct penstock_list_options prefix = {.size = sizeof(prefix), .prefix = "many/", .prefix_bytes = 5};
    struct penstock_entry entry;
    struct penstock_list *list;
    int count = 0, r = penstock_list_open(w->store, &prefix, &list);

    if (r < 0)
        return r;
    while ((r = penstock_list_next(list, &entry)) == 1)
        count++;
    penstock_list_close(list);
    if (r == 0)
        expect(count == MANY, "a listing that ends well has every key");
    return r;
}

static int run_sweep(struct world *w)
{
    uint64_t deleted = 0;
    int r = penstock_delete_prefix(w->store, "many/", 5, &deleted);

    if (r == 0)
        expect(deleted == MANY, "a sweep says how many keys it deleted");
    return r;
}

static void after_sweep(struct world *w, int result)
{
    int there = penstock_exists(w->store, "many/39", 7);

    expect(there == PENSTOCK_OK || there == PENSTOCK_MISS, "exists answers while nothing fails");
    if (result == 0)
        expect(there == PENSTOCK_MISS, "what was swept is gone");
    expect(has_value(w, "key", SMALL_BYTES, 1), "a key beside the range is there");
    before_many(w);
}

/* ---- views, queues, memory ---- */

static int run_view(struct world *w)
{
    struct penstock_view view = {.bytes = 0};
    int r = penstock_view(w->store, "key", 3, &view);

    if (r == -EOPNOTSUPP && strcmp(penstock_lane(w->store), "tcp") == 0)
        return 0; /* no shared memory with this store */
    if (r == 0) {
        expect(view.bytes == LARGE_BYTES && filled(view.data, view.bytes, 1), "a view shows the value");
        penstock_view_release(w->store, &view);
    }
    return r;
}

static int run_queue(struct world *w)
{
    struct penstock_op ops[4] = {{0}}, *ended[4];
    struct penstock_queue *queue;
    int r = penstock_queue_open(w->store, &queue), count = 0, failed = 0;
    struct pollfd p;

    if (r < 0)
        return r;
    for (int i = 0; i < 4; i++)
        penstock_prep_get(&ops[i], "key", 3, w->buf + i * 1000, 1000);
    clear_buf(w);
    p = (struct pollfd){.fd = penstock_queue_fd(queue), .events = POLLIN};
    failed += p.fd < 0;
    r = penstock_submit(queue, ops, 4);
    while (r == 0 && count < 4) {
        int n = penstock_reap(queue, ended, 4, 5000);

        if (n <= 0)
            break;
        for (int i = 0; i < n; i++)
            failed += ended[i]->result != 0;
        count += n;
    }
    queue = penstock_queue_close(queue);
    expect(r < 0 || count == 4, "what was submitted is reaped");
    for (int i = 0; i < 4 && r == 0 && failed == 0; i++)
        expect(filled(w->buf + i * 1000, SMALL_BYTES, 1), "a get of a queue has its value");
    return r < 0 ? r : failed;
}

static int run_register(struct world *w)
{
    int r = penstock_register(w->store, w->buf, LARGE_BYTES);

    if (r == 0)
        r = get(w, LARGE_BYTES);
    if (penstock_deregister(w->store, w->buf) < 0 && r == 0)
        r = -EINVAL;
    return r;
}

static void after_any(struct world *w, int result)
{
    (void)w;
    (void)result;
}

const struct operation operations[] = {
    {"open", true, before_open, run_open, after_open},
    {"put_small", false, before_put_small, run_put_small, after_put_small},
    {"put_large", false, before_put_large, run_put_large, after_put_large},
    {"get_small", false, before_put_small, run_get_small, after_get},
    {"get_large", false, before_put_large, run_get_large, after_get},
    {"get_range", false, before_put_large, run_get_range, after_get},
    {"delete", false, before_put_small, run_delete, after_delete},
    {"pin", false, before_put_small, run_pin, after_pin},
    {"stat", false, before_put_small, run_stat, after_any},
    {"ping", false, before_put_small, run_ping, after_any},
    {"batch", false, before_many, run_batch, after_batch},
    {"open_batch", true, before_open_batch, run_open_batch, after_batch},
    {"put_batch", false, before_put_small, run_put_batch, after_put_batch},
    {"list", false, before_many, run_list, after_any},
    {"sweep", false, before_many, run_sweep, after_sweep},
    {"view", false, before_put_large, run_view, after_any},
    {"queue", false, before_put_small, run_queue, after_any},
    {"register", false, before_put_large, run_register, after_any},
};
const size_t operation_count = sizeof(operations) / sizeof(operations[0]);

/* ---- a node of this process: its calls fail, too ---- */

static int open_node(struct world *w)
{
    char unix_path[200], folder[200];
    const char *settings[] = {unix_path, folder, "dram=8M", "page_size=64K", "shards=2", "spin_us=0", NULL};
    struct penstock_node_options node = {.size = sizeof(node), .settings = settings};

    snprintf(unix_path, sizeof(unix_path), "unix=%s/fail.sock", w->folder);
    snprintf(folder, sizeof(folder), "folder=%s", w->folder);
    return penstock_node_open(&node, &w->node);
}

static int run_node(struct world *w)
{
    int r = open_node(w);

    if (r == 0)
        w->node = penstock_node_close(w->node);
    return r;
}

static void open_served(struct world *w)
{
    expect(open_node(w) == 0, "a node opens while nothing fails");
    expect(penstock_open(penstock_node_url(w->node, 0), &options, &w->store) == 0, "its client connects");
}

static void close_served(struct world *w)
{
    w->store = penstock_close(w->store);
    w->node = penstock_node_close(w->node);
}

static void after_node(struct world *w, int result)
{
    if (result < 0)
        expect(penstock_error()[0] != '\0', "a failure is named");
    open_served(w);
    put_value(w, "key", SMALL_BYTES, 1);
    expect(has_value(w, "key", SMALL_BYTES, 1), "what was put is there");
    close_served(w);
}

static void before_served_put(struct world *w)
{
    open_served(w);
    put_value(w, "key", LARGE_BYTES, 1);
}

static void after_served_put(struct world *w, int result)
{
    struct penstock_stat stat = {.size = sizeof(stat)};

    after_put(w, result, LARGE_BYTES);
    expect(penstock_delete(w->store, "key", 3) == 0, "the key can be deleted");
    for (int i = 0; i < 500; i++) { /* an ended session gives its memory back by and by */
        expect(penstock_stat(w->store, &stat) == 0, "figures come");
        if (stat.pages_used == 0 && stat.pinned == 0)
            break;
        poll(NULL, 0, 10);
    }
    expect(stat.pages_used == 0 && stat.pinned == 0, "no page and no reference stays behind");
    close_served(w);
}

static void after_served_get(struct world *w, int result)
{
    after_get(w, result);
    after_served_put(w, PENSTOCK_UNKNOWN);
}

static int run_served_connect(struct world *w)
{
    struct penstock *store;
    int r = penstock_open(penstock_node_url(w->node, 0), &options, &store);

    if (r == 0)
        penstock_close(store);
    return r;
}

const struct operation serving_operations[] = {
    {"node", true, before_open, run_node, after_node},
    {"served_put", true, before_served_put, run_put_large, after_served_put},
    {"served_get", true, before_served_put, run_get_large, after_served_get},
    {"served_view", true, before_served_put, run_view, after_served_get},
    {"served_connect", true, before_served_put, run_served_connect, after_served_get},
};
const size_t serving_operation_count = sizeof(serving_operations) / sizeof(serving_operations[0]);
