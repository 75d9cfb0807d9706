/* SPDX-License-Identifier: Apache-2.0 */
/* test_chain.c: who fetches from whom in a pipelined broadcast, and what a member does next. */
#include "lib/cm.h"

#include "files/chain/chain.h"
#include "files/chain/turns.h"

#include <stdio.h>

static void join(struct pst_chain *chain, uint32_t wanted)
{
    char host[16];
    struct pst_chain_address address = {host, (uint16_t)(1000 + wanted)};
    uint32_t rank;

    snprintf(host, sizeof(host), "10.0.0.%u", wanted);
    assert_int_equal(pst_chain_join(chain, 100 + wanted, &address, 0, &rank), 0);
    assert_int_equal(rank, wanted);
}

static struct pst_chain *chain_of(uint32_t members)
{
    struct pst_chain *chain = pst_chain_open();

    assert_non_null(chain);
    for (uint32_t rank = 1; rank <= members; rank++)
        join(chain, rank);
    return chain;
}

static struct pst_chain_place place_of(struct pst_chain *chain, uint32_t rank)
{
    struct pst_chain_place place;

    pst_chain_place(chain, rank, &place);
    return place;
}

static int report(struct pst_chain *chain, uint32_t rank, uint32_t parent, enum pst_chain_fault fault)
{
    return pst_chain_report(chain, rank, 100 + rank, parent, fault, 0);
}

static int progress(struct pst_chain *chain, uint32_t rank, uint32_t pieces, bool done)
{
    return pst_chain_progress(chain, rank, 100 + rank, pieces, done, 7);
}

/* The row behind the source is @ranks, 0 behind the last. */
static void assert_row(struct pst_chain *chain, const uint32_t *ranks)
{
    for (uint32_t parent = 0; *ranks; parent = *ranks++)
        assert_int_equal(place_of(chain, *ranks).parent_rank, parent);
}

#define ASSERT_ROW(chain, ...) assert_row(chain, (const uint32_t[]){__VA_ARGS__, 0})

static void members_stand_in_a_row(void **state)
{
    struct pst_chain *chain = chain_of(40);

    (void)state;
    for (uint32_t rank = 1; rank <= 40; rank++) {
        struct pst_chain_place place = place_of(chain, rank);
        char host[16];

        snprintf(host, sizeof(host), "10.0.0.%u", rank - 1);
        assert_int_equal(place.parent_rank, rank - 1);
        assert_int_equal(place.parent.port, rank > 1 ? 1000 + rank - 1 : 0);
        if (rank > 1)
            assert_string_equal(place.parent.host, host);
        else
            assert_null(place.parent.host);
    }
    join(chain, 17); /* again */
    assert_int_equal(place_of(chain, 17).parent_rank, 16);
    assert_int_equal(pst_chain_count(chain), 40);
    pst_chain_close(chain);
}

static void a_silent_member_is_stepped_over(void **state)
{
    struct pst_chain *chain = chain_of(4);

    (void)state;
    assert_int_equal(report(chain, 3, 2, PST_CHAIN_SILENT), 0);
    ASSERT_ROW(chain, 1, 3, 4);
    assert_int_equal(report(chain, 3, 2, PST_CHAIN_SILENT), 0); /* its answer was lost */
    ASSERT_ROW(chain, 1, 3, 4);
    assert_int_equal(report(chain, 3, 1, PST_CHAIN_SILENT), 0);
    ASSERT_ROW(chain, 3, 4);
    assert_int_equal(report(chain, 3, 0, PST_CHAIN_SILENT), PST_CHAIN_IS_SOURCE);
    ASSERT_ROW(chain, 3, 4);
    pst_chain_close(chain);
}

static void a_member_that_lives_joins_again(void **state)
{
    struct pst_chain *chain = chain_of(4);

    (void)state;
    report(chain, 2, 1, PST_CHAIN_SILENT);
    report(chain, 3, 2, PST_CHAIN_SILENT);
    ASSERT_ROW(chain, 3, 4);
    /* What it says of its parent has come from its own absence. */
    assert_int_equal(report(chain, 2, 0, PST_CHAIN_SILENT), 0);
    ASSERT_ROW(chain, 3, 4, 2);
    assert_int_equal(progress(chain, 1, 5, false), 0);
    ASSERT_ROW(chain, 3, 4, 2, 1);
    join(chain, 5);
    ASSERT_ROW(chain, 3, 4, 2, 1, 5);
    pst_chain_close(chain);
}

static void wrong_bytes_make_nobodys_parent(void **state)
{
    struct pst_chain *chain = chain_of(3);

    (void)state;
    assert_int_equal(report(chain, 2, 1, PST_CHAIN_WRONG_BYTES), 0);
    assert_int_equal(progress(chain, 1, 5, false), 0);
    ASSERT_ROW(chain, 2, 3, 1);
    join(chain, 4);
    ASSERT_ROW(chain, 2, 3, 4, 1);
    report(chain, 4, 3, PST_CHAIN_WRONG_BYTES);
    progress(chain, 3, 5, false);
    join(chain, 5);
    ASSERT_ROW(chain, 2, 4, 5, 1, 3);
    pst_chain_close(chain);
}

static void a_member_leaves_when_nobody_waits(void **state)
{
    struct pst_chain *chain = chain_of(3);

    (void)state;
    assert_false(place_of(chain, 3).may_leave);
    progress(chain, 1, 9, true);
    assert_false(place_of(chain, 1).may_leave);
    progress(chain, 2, 9, true);
    assert_true(place_of(chain, 1).may_leave);
    progress(chain, 3, 9, true);
    assert_true(place_of(chain, 3).may_leave);
    assert_int_equal(pst_chain_leave(chain, 3, 103), 0);
    assert_int_equal(pst_chain_leave(chain, 1, 101), 0);
    ASSERT_ROW(chain, 2);
    assert_int_equal(pst_chain_leave(chain, 1, 101), -ENOENT);
    assert_int_equal(progress(chain, 1, 9, true), -ENOENT);
    join(chain, 4);
    ASSERT_ROW(chain, 2, 4);
    assert_false(place_of(chain, 2).may_leave);
    pst_chain_close(chain);
}

