/* SPDX-License-Identifier: Apache-2.0 */
/* test_directory_shares.c: who has which share of a directory, and directories that follow the leader's. */
#include "lib/directory_rig.h"

#include "directory/share.h"

enum { SHARES = 3 };

/* The leader's directory and one that follows it, with a node that reports to both. */
struct shared {
    struct rig *rig;
    struct pst_directory *follower;
    struct pst_registered node;
    uint64_t sequences[SHARES];
};

static struct rig *open_leader(void)
{
    struct rig *rig = rig_open();

    rig_store(rig);
    rig->settings.directory_shards = SHARES;
    rig_restart(rig);
    assert_int_equal(pst_directory_map(rig->d)->share_count, SHARES);
    return rig;
}

static int take(struct rig *rig, uint32_t number, uint64_t start, const char *address)
{
    uint64_t version = 0;
    int r = pst_directory_take_share(rig->d, number, start, address, rig->now_ns, &version);

    if (r == 0)
        assert_true(version >= pst_directory_map(rig->d)->version);
    rig_store(rig);
    return r;
}

static const char *taker(const struct rig *rig, uint32_t number)
{
    return pst_directory_map(rig->d)->shares[number].address;
}

static void a_share_is_one_process_s(void **state)
{
    struct rig *rig = open_leader();
    char longest[PST_MAP_ADDRESS_BYTES + 1];
    uint64_t version;

    (void)state;
    memset(longest, 'x', sizeof(longest) - 1);
    longest[sizeof(longest) - 1] = '\0';
    assert_int_equal(take(rig, 0, 7, "a:1"), -EINVAL); /* the leader's own */
    assert_int_equal(take(rig, SHARES, 7, "a:1"), -EINVAL);
    assert_int_equal(take(rig, 1, 0, "a:1"), -EINVAL);
    assert_int_equal(take(rig, 1, 7, ""), -EINVAL);
    assert_int_equal(take(rig, 1, 7, longest), -EINVAL);
    assert_string_equal(taker(rig, 1), "");
    assert_int_equal(take(rig, 1, 7, "a:1"), 0);
    assert_int_equal(take(rig, 2, 8, "b:1"), 0);
    assert_string_equal(taker(rig, 1), "a:1");
    version = pst_directory_map(rig->d)->version;
    assert_int_equal(take(rig, 1, 7, "a:1"), 0); /* says so again: nothing changes */
    assert_int_equal(pst_directory_map(rig->d)->version, version);
    assert_int_equal(take(rig, 1, 9, "c:1"), -EEXIST);
    assert_int_equal(take(rig, 1, 9, "a:1"), 0); /* came back in its place */
    rig->now_ns += 3001 * RIG_MS;
    assert_int_equal(take(rig, 2, 8, "b:1"), 0); /* the directory slept, and not those that have shares */
    rig->now_ns += 1500 * RIG_MS;
    rig_tick(rig);
    rig->now_ns += 1501 * RIG_MS;
    rig_tick(rig);
    assert_int_equal(take(rig, 1, 10, "c:1"), 0);
    assert_string_equal(taker(rig, 1), "c:1");
    rig_close(rig);
}

static void shares_last_in_the_pool_map_while_they_are_as_many(void **state)
{
    struct rig *rig = open_leader();

    (void)state;
    assert_int_equal(take(rig, 2, 8, "b:1"), 0);
    rig_restart(rig);
    assert_string_equal(taker(rig, 2), "b:1");
    assert_int_equal(take(rig, 2, 9, "c:1"), -EEXIST); /* whoever has it may be there: nobody has heard yet */
    rig->settings.directory_shards = 2;
    rig_restart(rig);
    assert_int_equal(pst_directory_map(rig->d)->share_count, 2);
    assert_string_equal(taker(rig, 1), "");
    rig->settings.directory_shards = 1;
    rig_restart(rig);
    assert_int_equal(pst_directory_map(rig->d)->share_count, 1);
    rig_close(rig);
}

/* As when a pool that lost its pool map begins again, in as many shares as before. */
static void a_pool_that_goes_on_by_its_name_has_its_shares(void **state)
{
    const struct pst_id name = {{0xaa}};
    struct rig *rig = rig_open();

    (void)state;
    pst_directory_close(rig->d);
    rig->settings.directory_shards = SHARES;
    assert_int_equal(pst_directory_open(&rig->settings, (struct pst_bytes){NULL, 0}, &(struct pst_id){{42}},
                                        rig->now_ns, &rig->d),
                     0);
    assert_int_equal(pst_directory_adopt(rig->d, &name, 1000), 0);
    rig_store(rig);
    assert_true(pst_id_equal(&pst_directory_map(rig->d)->pool, &name));
    assert_int_equal(pst_directory_map(rig->d)->share_count, SHARES);
    assert_int_equal(take(rig, SHARES - 1, 7, "a:1"), 0);
    rig_close(rig);
}

