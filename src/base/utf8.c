/* SPDX-License-Identifier: Apache-2.0 */
#include "base/utf8.h"

/* The length of the character at @at; 0: none, cut off, overlong, a surrogate or beyond Unicode. */
static size_t character(const uint8_t *at, size_t left)
{
    size_t bytes = at[0] < 0x80                    ? 1
                   : at[0] >= 0xc2 && at[0] < 0xe0 ? 2
                   : at[0] >= 0xe0 && at[0] < 0xf0 ? 3
                   : at[0] >= 0xf0 && at[0] < 0xf5 ? 4
                                                   : 0;

    if (bytes > left)
        return 0;
    for (size_t i = 1; i < bytes; i++)
        if ((at[i] & 0xc0) != 0x80)
            return 0;
    if ((at[0] == 0xe0 && at[1] < 0xa0) || (at[0] == 0xed && at[1] >= 0xa0) ||
        (at[0] == 0xf0 && at[1] < 0x90) || (at[0] == 0xf4 && at[1] >= 0x90))
        return 0;
    return bytes;
}

bool pst_is_utf8(struct pst_bytes text)
{
    const uint8_t *at = text.data;

    for (size_t i = 0, n; i < text.len; i += n) {
        n = character(at + i, text.len - i);
        if (n == 0)
            return false;
    }
    return true;
}

void pst_utf8_repair(char *text)
{
    size_t left = strlen(text);

    for (uint8_t *at = (uint8_t *)text; left > 0;) {
        size_t n = character(at, left);

        if (n == 0)
            *at = '?';
        n = pst_max(n, 1);
        at += n;
        left -= n;
    }
}
