/* SPDX-License-Identifier: Apache-2.0 */
/* test_pieces.c: a tree as a row of pieces. */
#include "lib/cm.h"

#include "files/chain/pieces.h"

#define MIB (1ull << 20)

static void sizes_follow_members_and_bytes(void **state)
{
    (void)state;
    assert_int_equal(pst_piece_bytes(2, 256 * MIB), MIB);
    assert_int_equal(pst_piece_bytes(9, 256 * MIB), MIB);
    assert_int_equal(pst_piece_bytes(17, 256 * MIB), MIB);
    assert_int_equal(pst_piece_bytes(18, 256 * MIB), MIB / 2);
    assert_int_equal(pst_piece_bytes(1001, 256 * MIB), 16 << 10);
    assert_int_equal(pst_piece_bytes(100000, 256 * MIB), 16 << 10);
    assert_int_equal(pst_piece_bytes(0, 1), 16 << 10);
    assert_int_equal(pst_piece_bytes(1001, 0), 16 << 10);
    assert_int_equal(pst_piece_bytes(UINT32_MAX, MIB << 20), 256 << 10); /* else too many */
    assert_int_equal(pst_piece_bytes(2, MIB * PST_PIECES_MAX), MIB);
    assert_int_equal(pst_piece_bytes(2, MIB * PST_PIECES_MAX + 1), 0);
}

static void a_chain_pays_for_many_and_much(void **state)
{
    (void)state;
    assert_false(pst_chain_pays(0, 256 * MIB, 50));
    assert_false(pst_chain_pays(2, 256 * MIB, 50));
    assert_true(pst_chain_pays(3, 256 * MIB, 50));
    assert_true(pst_chain_pays(9, 256 * MIB, 50));
    assert_true(pst_chain_pays(1001, 256 * MIB, 50));
    assert_false(pst_chain_pays(3, 64 << 10, 50));
    assert_false(pst_chain_pays(1001, MIB, 50));
    assert_true(pst_chain_pays(1001, 16 * MIB, 50));
    assert_false(pst_chain_pays(9, 0, 50));
    assert_false(pst_chain_pays(9, MIB * PST_PIECES_MAX + 1, 50));
    assert_true(pst_chain_pays(1001, 64 * MIB, 1));
}

/* Every byte of every file comes once, in the row's order. */
static void check_row(const uint64_t *starts, uint32_t entries, uint32_t piece_bytes)
{
    const struct pst_pieces pieces = {starts, entries, piece_bytes};
    uint32_t count = pst_pieces_count(&pieces);
    uint64_t at = 0;

    for (uint32_t piece = 0; piece < count; piece++) {
        struct pst_piece_walk walk;
        struct pst_piece_part part;
        uint32_t length = 0;

        assert_true(at == (uint64_t)piece * piece_bytes);
        pst_piece_walk(&pieces, piece, &walk);
        while (pst_piece_next(&walk, &part)) {
            assert_true(part.bytes > 0 && starts[part.entry] + part.at == at);
            assert_true(at + part.bytes <= starts[part.entry + 1]);
            at += part.bytes;
            length += part.bytes;
        }
        assert_int_equal(length, pst_piece_length(&pieces, piece));
        assert_true(length == piece_bytes || piece == count - 1);
    }
    assert_true(at == starts[entries]);
}

static void parts_cover_the_row(void **state)
{
    const uint64_t one[] = {0, 5}, none[] = {0, 0, 0}, mixed[] = {0, 0, 3, 3, 3, 10, 100, 100, 101, 101};
    uint64_t many[400] = {0};

    (void)state;
    for (uint32_t i = 1; i < 400; i++)
        many[i] = many[i - 1] + (i * 7919 % 13 == 0 ? 0 : i * 7919 % 97);
    for (uint32_t piece_bytes = 1; piece_bytes < 120; piece_bytes++) {
        check_row(one, 1, piece_bytes);
        check_row(none, 2, piece_bytes);
        check_row(mixed, 9, piece_bytes);
        check_row(many, 399, piece_bytes);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_follow_members_and_bytes),
        cmocka_unit_test(a_chain_pays_for_many_and_much),
        cmocka_unit_test(parts_cover_the_row),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
