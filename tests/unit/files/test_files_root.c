/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/disk_rig.h"

#include "base/error.h"
#include "files/root.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/stat.h>

/* A root, and beside it a folder that no key may get at: "outside/kept/file". */
struct rig {
    char *folder;
    int root_fd, outside_fd;
    struct pst_root *root;
};

static void make_file(int at, const char *path)
{
    int fd = openat(at, path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

    assert_true(fd >= 0);
    assert_int_equal(write(fd, "12345", 5), 5);
    close(fd);
}

static int make_folder(int at, const char *path)
{
    int fd;

    assert_int_equal(mkdirat(at, path, 0700), 0);
    fd = openat(at, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(fd >= 0);
    return fd;
}

static bool is_there(int at, const char *path)
{
    struct stat st;

    return fstatat(at, path, &st, AT_SYMLINK_NOFOLLOW) == 0;
}

static int set_up(void **state)
{
    struct rig *rig = calloc(1, sizeof(*rig));
    char path[300];
    int fd;

    assert_non_null(rig);
    rig->folder = rig_folder();
    fd = open(rig->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(fd >= 0);
    rig->root_fd = make_folder(fd, "root");
    rig->outside_fd = make_folder(fd, "outside");
    close(fd);
    close(make_folder(rig->outside_fd, "kept"));
    make_file(rig->outside_fd, "kept/file");
    snprintf(path, sizeof(path), "%s/root", rig->folder);
    assert_int_equal(pst_root_open(path, &rig->root), 0);
    *state = rig;
    return 0;
}

static int tear_down(void **state)
{
    struct rig *rig = *state;

    assert_true(is_there(rig->outside_fd, "kept/file"));
    assert_null(pst_root_close(rig->root));
    close(rig->root_fd);
    close(rig->outside_fd);
    rig_remove(rig->folder);
    free(rig);
    return 0;
}

static void print_entry(void *arg, const struct pst_root_entry *entry)
{
    char *text = arg;

    snprintf(text + strlen(text), 1024 - strlen(text), "%s%s ", entry->name, entry->is_directory ? "/" : "");
}

static void assert_list(struct rig *rig, const char *key, const char *expected)
{
    char text[1024] = "";

    assert_int_equal(pst_root_list(rig->root, key, print_entry, text), 0);
    assert_string_equal(text, expected);
}

static void assert_remove(struct rig *rig, const char *key, bool recursive, int expected, uint64_t count)
{
    uint64_t removed = 0;

    assert_int_equal(pst_root_remove(rig->root, key, recursive, &removed), expected);
    assert_int_equal(removed, count);
}

static void assert_remove_prefix(struct rig *rig, const char *key, bool recursive, int expected,
                                 uint64_t count)
{
    uint64_t removed = 0;

    assert_int_equal(pst_root_remove_prefix(rig->root, key, recursive, &removed), expected);
    assert_int_equal(removed, count);
}

static void a_root_is_a_folder(void **state)
{
    struct rig *rig = *state;
    struct pst_root *root = NULL;
    char path[300];

    snprintf(path, sizeof(path), "%s/missing", rig->folder);
    assert_int_equal(pst_root_open(path, &root), -ENOENT);
    assert_non_null(strstr(pst_error_text(), path));
    snprintf(path, sizeof(path), "%s/outside/kept/file", rig->folder);
    assert_int_equal(pst_root_open(path, &root), -ENOTDIR);
    assert_null(root);
    assert_null(pst_root_close(NULL));
}

static void folders_come_before_files(void **state)
{
    struct rig *rig = *state;

    assert_list(rig, "", "");
    make_file(rig->root_fd, "b");
    make_file(rig->root_fd, ".hidden");
    make_file(rig->root_fd, "a");
    assert_int_equal(pst_root_mkdir(rig->root, "z/y/x"), 0);
    assert_int_equal(pst_root_mkdir(rig->root, "z/y"), 0);
    assert_int_equal(pst_root_mkdir(rig->root, "c"), 0);
    assert_int_equal(pst_root_mkdir(rig->root, ".d"), 0);
    assert_int_equal(symlinkat("z", rig->root_fd, "aa"), 0);
    assert_list(rig, "", "c/ z/ a aa b ");
    assert_list(rig, "z", "y/ ");
    assert_list(rig, "c", "");
    assert_int_equal(pst_root_list(rig->root, "a", print_entry, NULL), -ENOTDIR);
    assert_int_equal(pst_root_list(rig->root, "missing", print_entry, NULL), -ENOENT);
}

static void a_stat_is_of_the_entry(void **state)
{
    struct rig *rig = *state;
    struct pst_root_stat stat;

    make_file(rig->root_fd, "a");
    assert_int_equal(symlinkat("../outside", rig->root_fd, "link"), 0);
    assert_int_equal(pst_root_stat(rig->root, "", &stat), 0);
    assert_true(stat.is_directory && !stat.is_link && stat.bytes == 0);
    assert_int_equal(pst_root_stat(rig->root, "a", &stat), 0);
    assert_true(!stat.is_directory && !stat.is_link && stat.bytes == 5 && stat.modified_ms > 0);
    assert_int_equal(pst_root_stat(rig->root, "link", &stat), 0);
    assert_true(!stat.is_directory && stat.is_link);
    assert_int_equal(pst_root_stat(rig->root, "b", &stat), -ENOENT);
    assert_int_equal(pst_root_stat(rig->root, "a/b", &stat), -ENOTDIR);
}

static void keys_that_are_not_normal_are_refused(void **state)
{
    static const char *const wrong[] = {"..", "../outside/kept", "a/../../outside", "/etc", "a//b", "a/",
                                        "."};
    struct rig *rig = *state;
    struct pst_root_stat stat;

    for (size_t i = 0; i < pst_count_of(wrong); i++) {
        assert_int_equal(pst_root_list(rig->root, wrong[i], print_entry, NULL), -EINVAL);
        assert_int_equal(pst_root_stat(rig->root, wrong[i], &stat), -EINVAL);
        assert_int_equal(pst_root_mkdir(rig->root, wrong[i]), -EINVAL);
        assert_remove(rig, wrong[i], true, -EINVAL, 0);
        assert_remove_prefix(rig, wrong[i], true, -EINVAL, 0);
    }
    /* The root itself is made, but not removed. */
    assert_int_equal(pst_root_mkdir(rig->root, ""), 0);
    assert_remove(rig, "", true, -EINVAL, 0);
    assert_remove_prefix(rig, "", true, -EINVAL, 0);
}

static void links_are_not_followed(void **state)
{
    struct rig *rig = *state;
    struct pst_root_stat stat;

    assert_int_equal(symlinkat("../outside", rig->root_fd, "out"), 0);
    assert_int_equal(pst_root_mkdir(rig->root, "in/a"), 0);
    assert_int_equal(symlinkat("in", rig->root_fd, "link"), 0); /* even one that stays inside */
    assert_int_equal(symlinkat("/proc/self/root", rig->root_fd, "magic"), 0);
    for (const char *const *name = (const char *const[]){"out", "link", "magic", NULL}; *name; name++) {
        char key[64];

        snprintf(key, sizeof(key), "%s/kept", *name);
        assert_int_equal(pst_root_list(rig->root, *name, print_entry, NULL), -ELOOP);
        assert_int_equal(pst_root_list(rig->root, key, print_entry, NULL), -ELOOP);
        assert_int_equal(pst_root_stat(rig->root, key, &stat), -ELOOP);
        assert_int_equal(pst_root_mkdir(rig->root, *name), -ELOOP);
        assert_int_equal(pst_root_mkdir(rig->root, key), -ELOOP);
        assert_remove(rig, key, true, -ELOOP, 0);
        assert_remove_prefix(rig, key, true, -ELOOP, 0);
        assert_remove(rig, *name, false, 0, 1); /* the link itself */
    }
    assert_true(is_there(rig->root_fd, "in/a"));
}

static void a_folder_is_removed_with_what_it_has(void **state)
{
    struct rig *rig = *state;

    assert_int_equal(pst_root_mkdir(rig->root, "a/b/c"), 0);
    make_file(rig->root_fd, "a/.dot");
    make_file(rig->root_fd, "a/b/file");
    assert_int_equal(symlinkat("../../outside/kept", rig->root_fd, "a/link"), 0);
    assert_remove(rig, "a", false, -ENOTEMPTY, 0);
    assert_remove(rig, "missing", true, -ENOENT, 0);
    assert_remove(rig, "missing/a", true, -ENOENT, 0);
    assert_remove(rig, "a/b/file", false, 0, 1);
    assert_remove(rig, "a/b/c", false, 0, 1);
    assert_remove(rig, "a", true, 0, 4); /* .dot, b, link, a */
    assert_list(rig, "", "");
}

static void a_large_folder_is_removed(void **state)
{
    enum { FILES = 3000 }; /* more than a removal holds at a time */
    struct rig *rig = *state;
    char name[64];

    assert_int_equal(pst_root_mkdir(rig->root, "a"), 0);
    for (int i = 0; i < FILES; i++) {
        snprintf(name, sizeof(name), "a/%d", i);
        make_file(rig->root_fd, name);
    }
    assert_remove(rig, "a", true, 0, FILES + 1);
    assert_false(is_there(rig->root_fd, "a"));
}

/* @depth folders within each other, the first of them @first. */
static void make_deep(struct rig *rig, const char *first, uint32_t depth)
{
    int fd = make_folder(rig->root_fd, first), next;

    for (uint32_t i = 1; i < depth; i++) {
        next = make_folder(fd, "d");
        close(fd);
        fd = next;
    }
    close(fd);
}

static void no_folder_is_too_deep(void **state)
{
    const uint32_t depths[] = {PST_ROOT_DEPTH_MAX + 1, PST_ROOT_DEPTH_MAX + 2, 5 * PST_ROOT_DEPTH_MAX};
    struct rig *rig = *state;

    for (size_t i = 0; i < pst_count_of(depths); i++) {
        make_deep(rig, "deep", depths[i]);
        assert_remove(rig, "deep", true, 0, depths[i]);
    }
    assert_list(rig, "", "");
}

/* As another user than root, who may do anything. */
static void folders_without_rights_are_removed(void **state)
{
    enum { NOBODY = 65534 };
    struct rig *rig = *state;
    bool is_root = geteuid() == 0;

    if (is_root) {
        assert_int_equal(chmod(rig->folder, 0711), 0);
        assert_int_equal(fchown(rig->root_fd, NOBODY, NOBODY), 0);
        assert_int_equal(seteuid(NOBODY), 0);
    }
    assert_int_equal(pst_root_mkdir(rig->root, "key/in/deep"), 0);
    make_file(rig->root_fd, "key/in/file");
    make_file(rig->root_fd, "key/in/deep/file");
    assert_int_equal(fchmodat(rig->root_fd, "key/in/deep", 0, 0), 0);
    assert_int_equal(fchmodat(rig->root_fd, "key/in", 0555, 0), 0);
    assert_int_equal(fchmodat(rig->root_fd, "key", 0500, 0), 0);
    assert_remove(rig, "key/in", true, -EACCES, 0); /* which is in a folder that stays */
    assert_remove(rig, "key", true, 0, 5);
    if (is_root)
        assert_int_equal(seteuid(0), 0);
    assert_list(rig, "", "");
}

static void names_with_a_prefix_are_removed(void **state)
{
    struct rig *rig = *state;

    assert_int_equal(pst_root_mkdir(rig->root, "a/model1/x"), 0);
    assert_int_equal(pst_root_mkdir(rig->root, "a/model2"), 0);
    assert_int_equal(pst_root_mkdir(rig->root, "a/mode"), 0);
    make_file(rig->root_fd, "a/model3");
    assert_int_equal(symlinkat("../../outside/kept", rig->root_fd, "a/model4"), 0);
    assert_remove_prefix(rig, "a/none", true, 0, 0);
    assert_remove_prefix(rig, "b/none", true, -ENOENT, 0);
    assert_remove_prefix(rig, "a/model", false, -ENOTEMPTY, 3);
    assert_list(rig, "a", "mode/ model1/ ");
    assert_remove_prefix(rig, "a/model", true, 0, 2);
    assert_list(rig, "a", "mode/ ");
    assert_remove_prefix(rig, "a", true, 0, 2);
    assert_list(rig, "", "");
}

/* ---- another process that swaps folders for links ---- */

struct swapper {
    struct rig *rig;
    _Atomic bool stop;
    _Atomic uint64_t swaps;
};

/* "victim" is a folder with something in it, then a link to outside, then the folder again. */
static void *swap(void *arg)
{
    struct swapper *s = arg;
    int at = s->rig->root_fd;

    while (!atomic_load(&s->stop)) {
        mkdirat(at, "spare", 0700);
        mkdirat(at, "spare/kept", 0700);
        if (symlinkat("../outside", at, "link") < 0 && errno != EEXIST)
            break;
        renameat2(at, "spare", at, "victim", 0);
        renameat2(at, "victim", at, "link", RENAME_EXCHANGE);
        renameat2(at, "victim", at, "link", RENAME_EXCHANGE);
        atomic_fetch_add(&s->swaps, 1);
    }
    return NULL;
}

static void assert_one_of(int result, const int *allowed, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (result == allowed[i])
            return;
    }
    fail_msg("unexpected result %d", result);
}

static void note_outside(void *arg, const struct pst_root_entry *entry)
{
    if (strcmp(entry->name, "file") == 0)
        *(bool *)arg = true;
}

static void no_race_leaves_the_root(void **state)
{
    static const int allowed[] = {0, -ENOENT, -ELOOP, -ENOTDIR, -EAGAIN, -ENOTEMPTY};
    enum { ROUNDS = 300, SWAPS_MIN = 100 };
    struct swapper s = {.rig = *state};
    struct pst_root_stat stat;
    bool seen_outside = false;
    uint64_t removed = 0;
    pthread_t thread;

    assert_int_equal(pthread_create(&thread, NULL, swap, &s), 0);
    for (int i = 0; i < ROUNDS || (atomic_load(&s.swaps) < SWAPS_MIN && i < 10 * ROUNDS); i++) {
        const int results[] = {
            pst_root_mkdir(s.rig->root, "victim/kept/made"),
            pst_root_list(s.rig->root, "victim/kept", note_outside, &seen_outside),
            pst_root_stat(s.rig->root, "victim/kept/file", &stat),
            pst_root_remove(s.rig->root, "victim/kept/file", false, &removed),
            pst_root_remove(s.rig->root, "victim", true, &removed),
            pst_root_remove_prefix(s.rig->root, "victim/ke", true, &removed),
        };

        for (size_t k = 0; k < pst_count_of(results); k++)
            assert_one_of(results[k], allowed, pst_count_of(allowed));
        assert_int_not_equal(results[2], 0);
        assert_int_not_equal(results[3], 0);
    }
    atomic_store(&s.stop, true);
    pthread_join(thread, NULL);
    assert_false(seen_outside);
    assert_true(removed > 0 && atomic_load(&s.swaps) >= SWAPS_MIN);
    assert_false(is_there(s.rig->outside_fd, "kept/made"));
    assert_true(is_there(s.rig->outside_fd, "kept/file"));
}

#define ROOT_TEST(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        ROOT_TEST(a_root_is_a_folder),
        ROOT_TEST(folders_come_before_files),
        ROOT_TEST(a_stat_is_of_the_entry),
        ROOT_TEST(keys_that_are_not_normal_are_refused),
        ROOT_TEST(links_are_not_followed),
        ROOT_TEST(a_folder_is_removed_with_what_it_has),
        ROOT_TEST(a_large_folder_is_removed),
        ROOT_TEST(no_folder_is_too_deep),
        ROOT_TEST(folders_without_rights_are_removed),
        ROOT_TEST(names_with_a_prefix_are_removed),
        ROOT_TEST(no_race_leaves_the_root),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
