/* SPDX-License-Identifier: Apache-2.0 */
/* fault.c: which pass of a fault point fails; in test builds only. */
#include "base/fault.h"

#include "base/hash.h"

#include <stdatomic.h>
#include <stdio.h>

enum { TEXT_MAX = 4096, MILLION = 1000000 };

static const char *const names[] = {
#define X(name) #name,
    PST_FAULTS(X)
#undef X
};

_Static_assert(pst_count_of(names) == PST_FAULT_COUNT, "each fault point has a name");

struct point {
    _Atomic uint64_t nth;         /* 0: none */
    _Atomic uint64_t per_million; /* 0: none */
    _Atomic uint64_t passes, hits;
};

static struct point points[PST_FAULT_COUNT];
static _Atomic uint64_t seed;
static _Atomic bool armed;

uint64_t pst_fault_dice(uint64_t dice_seed, uint64_t stream, uint64_t number)
{
    const uint64_t parts[] = {stream, number};

    return pst_hash64(parts, sizeof(parts), dice_seed);
}

bool pst_fault(enum pst_fault fault)
{
    struct point *point = &points[fault];
    uint64_t pass;
    bool hit;

    pst_assert(fault < PST_FAULT_COUNT);
    if (!atomic_load_explicit(&armed, memory_order_acquire))
        return false;
    pass = atomic_fetch_add(&point->passes, 1) + 1;
    hit = pass == point->nth ||
          (point->per_million > 0 && pst_fault_dice(seed, fault, pass) % MILLION < point->per_million);
    if (hit)
        atomic_fetch_add(&point->hits, 1);
    return hit;
}

static bool parse_number(const char *text, size_t len, uint64_t *out)
{
    uint64_t n = 0;

    if (len == 0 || len > 18)
        return false;
    for (size_t i = 0; i < len; i++) {
        if (text[i] < '0' || text[i] > '9')
            return false;
        n = 10 * n + (uint64_t)(text[i] - '0');
    }
    *out = n;
    return true;
}

bool pst_fault_setting(const char *text, const char *name, uint64_t *out)
{
    size_t name_len = strlen(name);

    for (const char *at = text; *at;) {
        size_t len = strcspn(at, ",");

        if (len > name_len && strncmp(at, name, name_len) == 0 && at[name_len] == '=')
            return parse_number(at + name_len + 1, len - name_len - 1, out);
        at += len + (at[len] == ',');
    }
    return false;
}

/* "name:nth=3" or "name:per_million=1000". Return: 0 or -EINVAL. */
static int arm_point(const char *text)
{
    const char *colon = strchr(text, ':');
    uint64_t number;

    for (size_t i = 0; colon && i < PST_FAULT_COUNT; i++) {
        if (strlen(names[i]) != (size_t)(colon - text) || strncmp(text, names[i], strlen(names[i])) != 0)
            continue;
        if (pst_fault_setting(colon + 1, "nth", &number))
            points[i].nth = number;
        else if (pst_fault_setting(colon + 1, "per_million", &number))
            points[i].per_million = number;
        else
            return -EINVAL;
        return 0;
    }
    return -EINVAL;
}

static void faults_disarm(void)
{
    atomic_store_explicit(&armed, false, memory_order_release);
    seed = 0;
    for (size_t i = 0; i < PST_FAULT_COUNT; i++) {
        points[i].nth = points[i].per_million = 0;
        points[i].passes = points[i].hits = 0;
    }
    pst_assert(!atomic_load(&armed));
}

int pst_faults_arm(const char *text)
{
    char copy[TEXT_MAX], *left = copy, *word;
    uint64_t number;
    int r = 0;

    faults_disarm();
    if (strlen(text) >= sizeof(copy))
        return -EINVAL;
    strcpy(copy, text);
    while (r == 0 && (word = strsep(&left, ","))) {
        if (pst_fault_setting(word, "seed", &number))
            seed = number;
        else if (*word)
            r = arm_point(word);
    }
    if (r < 0)
        faults_disarm();
    else
        atomic_store_explicit(&armed, true, memory_order_release);
    pst_assert(atomic_load(&armed) == (r == 0));
    return r;
}

uint64_t pst_fault_passes(enum pst_fault fault)
{
    pst_assert(fault < PST_FAULT_COUNT);
    return points[fault].passes;
}

uint64_t pst_fault_hits(enum pst_fault fault)
{
    pst_assert(fault < PST_FAULT_COUNT);
    return points[fault].hits;
}

__attribute__((constructor)) static void arm_from_environment(void)
{
    const char *text = getenv("PENSTOCK_FAULTS");

    for (size_t i = 1; i < PST_FAULT_COUNT; i++)
        pst_assert(strcmp(names[i - 1], names[i]) < 0);
    if (text && pst_faults_arm(text) < 0) {
        fprintf(stderr, "PENSTOCK_FAULTS: '%s' names no fault point, or not when it fails\n", text);
        _exit(2);
    }
}
