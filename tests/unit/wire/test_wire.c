/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/wire_bytes.h"

#include "wire/wire.h"

#include <stdio.h>

static const uint8_t codes[] = {
    PST_WIRE_PUT,
    PST_WIRE_GET,
    PST_WIRE_STAT_KEY,
    PST_WIRE_DELETE,
    PST_WIRE_PIN,
    PST_WIRE_UNPIN,
    PST_WIRE_LIST,
    PST_WIRE_SWEEP,
    PST_WIRE_STAT,
    PST_WIRE_PING,
    PST_WIRE_VIEW,
    PST_WIRE_RELEASE,
    PST_WIRE_CHECK,
    PST_WIRE_RESERVE,
    PST_WIRE_WRITE_AT,
    PST_WIRE_RESERVATION_COMMIT,
    PST_WIRE_RESERVATION_ABORT,
    PST_WIRE_COMMIT,
    PST_WIRE_WATCH_OPEN,
    PST_WIRE_WATCH_NEXT,
    PST_WIRE_WATCH_CLOSE,
    PST_WIRE_FLUSH,
    PST_WIRE_ROLE_FIRST,
    PST_WIRE_ROLE_LAST,
    PST_WIRE_COPY,
    PST_WIRE_COPY_SEND,
    PST_WIRE_COPY_CLEAR,
};

static const uint8_t result_flags_all =
    PST_WIRE_SIZE | PST_WIRE_CRC | PST_WIRE_ATTRS | PST_WIRE_IN_BULK | PST_WIRE_DETAIL;

static bool known(uint8_t code)
{
    return memchr(codes, code, sizeof(codes)) || (code >= PST_WIRE_ROLE_FIRST && code <= PST_WIRE_ROLE_LAST);
}

static void assert_bytes_equal(struct pst_bytes a, struct pst_bytes b)
{
    assert_int_equal(a.len, b.len);
    assert_memory_equal(a.data, b.data, a.len);
}

static bool value_inline(const struct pst_wire_op *op)
{
    return (op->code == PST_WIRE_PUT || op->code == PST_WIRE_WRITE_AT || op->code == PST_WIRE_COPY) &&
           !(op->flags & (PST_WIRE_VALUE_IN_BULK | PST_WIRE_IN_RESERVATION));
}

/* Whether the operation has what lies in the place of @offset, or else of if_generation. */
static bool has_word(uint8_t code, uint32_t flags, bool offset)
{
    const uint32_t offsets = PST_WIRE_RANGE | PST_WIRE_TTL | PST_WIRE_IN_RESERVATION;
    const uint32_t others = PST_WIRE_IF_GENERATION | PST_WIRE_UNLESS_GENERATION | PST_WIRE_FLOOR;

    if (code >= PST_WIRE_ROLE_FIRST || code == PST_WIRE_WRITE_AT)
        return true;
    if (offset)
        return flags & offsets;
    return flags & others || code == PST_WIRE_RELEASE || code == PST_WIRE_RESERVATION_COMMIT ||
           code == PST_WIRE_RESERVATION_ABORT || code == PST_WIRE_WATCH_NEXT || code == PST_WIRE_WATCH_CLOSE;
}

/* The bits that mean something: of penstock.h, and the library's own. */
static uint32_t some_flags(void)
{
    return (uint32_t)random_next() & (0x7ff | PST_WIRE_OWN_FLAGS);
}

static struct pst_wire_op make_op(uint8_t code, uint32_t flags, size_t key_len, size_t attr_len,
                                  uint64_t value_bytes)
{
    return (struct pst_wire_op){
        .code = code,
        .flags = flags,
        .copies = code == PST_WIRE_PUT ? random_next() & PST_WIRE_COPIES_MAX : 0,
        .depth = (uint16_t)random_next(),
        .value_crc = (uint32_t)random_next(),
        .key = {bytes, key_len},
        .attrs = {bytes + 4096, attr_len},
        .bytes = value_bytes,
        .offset = has_word(code, flags, true) ? random_next() : 0,
        .if_generation = has_word(code, flags, false) ? random_next() : 0,
        .value = bytes + 8192,
    };
}

