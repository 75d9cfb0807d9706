#include "cm.h"

#include "wire/route.h"
#include "wire/wire.h"

#include <stdio.h>

static const uint8_t codes[] = {
    PST_WIRE_PUT,         PST_WIRE_GET,        PST_WIRE_STAT_KEY,   PST_WIRE_DELETE,     PST_WIRE_PIN,
    PST_WIRE_UNPIN,       PST_WIRE_LIST,       PST_WIRE_SWEEP,      PST_WIRE_STAT,       PST_WIRE_PING,
    PST_WIRE_VIEW,        PST_WIRE_RELEASE,    PST_WIRE_CHECK,      PST_WIRE_RESERVE,    PST_WIRE_SLOT_WRITE,
    PST_WIRE_SLOT_COMMIT, PST_WIRE_SLOT_ABORT, PST_WIRE_COMMIT,     PST_WIRE_WATCH_OPEN, PST_WIRE_WATCH_NEXT,
    PST_WIRE_WATCH_CLOSE, PST_WIRE_FLUSH,      PST_WIRE_ROLE_FIRST, PST_WIRE_ROLE_LAST,  PST_WIRE_COPY,
    PST_WIRE_COPY_SEND,   PST_WIRE_COPY_CLEAR,
};

static const uint8_t result_flags_all = PST_WIRE_SIZE | PST_WIRE_CRC | PST_WIRE_ATTRS | PST_WIRE_IN_BULK;

static bool known(uint8_t code)
{
    return memchr(codes, code, sizeof(codes)) || (code >= PST_WIRE_ROLE_FIRST && code <= PST_WIRE_ROLE_LAST);
}

static uint8_t bytes[16 << 10]; /* keys, attributes and values are cut from here */

static uint64_t random_next(void)
{
    static uint64_t x = 0x9e3779b97f4a7c15;

    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    return x;
}

static int fill_bytes(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(bytes); i++)
        bytes[i] = (uint8_t)random_next();
    return 0;
}

static void assert_bytes_equal(struct pst_bytes a, struct pst_bytes b)
{
    assert_int_equal(a.len, b.len);
    assert_memory_equal(a.data, b.data, a.len);
}

static bool value_inline(const struct pst_wire_op *op)
{
    return (op->code == PST_WIRE_PUT || op->code == PST_WIRE_SLOT_WRITE || op->code == PST_WIRE_COPY) &&
           !(op->flags & PST_WIRE_VALUE_IN_BULK);
}

static struct pst_wire_op make_op(uint8_t code, uint8_t flags, size_t key_len, size_t attr_len,
                                  uint64_t value_bytes)
{
    return (struct pst_wire_op){
        .code = code,
        .flags = flags,
        .depth = (uint16_t)random_next(),
        .crc = flags & PST_WIRE_CHECKSUM ? (uint32_t)random_next() : 0,
        .key = {bytes, key_len},
        .attrs = {bytes + 4096, attr_len},
        .bytes = value_bytes,
        .offset = flags & PST_WIRE_RANGE ? random_next() : 0,
        .if_generation = flags & PST_WIRE_IF_GENERATION ? random_next() : 0,
        .value = bytes + 8192,
    };
}

static void assert_op_equal(const struct pst_wire_op *a, const struct pst_wire_op *b)
{
    assert_int_equal(a->code, b->code);
    assert_int_equal(a->flags, b->flags);
    assert_int_equal(a->depth, b->depth);
    assert_int_equal(a->crc, b->crc);
    assert_int_equal(a->bytes, b->bytes);
    assert_int_equal(a->offset, b->offset);
    assert_int_equal(a->if_generation, b->if_generation);
    assert_bytes_equal(a->key, b->key);
    assert_bytes_equal(a->attrs, b->attrs);
    if (value_inline(a))
        assert_memory_equal(a->value, b->value, a->bytes);
    else
        assert_null(b->value);
}

