/* SPDX-License-Identifier: Apache-2.0 */
/* figures.c: what a pool's master says of itself, and what those add that have other shares of the directory.
 */
#include "client/pool/pool_priv.h"

#include <inttypes.h>
#include <stdio.h>

enum {
    FIGURES_MAX = 1024,
    NAME_BYTES = 64,
    TEXT_BYTES = PST_POOL_ANSWER_BYTES,
};

struct figure {
    char name[NAME_BYTES];
    uint64_t value;
};

struct figures {
    uint32_t count;
    struct figure items[FIGURES_MAX];
};

/* How a share's figure joins that of the leading master, by name; a '*' at the beginning is any. */
enum join { JOIN_ADD, JOIN_LEADER, JOIN_MOST };

static enum join join_of(const char *name)
{
    static const struct {
        const char *name;
        enum join join;
    } others[] = {{"leads", JOIN_LEADER},
                  {"takeovers", JOIN_LEADER},
                  {"map_version", JOIN_LEADER},
                  {"term", JOIN_LEADER},
                  {"maps", JOIN_LEADER},
                  {"directory_shard", JOIN_LEADER},
                  {"members", JOIN_LEADER},
                  {"directory_shards", JOIN_LEADER},
                  {"members_suspect", JOIN_LEADER},
                  {"members_reporting", JOIN_MOST},
                  {"*_capacity_bytes", JOIN_LEADER},
                  {"*_used_bytes", JOIN_LEADER},
                  {"partitions_absent", JOIN_LEADER}};
    size_t bytes = strlen(name);

    pst_assert(bytes > 0);
    pst_assert(bytes < NAME_BYTES);
    for (uint32_t i = 0; i < pst_count_of(others); i++) {
        const char *other = others[i].name;
        size_t tail = strlen(other) - 1;

        if (*other == '*' ? bytes >= tail && strcmp(name + bytes - tail, other + 1) == 0
                          : strcmp(name, other) == 0)
            return others[i].join;
    }
    return JOIN_ADD;
}

/* NULL: there is no room for another one. */
static struct figure *figure_of(struct figures *all, const char *name)
{
    uint32_t i = 0;

    while (i < all->count && strcmp(all->items[i].name, name) != 0)
        i++;
    if (i == FIGURES_MAX)
        return NULL;
    if (i == all->count) {
        snprintf(all->items[i].name, NAME_BYTES, "%s", name);
        all->count++;
    }
    pst_assert(all->count <= FIGURES_MAX);
    return &all->items[i];
}

static void join_text(struct figures *all, const char *text, bool leader)
{
    char name[NAME_BYTES];
    uint64_t value;
    int bytes;

    for (; sscanf(text, "%63s %" SCNu64 "%n", name, &value, &bytes) == 2; text += bytes) {
        enum join join = leader ? JOIN_ADD : join_of(name);
        struct figure *figure = join == JOIN_LEADER ? NULL : figure_of(all, name);

        pst_assert(bytes > 0);
        if (figure)
            figure->value = join == JOIN_MOST ? pst_max(figure->value, value) : figure->value + value;
    }
}

static int ask_figures(struct penstock *store, uint32_t share, char *text, size_t room)
{
    struct penstock_op op = {.code = PST_POOL_FIGURES, .data = text, .bytes = room - 1};
    int r;

    pst_assert(room > 0);
    r = pst_run_one(store, &op, store->pool ? POOL_SHARD_OF_MASTER + (int)share : 0);
    if (r != 0)
        return r;
    pst_assert(op.value_bytes < room); /* the channel takes no longer answer */
    text[op.value_bytes] = '\0';
    return 0;
}

static int stat_shares(struct penstock *store, uint32_t shares, char *text, size_t room)
{
    pst_cleanup_free struct figures *all = calloc(1, sizeof(*all));
    pst_cleanup_free char *other = malloc(TEXT_BYTES);
    struct figure *silent;
    size_t used = 0;

    pst_assert(shares > 1);
    if (!all || !other)
        return pst_explain(store, NULL, -ENOMEM);
    join_text(all, text, true);
    silent = figure_of(all, "directory_shards_silent");
    for (uint32_t share = 1; share < shares; share++) {
        if (ask_figures(store, share, other, TEXT_BYTES) == 0)
            join_text(all, other, false);
        else if (silent)
            silent->value++;
    }
    for (uint32_t i = 0; i < all->count && used < room; i++)
        used += (size_t)snprintf(text + used, room - used, "%s %" PRIu64 "\n", all->items[i].name,
                                 all->items[i].value);
    return used < room ? 0 : pst_explain(store, NULL, -ENOBUFS);
}

int penstock_pool_stat(struct penstock *store, char *text, size_t room)
{
    uint32_t shares;
    int r = pst_store_check(store);

    if (r < 0)
        return r;
    if (!text || room == 0)
        return pst_fail(-EINVAL, "penstock_pool_stat: nowhere to put the text");
    if (store->local)
        return pst_explain(store, NULL, -EOPNOTSUPP);
    r = ask_figures(store, 0, text, room);
    shares = pst_pool_shares(store);
    return r == 0 && shares > 1 ? stat_shares(store, shares, text, room) : r;
}
