/* SPDX-License-Identifier: Apache-2.0 */
/* screen.c: the screen, the lines and the objects of `penstock top`. */
#include "cli/top/screen.h"

#include <inttypes.h>
#include <sys/ioctl.h>

enum { BAR_CELLS = 24, LINES_ABOVE_NODES = 10, LINES_USUAL = 24 };

/* The screen of a terminal with too few lines stays where it is. */
#define NEXT_LINE "\033[K\033[E"

void pst_history_add(struct pst_history *history, double value)
{
    pst_assert(history->count <= PST_LOOKS_KEPT);
    if (history->count == PST_LOOKS_KEPT) {
        memmove(history->values, history->values + 1, sizeof(history->values) - sizeof(history->values[0]));
        history->count--;
    }
    history->values[history->count++] = value;
}

static double share(double part, double whole)
{
    return whole > 0 ? part / whole : 0;
}

/* A count for people, "12.3k". */
static const char *count_text(double count, char text[PST_SIZE_TEXT_BYTES])
{
    static const char units[] = " kMGT";
    size_t unit = 0;

    for (; count >= 999.95 && unit + 2 < sizeof(units); unit++)
        count /= 1000;
    pst_assert(unit + 1 < sizeof(units));
    if (unit == 0)
        snprintf(text, PST_SIZE_TEXT_BYTES, "%.0f", count);
    else
        snprintf(text, PST_SIZE_TEXT_BYTES, "%.1f%c", count, units[unit]);
    return text;
}

static void print_bar(double filled)
{
    int cells = (int)((filled < 1 ? filled : 1) * BAR_CELLS + 0.5);

    putchar('[');
    for (int i = 0; i < BAR_CELLS; i++)
        putchar(i < cells ? '#' : '.');
    printf("] %5.1f %%", 100 * filled);
}

