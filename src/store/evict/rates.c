/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rates.c: how soon records are used again, learnt for each line and age. Ages are octaves of a clock that
 * counts touches. A use at an age is a hit; all that came to a line and were neither used again nor given up
 * were at risk of it meanwhile, those too that have gone since: who comes back is known from the ghosts. So
 * what is learnt does not depend on what was evicted.
 *
 * Arrivals are counted by epochs of 2^shift touches, since what was at risk needs no record of each one: as
 * an epoch ends, each count is at risk for as long, at the age that it has by now. What is older than all
 * epochs is forgotten, and its uses are not counted.
 *
 * Each shard counts what it sees. As its epoch ends, it adds that to what all shards saw, unless another one
 * does so at the moment; then it keeps the counts until its next epoch. Nobody waits.
 *
 * A line's *index* at an age is Gittins': the most hits for each touch of being kept that any further stay
 * promises. The rate at the present age alone would be wrong: what is hardly used in its first moments may be
 * worth most later.
 */
#include "store/policy.h"

#include <stdlib.h>

enum {
    OCTAVES = PST_OCTAVES,
    EPOCHS = 128,
    WINDOWS = 8, /* epochs reach back for so many times as many touches as there are records */
    SHIFT_MIN = 6,
    WEIGH_EVERY = 8,    /* epochs */
    HITS_TRUSTED = 100, /* fewer at an age, some requests' pages, lean on what all lines have there */
    HITS_DOUBTED = 20,  /* so many more might have been seen, had a few other requests come */
    MEMORY = 1 << 20,   /* touches, in which what was learnt loses half of its weight */
};

#define LEFT_PRIOR 0.02 /* of the others' rates, until something is known of what a chain left behind */

struct pst_rates {
    struct pst_learnt *learnt;
    uint32_t shift;                                               /* an epoch's touches, as a power of two */
    uint64_t epoch;                                               /* the present one */
    double hits[PST_LINES][OCTAVES], at_risk[PST_LINES][OCTAVES]; /* not told yet */
    uint32_t arrivals[EPOCHS][PST_LINES];
};

static uint32_t octave_of(uint64_t age)
{
    return (uint32_t)pst_min(63 - __builtin_clzll(age | 1), OCTAVES - 1);
}

static double octave_touches(uint32_t number)
{
    pst_assert(number < OCTAVES);
    return number ? (double)(1ull << number) : 2;
}

static double rate_at(const struct pst_learnt *t, uint32_t line, uint32_t number)
{
    double hits = 0.02, at_risk = 20000, shared;

    pst_assert(line < PST_LINES);
    pst_assert(number < OCTAVES);
    for (uint32_t i = 0; i < PST_LINES; i++) {
        hits += i == PST_LINE_LEFT ? 0 : t->hits[i][number];
        at_risk += i == PST_LINE_LEFT ? 0 : t->at_risk[i][number];
    }
    shared = hits / at_risk * (line == PST_LINE_LEFT ? LEFT_PRIOR : 1);
    pst_assert(shared > 0);
    return (t->hits[line][number] + HITS_TRUSTED) / (t->at_risk[line][number] + HITS_TRUSTED / shared);
}

/* What is little known may be that much better. */
static double rate_at_most(const struct pst_learnt *t, uint32_t line, uint32_t number)
{
    pst_assert(line < PST_LINES);
    pst_assert(number < OCTAVES);
    return rate_at(t, line, number) + HITS_DOUBTED / (t->at_risk[line][number] + HITS_DOUBTED);
}

/* Each octave is taken to be left at an even rate. */
static double best_stay(const double *rates, uint32_t from)
{
    double there = 1, hits = 0, touches = 0, best = 0;

    pst_assert(from < OCTAVES);
    for (uint32_t number = from; number < OCTAVES && there > 1e-4; number++) {
        double expected = rates[number] * octave_touches(number), stays = 1 / (1 + expected);

        hits += there * (1 - stays);
        touches += there * octave_touches(number) * stays;
        there *= stays;
        if (hits > best * touches)
            best = hits / touches;
    }
    return best;
}

static void learnt_weigh(struct pst_learnt *t)
{
    double rates[OCTAVES];

    for (uint32_t line = 0; line < PST_LINES; line++) {
        for (uint32_t number = 0; number < OCTAVES; number++)
            rates[number] = rate_at(t, line, number);
        for (uint32_t number = 0; number < OCTAVES; number++) {
            double known = rates[number];

            atomic_store_explicit(&t->index[line][number], best_stay(rates, number), memory_order_relaxed);
            rates[number] = rate_at_most(t, line, number);
            atomic_store_explicit(&t->at_most[line][number], best_stay(rates, number), memory_order_relaxed);
            rates[number] = known;
        }
    }
}

/* What was seen is told to the other shards, unless one of them does so just now. */
static void rates_tell(struct pst_rates *t)
{
    struct pst_learnt *all = t->learnt;
    uint64_t clock = t->epoch << t->shift;
    double kept;

    if (pthread_mutex_trylock(&all->lock) != 0)
        return;
    clock = pst_max(clock, all->told);
    kept = 1 / (1 + (double)(clock - all->told) / MEMORY);
    pst_assert(kept > 0 && kept <= 1);
    pst_assert(clock >= all->told);
    for (uint32_t line = 0; line < PST_LINES; line++) {
        for (uint32_t number = 0; number < OCTAVES; number++) {
            all->hits[line][number] = (all->hits[line][number] + t->hits[line][number]) * kept;
            all->at_risk[line][number] = (all->at_risk[line][number] + t->at_risk[line][number]) * kept;
        }
    }
    memset(t->hits, 0, sizeof(t->hits));
    memset(t->at_risk, 0, sizeof(t->at_risk));
    all->told = clock;
    if (clock - all->weighed >= (uint64_t)WEIGH_EVERY << t->shift) {
        all->weighed = clock;
        learnt_weigh(all);
    }
    pthread_mutex_unlock(&all->lock);
}

