/* SPDX-License-Identifier: Apache-2.0 */
/* metrics.c: a node's figures in Prometheus' text format, by the rows of rows.h. */
#include "monitor/monitor_priv.h"
#include "monitor/rows.h"
#include "span/span.h"

#include <inttypes.h>
#include <stdio.h>

enum {
    LINES_MAX = MONITOR_FIGURES_BYTES / 4, /* "a 1\n" */
    CALL_BUCKETS = 16,                     /* of a master's calls; the first is 1 us */
    CALL_FIRST_NS = 1000,
    TIME_FIRST_NS = 256,
};

enum source { FROM_BUILD, FROM_STAT, FROM_TIMES, FROM_LINES, FROM_MONITOR };

struct row {
    const char *figure, *label, *metric, *text;
    enum source source;
    enum pst_figure_type type;
    enum pst_figure_unit unit;
    size_t offset; /* in struct penstock_stat, or in struct own */
};

/* What the monitor tells of itself. */
struct own {
    uint64_t connections, scrapes, failures, spans_sent, spans_dropped, dropped;
};

#define NO_ROW(text)
#define STAT_ROW(name, metric, type, unit, text)                                                             \
    {#name,                                                                                                  \
     NULL,                                                                                                   \
     metric,                                                                                                 \
     text,                                                                                                   \
     FROM_STAT,                                                                                              \
     PST_FIGURE_##type,                                                                                      \
     PST_FIGURE_##unit,                                                                                      \
     offsetof(struct penstock_stat, name)},
