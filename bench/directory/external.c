/* SPDX-License-Identifier: Apache-2.0 */
/*
 * external.c: the index of what engines hold, by itself, on one core. Half of the nodes have the beginning of
 * each prompt, one has the rest of it; prompts are asked for at random.
 *
 *     external_figures ENTRIES NODES SECONDS     prints one JSON object
 */
#include "base/clock.h"
#include "directory/external.h"

#include <inttypes.h>
#include <stdio.h>

enum { PROMPT = 128, SHARED = 4, NODES_MAX = 4096, SEED = 7 };

struct run {
    struct pst_external *x;
    uint32_t entries, nodes, prompts;
    uint64_t state;
};

static uint32_t draw(struct run *run, uint32_t below)
{
    run->state ^= run->state << 13;
    run->state ^= run->state >> 7;
    run->state ^= run->state << 17;
    return (uint32_t)(run->state % below);
}

static void prompt_make(uint32_t prompt, struct pst_hash128 hashes[PROMPT])
{
    for (uint32_t i = 0; i < PROMPT; i++) {
        uint32_t block[] = {prompt, i};

        hashes[i] = pst_hash128(block, sizeof(block), SEED);
    }
}

/* Prompts until there is no room for another. */
static void fill(struct run *run)
{
    uint32_t each = PROMPT + run->nodes / 2 * SHARED;

    for (run->prompts = 0; pst_external_stats(run->x).entries + each <= run->entries; run->prompts++) {
        struct pst_hash128 hashes[PROMPT];

        prompt_make(run->prompts, hashes);
        pst_assert(pst_external_report(run->x, run->prompts % run->nodes, PST_EXTERNAL_HBM, hashes, PROMPT) ==
                   0);
        for (uint32_t node = 1; node < run->nodes; node += 2)
            pst_assert(pst_external_report(run->x, node, PST_EXTERNAL_DRAM, hashes, SHARED) == 0);
    }
    pst_assert(run->prompts > 0);
}

/* Return: the mean time of a match, without that of making up the question. */
static double match(struct run *run, uint64_t span_ns, bool is_hit)
{
    static struct pst_external_match rows[NODES_MAX];
    uint64_t spent_ns = 0, count = 0;

    for (; spent_ns < span_ns; count++) {
        struct pst_hash128 hashes[PROMPT];
        uint64_t begin_ns;

        prompt_make(draw(run, run->prompts), hashes);
        begin_ns = pst_now_ns();
        pst_assert(pst_external_match(run->x, hashes, PROMPT, begin_ns, is_hit, rows, NODES_MAX) > 0);
        spent_ns += pst_now_ns() - begin_ns;
    }
    return (double)spent_ns / (double)count / 1e3;
}

/* Return: what one entry costs when all of the nodes are revoked, one after the other. */
static double take_back(struct run *run)
{
    uint64_t begin_ns = pst_now_ns(), removed = 0;

    for (uint32_t node = 0; node < run->nodes; node++)
        removed += pst_external_revoke_node(run->x, node, UINT32_MAX);
    return (double)(pst_now_ns() - begin_ns) / (double)removed;
}

int main(int argc, char **argv)
{
    struct run run = {.state = 0x9e3779b97f4a7c15};
    struct pst_external_settings settings = {.hits_max = 1 << 20, .hit_ttl_ns = (uint64_t)7200 * 1000000000};
    double seconds = argc == 4 ? strtod(argv[3], NULL) : 0;
    uint64_t begin_ns;

    run.entries = settings.entries_max = argc == 4 ? (uint32_t)strtoul(argv[1], NULL, 10) : 0;
    run.nodes = settings.nodes_max = argc == 4 ? (uint32_t)strtoul(argv[2], NULL, 10) : 0;
    if (run.nodes == 0 || run.nodes > NODES_MAX || seconds <= 0 ||
        run.entries < PROMPT + run.nodes / 2 * SHARED) {
        fprintf(stderr, "usage: external_figures ENTRIES NODES SECONDS\n");
        return 2;
    }
    if (pst_external_open(&settings, &run.x) < 0)
        return 1;
    begin_ns = pst_now_ns();
    fill(&run);
    printf("{\"entries\": %" PRIu64 ", \"report_ns\": %.0f, ", pst_external_stats(run.x).entries,
           (double)(pst_now_ns() - begin_ns) / (double)pst_external_stats(run.x).entries);
    printf("\"match128_us\": %.1f, ", match(&run, (uint64_t)(seconds * 1e9), false));
    printf("\"match128_hit_us\": %.1f, ", match(&run, (uint64_t)(seconds * 1e9), true));
    printf("\"revoke_ns\": %.0f}\n", take_back(&run));
    pst_external_close(run.x);
    return 0;
}
