/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/reservation_rig.h"

/* Spans in random order, compared with a map of bytes. */
static void spans_are_exact(void **state)
{
    enum { BYTES = 400 };
    struct session s;

    (void)state;
    session_open(&s, &plain);
    for (int round = 0; round < 300; round++) {
        struct pst_reservation *reservation = reserve(&s, "k", BYTES, false);
        bool map[BYTES] = {0};
        struct pst_answer answer;
        int writes = (int)(random_next() % 40), whole = 1, r;

        for (int i = 0; i < writes; i++) {
            uint64_t from = random_next() % BYTES, to = from + random_next() % (BYTES - from + 1);

            r = write_reservation(&s, reservation, 3, from, to);
            assert_true(r == 0 || r == -E2BIG);
            if (r == 0)
                memset(map + from, 1, to - from);
        }
        for (int i = 0; i < BYTES; i++)
            whole &= map[i];
        r = commit(&s, "k", reservation, BYTES, &answer);
        assert_int_equal(r, whole ? 0 : -ENODATA);
        if (whole) {
            assert_value(s.e.shard, "k", 3, BYTES);
            assert_int_equal(delete_key(s.e.shard, "k"), 0);
        }
    }
    assert_int_equal(later_of(&s).reservations, 0);
    session_close(&s);
}

static void growing_reservations_end_up_like_puts(void **state)
{
    static const uint64_t sizes[] = {0,     1,     2048,   2049,   30000,  32768,  32769,  65536,
                                     65537, 70000, 131072, 200000, 262144, 300001, 1000000};
    struct session s;

    (void)state;
    session_open(&s, &plain);
    for (size_t i = 0; i < pst_count_of(sizes); i++) {
        struct pst_reservation *reservation = reserve(&s, "k", PST_RESERVATION_GROWS, true);
        struct pst_answer answer;
        uint64_t by_reservation;

        for (uint64_t at = 0, next; at < sizes[i]; at = next) {
            next = pst_min(sizes[i], at + 1 + random_next() % 100000);
            assert_int_equal(write_reservation(&s, reservation, 5, at, next), 0);
        }
        assert_int_equal(commit(&s, "k", reservation, sizes[i], &answer), 0);
        assert_int_equal(answer.value_bytes, sizes[i]);
        assert_value(s.e.shard, "k", 5, sizes[i]);
        by_reservation = engine_pages_used(&s.e);
        put(&s.e, "k", 6, sizes[i]);
        assert_int_equal(engine_pages_used(&s.e), by_reservation);
        assert_value(s.e.shard, "k", 6, sizes[i]);
        assert_int_equal(delete_key(s.e.shard, "k"), 0);
        assert_int_equal(later_of(&s).reservation_bytes, 0);
    }
    session_close(&s);
}

/* The pages of what did not land, behind what did. */
static void pages_beyond_the_value_go_back(void **state)
{
    static const uint64_t sizes[] = {0, 1, 2048, 3000, 40000, 65536, 70000, 131072, 200000, 1500000};
    struct session s;

    (void)state;
    session_open(&s, &plain);
    for (size_t i = 0; i < pst_count_of(sizes); i++) {
        struct pst_reservation *reservation = reserve(&s, "k", PST_RESERVATION_GROWS, true);
        struct pst_answer answer;
        uint64_t by_reservation;

        assert_int_equal(pst_reservation_write(s.e.shard, reservation, 500000, 2000000, s.e.now_ns), 0);
        pst_reservation_written(s.e.shard, reservation, 500000, 2000000, false);
        assert_int_equal(write_reservation(&s, reservation, 5, 0, sizes[i]), 0);
        assert_int_equal(commit(&s, "k", reservation, sizes[i], &answer), 0);
        assert_value(s.e.shard, "k", 5, sizes[i]);
        by_reservation = engine_pages_used(&s.e);
        put(&s.e, "k", 6, sizes[i]);
        assert_int_equal(by_reservation, engine_pages_used(&s.e));
        assert_int_equal(delete_key(s.e.shard, "k"), 0);
        assert_int_equal(later_of(&s).reservation_bytes, 0);
        assert_int_equal(s.quota.bytes, 0);
    }
    session_close(&s);
}

static void empty_writes_take_no_pages(void **state)
{
    struct session s;
    struct pst_reservation *reservation;
    struct pst_answer answer;

    (void)state;
    session_open(&s, &plain);
    reservation = reserve(&s, "k", PST_RESERVATION_GROWS, true);
    assert_int_equal(write_reservation(&s, reservation, 5, 2000000, 2000000), 0);
    assert_int_equal(later_of(&s).reservation_bytes, 0);
    assert_int_equal(engine_pages_used(&s.e), 0);
    assert_int_equal(write_reservation(&s, reservation, 5, UINT64_MAX, UINT64_MAX), -EFBIG);
    assert_int_equal(write_reservation(&s, reservation, 5, 0, 3000), 0);
    assert_int_equal(commit(&s, "k", reservation, 3000, &answer), 0);
    assert_value(s.e.shard, "k", 5, 3000);
    session_close(&s);
}

