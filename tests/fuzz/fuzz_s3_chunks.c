/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_s3_chunks.c: bodies in chunks, and documents. However a body is cut into pieces the same comes of it,
 * and no more bytes than went in.
 */
#include "fuzz.h"

#include "base/hash.h"
#include "gateway/s3/wire/chunks_priv.h"
#include "gateway/s3/wire/xml_priv.h"

struct decoded {
    uint32_t digest; /* of data, signatures and trailers */
    size_t data_bytes, used;
    enum s3_chunk_event last;
};

static void add(struct decoded *d, const void *data, size_t bytes)
{
    d->digest = pst_crc32c(d->digest, data, bytes);
}

static bool took(struct decoded *d, struct s3_chunks *chunks, enum s3_chunk_event event,
                 struct pst_bytes piece)
{
    switch (event) {
    case S3_CHUNK_PIECE:
        pst_assert(piece.len > 0);
        add(d, piece.data, piece.len);
        d->data_bytes += piece.len;
        return true;
    case S3_CHUNK_DONE:
        add(d, s3_chunk_signature(chunks).data, s3_chunk_signature(chunks).len);
        return true;
    case S3_CHUNK_TRAILER:
        add(d, s3_chunk_line(chunks).data, s3_chunk_line(chunks).len);
        return true;
    case S3_CHUNK_MORE:
        return true;
    default:
        return false;
    }
}

/* @portion: bytes that come at a time. */
static struct decoded decode(const uint8_t *data, size_t bytes, size_t portion)
{
    struct s3_chunks chunks = {.is_aws = bytes % 2 > 0};
    struct decoded d = {.last = S3_CHUNK_MORE};
    bool more = true;

    while (more && d.used < bytes) {
        struct pst_bytes input = {data + d.used, pst_min(portion, bytes - d.used)}, piece = {NULL, 0};
        size_t had = input.len;

        d.last = s3_chunk_next(&chunks, &input, &piece);
        pst_assert(input.len <= had && (d.last != S3_CHUNK_MORE || input.len == 0));
        d.used += had - input.len;
        more = took(&d, &chunks, d.last, piece);
    }
    pst_assert(d.data_bytes <= d.used);
    return d;
}

static bool item_came(void *ctx, const struct pst_bytes leaves[S3_XML_LEAVES_MAX])
{
    uint32_t *count = ctx;

    for (int i = 0; i < S3_XML_LEAVES_MAX; i++)
        pst_assert(leaves[i].len <= S3_XML_LEAVES_MAX * S3_XML_LEAF_BYTES_MAX);
    ++*count;
    return true;
}

static void read_document(const uint8_t *data, size_t bytes)
{
    static const struct s3_xml_form form = {
        .root = "D", .item = "O", .leaves = {"K", "E"}, .flag = "Q", .items_max = 10, .item_came = item_came};
    uint32_t count = 0;
    bool flag;

    s3_xml_read((struct pst_bytes){data, bytes}, &form, &count, &flag);
    pst_assert(count <= 10);
}

static void write_document(const uint8_t *data, size_t bytes)
{
    struct s3_xml xml = {.text = NULL};

    s3_xml_leaf(&xml, "K", (struct pst_bytes){data, bytes});
    pst_assert(!xml.failed && xml.bytes >= 7);
    read_document((const uint8_t *)xml.text, xml.bytes);
    s3_xml_free(&xml);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct fuzz in = {data, bytes};
    size_t portion = fuzz_below(&in, 64) + 1, text_bytes;
    uint8_t *text = fuzz_take(&in, 64 << 10, &text_bytes);
    struct decoded whole = decode(text, text_bytes, text_bytes + 1),
                   parts = decode(text, text_bytes, portion);

    pst_assert(whole.last == S3_CHUNK_BROKEN || whole.digest == parts.digest);
    pst_assert((whole.last == S3_CHUNK_BROKEN) == (parts.last == S3_CHUNK_BROKEN));
    pst_assert((whole.last == S3_CHUNK_END) == (parts.last == S3_CHUNK_END));
    read_document(text, text_bytes);
    write_document(text, text_bytes);
    free(text);
    return 0;
}
