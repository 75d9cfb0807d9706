/* SPDX-License-Identifier: Apache-2.0 */
/* What is kept behind a pool map: read as it was written, and left alone if it is anything else. */
#include "lib/cm.h"

#include "master/stored.h"

enum { MAP_BYTES = 20, LEASE_MS = 60000 };

static void the_end_comes_off(void **state)
{
    uint8_t data[MAP_BYTES + PST_STORED_END_BYTES] = {0};
    struct pst_bytes stored = {data, sizeof(data)};

    (void)state;
    pst_stored_put_end(data + MAP_BYTES, LEASE_MS);
    assert_int_equal(pst_stored_take_end(&stored), LEASE_MS);
    assert_int_equal(stored.len, MAP_BYTES);
    assert_int_equal(pst_stored_take_end(&stored), 0); /* as of an older program */
    assert_int_equal(stored.len, MAP_BYTES);
}

static void what_is_no_end_stays(void **state)
{
    uint8_t data[MAP_BYTES + PST_STORED_END_BYTES] = {0};
    struct pst_bytes alone = {data + MAP_BYTES, PST_STORED_END_BYTES};

    (void)state;
    pst_stored_put_end(data + MAP_BYTES, LEASE_MS);
    assert_int_equal(pst_stored_take_end(&alone), 0); /* else a pool would begin from it as from nothing */
    assert_int_equal(alone.len, PST_STORED_END_BYTES);
    for (size_t i = MAP_BYTES; i < sizeof(data); i++) {
        struct pst_bytes stored = {data, sizeof(data)};

        data[i] ^= 1;
        assert_int_equal(pst_stored_take_end(&stored), 0);
        assert_int_equal(stored.len, sizeof(data));
        data[i] ^= 1;
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_end_comes_off),
                                       cmocka_unit_test(what_is_no_end_stays)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
