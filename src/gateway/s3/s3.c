/* SPDX-License-Identifier: Apache-2.0 */
/* s3.c: the gateway's life: its address, its store, and a thread for each client. */
#include "gateway/s3/s3_priv.h"

#include "net/handshake.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/socket.h>

enum {
    STORE_TIMEOUT_MS = 5000,
    OPEN_AGAIN_MS = 1000,   /* a pool that was not there */
    STORE_DESCRIPTORS = 40, /* of the gateway's store */
    OTHER_DESCRIPTORS = 8,
};

/* ---- descriptors ---- */

/*
 * The transport does not survive that descriptors run out, so the node works out how many clients it may have
 * by what is left when it starts. What the gateway may need later is therefore held until then.
 */
static int s3_hold(struct pst_s3 *s3)
{
    /* A connection that is told to make room may still be there beside its successor. */
    uint32_t count = 2 * (uint32_t)s3->settings->s3_connections + STORE_DESCRIPTORS + OTHER_DESCRIPTORS;

    pst_assert(!s3->held);
    pst_assert(s3->listen_fd >= 0);
    s3->held = calloc(count, sizeof(*s3->held));
    if (!s3->held)
        return -ENOMEM;
    while (s3->held_count < count) {
        int fd = fcntl(s3->listen_fd, F_DUPFD_CLOEXEC, 0);

        if (fd < 0)
            return -errno;
        s3->held[s3->held_count++] = fd;
    }
    return 0;
}

static void s3_let_go(struct pst_s3 *s3)
{
    while (s3->held_count)
        close(s3->held[--s3->held_count]);
    pst_assert(s3->held_count == 0);
}

/* ---- opening ---- */

static int s3_fail(int error, const struct pst_s3_settings *settings, char *fault, const char *why)
{
    pst_assert(error < 0);
    snprintf(fault, PST_FAULT_BYTES, "s3 %.120s: %.100s", settings->s3, why);
    return error;
}

static int s3_parse(const struct pst_s3_settings *settings, struct pst_boot_address *address, char *fault)
{
    const char *why = "";
    int r = pst_boot_address_parse(settings->s3, address, &why);

    if (r == 0 && address->path[0])
        r = -EINVAL, why = "server address must be host:port";
    if (r < 0)
        return s3_fail(r, settings, fault, why);
    if (!settings->s3_credentials && !pst_boot_address_loopback(address))
        return s3_fail(-EACCES, settings, fault, "off loopback it needs s3_credentials");
    pst_assert(!settings->certificate == !settings->private_key);
    return 0;
}

static int s3_bind(struct pst_s3 *s3, struct pst_boot_address *address)
{
    pst_assert(s3->listen_fd < 0);
    s3->listen_fd = pst_boot_listen_tcp(address);
    if (s3->listen_fd < 0)
        return s3->listen_fd;
    pst_boot_address_print(address, s3->address, sizeof(s3->address));
    return s3_hold(s3);
}

int pst_s3_open(const struct pst_s3_settings *settings, struct pst_s3 **out, char fault[PST_FAULT_BYTES])
{
    struct pst_boot_address address;
    struct pst_s3 *s3;
    const char *why = "";
    int r = s3_parse(settings, &address, fault);

    if (r < 0)
        return r;
    s3 = calloc(1, sizeof(*s3));
    if (!s3)
        return s3_fail(-ENOMEM, settings, fault, "out of memory");
    s3->magic = S3_MAGIC;
    s3->settings = settings;
    s3->listen_fd = -1;
    pthread_mutex_init(&s3->opening, NULL);
    r = s3_credentials_read(s3, fault);
    if (r == 0 && settings->certificate) {
        r = s3_tls_open(settings->certificate, settings->private_key, &s3->tls, &why);
        if (r < 0)
            s3_fail(r, settings, fault, why);
    }
    if (r == 0) {
        r = s3_bind(s3, &address);
        if (r < 0)
            s3_fail(r, settings, fault, strerror(-r));
    }
    if (r < 0)
        pst_s3_close(s3);
    else
        *out = s3;
    return r;
}

const char *pst_s3_address(const struct pst_s3 *s3)
{
    pst_assert(s3->magic == S3_MAGIC);
    return s3->address;
}

