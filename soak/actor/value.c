/* SPDX-License-Identifier: Apache-2.0 */
/* value.c: values that describe themselves: a head names key and write, and both fix length and content. */
#include "actor.h"

#include <string.h>

enum { HEAD_WORDS = 3, CLASS_SHIFT = 36, NUMBER_SHIFT = 40, BYTES_MIN = 32 };

#define VALUE_MAGIC 0x70656e73746f636bull

uint64_t value_number(struct actor *a, enum value_class class)
{
    return ((uint64_t)a->number + 1) << NUMBER_SHIFT | (uint64_t) class << CLASS_SHIFT | ++a->writes;
}

uint64_t value_bytes(uint64_t write)
{
    static const uint64_t limits[] = {2048, 64 << 10, VALUE_BYTES_MAX};
    uint64_t class = write >> CLASS_SHIFT & 0xf;
    uint64_t limit = limits[class < VALUE_CLASSES ? class : 0];

    return BYTES_MIN + mix(write) % (limit - BYTES_MIN) / 8 * 8;
}

static uint64_t pattern_of(uint16_t key, uint64_t write)
{
    return mix(write ^ mix(key + 1));
}

void value_fill(uint16_t key, uint64_t write, uint8_t *out)
{
    uint64_t words = value_bytes(write) / 8, word = pattern_of(key, write);
    const uint64_t head[HEAD_WORDS] = {VALUE_MAGIC, write, key};

    memcpy(out, head, sizeof(head));
    for (uint64_t i = HEAD_WORDS; i < words; i++) {
        word += 0x9e3779b97f4a7c15ull;
        memcpy(out + 8 * i, &word, 8);
    }
}

uint64_t value_read(uint16_t key, const uint8_t *data, uint64_t bytes)
{
    uint64_t head[HEAD_WORDS], word, found;

    if (bytes < BYTES_MIN)
        return 0;
    memcpy(head, data, sizeof(head));
    if (head[0] != VALUE_MAGIC || head[2] != key || bytes != value_bytes(head[1]))
        return 0;
    word = pattern_of(key, head[1]);
    for (uint64_t i = HEAD_WORDS; i < bytes / 8; i++) {
        word += 0x9e3779b97f4a7c15ull;
        memcpy(&found, data + 8 * i, 8);
        if (found != word)
            return 0;
    }
    return head[1];
}
