/* SPDX-License-Identifier: Apache-2.0 */
/* test_wire_heads.c: heads of messages, parts of values, and which shard serves a key. */
#include "lib/wire_bytes.h"

#include "wire/route.h"
#include "wire/wire.h"

/* ---- heads ---- */

static int get_head(const struct pst_wire_head *head, size_t len, struct pst_wire_head *out)
{
    uint8_t *odd = malloc(len + 1); /* headers need not be aligned */
    int r;

    memset(odd, 0, len + 1);
    memcpy(odd + 1, head, pst_min(len, sizeof(*head)));
    r = pst_wire_get_head((struct pst_bytes){odd + 1, len}, out);
    free(odd);
    return r;
}

static void heads_round_trip(void **state)
{
    struct pst_wire_head head = {.version = PST_WIRE_VERSION,
                                 .request = 7,
                                 .token = 0x0123456789abcdef,
                                 .timeout_ms = 30000,
                                 .bulk_count = 3};
    struct pst_wire_head out;

    (void)state;
    for (uint8_t type = PST_WIRE_HELLO; type < PST_WIRE_BULK; type++) {
        for (uint16_t count = 0; count <= PST_WIRE_OPS_MAX; count++) {
            head.type = type;
            head.count = count;
            assert_int_equal(get_head(&head, sizeof(head), &out), 0);
            assert_memory_equal(&head, &out, sizeof(head));
        }
    }
}

static void wrong_heads_are_refused(void **state)
{
    const struct pst_wire_head good = {.type = PST_WIRE_REQUEST, .version = PST_WIRE_VERSION, .count = 1};
    struct pst_wire_head head = good, out;

    (void)state;
    for (size_t len = 0; len < sizeof(head); len++)
        assert_int_equal(get_head(&head, len, &out), -EPROTO);
    assert_int_equal(get_head(&head, sizeof(head) + 1, &out), -EPROTO);
    for (uint32_t type = 0; type < 256; type++) {
        head.type = (uint8_t)type;
        assert_int_equal(get_head(&head, sizeof(head), &out),
                         type >= PST_WIRE_HELLO && type < PST_WIRE_BULK ? 0 : -EPROTO);
    }
    head = good;
    for (uint32_t version = 0; version < 256; version++) {
        head.version = (uint8_t)version;
        assert_int_equal(get_head(&head, sizeof(head), &out),
                         version >= PST_WIRE_VERSION_OLDEST && version <= PST_WIRE_VERSION ? 0 : -EPROTO);
    }
    head = good;
    head.count = PST_WIRE_OPS_MAX + 1;
    assert_int_equal(get_head(&head, sizeof(head), &out), -EPROTO);
    head.count = UINT16_MAX;
    assert_int_equal(get_head(&head, sizeof(head), &out), -EPROTO);
}

/* Bytes of a message with @trace_bytes of a trace behind its head. */
static int get_traced(const struct pst_wire_traced_head *header, size_t trace_bytes)
{
    size_t len = sizeof(header->head) + trace_bytes;
    uint8_t *tight = calloc(1, len);
    struct pst_wire_head out;
    int r;

    memcpy(tight, header, pst_min(len, PST_WIRE_TRACED_BYTES));
    r = pst_wire_get_head((struct pst_bytes){tight, len}, &out);
    if (r == 0 && len > sizeof(out))
        assert_memory_equal(pst_wire_get_trace((struct pst_bytes){tight, len}), &header->trace,
                            sizeof(header->trace));
    free(tight);
    return r;
}

static void a_trace_is_behind_a_request(void **state)
{
    const struct pst_wire_traced_head good = {
        .head = {.type = PST_WIRE_REQUEST, .version = PST_WIRE_VERSION, .count = 1},
        .trace = {.trace_id = {1}, .span_id = {[7] = 2}, .flags = PST_TRACE_SAMPLED}};
    struct pst_wire_traced_head header = good;

    (void)state;
    assert_null(pst_wire_get_trace((struct pst_bytes){&good, sizeof(good.head)}));
    for (size_t n = 0; n <= 2 * sizeof(good.trace); n++)
        assert_int_equal(get_traced(&good, n), n == 0 || n == 25 ? 0 : -EPROTO);
    for (uint8_t type = PST_WIRE_HELLO; type <= PST_WIRE_BULK; type++) {
        header.head.type = type;
        assert_int_equal(get_traced(&header, sizeof(good.trace)), type == PST_WIRE_REQUEST ? 0 : -EPROTO);
    }
    header = good;
    header.trace.trace_id[0] = 0;
    assert_int_equal(get_traced(&header, sizeof(good.trace)), -EPROTO);
    header = good;
    header.trace.span_id[7] = 0;
    assert_int_equal(get_traced(&header, sizeof(good.trace)), -EPROTO);
    header = good;
    header.trace.flags = 4;
    assert_int_equal(get_traced(&header, sizeof(good.trace)), -EPROTO);
}

