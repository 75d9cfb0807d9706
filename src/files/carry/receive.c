/* SPDX-License-Identifier: Apache-2.0 */
/*
 * receive.c: the side to which a tree comes. It takes the manifest, says which files it wants, takes over
 * chunks of older versions, and lets bytes in that are what the sender's digest says.
 */
#include "files/carry/carry_priv.h"

#include <stdio.h>

enum {
    ALIVE_CHUNKS = 64,          /* of an older version between two signs of life */
    LISTS_CHUNKS_MAX = 1 << 24, /* of a file */
};

/* A chunk of a file: of the sender's, or of an older version here. */
struct chunk {
    struct pst_digest digest;
    uint64_t at;
    uint32_t bytes;
};

struct chunks {
    struct chunk *list;
    uint32_t count, room;
    uint64_t bytes;
};

struct receiver {
    struct link *link;
    const struct pst_carry_options *options;
    struct pst_manifest m;
    struct pst_arrival *arrival;
    uint32_t listing; /* the entry whose chunks are being listed; UINT32_MAX: none */
    bool by_content;
    struct chunks listed;
    uint64_t progress;
};

static int receiver_fail(struct receiver *r, int error)
{
    return link_fail(r->link, error, "%s", pst_arrival_fault(r->arrival));
}

static void receiver_progress(struct receiver *r, uint64_t bytes)
{
    r->progress += bytes;
    if (r->options->progress)
        r->options->progress(r->options->ctx, r->progress, r->m.file_bytes);
}

static int chunks_add(struct chunks *chunks, const struct pst_digest *digest, uint32_t bytes)
{
    uint32_t room = chunks->room ? 2 * chunks->room : 256;
    struct chunk *grown;

    if (chunks->count == LISTS_CHUNKS_MAX)
        return -E2BIG;
    if (chunks->count == chunks->room) {
        grown = realloc(chunks->list, room * sizeof(*grown));
        if (!grown)
            return -ENOMEM;
        chunks->list = grown;
        chunks->room = room;
    }
    chunks->list[chunks->count++] = (struct chunk){*digest, chunks->bytes, bytes};
    chunks->bytes += bytes;
    return 0;
}

static void chunks_fini(struct chunks *chunks)
{
    free(chunks->list);
    *chunks = (struct chunks){.list = NULL};
}

/* ---- wants ---- */

static int send_wants(struct receiver *r)
{
    int error = 0;

    for (uint32_t i = 0; error == 0 && i < r->m.count; i++) {
        enum pst_arrival_need need = pst_arrival_need(r->arrival, i);

        if (need == PST_ARRIVAL_HAS) {
            receiver_progress(r, r->m.entries[i].bytes);
            continue;
        }
        if (link_room(r->link) < 5)
            error = link_send(r->link, LINK_WANT);
        if (error < 0)
            break;
        link_put_number(r->link, i, 4);
        link_put_number(r->link, need, 1);
    }
    if (error == 0 && r->link->out_bytes)
        error = link_send(r->link, LINK_WANT);
    return error < 0 ? error : link_send(r->link, LINK_WANT_END);
}

/* ---- older versions ---- */

struct old_reading {
    struct receiver *r;
    struct chunks *old;
};

static int old_chunk(void *ctx, uint64_t at, const uint8_t *data, size_t bytes)
{
    const struct old_reading *reading = ctx;
    struct pst_digest digest;

    pst_assert(at == reading->old->bytes);
    pst_digest_of(reading->r->link->digester, data, bytes, &digest);
    if (reading->old->count % ALIVE_CHUNKS == 0 && link_alive(reading->r->link) < 0)
        return reading->r->link->error;
    return chunks_add(reading->old, &digest, (uint32_t)bytes);
}

static int by_digest(const void *a, const void *b)
{
    return memcmp(((const struct chunk *)a)->digest.bytes, ((const struct chunk *)b)->digest.bytes,
                  PST_DIGEST_BYTES);
}

