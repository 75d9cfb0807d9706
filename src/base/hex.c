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
