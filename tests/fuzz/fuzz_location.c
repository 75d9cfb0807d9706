/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_location.c: locations as text, and the header of an arena's trailer. What parses prints as text that
 * parses to the same; a header counts only with every bit in its place. */
#include "fuzz.h"

#include "mem/arena_priv.h"
#include "mem/location.h"

#include <stdio.h>

enum { RUNS_MAX = 64 };

static void same(const struct pst_location *a, const struct pst_location *b)
{
    pst_assert(a->run_count == b->run_count && a->tail_bytes == b->tail_bytes);
    for (uint32_t i = 0; i < a->run_count; i++)
        pst_assert(a->runs[i].page == b->runs[i].page && a->runs[i].count == b->runs[i].count);
    if (a->tail_bytes > 0)
        pst_assert(a->tail_page == b->tail_page && a->tail_start == b->tail_start);
}

static void location(struct fuzz *in)
{
    uint32_t arena_pages = fuzz_below(in, 1 << 16) + 1, page_count = fuzz_below(in, 1 << 20);
    struct pst_run runs[RUNS_MAX], runs_again[RUNS_MAX];
    struct pst_location location, again;
    char *text = fuzz_text(in, in->left), *printed;
    int bytes;

    if (pst_location_parse(text, arena_pages, page_count, runs, RUNS_MAX, &location) == 0) {
        for (uint32_t i = 0; i < location.run_count; i++)
            pst_assert(runs[i].count > 0 && (uint64_t)runs[i].page + runs[i].count <= page_count);
        bytes = pst_location_print(&location, NULL, 0);
        pst_assert(bytes >= 0);
        printed = malloc((size_t)bytes + 1);
        pst_assert(printed && pst_location_print(&location, printed, (size_t)bytes + 1) == bytes);
        pst_assert(pst_location_parse(printed, arena_pages, page_count, runs_again, RUNS_MAX, &again) == 0);
        same(&location, &again);
        free(printed);
    }
    free(text);
}

/* A valid header with some of its bytes changed, and the input taken as one. */
static void header(struct fuzz *in)
{
    struct pst_arena_options options = {.bytes = 1 << 20, .page_bytes = PST_PAGE_BYTES_MIN};
    static struct pst_arenas arenas;
    struct pst_arena_header header = {.version = 0};
    uint32_t at = fuzz_below(in, sizeof(header));
    uint8_t change = (uint8_t)fuzz_number(in, 1);
    const char *fault;

    if (!arenas.base)
        pst_assert(pst_arenas_open(&arenas, &options, &fault) == 0);
    memcpy(&header, pst_arena_header(&arenas, 0), sizeof(header));
    pst_assert(pst_arena_header_ok(&header));
    ((uint8_t *)&header)[at] ^= change;
    pst_assert(pst_arena_header_ok(&header) == (change == 0));
    memset(&header, 0, sizeof(header));
    memcpy(&header, in->at, pst_min(in->left, sizeof(header)));
    pst_assert(!pst_arena_header_ok(&header) || memcmp(header.magic, PST_ARENA_MAGIC, 8) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct fuzz in = {data, bytes};

    if (fuzz_number(&in, 1) & 1)
        header(&in);
    else
        location(&in);
    return 0;
}
