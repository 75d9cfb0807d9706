/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/cm.h"

#include "mem/arena_priv.h"
#include "mem/limit.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>

static char folder[64];

static int make_folder(void **state)
{
    (void)state;
    strcpy(folder, access("/dev/shm", W_OK) == 0 ? "/dev/shm/pst-test-XXXXXX" : "/tmp/pst-test-XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    (void)state;
    return rmdir(folder); /* fails when an arena was left behind */
}

static int entry_count(const char *path)
{
    DIR *d = opendir(path);
    int n = -2; /* . and .. */

    assert_non_null(d);
    while (readdir(d))
        n++;
    closedir(d);
    return n;
}

static struct pst_arenas open_arenas(struct pst_arena_options options)
{
    struct pst_arenas a;
    const char *fault = "";

    if (pst_arenas_open(&a, &options, &fault) < 0)
        fail_msg("%s", fault);
    return a;
}

static uint64_t resident_bytes(void *base, uint64_t bytes)
{
    uint8_t *resident = malloc(bytes / 4096);
    uint64_t count = 0;

    assert_int_equal(mincore(base, bytes, resident), 0);
    for (uint64_t i = 0; i < bytes / 4096; i++)
        count += resident[i] & 1;
    free(resident);
    return count * 4096;
}

static void anonymous_memory(void **state)
{
    struct pst_arenas a = open_arenas((struct pst_arena_options){
        .bytes = 65 << 20, .page_bytes = 2 << 20, .arena_bytes = 16 << 20, .prefault = true});

    (void)state;
    assert_int_equal(a.arena_count, 4);
    assert_int_equal(a.arena_pages, 8);
    assert_int_equal(a.page_count, 32);
    assert_int_equal(a.stride, 18 << 20);
    assert_int_equal((uintptr_t)a.base % (2 << 20), 0);
    assert_true(a.fds[0] >= 0);
    assert_int_equal(a.paths[0][0], 0);
    assert_int_equal(resident_bytes(a.base, a.stride * a.arena_count), a.stride * a.arena_count);
    for (uint32_t p = 0; p < a.page_count; p++) {
        assert_int_equal(pst_offset_page(&a, pst_page_offset(&a, p)), p);
        assert_int_equal(pst_offset_page(&a, pst_page_offset(&a, p) + a.page_bytes - 1), p);
        assert_int_equal(a.base[pst_page_offset(&a, p)], 0);
        a.base[pst_page_offset(&a, p) + a.page_bytes - 1] = 1;
    }
    pst_arenas_close(&a);
    assert_null(a.base);
    pst_arenas_close(&a);
    pst_arenas_close(NULL);
}

/* A node that was killed could not unlink: its files hold no lock any more. */
static void left_files_are_swept(void **state)
{
    char left[64], kept[64];
    int fd, locked;

    (void)state;
    snprintf(left, sizeof(left), "/dev/shm/penstock-1-%d-0.arena", getpid());
    snprintf(kept, sizeof(kept), "/dev/shm/penstock-2-%d-0.arena", getpid());
    fd = open(left, O_RDWR | O_CREAT | O_EXCL, 0600);
    locked = open(kept, O_RDWR | O_CREAT | O_EXCL, 0600);
    assert_true(fd >= 0 && locked >= 0);
    assert_int_equal(flock(locked, LOCK_EX), 0);
    close(fd);
    struct pst_arenas a = open_arenas(
        (struct pst_arena_options){.bytes = 1 << 20, .page_bytes = 64 << 10, .folder = "/dev/shm"});
    pst_arenas_close(&a);
    assert_int_equal(access(left, F_OK), -1);
    assert_int_equal(access(kept, F_OK), 0);
    close(locked);
    unlink(kept);
}

static void pages_are_divided_equally(void **state)
{
    struct pst_arenas a = open_arenas((struct pst_arena_options){
        .bytes = 11 * 196608 + 5, .page_bytes = 196608, .arena_bytes = 4 * 196608});

    (void)state;
    assert_int_equal(a.arena_count, 3);
    assert_int_equal(a.arena_pages, 3);
    assert_int_equal(a.stride % a.page_bytes, 0);
    pst_arenas_close(&a);

    a = open_arenas((struct pst_arena_options){.bytes = 64 << 20, .page_bytes = 64 << 20});
    assert_int_equal(a.page_count, 1); /* however many NUMA nodes */
    assert_int_equal((uintptr_t)a.base % (64 << 20), 0);
    pst_arenas_close(&a);
}

static void files_are_private_and_go(void **state)
{
    struct pst_arenas a = open_arenas((struct pst_arena_options){.bytes = 12 << 20,
                                                                 .page_bytes = 1536 << 10,
                                                                 .arena_bytes = 6 << 20,
                                                                 .folder = folder,
                                                                 .prefault = true});

    (void)state;
    assert_int_equal(a.arena_count, 2);
    assert_int_equal(entry_count(folder), 2);
    assert_string_not_equal(a.paths[0], a.paths[1]);
    for (uint32_t i = 0; i < a.arena_count; i++) {
        struct stat st;
        char pid[16];

        assert_int_equal(stat(a.paths[i], &st), 0);
        assert_int_equal(st.st_mode & 07777, 0600);
        assert_int_equal(st.st_size, a.stride);
        assert_true((uint64_t)st.st_blocks * 512 >= a.stride); /* all there before first use */
        snprintf(pid, sizeof(pid), "-%d-", (int)getpid());
        assert_non_null(strstr(a.paths[i], pid));
        assert_int_equal(fcntl(a.fds[i], F_GETFL) & O_ACCMODE, O_RDWR);
        assert_true(fcntl(a.fds[i], F_GETFD) & FD_CLOEXEC);
        assert_true(fcntl(a.fds_readonly[i], F_GETFD) & FD_CLOEXEC);
    }
    pst_arenas_close(&a);
    assert_int_equal(entry_count(folder), 0);
}

/* What this process maps with huge pages of files in memory. */
static long huge_kib(void)
{
    FILE *f = fopen("/proc/self/smaps_rollup", "re");
    char line[256];
    long kib = 0;

    assert_non_null(f);
    while (fgets(line, sizeof(line), f))
        sscanf(line, "ShmemPmdMapped: %ld kB", &kib);
    fclose(f);
    return kib;
}

/* Whether this system makes a huge page of a small one. */
static bool makes_huge_pages(void)
{
    struct pst_arenas a =
        open_arenas((struct pst_arena_options){.bytes = 2 << 20, .page_bytes = 2 << 20, .folder = folder});
    int r;

    a.base[0] = 1;
    r = madvise(a.base, 2 << 20, 25 /* MADV_COLLAPSE */);
    pst_arenas_close(&a);
    return r == 0;
}

static void filled_arenas_have_huge_pages(void **state)
{
    struct pst_arenas a;

    (void)state;
    if (!makes_huge_pages())
        skip();
    assert_int_equal(huge_kib(), 0);
    a = open_arenas((struct pst_arena_options){
        .bytes = 40 << 20, .page_bytes = 2 << 20, .folder = folder, .prefault = true});
    assert_true(huge_kib() > 0);
    for (uint64_t i = 0; i < a.arena_pages * a.page_bytes; i += 4096)
        assert_int_equal(a.base[i], 0);
    pst_arenas_close(&a);
}

static void readonly_descriptors_are(void **state)
{
    struct pst_arenas a =
        open_arenas((struct pst_arena_options){.bytes = 1 << 20, .page_bytes = 64 << 10, .folder = folder});
    int fd = a.fds_readonly[0];
    uint8_t byte = 1;
    uint8_t *seen;

    (void)state;
    assert_int_equal(fcntl(fd, F_GETFL) & O_ACCMODE, O_RDONLY);
    assert_int_equal(pwrite(fd, &byte, 1, 0), -1);
    assert_int_equal(ftruncate(fd, 0), -1);
    assert_ptr_equal(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), MAP_FAILED);
    seen = mmap(NULL, a.stride, PROT_READ, MAP_SHARED, fd, 0);
    assert_ptr_not_equal(seen, MAP_FAILED);
    assert_int_equal(mprotect(seen, 4096, PROT_READ | PROT_WRITE), -1);
    a.base[70000] = 42;
    assert_int_equal(seen[70000], 42);
    munmap(seen, a.stride);
    pst_arenas_close(&a);
}

