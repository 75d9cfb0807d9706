/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_ucx_address.c: addresses that no worker made are refused before UCX sees them. UCX aborts on them, and
 * with it this process, should one get through.
 */
#include "lib/cm.h"

#include "base/hash.h"
#include "net/net.h"
#include "net/ucx/address.h"

#include <math.h>

enum { EVENTS_MAX = 16, CASES = 2000, CASES_A_PORT = 50, OPENED_MIN = 100, REFUSED_MIN = 100 };

/* Where things lie in an address of the first version without a name, whose first lane is TCP's. */
enum { AT_HEAD = 0, AT_INDEX = 9, AT_DEVICE_LENGTH = 10, AT_DEVICE = 11, COSTS_BEHIND_DEVICE = 2 };

struct place {
    struct pst_net *net;
    struct pst_port *here, *there;
    uint8_t address[PST_NET_ADDRESS_BYTES_MAX];
    size_t bytes;
};

static struct place *place_open(bool network_only)
{
    struct pst_net_options options = {.loopback_only = true};
    struct place *p = calloc(1, sizeof(*p));
    int bytes;

    assert_int_equal(pst_net_open(&options, &p->net), 0);
    assert_int_equal(pst_port_open(p->net, EVENTS_MAX, &p->here), 0);
    assert_int_equal(pst_port_open(p->net, EVENTS_MAX, &p->there), 0);
    bytes = pst_port_address(p->there, network_only, p->address, sizeof(p->address));
    assert_true(bytes > AT_DEVICE);
    p->bytes = (size_t)bytes;
    return p;
}

static void place_close(struct place *p)
{
    pst_port_close(p->here);
    pst_port_close(p->there);
    pst_net_close(p->net);
    free(p);
}

static int try_bytes(const struct place *p, size_t bytes)
{
    struct pst_peer *peer;

    return pst_peer_open(p->here, p->address, bytes, NULL, &peer);
}

static void every_beginning_is_refused(void **state)
{
    for (int network_only = 0; network_only < 2; network_only++) {
        struct place *p = place_open(network_only);

        for (size_t bytes = 1; bytes < p->bytes; bytes++)
            assert_int_equal(try_bytes(p, bytes), -EPROTO);
        assert_int_equal(try_bytes(p, p->bytes), 0);
        place_close(p);
    }
    (void)state;
}

static void unknown_versions_are_refused(void **state)
{
    struct place *p = place_open(false);

    for (uint8_t version = 2; version < 16; version++) {
        p->address[AT_HEAD] = (uint8_t)((p->address[AT_HEAD] & 0xf0) | version);
        assert_int_equal(try_bytes(p, p->bytes), -EPROTO);
    }
    place_close(p);
    (void)state;
}

static void costs_are_numbers(void **state)
{
    const float costs[] = {NAN, INFINITY, -1.0f};
    struct place *p = place_open(true);
    size_t at = AT_DEVICE + (p->address[AT_DEVICE_LENGTH] & 0x1fu) + COSTS_BEHIND_DEVICE;

    if (p->address[AT_DEVICE_LENGTH] & 0x60) /* this machine says more of its devices */
        skip();
    for (size_t i = 0; i < pst_count_of(costs); i++) {
        memcpy(p->address + at, &costs[i], sizeof(costs[i]));
        assert_int_equal(try_bytes(p, p->bytes), -EPROTO);
    }
    place_close(p);
    (void)state;
}

/* The device's address is gone, and everything else in order. */
static void a_lane_has_what_ours_has(void **state)
{
    struct place *p = place_open(true);
    uint8_t *length = &p->address[AT_DEVICE_LENGTH];
    size_t device_bytes = *length & 0x1f, rest;

    if (*length & 0x60)
        skip();
    rest = p->bytes - AT_DEVICE - device_bytes;
    *length &= 0xe0;
    memmove(p->address + AT_DEVICE, p->address + AT_DEVICE + device_bytes, rest);
    assert_int_equal(try_bytes(p, AT_DEVICE + rest), -EPROTO);
    place_close(p);
    (void)state;
}

