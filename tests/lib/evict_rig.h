/* SPDX-License-Identifier: Apache-2.0 */
/* evict_rig.h: small stores that are full of cache values, and what goes first. */
#ifndef PST_TEST_EVICT_RIG_H
#define PST_TEST_EVICT_RIG_H

#include "lib/engine.h"

/* In order of use, where a test depends on which one goes; of other policies, test_policy.c. */
static const struct engine_shape small = {
    .page_bytes = 64 << 10, .pages = 32, .cache_prefix = "c/", .policy = "prefix"};

static inline void put_at(struct engine *e, struct pst_shard *shard, const char *key, uint64_t bytes,
                          uint64_t second)
{
    assert_int_equal(try_put(shard, key, 1, bytes, e->now_ns + second * SECOND_NS), 0);
}

static inline void put_deep(struct engine *e, const char *key, uint16_t depth, uint64_t now_ns)
{
    struct pst_put put = put_of(e->shard, key, 100);
    struct pst_answer answer;

    put.depth = depth;
    assert_int_equal(pst_shard_put(e->shard, &put, pattern(1), now_ns, &answer), 0);
}

static inline void touch_at(struct engine *e, const char *key, uint64_t second)
{
    pst_shard_touch(e->shard, find(e->shard, key), e->now_ns + second * SECOND_NS);
}

/* Evicts one after the other at @second and compares with @keys, which ends with NULL. */
static inline void assert_victims(struct engine *e, uint64_t second, const char *const *keys)
{
    for (; *keys; keys++) {
        assert_non_null(find(e->shard, *keys));
        assert_true(pst_shard_evict(e->shard, e->now_ns + second * SECOND_NS));
        if (find(e->shard, *keys))
            fail_msg("'%s' was to go", *keys);
    }
}

#define VICTIMS(...) ((const char *const[]){__VA_ARGS__, NULL})

static inline bool evict_at(struct engine *e, uint64_t second)
{
    return pst_shard_evict(e->shard, e->now_ns + second * SECOND_NS);
}

static inline void fill_pages(struct engine *e, struct pst_shard *shard, const char *prefix, uint32_t count,
                              uint64_t second)
{
    for (uint32_t i = 0; i < count; i++)
        put_at(e, shard, key_name(prefix, i), 64 << 10, second);
}

/* Return: the first shard. */
static inline struct pst_shard *two_shards(struct engine *e, struct pst_shard **other)
{
    struct engine_shape shape = small;

    shape.shards = 2;
    engine_open(e, &shape);
    *other = pst_store_shard(e->store, 1);
    return e->shard;
}

#endif
