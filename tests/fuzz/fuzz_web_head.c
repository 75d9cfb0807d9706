/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_web_head.c: heads of HTTP requests. Found in pieces the end is where it is in one, nothing that a head
 * names lies outside of it, and what is decoded of it fits where it is put.
 */
#include "fuzz.h"

#include "web/head_priv.h"
#include "base/http.h"
#include "web/web.h"

static void within(struct pst_bytes part, const char *text, size_t bytes)
{
    const char *at = part.data;

    pst_assert(part.len == 0 || (at >= text && at + part.len <= text + bytes));
}

static void decode(struct pst_bytes raw)
{
    char text[64];
    int n = pst_web_decode(raw, false, text, sizeof(text));

    pst_assert(n < 0 || ((size_t)n < sizeof(text) && strlen(text) == (size_t)n && (size_t)n <= raw.len));
    n = pst_web_query(raw, "token", text, sizeof(text));
    pst_assert(n < 0 || strlen(text) == (size_t)n);
}

static void parse(const char *text, size_t bytes)
{
    struct head head;
    int status = head_parse(text, bytes, &head);

    pst_assert(status == 0 || (status >= 400 && status < 600));
    if (status)
        return;
    within(head.method, text, bytes);
    within(head.path, text, bytes);
    within(head.query, text, bytes);
    within(head.authorization, text, bytes);
    within(head.content_type, text, bytes);
    within(head.socket_key, text, bytes);
    within(head.socket_version, text, bytes);
    pst_assert(head.method.len && *(const char *)head.path.data == '/' && !head.chunked);
    pst_assert(head.has_length || head.body_bytes == 0);
    decode(head.path);
    decode(head.query);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct fuzz in = {data, bytes};
    size_t portion = fuzz_below(&in, 64) + 1, text_bytes, end, found = 0;
    char *text = (char *)fuzz_take(&in, bytes, &text_bytes);

    end = pst_http_head_end(text, text_bytes, 0);
    pst_assert(end <= text_bytes);
    for (size_t at = 0, last = 0; at < text_bytes && !found; last = at) {
        at = pst_min(at + portion, text_bytes);
        found = pst_http_head_end(text, at, last);
    }
    pst_assert(found == end);
    if (end)
        parse(text, end);
    free(text);
    return 0;
}