#define LINE_ROW(figure, label, metric, type, unit, text)                                                    \
    {figure, label, metric, text, FROM_LINES, PST_FIGURE_##type, PST_FIGURE_##unit, 0},
#define COUNTER_ROW(name, text) LINE_ROW(#name, NULL, "penstock_pool_" #name "_total", COUNTER, COUNT, text)
#define GUEST_ROW(name, text)                                                                                \
    LINE_ROW("guest_" #name, NULL, "penstock_pool_guest_" #name "_total", COUNTER, COUNT, text)
#define OWN_ROW(name, metric, type, text)                                                                    \
    {NULL, NULL, metric, text, FROM_MONITOR, PST_FIGURE_##type, PST_FIGURE_COUNT, offsetof(struct own, name)},
static const struct row rows[] = {
    {NULL, "version, role", "penstock_build_info", "1; its labels say what runs", FROM_BUILD,
     PST_FIGURE_GAUGE, PST_FIGURE_COUNT, 0},
    PST_STAT_FIGURES(NO_ROW, STAT_ROW){"times", "operation", MONITOR_TIMES_METRIC, MONITOR_TIMES_TEXT,
                                       FROM_TIMES, PST_FIGURE_HISTOGRAM, PST_FIGURE_NS, 0},
    MONITOR_POOL_ROWS(LINE_ROW) PST_DIRECTORY_COUNTERS(COUNTER_ROW) PST_GUEST_TOTALS(GUEST_ROW)
        PST_MEMBER_COUNTERS(COUNTER_ROW) MONITOR_GRANT_ROWS(LINE_ROW) MONITOR_OWN_ROWS(OWN_ROW)};

static const char *const type_words[] = {
    [PST_FIGURE_GAUGE] = "gauge", [PST_FIGURE_COUNTER] = "counter", [PST_FIGURE_HISTOGRAM] = "histogram"};
/* How many of them are a second, and the digits behind its point. */
static const uint64_t second[] = {
    [PST_FIGURE_MS] = 1000, [PST_FIGURE_US] = 1000000, [PST_FIGURE_NS] = 1000000000};
static const int digits[] = {[PST_FIGURE_MS] = 3, [PST_FIGURE_US] = 6, [PST_FIGURE_NS] = 9};

/* ---- lines of figures ---- */

struct line {
    struct pst_bytes name;
    uint64_t value;
};

/* @text: "name value" lines, which the lines refer to. */
static uint32_t parse_lines(const char *text, struct line *lines)
{
    uint32_t count = 0;

    for (const char *end; count < LINES_MAX && (end = strchr(text, '\n')) != NULL; text = end + 1) {
        const char *blank = memchr(text, ' ', (size_t)(end - text));

        if (blank)
            lines[count++] = (struct line){{text, (size_t)(blank - text)}, strtoull(blank + 1, NULL, 10)};
    }
    pst_assert(count <= LINES_MAX);
    return count;
}

/* Whether @name is what @pattern says; *@part is what its '*' stands for. */
static bool matches(const char *pattern, struct pst_bytes name, struct pst_bytes *part)
{
    const char *star = strchr(pattern, '*'), *at = name.data;
    size_t front = star ? (size_t)(star - pattern) : strlen(pattern), back = star ? strlen(star + 1) : 0;

    pst_assert(!star || !strchr(star + 1, '*'));
    if (star ? name.len <= front + back : name.len != front)
        return false;
    *part = (struct pst_bytes){at + front, name.len - front - back};
    return memcmp(at, pattern, front) == 0 && (!star || memcmp(at + name.len - back, star + 1, back) == 0);
}

/* ---- the page ---- */

struct page {
    FILE *to;
    const char *family; /* the last one that was named */
    uint32_t series;
    uint64_t dropped;
    const struct line *lines;
    uint32_t line_count;
};

/* Whether there is room for @count series of the row's family, which is named before its first. */
static bool page_takes(struct page *page, const struct row *row, uint32_t count)
{
    pst_assert(count > 0);
    pst_assert((size_t)row->type < pst_count_of(type_words));
    if (page->series + count > MONITOR_SERIES_MAX && row->source != FROM_MONITOR) {
        page->dropped += count;
        return false;
    }
    page->series += count;
    if (page->family != row->metric)
        fprintf(page->to, "# HELP %s %s\n# TYPE %s %s\n", row->metric, row->text, row->metric,
                type_words[row->type]);
    page->family = row->metric;
    return true;
}

static void print_number(FILE *to, uint64_t value, enum pst_figure_unit unit)
{
    if (unit == PST_FIGURE_COUNT || unit == PST_FIGURE_BYTES) {
        fprintf(to, " %" PRIu64 "\n", value);
        return;
    }
    pst_assert((size_t)unit < pst_count_of(second));
    pst_assert(second[unit] > 0);
    fprintf(to, " %" PRIu64 ".%0*" PRIu64 "\n", value / second[unit], digits[unit], value % second[unit]);
}

void monitor_print_quoted(FILE *to, struct pst_bytes value)
{
    const char *at = value.data;

    fputc('"', to);
    for (size_t i = 0; i < value.len; i++) {
        if (at[i] == '\\' || at[i] == '"')
            fputc('\\', to);
        fputc((unsigned char)at[i] < 0x20 ? '?' : at[i], to);
    }
    fputc('"', to);
}

/* name="value" */
static void print_label(FILE *to, const char *name, struct pst_bytes value)
{
    fprintf(to, "%s=", name);
    monitor_print_quoted(to, value);
}

static void print_series(struct page *page, const struct row *row, struct pst_bytes label, uint64_t value)
{
    if (!page_takes(page, row, 1))
        return;
    fputs(row->metric, page->to);
    if (row->label) {
        fputc('{', page->to);
        print_label(page->to, row->label, label);
        fputc('}', page->to);
    }
    print_number(page->to, value, row->unit);
}

/* What a histogram counts: each bucket alone, the first for up to first_ns, the next ones for up to twice as
 * much each, the last for all others. */
struct histogram {
    const uint64_t *counts;
    uint32_t buckets;
    uint64_t first_ns;
    uint64_t total; /* in the row's unit */
};

static void print_histogram(struct page *page, const struct row *row, struct pst_bytes label,
                            const struct histogram *h)
{
    uint64_t sum = 0;

    pst_assert(h->buckets > 0);
    pst_assert(row->label);
    if (!page_takes(page, row, h->buckets + 2))
        return;
    for (uint32_t i = 0; i < h->buckets; i++) {
        sum += h->counts[i];
        fprintf(page->to, "%s_bucket{", row->metric);
        print_label(page->to, row->label, label);
        if (i < h->buckets - 1)
            fprintf(page->to, ",le=\"%.12g\"} %" PRIu64 "\n", (double)(h->first_ns << i) / 1e9, sum);
        else
            fprintf(page->to, ",le=\"+Inf\"} %" PRIu64 "\n", sum);
    }
    fprintf(page->to, "%s_sum{", row->metric);
    print_label(page->to, row->label, label);
    fputc('}', page->to);
    print_number(page->to, h->total, row->unit);
    fprintf(page->to, "%s_count{", row->metric);
    print_label(page->to, row->label, label);
    fprintf(page->to, "} %" PRIu64 "\n", sum);
}

/* ---- the kinds of rows ---- */

static void print_times(struct page *page, const struct row *row, const struct penstock_stat *stat)
{
    for (unsigned i = 0; i < PENSTOCK_TIMES; i++) {
        const struct penstock_time *time = &stat->times[i];
        const struct histogram histogram = {time->counts, PENSTOCK_TIME_BUCKETS, TIME_FIRST_NS,
                                            time->total_ns};
        bool any = false;

        for (uint32_t bucket = 0; bucket < PENSTOCK_TIME_BUCKETS; bucket++)
            any |= time->counts[bucket] > 0;
        if (any)
            print_histogram(page, row, pst_bytes_of(penstock_time_name(i)), &histogram);
    }
}

/* Which bucket "4" or "more" names. */
static uint32_t call_bucket(struct pst_bytes name)
{
    uint64_t us = strtoull(name.data, NULL, 10); /* a blank is behind the name */
    uint32_t bucket = us ? (uint32_t)__builtin_ctzll(us) : CALL_BUCKETS;

    return (uint32_t)pst_min(bucket, CALL_BUCKETS - 1);
}

/* The lines behind that of a call's count, which @at is, tell of its times. */
static void print_call(struct page *page, const struct row *row, struct pst_bytes call, uint32_t at)
{
    struct pst_bytes name = page->lines[at].name, part;
    uint64_t counts[CALL_BUCKETS] = {0}, total = 0;

    pst_assert(at < page->line_count);
    for (at++; at < page->line_count; at++) {
        const struct line *line = &page->lines[at];
        struct pst_bytes rest = {(const char *)line->name.data + name.len, line->name.len - name.len};

        if (line->name.len <= name.len || memcmp(line->name.data, name.data, name.len) != 0)
            break;
        if (pst_bytes_equal(rest, pst_bytes_of("_total_us")))
            total = line->value;
        else if (matches("_us_*", rest, &part))
            counts[call_bucket(part)] = line->value;
    }
    print_histogram(page, row, call, &(const struct histogram){counts, CALL_BUCKETS, CALL_FIRST_NS, total});
}

static void print_lines(struct page *page, const struct row *row)
{
    struct pst_bytes part, other;

    pst_assert(row->figure);
    for (uint32_t i = 0; i < page->line_count; i++) {
        const struct line *line = &page->lines[i];

        if (!matches(row->figure, line->name, &part))
            continue;
        if (row->type != PST_FIGURE_HISTOGRAM)
            print_series(page, row, part, line->value);
        else if (!matches("*_failed", part, &other) && !memmem(part.data, part.len, "_total_us", 9) &&
                 !memmem(part.data, part.len, "_us_", 4))
            print_call(page, row, part, i);
    }
}

static void print_build(struct page *page, const struct row *row, const char *role)
{
    if (page_takes(page, row, 1))
        fprintf(page->to, "%s{version=\"%d.%d.%d\",role=\"%s\"} 1\n", row->metric, PENSTOCK_VERSION_MAJOR,
                PENSTOCK_VERSION_MINOR, PENSTOCK_VERSION_PATCH, role);
}

static void print_member(struct page *page, const struct row *row, const void *of)
{
    uint64_t value;

    memcpy(&value, (const char *)of + row->offset, sizeof(value));
    print_series(page, row, pst_bytes_of(""), value);
}

static void print_rows(struct page *page, struct pst_monitor *monitor, const struct penstock_stat *stat)
{
    struct pst_span_counts spans = pst_spans_count();
    struct own own = {.connections = pst_web_connections(monitor->web),
                      .scrapes = atomic_fetch_add(&monitor->scrapes, 1) + 1,
                      .failures = monitor->failures,
                      .spans_sent = spans.sent,
                      .spans_dropped = spans.dropped};

    for (size_t i = 0; i < pst_count_of(rows); i++) {
        const struct row *row = &rows[i];

        if (!*row->metric)
            continue;
        if (row->source == FROM_BUILD) {
            print_build(page, row, monitor->ops->role);
        } else if (row->source == FROM_STAT) {
            print_member(page, row, stat);
        } else if (row->source == FROM_TIMES) {
            print_times(page, row, stat);
        } else if (row->source == FROM_LINES) {
            print_lines(page, row);
        } else { /* the last ones: no more is dropped */
            own.dropped = atomic_fetch_add(&monitor->dropped, page->dropped) + page->dropped;
            page->dropped = 0;
            print_member(page, row, &own);
        }
    }
}

int monitor_print(struct pst_monitor *monitor, const struct penstock_stat *stat, const char *text,
                  struct pst_web_answer *answer)
{
    struct line *lines = malloc(LINES_MAX * sizeof(*lines));
    struct page page = {.lines = lines};
    char *out = NULL;
    size_t bytes = 0;
    bool whole;
    int r = 0;

    page.to = lines ? open_memstream(&out, &bytes) : NULL;
    if (page.to) {
        page.line_count = parse_lines(text, lines);
        if (monitor->tells_umbp)
            r = monitor_print_umbp(monitor, page.to, &page.dropped);
        print_rows(&page, monitor, stat);
        whole = r == 0 && !ferror(page.to);
        if (fclose(page.to) == 0 && whole)
            answer->text = out;
    }
    free(lines);
    if (!answer->text)
        free(out);
    return answer->text ? 0 : -ENOMEM;
}

void monitor_metrics(struct pst_monitor *monitor, const struct pst_web_request *request,
                     struct pst_web_answer *answer)
{
    struct penstock_stat stat = {.size = sizeof(stat)};
    char *text = NULL;
    int r = penstock_stat(monitor->store, &stat);

    (void)request;
    if (r == 0)
        r = monitor_lines(monitor, &text);
    if (r == 0)
        r = monitor_print(monitor, &stat, text, answer);
    free(text);
    if (r < 0) {
        monitor->failures++;
        monitor_detail(answer, 503, "the node does not tell its figures: %s", strerror(-r));
        return;
    }
    answer->content_type = "text/plain; version=0.0.4; charset=utf-8";
}

/* A metric's name ends with its unit. */
static const char *unit_of(const char *metric)
{
    return strstr(metric, "_bytes") ? "bytes" : strstr(metric, "_seconds") ? "seconds" : "-";
}

void pst_monitor_list(void)
{
    for (size_t i = 0; i < pst_count_of(rows); i++) {
        const struct row *row = &rows[i];

        if (*row->metric)
            printf("%s\t%s\t%s\t%s\t%s\t%s\n", row->metric, type_words[row->type], unit_of(row->metric),
                   row->label ? row->label : "-", row->figure ? row->figure : "-", row->text);
    }
}
