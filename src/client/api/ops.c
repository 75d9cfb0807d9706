/* SPDX-License-Identifier: Apache-2.0 */
/* ops.c: the simple calls: one operation each, or one for every shard. */
#include "client/api/staged_priv.h"
#include "client/pool/pool_priv.h"

#include "base/clock.h"
#include "base/ms.h"
#include "store/figures.h"
#include "store/keys.h"

int penstock_put(struct penstock *store, const void *key, size_t key_bytes, const void *value, uint64_t bytes)
{
    struct penstock_op op = {0};

    penstock_prep_put(&op, key, key_bytes, value, bytes);
    return pst_do_one(store, &op);
}

int penstock_get(struct penstock *store, const void *key, size_t key_bytes, void *buf, uint64_t room,
                 uint64_t *value_bytes)
{
    return penstock_get_wait(store, key, key_bytes, buf, room, value_bytes, 0);
}

int penstock_get_wait(struct penstock *store, const void *key, size_t key_bytes, void *buf, uint64_t room,
                      uint64_t *value_bytes, uint32_t timeout_ms)
{
    struct penstock_op op = {0};
    int r;

    penstock_prep_get(&op, key, key_bytes, buf, room);
    op.flags = timeout_ms ? PENSTOCK_WAIT : 0;
    op.wait_ms = timeout_ms;
    r = pst_do_one(store, &op);
    if (value_bytes)
        *value_bytes = op.value_bytes;
    return r;
}

int penstock_get_range(struct penstock *store, const void *key, size_t key_bytes, uint64_t offset, void *buf,
                       uint64_t bytes)
{
    struct penstock_op op = {0};

    penstock_prep_get_range(&op, key, key_bytes, offset, buf, bytes);
    return pst_do_one(store, &op);
}

static int keyed(struct penstock *store, enum penstock_code code, const void *key, size_t key_bytes,
                 uint64_t pin_ms)
{
    struct penstock_op op = {0};

    pst_assert(code >= PENSTOCK_STAT_KEY && code <= PENSTOCK_UNPIN);
    penstock_prep(&op, code, key, key_bytes);
    op.pin_ms = pin_ms;
    return pst_do_one(store, &op);
}

int penstock_exists(struct penstock *store, const void *key, size_t key_bytes)
{
    return keyed(store, PENSTOCK_STAT_KEY, key, key_bytes, 0);
}

int penstock_delete(struct penstock *store, const void *key, size_t key_bytes)
{
    return keyed(store, PENSTOCK_DELETE, key, key_bytes, 0);
}

int penstock_pin(struct penstock *store, const void *key, size_t key_bytes, uint64_t ttl_ms)
{
    return keyed(store, PENSTOCK_PIN, key, key_bytes, ttl_ms);
}

int penstock_unpin(struct penstock *store, const void *key, size_t key_bytes)
{
    return keyed(store, PENSTOCK_UNPIN, key, key_bytes, 0);
}

int penstock_exists_consecutive(struct penstock *store, const struct iovec *keys, size_t key_count,
                                size_t *count)
{
    pst_cleanup_free struct penstock_op *ops = calloc(key_count ? key_count : 1, sizeof(*ops));
    int r = pst_store_check(store);

    if (r < 0)
        return r;
    if (!count || (key_count && !keys))
        return pst_fail(-EINVAL, "penstock_exists_consecutive: no keys, or nowhere to put their number");
    if (!ops)
        return pst_fail(-ENOMEM, "out of memory");
    for (size_t i = 0; i < key_count; i++)
        penstock_prep(&ops[i], PENSTOCK_STAT_KEY, keys[i].iov_base, keys[i].iov_len);
    pst_run(store, ops, key_count, NULL);
    *count = 0;
    while (*count < key_count && ops[*count].result == PENSTOCK_OK)
        ++*count;
    if (*count < key_count && ops[*count].result < 0)
        return pst_explain(store, &ops[*count], ops[*count].result);
    return 0;
}

/* ---- one operation for every shard ---- */

/* The same question to all @shards, as many as there were a moment ago: @answer_bytes of room each, in
 * @answers; what is of nobody stays empty. Return: 0 or the first bad result. */