/* Encodes into memory of just the right size, which the caller frees. */
static uint8_t *encode_op(const struct pst_wire_op *op, size_t *len)
{
    uint8_t *buf;

    *len = pst_wire_op_bytes(op);
    assert_true(*len <= PST_WIRE_OP_BYTES_MAX);
    buf = malloc(*len);
    assert_non_null(buf);
    assert_ptr_equal(pst_wire_put_op(buf, op), buf + *len);
    return buf;
}

static void check_op_round_trip(const struct pst_wire_op *op)
{
    struct pst_wire_op out;
    size_t len;
    uint8_t *buf = encode_op(op, &len);
    const uint8_t *at = buf;

    memset(&out, 0xee, sizeof(out));
    assert_int_equal(pst_wire_get_op(&at, buf + len, &out), 0);
    assert_ptr_equal(at, buf + len);
    assert_op_equal(op, &out);
    free(buf);
}

static void operations_round_trip(void **state)
{
    static const size_t key_lens[] = {0, 1, 17, PST_WIRE_KEY_BYTES_MAX}, attr_lens[] = {0, 1, 256, 4096};
    static const uint64_t value_lens[] = {0, 1, PST_WIRE_INLINE_BYTES_MAX};

    (void)state;
    for (size_t c = 0; c < sizeof(codes); c++) {
        for (uint32_t flags = 0; flags < 256; flags++) {
            for (size_t i = 0; i < 4 * 3; i++) {
                struct pst_wire_op op = make_op(codes[c], (uint8_t)flags, key_lens[i % 4],
                                                attr_lens[(i + flags) % 4], value_lens[i % 3]);

                check_op_round_trip(&op);
                if (!value_inline(&op)) {
                    op.bytes =
                        random_next() | 1ull << 63; /* sizes of what travels elsewhere are not bounded here */
                    check_op_round_trip(&op);
                }
            }
        }
    }
}

/* The documented bound holds for the largest operation there is. */
static void largest_operation_fits(void **state)
{
    struct pst_wire_op op =
        make_op(PST_WIRE_PUT, PST_WIRE_IF_GENERATION | PST_WIRE_CHECKSUM | PST_WIRE_RANGE,
                PST_WIRE_KEY_BYTES_MAX, PST_WIRE_KEY_BYTES_MAX, PST_WIRE_INLINE_BYTES_MAX);

    (void)state;
    assert_in_range(pst_wire_op_bytes(&op), 1, PST_WIRE_OP_BYTES_MAX);
    assert_true(PST_WIRE_OP_BYTES_MAX <= PST_WIRE_BODY_BYTES_MAX);
    check_op_round_trip(&op);
}

/* Each shorter piece is refused, and the reader stays where it was. */
static void cut_operations_are_refused(void **state)
{
    (void)state;
    for (size_t c = 0; c < sizeof(codes); c++) {
        for (uint32_t flags = 0; flags < 256; flags++) {
            struct pst_wire_op op = make_op(codes[c], (uint8_t)flags, 5, 3, 7), out;
            size_t len;
            uint8_t *buf = encode_op(&op, &len);

            for (size_t cut = 0; cut < len; cut++) {
                uint8_t *piece = malloc(cut);
                const uint8_t *at = piece;

                memcpy(piece, buf, cut);
                assert_int_equal(pst_wire_get_op(&at, piece + cut, &out), -EPROTO);
                assert_ptr_equal(at, piece);
                free(piece);
            }
            free(buf);
        }
    }
}

