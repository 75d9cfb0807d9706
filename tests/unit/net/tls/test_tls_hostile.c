/* SPDX-License-Identifier: Apache-2.0 */
/* TLS with who speaks something else, speaks it slowly, says the same once more, or changes what others say.
 */
#include "lib/tls_rig.h"

#include "base/hash.h"

#include <openssl/err.h>
#include <stdio.h>
#include <sys/socket.h>

static const struct tls_side by_secret = {.secret = "a secret"};
static const struct tls_side node = {.certificate = "node", .ca = "ca"};
static const struct tls_side client = {.certificate = "client", .ca = "ca"};

/* Between the two sockets of each side: passes on what comes, and notes it. */
struct relay {
    int fds[2];     /* towards the client, towards the node */
    size_t a_turn;  /* bytes that it passes on at once */
    size_t changed; /* number of the byte that it changes, of those of both sides; SIZE_MAX: none */
    size_t passed, total[2];
    uint8_t log[2][256 << 10]; /* what each side said */
};

static void relay_pass(void *ctx)
{
    struct relay *relay = ctx;
    uint8_t buf[4096];

    for (int side = 0; side < 2; side++) {
        ssize_t n = recv(relay->fds[side], buf, pst_min(relay->a_turn, sizeof(buf)), 0);

        if (n <= 0)
            continue;
        if (relay->changed >= relay->passed && relay->changed < relay->passed + (size_t)n)
            buf[relay->changed - relay->passed] ^= 0x40;
        assert_true(relay->total[side] + (size_t)n <= sizeof(relay->log[side]));
        memcpy(relay->log[side] + relay->total[side], buf, (size_t)n);
        relay->total[side] += (size_t)n;
        relay->passed += (size_t)n;
        assert_int_equal(send(relay->fds[!side], buf, (size_t)n, MSG_NOSIGNAL), n);
    }
}

/* Both sides meet through the relay. */
static void meet_through(struct tls_pair *pair, struct relay *relay, const struct tls_side *one,
                         const struct tls_side *other)
{
    int left[2], right[2];

    tls_sockets(left);
    tls_sockets(right);
    relay->fds[0] = left[1];
    relay->fds[1] = right[1];
    tls_pair_open(pair, one, other, "localhost", (int[2]){left[0], right[0]});
    tls_pair_start(pair, relay_pass, relay);
}

static void part_from(struct tls_pair *pair, struct relay *relay)
{
    tls_pair_close(pair);
    close(relay->fds[0]);
    close(relay->fds[1]);
}

static struct relay *relay_new(size_t a_turn)
{
    struct relay *relay = calloc(1, sizeof(*relay));

    assert_non_null(relay);
    relay->a_turn = a_turn;
    relay->changed = SIZE_MAX;
    return relay;
}

static void bytes_may_come_one_by_one(void **state)
{
    const struct tls_side *const sides[][2] = {{&by_secret, &by_secret}, {&client, &node}};

    (void)state;
    for (size_t i = 0; i < pst_count_of(sides); i++) {
        struct relay *relay = relay_new(1);
        struct tls_pair pair;

        meet_through(&pair, relay, sides[i][0], sides[i][1]);
        assert_int_equal(pair.result[0] | pair.result[1], 0);
        part_from(&pair, relay);
        free(relay);
    }
}

/* Two sides that stand have agreed on all that was said, whatever byte was changed on its way: what else
 * there is to change counts for nothing. */
static void changes_are_noticed(void **state)
{
    size_t refused = 0, bytes = 1;

    (void)state;
    for (size_t changed = 0; changed < bytes; changed += 13) {
        uint8_t binding[2][PST_TLS_BINDING_BYTES];
        struct relay *relay = relay_new(4096);
        struct tls_pair pair;

        relay->changed = changed;
        meet_through(&pair, relay, &client, &node);
        bytes = pst_max(bytes, relay->passed);
        refused += pair.result[0] < 0 || pair.result[1] < 0;
        for (int side = 0; side < 2 && pair.result[0] == 0 && pair.result[1] == 0; side++)
            assert_int_equal(pst_tls_channel_binding(pair.ends[side], binding[side]), 0);
        if (pair.result[0] == 0 && pair.result[1] == 0)
            assert_memory_equal(binding[0], binding[1], sizeof(binding[0]));
        part_from(&pair, relay);
        free(relay);
    }
    assert_in_range(refused, bytes / 13 * 8 / 10, bytes);
}

