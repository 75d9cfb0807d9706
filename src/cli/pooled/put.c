/* SPDX-License-Identifier: Apache-2.0 */
/* put.c: a tree into the store: its chunks, its list, and at the end its root, with which it appears. */
#include "cli/pooled/trees_priv.h"

#include "base/clock.h"

enum {
    ALONE_BYTES = 64 << 10, /* such a file shares no chunk with its neighbours */
    FLUSH_MS = 1800000,
};

struct put {
    struct trees *trees;
    struct pst_source source;
    struct pst_pooled tree;
    struct earlier earlier;
    struct trees_lock lock;
    struct upload upload;
    uint64_t generation; /* of the root that is there; 0: none is */
    uint32_t odd;        /* names that are left out */
};

static int put_fail(struct put *put, int error, const struct pst_entry *entry)
{
    return trees_fail(put->trees, error, "%.60s%s%.120s: %s", put->source.leaf, *entry->path ? "/" : "",
                      entry->path, error == -ESTALE ? "changed while it was read" : strerror(-error));
}

/* ---- files ---- */

static int put_range(struct put *put, const struct pst_entry *entry, int fd, uint64_t at, uint64_t end)
{
    int r = 0;

    while (r == 0 && at < end) {
        uint8_t *space;
        size_t bytes;

        r = upload_space(&put->upload, &space, &bytes);
        if (r < 0)
            return r;
        bytes = pst_min(bytes, end - at);
        r = pst_read_at(fd, at, space, bytes);
        if (r < 0)
            return put_fail(put, r, entry);
        r = upload_filled(&put->upload, bytes);
        at += bytes;
    }
    return r;
}

static int put_hole(struct put *put, uint32_t entry, uint64_t at, uint64_t end)
{
    const struct pst_pooled_hole hole = {entry, at, end - at};
    int r = at < end ? pst_pooled_hole_add(&put->tree, &hole) : 0;

    pst_assert(r != -EBADMSG);
    return r < 0 ? put_fail(put, r, &put->tree.m.entries[entry]) : 0;
}

static int put_sparse(struct put *put, uint32_t index, int fd)
{
    const struct pst_entry *entry = &put->tree.m.entries[index];
    uint64_t at = 0, begin, end;
    int r = 0;

    while (r == 0 && at < entry->bytes) {
        pst_source_next_data(fd, at, entry->bytes, &begin, &end);
        r = put_hole(put, index, at, begin);
        if (r == 0)
            r = put_range(put, entry, fd, begin, end);
        at = end;
    }
    return r;
}

/* A file that has not changed. Return: 1 done, 0 it has to be read. */
static int put_unchanged(struct put *put, const struct pst_entry *entry)
{
    uint32_t chunk, count;

    if (entry->bytes < ALONE_BYTES || !earlier_find(&put->earlier, entry, &chunk, &count))
        return 0;
    return upload_known(&put->upload, &put->earlier.tree.chunks.list[chunk], count);
}

static int put_read(struct put *put, uint32_t index)
{
    const struct pst_entry *entry = &put->tree.m.entries[index];
    bool alone = entry->bytes >= ALONE_BYTES, has_holes = false;
    pst_cleanup_close int fd = pst_source_open(&put->source, entry, &has_holes);
    int r = fd < 0 ? put_fail(put, fd, entry) : 0;

    if (r == 0 && alone)
        r = upload_cut(&put->upload);
    if (r == 0)
        r = has_holes ? put_sparse(put, index, fd) : put_range(put, entry, fd, 0, entry->bytes);
    if (r == 0 && alone)
        r = upload_cut(&put->upload);
    if (r < 0)
        return r;
    r = pst_source_check(fd, entry);
    return r < 0 ? put_fail(put, r, entry) : 0;
}

static int put_file(struct put *put, uint32_t index)
{
    int r = put_unchanged(put, &put->tree.m.entries[index]);

    if (r == 0)
        return put_read(put, index);
    return r < 0 ? r : 0;
}

static int put_files(struct put *put)
{
    int r = 0;

    put->upload.list = &put->tree.chunks;
    for (uint32_t i = 0; r == 0 && i < put->tree.m.count; i++) {
        if (put->tree.m.entries[i].kind == PST_ENTRY_FILE)
            r = put_file(put, i);
        if (r == 0)
            r = trees_lock_keep(put->trees, &put->lock); /* a million empty files take their time, too */
    }
    return r == 0 ? upload_end(&put->upload) : r;
}

/* ---- list and root ---- */

/*
 * The root's generation proves that nobody else wrote it since the lock was taken. If the outcome of a write
 * is not known, another generation proves that it was this one's: whoever has the lock is alone.
 */