static int ask_all(struct penstock *store, uint32_t shards, uint8_t code, void *answers, size_t answer_bytes)
{
    pst_cleanup_free struct penstock_op *ops = calloc(shards, sizeof(*ops));
    pst_cleanup_free int *numbers = calloc(shards, sizeof(*numbers));
    uint32_t count = 0;

    pst_assert(pst_code_has(code, PST_CODE_ANSWERS));
    if (shards && (!ops || !numbers))
        return pst_fail(-ENOMEM, "out of memory");
    for (uint32_t i = 0; i < shards; i++) {
        if (pst_shard_at(store, i) < 0)
            continue;
        ops[count].code = code;
        ops[count].data = (uint8_t *)answers + i * answer_bytes;
        ops[count].bytes = answer_bytes;
        numbers[count++] = (int)i;
    }
    pst_assert(count <= shards);
    pst_run(store, ops, count, numbers);
    for (uint32_t i = 0; i < count; i++) {
        if (ops[i].result)
            return pst_explain(store, &ops[i], ops[i].result);
    }
    return 0;
}

int penstock_flush(struct penstock *store)
{
    int r = pst_store_check(store);

    if (r == 0)
        r = pst_refresh(store);
    if (r == 0)
        r = ask_all(store, pst_shards(store), PST_WIRE_FLUSH, NULL, 0);
    return r == -EFBIG ? pst_fail(r, "%s: a value is larger than the SSD's segments; all others are durable",
                                  store->url)
                       : r;
}

int penstock_ping(struct penstock *store, uint64_t *round_trip_ns)
{
    int r = pst_store_check(store);
    uint64_t begin_ns;

    if (r == 0)
        r = pst_refresh(store);
    begin_ns = pst_now_ns();
    if (r == 0)
        r = ask_all(store, pst_shards(store), PST_WIRE_PING, NULL, 0);
    if (r == 0 && round_trip_ns)
        *round_trip_ns = pst_now_ns() - begin_ns;
    return r;
}

const char *penstock_lane(struct penstock *store)
{
    const char *lane = "none";

    if (pst_store_check(store) == 0) {
        pst_enter(store);
        lane = store->backend->lane(store);
        pst_leave(store);
    }
    return lane;
}

_Static_assert((int)PENSTOCK_TIMES == (int)PST_TIME_COUNT &&
                   (int)PENSTOCK_TIME_BUCKETS == (int)PST_TIME_BUCKETS,
               "the public header has as many as a shard counts");

const char *penstock_time_name(unsigned index)
{
    static const char *const names[] = {
#define X(name) #name,
        PST_SHARD_TIMES(X)
#undef X
    };

    return index < pst_count_of(names) ? names[index] : NULL;
}

static void add_figures(struct penstock_stat *stat, const struct pst_figures *f)
{
    const struct pst_shard_stat *s = &f->shard;

#define X(name) stat->name += s->name;
    PST_SHARD_COUNTERS(X)
#undef X
#define X(name) stat->name += f->later.name;
    PST_SHARD_LATER(X)
#undef X
#define X(name) stat->name += f->device.name;
    PST_SHARD_DEVICE(X)
#undef X
    for (uint32_t i = 0; i < PST_TIME_COUNT; i++) {
        stat->times[i].total_ns += f->times[i].total_ns;
        for (uint32_t bucket = 0; bucket < PST_TIME_BUCKETS; bucket++)
            stat->times[i].counts[bucket] += f->times[i].counts[bucket];
    }
    stat->shards++;
}

/* What every shard of a node says alike. */
static void add_node(struct penstock_stat *stat, const struct pst_figures *f)
{
    pst_assert(stat->shards > 0);
    stat->page_bytes = f->store.page_bytes;
    stat->pages += f->store.pages;
    stat->pages_used += f->store.pages_used;
    stat->arenas += f->store.arenas;
    stat->rss_anon_bytes += f->rss_anon_bytes;
    stat->sessions += f->sessions;
    stat->uptime_ms = pst_max(stat->uptime_ms, f->uptime_ms);
}

