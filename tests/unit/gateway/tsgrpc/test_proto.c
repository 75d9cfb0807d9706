/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/cm.h"

#include "gateway/tsgrpc/proto_priv.h"

#include <string.h>

#define BYTES(text) ((struct pst_bytes){(text), sizeof(text) - 1})

static void assert_bytes(struct pst_bytes bytes, const char *text)
{
    assert_int_equal(bytes.len, strlen(text));
    assert_memory_equal(bytes.data, text, bytes.len);
}

static void generations(void **state)
{
    struct generation seven = proto_generation(BYTES("\0\7\0\0\0\0\0\0\0"));

    (void)state;
    assert_int_equal(proto_generation(BYTES("")).kind, GENERATION_UNKNOWN);
    assert_int_equal(proto_generation(BYTES("\2")).kind, GENERATION_ABSENT);
    assert_int_equal(seven.kind, GENERATION_VALUE);
    assert_int_equal(seven.number, 7);
    assert_int_equal(proto_generation(BYTES("\1")).kind, GENERATION_FOREIGN);
    assert_int_equal(proto_generation(BYTES("\0\0\0\0\0\0\0\0\0")).kind, GENERATION_FOREIGN);
    assert_int_equal(proto_generation(BYTES("\1\7\0\0\0\0\0\0\0")).kind, GENERATION_FOREIGN);
    assert_int_equal(proto_generation(BYTES("\0\7\0\0\0\0\0\0\0\0")).kind, GENERATION_FOREIGN);
    assert_true(generation_equal(seven, (struct generation){GENERATION_VALUE, 7}));
    assert_false(generation_equal(seven, (struct generation){GENERATION_VALUE, 8}));
    assert_false(generation_equal(proto_generation(BYTES("x")), proto_generation(BYTES("x"))));
}

static void requests(void **state)
{
    struct delete_request delete;
    struct read_request read;
    struct list_request list;

    (void)state;
    assert_int_equal(proto_read_request(BYTES("\x0a\3key\x12\1\2\x1a\0"), &read), 0);
    assert_bytes(read.key, "key");
    assert_int_equal(read.if_not_equal.kind, GENERATION_ABSENT);
    assert_int_equal(read.if_equal.kind, GENERATION_UNKNOWN);
    assert_true(read.min == 0 && read.max == -1);
    /* A range with its defaults, one from the end, and a field that nobody knows. */
    assert_int_equal(proto_read_request(BYTES("\x0a\1k\x2a\0"), &read), 0);
    assert_true(read.min == 0 && read.max == 0);
    assert_int_equal(proto_read_request(BYTES("\x2a\x16\x08\xfe\xff\xff\xff\xff\xff\xff\xff\xff\1"
                                              "\x10\xff\xff\xff\xff\xff\xff\xff\xff\xff\1\x7a\1x"),
                                        &read),
                     0);
    assert_true(read.min == -2 && read.max == -1 && read.key.len == 0);

    assert_int_equal(proto_delete_request(BYTES("\x0a\1k\x1a\1\2"), &delete), 0);
    assert_false(delete.ranged);
    assert_int_equal(delete.if_equal.kind, GENERATION_ABSENT);
    assert_int_equal(proto_delete_request(BYTES("\x12\7\x0a\1a\x12\2bc"), &delete), 0);
    assert_true(delete.ranged);
    assert_bytes(delete.start, "a");
    assert_bytes(delete.end, "bc");

    assert_int_equal(proto_list_request(BYTES("\x0a\3\x0a\1a\x10\5"), &list), 0);
    assert_bytes(list.start, "a");
    assert_bytes(list.end, "");
    assert_int_equal(list.strip_bytes, 5);
    assert_int_equal(proto_list_request(BYTES(""), &list), 0);
}

