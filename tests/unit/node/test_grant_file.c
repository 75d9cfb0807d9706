/* SPDX-License-Identifier: Apache-2.0 */
/* The file of grants: what it may say, each fault with its line, and who may have written it. */
#include "lib/options_desk.h"

#include "base/limits.h"
#include "node/grant_file.h"

#include <stdio.h>

#define SECRET "secret = 0123456789abcdef\n"
#define BARE   "[a]\nrights = read\nkeys = all\n"

static int parse(const char *text, struct pst_grant_file **out, char fault[PST_FAULT_BYTES])
{
    fault[0] = '\0';
    return pst_grant_file_parse("file", pst_bytes_of(text), out, fault);
}

static void a_file_says_all(void **state)
{
    struct pst_grant_file *file = NULL;
    char fault[PST_FAULT_BYTES];
    const struct pst_granted *a, *b;

    (void)state;
    assert_int_equal(
        parse("# grants\r\n\n[a.b_c-1]\n  rights =  read\twrite \n prefix=images/\nprefix = 100%25/ %41\n"
              "secret = a secret with blanks\nsecret-file = new\nconnections = 3\nrequests = 4\n"
              "reservations = 5\npins = 6\npinned_bytes = 2G\n# end\n[b]\nrights = admin\nkeys = all\n"
              "secret_file = /etc/b",
              &file, fault),
        0);
    assert_int_equal(file->count, 2);
    assert_true(file->holds_secrets);
    a = &file->grants[0];
    b = &file->grants[1];
    assert_string_equal(a->name, "a.b_c-1");
    assert_int_equal(a->terms.rights, PST_RIGHT_READ | PST_RIGHT_WRITE);
    assert_false(a->terms.all_keys);
    assert_int_equal(a->terms.prefix_count, 2);
    assert_true(pst_bytes_equal(a->terms.prefixes[0], pst_bytes_of("images/")));
    assert_true(pst_bytes_equal(a->terms.prefixes[1], pst_bytes_of("100%/ A")));
    assert_int_equal(a->secret_count, 2);
    assert_true(pst_bytes_equal(a->secrets[0].secret, pst_bytes_of("a secret with blanks")));
    assert_string_equal(a->secrets[1].path, "new");
    assert_int_equal(a->secrets[1].line, 8);
    assert_int_equal(a->terms.connections_max, 3);
    assert_int_equal(a->terms.requests_max, 4);
    assert_int_equal(a->terms.reservations_max, 5);
    assert_int_equal(a->terms.pins_max, 6);
    assert_int_equal(a->terms.pinned_bytes_max, 2ull << 30);
    assert_int_equal(b->terms.rights, PST_RIGHT_ADMIN);
    assert_true(b->terms.all_keys);
    assert_string_equal(b->secrets[0].path, "/etc/b");
    pst_grant_file_free(file);
}

