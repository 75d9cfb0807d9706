/* SPDX-License-Identifier: Apache-2.0 */
/*
 * keys.c: the table: some thousand *parts*, chosen by a fingerprint's top bits, each an open-addressed table
 * that grows by a quarter: the table is never emptier than seven tenths, and never stops its thread for more
 * than one part.
 *
 *   part   group_count groups of 16 entries, then 16 tags a group: 0 free, 1 was taken, 128 + 7 bits of the
 *          key. A look-up compares 16 tags at once and goes on to the next group only where none is free.
 */
#include "directory/keys.h"

#ifdef __SSE2__
#include <emmintrin.h>
#endif

enum {
    KEYS_MAGIC = 0x4be15d17,
    GROUP = 16, /* entries */
    TAG_FREE = 0,
    TAG_GONE = 1, /* free, but look-ups pass over it */
    TAG_TAKEN = 0x80,
    PART_ENTRIES = 16 << 10, /* at the bound, on average */
    PART_BITS_MAX = 20,
    ROUNDS_TO_WRAP = 3, /* early, so that it is seen to work */
    SWEEP_FOR_ONE = 64, /* places that are looked at for an entry more than the bound */
};

struct entry {
    struct pst_hash128 key;
    uint64_t generation;
    uint32_t round;
    uint16_t member;
    uint8_t tier;
    uint8_t copies; /* wanted */
};
_Static_assert(sizeof(struct entry) == 32, "a line of cache holds two");

struct part {
    struct entry *entries; /* and behind them the tags */
    uint32_t group_count;
    uint32_t count;    /* taken */
    uint32_t unusable; /* gone */
    uint32_t spare;
};

/* They wrap around; what does not count is swept long before it could count again. */
struct rounds {
    uint32_t oldest; /* that counts */
    uint32_t now;    /* of what is added */
    uint64_t older;  /* entries that count, of rounds before now, */
    uint64_t newer;  /* and of now */
};

struct pst_keys {
    uint32_t magic;
    uint32_t part_bits;
    uint64_t entries_max;
    uint64_t count;
    uint64_t dead; /* of them, those that do not count */
    uint64_t memory_bytes;
    uint64_t sweep_at; /* entry of sweep_part */
    uint32_t sweep_part;
    uint32_t sweep_left; /* parts to sweep until nothing is left that does not count */
    struct rounds rounds[PST_KEYS_MEMBERS_MAX];
    struct part parts[];
};

/* ---- groups ---- */

static inline uint8_t *part_tags(const struct part *part, uint32_t group)
{
    return (uint8_t *)(part->entries + (size_t)part->group_count * GROUP) + (size_t)group * GROUP;
}

/* One bit for each tag that is @tag. */
static inline uint32_t tags_match(const uint8_t *tags, uint8_t tag)
{
#ifdef __SSE2__
    __m128i all = _mm_load_si128((const __m128i *)(const void *)tags);

    return (uint32_t)_mm_movemask_epi8(_mm_cmpeq_epi8(all, _mm_set1_epi8((char)tag)));
#else
    uint32_t mask = 0;

    for (uint32_t i = 0; i < GROUP; i++)
        mask |= (uint32_t)(tags[i] == tag) << i;
    return mask;
#endif
}

static inline uint8_t key_tag(const struct pst_hash128 *key)
{
    return (uint8_t)(TAG_TAKEN | (key->high & 0x7f));
}

static inline uint32_t key_group(const struct pst_hash128 *key, uint32_t group_count)
{
    return (uint32_t)((key->low >> 32) * group_count >> 32);
}

static inline struct part *keys_part(const struct pst_keys *keys, const struct pst_hash128 *key)
{
    return (struct part *)&keys->parts[key->high >> 1 >> (63 - keys->part_bits)];
}

static inline bool entry_counts(const struct pst_keys *keys, const struct entry *entry)
{
    return (int32_t)(entry->round - keys->rounds[entry->member].oldest) >= 0;
}

