/* SPDX-License-Identifier: Apache-2.0 */
/*
 * head_priv.h: the head of an HTTP/1.1 request: its first line and the fields that this server acts on. Pure.
 * Strict: what a proxy could read in another way is refused.
 */
#ifndef PST_WEB_HEAD_PRIV_H
#define PST_WEB_HEAD_PRIV_H

#include "web/web.h"

enum {
    HEAD_BYTES_MAX = 32 << 10,
    HEAD_FIELDS_MAX = 100,
};

/* Parts of the text that was parsed; .data is NULL if the field was not there. */
struct head {
    struct pst_bytes method, path, query;
    struct pst_bytes authorization, content_type, host, origin, socket_key, socket_version, traceparent;
    uint64_t body_bytes;
    bool keep_alive;      /* the client will send another request */
    bool chunked;         /* or encoded in another way */
    bool upgrade;         /* to a WebSocket */
    bool expect_continue; /* the client waits before it sends the body */
    bool has_host, has_length;
    bool version_11;
    bool says_upgrade, says_websocket, says_close;
};

/* @bytes: as pst_http_head_end() said. Return: 0, or the status of the answer. */
int head_parse(const char *text, size_t bytes, struct head *out);

static inline bool head_method_is(const struct head *head, const char *method)
{
    return pst_bytes_equal(head->method, pst_bytes_of(method));
}

static inline bool head_reads(const struct head *head)
{
    return !head->upgrade && (head_method_is(head, "GET") || head_method_is(head, "HEAD"));
}

/* site.c: a browser says that the page is another host's, and the request is one that it makes for any page.
 */
bool head_is_of_another_site(const struct head *head);
/* Neither an address, nor a name without a dot, of localhost or a cluster's, nor @own. */
bool head_names_a_foreign_host(const struct head *head, const char *own);

/* Whether it asks for what lies at one of the paths, and says no more. */
static inline bool head_asks(const struct head *head, char *const paths[PST_WEB_OPEN_MAX])
{
    bool found = false;

    for (size_t i = 0; i < PST_WEB_OPEN_MAX; i++)
        found |= pst_bytes_equal(head->path, pst_bytes_of(paths[i]));
    return found && head_reads(head) && head->body_bytes == 0;
}

#endif
