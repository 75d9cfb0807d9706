/* SPDX-License-Identifier: Apache-2.0 */
/* stat.c: `penstock stat`: figures of the store below headings, or what is known of one value. */
#include "cli/cli.h"

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

enum unit { COUNT, BYTES, MS };

/* The order in which they are shown. FIGURE(member of struct penstock_stat, unit, meaning) */
#define STAT_ROWS(HEADING, FIGURE)                                                                           \
    HEADING("values")                                                                                        \
    FIGURE(keys, COUNT, "keys stored")                                                                       \
    FIGURE(value_bytes, BYTES, "of values")                                                                  \
    FIGURE(cache_keys, COUNT, "keys that may be evicted")                                                    \
    FIGURE(pinned, COUNT, "values pinned or in transfer")                                                    \
    FIGURE(pinned_bytes, BYTES, "of them")                                                                   \
    FIGURE(reservations, COUNT, "reservations not yet committed")                                            \
    FIGURE(reservation_bytes, BYTES, "of memory in them")                                                    \
    FIGURE(waits, COUNT, "gets that wait for their key")                                                     \
    FIGURE(watches, COUNT, "watches of prefixes, counted in every shard")                                    \
    HEADING("memory")                                                                                        \
    FIGURE(pages_used, COUNT, "pages in use")                                                                \
    FIGURE(pages, COUNT, "pages in all")                                                                     \
    FIGURE(page_bytes, BYTES, "a page has")                                                                  \
    FIGURE(arenas, COUNT, "arenas")                                                                          \
    FIGURE(slab_pages, COUNT, "cut into cells")                                                              \
    FIGURE(slab_bytes, BYTES, "of cells in use")                                                             \
    FIGURE(index_bytes, BYTES, "of indexes")                                                                 \
    FIGURE(rss_anon_bytes, BYTES, "of private memory in the process")                                        \
    HEADING("operations")                                                                                    \
    FIGURE(puts, COUNT, "values written")                                                                    \
    FIGURE(gets, COUNT, "values asked for")                                                                  \
    FIGURE(hits, COUNT, "of them found")                                                                     \
    FIGURE(misses, COUNT, "not found")                                                                       \
    FIGURE(deletes, COUNT, "keys deleted")                                                                   \
    FIGURE(evictions, COUNT, "values evicted")                                                               \
    FIGURE(evicted_bytes, BYTES, "of them")                                                                  \
    FIGURE(moved, COUNT, "values moved to free a page")                                                      \
    FIGURE(no_space, COUNT, "writes refused for want of memory")                                             \
    HEADING("SSD")                                                                                           \
    FIGURE(ssd_keys, COUNT, "keys whose values are on SSD alone")                                            \
    FIGURE(ssd_bytes, BYTES, "of them")                                                                      \
    FIGURE(ssd_capacity_bytes, BYTES, "of SSD for values")                                                   \
    FIGURE(ssd_live_bytes, BYTES, "of values there, of those in memory, too")                                \
    FIGURE(demotions, COUNT, "values moved from memory to SSD")                                              \
    FIGURE(demoted_bytes, BYTES, "written for it")                                                           \
    FIGURE(promotions, COUNT, "values brought back into memory")                                             \
    FIGURE(fetches, COUNT, "reads of the SSD for values")                                                    \
    FIGURE(fetched_bytes, BYTES, "read by them")                                                             \
    FIGURE(ssd_hits, COUNT, "operations that found their value there alone")                                 \
    FIGURE(ssd_appended_bytes, BYTES, "of values written there")                                             \
    FIGURE(ssd_written_bytes, BYTES, "written there in all")                                                 \
    FIGURE(ssd_moved_bytes, BYTES, "of values moved there to make room")                                     \
    FIGURE(ssd_reclaimed_bytes, BYTES, "of segments taken back")                                             \
    FIGURE(ssd_corrupt, COUNT, "values on SSD found damaged")                                                \
    FIGURE(ssd_errors, COUNT, "reads and writes that the SSD failed")                                        \
    HEADING("node")                                                                                          \
    FIGURE(nodes, COUNT, "of the pool that was asked")                                                       \
    FIGURE(shards, COUNT, "shards")                                                                          \
    FIGURE(sessions, COUNT, "clients connected")                                                             \
    FIGURE(uptime_ms, MS, "since the start")                                                                 \
    FIGURE(restored_keys, COUNT, "keys that the start found in memory and on SSD")                           \
    FIGURE(restored_dropped, COUNT, "records that it left out, as not whole")                                \
    FIGURE(restored_ms, MS, "that this took")                                                                \
    HEADING("refused")                                                                                       \
    FIGURE(refused_secret, COUNT, "clients refused: a wrong secret, or none")                                \
    FIGURE(refused_version, COUNT, "clients refused: no version that both speak")                            \
    FIGURE(refused_busy, COUNT, "clients refused: no room for another session")                              \
    FIGURE(refused_other, COUNT, "clients refused: too slow, or none of ours")                               \
    FIGURE(refused_plain, COUNT, "clients refused: without TLS, which the node wants")                       \
    FIGURE(refused_tls, COUNT, "clients refused: no TLS 1.3, or nothing in common")                          \
    FIGURE(refused_certificate, COUNT, "clients refused: no certificate, or one that proves nothing")        \
    FIGURE(refused_expired, COUNT, "clients refused: a certificate outside of its time")                     \
    FIGURE(refused_replayed, COUNT, "clients refused: TLS records that were replayed or changed")            \
    FIGURE(refused_by_client, COUNT, "clients that did not believe the node's certificate")                  \
    FIGURE(malformed, COUNT, "messages that broke the protocol")                                             \
    FIGURE(forbidden, COUNT, "operations beyond what their client's grant allows")                           \
    FIGURE(copies_asked, COUNT, "keys whose put asked for several copies")

struct row {
    const char *name; /* NULL: a heading */
    const char *text;
    size_t offset;
    enum unit unit;
};

#define HEADING_ROW(text_)              {NULL, text_, 0, COUNT},
#define FIGURE_ROW(name_, unit_, text_) {#name_, text_, offsetof(struct penstock_stat, name_), unit_},
static const struct row rows[] = {STAT_ROWS(HEADING_ROW, FIGURE_ROW)};

static uint64_t value_of(const struct row *row, const struct penstock_stat *s)
{
    uint64_t value;

    pst_assert(row->name && row->offset + sizeof(value) <= sizeof(*s));
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

    if (row->unit == BYTES)
        pst_cli_size(cli, value, text);
    else
        snprintf(text, sizeof(text), "%" PRIu64 "%s", value, row->unit == MS ? " ms" : "");
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
    print_pool(cli);
    printf("}\n");
}

int pst_cmd_stat(struct pst_cli *cli)
{
    struct penstock_stat s = {.size = sizeof(s)};
    int r;

    pst_assert(cli->store && cli->arg_count <= 1);
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
