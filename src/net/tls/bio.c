/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bio.c: the socket as OpenSSL sees it. OpenSSL's own would raise SIGPIPE, and would ask the system for every
 * record. This one gathers records, which go to the socket together, and bounds what comes in before the
 * other side has proved anything.
 */
#include "net/tls/tls_priv.h"

#include <pthread.h>
#include <sys/socket.h>

enum {
    OUT_BYTES_MAX =
        TLS_OUT_BYTES + 3 * TLS_SEALED_BYTES_MAX, /* that, a record over it, and some of OpenSSL's */
};

static struct tls_channel *channel_of(BIO *bio)
{
    struct tls_channel *ch = BIO_get_data(bio);

    pst_assert(ch && ch->channel.magic == STREAM_CHANNEL_MAGIC);
    return ch;
}

/* Return: whether there is room for so many bytes more. */
static bool out_make_room(struct tls_channel *ch, size_t bytes)
{
    size_t wanted = pst_round_up(ch->out_bytes + bytes, TLS_SEALED_BYTES_MAX);
    uint8_t *larger;

    pst_assert(ch->out_done <= ch->out_bytes && ch->out_bytes <= ch->out_room);
    if (ch->out_room - ch->out_bytes >= bytes)
        return true;
    if (wanted > OUT_BYTES_MAX)
        return false;
    larger = realloc(ch->out, wanted);
    if (!larger)
        return false;
    ch->out = larger;
    ch->out_room = (uint32_t)wanted;
    return true;
}

static int bio_write(BIO *bio, const char *data, size_t bytes, size_t *written)
{
    struct tls_channel *ch = channel_of(bio);

    BIO_clear_retry_flags(bio);
    if (!out_make_room(ch, bytes)) {
        BIO_set_retry_write(bio);
        return 0;
    }
    memcpy(ch->out + ch->out_bytes, data, bytes);
    ch->out_bytes += (uint32_t)bytes;
    *written = bytes;
    return 1;
}

/* Whether what a client hears first begins as a TLS record does. A node may say in plain why it refuses: that
 * stays in the socket, for whoever understands it. */
static bool begins_as_tls(const struct tls_channel *ch)
{
    uint8_t first;

    return recv(ch->channel.fd, &first, 1, MSG_PEEK) != 1 || (first >= 0x14 && first <= 0x17);
}

static int bio_read(BIO *bio, char *data, size_t bytes, size_t *taken)
{
    struct tls_channel *ch = channel_of(bio);
    ssize_t n;

    BIO_clear_retry_flags(bio);
    ch->plain = ch->client && ch->handshake_bytes == 0 && !begins_as_tls(ch);
    if (ch->plain)
        return 0;
    if (!ch->started)
        bytes = pst_min(bytes, TLS_HANDSHAKE_BYTES_MAX - ch->handshake_bytes);
    if (bytes == 0 || ch->rekeys > TLS_REKEYS_MAX) /* more than any handshake, or anybody after it, needs */
        return 0;
    do
        n = recv(ch->channel.fd, data, bytes, 0);
    while (n < 0 && errno == EINTR);
    if (n < 0 && errno == EAGAIN)
        BIO_set_retry_read(bio);
    ch->ended |= n == 0;
    if (n <= 0)
        return 0;
    pst_assert((size_t)n <= bytes);
    if (!ch->started)
        ch->handshake_bytes += (uint32_t)n;
    *taken = (size_t)n;
    return 1;
}

static long bio_ctrl(BIO *bio, int what, long number, void *arg)
{
    (void)number;
    (void)arg;
    if (what == BIO_CTRL_EOF)
        return channel_of(bio)->ended;
    return what == BIO_CTRL_FLUSH; /* whoever calls OpenSSL flushes */
}

static BIO_METHOD *method;

static void method_make(void)
{
    method = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "penstock");
    if (method && (!BIO_meth_set_write_ex(method, bio_write) || !BIO_meth_set_read_ex(method, bio_read) ||
                   !BIO_meth_set_ctrl(method, bio_ctrl))) {
        BIO_meth_free(method);
        method = NULL;
    }
}

BIO *tls_bio_new(struct tls_channel *ch)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    BIO *bio;

    pst_assert(ch->channel.fd >= 0);
    pthread_once(&once, method_make);
    bio = method ? BIO_new(method) : NULL;
    if (bio) {
        BIO_set_data(bio, ch);
        BIO_set_init(bio, 1);
    }
    return bio;
}

int tls_out_flush(struct tls_channel *ch)
{
    pst_assert(ch->out_done <= ch->out_bytes);
    while (ch->out_done < ch->out_bytes) {
        ssize_t n = send(ch->channel.fd, ch->out + ch->out_done, ch->out_bytes - ch->out_done, MSG_NOSIGNAL);

        if (n >= 0)
            ch->out_done += (uint32_t)n;
        else if (errno != EINTR)
            return -errno;
    }
    ch->out_done = ch->out_bytes = 0;
    return 0;
}
