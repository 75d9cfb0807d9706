#include "engine.h"

static const struct engine_shape plain = {.page_bytes = 64 << 10, .pages = 64, .arena_pages = 16};

struct session {
    struct engine e;
    struct pst_holder holder;
    struct pst_quota quota;
};

static void session_open(struct session *s, const struct engine_shape *shape)
{
    engine_open(&s->e, shape);
    s->quota = (struct pst_quota){0};
    pst_holder_init(&s->holder, &s->quota);
}

static void session_close(struct session *s)
{
    pst_holder_end(s->e.shard, &s->holder);
    assert_int_equal(s->quota.slots, 0);
    assert_int_equal(s->quota.bytes, 0);
    engine_close(&s->e);
}

static struct pst_shard_later later_of(struct session *s)
{
    struct pst_shard_later later;

    pst_shard_stat_later(s->e.shard, &later);
    return later;
}

static struct pst_slot *reserve(struct session *s, const char *key, uint64_t bytes, bool replace)
{
    struct pst_put put = put_of(s->e.shard, key, bytes);
    struct pst_answer answer;
    struct pst_slot *slot = NULL;

    assert_int_equal(pst_slot_reserve(s->e.shard, &s->holder, &put, replace, s->e.now_ns, &slot, &answer), 0);
    return slot;
}

static int write_slot(struct session *s, struct pst_slot *slot, uint32_t seed, uint64_t from, uint64_t to)
{
    struct iovec piece;
    int r = pst_slot_write(s->e.shard, slot, from, to - from, s->e.now_ns);

    for (uint64_t at = from; r == 0 && pst_slot_piece(s->e.shard, slot, at, to - at, &piece);
         at += piece.iov_len)
        memcpy(piece.iov_base, pattern(seed) + at, piece.iov_len);
    if (r == 0)
        pst_slot_written(s->e.shard, slot, from, to - from, true);
    return r;
}

static int commit(struct session *s, const char *key, struct pst_slot *slot, uint64_t bytes,
                  struct pst_answer *answer)
{
    char location[PST_SLOT_LOCATION_BYTES_MAX + 1];
    struct pst_slot_named named = {
        .handle = pst_slot_handle(slot), .key = bytes_of(key), .bytes = bytes, .tier = PST_TIER_DRAM};

    named.location = (struct pst_bytes){location, pst_slot_location(s->e.shard, slot, location)};
    return pst_slot_commit(s->e.shard, &s->holder, &named, s->e.now_ns, answer);
}

/* Spans in random order, compared with a map of bytes. */
static void spans_are_exact(void **state)
{
    enum { BYTES = 400 };
    struct session s;

    (void)state;
    session_open(&s, &plain);
    for (int round = 0; round < 300; round++) {
        struct pst_slot *slot = reserve(&s, "k", BYTES, false);
        bool map[BYTES] = {0};
        struct pst_answer answer;
        int writes = (int)(random_next() % 40), whole = 1, r;

        for (int i = 0; i < writes; i++) {
            uint64_t from = random_next() % BYTES, to = from + random_next() % (BYTES - from + 1);

            r = write_slot(&s, slot, 3, from, to);
            assert_true(r == 0 || r == -E2BIG);
            if (r == 0)
                memset(map + from, 1, to - from);
        }
        for (int i = 0; i < BYTES; i++)
            whole &= map[i];
        r = commit(&s, "k", slot, BYTES, &answer);
        assert_int_equal(r, whole ? 0 : -ENODATA);
        if (whole) {
            assert_value(s.e.shard, "k", 3, BYTES);
            assert_int_equal(delete_key(s.e.shard, "k"), 0);
        }
    }
    assert_int_equal(later_of(&s).slots, 0);
    session_close(&s);
}

static void growing_slots_end_up_like_puts(void **state)
{
    static const uint64_t sizes[] = {0,     1,     2048,   2049,   30000,  32768,  32769,  65536,
                                     65537, 70000, 131072, 200000, 262144, 300001, 1000000};
    struct session s;

    (void)state;
    session_open(&s, &plain);
    for (size_t i = 0; i < pst_count_of(sizes); i++) {
        struct pst_slot *slot = reserve(&s, "k", PST_SLOT_GROWS, true);
        struct pst_answer answer;
        uint64_t by_slot;

        for (uint64_t at = 0, next; at < sizes[i]; at = next) {
            next = pst_min(sizes[i], at + 1 + random_next() % 100000);
            assert_int_equal(write_slot(&s, slot, 5, at, next), 0);
        }
        assert_int_equal(commit(&s, "k", slot, sizes[i], &answer), 0);
        assert_int_equal(answer.value_bytes, sizes[i]);
        assert_value(s.e.shard, "k", 5, sizes[i]);
        by_slot = engine_pages_used(&s.e);
        put(&s.e, "k", 6, sizes[i]);
        assert_int_equal(engine_pages_used(&s.e), by_slot);
        assert_value(s.e.shard, "k", 6, sizes[i]);
        assert_int_equal(delete_key(s.e.shard, "k"), 0);
        assert_int_equal(later_of(&s).slot_bytes, 0);
    }
    session_close(&s);
}

