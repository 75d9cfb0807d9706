/* SPDX-License-Identifier: Apache-2.0 */
/* TLS between two sides that mean well, and between two of which one has a certificate or a secret too many,
 * too few or of the wrong kind. */
#include "lib/tls_rig.h"

static const struct tls_side by_secret = {.secret = "a secret"};
static const struct tls_side node = {.certificate = "node", .ca = "ca"};
static const struct tls_side client = {.certificate = "client", .ca = "ca"};

static void expect_connection(struct tls_pair *pair)
{
    uint8_t binding[2][PST_TLS_BINDING_BYTES];

    assert_int_equal(pair->result[0], 0);
    assert_int_equal(pair->result[1], 0);
    for (int side = 0; side < 2; side++)
        assert_int_equal(pst_tls_channel_binding(pair->ends[side], binding[side]), 0);
    assert_memory_equal(binding[0], binding[1], sizeof(binding[0]));
    for (int side = 0; side < 2; side++) {
        tls_pair_talk(pair, side, 10, 1);
        tls_pair_talk(pair, side, 3 << 20, 2);
    }
}

static void both_sides_meet(void **state)
{
    static const struct tls_side with_secret = {.certificate = "node", .ca = "ca", .optional = true};
    static const struct tls_side of_its_own = {.certificate = "node"}, checks = {.ca = "ca"};
    static const struct tls_side named = {.ca = "ca", .name = "node.test"};
    const struct {
        const struct tls_side *client, *node;
        const char *host;
    } meetings[] = {
        {&by_secret, &by_secret, "whatever"}, {&client, &node, "localhost"},
        {&client, &node, "127.0.0.1"},        {&client, &node, "::1"},
        {&client, &node, "::1%lo"},           {&client, &node, ""},
        {&node, &node, "node.test"},          {&checks, &of_its_own, "localhost"},
        {&checks, &with_secret, "localhost"}, {&client, &with_secret, "localhost"},
        {&named, &of_its_own, "10.1.2.3"},
    };

    (void)state;
    for (size_t i = 0; i < pst_count_of(meetings); i++) {
        struct tls_pair pair;

        tls_pair_meet(&pair, meetings[i].client, meetings[i].node, meetings[i].host);
        expect_connection(&pair);
        assert_string_equal(SSL_get_version(tls_channel_cast(pair.ends[0])->ssl), "TLSv1.3");
        assert_int_equal(SSL_session_reused(tls_channel_cast(pair.ends[0])->ssl),
                         meetings[i].client == &by_secret);
        tls_pair_close(&pair);
    }
}

/* Two connections by the same secret have nothing in common that one could be taken for the other by. */
static void bindings_differ(void **state)
{
    uint8_t binding[2][PST_TLS_BINDING_BYTES];

    (void)state;
    for (int i = 0; i < 2; i++) {
        struct tls_pair pair;

        tls_pair_meet(&pair, &by_secret, &by_secret, "localhost");
        assert_int_equal(pst_tls_channel_binding(pair.ends[0], binding[i]), 0);
        tls_pair_close(&pair);
    }
    assert_memory_not_equal(binding[0], binding[1], sizeof(binding[0]));
}

struct clash {
    struct tls_side client, node;
    const char *host;
    enum pst_tls_fault client_fault;
    int client_result;
    const char *client_text;
    enum pst_tls_fault node_fault;
    const char *node_text;
};

static void expect_clash(const struct clash *clash)
{
    struct tls_pair pair;

    tls_pair_meet(&pair, &clash->client, &clash->node, clash->host ? clash->host : "localhost");
    assert_string_equal(pair.text[0], clash->client_text);
    assert_string_equal(pair.text[1], clash->node_text);
    assert_int_equal(pair.result[0], clash->client_result);
    assert_int_equal(pair.fault[0], clash->client_fault);
    assert_int_equal(pair.fault[1], clash->node_fault);
    assert_true(pair.result[1] < 0 && pair.result[1] != -EAGAIN);
    tls_pair_close(&pair);
}

#define OF_NODE(name)                                                                                        \
    {                                                                                                        \
        .certificate = name, .ca = "ca"                                                                      \
    }