/* ---- directories that follow ---- */

static void open_shared(struct shared *s)
{
    memset(s, 0, sizeof(*s));
    s->rig = open_leader();
    assert_int_equal(rig_register(s->rig, 1, 1, 1, 0, &s->node), 0);
    rig_store(s->rig);
    assert_int_equal(pst_directory_open_share(&s->rig->settings, pst_directory_map(s->rig->d), 1, 99,
                                              s->rig->now_ns, &s->follower),
                     0);
}

static void close_shared(struct shared *s)
{
    pst_directory_close(s->follower);
    rig_close(s->rig);
}

/* A heartbeat to who has the share, of @events and as about the share @told. */
static int tell(struct shared *s, uint32_t share, uint32_t told, uint32_t flags,
                const struct pst_event *events, uint32_t count, struct pst_heartbeat_answer *answer)
{
    struct pst_heartbeat message = {.member = s->node.member,
                                    .epoch = s->node.epoch,
                                    .sequence = ++s->sequences[share],
                                    .flags = flags,
                                    .share = (uint16_t)told,
                                    .share_last = SHARES - 1,
                                    .event_count = count,
                                    .events = events};

    message.tiers[PST_POOL_DRAM] = (struct pst_tier_use){RIG_GIB, 0};
    return pst_directory_heartbeat(share ? s->follower : s->rig->d, &message, s->rig->now_ns, answer);
}

static enum pst_routed status(struct shared *s, struct pst_hash128 key)
{
    struct pst_caller caller = {{{0}}};
    struct pst_route route;

    pst_directory_route_get(s->follower, &caller, &key, 1, s->rig->now_ns, &route);
    return route.status;
}

/* The number-th key that falls to the share. */
static struct pst_hash128 key_of_share(uint32_t share, uint32_t number)
{
    for (uint64_t i = 0;; i++) {
        struct pst_hash128 key = rig_key(i);

        if (pst_map_share_of(&key, SHARES) == share && number-- == 0)
            return key;
    }
}

static void a_follower_knows_its_own_keys_alone(void **state)
{
    struct pst_hash128 keys[] = {key_of_share(1, 0), key_of_share(1, 1), key_of_share(2, 0)};
    const struct pst_event added = {.key = keys[0], .generation = 5, .tier = PST_POOL_DRAM};
    struct pst_heartbeat_answer answer;
    struct shared s;

    (void)state;
    open_shared(&s);
    assert_true(pst_directory_has_share_of(s.follower, keys, 2));
    assert_false(pst_directory_has_share_of(s.follower, keys, 3));
    assert_false(pst_directory_has_share_of(s.rig->d, keys, 1));
    assert_int_equal(status(&s, keys[0]), PST_ROUTE_INCOMPLETE);
    assert_int_equal(tell(&s, 1, 1, RIG_FULL, &added, 1, &answer), 0);
    assert_int_equal(answer.lease_ms, 0);
    assert_int_equal(answer.want_count, 0);
    assert_int_equal(status(&s, keys[0]), PST_ROUTE_TO);
    assert_int_equal(status(&s, keys[1]), PST_ROUTE_MISS);
    assert_int_equal(tell(&s, 1, 2, 0, &added, 1, &answer), -EILSEQ); /* of another's keys */
    assert_true(answer.sync);
    assert_int_equal(tell(&s, 0, 0, RIG_FULL, NULL, 0, &answer), 0);
    assert_true(answer.lease_ms > 0);
    close_shared(&s);
}

static void a_follower_takes_later_pool_maps_alone(void **state)
{
    struct pst_map *before, *other;
    struct shared s;

    (void)state;
    open_shared(&s);
    assert_int_equal(pst_map_open(RIG_MEMBERS, 0, &before), 0);
    assert_int_equal(pst_map_open(RIG_MEMBERS, 0, &other), 0);
    pst_map_copy(before, pst_directory_map(s.rig->d));
    assert_int_equal(tell(&s, 1, 1, RIG_FULL, NULL, 0, &(struct pst_heartbeat_answer){0}), 0);
    assert_int_equal(status(&s, key_of_share(1, 0)), PST_ROUTE_MISS);
    assert_int_equal(rig_register(s.rig, 2, 2, 2, 0, &s.node), 0);
    rig_store(s.rig);
    s.sequences[1] = 0;
    assert_int_equal(tell(&s, 1, 1, RIG_FULL, NULL, 0, &(struct pst_heartbeat_answer){0}), -ESTALE);
    assert_int_equal(pst_directory_follow(s.follower, pst_directory_map(s.rig->d), s.rig->now_ns), 0);
    assert_int_equal(status(&s, key_of_share(1, 0)), PST_ROUTE_INCOMPLETE); /* the second has not told */
    assert_int_equal(tell(&s, 1, 1, RIG_FULL, NULL, 0, &(struct pst_heartbeat_answer){0}), 0);
    assert_int_equal(status(&s, key_of_share(1, 0)), PST_ROUTE_MISS);
    assert_int_equal(pst_directory_follow(s.follower, before, s.rig->now_ns), -ESTALE);
    for (int i = 0; i < 4; i++) { /* none that its leader could have made */
        pst_map_copy(other, pst_directory_map(s.rig->d));
        other->version++;
        other->pool.bytes[0] ^= i == 0;
        other->share_count += i == 1;
        other->members[s.node.member].epoch -= i == 2;
        other->term -= i == 3;
        assert_int_equal(pst_directory_follow(s.follower, other, s.rig->now_ns), -ESTALE);
    }
    pst_map_close(before);
    pst_map_close(other);
    close_shared(&s);
}

