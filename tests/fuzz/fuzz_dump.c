/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_dump.c: streams of dumped values. Read in portions they say the same as read whole; what was written
 * is read; and a stream with a changed byte is refused.
 */
#include "fuzz.h"

#include "wire/dump.h"

enum { STREAM_BYTES_MAX = 64 << 10, RECORDS_MAX = 12 };

static uint8_t stream[STREAM_BYTES_MAX + PST_DUMP_NAMES_BYTES_MAX];
static size_t stream_bytes;

/* What a reading came to. */
struct outcome {
    int result; /* PST_DUMP_END, or -errno */
    uint64_t records, whole, value_bytes;
    uint32_t sum; /* of all that was told */
};

static void tell(struct outcome *out, const void *data, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        out->sum = out->sum * 31 + ((const uint8_t *)data)[i];
}

/* @portion: bytes at a time, each in memory of just their size; 0: all at once. */
static struct outcome read_stream(const uint8_t *data, size_t bytes, size_t portion)
{
    struct pst_dump_reader *r = calloc(1, sizeof(*r));
    struct outcome out = {.result = PST_DUMP_MORE};
    size_t step = portion ? portion : pst_max(bytes, 1);

    pst_assert(r);
    for (size_t at = 0; at < bytes && out.result >= 0 && out.result != PST_DUMP_END; at += step) {
        size_t count = pst_min(step, bytes - at);
        uint8_t *copy = malloc(count);
        struct pst_bytes input = {copy, count}, piece = {NULL, 0};

        pst_assert(copy);
        memcpy(copy, data + at, count);
        do {
            out.result = pst_dump_next(r, &input, &piece);
            pst_assert(input.len <= count);
            if (out.result == PST_DUMP_RECORD) {
                tell(&out, r->record.key.data, r->record.key.len);
                tell(&out, r->record.attrs.data, r->record.attrs.len);
                pst_assert(r->record.key.len <= PST_DUMP_KEY_BYTES_MAX && pst_dump_underway(r) == &r->record);
            }
            if (out.result == PST_DUMP_PIECE) {
                tell(&out, piece.data, piece.len);
                out.value_bytes += piece.len;
            }
        } while (out.result > PST_DUMP_MORE && out.result != PST_DUMP_END);
        free(copy);
    }
    if (out.result >= 0 && out.result != PST_DUMP_END)
        out.result = pst_dump_finish(r);
    pst_assert(out.result >= 0 || r->fault);
    out.records = r->records;
    out.whole = r->whole;
    free(r);
    return out;
}

static void same(const struct outcome *a, const struct outcome *b)
{
    pst_assert(a->result == b->result && a->records == b->records && a->whole == b->whole);
    pst_assert(a->value_bytes == b->value_bytes && a->sum == b->sum);
}

static void add_record(struct fuzz *in, struct pst_dump_writer *w)
{
    static uint8_t names[300], value[4096];
    struct pst_dump_record record = {.key = {names, fuzz_below(in, 40) + 1},
                                     .attrs = {names, fuzz_below(in, 200)},
                                     .value_bytes = fuzz_below(in, 700),
                                     .depth = (uint16_t)fuzz_number(in, 1)};
    bool whole = fuzz_number(in, 1) & 1;
    uint64_t left = record.value_bytes;

    stream_bytes += pst_dump_put_record(w, &record, stream + stream_bytes);
    while (left > 0) {
        struct pst_bytes piece = {value, pst_min(left, fuzz_below(in, 300) + 1)};

        stream_bytes += pst_dump_put_piece(w, piece, stream + stream_bytes);
        memcpy(stream + stream_bytes, piece.data, piece.len);
        stream_bytes += piece.len;
        left -= piece.len;
        if (!whole && fuzz_number(in, 1) & 1)
            break;
    }
    stream_bytes += pst_dump_put_done(w, whole || left == 0, stream + stream_bytes);
}

static void written(struct fuzz *in)
{
    struct pst_dump_writer w = {.offset = 0};
    uint32_t count = fuzz_below(in, RECORDS_MAX), at;
    struct outcome whole, portions;
    uint8_t change;

    stream_bytes = pst_dump_put_head(&w, stream);
    for (uint32_t i = 0; i < count; i++)
        add_record(in, &w);
    stream_bytes += pst_dump_put_end(&w, stream + stream_bytes);
    whole = read_stream(stream, stream_bytes, 0);
    portions = read_stream(stream, stream_bytes, fuzz_below(in, 300) + 1);
    same(&whole, &portions);
    pst_assert(whole.result == PST_DUMP_END && whole.records == count);
    at = fuzz_below(in, (uint32_t)stream_bytes);
    change = (uint8_t)fuzz_number(in, 1);
    stream[at] ^= change;
    whole = read_stream(stream, stream_bytes, 0);
    pst_assert(change == 0 || whole.result < 0);
    stream[at] ^= change;
    whole = read_stream(stream, at, 0);
    pst_assert(whole.result < 0); /* cut off */
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct fuzz in = {data, bytes};
    struct outcome whole, portions;

    if (fuzz_number(&in, 1) & 1) {
        written(&in);
        return 0;
    }
    whole = read_stream(in.at, in.left, 0);
    portions = read_stream(in.at, in.left, 1);
    same(&whole, &portions);
    return 0;
}