#define OF_CLIENT(name)                                                                                      \
    {                                                                                                        \
        .certificate = name, .ca = "ca"                                                                      \
    }

static void wrong_nodes_are_refused(void **state)
{
    static const struct clash clashes[] = {
        {{.ca = "ca"},
         OF_NODE("expired"),
         NULL,
         PST_TLS_FAULT_EXPIRED,
         -EACCES,
         "the node's certificate has expired",
         PST_TLS_FAULT_TURNED_DOWN,
         "it refuses the node: an expired certificate"},
        {{.ca = "ca"},
         OF_NODE("future"),
         NULL,
         PST_TLS_FAULT_EXPIRED,
         -EACCES,
         "the node's certificate is not yet valid",
         PST_TLS_FAULT_TURNED_DOWN,
         "it refuses the node: a wrong certificate"},
        {{.ca = "ca"},
         OF_NODE("foreign"),
         NULL,
         PST_TLS_FAULT_CERTIFICATE,
         -EACCES,
         "the node's certificate has an unknown issuer",
         PST_TLS_FAULT_TURNED_DOWN,
         "it refuses the node: a certificate with an unknown issuer"},
        {{.ca = "ca"},
         OF_NODE("elsewhere"),
         NULL,
         PST_TLS_FAULT_CERTIFICATE,
         -EACCES,
         "the node's certificate is of another host name",
         PST_TLS_FAULT_TURNED_DOWN,
         "it refuses the node: a wrong certificate"},
        {{.ca = "ca"},
         OF_NODE("node"),
         "node.test.example",
         PST_TLS_FAULT_CERTIFICATE,
         -EACCES,
         "the node's certificate is of another host name",
         PST_TLS_FAULT_TURNED_DOWN,
         "it refuses the node: a wrong certificate"},
        {{.ca = "ca"},
         OF_NODE("node"),
         "127.0.0.2",
         PST_TLS_FAULT_CERTIFICATE,
         -EACCES,
         "the node's certificate is of another address",
         PST_TLS_FAULT_TURNED_DOWN,
         "it refuses the node: a wrong certificate"},
        /* its subject says so, which counts for nothing */
        {{.ca = "ca"},
         OF_NODE("node"),
         "node",
         PST_TLS_FAULT_CERTIFICATE,
         -EACCES,
         "the node's certificate is of another host name",
         PST_TLS_FAULT_TURNED_DOWN,
         "it refuses the node: a wrong certificate"},
        {{.ca = "ca", .name = "node.test"},
         OF_NODE("elsewhere"),
         "elsewhere.test",
         PST_TLS_FAULT_CERTIFICATE,
         -EACCES,
         "the node's certificate is of another host name",
         PST_TLS_FAULT_TURNED_DOWN,
         "it refuses the node: a wrong certificate"},
        {{.ca = "ca"},
         OF_NODE("mail"),
         NULL,
         PST_TLS_FAULT_CERTIFICATE,
         -EACCES,
         "the node's certificate is for another purpose",
         PST_TLS_FAULT_TURNED_DOWN,
         "it refuses the node: a certificate for another purpose"},
    };

    (void)state;
    for (size_t i = 0; i < pst_count_of(clashes); i++)
        expect_clash(&clashes[i]);
}

