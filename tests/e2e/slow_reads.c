/* SPDX-License-Identifier: Apache-2.0 */
/* slow_reads.c: preloaded into a node, whose disk reads nothing while the file is there that SLOW_READS
 * names.
 */
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/uio.h>
#include <unistd.h>

enum { LOOK_US = 10000 };

/* Offsets have 64 bits: the name that is linked is preadv64. */
__attribute__((visibility("default"))) ssize_t preadv(int fd, const struct iovec *iov, int count, off_t at)
{
    ssize_t (*read_now)(int, const struct iovec *, int, off_t);

    *(void **)&read_now = dlsym(RTLD_NEXT, "preadv64");
    while (access(getenv("SLOW_READS"), F_OK) == 0)
        usleep(LOOK_US);
    return read_now(fd, iov, count, at);
}
