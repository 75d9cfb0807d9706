/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A shard's message to itself, by which it notices that a client has blocked its shared memory: sent after
 * the end of such a client, and never by a port that has none. Over UCX, while a fault point loses each.
 */
#include "lib/cm.h"

#include "base/fault.h"

#include <penstock/penstock.h>
#include <stdio.h>

enum {
    CLIENTS = 5,
    CROWD = 24,
    CROWDS = 12,
    BETWEEN_US = 12000, /* the crowd goes in 290 ms: a probe is missed after 200 */
    WAIT_MS_MAX = 30000,
};

struct rig {
    char folder[64];
    struct penstock_node *node;
};

static void rig_open(struct rig *rig)
{
    char unix_setting[96];
    const char *const settings[] = {unix_setting, "dram=16M", "shards=1", NULL};
    struct penstock_node_options node = {.size = sizeof(node), .settings = settings};

    strcpy(rig->folder, "/tmp/penstock-probe-XXXXXX");
    assert_non_null(mkdtemp(rig->folder));
    snprintf(unix_setting, sizeof(unix_setting), "unix=%s/socket", rig->folder);
    assert_int_equal(penstock_node_open(&node, &rig->node), 0);
}

static void rig_close(struct rig *rig)
{
    penstock_node_close(rig->node);
    assert_int_equal(rmdir(rig->folder), 0);
}

/* A client comes and goes, and the one behind it sees that it has gone. */
static void come_and_go(struct rig *rig, const char *lane)
{
    struct penstock_options options = {.size = sizeof(options), .connect_ms = 20000, .timeout_ms = 20000};
    struct penstock_stat stat = {.size = sizeof(stat), .sessions = 2};
    struct penstock *store;

    assert_int_equal(penstock_open(penstock_node_url(rig->node, 0), &options, &store), 0);
    assert_string_equal(penstock_lane(store), lane);
    for (int ms = 0; stat.sessions > 1 && ms < WAIT_MS_MAX; ms++) {
        assert_int_equal(penstock_stat(store, &stat), 0);
        usleep(1000);
    }
    assert_int_equal(stat.sessions, 1);
    penstock_close(store);
}

static void shared_memory_is_probed(void **state)
{
    struct rig rig;

    (void)state;
    rig_open(&rig);
    assert_int_equal(pst_faults_arm("node_probe_lost:per_million=1000000"), 0);
    come_and_go(&rig, "posix");
    for (int ms = 0; pst_fault_hits(PST_FAULT_node_probe_lost) == 0 && ms < WAIT_MS_MAX; ms++)
        usleep(1000);
    assert_true(pst_fault_hits(PST_FAULT_node_probe_lost) > 0);
    assert_int_equal(pst_faults_arm(""), 0);
    rig_close(&rig);
}

static void where_there_is_none_nothing_is_probed(void **state)
{
    struct rig rig;

    (void)state;
    setenv("UCX_TLS", "tcp", 1);
    rig_open(&rig);
    assert_int_equal(pst_faults_arm("node_probe_lost:per_million=1000000"), 0);
    for (int i = 0; i < CLIENTS; i++)
        come_and_go(&rig, "tcp");
    assert_int_equal(pst_fault_hits(PST_FAULT_node_probe_lost), 0);
    assert_int_equal(pst_faults_arm(""), 0);
    rig_close(&rig);
    unsetenv("UCX_TLS");
}

/* The port's own peer goes in the same poll as a client's that ended just before. */
static void clients_end_as_the_port_is_opened_anew(void **state)
{
    struct penstock_options options = {.size = sizeof(options), .connect_ms = 20000, .timeout_ms = 20000};
    struct penstock *crowd[CROWD];
    struct rig rig;

    (void)state;
    rig_open(&rig);
    for (int round = 0; round < CROWDS; round++) {
        for (int i = 0; i < CROWD; i++)
            assert_int_equal(penstock_open(penstock_node_url(rig.node, 0), &options, &crowd[i]), 0);
        assert_int_equal(pst_faults_arm("node_probe_lost:per_million=1000000"), 0);
        for (int i = 0; i < CROWD; i++) {
            penstock_close(crowd[i]);
            usleep(BETWEEN_US);
        }
        assert_true(pst_fault_hits(PST_FAULT_node_probe_lost) > 0);
        assert_int_equal(pst_faults_arm(""), 0);
    }
    rig_close(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shared_memory_is_probed),
        cmocka_unit_test(clients_end_as_the_port_is_opened_anew),
        cmocka_unit_test(where_there_is_none_nothing_is_probed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
