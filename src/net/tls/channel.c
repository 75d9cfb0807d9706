/* SPDX-License-Identifier: Apache-2.0 */
/*
 * channel.c: the channel. Pieces of a record's size and more are encrypted from where they lie; shorter ones
 * are gathered, so that a frame's head and its small body are one record. A writer is told of bytes once
 * their records have left for the socket, so whoever offers the rest again knows what is there.
 */
#include "net/tls/tls_priv.h"

#include <openssl/err.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <sys/epoll.h>

/* Ends the channel. Return: -errno. */
static int channel_fail(struct tls_channel *ch)
{
    ch->error = tls_fault_read(ch);
    (void)tls_out_flush(ch); /* the alert, as far as the socket takes it */
    pst_assert(ch->error < 0);
    pst_assert(ch->text[0]);
    return ch->error;
}

static int channel_start(struct stream_channel *channel, const char **fault)
{
    struct tls_channel *ch = tls_channel_cast(channel);
    int done, r;

    *fault = ch->text;
    if (ch->error < 0)
        return ch->error;
    ERR_clear_error();
    done = ch->started ? 1 : SSL_do_handshake(ch->ssl);
    if (done <= 0) {
        int what = SSL_get_error(ch->ssl, done);

        if (what != SSL_ERROR_WANT_READ && what != SSL_ERROR_WANT_WRITE)
            return channel_fail(ch);
    }
    r = tls_out_flush(ch);
    if (r < 0 && r != -EAGAIN) /* the other side ended it; why may be there to be read still */
        ch->out_done = ch->out_bytes = r = 0;
    ch->started |= done > 0;
    return done > 0 ? r : -EAGAIN;
}

/* Each change of keys costs more than it takes to ask for one, and brings nothing. */
static void count_rekeys(int written, int version, int type, const void *data, size_t bytes, SSL *ssl,
                         void *arg)
{
    struct tls_channel *ch = arg;

    (void)version;
    (void)data;
    (void)bytes;
    (void)ssl;
    pst_assert(ch->channel.magic == STREAM_CHANNEL_MAGIC);
    if (ch->started && !written && type == SSL3_RT_HANDSHAKE)
        ch->rekeys++;
}

/* Return: bytes, -EAGAIN, 0 at the end, -errno. */
static ssize_t read_record(struct tls_channel *ch, void *to, size_t bytes)
{
    size_t taken = 0;

    pst_assert(ch->started);
    pst_assert(bytes > 0);
    if (ch->error < 0)
        return ch->error;
    ERR_clear_error();
    errno = 0;
    if (SSL_read_ex(ch->ssl, to, bytes, &taken)) {
        ch->rekeys -= ch->rekeys > 0;
        return (ssize_t)taken;
    }
    switch (SSL_get_error(ch->ssl, 0)) {
    case SSL_ERROR_WANT_READ:
    case SSL_ERROR_WANT_WRITE:
        return -EAGAIN;
    case SSL_ERROR_ZERO_RETURN:
        return 0;
    default:
        return channel_fail(ch);
    }
}

static ssize_t channel_readv(struct stream_channel *channel, struct iovec *iov, int iov_count)
{
    struct tls_channel *ch = tls_channel_cast(channel);
    ssize_t total = 0, n = -EAGAIN;

    for (int i = 0; i < iov_count; i++) {
        size_t done = 0;

        while (done < iov[i].iov_len) {
            n = read_record(ch, (uint8_t *)iov[i].iov_base + done, iov[i].iov_len - done);
            if (n <= 0)
                break;
            done += (size_t)n;
        }
        total += (ssize_t)done;
        if (done < iov[i].iov_len)
            break;
    }
    ch->dry = n <= 0;
    (void)tls_out_flush(ch); /* answers to the other side's change of keys */
    return total > 0 ? total : n;
}

/* Where a writer has got to in its pieces. */
struct cursor {
    const struct iovec *iov;
    int left;
    size_t at;
};

