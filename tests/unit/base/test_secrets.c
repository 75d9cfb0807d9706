/* SPDX-License-Identifier: Apache-2.0 */
/* test_secrets.c: secrets are read from files that nobody else can read. */
#include "lib/options_desk.h"

/* ---- secrets ---- */

static int read_secret(struct desk *d, const char *text, mode_t mode, char *buf, size_t cap)
{
    write_file(d, text, strlen(text), mode);
    d->fault[0] = '\0';
    return pst_secret_read(d->path, buf, cap, d->fault);
}

static void secrets_are_read(void **state)
{
    struct desk *d = *state;
    char buf[8];

    assert_int_equal(read_secret(d, "hunter", 0600, buf, sizeof(buf)), 6);
    assert_memory_equal(buf, "hunter", 6);
    assert_int_equal(read_secret(d, "hunter\r\n\n", 0400, buf, sizeof(buf)), -EINVAL); /* 9 bytes */
    assert_int_equal(read_secret(d, "hunt\r\n\n", 0400, buf, sizeof(buf)), 4);
    assert_int_equal(read_secret(d, "12345678", 0700, buf, sizeof(buf)), 8);
    assert_int_equal(read_secret(d, "123456789", 0600, buf, sizeof(buf)), -EINVAL);
    assert_fault(d, "must hold 1 to 8 bytes");
    assert_int_equal(read_secret(d, "", 0600, buf, sizeof(buf)), -EINVAL);
    assert_fault(d, d->path);
    assert_int_equal(read_secret(d, "\n\n", 0600, buf, sizeof(buf)), -EINVAL);
}

static void open_secrets_are_refused(void **state)
{
    static const mode_t modes[] = {0640, 0604, 0660, 0644, 0601, 0610, 0777};
    struct desk *d = *state;
    char buf[8];

    for (size_t i = 0; i < pst_count_of(modes); i++) {
        assert_int_equal(read_secret(d, "s", modes[i], buf, sizeof(buf)), -EACCES);
        assert_fault(d, d->path);
        assert_fault(d, "mode 0600");
    }
}

static void only_files_are_secrets(void **state)
{
    struct desk *d = *state;
    char buf[8];

    assert_int_equal(pst_secret_read(d->path, buf, sizeof(buf), d->fault), -ENOENT);
    assert_fault(d, d->path);
    assert_int_equal(pst_secret_read(d->folder, buf, sizeof(buf), d->fault), -EACCES);
    assert_int_equal(mkfifo(d->path, 0600), 0); /* nobody writes to it: a reader must not wait */
    assert_int_equal(pst_secret_read(d->path, buf, sizeof(buf), d->fault), -EACCES);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        DESK_TEST(secrets_are_read),
        DESK_TEST(open_secrets_are_refused),
        DESK_TEST(only_files_are_secrets),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