/* Read from the file alone, as a later process would. */
static void trailer_tells_what_pages_held(void **state)
{
    struct pst_arenas a = open_arenas((struct pst_arena_options){
        .bytes = 4 << 20, .page_bytes = 128 << 10, .arena_bytes = 2 << 20, .folder = folder});
    struct pst_arena_header h[2];
    struct pst_page_desc desc;

    (void)state;
    pst_page_desc(&a, 18)->kind = PST_PAGE_EXTENT;
    pst_page_desc(&a, 31)->kind = PST_PAGE_SLAB;
    for (uint32_t i = 0; i < 2; i++) {
        struct stat st;

        assert_int_equal(fstat(a.fds_readonly[i], &st), 0);
        assert_int_equal(pread(a.fds_readonly[i], &h[i], sizeof(h[i]), st.st_size - 4096), sizeof(h[i]));
        assert_true(pst_arena_header_ok(&h[i]));
        assert_memory_equal(&h[i], pst_arena_header(&a, i), sizeof(h[i]));
        assert_int_equal(h[i].arena_index, i);
        assert_int_equal(h[i].arena_count, 2);
        assert_int_equal(h[i].arena_pages, 16);
        assert_int_equal(h[i].page_bytes, 128 << 10);
        assert_int_equal(h[i].stride, st.st_size);
    }
    assert_true(h[0].set_id == h[1].set_id);
    for (uint32_t p = 0; p < a.page_count; p++) {
        off_t at = (off_t)(a.arena_pages * a.page_bytes + p % 16 * sizeof(desc));

        assert_int_equal(pread(a.fds_readonly[p / 16], &desc, sizeof(desc), at), sizeof(desc));
        assert_int_equal(desc.kind, p == 18 ? PST_PAGE_EXTENT : p == 31 ? PST_PAGE_SLAB : PST_PAGE_FREE);
        assert_true(at + sizeof(desc) <= a.stride - 4096);
    }
    for (size_t i = 0; i < sizeof(h[0]); i++) {
        struct pst_arena_header bad = h[0];

        ((uint8_t *)&bad)[i] ^= 4;
        assert_false(pst_arena_header_ok(&bad));
    }
    pst_arenas_close(&a);
}