static void keys_of_a_silent_member_are_not_known_to_be_missing(void **state)
{
    struct pst_heartbeat_answer answer;
    struct shared s;

    (void)state;
    open_shared(&s);
    assert_int_equal(tell(&s, 1, 1, RIG_FULL, NULL, 0, &answer), 0);
    for (uint64_t ms = 0; ms < s.rig->settings.member_ttl_ms; ms += 500) {
        pst_directory_tick(s.follower, s.rig->now_ns);
        assert_int_equal(status(&s, key_of_share(1, 0)), PST_ROUTE_MISS);
        s.rig->now_ns += 500 * RIG_MS;
    }
    pst_directory_tick(s.follower, s.rig->now_ns);
    assert_int_equal(status(&s, key_of_share(1, 0)), PST_ROUTE_INCOMPLETE);
    assert_int_equal(tell(&s, 1, 1, 0, NULL, 0, &answer), -EILSEQ);
    assert_true(answer.sync);
    assert_int_equal(tell(&s, 1, 1, RIG_FULL, NULL, 0, &answer), 0);
    assert_int_equal(status(&s, key_of_share(1, 0)), PST_ROUTE_MISS);
    close_shared(&s);
}

/* As one whose process was stopped. */
static void a_follower_that_slept_calls_nothing_missing(void **state)
{
    struct pst_hash128 known = key_of_share(1, 0), missing = key_of_share(1, 1);
    const struct pst_event added = {.key = known, .generation = 5, .tier = PST_POOL_DRAM};
    struct pst_heartbeat_answer answer;
    struct shared s;

    (void)state;
    open_shared(&s);
    assert_int_equal(tell(&s, 1, 1, RIG_FULL, &added, 1, &answer), 0);
    assert_int_equal(status(&s, missing), PST_ROUTE_MISS);
    s.rig->now_ns += 3500 * RIG_MS;
    pst_directory_tick(s.follower, s.rig->now_ns);
    assert_int_equal(status(&s, known), PST_ROUTE_TO);
    assert_int_equal(status(&s, missing), PST_ROUTE_INCOMPLETE);
    assert_int_equal(tell(&s, 1, 1, 0, NULL, 0, &answer), -EILSEQ);
    assert_int_equal(tell(&s, 1, 1, RIG_FULL, &added, 1, &answer), 0);
    assert_int_equal(status(&s, missing), PST_ROUTE_MISS);
    close_shared(&s);
}

static void a_follower_has_puts_of_its_own(void **state)
{
    const struct pst_put put = {.key = key_of_share(1, 0), .bytes = 1000, .replicas = 1};
    struct pst_caller caller = {{{0}}};
    struct pst_directory_state figures;
    struct pst_heartbeat_answer answer;
    struct pst_route route;
    struct shared s;

    (void)state;
    open_shared(&s);
    pst_directory_route_put(s.follower, &caller, &put, 1, s.rig->now_ns, &route);
    assert_int_equal(route.status, PST_ROUTE_UNAVAILABLE); /* it has not heard of room yet */
    assert_int_equal(tell(&s, 1, 1, RIG_FULL, NULL, 0, &answer), 0);
    pst_directory_route_put(s.follower, &caller, &put, 1, s.rig->now_ns, &route);
    assert_int_equal(route.status, PST_ROUTE_TO);
    assert_int_equal(route.places.items[0].member, s.node.member);
    pst_directory_state(s.follower, s.rig->now_ns, &figures);
    assert_int_equal(figures.reservations, 1);
    pst_directory_state(s.rig->d, s.rig->now_ns, &figures);
    assert_int_equal(figures.reservations, 0);
    close_shared(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_share_is_one_process_s),
        cmocka_unit_test(shares_last_in_the_pool_map_while_they_are_as_many),
        cmocka_unit_test(a_pool_that_goes_on_by_its_name_has_its_shares),
        cmocka_unit_test(a_follower_knows_its_own_keys_alone),
        cmocka_unit_test(a_follower_takes_later_pool_maps_alone),
        cmocka_unit_test(keys_of_a_silent_member_are_not_known_to_be_missing),
        cmocka_unit_test(a_follower_that_slept_calls_nothing_missing),
        cmocka_unit_test(a_follower_has_puts_of_its_own),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
