/* SPDX-License-Identifier: Apache-2.0 */
/* front_args.c: arguments of rsync's server, as its client sends them: options, ".", paths. */
#include "files/rsync/front.h"

#include <stdio.h>

struct text {
    char *at;
    size_t bytes, cap;
};

static int text_add(struct text *text, const char *arg)
{
    size_t bytes = strlen(arg) + 1;

    pst_assert(text->bytes <= text->cap);
    if (bytes > text->cap - text->bytes)
        return -E2BIG;
    memcpy(text->at + text->bytes, arg, bytes);
    text->bytes += bytes;
    return 0;
}

/* rsync's client puts a '\' before what the daemon would take for a pattern. */
static void without_escapes(const char *from, char *to)
{
    for (; *from; from++) {
        if (*from == '\\' && from[1])
            from++;
        *to++ = *from;
    }
    *to = 0;
}

static void with_escapes(const char *from, char *to, size_t cap)
{
    size_t bytes = 0;

    for (; *from && bytes + 2 < cap; from++) {
        if (strchr("\\*?[", *from))
            to[bytes++] = '\\';
        to[bytes++] = *from;
    }
    to[bytes] = 0;
}

/* @arg: "data", or "data/PATH". */
static int map_path(const char *arg, const struct pst_rsync_front_ops *ops, void *ctx, struct text *out,
                    char module[64])
{
    char path[PST_RSYNC_FRONT_PLACE_BYTES], place[PST_RSYNC_FRONT_PLACE_BYTES] = "";
    char escaped[2 * PST_RSYNC_FRONT_PLACE_BYTES];
    size_t bytes;

    if (strlen(arg) >= sizeof(path))
        return -E2BIG;
    without_escapes(arg, path);
    ops->place(ctx, path + strcspn(path, "/") + strspn(path + strcspn(path, "/"), "/"), place);
    bytes = strcspn(place, "/");
    pst_assert(bytes > 0 && bytes < 64);
    if (module[0] && (strlen(module) != bytes || memcmp(module, place, bytes) != 0))
        return -EXDEV;
    memcpy(module, place, bytes);
    module[bytes] = 0;
    with_escapes(place, escaped, sizeof(escaped));
    return text_add(out, escaped);
}

int pst_rsync_front_map(const char *args, size_t bytes, const struct pst_rsync_front_ops *ops, void *ctx,
                        char *out, size_t cap, char module[64])
{
    struct text text = {out, 0, cap};
    bool paths = false;
    int r = 0;

    pst_assert(bytes > 0);
    pst_assert(!args[bytes - 1]);
    module[0] = 0;
    for (const char *arg = args; r == 0 && arg < args + bytes; arg += strlen(arg) + 1) {
        if (paths && *arg)
            r = map_path(arg, ops, ctx, &text, module);
        else
            r = text_add(&text, arg);
        paths = paths || strcmp(arg, ".") == 0;
    }
    pst_assert(text.bytes <= cap);
    return r < 0 ? r : module[0] ? (int)text.bytes : 0;
}
