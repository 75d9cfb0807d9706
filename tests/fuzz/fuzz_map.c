/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_map.c: stored pool maps. What is believed is encoded as just the bytes that it was read from; changed
 * bytes get a checksum that fits, so that the checks behind it are reached.
 */
#include "fuzz.h"

#include "lib/map_random.h"

enum { MEMBERS = 20 };

static void read_back(const uint8_t *data, size_t bytes)
{
    static uint8_t again[1 << 20];
    struct pst_map *map;

    pst_assert(pst_map_bytes_max(MEMBERS) <= sizeof(again));
    if (pst_map_decode((struct pst_bytes){data, bytes}, MEMBERS, &map) < 0)
        return;
    pst_assert(pst_map_encode_stored(map, again, sizeof(again)) == bytes);
    pst_assert(memcmp(again, data, bytes) == 0);
    pst_map_close(map);
}

static void with_checksum(uint8_t *data, size_t bytes)
{
    uint32_t crc = pst_crc32c(0, data, bytes - sizeof(crc));

    memcpy(data + bytes - sizeof(crc), &crc, sizeof(crc));
    read_back(data, bytes);
}

/* A pool map with some of its bytes changed. */
static void changed(struct fuzz *in)
{
    size_t cap = pst_map_bytes_max(MEMBERS), bytes;
    struct pst_map *map = map_random(MEMBERS, fuzz_number(in, 2));
    uint8_t *text = malloc(cap), *copy;

    pst_assert(text);
    bytes = pst_map_encode_stored(map, text, cap);
    for (int i = 0; i < 16 && in->left > 0; i++) {
        uint32_t at = fuzz_below(in, fuzz_number(in, 1) & 1 ? 256 : (uint32_t)bytes);

        text[at] = (uint8_t)fuzz_number(in, 1);
    }
    bytes -= fuzz_number(in, 1) & 1 ? fuzz_below(in, (uint32_t)bytes - sizeof(uint32_t)) : 0;
    copy = malloc(bytes);
    pst_assert(copy);
    memcpy(copy, text, bytes);
    with_checksum(copy, bytes);
    free(copy);
    free(text);
    pst_map_close(map);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct fuzz in = {data, bytes};
    size_t taken;
    uint8_t *copy;

    if (fuzz_number(&in, 1) & 1) {
        changed(&in);
        return 0;
    }
    copy = fuzz_take(&in, in.left, &taken);
    if (taken >= sizeof(uint32_t))
        with_checksum(copy, taken);
    read_back(copy, taken);
    free(copy);
    return 0;
}
