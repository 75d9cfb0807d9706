/* SPDX-License-Identifier: Apache-2.0 */
/*
 * get.c: a tree out of the store. Its files' pieces are planned in their order, until they need as many
 * chunks as a batch has; then the chunks are fetched, and the pieces written. Of files that are there in an
 * older version, chunks that are the same are taken over before.
 */
#include "cli/pooled/trees_priv.h"

#include "files/tree/wanted.h"

enum {
    PIECES = 1 << 16,
    DELTAS_AHEAD = PST_ARRIVAL_OPEN_MAX / 2, /* files that may be begun before their batch is fetched */
    GONE_TRIES = 4,
};

/* A piece of a file, and where its bytes will be; @data NULL: it is a hole. */
struct get_piece {
    uint32_t entry, slot;
    uint64_t at, bytes;
    const uint8_t *data;
};

struct get {
    struct trees *trees;
    struct pst_pooled tree;
    uint64_t generation; /* of its root */
    struct pst_arrival *arrival;
    struct get_piece *pieces; /* PIECES */
    struct trees_slot *slots; /* TREES_BATCH_CHUNKS */
    uint8_t *buffer;          /* TREES_BATCH_BYTES */
    uint32_t piece_count, slot_count, deltas;
    size_t buffer_bytes;
    /* The file whose older versions were looked at. */
    struct pst_wanted wanted;
    uint32_t wanted_entry, wanted_chunk; /* and the first of its chunks */
    int take_error;                      /* of what was taken over */
    uint64_t progress;
};

static int get_fail(struct get *get, int error)
{
    return trees_fail(get->trees, error, "%s", pst_arrival_fault(get->arrival));
}

static void get_progress(struct get *get, uint64_t bytes)
{
    get->progress += bytes;
    if (get->trees->bar)
        pst_progress_show(get->trees->bar, get->progress);
}

/* ---- a batch ---- */

/* The fault of a chunk, with the first file that wants it. */
static int get_fail_chunk(struct get *get, int error, uint32_t slot)
{
    char text[PST_FAULT_BYTES];
    const char *path;
    uint32_t i = 0;

    while (i + 1 < get->piece_count && (!get->pieces[i].data || get->pieces[i].slot != slot))
        i++;
    memcpy(text, get->trees->fault, sizeof(text));
    path = get->tree.m.entries[get->pieces[i].entry].path;
    return trees_fail(get->trees, error, "%.90s: %.160s", *path ? path : get->trees->name, text);
}

static int get_flush(struct get *get)
{
    uint32_t failed;
    int r = trees_fetch(get->trees, get->slots, get->slot_count, &failed);

    if (r < 0)
        return get->slot_count ? get_fail_chunk(get, r, failed) : r;
    for (uint32_t i = 0; r == 0 && i < get->piece_count; i++) {
        const struct get_piece *piece = &get->pieces[i];

        r = pst_arrival_write(get->arrival, piece->entry, piece->at, piece->data, piece->bytes);
        if (r < 0)
            return get_fail(get, r);
        get_progress(get, piece->bytes);
    }
    get->piece_count = get->slot_count = get->deltas = 0;
    get->buffer_bytes = 0;
    return r;
}

/* The slot of a chunk. Those that follow each other and are the same have one. */
static uint32_t get_slot(struct get *get, const struct pst_pooled_chunk *chunk)
{
    struct trees_slot *slot = &get->slots[get->slot_count];

    if (get->slot_count && memcmp(slot[-1].chunk->sha256, chunk->sha256, sizeof(chunk->sha256)) == 0 &&
        slot[-1].chunk->bytes == chunk->bytes)
        return get->slot_count - 1;
    *slot = (struct trees_slot){chunk, get->buffer + get->buffer_bytes};
    get->buffer_bytes += chunk->bytes;
    pst_assert(get->buffer_bytes <= TREES_BATCH_BYTES);
    return get->slot_count++;
}

static bool get_is_full(const struct get *get)
{
    return get->piece_count == PIECES || get->slot_count == TREES_BATCH_CHUNKS ||
           get->buffer_bytes + PST_CHUNK_BYTES_MAX > TREES_BATCH_BYTES;
}

static int get_plan(struct get *get, const struct pst_pooled_piece *piece)
{
    struct get_piece *planned;
    int r = get_is_full(get) ? get_flush(get) : 0;

    if (r < 0)
        return r;
    planned = &get->pieces[get->piece_count++];
    *planned = (struct get_piece){.entry = piece->entry, .at = piece->at, .bytes = piece->bytes};
    if (piece->chunk != PST_POOLED_HOLE) {
        planned->slot = get_slot(get, &get->tree.chunks.list[piece->chunk]);
        planned->data = get->slots[planned->slot].data + piece->chunk_offset;
    }
    return 0;
}

