/* SPDX-License-Identifier: Apache-2.0 */
/* The same port within TLS: requests, WebSockets, the tunnel, and clients that do not speak it. */
#include "lib/web_rig.h"

#include "base/hash.h"

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <poll.h>
#include <sys/socket.h>

#define GET "GET /x HTTP/1.1\r\nHost: h\r\n\r\n"

static char folder[] = "/tmp/pst_web_tls_XXXXXX", certificate[64], private_key[64];
static char buf[PST_WEB_BODY_BYTES_MAX + 4096];

static int make_certificate(void **state)
{
    EVP_PKEY *key = EVP_EC_gen("P-256");
    X509 *cert = X509_new();
    FILE *file;

    (void)state;
    assert_non_null(mkdtemp(folder));
    snprintf(certificate, sizeof(certificate), "%s/cert.pem", folder);
    snprintf(private_key, sizeof(private_key), "%s/key.pem", folder);
    X509_set_version(cert, 2);
    ASN1_INTEGER_set(X509_get_serialNumber(cert), 1);
    X509_gmtime_adj(X509_getm_notBefore(cert), -3600);
    X509_gmtime_adj(X509_getm_notAfter(cert), 86400);
    X509_set_pubkey(cert, key);
    X509_NAME_add_entry_by_txt(X509_get_subject_name(cert), "CN", MBSTRING_ASC, (const uint8_t *)"localhost",
                               -1, -1, 0);
    X509_set_issuer_name(cert, X509_get_subject_name(cert));
    assert_true(X509_sign(cert, key, EVP_sha256()) > 0);
    file = fopen(certificate, "w");
    assert_int_equal(PEM_write_X509(file, cert), 1);
    fclose(file);
    file = fopen(private_key, "w");
    assert_int_equal(PEM_write_PrivateKey(file, key, NULL, NULL, 0, NULL, NULL), 1);
    fclose(file);
    X509_free(cert);
    EVP_PKEY_free(key);
    return 0;
}

static int remove_certificate(void **state)
{
    (void)state;
    unlink(certificate);
    unlink(private_key);
    rmdir(folder);
    return 0;
}

/* A TLS client, and a thread that joins it to a plain socket, with which the rig's calls go. */
struct secret {
    SSL_CTX *ctx;
    SSL *ssl;
    int fd, inside, plain;
    pthread_t thread;
};

static bool copy_out(struct secret *s)
{
    char piece[16384];
    ssize_t n = recv(s->inside, piece, sizeof(piece), 0);

    return n > 0 && SSL_write(s->ssl, piece, (int)n) == n;
}

static bool copy_in(struct secret *s)
{
    char piece[16384];

    do {
        int n = SSL_read(s->ssl, piece, sizeof(piece));

        if (n <= 0)
            return SSL_get_error(s->ssl, n) == SSL_ERROR_WANT_READ;
        web_send(s->inside, piece, (size_t)n);
    } while (SSL_pending(s->ssl) > 0);
    return true;
}

static void *secret_main(void *arg)
{
    struct secret *s = arg;
    struct pollfd p[2] = {{.fd = s->inside, .events = POLLIN}, {.fd = s->fd, .events = POLLIN}};
    bool more = true;

    while (more && poll(p, 2, 30000) > 0) {
        if (p[1].revents)
            more = copy_in(s);
        if (more && p[0].revents)
            more = copy_out(s);
    }
    shutdown(s->inside, SHUT_RDWR);
    return NULL;
}

static void secret_open(struct web_rig *rig, struct secret *s)
{
    int sides[2];

    s->fd = web_connect(rig);
    s->ctx = SSL_CTX_new(TLS_client_method());
    SSL_CTX_clear_mode(s->ctx, SSL_MODE_AUTO_RETRY); /* a session's ticket is no data to wait for */
    s->ssl = SSL_new(s->ctx);
    SSL_set_fd(s->ssl, s->fd);
    assert_int_equal(SSL_connect(s->ssl), 1);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, sides), 0);
    s->inside = sides[0];
    s->plain = sides[1];
    assert_int_equal(pthread_create(&s->thread, NULL, secret_main, s), 0);
}

static void secret_close(struct secret *s)
{
    close(s->plain);
    pthread_join(s->thread, NULL);
    close(s->inside);
    SSL_free(s->ssl);
    SSL_CTX_free(s->ctx);
    close(s->fd);
}

static void open_rig(struct web_rig *rig)
{
    rig->settings.certificate = certificate;
    rig->settings.private_key = private_key;
    web_rig_open(rig);
}

