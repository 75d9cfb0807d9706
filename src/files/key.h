/* SPDX-License-Identifier: Apache-2.0 */
/*
 * key.h: a key of the data store, from the bytes of an HTTP path to its normal form: parts joined by single
 * slashes, "a/b/c". `root.h` takes keys as paths, `catalogue.h` as names. Pure; any thread.
 *
 *     as it arrives            normal form
 *     /a//b/./c/               a/b/c
 *     a/../../../b             b              ".." ends at the root
 *     a%2Fb                    a/b            the client may quote slashes, too
 *     100%2541                 100%41         decoded once, never twice
 */
#ifndef PST_FILES_KEY_H
#define PST_FILES_KEY_H

#include "base/base.h"
#include "base/limits.h"

enum {
    PST_KEY_PARTS_MAX = 128,
    PST_KEY_PART_BYTES_MAX = 255, /* what a file system takes */
};

/* Of the buffer for a normal form, its NUL included. */
enum { PST_KEY_CAP = PST_KEY_BYTES_MAX + 1 };

/**
 * pst_key_decode() - decode and normalise a key
 * @raw: percent-encoded, as the request has it; borrowed during the call
 * @out: the normal form and a NUL; "" is the root
 * Return: its bytes without the NUL. -EINVAL: a '%' without two hex digits behind it, or a control byte (NUL,
 * below 0x20, 0x7f). -ENAMETOOLONG: over PST_KEY_BYTES_MAX bytes once decoded, over PST_KEY_PARTS_MAX parts,
 * or a part over PST_KEY_PART_BYTES_MAX. @out is written on success alone.
 */
int pst_key_decode(struct pst_bytes raw, char out[PST_KEY_CAP]);

/* The same for a key that is not encoded, such as one in a JSON body. */
int pst_key_normalise(struct pst_bytes text, char out[PST_KEY_CAP]);

/* Whether @key is what the two above return. The root's "" is. */
bool pst_key_is_normal(const char *key);

/* So begin names for what has not arrived yet, which no tree has. */
#define PST_KEY_RESERVED ".penstock-"

/* Whether a part of @key begins so. */
bool pst_key_is_reserved(const char *key);

/* So begin those, 16 hex digits behind it, of what a client puts aside until it takes a key's place. */
#define PST_KEY_ASIDE PST_KEY_RESERVED "put-"

/* Whether all parts of @key that are reserved are such names; also if there is none. */
bool pst_key_may_come(const char *key);

/* The last part of a normal key that is not the root's; "c" of "a/b/c". */
const char *pst_key_leaf(const char *key);

#endif
