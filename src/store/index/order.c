/* SPDX-License-Identifier: Apache-2.0 */
/*
 * order.c: the tree of the ordered index: descent, growth, shrinking, cursors. Every change first takes the
 * memory that it may need and then cannot fail half-way; removing needs none. One thread.
 *
 * A full leaf first evens out with a sibling and splits only when its siblings are full too; a leaf that
 * grows at the end of the order is left full. Leaves are therefore about 85 % full after random inserts and
 * 100 % after ascending ones.
 */
#include "store/index/order_priv.h"

enum { AHEAD = 8 }; /* records that a cursor touches together */

/* What a split uses up. */
struct spare {
    struct pst_leaf *leaf;
    struct pst_separator *separator;
    struct pst_inner *inners[PST_ORDER_HEIGHT_MAX];
    uint32_t inner_count;
};

/* ---- descent ---- */

static void order_descend(const struct pst_order *order, struct pst_bytes key, struct pst_order_path *path)
{
    void *node = order->root;

    pst_assert(order->magic == PST_ORDER_MAGIC);
    pst_assert(order->height < PST_ORDER_HEIGHT_MAX);
    for (uint32_t level = 0; level < order->height; level++) {
        path->nodes[level] = node;
        path->at[level] = pst_inner_find(node, key);
        node = path->nodes[level]->children[path->at[level]];
    }
    path->leaf = node;
    pst_assert(path->leaf->magic == PST_LEAF_MAGIC);
}

/* The separator before child @at of the lowest inner node, or NULL at the order's beginning. */
static struct pst_separator *path_before(const struct pst_order *order, const struct pst_order_path *path,
                                         uint32_t at)
{
    pst_assert(order->height < PST_ORDER_HEIGHT_MAX);
    for (uint32_t level = order->height; level-- > 0; at = level ? path->at[level - 1] : 0)
        if (at > 0)
            return path->nodes[level]->separators[at - 1];
    return NULL;
}

/* The separator behind child @at of the lowest inner node, or NULL at the order's end. */
static struct pst_separator *path_behind(const struct pst_order *order, const struct pst_order_path *path,
                                         uint32_t at)
{
    pst_assert(order->height < PST_ORDER_HEIGHT_MAX);
    for (uint32_t level = order->height; level-- > 0; at = level ? path->at[level - 1] : 0)
        if (at + 1u < path->nodes[level]->count)
            return path->nodes[level]->separators[at];
    return NULL;
}

/* ---- growth ---- */

static void spare_give(struct pst_order *order, struct spare *spare)
{
    pst_assert(spare->inner_count <= PST_ORDER_HEIGHT_MAX);
    while (spare->inner_count > 0)
        pst_order_give(order, spare->inners[--spare->inner_count], sizeof(struct pst_inner));
    pst_order_give(order, spare->leaf, sizeof(*spare->leaf));
    pst_separator_free(order, spare->separator);
}

/* Takes what a split of the path's leaf between @left and @right needs. Return: 0 or -ENOMEM. */
static int spare_take(struct pst_order *order, const struct pst_order_path *path, struct pst_bytes left,
                      struct pst_bytes right, struct spare *out)
{
    struct spare spare = {0};
    uint32_t level = order->height, inners;

    while (level > 0 && path->nodes[level - 1]->count == PST_CHILD_MAX)
        level--;
    inners = order->height - level + (level == 0); /* each full node, and a root above them */
    pst_assert(inners <= PST_ORDER_HEIGHT_MAX);
    spare.leaf = pst_leaf_new(order);
    spare.separator = spare.leaf ? pst_separator_new(order, left, right) : NULL;
    while (spare.separator && spare.inner_count < inners) {
        spare.inners[spare.inner_count] = pst_inner_new(order);
        if (!spare.inners[spare.inner_count])
            break;
        spare.inner_count++;
    }
    if (!spare.separator || spare.inner_count < inners) {
        spare_give(order, &spare);
        return -ENOMEM;
    }
    *out = spare;
    return 0;
}

/* Puts the new leaf right of the path's, splitting full inner nodes on the way up. The path is void
 * afterwards. */
