/* SPDX-License-Identifier: Apache-2.0 */
#include "base/hex.h"

void pst_hex_print(const uint8_t *from, size_t bytes, char *to)
{
    static const char digits[] = "0123456789abcdef";

    pst_assert(to);
    for (size_t i = 0; i < bytes; i++) {
        *to++ = digits[from[i] >> 4];
        *to++ = digits[from[i] & 15];
    }
    *to = '\0';
}

int pst_hex_digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

int pst_hex_digit_any_case(char c)
{
    return pst_hex_digit((char)(c >= 'A' && c <= 'F' ? c - 'A' + 'a' : c));
}

bool pst_hex_parse(const char *from, uint8_t *to, size_t bytes)
{
    pst_assert(from || bytes == 0);
    pst_assert(to || bytes == 0);
    for (size_t i = 0; i < bytes; i++) {
        int high = pst_hex_digit(from[2 * i]), low = high < 0 ? -1 : pst_hex_digit(from[2 * i + 1]);

        if (low < 0)
            return false;
        to[i] = (uint8_t)(high << 4 | low);
    }
    return true;
}
