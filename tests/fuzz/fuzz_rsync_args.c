/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_rsync_args.c: arguments of rsync's clients as the port in front of the daemon reads them. What comes
 * out has as many texts as what went in, options stay as they were, and every path is in the one module that
 * was named.
 */
#include "fuzz.h"

#include "files/rsync/front.h"

#include <stdio.h>

enum { OUT_BYTES = 64 << 10 };

/* Two modules, so that paths may come to differ in theirs. */
static void fuzz_place(void *ctx, const char *path, char place[PST_RSYNC_FRONT_PLACE_BYTES])
{
    (void)ctx;
    pst_assert(path[0] != '/' && strlen(path) < PST_RSYNC_FRONT_PLACE_BYTES);
    snprintf(place, PST_RSYNC_FRONT_PLACE_BYTES, "%s/%s", strchr(path, '!') ? "p-1" : "nothing", path);
}

static int fuzz_daemon(void *ctx)
{
    (void)ctx;
    return -ENOENT;
}

static void check(const char *in, const char *end, const char *out, size_t bytes, const char *module)
{
    const char *at = out;
    bool paths = false;

    for (; in < end; in += strlen(in) + 1, at += strlen(at) + 1) {
        pst_assert(at < out + bytes);
        if (paths && *in)
            pst_assert(strncmp(at, module, strlen(module)) == 0 && at[strlen(module)] == '/');
        else
            pst_assert(strcmp(at, in) == 0);
        paths = paths || strcmp(in, ".") == 0;
    }
    pst_assert(at == out + bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static const struct pst_rsync_front_ops ops = {.daemon = fuzz_daemon, .place = fuzz_place};
    static char out[OUT_BYTES];
    char *args = malloc(bytes + 1), module[64];
    int r;

    pst_assert(args);
    if (bytes)
        memcpy(args, data, bytes);
    args[bytes] = 0;
    r = pst_rsync_front_map(args, bytes + 1, &ops, NULL, out,
                            fuzz_below(&(struct fuzz){data, bytes}, 2) ? 64 : OUT_BYTES, module);
    if (r > 0)
        check(args, args + bytes + 1, out, (size_t)r, module);
    else
        pst_assert(r == 0 || r == -E2BIG || r == -EXDEV);
    free(args);
    return 0;
}