static int try_open(struct pst_arena_options options, const char **fault)
{
    struct pst_arenas a = {.page_count = 77};
    int r = pst_arenas_open(&a, &options, fault);

    assert_true(r < 0);
    assert_int_equal(a.page_count, 77);
    assert_non_null(*fault);
    assert_int_equal(entry_count(folder), 0);
    return r;
}

static void bad_sizes_are_refused(void **state)
{
    const uint64_t page_sizes[] = {0, 4096, 65535, 65537, 66000, (64 << 10) - 4096, 2ull << 30};
    const char *fault;

    (void)state;
    for (size_t i = 0; i < pst_count_of(page_sizes); i++) {
        struct pst_arena_options o = {.bytes = 8 << 20, .page_bytes = page_sizes[i], .folder = folder};

        fault = NULL;
        assert_int_equal(try_open(o, &fault), -EINVAL);
        assert_non_null(strstr(fault, "page size"));
    }
    assert_int_equal(try_open((struct pst_arena_options){.bytes = 65535, .page_bytes = 65536}, &fault),
                     -EINVAL);
    assert_int_equal(
        try_open((struct pst_arena_options){.bytes = 1 << 20, .page_bytes = 65536, .arena_bytes = 1}, &fault),
        -EINVAL);
    assert_int_equal(
        try_open((struct pst_arena_options){.bytes = 65 << 16, .page_bytes = 65536, .arena_bytes = 65536},
                 &fault),
        -EINVAL);
    assert_non_null(strstr(fault, "at most 64"));
}

static void more_than_there_is_is_refused(void **state)
{
    const uint64_t sizes[] = {1ull << 43, 1ull << 50, 1ull << 63, UINT64_MAX};
    const char *fault;

    (void)state;
    for (size_t i = 0; i < pst_count_of(sizes); i++) {
        struct pst_arena_options o = {
            .bytes = sizes[i], .page_bytes = 2 << 20, .folder = folder, .prefault = true};

        fault = NULL;
        assert_int_equal(try_open(o, &fault), -ENOMEM);
        assert_non_null(strstr(fault, "MiB are left"));
        assert_true(strstr(fault, "cgroup") || strstr(fault, "MemAvailable"));
        o.folder = NULL;
        assert_int_equal(try_open(o, &fault), -ENOMEM);
    }
}

static void bad_folders_are_refused(void **state)
{
    struct pst_arena_options o = {.bytes = 1 << 20, .page_bytes = 64 << 10, .folder = "/nonexistent/x"};
    const char *fault;
    char long_name[400];

    (void)state;
    assert_int_equal(try_open(o, &fault), -ENOENT);
    assert_non_null(strstr(fault, "/nonexistent/x"));
    o.folder = "/proc"; /* a file system of no size */
    assert_int_equal(try_open(o, &fault), -ENOSPC);
    assert_non_null(strstr(fault, "/proc"));
    snprintf(long_name, sizeof(long_name), "%s%0300d", folder, 0);
    for (size_t i = strlen(folder); i < strlen(long_name); i += 2)
        memcpy(long_name + i, "/.", 2);
    o.folder = long_name;
    assert_int_equal(try_open(o, &fault), -ENAMETOOLONG);
}

