/* SPDX-License-Identifier: Apache-2.0 */
/*
 * encoding.c: roots and lists as bytes.
 *
 *     root    "PSTTREE" | u8 version | u32 flags | u32 entries | u32 files | u64 bytes of files | u64 bytes
 * of the row | u32 chunks of the row | u32 parts | parts list    entries | u32 holes | {u32 entry, u64 at,
 * u64 bytes} ... | chunks of the row part, chunk    u32 bytes | 32 bytes of SHA-256
 */
#include "files/pooled/pooled.h"

enum {
    VERSION = 1,
    ROOT_BYTES = 44, /* in front of the parts */
    CHUNK_BYTES = 4 + PST_SHA256_BYTES,
    HOLE_BYTES = 20,
};

static const char magic[7] = {'P', 'S', 'T', 'T', 'R', 'E', 'E'};

static uint8_t *put_chunk(uint8_t *at, const struct pst_pooled_chunk *chunk)
{
    pst_assert(chunk->bytes > 0 && chunk->bytes <= PST_CHUNK_BYTES_MAX);
    at = pst_write_number(at, chunk->bytes, 4);
    memcpy(at, chunk->sha256, sizeof(chunk->sha256));
    return at + sizeof(chunk->sha256);
}

static int take_chunks(struct pst_reader *r, uint32_t count, struct pst_pooled_chunks *out)
{
    int error = 0;

    for (uint32_t i = 0; error == 0 && i < count; i++) {
        struct pst_pooled_chunk chunk = {.bytes = (uint32_t)pst_read_number(r, 4)};

        pst_read_copy(r, chunk.sha256, sizeof(chunk.sha256));
        error = r->bad ? -EBADMSG : pst_pooled_chunks_add(out, &chunk);
    }
    return error;
}

/* ---- roots ---- */

int pst_pooled_root_encode(const struct pst_pooled *tree, const struct pst_pooled_chunks *parts,
                           uint8_t **out, size_t *bytes)
{
    size_t room = ROOT_BYTES + (size_t)parts->count * CHUNK_BYTES;
    uint8_t *root = malloc(room), *at = root;

    pst_assert(tree->chunks.count <= PST_POOLED_CHUNKS_MAX);
    if (!root)
        return -ENOMEM;
    memcpy(at, magic, sizeof(magic));
    at = pst_write_number(at + sizeof(magic), VERSION, 1);
    at = pst_write_number(at, 0, 4); /* flags, for what an older reader could not do without */
    at = pst_write_number(at, tree->m.count, 4);
    at = pst_write_number(at, tree->m.file_count, 4);
    at = pst_write_number(at, tree->m.file_bytes, 8);
    at = pst_write_number(at, tree->chunks.bytes, 8);
    at = pst_write_number(at, tree->chunks.count, 4);
    at = pst_write_number(at, parts->count, 4);
    for (uint32_t i = 0; i < parts->count; i++)
        at = put_chunk(at, &parts->list[i]);
    pst_assert(at == root + room);
    *out = root;
    *bytes = room;
    return 0;
}

int pst_pooled_root_decode(const void *data, size_t bytes, struct pst_pooled_root *out)
{
    struct pst_reader r = {data, bytes, false};
    uint8_t said[sizeof(magic)] = {0};
    uint64_t version, flags;
    uint32_t parts;

    pst_read_copy(&r, said, sizeof(said));
    version = pst_read_number(&r, 1);
    flags = pst_read_number(&r, 4);
    if (r.bad || memcmp(said, magic, sizeof(magic)) != 0 || version == 0)
        return -EBADMSG;
    if (version > VERSION || flags != 0)
        return -EPROTONOSUPPORT;
    out->entry_count = (uint32_t)pst_read_number(&r, 4);
    out->file_count = (uint32_t)pst_read_number(&r, 4);
    out->file_bytes = pst_read_number(&r, 8);
    out->data_bytes = pst_read_number(&r, 8);
    out->chunk_count = (uint32_t)pst_read_number(&r, 4);
    parts = (uint32_t)pst_read_number(&r, 4);
    if (r.bad || r.left != (uint64_t)parts * CHUNK_BYTES || out->entry_count == 0 ||
        out->entry_count > PST_MANIFEST_ENTRIES_MAX || out->chunk_count > PST_POOLED_CHUNKS_MAX ||
        out->data_bytes > out->file_bytes)
        return -EBADMSG;
    if (parts > PST_POOLED_LIST_BYTES_MAX / CHUNK_BYTES)
        return -E2BIG;
    return take_chunks(&r, parts, &out->parts);
}

