#include "base/paths.h"
#include "base/base.h"

#include <stdio.h>

void pst_default_socket(char *buf, size_t cap)
{
    const char *folder = getenv("XDG_RUNTIME_DIR");

    pst_assert(cap > 0);
    if (geteuid() == 0)
        snprintf(buf, cap, "/run/penstock.sock");
    else if (folder && *folder)
        snprintf(buf, cap, "%s/penstock.sock", folder);
    else
        snprintf(buf, cap, "/tmp/penstock-%u.sock", (unsigned)geteuid());
}
