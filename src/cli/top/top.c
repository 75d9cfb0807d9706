/* SPDX-License-Identifier: Apache-2.0 */
/* top.c: `penstock top`: looks at a store time after time, until it is interrupted. */
#include "cli/top/screen.h"

#include "base/clock.h"

#include <signal.h>
#include <time.h>

static volatile sig_atomic_t interrupted, looking, screen;

/* Between two lines it ends with the next one. A look at a node that does not answer may take as long as
 * several deadlines: that ends at once. */
static void on_signal(int number)
{
    (void)number;
    interrupted = 1;
    if (!looking)
        return;
    if (screen)
        pst_screen_end_now();
    _exit(PST_EXIT_OK);
}

/* The shell has its screen while this is stopped. Handled once, so that the same signal then stops. */
static void on_stop(int number)
{
    struct sigaction action = {.sa_handler = on_stop, .sa_flags = SA_RESETHAND | SA_NODEFER | SA_RESTART};
    int before = errno;

    pst_screen_end_now();
    raise(number);
    pst_screen_begin_now();
    sigaction(number, &action, NULL);
    errno = before;
}

static double per_second(uint64_t now, uint64_t before, uint64_t ns)
{
    return now > before && ns ? (double)(now - before) * 1e9 / (double)ns : 0;
}

static uint64_t refusals(const struct penstock_stat *s)
{
    return s->refused_secret + s->refused_version + s->refused_busy + s->refused_other + s->refused_plain +
           s->refused_tls + s->refused_certificate + s->refused_expired + s->refused_replayed + s->forbidden +
           s->no_space;
}

static struct pst_rates rates_between(const struct pst_look *before, const struct pst_look *now)
{
    const struct penstock_stat *a = &before->stat, *b = &now->stat;
    uint64_t ns = now->at_ns - before->at_ns;

    pst_assert(now->at_ns >= before->at_ns);
    if (before->result || now->result || !before->at_ns || b->uptime_ms < a->uptime_ms)
        return (struct pst_rates){0};
    return (struct pst_rates){.gets = per_second(b->gets, a->gets, ns),
                              .hits = per_second(b->hits, a->hits, ns),
                              .puts = per_second(b->puts, a->puts, ns),
                              .deletes = per_second(b->deletes, a->deletes, ns),
                              .evictions = per_second(b->evictions, a->evictions, ns),
                              .refused = per_second(refusals(b), refusals(a), ns)};
}

static void look_at(struct pst_cli *cli, const struct pst_look *before, struct pst_look *look)
{
    look->stat = (struct penstock_stat){.size = sizeof(look->stat)};
    look->node_count = PST_LOOK_NODES_MAX;
    if (penstock_pool_nodes(cli->store, look->nodes, &look->node_count) != 0)
        look->node_count = 0; /* it is no pool, or its master is away */
    look->node_count = pst_min(look->node_count, PST_LOOK_NODES_MAX);
    look->result = penstock_ping(cli->store, &look->ping_ns);
    if (look->result == 0)
        look->result = penstock_stat(cli->store, &look->stat);
    look->at_ns = pst_now_ns();
    look->rates = rates_between(before, look);
}

/* Until the next look is due, or a signal comes. */
static void wait_for(uint64_t at_ns)
{
    uint64_t now_ns = pst_now_ns(), left_ns = at_ns > now_ns ? at_ns - now_ns : 0;
    struct timespec left = {.tv_sec = (time_t)(left_ns / 1000000000),
                            .tv_nsec = (long)(left_ns % 1000000000)};

    if (!interrupted)
        nanosleep(&left, NULL);
}

/* Return: the result of the last look. */
static int watch_store(struct pst_cli *cli, struct penstock_pool_node *nodes)
{
    struct pst_history gets = {.count = 0}, puts = {.count = 0};
    struct pst_look look = {.nodes = nodes}, before = look;

    for (uint64_t i = 0; !interrupted && (!cli->count || i < cli->count); i++) {
        if (i > 0)
            wait_for(before.at_ns + cli->every * 1000000);
        looking = 1;
        if (interrupted)
            break;
        look_at(cli, &before, &look);
        looking = 0;
        pst_history_add(&gets, look.rates.gets);
        pst_history_add(&puts, look.rates.puts);
        if (screen)
            pst_screen_show(cli, &look, &gets, &puts);
        else if (cli->json)
            pst_look_json(&look);
        else
            pst_look_line(&look, i == 0);
        if (ferror(stdout))
            break;
        before = look;
    }
    return look.result;
}

int pst_cmd_top(struct pst_cli *cli)
{
    pst_cleanup_free struct penstock_pool_node *nodes = calloc(PST_LOOK_NODES_MAX, sizeof(*nodes));
    struct sigaction action = {.sa_handler = on_signal},
                     stops = {.sa_handler = on_stop, .sa_flags = SA_RESETHAND | SA_NODEFER | SA_RESTART};
    int r;

    if (!nodes)
        return pst_cli_fail(-ENOMEM);
    screen = isatty(fileno(stdout)) && !cli->json;
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    if (screen)
        pst_screen_begin_now();
    if (screen)
        sigaction(SIGTSTP, &stops, NULL);
    r = watch_store(cli, nodes);
    if (screen)
        pst_screen_end();
    return r ? pst_cli_fail(r) : PST_EXIT_OK;
}
