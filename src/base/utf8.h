/* SPDX-License-Identifier: Apache-2.0 */
/* utf8.h: whether bytes are text. Pure; any thread. */
#ifndef PST_UTF8_H
#define PST_UTF8_H

#include "base/base.h"

/* UTF-8 throughout: nothing is cut off, overlong, a surrogate or beyond Unicode. */
bool pst_is_utf8(struct pst_bytes text);
/* Replaces what is not, byte by byte. */
void pst_utf8_repair(char *text);

#endif