/* The numbers of a place grow by the size of the table, and begin again behind the last. */
static void numbers_of_requests_wrap_around(void **state)
{
    uint32_t number = 5;

    (void)state;
    assert_false(pst_wire_later(number, number));
    for (int use = 0; use < 5 << 20; use++, number += PST_WIRE_PLACES) {
        assert_true(pst_wire_later(number + PST_WIRE_PLACES, number));
        assert_false(pst_wire_later(number, number + PST_WIRE_PLACES));
    }
}

static void parts_round_trip(void **state)
{
    struct pst_wire_head head = {.type = PST_WIRE_BULK, .version = PST_WIRE_VERSION};
    struct pst_wire_part parts[PST_WIRE_PARTS_MAX + 1];

    (void)state;
    for (uint32_t i = 0; i < pst_count_of(parts); i++)
        parts[i] = (struct pst_wire_part){.op = i, .offset = random_next(), .bytes = random_next()};
    for (uint16_t count = 0; count <= PST_WIRE_PARTS_MAX + 1; count++) {
        size_t len = sizeof(head) + count * sizeof(parts[0]);
        uint8_t *buf = malloc(len + sizeof(parts[0]));
        struct pst_wire_head out;

        head.count = count;
        memcpy(buf, &head, sizeof(head));
        memcpy(buf + sizeof(head), parts, count * sizeof(parts[0]));
        assert_int_equal(pst_wire_get_head((struct pst_bytes){buf, len}, &out),
                         count >= 1 && count <= PST_WIRE_PARTS_MAX ? 0 : -EPROTO);
        for (uint32_t i = 0; i < count; i++) {
            struct pst_wire_part part = pst_wire_get_part((struct pst_bytes){buf, len}, i);

            assert_memory_equal(&part, &parts[i], sizeof(part));
        }
        for (size_t cut = sizeof(head); cut < len; cut++)
            assert_int_equal(pst_wire_get_head((struct pst_bytes){buf, cut}, &out), -EPROTO);
        memset(buf + len, 0, sizeof(parts[0]));
        assert_int_equal(pst_wire_get_head((struct pst_bytes){buf, len + sizeof(parts[0])}, &out), -EPROTO);
        free(buf);
    }
}

/* ---- which shard serves a key ---- */

static void keys_spread_over_all_shards(void **state)
{
    enum { KEYS = 40000 };
    static const uint32_t counts[] = {1, 2, 3, 8, 16, 255, 256};

    (void)state;
    for (size_t i = 0; i < pst_count_of(counts); i++) {
        uint32_t per_shard[256] = {0};

        for (uint32_t k = 0; k < KEYS; k++) {
            uint32_t shard = pst_route_shard((struct pst_bytes){&k, sizeof(k)}, 42, counts[i]);

            assert_true(shard < counts[i]);
            assert_int_equal(shard, pst_route_shard((struct pst_bytes){&k, sizeof(k)}, 42, counts[i]));
            per_shard[shard]++;
        }
        for (uint32_t s = 0; s < counts[i]; s++)
            assert_in_range(per_shard[s], KEYS / counts[i] / 2, KEYS / counts[i] * 2);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(heads_round_trip),
        cmocka_unit_test(wrong_heads_are_refused),
        cmocka_unit_test(a_trace_is_behind_a_request),
        cmocka_unit_test(numbers_of_requests_wrap_around),
        cmocka_unit_test(parts_round_trip),
        cmocka_unit_test(keys_spread_over_all_shards),
    };

    return cmocka_run_group_tests(tests, fill_bytes, NULL);
}
