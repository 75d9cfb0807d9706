/* SPDX-License-Identifier: Apache-2.0 */
/*
 * external.c: the table of who has what. An entry is one hash on one tier of one node, which are its owner,
 * and it stands in three lists, so that nothing has to search:
 *
 *   pair  a chain for hash and owner: reporting and revoking, whatever the number of holders
 *   same  a chain for the hash: matching
 *   owned all of its owner's: revoking at once
 *
 * Whatever leaves an entry out of one of them leaves it out of all.
 */
#include "directory/external_priv.h"

enum { MAGIC = 0x6b76e47e, QUERY_HEADS = 2 * PST_EXTERNAL_QUERY_MAX };
_Static_assert(PST_EXTERNAL_WORDS * 64 == PST_EXTERNAL_QUERY_MAX, "a bit for each hash of a query");
_Static_assert(PST_EXTERNAL_QUERY_MAX < UINT16_MAX, "a hash's place, plus one, has 16 bits");

enum list { SAME, OWNED, LISTS };

struct entry {
    struct pst_hash128 hash;
    struct pst_external_link links[LISTS];
    uint32_t pair_next;
    uint32_t owner;
};

_Static_assert(sizeof(struct entry) == 40, "what an entry costs, with 4 bytes for each of its two heads");

struct owner {
    uint32_t first, count;
};

/* Which row of the present question a node has. */
struct seat {
    uint64_t question;
    uint32_t row;
};

struct pst_external {
    uint32_t magic;
    uint32_t nodes_max, entries_max;
    uint32_t fresh; /* entries that were never used */
    uint32_t spare; /* the first of those that were, linked by pair_next */
    struct entry *entries;
    uint32_t *pair_heads, *same_heads;
    struct owner *owners;
    struct seat *seats;
    struct pst_external_hits hits;
    struct pst_external_stats stats;
};

/* ---- life ---- */

int pst_external_open(const struct pst_external_settings *settings, struct pst_external **out)
{
    struct pst_external *x;
    int r;

    if (settings->nodes_max == 0 || settings->nodes_max > UINT32_MAX / PST_EXTERNAL_TIERS ||
        settings->entries_max == 0 || settings->entries_max == UINT32_MAX || settings->hits_max == 0 ||
        settings->hits_max == UINT32_MAX)
        return -EINVAL;
    x = calloc(1, sizeof(*x));
    if (!x)
        return -ENOMEM;
    x->magic = MAGIC;
    x->nodes_max = settings->nodes_max;
    x->entries_max = x->fresh = settings->entries_max;
    x->entries = calloc((size_t)x->entries_max + 1, sizeof(*x->entries));
    x->pair_heads = calloc(x->entries_max, sizeof(*x->pair_heads));
    x->same_heads = calloc(x->entries_max, sizeof(*x->same_heads));
    x->owners = calloc((size_t)x->nodes_max * PST_EXTERNAL_TIERS, sizeof(*x->owners));
    x->seats = calloc(x->nodes_max, sizeof(*x->seats));
    r = pst_external_hits_init(&x->hits, settings->hits_max, settings->hit_ttl_ns);
    if (r < 0 || !x->entries || !x->pair_heads || !x->same_heads || !x->owners || !x->seats) {
        pst_external_close(x);
        return -ENOMEM;
    }
    *out = x;
    return 0;
}

struct pst_external *pst_external_close(struct pst_external *x)
{
    if (!x)
        return NULL;
    pst_assert(x->magic == MAGIC);
    x->magic = 0;
    pst_external_hits_fini(&x->hits);
    free(x->seats);
    free(x->owners);
    free(x->same_heads);
    free(x->pair_heads);
    free(x->entries);
    free(x);
    return NULL;
}

/* ---- lists ---- */

static uint32_t *same_head(const struct pst_external *x, const struct pst_hash128 *hash)
{
    return &x->same_heads[pst_external_head(hash->low, x->entries_max)];
}

