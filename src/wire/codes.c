/* SPDX-License-Identifier: Apache-2.0 */
/* codes.c: the tables that codes.h's rows make. */
#include "wire/codes.h"

const uint32_t pst_code_traits_of[UINT8_MAX + 1] = {
#define X(code, number, word, traits) [number] = (traits),
    PST_WIRE_CODES(X)
#undef X
        [PST_WIRE_ROLE_FIRST... PST_WIRE_ROLE_LAST] = PST_CODE_ROLE,
};

_Static_assert(PST_WIRE_ROLE_FIRST <= PST_WIRE_ROLE_LAST && PST_WIRE_ROLE_LAST <= UINT8_MAX,
               "a role's codes");

const char *pst_code_word(uint8_t code)
{
    static const char *const words[] = {
#define X(code, number, word, traits) [number] = word,
        PST_WIRE_CODES(X)
#undef X
    };

    if (pst_code_of_role(code))
        return "pool";
    return code < pst_count_of(words) ? words[code] : NULL;
}
