/* SPDX-License-Identifier: Apache-2.0 */
/* test_rsyncd.c: the real rsync's daemon as ours keeps it, asked by the real rsync. */
#include "files/rsync/rsyncd.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <cmocka.h>

enum { TEXT_BYTES = 4096, COMMAND_S_MAX = 20 };

#define TOKEN "a-token;of:signs#and%more"

struct world {
    char folder[64];
    struct pst_rsyncd *daemon;
};

static char said[TEXT_BYTES]; /* by the last command */

/* Return: the exit status of a shell's command, in the world's folder. */
static int __attribute__((format(printf, 2, 3))) shell(const struct world *world, const char *format, ...)
{
    char command[TEXT_BYTES], line[2 * TEXT_BYTES];
    va_list arguments;
    size_t n;
    FILE *out;

    va_start(arguments, format);
    vsnprintf(command, sizeof(command), format, arguments);
    va_end(arguments);
    snprintf(line, sizeof(line), "cd %s && (timeout %d %s) 2>&1 </dev/null", world->folder, COMMAND_S_MAX,
             command);
    out = popen(line, "r");
    assert_non_null(out);
    n = fread(said, 1, sizeof(said) - 1, out);
    said[n] = 0;
    return WEXITSTATUS(pclose(out));
}

#define assert_shell(world, wanted, ...)                                                                     \
    do {                                                                                                     \
        int got_ = shell(world, __VA_ARGS__);                                                                \
        if (got_ != (wanted))                                                                                \
            print_message("# exit %d, not %d: %s\n", got_, wanted, said);                                    \
        assert_int_equal(got_, wanted);                                                                      \
    } while (0)

static void log_line(void *ctx, const char *line)
{
    (void)ctx;
    print_message("# %s\n", line);
}

static struct world begin(const char *token)
{
    struct world world = {.folder = "/tmp/penstock-rsyncd-XXXXXX"};
    char settings[128], fault[PST_FAULT_BYTES] = "";
    struct pst_rsyncd_settings wanted = {
        .folder = settings, .host = "127.0.0.1", .token = {token, strlen(token)}, .log = log_line};

    assert_non_null(mkdtemp(world.folder));
    snprintf(settings, sizeof(settings), "%s/daemon", world.folder);
    assert_shell(&world, 0, "mkdir source 'empty %%a%% folder'");
    assert_shell(&world, 0,
                 "sh -c 'echo one > source/1; ln -s /etc/passwd source/link; echo two > source/2'");
    if (pst_rsyncd_open(&wanted, &world.daemon, fault) != 0)
        fail_msg("%s", fault);
    assert_int_not_equal(pst_rsyncd_port(world.daemon), 0);
    return world;
}

static void end(struct world *world)
{
    unsigned port = pst_rsyncd_port(world->daemon);

    world->daemon = pst_rsyncd_close(world->daemon);
    assert_shell(world, 1, "pgrep -f -- '[-]-config=%s/daemon/rsyncd.conf'", world->folder);
    assert_shell(world, 0, "sh -c 'test -z \"$(ls -A daemon)\"'");
    assert_shell(world, 10, "rsync rsync://127.0.0.1:%u/", port);
    assert_shell(world, 0, "rm -rf %s", world->folder);
}

static int offer(struct world *world, const char *name, const char *folder, bool writable)
{
    char path[256];

    snprintf(path, sizeof(path), "%s/%s", world->folder, folder);
    return pst_rsyncd_add(world->daemon, name, path, writable);
}

static void modules_come_and_go(void **state)
{
    struct world world = begin("");
    unsigned port = pst_rsyncd_port(world.daemon);

    (void)state;
    assert_shell(&world, 5, "rsync -a rsync://127.0.0.1:%u/data/ got/", port); /* no such module */
    assert_int_equal(offer(&world, "data", "source", false), 0);
    assert_int_equal(offer(&world, "data", "source", false), -EEXIST);
    assert_int_equal(offer(&world, "in", "empty %a% folder", true), 0);
    assert_shell(&world, 0, "rsync -a rsync://127.0.0.1:%u/data/ got/", port);
    assert_shell(&world, 0, "diff -r --no-dereference source got");
    assert_shell(&world, 0, "rsync -a source/ rsync://127.0.0.1:%u/in/deep/", port);
    assert_shell(&world, 0, "sh -c 'diff -r --no-dereference source \"empty %%a%% folder/deep\"'");
    assert_int_equal(pst_rsyncd_remove(world.daemon, "data"), 0);
    assert_int_equal(pst_rsyncd_remove(world.daemon, "data"), -ENOENT);
    assert_shell(&world, 5, "rsync -a rsync://127.0.0.1:%u/data/ got/", port);
    assert_shell(&world, 0, "rsync -a rsync://127.0.0.1:%u/in/deep/ again/", port);
    end(&world);
}

