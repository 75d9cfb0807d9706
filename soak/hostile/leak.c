/* SPDX-License-Identifier: Apache-2.0 */
/*
 * leak.c: the fault that the soak hostile_bootstrap plants: preloaded into a node, a descriptor or some
 * memory is lost with every tenth connection that it accepts. SOAK_LEAK names which.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

enum { EVERY = 10, LEAK_BYTES = 16 << 10 };

__attribute__((visibility("default"))) int accept4(int fd, struct sockaddr *restrict address,
                                                   socklen_t *restrict bytes, int flags)
{
    static int (*real)(int, struct sockaddr *, socklen_t *, int);
    static void *volatile kept; /* so that no compiler thinks the memory away */
    static int count;
    const char *what = getenv("SOAK_LEAK");
    int got;

    if (!real)
        real = (int (*)(int, struct sockaddr *, socklen_t *, int))dlsym(RTLD_NEXT, "accept4");
    got = real(fd, address, bytes, flags);
    if (got < 0 || !what || ++count % EVERY != 0)
        return got;
    if (strcmp(what, "descriptor") == 0) {
        (void)open("/dev/null", O_RDONLY | O_CLOEXEC); /* a duplicate would keep @got in sets of epoll */
    } else {
        kept = malloc(LEAK_BYTES);
        if (kept)
            memset(kept, 1, LEAK_BYTES);
    }
    return got;
}
