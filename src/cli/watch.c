/* SPDX-License-Identifier: Apache-2.0 */
/* watch.c: what happens to the keys of a prefix, a line each. */
#include "cli/cli.h"

#include <inttypes.h>

static const char *word_of(int what)
{
    static const char *const words[] = {[PENSTOCK_EVENT_PUT] = "put",
                                        [PENSTOCK_EVENT_DELETED] = "deleted",
                                        [PENSTOCK_EVENT_EVICTED] = "evicted",
                                        [PENSTOCK_EVENT_MISSED] = "missed",
                                        [PENSTOCK_EVENT_RESET] = "reset"};

    pst_assert(what > 0);
    pst_assert((size_t)what < pst_count_of(words));
    return words[what];
}

static void print_json(const struct penstock_event *e)
{
    printf("{\"event\":\"%s\"", word_of(e->what));
    if (e->what == PENSTOCK_EVENT_MISSED)
        printf(",\"missed\":%" PRIu64, e->missed);
    if (e->key_bytes) {
        printf(",\"key\":");
        pst_json_string(stdout, e->key, e->key_bytes);
        printf(",\"bytes\":%" PRIu64 ",\"generation\":%" PRIu64, e->value_bytes, e->generation);
    }
    printf("}\n");
}

static void print_line(const struct penstock_event *e)
{
    if (e->what == PENSTOCK_EVENT_MISSED) {
        printf("missed  %" PRIu64 " events\n", e->missed);
    } else if (e->what == PENSTOCK_EVENT_RESET) {
        printf("reset   the connection was lost, events may be missing\n");
    } else {
        printf("%-7s %14" PRIu64 " %20" PRIu64 " ", word_of(e->what), e->value_bytes, e->generation);
        fwrite(e->key, 1, e->key_bytes, stdout);
        putchar('\n');
    }
}

/* Return: 0 when nobody reads the lines any more, or what went wrong. */
static int run(struct pst_cli *cli, struct penstock_watch *watch)
{
    struct penstock_event event;
    int r;

    for (;;) {
        r = penstock_watch_next(watch, 0, &event);
        if (r == 0) { /* nothing more at once: show what there is */
            if (fflush(stdout) != 0) {
                if (errno == EPIPE)
                    clearerr(stdout); /* nothing is lost to a reader that has gone */
                return 0;
            }
            r = penstock_watch_next(watch, -1, &event);
        }
        if (r < 0)
            return r;
        if (r == 1)
            cli->json ? print_json(&event) : print_line(&event);
    }
}

int pst_cmd_watch(struct pst_cli *cli)
{
    const char *prefix = cli->arg_count ? cli->args[0] : "";
    struct penstock_watch *watch;
    int r;

    pst_assert(cli->store);
    pst_assert(cli->arg_count <= 1);
    r = penstock_watch_open(cli->store, prefix, strlen(prefix), &watch);
    if (r)
        return pst_cli_fail(r);
    fprintf(stderr, "penstock: watching\n"); /* from here on nothing is missed */
    r = run(cli, watch);
    penstock_watch_close(watch);
    return r ? pst_cli_fail(r) : 0;
}
