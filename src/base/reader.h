/* SPDX-License-Identifier: Apache-2.0 */
/* reader.h: fields out of bytes that somebody else wrote: past their end it yields zeros, and remembers that.
 * And numbers as such bytes. */
#ifndef PST_READER_H
#define PST_READER_H

#include "base/base.h"

struct pst_reader {
    const uint8_t *at;
    size_t left;
    bool bad; /* and nothing more is read; users set it, too */
};

/* Return: NULL past the end. */
static inline const uint8_t *pst_read_bytes(struct pst_reader *r, size_t bytes)
{
    const uint8_t *at = r->at;

    if (r->bad || bytes > r->left) {
        r->bad = true;
        return NULL;
    }
    r->at += bytes;
    r->left -= bytes;
    return at;
}

/* Little-endian. */
static inline uint64_t pst_read_number(struct pst_reader *r, size_t bytes)
{
    const uint8_t *at = pst_read_bytes(r, bytes);
    uint64_t number = 0;

    pst_assert(bytes <= sizeof(number));
    for (size_t i = 0; at && i < bytes; i++)
        number |= (uint64_t)at[i] << 8 * i;
    return number;
}

static inline void pst_read_copy(struct pst_reader *r, void *out, size_t bytes)
{
    const uint8_t *at = pst_read_bytes(r, bytes);

    if (at)
        memcpy(out, at, bytes);
}

/* The reverse: a number into bytes of one's own. Return: behind them. */
static inline uint8_t *pst_write_number(uint8_t *at, uint64_t number, size_t bytes)
{
    pst_assert(bytes <= sizeof(number));
    for (size_t i = 0; i < bytes; i++)
        *at++ = (uint8_t)(number >> 8 * i);
    return at;
}

#endif
