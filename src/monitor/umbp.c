/* SPDX-License-Identifier: Apache-2.0 */
/*
 * umbp.c: a master's figures of mori's nodes under the names that mori's own master gives them, and what
 * their clients report themselves. What the master knows is copied, a bounded part at a time, and printed
 * when nobody waits for it any more.
 */
#include "monitor/monitor_priv.h"
#include "monitor/umbp_rows.h"

#include "directory/guest/samples.h"

#include <inttypes.h>
#include <stdio.h>

enum { SERIES_MAX = 20000, SAMPLES_A_TURN = 64 };
enum { NODE = 0, TAGS = 1, TIER = 2, RESULT = 4 };

struct client {
    char name[PST_GUEST_NAME_BYTES_MAX + 1];
    char tags[PST_GUEST_TAGS_BYTES_MAX + 1];
    size_t tags_bytes;
    struct pst_tier_use tiers[PST_POOL_TIERS];
    uint64_t keys[PST_POOL_TIERS];
    uint64_t block_count;
    struct pst_guest_counters counters;
};

struct seen {
    uint32_t count, room;
    struct client *clients;
    struct pst_guest_totals totals;
};

static const char *const tier_names[PST_POOL_TIERS] = {"UNKNOWN", "HBM", "DRAM", "SSD"};

_Static_assert((int)PST_POOL_TIERS == (int)PST_EXTERNAL_TIERS, "tiers of nodes and of blocks");

/* ---- lines ---- */

struct page {
    FILE *to;
    uint32_t series;
    uint64_t dropped;
};

static bool page_takes(struct page *page, uint32_t count)
{
    bool takes = page->series + count <= SERIES_MAX;

    page->series += takes ? count : 0;
    page->dropped += takes ? 0 : count;
    pst_assert(page->series <= SERIES_MAX);
    return takes;
}

static void begin_family(const struct page *page, const char *metric, const char *type, const char *text)
{
    pst_assert(*metric);
    fprintf(page->to, "# HELP %s %s\n# TYPE %s %s\n", metric, text, metric, type);
}

/* Whether a tag's key may be a label, which none before it is, nor one of the row's own. */
static bool is_label(const struct client *c, const char *tag, size_t key_bytes)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789";

    pst_assert(tag >= c->tags && tag < c->tags + c->tags_bytes);
    if (key_bytes == 0 || (*tag >= '0' && *tag <= '9') || strspn(tag, letters) < key_bytes ||
        strncmp(tag, "node=", 5) == 0 || strncmp(tag, "tier=", 5) == 0 || strncmp(tag, "le=", 3) == 0 ||
        strncmp(tag, "__", 2) == 0) /* Prometheus's own */
        return false;
    for (const char *at = c->tags; at < tag; at += strlen(at) + 1)
        if (strncmp(at, tag, key_bytes + 1) == 0)
            return false;
    return true;
}

static void print_tags(const struct page *page, const struct client *c)
{
    const char *end = c->tags + c->tags_bytes;

    pst_assert(c->tags_bytes <= PST_GUEST_TAGS_BYTES_MAX);
    for (const char *at = c->tags; at < end; at += strlen(at) + 1) {
        const char *equals = strchr(at, '=');

        if (!equals || !is_label(c, at, (size_t)(equals - at)))
            continue;
        fprintf(page->to, ",%.*s=", (int)(equals - at), at);
        monitor_print_quoted(page->to, pst_bytes_of(equals + 1));
    }
}

/* One series of a guest's. */
static void print_guest(struct page *page, const char *metric, const struct client *c, int labels, uint32_t t,
                        double value)
{
    if (!page_takes(page, 1))
        return;
    pst_assert(t < PST_POOL_TIERS);
    fprintf(page->to, "%s{node=", metric);
    monitor_print_quoted(page->to, pst_bytes_of(c->name));
    if (labels & TAGS)
        print_tags(page, c);
    if (labels & TIER)
        fprintf(page->to, ",tier=\"%s\"", tier_names[t]);
    fprintf(page->to, "%s} %.17g\n", labels & RESULT ? ",result=\"ok\"" : "", value);
}

/* ---- the rows ---- */

#define GAUGE   "gauge"
#define COUNTER "counter"

static void print_guests(struct page *page, const struct seen *s)
{
#define X(metric, type, labels, value, shown, text)                                                          \
    begin_family(page, metric, type, text);                                                                  \
    for (const struct client *c = s->clients; c < s->clients + s->count; c++)                                \
        for (uint32_t t = 0; t < ((labels)&TIER ? PST_POOL_TIERS : 1u); t++)                                 \
            if (shown)                                                                                       \
                print_guest(page, metric, c, labels, t, value);
    MONITOR_UMBP_GUEST_ROWS(X)
#undef X
}

static void print_totals(struct page *page, const struct seen *s)
{
#define X(metric, type, value, text)                                                                         \
    begin_family(page, metric, type, text);                                                                  \
    fprintf(page->to, "%s %.17g\n", metric, value);
    MONITOR_UMBP_TOTAL_ROWS(X)
#undef X
}

/* Whether the master tells a metric of that name itself. */
static bool is_own(const char *name)
{
#define X(metric, ...) strcmp(name, metric) == 0 ||
    return MONITOR_UMBP_GUEST_ROWS(X) MONITOR_UMBP_TOTAL_ROWS(X) false;
#undef X
}

/* Whether one of the series of @sample has a name of the master's own. */
static bool names_own(const struct pst_sample *sample)
{
    static const char *const ends[] = {"", "_bucket", "_sum", "_count"};
    size_t count = sample->kind == PST_SAMPLE_HISTOGRAM ? pst_count_of(ends) : 1;
    char name[sizeof(sample->name) + 8];

    for (size_t i = 0; i < count; i++) {
        snprintf(name, sizeof(name), "%s%s", sample->name, ends[i]);
        if (is_own(name))
            return true;
    }
    return false;
}