int penstock_stat(struct penstock *store, struct penstock_stat *stat)
{
    pst_cleanup_free struct pst_figures *figures = NULL;
    struct penstock_stat sum = {0};
    uint32_t shards;
    int r = pst_store_check(store);

    if (r < 0)
        return r;
    if (!stat || stat->size < sizeof(size_t))
        return pst_fail(-EINVAL, "penstock_stat: its size is not set");
    r = pst_refresh(store);
    if (r < 0)
        return r;
    shards = pst_shards(store);
    figures = calloc(shards ? shards : 1, sizeof(*figures));
    if (!figures)
        return pst_fail(-ENOMEM, "out of memory");
    r = ask_all(store, shards, PST_WIRE_STAT, figures, sizeof(*figures));
    if (r < 0)
        return r;
    for (uint32_t i = 0; i < shards; i++) {
        int at = pst_shard_at(store, i);

        if (at >= 0)
            add_figures(&sum, &figures[i]);
        if (at == 0)
            add_node(&sum, &figures[i]);
    }
    if (store->backend->stat) {
        pst_enter(store);
        store->backend->stat(store, &sum);
        pst_leave(store);
    }
    sum.size = stat->size;
    memcpy(stat, &sum, pst_min(stat->size, sizeof(sum)));
    return 0;
}

/* ---- deleting many ---- */

enum {
    DELETES_MAX = 128, /* at a time, of keys of DELETES_BYTES_MAX together */
    DELETES_BYTES_MAX = 64 << 10,
    SWEEP_AGAIN_US = 10000,
    SWEEP_S = 10, /* for what a first round has left */
};

/* What came of keys. */
struct sweep {
    uint64_t deleted, spared;
    uint64_t left; /* to be deleted one by one, or by who has them */
};

struct sweeper {
    uint8_t start[PENSTOCK_KEY_BYTES_MAX];
    uint8_t answer[PST_SWEEP_BYTES_MAX];
};

/*
 * Takes a shard's answer: where to go on, which is further on, so that a sweep comes to its end. Return: 1
 * when the shard is done, 0, or -EPROTO.
 */
static int sweep_on(struct penstock_op *op, struct sweeper *s, struct sweep *sum)
{
    struct pst_bytes from = {s->start, op->key_bytes}, to = {s->answer + sizeof(struct pst_wire_sweep), 0};
    struct pst_wire_sweep out;

    pst_assert(op->key_bytes <= sizeof(s->start));
    if (op->value_bytes < sizeof(out))
        return -EPROTO;
    memcpy(&out, s->answer, sizeof(out));
    if (out.resume_bytes > sizeof(s->start) || op->value_bytes < sizeof(out) + out.resume_bytes)
        return -EPROTO;
    to.len = out.resume_bytes;
    if (!out.done && pst_bytes_compare(from, to) >= (op->flags & PST_WIRE_AFTER ? 0 : 1))
        return -EPROTO;
    sum->deleted += out.deleted;
    sum->spared += out.spared;
    sum->left += out.left;
    memcpy(s->start, to.data, to.len);
    op->key_bytes = out.resume_bytes;
    op->flags |= PST_WIRE_AFTER;
    return out.done != 0;
}

/* Sweeps one shard to its end. */
static int sweep_shard(struct penstock *store, uint32_t shard, struct sweeper *s,
                       const struct penstock_op *first, struct sweep *sum)
{
    struct penstock_op op = *first;
    int r;

    pst_assert(first->key_bytes <= sizeof(s->start));
    if (first->key_bytes)
        memcpy(s->start, first->key, first->key_bytes);
    op.key = s->start;
    op.data = s->answer;
    op.bytes = sizeof(s->answer);
    do {
        r = pst_run_one(store, &op, (int)shard);
        if (r)
            return r;
        r = sweep_on(&op, s, sum);
    } while (r == 0);
    return r < 0 ? pst_explain(store, NULL, r) : 0;
}

/* Sweeps all shards. */
static int sweep_all(struct penstock *store, struct pst_bytes start, struct pst_bytes end, uint32_t flags,
                     struct sweep *sum)
{
    struct penstock_op first = {.code = PST_WIRE_SWEEP,
                                .flags = flags,
                                .key = start.data,
                                .key_bytes = (uint16_t)start.len,
                                .attrs = (void *)(uintptr_t)end.data,
                                .attr_bytes = (uint16_t)end.len};
    pst_cleanup_free struct sweeper *s = malloc(sizeof(*s));
    uint64_t places;
    uint32_t shards;
    int r = -ESTALE;

