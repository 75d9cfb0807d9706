/* SPDX-License-Identifier: Apache-2.0 */
/*
 * http.h: pieces of the text of HTTP/1.1 heads, for whoever reads them. Pure; any thread. Nothing is copied:
 * what comes back is a part of what was given.
 */
#ifndef PST_HTTP_H
#define PST_HTTP_H

#include "base/base.h"

/* The length of the head with the empty line at its end, 0 if that has not come. @from: where to begin to
 * look, for one that comes in pieces. */
size_t pst_http_head_end(const char *text, size_t bytes, size_t from);
/* Cuts @text at the first @c. Return: what was before it; all if there is none, and @text->data is NULL. */
struct pst_bytes pst_http_cut(struct pst_bytes *text, char c);
/* Without blanks and tabs around it. */
struct pst_bytes pst_http_trim(struct pst_bytes text);
/* Whether it is this word, in any case of letters. */
bool pst_http_is(struct pst_bytes text, const char *word);
/* A decimal number. Return: false it is none, or more than 18 digits. */
bool pst_http_number(struct pst_bytes text, uint64_t *out);
/* Whether it can be a method, or the name of a field. */
bool pst_http_is_token(struct pst_bytes text);
/* Whether it can be the value of a field: no control characters but tabs. */
bool pst_http_is_value(struct pst_bytes text);
/* "http://host/path" is the path, as of a client that takes us for a proxy. */
void pst_http_strip_host(struct pst_bytes *target);

#endif