/* ---- limits, on made-up /proc and /sys ---- */

static void put_file(const char *root, const char *path, const char *text)
{
    char whole[512];
    FILE *f;

    snprintf(whole, sizeof(whole), "%s%s", root, path);
    for (char *slash = strchr(whole + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = 0;
        mkdir(whole, 0700);
        *slash = '/';
    }
    f = fopen(whole, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static void remove_tree(const char *root)
{
    char command[128];

    snprintf(command, sizeof(command), "rm -rf '%s'", root);
    assert_int_equal(system(command), 0);
}

static void limit_is_the_tightest_cgroup(void **state)
{
    char root[] = "/tmp/pst-limit-XXXXXX";
    struct pst_limit limit;

    (void)state;
    assert_non_null(mkdtemp(root));
    pst_limit_read(root, &limit);
    assert_true(limit.left_bytes == UINT64_MAX);

    put_file(root, "/proc/meminfo", "MemTotal:  900000 kB\nMemFree: 1 kB\nMemAvailable:   800000 kB\n");
    pst_limit_read(root, &limit);
    assert_int_equal(limit.left_bytes, 800000 << 10);
    assert_non_null(strstr(limit.text, "MemAvailable"));

    put_file(root, "/proc/self/cgroup", "0::/a/b/c\n");
    put_file(root, "/sys/fs/cgroup/a/b/memory.max", "max\n");
    put_file(root, "/sys/fs/cgroup/a/b/memory.current", "1000\n");
    pst_limit_read(root, &limit);
    assert_int_equal(limit.left_bytes, 800000 << 10);

    put_file(root, "/sys/fs/cgroup/a/memory.max", "104857600\n");
    put_file(root, "/sys/fs/cgroup/a/memory.current", "73400320\n");
    put_file(root, "/sys/fs/cgroup/a/memory.stat",
             "anon 5\ninactive_anon 9\nactive_file 1048576\ninactive_file 2097152\n");
    pst_limit_read(root, &limit);
    assert_int_equal(limit.left_bytes, 33 << 20);
    assert_non_null(strstr(limit.text, "/a: limit 100 MiB, in use 67 MiB"));
    remove_tree(root);
}

static void limit_knows_version_1(void **state)
{
    char root[] = "/tmp/pst-limit-XXXXXX";
    struct pst_limit limit;

    (void)state;
    assert_non_null(mkdtemp(root));
    put_file(root, "/proc/self/cgroup", "5:cpu:/x\n4:memory:/docker/1234\n0::/\n");
    put_file(root, "/sys/fs/cgroup/memory/memory.limit_in_bytes", "52428800\n");
    put_file(root, "/sys/fs/cgroup/memory/memory.usage_in_bytes", "10485760\n");
    put_file(root, "/sys/fs/cgroup/memory/memory.stat", "cache 7\ntotal_inactive_file 1048576\n");
    pst_limit_read(root, &limit);
    assert_int_equal(limit.left_bytes, 41 << 20);
    /* Past its limit already: nothing is left, rather than very much. */
    put_file(root, "/sys/fs/cgroup/memory/docker/1234/memory.limit_in_bytes", "1000\n");
    put_file(root, "/sys/fs/cgroup/memory/docker/1234/memory.usage_in_bytes", "2000\n");
    pst_limit_read(root, &limit);
    assert_int_equal(limit.left_bytes, 0);
    put_file(root, "/proc/self/cgroup", "4:memory:/../../other\n");
    pst_limit_read(root, &limit);
    assert_int_equal(limit.left_bytes, 41 << 20);
    remove_tree(root);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(anonymous_memory),          cmocka_unit_test(left_files_are_swept),
        cmocka_unit_test(pages_are_divided_equally), cmocka_unit_test(files_are_private_and_go),
        cmocka_unit_test(readonly_descriptors_are),  cmocka_unit_test(trailer_tells_what_pages_held),
        cmocka_unit_test(bad_sizes_are_refused),     cmocka_unit_test(more_than_there_is_is_refused),
        cmocka_unit_test(bad_folders_are_refused),   cmocka_unit_test(limit_is_the_tightest_cgroup),
        cmocka_unit_test(limit_knows_version_1),     cmocka_unit_test(filled_arenas_have_huge_pages),
    };

    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
