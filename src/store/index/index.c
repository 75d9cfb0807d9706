/* SPDX-License-Identifier: Apache-2.0 */
/*
 * index.c: extendible hashing with two-choice buckets. Owns the directory and its segments; never sees a key.
 * One thread.
 *
 *   hash   63 .. 40 directory (its top `depth` bits, skewed)   33 .. 24 first bucket   23 .. 0 tag
 *   entry  63 .. 40 tag                                        39 .. 0  reference, 0: free
 *
 * Bucket and tag come from other bits than the directory does, so a split or a join of segments leaves every
 * entry in its bucket: a split only asks hash_of() for one bit of each, a join asks nothing.
 */
#include "store/index/index.h"
#include "base/fault.h"

#ifdef __SSE2__
#include <emmintrin.h>
#endif

enum {
    INDEX_MAGIC = 0x1d5e7ab1,
    BUCKET_ENTRIES = 8,
    BUCKET_COUNT = 1024,
    BUCKET_SHIFT = 24, /* also the tag's width */
    SEGMENT_ENTRIES = BUCKET_COUNT * BUCKET_ENTRIES,
    REF_BITS = 40,
    DEPTH_MAX = 24,
    MOVES_MAX = 2, /* entries moved to make room for one */
    /*
     * With a uniform hash a pair is never full in a segment this empty: its entries share one hash, or
     * nearly, and splitting would not part them.
     */
    SPLIT_ENTRIES_MIN = SEGMENT_ENTRIES / 2,
    SPLITS_MAX = 4,                         /* in one insert */
    JOIN_ENTRIES_MAX = SEGMENT_ENTRIES / 4, /* far from a split, so that the two do not alternate */
    JOIN_TRY_ENTRIES = 256, /* a shrinking segment looks at its buddy once in so many removals */
};

struct bucket {
    uint64_t entries[BUCKET_ENTRIES];
} __attribute__((aligned(64)));

struct segment {
    struct bucket buckets[BUCKET_COUNT];
    uint32_t count;
    uint32_t depth; /* the leading hash bits that all entries share */
};

struct pst_index {
    uint32_t magic;
    uint32_t depth;
    uint64_t (*hash_of)(void *ctx, uint64_t ref);
    void *ctx;
    struct segment **directory;
    uint64_t count;
    uint64_t segment_count;
    uint32_t depth_segments[DEPTH_MAX + 1]; /* segments of each depth */
};

/* ---- hashes and entries ---- */

/*
 * Moves the hash's top bits, u of [0, 1), to u (1 + u) / 2, where keys lie three times as dense at the lower
 * end as at the upper. So segments do not all split within the same few keys: at any time they are from half
 * to quite full, and an entry costs 11 to 12.5 bytes, where it would cost 8 before such a time and 16 after
 * it.
 */
static inline uint64_t hash_skew(uint64_t hash)
{
    uint64_t u = hash >> REF_BITS;

    _Static_assert(REF_BITS + DEPTH_MAX == 64, "the directory has the bits above the reference");
    return u * ((1ull << DEPTH_MAX) + u) >> (DEPTH_MAX + 1) << REF_BITS | (hash & PST_INDEX_REF_MAX);
}

static inline size_t directory_at(uint64_t hash, uint32_t depth)
{
    return (size_t)(hash >> 1 >> (63 - depth)); /* in two steps: depth may be 0 */
}

static inline uint64_t entry_make(uint64_t hash, uint64_t ref)
{
    return hash << REF_BITS | ref;
}

static inline uint64_t entry_ref(uint64_t entry)
{
    return entry & PST_INDEX_REF_MAX;
}

static inline uint32_t bucket_first(uint64_t hash)
{
    return (uint32_t)(hash >> BUCKET_SHIFT) & (BUCKET_COUNT - 1);
}

/* An entry's other bucket; its own inverse. The odd step keeps the two apart. */
static inline uint32_t bucket_other(uint32_t bucket, uint64_t entry)
{
    uint32_t step = (uint32_t)(entry >> REF_BITS) * 0x9e3779b1u >> 22;

    return bucket ^ (step | 1);
}

/*
 * One bit for each entry of two buckets with the tag of @entry, @a's below @b's. A free entry counts as one
 * with tag 0: callers look at the reference. One mask for both, since which of them holds a key cannot be
 * predicted.
 */