/* What the older version has, by digest; nothing if it cannot be read. Return: its descriptor. */
static int old_read(struct receiver *r, uint32_t entry, struct chunks *old)
{
    struct old_reading reading = {r, old};
    int fd = pst_arrival_old(r->arrival, entry);
    off_t bytes = fd < 0 ? 0 : lseek(fd, 0, SEEK_END);

    if (bytes > 0 && pst_chunks_of(fd, (uint64_t)bytes, r->by_content, old_chunk, &reading) < 0)
        chunks_fini(old);
    if (old->count)
        qsort(old->list, old->count, sizeof(*old->list), by_digest);
    return fd;
}

/* The chunk of the older version that is the same; NULL: there is none. */
static const struct chunk *old_find(const struct chunks *old, const struct chunk *chunk)
{
    const struct chunk *found =
        old->count ? bsearch(chunk, old->list, old->count, sizeof(*old->list), by_digest) : NULL;

    return found && found->bytes == chunk->bytes ? found : NULL;
}

static uint32_t old_count(const struct receiver *r, const struct chunks *old)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < r->listed.count; i++)
        count += old_find(old, &r->listed.list[i]) != NULL;
    return count;
}

/* Neighbours in both versions. */
struct run {
    uint64_t at, old_at, bytes;
};

static int run_take(struct receiver *r, struct run *run, int old_fd)
{
    int error =
        run->bytes ? pst_arrival_take(r->arrival, r->listing, run->at, old_fd, run->old_at, run->bytes) : 0;

    receiver_progress(r, run->bytes);
    *run = (struct run){0};
    return error;
}

/* Takes over what the older version has of the listed chunks, and sets the bits of the others in @bits. */
static int take_old(struct receiver *r, const struct chunks *old, int old_fd, uint8_t *bits)
{
    struct run run = {0};
    int error = 0;

    for (uint32_t i = 0; error == 0 && i < r->listed.count; i++) {
        const struct chunk *chunk = &r->listed.list[i], *found = old_find(old, chunk);

        if (!found) {
            bits[i / 8] |= (uint8_t)(1u << i % 8);
            continue;
        }
        if (found->at != run.old_at + run.bytes || chunk->at != run.at + run.bytes) {
            error = run_take(r, &run, old_fd);
            run = (struct run){chunk->at, found->at, 0};
        }
        run.bytes += chunk->bytes;
    }
    return error < 0 ? error : run_take(r, &run, old_fd);
}

static void receiver_end_list(struct receiver *r)
{
    chunks_fini(&r->listed);
    r->listing = UINT32_MAX;
}

/* All chunks of a file are listed: answers which of them are needed. If few were found in their places, bytes
 * may have moved: the file is to be listed by content. */
static int send_need(struct receiver *r)
{
    struct chunks old = {.list = NULL};
    size_t bytes = (r->listed.count + 7) / 8;
    pst_cleanup_free uint8_t *bits = calloc(1, bytes + 1);
    pst_cleanup_close int fd = -1;
    int error = 0;

    if (!bits || r->listed.bytes != r->m.entries[r->listing].bytes)
        return link_fail(r->link, bits ? -EPROTO : -ENOMEM,
                         "the sender's chunks are not the file that it listed");
    fd = old_read(r, r->listing, &old);
    link_put_number(r->link, r->listing, 4);
    if (r->by_content || old_count(r, &old) >= r->listed.count / 2) {
        error = take_old(r, &old, fd, bits);
        link_put(r->link, bits, bytes);
    }
    chunks_fini(&old);
    receiver_end_list(r);
    return error < 0 ? receiver_fail(r, error) : link_send(r->link, LINK_NEED);
}

static int take_chunks(struct receiver *r, struct pst_reader *frame)
{
    uint32_t entry = (uint32_t)pst_read_number(frame, 4);
    uint64_t flags = pst_read_number(frame, 1);
    bool by_content = flags & LINK_CHUNKS_BY_CONTENT;

    if (frame->bad || entry >= r->m.count || pst_arrival_need(r->arrival, entry) != PST_ARRIVAL_DELTA ||
        (r->listing != UINT32_MAX && (r->listing != entry || r->by_content != by_content)))
        return link_fail(r->link, -EPROTO, "the sender lists chunks that nobody asked for");
    r->listing = entry;
    r->by_content = by_content;
    while (frame->left) {
        uint32_t bytes = (uint32_t)pst_read_number(frame, 4);
        struct pst_digest digest = {{0}};
        int error;

        pst_read_copy(frame, digest.bytes, sizeof(digest.bytes));
        error = frame->bad || bytes == 0 || bytes > PST_CHUNK_BYTES_MAX
                    ? -EPROTO
                    : chunks_add(&r->listed, &digest, bytes);
        if (error < 0)
            return link_fail(r->link, error, "the sender's list of chunks is none");
    }
    return flags & LINK_CHUNKS_LAST ? send_need(r) : 0;
}

