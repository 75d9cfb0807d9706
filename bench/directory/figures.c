/* SPDX-License-Identifier: Apache-2.0 */
/*
 * figures.c: the directory's table by itself: keys filled in, then looked up at random, on one core.
 *
 *     directory_figures KEYS BATCH SECONDS     prints one JSON object
 */
#include "names.h"

#include "base/clock.h"
#include "directory/keys.h"

#include <inttypes.h>
#include <stdio.h>

enum { MEMBERS = 64, BATCH_MAX = 1024 };

static void fill(struct pst_keys *keys, uint64_t count)
{
    for (uint64_t key = 0; key < count; key++) {
        struct pst_place place = {.generation = key + 1, .member = (uint16_t)(key % MEMBERS)};

        pst_assert(pst_keys_add(keys, name(key), place) == 0);
    }
}

/* Looks up batches until the time is over, all of them keys that are there. Return: look-ups. */
static uint64_t look_up(const struct pst_keys *keys, uint64_t count, uint32_t batch, uint64_t until_ns)
{
    static struct pst_hash128 fingerprints[BATCH_MAX];
    static struct pst_places places[BATCH_MAX];
    uint64_t state = 0x9e3779b97f4a7c15, looked = 0;

    while (pst_now_ns() < until_ns) {
        for (uint32_t i = 0; i < batch; i++)
            fingerprints[i] = name(draw(&state) % count);
        pst_keys_look_up(keys, fingerprints, batch, places);
        for (uint32_t i = 0; i < batch; i++)
            pst_assert(places[i].count == 1);
        looked += batch;
    }
    return looked;
}

int main(int argc, char **argv)
{
    uint64_t count = argc == 4 ? strtoull(argv[1], NULL, 10) : 0;
    uint32_t batch = argc == 4 ? (uint32_t)strtoul(argv[2], NULL, 10) : 0;
    double seconds = argc == 4 ? strtod(argv[3], NULL) : 0;
    struct pst_keys *keys;
    uint64_t begin_ns, looked;

    if (count == 0 || batch == 0 || batch > BATCH_MAX || seconds <= 0) {
        fprintf(stderr, "usage: directory_figures KEYS BATCH SECONDS\n");
        return 2;
    }
    if (pst_keys_open(count, &keys) < 0)
        return 1;
    begin_ns = pst_now_ns();
    fill(keys, count);
    printf("{\"adds_per_s\": %.0f, ", (double)count * 1e9 / (double)(pst_now_ns() - begin_ns));
    begin_ns = pst_now_ns();
    looked = look_up(keys, count, batch, begin_ns + (uint64_t)(seconds * 1e9));
    printf("\"lookups_per_s\": %.0f, ", (double)looked * 1e9 / (double)(pst_now_ns() - begin_ns));
    printf("\"keys\": %" PRIu64 ", \"bytes_per_key\": %.1f}\n", count,
           (double)pst_keys_memory_bytes(keys) / (double)count);
    pst_keys_close(keys);
    return 0;
}
