/* SPDX-License-Identifier: Apache-2.0 */
/*
 * head_priv.h: the head of an HTTP/1.1 request: its first line and the fields that this server acts on. Pure.
 * Strict: what a proxy could read in another way is refused.
 */
#ifndef PST_WEB_HEAD_PRIV_H
#define PST_WEB_HEAD_PRIV_H

#include "base/base.h"

enum {
    HEAD_BYTES_MAX = 32 << 10,
    HEAD_FIELDS_MAX = 100,
};

/* Parts of the text that was parsed; .data is NULL if the field was not there. */
struct head {
    struct pst_bytes method, path, query;
    struct pst_bytes authorization, content_type, host, origin, socket_key, socket_version;
    uint64_t body_bytes;
    bool keep_alive;      /* the client will send another request */
    bool chunked;         /* or encoded in another way */
    bool upgrade;         /* to a WebSocket */
    bool expect_continue; /* the client waits before it sends the body */
    bool has_host, has_length;
    bool version_11;
    bool says_upgrade, says_websocket;
};

/* The length of the head with the empty line at its end, 0 if that has not come. @from: where to begin to
 * look, for one that comes in pieces. */
size_t head_find_end(const char *text, size_t bytes, size_t from);
/* @bytes: as head_find_end() said. Return: 0, or the status of the answer. */
int head_parse(const char *text, size_t bytes, struct head *out);

#endif
