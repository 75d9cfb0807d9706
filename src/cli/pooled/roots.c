/* SPDX-License-Identifier: Apache-2.0 */
/* roots.c: roots and lists out of the store, and the names of all trees. */
#include "cli/pooled/trees_priv.h"

#include <stdarg.h>

int trees_fail(struct trees *trees, int error, const char *format, ...)
{
    va_list args;

    pst_assert(error < 0);
    va_start(args, format);
    vsnprintf(trees->fault, sizeof(trees->fault), format, args);
    va_end(args);
    return error;
}

int trees_fail_key(struct trees *trees, const char *key, int result)
{
    static const int errors[] = {
        [PENSTOCK_MISS] = -ENOENT,       [PENSTOCK_EXISTS] = -EEXIST, [PENSTOCK_STALE] = -ESTALE,
        [PENSTOCK_BUSY] = -EBUSY,        [PENSTOCK_UNKNOWN] = -EIO,   [PENSTOCK_OWNED] = -EBUSY,
        [PENSTOCK_INCOMPLETE] = -EAGAIN, [PENSTOCK_LOST] = -ENODATA,
    };

    pst_assert(result != 0);
    pst_assert(result < (int)pst_count_of(errors));
    if (result < 0 && *penstock_error()) /* it names the key */
        return trees_fail(trees, result, "%.250s", penstock_error());
    return trees_fail(trees, result < 0 ? result : errors[result], "%.150s: %s", key,
                      penstock_result_text(result));
}

int trees_run(struct trees *trees, struct penstock_op *op)
{
    int r = penstock_batch(trees->store, op, 1);

    return r < 0 ? r : op->result;
}

void trees_root_key(const struct trees *trees, char key[TREES_KEY_BYTES])
{
    snprintf(key, TREES_KEY_BYTES, PST_POOLED_TREES "%s", trees->name);
}

/* Reads a value whatever its size. Return: 0, *@out, for free(), and the operation's size and generation. */
static int root_read(struct trees *trees, const char *key, struct penstock_op *op, uint8_t **out)
{
    uint64_t room = 64 << 10;
    uint8_t *data = NULL;
    int r = -ENOBUFS;

    for (int tries = 0; tries < TREES_TRIES && r == -ENOBUFS; tries++) {
        free(data);
        data = malloc(room);
        if (!data)
            return trees_fail(trees, -ENOMEM, "out of memory");
        *op = (struct penstock_op){.code = 0};
        penstock_prep_get(op, key, strlen(key), data, room);
        r = trees_run(trees, op);
        room = op->value_bytes;
        if (r == -ENOBUFS && room > PST_POOLED_LIST_BYTES_MAX)
            break;
    }
    if (r == 0) {
        *out = data;
        return 0;
    }
    free(data);
    return trees_fail_key(trees, key, r);
}

int trees_root(struct trees *trees, const char *name, struct pst_pooled_root *root, uint64_t *generation)
{
    pst_cleanup_free uint8_t *data = NULL;
    char key[TREES_KEY_BYTES];
    struct penstock_op op;
    int r;

    snprintf(key, sizeof(key), PST_POOLED_TREES "%s", name);
    r = root_read(trees, key, &op, &data);
    if (r == -ENOENT)
        return trees_fail(trees, r, "%.150s: there is no such tree", name);
    if (r < 0)
        return r;
    r = pst_pooled_root_decode(data, op.value_bytes, root);
    if (r < 0)
        return trees_fail(trees, r, "%.150s: %s", key,
                          r == -EBADMSG           ? "it is no tree"
                          : r == -EPROTONOSUPPORT ? "a later version of penstock wrote it"
                                                  : strerror(-r));
    if (generation)
        *generation = op.generation;
    return 0;
}

