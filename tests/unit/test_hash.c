#include "cm.h"

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

static void hash_depends_on_the_seed(void **state)
{
    (void)state;
    assert_int_equal(pst_hash64("key", 3, 1), pst_hash64("key", 3, 1));
    assert_int_not_equal(pst_hash64("key", 3, 1), pst_hash64("key", 3, 2));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(crc32c_known_answer),
        cmocka_unit_test(crc32c_goes_on),
        cmocka_unit_test(hash_depends_on_the_seed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
