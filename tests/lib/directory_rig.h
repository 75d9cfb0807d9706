/* SPDX-License-Identifier: Apache-2.0 */
/* directory_rig.h: a directory, a clock that the test turns, and nodes that say what they are told to. */
#ifndef PST_TEST_DIRECTORY_RIG_H
#define PST_TEST_DIRECTORY_RIG_H

#include "lib/cm.h"

#include "directory/directory.h"
#include "directory/figures.h"
#include "directory/route.h"

enum { RIG_MEMBERS = 24, RIG_GIB = 1 << 30 };
#define RIG_MS 1000000ull

struct rig {
    struct pst_directory_settings settings;
    struct pst_directory *d;
    uint64_t now_ns;
    uint8_t stored[1 << 20];
    size_t stored_bytes;
    uint64_t sequences[RIG_MEMBERS]; /* of each member's last heartbeat */
    uint64_t capacity_bytes, used_bytes;
};

struct rig_node {
    uint16_t member;
    uint64_t epoch;
};

static inline struct rig *rig_open(void)
{
    struct rig *rig = calloc(1, sizeof(*rig));

    assert_non_null(rig);
    pst_directory_preset(&rig->settings);
    rig->settings.members_max = RIG_MEMBERS;
    rig->settings.entries_max = 100000;
    rig->settings.reservations_max = 1000;
    rig->now_ns = 1000 * RIG_MS;
    rig->capacity_bytes = RIG_GIB;
    assert_true(pst_map_bytes_max(RIG_MEMBERS) <= sizeof(rig->stored));
    assert_int_equal(pst_directory_open(&rig->settings, (struct pst_bytes){NULL, 0}, &(struct pst_id){{42}},
                                        rig->now_ns, &rig->d),
                     0);
    return rig;
}

static inline void rig_close(struct rig *rig)
{
    pst_directory_close(rig->d);
    free(rig);
}

static inline void rig_store(struct rig *rig)
{
    uint64_t version;

    while (pst_directory_unstored(rig->d)) {
        rig->stored_bytes = pst_directory_store_begin(rig->d, rig->stored, sizeof(rig->stored), &version);
        pst_directory_stored(rig->d, version, rig->now_ns);
    }
}

/* The directory ends, and another begins from what is stored. */
static inline void rig_restart(struct rig *rig)
{
    struct pst_bytes stored = {rig->stored, rig->stored_bytes};

    pst_directory_close(rig->d);
    assert_int_equal(pst_directory_open(&rig->settings, stored, &(struct pst_id){{43}}, rig->now_ns, &rig->d),
                     0);
    rig_store(rig);
}

static inline void rig_tick(struct rig *rig)
{
    pst_directory_tick(rig->d, rig->now_ns);
    rig_store(rig);
}

static inline int rig_register(struct rig *rig, uint8_t id, uint8_t host, uint64_t start, uint64_t kept_epoch,
                               struct pst_registered *out)
{
    struct pst_register message = {.id = {{id}},
                                   .host = {{host}},
                                   .start = start,
                                   .page_bytes = 2 << 20,
                                   .kept_epoch = kept_epoch,
                                   .address = "127.0.0.1:7000",
                                   .unix_path = "",
                                   .tags = ""};

    return pst_directory_register(rig->d, &message, rig->now_ns, out);
}

/* @flags, @events: of the next heartbeat. */
static inline int rig_beat(struct rig *rig, struct rig_node node, uint32_t flags,
                           const struct pst_event *events, uint32_t count,
                           struct pst_heartbeat_answer *answer)
{
    struct pst_heartbeat message = {.member = node.member,
                                    .epoch = node.epoch,
                                    .sequence = ++rig->sequences[node.member],
                                    .flags = flags,
                                    .event_count = count,
                                    .events = events};
    struct pst_heartbeat_answer unread;

    message.tiers[PST_POOL_DRAM] = (struct pst_tier_use){rig->capacity_bytes, rig->used_bytes};
    return pst_directory_heartbeat(rig->d, &message, rig->now_ns, answer ? answer : &unread);
}

enum { RIG_FULL = PST_HEARTBEAT_BEGIN | PST_HEARTBEAT_END };

/* A node that holds nothing joins. */
static inline struct rig_node rig_join(struct rig *rig, uint8_t id, uint8_t host)
{
    struct pst_registered out;

    assert_int_equal(rig_register(rig, id, host, rig->now_ns + id, 0, &out), 0);
    rig_store(rig);
    rig->sequences[out.member] = 0;
    assert_int_equal(rig_beat(rig, (struct rig_node){out.member, out.epoch}, RIG_FULL, NULL, 0, NULL), 0);
    return (struct rig_node){out.member, out.epoch};
}

/* Time goes by in steps of half a second, in each of which those nodes send a heartbeat. */
static inline void rig_wait(struct rig *rig, uint64_t ms, const struct rig_node *nodes, uint32_t count)
{
    for (uint64_t end_ns = rig->now_ns + ms * RIG_MS; rig->now_ns < end_ns;) {
        rig->now_ns = pst_min(end_ns, rig->now_ns + 500 * RIG_MS);
        for (uint32_t i = 0; i < count; i++)
            assert_int_equal(rig_beat(rig, nodes[i], 0, NULL, 0, NULL), 0);
        rig_tick(rig);
    }
}

static inline struct pst_hash128 rig_key(uint64_t key)
{
    return pst_hash128(&key, sizeof(key), 7);
}

static inline struct pst_event rig_add(uint64_t key, uint64_t generation)
{
    return (struct pst_event){
        .key = rig_key(key), .generation = generation, .kind = PST_EVENT_ADD, .tier = PST_POOL_DRAM};
}

static inline const struct pst_directory_counters *rig_counters(const struct rig *rig)
{
    return pst_directory_counters(rig->d);
}

static inline enum pst_routed rig_get_status(struct rig *rig, uint64_t key)
{
    struct pst_hash128 fingerprint = rig_key(key);
    struct pst_caller caller = {{{0}}};
    struct pst_route route;

    pst_directory_route_get(rig->d, &caller, &fingerprint, 1, rig->now_ns, &route);
    return route.status;
}

static inline struct pst_route rig_put(struct rig *rig, uint8_t host, uint64_t key, uint64_t bytes,
                                       uint32_t replicas)
{
    struct pst_put one = {.key = rig_key(key), .bytes = bytes, .replicas = replicas};
    struct pst_caller caller = {{{host}}};
    struct pst_route route;

    pst_directory_route_put(rig->d, &caller, &one, 1, rig->now_ns, &route);
    return route;
}

#endif
