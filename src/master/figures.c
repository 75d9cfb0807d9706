/* SPDX-License-Identifier: Apache-2.0 */
/* figures.c: what a master counts, as text: a line for each figure, its name and its value. */
#include "master/master_priv.h"

#include "base/clock.h"

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
    pst_assert(n > 0);
    if ((size_t)n >= t->room) {
        t->cut = true;
        return;
    }
    t->at += n;
    t->room -= (size_t)n;
    pst_assert(t->room > 0);
}

static void say_state(struct text *t, const struct pst_master_figures *f)
{
    static const char *const tiers[PST_POOL_TIERS] = {NULL, "hbm", "dram", "ssd"};
    const struct pst_directory_state *state = &f->state;

    pst_assert(f->directory);
    pst_assert(f->share < f->shares);
    say(t, f->map_version, "map_version");
    say(t, f->term, "term");
    say(t, f->share, "directory_shard");
    say(t, f->shares, "directory_shards");
    say(t, state->members, "members");
    say(t, state->members_reporting, "members_reporting");
    say(t, state->members_suspect, "members_suspect");
    say(t, state->entries, "keys");
    say(t, state->entries_bytes, "keys_bytes");
    say(t, state->reservations, "reserved");
    say(t, f->partitions_absent, "partitions_absent");
    for (uint32_t i = 1; i < PST_POOL_TIERS; i++) {
        say(t, state->tiers[i].capacity_bytes, "%s_capacity_bytes", tiers[i]);
        say(t, state->tiers[i].used_bytes, "%s_used_bytes", tiers[i]);
        say(t, state->reserved_bytes[i], "%s_reserved_bytes", tiers[i]);
    }
}

static void say_counters(struct text *t, const struct pst_directory_counters *counters)
{
#define X(name, text) say(t, counters->name, "%s", #name);
    PST_DIRECTORY_COUNTERS(X)
#undef X
}

static void say_external(struct text *t, const struct pst_external_stats *stats)
{
    pst_assert(stats->entries <= stats->added);
    say(t, stats->entries, "blocks");
    say(t, stats->added, "blocks_added");
    say(t, stats->refused, "blocks_refused");
    say(t, stats->removed, "blocks_removed");
    say(t, stats->matches, "block_matches");
    say(t, stats->hits, "block_hits");
    say(t, stats->hits_dropped, "block_hits_dropped");
}

static void say_guests(struct text *t, const struct pst_master_figures *f)
{
    pst_assert(f->has_guests);
    pst_assert(f->guests <= f->guest_totals.registered);
    say(t, f->guests, "guests");
    say(t, f->guest_keys, "guest_keys");
#define X(name, text) say(t, f->guest_totals.name, "guest_%s", #name);
    PST_GUEST_TOTALS(X)
#undef X
}

static void say_call(struct text *t, const struct pst_master_call *call, const char *name)
{
    pst_assert(call->failed <= call->count);
    say(t, call->count, "call_%s", name);
    say(t, call->failed, "call_%s_failed", name);
    say(t, call->us_total, "call_%s_total_us", name);
    for (uint32_t i = 0; i < PST_MASTER_BUCKETS; i++) {
        if (call->us[i] && i == PST_MASTER_BUCKETS - 1)
            say(t, call->us[i], "call_%s_us_more", name);
        else if (call->us[i])
            say(t, call->us[i], "call_%s_us_%u", name, 1u << i);
    }
}

static void take_of_directory(const struct pst_master *m, uint64_t now_ns, struct pst_master_figures *out)
{
    const struct pst_map *map = pst_directory_map(m->directory);

    pst_assert(m->external);
    out->map_version = map->version;
    out->term = map->term;
    out->shares = map->share_count;
    pst_directory_state(m->directory, now_ns, &out->state);
    out->counters = *pst_directory_counters(m->directory);
    out->partitions_absent = m->partitions_incomplete;
    out->external = pst_external_stats(m->external);
    out->has_guests = m->guests != NULL;
    if (!m->guests)
        return;
    out->guests = pst_guests_count(m->guests);
    out->guest_keys = pst_guests_keys(m->guests);
    out->guest_totals = *pst_guests_totals(m->guests);
}

void pst_master_figures_take(const struct pst_master *m, uint64_t now_ns, struct pst_master_figures *out)
{
    memset(out, 0, sizeof(*out));
    out->leads = !m->follower && pst_master_standing(m) == PST_LEADS;
    out->share = m->settings->directory_shard;
    out->takeovers = m->takeovers;
    memcpy(out->leader, m->leader, sizeof(out->leader));
    out->directory = m->directory != NULL;
    if (m->directory)
        take_of_directory(m, now_ns, out);
    out->malformed = m->malformed;
    out->located = m->located;
    out->location_hits = m->location_hits;
    memcpy(out->calls, m->calls, sizeof(out->calls));
}

size_t pst_master_figures_print(const struct pst_master_figures *f, char *to, size_t room)
{
    struct text t = {to, room, false};

    pst_assert(f->location_hits <= f->located);
    pst_assert(f->directory || !f->leads);
    say(&t, f->leads, "leads");
    say(&t, f->takeovers, "takeovers");
    if (f->directory) {
        say_state(&t, f);
        say_counters(&t, &f->counters);
        say_external(&t, &f->external);
    }
    if (f->has_guests) {
        say_guests(&t, f);
    }
    say(&t, f->malformed, "malformed");
    say(&t, f->located, "located");
    say(&t, f->location_hits, "location_hits");
#define X(code, name) say_call(&t, &f->calls[PST_MASTER_CALL_##name], #name);
    PST_MASTER_CALLS(X)
#undef X
    return t.cut ? 0 : room - t.room;
}

/* ---- without a wait for whoever asks the master ---- */

void pst_master_publish(struct pst_master *m)
{
    if (pthread_mutex_trylock(&m->published_lock) != 0)
        return;
    pst_master_figures_take(m, pst_now_ns(), &m->published);
    pthread_mutex_unlock(&m->published_lock);
}

static void read_published(struct pst_master *m, struct pst_master_figures *out)
{
    pst_assert(m->magic == PST_MASTER_MAGIC);
    pthread_mutex_lock(&m->published_lock);
    *out = m->published;
    pthread_mutex_unlock(&m->published_lock);
    /* Its thread may wait for the keeper since. */
    out->leads = out->leads && pst_master_hold(m) == PST_LEADS;
}

size_t pst_master_published(struct pst_master *m, char *to, size_t room)
{
    struct pst_master_figures figures;

    read_published(m, &figures);
    return pst_master_figures_print(&figures, to, room);
}

int pst_master_ready(struct pst_master *m, char fault[PST_FAULT_BYTES])
{
    struct pst_master_figures figures;

    read_published(m, &figures);
    if (m->settings->directory_shard) {
        snprintf(fault, PST_FAULT_BYTES, "has not heard of the pool's master");
        return figures.directory && pst_master_hold(m) == PST_LEADS ? 0 : -EAGAIN;
    }
    if (!figures.leads && *figures.leader) {
        snprintf(fault, PST_FAULT_BYTES, "stands by: %s leads", figures.leader);
        return 0;
    }
    if (!figures.leads) {
        snprintf(fault, PST_FAULT_BYTES, "this master does not lead");
        return -EAGAIN;
    }
    if (figures.partitions_absent == 0)
        return 0;
    snprintf(fault, PST_FAULT_BYTES, "none of the nodes that had the keys of %" PRIu64 " partitions is there",
             figures.partitions_absent);
    return -EAGAIN;
}
