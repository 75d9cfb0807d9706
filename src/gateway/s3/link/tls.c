/* SPDX-License-Identifier: Apache-2.0 */
/* tls.c: OpenSSL on a socket that does not block. */
#include "gateway/s3/link/link_priv.h"

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <poll.h>

int s3_tls_open(const char *certificate, const char *private_key, void **out, const char **fault)
{
    SSL_CTX *context = SSL_CTX_new(TLS_server_method());

    *fault = "out of memory";
    if (!context)
        return -ENOMEM;
    SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION);
    SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    SSL_CTX_set_options(context, SSL_OP_NO_RENEGOTIATION | SSL_OP_IGNORE_UNEXPECTED_EOF);
    ERR_clear_error();
    if (SSL_CTX_use_certificate_chain_file(context, certificate) != 1 ||
        SSL_CTX_use_PrivateKey_file(context, private_key, SSL_FILETYPE_PEM) != 1 ||
        SSL_CTX_check_private_key(context) != 1) {
        *fault = ERR_reason_error_string(ERR_peek_error());
        if (!*fault)
            *fault = "no certificate with its key";
        SSL_CTX_free(context);
        return -EINVAL;
    }
    *out = context;
    return 0;
}

void s3_tls_close(void *context)
{
    SSL_CTX_free(context);
}

void *s3_tls_accept(void *context, int fd)
{
    SSL *tls = SSL_new(context);

    pst_assert(fd >= 0);
    if (tls && SSL_set_fd(tls, fd) == 1) {
        SSL_set_accept_state(tls);
        return tls;
    }
    SSL_free(tls);
    return NULL;
}

void s3_tls_end(void *tls)
{
    SSL_free(tls);
}

/* @r: what the call returned. Return: its bytes, 0 the end, -EAGAIN, -EPROTO. */
static ssize_t tls_result(SSL *tls, int r, short *events)
{
    if (r > 0)
        return r;
    switch (SSL_get_error(tls, r)) {
    case SSL_ERROR_WANT_READ:
        *events = POLLIN;
        return -EAGAIN;
    case SSL_ERROR_WANT_WRITE:
        *events = POLLOUT;
        return -EAGAIN;
    case SSL_ERROR_ZERO_RETURN:
        return 0;
    default:
        return -EPROTO;
    }
}

int s3_tls_start(void *tls, short *events)
{
    ssize_t r;

    ERR_clear_error();
    r = tls_result(tls, SSL_do_handshake(tls), events);
    return r > 0 ? 0 : r == 0 ? -EPROTO : (int)r;
}

ssize_t s3_tls_read(void *tls, void *buf, size_t bytes, short *events)
{
    pst_assert(bytes > 0);
    ERR_clear_error();
    return tls_result(tls, SSL_read(tls, buf, (int)pst_min(bytes, INT32_MAX)), events);
}

ssize_t s3_tls_write(void *tls, const void *data, size_t bytes, short *events)
{
    pst_assert(bytes > 0);
    ERR_clear_error();
    return tls_result(tls, SSL_write(tls, data, (int)pst_min(bytes, INT32_MAX)), events);
}
