/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/cm.h"

#include "base/hash.h"
#include "mem/arena_priv.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>

/* Arenas that outlive their process; here what outlives them is the files, which is the same to a lock. */

static char folder[64];

static int make_folder(void **state)
{
    (void)state;
    strcpy(folder, access("/dev/shm", W_OK) == 0 ? "/dev/shm/pst-test-XXXXXX" : "/tmp/pst-test-XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static void remove_all(void)
{
    char command[128];

    snprintf(command, sizeof(command), "rm -f '%s'/*", folder);
    assert_int_equal(system(command), 0);
}

static int remove_folder(void **state)
{
    (void)state;
    remove_all();
    return rmdir(folder);
}

static struct pst_arena_options options_of(const char *name)
{
    return (struct pst_arena_options){.bytes = 6 << 20,
                                      .page_bytes = 128 << 10,
                                      .arena_bytes = 2 << 20,
                                      .folder = folder,
                                      .name = name,
                                      .prefault = true};
}

static struct pst_arenas open_kept(const char *name)
{
    struct pst_arena_options options = options_of(name);
    struct pst_arenas a;
    const char *fault = "";

    if (pst_arenas_open(&a, &options, &fault) < 0)
        fail_msg("%s", fault);
    return a;
}

static const char *path_of(const char *name, int arena)
{
    static char paths[4][256];
    static int at;
    char *path = paths[at++ % 4];

    snprintf(path, sizeof(paths[0]), "%s/penstock-%s-%d.kept", folder, name, arena);
    return path;
}

static void refused(struct pst_arena_options options, int error, const char *word)
{
    struct pst_arenas a = {.page_count = 77};
    const char *fault = "";
    int r = pst_arenas_open(&a, &options, &fault);

    if (r != error || !strstr(fault, word))
        fail_msg("%d instead of %d, or no '%s' in: %s", r, error, word, fault);
    assert_int_equal(a.page_count, 77);
}

/* Changes @bytes at @at of a file behind the back of penstock; negative: from the end. */
static void scribble(const char *path, off_t at, const void *data, size_t bytes)
{
    int fd = open(path, O_RDWR);
    struct stat st;

    assert_true(fd >= 0 && fstat(fd, &st) == 0);
    assert_int_equal(pwrite(fd, data, bytes, at < 0 ? st.st_size + at : at), bytes);
    close(fd);
}

static void memory_outlives(void **state)
{
    struct pst_arenas a = open_kept("n"), b;
    uint64_t seeds[2] = {a.seeds[0], a.seeds[1]};
    struct stat st;
    uint8_t byte;

    (void)state;
    assert_false(a.taken_up);
    assert_int_equal(a.arena_count, 3);
    assert_int_equal(*(uint64_t *)pst_arenas_notes(&a), 0);
    for (uint32_t i = 0; i < 3; i++) {
        a.base[i * a.stride + 5000] = (uint8_t)(10 + i);
        assert_string_equal(a.paths[i], path_of("n", (int)i));
    }
    pst_page_desc(&a, 40)->kind = PST_PAGE_EXTENT;
    memset(pst_arenas_notes(&a), 0xab, PST_ARENA_NOTES_BYTES);
    pst_arenas_close(&a);
    assert_int_equal(stat(path_of("n", 2), &st), 0);
    assert_int_equal(st.st_mode & 07777, 0600);

    b = open_kept("n");
    assert_true(b.taken_up);
    assert_memory_equal(b.seeds, seeds, sizeof(seeds));
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(b.base[i * b.stride + 5000], 10 + i);
        assert_int_equal(pread(b.fds_readonly[i], &byte, 1, 5000), 1);
        assert_int_equal(byte, 10 + i);
        assert_int_equal(pwrite(b.fds_readonly[i], &byte, 1, 5000), -1);
    }
    assert_int_equal(pst_page_desc(&b, 40)->kind, PST_PAGE_EXTENT);
    for (size_t i = 0; i < PST_ARENA_NOTES_BYTES; i++)
        assert_int_equal(((uint8_t *)pst_arenas_notes(&b))[i], 0xab);
    assert_true(pst_arena_header_ok(pst_arena_header(&b, 1)));
    pst_arenas_close(&b);
    remove_all();
}

/* By who is still there, by a sweep of files that were left, and by another name. */
static void nobody_takes_it_from_another(void **state)
{
    struct pst_arenas a = open_kept("n"), b;
    struct pst_arena_options other = options_of(NULL);
    const char *fault = "";
    char pid[32];

    (void)state;
    snprintf(pid, sizeof(pid), "by process %d", (int)getpid());
    refused(options_of("n"), -EBUSY, pid);
    refused(options_of("n"), -EBUSY, path_of("n", 0));
    b = open_kept("n-0");
    assert_false(b.taken_up);
    pst_arenas_close(&a);
    pst_arenas_close(&b);
    assert_int_equal(pst_arenas_open(&a, &other, &fault), 0); /* sweeps */
    pst_arenas_close(&a);
    a = open_kept("n");
    assert_true(a.taken_up);
    pst_arenas_close(&a);
    remove_all();
}

static void other_sizes_are_refused(void **state)
{
    struct pst_arenas a = open_kept("n");
    struct pst_arena_options o = options_of("n");

    (void)state;
    pst_arenas_close(&a);
    o.bytes = 4 << 20;
    refused(o, -EINVAL, "of 3 arenas of 16 pages of 128 KiB, asked for are 2 of 16 of 128 KiB");
    o = options_of("n");
    o.page_bytes = 64 << 10;
    refused(o, -EINVAL, "asked for are 3 of 32 of 64 KiB");
    o = options_of("n");
    o.arena_bytes = 0;
    o.bytes = 3 << 20;
    refused(o, -EINVAL, "same dram, page_size and arena_size");
    o = options_of("n");
    o.bytes += 100; /* the same, rounded down to pages */
    assert_int_equal(pst_arenas_open(&a, &o, &(const char *){0}), 0);
    assert_true(a.taken_up);
    pst_arenas_close(&a);
    remove_all();
}

static void bad_names_are_refused(void **state)
{
    static const char *const names[] = {"", "a/b", "../x", "a b", "\xc3\xa4"};
    struct pst_arena_options o;
    char long_name[80] = "";

    (void)state;
    for (size_t i = 0; i < pst_count_of(names); i++)
        refused(options_of(names[i]), -EINVAL, "name");
    memset(long_name, 'x', 65);
    refused(options_of(long_name), -EINVAL, "64 letters");
    o = options_of("n");
    o.folder = NULL;
    refused(o, -EINVAL, "folder");
}

/* Each file is refused as long as it is there, and is as it was afterwards. */
static void foreign_files_are_refused(void **state)
{
    const struct {
        const char *command, *word;
        int error;
    } cases[] = {
        {"echo a text that is no arena >$f", "not an arena", -EBADMSG},
        {"head -c 100000 /dev/urandom >$f", "not an arena", -EBADMSG},
        {": >$f", "not an arena", -EBADMSG},
        {"ln -s /dev/null $f", "symbolic link", -ELOOP},
        {"mkfifo -m 600 $f", "not a file", -EPERM},
        {"touch $f; chmod 640 $f", "no other may use", -EPERM},
        {"mkdir $f", "directory", -EISDIR},
    };

    (void)state;
    for (size_t i = 0; i < pst_count_of(cases); i++) {
        char command[600];

        snprintf(command, sizeof(command), "umask 077; f='%s'; %s", path_of("n", 0), cases[i].command);
        assert_int_equal(system(command), 0);
        refused(options_of("n"), cases[i].error, cases[i].word);
        refused(options_of("n"), cases[i].error, cases[i].word); /* it has not been touched */
        snprintf(command, sizeof(command), "rm -rf '%s'", path_of("n", 0));
        assert_int_equal(system(command), 0);
    }
}

static void damaged_sets_are_refused(void **state)
{
    struct pst_arena_header h, other;
    struct pst_arenas a = open_kept("n"), b = open_kept("m");
    uint32_t version = PST_ARENA_VERSION + 1;

    (void)state;
    h = *pst_arena_header(&a, 0);
    other = *pst_arena_header(&b, 1);
    pst_arenas_close(&a);
    pst_arenas_close(&b);
    scribble(path_of("n", 0), -4096 + (off_t)offsetof(struct pst_arena_header, version), &version, 4);
    refused(options_of("n"), -EPROTONOSUPPORT, "layout version 4, this program knows 3");
    scribble(path_of("n", 0), -4096, &h, sizeof(h));
    scribble(path_of("n", 0), -4096 + (off_t)offsetof(struct pst_arena_header, seeds), &version, 4);
    refused(options_of("n"), -EBADMSG, "damaged");
    scribble(path_of("n", 0), -4096, &h, sizeof(h));
    scribble(path_of("n", 1), -4096, &other, sizeof(other));
    refused(options_of("n"), -EBADMSG, "belongs to other arenas");
    assert_int_equal(unlink(path_of("n", 1)), 0);
    refused(options_of("n"), -EBADMSG, "-1.kept: is missing");
    assert_int_equal(unlink(path_of("m", 0)), 0);
    refused(options_of("m"), -EBADMSG, "first arena of its name is gone");
    assert_int_equal(access(path_of("m", 0), F_OK), -1);
    remove_all();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_outlives),           cmocka_unit_test(nobody_takes_it_from_another),
        cmocka_unit_test(other_sizes_are_refused),   cmocka_unit_test(bad_names_are_refused),
        cmocka_unit_test(foreign_files_are_refused), cmocka_unit_test(damaged_sets_are_refused),
    };

    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
