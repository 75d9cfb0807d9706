/* SPDX-License-Identifier: Apache-2.0 */
/*
 * replay.c: plays a request trace against a store, as a server of language models would: which pages of this
 * prefix are there, read those, write the others. Requests follow one another as fast as they go. An embedded
 * store is opened for each policy and capacity; any other one is taken as it is, by several clients if so
 * told, each of which plays the next request that none has begun.
 */
#include "cli/cli.h"
#include "cli/replay/trace.h"

#include "base/clock.h"

#include <inttypes.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>

#define PREFIX "penstock-replay/"

enum {
    KEY_BYTES = sizeof(PREFIX) - 1 + 8,
    BATCH_MAX = 128,
    BUFFER_BYTES_MAX = 64 << 20, /* of values underway, unless one is larger */
    SAMPLES_MAX = 1 << 18,       /* of each kind; the last ones */
    RUNS_MAX = 64,
    RECORD_BYTES = 128, /* at most, of memory for a page's record and key */
    SEGMENTS = 32,      /* of an SSD, if they are not larger than they need be */
};

enum kind { EXISTS, GET, PUT, KINDS };
static const char *const kind_names[] = {"exists", "get", "put"};

struct samples {
    uint32_t *ns;
    _Atomic uint64_t count;
};

struct run {
    char policy[16]; /* "": the store's own */
    uint64_t capacity_pages;
    uint64_t hits, written, refused;            /* pages */
    uint64_t hits_ssd, memory_pages, ssd_pages; /* of the hits; what is there at the end */
    uint64_t appended_bytes, log_bytes;         /* of values written to the SSD; written there in all */
    int64_t optimum;                            /* hits; -1: nobody asked */
    uint64_t evictions;
    double seconds;
    double p50_us[KINDS], p99_us[KINDS];
};

/* A client of the store, with a thread of its own if there are several. */
struct player {
    struct replay *p;
    struct penstock *store;
    char (*keys)[KEY_BYTES + 1]; /* of one request's pages */
    struct iovec *names;
    struct penstock_op ops[BATCH_MAX];
    uint8_t *buffer;
    struct run run;
    int result;
    pthread_t thread;
};

struct replay {
    struct pst_cli *cli;
    struct pst_trace trace;
    _Atomic uint64_t next; /* request */
    uint64_t longest;      /* pages */
    uint32_t batch;
    struct samples samples[KINDS];
    struct run runs[RUNS_MAX];
    uint32_t run_count;
    uint64_t ssd_pages; /* of its capacity; 0: none */
    int64_t hits_max;
};

/* ---- one request ---- */

static void sample(struct replay *p, enum kind kind, uint64_t begun_ns)
{
    struct samples *s = &p->samples[kind];

    s->ns[atomic_fetch_add(&s->count, 1) % SAMPLES_MAX] =
        (uint32_t)pst_min(pst_now_ns() - begun_ns, UINT32_MAX);
}

static void stamp(uint8_t *value, uint32_t page)
{
    memcpy(value, &page, sizeof(page));
}

/* Counts what came of operations on pages from @at on. Return: 0, PENSTOCK_MISS a page had gone before it was
 * read, or why all of it failed. */
static int count_results(struct player *c, enum kind kind, const uint32_t *pages, uint64_t at, uint64_t count)
{
    struct run *run = &c->run;

    for (uint64_t i = 0; i < count; i++) {
        const struct penstock_op *op = &c->ops[i];

        if (kind == PUT && (op->result == -ENOSPC || op->result == PENSTOCK_BUSY))
            run->refused++;
        else if (kind == PUT && op->result == PENSTOCK_EXISTS)
            continue;
        else if (op->result)
            return op->result;
        else if (kind == GET && memcmp(op->data, &pages[at + i], sizeof(pages[0])) != 0)
            return -EBADMSG;
        else
            *(kind == PUT ? &run->written : &run->hits) += 1;
    }
    return 0;
}