    if (!s)
        return pst_fail(-ENOMEM, "out of memory");
    for (uint64_t until_ns = pst_deadline_ns(pst_now_ns(), SWEEP_S * 1000);
         r == -ESTALE && pst_now_ns() < until_ns;) {
        int fault = 0;

        r = pst_refresh(store);
        shards = pst_shards(store);
        places = pst_places(store);
        for (uint32_t i = 0; r == 0 && i < shards; i++) {
            int swept = pst_shard_at(store, i) < 0 ? 0 : sweep_shard(store, i, s, &first, sum);

            fault = fault ? fault : swept; /* the others are swept all the same */
        }
        if (r == 0)
            r = fault;
        if (r == 0)
            r = pst_refresh(store);
        if (r == 0)
            r = pst_whole(store, start, end);
        if (r == 0 && (pst_shards(store) != shards || pst_places(store) != places))
            r = pst_explain(store, NULL, -ESTALE); /* keys moved to where this sweep did not look any more */
    }
    return r;
}

/* Keys that go by themselves, because others have copies of them. */
struct deletes {
    struct penstock_op ops[DELETES_MAX];
    uint32_t count;
    size_t key_bytes;
    uint8_t keys[DELETES_BYTES_MAX];
};

/* Deletes what has been gathered; whether it was done is for the next sweep to see. */
static int delete_gathered(struct penstock *store, struct deletes *d, struct sweep *sum)
{
    int r = 0;

    pst_assert(d->count <= DELETES_MAX);
    pst_assert(d->key_bytes <= sizeof(d->keys));
    pst_run(store, d->ops, d->count, NULL);
    for (uint32_t i = 0; i < d->count && r == 0; i++) {
        int result = d->ops[i].result;

        sum->deleted += result == 0;
        sum->spared += result == PENSTOCK_EXISTS;
        if (result != 0 && result != PENSTOCK_MISS && result != PENSTOCK_EXISTS && result != PENSTOCK_UNKNOWN)
            r = pst_explain(store, &d->ops[i], result);
    }
    d->count = 0;
    d->key_bytes = 0;
    return r;
}

static int gather(struct penstock *store, struct deletes *d, const struct penstock_entry *entry,
                  uint32_t flags, struct sweep *sum)
{
    uint8_t *key;
    int r = 0;

    if (d->count == DELETES_MAX || d->key_bytes + entry->key_bytes > sizeof(d->keys))
        r = delete_gathered(store, d, sum);
    pst_assert(d->count < DELETES_MAX);
    pst_assert(d->key_bytes + entry->key_bytes <= sizeof(d->keys));
    pst_assert(entry->key_bytes > 0 && entry->key_bytes <= PENSTOCK_KEY_BYTES_MAX);
    key = d->keys + d->key_bytes;
    memcpy(key, entry->key, entry->key_bytes);
    d->ops[d->count++] = (struct penstock_op){
        .code = PENSTOCK_DELETE, .flags = flags, .key = key, .key_bytes = (uint16_t)entry->key_bytes};
    d->key_bytes += entry->key_bytes;
    return r;
}

/* Deletes one by one all that is listed; @sum->left: so many. */
static int delete_listed(struct penstock *store, struct pst_bytes start, struct pst_bytes end, uint32_t flags,
                         struct sweep *sum)
{
    const struct penstock_list_options range = {.size = sizeof(range),
                                                .start = start.data,
                                                .start_bytes = start.len,
                                                .end = end.data,
                                                .end_bytes = end.len};
    pst_cleanup_free struct deletes *d = calloc(1, sizeof(*d));
    struct penstock_list *list = NULL;
    struct penstock_entry entry;
    int r = d ? pst_list_open_copies(store, &range, &list) : pst_fail(-ENOMEM, "out of memory");

    while (r == 0 && (r = penstock_list_next(list, &entry)) == 1) {
        sum->left++;
        r = gather(store, d, &entry, flags, sum);
    }
    if (r == 0)
        r = delete_gathered(store, d, sum);
    penstock_list_close(list);
    return r;
}

/*
 * Until nothing is left but what pins keep. In a pool with copies a node leaves what is not its alone: that
 * goes with the primary's, or is swept as soon as the node knows that it has no copy any more.
 */