static void nothing_but_the_module_is_reached(void **state)
{
    struct world world = begin("");
    unsigned port = pst_rsyncd_port(world.daemon);

    (void)state;
    assert_int_equal(offer(&world, "data", "source", false), 0);
    assert_int_equal(offer(&world, "in", "empty %a% folder", true), 0);
    assert_int_not_equal(shell(&world, "rsync -a source/1 rsync://127.0.0.1:%u/data/x", port), 0);
    assert_shell(&world, 1, "test -e source/x");
    assert_int_not_equal(shell(&world, "rsync -a rsync://127.0.0.1:%u/data/../daemon/ out/", port), 0);
    assert_shell(&world, 1, "test -e out/rsyncd.conf");
    shell(&world, "rsync -a source/1 rsync://127.0.0.1:%u/in/../../escaped", port);
    assert_shell(&world, 1, "test -e escaped");
    assert_shell(&world, 0, "ln -s %s 'empty %%a%% folder/out'", world.folder);
    shell(&world, "rsync -a source/1 rsync://127.0.0.1:%u/in/out/escaped", port);
    assert_shell(&world, 1, "test -e escaped");
    end(&world);
}

/* Of a tree on its way into the folder rsync sees nothing, and a mirror removes nothing of it. */
static void what_is_arriving_is_left_alone(void **state)
{
    struct world world = begin("");
    unsigned port = pst_rsyncd_port(world.daemon);

    (void)state;
    assert_int_equal(offer(&world, "in", "empty %a% folder", true), 0);
    assert_shell(&world, 0,
                 "sh -c 'cd empty*; mkdir -p a/.penstock-t.tree/tree; echo 1 > a/.penstock-t.tree/tree/1'");
    assert_int_not_equal(
        shell(&world, "rsync -l source/link rsync://127.0.0.1:%u/in/a/.penstock-t.tree/tree/", port), 0);
    shell(&world, "rsync -a rsync://127.0.0.1:%u/in/a/.penstock-t.tree/tree/1 got/", port);
    shell(&world, "rsync -a rsync://127.0.0.1:%u/in/ got/", port);
    assert_shell(&world, 0, "sh -c 'test -z \"$(find got -name 1)\"'");
    assert_shell(&world, 0, "rsync -a --delete source/ rsync://127.0.0.1:%u/in/a/", port);
    assert_shell(&world, 0, "sh -c 'test \"$(ls -A empty*/a/.penstock-t.tree/tree)\" = 1'");
    assert_shell(&world, 0, "rsync -a --partial-dir=.penstock-partial source/ rsync://127.0.0.1:%u/in/b/",
                 port);
    assert_shell(&world, 0, "sh -c 'diff -r --no-dereference source empty*/b'");
    end(&world);
}

/* The disk is full just then: a module that was withdrawn serves nothing, and those to come are not in its
 * way. */
static void a_module_goes_though_nothing_can_be_written(void **state)
{
    const struct rlimit none = {.rlim_max = RLIM_INFINITY};
    struct world world = begin("");
    unsigned port = pst_rsyncd_port(world.daemon);
    struct rlimit old;
    int removed, added;

    (void)state;
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(offer(&world, "data", "source", false), 0);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &none), 0);
    removed = pst_rsyncd_remove(world.daemon, "data");
    added = offer(&world, "other", "source", false);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    assert_int_not_equal(shell(&world, "rsync -a rsync://127.0.0.1:%u/data/ got/", port), 0);
    assert_shell(&world, 1, "test -e got/1");
    assert_int_equal(removed, 0);
    assert_int_equal(added, -EIO);
    assert_int_equal(pst_rsyncd_remove(world.daemon, "data"), -ENOENT);
    assert_int_equal(offer(&world, "other", "source", false), 0);
    assert_shell(&world, 5, "rsync -a rsync://127.0.0.1:%u/data/ got/", port); /* no such module */
    assert_shell(&world, 0, "rsync -a rsync://127.0.0.1:%u/other/ got/", port);
    end(&world);
}