static void strangers_change_nothing(void **state)
{
    struct pst_chain *chain = chain_of(2);
    const struct pst_chain_address none = {"", 1}, no_port = {"10.0.0.1", 0};
    uint32_t rank;

    (void)state;
    assert_int_equal(pst_chain_progress(chain, 1, 102, 0, false, 0), -ENOENT);
    assert_int_equal(pst_chain_progress(chain, 0, 0, 0, false, 0), -ENOENT);
    assert_int_equal(pst_chain_report(chain, 9, 109, 1, PST_CHAIN_SILENT, 0), -ENOENT);
    assert_int_equal(pst_chain_report(chain, 2, 101, 1, PST_CHAIN_SILENT, 0), -ENOENT);
    assert_int_equal(pst_chain_leave(chain, 2, 101), -ENOENT);
    assert_int_equal(pst_chain_join(chain, 200, &none, 0, &rank), -EINVAL);
    assert_int_equal(pst_chain_join(chain, 200, &no_port, 0, &rank), -EINVAL);
    ASSERT_ROW(chain, 1, 2);
    assert_int_equal(pst_chain_count(chain), 2);
    pst_chain_close(chain);
}

static void take_member(void *arg, const struct pst_chain_member *member)
{
    struct pst_chain_member *members = arg;

    members[member->rank] = *member;
}

static void members_are_listed(void **state)
{
    struct pst_chain *chain = chain_of(4);
    struct pst_chain_member members[5];

    (void)state;
    progress(chain, 1, 9, true);
    progress(chain, 3, 4, false);
    report(chain, 3, 2, PST_CHAIN_WRONG_BYTES);
    pst_chain_leave(chain, 4, 104);
    pst_chain_list(chain, take_member, members);
    assert_int_equal(members[1].state, PST_CHAIN_DONE);
    assert_int_equal(members[2].state, PST_CHAIN_OUT);
    assert_true(members[2].refused && members[2].reports == 1);
    assert_int_equal(members[3].state, PST_CHAIN_FETCHES);
    assert_true(members[3].pieces == 4 && members[3].heard_ms == 0 && members[3].parent_rank == 1);
    assert_int_equal(members[4].state, PST_CHAIN_LEFT);
    pst_chain_close(chain);
}

static void a_parent_sends_beats_or_waits(void **state)
{
    struct pst_served child = {.next = 2, .said_ms = 1000};
    uint32_t wait_ms = 0;

    (void)state;
    assert_int_equal(pst_serve_turn(&child, 3, 4, 9000, &wait_ms), PST_SERVE_PIECE);
    assert_int_equal(pst_serve_turn(&child, 2, 4, 1100, &wait_ms), PST_SERVE_WAIT);
    assert_int_equal(wait_ms, PST_CHAIN_BEAT_MS - 100);
    assert_int_equal(pst_serve_turn(&child, 1, 4, 1500, &wait_ms), PST_SERVE_BEAT); /* the child is ahead */
    child.next = 4;
    assert_int_equal(pst_serve_turn(&child, 4, 4, 1500, &wait_ms), PST_SERVE_END);
    assert_int_equal(pst_serve_turn(&child, 1, 4, 1500, &wait_ms), PST_SERVE_END);
    assert_int_equal(pst_parent_patience_ms(1000, 900), PST_CHAIN_SILENCE_MS);
    assert_int_equal(pst_parent_patience_ms(1000, 1400), PST_CHAIN_SILENCE_MS - 400);
    assert_int_equal(pst_parent_patience_ms(1000, 1000 + PST_CHAIN_SILENCE_MS), 0);
}

static void it_is_over_when_nobody_calls(void **state)
{
    const struct pst_chain_address address = {"10.0.0.1", 7};
    struct pst_chain *chain = pst_chain_open();
    uint32_t first, second;

    (void)state;
    assert_true(pst_chain_is_over(chain, 0));
    assert_int_equal(pst_chain_join(chain, 1, &address, 1000, &first), 0);
    assert_int_equal(pst_chain_join(chain, 2, &address, 2000, &second), 0);
    assert_int_equal(pst_chain_leave(chain, second, 2), 0);
    assert_false(pst_chain_is_over(chain, 1000 + PST_CHAIN_GONE_MS - 1));
    assert_true(pst_chain_is_over(chain, 1000 + PST_CHAIN_GONE_MS));
    assert_int_equal(pst_chain_progress(chain, first, 1, 5, true, 9000), 0);
    assert_false(pst_chain_is_over(chain, 1000 + PST_CHAIN_GONE_MS));
    assert_int_equal(pst_chain_leave(chain, first, 1), 0);
    assert_true(pst_chain_is_over(chain, 9000));
    pst_chain_close(chain);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(members_stand_in_a_row),
        cmocka_unit_test(a_silent_member_is_stepped_over),
        cmocka_unit_test(a_member_that_lives_joins_again),
        cmocka_unit_test(wrong_bytes_make_nobodys_parent),
        cmocka_unit_test(a_member_leaves_when_nobody_waits),
        cmocka_unit_test(strangers_change_nothing),
        cmocka_unit_test(members_are_listed),
        cmocka_unit_test(a_parent_sends_beats_or_waits),
        cmocka_unit_test(it_is_over_when_nobody_calls),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
