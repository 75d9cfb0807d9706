/* SPDX-License-Identifier: Apache-2.0 */
/* slow_sync.c: preloaded into a node, whose disk takes a while until bytes are there for good. */
#include <dlfcn.h>
#include <unistd.h>

enum { SYNC_US = 20000 };

__attribute__((visibility("default"))) int fdatasync(int fd)
{
    int (*sync_now)(int);

    *(void **)&sync_now = dlsym(RTLD_NEXT, "fdatasync");
    usleep(SYNC_US);
    return sync_now(fd);
}