static void a_token_is_asked_for(void **state)
{
    struct world world = begin(TOKEN);
    unsigned port = pst_rsyncd_port(world.daemon);

    (void)state;
    assert_int_equal(offer(&world, "data", "source", false), 0);
    assert_shell(&world, 5, "rsync -a rsync://127.0.0.1:%u/data/ got/", port);
    assert_shell(&world, 5, "env RSYNC_PASSWORD=wrong rsync -a rsync://penstock@127.0.0.1:%u/data/ got/",
                 port);
    assert_shell(&world, 0, "env 'RSYNC_PASSWORD=%s' rsync -a rsync://penstock@127.0.0.1:%u/data/ got/",
                 TOKEN, port);
    assert_shell(&world, 0, "diff -r --no-dereference source got");
    end(&world);
}

/* The process that listens, whose child each connection is. */
static pid_t daemon_of(const struct world *world)
{
    assert_shell(world, 0, "pgrep -o -f -- --config=%s/daemon/rsyncd.conf", world->folder);
    return (pid_t)strtol(said, NULL, 10);
}

static void a_daemon_that_died_is_started_again(void **state)
{
    struct world world = begin("");
    unsigned port = pst_rsyncd_port(world.daemon);
    int tries = 0;

    (void)state;
    assert_int_equal(offer(&world, "data", "source", false), 0);
    assert_int_equal(kill(daemon_of(&world), SIGKILL), 0);
    while (shell(&world, "rsync -a rsync://127.0.0.1:%u/data/ got/", port) != 0 && tries++ < 100)
        usleep(100000);
    assert_true(tries < 100);
    assert_true(pst_rsyncd_restarts(world.daemon) >= 1);
    end(&world);
}

/* Which go on for a while, as each is a process. */
static void connections_end_with_their_daemon(void **state)
{
    struct world world = begin("");
    unsigned port = pst_rsyncd_port(world.daemon);
    int tries = 0;

    (void)state;
    assert_int_equal(offer(&world, "data", "source", false), 0);
    assert_shell(&world, 0, "truncate -s 64M source/large");
    assert_shell(&world, 0, "sh -c 'rsync -a --bwlimit=1000 rsync://127.0.0.1:%u/data/ got/ >out 2>&1 &'",
                 port);
    while (shell(&world, "sh -c 'ls got/.large.*'") != 0 && tries++ < 100)
        usleep(100000);
    assert_true(tries < 100);
    assert_int_equal(kill(daemon_of(&world), SIGKILL), 0);
    for (tries = 0; pst_rsyncd_restarts(world.daemon) == 0 && tries < 100; tries++)
        usleep(100000);
    end(&world); /* which looks for processes */
}

/* A lock file has the name of no other module's link. */
static void names_of_files_do_not_meet(void **state)
{
    struct world world = begin("");
    unsigned port = pst_rsyncd_port(world.daemon);

    (void)state;
    assert_int_equal(offer(&world, "a.lock", "source", false), 0);
    assert_int_equal(offer(&world, "to-a", "source", false), 0);
    assert_int_equal(pst_rsyncd_remove(world.daemon, "to-a"), 0);
    assert_shell(&world, 0, "rsync -a rsync://127.0.0.1:%u/a.lock/ got/", port);
    end(&world);
}

static void names_and_paths_that_cannot_be(void **state)
{
    static const char *const names[] = {
        "",   "a b",    "a/b",
        "a]", "global", "Global",
        ".a", "a\n",    "a0123456789012345678901234567890123456789012345678901234567890123"};
    struct world world = begin("");

    (void)state;
    for (size_t i = 0; i < pst_count_of(names); i++)
        assert_int_equal(offer(&world, names[i], "source", false), -EINVAL);
    assert_int_equal(pst_rsyncd_add(world.daemon, "a", "relative", false), -EINVAL);
    assert_int_equal(pst_rsyncd_add(world.daemon, "a", "/tmp\n[b]\npath = /", false), -ENOENT);
    assert_int_equal(offer(&world, "a", "nothing", false), -ENOENT);
    assert_int_equal(pst_rsyncd_add(world.daemon, "a", "/dev/null", false), -ENOTDIR);
    assert_int_equal(offer(&world, "a", "source/1", false), 0);
    end(&world);
}