/* ---- older versions ---- */

/* A chunk of an older version, borrowed. */
struct old_chunk {
    struct get *get;
    const uint8_t *data;
    uint32_t bytes;
    uint8_t sha256[PST_SHA256_BYTES];
};

/* wanted.h compares a part of the digest: this compares all of it. */
static int old_chunk_take(void *ctx, uint64_t at)
{
    const struct old_chunk *chunk = ctx;
    struct get *get = chunk->get;
    uint32_t low = 0, high = get->wanted.count;
    int r;

    while (high - low > 1) { /* which of the file's chunks begins there */
        uint32_t middle = low + (high - low) / 2;

        *(get->wanted.chunks[middle].at <= at ? &low : &high) = middle;
    }
    if (memcmp(get->tree.chunks.list[get->wanted_chunk + low].sha256, chunk->sha256, sizeof(chunk->sha256)) !=
        0)
        return get->take_error =
                   trees_fail(get->trees, -EBADMSG, "two chunks share the first half of a digest");
    r = pst_arrival_take(get->arrival, get->wanted_entry, at, chunk->data, chunk->bytes);
    if (r < 0)
        return get->take_error = get_fail(get, r);
    get_progress(get, chunk->bytes);
    return 0;
}

static void digest_of_sha256(const uint8_t sha256[PST_SHA256_BYTES], struct pst_digest *out)
{
    memcpy(out->bytes, sha256, sizeof(out->bytes));
}

static int old_chunk_look(void *ctx, uint64_t at, const uint8_t *data, size_t bytes)
{
    struct old_chunk chunk = {.get = ctx, .data = data, .bytes = (uint32_t)bytes};
    struct pst_digest digest;
    int r;

    (void)at;
    pst_sha256(data, bytes, chunk.sha256);
    digest_of_sha256(chunk.sha256, &digest);
    r = pst_wanted_take(&chunk.get->wanted, &digest, chunk.bytes, old_chunk_take, &chunk);
    return r < 0 ? r : chunk.get->wanted.taken == chunk.get->wanted.count; /* nothing is wanted any more */
}

/* Lists the chunks of the file that @walk, borrowed, has come to. Return: 0; -EPROTO it shares chunks with
 * others, or has holes; -ENOMEM. */
static int old_list(struct get *get, const struct pst_pooled_walk *walk, const struct pst_pooled_piece *first)
{
    const struct pst_entry *entry = &get->tree.m.entries[first->entry];
    struct pst_pooled_piece piece = *first;
    struct pst_pooled_walk ahead = *walk;
    bool more = true;
    int r = 0;

    get->wanted_entry = first->entry;
    get->wanted_chunk = first->chunk;
    for (; r == 0 && more && piece.entry == first->entry; more = pst_pooled_walk_next(&ahead, &piece)) {
        const struct pst_pooled_chunk *chunk;
        struct pst_digest digest;

        if (piece.chunk == PST_POOLED_HOLE || piece.bytes != get->tree.chunks.list[piece.chunk].bytes)
            return -EPROTO;
        chunk = &get->tree.chunks.list[piece.chunk];
        digest_of_sha256(chunk->sha256, &digest);
        r = pst_wanted_add(&get->wanted, &digest, chunk->bytes, entry->bytes);
    }
    return r < 0 ? r : pst_wanted_sort(&get->wanted);
}

/* Takes over what older versions of a file have, as it begins. */
static int get_take_over(struct get *get, const struct pst_pooled_walk *walk,
                         const struct pst_pooled_piece *first)
{
    int r = get->deltas == DELTAS_AHEAD ? get_flush(get) : 0;

    pst_wanted_fini(&get->wanted);
    if (r < 0)
        return r;
    r = old_list(get, walk, first);
    if (r == -EPROTO) {
        pst_wanted_fini(&get->wanted);
        return 0;
    }
    if (r < 0)
        return trees_fail(get->trees, r, "out of memory");
    get->deltas++;
    for (int which = 0; r == 0 && which < PST_ARRIVAL_OLDER && get->wanted.taken < get->wanted.count;
         which++) {
        uint64_t bytes = 0;
        pst_cleanup_close int fd =
            pst_arrival_open_old(get->arrival, get->wanted_entry, (enum pst_arrival_older)which, &bytes);

        if (fd >= 0)
            pst_chunks_of(fd, bytes, true, old_chunk_look, get);
        r = get->take_error;
    }
    return r;
}

