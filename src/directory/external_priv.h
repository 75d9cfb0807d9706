/* SPDX-License-Identifier: Apache-2.0 */
/* external_priv.h: counts of hits, and what the tables of this room share. */
#ifndef PST_EXTERNAL_PRIV_H
#define PST_EXTERNAL_PRIV_H

#include "directory/external.h"

/* Entries are numbered from 1, so that tables of zeros are empty and half a pointer is a link. */
struct pst_external_link {
    uint32_t next, prev;
};

/* Which of @count heads a chain for a hash has. */
static inline uint32_t pst_external_head(uint64_t hash, uint32_t count)
{
    return (uint32_t)((hash >> 32) * count >> 32);
}

/* Embedded; external_hits.c. */
struct pst_external_hits {
    struct pst_external_hit *hits;
    uint32_t *heads;
    uint32_t count, count_max;
    uint64_t ttl_ns;
    uint64_t dropped;
};

/* Return: 0 or -ENOMEM, after which it wants an end as well. */
int pst_external_hits_init(struct pst_external_hits *h, uint32_t count_max, uint64_t ttl_ns);
void pst_external_hits_fini(struct pst_external_hits *h);
void pst_external_hits_add(struct pst_external_hits *h, const struct pst_hash128 *hash, uint64_t now_ns);
uint32_t pst_external_hits_count(const struct pst_external_hits *h, const struct pst_hash128 *hash,
                                 uint64_t now_ns);

#endif