/* Reads or writes pages [@from, @to) of a request, in their order. Return: as count_results(). */
static int move_pages(struct player *c, enum kind kind, const uint32_t *pages, uint64_t from, uint64_t to)
{
    struct replay *p = c->p;
    uint64_t page_bytes = p->cli->page_size;

    for (uint64_t at = from; at < to; at += p->batch) {
        uint64_t count = pst_min(p->batch, to - at), begun_ns;
        int r;

        for (uint64_t i = 0; i < count; i++) {
            struct penstock_op *op = &c->ops[i];
            uint8_t *value = c->buffer + i * page_bytes;

            penstock_prep(op, kind == GET ? PENSTOCK_GET : PENSTOCK_PUT, c->keys[at + i], KEY_BYTES);
            op->data = value;
            op->bytes = page_bytes;
            op->depth = (uint16_t)(at + i);
            if (kind == PUT) {
                op->flags = PENSTOCK_IF_ABSENT;
                stamp(value, pages[at + i]);
            }
        }
        begun_ns = pst_now_ns();
        r = penstock_batch(c->store, c->ops, count);
        if (r < 0)
            return r;
        sample(p, kind, begun_ns);
        r = count_results(c, kind, pages, at, count);
        if (r)
            return r;
    }
    return 0;
}

static int play_request(struct player *c, uint64_t request)
{
    struct replay *p = c->p;
    const uint32_t *pages = p->trace.pages + p->trace.starts[request];
    uint64_t count = p->trace.starts[request + 1] - p->trace.starts[request], before = c->run.hits, begun_ns;
    size_t there = 0;
    int r;

    if (count == 0)
        return 0;
    for (uint64_t i = 0; i < count; i++) {
        snprintf(c->keys[i], sizeof(c->keys[i]), PREFIX "%08" PRIx32, pages[i]);
        c->names[i] = (struct iovec){c->keys[i], KEY_BYTES};
    }
    begun_ns = pst_now_ns();
    r = penstock_exists_consecutive(c->store, c->names, count, &there);
    if (r < 0)
        return r;
    sample(p, EXISTS, begun_ns);
    r = move_pages(c, GET, pages, 0, there);
    if (r && r != PENSTOCK_MISS)
        return r;
    return move_pages(c, PUT, pages, c->run.hits - before, count);
}

/* ---- clients ---- */

static int player_init(struct player *c, struct replay *p)
{
    c->p = p;
    c->keys = calloc(p->longest, sizeof(*c->keys));
    c->names = calloc(p->longest, sizeof(*c->names));
    c->buffer = calloc(p->batch, p->cli->page_size);
    return c->keys && c->names && c->buffer ? 0 : -ENOMEM;
}

static void player_fini(struct player *c)
{
    free(c->keys);
    free(c->names);
    free(c->buffer);
}

/* Plays what is left until another one has failed, or it has. */
static void *player_main(void *arg)
{
    struct player *c = arg;
    struct replay *p = c->p;

    for (;;) {
        uint64_t request = atomic_fetch_add(&p->next, 1);

        if (request >= p->trace.request_count)
            return NULL;
        c->result = play_request(c, request);
        if (c->result)
            atomic_store(&p->next, p->trace.request_count);
    }
}

/* All but the first, who works here, open the store anew. Return: 0, or the exit code of what was printed. */
static int open_stores(struct replay *p, struct player *players, uint32_t count)
{
    int code = 0;

    players[0].store = p->cli->store;
    for (uint32_t i = 1; i < count && code == 0; i++) {
        struct pst_cli cli = *p->cli;

        cli.store = NULL;
        code = pst_cli_open(&cli, cli.url);
        players[i].store = cli.store;
    }
    return code;
}

static void play_together(struct replay *p, struct player *players, uint32_t count)
{
    uint32_t begun = 1;

    atomic_store(&p->next, 0);
    for (; begun < count; begun++) {
        players[0].result = -pthread_create(&players[begun].thread, NULL, player_main, &players[begun]);
        if (players[0].result) {
            atomic_store(&p->next, p->trace.request_count);
            break;
        }
    }
    if (!players[0].result)
        player_main(&players[0]);
    while (--begun > 0)
        pthread_join(players[begun].thread, NULL);
}

