/* SPDX-License-Identifier: Apache-2.0 */
/* head.c: request heads. */
#include "web/head_priv.h"

#include "base/http.h"

static int first_line(struct pst_bytes line, struct head *out)
{
    struct pst_bytes target, version;

    out->method = pst_http_cut(&line, ' ');
    target = pst_http_cut(&line, ' ');
    version = line;
    if (!pst_http_is_token(out->method) || out->method.len > 16 || target.len == 0)
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
    pst_http_strip_host(&target);
    out->path = pst_http_cut(&target, '?');
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
    if (out->has_length || !pst_http_number(value, &out->body_bytes))
        return value.len > 18 ? 413 : 400;
    out->has_length = true;
    return 0;
}

static void set_connection(struct pst_bytes value, struct head *out)
{
    while (value.len) {
        struct pst_bytes word = pst_http_trim(pst_http_cut(&value, ','));

        if (pst_http_is(word, "close"))
            out->says_close = true;
        else if (pst_http_is(word, "keep-alive"))
            out->keep_alive = true;
        else if (pst_http_is(word, "upgrade"))
            out->says_upgrade = true;
    }
}

static int set_field(struct pst_bytes name, struct pst_bytes value, struct head *out)
{
    if (pst_http_is(name, "content-length"))
        return set_length(value, out);
    if (pst_http_is(name, "authorization"))
        return set_once(&out->authorization, value);
    if (pst_http_is(name, "origin"))
        return set_once(&out->origin, value);
    if (pst_http_is(name, "content-type"))
        return set_once(&out->content_type, value);
    if (pst_http_is(name, "sec-websocket-key"))
        return set_once(&out->socket_key, value);
    if (pst_http_is(name, "sec-websocket-version"))
        return set_once(&out->socket_version, value);
    if (pst_http_is(name, "host")) {
        if (out->has_host)
            return 400;
        out->has_host = true;
        out->host = value;
    } else if (pst_http_is(name, "transfer-encoding")) {
        out->chunked = true;
    } else if (pst_http_is(name, "connection")) {
        set_connection(value, out);
    } else if (pst_http_is(name, "expect")) {
        if (!pst_http_is(value, "100-continue"))
            return 417;
        out->expect_continue = true;
    } else if (pst_http_is(name, "traceparent")) {
        out->traceparent = value; /* no request is refused for it */
    } else if (pst_http_is(name, "upgrade")) {
        while (value.len)
            out->says_websocket |= pst_http_is(pst_http_trim(pst_http_cut(&value, ',')), "websocket");
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
    value = pst_http_trim((struct pst_bytes){colon + 1, line.len - name.len - 1});
    /* A folded line and a space before the colon are no token, either. */
    if (!pst_http_is_token(name) || !pst_http_is_value(value))
        return 400;
    return set_field(name, value, out);
}

int head_parse(const char *text, size_t bytes, struct head *out)
{
    size_t at = 0;
    int count = 0;

    pst_assert(bytes >= 4);
    pst_assert(memcmp(text + bytes - 4, "\r\n\r\n", 4) == 0);
    *out = (struct head){.version_11 = false};
    while (at < bytes - 2) {
        const char *end = memmem(text + at, bytes - at, "\r\n", 2);
        struct pst_bytes line = {text + at, (size_t)(end - text) - at};
        int status;

        if (count > HEAD_FIELDS_MAX)
            return 431;
        pst_assert(end);
        pst_assert(end >= text + at);
        status = count == 0 ? first_line(line, out) : field(line, out);
        if (status)
            return status;
        count++;
        at += line.len + 2;
    }
    out->keep_alive = out->keep_alive && !out->says_close;
    if (out->version_11 && !out->has_host)
        return 400;
    if (out->chunked)
        return out->has_length ? 400 : 411;
    out->upgrade = out->version_11 && out->says_upgrade && out->says_websocket;
    return 0;
}