static void many_operations_follow_each_other(void **state)
{
    enum { COUNT = PST_WIRE_OPS_MAX };
    static struct pst_wire_op ops[COUNT];
    uint8_t *body = malloc((size_t)COUNT * PST_WIRE_OP_BYTES_MAX), *end = body;
    const uint8_t *at = body;
    struct pst_wire_op out;

    (void)state;
    for (int i = 0; i < COUNT; i++) {
        ops[i] = make_op(codes[random_next() % sizeof(codes)], (uint8_t)random_next(), random_next() % 64,
                         random_next() % 64, random_next() % 64);
        end = pst_wire_put_op(end, &ops[i]);
    }
    for (int i = 0; i < COUNT; i++) {
        assert_int_equal(pst_wire_get_op(&at, end, &out), 0);
        assert_op_equal(&ops[i], &out);
    }
    assert_ptr_equal(at, end);
    assert_int_equal(pst_wire_get_op(&at, end, &out), -EPROTO);
    free(body);
}

/* The fixed part of an operation as it lies on the wire. */
static int decode_fixed(uint8_t code, uint8_t flags, uint32_t key_len, uint32_t attr_len,
                        uint64_t value_bytes)
{
    const size_t len = 16 + 20 + key_len + attr_len + PST_WIRE_INLINE_BYTES_MAX + 16;
    uint8_t *buf = calloc(1, len);
    uint16_t lens[2] = {(uint16_t)key_len, (uint16_t)attr_len};
    const uint8_t *at = buf;
    struct pst_wire_op out;
    int r;

    buf[0] = code;
    buf[1] = flags;
    memcpy(buf + 2, lens, sizeof(lens));
    memcpy(buf + 8, &value_bytes, sizeof(value_bytes));
    r = pst_wire_get_op(&at, buf + len, &out);
    assert_ptr_equal(at, buf + (r == 0 ? (size_t)(at - buf) : 0));
    free(buf);
    return r;
}

static void bounds_of_operations_hold(void **state)
{
    (void)state;
    for (uint32_t code = 0; code < 256; code++)
        assert_int_equal(decode_fixed((uint8_t)code, 0, 4, 4, 8), known((uint8_t)code) ? 0 : -EPROTO);
    assert_int_equal(decode_fixed(PST_WIRE_GET, 0, PST_WIRE_KEY_BYTES_MAX, 0, 0), 0);
    assert_int_equal(decode_fixed(PST_WIRE_GET, 0, PST_WIRE_KEY_BYTES_MAX + 1, 0, 0), -EPROTO);
    assert_int_equal(decode_fixed(PST_WIRE_GET, 0, 65535, 0, 0), -EPROTO);
    assert_int_equal(decode_fixed(PST_WIRE_LIST, 0, 1, PST_WIRE_KEY_BYTES_MAX, 0), 0);
    assert_int_equal(decode_fixed(PST_WIRE_LIST, 0, 1, PST_WIRE_KEY_BYTES_MAX + 1, 0), -EPROTO);
    assert_int_equal(decode_fixed(PST_WIRE_ROLE_FIRST, 0, 1, PST_WIRE_QUESTION_BYTES_MAX, 0), 0);
    assert_int_equal(decode_fixed(PST_WIRE_ROLE_FIRST, 0, 1, PST_WIRE_QUESTION_BYTES_MAX + 1, 0), -EPROTO);
    assert_int_equal(decode_fixed(PST_WIRE_PUT, 0, 1, 0, PST_WIRE_INLINE_BYTES_MAX), 0);
    assert_int_equal(decode_fixed(PST_WIRE_PUT, 0, 1, 0, PST_WIRE_INLINE_BYTES_MAX + 1), -EPROTO);
    assert_int_equal(decode_fixed(PST_WIRE_PUT, 0, 1, 0, UINT64_MAX), -EPROTO);
    assert_int_equal(decode_fixed(PST_WIRE_PUT, PST_WIRE_VALUE_IN_BULK, 1, 0, UINT64_MAX), 0);
}

/* ---- results ---- */

