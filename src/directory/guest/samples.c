/* SPDX-License-Identifier: Apache-2.0 */
/* samples.c: series that guests' clients report, in the order in which they are told. */
#include "directory/guest/samples.h"

#include "directory/guest/guests_priv.h"

#include <math.h>
#include <stdio.h>

struct series {
    struct pst_sample sample;
    uint32_t number;  /* of its guest, */
    uint64_t arrival; /* and which of those that had it */
};

static int compare(const struct pst_sample *a, const struct pst_sample *b)
{
    int order = strcmp(a->name, b->name);

    return order != 0 ? order : strcmp(a->labels, b->labels);
}

/* Where the series is, or belongs. */
static uint32_t place_of(const struct samples *s, const struct pst_sample *sample, bool *found)
{
    uint32_t low = 0, high = s->count;

    pst_assert(s->count <= PST_SAMPLE_SERIES_MAX);
    while (low < high) {
        uint32_t middle = (low + high) / 2;

        if (compare(&s->series[middle]->sample, sample) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    *found = low < s->count && compare(&s->series[low]->sample, sample) == 0;
    return low;
}

static bool is_alike(const struct pst_sample *a, const struct pst_sample *b)
{
    pst_assert(a->bucket_count <= PST_SAMPLE_BUCKETS_MAX);
    pst_assert(b->bucket_count <= PST_SAMPLE_BUCKETS_MAX);
    return a->kind == b->kind && a->bucket_count == b->bucket_count &&
           memcmp(a->bounds, b->bounds, a->bucket_count * sizeof(a->bounds[0])) == 0;
}

/* Return: whether there is a series of that name: a histogram, or one that is none. */
static bool has_name(const struct samples *s, const struct pst_sample *name, bool histogram)
{
    bool found;
    uint32_t at = place_of(s, name, &found);

    pst_assert(!name->labels[0]); /* before all of its name */
    return at < s->count && strcmp(s->series[at]->sample.name, name->name) == 0 &&
           (s->series[at]->sample.kind == PST_SAMPLE_HISTOGRAM) == histogram;
}

/* Whether the series of a histogram, which has three names more, are as another's. */
static bool clashes(const struct samples *s, const struct pst_sample *sample)
{
    static const char *const ends[] = {"_bucket", "_sum", "_count"};
    bool histogram = sample->kind == PST_SAMPLE_HISTOGRAM;
    size_t len = strlen(sample->name);

    pst_assert(len < PST_SAMPLE_NAME_BYTES);
    for (size_t i = 0; i < pst_count_of(ends); i++) {
        struct pst_sample other = {0};
        size_t end = strlen(ends[i]);

        if (histogram && len + end < sizeof(other.name))
            snprintf(other.name, sizeof(other.name), "%s%s", sample->name, ends[i]);
        else if (!histogram && len > end && strcmp(sample->name + len - end, ends[i]) == 0)
            memcpy(other.name, sample->name, len - end);
        else
            continue;
        if (has_name(s, &other, !histogram))
            return true;
    }
    return false;
}

/* A name has one kind, whoever says it. @at: where a series of it is, or belongs. */
static bool fits(const struct samples *s, uint32_t at, const struct pst_sample *sample)
{
    pst_assert(at <= s->count);
    for (uint32_t i = at > 0 ? at - 1 : 0; i < s->count && i <= at; i++)
        if (strcmp(s->series[i]->sample.name, sample->name) == 0 && !is_alike(&s->series[i]->sample, sample))
            return false;
    return true;
}

static bool is_well(const struct pst_sample *sample)
{
    pst_assert(sample->bucket_count <= PST_SAMPLE_BUCKETS_MAX);
    if (!isfinite(sample->value) || (sample->kind == PST_SAMPLE_COUNTER && sample->value < 0))
        return false;
    for (uint32_t i = 0; i < sample->bucket_count; i++)
        if (!isfinite(sample->bounds[i]) || (i > 0 && sample->bounds[i] <= sample->bounds[i - 1]) ||
            sample->counts[i] > sample->count || (i > 0 && sample->counts[i] < sample->counts[i - 1]))
            return false;
    return true;
}

/* Return: false: it would be more than there are numbers for. */
static bool add(struct pst_sample *to, const struct pst_sample *sample)
{
    pst_assert(is_alike(to, sample));
    if (sample->count > UINT64_MAX - to->count ||
        (to->kind != PST_SAMPLE_GAUGE && !isfinite(to->value + sample->value)))
        return false;
    if (to->kind == PST_SAMPLE_GAUGE)
        to->value = sample->value;
    else
        to->value += sample->value;
    to->count += sample->count;
    for (uint32_t i = 0; i < to->bucket_count; i++)
        to->counts[i] += sample->counts[i];
    return true;
}

/* Those of guests that are gone make room. */
static void drop_gone(struct pst_guests *g)
{
    struct samples *s = &g->samples;
    uint32_t kept = 0;

    pst_assert(s->series);
    for (uint32_t i = 0; i < s->count; i++) {
        const struct node *node = &g->nodes[s->series[i]->number];

        if (node->there && node->arrival == s->series[i]->arrival)
            s->series[kept++] = s->series[i];
        else
            free(s->series[i]);
    }
    pst_assert(kept <= s->count);
    s->count = kept;
}

static bool make_room(struct pst_guests *g)
{
    pst_assert(g->samples.count <= PST_SAMPLE_SERIES_MAX);
    if (!g->samples.series)
        g->samples.series = calloc(PST_SAMPLE_SERIES_MAX, sizeof(g->samples.series[0]));
    if (g->samples.series && g->samples.count == PST_SAMPLE_SERIES_MAX)
        drop_gone(g);
    return g->samples.series && g->samples.count < PST_SAMPLE_SERIES_MAX;
}

void pst_guests_sample(struct pst_guests *g, uint32_t number, const struct pst_sample *sample)
{
    struct samples *s = &g->samples;
    struct series *series;
    bool found;
    uint32_t at = place_of(s, sample, &found);

    guests_check(g);
    pst_assert(number < g->nodes_max && g->nodes[number].there);
    if (!is_well(sample) || !fits(s, at, sample) ||
        (found ? !add(&s->series[at]->sample, sample) : clashes(s, sample) || !make_room(g))) {
        g->totals.samples_dropped++;
        return;
    }
    if (found) {
        s->series[at]->number = number;
        s->series[at]->arrival = g->nodes[number].arrival;
        return;
    }
    at = place_of(s, sample, &found); /* others may have gone */
    series = malloc(sizeof(*series));
    if (!series) {
        g->totals.samples_dropped++;
        return;
    }
    *series = (struct series){*sample, number, g->nodes[number].arrival};
    memmove(s->series + at + 1, s->series + at, (s->count - at) * sizeof(s->series[0]));
    s->series[at] = series;
    s->count++;
}

uint32_t pst_guests_series_behind(const struct pst_guests *g, const struct pst_sample *last)
{
    bool found;
    uint32_t at = place_of(&g->samples, last, &found);

    guests_check(g);
    return at + found;
}

const struct pst_sample *pst_guests_series(const struct pst_guests *g, uint32_t index)
{
    guests_check(g);
    return index < g->samples.count ? &g->samples.series[index]->sample : NULL;
}

void samples_fini(struct samples *s)
{
    pst_assert(s->count <= PST_SAMPLE_SERIES_MAX);
    for (uint32_t i = 0; i < s->count; i++)
        free(s->series[i]);
    free(s->series);
}