/* ---- lists ---- */

static int encode_entries(const struct pst_manifest *m, pst_pooled_write *write, void *ctx)
{
    uint8_t bytes[PST_ENTRY_WIRE_BYTES_MAX];
    int r = 0;

    for (uint32_t i = 0; r == 0 && i < m->count; i++)
        r = write(ctx, bytes, pst_entry_encode(&m->entries[i], bytes));
    return r;
}

static int encode_holes(const struct pst_pooled *tree, pst_pooled_write *write, void *ctx)
{
    uint8_t bytes[HOLE_BYTES];
    int r = write(ctx, bytes, (size_t)(pst_write_number(bytes, tree->hole_count, 4) - bytes));

    for (uint32_t i = 0; r == 0 && i < tree->hole_count; i++) {
        uint8_t *at = pst_write_number(bytes, tree->holes[i].entry, 4);

        at = pst_write_number(at, tree->holes[i].at, 8);
        at = pst_write_number(at, tree->holes[i].bytes, 8);
        pst_assert(at == bytes + sizeof(bytes));
        r = write(ctx, bytes, sizeof(bytes));
    }
    return r;
}

int pst_pooled_encode(const struct pst_pooled *tree, pst_pooled_write *write, void *ctx)
{
    uint8_t bytes[CHUNK_BYTES];
    int r = encode_entries(&tree->m, write, ctx);

    pst_assert(tree->m.file_bytes - tree->hole_bytes == tree->chunks.bytes);
    if (r == 0)
        r = encode_holes(tree, write, ctx);
    for (uint32_t i = 0; r == 0 && i < tree->chunks.count; i++)
        r = write(ctx, bytes, (size_t)(put_chunk(bytes, &tree->chunks.list[i]) - bytes));
    return r;
}

static int decode_entries(struct pst_reader *r, uint32_t count, struct pst_manifest *m)
{
    struct pst_entry_texts texts;
    struct pst_entry entry;
    int error = 0;

    for (uint32_t i = 0; error == 0 && i < count; i++) {
        pst_entry_decode(r, &texts, &entry);
        error = r->bad ? -EBADMSG : pst_manifest_add(m, &entry);
    }
    return error == -EINVAL ? -EBADMSG : error;
}

static int decode_holes(struct pst_reader *r, struct pst_pooled *tree)
{
    uint32_t count = (uint32_t)pst_read_number(r, 4);
    int error = r->bad ? -EBADMSG : 0;

    for (uint32_t i = 0; error == 0 && i < count; i++) {
        struct pst_pooled_hole hole = {.entry = (uint32_t)pst_read_number(r, 4)};

        hole.at = pst_read_number(r, 8);
        hole.bytes = pst_read_number(r, 8);
        error = r->bad ? -EBADMSG : pst_pooled_hole_add(tree, &hole);
    }
    return error;
}

int pst_pooled_decode(const struct pst_pooled_root *root, const void *list, size_t bytes,
                      struct pst_pooled *out)
{
    struct pst_reader r = {list, bytes, false};
    int error = decode_entries(&r, root->entry_count, &out->m);

    if (error == 0)
        error = decode_holes(&r, out);
    if (error == 0)
        error = take_chunks(&r, root->chunk_count, &out->chunks);
    if (error < 0)
        return error;
    if (r.left || out->m.file_count != root->file_count || out->m.file_bytes != root->file_bytes ||
        out->chunks.bytes != root->data_bytes || out->m.file_bytes - out->hole_bytes != out->chunks.bytes)
        return -EBADMSG;
    return 0;
}