static void print_history(const char *name, const struct pst_history *history)
{
    static const char *const steps[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
    char text[PST_SIZE_TEXT_BYTES];
    double most = 0;

    pst_assert(history->count <= PST_LOOKS_KEPT);
    for (size_t i = 0; i < history->count; i++)
        most = history->values[i] > most ? history->values[i] : most;
    printf("%-9s", name);
    for (size_t i = history->count; i < PST_LOOKS_KEPT; i++)
        putchar(' ');
    for (size_t i = 0; i < history->count; i++)
        fputs(steps[(size_t)(share(history->values[i], most) * (pst_count_of(steps) - 1) + 0.5)], stdout);
    printf(" %8s at most" NEXT_LINE, count_text(most, text));
}

/* ---- the terminal ---- */

/* A screen beside the shell's, without a cursor; a line that is too long ends at the edge. */
#define BEGIN_SCREEN "\033[?1049h\033[?25l\033[?7l"
#define END_SCREEN   "\033[?7h\033[?25h\033[?1049l"

void pst_screen_begin_now(void)
{
    (void)!write(fileno(stdout), BEGIN_SCREEN, sizeof(BEGIN_SCREEN) - 1);
}

void pst_screen_end(void)
{
    fputs(END_SCREEN, stdout);
    fflush(stdout);
}

void pst_screen_end_now(void)
{
    (void)!write(fileno(stdout), END_SCREEN, sizeof(END_SCREEN) - 1);
}

static size_t lines_of_terminal(void)
{
    struct winsize size;

    return ioctl(fileno(stdout), TIOCGWINSZ, &size) == 0 && size.ws_row > 0 ? size.ws_row : LINES_USUAL;
}

static void print_rates(const struct pst_rates *rates)
{
    char text[6][PST_SIZE_TEXT_BYTES];

    printf("rates    gets %s/s, %.1f %% hit  puts %s/s  deletes %s/s  evictions %s/s  refused %s/s" NEXT_LINE,
           count_text(rates->gets, text[0]), 100 * share(rates->hits, rates->gets),
           count_text(rates->puts, text[1]), count_text(rates->deletes, text[2]),
           count_text(rates->evictions, text[3]), count_text(rates->refused, text[4]));
}

/* A tier, unless the store has none of it. */
static void print_tier(const char *name, uint64_t used_bytes, uint64_t bytes)
{
    char size[PST_SIZE_TEXT_BYTES];

    if (!bytes)
        return;
    printf("%-9s", name);
    print_bar(share((double)used_bytes, (double)bytes));
    printf(" of %s" NEXT_LINE, pst_size_text(bytes, size));
}

static void print_fill(const struct penstock_stat *s)
{
    char size[PST_SIZE_TEXT_BYTES];

    print_tier("HBM", s->hbm_used_bytes, s->hbm_capacity_bytes);
    print_tier("memory", s->pages_used * s->page_bytes, s->pages * s->page_bytes);
    print_tier("SSD", s->ssd_live_bytes, s->ssd_capacity_bytes);
    printf("values   %" PRIu64 " keys, %s; pinned %" PRIu64 ", waits %" PRIu64 NEXT_LINE, s->keys,
           pst_size_text(s->value_bytes, size), s->pinned, s->waits);
}

static void print_node(const struct penstock_pool_node *node)
{
    printf("%-24.40s %-8s %5" PRIu32 " + %4" PRIu32 "  ", node->address, penstock_pool_node_state(node),
           node->primaries, node->copies);
    print_bar(share((double)node->used_bytes, (double)node->capacity_bytes));
    if (node->flags & PENSTOCK_NODE_DRAINS)
        printf("  %" PRIu64 " keys left", node->keys_left);
    fputs(NEXT_LINE, stdout);
}

/* Those that fit on the screen. */
static void print_nodes(const struct pst_look *look)
{
    size_t lines = lines_of_terminal();
    size_t room = lines > LINES_ABOVE_NODES ? lines - LINES_ABOVE_NODES : 1;
    size_t shown = pst_min(look->node_count, room);

    pst_assert(look->node_count <= PST_LOOK_NODES_MAX);
    if (look->node_count == 0)
        return;
    printf("%-24s %-8s %12s  memory" NEXT_LINE, "node", "state", "partitions");
    for (size_t i = 0; i < shown; i++)
        print_node(&look->nodes[i]);
    if (shown < look->node_count)
        printf("and %zu more" NEXT_LINE, look->node_count - shown);
}

void pst_screen_show(const struct pst_cli *cli, const struct pst_look *look, const struct pst_history *gets,
                     const struct pst_history *puts)
{
    const struct penstock_stat *s = &look->stat;

    fputs("\033[H", stdout);
    if (look->result) {
        printf("%s: %s" NEXT_LINE, cli->url ? cli->url : "the node", penstock_error());
    } else {
        printf("penstock %s  lane %s  ping %.0f us  %" PRIu64 " clients  up %" PRIu64 " s" NEXT_LINE,
               cli->url ? cli->url : "", penstock_lane(cli->store), (double)look->ping_ns / 1e3, s->sessions,
               s->uptime_ms / 1000);
        print_fill(s);
        print_rates(&look->rates);
        print_history("gets/s", gets);
        print_history("puts/s", puts);
        print_nodes(look);
    }
    fputs("\033[J", stdout); /* what an earlier look had below */
    fflush(stdout);
}

/* ---- lines and objects ---- */

void pst_look_line(const struct pst_look *look, bool first)
{
    const struct penstock_stat *s = &look->stat;

    if (first)
        printf("%10s %8s %8s %8s %10s %10s %10s %9s\n", "keys", "memory %", "SSD %", "hit %", "gets/s",
               "puts/s", "evicted/s", "ping us");
    if (look->result)
        printf("penstock: %s\n", penstock_error());
    else
        printf("%10" PRIu64 " %8.1f %8.1f %8.1f %10.0f %10.0f %10.0f %9.0f\n", s->keys,
               100 * share((double)s->pages_used, (double)s->pages),
               100 * share((double)s->ssd_live_bytes, (double)s->ssd_capacity_bytes),
               100 * share(look->rates.hits, look->rates.gets), look->rates.gets, look->rates.puts,
               look->rates.evictions, (double)look->ping_ns / 1e3);
    fflush(stdout);
}

static void print_json_nodes(const struct pst_look *look)
{
    pst_assert(look->node_count <= PST_LOOK_NODES_MAX);
    printf(",\"nodes\":[");
    for (size_t i = 0; i < look->node_count; i++) {
        const struct penstock_pool_node *node = &look->nodes[i];

        printf("%s{\"address\":", i ? "," : "");
        pst_json_string(stdout, node->address, strlen(node->address));
        printf(",\"state\":\"%s\",\"primaries\":%" PRIu32 ",\"copies\":%" PRIu32 ",\"used_bytes\":%" PRIu64
               ",\"capacity_bytes\":%" PRIu64 "}",
               penstock_pool_node_state(node), node->primaries, node->copies, node->used_bytes,
               node->capacity_bytes);
    }
    putchar(']');
}

void pst_look_json(const struct pst_look *look)
{
    const struct penstock_stat *s = &look->stat;
    const struct pst_rates *rates = &look->rates;

    if (look->result) {
        printf("{\"error\":");
        pst_json_string(stdout, penstock_error(), strlen(penstock_error()));
    } else {
        printf("{\"keys\":%" PRIu64 ",\"value_bytes\":%" PRIu64 ",\"memory_bytes\":%" PRIu64
               ",\"memory_used_bytes\":%" PRIu64 ",\"ssd_bytes\":%" PRIu64 ",\"ssd_used_bytes\":%" PRIu64
               ",\"hbm_bytes\":%" PRIu64 ",\"hbm_used_bytes\":%" PRIu64 ",\"sessions\":%" PRIu64
               ",\"uptime_ms\":%" PRIu64 ",\"ping_us\":%.1f",
               s->keys, s->value_bytes, s->pages * s->page_bytes, s->pages_used * s->page_bytes,
               s->ssd_capacity_bytes, s->ssd_live_bytes, s->hbm_capacity_bytes, s->hbm_used_bytes,
               s->sessions, s->uptime_ms, (double)look->ping_ns / 1e3);
        printf(",\"gets_per_s\":%.1f,\"hits_per_s\":%.1f,\"puts_per_s\":%.1f,\"deletes_per_s\":%.1f"
               ",\"evictions_per_s\":%.1f,\"refused_per_s\":%.1f",
               rates->gets, rates->hits, rates->puts, rates->deletes, rates->evictions, rates->refused);
        if (look->node_count)
            print_json_nodes(look);
    }
    printf("}\n");
    fflush(stdout);
}