/* rsync reads two sections whose names differ in case as one: the first would have the second's rights. */
static void names_of_one_case_are_one(void **state)
{
    struct world world = begin("");
    unsigned port = pst_rsyncd_port(world.daemon);

    (void)state;
    assert_int_equal(offer(&world, "data", "source", false), 0);
    assert_int_equal(offer(&world, "Data", "empty %a% folder", true), -EEXIST);
    assert_int_not_equal(shell(&world, "rsync -a source/1 rsync://127.0.0.1:%u/data/new", port), 0);
    assert_shell(&world, 0, "rsync -a rsync://127.0.0.1:%u/data/ got/", port);
    end(&world);
}

static void a_folder_has_one_daemon(void **state)
{
    struct world world = begin("");
    unsigned port = pst_rsyncd_port(world.daemon);
    char folder[128], fault[PST_FAULT_BYTES];
    struct pst_rsyncd_settings wanted = {.folder = folder, .host = "127.0.0.1"};
    struct pst_rsyncd *none;

    (void)state;
    snprintf(folder, sizeof(folder), "%s/daemon", world.folder);
    assert_int_equal(offer(&world, "data", "source", false), 0);
    assert_int_equal(pst_rsyncd_open(&wanted, &none, fault), -EBUSY);
    assert_non_null(strstr(fault, "another"));
    assert_shell(&world, 0, "rsync -a rsync://127.0.0.1:%u/data/ got/", port);
    end(&world);
}

/* Nor does a daemon that could not be opened remove what it has not written. */
static void files_of_others_stay(void **state)
{
    struct world world = begin("");
    char folder[128], fault[PST_FAULT_BYTES];
    struct pst_rsyncd_settings wanted = {
        .folder = folder, .host = "127.0.0.1", .port = pst_rsyncd_port(world.daemon)};
    struct pst_rsyncd *none;

    (void)state;
    snprintf(folder, sizeof(folder), "%s/mine", world.folder);
    assert_shell(&world, 0, "sh -c 'mkdir -m 700 mine; echo a > mine/output; echo b > mine/secrets'");
    assert_int_equal(pst_rsyncd_open(&wanted, &none, fault), -EADDRINUSE);
    assert_shell(&world, 0, "cat mine/output mine/secrets");
    end(&world);
}

static void what_cannot_be_opened_is_named(void **state)
{
    struct world world = begin("");
    char folder[128], fault[PST_FAULT_BYTES];
    struct pst_rsyncd_settings wanted = {
        .folder = folder, .host = "127.0.0.1", .port = pst_rsyncd_port(world.daemon)};
    struct pst_rsyncd *none;

    (void)state;
    snprintf(folder, sizeof(folder), "%s/second", world.folder);
    assert_int_equal(pst_rsyncd_open(&wanted, &none, fault), -EADDRINUSE);
    assert_non_null(strstr(fault, "in use"));
    wanted.port = 0;
    wanted.token = (struct pst_bytes){"two words", 9};
    assert_int_equal(pst_rsyncd_open(&wanted, &none, fault), -EINVAL);
    assert_non_null(strstr(fault, "token"));
    wanted.token.len = 0;
    snprintf(folder, sizeof(folder), "%s/a%%b", world.folder);
    assert_int_equal(pst_rsyncd_open(&wanted, &none, fault), -EINVAL);
    snprintf(folder, sizeof(folder), "%s/none/second", world.folder);
    assert_int_equal(pst_rsyncd_open(&wanted, &none, fault), -ENOENT);
    snprintf(folder, sizeof(folder), "%s/open", world.folder);
    assert_int_equal(mkdir(folder, 0777), 0);
    assert_int_equal(chmod(folder, 0777), 0);
    assert_int_equal(pst_rsyncd_open(&wanted, &none, fault), -EPERM);
    end(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(modules_come_and_go),
        cmocka_unit_test(nothing_but_the_module_is_reached),
        cmocka_unit_test(what_is_arriving_is_left_alone),
        cmocka_unit_test(a_module_goes_though_nothing_can_be_written),
        cmocka_unit_test(a_token_is_asked_for),
        cmocka_unit_test(a_daemon_that_died_is_started_again),
        cmocka_unit_test(connections_end_with_their_daemon),
        cmocka_unit_test(names_of_files_do_not_meet),
        cmocka_unit_test(names_and_paths_that_cannot_be),
        cmocka_unit_test(names_of_one_case_are_one),
        cmocka_unit_test(a_folder_has_one_daemon),
        cmocka_unit_test(files_of_others_stay),
        cmocka_unit_test(what_cannot_be_opened_is_named),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