/* The other half of the hash, so that neighbours in one chain are not neighbours in the other. */
static uint32_t *pair_head(const struct pst_external *x, const struct pst_hash128 *hash, uint32_t owner)
{
    return &x->pair_heads[pst_external_head(hash->high + owner * 0x9e3779b97f4a7c15, x->entries_max)];
}

/* The link of its chain that names the pair's entry, or that ends the chain. */
static uint32_t *pair_find(struct pst_external *x, const struct pst_hash128 *hash, uint32_t owner)
{
    uint32_t *at = pair_head(x, hash, owner);

    while (*at) {
        struct entry *e = &x->entries[*at];

        x->stats.steps++;
        if (e->owner == owner && pst_hash128_equal(&e->hash, hash))
            break;
        at = &e->pair_next;
    }
    pst_assert(*at <= x->entries_max);
    return at;
}

static void list_push(struct pst_external *x, enum list list, uint32_t *head, uint32_t number)
{
    pst_assert(number > 0 && number <= x->entries_max);
    pst_assert(*head != number);
    pst_assert(*head <= x->entries_max);
    x->entries[number].links[list] = (struct pst_external_link){.next = *head};
    if (*head)
        x->entries[*head].links[list].prev = number;
    *head = number;
}

static void list_remove(struct pst_external *x, enum list list, uint32_t *head, uint32_t number)
{
    struct pst_external_link *link = &x->entries[number].links[list];

    pst_assert(number > 0 && number <= x->entries_max);
    pst_assert(link->prev ? x->entries[link->prev].links[list].next == number : *head == number);
    pst_assert(!link->next || x->entries[link->next].links[list].prev == number);
    if (link->next)
        x->entries[link->next].links[list].prev = link->prev;
    if (link->prev)
        x->entries[link->prev].links[list].next = link->next;
    else
        *head = link->next;
}

static uint32_t owner_of(const struct pst_external *x, uint32_t node, uint32_t tier)
{
    pst_assert(x->magic == MAGIC);
    pst_assert(node < x->nodes_max);
    return node * PST_EXTERNAL_TIERS + (tier < PST_EXTERNAL_TIERS ? tier : PST_EXTERNAL_UNKNOWN);
}

/* A batch's first cache misses are waited for together. */
static void prefetch_heads(const struct pst_external *x, uint32_t owner, const struct pst_hash128 *hashes,
                           uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        __builtin_prefetch(pair_head(x, &hashes[i], owner));
        __builtin_prefetch(same_head(x, &hashes[i]));
    }
}

/* ---- reports ---- */

static uint32_t entry_take(struct pst_external *x)
{
    uint32_t number = x->spare;

    if (number)
        x->spare = x->entries[number].pair_next;
    else if (x->fresh)
        number = x->entries_max - --x->fresh;
    pst_assert(number <= x->entries_max);
    pst_assert(number || x->stats.entries == x->entries_max);
    return number;
}

/* @at: the end of the pair's chain. Return: whether there was room. */
static bool entry_add(struct pst_external *x, uint32_t *at, const struct pst_hash128 *hash, uint32_t owner)
{
    uint32_t number = entry_take(x);

    pst_assert(*at == 0);
    if (!number)
        return false;
    x->entries[number] = (struct entry){.hash = *hash, .owner = owner};
    *at = number;
    list_push(x, SAME, same_head(x, hash), number);
    list_push(x, OWNED, &x->owners[owner].first, number);
    x->owners[owner].count++;
    x->stats.entries++;
    pst_assert(x->stats.entries <= x->entries_max);
    x->stats.added++;
    return true;
}

