/* SPDX-License-Identifier: Apache-2.0 */
/* Files that others may change or read, that are none, or that do not go together. */
#include "lib/tls_rig.h"

#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

static char fault[PST_FAULT_BYTES];

static int open_files(const char *certificate, const char *key, const char *ca)
{
    const struct pst_tls_settings settings = {
        .certificate = certificate, .key = key, .ca = ca, .serves = true};
    struct pst_tls *tls = NULL;
    int r = pst_tls_open(&settings, &tls, fault);

    assert_true((r == 0) == (tls != NULL));
    pst_tls_close(tls);
    return r;
}

static int open_node(const char *name)
{
    return open_files(tls_path(name, ".pem"), tls_path(name, ".key"), tls_path("ca", ".pem"));
}

static void expect_refusal(int r, int error, const char *text)
{
    assert_int_equal(r, error);
    if (!strstr(fault, text))
        fail_msg("'%s' is not in '%s'", text, fault);
}

static void files_belong_to_their_user(void **state)
{
    const char *key = tls_path("node", ".key"), *certificate = tls_path("node", ".pem"),
               *ca = tls_path("ca", ".pem");

    (void)state;
    assert_int_equal(open_node("node"), 0);
    assert_int_equal(chmod(key, 0640), 0);
    expect_refusal(open_node("node"), -EACCES, "other users may use it (mode 0640)");
    assert_int_equal(chmod(key, 0400), 0);
    assert_int_equal(chmod(certificate, 0644) | chmod(ca, 0644), 0);
    assert_int_equal(open_node("node"), 0);
    assert_int_equal(chmod(certificate, 0664), 0);
    expect_refusal(open_node("node"), -EACCES, "other users may write it (mode 0664)");
    assert_int_equal(chmod(certificate, 0600) | chmod(ca, 0606), 0);
    expect_refusal(open_node("node"), -EACCES, "certificate authorities");
    assert_int_equal(chmod(ca, 0600), 0);
}

/* A certificate may be a link, as a system's authorities are; a key may not. */
static void keys_are_no_links(void **state)
{
    (void)state;
    assert_int_equal(symlink(tls_path("node", ".pem"), tls_path("link", ".pem")), 0);
    assert_int_equal(open_files(tls_path("link", ".pem"), tls_path("node", ".key"), NULL), 0);
    assert_int_equal(symlink(tls_path("node", ".key"), tls_path("link", ".key")), 0);
    expect_refusal(open_node("link"), -ELOOP, "a symbolic link");
}

static void write_file(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");

    assert_non_null(file);
    assert_int_equal(fputs(text, file) >= 0, 1);
    fclose(file);
}

static void contents_are_checked(void **state)
{
    (void)state;
    expect_refusal(open_node("nobody"), -ENOENT, "No such file");
    expect_refusal(open_files(tls_path("node", ".pem"), tls_path("client", ".key"), NULL), -EINVAL,
                   "it does not belong to the certificate");
    expect_refusal(open_files(tls_path("node", ".pem"), tls_path("node", ".pem"), NULL), -EINVAL, "key ");
    expect_refusal(open_files(tls_path("node", ".key"), tls_path("node", ".key"), NULL), -EINVAL,
                   "certificate ");
    expect_refusal(open_files(tls_path("node", ".pem"), tls_path("node", ".key"), tls_path("node", ".key")),
                   -EINVAL, "certificate authorities");
    write_file(tls_path("empty", ".pem"), "");
    expect_refusal(open_files(tls_path("empty", ".pem"), tls_path("node", ".key"), NULL), -EINVAL,
                   "certificate ");
    expect_refusal(open_files(tls_path("node", ".pem"), tls_path("node", ".key"), tls_path("empty", ".pem")),
                   -EINVAL, "certificate authorities");
    assert_int_equal(
        system("openssl ec -aes128 -passout pass:x -in $FOLDER/node.key -out $FOLDER/locked.key 2>/dev/null"),
        0);
    expect_refusal(open_files(tls_path("node", ".pem"), tls_path("locked", ".key"), NULL), -EINVAL,
                   "it is encrypted");
    assert_int_equal(system("mkfifo -m 600 $FOLDER/pipe.key"), 0);
    expect_refusal(open_files(tls_path("node", ".pem"), tls_path("pipe", ".key"), NULL), -EACCES,
                   "not a regular file");
}

static void authorities_may_be_a_folder(void **state)
{
    static const struct tls_side by_folder = {.certificate = "node", .ca = "folder"},
                                 client = {.certificate = "client", .ca = "ca"};
    struct tls_pair pair;

    (void)state;
    assert_int_equal(system("mkdir $FOLDER/folder.pem && cp $FOLDER/ca.pem $FOLDER/folder.pem && "
                            "openssl rehash $FOLDER/folder.pem"),
                     0);
    tls_pair_meet(&pair, &client, &by_folder, "localhost");
    assert_int_equal(pair.result[0] | pair.result[1], 0);
    tls_pair_close(&pair);
    assert_int_equal(chmod(tls_path("folder", ".pem"), 0777), 0);
    expect_refusal(open_files(tls_path("node", ".pem"), tls_path("node", ".key"), tls_path("folder", ".pem")),
                   -EACCES, "other users may write it");
}

static void settings_go_together(void **state)
{
    char *ca = strdup(tls_path("ca", ".pem")), *node = strdup(tls_path("node", ".pem"));
    char *key = strdup(tls_path("node", ".key"));
    const struct {
        struct pst_tls_settings settings;
        const char *text;
    } cases[] = {
        {{.serves = true}, "TLS needs a certificate, an authority or a secret"},
        {{.serves = true, .certificate = node}, "tls_certificate and tls_key go together"},
        {{.connects = true, .key = key, .ca = ca}, "tls_certificate and tls_key go together"},
        {{.serves = true, .ca = ca}, "a node needs tls_certificate and tls_key, too"},
        {{.connects = true, .certificate = node, .key = key}, "needs tls_ca"},
        {{.serves = true, .connects = true, .certificate = node, .key = key}, "needs tls_ca"},
    };
    struct pst_tls *tls = NULL;

    (void)state;
    for (size_t i = 0; i < pst_count_of(cases); i++)
        expect_refusal(pst_tls_open(&cases[i].settings, &tls, fault), -EINVAL, cases[i].text);
    assert_null(tls);
    free(ca);
    free(node);
    free(key);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(files_belong_to_their_user), cmocka_unit_test(keys_are_no_links),
        cmocka_unit_test(contents_are_checked),       cmocka_unit_test(authorities_may_be_a_folder),
        cmocka_unit_test(settings_go_together),
    };

    return cmocka_run_group_tests(tests, tls_make_certificates, tls_remove_certificates);
}