static void path_add(struct pst_order *order, struct pst_order_path *path, struct spare *spare)
{
    struct pst_separator *separator = spare->separator;
    void *child = spare->leaf;
    struct pst_inner *root;

    for (uint32_t level = order->height; level-- > 0;) {
        struct pst_inner *inner = path->nodes[level], *right;
        struct pst_separator *middle;
        uint32_t at = path->at[level];

        if (inner->count < PST_CHILD_MAX) {
            pst_inner_insert(inner, at, separator, child);
            return;
        }
        pst_assert(spare->inner_count > 0);
        right = spare->inners[--spare->inner_count];
        middle = pst_inners_divide(inner, right, PST_CHILD_MAX / 2, NULL);
        if (at < inner->count)
            pst_inner_insert(inner, at, separator, child);
        else
            pst_inner_insert(right, at - inner->count, separator, child);
        separator = middle;
        child = right;
    }
    pst_assert(spare->inner_count == 1);
    pst_assert(order->height + 1 < PST_ORDER_HEIGHT_MAX);
    root = spare->inners[0];
    root->count = 1;
    root->children[0] = order->root;
    pst_inner_insert(root, 0, separator, child);
    order->root = root;
    order->height++;
}

/* Cuts the path's full leaf at @at, before @right. Return: the leaf that @key belongs to, NULL without
 * memory. */
static struct pst_leaf *leaf_split(struct pst_order *order, struct pst_order_path *path, uint32_t at,
                                   struct pst_bytes right, struct pst_bytes key)
{
    struct pst_leaf *leaf = path->leaf;
    uint32_t child = order->height ? path->at[order->height - 1] : 0;
    const struct pst_separator *before = path_before(order, path, child),
                               *behind = path_behind(order, path, child);
    struct spare spare;
    bool goes_right;

    pst_assert(at > 0);
    pst_assert(at <= leaf->count);
    if (spare_take(order, path, pst_order_key(order, leaf->entries[at - 1]), right, &spare) < 0)
        return NULL;
    goes_right = pst_bytes_compare(key, pst_separator_bytes(spare.separator)) >= 0;
    spare.leaf->prefix = leaf->prefix;
    spare.leaf->next = leaf->next;
    leaf->next = spare.leaf;
    pst_leaves_divide(leaf, spare.leaf, at);
    pst_leaf_rehead(order, leaf, pst_separators_prefix(before, spare.separator), false);
    pst_leaf_rehead(order, spare.leaf, pst_separators_prefix(spare.separator, behind), false);
    path_add(order, path, &spare);
    return goes_right ? spare.leaf : leaf;
}

/* Evens child @at and its right neighbour out. Return: the leaf that @key belongs to, NULL without memory. */
static struct pst_leaf *leaves_even_out(struct pst_order *order, struct pst_order_path *path, uint32_t at,
                                        struct pst_bytes key)
{
    struct pst_inner *parent = path->nodes[order->height - 1];
    struct pst_leaf *left = parent->children[at], *right = parent->children[at + 1];
    uint32_t left_count = (left->count + right->count) / 2u;
    bool force = left->prefix != right->prefix;
    struct pst_separator *separator;
    uint64_t last, first; /* the entries on both sides of the new boundary */

    pst_assert(left->next == right);
    pst_assert(left->count != right->count);
    pst_assert(left_count > 0);
    last = left_count <= left->count ? left->entries[left_count - 1]
                                     : right->entries[left_count - left->count - 1];
    first = left_count < left->count ? left->entries[left_count] : right->entries[left_count - left->count];
    separator = pst_separator_new(order, pst_order_key(order, last), pst_order_key(order, first));
    if (!separator)
        return NULL;
    pst_leaves_divide(left, right, left_count);
    pst_separator_free(order, pst_inner_replace(parent, at, separator));
    pst_leaf_rehead(order, left, pst_separators_prefix(path_before(order, path, at), separator), force);
    pst_leaf_rehead(order, right, pst_separators_prefix(separator, path_behind(order, path, at + 1)), force);
    return pst_bytes_compare(key, pst_separator_bytes(separator)) >= 0 ? right : left;
}

static bool leaf_has_room(const struct pst_inner *parent, uint32_t at)
{
    const struct pst_leaf *leaf = parent->children[at];

    pst_assert(at < parent->count);
    pst_assert(leaf->magic == PST_LEAF_MAGIC);
    return leaf->count + PST_LEAF_SHIFT_MIN <= PST_LEAF_MAX;
}

/* Makes room for @key, which belongs at @at of the path's full leaf. Return: its leaf now, NULL without
 * memory. */
static struct pst_leaf *leaf_make_room(struct pst_order *order, struct pst_order_path *path, uint32_t at,
                                       struct pst_bytes key)
{
    struct pst_leaf *leaf = path->leaf;
    uint32_t middle = PST_LEAF_MAX / 2;