static inline uint32_t buckets_match(const struct bucket *a, const struct bucket *b, uint64_t entry)
{
#ifdef __SSE2__
    const __m128i tag = _mm_set1_epi32((int)(uint32_t)(entry >> 32 & ~0xffull));
    const __m128i bits = _mm_set1_epi32((int)0xffffff00u);
    __m128i same[4];

    for (int i = 0; i < 4;
         i++) { /* the upper halves of four entries, which hold the tag in their top 24 bits */
        const __m128 *pair = (const __m128 *)(const void *)(i < 2 ? a : b) + (i & 1) * 2;
        __m128i upper = _mm_castps_si128(_mm_shuffle_ps(pair[0], pair[1], _MM_SHUFFLE(3, 1, 3, 1)));

        same[i] = _mm_cmpeq_epi32(_mm_and_si128(upper, bits), tag);
    }
    return (uint32_t)_mm_movemask_epi8(
        _mm_packs_epi16(_mm_packs_epi32(same[0], same[1]), _mm_packs_epi32(same[2], same[3])));
#else
    uint32_t mask = 0;

    for (uint32_t i = 0; i < BUCKET_ENTRIES; i++) {
        mask |= (uint32_t)(a->entries[i] >> REF_BITS == entry >> REF_BITS) << i;
        mask |= (uint32_t)(b->entries[i] >> REF_BITS == entry >> REF_BITS) << (BUCKET_ENTRIES + i);
    }
    return mask;
#endif
}

static inline uint32_t bucket_free_mask(const struct bucket *bucket)
{
    uint32_t mask = 0;

    for (uint32_t i = 0; i < BUCKET_ENTRIES; i++)
        mask |= (uint32_t)(bucket->entries[i] == 0) << i;
    return mask;
}

static inline struct segment *index_segment(const struct pst_index *index, uint64_t hash)
{
    pst_assert(index->magic == INDEX_MAGIC);
    return index->directory[directory_at(hash, index->depth)];
}

/* ---- one segment ---- */

static struct segment *segment_new(uint32_t depth)
{
    struct segment *segment =
        pst_fault(PST_FAULT_index_enomem) ? NULL : aligned_alloc(_Alignof(struct segment), sizeof(*segment));

    _Static_assert(SEGMENT_ENTRIES * sizeof(uint64_t) == 64 << 10, "segment size");
    pst_assert(depth <= DEPTH_MAX);
    if (!segment)
        return NULL;
    memset(segment, 0, sizeof(*segment));
    segment->depth = depth;
    return segment;
}

/* Moves the entry at @place of @bucket to its other bucket when that has room. */
static bool segment_move(struct segment *segment, uint32_t bucket, uint32_t place)
{
    uint64_t *entry = &segment->buckets[bucket].entries[place];
    struct bucket *other = &segment->buckets[bucket_other(bucket, *entry)];
    uint32_t mask = bucket_free_mask(other);

    pst_assert(place < BUCKET_ENTRIES);
    pst_assert(*entry != 0);
    if (!mask)
        return false;
    other->entries[__builtin_ctz(mask)] = *entry;
    *entry = 0;
    return true;
}

/* Makes room in a full bucket with at most @moves_max moves. */
static bool segment_relieve(struct segment *segment, uint32_t bucket, uint32_t moves_max)
{
    pst_assert(bucket < BUCKET_COUNT);
    pst_assert(moves_max > 0);
    for (uint32_t place = 0; place < BUCKET_ENTRIES; place++)
        if (segment_move(segment, bucket, place))
            return true;
    if (moves_max == 1)
        return false;
    for (uint32_t place = 0; place < BUCKET_ENTRIES; place++) {
        uint32_t other = bucket_other(bucket, segment->buckets[bucket].entries[place]);

        if (segment_relieve(segment, other, moves_max - 1)) {
            bool moved = segment_move(segment, bucket, place);

            pst_assert(moved);
            return true;
        }
    }
    return false;
}

