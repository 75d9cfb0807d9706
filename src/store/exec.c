/* SPDX-License-Identifier: Apache-2.0 */
/* exec.c: what the steps of a get are, whoever carries it out. */
#include "store/exec.h"
#include "store/read.h"
#include "store/tier.h"

/* Behind the value when it is before its beginning. */
static uint64_t range_begins(const struct pst_record *r, uint64_t offset)
{
    return offset <= INT64_MAX ? offset : r->value_bytes + offset;
}

static int check_generation(const struct pst_record *r, const struct pst_get *get)
{
    bool same = r->generation == get->generation;

    if (get->unless)
        return same ? PST_EXISTS : 0;
    return get->only && !same ? PST_STALE : 0;
}

int pst_get_plan(const struct pst_record *r, const struct pst_get *get, uint64_t *offset, uint64_t *bytes)
{
    uint64_t begin = get->range ? range_begins(r, get->offset) : 0, end;
    int result = check_generation(r, get);

    if (result != 0)
        return result;
    if (get->exact && r->value_bytes != get->bytes)
        return -EMSGSIZE;
    if (get->range && (pst_add_overflows(begin, get->bytes, &end) || end > r->value_bytes))
        return -ERANGE;
    if (!get->range && r->value_bytes > get->bytes)
        return -ENOBUFS;
    *offset = begin;
    *bytes = get->range ? get->bytes : r->value_bytes;
    pst_assert(*offset <= r->value_bytes);
    pst_assert(*bytes <= r->value_bytes - *offset);
    return 0;
}

int pst_get_locate(struct pst_shard *s, struct pst_record **record, uint64_t *offset, uint64_t bytes)
{
    struct pst_record *found = *record;
    uint64_t from = 0;
    int r = 0;

    if (pst_unlikely(pst_record_away(found)) && bytes)
        r = pst_tier_fetched(s, found, *offset, bytes, &found, &from);
    if (r == 0)
        r = pst_record_verify(s, found);
    if (r != 0)
        return r;
    pst_assert(from <= *offset);
    *record = found;
    *offset -= from;
    return 0;
}