/* The number that the entry is counted in. */
static inline uint64_t *entry_number(struct pst_keys *keys, const struct entry *entry)
{
    struct rounds *rounds = &keys->rounds[entry->member];

    if (!entry_counts(keys, entry))
        return &keys->dead;
    return entry->round == rounds->now ? &rounds->newer : &rounds->older;
}

static inline void entry_uncount(struct pst_keys *keys, const struct entry *entry)
{
    uint64_t *number = entry_number(keys, entry);

    pst_assert(*number > 0);
    --*number;
}

/* ---- parts ---- */

static void part_check(const struct part *part)
{
    pst_assert((uint64_t)part->count + part->unusable <= (uint64_t)part->group_count * GROUP);
}

static size_t part_bytes(uint32_t group_count)
{
    return (size_t)group_count * GROUP * (sizeof(struct entry) + 1);
}

static void part_place(struct part *part, const struct entry *entry)
{
    uint32_t group = key_group(&entry->key, part->group_count);

    for (uint32_t i = 0; i < part->group_count; i++, group = group + 1 == part->group_count ? 0 : group + 1) {
        uint8_t *tags = part_tags(part, group);
        uint32_t mask = tags_match(tags, TAG_FREE), gone = tags_match(tags, TAG_GONE), at;

        if (!(mask | gone))
            continue;
        at = (uint32_t)__builtin_ctz(mask | gone);
        pst_assert(part->unusable >= (gone >> at & 1));
        part->unusable -= gone >> at & 1;
        tags[at] = key_tag(&entry->key);
        part->entries[(size_t)group * GROUP + at] = *entry;
        part->count++;
        part_check(part);
        return;
    }
    pst_assert(false); /* the part has room */
}

static uint32_t part_counting(const struct pst_keys *keys, const struct part *part)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < part->group_count * GROUP; i++)
        count += part_tags(part, 0)[i] >= TAG_TAKEN && entry_counts(keys, &part->entries[i]);
    pst_assert(count <= part->count);
    return count;
}

/* Builds the part anew, a quarter larger than what counts in it and @more. Return: 0 or -ENOMEM. */
static int part_rebuild(struct pst_keys *keys, struct part *part, uint32_t more)
{
    uint64_t wanted = (uint64_t)part_counting(keys, part) + more;
    struct part fresh = {.group_count = (uint32_t)pst_div_up(wanted * 10, 7 * GROUP)};

    if (fresh.group_count > 0) {
        fresh.entries = aligned_alloc(64, pst_round_up(part_bytes(fresh.group_count), 64));
        if (!fresh.entries)
            return -ENOMEM;
        memset(part_tags(&fresh, 0), TAG_FREE, (size_t)fresh.group_count * GROUP);
    }
    for (uint32_t i = 0; i < part->group_count * GROUP; i++)
        if (part_tags(part, 0)[i] >= TAG_TAKEN && entry_counts(keys, &part->entries[i]))
            part_place(&fresh, &part->entries[i]);
    pst_assert(fresh.count + more == wanted);
    pst_assert(fresh.unusable == 0);
    pst_assert(part->count >= fresh.count);
    pst_assert(keys->dead >= part->count - fresh.count);
    pst_assert(keys->count >= keys->dead);
    pst_assert(keys->memory_bytes >= part_bytes(part->group_count));
    keys->count -= part->count - fresh.count;
    keys->dead -= part->count - fresh.count;
    keys->memory_bytes += part_bytes(fresh.group_count) - part_bytes(part->group_count);
    free(part->entries);
    *part = fresh;
    return 0;
}

static bool part_is_full(const struct part *part)
{
    return (uint64_t)(part->count + part->unusable + 1) * 8 > (uint64_t)part->group_count * GROUP * 7;
}