static void numbers_of_devices_are_bounded(void **state)
{
    struct ucx_address_form form = {0};
    /* Second version, no flags, a device without lanes whose number needs a byte of its own. */
    uint8_t address[] = {0x01, 0x00, 0xff, 63, 0x80};

    form.known = true;
    assert_true(ucx_address_sound(&form, address, sizeof(address)));
    address[3] = 64;
    assert_false(ucx_address_sound(&form, address, sizeof(address)));
    (void)state;
}

/* UCX 1.19 and later take the index for a number of 7 bits from those who say that they are as late. */
static void high_numbers_are_those_of_older_releases(void **state)
{
    struct ucx_address_form form = {.known = true};
    /* First version, uuid, a device with a lane, and at the end the release. */
    uint8_t address[] = {0x00, 1, 2,    3,    4,           5,           6,           7,           8,    0x43,
                         0x01, 9, 0x11, 0x22, [14] = 0x00, [17] = 0x3f, [21] = 0x3f, [30] = 0x80, 0x80, 0x80};

    (void)state;
    assert_true(ucx_address_sound(&form, address, sizeof(address)));
    for (uint8_t release = 0; release < 16; release++) {
        address[31] = 0x80 | release;
        address[9] = 0x43;
        assert_int_equal(ucx_address_sound(&form, address, sizeof(address)), release <= 2);
        address[9] = 0x23;
        assert_true(ucx_address_sound(&form, address, sizeof(address)));
    }
}

/* An own address that cannot be read says nothing about others. */
static void what_is_unknown_is_left_to_ucx(void **state)
{
    const uint8_t newer[] = {0x02, 1, 2, 3}, other[] = {0x05};
    struct ucx_address_form form = {0};

    ucx_address_learn(&form, newer, sizeof(newer));
    assert_false(form.known);
    assert_true(ucx_address_sound(&form, other, sizeof(other)));
    (void)state;
}

/* Changes a few bytes, or puts others in their place altogether. */
static void spoil(uint8_t *address, size_t bytes, uint64_t number)
{
    uint64_t dice = pst_hash64(&number, sizeof(number), 1);
    uint64_t changes = 1 + dice % 4;

    if (dice % 16 == 0)
        changes = bytes;
    for (uint64_t i = 0; i < changes; i++) {
        const uint64_t parts[] = {number, i};
        uint64_t more = pst_hash64(parts, sizeof(parts), 2);

        address[changes == bytes ? i : more % bytes] = (uint8_t)(more >> 32);
    }
}

static void spoilt_addresses_do_no_harm(void **state)
{
    int refused = 0, opened = 0;

    for (uint64_t from = 0; from < CASES; from += CASES_A_PORT) {
        struct place *p = place_open(from / CASES_A_PORT % 2);
        uint8_t whole[PST_NET_ADDRESS_BYTES_MAX];

        memcpy(whole, p->address, p->bytes);
        for (uint64_t i = from; i < from + CASES_A_PORT; i++) {
            int r;

            spoil(p->address, p->bytes, i);
            r = try_bytes(p, p->bytes);
            refused += r == -EPROTO;
            opened += r == 0;
            memcpy(p->address, whole, p->bytes);
        }
        place_close(p);
    }
    assert_true(refused >= REFUSED_MIN && opened >= OPENED_MIN);
    (void)state;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_beginning_is_refused),
        cmocka_unit_test(unknown_versions_are_refused),
        cmocka_unit_test(costs_are_numbers),
        cmocka_unit_test(a_lane_has_what_ours_has),
        cmocka_unit_test(numbers_of_devices_are_bounded),
        cmocka_unit_test(high_numbers_are_those_of_older_releases),
        cmocka_unit_test(what_is_unknown_is_left_to_ucx),
        cmocka_unit_test(spoilt_addresses_do_no_harm),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
