/* SPDX-License-Identifier: Apache-2.0 */
/* restart_rig.h: stores whose arenas lie in a folder, where the next store of the test finds them. */
#ifndef PST_TEST_RESTART_RIG_H
#define PST_TEST_RESTART_RIG_H

#include "lib/engine.h"

#include "wire/route.h"

#include <sys/mman.h>

enum { PAGE_BYTES = 64 << 10, PAGES = 256 };

static char folder[64];

static inline int make_folder(void **state)
{
    (void)state;
    strcpy(folder, access("/dev/shm", W_OK) == 0 ? "/dev/shm/pst-test-XXXXXX" : "/tmp/pst-test-XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static inline int remove_files(void **state)
{
    char command[128];

    (void)state;
    snprintf(command, sizeof(command), "rm -f '%s'/*", folder);
    return system(command);
}

static inline int remove_folder(void **state)
{
    (void)state;
    return rmdir(folder);
}

static inline int try_open(struct engine *e, uint32_t shards, const char **fault)
{
    const struct pst_prefix_number quota = {.prefix = bytes_of("c"), .number = PAGE_BYTES * PAGES};
    const char *prefix = "c";
    struct pst_store_options options = {
        .arenas = {.bytes = PAGE_BYTES * PAGES,
                   .page_bytes = PAGE_BYTES,
                   .arena_bytes = PAGE_BYTES * PAGES / 2,
                   .folder = folder,
                   .name = "n"},
        .shard_count = shards,
        .watermark_percent = 100,
        .cache_prefixes = &prefix,
        .cache_prefix_count = 1,
        .policy = "lru",
        .quotas = &quota,
        .quota_count = 1,
    };
    int r = pst_store_open(&options, &e->store, fault);

    if (r == 0) {
        e->shard = pst_store_shard(e->store, 0);
        e->now_ns = pst_now_ns();
    }
    return r;
}

static inline void open_kept(struct engine *e, uint32_t shards)
{
    const char *fault = "";

    if (try_open(e, shards, &fault) < 0)
        fail_msg("%s", fault);
}

static inline void reopen(struct engine *e, uint32_t shards)
{
    engine_close(e);
    open_kept(e, shards);
    assert_true(pst_store_restored(e->store)->taken_up);
}

static inline struct pst_shard *shard_of(const struct engine *e, const char *key)
{
    return pst_store_shard(e->store, pst_route_shard(bytes_of(key), pst_store_partition_seed(e->store),
                                                     pst_store_shard_count(e->store)));
}

/* A value's size by its number: of every shape, small ones more often. */
static inline uint64_t size_of(uint32_t seed)
{
    static const uint64_t sizes[] = {0,    1,     40,    900,   2047,  2048,  2049,
                                     5000, 30000, 33000, 65536, 70000, 150000};

    return sizes[seed % pst_count_of(sizes)];
}

static inline int put_key(struct engine *e, const char *key, uint32_t seed)
{
    return try_put(shard_of(e, key), key, seed, size_of(seed), e->now_ns);
}

static inline bool holds(const struct engine *e, const char *key, uint32_t seed)
{
    struct pst_shard *s = shard_of(e, key);
    struct pst_record *r = find(s, key);
    const uint8_t *want = pattern(seed);
    struct iovec piece;

    if (!r || r->value_bytes != size_of(seed))
        return false;
    for (uint64_t at = 0; pst_record_piece(s, r, at, r->value_bytes - at, &piece); at += piece.iov_len) {
        if (memcmp(piece.iov_base, want + at, piece.iov_len) != 0)
            return false;
    }
    return true;
}

static inline uint64_t keys_of(const struct engine *e)
{
    uint64_t keys = 0;

    for (uint32_t i = 0; i < pst_store_shard_count(e->store); i++)
        keys += shard_stat(pst_store_shard(e->store, i)).keys;
    return keys;
}

/* Every page comes back when all keys go: nothing was claimed twice, or for nothing. */
static inline void clear(struct engine *e)
{
    uint8_t buf[PST_SWEEP_BYTES_MAX];
    struct pst_range all = range_of("", "");

    for (uint32_t i = 0; i < pst_store_shard_count(e->store); i++) {
        struct pst_shard *s = pst_store_shard(e->store, i);

        while (shard_stat(s).keys > 0)
            assert_true(pst_shard_sweep(s, &all, false, e->now_ns, buf) > 0);
        assert_int_equal(shard_stat(s).value_bytes, 0);
        assert_int_equal(shard_stat(s).cache_keys, 0);
        assert_int_equal(shard_stat(s).slab_bytes, 0);
    }
    assert_int_equal(engine_pages_used(e), 0);
    assert_int_equal(e->store->extent_pages, 0);
    assert_int_equal(e->store->cache_pages, 0);
    assert_int_equal(e->store->quotas[0].bytes, 0);
}

enum { KEYS = 120 };

static inline void put_all(struct engine *e)
{
    for (uint32_t i = 0; i < KEYS; i++)
        assert_int_equal(put_key(e, key_name(i % 3 ? "k" : "c", i), i), 0);
}

static inline void expect_all(const struct engine *e)
{
    for (uint32_t i = 0; i < KEYS; i++)
        assert_true(holds(e, key_name(i % 3 ? "k" : "c", i), i));
    assert_int_equal(keys_of(e), KEYS);
    assert_int_equal(pst_store_restored(e->store)->keys, KEYS);
    assert_int_equal(pst_store_restored(e->store)->dropped, 0);
}

#endif