static void part_take_out(struct pst_keys *keys, struct part *part, uint32_t at)
{
    uint8_t *tags = part_tags(part, at / GROUP);
    bool passed = tags_match(tags, TAG_FREE) == 0;

    pst_assert(at < part->group_count * GROUP);
    pst_assert(tags[at % GROUP] >= TAG_TAKEN);
    pst_assert(part->count > 0);
    pst_assert(keys->count > 0);
    entry_uncount(keys, &part->entries[at]);
    tags[at % GROUP] = passed ? TAG_GONE : TAG_FREE;
    part->unusable += passed;
    part->count--;
    keys->count--;
    part_check(part);
}

/* ---- a key's entries ---- */

struct search {
    const struct part *part;
    const struct pst_hash128 *key;
    uint32_t group, groups_left;
    uint32_t mask; /* candidates left in the group */
    bool last;     /* the group ends the search */
};

static void search_group(struct search *s)
{
    const uint8_t *tags = part_tags(s->part, s->group);

    s->mask = tags_match(tags, key_tag(s->key));
    s->last = tags_match(tags, TAG_FREE) != 0;
}

static inline struct search search_begin(const struct part *part, const struct pst_hash128 *key)
{
    struct search s = {.part = part, .key = key, .groups_left = part->group_count, .last = true};

    if (part->group_count > 0) {
        s.group = key_group(key, part->group_count);
        search_group(&s);
    }
    return s;
}

/* The next entry of the key, or UINT32_MAX. */
static inline uint32_t search_next(struct search *s)
{
    for (;;) {
        while (s->mask) {
            uint32_t at = s->group * GROUP + (uint32_t)__builtin_ctz(s->mask);

            s->mask &= s->mask - 1;
            if (pst_hash128_equal(&s->part->entries[at].key, s->key))
                return at;
        }
        if (s->last || --s->groups_left == 0)
            return UINT32_MAX;
        s->group = s->group + 1 == s->part->group_count ? 0 : s->group + 1;
        search_group(s);
    }
}

/* The entry of the key at a member, whether it counts or not; @others: places elsewhere that count. */
static struct entry *find(const struct pst_keys *keys, struct part *part, const struct pst_hash128 *key,
                          uint16_t member, uint32_t *others)
{
    struct search s = search_begin(part, key);
    struct entry *found = NULL;

    *others = 0;
    for (uint32_t at; (at = search_next(&s)) != UINT32_MAX;) {
        struct entry *entry = &part->entries[at];

        if (entry->member == member)
            found = entry;
        else
            *others += entry_counts(keys, entry);
    }
    pst_assert(*others <= PST_PLACES_MAX); /* pst_keys_add() takes no more */
    return found;
}

/* ---- outward ---- */

int pst_keys_open(uint64_t entries_max, struct pst_keys **out)
{
    struct pst_keys *keys;
    uint32_t bits = 0;

    while (bits < PART_BITS_MAX && entries_max >> bits > PART_ENTRIES)
        bits++;
    keys = calloc(1, sizeof(*keys) + (sizeof(struct part) << bits));
    if (!keys)
        return -ENOMEM;
    keys->magic = KEYS_MAGIC;
    keys->part_bits = bits;
    keys->entries_max = entries_max;
    keys->memory_bytes = sizeof(*keys) + (sizeof(struct part) << bits);
    for (uint32_t i = 0; i < PST_KEYS_MEMBERS_MAX; i++)
        keys->rounds[i].oldest = keys->rounds[i].now = UINT32_MAX - ROUNDS_TO_WRAP + 1;
    *out = keys;
    return 0;
}

struct pst_keys *pst_keys_close(struct pst_keys *keys)
{
    if (!keys)
        return NULL;
    pst_assert(keys->magic == KEYS_MAGIC);
    for (uint32_t i = 0; i < 1u << keys->part_bits; i++)
        free(keys->parts[i].entries);
    free(keys);
    return NULL;
}