static int put_write_root(struct put *put, const uint8_t *root, size_t bytes)
{
    const uint64_t before = put->generation;
    int r = PENSTOCK_UNKNOWN;
    char key[TREES_KEY_BYTES];

    trees_root_key(put->trees, key);
    for (int tries = 0; r == PENSTOCK_UNKNOWN && tries < TREES_TRIES; tries++) {
        struct penstock_op op = {0};

        penstock_prep_put(&op, key, strlen(key), root, bytes);
        op.flags = PENSTOCK_IF_GENERATION | PENSTOCK_CHECKSUM | (put->trees->durable ? PENSTOCK_DURABLE : 0);
        op.if_generation = before;
        r = trees_run(put->trees, &op);
        if (r == PENSTOCK_STALE && tries > 0)
            return 0; /* the write before it was late */
        if (r == PENSTOCK_UNKNOWN && trees_root_generation(put->trees, &put->generation) == 0 &&
            put->generation != before)
            return 0;
    }
    if (r == PENSTOCK_STALE || r == PENSTOCK_EXISTS)
        return trees_fail(put->trees, -EBUSY, "%.150s: another command wrote it meanwhile", key);
    return r ? trees_fail_key(put->trees, key, r) : 0;
}

/* Of chunks that were there, too. A flush has the time of one operation; an SSD may need more. */
static int put_flush(struct put *put)
{
    uint64_t until_ms = pst_now_ms() + FLUSH_MS;
    int r, kept = 0;

    while ((r = penstock_flush(put->trees->store)) == -ETIMEDOUT && pst_now_ms() < until_ms && kept == 0)
        kept = trees_lock_keep(put->trees, &put->lock);
    if (kept < 0)
        return kept;
    return r ? trees_fail_key(put->trees, PST_POOLED_CHUNKS, r) : 0;
}

static int put_root(struct put *put)
{
    struct pst_pooled_chunks parts = {.list = NULL};
    uint8_t *root = NULL;
    size_t bytes = 0;
    int r;

    put->upload.list = &parts;
    r = pst_pooled_encode(&put->tree, upload_write, &put->upload);
    if (r == 0)
        r = upload_end(&put->upload);
    if (r == 0 && parts.bytes > PST_POOLED_LIST_BYTES_MAX)
        r = trees_fail(put->trees, -E2BIG, "%.150s: its list is longer than 1 GiB", put->trees->name);
    if (r == 0 && pst_pooled_root_encode(&put->tree, &parts, &root, &bytes) < 0)
        r = trees_fail(put->trees, -ENOMEM, "out of memory");
    if (r == 0 && put->trees->durable)
        r = put_flush(put);
    if (r == 0) /* a prune may have come since, and removed chunks */
        r = trees_lock_prove(put->trees, &put->lock);
    if (r == 0)
        r = put_write_root(put, root, bytes);
    free(root);
    pst_pooled_chunks_fini(&parts);
    return r;
}

/* ---- all of it ---- */

static int put_scan(struct put *put)
{
    int r = pst_source_list(&put->source, &put->trees->filters, &put->tree.m, &put->odd, put->trees->fault);

    if (r < 0)
        return r;
    r = pst_source_open_root(&put->source, &put->tree.m);
    if (r < 0)
        return put_fail(put, r, &put->tree.m.entries[0]);
    if (put->trees->bar)
        put->trees->bar->total_bytes = put->tree.m.file_bytes;
    return 0;
}

/* With the lock. */
static int put_locked(struct put *put, struct pst_arrival_result *result)
{
    struct pst_arrival_result told;
    int r = trees_root_generation(put->trees, &put->generation);

    if (r == 0 && put->generation && !(put->trees->flags & PST_ARRIVAL_FORCE))
        r = earlier_load(put->trees, &put->earlier);
    if (r == 0)
        r = put_files(put);
    if (r < 0)
        return r;
    told = (struct pst_arrival_result){.files = put->tree.m.file_count,
                                       .bytes = put->tree.m.file_bytes,
                                       .moved = put->upload.sent,
                                       .matched = put->upload.there,
                                       .left_out = put->odd};
    r = put_root(put);
    if (r == 0)
        *result = told;
    return r;
}

int trees_put(struct trees *trees, int folder_fd, const char *leaf, struct pst_arrival_result *result)
{
    struct put put = {.trees = trees, .source = {.folder_fd = folder_fd, .root_fd = -1, .leaf = leaf}};
    bool held;
    int r = upload_open(&put.upload, trees, &put.lock);

    if (r == 0)
        r = put_scan(&put);
    if (r == 0)
        r = trees_lock_tree(trees, &put.lock);
    if (r == 0) {
        r = put_locked(&put, result);
        held = trees_lock_give(trees, &put.lock);
        /* A prune may have come in between, and removed chunks that the put had found there. */
        if (r == 0 && !held)
            r = trees_fail(trees, -ESTALE, "%.150s: held up for too long; put it again", trees->name);
    }
    upload_close(&put.upload);
    pst_close_fd(&put.source.root_fd);
    pst_pooled_fini(&put.tree);
    earlier_fini(&put.earlier);
    return r;
}

int trees_remove(struct trees *trees)
{
    struct trees_lock lock;
    struct penstock_op op = {0};
    char key[TREES_KEY_BYTES];
    int r = trees_lock_tree(trees, &lock); /* a put finds the root as it left it */

    if (r < 0)
        return r;
    trees_root_key(trees, key);
    penstock_prep(&op, PENSTOCK_DELETE, key, strlen(key));
    r = trees_run(trees, &op);
    trees_lock_give(trees, &lock);
    if (r == PENSTOCK_MISS)
        return trees_fail(trees, -ENOENT, "%.150s: there is no such tree", trees->name);
    return r ? trees_fail_key(trees, key, r) : 0;
}
