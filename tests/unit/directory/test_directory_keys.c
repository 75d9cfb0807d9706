/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/cm.h"

#include "directory/keys.h"

/* ---- keys that are numbers, at members that are numbers; a table of what should be known ---- */

enum { KEYS = 2000, MEMBERS = 8, TIERS = 2, STEPS = 300000 };

struct model {
    struct pst_keys *keys;
    uint64_t state;
    uint64_t entries_max, entries;       /* the bound, and those that are there */
    uint64_t generations[KEYS][MEMBERS]; /* 0: not there */
    uint8_t tiers[KEYS][MEMBERS];
    bool fresh[KEYS][MEMBERS]; /* reported since the picture began */
    bool filling[MEMBERS];
    uint64_t refused; /* at the bound */
};

static uint64_t draw(struct model *m, uint64_t limit)
{
    m->state ^= m->state << 13;
    m->state ^= m->state >> 7;
    m->state ^= m->state << 17;
    return m->state % limit;
}

static struct pst_hash128 name(uint64_t key)
{
    return pst_hash128(&key, sizeof(key), 7);
}

static uint32_t known_places(const struct model *m, uint64_t key)
{
    uint32_t count = 0;

    for (int i = 0; i < MEMBERS; i++)
        count += m->generations[key][i] != 0;
    return count;
}

static void add(struct model *m, uint64_t key, struct pst_place place)
{
    uint64_t *generation = &m->generations[key][place.member];
    int expected = *generation != 0                         ? 0
                   : known_places(m, key) == PST_PLACES_MAX ? -EMLINK
                   : m->entries == m->entries_max           ? -ENOSPC
                                                            : 0;

    assert_int_equal(pst_keys_add(m->keys, name(key), place), expected);
    m->refused += expected == -ENOSPC;
    if (expected < 0)
        return;
    m->entries += *generation == 0;
    if (place.generation >= *generation)
        m->tiers[key][place.member] = place.tier;
    *generation = pst_max(*generation, place.generation);
    m->fresh[key][place.member] = true;
}

static void take_out(struct model *m, uint64_t key, struct pst_place place)
{
    uint64_t *generation = &m->generations[key][place.member];

    pst_keys_remove(m->keys, name(key), place);
    if (*generation > place.generation)
        return;
    m->entries -= *generation != 0;
    *generation = 0;
}

/* Drops what the model knows of a member: all of it, or what the picture did not name. */
static void drop(struct model *m, int member, bool all)
{
    for (int i = 0; i < KEYS; i++)
        if (all || !m->fresh[i][member]) {
            m->entries -= m->generations[i][member] != 0;
            m->generations[i][member] = 0;
        }
}

static void picture(struct model *m, int member)
{
    uint64_t dice = draw(m, 4);

    if (dice == 0) {
        pst_keys_forget(m->keys, (uint16_t)member);
        drop(m, member, true);
        m->filling[member] = false;
    } else if (m->filling[member] && dice < 3) {
        pst_keys_complete(m->keys, (uint16_t)member);
        drop(m, member, false);
        m->filling[member] = false;
    } else {
        pst_keys_begin(m->keys, (uint16_t)member);
        for (int i = 0; i < KEYS; i++)
            m->fresh[i][member] = false;
        m->filling[member] = true;
    }
}

static void look(const struct model *m, uint64_t key)
{
    struct pst_hash128 fingerprint = name(key);
    struct pst_places places;

    pst_keys_look_up(m->keys, &fingerprint, 1, &places);
    assert_int_equal(places.count, known_places(m, key));
    for (uint32_t i = 0; i < places.count; i++) {
        const struct pst_place *place = &places.items[i];

        assert_int_equal(place->generation, m->generations[key][place->member]);
        assert_int_equal(place->tier, m->tiers[key][place->member]);
    }
}

static void step(struct model *m)
{
    uint64_t dice = draw(m, 1000), key = draw(m, KEYS);
    struct pst_place place = {.generation = 1 + draw(m, 100),
                              .member = (uint16_t)draw(m, MEMBERS),
                              .tier = (uint8_t)draw(m, TIERS)};

    if (dice < 3)
        picture(m, place.member);
    else if (dice < 20)
        (void)pst_keys_sweep(m->keys, draw(m, 2000));
    else if (dice < 600)
        add(m, key, place);
    else
        take_out(m, key, place);
    look(m, key);
}

/* Return: how many were refused, at a bound of so many entries. */
static uint64_t compare(uint64_t entries_max)
{
    struct model *m = calloc(1, sizeof(*m));
    uint64_t refused;

    assert_non_null(m);
    m->state = 0x1234567;
    m->entries_max = entries_max;
    assert_int_equal(pst_keys_open(entries_max, &m->keys), 0);
    for (int i = 0; i < STEPS; i++)
        step(m);
    for (uint64_t key = 0; key < KEYS; key++)
        look(m, key);
    for (int member = 0; member < MEMBERS; member++)
        pst_keys_forget(m->keys, (uint16_t)member);
    while (pst_keys_sweep(m->keys, 1000))
        continue;
    assert_int_equal(pst_keys_count(m->keys), 0);
    pst_keys_close(m->keys);
    refused = m->refused;
    free(m);
    return refused;
}