/* Return: 0, or the exit code of what was printed. */
static int play_requests(struct replay *p, struct run *run)
{
    uint32_t count = (uint32_t)p->cli->clients;
    struct player *players = calloc(count, sizeof(*players));
    int r = players ? 0 : -ENOMEM, code = 0;
    uint64_t begun_ns;

    for (uint32_t i = 0; i < count && r == 0; i++)
        r = player_init(&players[i], p);
    if (r == 0)
        code = open_stores(p, players, count);
    begun_ns = pst_now_ns();
    if (r == 0 && code == 0)
        play_together(p, players, count);
    run->seconds = (double)(pst_now_ns() - begun_ns) / 1e9;
    for (uint32_t i = 0; players && i < count; i++) {
        struct player *c = &players[i];

        r = r ? r : c->result;
        run->hits += c->run.hits;
        run->written += c->run.written;
        run->refused += c->run.refused;
        if (i > 0)
            penstock_close(c->store);
        player_fini(c);
    }
    free(players);
    return r ? pst_cli_fail(r) : code;
}

/* ---- one run ---- */

static int by_value(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

    return (x > y) - (x < y);
}

static void rank(struct replay *p, struct run *run)
{
    for (int kind = 0; kind < KINDS; kind++) {
        struct samples *s = &p->samples[kind];
        uint64_t count = pst_min(atomic_exchange(&s->count, 0), SAMPLES_MAX), middle = count / 2,
                 late = count * 99 / 100;

        qsort(s->ns, count, sizeof(*s->ns), by_value);
        run->p50_us[kind] = count ? (double)s->ns[middle] / 1000 : 0;
        run->p99_us[kind] = count ? (double)s->ns[late] / 1000 : 0;
    }
}

static int play(struct replay *p, struct run *run)
{
    struct penstock_stat before = {.size = sizeof(before)}, after = {.size = sizeof(after)};
    int r = penstock_delete_prefix(p->cli->store, PREFIX, sizeof(PREFIX) - 1, NULL), code;

    if (r == 0)
        r = penstock_stat(p->cli->store, &before);
    if (r)
        return pst_cli_fail(r);
    code = play_requests(p, run);
    if (code)
        return code;
    r = penstock_stat(p->cli->store, &after);
    run->evictions = after.evictions - before.evictions;
    run->hits_ssd = pst_min(run->hits, after.ssd_hits - before.ssd_hits);
    run->memory_pages = after.keys - after.ssd_keys;
    run->ssd_pages = after.ssd_keys;
    run->appended_bytes = after.ssd_appended_bytes - before.ssd_appended_bytes;
    run->log_bytes = after.ssd_written_bytes - before.ssd_written_bytes;
    rank(p, run);
    if (r == 0)
        r = penstock_delete_prefix(p->cli->store, PREFIX, sizeof(PREFIX) - 1, NULL);
    return r ? pst_cli_fail(r) : 0;
}

/* The embedded store of the run. Without an SSD a quota has it hold just so many pages; with one, whose
 * values count, too, both tiers have just so many bytes, and the memory what describes the pages on top. */
static int store_url(const struct replay *p, const struct run *run, char *out, size_t room)
{
    const char *url = p->cli->url ? p->cli->url : "mem:", *ssd = p->cli->ssd;
    uint64_t bytes = run->capacity_pages * p->cli->page_size, ssd_bytes = p->ssd_pages * p->cli->page_size;
    int n =
        snprintf(out, room, "%s%ccache=" PREFIX "&policy=%s", url, strchr(url, '?') ? '&' : '?', run->policy);

    if (n < 0 || (size_t)n >= room)
        return -ENAMETOOLONG;
    room -= (size_t)n;
    out += n;
    if (ssd)
        n = snprintf(out, room, "&dram=%" PRIu64 "&ssd=%s&ssd_bytes=%" PRIu64 "&ssd_segment=%" PRIu64,
                     bytes + (run->capacity_pages + p->ssd_pages) * RECORD_BYTES, ssd, ssd_bytes,
                     pst_max(1, pst_min(256, ssd_bytes / SEGMENTS >> 20)) << 20);
    else
        n = snprintf(out, room, "&dram=%" PRIu64 "&quota=" PREFIX "=%" PRIu64,
                     bytes + bytes / 2 + run->capacity_pages * 1024 + (64 << 20), bytes);
    return n < 0 || (size_t)n >= room ? -ENAMETOOLONG : 0;
}

