#include "directory_rig.h"

#include <stdio.h>

static const struct pst_directory_counters *counted(const struct rig *rig)
{
    return pst_directory_counters(rig->d);
}

static uint32_t places_of(struct rig *rig, uint64_t key)
{
    struct pst_hash128 fingerprint = rig_key(key);
    struct pst_places places;

    pst_directory_look_up(rig->d, &fingerprint, 1, &places);
    return places.count;
}

static enum pst_routed get_status(struct rig *rig, uint64_t key)
{
    struct pst_hash128 fingerprint = rig_key(key);
    struct pst_caller caller = {{{0}}};
    struct pst_route route;

    pst_directory_route_get(rig->d, &caller, &fingerprint, 1, rig->now_ns, &route);
    return route.status;
}

/* ---- members ---- */

static void an_id_belongs_to_one_living_process(void **state)
{
    struct rig *rig = rig_open();
    struct pst_registered first, again, second;

    (void)state;
    assert_int_equal(rig_register(rig, 1, 1, 100, 0, &first), 0);
    assert_int_equal(rig_register(rig, 1, 1, 200, 0, &second), -EAGAIN); /* the first is not stored yet */
    rig_store(rig);
    assert_int_equal(rig_register(rig, 1, 1, 100, 0, &again), 0); /* its answer was lost */
    assert_int_equal(again.epoch, first.epoch);
    assert_int_equal(rig_register(rig, 1, 1, 200, 0, &second), -EEXIST);
    assert_string_equal(second.holder->address, "127.0.0.1:7000");
    assert_int_equal(counted(rig)->refused_twice, 1);
    rig->now_ns += 4000 * RIG_MS - 1; /* the lease and a second */
    assert_int_equal(rig_register(rig, 1, 1, 200, 0, &second), -EEXIST);
    rig->now_ns++;
    assert_int_equal(rig_register(rig, 1, 1, 200, 0, &second), 0);
    assert_true(second.epoch > first.epoch);
    assert_int_equal(second.member, first.member);
    rig_store(rig);
    rig->sequences[first.member] = 0;
    assert_int_equal(rig_beat(rig, (struct rig_node){first.member, first.epoch}, RIG_FULL, NULL, 0, NULL),
                     -ESTALE);
    assert_int_equal(counted(rig)->heartbeats_stale, 1);
    rig_close(rig);
}

static void nobody_hears_of_what_is_not_stored(void **state)
{
    struct rig *rig = rig_open();
    struct pst_heartbeat_answer answer;
    struct pst_registered out;
    uint64_t version;

    (void)state;
    assert_int_equal(rig_register(rig, 1, 1, 100, 0, &out), 0);
    assert_int_equal(pst_directory_view(rig->d)->version, 0);
    assert_int_equal(out.version, 1);
    assert_int_equal(rig_beat(rig, (struct rig_node){out.member, out.epoch}, RIG_FULL, NULL, 0, &answer),
                     -ESTALE);
    rig->stored_bytes = pst_directory_store_begin(rig->d, rig->stored, sizeof(rig->stored), &version);
    assert_false(pst_directory_unstored(rig->d));
    assert_int_equal(rig_register(rig, 2, 2, 100, 0, &out), 0); /* goes into the next one */
    assert_int_equal(out.version, 2);
    pst_directory_stored(rig->d, version, rig->now_ns);
    assert_int_equal(pst_directory_view(rig->d)->members[0].epoch, 1);
    assert_int_equal(pst_directory_view(rig->d)->members[1].epoch, 0);
    assert_true(pst_directory_unstored(rig->d));
    rig_store(rig);
    assert_int_equal(pst_directory_view(rig->d)->members[1].epoch, 2);
    rig_restart(rig);
    assert_int_equal(pst_directory_view(rig->d)->members[1].epoch, 2);
    rig_close(rig);
}

static void a_member_leaves_or_is_taken_for_dead(void **state)
{
    struct rig *rig = rig_open();
    struct rig_node nodes[3] = {rig_join(rig, 1, 1), rig_join(rig, 2, 2), rig_join(rig, 3, 3)};
    struct pst_event events[] = {rig_add(1, 1)};
    struct pst_directory_state figures;
    uint64_t version;

    (void)state;
    for (int i = 0; i < 3; i++)
        assert_int_equal(rig_beat(rig, nodes[i], 0, events, 1, NULL), 0);
    assert_int_equal(places_of(rig, 1), 3);
    assert_int_equal(pst_directory_unregister(rig->d, nodes[0].member, nodes[0].epoch, rig->now_ns, &version),
                     0);
    assert_int_equal(places_of(rig, 1), 3); /* until it is stored */
    rig_store(rig);
    assert_int_equal(places_of(rig, 1), 2);
    assert_int_equal(pst_directory_unregister(rig->d, nodes[0].member, nodes[0].epoch, rig->now_ns, &version),
                     -ESTALE);
    rig_wait(rig, 9500, &nodes[1], 1);
    assert_int_equal(places_of(rig, 1), 2);
    pst_directory_state(rig->d, rig->now_ns, &figures);
    assert_int_equal(figures.members_suspect, 1);
    rig_wait(rig, 6000, &nodes[1], 1);
    assert_int_equal(places_of(rig, 1), 1);
    assert_int_equal(counted(rig)->deaths, 1);
    pst_directory_state(rig->d, rig->now_ns, &figures);
    assert_int_equal(figures.members, 1);
    assert_int_equal(figures.entries, 1); /* swept */
    rig_close(rig);
}

