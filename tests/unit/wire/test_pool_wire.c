/* SPDX-License-Identifier: Apache-2.0 */
/* What a pool's master is asked and answers, as bytes: what fits comes back as it was, what does not is
 * refused. */
#include "lib/cm.h"

#include "wire/pool.h"
#include "wire/pool_key.h"
#include "wire/pool_member.h"

static uint8_t bytes[PST_WIRE_QUESTION_BYTES_MAX + 1];

static struct pst_bytes first(size_t len)
{
    return (struct pst_bytes){bytes, len};
}

static struct pst_pool_join a_join(void)
{
    return (struct pst_pool_join){.pool = {9, 8},
                                  .id = {1, 2, 3},
                                  .host = {4},
                                  .start = 5,
                                  .page_bytes = 2 << 20,
                                  .kept_epoch = 6,
                                  .kept_durable = true,
                                  .address = "[::1]:7000",
                                  .unix_path = "/run/penstock.sock",
                                  .tags = "rack=7"};
}

static void joins(void **state)
{
    struct pst_pool_join in = a_join(), out = {.start = 0};
    size_t len = pst_pool_put_join(bytes, &in);

    (void)state;
    assert_int_equal(pst_pool_get_join(first(len), &out), 0);
    assert_memory_equal(&in, &out, sizeof(in));
    for (size_t cut = 0; cut < len; cut++)
        assert_int_equal(pst_pool_get_join(first(cut), &out), -EPROTO);
    assert_int_equal(pst_pool_get_join(first(len + 1), &out), -EPROTO);
    memset(in.address, 'a', sizeof(in.address) - 1); /* the longest */
    len = pst_pool_put_join(bytes, &in);
    assert_int_equal(pst_pool_get_join(first(len), &out), 0);
    assert_string_equal(out.address, in.address);
}

static void texts_of_a_join_print(void **state)
{
    struct pst_pool_join in = a_join(), out;
    size_t len = pst_pool_put_join(bytes, &in);

    (void)state;
    for (size_t at = len - strlen("[::1]:7000/run/penstock.sockrack=7"); at < len; at++) {
        uint8_t kept = bytes[at];

        bytes[at] = at % 2 ? '\n' : 0x80;
        assert_int_equal(pst_pool_get_join(first(len), &out), -EPROTO);
        bytes[at] = kept;
    }
    assert_int_equal(pst_pool_get_join(first(len), &out), 0);
}

static void heartbeats(void **state)
{
    static struct pst_pool_event in[PST_POOL_EVENTS_MAX], out[PST_POOL_EVENTS_MAX];
    struct pst_pool_heartbeat beat = {.epoch = 7,
                                      .sequence = 9,
                                      .sent_ns = 11,
                                      .member = 3,
                                      .flags = PST_POOL_END},
                              read;
    size_t len;

    (void)state;
    beat.tiers[1] = (struct pst_pool_use){100, 50};
    for (uint32_t i = 0; i < PST_POOL_EVENTS_MAX; i++)
        in[i] = (struct pst_pool_event){
            .key = {i, ~i}, .generation = i * 3ull, .kind = i % 2, .tier = (uint8_t)(1 + i % 3)};
    for (uint32_t count = 0; count <= PST_POOL_EVENTS_MAX; count += 512) {
        beat.event_count = (uint16_t)count;
        len = pst_pool_put_heartbeat(bytes, &beat, in);
        assert_true(len <= PST_WIRE_QUESTION_BYTES_MAX);
        memset(out, 0, sizeof(out));
        assert_int_equal(pst_pool_get_heartbeat(first(len), &read, out), 0);
        assert_memory_equal(&beat, &read, sizeof(beat));
        assert_memory_equal(in, out, count * sizeof(in[0]));
        assert_int_equal(pst_pool_get_heartbeat(first(len - 1), &read, out), -EPROTO);
        assert_int_equal(pst_pool_get_heartbeat(first(len + 1), &read, out), -EPROTO);
    }
    beat.event_count = 1;
    for (uint32_t tier = 0; tier < 256; tier++) {
        in[0].tier = (uint8_t)tier;
        len = pst_pool_put_heartbeat(bytes, &beat, in);
        assert_int_equal(pst_pool_get_heartbeat(first(len), &read, out),
                         tier >= 1 && tier <= 3 ? 0 : -EPROTO);
    }
    in[0].tier = 1;
    in[0].kind = 2;
    len = pst_pool_put_heartbeat(bytes, &beat, in);
    assert_int_equal(pst_pool_get_heartbeat(first(len), &read, out), -EPROTO);
    beat.event_count = PST_POOL_EVENTS_MAX + 1;
    memcpy(bytes, &beat, sizeof(beat));
    assert_int_equal(pst_pool_get_heartbeat(first(sizeof(bytes)), &read, out), -EPROTO);
}