static bool segment_insert(struct segment *segment, uint32_t first, uint64_t entry)
{
    uint32_t second = bucket_other(first, entry);
    uint32_t mask_first = bucket_free_mask(&segment->buckets[first]);
    uint32_t mask_second = bucket_free_mask(&segment->buckets[second]);
    uint32_t bucket = first, mask = mask_first;

    if (__builtin_popcount(mask_second) > __builtin_popcount(mask_first)) {
        bucket = second;
        mask = mask_second;
    }
    if (pst_unlikely(!mask)) {
        if (!segment_relieve(segment, first, MOVES_MAX)) {
            if (!segment_relieve(segment, second, MOVES_MAX))
                return false;
            bucket = second;
        }
        mask = bucket_free_mask(&segment->buckets[bucket]);
    }
    pst_assert(mask != 0);
    pst_assert(segment->count < SEGMENT_ENTRIES);
    segment->buckets[bucket].entries[__builtin_ctz(mask)] = entry;
    segment->count++;
    return true;
}

static uint64_t *segment_entry(struct segment *segment, uint64_t hash, uint64_t ref)
{
    uint64_t entry = entry_make(hash, ref);
    uint32_t bucket = bucket_first(hash);

    pst_assert(ref >= 1);
    pst_assert(ref <= PST_INDEX_REF_MAX);
    for (int i = 0; i < 2; i++, bucket = bucket_other(bucket, entry))
        for (uint32_t place = 0; place < BUCKET_ENTRIES; place++)
            if (segment->buckets[bucket].entries[place] == entry)
                return &segment->buckets[bucket].entries[place];
    return NULL;
}

/* Both buckets hold nothing but this tag: no move and no split makes room. */
static bool segment_is_clogged(const struct segment *segment, uint32_t first, uint64_t entry)
{
    const struct bucket *second = &segment->buckets[bucket_other(first, entry)];

    pst_assert(first < BUCKET_COUNT);
    return buckets_match(&segment->buckets[first], second, entry) == (1u << 2 * BUCKET_ENTRIES) - 1;
}

/* ---- the directory ---- */

/* Points the part of the directory that a segment with @hash covers at @segment. */
static void directory_point(struct pst_index *index, uint64_t hash, struct segment *segment)
{
    size_t span = (size_t)1 << (index->depth - segment->depth);
    size_t from = directory_at(hash, index->depth) & ~(span - 1);

    pst_assert(segment->depth <= index->depth);
    pst_assert(from + span <= (size_t)1 << index->depth);
    for (size_t i = 0; i < span; i++)
        index->directory[from + i] = segment;
}

/* Return: 0 or -ENOMEM. */
static int directory_double(struct pst_index *index)
{
    size_t count = (size_t)1 << index->depth;
    struct segment **directory;

    pst_assert(index->depth < DEPTH_MAX);
    pst_assert(index->depth_segments[index->depth] > 0);
    directory = malloc(2 * count * sizeof(struct segment *));
    if (!directory)
        return -ENOMEM;
    for (size_t i = 0; i < count; i++)
        directory[2 * i] = directory[2 * i + 1] = index->directory[i];
    free(index->directory);
    index->directory = directory;
    index->depth++;
    return 0;
}

/* Gives back the halves that no segment needs any more. */
static void directory_shrink(struct pst_index *index)
{
    struct segment **directory = index->directory;

    pst_assert(index->depth <= DEPTH_MAX);
    if (index->depth == 0 || index->depth_segments[index->depth] > 0)
        return;
    while (index->depth > 0 && index->depth_segments[index->depth] == 0) {
        index->depth--;
        for (size_t i = 0; i < (size_t)1 << index->depth; i++)
            directory[i] = directory[2 * i];
    }
    directory = realloc(directory, sizeof(struct segment *) << index->depth);
    if (directory)
        index->directory = directory;
}

/* ---- splits and joins ---- */

/*
 * Hands the entries of a few buckets whose next hash bit is set to @upper. The references are collected
 * first, so that the record reads of one round do not wait for each other.
 */
static void split_buckets(struct pst_index *index, struct segment *lower, struct segment *upper,
                          uint32_t from)
{
    enum { ROUND = 4 * BUCKET_ENTRIES };
    uint64_t *entries = lower->buckets[from].entries, hashes[ROUND];
    uint64_t *moved = upper->buckets[from].entries;

    pst_assert(upper->depth == lower->depth + 1);
    pst_assert(from % (ROUND / BUCKET_ENTRIES) == 0);
    for (uint32_t i = 0; i < ROUND; i++)
        hashes[i] = entries[i] ? hash_skew(index->hash_of(index->ctx, entry_ref(entries[i]))) : 0;
    for (uint32_t i = 0; i < ROUND; i++) {
        if (entries[i] == 0)
            continue;
        pst_assert(entry_make(hashes[i], entry_ref(entries[i])) == entries[i]);
        if (!(hashes[i] >> (63 - lower->depth) & 1))
            continue;
        moved[i] = entries[i];
        entries[i] = 0;
        lower->count--;
        upper->count++;
    }
}