    pst_assert(leaf->count == PST_LEAF_MAX);
    pst_assert(at <= leaf->count);
    if (!leaf->next && at == leaf->count)
        return leaf_split(order, path, at, key, key);
    if (order->height > 0) {
        const struct pst_inner *parent = path->nodes[order->height - 1];
        uint32_t child = path->at[order->height - 1];

        if (child > 0 && leaf_has_room(parent, child - 1))
            return leaves_even_out(order, path, child - 1, key);
        if (child + 1 < parent->count && leaf_has_room(parent, child + 1))
            return leaves_even_out(order, path, child, key);
    }
    return leaf_split(order, path, middle, pst_order_key(order, leaf->entries[middle]), key);
}

/* ---- shrinking ---- */

/* Joins inner nodes that became small with a neighbour, or evens the two out, from the lowest up. */
static void path_mend(struct pst_order *order, struct pst_order_path *path)
{
    pst_assert(order->height > 0);
    for (uint32_t level = order->height - 1; level > 0; level--) {
        struct pst_inner *parent = path->nodes[level - 1], *left, *right;
        uint32_t at = path->at[level - 1], total;

        if (path->nodes[level]->count >= PST_CHILD_MIN)
            return;
        pst_assert(parent->count >= 2);
        pst_assert(parent->children[at] == path->nodes[level]);
        at -= at > 0;
        left = parent->children[at];
        right = parent->children[at + 1];
        total = left->count + right->count;
        if (total > PST_CHILD_MAX) {
            pst_inner_replace(parent, at, pst_inners_divide(left, right, total / 2, parent->separators[at]));
            return;
        }
        pst_inners_divide(left, right, total, parent->separators[at]);
        pst_inner_remove(parent, at);
        pst_order_give(order, right, sizeof(*right));
    }
    while (order->height > 0 && ((struct pst_inner *)order->root)->count == 1) {
        struct pst_inner *root = order->root;

        order->root = root->children[0];
        order->height--;
        pst_order_give(order, root, sizeof(*root));
    }
}

/* Joins the path's leaf with its smaller sibling when the two leave room, or when it is empty. */
static void leaf_join(struct pst_order *order, struct pst_order_path *path)
{
    struct pst_inner *parent = path->nodes[order->height - 1];
    uint32_t at = path->at[order->height - 1], total, prefix;
    struct pst_leaf *left, *right;

    pst_assert(parent->count >= 2);
    if (at + 1u == parent->count)
        at--;
    else if (at > 0 && ((struct pst_leaf *)parent->children[at - 1])->count <
                           ((struct pst_leaf *)parent->children[at + 1])->count)
        at--;
    left = parent->children[at];
    right = parent->children[at + 1];
    total = left->count + right->count;
    pst_assert(left->next == right);
    pst_assert(left == path->leaf || right == path->leaf);
    if (total > PST_LEAF_JOIN_MAX && path->leaf->count > 0)
        return;
    prefix = pst_separators_prefix(path_before(order, path, at), path_behind(order, path, at + 1));
    if (left->count == 0)
        left->prefix = right->prefix; /* so that equal prefixes below mean equal heads */
    pst_leaves_divide(left, right, total);
    pst_leaf_rehead(order, left, prefix, left->prefix != right->prefix);
    left->next = right->next;
    pst_order_give(order, right, sizeof(*right));
    pst_separator_free(order, pst_inner_remove(parent, at));
    path_mend(order, path);
}

/* ---- outward ---- */

int pst_order_open(struct pst_bytes (*key_of)(void *ctx, uint64_t ref), void *ctx, struct pst_order **out)
{
    struct pst_order *order = calloc(1, sizeof(*order));

    pst_assert(key_of);
    pst_assert(out);
    if (!order)
        return -ENOMEM;
    order->magic = PST_ORDER_MAGIC;
    order->memory_bytes = sizeof(*order);
    order->key_of = key_of;
    order->ctx = ctx;
    order->root = pst_leaf_new(order);
    if (!order->root) {
        free(order);
        return -ENOMEM;
    }
    *out = order;
    return 0;
}

static void node_close(struct pst_order *order, void *node, uint32_t height)
{
    struct pst_inner *inner = node;

    if (height == 0) {
        pst_assert(((struct pst_leaf *)node)->magic == PST_LEAF_MAGIC);
        pst_order_give(order, node, sizeof(struct pst_leaf));
        return;
    }
    pst_assert(inner->count <= PST_CHILD_MAX);
    for (uint32_t i = 0; i < inner->count; i++)
        node_close(order, inner->children[i], height - 1);
    for (uint32_t i = 0; i + 1u < inner->count; i++)
        pst_separator_free(order, inner->separators[i]);
    pst_order_give(order, inner, sizeof(*inner));
}

