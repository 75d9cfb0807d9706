/* SPDX-License-Identifier: Apache-2.0 */
/* head.c: request heads. */
#include "web/head_priv.h"

#include <strings.h>

size_t head_find_end(const char *text, size_t bytes, size_t from)
{
    const char *end;

    pst_assert(from <= bytes);
    from = from > 3 ? from - 3 : 0;
    end = bytes > from ? memmem(text + from, bytes - from, "\r\n\r\n", 4) : NULL;
    return end ? (size_t)(end - text) + 4 : 0;
}

static bool is_token_char(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           (c && strchr("!#$%&'*+-.^_`|~", c));
}

static bool is_token(struct pst_bytes text)
{
    const char *at = text.data;

    for (size_t i = 0; i < text.len; i++)
        if (!is_token_char(at[i]))
            return false;
    return text.len > 0;
}

static bool is_same(struct pst_bytes text, const char *word)
{
    return text.len == strlen(word) && strncasecmp(text.data, word, text.len) == 0;
}

static struct pst_bytes trim(struct pst_bytes text)
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

/* Cuts @text at the first @c. Return: what was before it; all if there is none. */
static struct pst_bytes cut(struct pst_bytes *text, char c)
{
    const char *at = text->len ? memchr(text->data, c, text->len) : NULL;
    struct pst_bytes first = *text;

    if (!at) {
        *text = (struct pst_bytes){(const char *)text->data + text->len, 0};
        return first;
    }
    first.len = (size_t)(at - (const char *)text->data);
    pst_assert(first.len < text->len);
    text->data = at + 1;
    text->len -= first.len + 1;
    return first;
}

/* "http://host/path" is the path, as of a client that takes us for a proxy. */
static void strip_host(struct pst_bytes *target)
{
    const char *at = target->data;
    size_t host = 7;

    if (target->len < host || strncasecmp(at, "http://", host) != 0)
        return;
    while (host < target->len && at[host] != '/' && at[host] != '?')
        host++;
    *target = (struct pst_bytes){at + host, target->len - host};
}

static int first_line(struct pst_bytes line, struct head *out)
{
    struct pst_bytes target, version;

    out->method = cut(&line, ' ');
    target = cut(&line, ' ');
    version = line;
    if (!is_token(out->method) || out->method.len > 16 || target.len == 0)
        return 400;
    for (size_t i = 0; i < target.len; i++) {
        unsigned char c = ((const unsigned char *)target.data)[i];

        if (c <= ' ' || c >= 0x7f || c == '#')
            return 400;
    }
    if (version.len != 8 || memcmp(version.data, "HTTP/", 5) != 0)
        return 400;
    if (memcmp(version.data, "HTTP/1.", 7) != 0)
        return 505;
    out->version_11 = ((const char *)version.data)[7] == '1';
    if (!out->version_11 && ((const char *)version.data)[7] != '0')
        return 505;
    out->keep_alive = out->version_11;
    strip_host(&target);
    out->path = cut(&target, '?');
    out->query = target;
    return out->path.len && *(const char *)out->path.data == '/' ? 0 : 400;
}

static int set_once(struct pst_bytes *field, struct pst_bytes value)
{
    if (field->data)
        return 400;
    *field = value;
    return 0;
}

static int set_length(struct pst_bytes value, struct head *out)
{
    uint64_t length = 0;

    if (out->has_length || value.len == 0 || value.len > 18)
        return value.len > 18 ? 413 : 400;
    for (size_t i = 0; i < value.len; i++) {
        char c = ((const char *)value.data)[i];

        if (c < '0' || c > '9')
            return 400;
        length = length * 10 + (uint64_t)(c - '0');
    }
    out->has_length = true;
    out->body_bytes = length;
    return 0;
}

static void set_connection(struct pst_bytes value, struct head *out)
{
    while (value.len) {
        struct pst_bytes word = trim(cut(&value, ','));

        if (is_same(word, "close"))
            out->keep_alive = false;
        else if (is_same(word, "keep-alive"))
            out->keep_alive = true;
        else if (is_same(word, "upgrade"))
            out->says_upgrade = true;
    }
}

static int set_field(struct pst_bytes name, struct pst_bytes value, struct head *out)
{
    if (is_same(name, "content-length"))
        return set_length(value, out);
    if (is_same(name, "authorization"))
        return set_once(&out->authorization, value);
    if (is_same(name, "origin"))
        return set_once(&out->origin, value);
    if (is_same(name, "content-type"))
        return set_once(&out->content_type, value);
    if (is_same(name, "sec-websocket-key"))
        return set_once(&out->socket_key, value);
    if (is_same(name, "sec-websocket-version"))
        return set_once(&out->socket_version, value);
    if (is_same(name, "host")) {
        if (out->has_host)
            return 400;
        out->has_host = true;
        out->host = value;
    } else if (is_same(name, "transfer-encoding")) {
        out->chunked = true;
    } else if (is_same(name, "connection")) {
        set_connection(value, out);
    } else if (is_same(name, "expect")) {
        if (!is_same(value, "100-continue"))
            return 417;
        out->expect_continue = true;
    } else if (is_same(name, "upgrade")) {
        while (value.len)
            out->says_websocket |= is_same(trim(cut(&value, ',')), "websocket");
    }
    return 0;
}

static int field(struct pst_bytes line, struct head *out)
{
    const char *colon = memchr(line.data, ':', line.len);
    struct pst_bytes name, value;

    if (!colon)
        return 400;
    name = (struct pst_bytes){line.data, (size_t)(colon - (const char *)line.data)};
    value = trim((struct pst_bytes){colon + 1, line.len - name.len - 1});
    if (!is_token(name)) /* a folded line and a space before the colon as well */
        return 400;
    for (size_t i = 0; i < value.len; i++) {
        unsigned char c = ((const unsigned char *)value.data)[i];

        if ((c < ' ' && c != '\t') || c == 0x7f)
            return 400;
    }
    return set_field(name, value, out);
}

int head_parse(const char *text, size_t bytes, struct head *out)
{
    size_t at = 0;
    int count = 0;

    pst_assert(bytes >= 4 && memcmp(text + bytes - 4, "\r\n\r\n", 4) == 0);
    *out = (struct head){.version_11 = false};
    while (at < bytes - 2) {
        const char *end = memmem(text + at, bytes - at, "\r\n", 2);
        struct pst_bytes line = {text + at, (size_t)(end - text) - at};
        int status;

        if (count > HEAD_FIELDS_MAX)
            return 431;
        pst_assert(end && end >= text + at);
        status = count == 0 ? first_line(line, out) : field(line, out);
        if (status)
            return status;
        count++;
        at += line.len + 2;
    }
    if (out->version_11 && !out->has_host)
        return 400;
    if (out->chunked)
        return out->has_length ? 400 : 411;
    out->upgrade = out->version_11 && out->says_upgrade && out->says_websocket;
    return 0;
}
