/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lines.h: objects of JSON, a line each, over a socket or a pipe whose other side says little. One thread.
 */
#ifndef PST_AGENT_ROUND_LINES_H
#define PST_AGENT_ROUND_LINES_H

#include "http/json.h"

enum {
    ROUND_LINE_BYTES_MAX = 4096, /* of one that is heard, its end included */
    ROUND_SAY_MS = 2000,         /* as long as the other side may take to read one */
};

/* What has come from a descriptor, which is the caller's. All zeros: nothing yet. */
struct round_lines {
    uint32_t used;
    char bytes[ROUND_LINE_BYTES_MAX];
};

/* The next line, to be freed. Of a descriptor that blocks it is waited for. Return: 1; 0 none has come whole;
 * -ECONNRESET the other side has ended; -EBADMSG it is no object, or too long; -errno. */
int round_lines_hear(struct round_lines *lines, int fd, struct pst_json **out);
/* Says one. Return: 0, -ETIMEDOUT, -ENOMEM, -errno. */
int round_say(int fd, const struct pst_json *line);
/* The same of an object with one member, or with none if @name is NULL. */
int round_say_text(int fd, const char *name, const char *text);

#endif