/* The node hears what a client said to another node with the same certificate and secret. */
static void replays_are_refused(void **state)
{
    const struct tls_side *const sides[][2] = {{&by_secret, &by_secret}, {&client, &node}};

    (void)state;
    for (size_t i = 0; i < pst_count_of(sides); i++) {
        struct relay *relay = relay_new(4096);
        struct tls_pair pair, again;
        int fds[2], r = -EAGAIN;
        const char *text;

        meet_through(&pair, relay, sides[i][0], sides[i][1]);
        assert_int_equal(pair.result[0] | pair.result[1], 0);
        tls_sockets(fds);
        assert_int_equal(send(fds[0], relay->log[0], relay->total[0], 0), relay->total[0]);
        assert_int_equal(pst_tls_channel(pair.tls[1], fds[1], NULL, &again.ends[1]), 0);
        for (int round = 0; round < 10 && r == -EAGAIN; round++)
            r = stream_channel_start(again.ends[1], &text);
        assert_int_equal(r, -EPROTO);
        assert_int_equal(pst_tls_channel_fault(again.ends[1], &text), PST_TLS_FAULT_REPLAYED);
        assert_string_equal(text, "a TLS record that was replayed or changed");
        stream_channel_close(again.ends[1]);
        close(fds[0]);
        part_from(&pair, relay);
        free(relay);
    }
}

/* A node, and what its other end may say without being a channel. */
struct lone {
    struct pst_tls *tls;
    struct stream_channel *channel;
    int fd; /* the other end */
    int result;
    const char *text;
    enum pst_tls_fault fault;
};

static void lone_open(struct lone *lone, const struct tls_side *side, bool serves)
{
    char fault[PST_FAULT_BYTES];
    int fds[2];

    tls_sockets(fds);
    *lone = (struct lone){.fd = fds[0], .result = -EAGAIN, .text = ""};
    assert_int_equal(tls_side_open(side, serves, &lone->tls, fault), 0);
    assert_int_equal(pst_tls_channel(lone->tls, fds[1], serves ? NULL : "localhost", &lone->channel), 0);
}

static void lone_hears(struct lone *lone, const void *data, size_t bytes)
{
    if (bytes > 0)
        (void)!send(lone->fd, data, bytes, MSG_NOSIGNAL);
    for (int round = 0; round < 4 && lone->result == -EAGAIN; round++)
        lone->result = stream_channel_start(lone->channel, &lone->text);
    lone->fault = pst_tls_channel_fault(lone->channel, &lone->text);
}

static void lone_hears_the_end(struct lone *lone)
{
    shutdown(lone->fd, SHUT_WR);
    lone_hears(lone, NULL, 0);
}

static void lone_close(struct lone *lone)
{
    stream_channel_close(lone->channel);
    pst_tls_close(lone->tls);
    close(lone->fd);
}

/* What a client says first. Return: its bytes. */
static size_t client_hello(uint8_t *buf, size_t cap)
{
    struct lone lone;
    ssize_t n;

    lone_open(&lone, &client, false);
    lone_hears(&lone, NULL, 0);
    assert_int_equal(lone.result, -EAGAIN);
    n = recv(lone.fd, buf, cap, 0);
    assert_true(n > 100 && buf[0] == PST_TLS_FIRST_BYTE);
    lone_close(&lone);
    return (size_t)n;
}

static void handshakes_end_anywhere(void **state)
{
    uint8_t hello[4096];
    size_t bytes = client_hello(hello, sizeof(hello));

    (void)state;
    for (size_t cut = 0; cut <= bytes; cut++) {
        struct lone lone;

        lone_open(&lone, &node, true);
        lone_hears(&lone, hello, cut);
        assert_int_equal(lone.result, -EAGAIN);
        lone_hears_the_end(&lone);
        assert_int_equal(lone.fault, PST_TLS_FAULT_ENDED);
        assert_string_equal(lone.text, cut ? "the connection ended" : "the connection ended before any TLS");
        assert_int_equal(lone.result, cut ? -ECONNRESET : -EPROTO);
        lone_close(&lone);
    }
}

static void garbage_is_refused(void **state)
{
    uint8_t hello[4096], garbage[2048];
    size_t bytes = client_hello(hello, sizeof(hello));

    (void)state;
    for (uint64_t round = 0; round < 500; round++) {
        size_t front = round % 4 == 0 ? bytes : pst_hash64(&round, sizeof(round), 1) % (bytes + 1);
        struct lone lone;

        pst_random(garbage, sizeof(garbage));
        lone_open(&lone, round % 3 ? &node : &by_secret, true);
        lone_hears(&lone, hello, front);
        lone_hears(&lone, garbage, 1 + round);
        lone_hears_the_end(&lone);
        assert_true(lone.result < 0 && lone.result != -EAGAIN);
        assert_true(lone.fault != PST_TLS_FAULT_NONE && *lone.text);
        lone_close(&lone);
    }
}

