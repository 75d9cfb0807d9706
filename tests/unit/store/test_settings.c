/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/engine.h"

#define PST_OPTION_SETTINGS struct pst_store_settings
static const struct pst_options table = PST_OPTION_TABLE(PST_STORE_SETTINGS);

struct beside {
    uint64_t other;
    PST_STORE_SETTINGS_MEMBERS
};

static void set(struct pst_store_settings *settings, const char *pair)
{
    char fault[PST_FAULT_BYTES];

    if (pst_options_set_pair(&table, settings, pair, fault) < 0)
        fail_msg("%s", fault);
}

static int open_set(const char *pair, struct pst_store **out, char fault[PST_FAULT_BYTES])
{
    struct pst_store_settings settings = {0};
    int r;

    assert_int_equal(pst_options_preset(&table, &settings, fault), 0);
    set(&settings, "dram=4M");
    set(&settings, "page_size=64K");
    set(&settings, pair);
    r = pst_store_open_set(&settings, (struct pst_store_options){.shard_count = 2}, out, fault);
    pst_options_free(&table, &settings);
    return r;
}

static void a_store_is_as_its_settings_say(void **state)
{
    struct pst_store *store;
    char fault[PST_FAULT_BYTES];

    (void)state;
    assert_int_equal(open_set("quota=a/=2K", &store, fault), 0);
    assert_int_equal(pst_store_shard_count(store), 2);
    assert_int_equal(pst_store_value_bytes_max(store), 4 << 20);
    assert_int_equal(pst_store_arenas(store)->page_bytes, 64 << 10);
    assert_int_equal(store->quota_count, 1);
    assert_int_equal(store->limits[0].number, 2048);
    assert_ptr_equal(store->policy, &pst_policy_chains);
    pst_store_close(store);
    assert_int_equal(open_set("hbm=host:1M", &store, fault), 0);
    assert_true(pst_shard_tiered(pst_store_shard(store, 1)) && !pst_shard_logs(pst_store_shard(store, 1)));
    pst_store_close(store);
    assert_int_equal(open_set("policy=lru", &store, fault), 0);
    assert_ptr_equal(store->policy, &pst_policy_lru);
    pst_store_close(store);
}

static void what_is_wrong_is_named(void **state)
{
    static const char *const wrong[][2] = {
        {"quota=x", "quota 'x' is not PREFIX=NUMBER"},
        {"ttl=x", "ttl 'x' is not PREFIX=NUMBER"},
        {"policy=fifo", "policy 'fifo' is not one of chains, s3fifo, prefix, lru"},
        {"page_size=65537", "dram: "},
        {"ssd=/dev/null", "ssd_bytes: not set: how much ssd '/dev/null' may take"},
        {"hbm=x", "hbm 'x' is not SIZE, DEVICE:SIZE or DEVICE:NUMBER:SIZE"},
        {"hbm=0", "hbm '0' is not "},
        {"hbm=host:", "hbm 'host:' is not "},
        {"hbm=tape:1M", "hbm 'tape:1M' is not "},
        {"hbm=cuda:x:1M", "hbm 'cuda:x:1M' is not "},
        {"hbm=cuda:1:2:1M", "hbm 'cuda:1:2:1M' is not "},
        {"hbm=host:64K", "hbm: 65536 bytes for 2 shards: "},
    };

    (void)state;
    for (size_t i = 0; i < pst_count_of(wrong); i++) {
        struct pst_store *store = NULL;
        char fault[PST_FAULT_BYTES] = "";

        assert_true(open_set(wrong[i][0], &store, fault) < 0);
        if (strncmp(fault, wrong[i][1], strlen(wrong[i][1])) != 0)
            fail_msg("%s: %s", wrong[i][0], fault);
        assert_null(store);
    }
}

/* The list of names is text beside the table. */
static void every_policy_is_named(void **state)
{
    char names[] = PST_POLICY_NAMES, *rest = names, *name;
    int count = 0;

    (void)state;
    while ((name = strtok_r(rest, ", ", &rest))) {
        assert_non_null(pst_policy_find(name));
        assert_string_equal(pst_policy_find(name)->name, name);
        count++;
    }
    assert_int_equal(count, 4);
    assert_ptr_equal(pst_policy_find(NULL), pst_policy_find("chains"));
    assert_null(pst_policy_find("fifo"));
}

static void each_member_is_the_whole_structs(void **state)
{
    const struct beside beside = {.other = 1, .dram = 7, .ssd.count = 2, .ssd_segment = 9};

    (void)state;
    assert_int_equal(beside.store.dram, 7);
    assert_int_equal(beside.store.ssd.count, 2);
    assert_int_equal(beside.store.ssd_segment, 9);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_store_is_as_its_settings_say),
        cmocka_unit_test(what_is_wrong_is_named),
        cmocka_unit_test(every_policy_is_named),
        cmocka_unit_test(each_member_is_the_whole_structs),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
