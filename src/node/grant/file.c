/* SPDX-License-Identifier: Apache-2.0 */
/* file.c: a file of grants and the files that its secrets lie in: who may have written them, and read them.
 */
#include "node/grant_file.h"

#include "base/own.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>

enum { PATH_TEXT_BYTES = 70 };

/* The end of a long one, which tells most. */
static const char *path_end(const char *path)
{
    size_t bytes = strlen(path);

    return bytes > PATH_TEXT_BYTES ? path + bytes - PATH_TEXT_BYTES : path;
}

static int file_refuse(int error, const char *path, char *fault)
{
    pst_assert(error < 0);
    pst_assert(pst_error_text()[0]);
    snprintf(fault, PST_FAULT_BYTES, "grants %s: %.110s", path_end(path), pst_error_text());
    return error;
}

/* All of an open file. Return: 0, -errno with the thread's error text. */
static int read_text(int fd, char **text, size_t *bytes)
{
    struct stat st;
    ssize_t n;

    if (fstat(fd, &st) < 0)
        return pst_fail(-errno, "%s", strerror(errno));
    if (st.st_size > PST_GRANT_FILE_BYTES_MAX)
        return pst_fail(-EFBIG, "more than %d bytes", PST_GRANT_FILE_BYTES_MAX);
    *text = malloc(PST_GRANT_FILE_BYTES_MAX);
    if (!*text)
        return pst_fail(-ENOMEM, "out of memory");
    for (*bytes = 0; *bytes < PST_GRANT_FILE_BYTES_MAX; *bytes += (size_t)n) {
        n = read(fd, *text + *bytes, PST_GRANT_FILE_BYTES_MAX - *bytes);
        if (n < 0)
            return pst_fail(-errno, "%s", strerror(errno));
        if (n == 0)
            break;
    }
    return 0;
}

static int read_grants(const char *path, struct pst_grant_file **out, char *fault)
{
    pst_cleanup_close int fd =
        open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe would wait for its writer */
    pst_cleanup_free char *text = NULL;
    struct pst_grant_file *file = NULL;
    size_t bytes = 0;
    int r;

    if (fd < 0)
        return file_refuse(pst_fail(-errno, "%s", strerror(errno)), path, fault);
    r = pst_own_check(fd, S_IFREG, PST_OWN_WRITES);
    if (r == 0)
        r = read_text(fd, &text, &bytes);
    if (r < 0)
        return file_refuse(r, path, fault);
    r = pst_grant_file_parse(path_end(path), (struct pst_bytes){text, bytes}, &file, fault);
    explicit_bzero(text, bytes);
    if (r == 0 && file->holds_secrets && pst_own_check(fd, S_IFREG, PST_OWN_USES) < 0) {
        pst_grant_file_free(file);
        return file_refuse(pst_fail(-EACCES, "%s; with secrets in it, it must be its user's alone, mode 0600",
                                    pst_error_text()),
                           path, fault);
    }
    if (r == 0)
        *out = file;
    return r;
}

/* A name without a folder of its own counts from that of @beside. */
static int resolve(const char *name, const char *beside, char path[PATH_MAX])
{
    const char *slash = strrchr(beside, '/');
    int folder_bytes = name[0] == '/' || !slash ? 0 : (int)(slash - beside) + 1;

    return snprintf(path, PATH_MAX, "%.*s%s", folder_bytes, beside, name) < PATH_MAX ? 0 : -ENAMETOOLONG;
}

static int read_secret(const char *path, struct pst_grant_secret *secret, char *fault)
{
    uint8_t bytes[PST_BOOT_SECRET_BYTES_MAX];
    char where[PATH_MAX], why[PST_FAULT_BYTES] = "its name is too long";
    void *copy = NULL;
    int r = resolve(secret->path, path, where);

    if (r == 0)
        r = pst_secret_read(where, bytes, sizeof(bytes), why);
    if (r > 0)
        copy = malloc((size_t)r);
    if (r > 0 && !copy) {
        snprintf(why, sizeof(why), "out of memory");
        r = -ENOMEM;
    }
    if (r < 0) {
        snprintf(fault, PST_FAULT_BYTES, "grants %s:%u: %.160s", path_end(path), secret->line, why);
    } else {
        pst_assert(r > 0 && r <= (int)sizeof(bytes));
        memcpy(copy, bytes, (size_t)r);
        secret->secret = (struct pst_bytes){copy, (size_t)r};
    }
    explicit_bzero(bytes, sizeof(bytes));
    return r < 0 ? r : 0;
}

/* Whose a client is would depend on the order of the grants. Only an operator's slip: time tells nobody. */
static int check_distinct(const struct pst_grant_file *file, const char *path, char *fault)
{
    const struct pst_grant_secret *all[PST_GRANTS_MAX * PST_GRANT_SECRETS_MAX];
    uint32_t count = 0;

    for (uint32_t i = 0; i < file->count; i++) {
        for (uint32_t j = 0; j < file->grants[i].secret_count; j++) {
            const struct pst_grant_secret *secret = &file->grants[i].secrets[j];

            for (uint32_t k = 0; k < count; k++) {
                if (!pst_bytes_equal(secret->secret, all[k]->secret))
                    continue;
                snprintf(fault, PST_FAULT_BYTES, "grants %s:%u: the secret of line %u", path_end(path),
                         secret->line, all[k]->line);
                return -EINVAL;
            }
            pst_assert(count < pst_count_of(all));
            all[count++] = secret;
        }
    }
    return 0;
}

int pst_grant_file_read(const char *path, struct pst_grant_file **out, char fault[PST_FAULT_BYTES])
{
    struct pst_grant_file *file = NULL;
    int r = read_grants(path, &file, fault);

    if (r < 0)
        return r;
    pst_assert(file->count > 0 && file->count <= PST_GRANTS_MAX);
    for (uint32_t i = 0; i < file->count; i++) {
        for (uint32_t j = 0; j < file->grants[i].secret_count && r == 0; j++) {
            if (file->grants[i].secrets[j].path)
                r = read_secret(path, &file->grants[i].secrets[j], fault);
        }
    }
    if (r == 0)
        r = check_distinct(file, path, fault);
    if (r < 0)
        pst_grant_file_free(file);
    else
        *out = file;
    return r;
}