static void entry_replace(struct pst_keys *keys, struct entry *known, const struct entry *entry)
{
    entry_uncount(keys, known);
    *known = *entry;
    ++*entry_number(keys, entry);
}

int pst_keys_add(struct pst_keys *keys, struct pst_hash128 key, struct pst_place place)
{
    struct part *part = keys_part(keys, &key);
    struct entry entry = {.key = key,
                          .generation = place.generation,
                          .round = keys->rounds[place.member].now,
                          .member = place.member,
                          .tier = place.tier,
                          .copies = place.copies};
    struct entry *known;
    uint32_t others;
    int r;

    pst_assert(keys->magic == KEYS_MAGIC);
    pst_assert(place.member < PST_KEYS_MEMBERS_MAX);
    if (keys->count >= keys->entries_max) /* so that those beyond the bound stay few */
        (void)pst_keys_sweep(keys, SWEEP_FOR_ONE);
    known = find(keys, part, &key, place.member, &others);
    if (known && entry_counts(keys, known)) {
        if (place.generation < known->generation) { /* told late: where the newer one lies is known */
            entry.generation = known->generation;
            entry.tier = known->tier;
        }
        entry.copies = place.copies ? place.copies : known->copies;
        entry_replace(keys, known, &entry);
        return 0;
    }
    if (others >= PST_PLACES_MAX)
        return -EMLINK;
    if (keys->count - keys->dead >= keys->entries_max)
        return -ENOSPC;
    if (known) {
        entry_replace(keys, known, &entry);
        return 0;
    }
    if (part_is_full(part)) {
        r = part_rebuild(keys, part, 1);
        if (r < 0)
            return r;
    }
    part_place(part, &entry);
    keys->count++;
    ++*entry_number(keys, &entry);
    pst_assert(keys->count - keys->dead <= keys->entries_max);
    return 0;
}

void pst_keys_remove(struct pst_keys *keys, struct pst_hash128 key, struct pst_place place)
{
    struct part *part = keys_part(keys, &key);
    struct search s = search_begin(part, &key);
    uint32_t others;
    struct entry *known = find(keys, part, &key, place.member, &others);

    pst_assert(keys->magic == KEYS_MAGIC);
    pst_assert(place.member < PST_KEYS_MEMBERS_MAX);
    if (!known || known->generation > place.generation)
        return;
    for (uint32_t at; (at = search_next(&s)) != UINT32_MAX;)
        part->entries[at].copies = 1;
    part_take_out(keys, part, (uint32_t)(known - part->entries));
    if ((uint64_t)part->count * 4 < (uint64_t)part->group_count * GROUP)
        (void)part_rebuild(keys, part, 0); /* without memory it stays large */
}

static void look_up_one(const struct pst_keys *keys, const struct pst_hash128 *key, struct pst_places *places)
{
    struct search s = search_begin(keys_part(keys, key), key);

    places->count = 0;
    for (uint32_t at; (at = search_next(&s)) != UINT32_MAX && places->count < PST_PLACES_MAX;) {
        const struct entry *entry = &s.part->entries[at];

        if (!entry_counts(keys, entry))
            continue;
        places->items[places->count++] =
            (struct pst_place){entry->generation, entry->member, entry->tier, entry->copies};
    }
}

/* Asks memory for the tags of all keys, then for the entries that they name, and only then waits for one. */
void pst_keys_look_up(const struct pst_keys *keys, const struct pst_hash128 *fingerprints, uint32_t count,
                      struct pst_places *places)
{
    pst_assert(keys->magic == KEYS_MAGIC);
    for (uint32_t i = 0; i < count; i++) {
        const struct part *part = keys_part(keys, &fingerprints[i]);

        if (part->group_count > 0)
            __builtin_prefetch(part_tags(part, key_group(&fingerprints[i], part->group_count)));
    }
    for (uint32_t i = 0; i < count; i++) {
        struct search s = search_begin(keys_part(keys, &fingerprints[i]), &fingerprints[i]);

        if (s.mask)
            __builtin_prefetch(&s.part->entries[(size_t)s.group * GROUP + (uint32_t)__builtin_ctz(s.mask)]);
    }
    for (uint32_t i = 0; i < count; i++)
        look_up_one(keys, &fingerprints[i], &places[i]);
}