int trees_root_generation(struct trees *trees, uint64_t *generation)
{
    struct penstock_op op = {0};
    char key[TREES_KEY_BYTES];
    int r;

    trees_root_key(trees, key);
    penstock_prep(&op, PENSTOCK_STAT_KEY, key, strlen(key));
    r = trees_run(trees, &op);
    if (r != 0 && r != PENSTOCK_MISS)
        return trees_fail_key(trees, key, r);
    *generation = r == 0 ? op.generation : 0;
    return 0;
}

/* Reads the chunks of a list behind each other into @list. */
static int list_read(struct trees *trees, const char *name, const struct pst_pooled_chunks *parts,
                     uint8_t *list)
{
    pst_cleanup_free struct trees_slot *slots = calloc(TREES_BATCH_CHUNKS, sizeof(*slots));
    int r = slots ? 0 : trees_fail(trees, -ENOMEM, "out of memory");
    uint32_t next = 0;

    while (r == 0 && next < parts->count) {
        uint32_t count = 0, failed;
        char text[PST_FAULT_BYTES];

        for (; count < TREES_BATCH_CHUNKS && next < parts->count; count++, next++) {
            slots[count] = (struct trees_slot){&parts->list[next], list};
            list += parts->list[next].bytes;
        }
        r = trees_fetch(trees, slots, count, &failed);
        if (r < 0) {
            memcpy(text, trees->fault, sizeof(text));
            return trees_fail(trees, r, "list of tree %.60s: %.170s", name, text);
        }
    }
    return r;
}

int trees_list(struct trees *trees, const char *name, const struct pst_pooled_root *root,
               struct pst_pooled *tree)
{
    pst_cleanup_free uint8_t *list = NULL;
    int r;

    if (root->parts.bytes > PST_POOLED_LIST_BYTES_MAX)
        return trees_fail(trees, -E2BIG, "%.150s: its list is longer than any", name);
    list = malloc(root->parts.bytes + 1);
    r = list ? list_read(trees, name, &root->parts, list) : trees_fail(trees, -ENOMEM, "out of memory");
    if (r < 0)
        return r;
    r = pst_pooled_decode(root, list, root->parts.bytes, tree);
    return r < 0 ? trees_fail(trees, r, "%.150s: %s", name, r == -EBADMSG ? "its list is none" : strerror(-r))
                 : 0;
}

int trees_each_key(struct trees *trees, const char *prefix,
                   int (*each)(void *ctx, const struct penstock_entry *), void *ctx)
{
    const struct penstock_list_options options = {
        .size = sizeof(options), .prefix = prefix, .prefix_bytes = strlen(prefix)};
    struct penstock_entry entry;
    struct penstock_list *keys;
    int r = penstock_list_open(trees->store, &options, &keys), ended = 0;

    if (r)
        return trees_fail_key(trees, prefix, r);
    while (ended == 0 && (r = penstock_list_next(keys, &entry)) == 1)
        ended = each(ctx, &entry);
    penstock_list_close(keys);
    if (ended)
        return ended;
    return r ? trees_fail_key(trees, prefix, r) : 0;
}

struct names {
    int (*each)(void *ctx, const char *name);
    void *ctx;
};

static int names_look_at(void *ctx, const struct penstock_entry *entry)
{
    const struct names *names = ctx;
    const size_t skip = strlen(PST_POOLED_TREES), bytes = entry->key_bytes - skip;
    char name[PST_POOLED_NAME_BYTES_MAX + 1];

    if (bytes == 0 || bytes > PST_POOLED_NAME_BYTES_MAX || memchr(entry->key, 0, entry->key_bytes))
        return 0; /* no name of a tree */
    memcpy(name, (const char *)entry->key + skip, bytes);
    name[bytes] = 0;
    return names->each(names->ctx, name);
}

int trees_each(struct trees *trees, int (*each)(void *ctx, const char *name), void *ctx)
{
    struct names names = {each, ctx};

    return trees_each_key(trees, PST_POOLED_TREES, names_look_at, &names);
}
