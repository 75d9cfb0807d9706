/* SPDX-License-Identifier: Apache-2.0 */
/*
 * order_node.c: searching and changing single nodes of the ordered index, or two neighbours. Knows no tree
 * and, but for new nodes and separators, takes no memory: nothing else here can fail.
 */
#include "store/index/order_priv.h"
#include "base/fault.h"

enum { LEAF_HEAD_BYTES = 3, INNER_HEAD_BYTES = 8, REF_BITS = 40 };

/* ---- memory ---- */

/* What an allocation costs with malloc's own header: the figure is meant to be true. */
static size_t chunk_bytes(size_t bytes)
{
    return pst_max(32, pst_round_up(bytes + 8, 16));
}

void *pst_order_take(struct pst_order *order, size_t bytes)
{
    void *p = pst_fault(PST_FAULT_order_enomem) ? NULL : malloc(bytes);

    pst_assert(bytes > 0);
    if (p)
        order->memory_bytes += chunk_bytes(bytes);
    return p;
}

void *pst_order_give(struct pst_order *order, void *p, size_t bytes)
{
    if (!p)
        return NULL;
    pst_assert(bytes > 0);
    pst_assert(order->memory_bytes >= chunk_bytes(bytes));
    order->memory_bytes -= chunk_bytes(bytes);
    free(p);
    return NULL;
}

/* ---- bytes ---- */

static uint32_t bytes_shared(struct pst_bytes a, struct pst_bytes b)
{
    const uint8_t *x = a.data, *y = b.data;
    size_t max = a.len < b.len ? a.len : b.len, n = 0;

    while (n < max && x[n] == y[n])
        n++;
    pst_assert(n <= a.len);
    pst_assert(n <= b.len);
    return (uint32_t)n;
}

/* @head_bytes bytes of @key from @from on, the first one most significant, zero-padded. */
static inline uint64_t bytes_head(struct pst_bytes key, uint32_t from, uint32_t head_bytes)
{
    const uint8_t *data = key.data;
    uint64_t head = 0;

    if (pst_likely(from + sizeof(head) <= key.len)) {
        memcpy(&head, data + from, sizeof(head));
        return __builtin_bswap64(head) >> (64 - 8 * head_bytes);
    }
    for (uint32_t i = from; i < from + head_bytes; i++)
        head = head << 8 | (i < key.len ? data[i] : 0);
    return head;
}

/* Return: how many of @count sorted words are below @word. Branches would be mispredicted half of the time.
 */
static inline uint32_t words_below(const uint64_t *words, uint32_t count, uint64_t word)
{
    const uint64_t *base = words;

    if (count == 0)
        return 0;
    while (count > 1) {
        uint32_t half = count / 2;

        base += base[half - 1] < word ? half : 0;
        count -= half;
    }
    return (uint32_t)(base - words) + (*base < word);
}

/* ---- separators ---- */

struct pst_separator *pst_separator_new(struct pst_order *order, struct pst_bytes left,
                                        struct pst_bytes right)
{
    uint32_t len = bytes_shared(left, right) + 1;
    struct pst_separator *separator;

    pst_assert(len <= right.len); /* else they are equal, or out of order */
    pst_assert(len <= PST_ORDER_KEY_BYTES_MAX);
    pst_assert(len > left.len ||
               ((const uint8_t *)left.data)[len - 1] < ((const uint8_t *)right.data)[len - 1]);
    separator = pst_order_take(order, sizeof(*separator) + len);
    if (!separator)
        return NULL;
    separator->len = (uint16_t)len;
    memcpy(separator->data, right.data, len);
    return separator;
}

void pst_separator_free(struct pst_order *order, struct pst_separator *separator)
{
    if (separator)
        pst_order_give(order, separator, sizeof(*separator) + separator->len);
}

uint32_t pst_separators_prefix(const struct pst_separator *a, const struct pst_separator *b)
{
    return a && b ? bytes_shared(pst_separator_bytes(a), pst_separator_bytes(b)) : 0;
}

/* ---- leaves ---- */

static inline uint64_t leaf_entry(struct pst_bytes key, uint32_t prefix, uint64_t ref)
{
    return bytes_head(key, prefix, LEAF_HEAD_BYTES) << REF_BITS | ref;
}

struct pst_leaf *pst_leaf_new(struct pst_order *order)
{
    struct pst_leaf *leaf = pst_order_take(order, sizeof(*leaf));

    if (!leaf)
        return NULL;
    leaf->next = NULL;
    leaf->magic = PST_LEAF_MAGIC;
    leaf->count = 0;
    leaf->prefix = 0;
    pst_assert(order->memory_bytes > sizeof(*leaf));
    return leaf;
}

