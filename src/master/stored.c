/* SPDX-License-Identifier: Apache-2.0 */
/* stored.c: see stored.h. */
#include "master/stored.h"

#include "base/hash.h"
#include "base/reader.h"

enum { END_MAGIC = 0x68747370, CHECKED_BYTES = 8 };

void pst_stored_put_end(uint8_t to[PST_STORED_END_BYTES], uint64_t lease_ms)
{
    uint8_t *at = pst_write_number(to, END_MAGIC, 4);

    pst_assert(lease_ms > 0 && lease_ms <= UINT32_MAX);
    at = pst_write_number(at, lease_ms, 4);
    at = pst_write_number(at, pst_crc32c(0, to, CHECKED_BYTES), 4);
    pst_assert(at == to + PST_STORED_END_BYTES);
}

uint64_t pst_stored_take_end(struct pst_bytes *stored)
{
    const uint8_t *end;
    struct pst_reader in;
    uint64_t magic, lease_ms;

    pst_assert(stored->data || stored->len == 0);
    if (stored->len <= PST_STORED_END_BYTES)
        return 0;
    end = (const uint8_t *)stored->data + stored->len - PST_STORED_END_BYTES;
    in = (struct pst_reader){.at = end, .left = PST_STORED_END_BYTES};
    magic = pst_read_number(&in, 4);
    lease_ms = pst_read_number(&in, 4);
    if (magic != END_MAGIC || pst_read_number(&in, 4) != pst_crc32c(0, end, CHECKED_BYTES))
        return 0;
    stored->len -= PST_STORED_END_BYTES;
    return lease_ms;
}
