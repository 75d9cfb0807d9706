/* SPDX-License-Identifier: Apache-2.0 */
/* no_sync.c: preloaded into a node, so that its disk takes bytes and never says that they are there for good.
 */
#include <errno.h>
#include <unistd.h>

__attribute__((visibility("default"))) int fdatasync(int fd)
{
    (void)fd;
    errno = EIO;
    return -1;
}