static int sweep(struct penstock *store, struct pst_bytes start, struct pst_bytes end, uint32_t flags,
                 struct sweep *sum)
{
    uint64_t until_ns = 0;
    int r = pst_store_check(store);

    if (r < 0)
        return r;
    if ((start.len && !start.data) || (end.len && !end.data))
        return pst_fail(-EINVAL, "%s: a bound without its bytes", store->url);
    if (start.len > PENSTOCK_KEY_BYTES_MAX || end.len > PENSTOCK_KEY_BYTES_MAX)
        return pst_fail(-ENAMETOOLONG, "%s: key longer than %d bytes", store->url, PENSTOCK_KEY_BYTES_MAX);
    for (;;) {
        struct sweep swept = {0}, listed = {0};

        r = sweep_all(store, start, end, flags, &swept);
        sum->deleted += swept.deleted;
        sum->spared = swept.spared;
        if (r != 0 || swept.left == 0)
            return r;
        r = delete_listed(store, start, end, flags, &listed);
        sum->deleted += listed.deleted;
        sum->spared = listed.spared;
        if (r != 0 || (listed.left > 0 && listed.spared == listed.left))
            return r;
        until_ns = until_ns ? until_ns : pst_deadline_ns(pst_now_ns(), SWEEP_S * 1000);
        if (pst_now_ns() > until_ns)
            return pst_explain(store, NULL, PENSTOCK_BUSY);
        usleep(SWEEP_AGAIN_US);
    }
}

int penstock_delete_range(struct penstock *store, const void *start, size_t start_bytes, const void *end,
                          size_t end_bytes, uint64_t *deleted)
{
    struct sweep sum = {0};
    int r = sweep(store, (struct pst_bytes){start, start_bytes}, (struct pst_bytes){end, end_bytes}, 0, &sum);

    if (deleted)
        *deleted = sum.deleted;
    return r;
}

int penstock_delete_prefix(struct penstock *store, const void *prefix, size_t prefix_bytes, uint64_t *deleted)
{
    uint8_t end[PENSTOCK_KEY_BYTES_MAX];
    size_t end_bytes = prefix ? pst_prefix_end(prefix, prefix_bytes, end) : 0;

    return penstock_delete_range(store, prefix, prefix_bytes, end, end_bytes, deleted);
}

int penstock_clear(struct penstock *store, uint64_t *remaining)
{
    struct sweep sum = {0};
    struct pst_bytes all = {NULL, 0};
    int r = sweep(store, all, all, PST_WIRE_SPARE, &sum);

    if (remaining)
        *remaining = sum.spared;
    return r;
}

/* ---- memory ---- */

int penstock_register(struct penstock *store, void *addr, size_t bytes)
{
    struct pst_memory memory = {.addr = addr};
    int r = pst_store_check(store);

    if (r < 0)
        return r;
    if (!addr || !bytes)
        return pst_fail(-EINVAL, "penstock_register: no address, or no bytes");
    r = pst_staged_add(store, addr, bytes);
    if (r != -ENOENT)
        return r < 0 ? pst_fail(r, "penstock_register: device memory: %s", strerror(-r)) : 0;
    pthread_mutex_lock(&store->lock);
    r = store->memory_count < MEMORY_MAX ? store->backend->add_memory(store, addr, bytes, &memory.handle)
                                         : -ENOSPC;
    if (r == 0)
        store->memory[store->memory_count++] = memory;
    pst_assert(store->memory_count <= MEMORY_MAX);
    pthread_mutex_unlock(&store->lock);
    return r < 0 ? pst_fail(r, "penstock_register: %s", strerror(-r)) : 0;
}

int penstock_deregister(struct penstock *store, void *addr)
{
    int r = pst_store_check(store);

    if (r < 0)
        return r;
    if (addr && pst_staged_drop(store, addr) == 0)
        return 0;
    r = -EINVAL;
    pthread_mutex_lock(&store->lock);
    for (uint32_t i = 0; addr && r < 0 && i < store->memory_count; i++) {
        if (store->memory[i].addr != addr)
            continue;
        store->backend->drop_memory(store, store->memory[i].handle);
        store->memory[i] = store->memory[--store->memory_count];
        r = 0;
    }
    pthread_mutex_unlock(&store->lock);
    return r < 0 ? pst_fail(r, "penstock_deregister: that address is not registered") : 0;
}