static int land(struct session *s, struct pst_reservation *reservation, uint64_t from, uint64_t to)
{
    int r = pst_reservation_write(s->e.shard, reservation, from, to - from, s->e.now_ns);

    if (r == 0)
        pst_reservation_written(s->e.shard, reservation, from, to - from, true);
    return r;
}

/* As many pieces of memory as one record names, and no more. */
static void growing_reservations_end_with_their_record(void **state)
{
    const struct engine_shape shape = {.page_bytes = 64 << 10, .pages = 8900, .cache_prefix = "c/"};
    struct pst_answer answer;
    struct session s;
    struct pst_reservation *reservation;
    uint64_t bytes = 0;

    (void)state;
    session_open(&s, &shape);
    for (uint32_t i = 0; i < 100; i++) {
        put(&s.e, key_name("c/", i), i, shape.page_bytes);
        put(&s.e, key_name("kept/", i), i, shape.page_bytes);
    }
    engine_scatter_pages(&s.e, engine_take_pages(&s.e, 8600));
    reservation = reserve(&s, "k", PST_RESERVATION_GROWS, true);
    while (land(&s, reservation, bytes, bytes + shape.page_bytes) == 0)
        bytes += shape.page_bytes;
    assert_int_equal(land(&s, reservation, bytes, bytes + shape.page_bytes), -ENOSPC);
    assert_int_equal(land(&s, reservation, 100, 200), 0);
    assert_in_range(bytes / shape.page_bytes, 4000, 4096);
    assert_int_equal(commit(&s, "k", reservation, bytes, &answer), 0);
    assert_int_equal(answer.value_bytes, bytes);
    assert_int_equal(shard_stat(s.e.shard).evictions, 0);
    session_close(&s);
}

static void memory_stays_until_the_last_user(void **state)
{
    struct session s;
    struct pst_reservation *reservation;

    (void)state;
    session_open(&s, &plain);
    reservation = reserve(&s, "k", 200000, false);
    assert_int_equal(pst_reservation_write(s.e.shard, reservation, 0, 100, s.e.now_ns), 0);
    assert_int_equal(commit(&s, "k", reservation, 200000, &(struct pst_answer){0}), PST_BUSY);
    pst_holder_end(s.e.shard, &s.holder); /* the session is gone; a transfer is not */
    assert_int_equal(s.quota.reservations, 0);
    assert_int_equal(later_of(&s).reservations, 1);
    assert_true(engine_pages_used(&s.e) > 0);
    pst_reservation_written(s.e.shard, reservation, 0, 100, false);
    assert_int_equal(later_of(&s).reservations, 0);
    assert_int_equal(engine_pages_used(&s.e), 0);
    session_close(&s);
}

static void commits_are_remembered_for_a_while(void **state)
{
    enum { COUNT = 300 };
    struct pst_reservation_named named = {.key = bytes_of("k"), .tier = PST_TIER_DRAM};
    struct pst_answer answers[COUNT], answer;
    uint64_t handles[COUNT];
    struct session s;

    (void)state;
    session_open(&s, &plain);
    for (int i = 0; i < COUNT; i++) {
        struct pst_reservation *reservation = reserve(&s, "k", 0, true);

        handles[i] = pst_reservation_handle(reservation);
        assert_int_equal(commit(&s, "k", reservation, 0, &answers[i]), 0);
    }
    for (int i = 0; i < COUNT; i++) {
        named.handle = handles[i];
        assert_int_equal(pst_reservation_commit(s.e.shard, &s.holder, &named, s.e.now_ns, &answer),
                         i < COUNT - 256 ? PST_MISS : 0);
        if (i >= COUNT - 256)
            assert_int_equal(answer.generation, answers[i].generation);
    }
    named.handle = 0;
    assert_int_equal(pst_reservation_commit(s.e.shard, &s.holder, &named, s.e.now_ns, &answer), PST_MISS);
    named.handle = handles[COUNT - 1];
    named.key = bytes_of("another");
    assert_int_equal(pst_reservation_commit(s.e.shard, &s.holder, &named, s.e.now_ns, &answer), PST_MISS);
    session_close(&s);
}

/* Given up while a commit has it, or while bytes are on their way into it: counted until it is gone. */
static void reservations_count_until_they_are_gone(void **state)
{
    struct session s;
    struct pst_reservation *reservation;
    struct pst_change c;

    (void)state;
    session_open(&s, &plain);
    reservation = reserve(&s, "k", 100000, true);
    assert_int_equal(write_reservation(&s, reservation, 4, 0, 100000), 0);
    c = put_change(&s, "k", 0, 100000);
    c.from = PST_VALUE_RESERVATION;
    c.reservation_handle = pst_reservation_handle(reservation);
    assert_true(prepare(&s, &c));
    pst_reservation_abort(s.e.shard, &s.holder, pst_reservation_handle(reservation));
    assert_null(pst_reservation_find(&s.holder, c.reservation_handle));
    assert_int_equal(s.quota.reservations, 1);
    assert_int_equal(s.quota.bytes, 100000);
    pst_changes_undo(s.e.shard, &c);
    assert_int_equal(s.quota.reservations, 0);
    assert_int_equal(s.quota.bytes, 0);
    reservation = reserve(&s, "k", 100000, false);
    assert_int_equal(pst_reservation_write(s.e.shard, reservation, 0, 100000, s.e.now_ns), 0);
    pst_reservation_abort(s.e.shard, &s.holder, pst_reservation_handle(reservation));
    assert_int_equal(s.quota.bytes, 100000);
    pst_reservation_written(s.e.shard, reservation, 0, 100000, true);
    assert_int_equal(s.quota.bytes, 0);
    assert_int_equal(engine_pages_used(&s.e), 0);
    session_close(&s);
}

