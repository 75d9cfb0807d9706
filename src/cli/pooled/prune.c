/* SPDX-License-Identifier: Apache-2.0 */
/*
 * prune.c: removes chunks that no tree names: first it notes those that are named, then it deletes the
 * others. It has its lock all the while, and no put is underway when it begins, so a chunk that was not named
 * is not wanted. A tree that cannot be read ends it: nobody knows what that names.
 */
#include "cli/pooled/trees_priv.h"

#include "base/clock.h"

enum {
    DELETES = 256,
    PROBES = 1 << 16, /* one in e^16 partitions of a pool has none of them */
    FIGURES_BYTES = 64 << 10,
};

/* Where the keys of a pool are. */
struct prune_places {
    uint64_t version, term;
};

struct prune {
    struct trees *trees;
    struct trees_lock lock;
    uint8_t (*named)[PST_SHA256_BYTES];
    uint64_t named_count, named_room;
    char keys[DELETES][PST_POOLED_KEY_BYTES + 1]; /* to be deleted, */
    uint64_t bytes[DELETES];                      /* and of their values */
    uint32_t count;
    struct trees_pruned *pruned;
};

/* ---- what is named ---- */

/* What a pool has lost is in no listing: roots that may come back with their node would be missed. No tree
 * has a probe's name, so one that is lost lies where something was. */
static int prune_probe(struct prune *p)
{
    struct probe {
        struct penstock_op ops[TREES_BATCH_CHUNKS];
        char keys[TREES_BATCH_CHUNKS][16];
    };
    pst_cleanup_free struct probe *probe = calloc(1, sizeof(*probe));
    int r = probe ? 0 : trees_fail(p->trees, -ENOMEM, "out of memory");

    for (uint32_t done = 0; r == 0 && done < PROBES; done += TREES_BATCH_CHUNKS) {
        for (uint32_t i = 0; i < TREES_BATCH_CHUNKS; i++) {
            snprintf(probe->keys[i], sizeof(probe->keys[i]), PST_POOLED_TREES "/%u", done + i);
            penstock_prep(&probe->ops[i], PENSTOCK_STAT_KEY, probe->keys[i], strlen(probe->keys[i]));
        }
        r = penstock_batch(p->trees->store, probe->ops, TREES_BATCH_CHUNKS);
        if (r < 0)
            return trees_fail_key(p->trees, PST_POOLED_TREES, r);
        r = trees_lock_keep(p->trees, &p->lock);
        for (uint32_t i = 0; r == 0 && i < TREES_BATCH_CHUNKS; i++) {
            if (probe->ops[i].result == PENSTOCK_LOST)
                r = trees_fail(
                    p->trees, -ENODATA,
                    "the pool has lost values, and nobody knows which trees; 'penstock node forgive' gives "
                    "them up");
            else if (probe->ops[i].result != PENSTOCK_MISS && probe->ops[i].result != 0)
                r = trees_fail_key(p->trees, probe->keys[i], probe->ops[i].result);
        }
    }
    return r;
}

/* Which version of its map a pool has. A node by itself has none: @places stays zeroed. */
static int prune_places(struct prune *p, struct prune_places *places)
{
    pst_cleanup_free char *text = calloc(1, FIGURES_BYTES);
    const char *version, *term;
    int r = text ? penstock_pool_stat(p->trees->store, text, FIGURES_BYTES) : -ENOMEM;

    if (r == -EOPNOTSUPP)
        return 0;
    if (r)
        return trees_fail_key(p->trees, TREES_PRUNE, r);
    version = strstr(text, "map_version ");
    term = strstr(text, "\nterm ");
    if (!version || !term)
        return trees_fail(p->trees, -EPROTO, "the pool's master does not tell the version of its map");
    places->version = strtoull(version + strlen("map_version "), NULL, 10);
    places->term = strtoull(term + strlen("\nterm "), NULL, 10);
    return 0;
}

/* A listing follows keys that move, but learns of that from the master alone. A prune deletes for good: all
 * that it believes is of one map, before and after. */
static int prune_check_places(struct prune *p, const struct prune_places *before)
{
    struct prune_places now = {0};
    int r = prune_places(p, &now);

    if (r == 0 && (now.version != before->version || now.term != before->term))
        r = trees_fail(p->trees, -EAGAIN,
                       "keys moved between the pool's nodes meanwhile: nothing was pruned; try again later");
    return r;
}

static int prune_name(struct prune *p, const struct pst_pooled_chunks *chunks)
{
    uint64_t room = pst_max(2 * p->named_room, p->named_count + chunks->count);

    if (p->named_count + chunks->count > p->named_room) {
        void *grown = realloc(p->named, room * sizeof(*p->named));

        if (!grown)
            return trees_fail(p->trees, -ENOMEM, "out of memory");
        p->named = grown;
        p->named_room = room;
    }
    for (uint32_t i = 0; i < chunks->count; i++)
        memcpy(p->named[p->named_count++], chunks->list[i].sha256, sizeof(*p->named));
    return 0;
}

