/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/cm.h"

#include "net/handshake.h"

#include <stdio.h>

static void expect_fault(const char *text, const char *wanted)
{
    struct pst_boot_address address = {.port = 7};
    const char *fault = NULL;

    assert_int_equal(pst_boot_address_parse(text, &address, &fault), -EINVAL);
    assert_string_equal(fault, wanted);
    assert_int_equal(address.port, 7); /* written only on success */
}

static struct pst_boot_address parsed(const char *text)
{
    struct pst_boot_address address;
    const char *fault = NULL;

    assert_int_equal(pst_boot_address_parse(text, &address, &fault), 0);
    return address;
}

static void tcp_addresses(void **state)
{
    struct pst_boot_address a = parsed("node7.example:7070");

    (void)state;
    assert_string_equal(a.host, "node7.example");
    assert_int_equal(a.port, 7070);
    assert_string_equal(a.path, "");
    a = parsed("[fe80::1]:65535");
    assert_string_equal(a.host, "fe80::1");
    assert_int_equal(a.port, 65535);
    assert_int_equal(parsed("localhost:0").port, 0);
    assert_string_equal(parsed(":80").host, "");
}

static void unix_addresses(void **state)
{
    char text[200] = "unix:///run/";

    (void)state;
    assert_string_equal(parsed("/run/pst.sock").path, "/run/pst.sock");
    assert_string_equal(parsed("unix:///run/pst.sock").path, "/run/pst.sock");
    assert_string_equal(parsed("unix:///run/pst.sock").host, "");
    memset(text + 12, 'a', 102);
    text[12 + 102] = 0; /* "/run/" and 102: 107 bytes, the longest */
    assert_int_equal(strlen(parsed(text).path), 107);
    text[12 + 102] = 'a';
    text[12 + 103] = 0;
    expect_fault(text, "unix path too long");
    expect_fault(text + 7, "unix path too long");
}

static void faults(void **state)
{
    static const char form[] = "server address must be host:port", port[] = "invalid port number",
                      relative[] = "unix path must be /PATH or unix:///PATH";
    char text[400];

    (void)state;
    expect_fault("", form);
    expect_fault("localhost", form);
    expect_fault("::1", form);
    expect_fault("::1:80", form);
    expect_fault("[::1]", form);
    expect_fault("[::1", form);
    expect_fault("[]:80", form);
    expect_fault("[[]:80", form);
    expect_fault("a]:80", form);
    expect_fault("unix://relative", relative);
    expect_fault("unix:/one", relative);
    expect_fault("folder/socket", relative);
    expect_fault("./socket", relative);
    expect_fault("a/b:80", relative);
    expect_fault("host:", port);
    expect_fault("unix:", port);
    expect_fault("host:http", port);
    expect_fault("host:65536", port);
    expect_fault("host:-1", port);
    expect_fault("host: 80", port);
    expect_fault("host:80/x", port);
    expect_fault("host:000080", port);
    memset(text, 'h', sizeof(text));
    strcpy(text + 255, ":1");
    assert_int_equal(strlen(parsed(text).host), 255);
    strcpy(text + 256, ":1");
    text[255] = 'h';
    expect_fault(text, form);
}

static void printing_goes_back(void **state)
{
    static const char *const texts[] = {"a.b:1", "[::1]:65535", "unix:///tmp/x", "127.0.0.1:0"};
    char buf[512];

    (void)state;
    for (size_t i = 0; i < pst_count_of(texts); i++) {
        struct pst_boot_address a = parsed(texts[i]);

        pst_boot_address_print(&a, buf, sizeof(buf));
        assert_string_equal(buf, texts[i]);
    }
}

static void loopback_and_wildcard(void **state)
{
    static const struct {
        const char *text;
        bool loopback, wildcard;
    } rows[] = {
        {"127.0.0.1:1", true, false},
        {"127.9.9.9:1", true, false},
        {"localhost:1", true, false},
        {"[::1]:1", true, false},
        {"/x", true, false},
        {"[::ffff:127.0.0.1]:1", true, false},
        {"0.0.0.0:1", false, true},
        {"[::]:1", false, true},
        {"*:1", false, true},
        {":1", false, true},
        {"10.0.0.1:1", false, false},
        {"[fe80::1]:1", false, false},
        {"[::ffff:0.0.0.0]:1", false, true},
        {"localhost.x:1", false, false},
        {"128.0.0.1:1", false, false},
    };

    (void)state;
    for (size_t i = 0; i < pst_count_of(rows); i++) {
        struct pst_boot_address a = parsed(rows[i].text);

        assert_int_equal(pst_boot_address_loopback(&a), rows[i].loopback);
        assert_int_equal(pst_boot_address_wildcard(&a), rows[i].wildcard);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tcp_addresses),
        cmocka_unit_test(unix_addresses),
        cmocka_unit_test(faults),
        cmocka_unit_test(printing_goes_back),
        cmocka_unit_test(loopback_and_wildcard),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