struct pst_order *pst_order_close(struct pst_order *order)
{
    if (!order)
        return NULL;
    pst_assert(order->magic == PST_ORDER_MAGIC);
    node_close(order, order->root, order->height);
    pst_assert(order->memory_bytes == sizeof(*order));
    free(order);
    return NULL;
}

int pst_order_insert(struct pst_order *order, struct pst_bytes key, uint64_t ref)
{
    struct pst_order_path path;
    struct pst_leaf *leaf;
    uint32_t at;
    bool found;

    pst_assert(key.len >= 1);
    pst_assert(key.len <= PST_ORDER_KEY_BYTES_MAX);
    pst_assert(ref >= 1);
    pst_assert(ref == pst_leaf_ref(ref));
    order_descend(order, key, &path);
    leaf = path.leaf;
    at = pst_leaf_find(order, leaf, key, &found);
    pst_assert(!found);
    if (pst_unlikely(leaf->count == PST_LEAF_MAX)) {
        leaf = leaf_make_room(order, &path, at, key);
        if (!leaf)
            return -ENOMEM;
        at = pst_leaf_find(order, leaf, key, &found);
    }
    pst_leaf_insert(leaf, at, key, ref);
    order->count++;
    return 0;
}

int pst_order_remove(struct pst_order *order, struct pst_bytes key)
{
    struct pst_order_path path;
    uint32_t at;
    bool found;

    pst_assert(key.len >= 1);
    pst_assert(key.len <= PST_ORDER_KEY_BYTES_MAX);
    order_descend(order, key, &path);
    at = pst_leaf_find(order, path.leaf, key, &found);
    if (!found)
        return -ENOENT;
    pst_assert(order->count > 0);
    pst_leaf_remove(path.leaf, at);
    order->count--;
    if (path.leaf->count < PST_LEAF_MIN && order->height > 0)
        leaf_join(order, &path);
    return 0;
}

int pst_order_replace(struct pst_order *order, struct pst_bytes key, uint64_t new_ref)
{
    struct pst_order_path path;
    uint32_t at;
    bool found;

    pst_assert(key.len >= 1);
    pst_assert(key.len <= PST_ORDER_KEY_BYTES_MAX);
    pst_assert(new_ref >= 1);
    pst_assert(new_ref == pst_leaf_ref(new_ref));
    order_descend(order, key, &path);
    at = pst_leaf_find(order, path.leaf, key, &found);
    if (!found)
        return -ENOENT;
    pst_leaf_replace(path.leaf, at, new_ref);
    return 0;
}

struct pst_order_cursor pst_order_seek(struct pst_order *order, struct pst_bytes key, bool after)
{
    struct pst_order_path path;
    uint32_t at;
    bool found;

    if (key.len == 0) /* the beginning; its pointer may be NULL */
        key.data = "";
    order_descend(order, key, &path);
    at = pst_leaf_find(order, path.leaf, key, &found);
    return (struct pst_order_cursor){path.leaf, at + (found && after)};
}

/*
 * Touches the records that come next. Finding a key's address reads its record, so the addresses are asked
 * for several at a time: the reads then wait together instead of one after the other.
 */
static void leaf_touch(const struct pst_order *order, const struct pst_leaf *leaf, uint32_t at)
{
    uint32_t to = (uint32_t)pst_min(at + AHEAD, leaf->count);

    pst_assert(leaf->magic == PST_LEAF_MAGIC);
    for (; at < to; at++)
        __builtin_prefetch(pst_order_key(order, leaf->entries[at]).data);
}

uint64_t pst_order_next(struct pst_order *order, struct pst_order_cursor *cursor)
{
    const struct pst_leaf *leaf = cursor->leaf;

    pst_assert(order->magic == PST_ORDER_MAGIC);
    pst_assert(leaf->magic == PST_LEAF_MAGIC);
    pst_assert(cursor->at <= leaf->count);
    while (cursor->at == leaf->count) {
        if (!leaf->next)
            return 0;
        cursor->leaf = leaf->next;
        cursor->at = 0;
        leaf = cursor->leaf;
        pst_assert(leaf->magic == PST_LEAF_MAGIC);
        if (leaf->next)
            __builtin_prefetch(leaf->next);
    }
    if (cursor->at % AHEAD == 0)
        leaf_touch(order, leaf, cursor->at);
    return pst_leaf_ref(leaf->entries[cursor->at++]);
}

uint64_t pst_order_count(const struct pst_order *order)
{
    pst_assert(order->magic == PST_ORDER_MAGIC);
    return order->count;
}

uint64_t pst_order_memory_bytes(const struct pst_order *order)
{
    pst_assert(order->magic == PST_ORDER_MAGIC);
    return order->memory_bytes;
}