/* ---- serving ---- */

static struct pst_s3 *s3_cast(void *arg)
{
    struct pst_s3 *s3 = arg;

    pst_assert(s3 && s3->magic == S3_MAGIC);
    return s3;
}

static void s3_connection(void *ctx, int fd, uint32_t listener)
{
    pst_assert(listener == 0);
    s3_session_serve(s3_cast(ctx), fd);
}

static void s3_refuse(void *ctx, int fd, uint32_t listener)
{
    static const char busy[] =
        "HTTP/1.1 503 Error\r\nContent-Type: application/xml\r\nContent-Length: 76\r\n"
        "Retry-After: 1\r\nConnection: close\r\n\r\n"
        "<Error><Code>SlowDown</Code><Message>too many connections</Message></Error>\n";

    pst_assert(listener == 0);
    if (!s3_cast(ctx)->tls)
        (void)!send(fd, busy, sizeof(busy) - 1, MSG_DONTWAIT | MSG_NOSIGNAL);
}

int s3_open_store(struct pst_s3 *s3)
{
    int r = 0;

    pst_assert(s3->magic == S3_MAGIC);
    pst_assert(s3->url);
    pthread_mutex_lock(&s3->opening);
    if (!s3->store && pst_now_ms() < s3->open_again_ms) {
        r = -EAGAIN; /* also for those that waited while another one tried */
    } else if (!s3->store) {
        r = penstock_open(s3->url, &s3->options, &s3->store);
        s3->open_again_ms = pst_now_ms() + OPEN_AGAIN_MS;
    }
    pthread_mutex_unlock(&s3->opening);
    return r;
}

int pst_s3_serve(struct pst_s3 *s3, const char *url, const struct penstock_options *options,
                 char fault[PST_FAULT_BYTES])
{
    static const struct pst_acceptor_ops ops = {.serve = s3_connection, .refuse = s3_refuse};
    const struct pst_acceptor_listener listener = {
        .fd = s3->listen_fd, .connections_max = (uint32_t)s3->settings->s3_connections, .greets = true};
    int r;

    pst_assert(s3->magic == S3_MAGIC);
    pst_assert(!s3->store);
    pst_assert(!s3->url);
    pst_assert(!s3->acceptor);
    pst_assert(s3->listen_fd >= 0);
    s3_let_go(s3);
    s3->url = strdup(url);
    s3->options = *options;
    s3->options.timeout_ms = STORE_TIMEOUT_MS;
    s3->secret = malloc(options->secret_bytes + 1);
    if (!s3->url || !s3->secret)
        return s3_fail(-ENOMEM, s3->settings, fault, "out of memory");
    if (options->secret_bytes)
        memcpy(s3->secret, options->secret, options->secret_bytes);
    s3->options.secret = options->secret_bytes ? s3->secret : NULL;
    r = s3_open_store(s3);
    if (r == -EINVAL || (r < 0 && strncmp(url, "pool://", 7) != 0)) /* the pool may be there later */
        return s3_fail(r, s3->settings, fault, penstock_error());
    r = pst_acceptor_open(&listener, 1, &ops, s3, &s3->acceptor);
    return r < 0 ? s3_fail(r, s3->settings, fault, strerror(-r)) : 0;
}

struct pst_s3 *pst_s3_close(struct pst_s3 *s3)
{
    if (!s3)
        return NULL;
    pst_assert(s3->magic == S3_MAGIC);
    s3->acceptor = pst_acceptor_close(s3->acceptor);
    penstock_close(s3->store);
    pthread_mutex_destroy(&s3->opening);
    free(s3->url);
    if (s3->secret)
        explicit_bzero(s3->secret, s3->options.secret_bytes);
    free(s3->secret);
    s3_let_go(s3);
    free(s3->held);
    pst_close_fd(&s3->listen_fd);
    s3_tls_close(s3->tls);
    if (s3->credentials)
        explicit_bzero(s3->credentials, S3_CREDENTIALS_MAX * sizeof(*s3->credentials));
    free(s3->credentials);
    s3->magic = 0;
    free(s3);
    return NULL;
}
