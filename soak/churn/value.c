/* SPDX-License-Identifier: Apache-2.0 */
/* value.c: values that describe themselves: each 4 KiB block names its write, its key and its place, and the
 * rest follows. */
#include "churn.h"

#include <string.h>

enum {
    BLOCK_WORDS = BLOCK_BYTES / 8,
    WORD_WRITE = 0,
    WORD_KEY = 1,
    WORD_OFFSET = 2,
    HEAD_WORDS = 3,
    HOT_BYTES_MIN = 512 << 10
};

#define POISON 0xdeadfeeddeadfeedull

/* Sizes at which a value is stored or moved in another way. */
static const uint64_t edges[] = {
    0,     1,     7,      8,      63,     64,     2047,    2048,          2049,
    4095,  4096,  4097,   32767,  32768,  32769,  65535,   65536,         65537,
    98304, 98305, 131072, 131073, 262143, 262144, 1 << 20, (1 << 20) + 1, VALUE_BYTES_MAX};

uint64_t value_bytes(const struct client *c, const struct key *key, uint64_t write)
{
    uint64_t dice = mix(c->seed ^ mix(key->hash + write)), kind = dice % 100;

    dice = mix(dice);
    if (key->hot)
        return HOT_BYTES_MIN + dice % (VALUE_BYTES_MAX + 1 - HOT_BYTES_MIN);
    if (kind < 12)
        return edges[dice % count_of(edges)];
    if (kind < 40)
        return dice % 2100;
    if (kind < 70)
        return dice % (72 << 10);
    if (kind < 94)
        return dice % (512 << 10);
    return dice % (VALUE_BYTES_MAX + 1);
}

static void fill_block(const struct key *key, uint64_t write, uint64_t offset, uint64_t words[BLOCK_WORDS])
{
    uint64_t pattern = mix(key->hash ^ mix(write ^ mix(offset)));

    words[WORD_WRITE] = write;
    words[WORD_KEY] = key->hash;
    words[WORD_OFFSET] = offset;
    for (uint64_t i = HEAD_WORDS; i < BLOCK_WORDS; i++)
        words[i] = pattern + i * 0x9e3779b97f4a7c15ull;
}

void value_fill(const struct key *key, uint64_t write, uint8_t *out, uint64_t bytes)
{
    uint64_t words[BLOCK_WORDS];

    for (uint64_t at = 0; at < bytes; at += BLOCK_BYTES) {
        uint64_t left = bytes - at;

        fill_block(key, write, at, words);
        memcpy(out + at, words, left < BLOCK_BYTES ? left : BLOCK_BYTES);
    }
}

void value_poison(uint8_t *buf, uint64_t bytes)
{
    uint64_t poison = POISON;

    for (uint64_t at = 0; at + sizeof(poison) <= bytes; at += BLOCK_BYTES / 2)
        memcpy(buf + at, &poison, sizeof(poison));
}

/* Whose bytes are there instead. @data begins a block. */
static const char *fault_of(const struct client *c, const struct key *key, uint64_t write, uint64_t offset,
                            const uint8_t *data, uint64_t bytes)
{
    uint64_t head[HEAD_WORDS];

    if (bytes < sizeof(head))
        return "changed";
    memcpy(head, data, sizeof(head));
    if (head[WORD_WRITE] == POISON)
        return "not delivered";
    if (head[WORD_KEY] != key->hash) {
        for (uint32_t i = 0; i < c->key_count; i++) {
            if (c->keys[i].hash == head[WORD_KEY])
                return "of another key";
        }
        return "changed";
    }
    if (head[WORD_OFFSET] != offset)
        return "of another place";
    return head[WORD_WRITE] == write ? "changed" : "of another write";
}

bool value_check(struct client *c, const struct key *key, uint64_t write, uint64_t offset,
                 const uint8_t *data, uint64_t bytes, const char *through)
{
    uint64_t words[BLOCK_WORDS];

    c->counts.checked_bytes += bytes;
    for (uint64_t at = 0; at < bytes;) {
        uint64_t inside = (offset + at) % BLOCK_BYTES, block = offset + at - inside, n = BLOCK_BYTES - inside;

        if (n > bytes - at)
            n = bytes - at;
        fill_block(key, write, block, words);
        if (memcmp(data + at, (const uint8_t *)words + inside, n) != 0) {
            unsigned long long where = offset + at;
            const char *fault = inside ? "changed" : fault_of(c, key, write, block, data + at, n);

            churn_violation(c, key, "%s: bytes at %llu of write %llu are %s", through, where,
                            (unsigned long long)write, fault);
            return false;
        }
        at += n;
    }
    return true;
}