static void the_number_of_members_is_bounded(void **state)
{
    struct rig *rig = rig_open();
    struct pst_registered out;

    (void)state;
    for (uint8_t i = 0; i < RIG_MEMBERS; i++)
        rig_join(rig, i + 1, i);
    assert_int_equal(rig_register(rig, 99, 99, 1, 0, &out), -ENOSPC);
    rig_close(rig);
}

static int place(struct rig *rig, const char *prefix, uint32_t replicas, uint64_t *version)
{
    return pst_directory_place(rig->d, (struct pst_bytes){prefix, strlen(prefix)}, PST_PLACE_HOME, replicas,
                               version);
}

static void placements_are_kept_in_order(void **state)
{
    struct rig *rig = rig_open();
    char text[PST_VIEW_PREFIX_BYTES_MAX + 2];
    uint64_t version, before;

    (void)state;
    for (int i = 0; i < PST_VIEW_PREFIXES_MAX; i++) {
        (void)snprintf(text, sizeof(text), "p%02d/", i * 37 % PST_VIEW_PREFIXES_MAX);
        assert_int_equal(place(rig, text, 2, &version), 0);
    }
    assert_int_equal(place(rig, "q/", 2, &version), -ENOSPC);
    rig_store(rig);
    before = pst_directory_view(rig->d)->version;
    assert_int_equal(place(rig, "p05/", 2, &version), 0); /* it has that */
    assert_int_equal(version, before);
    assert_int_equal(place(rig, "p05/", 3, &version), 0);
    assert_int_equal(version, before + 1);
    rig_store(rig);
    assert_int_equal(pst_view_prefix_of(pst_directory_view(rig->d), (struct pst_bytes){"p05/a", 5})->replicas,
                     3);
    assert_int_equal(place(rig, "p05/", 0, &version), -EINVAL);
    assert_int_equal(place(rig, "p05/", PST_VIEW_COPIES_MAX + 1, &version), -EINVAL);
    memset(text, 'a', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    assert_int_equal(place(rig, text, 1, &version), -EINVAL);
    rig_restart(rig); /* in order, or the view would be refused */
    assert_int_equal(pst_directory_view(rig->d)->prefix_count, PST_VIEW_PREFIXES_MAX);
    rig_close(rig);
}

static void a_directory_begins_from_no_damaged_view(void **state)
{
    struct rig *rig = rig_open();
    struct pst_directory *d;

    (void)state;
    rig_store(rig);
    rig->stored[rig->stored_bytes / 2] ^= 1;
    assert_int_equal(
        pst_directory_open(&rig->settings, (struct pst_bytes){rig->stored, rig->stored_bytes}, 1, 1, &d),
        -EBADMSG);
    rig_close(rig);
}

/* ---- heartbeats ---- */

static void heartbeats_are_taken_in_order_or_not_at_all(void **state)
{
    struct rig *rig = rig_open();
    struct rig_node node = rig_join(rig, 1, 1);
    struct pst_event events[] = {rig_add(1, 1)}, bad[] = {rig_add(2, 1)};
    struct pst_heartbeat_answer answer;

    (void)state;
    assert_int_equal(rig_beat(rig, node, 0, events, 1, &answer), 0);
    assert_int_equal(answer.lease_ms, 3000);
    rig->sequences[node.member]--; /* once more */
    assert_int_equal(rig_beat(rig, node, 0, events, 1, &answer), -EALREADY);
    assert_int_equal(answer.lease_ms, 0);
    assert_int_equal(answer.sequence_next, 3);
    rig->sequences[node.member]++; /* one is missing */
    events[0].kind = PST_EVENT_DEL;
    assert_int_equal(rig_beat(rig, node, 0, events, 1, &answer), -EILSEQ);
    assert_true(answer.sync && answer.lease_ms > 0);
    assert_int_equal(places_of(rig, 1), 1);
    bad[0].tier = PST_POOL_TIERS;
    assert_int_equal(rig_beat(rig, node, 0, bad, 1, &answer), -EINVAL);
    bad[0].tier = 0;
    assert_int_equal(rig_beat(rig, node, PST_HEARTBEAT_BEGIN, bad, 1, &answer), -EINVAL);
    assert_int_equal(rig_beat(rig, node, 8, NULL, 0, &answer), -EINVAL);
    assert_int_equal(rig_beat(rig, node, PST_HEARTBEAT_BEGIN, NULL, 0, &answer), 0);
    assert_int_equal(counted(rig)->heartbeats_past, 1);
    assert_int_equal(counted(rig)->gaps, 1);
    assert_int_equal(counted(rig)->heartbeats_bad, 3);
    rig_close(rig);
}

static void a_full_report_replaces_when_it_is_whole(void **state)
{
    struct rig *rig = rig_open();
    struct rig_node node = rig_join(rig, 1, 1);
    struct pst_event first[] = {rig_add(1, 1), rig_add(2, 1)}, second[] = {rig_add(2, 1), rig_add(3, 1)};

    (void)state;
    assert_int_equal(rig_beat(rig, node, 0, first, 2, NULL), 0);
    assert_int_equal(rig_beat(rig, node, PST_HEARTBEAT_BEGIN, second, 1, NULL), 0);
    assert_int_equal(places_of(rig, 1), 1); /* nothing vanishes in between */
    assert_int_equal(rig_beat(rig, node, PST_HEARTBEAT_BEGIN, second, 1, NULL), 0); /* from the start again */
    assert_int_equal(places_of(rig, 1), 1);
    assert_int_equal(rig_beat(rig, node, PST_HEARTBEAT_END, second + 1, 1, NULL), 0);
    assert_int_equal(places_of(rig, 1), 0);
    assert_int_equal(places_of(rig, 2), 1);
    assert_int_equal(places_of(rig, 3), 1);
    rig_close(rig);
}

static void until_all_have_reported_nothing_is_a_miss(void **state)
{
    struct rig *rig = rig_open();
    struct rig_node one = rig_join(rig, 1, 1), two = rig_join(rig, 2, 2);
    struct pst_event events[] = {rig_add(1, 1)};
    struct pst_heartbeat_answer answer;

    (void)state;
    assert_int_equal(rig_beat(rig, one, 0, events, 1, NULL), 0);
    assert_int_equal(get_status(rig, 2), PST_ROUTE_MISS);
    rig_restart(rig);
    assert_int_equal(get_status(rig, 1), PST_ROUTE_INCOMPLETE);
    assert_int_equal(rig_beat(rig, one, 0, NULL, 0, &answer), -EILSEQ);
    assert_true(answer.sync);
    assert_int_equal(rig_beat(rig, one, RIG_FULL, events, 1, NULL), 0);
    assert_int_equal(get_status(rig, 1), PST_ROUTE_TO);
    assert_int_equal(get_status(rig, 2), PST_ROUTE_INCOMPLETE);
    assert_int_equal(rig_beat(rig, two, RIG_FULL, NULL, 0, NULL), 0);
    assert_int_equal(get_status(rig, 2), PST_ROUTE_MISS);
    rig_close(rig);
}

/* ---- puts and gets ---- */

static struct pst_route put(struct rig *rig, uint8_t host, uint64_t key, uint64_t bytes, uint32_t replicas)
{
    struct pst_put one = {.key = rig_key(key), .bytes = bytes, .replicas = replicas};
    struct pst_caller caller = {{{host}}};
    struct pst_route route;

    pst_directory_route_put(rig->d, &caller, &one, 1, rig->now_ns, &route);
    return route;
}

static uint64_t reserved(struct rig *rig)
{
    struct pst_directory_state figures;

    pst_directory_state(rig->d, rig->now_ns, &figures);
    return figures.reserved_bytes[PST_POOL_DRAM];
}

static void room_that_is_promised_is_nobody_elses(void **state)
{
    struct rig *rig = rig_open();
    struct rig_node node = rig_join(rig, 1, 1);
    struct pst_event met = rig_add(1, 1);

    (void)state;
    assert_int_equal(get_status(rig, 1), PST_ROUTE_MISS);
    assert_int_equal(put(rig, 9, 1, RIG_GIB / 2, 1).status, PST_ROUTE_TO);
    assert_int_equal(get_status(rig, 1), PST_ROUTE_TO); /* it may be there before the node has said so */
    assert_int_equal(put(rig, 9, 2, RIG_GIB / 2, 1).status, PST_ROUTE_TO);
    assert_int_equal(put(rig, 9, 3, 1, 1).status, PST_ROUTE_UNAVAILABLE);
    assert_int_equal(put(rig, 9, 2, RIG_GIB / 2, 1).status, PST_ROUTE_TO); /* the same again */
    assert_int_equal(reserved(rig), RIG_GIB);
    assert_int_equal(rig_beat(rig, node, 0, NULL, 0, NULL), 0); /* which says that nothing is used */
    assert_int_equal(reserved(rig), RIG_GIB);
    rig->used_bytes = RIG_GIB / 2;
    assert_int_equal(rig_beat(rig, node, 0, &met, 1, NULL), 0);
    assert_int_equal(reserved(rig), RIG_GIB / 2);
    assert_int_equal(put(rig, 9, 3, 1, 1).status, PST_ROUTE_UNAVAILABLE);
    assert_int_equal(put(rig, 9, 1, 1, 1).status, PST_ROUTE_EXISTS);
    rig_wait(rig, 5000, &node, 1);
    assert_int_equal(reserved(rig), 0);
    assert_int_equal(get_status(rig, 1), PST_ROUTE_TO);
    assert_int_equal(get_status(rig, 2), PST_ROUTE_MISS);
    assert_int_equal(put(rig, 9, 3, 1, 1).status, PST_ROUTE_TO);
    assert_int_equal(counted(rig)->reservations, 3);
    assert_int_equal(counted(rig)->reservations_met, 1);
    assert_int_equal(counted(rig)->reservations_expired, 1);
    rig_close(rig);
}

static void what_memory_has_no_room_for_goes_to_the_ssd(void **state)
{
    struct rig *rig = rig_open();
    struct rig_node node = rig_join(rig, 1, 1);
    struct pst_heartbeat message = {.member = node.member, .epoch = node.epoch, .sequence = 2};
    struct pst_put evictable = {.key = rig_key(9), .bytes = 200, .replicas = 1, .evictable = true};
    struct pst_heartbeat_answer answer;
    struct pst_caller caller = {{{9}}};
    struct pst_route route;

    (void)state;
    message.tiers[PST_POOL_DRAM] = (struct pst_tier_use){1000, 900};
    message.tiers[PST_POOL_SSD] = (struct pst_tier_use){300, 0};
    assert_int_equal(pst_directory_heartbeat(rig->d, &message, rig->now_ns, &answer), 0);
    assert_int_equal(put(rig, 9, 1, 100, 1).places.items[0].tier, PST_POOL_DRAM);
    assert_int_equal(put(rig, 9, 2, 200, 1).places.items[0].tier, PST_POOL_SSD);
    assert_int_equal(put(rig, 9, 3, 200, 1).status, PST_ROUTE_UNAVAILABLE);
    pst_directory_route_put(rig->d, &caller, &evictable, 1, rig->now_ns, &route);
    assert_int_equal(route.status, PST_ROUTE_TO); /* the node makes room */
    assert_int_equal(route.places.items[0].tier, PST_POOL_DRAM);
    rig_close(rig);
}

static void promises_end_with_their_member(void **state)
{
    struct rig *rig = rig_open();
    struct rig_node node = rig_join(rig, 1, 1);
    uint64_t version;

    (void)state;
    for (uint64_t key = 0; key < 2000; key++) /* twice the bound: the oldest end early */
        assert_int_equal(put(rig, 9, key, 1000, 1).status, PST_ROUTE_TO);
    assert_int_equal(reserved(rig), 1000 * 1000);
    assert_int_equal(pst_directory_unregister(rig->d, node.member, node.epoch, rig->now_ns, &version), 0);
    rig_store(rig);
    assert_int_equal(put(rig, 9, 1, 1, 1).status, PST_ROUTE_UNAVAILABLE);
    node = rig_join(rig, 2, 2);
    assert_int_equal(node.member, 0);
    assert_int_equal(reserved(rig), 0);
    assert_int_equal(put(rig, 9, 5000, 10, 1).status, PST_ROUTE_TO);
    rig_wait(rig, 6000, &node, 1);
    assert_int_equal(reserved(rig), 0);
    rig_close(rig);
}

static void nodes_of_one_host_share_its_puts(void **state)
{
    struct rig *rig = rig_open();
    struct rig_node nodes[3];
    uint32_t counts[3] = {0};

    (void)state;
    for (uint8_t i = 0; i < 3; i++)
        nodes[i] = rig_join(rig, i + 1, i < 2 ? 1 : 2);
    for (uint64_t key = 0; key < 100; key++) {
        struct pst_route route = put(rig, 1, key, 10, 1);

        assert_int_equal(route.places.count, 1);
        for (int i = 0; i < 3; i++)
            counts[i] += route.places.items[0].member == nodes[i].member;
    }
    assert_in_range(counts[0], 25, 75);
    assert_int_equal(counts[0] + counts[1], 100);
    rig_close(rig);
}

static void replicas_lie_on_distinct_hosts(void **state)
{
    struct rig *rig = rig_open();
    struct pst_route route;

    (void)state;
    for (uint8_t i = 0; i < 12; i++)
        rig_join(rig, i + 1, i % 3);
    for (uint64_t key = 0; key < 200; key++) {
        uint32_t hosts = 0;

        route = put(rig, 9, key, 1000, 4);
        assert_int_equal(route.places.count, 3); /* as many as there are */
        for (uint32_t i = 0; i < 3; i++)
            hosts |= 1u << pst_directory_view(rig->d)->members[route.places.items[i].member].host.bytes[0];
        assert_int_equal(hosts, 7);
    }
    route = put(rig, 2, 1000, 1000, 1); /* near who asks */
    assert_int_equal(pst_directory_view(rig->d)->members[route.places.items[0].member].host.bytes[0], 2);
    rig_close(rig);
}

/* What a node evicted comes back to it, also when its share has changed a little meanwhile. */
static void a_key_goes_where_it_was(void **state)
{
    struct rig *rig = rig_open();
    struct rig_node nodes[3];
    uint16_t before[500];
    uint32_t same = 0;

    (void)state;
    for (uint8_t i = 0; i < 3; i++)
        nodes[i] = rig_join(rig, i + 1, i);
    rig_wait(rig, 40000, nodes, 3);
    for (uint64_t key = 0; key < 500; key++)
        before[key] = put(rig, 99, key, 1, 1).places.items[0].member;
    rig->used_bytes = RIG_GIB / 100;
    rig_wait(rig, 10000, nodes, 3); /* room that was reserved has been given back */
    for (uint64_t key = 0; key < 500; key++)
        same += put(rig, 99, key, 1, 1).places.items[0].member == before[key];
    assert_in_range(same, 480, 500); /* by chance a third */
    rig_close(rig);
}

static uint32_t share_of(struct rig *rig, uint16_t member, uint64_t *key)
{
    uint32_t count = 0;

    for (int i = 0; i < 1000; i++)
        count += put(rig, 99, (*key)++, 1, 1).places.items[0].member == member;
    return count;
}

/* ---- repair ---- */

/* What the node is told of the key, which has one copy as far as it knows. */
static struct pst_route ask_repair(struct rig *rig, struct rig_node node, uint64_t key)
{
    const struct pst_put put = {.key = rig_key(key), .bytes = 1000, .replicas = 1};
    struct pst_heartbeat_answer answer;
    struct pst_repair message = {.member = node.member, .epoch = node.epoch};
    struct pst_route route;

    assert_int_equal(rig_beat(rig, node, 0, NULL, 0, &answer), 0);
    message.repair = answer.repair;
    assert_int_equal(pst_directory_repair(rig->d, &message, &put, 1, rig->now_ns, &route), 0);
    message.repair++;
    assert_int_equal(pst_directory_repair(rig->d, &message, &put, 1, rig->now_ns, &route), -ESTALE);
    message.repair--;
    message.epoch++;
    assert_int_equal(pst_directory_repair(rig->d, &message, &put, 1, rig->now_ns, &route), -ESTALE);
    return route;
}

/* A key that is put on two of three nodes, and reported by them: the first two of @nodes behind this. */
static void put_on_two(struct rig *rig, struct rig_node nodes[3])
{
    const struct pst_put put = {.key = rig_key(1), .bytes = 1000, .replicas = 2};
    const struct pst_event added = rig_add(1, 5);
    const struct pst_caller caller = {.host = {{9}}};
    struct pst_route route;

    for (uint8_t i = 0; i < 3; i++)
        nodes[i] = rig_join(rig, i + 1, i + 1);
    pst_directory_route_put(rig->d, &caller, &put, 1, rig->now_ns, &route);
    assert_int_equal(route.places.count, 2);
    for (uint32_t i = 0; i < 2; i++) {
        uint32_t at = i;
        struct rig_node other = nodes[i];

        while (nodes[at].member != route.places.items[i].member)
            at++;
        nodes[i] = nodes[at];
        nodes[at] = other;
        assert_int_equal(rig_beat(rig, nodes[i], 0, &added, 1, NULL), 0);
    }
}

static void copies_of_a_lost_member_are_made_again_once(void **state)
{
    struct rig *rig = rig_open();
    struct rig_node nodes[3];
    struct pst_route route;
    uint64_t version;

    (void)state;
    put_on_two(rig, nodes);
    assert_int_equal(ask_repair(rig, nodes[1], 1).status, PST_ROUTE_EXISTS);
    assert_int_equal(pst_directory_unregister(rig->d, nodes[0].member, nodes[0].epoch, rig->now_ns, &version),
                     0);
    rig_store(rig);
    route = ask_repair(rig, nodes[1], 1);
    assert_int_equal(route.status, PST_ROUTE_TO);
    assert_int_equal(route.places.count, 1);
    assert_int_equal(route.places.items[0].member, nodes[2].member);
    assert_int_equal(ask_repair(rig, nodes[1], 1).status, PST_ROUTE_EXISTS); /* it is underway */
    rig_close(rig);
}

/* One that has a key which nobody else needs to have is not done before another has it. */
static void what_drains_is_needed_until_others_have_its_keys(void **state)
{
    const struct pst_event added = rig_add(1, 5);
    struct rig *rig = rig_open();
    struct rig_node nodes[2] = {rig_join(rig, 1, 1), rig_join(rig, 2, 2)};
    struct pst_put put = {.key = rig_key(1), .bytes = 1000, .replicas = 1};
    struct pst_repair message = {
        .member = nodes[0].member, .epoch = nodes[0].epoch, .flags = PST_REPAIR_BEGIN | PST_REPAIR_END};
    const struct pst_id id = {{1}}, nobody = {{9}};
    const struct pst_caller caller = {.host = {{1}}};
    struct pst_heartbeat_answer answer;
    struct pst_directory_node node;
    struct pst_route route;
    uint64_t version;

    (void)state;
    assert_int_equal(rig_beat(rig, nodes[0], 0, &added, 1, NULL), 0);
    assert_int_equal(pst_directory_drain(rig->d, &nobody, true, &version), -ESTALE);
    assert_int_equal(pst_directory_drain(rig->d, &id, true, &version), 0);
    rig_store(rig);
    assert_true(pst_directory_view(rig->d)->members[nodes[0].member].drains);
    for (int round = 0; round < 3; round++) {
        assert_int_equal(pst_directory_nodes(rig->d, 0, rig->now_ns, &node, 1), 1);
        assert_true(node.drains && !node.drained);
        rig_wait(rig, round ? 12000 : 0, nodes, 2); /* what was underway to the other is so no more */
        assert_int_equal(rig_beat(rig, nodes[0], 0, NULL, 0, &answer), 0);
        message.repair = answer.repair;
        assert_int_equal(pst_directory_repair(rig->d, &message, &put, 1, rig->now_ns, &route), 0);
        assert_int_equal(route.status, round < 2 ? PST_ROUTE_TO : PST_ROUTE_EXISTS);
        if (round == 1)
            assert_int_equal(rig_beat(rig, nodes[1], 0, &added, 1, NULL), 0);
    }
    assert_int_equal(pst_directory_nodes(rig->d, 0, rig->now_ns, &node, 1), 1);
    assert_true(node.drained && node.keys_left == 0);
    put.key = rig_key(2);
    pst_directory_route_put(rig->d, &caller, &put, 1, rig->now_ns, &route);
    assert_int_equal(route.places.items[0].member, nodes[1].member); /* farther, but it stays */
    assert_int_equal(pst_directory_drain(rig->d, &id, false, &version), 0);
    rig_store(rig);
    pst_directory_route_put(rig->d, &caller, &put, 1, rig->now_ns, &route);
    rig_close(rig);
}

static void copies_that_nobody_has_room_for_are_looked_at_again(void **state)
{
    struct rig *rig = rig_open();
    struct pst_heartbeat_answer before, after;
    struct rig_node nodes[3];
    uint64_t version;

    (void)state;
    put_on_two(rig, nodes);
    rig->used_bytes = rig->capacity_bytes;
    assert_int_equal(pst_directory_unregister(rig->d, nodes[0].member, nodes[0].epoch, rig->now_ns, &version),
                     0);
    rig_store(rig);
    rig_wait(rig, 500, nodes + 1, 2);
    assert_int_equal(ask_repair(rig, nodes[1], 1).status, PST_ROUTE_UNAVAILABLE);
    assert_int_equal(rig_beat(rig, nodes[1], 0, NULL, 0, &before), 0);
    rig->used_bytes = 0;
    rig_wait(rig, rig->settings.repair_again_ms + 1000, nodes + 1, 2);
    assert_int_equal(rig_beat(rig, nodes[1], 0, NULL, 0, &after), 0);
    assert_int_equal(after.repair, before.repair + 1);
    assert_int_equal(ask_repair(rig, nodes[1], 1).status, PST_ROUTE_TO);
    rig_close(rig);
}

/* Two have the key, and one of them is to send it. Who that is changes when both are asking. */
static void copies_that_nobody_was_told_to_send_are_looked_at_again(void **state)
{
    const struct pst_put put = {.key = rig_key(1), .bytes = 1000, .replicas = 3};
    const struct pst_event added = rig_add(1, 5);
    const struct pst_caller caller = {.host = {{9}}};
    struct pst_heartbeat_answer before, after;
    struct rig *rig = rig_open();
    struct rig_node nodes[4];
    struct pst_route route;
    uint32_t sender;

    (void)state;
    for (uint8_t i = 0; i < 4; i++)
        nodes[i] = rig_join(rig, i + 1, i + 1);
    pst_directory_route_put(rig->d, &caller, &put, 1, rig->now_ns, &route);
    for (uint32_t i = 0; i < 2; i++)
        assert_int_equal(rig_beat(rig, nodes[i], 0, &added, 1, NULL), 0);
    rig_wait(rig, 12000, nodes, 4); /* the client has died before there was a third */
    sender = ask_repair(rig, nodes[0], 1).status == PST_ROUTE_TO ? 0 : 1;
    rig_wait(rig, 24000, nodes, 4); /* and the node, what it sent: that has been looked at again */
    assert_int_equal(ask_repair(rig, nodes[1 - sender], 1).status, PST_ROUTE_EXISTS);
    assert_int_equal(pst_directory_suspect(rig->d, nodes[sender].member, nodes[sender].epoch, rig->now_ns),
                     0);
    assert_int_equal(ask_repair(rig, nodes[sender], 1).status, PST_ROUTE_EXISTS);
    assert_int_equal(rig_beat(rig, nodes[0], 0, NULL, 0, &before), 0);
    rig_wait(rig, rig->settings.repair_again_ms + 1000, nodes, 4);
    assert_int_equal(rig_beat(rig, nodes[0], 0, NULL, 0, &after), 0);
    assert_int_equal(after.repair, before.repair + 1);
    assert_int_equal(ask_repair(rig, nodes[sender], 1).status, PST_ROUTE_TO);
    rig_close(rig);
}

/* Six places are remembered, and all of them are on too few hosts. */
static void copies_that_would_not_be_remembered_are_not_made(void **state)
{
    const struct pst_put put = {.key = rig_key(1), .bytes = 1000, .replicas = 3};
    const struct pst_event added = rig_add(1, 5);
    const struct pst_caller caller = {.host = {{9}}};
    struct rig_node nodes[PST_PLACES_MAX + 1];
    struct rig *rig = rig_open();
    struct pst_route route;

    (void)state;
    for (uint8_t i = 0; i <= PST_PLACES_MAX; i++)
        nodes[i] = rig_join(rig, i + 1, i < PST_PLACES_MAX ? i % 2 + 1 : 3);
    pst_directory_route_put(rig->d, &caller, &put, 1, rig->now_ns, &route);
    for (uint32_t i = 0; i < PST_PLACES_MAX; i++)
        assert_int_equal(rig_beat(rig, nodes[i], 0, &added, 1, NULL), 0);
    rig_wait(rig, 12000, nodes, PST_PLACES_MAX + 1);
    for (uint32_t i = 0; i < PST_PLACES_MAX; i++)
        assert_int_equal(ask_repair(rig, nodes[i], 1).status, PST_ROUTE_EXISTS);
    rig_close(rig);
}

static void what_a_node_let_go_of_is_not_brought_back(void **state)
{
    struct rig *rig = rig_open();
    struct pst_event gone = rig_add(1, 5);
    struct pst_heartbeat_answer answer;
    struct rig_node nodes[3];

    (void)state;
    assert_int_equal(rig_beat(rig, rig_join(rig, 9, 2), 0, NULL, 0, &answer), 0);
    assert_int_equal(answer.repair, 0); /* nobody wants copies */
    put_on_two(rig, nodes);
    gone.kind = PST_EVENT_DEL;
    assert_int_equal(rig_beat(rig, nodes[0], 0, &gone, 1, NULL), 0);
    assert_int_equal(ask_repair(rig, nodes[1], 1).status, PST_ROUTE_EXISTS);
    rig_close(rig);
}

static void a_newcomer_and_a_suspect_draw_less(void **state)
{
    struct rig *rig = rig_open();
    struct rig_node nodes[5];
    uint64_t key = 0;

    (void)state;
    rig->used_bytes = RIG_GIB / 100 * 95;
    for (uint8_t i = 0; i < 4; i++)
        nodes[i] = rig_join(rig, i + 1, i);
    rig_wait(rig, 40000, nodes, 4);
    rig->used_bytes = 0;
    nodes[4] = rig_join(rig, 9, 9);
    assert_in_range(share_of(rig, nodes[4].member, &key), 50, 250); /* about a fifth of those of an equal */
    rig->used_bytes = RIG_GIB / 100 * 95;
    rig_wait(rig, 40000, nodes, 4); /* by now the newcomer has been forgotten */
    assert_int_equal(counted(rig)->deaths, 1);
    nodes[4] = rig_join(rig, 9, 9);
    rig_wait(rig, 31000, nodes, 4 + 1);
    assert_in_range(share_of(rig, nodes[4].member, &key), 120, 280);
    assert_int_equal(pst_directory_suspect(rig->d, nodes[0].member, nodes[0].epoch, rig->now_ns), 0);
    assert_int_equal(share_of(rig, nodes[0].member, &key), 0);
    rig_wait(rig, 3000, &nodes[0], 4); /* the last is late by now */
    assert_int_equal(share_of(rig, nodes[4].member, &key), 0);
    assert_in_range(share_of(rig, nodes[0].member, &key), 150, 350);
    rig_close(rig);
}

static void the_nearest_and_fastest_place_comes_first(void **state)
{
    struct rig *rig = rig_open();
    struct rig_node nodes[3] = {rig_join(rig, 1, 1), rig_join(rig, 2, 2), rig_join(rig, 3, 3)};
    struct pst_event event = rig_add(1, 1);
    struct pst_hash128 key = rig_key(1);
    struct pst_caller caller = {{{1}}};
    struct pst_route route;

    (void)state;
    event.tier = PST_POOL_SSD;
    for (int i = 0; i < 3; i++)
        assert_int_equal(rig_beat(rig, nodes[i], 0, &event, 1, NULL), 0);
    event.tier = PST_POOL_DRAM;
    assert_int_equal(rig_beat(rig, nodes[2], 0, &event, 1, NULL), 0);
    pst_directory_route_get(rig->d, &caller, &key, 1, rig->now_ns, &route);
    assert_int_equal(route.places.count, 3);
    assert_int_equal(route.places.items[0].member, nodes[0].member); /* of the caller's host */
    assert_int_equal(route.places.items[1].member, nodes[2].member);
    assert_int_equal(route.places.items[1].tier, PST_POOL_DRAM);
    assert_int_equal(route.places.items[2].member, nodes[1].member);
    assert_int_equal(pst_directory_suspect(rig->d, nodes[2].member, nodes[2].epoch, rig->now_ns), 0);
    pst_directory_route_get(rig->d, &caller, &key, 1, rig->now_ns, &route);
    assert_int_equal(route.places.items[1].member, nodes[1].member);
    assert_int_equal(route.places.items[2].member, nodes[2].member);
    rig_close(rig);
}

static void a_key_that_moved_is_where_it_was_told_last(void **state)
{
    struct rig *rig = rig_open();
    struct rig_node node = rig_join(rig, 1, 1);
    struct pst_event down = rig_add(1, 5), late = rig_add(1, 4), gone = rig_add(1, 5);
    struct pst_caller caller = {{{1}}};
    struct pst_hash128 key = rig_key(1);
    struct pst_event up = rig_add(1, 5);
    struct pst_route route;

    (void)state;
    down.tier = PST_POOL_SSD;
    gone.kind = PST_EVENT_DEL;
    assert_int_equal(rig_beat(rig, node, 0, &up, 1, NULL), 0);
    assert_int_equal(rig_beat(rig, node, 0, &down, 1, NULL), 0);
    assert_int_equal(rig_beat(rig, node, 0, &late, 1, NULL), 0);
    pst_directory_route_get(rig->d, &caller, &key, 1, rig->now_ns, &route);
    assert_int_equal(route.places.count, 1);
    assert_int_equal(route.places.items[0].tier, PST_POOL_SSD);
    assert_int_equal(route.places.items[0].generation, 5);
    assert_int_equal(rig_beat(rig, node, 0, &up, 1, NULL), 0);
    pst_directory_route_get(rig->d, &caller, &key, 1, rig->now_ns, &route);
    assert_int_equal(route.places.count, 1);
    assert_int_equal(route.places.items[0].tier, PST_POOL_DRAM);
    assert_int_equal(rig_beat(rig, node, 0, &down, 1, NULL), 0);
    assert_int_equal(rig_beat(rig, node, 0, &gone, 1, NULL), 0); /* from wherever it lay */
    assert_int_equal(get_status(rig, 1), PST_ROUTE_MISS);
    rig_close(rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_id_belongs_to_one_living_process),
        cmocka_unit_test(nobody_hears_of_what_is_not_stored),
        cmocka_unit_test(a_member_leaves_or_is_taken_for_dead),
        cmocka_unit_test(the_number_of_members_is_bounded),
        cmocka_unit_test(placements_are_kept_in_order),
        cmocka_unit_test(a_directory_begins_from_no_damaged_view),
        cmocka_unit_test(heartbeats_are_taken_in_order_or_not_at_all),
        cmocka_unit_test(a_full_report_replaces_when_it_is_whole),
        cmocka_unit_test(until_all_have_reported_nothing_is_a_miss),
        cmocka_unit_test(room_that_is_promised_is_nobody_elses),
        cmocka_unit_test(what_memory_has_no_room_for_goes_to_the_ssd),
        cmocka_unit_test(promises_end_with_their_member),
        cmocka_unit_test(nodes_of_one_host_share_its_puts),
        cmocka_unit_test(replicas_lie_on_distinct_hosts),
        cmocka_unit_test(copies_of_a_lost_member_are_made_again_once),
        cmocka_unit_test(what_drains_is_needed_until_others_have_its_keys),
        cmocka_unit_test(copies_that_nobody_has_room_for_are_looked_at_again),
        cmocka_unit_test(copies_that_nobody_was_told_to_send_are_looked_at_again),
        cmocka_unit_test(copies_that_would_not_be_remembered_are_not_made),
        cmocka_unit_test(what_a_node_let_go_of_is_not_brought_back),
        cmocka_unit_test(a_newcomer_and_a_suspect_draw_less),
        cmocka_unit_test(a_key_goes_where_it_was),
        cmocka_unit_test(the_nearest_and_fastest_place_comes_first),
        cmocka_unit_test(a_key_that_moved_is_where_it_was_told_last),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
