/* SPDX-License-Identifier: Apache-2.0 */
/*
 * trace.h: request traces in the Mooncake format: a JSON object a line, whose `hash_ids` name the pages of
 * one request's prefix chain, first page first; all other members are skipped. Equal names mean equal
 * prefixes.
 */
#ifndef PST_TRACE_H
#define PST_TRACE_H

#include "base/base.h"
#include "base/options.h"

#include <stdio.h>

enum {
    PST_TRACE_PAGES_MAX = 1 << 28, /* references in a trace */
    PST_TRACE_CHAIN_MAX = 0xfffe,  /* pages of one request; deeper ones have no depth in the store */
};

struct pst_trace {
    uint32_t *pages;  /* of all requests, one behind the other, numbered as they first come */
    uint64_t *starts; /* of each request in @pages, and the end */
    uint64_t page_count, request_count;
    uint32_t unique_count;
};

/* Return: 0, -EINVAL, -ENOMEM, with the line and the reason in @fault. Finish with pst_trace_fini(). */
int pst_trace_parse(const char *text, size_t bytes, struct pst_trace *out, char fault[PST_FAULT_BYTES]);
/* The same with a file. Other failures of it: -errno. */
int pst_trace_read(const char *path, struct pst_trace *out, char fault[PST_FAULT_BYTES]);
void pst_trace_fini(struct pst_trace *trace);

/* How many references hit, by prefix, in a cache of @capacity pages that knows the future. -ENOMEM. */
int64_t pst_trace_optimum(const struct pst_trace *trace, uint64_t capacity);

/* ---- plot.c ---- */

enum { PST_CURVES_MAX = 8, PST_POINTS_MAX = 64 };

/* Shares from 0 to 1. */
struct pst_curve {
    const char *name;
    uint32_t count;
    double x[PST_POINTS_MAX], y[PST_POINTS_MAX];
};

/* Writes hit rate over capacity as SVG. Return: 0 or -errno. */
int pst_plot_write(const char *path, const struct pst_curve *curves, uint32_t count);

#endif
