/* SPDX-License-Identifier: Apache-2.0 */
/*
 * main.c: runs of a simulated pool.
 *
 *     sim_pool | sim_copies [--seed N] [--runs N] [--for-ms N] [--nodes N] [--shares N] [--simulated-ms N]
 *                           [--plant RULE] [--trace]
 *
 * sim_copies has the product's senders of copies, and takes more time. Seeds count up from the first; a run
 * is the same whenever it has the same seed, nodes and time. A violation prints its seed. The last line is
 * one JSON object; the exit status is 1 when there was a violation.
 */
#include "sim.h"

#include "base/clock.h"

#include <stdio.h>

struct wish {
    uint64_t seed, runs, for_ms, nodes, shares, simulated_ms;
    enum plant plant;
    bool trace;
};

struct sum {
    uint64_t runs, checked, violations, events, digest, simulated_s;
    uint64_t writes, reads, puts, beats, crashes, leaves, ends, master_crashes, freezes, cuts, jumps, losses,
        hand_overs, drains, repairs, balanced, power_failures, recovered, refused, shares_lost, missing;
};

static const char *const plants[] = {
#define X(name, text) #name,
    PLANTS(X)
#undef X
};

static int usage(void)
{
    fprintf(stderr,
            "usage: sim_pool [--seed N] [--runs N] [--for-ms N] [--nodes N] [--shares N] [--simulated-ms N]"
            " [--plant RULE] [--trace]\nrules to break:\n");
#define X(name, text) fprintf(stderr, "  %-14s %s\n", #name, text);
    PLANTS(X)
#undef X
    return 2;
}

static bool read_plant(const char *text, enum plant *out)
{
    for (uint32_t i = 0; i < PLANT_COUNT; i++)
        if (strcmp(text, plants[i]) == 0) {
            *out = (enum plant)i;
            return true;
        }
    return false;
}

static bool read_wish(int argc, char **argv, struct wish *wish)
{
    const struct {
        const char *name;
        uint64_t *number;
    } numbers[] = {{"--seed", &wish->seed},     {"--runs", &wish->runs},
                   {"--for-ms", &wish->for_ms}, {"--nodes", &wish->nodes},
                   {"--shares", &wish->shares}, {"--simulated-ms", &wish->simulated_ms}};

    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : "";
        uint64_t *number = NULL;

        if (strcmp(argv[i], "--trace") == 0) {
            wish->trace = true;
            continue;
        }
        for (uint32_t j = 0; j < pst_count_of(numbers); j++)
            if (strcmp(argv[i], numbers[j].name) == 0)
                number = numbers[j].number;
        if (number ? pst_parse_size(value, number) < 0
                   : strcmp(argv[i], "--plant") != 0 || !read_plant(value, &wish->plant))
            return false;
        i++;
    }
    return wish->nodes <= 16000 && wish->shares >= 1 && wish->shares <= SHARES_MAX && wish->runs > 0;
}

static void run(const struct wish *wish, uint64_t seed, struct sum *sum)
{
    struct sim *s =
        sim_open(seed, (uint32_t)wish->nodes, (uint32_t)wish->shares, wish->simulated_ms, wish->plant);

    s->trace = wish->trace;
    sim_run(s);
    sum->runs++;
    sum->checked += s->checked;
    sum->violations += s->violations;
    sum->events += s->events;
    sum->simulated_s += s->now_ns / 1000000000;
    sum->digest = pst_hash64(&s->digest, sizeof(s->digest), sum->digest);
    sum->writes += s->counts.writes;
    sum->reads += s->counts.reads;
    sum->puts += s->counts.puts;
    sum->beats += s->counts.beats;
    sum->crashes += s->counts.crashes;
    sum->leaves += s->counts.leaves;
    sum->ends += s->counts.ends;
    sum->master_crashes += s->counts.master_crashes;
    sum->freezes += s->counts.freezes;
    sum->cuts += s->counts.cuts;
    sum->jumps += s->counts.jumps;
    sum->hand_overs += s->counts.hand_overs;
    sum->drains += s->counts.drains;
    sum->repairs += s->counts.repairs;
    sum->balanced += s->counts.balanced + (s->directory ? pst_directory_counters(s->directory)->balanced : 0);
    sum->losses += s->counts.losses;
    sum->power_failures += s->counts.power_failures;
    sum->recovered += s->counts.recovered;
    sum->refused += s->counts.refused;
    sum->shares_lost += s->counts.shares_lost;
    sum->missing += s->counts.missing;
    sim_close(s);
}

static void print(const struct wish *wish, const struct sum *sum)
{
    const struct {
        const char *name;
        uint64_t count;
    } counts[] = {{"checked", sum->checked},
                  {"violations", sum->violations},
                  {"seed", wish->seed},
                  {"runs", sum->runs},
                  {"simulated_s", sum->simulated_s},
                  {"events", sum->events},
                  {"heartbeats", sum->beats},
                  {"writes", sum->writes},
                  {"reads", sum->reads},
                  {"puts", sum->puts},
                  {"crashes", sum->crashes},
                  {"leaves", sum->leaves},
                  {"ends", sum->ends},
                  {"master_crashes", sum->master_crashes},
                  {"freezes", sum->freezes},
                  {"cuts", sum->cuts},
                  {"jumps", sum->jumps},
                  {"hand_overs", sum->hand_overs},
                  {"drains", sum->drains},
                  {"repairs", sum->repairs},
                  {"balanced", sum->balanced},
                  {"partitions_lost", sum->losses},
                  {"power_failures", sum->power_failures},
                  {"partitions_recovered", sum->recovered},
                  {"refused", sum->refused},
                  {"shares_lost", sum->shares_lost},
                  {"missing", sum->missing}};

    printf("digest %016llx\n{", (unsigned long long)sum->digest);
    for (uint32_t i = 0; i < pst_count_of(counts); i++)
        printf("%s\"%s\": %llu", i > 0 ? ", " : "", counts[i].name, (unsigned long long)counts[i].count);
    printf("}\n");
}

int main(int argc, char **argv)
{
    struct wish wish = {.seed = 1, .runs = UINT64_MAX, .shares = 1, .simulated_ms = 120000};
    struct sum sum = {.digest = 0};
    uint64_t begin_ns = pst_now_ns();

    if (!read_wish(argc, argv, &wish))
        return usage();
    if (wish.runs == UINT64_MAX && wish.for_ms == 0)
        wish.runs = 1;
    while (sum.runs < wish.runs && sum.violations == 0 &&
           (wish.for_ms == 0 || pst_now_ns() < begin_ns + wish.for_ms * MS))
        run(&wish, wish.seed + sum.runs, &sum);
    print(&wish, &sum);
    return sum.violations > 0;
}
