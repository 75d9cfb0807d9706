/* SPDX-License-Identifier: Apache-2.0 */
/* test_guests.c: mori's nodes at a master: who is there, what each has, where keys are and go, what is
 * evicted; against a model that keeps all of it in an array. */
#include "lib/cm.h"

#include "base/ms.h"
#include "directory/guest/guests.h"

#include <stdio.h>

enum { NODES = 4, KEYS = 24, TIERS = PST_POOL_TIERS, TTL_MS = 1000 };

static const struct pst_guest_settings settings = {.umbp_nodes = NODES,
                                                   .umbp_keys = 1024,
                                                   .umbp_heartbeat_ms = 100,
                                                   .umbp_ttl_ms = TTL_MS,
                                                   .umbp_lease_ms = 50,
                                                   .umbp_high = 90,
                                                   .umbp_low = 50};
static struct pst_external *blocks;

static struct pst_guests *open_guests(void)
{
    const struct pst_external_settings external = {
        .nodes_max = 10 + NODES, .entries_max = 64, .hits_max = 64};
    struct pst_guests *g;

    assert_int_equal(pst_external_open(&external, &blocks), 0);
    assert_int_equal(pst_guests_open(&settings, blocks, 10, 7, 0, &g), 0);
    return g;
}

static void close_guests(struct pst_guests *g)
{
    pst_guests_close(g);
    blocks = pst_external_close(blocks);
}

static int enter(struct pst_guests *g, const char *name, const char *peer, uint64_t dram_bytes,
                 uint64_t now_ms)
{
    const struct pst_guest_register message = {.name = pst_bytes_of(name),
                                               .peer_address = pst_bytes_of(peer),
                                               .tiers = {[PST_POOL_DRAM] = {dram_bytes, 0}}};

    return pst_guests_register(g, &message, pst_ns_of_ms(now_ms));
}

static void add(struct pst_guests *g, int number, const char *key, uint32_t tier, uint64_t bytes)
{
    assert_true(number >= 0);
    pst_guests_add(g, (uint32_t)number, pst_bytes_of(key), tier, bytes);
}

static void test_names(void **state)
{
    struct pst_guests *g = open_guests();
    struct pst_guest guest;

    (void)state;
    assert_int_equal(enter(g, "", "p", 1, 0), -EINVAL);
    assert_int_equal(enter(g, "a", "p:1", 1, 0), 0);
    assert_int_equal(enter(g, "a", "p:2", 1, 0), -EEXIST);
    assert_true(pst_guests_find(g, pst_bytes_of("a"), &guest));
    assert_false(pst_guests_find(g, pst_bytes_of("b"), &guest));
    for (int i = 1; i < NODES; i++)
        assert_int_equal(enter(g, &"wxyz"[i], "p", 1, 0), 0);
    assert_int_equal(enter(g, "more", "p", 1, 0), -ENOSPC);
    pst_guests_unregister(g, pst_bytes_of("a"));
    pst_guests_unregister(g, pst_bytes_of("a"));
    assert_int_equal(enter(g, "a", "", 1, 0), 0);
    assert_true(pst_guests_find(g, pst_bytes_of("a"), &guest));
    assert_memory_equal(guest.peer_address.data, "p:1", 3); /* as it was known */
    assert_int_equal(pst_guests_count(g), NODES);
    close_guests(g);
}

static void test_silence(void **state)
{
    struct pst_guests *g = open_guests();
    struct pst_hash128 hash = {1, 2};
    uint32_t number;

    (void)state;
    assert_int_equal(enter(g, "a", "p", 1, 0), 0);
    number = (uint32_t)pst_guests_hear(g, pst_bytes_of("a"), 0);
    assert_int_equal(pst_external_report(blocks, 10 + number, PST_EXTERNAL_HBM, &hash, 1), 0);
    for (uint64_t ms = 0; ms < TTL_MS; ms += 250)
        pst_guests_tick(g, pst_ns_of_ms(ms));
    assert_int_equal(pst_guests_count(g), 1);
    pst_guests_tick(g, pst_ns_of_ms(TTL_MS));
    assert_int_equal(pst_guests_count(g), 0);
    assert_int_equal(pst_guests_hear(g, pst_bytes_of("a"), 0), -ESTALE);
    assert_int_equal(pst_external_count(blocks, 10 + number, PST_EXTERNAL_HBM), 0);
    assert_int_equal(enter(g, "b", "p", 1, TTL_MS), 0);
    pst_guests_tick(g, pst_ns_of_ms(50 * TTL_MS)); /* nobody listened meanwhile */
    assert_int_equal(pst_guests_count(g), 1);
    close_guests(g);
}

/* A call that keeps others from being heard ends nobody. */
static void test_deafness(void **state)
{
    struct pst_guests *g = open_guests();
    uint64_t ms;

    (void)state;
    assert_int_equal(enter(g, "a", "p", 1, 0), 0);
    for (ms = 0; ms < 3 * TTL_MS; ms += 250) {
        pst_guests_tick(g, pst_ns_of_ms(ms));
        pst_guests_deaf(g, pst_ns_of_ms(200));
    }
    assert_int_equal(pst_guests_count(g), 1);
    for (; ms < 6 * TTL_MS; ms += 250)
        pst_guests_tick(g, pst_ns_of_ms(ms));
    assert_int_equal(pst_guests_count(g), 0);
    close_guests(g);
}

