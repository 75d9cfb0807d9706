/* SPDX-License-Identifier: Apache-2.0 */
/*
 * engine.h: what the tests of the engine share: a store over anonymous memory, short forms of its calls, and
 * bytes to recognise values by: value number @seed is a stretch of one random table, so that filling and
 * comparing are memcpy and memcmp.
 */
#ifndef PST_TEST_ENGINE_H
#define PST_TEST_ENGINE_H

#include "lib/cm.h"

#include "base/clock.h"
#include "base/hash.h"
#include "store/change.h"
#include "store/evict_priv.h"
#include "store/figures.h"
#include "store/keys.h"
#include "store/link_priv.h"
#include "store/pins_priv.h"
#include "store/read.h"
#include "store/record_mark.h"
#include "store/settings.h"
#include "store/reservation.h"
#include "store/tiering_priv.h"
#include "store/write_priv.h"

#include <stdio.h>

enum {
    ENGINE_VALUE_BYTES_MAX = 8 << 20,
    ENGINE_SEEDS = 1 << 16,
};

#define SECOND_NS 1000000000ull

struct engine {
    struct pst_store *store;
    struct pst_shard *shard; /* the first one */
    uint64_t now_ns;
};

struct engine_shape {
    uint64_t page_bytes;
    uint32_t pages;
    uint32_t arena_pages; /* 0: one arena */
    uint32_t shards;      /* 0: one */
    uint32_t watermark_percent;
    const char *cache_prefix; /* NULL: all keys are kept */
    const char *policy;       /* NULL: the default */
    const char *ssd;          /* a folder; NULL: none */
    uint64_t ssd_bytes, segment_bytes;
    const struct pst_gpu_ops *device; /* NULL: none */
    uint32_t device_pages;
};

static inline uint64_t random_next(void)
{
    static uint64_t x = 0x2545f4914f6cdd1d;

    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    return x;
}

static inline const uint8_t *pattern(uint32_t seed)
{
    static uint64_t table[(ENGINE_VALUE_BYTES_MAX + ENGINE_SEEDS) / 8];

    for (size_t i = 0; !table[0] && i < pst_count_of(table); i++) {
        size_t at = pst_count_of(table) - 1 - i;

        table[at] = (at + 1) * 0x9e3779b97f4a7c15ull;
        table[at] ^= table[at] >> 29;
        table[at] *= 0xbf58476d1ce4e5b9ull;
    }
    return (const uint8_t *)table + seed * 7919u % ENGINE_SEEDS;
}

static inline void engine_open(struct engine *e, const struct engine_shape *shape)
{
    struct pst_store_options options = {
        .arenas = {.bytes = shape->page_bytes * shape->pages,
                   .page_bytes = shape->page_bytes,
                   .arena_bytes =
                       shape->page_bytes * (shape->arena_pages ? shape->arena_pages : shape->pages)},
        .shard_count = shape->shards ? shape->shards : 1,
        .watermark_percent = shape->watermark_percent ? shape->watermark_percent : 100,
        .cache_prefixes = &shape->cache_prefix,
        .cache_prefix_count = shape->cache_prefix ? 1 : 0,
        .policy = shape->policy,
        .ssd = {.folders = &shape->ssd,
                .folder_count = shape->ssd ? 1 : 0,
                .bytes = shape->ssd_bytes,
                .segment_bytes = shape->segment_bytes,
                .driver = "posix"},
        .hbm = {.ops = shape->device, .bytes = shape->page_bytes * shape->device_pages},
    };
    const char *fault = "";

    if (pst_store_open(&options, &e->store, &fault) < 0)
        fail_msg("%s", fault);
    e->shard = pst_store_shard(e->store, 0);
    e->now_ns = pst_now_ns();
}

static inline void engine_close(struct engine *e)
{
    assert_null(pst_store_close(e->store));
}

static inline uint64_t engine_pages_used(const struct engine *e)
{
    struct pst_store_stat stat;

    pst_store_stat(e->store, &stat);
    return stat.pages_used;
}

static inline struct pst_shard_stat shard_stat(struct pst_shard *shard)
{
    struct pst_shard_stat stat;

    pst_shard_stat(shard, &stat);
    return stat;
}

static inline struct pst_bytes bytes_of(const char *text)
{
    return (struct pst_bytes){text, strlen(text)};
}

static inline struct pst_lookup lookup_of(const struct pst_shard *shard, const char *key)
{
    return pst_shard_lookup(shard, bytes_of(key));
}

static inline struct pst_record *find(const struct pst_shard *shard, const char *key)
{
    struct pst_lookup lookup = lookup_of(shard, key);

    return pst_shard_find(shard, &lookup);
}

static inline struct pst_put put_of(const struct pst_shard *shard, const char *key, uint64_t value_bytes)
{
    return (struct pst_put){
        .lookup = lookup_of(shard, key), .value_bytes = value_bytes, .depth = PST_DEPTH_NONE};
}