static void requests_go_within_tls(void **state)
{
    struct web_rig rig = {.hold = false};
    char *body = malloc(PST_WEB_BODY_BYTES_MAX);
    struct secret s;

    (void)state;
    open_rig(&rig);
    secret_open(&rig, &s);
    for (int i = 0; i < 20; i++) {
        web_say(s.plain, "GET /a%2fb HTTP/1.1\r\nHost: h\r\n\r\n");
        assert_int_equal(web_read_answer(s.plain, buf, sizeof(buf)), 200);
        assert_non_null(strstr(buf, "GET|/a%2fb|||127.0.0.1|"));
    }
    memset(body, 'b', PST_WEB_BODY_BYTES_MAX);
    snprintf(buf, sizeof(buf), "PUT /x HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n",
             PST_WEB_BODY_BYTES_MAX);
    web_say(s.plain, buf);
    web_send(s.plain, body, PST_WEB_BODY_BYTES_MAX);
    assert_int_equal(web_read_answer(s.plain, buf, sizeof(buf)), 200);
    assert_memory_equal(strchr(strstr(buf, "\r\n\r\n"), 'b'), body, PST_WEB_BODY_BYTES_MAX);
    assert_int_equal(pst_web_connections(rig.web), 1);
    web_say(s.plain, "GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
    assert_int_equal(web_read_answer(s.plain, buf, sizeof(buf)), 200);
    assert_true(web_ends(s.plain));
    secret_close(&s);
    web_wait_empty(&rig);
    web_rig_close(&rig);
    free(body);
}

static void sockets_go_within_tls(void **state)
{
    struct web_rig rig = {.hold = false};
    struct secret s;
    size_t bytes;

    (void)state;
    open_rig(&rig);
    secret_open(&rig, &s);
    assert_int_equal(web_upgrade_on(s.plain, "/ws/x", ""), 101);
    for (size_t length = 0; length < 200000; length = length * 3 + 1) {
        memset(buf, 'y', length);
        web_frame(s.plain, FRAME_FINAL | FRAME_TEXT, buf, length);
        assert_int_equal(web_frame_read(s.plain, buf, sizeof(buf), &bytes), FRAME_FINAL | FRAME_TEXT);
        assert_int_equal(bytes, length);
    }
    web_frame(s.plain, FRAME_FINAL | FRAME_TEXT, "bye", 3);
    assert_int_equal(web_frame_read(s.plain, buf, sizeof(buf), &bytes), FRAME_FINAL | FRAME_TEXT);
    assert_int_equal(web_frame_read(s.plain, buf, sizeof(buf), &bytes), FRAME_FINAL | FRAME_CLOSE);
    web_frame(s.plain, FRAME_FINAL | FRAME_CLOSE, "\x03\xe8", 2);
    assert_true(web_ends(s.plain));
    secret_close(&s);
    web_wait_empty(&rig);
    web_rig_close(&rig);
}

static void the_tunnel_goes_within_tls(void **state)
{
    enum { BYTES = 3 << 20, PIECE = 60000 };
    static uint8_t sent[BYTES], got[BYTES];
    struct web_rig rig = {.hold = false};
    char to[32];
    struct secret s;
    uint16_t port;
    int listener = web_listen(&port), daemon;
    size_t bytes;

    (void)state;
    snprintf(to, sizeof(to), "127.0.0.1:%u", port);
    rig.settings.tunnels[0] = (struct pst_web_tunnel){"/rsync/", to};
    open_rig(&rig);
    secret_open(&rig, &s);
    assert_int_equal(web_upgrade_on(s.plain, "/rsync/default/", ""), 101);
    daemon = accept(listener, NULL, NULL);
    pst_random(sent, sizeof(sent));
    for (size_t at = 0; at < BYTES; at += PIECE) {
        size_t piece = pst_min(PIECE, BYTES - at);

        web_frame(s.plain, FRAME_FINAL | FRAME_BINARY, sent + at, piece);
        assert_int_equal(recv(daemon, got + at, piece, MSG_WAITALL), piece);
        web_send(daemon, got + at, piece);
        for (size_t back = 0; back < piece; back += bytes)
            assert_int_equal(web_frame_read(s.plain, buf, sizeof(buf), &bytes), FRAME_FINAL | FRAME_BINARY);
    }
    assert_memory_equal(sent, got, BYTES);
    close(daemon);
    assert_int_equal(web_frame_read(s.plain, buf, sizeof(buf), &bytes), FRAME_FINAL | FRAME_CLOSE);
    secret_close(&s);
    /* An rsync client on loopback may come without TLS. */
    s.fd = web_connect(&rig);
    web_say(s.fd, "@RSYNCD: 31.0\n");
    daemon = accept(listener, NULL, NULL);
    assert_int_equal(recv(daemon, got, 14, MSG_WAITALL), 14);
    close(s.fd);
    assert_true(web_ends(daemon));
    close(daemon);
    close(listener);
    web_wait_empty(&rig);
    web_rig_close(&rig);
}

static void others_end(void **state)
{
    static const char hello[] = "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03";
    struct web_rig rig = {.hold = false};
    struct secret s;
    int fd;

    (void)state;
    open_rig(&rig);
    fd = web_connect(&rig);
    web_say(fd, "GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    assert_int_equal(web_read_answer(fd, buf, sizeof(buf)), 400);
    close(fd);
    fd = web_connect(&rig); /* a hello that does not go on */
    web_send(fd, hello, sizeof(hello) - 1);
    assert_true(web_ends(fd));
    close(fd);
    for (int i = 0; i < 100; i++) {
        fd = web_connect(&rig);
        pst_random(buf, 256);
        memcpy(buf, hello, (size_t)i % sizeof(hello));
        buf[0] = 0x16;
        web_send(fd, buf, 256);
        shutdown(fd, SHUT_WR); /* else the server waits for the rest of a record */
        if (i % 2)
            assert_true(web_ends(fd));
        close(fd);
    }
    secret_open(&rig, &s); /* a handshake, and then nothing */
    assert_true(web_ends(s.plain));
    secret_close(&s);
    secret_open(&rig, &s); /* one that takes no answer */
    web_say(s.plain, "GET /big HTTP/1.1\r\nHost: h\r\n\r\n");
    web_wait_empty(&rig);
    secret_close(&s);
    assert_int_equal(rig.answers, 1);
    web_rig_close(&rig);
}

static void open_ones_end_with_the_server(void **state)
{
    struct web_rig rig = {.settings = {.stall_ms = 60000}};
    struct secret s[3];

    (void)state;
    open_rig(&rig);
    for (int i = 0; i < 3; i++)
        secret_open(&rig, &s[i]);
    assert_int_equal(web_upgrade_on(s[0].plain, "/ws/x", ""), 101);
    web_say(s[1].plain, "GET /");
    web_rig_close(&rig);
    for (int i = 0; i < 3; i++)
        secret_close(&s[i]);
}

/* Asks over a connection of its own, which must have a seat. */
static void another_is_served(struct web_rig *rig, struct secret *s)
{
    secret_open(rig, s);
    web_say(s->plain, GET);
    assert_int_equal(web_read_answer(s->plain, buf, sizeof(buf)), 200);
}

/* As without TLS: in its handshake, and when it asks for nothing, a client gives its seat to one that comes.
 */
static void who_says_nothing_makes_room(void **state)
{
    enum { MAX = 8 };
    struct web_rig rig = {.settings = {.connections_max = MAX, .stall_ms = 60000}};
    struct secret known, idle[MAX], s;
    int silent[4 * MAX];

    (void)state;
    open_rig(&rig);
    another_is_served(&rig, &known);
    for (size_t i = 0; i < pst_count_of(silent); i++) {
        silent[i] = web_connect(&rig);
        web_say(silent[i], "\x16");
        another_is_served(&rig, &s);
        assert_true(pst_web_connections(rig.web) <= MAX);
        secret_close(&s);
    }
    assert_true(web_ends(silent[0]));
    web_say(known.plain, GET);
    assert_int_equal(web_read_answer(known.plain, buf, sizeof(buf)), 200);
    for (size_t i = 0; i < pst_count_of(silent); i++)
        close(silent[i]);
    for (size_t i = 0; i < MAX; i++)
        another_is_served(&rig, &idle[i]);
    assert_true(web_ends(known.plain)); /* the oldest of them */
    for (size_t i = 0; i < MAX; i++)
        secret_close(&idle[i]);
    secret_close(&known);
    web_wait_empty(&rig);
    web_rig_close(&rig);
}

/* Requests underway are nobody's to end, and their clients' seats stay theirs. */
static void who_is_answered_keeps_the_seat(void **state)
{
    enum { MAX = 4 };
    struct web_rig rig = {.settings = {.connections_max = MAX, .stall_ms = 60000}, .hold = true};
    struct secret held[MAX];

    (void)state;
    open_rig(&rig);
    for (size_t i = 0; i < MAX; i++) {
        secret_open(&rig, &held[i]);
        web_say(held[i].plain, "GET /hold HTTP/1.1\r\nHost: h\r\n\r\n");
    }
    web_wait_count(&rig.held, MAX);
    for (int i = 0; i < 10; i++) {
        int fd = web_connect(&rig);

        assert_int_equal(web_read_answer(fd, buf, sizeof(buf)), 503);
        close(fd);
    }
    rig.hold = false;
    for (size_t i = 0; i < MAX; i++) {
        assert_int_equal(web_read_answer(held[i].plain, buf, sizeof(buf)), 200);
        secret_close(&held[i]);
    }
    web_wait_empty(&rig);
    web_rig_close(&rig);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(requests_go_within_tls),         cmocka_unit_test(sockets_go_within_tls),
        cmocka_unit_test(the_tunnel_goes_within_tls),     cmocka_unit_test(others_end),
        cmocka_unit_test(open_ones_end_with_the_server),  cmocka_unit_test(who_says_nothing_makes_room),
        cmocka_unit_test(who_is_answered_keeps_the_seat),
    };

    return cmocka_run_group_tests(tests, make_certificate, remove_certificate);
}