static void what_is_known_is_what_was_said(void **state)
{
    (void)state;
    assert_int_equal(compare(1 << 20), 0);
    assert_true(compare(1000) > 0);
}

/* ---- how much of it ---- */

static void fill(struct pst_keys *keys, uint64_t from, uint64_t to, uint16_t members)
{
    for (uint64_t key = from; key < to; key++) {
        struct pst_place place = {.generation = key + 1, .member = (uint16_t)(key % members)};

        assert_int_equal(pst_keys_add(keys, name(key), place), 0);
    }
}

/* At every size on the way, since a table that doubles would be worst just after it did. */
static void a_key_costs_64_bytes_at_the_most(void **state)
{
    const uint64_t most = 1000 * 1000, least = most / 4;
    struct pst_keys *keys;
    double worst = 0;

    (void)state;
    assert_int_equal(pst_keys_open(most, &keys), 0);
    fill(keys, 0, least, 3);
    for (uint64_t count = least; count < most; count += most / 100) {
        double each = (double)pst_keys_memory_bytes(keys) / (double)count;

        worst = each > worst ? each : worst;
        fill(keys, count, count + most / 100, 3);
    }
    print_message("# bytes a key: %.1f at 10^6, %.1f at the worst from 2.5 * 10^5 on\n",
                  (double)pst_keys_memory_bytes(keys) / (double)most, worst);
    assert_int_equal(pst_keys_count(keys), most);
    assert_true(worst <= 64);
    assert_int_equal(pst_keys_add(keys, name(most), (struct pst_place){.generation = 1}), -ENOSPC);
    pst_keys_close(keys);
}

static void a_members_end_gives_its_memory_back(void **state)
{
    const uint64_t most = 200 * 1000;
    uint64_t empty_bytes, full_bytes, looked = 0;
    struct pst_hash128 fingerprint = name(1), other = name(0);
    struct pst_places places;
    struct pst_keys *keys;

    (void)state;
    assert_int_equal(pst_keys_open(most, &keys), 0);
    empty_bytes = pst_keys_memory_bytes(keys);
    fill(keys, 0, most, 2);
    full_bytes = pst_keys_memory_bytes(keys);
    pst_keys_forget(keys, 1);
    pst_keys_look_up(keys, &fingerprint, 1, &places);
    assert_int_equal(places.count, 0);
    assert_int_equal(pst_keys_count(keys), most); /* nothing was touched yet */
    for (bool more = true; more; looked += 1000)
        more = pst_keys_sweep(keys, 1000);
    assert_int_equal(pst_keys_count(keys), most / 2);
    assert_true(looked < 4 * most);
    assert_true(pst_keys_memory_bytes(keys) - empty_bytes < (full_bytes - empty_bytes) * 3 / 4);
    pst_keys_look_up(keys, &other, 1, &places);
    assert_int_equal(places.count, 1);
    for (uint64_t key = 0; key < most; key += 2)
        pst_keys_remove(keys, name(key), (struct pst_place){.generation = key + 1});
    assert_int_equal(pst_keys_count(keys), 0);
    assert_true(pst_keys_memory_bytes(keys) - empty_bytes < (full_bytes - empty_bytes) / 100);
    pst_keys_close(keys);
}

/* Nor do they take much room beside the others. */
static void what_does_not_count_keeps_no_other_out(void **state)
{
    const uint64_t most = 200 * 1000;
    struct pst_place late = {.generation = 1, .member = 1};
    struct pst_keys *keys;

    (void)state;
    assert_int_equal(pst_keys_open(most, &keys), 0);
    fill(keys, 0, most, 2);
    pst_keys_forget(keys, 1);
    for (uint64_t key = 0; key < most / 2; key++) {
        assert_int_equal(
            pst_keys_add(keys, name(most + key), (struct pst_place){.generation = 1, .member = 2}), 0);
        assert_true(pst_keys_count(keys) <= most + most / 16);
    }
    assert_int_equal(pst_keys_add(keys, name(2 * most), late), -ENOSPC);
    pst_keys_forget(keys, 2);
    fill(keys, 2 * most, 2 * most + most / 2, 1);
    for (uint64_t key = 0; key < most / 2; key++) /* those that are there still come to count no more */
        assert_int_equal(
            pst_keys_add(keys, name(most + key), (struct pst_place){.generation = 1, .member = 2}), -ENOSPC);
    while (pst_keys_sweep(keys, 1000))
        continue;
    assert_int_equal(pst_keys_count(keys), most);
    pst_keys_close(keys);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_known_is_what_was_said),
        cmocka_unit_test(a_key_costs_64_bytes_at_the_most),
        cmocka_unit_test(a_members_end_gives_its_memory_back),
        cmocka_unit_test(what_does_not_count_keeps_no_other_out),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