static bool get_was_taken(const struct get *get, const struct pst_pooled_piece *piece)
{
    return get->wanted.count > 0 && get->wanted_entry == piece->entry &&
           get->wanted.chunks[piece->chunk - get->wanted_chunk].taken;
}

/* ---- files ---- */

static int get_empty_files(struct get *get)
{
    int r = 0;

    for (uint32_t i = 0; r == 0 && i < get->tree.m.count; i++) {
        const struct pst_entry *entry = &get->tree.m.entries[i];

        if (entry->kind == PST_ENTRY_FILE && entry->bytes == 0 &&
            pst_arrival_need(get->arrival, i) != PST_ARRIVAL_HAS)
            r = pst_arrival_empty(get->arrival, i);
    }
    return r < 0 ? get_fail(get, r) : 0;
}

static int get_files(struct get *get)
{
    struct pst_pooled_walk walk = {.tree = &get->tree};
    struct pst_pooled_piece piece;
    bool wants = false;
    int r = get_empty_files(get);

    while (r == 0 && pst_pooled_walk_next(&walk, &piece)) {
        if (piece.at == 0) {
            enum pst_arrival_need need = pst_arrival_need(get->arrival, piece.entry);

            wants = need != PST_ARRIVAL_HAS;
            if (need == PST_ARRIVAL_DELTA)
                r = get_take_over(get, &walk, &piece);
        }
        if (!wants)
            get_progress(get, piece.bytes);
        else if (r == 0 && !get_was_taken(get, &piece))
            r = get_plan(get, &piece);
    }
    return r == 0 ? get_flush(get) : r;
}

/* ---- all of it ---- */

static int get_open_arrival(struct get *get, int folder_fd, const char *leaf)
{
    int r = pst_arrival_open_in_turn(folder_fd, leaf, get->trees->flags, &get->arrival, NULL, NULL,
                                     get->trees->fault);

    if (r == 0 && (r = pst_arrival_begin(get->arrival, &get->tree.m)) < 0)
        return get_fail(get, r);
    return r;
}

static int get_load(struct get *get)
{
    struct pst_pooled_root root = {.entry_count = 0};
    int r = trees_root(get->trees, get->trees->name, &root, &get->generation);

    if (r == 0)
        r = trees_list(get->trees, get->trees->name, &root, &get->tree);
    pst_pooled_root_fini(&root);
    if (r == 0 && get->trees->bar)
        get->trees->bar->total_bytes = get->tree.m.file_bytes;
    return r;
}

/* Return: whether the root is another by now, so that what was named may have been removed rightly. */
static bool get_is_outdated(const struct get *get)
{
    uint64_t now = 0;

    return trees_root_generation(get->trees, &now) == 0 && now && now != get->generation;
}

static int get_once(struct get *get, int folder_fd, const char *leaf, struct pst_arrival_result *result)
{
    int r;

    get->pieces = calloc(PIECES, sizeof(*get->pieces));
    get->slots = calloc(TREES_BATCH_CHUNKS, sizeof(*get->slots));
    get->buffer = malloc(TREES_BATCH_BYTES);
    r = get->pieces && get->slots && get->buffer ? 0 : trees_fail(get->trees, -ENOMEM, "out of memory");
    if (r == 0)
        r = get_load(get);
    if (r == 0)
        r = get_open_arrival(get, folder_fd, leaf);
    if (r == 0)
        r = get_files(get);
    if (r == 0 && (r = pst_arrival_end(get->arrival, result)) < 0)
        get_fail(get, r);
    return r;
}

static void get_fini(struct get *get)
{
    pst_arrival_close(get->arrival);
    pst_wanted_fini(&get->wanted);
    pst_pooled_fini(&get->tree);
    free(get->pieces);
    free(get->slots);
    free(get->buffer);
}

int trees_get(struct trees *trees, int folder_fd, const char *leaf, struct pst_arrival_result *result)
{
    bool again = true;
    int r = 0;

    for (int tries = 0; again && tries < GONE_TRIES; tries++) {
        struct get get = {.trees = trees};
        char text[PST_FAULT_BYTES];

        r = get_once(&get, folder_fd, leaf, result);
        memcpy(text, trees->fault, sizeof(text));
        again = r == -ENOENT && get.generation && get_is_outdated(&get);
        memcpy(trees->fault, text, sizeof(text));
        get_fini(&get);
    }
    return r;
}