/* A run of pages that no value has; then every other one of them is free again, without free neighbours. */
static inline struct pst_run engine_take_pages(struct engine *e, uint32_t count)
{
    struct pst_run run;

    assert_int_equal(pst_pages_take(&e->store->pages, count, &run, 1), 1);
    return run;
}

static inline void engine_scatter_pages(struct engine *e, struct pst_run run)
{
    for (uint32_t i = 0; i < run.count; i += 2)
        pst_pages_give(&e->store->pages, &(struct pst_run){run.page + i, 1}, 1);
}

/* Stores value @seed. Return: what pst_shard_put() said. */
static inline int try_put(struct pst_shard *shard, const char *key, uint32_t seed, uint64_t value_bytes,
                          uint64_t now_ns)
{
    struct pst_put put = put_of(shard, key, value_bytes);
    struct pst_answer answer;

    return pst_shard_put(shard, &put, pattern(seed), now_ns, &answer);
}

static inline void put(struct engine *e, const char *key, uint32_t seed, uint64_t value_bytes)
{
    assert_int_equal(try_put(e->shard, key, seed, value_bytes, e->now_ns), 0);
}

/* A key numbered @i; valid until 16 more were named. */
static inline const char *key_name(const char *prefix, uint32_t i)
{
    static char names[16][64];
    static uint32_t at;
    char *name = names[at++ % 16];

    snprintf(name, sizeof(names[0]), "%s%07u", prefix, i);
    return name;
}

static inline int delete_key(struct pst_shard *shard, const char *key)
{
    struct pst_lookup lookup = lookup_of(shard, key);
    struct pst_answer answer;

    return pst_shard_delete(shard, &lookup, false, 0, &answer);
}

static inline int pin(struct engine *e, const char *key, uint64_t ttl_ms)
{
    struct pst_lookup lookup = lookup_of(e->shard, key);

    return pst_shard_pin(e->shard, NULL, &lookup, ttl_ms, e->now_ns);
}

static inline int unpin(struct engine *e, const char *key)
{
    struct pst_lookup lookup = lookup_of(e->shard, key);

    return pst_shard_unpin(e->shard, NULL, &lookup);
}

/* Compares bytes [@offset, @offset + @bytes) of a value with those of @want. */
static inline void assert_range(const struct pst_shard *shard, const struct pst_record *record,
                                uint64_t offset, uint64_t bytes, const uint8_t *want)
{
    struct iovec piece;

    while (pst_record_piece(shard, record, offset, bytes, &piece)) {
        pst_assert(piece.iov_len > 0 && piece.iov_len <= bytes);
        pst_assert(memcmp(piece.iov_base, want, piece.iov_len) == 0);
        want += piece.iov_len;
        offset += piece.iov_len;
        bytes -= piece.iov_len;
    }
    assert_int_equal(bytes, 0);
}

static inline void assert_record(const struct pst_shard *shard, const struct pst_record *record,
                                 uint32_t seed, uint64_t value_bytes)
{
    assert_non_null(record);
    assert_int_equal(record->value_bytes, value_bytes);
    assert_int_equal(record->check, record->state & PST_RECORD_UNLINKED
                                        ? 0
                                        : pst_record_check(record, shard->store->check_seed,
                                                           pst_record_offset(shard, record)));
    assert_range(shard, record, 0, value_bytes, pattern(seed));
}

static inline void assert_value(const struct pst_shard *shard, const char *key, uint32_t seed,
                                uint64_t value_bytes)
{
    assert_record(shard, find(shard, key), seed, value_bytes);
}

static inline struct pst_range range_of(const char *start, const char *end)
{
    return (struct pst_range){.start = bytes_of(start), .end = bytes_of(end)};
}

struct sweep {
    uint64_t deleted, spared, steps;
};

/* Sweeps a whole range, going on where each step stopped. */
static inline struct sweep sweep_all(struct engine *e, struct pst_range range, bool spare_pinned)
{
    struct sweep sum = {0};
    uint8_t bufs[2][PST_SWEEP_BYTES_MAX];

    for (;;) {
        uint8_t *buf = bufs[sum.steps % 2];
        size_t len = pst_shard_sweep(e->shard, &range, spare_pinned, e->now_ns, buf);
        struct pst_wire_sweep head;

        memcpy(&head, buf, sizeof(head));
        assert_int_equal(len, sizeof(head) + head.resume_bytes);
        sum.deleted += head.deleted;
        sum.spared += head.spared;
        sum.steps++;
        if (head.done)
            return sum;
        assert_true(head.deleted + head.spared > 0);
        range.start = (struct pst_bytes){buf + sizeof(head), head.resume_bytes};
        range.after = true;
    }
}

#endif