uint32_t pst_leaf_find(const struct pst_order *order, const struct pst_leaf *leaf, struct pst_bytes key,
                       bool *found)
{
    uint64_t from = leaf_entry(key, leaf->prefix, 0), to = from | ((1ull << REF_BITS) - 1);
    uint32_t low = words_below(leaf->entries, leaf->count, from), high;

    pst_assert(leaf->magic == PST_LEAF_MAGIC);
    pst_assert(leaf->count <= PST_LEAF_MAX);
    *found = false;
    if (low == leaf->count || leaf->entries[low] > to)
        return low;
    high = to == UINT64_MAX ? leaf->count : low + words_below(leaf->entries + low, leaf->count - low, to + 1);
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        int order_of_two = pst_bytes_compare(pst_order_key(order, leaf->entries[middle]), key);

        if (order_of_two == 0) {
            *found = true;
            return middle;
        }
        if (order_of_two < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

void pst_leaf_insert(struct pst_leaf *leaf, uint32_t at, struct pst_bytes key, uint64_t ref)
{
    uint64_t *entry = &leaf->entries[at];

    pst_assert(leaf->magic == PST_LEAF_MAGIC);
    pst_assert(leaf->count < PST_LEAF_MAX);
    pst_assert(at <= leaf->count);
    pst_assert(key.len >= leaf->prefix);
    memmove(entry + 1, entry, (leaf->count - at) * sizeof(*entry));
    *entry = leaf_entry(key, leaf->prefix, ref);
    leaf->count++;
}

void pst_leaf_replace(struct pst_leaf *leaf, uint32_t at, uint64_t ref)
{
    pst_assert(leaf->magic == PST_LEAF_MAGIC);
    pst_assert(at < leaf->count);
    pst_assert(ref == pst_leaf_ref(ref));
    leaf->entries[at] ^= pst_leaf_ref(leaf->entries[at]) ^ ref;
}

void pst_leaf_remove(struct pst_leaf *leaf, uint32_t at)
{
    uint64_t *entry = &leaf->entries[at];

    pst_assert(leaf->magic == PST_LEAF_MAGIC);
    pst_assert(at < leaf->count);
    leaf->count--;
    memmove(entry, entry + 1, (leaf->count - at) * sizeof(*entry));
}

void pst_leaves_divide(struct pst_leaf *left, struct pst_leaf *right, uint32_t left_count)
{
    uint32_t total = left->count + right->count;

    pst_assert(left->magic == PST_LEAF_MAGIC);
    pst_assert(right->magic == PST_LEAF_MAGIC);
    pst_assert(left_count <= PST_LEAF_MAX);
    pst_assert(left_count <= total);
    pst_assert(total - left_count <= PST_LEAF_MAX);
    if (left_count < left->count) {
        uint32_t moved = left->count - left_count;

        memmove(right->entries + moved, right->entries, right->count * sizeof(uint64_t));
        memcpy(right->entries, left->entries + left_count, moved * sizeof(uint64_t));
    } else {
        uint32_t moved = left_count - left->count;

        memcpy(left->entries + left->count, right->entries, moved * sizeof(uint64_t));
        memmove(right->entries, right->entries + moved, (right->count - moved) * sizeof(uint64_t));
    }
    left->count = (uint16_t)left_count;
    right->count = (uint16_t)(total - left_count);
}

void pst_leaf_rehead(const struct pst_order *order, struct pst_leaf *leaf, uint32_t prefix, bool force)
{
    pst_assert(leaf->magic == PST_LEAF_MAGIC);
    pst_assert(prefix <= PST_ORDER_KEY_BYTES_MAX);
    if (leaf->prefix == prefix && !force)
        return;
    leaf->prefix = (uint16_t)prefix;
    for (uint32_t i = 0; i < leaf->count; i++) {
        struct pst_bytes key = pst_order_key(order, leaf->entries[i]);

        pst_assert(key.len >= prefix);
        leaf->entries[i] = leaf_entry(key, prefix, pst_leaf_ref(leaf->entries[i]));
    }
}

/* ---- inner nodes ---- */

struct pst_inner *pst_inner_new(struct pst_order *order)
{
    struct pst_inner *inner = pst_order_take(order, sizeof(*inner));

    if (!inner)
        return NULL;
    inner->count = 0;
    inner->prefix = 0;
    pst_assert(order->memory_bytes > sizeof(*inner));
    return inner;
}

static void inner_head(struct pst_inner *inner, uint32_t at)
{
    struct pst_bytes key = pst_separator_bytes(inner->separators[at]);

    pst_assert(key.len >= inner->prefix);
    inner->heads[at] = bytes_head(key, inner->prefix, INNER_HEAD_BYTES);
}

/* Brings prefix and heads up to date after a change of the separators [@from, @to). */
static void inner_rehead(struct pst_inner *inner, uint32_t from, uint32_t to)
{
    uint32_t separators = inner->count ? inner->count - 1u : 0, prefix;

    pst_assert(from <= to);
    pst_assert(to <= separators);
    if (separators == 0)
        return;
    prefix = pst_separators_prefix(inner->separators[0], inner->separators[separators - 1]);
    if (prefix != inner->prefix) {
        inner->prefix = (uint16_t)prefix;
        from = 0;
        to = separators;
    }
    for (uint32_t i = from; i < to; i++)
        inner_head(inner, i);
}

uint32_t pst_inner_find(const struct pst_inner *inner, struct pst_bytes key)
{
    uint32_t low, high, separators = inner->count - 1u;
    uint64_t head;

    pst_assert(inner->count >= 2);
    pst_assert(inner->count <= PST_CHILD_MAX);
    if (inner->prefix > 0) { /* unlike in a leaf, a key may come that does not share it */
        struct pst_bytes shared = {inner->separators[0]->data, inner->prefix};
        int order_of_two = memcmp(key.data, shared.data, pst_min(key.len, shared.len));

        if (order_of_two < 0 || (order_of_two == 0 && key.len < shared.len))
            return 0;
        if (order_of_two > 0)
            return separators;
    }
    head = bytes_head(key, inner->prefix, INNER_HEAD_BYTES);
    low = words_below(inner->heads, separators, head);
    if (low == separators || inner->heads[low] != head)
        return low;
    high =
        head == UINT64_MAX ? separators : low + words_below(inner->heads + low, separators - low, head + 1);
    while (low < high) {
        uint32_t middle = (low + high) / 2;

        if (pst_bytes_compare(pst_separator_bytes(inner->separators[middle]), key) <= 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

void pst_inner_insert(struct pst_inner *inner, uint32_t at, struct pst_separator *separator, void *child)
{
    uint32_t behind = inner->count - 1u - at;

    pst_assert(separator && child);
    pst_assert(inner->count < PST_CHILD_MAX);
    pst_assert(at < inner->count);
    memmove(inner->separators + at + 1, inner->separators + at, behind * sizeof(inner->separators[0]));
    memmove(inner->heads + at + 1, inner->heads + at, behind * sizeof(inner->heads[0]));
    memmove(inner->children + at + 2, inner->children + at + 1, behind * sizeof(inner->children[0]));
    inner->separators[at] = separator;
    inner->children[at + 1] = child;
    inner->count++;
    inner_rehead(inner, at, at + 1);
}

struct pst_separator *pst_inner_remove(struct pst_inner *inner, uint32_t at)
{
    struct pst_separator *separator = inner->separators[at];
    uint32_t behind = inner->count - 2u - at;

    pst_assert(separator);
    pst_assert(at + 1u < inner->count);
    memmove(inner->separators + at, inner->separators + at + 1, behind * sizeof(inner->separators[0]));
    memmove(inner->heads + at, inner->heads + at + 1, behind * sizeof(inner->heads[0]));
    memmove(inner->children + at + 1, inner->children + at + 2, behind * sizeof(inner->children[0]));
    inner->count--;
    inner_rehead(inner, 0, 0);
    return separator;
}

struct pst_separator *pst_inner_replace(struct pst_inner *inner, uint32_t at, struct pst_separator *separator)
{
    struct pst_separator *old = inner->separators[at];

    pst_assert(separator);
    pst_assert(at + 1u < inner->count);
    inner->separators[at] = separator;
    inner_rehead(inner, at, at + 1);
    return old;
}

struct pst_separator *pst_inners_divide(struct pst_inner *left, struct pst_inner *right, uint32_t left_count,
                                        struct pst_separator *middle)
{
    struct pst_separator *separators[2 * PST_CHILD_MAX];
    void *children[2 * PST_CHILD_MAX];
    uint32_t total = left->count + right->count, right_count = total - left_count;

    pst_assert(left->count > 0);
    pst_assert(left_count > 0);
    pst_assert(left_count <= PST_CHILD_MAX);
    pst_assert(left_count <= total);
    pst_assert(right_count <= PST_CHILD_MAX);
    pst_assert(!middle == (right->count == 0));
    memcpy(children, left->children, left->count * sizeof(children[0]));
    memcpy(children + left->count, right->children, right->count * sizeof(children[0]));
    memcpy(separators, left->separators, (left->count - 1u) * sizeof(separators[0]));
    if (right->count > 0) { /* right's separators follow the one between the two */
        separators[left->count - 1u] = middle;
        memcpy(separators + left->count, right->separators, (right->count - 1u) * sizeof(separators[0]));
    }
    memcpy(left->children, children, left_count * sizeof(children[0]));
    memcpy(left->separators, separators, (left_count - 1) * sizeof(separators[0]));
    memcpy(right->children, children + left_count, right_count * sizeof(children[0]));
    left->count = (uint16_t)left_count;
    right->count = (uint16_t)right_count;
    inner_rehead(left, 0, left_count - 1);
    if (right_count == 0)
        return NULL;
    memcpy(right->separators, separators + left_count, (right_count - 1) * sizeof(separators[0]));
    inner_rehead(right, 0, right_count - 1);
    return separators[left_count - 1];
}