/* @at: the link that names the entry in its pair's chain. */
static void entry_remove(struct pst_external *x, uint32_t *at)
{
    uint32_t number = *at;
    struct entry *e = &x->entries[number];

    pst_assert(number != 0);
    pst_assert(number <= x->entries_max);
    pst_assert(x->owners[e->owner].count > 0);
    pst_assert(x->stats.entries > 0);
    *at = e->pair_next;
    list_remove(x, SAME, same_head(x, &e->hash), number);
    list_remove(x, OWNED, &x->owners[e->owner].first, number);
    x->owners[e->owner].count--;
    e->pair_next = x->spare;
    x->spare = number;
    x->stats.entries--;
    x->stats.removed++;
}

uint32_t pst_external_report(struct pst_external *x, uint32_t node, uint32_t tier,
                             const struct pst_hash128 *hashes, uint32_t count)
{
    uint32_t owner = owner_of(x, node, tier), refused = 0;

    prefetch_heads(x, owner, hashes, count);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t *at = pair_find(x, &hashes[i], owner);

        refused += !*at && !entry_add(x, at, &hashes[i], owner);
    }
    pst_assert(refused <= count);
    x->stats.refused += refused;
    return refused;
}

uint32_t pst_external_revoke(struct pst_external *x, uint32_t node, uint32_t tier,
                             const struct pst_hash128 *hashes, uint32_t count)
{
    uint32_t owner = owner_of(x, node, tier), removed = 0;

    prefetch_heads(x, owner, hashes, count);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t *at = pair_find(x, &hashes[i], owner);

        if (!*at)
            continue;
        entry_remove(x, at);
        removed++;
    }
    pst_assert(removed <= count);
    return removed;
}

uint32_t pst_external_revoke_tier(struct pst_external *x, uint32_t node, uint32_t tier, uint32_t count_max)
{
    uint32_t owner = owner_of(x, node, tier), removed = 0;
    const struct owner *of = &x->owners[owner];

    for (; of->first && removed < count_max; removed++)
        entry_remove(x, pair_find(x, &x->entries[of->first].hash, owner));
    pst_assert((of->count == 0) == (of->first == 0));
    pst_assert(removed <= count_max);
    return removed;
}

uint32_t pst_external_revoke_node(struct pst_external *x, uint32_t node, uint32_t count_max)
{
    uint32_t removed = 0;

    for (uint32_t tier = 0; tier < PST_EXTERNAL_TIERS; tier++)
        removed += pst_external_revoke_tier(x, node, tier, count_max - removed);
    pst_assert(removed <= count_max);
    return removed;
}

/* ---- questions ---- */

struct answer {
    struct pst_external_match *rows;
    uint32_t rows_max, node_count;
};

/* The row of @node, or NULL when there is none left. */
static struct pst_external_match *row_of(struct pst_external *x, struct answer *a, uint32_t node)
{
    struct seat *seat = &x->seats[node];

    pst_assert(node < x->nodes_max);
    pst_assert(a->node_count <= x->nodes_max);
    if (seat->question != x->stats.matches) {
        *seat = (struct seat){.question = x->stats.matches, .row = a->node_count++};
        if (seat->row < a->rows_max)
            a->rows[seat->row] = (struct pst_external_match){.node = node};
    }
    return seat->row < a->rows_max ? &a->rows[seat->row] : NULL;
}

/* Return: whether anybody has the question's hash @position. */
static bool match_one(struct pst_external *x, struct answer *a, const struct pst_hash128 *hash,
                      uint32_t position)
{
    bool found = false;

    for (uint32_t i = *same_head(x, hash); i; i = x->entries[i].links[SAME].next) {
        const struct entry *e = &x->entries[i];
        struct pst_external_match *row;

        x->stats.steps++;
        if (!pst_hash128_equal(&e->hash, hash))
            continue;
        pst_assert(position < PST_EXTERNAL_QUERY_MAX);
        pst_assert(e->owner < x->nodes_max * PST_EXTERNAL_TIERS);
        found = true;
        row = row_of(x, a, e->owner / PST_EXTERNAL_TIERS);
        if (row)
            row->tiers[e->owner % PST_EXTERNAL_TIERS][position / 64] |= (uint64_t)1 << position % 64;
    }
    return found;
}

