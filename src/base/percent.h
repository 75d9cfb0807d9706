/* SPDX-License-Identifier: Apache-2.0 */
/* percent.h: text as URLs quote it. Pure; any thread. */
#ifndef PST_PERCENT_H
#define PST_PERCENT_H

#include "base/base.h"

/*
 * Decodes each "%XX" once; @plus: '+' is a space, as in queries. No NUL is added. Return: the bytes in @buf,
 * -EINVAL a broken escape or a NUL, -ENOSPC.
 */
int pst_percent_decode(struct pst_bytes raw, bool plus, void *buf, size_t cap);

/*
 * Quotes every byte but letters, digits and "-._~", slashes too, so that the text is one part of a path or
 * one value of a query. @buf ends with a NUL. Return: the bytes in front of it, -ENOSPC.
 */
int pst_percent_encode(struct pst_bytes text, char *buf, size_t cap);

#endif