/* Each with the line and the words. */
static void faults_are_named(void **state)
{
    static const struct {
        const char *text, *fault;
    } rows[] = {
        {"", "file:1: no grant"},
        {"\n# only this\n", "file:2: no grant"},
        {"rights = read\n", "file:1: 'rights' before the first [GRANT]"},
        {"[a\n", "file:1: a section's line is [NAME]"},
        {"[]\n", "file:1: '' is no name"},
        {"[ a]\n", "file:1: ' a' is no name"},
        {"[-a]\n", "file:1: '-a' is no name"},
        {"[a b]\n", "file:1: 'a b' is no name"},
        {"[a]]\n", "file:1: 'a]' is no name"},
        {"[a]x\n", "file:1: a section's line is [NAME]"},
        {"[0123456789012345678901234567890x]\n", "is no name: up to 31"},
        {BARE SECRET "[a]\n", "file:5: grant a is there twice"},
        {"[a]\nrights\n", "file:2: neither [NAME] nor 'name = value'"},
        {"[a]\nright = read\n", "file:2: unknown setting 'right'"},
        {"[a]\n= read\n", "file:2: unknown setting ''"},
        {"[a]\nrights = \n", "file:2: rights says nothing"},
        {"[a]\nrights = read\nrights = write\n", "file:3: rights is said twice"},
        {"[a]\nrights = read read\n", "file:2: read is said twice"},
        {"[a]\nrights = read,write\n", "file:2: 'read,write' is none of read, write and admin"},
        {"[a]\nrights = Read\n", "file:2: 'Read' is none of"},
        {"[a]\nrights = read # and no more\n", "file:2: '#' is none of"},
        {"[a]\nkeys = *\n", "file:2: keys: '*' is not 'all'"},
        {"[a]\nprefix =\n", "file:2: prefix says nothing"},
        {"[a]\nprefix = a%\n", "file:2: prefix: %"},
        {"[a]\nprefix = a%2g\n", "file:2: prefix: %"},
        {"[a]\nprefix = a%00\n", "file:2: prefix: %"},
        {"[a]\nprefix = a\nprefix = %61\n", "file:3: this prefix is said twice"},
        {"[a]\nsecret = short\n", "file:2: a secret of fewer than 16 bytes"},
        {"[a]\n" SECRET SECRET "secret-file = x\n", "file:4: more than 2 secrets"},
        {"[a]\nconnections = 0\n", "file:2: connections: 0 is outside of 1 to 16384"},
        {"[a]\nconnections = 16385\n", "file:2: connections: 16385 is outside of"},
        {"[a]\nconnections = -1\n", "file:2: connections: '-1' is not a number"},
        {"[a]\npins = many\n", "file:2: pins: 'many' is not a number"},
        {"[a]\npins = 18446744073709551616\n", "file:2: pins: '18446744073709551616' is not a number"},
        {"[a]\npinned-bytes = 4X\n", "file:2: pinned-bytes: '4X' is not a number"},
        {"[a]\nrequests = 65537\n", "file:2: requests: 65537 is outside of"},
        {"[a]\nreservations = 2M\n", "file:2: reservations: 2M is outside of"},
        {"[a]\nkeys = all\n" SECRET, "file:1: grant a has no 'rights'"},
        {"[a]\nrights = read\n" SECRET, "file:1: grant a has neither 'prefix' nor 'keys = all'"},
        {BARE "prefix = x\n" SECRET, "file:1: grant a has 'prefix' beside 'keys = all'"},
        {"[a]\nrights = read admin\nprefix = x\n" SECRET, "file:1: grant a: admin is of the whole node"},
        {BARE, "file:1: grant a has neither 'secret' nor 'secret-file'"},
        {BARE "[b]\n", "file:1: grant a has neither 'secret' nor 'secret-file'"},
    };
    struct pst_grant_file *file = NULL;
    char fault[PST_FAULT_BYTES];

    (void)state;
    for (size_t i = 0; i < pst_count_of(rows); i++) {
        assert_int_equal(parse(rows[i].text, &file, fault), -EINVAL);
        if (!strstr(fault, rows[i].fault))
            fail_msg("'%s' was refused for '%s', not '%s'", rows[i].text, fault, rows[i].fault);
        assert_null(file);
        assert_null(strstr(fault, "0123456789abcdef")); /* no secret in a fault */
    }
}

static void everything_has_a_bound(void **state)
{
    static char text[PST_GRANT_FILE_BYTES_MAX];
    struct pst_grant_file *file = NULL;
    char fault[PST_FAULT_BYTES];
    size_t at = 0;

    (void)state;
    for (int i = 0; i < PST_GRANTS_MAX; i++)
        at += (size_t)snprintf(text + at, sizeof(text) - at, "[g%d]\nrights=read\nkeys=all\nsecret-file=%d\n",
                               i, i);
    assert_int_equal(parse(text, &file, fault), 0);
    assert_int_equal(file->count, PST_GRANTS_MAX);
    assert_false(file->holds_secrets);
    file = pst_grant_file_free(file);
    snprintf(text + at, sizeof(text) - at, "[one-more]\n");
    assert_int_equal(parse(text, &file, fault), -EINVAL);
    assert_non_null(strstr(fault, "more than 64 grants"));

    at = (size_t)snprintf(text, sizeof(text), "[a]\n");
    for (int i = 0; i <= PST_GRANT_PREFIXES_MAX; i++)
        at += (size_t)snprintf(text + at, sizeof(text) - at, "prefix = %d/\n", i);
    assert_int_equal(parse(text, &file, fault), -EINVAL);
    assert_non_null(strstr(fault, "file:18: more than 16 prefixes"));

    at = (size_t)snprintf(text, sizeof(text), "[a]\nprefix = ");
    memset(text + at, 'p', PST_KEY_BYTES_MAX + 1);
    text[at + PST_KEY_BYTES_MAX + 1] = '\0';
    assert_int_equal(parse(text, &file, fault), -EINVAL);
    assert_non_null(strstr(fault, "file:2: a prefix of more than 4096 bytes"));
    memcpy(text, "[a]\nsecret = ", at);
    assert_int_equal(parse(text, &file, fault), -EINVAL);
    assert_non_null(strstr(fault, "file:2: a secret of more than 4096 bytes"));
    memset(text, 'l', 20000);
    text[20000] = '\0';
    assert_int_equal(parse(text, &file, fault), -EINVAL);
    assert_non_null(strstr(fault, "file:1: a line of more than 16384 bytes"));
    assert_int_equal(pst_grant_file_parse("file", (struct pst_bytes){"[a]\n\0\n", 6}, &file, fault), -EINVAL);
    assert_non_null(strstr(fault, "file:2: a zero byte"));
    assert_null(file);
}