static int play_embedded(struct replay *p, struct run *run)
{
    char text[PATH_MAX + 1024];
    int code = store_url(p, run, text, sizeof(text));

    if (code < 0)
        return pst_cli_usage("url, ssd: too long");
    code = pst_cli_open(p->cli, text);
    if (code == 0)
        code = play(p, run);
    p->cli->store = penstock_close(p->cli->store);
    return code;
}

/* ---- which runs ---- */

/* The next of a comma-separated list. */
static bool next_item(const char **list, char item[64])
{
    size_t len = strcspn(*list, ",");

    if (!**list)
        return false;
    snprintf(item, 64, "%.*s", (int)pst_min(len, 63), *list);
    *list += len + ((*list)[len] == ',');
    return true;
}

/* "5%" of the trace's pages, or a number of pages; 0: neither. */
static uint64_t capacity_of(const struct replay *p, const char *text)
{
    const char *end;
    uint64_t number;

    if (pst_parse_digits(text, &end, &number) < 0 || (*end && strcmp(end, "%") != 0))
        return 0;
    if (number > (*end ? 100 : PST_TRACE_PAGES_MAX))
        return 0;
    return *end ? pst_max(1, number * p->trace.unique_count / 100) : number;
}

static int add_runs(struct replay *p, const char *capacity)
{
    const char *policies = p->cli->policy;
    char policy[64];
    uint64_t pages = capacity_of(p, capacity);

    if (!pages)
        return pst_cli_usage("capacity: '%s' is neither a percentage nor a number of pages", capacity);
    while (next_item(&policies, policy)) {
        if (p->run_count == RUNS_MAX || strlen(policy) >= sizeof(p->runs[0].policy))
            return pst_cli_usage("policy: more than %d runs, or no policy: '%s'", RUNS_MAX, policy);
        p->runs[p->run_count] = (struct run){.capacity_pages = pages, .optimum = -1};
        memcpy(p->runs[p->run_count++].policy, policy, strlen(policy) + 1);
    }
    return 0;
}

static int plan(struct replay *p)
{
    const char *capacities = p->cli->capacity;
    char capacity[64];
    int code = 0;

    while (code == 0 && next_item(&capacities, capacity))
        code = add_runs(p, capacity);
    if (code == 0 && p->run_count == 0)
        code = pst_cli_usage("capacity or policy: none is named");
    if (code == 0 && p->cli->ssd) {
        p->ssd_pages = capacity_of(p, p->cli->ssd_capacity);
        if (!p->ssd_pages)
            code = pst_cli_usage("ssd_capacity: '%s' is neither a percentage nor a number of pages",
                                 p->cli->ssd_capacity);
    }
    return code;
}

static bool embedded(const struct pst_cli *cli)
{
    return !cli->url || strcmp(cli->url, "mem:") == 0 || strncmp(cli->url, "mem:?", 5) == 0;
}

static int play_all(struct replay *p)
{
    int code;

    if (!embedded(p->cli)) {
        p->run_count = 1;
        p->runs[0].optimum = -1;
        code = pst_cli_open(p->cli, p->cli->url);
        return code ? code : play(p, &p->runs[0]);
    }
    code = plan(p);
    for (uint32_t i = 0; code == 0 && i < p->run_count; i++) {
        struct run *run = &p->runs[i];

        code = play_embedded(p, run);
        if (code == 0 && p->cli->belady) {
            bool same = i > 0 && p->runs[i - 1].capacity_pages == run->capacity_pages;

            run->optimum = same ? p->runs[i - 1].optimum
                                : pst_trace_optimum(&p->trace, run->capacity_pages + p->ssd_pages);
            code = run->optimum < 0 ? pst_cli_fail(-ENOMEM) : 0;
        }
    }
    return code;
}

