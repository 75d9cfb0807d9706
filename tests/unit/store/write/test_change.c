/* SPDX-License-Identifier: Apache-2.0 */
/* test_change.c: changes of several keys, which apply together or not at all. */
#include "lib/reservation_rig.h"

#include <penstock/penstock.h>

static struct pst_change *chain(struct pst_change *changes, size_t count)
{
    for (size_t i = 0; i + 1 < count; i++)
        changes[i].next = &changes[i + 1];
    return changes;
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

static void reservations_are_lent_to_changes(void **state)
{
    struct session s;
    struct pst_reservation *reservation;
    struct pst_answer answer;
    struct iovec pieces[8];
    struct pst_change c;

    (void)state;
    session_open(&s, &plain);
    reservation = reserve(&s, "k", 100000, true);
    c = put_change(&s, "k", 0, 100000);
    c.from = PST_VALUE_RESERVATION;
    c.reservation_handle = pst_reservation_handle(reservation);
    assert_false(prepare(&s, &c));
    assert_int_equal(c.result, -ENODATA);
    assert_int_equal(write_reservation(&s, reservation, 4, 0, 100000), 0);
    assert_true(prepare(&s, &c));
    assert_int_equal(write_reservation(&s, reservation, 5, 0, 100000),
                     PST_BUSY); /* and not what the commit shows */
    assert_int_equal(pst_reservation_write(s.e.shard, reservation, 100000, 1, s.e.now_ns), PST_BUSY);
    assert_int_equal(pst_reservation_map(s.e.shard, reservation, pieces, 8), -EBUSY);
    assert_int_equal(commit(&s, "k", reservation, 100000, &answer), PST_BUSY);
    pst_changes_undo(s.e.shard, &c); /* it is the reservation's again */
    assert_int_equal(write_reservation(&s, reservation, 4, 0, 1), 0);
    assert_true(prepare(&s, &c));
    pst_holder_end(s.e.shard, &s.holder); /* the session ends when the commit is decided */
    apply(&s, &c, 1);
    assert_value(s.e.shard, "k", 4, 100000);
    assert_int_equal(later_of(&s).reservations, 0);
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

static int pin_by(struct session *s, struct pst_holder *holder, const char *key)
{
    struct pst_lookup lookup = pst_shard_lookup(s->e.shard, bytes_of(key));

    return pst_shard_pin(s->e.shard, holder, &lookup, 0, s->e.now_ns);
}

static int unpin_by(struct session *s, struct pst_holder *holder, const char *key)
{
    struct pst_lookup lookup = pst_shard_lookup(s->e.shard, bytes_of(key));

    return pst_shard_unpin(s->e.shard, holder, &lookup);
}

static void pins_count_against_who_made_them(void **state)
{
    struct pst_quota quota = {.pins_max = 3};
    struct pst_holder other;
    struct session s;

    (void)state;
    session_open(&s, &plain);
    s.quota.pins_max = 2;
    pst_holder_init(&other, &quota);
    put(&s.e, "k", 1, 10);
    put(&s.e, "l", 1, 10);
    assert_int_equal(pin_by(&s, &s.holder, "k"), 0);
    assert_int_equal(pin_by(&s, &s.holder, "k"), 0);
    assert_int_equal(pin_by(&s, &s.holder, "l"), -EDQUOT);
    assert_int_equal(shard_stat(s.e.shard).pinned, 1);
    assert_int_equal(pin_by(&s, &other, "k"), 0);
    assert_int_equal(pin_by(&s, &other, "l"), 0);
    assert_int_equal(unpin_by(&s, &other, "k"), 0); /* its own first */
    assert_int_equal(s.quota.pins, 2);
    assert_int_equal(quota.pins, 1);
    assert_int_equal(unpin_by(&s, &other, "k"), 0); /* then another's, which has one less */
    assert_int_equal(s.quota.pins, 1);
    assert_int_equal(quota.pins, 1);
    put(&s.e, "k", 2, 20);
    assert_int_equal(s.quota.pins, 1);
    assert_int_equal(delete_key(s.e.shard, "k"), 0); /* no key, no pin */
    assert_int_equal(s.quota.pins, 0);
    pst_holder_end(s.e.shard, &other); /* the pin stays, and is nobody's */
    assert_int_equal(quota.pins, 0);
    assert_int_equal(pin_by(&s, &s.holder, "l"), 0);
    assert_int_equal(unpin_by(&s, NULL, "l"), 0);
    assert_int_equal(s.quota.pins, 1);
    assert_int_equal(unpin_by(&s, NULL, "l"), 0);
    assert_int_equal(s.quota.pins, 0);
    assert_int_equal(unpin_by(&s, NULL, "l"), -EINVAL);
    session_close(&s);
}

/* A commit that other nodes have to have first comes to nothing, in every way that leaves the reservation
 * there. */
static void what_came_to_nothing_is_committed_later(void **state)
{
    static const int results[] = {PST_BUSY, -EOPNOTSUPP, -EFBIG, -ESTALE};
    static const uint64_t sizes[] = {0, 100, 3000, 65536, 70000, 200000};
    struct session s;
    struct pst_change c;
    struct pst_answer answer, again;
    struct pst_record *record;
    bool before;

    (void)state;
    session_open(&s, &plain);
    for (size_t i = 0; i < 2 * pst_count_of(sizes) * pst_count_of(results); i++) {
        uint64_t bytes = sizes[i / 2 % pst_count_of(sizes)], more = i % 3 ? 0 : 50000 * (i % 2);
        uint64_t pages = engine_pages_used(&s.e);
        struct pst_reservation *reservation = reserve(&s, "k", i % 2 ? PST_RESERVATION_GROWS : bytes, true);
        struct pst_reservation_named named = named_of(&s, "k", reservation, bytes);
        int result = results[i / 2 / pst_count_of(sizes)];

        named.checksum = true;
        named.crc = 77; /* of bytes that are written over */
        assert_int_equal(write_reservation(&s, reservation, 3, 0, bytes), 0);
        c = change_of(&s, PST_CHANGE_PUT, "k");
        assert_int_equal(
            pst_reservation_prepare(s.e.shard, &s.holder, &named, s.e.now_ns, &c.put, &before, &answer), 0);
        assert_false(before);
        c.from = PST_VALUE_RESERVATION;
        c.reservation_handle = named.handle;
        assert_true(prepare(&s, &c));
        assert_int_equal(
            pst_reservation_prepare(s.e.shard, &s.holder, &named, s.e.now_ns, &c.put, &before, &answer),
            PST_BUSY);
        pst_changes_undo(s.e.shard, &c);
        pst_reservation_ended(s.e.shard, &s.holder, named.handle, c.put.lookup.hash, result, &answer);
        assert_int_equal(write_reservation(&s, reservation, 4, 0, bytes + more), 0);
        named.bytes = bytes + more;
        named.checksum = false;
        assert_int_equal(
            pst_reservation_prepare(s.e.shard, &s.holder, &named, s.e.now_ns, &c.put, &before, &answer), 0);
        assert_true(prepare(&s, &c));
        apply(&s, &c, 1);
        pst_reservation_ended(s.e.shard, &s.holder, named.handle, c.put.lookup.hash, PST_OK, &c.answer);
        assert_value(s.e.shard, "k", 4, bytes + more);
        record = find(s.e.shard, "k");
        assert_false(record->flags & PST_RECORD_CHECKSUM);
        assert_int_equal(
            pst_reservation_prepare(s.e.shard, &s.holder, &named, s.e.now_ns, &c.put, &before, &again), 0);
        assert_true(before);
        assert_int_equal(again.generation, record->generation);
        assert_int_equal(later_of(&s).reservation_bytes, 0);
        assert_int_equal(delete_key(s.e.shard, "k"), 0);
        assert_true(engine_pages_used(&s.e) <= pages + 2); /* slabs */
    }
    session_close(&s);
}

/* And in the others. */
static void what_cannot_be_committed_is_given_up(void **state)
{
    static const int results[] = {PST_EXISTS, PST_STALE, -ENOSPC, PENSTOCK_UNKNOWN};
    struct session s;

    (void)state;
    session_open(&s, &plain);
    for (size_t i = 0; i < pst_count_of(results); i++) {
        struct pst_reservation *reservation = reserve(&s, "k", 10, false);
        uint64_t handle = pst_reservation_handle(reservation);
        struct pst_answer answer = {0};

        pst_reservation_ended(s.e.shard, &s.holder, handle, 0, results[i], &answer);
        assert_null(pst_reservation_find(&s.holder, handle));
        assert_int_equal(later_of(&s).reservations, 0);
    }
    session_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(changes_apply_together),
        cmocka_unit_test(failed_changes_leave_nothing),
        cmocka_unit_test(locks_exclude_each_other),
        cmocka_unit_test(reservations_are_lent_to_changes),
        cmocka_unit_test(what_came_to_nothing_is_committed_later),
        cmocka_unit_test(what_cannot_be_committed_is_given_up),
        cmocka_unit_test(pins_follow_changes),
        cmocka_unit_test(pins_count_against_who_made_them),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
