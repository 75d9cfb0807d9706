/* SPDX-License-Identifier: Apache-2.0 */
/* late_stat.c: preloaded into a data store, whose first look for the file "polled" tells what it saw only
 * when the file is gone that LATE_STAT names. A file of that name with ".at" behind it says that it has
 * looked.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LOOK_US = 10000 };

static atomic_int has_looked;

/* Offsets have 64 bits: the name that is linked is fstatat64. */
__attribute__((visibility("default"))) int fstatat(int fd, const char *path, struct stat *st, int flags)
{
    const char *gate = getenv("LATE_STAT");
    int (*stat_now)(int, const char *, struct stat *, int), r, error;
    char at[4096];

    *(void **)&stat_now = dlsym(RTLD_NEXT, "fstatat64");
    r = stat_now(fd, path, st, flags);
    error = errno;
    if (!gate || strcmp(path, "polled") != 0 || atomic_exchange(&has_looked, 1))
        return r;
    snprintf(at, sizeof(at), "%s.at", gate);
    close(open(at, O_WRONLY | O_CREAT, 0600));
    while (access(gate, F_OK) == 0)
        usleep(LOOK_US);
    errno = error;
    return r;
}
