/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shares.c: a directory in shares, simulated: nodes join the leading master's, and report their keys in full
 * to each share, which is then asked where keys are. One share after the other, each as on a core of its own,
 * of whose time alone seconds are; so there is memory for one at a time.
 *
 *     shares_figures KEYS NODES SHARES BATCH SECONDS
 *
 * The directories are the product's, and so are the messages: what they take of the wire is computed from
 * their layouts. A line of JSON for each share, and one for all.
 */
#include "names.h"

#include "base/clock.h"
#include "directory/directory.h"
#include "directory/figures.h"
#include "directory/route.h"
#include "directory/share.h"
#include "wire/pool_key.h"
#include "wire/pool_member.h"

#include <inttypes.h>
#include <stdio.h>

enum { ASKED = 1 << 21 /* keys that are looked up, again and again */ };

struct bench {
    uint64_t keys, nodes, shares, batch;
    double seconds;
    struct pst_directory_settings settings;
    struct pst_directory *leader;
    struct pst_registered *members;
    struct pst_hash128 *asked;
};

/* What a share came to. */
struct told {
    uint64_t entries, memory_bytes, events, report_bytes, heartbeats;
    double report_s, lookups_per_s, question_bytes, answer_bytes; /* of a key */
};

/* Of a core, whatever else the machine does. */
static uint64_t worked_ns(void)
{
    return pst_clock_read_ns(CLOCK_THREAD_CPUTIME_ID);
}

static void store(struct pst_directory *d)
{
    size_t room = pst_map_bytes_max(PST_MAP_MEMBERS_MAX);
    uint8_t *bytes = malloc(room);
    uint64_t version;

    pst_assert(bytes);
    while (pst_directory_unstored(d)) {
        pst_assert(pst_directory_store_begin(d, bytes, room, &version) > 0);
        pst_directory_stored(d, version, pst_now_ns());
    }
    free(bytes);
}

static void join_all(struct bench *b)
{
    for (uint64_t i = 0; i < b->nodes; i++) {
        uint64_t id = i + 1;
        struct pst_register message = {.start = 1, .address = "", .unix_path = "", .tags = ""};

        memcpy(message.id.bytes, &id, sizeof(id));
        memcpy(message.host.bytes, &id, sizeof(id));
        pst_assert(pst_directory_register(b->leader, &message, pst_now_ns(), &b->members[i]) == 0);
    }
    store(b->leader);
}

/* ---- reports ---- */

/* The next keys of the node that fall to the share. Return: how many; *@key is beyond the last one looked at.
 */
static uint32_t next_events(const struct bench *b, uint64_t share, uint64_t *key, struct pst_event *events)
{
    uint32_t count = 0;

    for (; *key < b->keys && count < PST_HEARTBEAT_EVENTS_MAX; *key += b->nodes) {
        events[count] = (struct pst_event){.key = name(*key), .generation = *key + 1, .tier = PST_POOL_DRAM};
        count += pst_map_share_of(&events[count].key, (uint32_t)b->shares) == share;
    }
    return count;
}

/* The time is the directory's alone, without that of drawing keys. */
static void report(const struct bench *b, struct pst_directory *d, uint64_t share, uint64_t node,
                   struct told *told)
{
    static struct pst_event events[PST_HEARTBEAT_EVENTS_MAX + 1];
    static struct pst_heartbeat_answer answer;
    struct pst_heartbeat message = {.member = b->members[node].member,
                                    .epoch = b->members[node].epoch,
                                    .share = (uint16_t)share,
                                    .share_last = (uint16_t)(b->shares - 1),
                                    .events = events};
    uint64_t key = node, begin_ns;

    do {
        message.event_count = next_events(b, share, &key, events);
        message.flags =
            (message.sequence == 0 ? PST_HEARTBEAT_BEGIN : 0) | (key >= b->keys ? PST_HEARTBEAT_END : 0);
        message.sequence++;
        begin_ns = worked_ns();
        pst_assert(pst_directory_heartbeat(d, &message, pst_now_ns(), &answer) == 0);
        told->report_s += (double)(worked_ns() - begin_ns) / 1e9;
        told->events += message.event_count;
        told->heartbeats++;
        told->report_bytes += sizeof(struct pst_pool_heartbeat) + sizeof(struct pst_pool_beat) +
                              (uint64_t)message.event_count * PST_POOL_EVENT_BYTES;
    } while (key < b->keys);
}

/* ---- look-ups ---- */

static void draw_asked(struct bench *b, uint64_t share)
{
    uint64_t state = 0x9e3779b97f4a7c15;

    for (uint32_t i = 0; i < ASKED;) {
        b->asked[i] = name(draw(&state) % b->keys);
        i += pst_map_share_of(&b->asked[i], (uint32_t)b->shares) == share;
    }
}