/* Return: 0 or -ENOMEM (nothing changed). */
static int segment_split(struct pst_index *index, struct segment *lower, uint64_t hash)
{
    struct segment *upper;

    pst_assert(lower->depth <= index->depth);
    pst_assert(lower->count >= SPLIT_ENTRIES_MIN);
    if (lower->depth == DEPTH_MAX)
        return -ENOMEM;
    upper = segment_new(lower->depth + 1);
    if (!upper)
        return -ENOMEM;
    if (lower->depth == index->depth && directory_double(index) < 0) {
        free(upper);
        return -ENOMEM;
    }
    for (uint32_t bucket = 0; bucket < BUCKET_COUNT; bucket += 4)
        split_buckets(index, lower, upper, bucket);
    index->depth_segments[lower->depth]--;
    index->depth_segments[upper->depth] += 2;
    index->segment_count++;
    directory_point(index, hash | 1ull << (63 - lower->depth), upper);
    lower->depth++;
    pst_assert(index->segment_count <= (size_t)1 << index->depth);
    return 0;
}

/* Whether bucket after bucket of two segments fits into one. */
static bool segments_fit(const struct segment *a, const struct segment *b)
{
    pst_assert(a != b);
    pst_assert(a->count <= SEGMENT_ENTRIES);
    pst_assert(b->count <= SEGMENT_ENTRIES);
    if (a->depth != b->depth || a->count + b->count > JOIN_ENTRIES_MAX)
        return false;
    for (uint32_t i = 0; i < BUCKET_COUNT; i++) {
        int room = __builtin_popcount(bucket_free_mask(&a->buckets[i]));

        if (room + __builtin_popcount(bucket_free_mask(&b->buckets[i])) < BUCKET_ENTRIES)
            return false;
    }
    return true;
}

static void segment_absorb(struct segment *into, const struct segment *from)
{
    pst_assert(into->depth == from->depth);
    pst_assert(into->count + from->count <= JOIN_ENTRIES_MAX);
    for (uint32_t i = 0; i < BUCKET_COUNT; i++) {
        uint32_t mask = bucket_free_mask(&into->buckets[i]);

        for (uint32_t place = 0; place < BUCKET_ENTRIES; place++) {
            uint64_t entry = from->buckets[i].entries[place];

            if (entry == 0)
                continue;
            pst_assert(mask != 0);
            into->buckets[i].entries[__builtin_ctz(mask)] = entry;
            mask &= mask - 1;
        }
    }
    into->count += from->count;
}

/* Joins a shrunken segment with its buddy, and the result with its own, as long as they fit. */
static void segments_join(struct pst_index *index, uint64_t hash)
{
    struct segment *segment = index_segment(index, hash);

    while (segment->depth > 0) {
        struct segment *buddy = index_segment(index, hash ^ 1ull << (64 - segment->depth));

        pst_assert(buddy != segment);
        pst_assert(index->segment_count > 1);
        if (!segments_fit(segment, buddy))
            break;
        segment_absorb(segment, buddy);
        free(buddy);
        index->segment_count--;
        index->depth_segments[segment->depth] -= 2;
        segment->depth--;
        index->depth_segments[segment->depth]++;
        directory_point(index, hash, segment);
    }
    directory_shrink(index);
}

/* ---- outward ---- */

int pst_index_open(uint64_t (*hash_of)(void *ctx, uint64_t ref), void *ctx, struct pst_index **out)
{
    struct pst_index *index = calloc(1, sizeof(*index));

    pst_assert(hash_of);
    pst_assert(out);
    if (!index)
        return -ENOMEM;
    index->magic = INDEX_MAGIC;
    index->hash_of = hash_of;
    index->ctx = ctx;
    index->directory = malloc(sizeof(struct segment *));
    if (index->directory)
        index->directory[0] = segment_new(0);
    if (!index->directory || !index->directory[0]) {
        free(index->directory);
        free(index);
        return -ENOMEM;
    }
    index->segment_count = index->depth_segments[0] = 1;
    *out = index;
    return 0;
}

struct pst_index *pst_index_close(struct pst_index *index)
{
    size_t span;

