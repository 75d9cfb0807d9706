/* SPDX-License-Identifier: Apache-2.0 */
/* test_relay_digest.c: digests of pieces, as other programs make them. */
#include "lib/cm.h"

#include "files/relay/relay_priv.h"

#include <stdio.h>

static void check(bool blake2b, const char *wanted)
{
    uint8_t out[PST_SHA256_BYTES + 1] = {[PST_SHA256_BYTES] = 0xa5};
    char text[2 * PST_SHA256_BYTES + 1];

    relay_digest(blake2b, "abc", 3, out);
    for (size_t i = 0; i < PST_SHA256_BYTES; i++)
        snprintf(text + 2 * i, 3, "%02x", out[i]);
    assert_string_equal(text, wanted);
    assert_int_equal(out[PST_SHA256_BYTES], 0xa5);
}

static void sha256_is_the_standard_s(void **state)
{
    (void)state;
    check(false, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

static void blake2b_is_its_first_half(void **state)
{
    (void)state;
    check(true, "ba80a53f981c4d0d6a2797b69f12f6e94c212f14685ac4b74b12bb6fdbffa2d1");
}

static void a_processor_always_prefers_the_same(void **state)
{
    (void)state;
    assert_int_equal(relay_prefers_blake2b(), relay_prefers_blake2b());
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sha256_is_the_standard_s),
        cmocka_unit_test(blake2b_is_its_first_half),
        cmocka_unit_test(a_processor_always_prefers_the_same),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