/* Moves past what was used up. Return: bytes of the piece that are left; 0 at the end of all. */
static size_t cursor_piece(struct cursor *c)
{
    while (c->left > 0 && c->at == c->iov->iov_len) {
        c->iov++;
        c->left--;
        c->at = 0;
    }
    return c->left > 0 ? c->iov->iov_len - c->at : 0;
}

/* The next record: of one piece, or of several that are short. Return: its bytes. */
static size_t next_record(struct cursor *c, uint8_t gathered[TLS_RECORD_BYTES], const void **record)
{
    size_t bytes = 0, piece;

    while ((piece = cursor_piece(c)) > 0 && bytes < TLS_RECORD_BYTES) {
        const uint8_t *from = (const uint8_t *)c->iov->iov_base + c->at;

        if (piece >= TLS_RECORD_BYTES && bytes > 0)
            break;
        if (piece >= TLS_RECORD_BYTES) {
            *record = from;
            c->at += TLS_RECORD_BYTES;
            return TLS_RECORD_BYTES;
        }
        piece = pst_min(piece, TLS_RECORD_BYTES - bytes);
        memcpy(gathered + bytes, from, piece);
        bytes += piece;
        c->at += piece;
    }
    *record = gathered;
    return bytes;
}

/* Return: 0, -errno. There is room for the record. */
static int seal_record(struct tls_channel *ch, const void *record, size_t bytes)
{
    size_t written = 0;

    pst_assert(bytes > 0 && bytes <= TLS_RECORD_BYTES);
    if (++ch->records >= ch->records_a_key) { /* the other side follows, and changes its own in its time */
        ch->records = 0;
        (void)SSL_key_update(ch->ssl, SSL_KEY_UPDATE_NOT_REQUESTED);
    }
    ERR_clear_error();
    errno = ENOMEM;
    if (!SSL_write_ex(ch->ssl, record, bytes, &written))
        return channel_fail(ch);
    pst_assert(written == bytes);
    return 0;
}

static ssize_t channel_writev(struct stream_channel *channel, const struct iovec *iov, int iov_count)
{
    struct tls_channel *ch = tls_channel_cast(channel);
    struct cursor cursor = {iov, iov_count, 0};
    uint8_t gathered[TLS_RECORD_BYTES];
    size_t total = ch->sealed_bytes;
    int r = ch->error < 0 ? ch->error : tls_out_flush(ch);

    pst_assert(ch->started);
    while (r == 0 && ch->sealed_bytes == 0 && ch->out_bytes < TLS_OUT_BYTES) {
        const void *record;
        size_t bytes = next_record(&cursor, gathered, &record);

        if (bytes == 0)
            break;
        r = seal_record(ch, record, bytes);
        total += bytes;
    }
    if (r == 0)
        r = tls_out_flush(ch);
    ch->sealed_bytes = r == -EAGAIN ? total : 0;
    return r < 0 ? r : (ssize_t)total;
}

static bool channel_buffered(const struct stream_channel *channel)
{
    const struct tls_channel *ch = tls_channel_cast(channel);

    return ch->started && !ch->dry && ch->error == 0 && SSL_has_pending(ch->ssl);
}

static uint32_t channel_wants(const struct stream_channel *channel)
{
    const struct tls_channel *ch = tls_channel_cast(channel);

    return (ch->started ? 0 : EPOLLIN) | (ch->out_done < ch->out_bytes ? EPOLLOUT : 0);
}

static void channel_close(struct stream_channel *channel)
{
    struct tls_channel *ch = tls_channel_cast(channel);

    ERR_clear_error();
    if (ch->started && ch->error == 0 && SSL_shutdown(ch->ssl) >= 0)
        (void)tls_out_flush(
            ch); /* as far as the socket takes it: the other side then knows that this is all */
    SSL_free(ch->ssl);
    ERR_clear_error();
    tls_state_unref(ch->state);
    close(channel->fd);
    free(ch->out);
    channel->magic = 0;
    free(ch);
}