static void test_sequence(void **state)
{
    struct pst_guests *g = open_guests();
    uint32_t n;

    (void)state;
    assert_int_equal(enter(g, "a", "p", 1, 0), 0);
    n = (uint32_t)pst_guests_hear(g, pst_bytes_of("a"), 0);
    assert_int_equal(pst_guests_bundle(g, n, 0), -EILSEQ);
    assert_int_equal(pst_guests_bundle(g, n, 1), 0);
    assert_int_equal(pst_guests_bundle(g, n, 1), -EALREADY);
    assert_int_equal(pst_guests_bundle(g, n, 3), -EILSEQ);
    pst_guests_sync_begin(g, n);
    pst_guests_sync_end(g, n, UINT64_MAX);
    assert_int_equal(pst_guests_bundle(g, n, 0), 0); /* it wraps around, and no assertion minds */
    close_guests(g);
}

/* A full report takes the room of what was there before it. */
static void test_full_report_at_the_bound(void **state)
{
    struct pst_guests *g = open_guests();
    uint32_t n, bound = (uint32_t)settings.umbp_keys;
    char key[16];

    (void)state;
    assert_int_equal(enter(g, "a", "p", 1, 0), 0);
    n = (uint32_t)pst_guests_hear(g, pst_bytes_of("a"), 0);
    for (uint32_t i = 0; i < 3 * bound; i++) {
        if (i % bound == 0)
            pst_guests_sync_begin(g, n);
        snprintf(key, sizeof(key), "%u", i);
        add(g, (int)n, key, PST_POOL_DRAM, 1);
        assert_true(pst_guests_has(g, pst_bytes_of(key)));
    }
    assert_false(pst_guests_has(g, pst_bytes_of("0")));
    assert_int_equal(pst_guests_totals(g)->dropped, 0);
    add(g, (int)n, "one more", PST_POOL_DRAM, 1);
    assert_int_equal(pst_guests_totals(g)->dropped, 1);
    close_guests(g);
}

/* ---- a model of all keys ---- */

struct model {
    uint64_t bytes[NODES][TIERS][KEYS]; /* 0: not there */
};

static void compare(struct pst_guests *g, const struct model *m, uint64_t now_ns)
{
    char key[16];

    for (uint32_t k = 0; k < KEYS; k++) {
        struct pst_guest_place place;
        uint32_t best = TIERS;
        bool found;

        for (uint32_t n = 0; n < NODES; n++)
            for (uint32_t t = PST_POOL_HBM; t < TIERS; t++)
                if (m->bytes[n][t][k] > 0 && t < best)
                    best = t;
        snprintf(key, sizeof(key), "key %u", k);
        assert_int_equal(pst_guests_has(g, pst_bytes_of(key)), best < TIERS);
        found = pst_guests_route_get(g, pst_bytes_of(key), now_ns, &place);
        assert_int_equal(found, best < TIERS);
        if (!found)
            continue;
        assert_int_equal(place.tier, best);
        assert_int_equal(place.bytes, m->bytes[place.guest.number][best][k]);
    }
}

static uint64_t drawn;

static uint32_t draw(uint32_t below)
{
    drawn = drawn * 6364136223846793005ull + 1442695040888963407ull;
    return (uint32_t)(drawn >> 33) % below;
}

static void change(struct pst_guests *g, struct model *m)
{
    uint32_t n = draw(NODES), t = PST_POOL_HBM + draw(3), k = draw(KEYS);
    char key[16];

    snprintf(key, sizeof(key), "key %u", k);
    switch (draw(40)) {
    case 0:
        pst_guests_sync_begin(g, n);
        pst_guests_sync_end(g, n, 5);
        memset(m->bytes[n], 0, sizeof(m->bytes[n]));
        break;
    case 1: {
        char name[2] = {(char)('a' + n), '\0'};

        pst_guests_unregister(g, pst_bytes_of(name));
        assert_int_equal(enter(g, name, "p", 1, 0), 0);
        memset(m->bytes[n], 0, sizeof(m->bytes[n]));
        break;
    }
    case 2:
        pst_guests_tick(g, 0);
        break;
    default:
        m->bytes[n][t][k] = draw(3) ? 1 + draw(1000) : 0;
        if (m->bytes[n][t][k] > 0)
            pst_guests_add(g, n, pst_bytes_of(key), t, m->bytes[n][t][k]);
        else
            pst_guests_remove(g, n, pst_bytes_of(key), t);
    }
}

static void test_model(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed < 20; seed++) {
        struct pst_guests *g = open_guests();
        struct model m = {0};

        drawn = seed << 40;
        for (int n = 0; n < NODES; n++)
            assert_int_equal(enter(g, (char[]){(char)('a' + n), '\0'}, "p", 1, 0), 0);
        for (int i = 0; i < 2000; i++) {
            change(g, &m);
            if (i % 20 == 0)
                compare(g, &m, 0);
        }
        close_guests(g);
    }
}

