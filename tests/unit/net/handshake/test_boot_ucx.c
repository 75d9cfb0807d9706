/* SPDX-License-Identifier: Apache-2.0 */
/* test_boot_ucx.c: versions of UCX, told in the handshake: who may talk to whom, and in what words not. */
#include "lib/boot_rig.h"

#include "net/ucx/version.h"

#include <stdio.h>

enum {
    FLOOR = PST_UCX_VERSION(1, 13, 1),
    LONG_LAST = PST_UCX_VERSION(1, 21, 0),
    SHORT_FIRST = PST_UCX_VERSION(1, 22, 0),
    TOMORROW = PST_UCX_VERSION(1, 23, 0),
};

static void seen_versions_fit(void **state)
{
    (void)state;
    assert_true(pst_ucx_fits(FLOOR, FLOOR) && pst_ucx_fits(FLOOR, SHORT_FIRST));
    assert_true(pst_ucx_fits(SHORT_FIRST, FLOOR) && pst_ucx_fits(SHORT_FIRST, LONG_LAST));
    assert_true(pst_ucx_fits(TOMORROW, TOMORROW) && pst_ucx_fits(TOMORROW, TOMORROW + 7)); /* its own kind */
    assert_false(pst_ucx_fits(TOMORROW, SHORT_FIRST) || pst_ucx_fits(FLOOR, TOMORROW));
    assert_false(pst_ucx_fits(PST_UCX_VERSION(1, 12, 1), FLOOR));
    assert_false(pst_ucx_fits(PST_UCX_VERSION(2, 13, 1), FLOOR));
    assert_true(pst_ucx_fits(0, FLOOR) && pst_ucx_fits(TOMORROW, 0)); /* nobody told */
}

static void own_version_is_known(void **state)
{
    char text[PST_UCX_TEXT_BYTES];

    (void)state;
    assert_true(pst_ucx_version() >= PST_UCX_SEEN_FIRST);
    pst_ucx_print(FLOOR, text);
    assert_string_equal(text, "1.13.1");
    pst_ucx_print(UINT32_MAX >> 8, text);
    assert_string_equal(text, "255.255.255");
}

/* What a client with UCX @theirs gets of a node with @ours. Return: as of dial(). */
static int meet(uint32_t ours, uint32_t theirs, bool loopback_only, bool network_only, struct client *c)
{
    struct pst_boot_server_options server = {
        .sessions_max = 1, .handshakes_max = 1, .ucx = ours, .loopback_only = loopback_only};
    struct pst_boot_client_options client = {
        .deadline_ns = pst_now_ns() + 10 * SECOND_NS, .ucx = theirs, .network_only = network_only};
    struct rig rig;
    int r;

    rig_open_with(&rig, &server);
    rig_run(&rig);
    r = dial_with(c, &rig.path, &client);
    if (r == 0) {
        assert_int_equal(client_address(c), 0);
        pst_boot_link_close(c->link);
        await_count(&rig.ends, 1);
    } else {
        char why[64];

        await_count(&rig.refusals, 1);
        snprintf(why, sizeof(why), "it has UCX %u.%u.%u, the node %u.%u.%u", theirs >> 16, theirs >> 8 & 255,
                 theirs & 255, ours >> 16, ours >> 8 & 255, ours & 255);
        assert_string_equal(rig.why, why);
        assert_int_equal(rig.welcomes, 0);
    }
    rig_close(&rig);
    return r;
}

static void others_are_refused_by_name(void **state)
{
    struct client *c = calloc(1, sizeof(*c));

    (void)state;
    assert_int_equal(meet(FLOOR, TOMORROW, true, false, c), -EPROTONOSUPPORT);
    assert_string_equal(c->fault, "the node has UCX 1.13.1, which does not go with this client's 1.23.0");
    assert_int_equal(meet(TOMORROW, FLOOR, false, false, c), -EPROTONOSUPPORT);
    assert_string_equal(c->fault, "the node has UCX 1.23.0, which does not go with this client's 1.13.1");
    assert_int_equal(meet(FLOOR, LONG_LAST, true, true, c), 0);
    assert_int_equal(meet(TOMORROW, TOMORROW, true, true, c), 0);
    assert_int_equal(meet(0, TOMORROW, true, true, c), 0);
    assert_int_equal(meet(TOMORROW, 0, true, true, c), 0);
    free(c);
}

/* 1.22 writes what tells loopback devices apart in fewer bytes, and what tells shared memory apart, unless
 * the namespaces are the machine's first. */
static void namespaces_have_numbers_of_one_length(void **state)
{
    struct client *c = calloc(1, sizeof(*c));
    struct boot_identity own;
    bool initial;

    (void)state;
    boot_identity_own(&own);
    initial = boot_identity_initial(&own);
    assert_int_equal(meet(LONG_LAST, SHORT_FIRST, true, true, c), -EPROTONOSUPPORT);
    assert_string_equal(c->fault, "the node has UCX 1.21.0, which does not go with this client's 1.22.0");
    assert_int_equal(meet(SHORT_FIRST, FLOOR, true, true, c), -EPROTONOSUPPORT);
    assert_int_equal(meet(SHORT_FIRST, FLOOR, true, false, c), initial ? 0 : -EPROTONOSUPPORT);
    assert_int_equal(meet(SHORT_FIRST, FLOOR, false, true, c), 0); /* there are other devices */
    assert_int_equal(meet(SHORT_FIRST, FLOOR, false, false, c), 0);
    assert_int_equal(c->welcome.same_host, initial);
    assert_int_equal(meet(SHORT_FIRST, SHORT_FIRST, true, false, c), 0);
    assert_true(c->welcome.same_host);
    free(c);
}

static void first_namespaces_are_known(void **state)
{
    struct boot_identity identity = {.pid_ns = 7ull << 32 | 4026531836, .ipc_ns = 9ull << 32 | 4026531839};

    (void)state;
    assert_true(boot_identity_initial(&identity));
    identity.pid_ns++;
    assert_false(boot_identity_initial(&identity));
    identity.pid_ns--;
    identity.ipc_ns = 4026532000;
    assert_false(boot_identity_initial(&identity));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(seen_versions_fit),          cmocka_unit_test(own_version_is_known),
        cmocka_unit_test(others_are_refused_by_name), cmocka_unit_test(namespaces_have_numbers_of_one_length),
        cmocka_unit_test(first_namespaces_are_known),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