static void what_is_no_message_is_refused(void **state)
{
    static const struct {
        const char *text;
        size_t bytes;
    } wrong[] = {
        {"\x0a", 1},                                         /* no length */
        {"\x0a\4key", 5},                                    /* longer than the message */
        {"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\1k", 12}, /* 2^64 - 1 bytes */
        {"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\1", 11},  /* a tag without end */
        {"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\2", 11},  /* more than 64 bits */
        {"\x02\1k", 3},                                      /* field 0 */
        {"\x0b\x0c", 2},                                     /* a group */
        {"\x09\1\2\3", 4},                                   /* 64 bits, of which 24 are there */
        {"\x2a\2\x08\x80", 4},                               /* a range that ends within a number */
        {"\xfa\xff\xff\xff\xff\x7f\0", 7},                   /* a field's number of more than 29 bits */
    };
    struct read_request read;

    (void)state;
    for (size_t i = 0; i < pst_count_of(wrong); i++)
        assert_int_equal(proto_read_request((struct pst_bytes){wrong[i].text, wrong[i].bytes}, &read),
                         -EINVAL);
}

static void ranges(void **state)
{
    static const struct {
        int64_t min, max;
        uint64_t size;
        int result;
        uint64_t offset, bytes;
    } cases[] = {
        {0, -1, 10, 0, 0, 10},
        {3, -1, 10, 0, 3, 7},
        {3, 5, 10, 0, 3, 2},
        {-4, -1, 10, 0, 6, 4},
        {10, -1, 10, 0, 10, 0},
        {10, 10, 10, 0, 10, 0},
        {0, -1, 0, 0, 0, 0},
        {11, -1, 10, -ERANGE, 0, 0},
        {0, 11, 10, -ERANGE, 0, 0},
        {-11, -1, 10, -ERANGE, 0, 0},
        {5, 4, 10, -ERANGE, 0, 0},
        {0, -2, 10, -ERANGE, 0, 0},
        {-10, -1, 10, 0, 0, 10},
        {INT64_MIN, -1, 10, -ERANGE, 0, 0},
        {0, INT64_MAX, 10, -ERANGE, 0, 0},
    };

    (void)state;
    for (size_t i = 0; i < pst_count_of(cases); i++) {
        const struct read_request request = {.min = cases[i].min, .max = cases[i].max};
        uint64_t offset = 0, bytes = 0;

        assert_int_equal(proto_range(&request, cases[i].size, &offset, &bytes), cases[i].result);
        assert_int_equal(offset, cases[i].offset);
        assert_int_equal(bytes, cases[i].bytes);
    }
}

/* Two messages: key, condition and a part; then another part, with a key that does not count any more. */
static const char written[] = "\0\0\0\0\x0d\x0a\3key\x12\1\2\x1a\3abc"
                              "\0\0\0\0\x08\x0a\1x\x1a\3def";

static void writes_in_pieces(void **state)
{
    (void)state;
    for (size_t portion = 1; portion < sizeof(written); portion++) {
        struct write_reader reader = {0};
        char value[16] = "";
        size_t value_bytes = 0;

        for (size_t at = 0; at < sizeof(written) - 1; at += portion) {
            struct pst_bytes input = {written + at, pst_min(portion, sizeof(written) - 1 - at)}, piece;
            int r;

            while ((r = write_next(&reader, &input, &piece)) > 0) {
                memcpy(value + value_bytes, piece.data, piece.len);
                value_bytes += piece.len;
            }
            assert_int_equal(r, 0);
            assert_int_equal(input.len, 0);
        }
        assert_true(write_whole(&reader));
        assert_bytes((struct pst_bytes){value, value_bytes}, "abcdef");
        assert_bytes((struct pst_bytes){reader.key, reader.key_bytes}, "key");
        assert_int_equal(write_condition(&reader).kind, GENERATION_ABSENT);
    }
}

static int write_all(struct pst_bytes input, bool *whole)
{
    struct write_reader reader = {0};
    struct pst_bytes piece;
    int r;

    do
        r = write_next(&reader, &input, &piece);
    while (r > 0);
    *whole = write_whole(&reader);
    return r;
}