static void wrong_clients_are_refused(void **state)
{
    static const struct clash clashes[] = {
        {OF_CLIENT("expired"), OF_NODE("node"), NULL, PST_TLS_FAULT_TURNED_DOWN, -EACCES,
         "the node refuses this client: an expired certificate", PST_TLS_FAULT_EXPIRED,
         "its certificate has expired"},
        {OF_CLIENT("future"), OF_NODE("node"), NULL, PST_TLS_FAULT_TURNED_DOWN, -EACCES,
         "the node refuses this client: a wrong certificate", PST_TLS_FAULT_EXPIRED,
         "its certificate is not yet valid"},
        {OF_CLIENT("foreign"), OF_NODE("node"), NULL, PST_TLS_FAULT_TURNED_DOWN, -EACCES,
         "the node refuses this client: a certificate with an unknown issuer", PST_TLS_FAULT_CERTIFICATE,
         "its certificate has an unknown issuer"},
        {OF_CLIENT("mail"), OF_NODE("node"), NULL, PST_TLS_FAULT_TURNED_DOWN, -EACCES,
         "the node refuses this client: a certificate for another purpose", PST_TLS_FAULT_CERTIFICATE,
         "its certificate is for another purpose"},
        {{.ca = "ca"},
         OF_NODE("node"),
         NULL,
         PST_TLS_FAULT_TURNED_DOWN,
         -EACCES,
         "the node refuses this client: no certificate",
         PST_TLS_FAULT_CERTIFICATE,
         "no certificate"},
        /* One that may come without a certificate does not come with a wrong one. */
        {OF_CLIENT("expired"),
         {.certificate = "node", .ca = "ca", .optional = true},
         NULL,
         PST_TLS_FAULT_TURNED_DOWN,
         -EACCES,
         "the node refuses this client: an expired certificate",
         PST_TLS_FAULT_EXPIRED,
         "its certificate has expired"},
    };

    (void)state;
    for (size_t i = 0; i < pst_count_of(clashes); i++)
        expect_clash(&clashes[i]);
}

static void secrets_have_to_be_the_same(void **state)
{
    static const struct clash clashes[] = {
        {{.secret = "another"},
         {.secret = "a secret"},
         NULL,
         PST_TLS_FAULT_SECRET,
         -EACCES,
         "wrong secret",
         PST_TLS_FAULT_SECRET,
         "wrong secret"},
        {{.secret = "a secret"},
         {.certificate = "node"},
         NULL,
         PST_TLS_FAULT_CERTIFICATE,
         -EACCES,
         "the node has a certificate: TLS by the secret alone does not do",
         PST_TLS_FAULT_TURNED_DOWN,
         "it refuses the node: a certificate with an unknown issuer"},
        {{.ca = "ca"},
         {.secret = "a secret"},
         NULL,
         PST_TLS_FAULT_PROTOCOL,
         -EPROTO,
         "nothing in common: certificates here, the secret there?",
         PST_TLS_FAULT_PROTOCOL,
         "TLS by certificate, and the node has the secret alone"},
    };

    (void)state;
    for (size_t i = 0; i < pst_count_of(clashes); i++)
        expect_clash(&clashes[i]);
}

/* What is underway goes on with the certificate that it began with. */
static void files_are_read_again(void **state)
{
    char fault[PST_FAULT_BYTES];
    struct tls_pair old, fresh = {.result = {-EAGAIN, -EAGAIN}};
    int fds[2];

    (void)state;
    tls_copy("node", "turn", ".pem");
    tls_copy("node", "turn", ".key");
    tls_pair_meet(&old, &(struct tls_side){.ca = "ca"}, &(struct tls_side){.certificate = "turn"},
                  "localhost");
    tls_copy("elsewhere", "turn", ".pem");
    assert_int_equal(pst_tls_reload(old.tls[1], fault), -EINVAL); /* of two pairs */
    assert_non_null(strstr(fault, "it does not belong to the certificate"));
    tls_copy("elsewhere", "turn", ".key");
    assert_int_equal(pst_tls_reload(old.tls[1], fault), 0);
    expect_connection(&old);
    tls_sockets(fds);
    assert_int_equal(pst_tls_channel(old.tls[0], fds[0], "elsewhere.test", &fresh.ends[0]), 0);
    assert_int_equal(pst_tls_channel(old.tls[1], fds[1], NULL, &fresh.ends[1]), 0);
    tls_pair_start(&fresh, NULL, NULL);
    expect_connection(&fresh);
    tls_pair_close(&old); /* settings go, channels stay */
    tls_pair_talk(&fresh, 0, 1000, 3);
    tls_pair_close(&fresh);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_sides_meet),
        cmocka_unit_test(bindings_differ),
        cmocka_unit_test(wrong_nodes_are_refused),
        cmocka_unit_test(wrong_clients_are_refused),
        cmocka_unit_test(secrets_have_to_be_the_same),
        cmocka_unit_test(files_are_read_again),
    };

    return cmocka_run_group_tests(tests, tls_make_certificates, tls_remove_certificates);
}