/* ---- files ---- */

static int read_text(struct desk *d, const char *text, mode_t mode, struct pst_grant_file **out)
{
    write_file(d, text, strlen(text), mode);
    d->fault[0] = '\0';
    return pst_grant_file_read(d->path, out, d->fault);
}

static void write_beside(const struct desk *d, const char *name, const char *text, mode_t mode)
{
    char path[512];
    FILE *file;

    snprintf(path, sizeof(path), "%s/%s", d->folder, name);
    unlink(path);
    file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(chmod(path, mode), 0);
}

static void remove_beside(const struct desk *d, const char *name)
{
    char path[512];

    snprintf(path, sizeof(path), "%s/%s", d->folder, name);
    unlink(path);
}

static void secrets_lie_beside(void **state)
{
    struct pst_grant_file *file = NULL;
    struct desk *d = *state;

    write_beside(d, "one", "first\n", 0600);
    write_beside(d, "two", "second", 0600);
    assert_int_equal(read_text(d, BARE "secret-file = one\nsecret-file = two\n", 0644, &file), 0);
    assert_true(pst_bytes_equal(file->grants[0].secrets[0].secret, pst_bytes_of("first")));
    assert_true(pst_bytes_equal(file->grants[0].secrets[1].secret, pst_bytes_of("second")));
    file = pst_grant_file_free(file);
    assert_int_equal(read_text(d, BARE "secret-file = none\n", 0644, &file), -ENOENT);
    assert_fault(d, ":4: secret file");
    write_beside(d, "two", "second", 0640);
    assert_int_equal(read_text(d, BARE "secret-file = one\nsecret-file = two\n", 0644, &file), -EACCES);
    assert_fault(d, ":5: secret file");
    write_beside(d, "two", "first", 0600);
    assert_int_equal(read_text(d,
                               BARE "secret-file = one\n[b]\nrights = read\nkeys = all\nsecret-file = two\n",
                               0644, &file),
                     -EINVAL);
    assert_fault(d, ":8: the secret of line 4");
    assert_null(file);
    remove_beside(d, "one");
    remove_beside(d, "two");
}

static void others_have_no_hand_in_it(void **state)
{
    struct pst_grant_file *file = NULL;
    struct desk *d = *state;

    assert_int_equal(read_text(d, BARE SECRET, 0600, &file), 0);
    file = pst_grant_file_free(file);
    assert_int_equal(read_text(d, BARE SECRET, 0640, &file), -EACCES); /* secrets are in it */
    assert_fault(d, "mode 0600");
    assert_int_equal(read_text(d, BARE "secret-file = x\n", 0622, &file), -EPERM);
    assert_fault(d, "other users may write it");
    assert_int_equal(pst_grant_file_read(d->folder, &file, d->fault), -EPERM);
    assert_fault(d, "not a regular file");
    assert_int_equal(pst_grant_file_read("/nowhere/at/all", &file, d->fault), -ENOENT);
    assert_fault(d, "grants /nowhere/at/all: ");
    assert_null(file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_file_says_all),        cmocka_unit_test(faults_are_named),
        cmocka_unit_test(everything_has_a_bound), DESK_TEST(secrets_lie_beside),
        DESK_TEST(others_have_no_hand_in_it),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