static void memory_stays_until_the_last_user(void **state)
{
    struct session s;
    struct pst_slot *slot;

    (void)state;
    session_open(&s, &plain);
    slot = reserve(&s, "k", 200000, false);
    assert_int_equal(pst_slot_write(s.e.shard, slot, 0, 100, s.e.now_ns), 0);
    assert_int_equal(commit(&s, "k", slot, 200000, &(struct pst_answer){0}), PST_BUSY);
    pst_holder_end(s.e.shard, &s.holder); /* the session is gone; a transfer is not */
    assert_int_equal(s.quota.slots, 0);
    assert_int_equal(later_of(&s).slots, 1);
    assert_true(engine_pages_used(&s.e) > 0);
    pst_slot_written(s.e.shard, slot, 0, 100, false);
    assert_int_equal(later_of(&s).slots, 0);
    assert_int_equal(engine_pages_used(&s.e), 0);
    session_close(&s);
}

static void commits_are_remembered_for_a_while(void **state)
{
    enum { COUNT = 300 };
    struct pst_slot_named named = {.key = bytes_of("k"), .tier = PST_TIER_DRAM};
    struct pst_answer answers[COUNT], answer;
    uint64_t handles[COUNT];
    struct session s;

    (void)state;
    session_open(&s, &plain);
    for (int i = 0; i < COUNT; i++) {
        struct pst_slot *slot = reserve(&s, "k", 0, true);

        handles[i] = pst_slot_handle(slot);
        assert_int_equal(commit(&s, "k", slot, 0, &answers[i]), 0);
    }
    for (int i = 0; i < COUNT; i++) {
        named.handle = handles[i];
        assert_int_equal(pst_slot_commit(s.e.shard, &s.holder, &named, s.e.now_ns, &answer),
                         i < COUNT - 256 ? PST_MISS : 0);
        if (i >= COUNT - 256)
            assert_int_equal(answer.generation, answers[i].generation);
    }
    named.handle = 0;
    assert_int_equal(pst_slot_commit(s.e.shard, &s.holder, &named, s.e.now_ns, &answer), PST_MISS);
    named.handle = handles[COUNT - 1];
    named.key = bytes_of("another");
    assert_int_equal(pst_slot_commit(s.e.shard, &s.holder, &named, s.e.now_ns, &answer), PST_MISS);
    session_close(&s);
}

/* ---- changes ---- */

static struct pst_change change_of(struct session *s, enum pst_change_kind kind, const char *key)
{
    return (struct pst_change){.kind = kind, .put = put_of(s->e.shard, key, 0)};
}

static struct pst_change put_change(struct session *s, const char *key, uint32_t seed, uint64_t bytes)
{
    struct pst_change c = change_of(s, PST_CHANGE_PUT, key);

    c.put.value_bytes = bytes;
    c.value = pattern(seed);
    return c;
}

static struct pst_change *chain(struct pst_change *changes, size_t count)
{
    for (size_t i = 0; i + 1 < count; i++)
        changes[i].next = &changes[i + 1];
    return changes;
}

static bool prepare(struct session *s, struct pst_change *first)
{
    return pst_changes_prepare(s->e.shard, &s->holder, first, false, s->e.now_ns);
}

/* @count changes in a row. */
static void apply(struct session *s, struct pst_change *first, uint32_t count)
{
    pst_changes_decide(s->e.store, first, count);
    pst_changes_apply(s->e.shard, first, s->e.now_ns);
}

