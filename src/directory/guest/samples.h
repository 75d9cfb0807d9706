/* SPDX-License-Identifier: Apache-2.0 */
/*
 * samples.h: what guests' clients count themselves and report, as series: a name with labels, and a value.
 * Counters and histograms add up, a gauge is what was said last. A series ends when its guest has, and others
 * want its place. One thread at a time. Pure.
 */
#ifndef PST_GUEST_SAMPLES_H
#define PST_GUEST_SAMPLES_H

#include "directory/guest/guests.h"

enum {
    PST_SAMPLE_NAME_BYTES = 128, /* texts, with their NULs */
    PST_SAMPLE_HELP_BYTES = 256,
    PST_SAMPLE_LABELS_BYTES = 512,
    PST_SAMPLE_BUCKETS_MAX = 32,
    PST_SAMPLE_SERIES_MAX = 4096,
};

enum pst_sample_kind { PST_SAMPLE_COUNTER, PST_SAMPLE_GAUGE, PST_SAMPLE_HISTOGRAM };

struct pst_sample {
    char name[PST_SAMPLE_NAME_BYTES]; /* of letters, digits and '_', beginning with "mori_umbp_" */
    char help[PST_SAMPLE_HELP_BYTES];
    char labels[PST_SAMPLE_LABELS_BYTES]; /* as Prometheus reads them: name="value", ... */
    enum pst_sample_kind kind;
    double value; /* of a histogram: the sum of all that was observed */
    uint64_t count;
    uint32_t bucket_count;
    double bounds[PST_SAMPLE_BUCKETS_MAX];   /* growing */
    uint64_t counts[PST_SAMPLE_BUCKETS_MAX]; /* each of all up to its bound */
};

/* What the guest has counted since it last said so. What does not fit, or contradicts what is known of its
 * name, is dropped and counted. */
void pst_guests_sample(struct pst_guests *g, uint32_t number, const struct pst_sample *sample);
/* Which series is the first behind @last, whether that is there or not. */
uint32_t pst_guests_series_behind(const struct pst_guests *g, const struct pst_sample *last);
/* The @index-th series, in the order of their names and labels; NULL: there are not so many. */
const struct pst_sample *pst_guests_series(const struct pst_guests *g, uint32_t index);

#endif
