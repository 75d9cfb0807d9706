/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/cm.h"

#include "base/base.h"
#include "wire/dump.h"

#include <stdio.h>
#include <string.h>

enum { STREAM_BYTES_MAX = 64 << 10 };

static uint8_t stream[STREAM_BYTES_MAX];
static size_t stream_bytes;
static struct pst_dump_writer writer;

static const struct {
    const char *key, *attrs;
    size_t value_bytes;
    bool whole;
} records[] = {
    {"a", "", 0, true},
    {"changed meanwhile", "x", 700, false},
    {"changed meanwhile", "x", 900, true},
    {"key/with/attributes", "some attributes", 5000, true},
    {"last", "", 1, true},
};
enum { WHOLE = 4, PIECE = 1024 };

static uint8_t value_byte(size_t record, size_t at)
{
    return (uint8_t)(record * 31 + at * 7 + at / 256);
}

static void append(const void *data, size_t len)
{
    assert_true(stream_bytes + len <= sizeof(stream));
    memcpy(stream + stream_bytes, data, len);
    stream_bytes += len;
}

static void write_record(size_t number)
{
    uint8_t names[PST_DUMP_NAMES_BYTES_MAX], element[PST_DUMP_SMALL_BYTES_MAX], value[5000];
    const struct pst_dump_record record = {.key = {records[number].key, strlen(records[number].key)},
                                           .attrs = {records[number].attrs, strlen(records[number].attrs)},
                                           .value_bytes = records[number].value_bytes,
                                           .depth = (uint16_t)(number + 7)};
    size_t until = records[number].whole ? records[number].value_bytes : records[number].value_bytes / 2;

    append(names, pst_dump_put_record(&writer, &record, names));
    for (size_t at = 0, len; at < until; at += len) {
        len = pst_min(until - at, PIECE);
        for (size_t i = 0; i < len; i++)
            value[i] = value_byte(number, at + i);
        append(element, pst_dump_put_piece(&writer, (struct pst_bytes){value, len}, element));
        append(value, len);
    }
    append(element, pst_dump_put_done(&writer, records[number].whole, element));
}

static int write_stream(void **state)
{
    uint8_t element[PST_DUMP_SMALL_BYTES_MAX];

    (void)state;
    stream_bytes = 0;
    writer = (struct pst_dump_writer){0};
    append(element, pst_dump_put_head(&writer, element));
    for (size_t i = 0; i < pst_count_of(records); i++)
        write_record(i);
    append(element, pst_dump_put_end(&writer, element));
    return 0;
}

/* What a reader makes of a stream. */
struct outcome {
    int fault;
    size_t done, ends;
    bool wrong;        /* something that was not written was told as whole */
    char underway[64]; /* key of the record that was not read to its end */
    struct pst_dump_reader reader;
};

static void check_record(struct outcome *o, const uint8_t *value, size_t value_bytes)
{
    const struct pst_dump_record *record = &o->reader.record;

    for (size_t i = 0; i < pst_count_of(records); i++) {
        size_t at = 0;

        if (!records[i].whole || record->key.len != strlen(records[i].key) ||
            memcmp(record->key.data, records[i].key, record->key.len) != 0)
            continue;
        while (at < value_bytes && value[at] == value_byte(i, at))
            at++;
        o->wrong |= value_bytes != records[i].value_bytes || at < value_bytes || record->depth != i + 7 ||
                    record->attrs.len != strlen(records[i].attrs) ||
                    memcmp(record->attrs.data, records[i].attrs, record->attrs.len) != 0;
        return;
    }
    o->wrong = true;
}

/* Reads @len bytes in portions of @portion, each in memory of its own that ends with it. */
static struct outcome read_stream(const uint8_t *from, size_t len, size_t portion)
{
    struct outcome o = {0};
    static uint8_t value[8192];
    const struct pst_dump_record *left;
    size_t value_bytes = 0;

    for (size_t at = 0; at < len && o.fault >= 0; at += portion) {
        size_t bytes = pst_min(portion, len - at);
        uint8_t *copy = malloc(bytes);
        struct pst_bytes input = {copy, bytes}, piece;

        assert_non_null(copy);
        memcpy(copy, from + at, bytes);
        while (input.len && o.fault >= 0) {
            o.fault = pst_dump_next(&o.reader, &input, &piece);
            if (o.fault == PST_DUMP_RECORD)
                value_bytes = 0;
            if (o.fault == PST_DUMP_PIECE && value_bytes + piece.len <= sizeof(value)) {
                memcpy(value + value_bytes, piece.data, piece.len);
                value_bytes += piece.len;
            }
            if (o.fault == PST_DUMP_DONE) {
                o.done++;
                check_record(&o, value, value_bytes);
            }
            o.ends += o.fault == PST_DUMP_END;
        }
        free(copy);
    }
    if (o.fault >= 0)
        o.fault = pst_dump_finish(&o.reader);
    /* It lies in the reader, which the caller gets a copy of. */
    left = pst_dump_underway(&o.reader);
    if (left)
        snprintf(o.underway, sizeof(o.underway), "%.*s", (int)left->key.len, (const char *)left->key.data);
    return o;
}

static void what_was_written_is_read(void **state)
{
    static const size_t portions[] = {1, 2, 7, 16, 100, 1000, STREAM_BYTES_MAX};

    (void)state;
    for (size_t i = 0; i < pst_count_of(portions); i++) {
        struct outcome o = read_stream(stream, stream_bytes, portions[i]);

        assert_int_equal(o.fault, 0);
        assert_int_equal(o.done, WHOLE);
        assert_int_equal(o.ends, 1);
        assert_false(o.wrong);
        assert_int_equal(o.reader.offset, stream_bytes);
        assert_int_equal(o.reader.whole, WHOLE);
    }
}