static void test_victims(void **state)
{
    struct pst_guests *g = open_guests();
    struct pst_guest_place from;
    struct pst_bytes keys[8];
    uint32_t first = 0, n;

    (void)state;
    assert_int_equal(enter(g, "a", "p", 1000, 0), 0);
    n = (uint32_t)pst_guests_hear(g, pst_bytes_of("a"), 0);
    for (int i = 0; i < 9; i++)
        add(g, (int)n, (char[]){(char)('0' + i), '\0'}, PST_POOL_DRAM, 100);
    assert_int_equal(pst_guests_victims(g, &first, 0, &from, keys, 8), 0); /* it is not full */
    pst_guests_tiers(g, n, (const struct pst_tier_use[TIERS]){[PST_POOL_DRAM] = {1000, 900}});
    assert_true(pst_guests_route_get(g, pst_bytes_of("0"), 0, &from)); /* used last, and under a lease */
    first = 0;
    assert_int_equal(pst_guests_victims(g, &first, 1, &from, keys, 8), 4); /* down to half */
    for (int i = 0; i < 4; i++)
        assert_int_equal(*(const char *)keys[i].data, '1' + i);
    assert_int_equal(pst_guests_victims(g, &first, 1, &from, keys, 8), 0); /* there is no other */
    for (int i = 1; i < 9; i++)
        pst_guests_remove(g, n, pst_bytes_of(((char[]){(char)('0' + i), '\0'})), PST_POOL_DRAM);
    first = 0;
    assert_int_equal(pst_guests_victims(g, &first, 1, &from, keys, 8), 0);
    first = 0;
    assert_int_equal(pst_guests_victims(g, &first, pst_ns_of_ms(50), &from, keys, 8), 1);
    close_guests(g);
}

static uint32_t victims_at(struct pst_guests *g, uint64_t now_s)
{
    struct pst_guest_place from;
    struct pst_bytes keys[8];
    uint32_t first = 0;

    return pst_guests_victims(g, &first, pst_ns_of_ms(now_s * 1000), &from, keys, 8);
}

static void test_failed_tellings(void **state)
{
    static const uint64_t pauses_s[] = {1, 4, 16, 64, 256, 256};
    struct pst_guests *g = open_guests();
    uint64_t now_s = 1000;
    uint32_t n;

    (void)state;
    assert_int_equal(enter(g, "a", "p", 1000, 0), 0);
    n = (uint32_t)pst_guests_hear(g, pst_bytes_of("a"), 0);
    add(g, (int)n, "k", PST_POOL_DRAM, 100);
    pst_guests_tiers(g, n, (const struct pst_tier_use[TIERS]){[PST_POOL_DRAM] = {1000, 900}});
    for (size_t i = 0; i < pst_count_of(pauses_s); i++) {
        assert_int_equal(victims_at(g, now_s), 1);
        pst_guests_told(g, n, pst_bytes_of("p"), false, pst_ns_of_ms(now_s * 1000));
        assert_int_equal(victims_at(g, now_s + pauses_s[i] - 1), 0);
        now_s += pauses_s[i];
    }
    assert_int_equal(pst_guests_totals(g)->tellings_failed, pst_count_of(pauses_s));
    pst_guests_told(g, n, pst_bytes_of("p"), true, pst_ns_of_ms(now_s * 1000));
    assert_int_equal(victims_at(g, now_s), 1);
    pst_guests_told(g, n, pst_bytes_of("q"), false, pst_ns_of_ms(now_s * 1000)); /* another's */
    assert_int_equal(victims_at(g, now_s), 1);
    pst_guests_told(g, n, pst_bytes_of("p"), false, pst_ns_of_ms(now_s * 1000)); /* from one second again */
    assert_int_equal(victims_at(g, now_s + 1), 1);
    for (int i = 0; i < 4; i++)
        pst_guests_told(g, n, pst_bytes_of("p"), false, pst_ns_of_ms(now_s * 1000));
    pst_guests_unregister(g, pst_bytes_of("a")); /* it comes again, and may be reached now */
    assert_int_equal(enter(g, "a", "p", 1000, now_s * 1000), 0);
    n = (uint32_t)pst_guests_hear(g, pst_bytes_of("a"), pst_ns_of_ms(now_s * 1000));
    add(g, (int)n, "k", PST_POOL_DRAM, 100);
    pst_guests_tiers(g, n, (const struct pst_tier_use[TIERS]){[PST_POOL_DRAM] = {1000, 900}});
    assert_int_equal(victims_at(g, now_s + 1), 1);
    close_guests(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_names),
                                       cmocka_unit_test(test_silence),
                                       cmocka_unit_test(test_deafness),
                                       cmocka_unit_test(test_sequence),
                                       cmocka_unit_test(test_full_report_at_the_bound),
                                       cmocka_unit_test(test_model),
                                       cmocka_unit_test(test_victims),
                                       cmocka_unit_test(test_failed_tellings)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