static int prune_tree(void *ctx, const char *name)
{
    struct prune *p = ctx;
    struct pst_pooled_root root = {.entry_count = 0};
    struct pst_pooled tree = {.holes = NULL};
    int r = trees_root(p->trees, name, &root, NULL);

    if (r == 0)
        r = trees_list(p->trees, name, &root, &tree);
    if (r == 0)
        r = prune_name(p, &root.parts);
    if (r == 0)
        r = prune_name(p, &tree.chunks);
    if (r == 0)
        r = trees_lock_keep(p->trees, &p->lock);
    pst_pooled_fini(&tree);
    pst_pooled_root_fini(&root);
    return r;
}

static int digests_order(const void *a, const void *b)
{
    return memcmp(a, b, PST_SHA256_BYTES);
}

/* ---- what is not ---- */

static int prune_delete(struct prune *p)
{
    struct penstock_op ops[DELETES] = {{0}};
    int r = p->count ? trees_lock_prove(p->trees, &p->lock) : 0;

    if (r < 0 || p->count == 0)
        return r;
    for (uint32_t i = 0; i < p->count; i++)
        penstock_prep(&ops[i], PENSTOCK_DELETE, p->keys[i], PST_POOLED_KEY_BYTES);
    r = penstock_batch(p->trees->store, ops, p->count);
    if (r < 0)
        return trees_fail_key(p->trees, p->keys[0], r);
    for (uint32_t i = 0; i < p->count; i++) {
        if (ops[i].result == 0) {
            p->pruned->chunks++;
            p->pruned->bytes += p->bytes[i];
        } else if (ops[i].result != PENSTOCK_MISS) {
            return trees_fail_key(p->trees, p->keys[i], ops[i].result);
        }
    }
    p->count = 0;
    return 0;
}

static int prune_look_at(void *ctx, const struct penstock_entry *entry)
{
    struct prune *p = ctx;
    uint8_t sha256[PST_SHA256_BYTES];

    if (!pst_pooled_key_parse(entry->key, entry->key_bytes, sha256))
        return 0; /* somebody else's */
    if (p->named_count && bsearch(sha256, p->named, p->named_count, sizeof(*p->named), digests_order)) {
        p->pruned->kept++;
        return 0;
    }
    memcpy(p->keys[p->count], entry->key, PST_POOLED_KEY_BYTES);
    p->bytes[p->count++] = entry->value_bytes;
    return p->count == DELETES ? prune_delete(p) : 0;
}

static int prune_sweep(struct prune *p)
{
    int r = trees_each_key(p->trees, PST_POOLED_CHUNKS, prune_look_at, p);

    return r < 0 ? r : prune_delete(p);
}

/* ---- all of it ---- */

static int prune_note_put(void *ctx, const struct penstock_entry *entry)
{
    struct prune *p = ctx;

    trees_fail(p->trees, -EBUSY, "a put is underway: %.*s", (int)pst_min(entry->key_bytes, 150),
               (const char *)entry->key);
    return 1;
}

/* Return: whether a put is underway, 0 or 1, or the fault. */
static int prune_sees_put(struct prune *p)
{
    return trees_each_key(p->trees, TREES_LOCKS, prune_note_put, p);
}

/* New puts wait for this one's lock meanwhile. */
static int prune_wait(struct prune *p, uint32_t wait_ms)
{
    uint64_t until_ms = pst_now_ms() + wait_ms;
    int r;

    while ((r = prune_sees_put(p)) == 1) {
        if (pst_now_ms() >= until_ms)
            return -EBUSY;
        r = trees_lock_keep(p->trees, &p->lock);
        if (r < 0)
            return r;
        usleep(100000);
    }
    return r;
}

/* Notes what all trees name. */
static int prune_mark(struct prune *p, uint32_t wait_ms)
{
    struct prune_places places = {0};
    int r = prune_places(p, &places);

    if (r == 0)
        r = prune_wait(p, wait_ms);
    if (r == 0)
        r = prune_probe(p);
    if (r == 0)
        r = trees_each(p->trees, prune_tree, p);
    if (r == 0)
        r = prune_check_places(p, &places);
    if (r == 0 && p->named_count)
        qsort(p->named, p->named_count, sizeof(*p->named), digests_order);
    return r;
}

int trees_prune(struct trees *trees, uint32_t wait_ms, struct trees_pruned *pruned)
{
    uint64_t until_ms = pst_now_ms() + wait_ms;
    struct trees_pruned told = {.chunks = 0};
    pst_cleanup_free struct prune *p = calloc(1, sizeof(*p));
    int r;

    if (!p)
        return trees_fail(trees, -ENOMEM, "out of memory");
    p->trees = trees;
    p->pruned = &told;
    r = trees_lock_take(trees, &p->lock, TREES_PRUNE, wait_ms);
    if (r == 0) {
        do {
            p->named_count = 0;
            r = prune_mark(p, wait_ms);
        } while (r == -EAGAIN && pst_now_ms() < until_ms);
        if (r == 0)
            r = prune_sweep(p);
        trees_lock_give(trees, &p->lock);
    }
    free(p->named);
    if (r == 0)
        *pruned = told;
    return r;
}
