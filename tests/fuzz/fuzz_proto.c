/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_proto.c: the requests of tsgrpc_kvstore. Read in portions a Write says the same as read whole, and
 * nothing that a request names lies outside of it; what is answered fits where it is put.
 */
#include "fuzz.h"

#include "gateway/tsgrpc/proto_priv.h"

/* What a reading came to. */
struct outcome {
    int result;
    bool whole;
    uint64_t value_bytes;
    uint32_t sum;
    struct write_reader reader;
};

static void tell(struct outcome *out, struct pst_bytes piece)
{
    for (size_t i = 0; i < piece.len; i++)
        out->sum = out->sum * 31 + ((const uint8_t *)piece.data)[i];
    out->value_bytes += piece.len;
}

/* @portion: bytes at a time, each in memory of just their size. */
static void read_write(const uint8_t *data, size_t bytes, size_t portion, struct outcome *out)
{
    *out = (struct outcome){0};
    for (size_t at = 0; at < bytes && out->result >= 0; at += portion) {
        size_t count = pst_min(portion, bytes - at);
        uint8_t *copy = malloc(count);
        struct pst_bytes input = {copy, count}, piece;

        pst_assert(copy);
        memcpy(copy, data + at, count);
        while ((out->result = write_next(&out->reader, &input, &piece)) > 0) {
            pst_assert(piece.len && (const uint8_t *)piece.data >= copy &&
                       (const uint8_t *)piece.data + piece.len <= copy + count);
            tell(out, piece);
        }
        pst_assert(out->result < 0 || input.len == 0);
        free(copy);
    }
    pst_assert(out->reader.key_bytes <= sizeof(out->reader.key));
    out->whole = out->result == 0 && write_whole(&out->reader);
}

static void writes(struct fuzz *in)
{
    struct outcome whole, portions;
    size_t portion = fuzz_below(in, 300) + 1;

    read_write(in->at, in->left, pst_max(in->left, 1), &whole);
    read_write(in->at, in->left, portion, &portions);
    pst_assert(whole.result == portions.result && whole.whole == portions.whole);
    pst_assert(whole.value_bytes == portions.value_bytes && whole.sum == portions.sum);
    pst_assert(whole.value_bytes <= in->left);
    if (whole.whole)
        pst_assert(write_condition(&whole.reader).kind == write_condition(&portions.reader).kind &&
                   whole.reader.key_bytes == portions.reader.key_bytes);
}

static void within(struct pst_bytes part, struct pst_bytes message)
{
    const uint8_t *at = part.data, *begin = message.data;

    pst_assert(part.len == 0 || (at >= begin && at + part.len <= begin + message.len));
}

static void reads(struct pst_bytes message)
{
    struct read_request request;
    uint64_t offset, bytes;

    if (proto_read_request(message, &request) < 0)
        return;
    within(request.key, message);
    for (uint64_t size = 0; size < 1ull << 40; size = size * 7 + 1) {
        if (proto_range(&request, size, &offset, &bytes) == 0)
            pst_assert(offset <= size && bytes <= size - offset);
    }
}

static void others(struct pst_bytes message)
{
    struct delete_request delete;
    struct list_request list;

    if (proto_delete_request(message, &delete) == 0) {
        within(delete.key, message);
        within(delete.start, message);
        within(delete.end, message);
    }
    if (proto_list_request(message, &list) == 0) {
        within(list.start, message);
        within(list.end, message);
    }
}

/* What a client is answered, whatever the numbers. */
static void answers(struct fuzz *in)
{
    struct generation generation = {GENERATION_VALUE, fuzz_number(in, 8) | 1};
    uint64_t wall_ns = fuzz_number(in, 8), value_bytes = fuzz_number(in, 8);
    uint32_t part_bytes = (uint32_t)fuzz_number(in, 4) & 0xffffff;
    uint8_t *head = malloc(PROTO_HEAD_BYTES_MAX), *entry = malloc(PROTO_ENTRY_BYTES_MAX);
    size_t key_bytes, bytes;
    uint8_t *key = fuzz_take(in, PST_KEY_BYTES_MAX, &key_bytes);
    struct read_request back;

    pst_assert(head && entry);
    bytes = proto_read_head(head, generation, wall_ns, READ_VALUE, part_bytes);
    pst_assert(bytes <= PROTO_HEAD_BYTES_MAX);
    bytes = proto_written(head, generation, wall_ns);
    pst_assert(bytes <= PROTO_HEAD_BYTES_MAX);
    pst_assert(proto_read_request((struct pst_bytes){head + PROTO_FRAME_BYTES, bytes - PROTO_FRAME_BYTES},
                                  &back) == 0);
    bytes = proto_entry(entry, (struct pst_bytes){key, key_bytes}, value_bytes);
    pst_assert(bytes <= PROTO_ENTRY_BYTES_MAX);
    pst_assert(proto_list_request((struct pst_bytes){entry, bytes}, &(struct list_request){0}) == 0);
    free(head);
    free(entry);
    free(key);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct fuzz in = {data, bytes};
    uint64_t what = fuzz_number(&in, 1) % 4;
    size_t message_bytes;
    uint8_t *message;

    if (what == 0) {
        writes(&in);
        return 0;
    }
    if (what == 1) {
        answers(&in);
        return 0;
    }
    message = fuzz_take(&in, bytes, &message_bytes);
    if (what == 2)
        reads((struct pst_bytes){message, message_bytes});
    else
        others((struct pst_bytes){message, message_bytes});
    free(message);
    return 0;
}