/* A handshake without end takes 32 KiB, and no more. */
static void long_handshakes_are_refused(void **state)
{
    uint8_t record[5 + 16384] = {0x16, 3, 1, 0x40, 0, 1, 1, 0, 0, 3, 3}; /* a hello of 64 KiB, with zeros */
    struct lone lone;

    (void)state;
    lone_open(&lone, &node, true);
    for (int i = 0; i < 4 && lone.result == -EAGAIN; i++) {
        lone_hears(&lone, record, sizeof(record));
        memset(record + 5, 0, sizeof(record) - 5);
    }
    assert_int_equal(lone.result, -EPROTO);
    assert_string_equal(lone.text, "too long a TLS handshake");
    lone_close(&lone);
}

static void strangers_are_named(void **state)
{
    static const char http[] = "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n",
                      boot[] = "PSTB0123456789ab";
    const char *said[] = {http, boot};

    (void)state;
    for (size_t i = 0; i < pst_count_of(said); i++) {
        struct lone lone;

        lone_open(&lone, &client, false);
        lone_hears(&lone, said[i], strlen(said[i]));
        assert_int_equal(lone.result, -EPROTO);
        assert_int_equal(lone.fault, PST_TLS_FAULT_PROTOCOL);
        assert_string_equal(lone.text, "no TLS");
        lone_close(&lone);
    }
}

/* An OpenSSL of our own at the other end, which knows TLS 1.2 and no more. */
static int old_side(struct lone *lone, bool serves)
{
    SSL_CTX *ctx = SSL_CTX_new(TLS_method());
    SSL *ssl;

    assert_true(SSL_CTX_set_max_proto_version(ctx, TLS1_2_VERSION));
    assert_true(SSL_CTX_use_certificate_file(ctx, tls_path("node", ".pem"), SSL_FILETYPE_PEM));
    assert_true(SSL_CTX_use_PrivateKey_file(ctx, tls_path("node", ".key"), SSL_FILETYPE_PEM));
    ssl = SSL_new(ctx);
    assert_true(SSL_set_fd(ssl, lone->fd));
    for (int round = 0; round < 10 && lone->result == -EAGAIN; round++) {
        (void)(serves ? SSL_accept(ssl) : SSL_connect(ssl));
        lone_hears(lone, NULL, 0);
    }
    assert_false(SSL_is_init_finished(ssl));
    SSL_free(ssl);
    SSL_CTX_free(ctx);
    ERR_clear_error();
    return lone->result;
}

static void older_versions_are_refused(void **state)
{
    (void)state;
    for (int serves = 0; serves < 2; serves++) {
        struct lone lone;

        lone_open(&lone, serves ? &client : &node, !serves);
        assert_int_equal(old_side(&lone, serves), -EPROTONOSUPPORT);
        assert_string_equal(lone.text, "not TLS 1.3");
        assert_int_equal(lone.fault, PST_TLS_FAULT_PROTOCOL);
        lone_close(&lone);
    }
}

static ssize_t read_byte(struct stream_channel *channel)
{
    char byte;
    struct iovec iov = {&byte, 1};

    return stream_channel_readv(channel, &iov, 1);
}

/* Who hangs up says so; who cuts the connection cannot make it look so. */
static void ends_are_told_apart(void **state)
{
    struct tls_pair pair;

    (void)state;
    tls_pair_meet(&pair, &by_secret, &by_secret, "localhost");
    assert_int_equal(read_byte(pair.ends[1]), -EAGAIN);
    pair.ends[0] = stream_channel_close(pair.ends[0]);
    assert_int_equal(read_byte(pair.ends[1]), 0);
    assert_int_equal(read_byte(pair.ends[1]), 0);
    tls_pair_close(&pair);
    tls_pair_meet(&pair, &by_secret, &by_secret, "localhost");
    shutdown(stream_channel_fd(pair.ends[0]), SHUT_WR);
    assert_int_equal(read_byte(pair.ends[1]), -ECONNRESET);
    assert_int_equal(read_byte(pair.ends[1]), -ECONNRESET);
    assert_int_equal(pst_tls_channel_fault(pair.ends[1], &pair.text[1]), PST_TLS_FAULT_ENDED);
    tls_pair_close(&pair);
}

