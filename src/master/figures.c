/* SPDX-License-Identifier: Apache-2.0 */
/* figures.c: what a master counts, as text: a line for each figure, its name and its value. */
#include "master/master_priv.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

struct text {
    char *at;
    size_t room;
    bool cut;
};

static void say(struct text *t, uint64_t value, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static void say(struct text *t, uint64_t value, const char *format, ...)
{
    char name[64];
    va_list args;
    int n;

    va_start(args, format);
    vsnprintf(name, sizeof(name), format, args);
    va_end(args);
    n = snprintf(t->at, t->room, "%s %" PRIu64 "\n", name, value);
    if ((size_t)n >= t->room) {
        t->cut = true;
        return;
    }
    t->at += n;
    t->room -= (size_t)n;
}

static void say_state(struct text *t, const struct pst_master *m, uint64_t now_ns)
{
    static const char *const tiers[PST_POOL_TIERS] = {NULL, "hbm", "dram", "ssd"};
    struct pst_directory_state state;

    pst_directory_state(m->directory, now_ns, &state);
    say(t, pst_directory_map(m->directory)->version, "map_version");
    say(t, pst_directory_map(m->directory)->term, "term");
    say(t, state.members, "members");
    say(t, state.members_reporting, "members_reporting");
    say(t, state.members_suspect, "members_suspect");
    say(t, state.entries, "keys");
    say(t, state.entries_bytes, "keys_bytes");
    say(t, state.reservations, "reserved");
    for (uint32_t i = 1; i < PST_POOL_TIERS; i++) {
        say(t, state.tiers[i].capacity_bytes, "%s_capacity_bytes", tiers[i]);
        say(t, state.tiers[i].used_bytes, "%s_used_bytes", tiers[i]);
        say(t, state.reserved_bytes[i], "%s_reserved_bytes", tiers[i]);
    }
}

static void say_external(struct text *t, const struct pst_master *m)
{
    struct pst_external_stats stats = pst_external_stats(m->external);

    say(t, stats.entries, "blocks");
    say(t, stats.added, "blocks_added");
    say(t, stats.refused, "blocks_refused");
    say(t, stats.removed, "blocks_removed");
    say(t, stats.matches, "block_matches");
    say(t, stats.hits, "block_hits");
    say(t, stats.hits_dropped, "block_hits_dropped");
}

static void say_call(struct text *t, const struct pst_master_call *call, const char *name)
{
    pst_assert(call->failed <= call->count);
    say(t, call->count, "call_%s", name);
    say(t, call->failed, "call_%s_failed", name);
    for (uint32_t i = 0; i < PST_MASTER_BUCKETS; i++) {
        if (call->us[i] && i == PST_MASTER_BUCKETS - 1)
            say(t, call->us[i], "call_%s_us_more", name);
        else if (call->us[i])
            say(t, call->us[i], "call_%s_us_%u", name, 1u << i);
    }
}

size_t pst_master_figures(const struct pst_master *m, uint64_t now_ns, char *to, size_t room)
{
    const struct pst_directory_counters *counters = pst_directory_counters(m->directory);
    struct text t = {to, room, false};

    pst_assert(m->location_hits <= m->located);
    say_state(&t, m, now_ns);
#define X(name, text) say(&t, counters->name, "%s", #name);
    PST_DIRECTORY_COUNTERS(X)
#undef X
    say(&t, m->malformed, "malformed");
    say(&t, m->located, "located");
    say(&t, m->location_hits, "location_hits");
    say_external(&t, m);
#define X(code, name) say_call(&t, &m->calls[PST_MASTER_CALL_##name], #name);
    PST_MASTER_CALLS(X)
#undef X
    return t.cut ? 0 : room - t.room;
}
