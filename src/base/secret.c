#include "base/options.h"

#include <fcntl.h>
#include <sys/stat.h>

int pst_secret_read(const char *path, void *buf, size_t cap, char fault[PST_FAULT_BYTES])
{
    pst_cleanup_close int fd =
        open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe would wait for its writer */
    struct stat st;
    ssize_t n = -1;

    if (fd < 0 || fstat(fd, &st) < 0) {
        snprintf(fault, PST_FAULT_BYTES, "secret file %.180s: %s", path, strerror(errno));
        return -errno;
    }
    if (!S_ISREG(st.st_mode) || st.st_mode & 077) {
        snprintf(fault, PST_FAULT_BYTES,
                 "secret file %.180s: must be a file that only its owner can read (mode 0600)", path);
        return -EACCES;
    }
    if (st.st_size <= (off_t)cap)
        n = read(fd, buf, cap);
    while (n > 0 && (((char *)buf)[n - 1] == '\n' || ((char *)buf)[n - 1] == '\r'))
        n--;
    if (n <= 0) {
        snprintf(fault, PST_FAULT_BYTES, "secret file %.180s: must hold 1 to %zu bytes", path, cap);
        return -EINVAL;
    }
    return (int)n;
}