/* Batches of keys that are there, as a master answers them. */
static void look_up(struct bench *b, struct pst_directory *d, uint64_t share, struct told *told)
{
    static struct pst_route routes[PST_DIRECTORY_BATCH_MAX];
    const struct pst_caller caller = {{{1}}};
    uint64_t looked = 0, begin_ns, until_ns, now_ns;
    uint32_t at = 0;

    draw_asked(b, share);
    begin_ns = worked_ns();
    now_ns = pst_now_ns();
    until_ns = now_ns + (uint64_t)(b->seconds * 1e9);
    for (; now_ns < until_ns; now_ns = pst_now_ns()) {
        pst_assert(pst_directory_has_share_of(d, b->asked + at, (uint32_t)b->batch));
        pst_directory_route_get(d, &caller, b->asked + at, (uint32_t)b->batch, now_ns, routes);
        for (uint64_t i = 0; i < b->batch; i++)
            pst_assert(routes[i].status == PST_ROUTE_TO);
        looked += b->batch;
        at = at + 2 * b->batch > ASKED ? 0 : at + (uint32_t)b->batch;
    }
    told->lookups_per_s = (double)looked * 1e9 / (double)(worked_ns() - begin_ns);
    told->question_bytes =
        (double)sizeof(struct pst_pool_asker) / (double)b->batch + sizeof(struct pst_hash128);
    told->answer_bytes = (double)offsetof(struct pst_pool_route, places) + sizeof(struct pst_pool_place);
}

/* ---- all of it ---- */

static void take_share(struct bench *b, struct pst_directory *d, uint64_t share, struct told *told)
{
    struct pst_directory_state state;

    for (uint64_t node = 0; node < b->nodes; node++)
        report(b, d, share, node, told);
    pst_directory_state(d, pst_now_ns(), &state);
    pst_assert(state.entries == told->events && pst_directory_counters(d)->adds_dropped == 0);
    told->entries = state.entries;
    told->memory_bytes = state.entries_bytes;
    look_up(b, d, share, told);
}

static void print(const char *what, uint64_t number, const struct told *t)
{
    printf("{\"%s\": %" PRIu64 ", \"entries\": %" PRIu64 ", \"bytes\": %" PRIu64 ", \"report_s\": %.2f, "
           "\"report_bytes\": %" PRIu64 ", \"heartbeats\": %" PRIu64 ", \"lookups_per_s\": %.0f, "
           "\"question_bytes\": %.2f, \"answer_bytes\": %.0f}\n",
           what, number, t->entries, t->memory_bytes, t->report_s, t->report_bytes, t->heartbeats,
           t->lookups_per_s, t->question_bytes, t->answer_bytes);
    fflush(stdout);
}

static void run(struct bench *b)
{
    struct pst_map *map;
    struct told all = {0};

    pst_assert(pst_map_open((uint32_t)b->settings.members_max, 0, &map) == 0);
    join_all(b);
    pst_map_copy(map, pst_directory_map(b->leader));
    for (uint64_t share = 0; share < b->shares; share++) {
        struct pst_directory *d = b->leader;
        struct told told = {0};

        if (share > 0)
            pst_assert(
                pst_directory_open_share(&b->settings, map, (uint32_t)share, share, pst_now_ns(), &d) == 0);
        take_share(b, d, share, &told);
        pst_directory_close(d);
        print("share", share, &told);
        all.entries += told.entries;
        all.memory_bytes += told.memory_bytes;
        all.events += told.events;
        all.report_bytes += told.report_bytes;
        all.heartbeats += told.heartbeats;
        all.report_s = told.report_s > all.report_s ? told.report_s : all.report_s; /* side by side */
        all.lookups_per_s += told.lookups_per_s;
        all.question_bytes = told.question_bytes;
        all.answer_bytes = told.answer_bytes;
    }
    print("shares", b->shares, &all);
    pst_map_close(map);
}

int main(int argc, char **argv)
{
    struct bench b = {0};

    if (argc == 6) {
        b.keys = strtoull(argv[1], NULL, 10);
        b.nodes = strtoull(argv[2], NULL, 10);
        b.shares = strtoull(argv[3], NULL, 10);
        b.batch = strtoull(argv[4], NULL, 10);
        b.seconds = strtod(argv[5], NULL);
    }
    if (b.keys < b.shares || b.nodes == 0 || b.nodes > PST_MAP_MEMBERS_MAX || b.shares == 0 ||
        b.shares > PST_MAP_SHARES_MAX || b.batch == 0 || b.batch > PST_DIRECTORY_BATCH_MAX ||
        b.seconds <= 0) {
        fprintf(stderr, "usage: shares_figures KEYS NODES SHARES BATCH SECONDS\n");
        return 2;
    }
    pst_directory_preset(&b.settings);
    b.settings.members_max = b.nodes;
    b.settings.directory_shards = b.shares;
    b.settings.entries_max = b.keys / b.shares + b.keys / b.shares / 8 + 100000;
    b.members = calloc(b.nodes, sizeof(*b.members));
    b.asked = calloc(ASKED, sizeof(*b.asked));
    pst_assert(b.members && b.asked);
    pst_assert(pst_directory_open(&b.settings, (struct pst_bytes){NULL, 0}, &(struct pst_id){{42}},
                                  pst_now_ns(), &b.leader) == 0);
    run(&b);
    free(b.asked);
    free(b.members);
    return 0;
}