static void wrong_writes(void **state)
{
    bool whole;

    (void)state;
    for (size_t bytes = 0; bytes < sizeof(written) - 1; bytes++) {
        assert_int_equal(write_all((struct pst_bytes){written, bytes}, &whole), 0);
        assert_int_equal(whole, bytes == 18); /* behind the first message alone */
    }
    assert_int_equal(write_all(BYTES("\1\0\0\0\0"), &whole), -EOPNOTSUPP);
    assert_int_equal(write_all(BYTES("\0\0\0\0\2\x1a\1a"), &whole), -EINVAL);        /* beyond its message */
    assert_int_equal(write_all(BYTES("\0\0\0\0\1\x1a\1a"), &whole), -EINVAL);        /* ends within a field */
    assert_int_equal(write_all(BYTES("\0\0\0\0\6\x1a\1a\x1a\1b"), &whole), -EINVAL); /* two parts in one */
    assert_int_equal(write_all(BYTES("\0\0\0\xff\xff\x0a\x81\x20"), &whole), -ENAMETOOLONG); /* 4,097 bytes */
    /* Fields that nobody knows, of every type, are passed over. */
    assert_int_equal(write_all(BYTES("\0\0\0\0\x18\x49"
                                     "12345678"
                                     "\x55"
                                     "1234"
                                     "\x60\xff\1"
                                     "\x6a\0"
                                     "\0a\1k"),
                               &whole),
                     -EINVAL); /* field 0, behind them */
    assert_int_equal(write_all(BYTES("\0\0\0\0\x16\x49"
                                     "12345678"
                                     "\x55"
                                     "1234"
                                     "\x60\xff\1"
                                     "\x6a\0"
                                     "\x0a\1k"),
                               &whole),
                     0);
    assert_true(whole);
    assert_int_equal(write_all(BYTES("\0\0\0\0\1\x0b"), &whole), -EINVAL); /* a group */
    assert_int_equal(write_all(BYTES("\0\0\0\0\x0b\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\1"), &whole),
                     -EINVAL);
    assert_int_equal(write_all(BYTES("\0\0\0\0\0"), &whole), 0); /* no field at all is a message, too */
    assert_true(whole);
}

static void answers(void **state)
{
    static const char read[] =
        "\0\0\0\0\x1b\x12\x12\x0a\x09\0\7\0\0\0\0\0\0\0\x12\5\x08\2\x10\xac\2\x18\2\x22\3";
    uint8_t out[PROTO_ENTRY_BYTES_MAX];

    (void)state;
    assert_int_equal(
        proto_read_head(out, (struct generation){GENERATION_VALUE, 7}, 2000000300, READ_VALUE, 3),
        sizeof(read) - 1);
    assert_memory_equal(out, read, sizeof(read) - 1);
    assert_int_equal(out[4], sizeof(read) - 1 - PROTO_FRAME_BYTES + 3);
    assert_int_equal(proto_part_head(out, 300), 8);
    assert_memory_equal(out, "\0\0\0\1\x2f\x22\xac\2", 8);
    assert_int_equal(proto_written(out, (struct generation){.kind = GENERATION_ABSENT}, 1000000000), 14);
    assert_memory_equal(out, "\0\0\0\0\x09\x12\7\x0a\1\2\x12\2\x08\1", 14);
    assert_int_equal(proto_entry(out, BYTES("ab"), 300), 9);
    assert_memory_equal(out, "\x12\7\x0a\2ab\x10\xac\2", 9);
    assert_int_equal(proto_entry(out, BYTES("ab"), 0), 6);
    assert_memory_equal(out, "\x12\4\x0a\2ab", 6);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(generations),
        cmocka_unit_test(requests),
        cmocka_unit_test(what_is_no_message_is_refused),
        cmocka_unit_test(ranges),
        cmocka_unit_test(writes_in_pieces),
        cmocka_unit_test(wrong_writes),
        cmocka_unit_test(answers),
    };

    return cmocka_run_group_tests_name("proto", tests, NULL, NULL);
}