static struct pst_wire_result make_result(uint8_t flags, int16_t result, uint32_t data_len, size_t attr_len)
{
    return (struct pst_wire_result){
        .result = result,
        .flags = flags,
        .bytes = data_len,
        .crc = flags & PST_WIRE_CRC ? (uint32_t)random_next() : 0,
        .generation = random_next(),
        .value_bytes = flags & PST_WIRE_SIZE ? random_next() : data_len,
        .bulk_bytes = flags & PST_WIRE_IN_BULK ? random_next() : 0,
        .attrs = {bytes, flags & PST_WIRE_ATTRS ? attr_len : 0},
        .data = bytes + 4096,
    };
}

static uint8_t *encode_result(const struct pst_wire_result *result, size_t *len)
{
    uint8_t *room = malloc(PST_WIRE_RESULT_BYTES_MAX + result->attrs.len + result->bytes), *exact;

    *len = (size_t)(pst_wire_put_result(room, result) - room);
    assert_true(*len <= PST_WIRE_RESULT_BYTES_MAX + result->attrs.len + result->bytes);
    exact = malloc(*len);
    memcpy(exact, room, *len);
    free(room);
    return exact;
}

static void assert_result_equal(const struct pst_wire_result *a, const struct pst_wire_result *b)
{
    assert_int_equal(a->result, b->result);
    assert_int_equal(a->flags, b->flags);
    assert_int_equal(a->bytes, b->bytes);
    assert_int_equal(a->crc, b->crc);
    assert_int_equal(a->generation, b->generation);
    assert_int_equal(a->value_bytes, b->value_bytes);
    assert_int_equal(a->bulk_bytes, b->bulk_bytes);
    assert_bytes_equal(a->attrs, b->attrs);
    assert_memory_equal(a->data, b->data, a->bytes);
}

static void results_round_trip(void **state)
{
    static const int16_t kinds[] = {
        0, 1, 2, 3, 4, 5, 6, -EINVAL, -ENOSPC, -ERANGE, -EFBIG, -ENOBUFS, -EMSGSIZE, INT16_MAX, INT16_MIN};
    static const uint32_t data_lens[] = {0, 1, 64, 2048, 12000};
    static const size_t attr_lens[] = {0, 1, 256};

    (void)state;
    for (uint8_t flags = 0; flags <= result_flags_all; flags++) {
        for (size_t i = 0; i < pst_count_of(kinds) * pst_count_of(data_lens); i++) {
            struct pst_wire_result in = make_result(flags, kinds[i % pst_count_of(kinds)],
                                                    data_lens[i % pst_count_of(data_lens)], attr_lens[i % 3]);
            struct pst_wire_result out;
            size_t len;
            uint8_t *buf = encode_result(&in, &len);
            const uint8_t *at = buf;

            assert_int_equal(pst_wire_get_result(&at, buf + len, &out), 0);
            assert_ptr_equal(at, buf + len);
            assert_result_equal(&in, &out);
            free(buf);
        }
    }
}

static void cut_results_are_refused(void **state)
{
    (void)state;
    for (uint8_t flags = 0; flags <= result_flags_all; flags++) {
        struct pst_wire_result in = make_result(flags, 0, 9, 5), out;
        size_t len;
        uint8_t *buf = encode_result(&in, &len);

        for (size_t cut = 0; cut < len; cut++) {
            uint8_t *piece = malloc(cut);
            const uint8_t *at = piece;

            memcpy(piece, buf, cut);
            assert_int_equal(pst_wire_get_result(&at, piece + cut, &out), -EPROTO);
            assert_ptr_equal(at, piece);
            free(piece);
        }
        free(buf);
    }
}

/* ---- garbage ---- */

static void assert_inside(const uint8_t *from, size_t len, struct pst_bytes piece)
{
    const uint8_t *data = piece.data;

    pst_assert(piece.len == 0 || (data >= from && piece.len <= len && data <= from + len - piece.len));
}

