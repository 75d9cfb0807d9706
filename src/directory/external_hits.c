/* SPDX-License-Identifier: Apache-2.0 */
/*
 * external_hits.c: how often hashes were hit. Counts stand in a ring in the order of their last hit, which is
 * the order of their ends: when all places are taken the first in it gives way, ended or not, and nothing has
 * to be swept.
 */
#include "directory/external_priv.h"

struct pst_external_hit {
    struct pst_hash128 hash;
    uint64_t end_ns;
    uint32_t count;
    uint32_t chain_next;
    struct pst_external_link age; /* of hit 0, which is none: the oldest and the newest */
};

_Static_assert(sizeof(struct pst_external_hit) == 40, "what a count costs, with 4 bytes for its head");

int pst_external_hits_init(struct pst_external_hits *h, uint32_t count_max, uint64_t ttl_ns)
{
    pst_assert(count_max > 0 && count_max < UINT32_MAX);
    *h = (struct pst_external_hits){.count_max = count_max, .ttl_ns = ttl_ns};
    h->hits = calloc((size_t)count_max + 1, sizeof(*h->hits));
    h->heads = calloc(count_max, sizeof(*h->heads));
    return h->hits && h->heads ? 0 : -ENOMEM;
}

void pst_external_hits_fini(struct pst_external_hits *h)
{
    free(h->hits);
    free(h->heads);
    *h = (struct pst_external_hits){0};
}

/* Hit 0 has ended before any time. */
static uint32_t hit_count(const struct pst_external_hit *hit, uint64_t now_ns)
{
    return hit->end_ns > now_ns ? hit->count : 0;
}

/* The link of its chain that names @hash's count, or that ends the chain. */
static uint32_t *hit_find(const struct pst_external_hits *h, const struct pst_hash128 *hash)
{
    uint32_t *at = &h->heads[pst_external_head(hash->low, h->count_max)];

    while (*at && !pst_hash128_equal(&h->hits[*at].hash, hash))
        at = &h->hits[*at].chain_next;
    pst_assert(*at <= h->count_max);
    return at;
}

static void age_remove(struct pst_external_hits *h, uint32_t number)
{
    struct pst_external_link *age = &h->hits[number].age;

    pst_assert(number > 0);
    pst_assert(number <= h->count);
    pst_assert(h->hits[age->prev].age.next == number);
    pst_assert(h->hits[age->next].age.prev == number);
    h->hits[age->prev].age.next = age->next;
    h->hits[age->next].age.prev = age->prev;
}

static void age_push(struct pst_external_hits *h, uint32_t number)
{
    struct pst_external_link *ends = &h->hits[0].age;

    pst_assert(number > 0 && number <= h->count && h->count <= h->count_max);
    h->hits[number].age = (struct pst_external_link){.next = 0, .prev = ends->prev};
    h->hits[ends->prev].age.next = number;
    ends->prev = number;
}

/* A place for one more count, out of its chain and out of the ring. */
static uint32_t hit_take(struct pst_external_hits *h, uint64_t now_ns)
{
    uint32_t number = h->hits[0].age.next, *at;

    if (h->count < h->count_max)
        return ++h->count;
    pst_assert(number != 0);
    pst_assert(h->count == h->count_max);
    at = hit_find(h, &h->hits[number].hash);
    pst_assert(*at == number);
    *at = h->hits[number].chain_next;
    age_remove(h, number);
    h->dropped += h->hits[number].end_ns > now_ns;
    return number;
}

void pst_external_hits_add(struct pst_external_hits *h, const struct pst_hash128 *hash, uint64_t now_ns)
{
    uint32_t number = *hit_find(h, hash), count = 0;

    if (number) {
        count = hit_count(&h->hits[number], now_ns);
        age_remove(h, number);
    } else {
        uint32_t *at;

        number = hit_take(h, now_ns);
        h->hits[number].hash = *hash;
        h->hits[number].chain_next = 0;
        at = hit_find(h, hash);
        pst_assert(*at == 0);
        *at = number;
    }
    pst_assert(number > 0 && number <= h->count);
    h->hits[number].end_ns = now_ns + h->ttl_ns;
    h->hits[number].count = count + (count < UINT32_MAX);
    age_push(h, number);
}

uint32_t pst_external_hits_count(const struct pst_external_hits *h, const struct pst_hash128 *hash,
                                 uint64_t now_ns)
{
    pst_assert(h->count <= h->count_max);
    return hit_count(&h->hits[*hit_find(h, hash)], now_ns);
}