static void an_empty_store_is_a_stream(void **state)
{
    uint8_t element[PST_DUMP_SMALL_BYTES_MAX];
    struct outcome o;

    (void)state;
    stream_bytes = 0;
    writer = (struct pst_dump_writer){0};
    append(element, pst_dump_put_head(&writer, element));
    append(element, pst_dump_put_end(&writer, element));
    o = read_stream(stream, stream_bytes, 5);
    assert_int_equal(o.fault, 0);
    assert_int_equal(o.done, 0);
    assert_int_equal(o.ends, 1);
}

/* A value that went while it was dumped: its record is void, and the stream ends behind it. */
static void a_void_record_may_be_the_last(void **state)
{
    const struct pst_dump_record record = {.key = pst_bytes_of("gone"), .value_bytes = 10};
    uint8_t names[PST_DUMP_NAMES_BYTES_MAX], element[PST_DUMP_SMALL_BYTES_MAX];
    struct outcome o;

    (void)state;
    stream_bytes = 0;
    writer = (struct pst_dump_writer){0};
    append(element, pst_dump_put_head(&writer, element));
    append(names, pst_dump_put_record(&writer, &record, names));
    append(element, pst_dump_put_done(&writer, false, element));
    append(element, pst_dump_put_end(&writer, element));
    o = read_stream(stream, stream_bytes, 5);
    assert_int_equal(o.fault, 0);
    assert_int_equal(o.done, 0);
    assert_int_equal(o.ends, 1);
    assert_int_equal(o.reader.whole, 0);
}

static void every_cut_is_found(void **state)
{
    (void)state;
    for (size_t len = 0; len < stream_bytes; len++) {
        struct outcome o = read_stream(stream, len, 512);

        assert_int_equal(o.fault, -EBADMSG);
        assert_false(o.wrong);
        assert_int_equal(o.ends, 0);
        assert_string_equal(o.reader.fault, "the stream ends too early");
    }
}

static void every_flipped_bit_is_found(void **state)
{
    (void)state;
    for (size_t at = 0; at < stream_bytes; at++) {
        for (int bit = 0; bit < 8; bit++) {
            struct outcome o;

            stream[at] ^= (uint8_t)(1 << bit);
            o = read_stream(stream, stream_bytes, 512);
            stream[at] ^= (uint8_t)(1 << bit);
            assert_int_equal(o.fault, -EBADMSG);
            assert_false(o.wrong);
            assert_int_equal(o.ends, 0);
            assert_non_null(o.reader.fault);
        }
    }
}

static void the_faulty_record_is_named(void **state)
{
    const char *value = memchr(stream, records[3].key[0], stream_bytes);
    struct outcome o;

    (void)state;
    while (value && memcmp(value, records[3].key, strlen(records[3].key)) != 0)
        value = memchr(value + 1, 'k', (size_t)((char *)stream + stream_bytes - value - 1));
    assert_non_null(value);
    stream[(uint8_t *)value - stream + 200] ^= 1;
    o = read_stream(stream, stream_bytes, 100);
    assert_int_equal(o.fault, -EBADMSG);
    assert_int_equal(o.done, 2);
    assert_int_equal(o.reader.records, 4);
    assert_string_equal(o.underway, records[3].key);
    assert_true(o.reader.offset < stream_bytes);
}

static void something_behind_the_end_is_found(void **state)
{
    struct outcome o;

    (void)state;
    append("", 1);
    o = read_stream(stream, stream_bytes, 4096);
    assert_int_equal(o.fault, -EBADMSG);
    assert_int_equal(o.done, WHOLE);
}

/* A head of a later version, with the checksum that belongs to it. */
static void a_newer_version_is_refused(void **state)
{
    static const uint8_t newer[] = {'P', 'S', 'T', 'D', 'U', 'M', 'P', '\n', 2, 0, 0, 0};
    uint8_t head[16];
    struct outcome o;
    uint32_t crc = 0;

    (void)state;
    memcpy(head, newer, sizeof(newer));
    /* crc32c, bit by bit: independent of the code under test */
    crc = ~crc;
    for (size_t i = 0; i < sizeof(newer); i++) {
        crc ^= newer[i];
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78u : 0);
    }
    crc = ~crc;
    memcpy(head + 12, &crc, sizeof(crc));
    o = read_stream(head, sizeof(head), 16);
    assert_int_equal(o.fault, -EPROTONOSUPPORT);
    assert_int_equal(o.reader.version, 2);
    head[8] = 3;
    assert_int_equal(read_stream(head, sizeof(head), 16).fault, -EBADMSG);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(what_was_written_is_read, write_stream),
        cmocka_unit_test_setup(an_empty_store_is_a_stream, write_stream),
        cmocka_unit_test_setup(a_void_record_may_be_the_last, write_stream),
        cmocka_unit_test_setup(every_cut_is_found, write_stream),
        cmocka_unit_test_setup(every_flipped_bit_is_found, write_stream),
        cmocka_unit_test_setup(the_faulty_record_is_named, write_stream),
        cmocka_unit_test_setup(something_behind_the_end_is_found, write_stream),
        cmocka_unit_test_setup(a_newer_version_is_refused, write_stream),
    };

    return cmocka_run_group_tests_name("dump", tests, NULL, NULL);
}
