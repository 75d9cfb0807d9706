/* SPDX-License-Identifier: Apache-2.0 */
/* The catalogue's file: kills, damage, strangers and its bound. */
#include "lib/catalogue_rig.h"

#include <fcntl.h>
#include <signal.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <sys/wait.h>

static void execute(const char *path, const char *sql)
{
    sqlite3 *db;

    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_close(db), SQLITE_OK);
}

/* Opening fails with @expected, and says which file and why. */
static void assert_refused(struct catalogue_rig *rig, int expected, const char *why)
{
    struct pst_catalogue *c = NULL;

    assert_int_equal(pst_catalogue_open(rig->path, RIG_FILE_BYTES, &c), expected);
    assert_null(c);
    if (!strstr(pst_error_text(), rig->path) || !strstr(pst_error_text(), why))
        fail_msg("'%s' lacks the path or '%s'", pst_error_text(), why);
}

static void key_name(char name[32], uint32_t i)
{
    snprintf(name, 32, "key/%06u", i);
}

/* ---- kills ---- */

/* Publishes, deletes each seventh of what it published, and says each number once it is acknowledged. */
static _Noreturn void write_until_killed(struct catalogue_rig *rig, uint32_t first, int told)
{
    char name[32];

    if (pst_catalogue_open(rig->path, RIG_FILE_BYTES, &rig->catalogue) < 0)
        _exit(1);
    for (uint32_t i = first;; i++) {
        uint64_t count;

        key_name(name, i);
        if (rig_publish(rig, name, "1", RIG_NOW) < 0)
            _exit(2);
        if (i % 7 == 0 && (pst_catalogue_delete(rig->catalogue, rig_key(name), 0, &count) < 0 || count != 1))
            _exit(3);
        if (write(told, &i, sizeof(i)) != sizeof(i))
            _exit(4);
    }
}

/* Lets a writer run, kills it somewhere. Return: the first number that was not acknowledged. */
static uint32_t run_writer(struct catalogue_rig *rig, uint32_t first, uint32_t count)
{
    uint32_t acknowledged = first, next = first;
    int ends[2], status = 0;
    pid_t pid;

    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0)
        write_until_killed(rig, first, ends[1]);
    close(ends[1]);
    while (read(ends[0], &next, sizeof(next)) == sizeof(next)) {
        acknowledged = next + 1;
        if (acknowledged == first + count)
            kill(pid, SIGKILL);
    }
    close(ends[0]);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    assert_true(acknowledged >= first + count);
    return acknowledged;
}

static void what_was_acknowledged_outlives_a_kill(void **state)
{
    enum { KILLS = 12 };
    struct catalogue_rig *rig = *state;
    uint32_t next = 1, keys = 0;
    char name[32];

    rig->catalogue = pst_catalogue_close(rig->catalogue);
    for (uint32_t i = 0; i < KILLS; i++) {
        next = run_writer(rig, next, 20 + 17 * i);
        rig_open(rig, RIG_FILE_BYTES);
        for (uint32_t k = 1; k < next; k++) {
            key_name(name, k);
            assert_int_equal(rig_has(rig, name), k % 7 != 0);
        }
        rig->catalogue = pst_catalogue_close(rig->catalogue);
    }
    rig_open(rig, RIG_FILE_BYTES);
    for (uint32_t k = 1; k < next; k++)
        keys += k % 7 != 0;
    key_name(name, next); /* it may have been on its way */
    rig_assert_stats(rig, keys + rig_has(rig, name), keys + rig_has(rig, name), 0);
}

/* ---- whose the file is ---- */