    if (!index)
        return NULL;
    pst_assert(index->magic == INDEX_MAGIC);
    for (size_t i = 0; i < (size_t)1 << index->depth; i += span) {
        span = (size_t)1 << (index->depth - index->directory[i]->depth);
        pst_assert(index->segment_count > 0);
        index->segment_count--;
        free(index->directory[i]);
    }
    pst_assert(index->segment_count == 0);
    free(index->directory);
    free(index);
    return NULL;
}

void pst_index_prefetch(const struct pst_index *index, uint64_t hash)
{
    const struct segment *segment = index_segment(index, hash_skew(hash));
    uint32_t first = bucket_first(hash);

    __builtin_prefetch(&segment->buckets[first]);
    __builtin_prefetch(&segment->buckets[bucket_other(first, entry_make(hash, 0))]);
}

int pst_index_candidates(const struct pst_index *index, uint64_t hash,
                         uint64_t refs[PST_INDEX_CANDIDATES_MAX])
{
    const struct segment *segment = index_segment(index, hash_skew(hash));
    uint64_t entry = entry_make(hash, 0);
    const struct bucket *buckets[2];
    int count = 0;

    _Static_assert((int)PST_INDEX_CANDIDATES_MAX == 2 * BUCKET_ENTRIES, "candidates");
    buckets[0] = &segment->buckets[bucket_first(hash)];
    buckets[1] = &segment->buckets[bucket_other(bucket_first(hash), entry)];
    pst_assert(segment->depth <= index->depth);
    for (uint32_t mask = buckets_match(buckets[0], buckets[1], entry); mask; mask &= mask - 1) {
        uint32_t at = (uint32_t)__builtin_ctz(mask);
        uint64_t ref = entry_ref(buckets[at / BUCKET_ENTRIES]->entries[at % BUCKET_ENTRIES]);

        refs[count] = ref;
        count += ref != 0;
    }
    return count;
}

int pst_index_insert(struct pst_index *index, uint64_t hash, uint64_t ref)
{
    uint64_t entry = entry_make(hash, ref);
    uint32_t first = bucket_first(hash);

    pst_assert(ref >= 1);
    pst_assert(ref <= PST_INDEX_REF_MAX);
    hash = hash_skew(hash);
    for (int splits = 0; splits <= SPLITS_MAX; splits++) {
        struct segment *segment = index_segment(index, hash);
        int r;

        if (pst_likely(segment_insert(segment, first, entry))) {
            index->count++;
            return 0;
        }
        if (segment->count < SPLIT_ENTRIES_MIN || segment_is_clogged(segment, first, entry))
            return -ENOMEM;
        r = segment_split(index, segment, hash);
        if (r < 0)
            return r;
    }
    return -ENOMEM;
}

int pst_index_remove(struct pst_index *index, uint64_t hash, uint64_t ref)
{
    uint64_t skewed = hash_skew(hash);
    struct segment *segment = index_segment(index, skewed);
    uint64_t *entry = segment_entry(segment, skewed, ref);

    if (!entry)
        return -ENOENT;
    pst_assert(segment->count > 0);
    pst_assert(index->count > 0);
    *entry = 0;
    segment->count--;
    index->count--;
    if (segment->count <= JOIN_ENTRIES_MAX && segment->count % JOIN_TRY_ENTRIES == 0)
        segments_join(index, skewed);
    return 0;
}

int pst_index_replace(struct pst_index *index, uint64_t hash, uint64_t old_ref, uint64_t new_ref)
{
    uint64_t *entry = segment_entry(index_segment(index, hash_skew(hash)), hash, old_ref);

    pst_assert(new_ref >= 1);
    pst_assert(new_ref <= PST_INDEX_REF_MAX);
    if (!entry)
        return -ENOENT;
    *entry = entry_make(hash, new_ref);
    return 0;
}

uint64_t pst_index_count(const struct pst_index *index)
{
    pst_assert(index->magic == INDEX_MAGIC);
    return index->count;
}

uint64_t pst_index_memory_bytes(const struct pst_index *index)
{
    pst_assert(index->segment_count > 0);
    pst_assert(index->depth <= DEPTH_MAX);
    pst_assert(index->magic == INDEX_MAGIC);
    return sizeof(*index) + (sizeof(struct segment *) << index->depth) +
           index->segment_count * sizeof(struct segment);
}
