/* SPDX-License-Identifier: Apache-2.0 */
/*
 * wanted.h: the chunks of a new file, as its sender lists them, and the search for them in what is here
 * already. Each is wanted until it is taken. One thread.
 */
#ifndef PST_FILES_WANTED_H
#define PST_FILES_WANTED_H

#include "files/tree/chunk.h"

/* So that the list of a file fits in 200 MB. Of larger files none is made: they come whole. */
enum { PST_WANTED_MAX = 1 << 22 };
#define PST_WANTED_FILE_BYTES_MAX ((uint64_t)PST_WANTED_MAX * PST_CHUNK_BYTES_MIN)

struct pst_wanted_chunk {
    struct pst_digest digest;
    uint64_t at; /* in the new file */
    uint32_t bytes;
    bool taken;
};

struct pst_wanted {
    struct pst_wanted_chunk *chunks; /* in the file's order */
    uint32_t *sorted;                /* their numbers, by digest and bytes; NULL: not sorted yet */
    uint32_t count, room, taken;
    uint64_t bytes, taken_bytes;
};

void pst_wanted_fini(struct pst_wanted *wanted);

/* The next chunk of a file of @file_bytes. Return: 0; -EPROTO no file is cut like that, -ENOMEM. */
int pst_wanted_add(struct pst_wanted *wanted, const struct pst_digest *digest, uint32_t bytes,
                   uint64_t file_bytes);
/* What a list takes, and its order will. */
uint64_t pst_wanted_memory(const struct pst_wanted *wanted);
/* All are listed. Return: 0, -ENOMEM. */
int pst_wanted_sort(struct pst_wanted *wanted);

/* Takes the chunks with that content: @each for each place in the new file, which counts as taken meanwhile.
 * Return: 0, or what @each returned: that place is wanted still. */
typedef int pst_wanted_each(void *ctx, uint64_t at);
int pst_wanted_take(struct pst_wanted *wanted, const struct pst_digest *digest, uint32_t bytes,
                    pst_wanted_each *each, void *ctx);
/* A bit for each chunk that is not taken; @bits has room for @count of them. */
void pst_wanted_bits(const struct pst_wanted *wanted, uint8_t *bits);

#endif
