/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/cm.h"

#include "base/hash.h"

static void crc32c_known_answer(void **state)
{
    (void)state;
    assert_int_equal(pst_crc32c(0, "123456789", 9), 0xe3069283u); /* RFC 3720, B.4 */
}

static void crc32c_goes_on(void **state)
{
    (void)state;
    assert_int_equal(pst_crc32c(pst_crc32c(0, "1234", 4), "56789", 5), 0xe3069283u);
    assert_int_equal(pst_crc32c(7, "", 0), 7);
}

static void other_crcs(void **state)
{
    char text[100];

    (void)state;
    assert_int_equal(pst_crc32(0, "123456789", 9), 0xcbf43926u);
    assert_int_equal(pst_crc32(pst_crc32(0, "1234", 4), "56789", 5), 0xcbf43926u);
    assert_true(pst_crc64nvme(0, "123456789", 9) == 0xae8b14860a799888u);
    for (size_t i = 0; i < sizeof(text); i++)
        text[i] = (char)(7 * i);
    for (size_t i = 0; i < sizeof(text); i++)
        assert_true(pst_crc64nvme(pst_crc64nvme(0, text, i), text + i, sizeof(text) - i) ==
                    pst_crc64nvme(0, text, sizeof(text)));
}

static void hash_depends_on_the_seed(void **state)
{
    (void)state;
    assert_int_equal(pst_hash64("key", 3, 1), pst_hash64("key", 3, 1));
    assert_int_not_equal(pst_hash64("key", 3, 1), pst_hash64("key", 3, 2));
}

/* The upper half of 128 bits is no repetition of the lower one, and has the seed in it, too. */
static void all_of_128_bits_depend_on_key_and_seed(void **state)
{
    struct pst_hash128 hash = pst_hash128("key", 3, 1), same = pst_hash128("key", 3, 1);
    struct pst_hash128 others[] = {pst_hash128("key", 3, 2), pst_hash128("kez", 3, 1), {hash.high, hash.low}};

    (void)state;
    assert_memory_equal(&hash, &same, sizeof(hash));
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        assert_true(others[i].low != hash.low);
        assert_true(others[i].high != hash.high);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(crc32c_known_answer),
        cmocka_unit_test(crc32c_goes_on),
        cmocka_unit_test(other_crcs),
        cmocka_unit_test(hash_depends_on_the_seed),
        cmocka_unit_test(all_of_128_bits_depend_on_key_and_seed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
