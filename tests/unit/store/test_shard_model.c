/* SPDX-License-Identifier: Apache-2.0 */
/* test_shard_model.c: everything at once, in random order, against a table in the test. */
#include "lib/engine.h"

/* ---- everything at once, against a table in the test ---- */

enum { MODEL_KEYS = 300, MODEL_REFS = 40, MODEL_STEPS = 100000 };

struct model {
    struct engine e;
    struct {
        bool there;
        uint32_t seed;
        uint64_t bytes, generation;
    } keys[MODEL_KEYS];
    struct {
        struct pst_record *record;
        uint32_t seed;
        uint64_t bytes;
    } refs[MODEL_REFS];
    uint64_t generation_max, evictions;
};

static const char *model_key(uint32_t i)
{
    return key_name(i % 3 ? "keep/" : "cache/", i);
}

static uint64_t model_size(void)
{
    uint64_t r = random_next() % 100;

    return random_next() % (r < 75 ? 3000 : r < 95 ? 70000 : 230000);
}

static void model_check(const struct model *m, uint32_t i)
{
    struct pst_record *r = find(m->e.shard, model_key(i));

    if (!m->keys[i].there) {
        assert_null(r);
        return;
    }
    assert_record(m->e.shard, r, m->keys[i].seed, m->keys[i].bytes);
    assert_int_equal(r->generation, m->keys[i].generation);
}

static void model_put(struct model *m, uint32_t i)
{
    static const uint8_t flags[] = {0, 0, 0, PST_PUT_IF_ABSENT, PST_PUT_IF_GENERATION, PST_PUT_IF_GENERATION};
    struct pst_put put = put_of(m->e.shard, model_key(i), model_size());
    uint32_t seed = (uint32_t)random_next() % 10000;
    struct pst_answer answer = {0};
    int want = PST_OK, r;

    put.flags = flags[random_next() % 6];
    put.if_generation = random_next() % 3 ? m->keys[i].generation : random_next() % 2 * 12345;
    if (put.flags == PST_PUT_IF_ABSENT && m->keys[i].there)
        want = PST_EXISTS;
    else if (put.flags == PST_PUT_IF_GENERATION && put.if_generation != m->keys[i].generation)
        want = PST_STALE;
    r = pst_shard_put(m->e.shard, &put, pattern(seed), m->e.now_ns, &answer);
    assert_int_equal(r, want);
    if (r != PST_OK) {
        assert_int_equal(answer.generation, m->keys[i].generation);
        return;
    }
    assert_true(answer.generation > m->generation_max);
    m->generation_max = answer.generation;
    m->keys[i].there = true;
    m->keys[i].seed = seed;
    m->keys[i].bytes = put.value_bytes;
    m->keys[i].generation = answer.generation;
}

static void model_delete(struct model *m, uint32_t i)
{
    uint64_t generation = random_next() % 2 ? m->keys[i].generation : random_next() % 2 * 12345;
    struct pst_lookup lookup = lookup_of(m->e.shard, model_key(i));
    bool conditional = random_next() % 2;
    struct pst_answer answer;
    int want = PST_OK;

    if (!m->keys[i].there)
        want = PST_MISS;
    else if (conditional && generation != m->keys[i].generation)
        want = PST_STALE;
    assert_int_equal(pst_shard_delete(m->e.shard, &lookup, conditional, generation, &answer), want);
    assert_int_equal(answer.generation, m->keys[i].generation);
    if (want == PST_OK) {
        m->keys[i].there = false;
        m->keys[i].generation = 0;
    }
}

static void model_ref(struct model *m, uint32_t i)
{
    uint32_t reservation = (uint32_t)random_next() % MODEL_REFS;

    if (m->refs[reservation].record) {
        assert_record(m->e.shard, m->refs[reservation].record, m->refs[reservation].seed,
                      m->refs[reservation].bytes);
        pst_shard_unref(m->e.shard, m->refs[reservation].record);
        m->refs[reservation].record = NULL;
    } else if (m->keys[i].there) {
        m->refs[reservation].record = find(m->e.shard, model_key(i));
        m->refs[reservation].seed = m->keys[i].seed;
        m->refs[reservation].bytes = m->keys[i].bytes;
        assert_int_equal(pst_shard_ref(m->e.shard, m->refs[reservation].record), 0);
    }
}

