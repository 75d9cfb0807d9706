/* SPDX-License-Identifier: Apache-2.0 */
/* gateway_answer.c: an answer to a read of a whole value, message by message. */
#include "stub_gateway.h"

static uint64_t take_varint(const uint8_t **at, const uint8_t *end)
{
    uint64_t value = 0;

    for (uint32_t shift = 0; shift < 64; shift += 7) {
        pst_assert(*at < end);
        value |= (uint64_t)(**at & 0x7f) << shift;
        if (!(*(*at)++ & 0x80))
            return value;
    }
    pst_assert(false);
    return 0;
}

/* One message of an answer to a whole read. Return: bytes of the value, which are right. */
static uint64_t check_message(const uint8_t *at, const uint8_t *end, uint64_t *generation, uint64_t value_at)
{
    uint64_t part = 0;

    while (at < end) {
        uint64_t tag = take_varint(&at, end), number = take_varint(&at, end);

        if (tag == 0x18) { /* state */
            pst_assert(*generation || number == 1);
            continue;
        }
        pst_assert(number <= (uint64_t)(end - at));
        if (tag == 0x12 && at[0] == 0x0a && at[1] == 9)
            memcpy(generation, at + 3, sizeof(*generation));
        if (tag == 0x22) {
            pst_assert(*generation && value_at + number <= stub_value_bytes(*generation));
            pst_assert(memcmp(at, stub_value(*generation) + value_at, number) == 0);
            part = number;
        }
        at += number;
    }
    return part;
}

void stub_check_answer(struct pst_bytes answer)
{
    const uint8_t *at = answer.data, *end = at + answer.len;
    uint64_t generation = 0, bytes = 0;

    while (at < end) {
        uint32_t count;

        pst_assert(end - at >= 5 && at[0] == 0);
        count = (uint32_t)at[1] << 24 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 8 | at[4];
        pst_assert(count <= end - at - 5);
        bytes += check_message(at + 5, at + 5 + count, &generation, bytes);
        at += 5 + count;
    }
    pst_assert(!generation || bytes == stub_value_bytes(generation));
}
