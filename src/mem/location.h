/* SPDX-License-Identifier: Apache-2.0 */
/*
 * location.h: where a value's bytes lie, as text for people. Files that print or read such a text include it.
 */
#ifndef PST_MEM_LOCATION_H
#define PST_MEM_LOCATION_H

#include "mem/pages.h"

/* Where a value's bytes lie, in order: whole pages, then possibly a slab cell for the tail. */
struct pst_location {
    uint32_t arena_pages; /* pages per arena, to split page numbers */
    uint32_t run_count;
    const struct pst_run *runs;
    uint32_t tail_page; /* with tail_bytes > 0: the cell's page, its first byte inside it, and its size */
    uint32_t tail_start;
    uint32_t tail_bytes;
};

/*
 * "<arena>:p<i>,<j>;<arena>:p<k>" and, for a tail, ";<arena>:s<page>+<start>/<bytes>" as the last element;
 * pages are numbers within their arena, in the value's order. A value without bytes is "". Like snprintf:
 * returns the length needed.
 */
int pst_location_print(const struct pst_location *location, char *buf, size_t cap);
/* Parses what print wrote. @runs gets up to @runs_max runs. Return: 0, -EINVAL malformed, -ERANGE a page that
 * @page_count has not, -E2BIG. */
int pst_location_parse(const char *text, uint32_t arena_pages, uint32_t page_count, struct pst_run *runs,
                       int runs_max, struct pst_location *out);

#endif