static void a_file_is_one_process_s(void **state)
{
    struct catalogue_rig *rig = *state;
    int status = 0;
    pid_t pid = fork();

    assert_true(pid >= 0);
    if (pid == 0) { /* what it has of the parent's it leaves alone */
        struct pst_catalogue *c = NULL;

        _exit(pst_catalogue_open(rig->path, RIG_FILE_BYTES, &c) == -EBUSY &&
                      strstr(pst_error_text(), rig->path)
                  ? 0
                  : 1);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    assert_refused(rig, -EBUSY, "locked"); /* this process neither */
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) { /* and that did not let go of the lock */
        struct pst_catalogue *c = NULL;

        _exit(pst_catalogue_open(rig->path, RIG_FILE_BYTES, &c) == -EBUSY ? 0 : 1);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    assert_int_equal(rig_publish(rig, "k", "1", RIG_NOW), 0);
}

static void strangers_are_refused(void **state)
{
    struct catalogue_rig *rig = *state;
    char other[320];
    struct stat st;

    rig->catalogue = pst_catalogue_close(rig->catalogue);
    assert_int_equal(stat(rig->path, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0600);
    assert_int_equal(chmod(rig->path, 0622), 0);
    assert_refused(rig, -EPERM, "other users");
    assert_int_equal(chmod(rig->path, 0600), 0);
    assert_int_equal(chmod(rig->folder, 0777), 0);
    assert_refused(rig, -EPERM, "folder");
    assert_int_equal(chmod(rig->folder, 0700), 0);
    snprintf(other, sizeof(other), "%s/other.db", rig->folder);
    assert_int_equal(rename(rig->path, other), 0);
    assert_int_equal(symlink(other, rig->path), 0);
    assert_refused(rig, -EPERM, "link");
    assert_int_equal(unlink(rig->path), 0);
    execute(rig->path, "CREATE TABLE t (a); INSERT INTO t VALUES (1)");
    assert_refused(rig, -EEXIST, "another program");
    execute(rig->path, "SELECT a FROM t; INSERT INTO t VALUES (2)"); /* and it is as it was */
}

static void a_later_version_is_refused(void **state)
{
    struct catalogue_rig *rig = *state;

    assert_int_equal(rig_publish(rig, "k", "1", RIG_NOW), 0);
    rig->catalogue = pst_catalogue_close(rig->catalogue);
    execute(rig->path, "PRAGMA user_version = 3");
    assert_refused(rig, -EPROTONOSUPPORT, "version 3");
    execute(rig->path, "PRAGMA user_version = 0");
    assert_refused(rig, -EBADMSG, "version 0");
    execute(rig->path, "PRAGMA user_version = 2");
    rig_open(rig, RIG_FILE_BYTES);
    assert_true(rig_has(rig, "k"));
}

static void an_earlier_version_is_taken_over(void **state)
{
    const struct pst_source source = {.ip = "1"};
    struct catalogue_rig *rig = *state;
    uint64_t count;

    assert_int_equal(rig_publish(rig, "k", "1", RIG_NOW), 0);
    rig->catalogue = pst_catalogue_close(rig->catalogue);
    execute(rig->path, "DROP TRIGGER key_deleted; DROP TABLE withdrawn; PRAGMA user_version = 1");
    rig_open(rig, RIG_FILE_BYTES);
    assert_true(rig_has(rig, "k"));
    assert_int_equal(pst_catalogue_delete(rig->catalogue, rig_key("k"), 0, &count), 0);
    assert_int_equal(
        pst_catalogue_renew(rig->catalogue, rig_key("k"), &source, PST_LIFESPAN_UNSAID, NULL, RIG_NOW), 0);
}

/* ---- damage ---- */

static void overwrite(const char *path, off_t at, size_t bytes, int byte)
{
    pst_cleanup_close int fd = open(path, O_WRONLY | O_CLOEXEC);
    char damage[8192];

    assert_true(fd >= 0 && bytes <= sizeof(damage));
    memset(damage, byte, bytes);
    assert_int_equal(pwrite(fd, damage, bytes, at), bytes);
}

static void a_damaged_file_is_named(void **state)
{
    static const struct {
        off_t at;
        size_t bytes;
    } damages[] = {{0, 16},          {0, 4096},        {100, 400},     {4096, 4096},
                   {2 * 4096, 4096}, {3 * 4096, 8192}, {20 * 4096, 64}};
    struct catalogue_rig *rig = *state;
    char command[1000];

    for (uint32_t i = 0; i < 2000; i++) {
        char name[32];

        key_name(name, i);
        assert_int_equal(rig_publish(rig, name, "1", RIG_NOW), 0);
    }
    rig->catalogue = pst_catalogue_close(rig->catalogue);
    for (size_t i = 0; i < pst_count_of(damages); i++) {
        snprintf(command, sizeof(command), "cp '%s' '%s.good'", rig->path, rig->path);
        assert_int_equal(system(command), 0);
        overwrite(rig->path, damages[i].at, damages[i].bytes, 0xa5);
        assert_refused(rig, -EBADMSG, "");
        snprintf(command, sizeof(command), "mv '%s.good' '%s'; rm -f '%s-wal'", rig->path, rig->path,
                 rig->path);
        assert_int_equal(system(command), 0);
    }
    rig_open(rig, RIG_FILE_BYTES);
    rig_assert_stats(rig, 2000, 2000, 0);
}

/* It says that it is a catalogue, but its tables are others. */
static void wrong_tables_are_damage(void **state)
{
    struct catalogue_rig *rig = *state;

    rig->catalogue = pst_catalogue_close(rig->catalogue);
    execute(rig->path, "DROP TABLE sources; CREATE TABLE sources (a)");
    assert_refused(rig, -EBADMSG, "damaged");
}

static bool count_key(void *arg, const struct pst_key_info *key)
{
    (void)key;
    ++*(int *)arg;
    return true;
}

static void a_key_that_cannot_be_is_damage(void **state)
{
    struct catalogue_rig *rig = *state;
    int count = 0;

    assert_int_equal(rig_publish(rig, "a", "1", RIG_NOW), 0);
    assert_int_equal(rig_publish(rig, "b", "1", RIG_NOW), 0);
    rig->catalogue = pst_catalogue_close(rig->catalogue);
    execute(rig->path, "UPDATE keys SET key = zeroblob(100000) WHERE key = CAST('b' AS BLOB)");
    rig_open(rig, RIG_FILE_BYTES);
    assert_int_equal(pst_catalogue_list(rig->catalogue, rig_key(""), rig_key(""), count_key, &count),
                     -EBADMSG);
    assert_non_null(strstr(pst_error_text(), "100000 bytes"));
}

/* A start that was cut short before anything was written. */
static void an_empty_file_is_a_new_one(void **state)
{
    struct catalogue_rig *rig = *state;

    rig->catalogue = pst_catalogue_close(rig->catalogue);
    assert_int_equal(truncate(rig->path, 0), 0);
    rig_open(rig, RIG_FILE_BYTES);
    rig_assert_stats(rig, 0, 0, 0);
}

/* ---- its bound ---- */

static uint32_t fill(struct catalogue_rig *rig)
{
    uint32_t i = 0;
    int r = 0;

    while (r == 0) {
        char name[32];

        key_name(name, i);
        r = rig_publish(rig, name, "10.0.0.1", RIG_NOW);
        i += r == 0;
    }
    assert_int_equal(r, -ENOSPC);
    assert_non_null(strstr(pst_error_text(), rig->path));
    return i;
}

static void a_full_file_loses_nothing(void **state)
{
    enum { BYTES = 256 << 10 };
    struct catalogue_rig *rig = *state;
    uint64_t count = 0;
    struct stat st;
    uint32_t keys;
    char name[32];

    rig->catalogue = pst_catalogue_close(rig->catalogue);
    assert_int_equal(pst_catalogue_open(rig->path, 4096, &rig->catalogue), -EINVAL);
    rig_open(rig, BYTES);
    keys = fill(rig);
    assert_true(keys > 1500);
    rig_assert_stats(rig, keys, keys, 0);
    key_name(name, keys);
    assert_int_equal(rig_publish(rig, name, "10.0.0.1", RIG_NOW), -ENOSPC);
    assert_false(rig_has(rig, name));
    /* What makes room goes on. */
    assert_int_equal(pst_catalogue_delete(rig->catalogue, rig_key("key/000"), PST_DELETE_PREFIX, &count), 0);
    assert_int_equal(count, 1000);
    assert_int_equal(rig_publish(rig, "one/more", "1", RIG_NOW), 0);
    rig->catalogue = pst_catalogue_close(rig->catalogue);
    assert_int_equal(stat(rig->path, &st), 0);
    assert_true(st.st_size <= BYTES);
    rig_open(rig, BYTES / 4); /* less than it has */
    rig_assert_stats(rig, keys - 999, keys - 999, 0);
    assert_int_equal(pst_catalogue_expire(rig->catalogue, RIG_NOW + PST_SOURCE_LIFE_MS), keys - 999);
    rig_assert_stats(rig, 0, 0, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CATALOGUE_TEST(what_was_acknowledged_outlives_a_kill),
        CATALOGUE_TEST(a_file_is_one_process_s),
        CATALOGUE_TEST(strangers_are_refused),
        CATALOGUE_TEST(a_later_version_is_refused),
        CATALOGUE_TEST(an_earlier_version_is_taken_over),
        CATALOGUE_TEST(a_damaged_file_is_named),
        CATALOGUE_TEST(wrong_tables_are_damage),
        CATALOGUE_TEST(a_key_that_cannot_be_is_damage),
        CATALOGUE_TEST(an_empty_file_is_a_new_one),
        CATALOGUE_TEST(a_full_file_loses_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