static void decode_all(const uint8_t *from, size_t len)
{
    const uint8_t *at = from, *end = from + len;
    struct pst_wire_op op;
    struct pst_wire_result result;

    while (pst_wire_get_op(&at, end, &op) == 0) {
        pst_assert(at <= end && known(op.code));
        pst_assert(op.key.len <= PST_WIRE_KEY_BYTES_MAX && op.attrs.len <= PST_WIRE_KEY_BYTES_MAX);
        assert_inside(from, len, op.key);
        assert_inside(from, len, op.attrs);
        if (op.value)
            assert_inside(from, len, (struct pst_bytes){op.value, op.bytes});
    }
    at = from;
    while (pst_wire_get_result(&at, end, &result) == 0) {
        pst_assert(at <= end);
        assert_inside(from, len, result.attrs);
        assert_inside(from, len, (struct pst_bytes){result.data, result.bytes});
    }
}

static void garbage_is_read_within_its_bounds(void **state)
{
    enum { ROUNDS = 100000 };

    (void)state;
    for (int round = 0; round < ROUNDS; round++) {
        size_t len = random_next() % 200;
        uint8_t *buf = malloc(len);
        struct pst_wire_head head;

        for (size_t i = 0; i < len; i++)
            buf[i] = (uint8_t)(random_next() >> 40 & (round % 3 ? 0xff : 0x1f));
        if (len && round % 2)
            buf[0] = codes[random_next() % sizeof(codes)];
        if (len > 1 && round % 4 == 1)
            buf[1] = (uint8_t)(1 + random_next() % PST_WIRE_VERSION);
        decode_all(buf, len);
        if (pst_wire_get_head((struct pst_bytes){buf, len}, &head) == 0)
            pst_assert(head.type >= PST_WIRE_HELLO && head.type <= PST_WIRE_BULK &&
                       head.version >= PST_WIRE_VERSION_OLDEST && head.version <= PST_WIRE_VERSION);
        free(buf);
    }
}

/* Right messages with a few wrong bytes get further into the decoder than noise does. */
static void damaged_operations_are_read_within_their_bounds(void **state)
{
    enum { ROUNDS = 100000 };

    (void)state;
    for (int round = 0; round < ROUNDS; round++) {
        struct pst_wire_op op = make_op(codes[random_next() % sizeof(codes)], (uint8_t)random_next(),
                                        random_next() % 32, random_next() % 32, random_next() % 32);
        size_t len;
        uint8_t *buf = encode_op(&op, &len);

        for (uint64_t k = 1 + random_next() % 3; k > 0; k--)
            buf[random_next() % (k == 1 ? 16 : len)] = (uint8_t)random_next();
        decode_all(buf, len);
        free(buf);
    }
}

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
                         version >= 2 && version <= PST_WIRE_VERSION ? 0 : -EPROTO);
    }
    head = good;
    head.count = PST_WIRE_OPS_MAX + 1;
    assert_int_equal(get_head(&head, sizeof(head), &out), -EPROTO);
    head.count = UINT16_MAX;
    assert_int_equal(get_head(&head, sizeof(head), &out), -EPROTO);
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
        cmocka_unit_test(operations_round_trip),
        cmocka_unit_test(largest_operation_fits),
        cmocka_unit_test(cut_operations_are_refused),
        cmocka_unit_test(many_operations_follow_each_other),
        cmocka_unit_test(bounds_of_operations_hold),
        cmocka_unit_test(results_round_trip),
        cmocka_unit_test(cut_results_are_refused),
        cmocka_unit_test(garbage_is_read_within_its_bounds),
        cmocka_unit_test(damaged_operations_are_read_within_their_bounds),
        cmocka_unit_test(heads_round_trip),
        cmocka_unit_test(wrong_heads_are_refused),
        cmocka_unit_test(numbers_of_requests_wrap_around),
        cmocka_unit_test(parts_round_trip),
        cmocka_unit_test(keys_spread_over_all_shards),
    };

    return cmocka_run_group_tests(tests, fill_bytes, NULL);
}