static void changes_apply_together(void **state)
{
    struct session s;
    struct pst_change changes[4];
    struct pst_lookup old, fresh, checked;
    uint8_t buf[PST_SWEEP_BYTES_MAX];
    struct pst_range all = range_of("", "");
    bool end;

    (void)state;
    session_open(&s, &plain);
    put(&s.e, "checked", 1, 10);
    put(&s.e, "gone", 1, 10);
    put(&s.e, "old", 1, 100000);
    changes[0] = change_of(&s, PST_CHANGE_CHECK, "checked");
    changes[0].put.if_generation = find(s.e.shard, "checked")->generation;
    changes[1] = change_of(&s, PST_CHANGE_DELETE, "gone");
    changes[2] = put_change(&s, "old", 2, 200000);
    changes[3] = put_change(&s, "fresh", 3, 30);
    assert_true(prepare(&s, chain(changes, 4)));
    old = lookup_of(s.e.shard, "old");
    fresh = lookup_of(s.e.shard, "fresh");
    checked = lookup_of(s.e.shard, "checked");
    assert_int_equal(*pst_shard_locks(s.e.shard), 4);
    assert_true(pst_shard_locked(s.e.shard, &old, true));
    assert_true(pst_shard_locked(s.e.shard, &fresh, true));
    assert_false(pst_shard_locked(s.e.shard, &checked, true));
    assert_true(pst_shard_locked(s.e.shard, &checked, false));
    assert_int_equal(try_put(s.e.shard, "old", 9, 10, s.e.now_ns), PST_BUSY);
    assert_int_equal(try_put(s.e.shard, "checked", 9, 10, s.e.now_ns), PST_BUSY);
    assert_int_equal(delete_key(s.e.shard, "gone"), PST_BUSY);
    assert_int_equal(pst_shard_sweep(s.e.shard, &all, false, s.e.now_ns, buf), 0);
    /* Nothing of it shows: neither the new key nor another count. */
    assert_int_equal(pst_shard_list(s.e.shard, &all, buf, sizeof(buf), &end), 3 * 24 + 7 + 4 + 3);
    assert_int_equal(shard_stat(s.e.shard).keys, 3);
    apply(&s, changes, 4);
    assert_int_equal(*pst_shard_locks(s.e.shard), 0);
    assert_value(s.e.shard, "old", 2, 200000);
    assert_value(s.e.shard, "fresh", 3, 30);
    assert_null(find(s.e.shard, "gone"));
    assert_true(changes[3].answer.generation == find(s.e.shard, "fresh")->generation);
    assert_int_equal(shard_stat(s.e.shard).keys, 3);
    assert_int_equal(shard_stat(s.e.shard).pinned, 0);
    session_close(&s);
}

static void failed_changes_leave_nothing(void **state)
{
    struct session s;
    struct pst_change changes[5];
    uint64_t pages;

    (void)state;
    session_open(&s, &plain);
    put(&s.e, "there", 1, 100000);
    pages = engine_pages_used(&s.e);
    changes[0] = put_change(&s, "a", 2, 100000);
    changes[1] = put_change(&s, "there", 2, 100000);
    changes[1].put.flags = PST_PUT_IF_ABSENT;
    changes[2] = change_of(&s, PST_CHANGE_DELETE, "missing");
    changes[3] = change_of(&s, PST_CHANGE_CHECK, "there");
    changes[3].put.if_generation = 5;
    changes[4] = change_of(&s, PST_CHANGE_DELETE, "there2");
    changes[4].put.flags = PST_PUT_IF_GENERATION;
    changes[4].put.if_generation = 5;
    changes[3].put.lookup = lookup_of(s.e.shard, "other");
    assert_false(prepare(&s, chain(changes, 5)));
    assert_int_equal(changes[0].result, 0);
    assert_int_equal(changes[1].result, PST_EXISTS);
    assert_int_equal(changes[1].answer.generation, find(s.e.shard, "there")->generation);
    assert_int_equal(changes[2].result, 0);
    assert_int_equal(changes[3].result, PST_STALE);
    assert_int_equal(changes[4].result, PST_MISS);
    changes[0] = put_change(&s, "a", 2, 2000000); /* the second does not fit */
    changes[1] = put_change(&s, "b", 2, 4000000);
    assert_false(prepare(&s, chain(changes, 2)));
    assert_int_equal(changes[1].result, -ENOSPC);
    assert_null(find(s.e.shard, "a"));
    assert_int_equal(*pst_shard_locks(s.e.shard), 0);
    assert_int_equal(engine_pages_used(&s.e), pages);
    assert_int_equal(shard_stat(s.e.shard).pinned, 0);
    assert_value(s.e.shard, "there", 1, 100000);
    session_close(&s);
}