static void changed_records_end_it(void **state)
{
    struct relay *relay = relay_new(4096);
    struct iovec iov = {(char[]){"some words"}, 10};
    struct tls_pair pair;

    (void)state;
    meet_through(&pair, relay, &by_secret, &by_secret);
    assert_int_equal(pair.result[0] | pair.result[1], 0);
    assert_int_equal(stream_channel_writev(pair.ends[0], &iov, 1), 10);
    relay->changed = relay->passed + 12;
    relay_pass(relay);
    assert_int_equal(read_byte(pair.ends[1]), -EPROTO);
    assert_int_equal(pst_tls_channel_fault(pair.ends[1], &pair.text[1]), PST_TLS_FAULT_REPLAYED);
    part_from(&pair, relay);
    free(relay);
}

/* A key serves so many records, and then both sides have the next one. */
static void keys_are_changed(void **state)
{
    struct tls_pair pair;

    (void)state;
    tls_pair_meet(&pair, &client, &node, "localhost");
    for (int side = 0; side < 2; side++)
        tls_channel_cast(pair.ends[side])->records_a_key = 3;
    for (int round = 0; round < 20; round++)
        tls_pair_talk(&pair, round % 2, 100000, (uint64_t)round);
    tls_pair_close(&pair);
}

/* A key for each record is the other side's affair; keys alone are work for nothing. */
static void changes_without_data_end_it(void **state)
{
    struct iovec iov = {(char[]){"a"}, 1};
    struct tls_pair pair;
    ssize_t n = 0;

    (void)state;
    tls_pair_meet(&pair, &client, &node, "localhost");
    for (int i = 0; i < 4 * TLS_REKEYS_MAX; i++) {
        assert_true(SSL_key_update(tls_channel_cast(pair.ends[0])->ssl, SSL_KEY_UPDATE_NOT_REQUESTED));
        assert_int_equal(stream_channel_writev(pair.ends[0], &iov, 1), 1);
        assert_int_equal(read_byte(pair.ends[1]), 1);
    }
    for (int i = 0; i < 4 * TLS_REKEYS_MAX && n >= 0; i++) {
        assert_true(SSL_key_update(tls_channel_cast(pair.ends[0])->ssl, SSL_KEY_UPDATE_REQUESTED));
        assert_int_equal(SSL_do_handshake(tls_channel_cast(pair.ends[0])->ssl), 1);
        (void)tls_out_flush(tls_channel_cast(pair.ends[0]));
        n = read_byte(pair.ends[1]);
        if (n == -EAGAIN)
            n = 0;
    }
    assert_int_equal(n, -EPROTO);
    assert_int_equal(pst_tls_channel_fault(pair.ends[1], &pair.text[1]), PST_TLS_FAULT_PROTOCOL);
    assert_string_equal(pair.text[1], "changes of keys, and no data");
    tls_pair_close(&pair);
}

static bool holds(const uint8_t *log, size_t bytes, const char *word)
{
    return memmem(log, bytes, word, strlen(word)) != NULL;
}

/* Nothing that was said, and not the secret, can be read between the two. */
static void nothing_can_be_read_on_the_way(void **state)
{
    struct relay *relay = relay_new(4096);
    char words[] = "these are words that nobody else is to read";
    struct iovec iov = {words, strlen(words)};
    char come[64] = "";
    struct tls_pair pair;

    (void)state;
    meet_through(&pair, relay, &by_secret, &by_secret);
    assert_int_equal(stream_channel_writev(pair.ends[0], &iov, 1), strlen(words));
    relay_pass(relay);
    iov = (struct iovec){come, sizeof(come)};
    assert_int_equal(stream_channel_readv(pair.ends[1], &iov, 1), strlen(words));
    assert_string_equal(come, words);
    assert_true(holds(relay->log[0], relay->total[0],
                      "penstock")); /* the identity, so this looks at the right bytes */
    assert_false(holds(relay->log[0], relay->total[0], "nobody else"));
    assert_false(holds(relay->log[0], relay->total[0], by_secret.secret));
    part_from(&pair, relay);
    free(relay);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_may_come_one_by_one),
        cmocka_unit_test(changes_are_noticed),
        cmocka_unit_test(replays_are_refused),
        cmocka_unit_test(handshakes_end_anywhere),
        cmocka_unit_test(garbage_is_refused),
        cmocka_unit_test(long_handshakes_are_refused),
        cmocka_unit_test(strangers_are_named),
        cmocka_unit_test(older_versions_are_refused),
        cmocka_unit_test(ends_are_told_apart),
        cmocka_unit_test(changed_records_end_it),
        cmocka_unit_test(keys_are_changed),
        cmocka_unit_test(changes_without_data_end_it),
        cmocka_unit_test(nothing_can_be_read_on_the_way),
    };

    return cmocka_run_group_tests(tests, tls_make_certificates, tls_remove_certificates);
}