static void assert_op_equal(const struct pst_wire_op *a, const struct pst_wire_op *b)
{
    assert_int_equal(a->code, b->code);
    assert_int_equal(a->flags, b->flags);
    assert_int_equal(a->copies, b->copies);
    assert_int_equal(a->depth, b->depth);
    assert_int_equal(a->value_crc, b->value_crc);
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
        for (uint32_t n = 0; n < 256; n++) {
            for (size_t i = 0; i < 4 * 3; i++) {
                struct pst_wire_op op = make_op(codes[c], n ? some_flags() : 0, key_lens[i % 4],
                                                attr_lens[(i + n) % 4], value_lens[i % 3]);

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
    assert_in_range(PST_WIRE_OP_BYTES_MAX, 1, PST_WIRE_BODY_BYTES_MAX);
    check_op_round_trip(&op);
}

/* Each shorter piece is refused, and the reader stays where it was. */
static void cut_operations_are_refused(void **state)
{
    (void)state;
    for (size_t c = 0; c < sizeof(codes); c++) {
        for (uint32_t n = 0; n < 256; n++) {
            struct pst_wire_op op = make_op(codes[c], n ? some_flags() : 0, 5, 3, 7), out;
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
        ops[i] = make_op(codes[random_next() % sizeof(codes)], some_flags(), random_next() % 64,
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
static int decode_fixed(uint8_t code, uint32_t flags, uint32_t key_len, uint32_t attr_len,
                        uint64_t value_bytes)
{
    const size_t len = 24 + 16 + key_len + attr_len + PST_WIRE_INLINE_BYTES_MAX + 16;
    uint8_t *buf = calloc(1, len);
    uint16_t lens[2] = {(uint16_t)key_len, (uint16_t)attr_len};
    const uint8_t *at = buf;
    struct pst_wire_op out;
    int r;

    buf[0] = code;
    memcpy(buf + 2, lens, sizeof(lens));
    memcpy(buf + 8, &flags, sizeof(flags));
    memcpy(buf + 16, &value_bytes, sizeof(value_bytes));
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
    assert_int_equal(decode_fixed(PST_WIRE_PUT, 0, 1, PST_WIRE_KEY_BYTES_MAX + 1, 8), -EPROTO);
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
        .value_bytes = flags & (PST_WIRE_SIZE | PST_WIRE_DETAIL) ? random_next() : data_len,
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

struct asked {
    struct pst_wire_op op;
    bool member;
};

/* What may be asked for, and next to each what may not, for one reason. */
static void only_what_means_something_is_asked(void **state)
{
    static const uint8_t value[16], copy[40];
    const struct pst_bytes key = {"k", 1}, none = {NULL, 0}, head = {copy, 32}, cut = {copy, 31};
    const uint32_t tail = PST_WIRE_RANGE | PST_WIRE_FROM_END;
    const struct asked good[] = {
        {{.code = PST_WIRE_PUT,
          .flags = PST_WIRE_IF_ABSENT | PST_WIRE_IF_GENERATION | PST_WIRE_CHECKSUM | PST_WIRE_TTL |
                   PST_WIRE_DURABLE | PST_WIRE_VALUE_IN_BULK,
          .copies = PST_WIRE_COPIES_MAX,
          .key = key,
          .attrs = key,
          .bytes = 1},
         false},
        {{.code = PST_WIRE_GET, .flags = PST_WIRE_UNLESS_GENERATION | PST_WIRE_RANGE, .key = key}, false},
        {{.code = PST_WIRE_GET, .flags = PST_WIRE_WAIT | PST_WIRE_WANT_ATTRS, .key = key}, false},
        {{.code = PST_WIRE_GET, .flags = tail, .offset = INT64_MAX, .key = key}, false},
        {{.code = PST_WIRE_COMMIT, .member_count = 255}, false},
        {{.code = PST_WIRE_PUT, .flags = PST_WIRE_IN_RESERVATION, .key = key}, true},
        {{.code = PST_WIRE_CHECK, .flags = PST_WIRE_IF_GENERATION, .key = key}, true},
        {{.code = PST_WIRE_WRITE_AT, .key = key, .value = value}, false},
        {{.code = PST_WIRE_COPY, .key = key, .attrs = head}, false},
        {{.code = PST_WIRE_SWEEP, .flags = PST_WIRE_AFTER | PST_WIRE_SPARE}, false},
        {{.code = PST_WIRE_COPY_CLEAR, .flags = PST_WIRE_AFTER | PST_WIRE_FLOOR}, false},
        {{.code = PST_WIRE_ROLE_LAST, .flags = PST_WIRE_HIT}, false},
    };
    const struct asked bad[] = {
        {{.code = PST_WIRE_PUT, .key = none}, false},
        {{.code = PST_WIRE_PUT, .flags = PST_WIRE_VALUE_IN_BULK, .key = key, .bytes = 0}, false},
        {{.code = PST_WIRE_PUT, .flags = PST_WIRE_REPLACE, .key = key}, false},
        {{.code = PST_WIRE_PUT, .flags = PST_WIRE_VALUE_IN_BULK, .key = key, .bytes = 1}, true},
        {{.code = PST_WIRE_PUT, .flags = PST_WIRE_TTL, .key = key}, true},
        {{.code = PST_WIRE_PUT, .flags = PST_WIRE_DURABLE, .key = key}, true},
        {{.code = PST_WIRE_GET, .flags = PST_WIRE_IF_ABSENT, .key = key}, false},
        {{.code = PST_WIRE_PUT, .copies = PST_WIRE_COPIES_MAX + 1, .key = key}, false},
        {{.code = PST_WIRE_RESERVE, .copies = 1, .key = key}, false},
        {{.code = PST_WIRE_GET, .flags = PST_WIRE_WAIT | PST_WIRE_IF_GENERATION, .key = key}, false},
        {{.code = PST_WIRE_GET, .flags = PST_WIRE_WAIT | PST_WIRE_UNLESS_GENERATION, .key = key}, false},
        {{.code = PST_WIRE_GET, .flags = PST_WIRE_IF_GENERATION | PST_WIRE_UNLESS_GENERATION, .key = key},
         false},
        {{.code = PST_WIRE_GET, .flags = PST_WIRE_FROM_END, .offset = 1, .key = key}, false},
        {{.code = PST_WIRE_GET, .flags = tail, .key = key}, false},
        {{.code = PST_WIRE_GET, .flags = tail, .offset = (uint64_t)INT64_MAX + 1, .key = key}, false},
        {{.code = PST_WIRE_GET, .flags = 1u << 31, .key = key}, false},
        {{.code = PST_WIRE_GET, .key = key, .attrs = key}, false},
        {{.code = PST_WIRE_GET, .key = key}, true},
        {{.code = PST_WIRE_COMMIT, .member_count = 0}, false},
        {{.code = PST_WIRE_COMMIT, .member_count = 256}, false},
        {{.code = PST_WIRE_COMMIT, .member_count = 1}, true},
        {{.code = PST_WIRE_CHECK, .flags = PST_WIRE_IF_GENERATION, .key = key}, false},
        {{.code = PST_WIRE_CHECK, .key = key}, true},
        {{.code = PST_WIRE_WRITE_AT, .flags = PST_WIRE_RANGE, .key = key}, false},
        {{.code = PST_WIRE_RESERVATION_ABORT}, false},
        {{.code = PST_WIRE_COPY, .key = key, .attrs = cut}, false},
        {{.code = PST_WIRE_COPY_SEND, .key = key, .attrs = {copy, 7}}, false},
        {{.code = PST_WIRE_COPY_CLEAR, .attrs = {copy, 17}}, false},
        {{.code = PST_WIRE_PING, .key = key}, false},
        {{.code = 0, .key = key}, false},
        {{.code = 8, .key = key}, false},
        {{.code = 35}, false},
        {{.code = 96}, false},
        {{.code = 255}, true},
    };

    (void)state;
    for (size_t i = 0; i < pst_count_of(good); i++)
        assert_int_equal(pst_wire_check(&good[i].op, good[i].member), 0);
    for (size_t i = 0; i < pst_count_of(bad); i++)
        assert_int_equal(pst_wire_check(&bad[i].op, bad[i].member), -EPROTO);
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
        struct pst_wire_op op = make_op(codes[random_next() % sizeof(codes)], some_flags(),
                                        random_next() % 32, random_next() % 32, random_next() % 32);
        size_t len;
        uint8_t *buf = encode_op(&op, &len);

        for (uint64_t k = 1 + random_next() % 3; k > 0; k--)
            buf[random_next() % (k == 1 ? 24 : len)] = (uint8_t)random_next();
        decode_all(buf, len);
        free(buf);
    }
}

static void codes_have_a_row_each(void **state)
{
    (void)state;
    for (unsigned code = 0; code < 256; code++) {
        uint32_t traits = pst_code_traits((uint8_t)code);
        const char *word = pst_code_word((uint8_t)code);

        assert_int_equal(traits != 0, known((uint8_t)code));
        assert_int_equal(word != NULL, traits != 0);
        assert_true(!traits || traits & (PST_CODE_PLAIN | PST_CODE_MEMBER)); /* it may come somehow */
        assert_false(traits & PST_CODE_KEY && traits & PST_CODE_START);
        assert_true(traits & PST_CODE_KEY ||
                    !(traits & (PST_CODE_PUBLIC | PST_CODE_SERVED | PST_CODE_LOCKED)));
        for (unsigned other = 0; word && other < code && code < PST_WIRE_ROLE_FIRST; other++)
            assert_true(!pst_code_word((uint8_t)other) || strcmp(word, pst_code_word((uint8_t)other)) != 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(codes_have_a_row_each),
        cmocka_unit_test(operations_round_trip),
        cmocka_unit_test(largest_operation_fits),
        cmocka_unit_test(cut_operations_are_refused),
        cmocka_unit_test(many_operations_follow_each_other),
        cmocka_unit_test(bounds_of_operations_hold),
        cmocka_unit_test(only_what_means_something_is_asked),
        cmocka_unit_test(results_round_trip),
        cmocka_unit_test(cut_results_are_refused),
        cmocka_unit_test(garbage_is_read_within_its_bounds),
        cmocka_unit_test(damaged_operations_are_read_within_their_bounds),
    };

    return cmocka_run_group_tests(tests, fill_bytes, NULL);
}
