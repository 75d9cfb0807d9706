/* SPDX-License-Identifier: Apache-2.0 */
/* http.c: pieces of the text of HTTP/1.1 heads. */
#include "base/http.h"

#include <strings.h>

size_t pst_http_head_end(const char *text, size_t bytes, size_t from)
{
    const char *end;

    pst_assert(from <= bytes);
    from = from > 3 ? from - 3 : 0;
    end = bytes > from ? memmem(text + from, bytes - from, "\r\n\r\n", 4) : NULL;
    return end ? (size_t)(end - text) + 4 : 0;
}

struct pst_bytes pst_http_cut(struct pst_bytes *text, char c)
{
    const char *at = text->len ? memchr(text->data, c, text->len) : NULL;
    struct pst_bytes first = *text;

    if (!at) {
        *text = (struct pst_bytes){NULL, 0};
        return first;
    }
    first.len = (size_t)(at - (const char *)text->data);
    pst_assert(first.len < text->len);
    *text = (struct pst_bytes){at + 1, text->len - first.len - 1};
    return first;
}

struct pst_bytes pst_http_trim(struct pst_bytes text)
{
    const char *at = text.data;

    while (text.len && (*at == ' ' || *at == '\t')) {
        at++;
        text.len--;
    }
    while (text.len && (at[text.len - 1] == ' ' || at[text.len - 1] == '\t'))
        text.len--;
    text.data = at;
    return text;
}

bool pst_http_is(struct pst_bytes text, const char *word)
{
    pst_assert(*word);
    return text.len == strlen(word) && strncasecmp(text.data, word, text.len) == 0;
}

bool pst_http_number(struct pst_bytes text, uint64_t *out)
{
    uint64_t number = 0;

    if (text.len == 0 || text.len > 18)
        return false;
    for (size_t i = 0; i < text.len; i++) {
        char c = ((const char *)text.data)[i];

        if (c < '0' || c > '9')
            return false;
        number = number * 10 + (uint64_t)(c - '0');
    }
    *out = number;
    return true;
}

bool pst_http_is_token(struct pst_bytes text)
{
    const char *at = text.data;

    for (size_t i = 0; i < text.len; i++) {
        bool plain = (at[i] >= '0' && at[i] <= '9') || (at[i] >= 'a' && at[i] <= 'z') ||
                     (at[i] >= 'A' && at[i] <= 'Z');

        if (!plain && !(at[i] && strchr("!#$%&'*+-.^_`|~", at[i])))
            return false;
    }
    return text.len > 0;
}

bool pst_http_is_value(struct pst_bytes text)
{
    for (size_t i = 0; i < text.len; i++) {
        unsigned char c = ((const unsigned char *)text.data)[i];

        if ((c < ' ' && c != '\t') || c == 0x7f)
            return false;
    }
    return true;
}

void pst_http_strip_host(struct pst_bytes *target)
{
    const char *at = target->data;
    size_t host = 7;

    if (target->len < host || strncasecmp(at, "http://", host) != 0)
        return;
    while (host < target->len && at[host] != '/' && at[host] != '?')
        host++;
    *target = (struct pst_bytes){at + host, target->len - host};
}