/* ---- opening ---- */

/* Return: false without memory. */
static bool expect_name(SSL *ssl, const char *host)
{
    X509_VERIFY_PARAM *param = SSL_get0_param(ssl);
    char name[256];

    if (!*host)
        host = "localhost";
    snprintf(name, sizeof(name), "%.*s", (int)strcspn(host, "%"), host); /* without a zone */
    X509_VERIFY_PARAM_set_hostflags(param, X509_CHECK_FLAG_NEVER_CHECK_SUBJECT |
                                               X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
    if (X509_VERIFY_PARAM_set1_ip_asc(param, name))
        return true;
    ERR_clear_error();
    return X509_VERIFY_PARAM_set1_host(param, name, 0) && SSL_set_tlsext_host_name(ssl, name);
}

static bool channel_take_role(struct tls_channel *ch, const char *host)
{
    const struct tls_state *state = ch->state;

    pst_assert(ch->ssl);
    if (!ch->client) {
        SSL_set_accept_state(ch->ssl);
        SSL_set_verify(ch->ssl,
                       (state->asks ? SSL_VERIFY_PEER : SSL_VERIFY_NONE) |
                           (state->insists ? SSL_VERIFY_FAIL_IF_NO_PEER_CERT : 0),
                       NULL);
        return true;
    }
    SSL_set_connect_state(ch->ssl);
    SSL_set_verify(ch->ssl, SSL_VERIFY_PEER, NULL);
    return state->by_secret || expect_name(ch->ssl, state->name[0] ? state->name : host);
}

int pst_tls_channel(struct pst_tls *tls, int fd, const char *host, struct stream_channel **out)
{
    static const struct stream_channel_ops ops = {
        .name = "TLS",
        .start = channel_start,
        .readv = channel_readv,
        .writev = channel_writev,
        .buffered = channel_buffered,
        .wants = channel_wants,
        .close = channel_close,
    };
    struct tls_channel *ch = calloc(1, sizeof(*ch));
    BIO *bio;

    pst_assert(fd >= 0);
    pst_assert(out);
    if (!ch)
        return -ENOMEM;
    ch->channel = (struct stream_channel){.magic = STREAM_CHANNEL_MAGIC, .fd = fd, .ops = &ops};
    ch->client = host != NULL;
    ch->records_a_key = TLS_RECORDS_A_KEY;
    ch->state = tls_state_ref(tls);
    ch->ssl = SSL_new(ch->state->ctx);
    bio = ch->ssl ? tls_bio_new(ch) : NULL;
    if (bio)
        SSL_set_bio(ch->ssl, bio, bio);
    if (!bio || !SSL_set_app_data(ch->ssl, ch) || !channel_take_role(ch, host)) {
        SSL_free(ch->ssl);
        tls_state_unref(ch->state);
        ERR_clear_error();
        free(ch);
        return -ENOMEM;
    }
    SSL_set_msg_callback(ch->ssl, count_rekeys);
    SSL_set_msg_callback_arg(ch->ssl, ch);
    *out = &ch->channel;
    return 0;
}

/* ---- what a channel says of itself ---- */

enum pst_tls_fault pst_tls_channel_fault(const struct stream_channel *channel, const char **text)
{
    const struct tls_channel *ch = tls_channel_cast(channel);

    *text = ch->text;
    return ch->fault;
}

int pst_tls_channel_binding(const struct stream_channel *channel, uint8_t out[PST_TLS_BINDING_BYTES])
{
    static const char label[] = "EXPORTER-Channel-Binding";
    const struct tls_channel *ch = tls_channel_cast(channel);

    pst_assert(ch->started);
    return SSL_export_keying_material(ch->ssl, out, PST_TLS_BINDING_BYTES, label, sizeof(label) - 1, NULL, 0,
                                      0) == 1
               ? 0
               : -ENOMEM;
}