/* What arrived @epochs ago was at risk for @passed more of them, as far as they reach back. */
static void count_risk(struct pst_rates *t, uint32_t epochs, uint64_t passed)
{
    const uint32_t *arrivals = t->arrivals[(t->epoch - epochs) % EPOCHS];
    uint64_t from = (uint64_t)epochs << t->shift;
    uint64_t end = pst_min(epochs + passed, EPOCHS) << t->shift;

    pst_assert(epochs <= t->epoch);
    pst_assert(epochs < EPOCHS);
    pst_assert(passed > 0);
    while (from < end) {
        uint32_t number = octave_of(from);
        uint64_t to = pst_min(end, 2ull << number);

        for (uint32_t line = 0; line < PST_LINES; line++)
            t->at_risk[line][number] += (double)arrivals[line] * (double)(to - from);
        from = to;
    }
}

static void end_epochs(struct pst_rates *t, uint64_t passed)
{
    pst_assert(passed > 0);
    for (uint32_t epochs = 0; epochs < pst_min(EPOCHS, t->epoch + 1); epochs++)
        count_risk(t, epochs, passed);
    for (uint64_t i = 1; i <= pst_min(passed, EPOCHS); i++)
        memset(t->arrivals[(t->epoch + i) % EPOCHS], 0, sizeof(t->arrivals[0]));
    t->epoch += passed;
    rates_tell(t);
}

/* Two epochs become one. */
static void rates_widen(struct pst_rates *t)
{
    uint32_t arrivals[EPOCHS][PST_LINES] = {0}, count = (uint32_t)pst_min(EPOCHS, t->epoch + 1);

    for (uint32_t epochs = 0; epochs < count; epochs++) {
        uint64_t epoch = t->epoch - epochs;

        for (uint32_t line = 0; line < PST_LINES; line++)
            arrivals[epoch / 2 % EPOCHS][line] += t->arrivals[epoch % EPOCHS][line];
    }
    memcpy(t->arrivals, arrivals, sizeof(arrivals));
    pst_assert(count <= EPOCHS);
    pst_assert(t->shift < 63);
    t->epoch /= 2;
    t->shift++;
}

struct pst_learnt *pst_learnt_open(uint32_t count)
{
    struct pst_learnt *learnt = aligned_alloc(64, count * sizeof(*learnt));

    pst_assert(count > 0);
    if (!learnt)
        return NULL;
    memset(learnt, 0, count * sizeof(*learnt));
    for (uint32_t i = 0; i < count; i++) {
        pthread_mutex_init(&learnt[i].lock, NULL);
        learnt_weigh(&learnt[i]);
    }
    return learnt;
}

struct pst_learnt *pst_learnt_close(struct pst_learnt *learnt, uint32_t count)
{
    for (uint32_t i = 0; learnt && i < count; i++)
        pthread_mutex_destroy(&learnt[i].lock);
    free(learnt);
    return NULL;
}

struct pst_rates *pst_rates_open(struct pst_learnt *learnt, uint32_t shards, uint64_t clock)
{
    struct pst_rates *t = calloc(1, sizeof(*t));

    pst_assert(learnt);
    pst_assert(shards > 0 && shards <= 256);
    if (!t)
        return NULL;
    t->learnt = learnt;
    t->shift = SHIFT_MIN;
    while (1u << 2 * (t->shift - SHIFT_MIN) < shards)
        t->shift++;
    t->epoch = clock >> t->shift;
    return t;
}

void pst_rates_pass(struct pst_rates *t, uint64_t clock, uint64_t records)
{
    while ((uint64_t)EPOCHS << t->shift < records * WINDOWS && t->shift < 24)
        rates_widen(t);
    if (clock >> t->shift > t->epoch)
        end_epochs(t, (clock >> t->shift) - t->epoch);
    pst_assert(t->epoch >= clock >> t->shift);
}

void pst_rates_came(struct pst_rates *t, uint32_t line, uint64_t stamp)
{
    pst_assert(line < PST_LINES);
    if (t->epoch - (stamp >> t->shift) < EPOCHS)
        t->arrivals[(stamp >> t->shift) % EPOCHS][line]++;
}

void pst_rates_left(struct pst_rates *t, uint32_t line, uint64_t stamp, uint64_t clock, bool used)
{
    uint32_t *arrivals = &t->arrivals[(stamp >> t->shift) % EPOCHS][line];

    pst_assert(line < PST_LINES);
    pst_assert(stamp <= clock);
    if (t->epoch - (stamp >> t->shift) >= EPOCHS)
        return;
    *arrivals -= *arrivals > 0;
    if (used)
        t->hits[line][octave_of(clock - stamp)]++;
}

double pst_rates_index(const struct pst_learnt *t, uint32_t line, uint64_t age)
{
    pst_assert(line < PST_LINES);
    return atomic_load_explicit(&t->index[line][octave_of(age)], memory_order_relaxed);
}

double pst_rates_at_most(const struct pst_learnt *t, uint32_t line, uint64_t age)
{
    pst_assert(line < PST_LINES);
    return atomic_load_explicit(&t->at_most[line][octave_of(age)], memory_order_relaxed);
}