/* An unknown tier does not shadow a known one, and a hash counts once. */
static void row_finish(struct pst_external_match *row)
{
    for (uint32_t w = 0; w < PST_EXTERNAL_WORDS; w++) {
        uint64_t known = 0;

        for (uint32_t tier = PST_EXTERNAL_UNKNOWN + 1; tier < PST_EXTERNAL_TIERS; tier++)
            known |= row->tiers[tier][w];
        row->tiers[PST_EXTERNAL_UNKNOWN][w] &= ~known;
        row->hash_count += (uint32_t)__builtin_popcountll(known | row->tiers[PST_EXTERNAL_UNKNOWN][w]);
    }
    pst_assert(row->hash_count <= PST_EXTERNAL_QUERY_MAX);
}

/*
 * Whether hashes[@position] comes before, too. @heads: of chains of positions, one more each, through @chain;
 * both begin as zeros.
 */
static bool came_before(const struct pst_hash128 *hashes, uint32_t position, uint16_t heads[QUERY_HEADS],
                        uint16_t chain[PST_EXTERNAL_QUERY_MAX])
{
    uint16_t *head = &heads[hashes[position].low % QUERY_HEADS];

    pst_assert(position < PST_EXTERNAL_QUERY_MAX);
    for (uint32_t i = *head; i; i = chain[i - 1])
        if (pst_hash128_equal(&hashes[i - 1], &hashes[position]))
            return true;
    chain[position] = *head;
    *head = (uint16_t)(position + 1);
    return false;
}

uint32_t pst_external_match(struct pst_external *x, const struct pst_hash128 *hashes, uint32_t count,
                            uint64_t now_ns, bool is_hit, struct pst_external_match *rows, uint32_t rows_max)
{
    struct answer a = {.rows = rows, .rows_max = rows_max};
    uint16_t heads[QUERY_HEADS] = {0}, chain[PST_EXTERNAL_QUERY_MAX] = {0};

    pst_assert(x->magic == MAGIC);
    pst_assert(count <= PST_EXTERNAL_QUERY_MAX);
    pst_assert(rows || rows_max == 0);
    x->stats.matches++;
    for (uint32_t i = 0; i < count; i++)
        __builtin_prefetch(same_head(x, &hashes[i]));
    for (uint32_t i = 0; i < count; i++)
        __builtin_prefetch(&x->entries[*same_head(x, &hashes[i])]);
    for (uint32_t i = 0; i < count; i++) {
        if (came_before(hashes, i, heads, chain) || !match_one(x, &a, &hashes[i], i) || !is_hit)
            continue;
        x->stats.hits++;
        pst_external_hits_add(&x->hits, &hashes[i], now_ns);
    }
    for (uint32_t i = 0; i < pst_min(a.node_count, rows_max); i++)
        row_finish(&rows[i]);
    pst_assert(a.node_count <= x->nodes_max);
    return a.node_count;
}

void pst_external_hit_counts(const struct pst_external *x, const struct pst_hash128 *hashes, uint32_t count,
                             uint64_t now_ns, uint32_t *hits)
{
    pst_assert(x->magic == MAGIC);
    for (uint32_t i = 0; i < count; i++)
        hits[i] = pst_external_hits_count(&x->hits, &hashes[i], now_ns);
}

uint32_t pst_external_count(const struct pst_external *x, uint32_t node, uint32_t tier)
{
    return x->owners[owner_of(x, node, tier)].count;
}

struct pst_external_stats pst_external_stats(const struct pst_external *x)
{
    struct pst_external_stats stats = x->stats;

    pst_assert(stats.entries <= x->entries_max);
    pst_assert(stats.added - stats.removed == stats.entries);
    stats.hits_dropped = x->hits.dropped;
    return stats;
}
