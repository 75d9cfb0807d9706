/* SPDX-License-Identifier: Apache-2.0 */
#include "base/host.h"
#include "base/base.h"
#include "base/hash.h"

#include <fcntl.h>

_Static_assert(sizeof(struct pst_hash128) == 16, "a host's number is a whole hash");

void pst_host_id(const char *name, uint8_t id[16])
{
    char boot[64] = "";
    struct pst_hash128 hash;

    if (!name || !*name) {
        pst_cleanup_close int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
        ssize_t n = fd < 0 ? 0 : read(fd, boot, sizeof(boot) - 1);

        boot[n > 0 ? n : 0] = '\0';
        name = boot;
    }
    hash = pst_hash128(name, strlen(name), 0);
    memcpy(id, &hash, sizeof(hash));
}