/* ---- data ---- */

static int take_piece(struct receiver *r, struct pst_reader *frame)
{
    uint32_t entry = (uint32_t)pst_read_number(frame, 4);
    uint64_t at = pst_read_number(frame, 8);
    uint32_t bytes = (uint32_t)pst_read_number(frame, 4);
    bool hole = bytes & LINK_HOLE;
    struct pst_digest said = {{0}}, digest;
    const uint8_t *data;
    int error;

    bytes &= ~LINK_HOLE;
    pst_read_copy(frame, said.bytes, sizeof(said.bytes));
    data = hole ? NULL : pst_read_bytes(frame, bytes);
    if (frame->bad || entry >= r->m.count || r->m.entries[entry].kind != PST_ENTRY_FILE ||
        (bytes == 0 && (hole || r->m.entries[entry].bytes)))
        return link_fail(r->link, -EPROTO, "the sender's data is of no file that was listed");
    if (!hole) {
        pst_digest_of(r->link->digester, data, bytes, &digest);
        if (!pst_digest_equal(&said, &digest))
            return link_fail(r->link, -EBADMSG, "bytes of %.150s are not what the sender says",
                             r->m.entries[entry].path);
    }
    error =
        bytes ? pst_arrival_write(r->arrival, entry, at, data, bytes) : pst_arrival_empty(r->arrival, entry);
    receiver_progress(r, bytes);
    return error < 0 ? receiver_fail(r, error) : 0;
}

static int receive_files(struct receiver *r)
{
    struct pst_reader frame;
    enum link_type type;
    int error;

    while ((error = link_receive(r->link, 0, &type, &frame)) == 0 && type != LINK_DONE) {
        if (type == LINK_CHUNKS)
            error = take_chunks(r, &frame);
        else if (type != LINK_DATA)
            error = link_fail(r->link, -EPROTO, "the sender sent a frame of type %u among its files", type);
        while (type == LINK_DATA && error == 0 && frame.left)
            error = take_piece(r, &frame);
        if (error == 0)
            error = link_alive(r->link);
        if (error < 0)
            break;
    }
    return error;
}

/* ---- all of it ---- */

static int send_result(struct receiver *r, const struct pst_arrival_result *result)
{
    link_put_number(r->link, result->files, 8);
    link_put_number(r->link, result->bytes, 8);
    link_put_number(r->link, result->moved, 8);
    link_put_number(r->link, result->matched, 8);
    return link_send(r->link, LINK_RESULT);
}

int carry_receive(struct link *link, const struct pst_carry_place *to,
                  const struct pst_carry_options *options, struct pst_arrival_result *result)
{
    struct receiver r = {.link = link, .options = options, .listing = UINT32_MAX};
    char fault[PST_FAULT_BYTES];
    int error = carry_receive_entries(link, &r.m);

    if (error == 0) {
        error = pst_arrival_open(to->folder_fd, to->leaf, options->force, &r.arrival, fault);
        if (error < 0)
            link_fail(link, error, "%s", fault);
    }
    if (error == 0 && (error = pst_arrival_begin(r.arrival, &r.m)) < 0)
        receiver_fail(&r, error);
    if (error == 0)
        error = send_wants(&r);
    if (error == 0)
        error = receive_files(&r);
    if (error == 0 && (error = pst_arrival_end(r.arrival, result)) < 0)
        receiver_fail(&r, error);
    if (error == 0)
        error = send_result(&r, result);
    pst_arrival_close(r.arrival);
    chunks_fini(&r.listed);
    pst_manifest_fini(&r.m);
    return error;
}
