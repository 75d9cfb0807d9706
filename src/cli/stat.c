/* SPDX-License-Identifier: Apache-2.0 */
/* stat.c: `penstock stat`: figures of the store below headings, or what is known of one value. */
#include "cli/cli.h"
#include "wire/figures.h"

#include <inttypes.h>

enum { POOL_TEXT_BYTES = 60 << 10 };

/* ---- one value ---- */

static int stat_key(struct pst_cli *cli, const char *key)
{
    char attrs[PENSTOCK_ATTR_BYTES_MAX], size[PST_SIZE_TEXT_BYTES];
    struct penstock_op op = {0};

    penstock_prep(&op, PENSTOCK_STAT_KEY, key, strlen(key));
    op.attrs = attrs;
    op.attr_bytes = sizeof(attrs);
    penstock_batch(cli->store, &op, 1);
    if (op.result)
        return pst_cli_fail_key(key, op.result);
    pst_assert(op.attr_bytes <= sizeof(attrs));
    if (cli->json)
        printf("{\"bytes\":%" PRIu64 ",\"generation\":%" PRIu64 ",\"attributes\":", op.value_bytes,
               op.generation);
    else
        printf("size        %s\ngeneration  %" PRIu64 "\nattributes  ",
               pst_cli_size(cli, op.value_bytes, size), op.generation);
    pst_json_string(stdout, attrs, op.attr_bytes);
    printf(cli->json ? "}\n" : "\n");
    return 0;
}

/* ---- the store ---- */

struct row {
    const char *name; /* NULL: a heading */
    const char *text;
    size_t offset;
    enum pst_figure_unit unit;
};

#define HEADING_ROW(text_) {NULL, text_, 0, PST_FIGURE_COUNT},
#define FIGURE_ROW(name_, metric, type, unit_, text_)                                                        \
    {#name_, text_, offsetof(struct penstock_stat, name_), PST_FIGURE_##unit_},
static const struct row rows[] = {PST_STAT_FIGURES(HEADING_ROW, FIGURE_ROW)};

static uint64_t value_of(const struct row *row, const struct penstock_stat *s)
{
    uint64_t value;

    pst_assert(row->name);
    pst_assert(row->offset + sizeof(value) <= sizeof(*s));
    memcpy(&value, (const char *)s + row->offset, sizeof(value));
    return value;
}

/* Bytes written there for each byte of a value. */
static double write_amplification(const struct penstock_stat *s)
{
    return s->ssd_appended_bytes ? (double)s->ssd_written_bytes / (double)s->ssd_appended_bytes : 0;
}

static void print_figure(const struct pst_cli *cli, const struct row *row, uint64_t value)
{
    char text[PST_SIZE_TEXT_BYTES];

    if (row->unit == PST_FIGURE_BYTES)
        pst_cli_size(cli, value, text);
    else
        snprintf(text, sizeof(text), "%" PRIu64 "%s", value, row->unit == PST_FIGURE_MS ? " ms" : "");
    printf("  %-19s %16s  %s\n", row->name, text, row->text);
}

/* A heading is printed when a figure below it is. */
static void print_figures(const struct pst_cli *cli, const struct penstock_stat *s)
{
    const char *heading = NULL;

    printf("%" PRIu64 " keys stored, lane %s\n", s->keys, penstock_lane(cli->store));
    for (size_t i = 0; i < pst_count_of(rows); i++) {
        if (!rows[i].name)
            heading = rows[i].text;
        if (!rows[i].name || (!cli->all && value_of(&rows[i], s) == 0))
            continue;
        if (heading)
            printf("%s\n", heading);
        heading = NULL;
        print_figure(cli, &rows[i], value_of(&rows[i], s));
    }
    if (cli->all || s->ssd_written_bytes)
        printf("SSD, in all\n  %-19s %16.3f  ssd_written_bytes over ssd_appended_bytes\n",
               "write_amplification", write_amplification(s));
}

/* What a pool's master counts, if the store is a pool. */
static void print_pool(const struct pst_cli *cli)
{
    char text[POOL_TEXT_BYTES], *state = NULL;
    const char *gap = "";

    if (penstock_pool_stat(cli->store, text, sizeof(text)) < 0)
        return;
    printf(cli->json ? ",\"pool\":{" : "pool\n");
    for (const char *name = strtok_r(text, " ", &state); name; name = strtok_r(NULL, " ", &state)) {
        const char *value = strtok_r(NULL, "\n", &state);

        if (cli->json)
            printf("%s\"%s\":%s", gap, name, value ? value : "0");
        else if (cli->all || (value && strcmp(value, "0") != 0))
            printf("  %-27s %8s\n", name, value ? value : "0");
        gap = ",";
    }
    printf(cli->json ? "}" : "");
}

static void print_times(const struct penstock_stat *s)
{
    for (unsigned i = 0; i < PENSTOCK_TIMES; i++) {
        const struct penstock_time *time = &s->times[i];

        printf("%s\"%s\":{\"total_ns\":%" PRIu64, i ? "," : ",\"times\":{", penstock_time_name(i),
               time->total_ns);
        for (unsigned bucket = 0; bucket < PENSTOCK_TIME_BUCKETS; bucket++)
            printf("%s%" PRIu64, bucket ? "," : ",\"counts\":[", time->counts[bucket]);
        printf("]}");
    }
    printf("}");
}

static void print_object(const struct pst_cli *cli, const struct penstock_stat *s)
{
    const char *gap = "{";

    for (size_t i = 0; i < pst_count_of(rows); i++) {
        if (!rows[i].name)
            continue;
        printf("%s\"%s\":%" PRIu64, gap, rows[i].name, value_of(&rows[i], s));
        gap = ",";
    }
    printf(",\"write_amplification\":%.3f,\"lane\":\"%s\"", write_amplification(s),
           penstock_lane(cli->store));
    print_times(s);
    print_pool(cli);
    printf("}\n");
}

int pst_cmd_stat(struct pst_cli *cli)
{
    struct penstock_stat s = {.size = sizeof(s)};
    int r;

    pst_assert(cli->store);
    pst_assert(cli->arg_count <= 1);
    if (cli->arg_count == 1)
        return stat_key(cli, cli->args[0]);
    r = penstock_stat(cli->store, &s);
    if (r)
        return pst_cli_fail(r);
    if (cli->json) {
        print_object(cli, &s);
        return 0;
    }
    print_figures(cli, &s);
    print_pool(cli);
    return 0;
}
