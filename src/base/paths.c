/* SPDX-License-Identifier: Apache-2.0 */
#include "base/paths.h"
#include "base/own.h"
#include "base/base.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>

static int check_folder(const char *folder, int flags, mode_t forbidden)
{
    pst_cleanup_close int fd = open(folder, flags | O_PATH | O_CLOEXEC);

    pst_assert(forbidden == PST_OWN_USES || forbidden == PST_OWN_WRITES);
    return fd < 0 ? pst_fail(-errno, "%s", strerror(errno)) : pst_own_check(fd, S_IFDIR, forbidden);
}

static int name_in(const char *folder, const char *name, char *buf, size_t cap)
{
    int n = snprintf(buf, cap, "%s/%s", folder, name);

    pst_assert(folder[0] == '/');
    return n > 0 && (size_t)n < cap ? 0 : pst_fail(-ENAMETOOLONG, "too long for a socket's path");
}

/* What the system or the user has made for this purpose; a link is the user's own. */
static int in_runtime_folder(const char *folder, const char *name, char *buf, size_t cap)
{
    int r = *folder == '/' ? check_folder(folder, 0, PST_OWN_WRITES)
                           : pst_fail(-EINVAL, "a path that begins with no '/'");

    pst_assert(r <= 0);
    return r == 0 ? name_in(folder, name, buf, cap) : r;
}

/* Everybody may have made it, or a link in its place. */
static int in_temporary_folder(const char *folder, const char *name, bool serves, char *buf, size_t cap)
{
    int r;

    pst_assert(folder[0] == '/');
    if (serves && mkdir(folder, 0700) < 0 && errno != EEXIST)
        return pst_fail(-errno, "%s", strerror(errno));
    r = check_folder(folder, O_NOFOLLOW, PST_OWN_USES);
    if (r == -ENOENT) /* nobody has served there */
        r = 0;
    return r == 0 ? name_in(folder, name, buf, cap) : r;
}

int pst_default_socket(const char *name, bool serves, char *buf, size_t cap)
{
    const char *xdg = getenv("XDG_RUNTIME_DIR");
    char folder[64];
    int r;

    pst_assert(buf);
    pst_assert(cap > 0);
    if (geteuid() == 0)
        return name_in("/run", name, buf, cap);
    if (xdg && *xdg) {
        r = in_runtime_folder(xdg, name, buf, cap);
        return r == 0 ? 0 : pst_fail(r, "XDG_RUNTIME_DIR=%.150s: %s", xdg, pst_error_text());
    }
    snprintf(folder, sizeof(folder), "/run/user/%u", (unsigned)geteuid());
    if (in_runtime_folder(folder, name, buf, cap) == 0)
        return 0;
    snprintf(folder, sizeof(folder), "/tmp/penstock-%u", (unsigned)geteuid());
    r = in_temporary_folder(folder, name, serves, buf, cap);
    return r == 0 ? 0 : pst_fail(r, "%s: %s; set XDG_RUNTIME_DIR", folder, pst_error_text());
}
