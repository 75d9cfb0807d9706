/* SPDX-License-Identifier: Apache-2.0 */
#include "base/percent.h"

#include "base/hex.h"

int pst_percent_decode(struct pst_bytes raw, bool plus, void *buf, size_t cap)
{
    const uint8_t *from = raw.data;
    uint8_t *to = buf;
    size_t len = 0;

    pst_assert(buf);
    pst_assert(cap <= INT32_MAX);
    for (size_t at = 0; at < raw.len; at++) {
        uint8_t c = from[at];

        if (c == '%') {
            int high = raw.len - at > 2 ? pst_hex_digit_any_case((char)from[at + 1]) : -1;
            int low = high < 0 ? -1 : pst_hex_digit_any_case((char)from[at + 2]);

            if (low < 0)
                return -EINVAL;
            c = (uint8_t)(high << 4 | low);
            at += 2;
        } else if (c == '+' && plus) {
            c = ' ';
        }
        if (c == 0)
            return -EINVAL;
        if (len == cap)
            return -ENOSPC;
        to[len++] = c;
    }
    pst_assert(len <= cap);
    pst_assert(len <= raw.len); /* decoding never makes a text longer */
    return (int)len;
}

static bool is_unreserved(uint8_t c)
{
    return (c >= '0' && c <= '9') || ((c | 0x20) >= 'a' && (c | 0x20) <= 'z') || (c && strchr("-._~", c));
}

int pst_percent_encode(struct pst_bytes text, char *buf, size_t cap)
{
    static const char digits[] = "0123456789ABCDEF";
    const uint8_t *from = text.data;
    size_t len = 0;

    pst_assert(buf);
    pst_assert(cap > 0 && cap <= INT32_MAX);
    for (size_t at = 0; at < text.len; at++) {
        bool plain = is_unreserved(from[at]);

        if (cap - len < (plain ? 2 : 4))
            return -ENOSPC;
        if (!plain) {
            buf[len++] = '%';
            buf[len++] = digits[from[at] >> 4];
        }
        buf[len++] = plain ? (char)from[at] : digits[from[at] & 15];
    }
    buf[len] = 0;
    return (int)len;
}