static void model_sweep(struct model *m)
{
    uint32_t from = (uint32_t)random_next() % MODEL_KEYS, to = from + (uint32_t)random_next() % 20,
             deleted = 0;
    const char *prefix = random_next() % 2 ? "keep/" : "cache/";
    struct sweep sum = sweep_all(&m->e, range_of(key_name(prefix, from), key_name(prefix, to)), false);

    for (uint32_t i = from; i < to && i < MODEL_KEYS; i++) {
        if (!m->keys[i].there || (i % 3 == 0) != (prefix[0] == 'c'))
            continue;
        m->keys[i].there = false;
        m->keys[i].generation = 0;
        deleted++;
    }
    assert_int_equal(sum.deleted, deleted);
}

static void model_reserve(struct model *m, uint32_t i)
{
    struct pst_put put = put_of(m->e.shard, model_key(i), model_size());
    struct pst_pending pending;
    struct pst_answer answer;

    assert_int_equal(pst_shard_reserve(m->e.shard, &put, m->e.now_ns, &pending, &answer), 0);
    model_put(m, i);
    pst_shard_abort(m->e.shard, &pending);
}

/* To take a page back may cost cached values, never kept ones. */
static void model_take_back(struct model *m)
{
    pst_shard_take_back(m->e.shard, 90);
    for (uint32_t i = 0; i < MODEL_KEYS; i += 3) {
        if (!m->keys[i].there || find(m->e.shard, model_key(i)))
            continue;
        m->keys[i].there = false;
        m->keys[i].generation = 0;
        m->evictions++;
    }
}

enum action { PUT, DELETE, REF, RESERVE, TAKE_BACK, SWEEP, TOUCH };

static void model_step(struct model *m)
{
    static const enum action actions[] = {PUT,    PUT, PUT, PUT, PUT,     PUT,       DELETE, DELETE,
                                          DELETE, REF, REF, REF, RESERVE, TAKE_BACK, SWEEP,  TOUCH};
    uint32_t i = (uint32_t)random_next() % MODEL_KEYS;

    m->e.now_ns += random_next() % 1000000;
    switch (actions[random_next() % pst_count_of(actions)]) {
    case PUT:
        model_put(m, i);
        break;
    case DELETE:
        model_delete(m, i);
        break;
    case REF:
        model_ref(m, i);
        break;
    case RESERVE:
        model_reserve(m, i);
        break;
    case TAKE_BACK:
        model_take_back(m);
        break;
    case SWEEP:
        if (random_next() % 20 == 0)
            model_sweep(m);
        break;
    case TOUCH:
        if (m->keys[i].there)
            pst_shard_touch(m->e.shard, find(m->e.shard, model_key(i)), m->e.now_ns);
        break;
    }
    model_check(m, i);
}

static void model_check_all(const struct model *m)
{
    uint64_t keys = 0, value_bytes = 0;

    for (uint32_t i = 0; i < MODEL_KEYS; i++) {
        model_check(m, i);
        keys += m->keys[i].there;
        value_bytes += m->keys[i].there ? m->keys[i].bytes : 0;
    }
    assert_int_equal(shard_stat(m->e.shard).keys, keys);
    assert_int_equal(shard_stat(m->e.shard).value_bytes, value_bytes);
    assert_int_equal(shard_stat(m->e.shard).evictions, m->evictions);
}

static void random_steps_match_a_model(void **state)
{
    const struct engine_shape shape = {
        .page_bytes = 64 << 10, .pages = 1024, .arena_pages = 300, .cache_prefix = "cache/"};
    struct model *m = calloc(1, sizeof(*m));

    (void)state;
    engine_open(&m->e, &shape);
    for (int step = 0; step < MODEL_STEPS; step++) {
        model_step(m);
        if (step % 5000 == 0)
            model_check_all(m);
    }
    model_check_all(m);
    assert_true(shard_stat(m->e.shard).moved > 0);
    sweep_all(&m->e, range_of("", ""), false);
    for (uint32_t i = 0; i < MODEL_REFS; i++) {
        if (!m->refs[i].record)
            continue;
        assert_record(m->e.shard, m->refs[i].record, m->refs[i].seed, m->refs[i].bytes);
        pst_shard_unref(m->e.shard, m->refs[i].record);
    }
    assert_int_equal(shard_stat(m->e.shard).keys, 0);
    assert_int_equal(shard_stat(m->e.shard).value_bytes, 0);
    assert_int_equal(shard_stat(m->e.shard).cache_keys, 0);
    assert_int_equal(shard_stat(m->e.shard).pinned, 0);
    assert_int_equal(shard_stat(m->e.shard).slab_bytes, 0);
    assert_int_equal(engine_pages_used(&m->e), 0);
    engine_close(&m->e);
    free(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_steps_match_a_model),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