/* ---- what clients report ---- */

/* As few digits as tell the number from any other. */
static int digits_of(double number)
{
    char text[32];
    int digits = 6;

    do
        snprintf(text, sizeof(text), "%.*g", digits, number);
    while (strtod(text, NULL) != number && digits++ < 17);
    return digits;
}

static void print_sample(struct page *page, const struct pst_sample *sample)
{
    pst_assert(sample->bucket_count <= PST_SAMPLE_BUCKETS_MAX);
    if (!page_takes(page, sample->kind == PST_SAMPLE_HISTOGRAM ? sample->bucket_count + 3 : 1))
        return;
    if (sample->kind != PST_SAMPLE_HISTOGRAM) {
        fprintf(page->to, "%s{%s} %.17g\n", sample->name, sample->labels, sample->value);
        return;
    }
    for (uint32_t i = 0; i < sample->bucket_count; i++)
        fprintf(page->to, "%s_bucket{%s,le=\"%.*g\"} %" PRIu64 "\n", sample->name, sample->labels,
                digits_of(sample->bounds[i]), sample->bounds[i], sample->counts[i]);
    fprintf(page->to, "%s_bucket{%s,le=\"+Inf\"} %" PRIu64 "\n", sample->name, sample->labels, sample->count);
    fprintf(page->to, "%s_sum{%s} %.17g\n", sample->name, sample->labels, sample->value);
    fprintf(page->to, "%s_count{%s} %" PRIu64 "\n", sample->name, sample->labels, sample->count);
}

/* Some series behind the one that was printed last. Return: how many, 0: there are no more. */
static uint32_t copy_samples(const struct pst_guests *g, const struct pst_sample *last, struct pst_sample *to)
{
    uint32_t count = 0;

    for (uint32_t i = pst_guests_series_behind(g, last); count < SAMPLES_A_TURN; i++) {
        const struct pst_sample *sample = pst_guests_series(g, i);

        if (!sample)
            break;
        to[count++] = *sample;
    }
    return count;
}

static int print_samples(struct page *page, struct pst_monitor *monitor)
{
    static const char *const types[] = {
        [PST_SAMPLE_COUNTER] = "counter", [PST_SAMPLE_GAUGE] = "gauge", [PST_SAMPLE_HISTOGRAM] = "histogram"};
    struct pst_sample *samples = calloc(SAMPLES_A_TURN + 1, sizeof(*samples)), *last = samples;
    struct pst_guest_desk desk;
    uint32_t count = 1;

    pst_assert(monitor->ops->enter && monitor->ops->leave);
    if (!samples)
        return -ENOMEM;
    while (count > 0 && monitor->ops->enter(monitor->ctx, &desk)) {
        count = copy_samples(desk.guests, last, samples + 1);
        monitor->ops->leave(monitor->ctx);
        for (uint32_t i = 1; i <= count; i++) {
            if (names_own(&samples[i]))
                continue;
            pst_assert((size_t)samples[i].kind < pst_count_of(types));
            if (strcmp(samples[i].name, samples[i - 1].name) != 0)
                begin_family(page, samples[i].name, types[samples[i].kind], samples[i].help);
            print_sample(page, &samples[i]);
        }
        samples[0] = samples[count];
    }
    free(samples);
    return 0;
}

/* ---- the whole ---- */

static void copy_client(const struct pst_guest_desk *desk, const struct pst_guest *guest, struct client *c)
{
    pst_assert(guest->name.len < sizeof(c->name));
    pst_assert(guest->tags.len < sizeof(c->tags));
    pst_assert(c->block_count == 0);
    memcpy(c->name, guest->name.data, guest->name.len);
    if (guest->tags.len > 0)
        memcpy(c->tags, guest->tags.data, guest->tags.len);
    c->tags_bytes = guest->tags.len;
    memcpy(c->tiers, guest->tiers, sizeof(c->tiers));
    memcpy(c->keys, guest->keys, sizeof(c->keys));
    c->counters = *guest->counters;
    for (uint32_t tier = 0; tier < PST_EXTERNAL_TIERS; tier++)
        c->block_count +=
            pst_external_count(desk->external, pst_guest_block_number(desk, guest->number), tier);
}

/* Return: 0, also without any; -ENOMEM. */
static int look(struct pst_monitor *monitor, struct seen *s)
{
    struct pst_guest_desk desk;
    struct pst_guest guest;
    int r = 0;

    pst_assert(s->count == 0);
    pst_assert(monitor->tells_umbp);
    if (!monitor->ops->enter(monitor->ctx, &desk))
        return 0; /* another master tells of them */
    s->totals = *pst_guests_totals(desk.guests);
    s->room = pst_guests_count(desk.guests);
    s->clients = calloc(pst_max(s->room, 1), sizeof(*s->clients));
    r = s->clients ? 0 : -ENOMEM;
    for (uint32_t i = 0; r == 0 && pst_guests_next(desk.guests, i, &guest); i = guest.number + 1) {
        pst_assert(s->count < s->room);
        copy_client(&desk, &guest, &s->clients[s->count++]);
    }
    pst_assert(r < 0 || s->count == s->room);
    monitor->ops->leave(monitor->ctx);
    return r;
}

int monitor_print_umbp(struct pst_monitor *monitor, FILE *to, uint64_t *dropped)
{
    struct page page = {.to = to};
    struct seen seen = {0};
    int r = look(monitor, &seen);

    if (r == 0) {
        print_totals(&page, &seen);
        print_guests(&page, &seen);
        r = print_samples(&page, monitor);
    }
    free(seen.clients);
    *dropped = page.dropped;
    return r;
}