static void beats(void **state)
{
    struct pst_pool_want in[PST_POOL_WANT_COUNT_MAX] = {{.partition = 5, .member = 6}},
                         out[PST_POOL_WANT_COUNT_MAX];
    struct pst_pool_beat beat = {.sequence_next = 5, .lease_ms = 3000, .sync = 1}, read;

    (void)state;
    for (uint32_t count = 0; count <= PST_POOL_WANT_COUNT_MAX; count++) {
        size_t len;

        beat.want_count = (uint16_t)count;
        len = pst_pool_put_beat(bytes, &beat, in);
        assert_int_equal(pst_pool_get_beat(first(len), &read, out), 0);
        assert_memory_equal(&beat, &read, sizeof(beat));
        assert_memory_equal(in, out, count * sizeof(in[0]));
        assert_int_equal(pst_pool_get_beat(first(len - 1), &read, out), -EPROTO);
    }
    beat.want_count = PST_POOL_WANT_COUNT_MAX + 1;
    memcpy(bytes, &beat, sizeof(beat));
    assert_int_equal(pst_pool_get_beat(first(sizeof(beat) + sizeof(in) + sizeof(in[0])), &read, out),
                     -EPROTO);
}

static void items(void **state)
{
    struct pst_hash128 in[PST_POOL_LOCATE_MAX] = {{1, 2}, {3, 4}}, out[PST_POOL_LOCATE_MAX];
    uint8_t host[PST_POOL_ID_BYTES] = {9}, read[PST_POOL_ID_BYTES];
    size_t len = pst_pool_put_items(bytes, host, sizeof(host), in, sizeof(in[0]), PST_POOL_LOCATE_MAX);

    (void)state;
    assert_int_equal(
        pst_pool_get_items(first(len), read, sizeof(read), out, sizeof(out[0]), PST_POOL_LOCATE_MAX),
        PST_POOL_LOCATE_MAX);
    assert_memory_equal(in, out, sizeof(in));
    assert_memory_equal(host, read, sizeof(host));
    assert_int_equal(
        pst_pool_get_items(first(len), read, sizeof(read), out, sizeof(out[0]), PST_POOL_LOCATE_MAX - 1),
        -EPROTO);
    for (size_t cut = 0; cut < 3 * sizeof(in[0]); cut++)
        assert_int_equal(pst_pool_get_items(first(cut), read, sizeof(read), out, sizeof(out[0]), 2),
                         cut % sizeof(in[0]) || cut == 0 ? -EPROTO : (int)(cut / sizeof(in[0])) - 1);
}

static void routes(void **state)
{
    struct pst_pool_route in = {.status = PST_POOL_INCOMPLETE}, out = {.status = 0};
    const uint8_t *at;
    uint8_t *end;

    (void)state;
    for (uint32_t count = 0; count <= PST_POOL_ROUTE_PLACES_MAX; count++) {
        in.place_count = (uint8_t)count;
        if (count)
            in.places[count - 1] =
                (struct pst_pool_place){.generation = count, .member = (uint16_t)count, .tier = 2};
        end = pst_pool_put_route(bytes, &in);
        at = bytes;
        assert_int_equal(pst_pool_get_route(&at, end - 1, &out), -EPROTO);
        assert_ptr_equal(at, bytes);
        assert_int_equal(pst_pool_get_route(&at, end, &out), 0);
        assert_ptr_equal(at, end);
        assert_memory_equal(in.places, out.places, count * sizeof(in.places[0]));
    }
    bytes[0] = PST_POOL_INCOMPLETE + 1;
    at = bytes;
    assert_int_equal(pst_pool_get_route(&at, end, &out), -EPROTO);
    bytes[0] = 0;
    bytes[1] = PST_POOL_ROUTE_PLACES_MAX + 1;
    assert_int_equal(pst_pool_get_route(&at, bytes + sizeof(bytes), &out), -EPROTO);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(joins),      cmocka_unit_test(texts_of_a_join_print),
        cmocka_unit_test(heartbeats), cmocka_unit_test(beats),
        cmocka_unit_test(items),      cmocka_unit_test(routes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