static void locks_exclude_each_other(void **state)
{
    struct session s;
    struct pst_change check, again, write;

    (void)state;
    session_open(&s, &plain);
    check = change_of(&s, PST_CHANGE_CHECK, "k"); /* absent */
    again = check;
    write = put_change(&s, "k", 1, 10);
    assert_true(prepare(&s, &check));
    assert_true(prepare(&s, &again)); /* who only looks does not mind */
    assert_false(prepare(&s, &write));
    assert_int_equal(write.result, PST_BUSY);
    pst_changes_undo(s.e.shard, &again);
    assert_false(prepare(&s, &write));
    apply(&s, &check, 1);
    assert_true(prepare(&s, &write));
    assert_false(prepare(&s, &again));
    pst_changes_undo(s.e.shard, &write);
    assert_null(find(s.e.shard, "k"));
    assert_true(prepare(&s, &again));
    apply(&s, &again, 1);
    session_close(&s);
}

static void slots_are_lent_to_changes(void **state)
{
    struct session s;
    struct pst_slot *slot;
    struct pst_change c;

    (void)state;
    session_open(&s, &plain);
    slot = reserve(&s, "k", 100000, true);
    c = put_change(&s, "k", 0, 100000);
    c.slot_handle = pst_slot_handle(slot);
    assert_false(prepare(&s, &c));
    assert_int_equal(c.result, -ENODATA);
    assert_int_equal(write_slot(&s, slot, 4, 0, 100000), 0);
    assert_true(prepare(&s, &c));
    pst_changes_undo(s.e.shard, &c); /* it is the slot's again */
    assert_true(prepare(&s, &c));
    pst_holder_end(s.e.shard, &s.holder); /* the session ends when the commit is decided */
    apply(&s, &c, 1);
    assert_value(s.e.shard, "k", 4, 100000);
    assert_int_equal(later_of(&s).slots, 0);
    assert_false(prepare(&s, &c));
    assert_int_equal(c.result, -ENOENT);
    session_close(&s);
}

static void pins_follow_changes(void **state)
{
    struct session s;
    struct pst_change c;

    (void)state;
    session_open(&s, &plain);
    put(&s.e, "k", 1, 10);
    assert_int_equal(pin(&s.e, "k", 0), 0);
    c = put_change(&s, "k", 2, 20);
    assert_true(prepare(&s, &c));
    apply(&s, &c, 1);
    assert_value(s.e.shard, "k", 2, 20);
    assert_int_equal(later_of(&s).pinned_bytes, 20);
    assert_int_equal(unpin(&s.e, "k"), 0);
    assert_int_equal(unpin(&s.e, "k"), -EINVAL);
    assert_int_equal(shard_stat(s.e.shard).pinned, 0);
    session_close(&s);
}

static void quotas_count_exactly(void **state)
{
    struct pst_quota q = {.slots_max = 2, .pins_max = 1, .bytes_max = 100};

    (void)state;
    assert_int_equal(pst_quota_take_slot(&q), 0);
    assert_int_equal(pst_quota_take_slot(&q), 0);
    assert_int_equal(pst_quota_take_slot(&q), -EDQUOT);
    pst_quota_give_slot(&q);
    assert_int_equal(pst_quota_take_slot(&q), 0);
    assert_int_equal(pst_quota_take_bytes(&q, UINT64_MAX), -EDQUOT);
    assert_int_equal(pst_quota_take_bytes(&q, 100), 0);
    assert_int_equal(pst_quota_take_bytes(&q, 1), -EDQUOT);
    pst_quota_give_bytes(&q, 100);
    assert_int_equal(q.bytes, 0);
    assert_int_equal(pst_quota_take_pin(&q), 0);
    assert_int_equal(pst_quota_take_pin(&q), -EDQUOT);
    pst_quota_give_pin(&q);
    pst_quota_give_pin(&q); /* the second was somebody else's */
    assert_int_equal(q.pins, 0);
    assert_int_equal(pst_quota_take_bytes(NULL, 1), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(spans_are_exact),
        cmocka_unit_test(growing_slots_end_up_like_puts),
        cmocka_unit_test(memory_stays_until_the_last_user),
        cmocka_unit_test(commits_are_remembered_for_a_while),
        cmocka_unit_test(changes_apply_together),
        cmocka_unit_test(failed_changes_leave_nothing),
        cmocka_unit_test(locks_exclude_each_other),
        cmocka_unit_test(slots_are_lent_to_changes),
        cmocka_unit_test(pins_follow_changes),
        cmocka_unit_test(quotas_count_exactly),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