/* ---- the report ---- */

static double share(const struct replay *p, uint64_t pages)
{
    return (double)pages / (double)p->trace.page_count;
}

static double amplification(const struct run *run)
{
    return run->appended_bytes ? (double)run->log_bytes / (double)run->appended_bytes : 0;
}

static void print_json(const struct replay *p)
{
    uint64_t page_bytes = p->cli->page_size;

    printf("{\"requests\":%" PRIu64 ",\"pages\":%" PRIu64 ",\"unique\":%" PRIu32 ",\"page_bytes\":%" PRIu64
           ",\"hit_rate_max\":%.6f,\"runs\":[",
           p->trace.request_count, p->trace.page_count, p->trace.unique_count, page_bytes,
           share(p, (uint64_t)p->hits_max));
    for (uint32_t i = 0; i < p->run_count; i++) {
        const struct run *run = &p->runs[i];

        printf("%s{", i ? "," : "");
        if (*run->policy)
            printf("\"policy\":\"%s\",\"capacity_pages\":%" PRIu64 ",", run->policy, run->capacity_pages);
        if (run->optimum >= 0)
            printf("\"hit_rate_optimum\":%.6f,", share(p, (uint64_t)run->optimum));
        printf("\"hits\":%" PRIu64 ",\"hit_rate\":%.6f,\"hit_rate_memory\":%.6f,\"hit_rate_ssd\":%.6f"
               ",\"read_bytes\":%" PRIu64 ",\"written_bytes\":%" PRIu64 ",\"refused\":%" PRIu64
               ",\"evictions\":%" PRIu64 ",\"seconds\":%.3f",
               run->hits, share(p, run->hits), share(p, run->hits - run->hits_ssd), share(p, run->hits_ssd),
               run->hits * page_bytes, run->written * page_bytes, run->refused, run->evictions, run->seconds);
        printf(",\"memory_pages\":%" PRIu64 ",\"ssd_pages\":%" PRIu64 ",\"ssd_appended_bytes\":%" PRIu64
               ",\"ssd_written_bytes\":%" PRIu64 ",\"write_amplification\":%.4f",
               run->memory_pages, run->ssd_pages, run->appended_bytes, run->log_bytes, amplification(run));
        for (int kind = 0; kind < KINDS; kind++)
            printf(",\"%s_p50_us\":%.1f,\"%s_p99_us\":%.1f", kind_names[kind], run->p50_us[kind],
                   kind_names[kind], run->p99_us[kind]);
        printf("}");
    }
    printf("]}\n");
}

static void print_text(const struct replay *p)
{
    double page_mb = (double)p->cli->page_size / 1e6;

    printf("%" PRIu64 " requests, %" PRIu64 " pages, %" PRIu32
           " of them different; %.2f %% hit without an end\n",
           p->trace.request_count, p->trace.page_count, p->trace.unique_count,
           100 * share(p, (uint64_t)p->hits_max));
    for (uint32_t i = 0; i < p->run_count; i++) {
        const struct run *run = &p->runs[i];

        if (*run->policy)
            printf("%-8s %8" PRIu64 " pages (%.1f %%): ", run->policy, run->capacity_pages,
                   100.0 * (double)run->capacity_pages / p->trace.unique_count);
        printf("%.2f %% hit: %.2f %% in memory, %.2f %% on SSD", 100 * share(p, run->hits),
               100 * share(p, run->hits - run->hits_ssd), 100 * share(p, run->hits_ssd));
        if (run->optimum >= 0)
            printf(", %.2f %% at best", 100 * share(p, (uint64_t)run->optimum));
        printf("; %.1f MB read, %.1f MB written, %" PRIu64 " pages refused, %.2f s",
               (double)run->hits * page_mb, (double)run->written * page_mb, run->refused, run->seconds);
        if (run->appended_bytes)
            printf("; %" PRIu64 " pages in memory and %" PRIu64
                   " on SSD at the end, %.1f MB written there for %.1f MB of values: %.3f",
                   run->memory_pages, run->ssd_pages, (double)run->log_bytes / 1e6,
                   (double)run->appended_bytes / 1e6, amplification(run));
        for (int kind = 0; kind < KINDS; kind++)
            printf("%s%s %.0f/%.0f us", kind ? ", " : "; p50/p99: ", kind_names[kind], run->p50_us[kind],
                   run->p99_us[kind]);
        printf("\n");
    }
}

