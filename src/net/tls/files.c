/* SPDX-License-Identifier: Apache-2.0 */
/*
 * files.c: certificates and keys from PEM files into a context. What was opened is asked whose it is before
 * it is read: whoever could change a certificate authority could be any node.
 */
#include "net/tls/tls_priv.h"

#include "base/own.h"

#include <fcntl.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <stdio.h>

enum { FILE_BYTES_MAX = 4 << 20 }; /* all authorities of a system have a twentieth of that */

static int file_refuse(int error, const char *what, const char *path, const char *why, char *fault)
{
    pst_assert(error < 0);
    snprintf(fault, PST_FAULT_BYTES, "%s %.120s: %.90s", what, path, why);
    return error;
}

static const char *openssl_reason(void)
{
    const char *text = ERR_reason_error_string(ERR_peek_last_error());

    ERR_clear_error();
    return text ? text : "not understood";
}

/* An encrypted key is refused: nobody is there to be asked for its passphrase. */
static int no_passphrase(char *buf, int bytes, int writes, void *arg)
{
    (void)buf;
    (void)bytes;
    (void)writes;
    *(bool *)arg = true;
    return -1;
}

/* Return: what the open file holds, as BIO_free() takes it; NULL with errno. */
static BIO *file_contents(int fd)
{
    BIO *memory = BIO_new(BIO_s_secmem());
    char buf[4096];
    size_t total = 0;
    ssize_t n = 0;

    while (memory && total <= FILE_BYTES_MAX && (n = read(fd, buf, sizeof(buf))) > 0) {
        total += (size_t)n;
        if (BIO_write(memory, buf, (int)n) != (int)n)
            n = -1;
    }
    explicit_bzero(buf, sizeof(buf));
    if (memory && n == 0)
        return memory;
    errno = !memory ? ENOMEM : n < 0 ? errno : EFBIG;
    BIO_free(memory);
    return NULL;
}

/* @forbidden: to others, as own.h has it. */
static int file_open(const char *what, const char *path, mode_t forbidden, BIO **out, char *fault)
{
    bool private = forbidden == PST_OWN_USES;
    pst_cleanup_close int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | (private ? O_NOFOLLOW : 0));

    if (fd < 0)
        return file_refuse(-errno, what, path, errno == ELOOP ? "a symbolic link" : strerror(errno), fault);
    if (pst_own_check(fd, S_IFREG, forbidden) < 0)
        return file_refuse(-EACCES, what, path, pst_error_text(), fault);
    *out = file_contents(fd);
    return *out ? 0 : file_refuse(-errno, what, path, strerror(errno), fault);
}

/* The first certificate is this side's, the others lead to its authority. */
int tls_files_certificate(SSL_CTX *ctx, const char *path, char *fault)
{
    BIO *file = NULL;
    X509 *own, *next;
    int r = file_open("certificate", path, PST_OWN_WRITES, &file, fault);
    bool good;

    if (r < 0)
        return r;
    own = PEM_read_bio_X509_AUX(file, NULL, NULL, NULL);
    good = own && SSL_CTX_use_certificate(ctx, own);
    while (good && (next = PEM_read_bio_X509(file, NULL, NULL, NULL)) != NULL)
        if (!SSL_CTX_add0_chain_cert(ctx, next)) {
            X509_free(next);
            good = false;
        }
    if (good && ERR_GET_REASON(ERR_peek_last_error()) == PEM_R_NO_START_LINE)
        ERR_clear_error(); /* the file's end */
    good = good && ERR_peek_error() == 0;
    X509_free(own);
    BIO_free(file);
    return good ? 0 : file_refuse(-EINVAL, "certificate", path, openssl_reason(), fault);
}

int tls_files_key(SSL_CTX *ctx, const char *path, char *fault)
{
    bool encrypted = false;
    BIO *file = NULL;
    EVP_PKEY *key;
    int r = file_open("key", path, PST_OWN_USES, &file, fault);

    if (r < 0)
        return r;
    key = PEM_read_bio_PrivateKey(file, NULL, no_passphrase, &encrypted);
    BIO_free(file);
    if (!key)
        r = file_refuse(-EINVAL, "key", path, encrypted ? "it is encrypted" : openssl_reason(), fault);
    else if (!SSL_CTX_use_PrivateKey(ctx, key) || !SSL_CTX_check_private_key(ctx))
        r = file_refuse(-EINVAL, "key", path, "it does not belong to the certificate", fault);
    ERR_clear_error();
    EVP_PKEY_free(key);
    return r;
}

/* OpenSSL looks names up in such a folder as it needs them. */
static int authorities_of_folder(SSL_CTX *ctx, const char *path, int fd, char *fault)
{
    if (pst_own_check(fd, S_IFDIR, PST_OWN_WRITES) < 0)
        return file_refuse(-EACCES, "certificate authorities", path, pst_error_text(), fault);
    return SSL_CTX_load_verify_dir(ctx, path)
               ? 0
               : file_refuse(-EINVAL, "certificate authorities", path, openssl_reason(), fault);
}

int tls_files_authorities(SSL_CTX *ctx, const char *path, char *fault)
{
    pst_cleanup_close int folder = open(path, O_DIRECTORY | O_RDONLY | O_CLOEXEC);
    BIO *file = NULL;
    X509 *authority = NULL;
    uint32_t count = 0;
    bool good = true;
    int r;

    if (folder >= 0)
        return authorities_of_folder(ctx, path, folder, fault);
    r = file_open("certificate authorities", path, PST_OWN_WRITES, &file, fault);
    if (r < 0)
        return r;
    while (good && (authority = PEM_read_bio_X509(file, NULL, NULL, NULL)) != NULL) {
        good = X509_STORE_add_cert(SSL_CTX_get_cert_store(ctx), authority);
        X509_free(authority);
        count++;
    }
    BIO_free(file);
    if (!good || count == 0 || ERR_GET_REASON(ERR_peek_last_error()) != PEM_R_NO_START_LINE)
        return file_refuse(-EINVAL, "certificate authorities", path, openssl_reason(), fault);
    ERR_clear_error();
    return 0;
}