static void sweep_all(struct pst_keys *keys)
{
    pst_assert(keys->magic == KEYS_MAGIC);
    pst_assert(keys->part_bits <= PART_BITS_MAX);
    keys->sweep_left = (1u << keys->part_bits) + 1; /* and the one underway again */
}

void pst_keys_begin(struct pst_keys *keys, uint16_t member)
{
    pst_assert(member < PST_KEYS_MEMBERS_MAX);
    pst_assert(keys->magic == KEYS_MAGIC);
    keys->rounds[member].older += keys->rounds[member].newer;
    keys->rounds[member].newer = 0;
    keys->rounds[member].now++;
}

void pst_keys_complete(struct pst_keys *keys, uint16_t member)
{
    pst_assert(member < PST_KEYS_MEMBERS_MAX);
    pst_assert((int32_t)(keys->rounds[member].now - keys->rounds[member].oldest) >= 0);
    keys->rounds[member].oldest = keys->rounds[member].now;
    keys->dead += keys->rounds[member].older;
    keys->rounds[member].older = 0;
    pst_assert(keys->dead <= keys->count);
    sweep_all(keys);
}

void pst_keys_forget(struct pst_keys *keys, uint16_t member)
{
    pst_keys_begin(keys, member);
    pst_keys_complete(keys, member);
}

/* A part that is less than half full after its sweep is built anew, where memory allows. */
static void sweep_next_part(struct pst_keys *keys)
{
    struct part *part = &keys->parts[keys->sweep_part];

    pst_assert(keys->sweep_left > 0);
    pst_assert(keys->sweep_part < 1u << keys->part_bits);
    if ((uint64_t)part->count * 2 < (uint64_t)part->group_count * GROUP)
        (void)part_rebuild(keys, part, 0);
    keys->sweep_part = (keys->sweep_part + 1) & ((1u << keys->part_bits) - 1);
    keys->sweep_at = 0;
    keys->sweep_left--;
    pst_assert(keys->sweep_part < 1u << keys->part_bits);
}

bool pst_keys_sweep(struct pst_keys *keys, uint64_t entries_max)
{
    pst_assert(keys->magic == KEYS_MAGIC);
    while (keys->sweep_left > 0 && entries_max > 0) {
        struct part *part = &keys->parts[keys->sweep_part];
        uint64_t places = (uint64_t)part->group_count * GROUP, end;

        keys->sweep_at = pst_min(keys->sweep_at, places); /* the part may have been built anew, smaller */
        end = pst_min(keys->sweep_at + entries_max, places);
        entries_max -= end - keys->sweep_at;
        for (; keys->sweep_at < end; keys->sweep_at++)
            if (part_tags(part, 0)[keys->sweep_at] >= TAG_TAKEN &&
                !entry_counts(keys, &part->entries[keys->sweep_at]))
                part_take_out(keys, part, (uint32_t)keys->sweep_at);
        if (keys->sweep_at < places)
            break;
        sweep_next_part(keys);
        entries_max -= pst_min(entries_max, 1);
    }
    pst_assert(keys->sweep_left > 0 || keys->dead == 0);
    return keys->sweep_left > 0;
}

uint64_t pst_keys_count(const struct pst_keys *keys)
{
    pst_assert(keys->magic == KEYS_MAGIC);
    pst_assert(keys->count - keys->dead <= keys->entries_max);
    return keys->count;
}

uint64_t pst_keys_memory_bytes(const struct pst_keys *keys)
{
    pst_assert(keys->memory_bytes >= sizeof(*keys));
    return keys->memory_bytes;
}
