/* SPDX-License-Identifier: Apache-2.0 */
/* map_fetch.c: pool maps out of a master's pieces. Nothing of a piece is believed before its length was
 * checked.
 */
#include "pool/map_fetch.h"

#include "wire/pool.h"

void pst_map_fetch_begin(struct pst_map_fetch *fetch)
{
    fetch->at = fetch->map_bytes = fetch->version = 0;
    fetch->restarts = 0;
}

void pst_map_fetch_fini(struct pst_map_fetch *fetch)
{
    pst_assert(fetch->bytes || fetch->at == 0);
    free(fetch->bytes);
    *fetch = (struct pst_map_fetch){.bytes = NULL};
}

/* The first piece says how long the pool map is. Return: 0, -EPROTO, -ENOMEM. */
static int take_first(struct pst_map_fetch *fetch, uint64_t map_bytes, uint64_t version)
{
    uint8_t *larger;

    pst_assert(fetch->at == 0);
    if (map_bytes > pst_map_bytes_max(PST_MAP_MEMBERS_MAX))
        return -EPROTO;
    larger = realloc(fetch->bytes, map_bytes);
    if (!larger)
        return -ENOMEM;
    fetch->bytes = larger;
    fetch->map_bytes = map_bytes;
    fetch->version = version;
    return 0;
}

int pst_map_fetch_take(struct pst_map_fetch *fetch, struct pst_bytes answer, uint64_t version)
{
    struct pst_pool_map head;
    uint64_t piece = answer.len - sizeof(head);
    int r = 0;

    pst_assert(fetch->at <= fetch->map_bytes);
    if (answer.len < sizeof(head))
        return -EPROTO;
    memcpy(&head, answer.data, sizeof(head));
    if (fetch->at > 0 && version != fetch->version) {
        fetch->at = 0;
        fetch->restarts++;
        return 1;
    }
    if (head.map_bytes == 0 && fetch->at == 0) {
        fetch->map_bytes = 0;
        return 0;
    }
    if (fetch->at == 0)
        r = take_first(fetch, head.map_bytes, version);
    if (r < 0)
        return r;
    if (head.map_bytes != fetch->map_bytes || piece == 0 || piece > fetch->map_bytes - fetch->at)
        return -EPROTO;
    memcpy(fetch->bytes + fetch->at, (const uint8_t *)answer.data + sizeof(head), piece);
    fetch->at += piece;
    pst_assert(fetch->at <= fetch->map_bytes);
    pst_assert(fetch->bytes);
    return fetch->at < fetch->map_bytes;
}

int pst_map_fetch_decode(const struct pst_map_fetch *fetch, uint32_t members_max, struct pst_map **out)
{
    pst_assert(fetch->at == fetch->map_bytes);
    if (fetch->map_bytes == 0)
        return -EPROTO;
    pst_assert(fetch->bytes);
    return pst_map_decode((struct pst_bytes){fetch->bytes, fetch->map_bytes}, members_max, out);
}