/* Two of them count in a third, which has bounds of its own; what it refuses, nobody counts. */
static void quotas_count_in_one_above(void **state)
{
    struct pst_quota all = {.reservations_max = 2, .pins_max = 2, .bytes_max = 100};
    struct pst_quota a = {.above = &all, .bytes_max = 80}, b = {.above = &all};

    (void)state;
    assert_int_equal(pst_quota_take_reservation(&a), 0);
    assert_int_equal(pst_quota_take_reservation(&b), 0);
    assert_int_equal(pst_quota_take_reservation(&b), -EDQUOT);
    assert_int_equal(b.reservations, 1);
    pst_quota_give_reservation(&a);
    assert_int_equal(all.reservations, 1);
    assert_int_equal(pst_quota_take_pin(&a), 0);
    assert_int_equal(pst_quota_take_pin(&a), 0);
    assert_int_equal(pst_quota_take_pin(&b), -EDQUOT);
    pst_quota_give_pins(&a, 2);
    assert_int_equal(all.pins + a.pins + b.pins, 0);
    assert_int_equal(pst_quota_take_bytes(&a, 81), -EDQUOT); /* its own bound */
    assert_int_equal(pst_quota_take_bytes(&a, 80), 0);
    assert_int_equal(pst_quota_take_bytes(&b, 30), -EDQUOT);
    assert_int_equal(pst_quota_take_underway(&b, 20), 0);
    assert_int_equal(pst_quota_take_underway(&b, 20), PST_BUSY); /* until that has come */
    assert_int_equal(all.kept, 80);
    assert_int_equal(all.bytes, 100);
    pst_quota_give_underway(&b, 20);
    pst_quota_give_bytes(&a, 80);
    all.bytes_max = 10; /* a bound may change at any time */
    assert_int_equal(pst_quota_take_bytes(&b, 11), -EDQUOT);
    assert_int_equal(all.bytes + all.kept + a.bytes + b.bytes, 0);
}

static void quotas_count_exactly(void **state)
{
    struct pst_quota q = {.reservations_max = 2, .pins_max = 1, .bytes_max = 100};

    (void)state;
    assert_int_equal(pst_quota_take_reservation(&q), 0);
    assert_int_equal(pst_quota_take_reservation(&q), 0);
    assert_int_equal(pst_quota_take_reservation(&q), -EDQUOT);
    pst_quota_give_reservation(&q);
    assert_int_equal(pst_quota_take_reservation(&q), 0);
    assert_int_equal(pst_quota_take_bytes(&q, UINT64_MAX), -EDQUOT);
    assert_int_equal(pst_quota_take_bytes(&q, 100), 0);
    assert_int_equal(pst_quota_take_bytes(&q, 1), -EDQUOT);
    pst_quota_give_bytes(&q, 100);
    assert_int_equal(q.bytes, 0);
    assert_int_equal(pst_quota_take_bytes(&q, 30), 0);
    assert_int_equal(pst_quota_take_underway(&q, 60), 0);
    assert_int_equal(pst_quota_take_bytes(&q, 50), PST_BUSY); /* until that has come */
    assert_int_equal(pst_quota_take_underway(&q, 71), -EDQUOT);
    pst_quota_give_underway(&q, 60);
    assert_int_equal(pst_quota_take_underway(&q, 50), 0);
    pst_quota_give_underway(&q, 50);
    pst_quota_give_bytes(&q, 30);
    assert_int_equal(q.bytes + q.kept, 0);
    assert_int_equal(pst_quota_take_pin(&q), 0);
    assert_int_equal(pst_quota_take_pin(&q), -EDQUOT);
    pst_quota_give_pins(&q, 1);
    assert_int_equal(q.pins, 0);
    assert_int_equal(pst_quota_take_bytes(NULL, 1), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(spans_are_exact),
        cmocka_unit_test(growing_reservations_end_up_like_puts),
        cmocka_unit_test(pages_beyond_the_value_go_back),
        cmocka_unit_test(empty_writes_take_no_pages),
        cmocka_unit_test(growing_reservations_end_with_their_record),
        cmocka_unit_test(memory_stays_until_the_last_user),
        cmocka_unit_test(commits_are_remembered_for_a_while),
        cmocka_unit_test(reservations_count_until_they_are_gone),
        cmocka_unit_test(quotas_count_exactly),
        cmocka_unit_test(quotas_count_in_one_above),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