static int plot(const struct replay *p)
{
    struct pst_curve curves[PST_CURVES_MAX] = {0};
    uint32_t count = 0;
    int r;

    for (uint32_t i = 0; i < p->run_count; i++) {
        const struct run *run = &p->runs[i];
        const char *names[] = {run->optimum >= 0 ? "optimum" : NULL, run->policy};
        const double rates[] = {run->optimum >= 0 ? share(p, (uint64_t)run->optimum) : 0,
                                share(p, run->hits)};

        for (size_t n = 0; n < pst_count_of(names); n++) {
            double x = (double)run->capacity_pages / p->trace.unique_count;
            uint32_t c = 0;

            while (c < count && names[n] && strcmp(curves[c].name, names[n]) != 0)
                c++;
            if (!names[n] || c == PST_CURVES_MAX || (c < count && curves[c].x[curves[c].count - 1] == x))
                continue;
            count = (uint32_t)pst_max(count, c + 1);
            curves[c].name = names[n];
            curves[c].x[curves[c].count] = x;
            curves[c].y[curves[c].count++] = rates[n];
        }
    }
    r = pst_plot_write(p->cli->plot, curves, count);
    if (r < 0)
        fprintf(stderr, "penstock: %s: %s\n", p->cli->plot, strerror(-r));
    return r < 0 ? PST_EXIT_OTHER : 0;
}

static int report(const struct replay *p)
{
    if (p->cli->json)
        print_json(p);
    else
        print_text(p);
    return p->cli->plot ? plot(p) : 0;
}

/* ---- the command ---- */

static int prepare(struct replay *p)
{
    for (uint64_t i = 0; i < p->trace.request_count; i++)
        p->longest = pst_max(p->longest, p->trace.starts[i + 1] - p->trace.starts[i]);
    p->batch = (uint32_t)pst_max(1, pst_min(BATCH_MAX, BUFFER_BYTES_MAX / p->cli->page_size));
    p->hits_max = pst_trace_optimum(&p->trace, p->trace.unique_count);
    for (int kind = 0; kind < KINDS; kind++)
        p->samples[kind].ns = malloc(SAMPLES_MAX * sizeof(uint32_t));
    if (p->hits_max < 0)
        return pst_cli_fail(-ENOMEM);
    return p->samples[EXISTS].ns && p->samples[GET].ns && p->samples[PUT].ns ? 0 : pst_cli_fail(-ENOMEM);
}

static int replay(struct replay *p)
{
    char fault[PST_FAULT_BYTES];
    int code;

    if (!embedded(p->cli) && (p->cli->belady || p->cli->plot || p->cli->ssd))
        return pst_cli_usage(
            "belady, plot and ssd are about embedded stores (mem:), whose capacity is known");
    if (embedded(p->cli) && p->cli->clients > 1)
        return pst_cli_usage("clients are of a node or a pool; an embedded store (mem:) has one");
    if (pst_trace_read(p->cli->args[0], &p->trace, fault) < 0) {
        fprintf(stderr, "penstock: %s: %s\n", p->cli->args[0], fault);
        return PST_EXIT_USAGE;
    }
    code = prepare(p);
    if (code == 0)
        code = play_all(p);
    return code ? code : report(p);
}

int pst_cmd_replay(struct pst_cli *cli)
{
    struct replay *p = calloc(1, sizeof(*p));
    int code;

    pst_assert(!cli->store);
    pst_assert(cli->arg_count == 1);
    if (!p)
        return pst_cli_fail(-ENOMEM);
    p->cli = cli;
    code = replay(p);
    for (int kind = 0; kind < KINDS; kind++)
        free(p->samples[kind].ns);
    pst_trace_fini(&p->trace);
    free(p);
    return code;
}
