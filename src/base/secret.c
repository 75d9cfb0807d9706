/* SPDX-License-Identifier: Apache-2.0 */
#include "base/options.h"
#include "base/own.h"

#include <fcntl.h>

static int secret_refuse(int error, const char *path, char fault[PST_FAULT_BYTES])
{
    pst_assert(error < 0);
    pst_assert(pst_error_text()[0]);
    snprintf(fault, PST_FAULT_BYTES, "secret file %.120s: %.90s", path, pst_error_text());
    return error;
}

int pst_secret_read(const char *path, void *buf, size_t cap, char fault[PST_FAULT_BYTES])
{
    pst_cleanup_close int fd =
        open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe would wait for its writer */
    struct stat st = {.st_size = 0};
    ssize_t n = -1;

    pst_assert(cap > 0 && cap <= INT32_MAX);
    if (fd < 0)
        return secret_refuse(pst_fail(-errno, "%s", strerror(errno)), path, fault);
    if (pst_own_check(fd, S_IFREG, PST_OWN_USES) < 0) /* whoever made it or may read it knows it, too */
        return secret_refuse(
            pst_fail(-EACCES, "%s; it must be its user's alone, mode 0600", pst_error_text()), path, fault);
    if (fstat(fd, &st) == 0 && st.st_size <= (off_t)cap)
        n = read(fd, buf, cap);
    while (n > 0 && (((char *)buf)[n - 1] == '\n' || ((char *)buf)[n - 1] == '\r'))
        n--;
    if (n <= 0)
        return secret_refuse(pst_fail(-EINVAL, "must hold 1 to %zu bytes", cap), path, fault);
    pst_assert((size_t)n <= cap);
    return (int)n;
}

bool pst_secret_is(struct pst_bytes secret, const char *said)
{
    const char *known = secret.data;
    size_t bytes = said ? strlen(said) : 0, differ = bytes ^ secret.len;

    /* As long for every text of this length. */
    for (size_t i = 0; i < bytes && i < secret.len; i++)
        differ |= (size_t)(said[i] ^ known[i]);
    return differ == 0;
}
