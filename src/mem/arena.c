/* SPDX-License-Identifier: Apache-2.0 */
/*
 * arena.c: one reserved address range with every arena in it, and at each arena's end a trailer from which a
 * later process can tell what its pages held. What cannot be had is refused before anything is touched: a
 * process that is killed while it fills its arenas cannot say why.
 */
#include "mem/arena_priv.h"
#include "mem/limit.h"
#include "base/hash.h"
#include "base/own.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

static const uint64_t RANGE_BYTES_MAX = 1ull << 44;      /* offsets / 4096 fit in 32 bits */
static const uint64_t RANGE_FINE_BYTES_MAX = 1ull << 43; /* offsets / 8 fit in the indexes' 40 bits */
static const uint64_t RANGE_ALIGN = 2 << 20;             /* a huge page */

#define FILE_PREFIX "penstock-"
#define FILE_SUFFIX ".arena"

static unsigned long long in_mib(uint64_t bytes)
{
    return bytes >> 20;
}

/* ---- what is asked, and whether it can be had ---- */

static uint64_t stride_of(uint64_t arena_pages, uint64_t page_bytes)
{
    pst_assert(arena_pages > 0);
    pst_assert(page_bytes >= PST_PAGE_BYTES_MIN);
    return pst_round_up(arena_pages * (page_bytes + sizeof(struct pst_page_desc)) + PST_ARENA_NOTES_BYTES +
                            PST_ARENA_HEADER_ROOM,
                        page_bytes);
}

/* Divides the pages over equal arenas; what does not divide is left out. */
static int arenas_lay_out(struct pst_arenas *a, const struct pst_arena_options *o)
{
    uint64_t page_count = o->bytes / o->page_bytes;
    uint64_t arena_count = (uint64_t)__builtin_popcountll(pst_numa_nodes());

    pst_assert(o->page_bytes >= PST_PAGE_BYTES_MIN && o->page_bytes <= PST_PAGE_BYTES_MAX);
    if (o->bytes > RANGE_BYTES_MAX)
        return pst_fail(-EINVAL, "%llu MiB asked, at most %llu MiB possible", in_mib(o->bytes),
                        in_mib(RANGE_BYTES_MAX));
    if (page_count == 0)
        return pst_fail(-EINVAL, "%llu bytes hold no page of %llu bytes", (unsigned long long)o->bytes,
                        (unsigned long long)o->page_bytes);
    if (o->arena_bytes > 0 && o->arena_bytes < o->page_bytes)
        return pst_fail(-EINVAL, "an arena of %llu bytes holds no page of %llu bytes",
                        (unsigned long long)o->arena_bytes, (unsigned long long)o->page_bytes);
    if (o->arena_bytes > 0)
        arena_count = pst_div_up(page_count, o->arena_bytes / o->page_bytes);
    arena_count = pst_min(pst_max(arena_count, 1), page_count);
    if (arena_count > PST_ARENAS_MAX)
        return pst_fail(-EINVAL, "%llu arenas asked, at most %d possible: make arenas larger",
                        (unsigned long long)arena_count, PST_ARENAS_MAX);

    a->page_bytes = o->page_bytes;
    a->arena_count = (uint32_t)arena_count;
    a->arena_pages = (uint32_t)(page_count / arena_count);
    a->page_count = a->arena_pages * a->arena_count;
    a->stride = stride_of(a->arena_pages, a->page_bytes);
    pst_assert(a->page_count > 0 && a->page_count <= page_count);
    pst_assert(a->stride % a->page_bytes == 0);
    if (a->stride * arena_count > RANGE_BYTES_MAX)
        return pst_fail(-EINVAL, "arenas of %llu MiB asked, at most %llu MiB possible",
                        in_mib(a->stride * arena_count), in_mib(RANGE_BYTES_MAX));
    pst_assert(a->stride > (uint64_t)a->arena_pages * a->page_bytes);
    a->cell_shift = a->stride * arena_count <= RANGE_FINE_BYTES_MAX ? 3 : 4;
    return 0;
}

static int check_options(const struct pst_arena_options *o)
{
    if (o->page_bytes < PST_PAGE_BYTES_MIN || o->page_bytes > PST_PAGE_BYTES_MAX || o->page_bytes % 4096)
        return pst_fail(-EINVAL, "page size %llu is not a multiple of 4096 from %d to %d",
                        (unsigned long long)o->page_bytes, PST_PAGE_BYTES_MIN, PST_PAGE_BYTES_MAX);
    return 0;
}

static int check_room(const struct pst_arena_options *o, uint64_t bytes)
{
    struct pst_limit limit;
    struct statvfs fs;

    pst_limit_read("", &limit);
    if (bytes > limit.left_bytes)
        return pst_fail(-ENOMEM, "arenas need %llu MiB, only %llu MiB are left: %s", in_mib(bytes),
                        in_mib(limit.left_bytes), limit.text);
    if (!o->folder)
        return 0;
    if (statvfs(o->folder, &fs) < 0)
        return pst_fail(-errno, "folder %s: %s", o->folder, strerror(errno));
    if (bytes > (uint64_t)fs.f_bavail * fs.f_frsize)
        return pst_fail(-ENOSPC, "arenas need %llu MiB, only %llu MiB of %llu MiB are free in %s",
                        in_mib(bytes), in_mib((uint64_t)fs.f_bavail * fs.f_frsize),
                        in_mib((uint64_t)fs.f_blocks * fs.f_frsize), o->folder);
    return 0;
}

/* ---- mapping ---- */

static int arenas_reserve_range(struct pst_arenas *a)
{
    bool page_is_power = (a->page_bytes & (a->page_bytes - 1)) == 0;
    uint64_t align = page_is_power ? pst_max(a->page_bytes, RANGE_ALIGN) : RANGE_ALIGN;
    uint64_t bytes = a->stride * a->arena_count, before;
    uint8_t *p;

    pst_assert(!a->base);
    pst_assert(a->arena_count > 0);
    pst_assert(bytes <= RANGE_BYTES_MAX);
    p = mmap(NULL, bytes + align, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED)
        return pst_fail(-errno, "reserving %llu MiB of addresses: %s", in_mib(bytes + align),
                        strerror(errno));
    before = pst_round_up((uintptr_t)p, align) - (uintptr_t)p;
    if (before > 0)
        munmap(p, before);
    if (before < align)
        munmap(p + before + bytes, align - before);
    a->base = p + before;
    pst_assert((uintptr_t)a->base % align == 0);
    return 0;
}

/* A file of memory that has no name: gone with the process, but its parts can be mapped again behind one
 * another. */
static int make_nameless(struct pst_arenas *a, uint32_t arena)
{
    pst_assert(arena < a->arena_count);
    pst_assert(a->fds[arena] < 0);
    a->fds[arena] = memfd_create("penstock", MFD_CLOEXEC);
    if (a->fds[arena] < 0 || ftruncate(a->fds[arena], (off_t)a->stride) < 0)
        return pst_fail(-errno, "memory file of %llu MiB: %s", in_mib(a->stride), strerror(errno));
    return 0;
}

static bool is_own_file(const struct stat *st)
{
    return S_ISREG(st->st_mode) && st->st_uid == geteuid();
}

/* The lock ends with the process, however it ends: a file without one is left from a node that was killed. */
static void sweep_left_files(const char *folder)
{
    struct dirent *entry;
    DIR *dir = opendir(folder);

    while (dir && (entry = readdir(dir))) {
        size_t len = strlen(entry->d_name);
        struct stat st;
        int fd;

        if (strncmp(entry->d_name, FILE_PREFIX, strlen(FILE_PREFIX)) != 0 || len < sizeof(FILE_SUFFIX) ||
            strcmp(entry->d_name + len - strlen(FILE_SUFFIX), FILE_SUFFIX) != 0)
            continue;
        if (fstatat(dirfd(dir), entry->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0 || !is_own_file(&st))
            continue;
        /* Another user may have put it there by now: a pipe or a lease would hold up whoever waits. */
        fd = openat(dirfd(dir), entry->d_name, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
        if (fd < 0)
            continue;
        if (fstat(fd, &st) == 0 && is_own_file(&st) && flock(fd, LOCK_EX | LOCK_NB) == 0)
            unlinkat(dirfd(dir), entry->d_name, 0);
        close(fd);
    }
    if (dir)
        closedir(dir);
}

/* The name appears when the lock is held already: no other node's sweep takes the file for one that was left.
 */
static int name_file(struct pst_arenas *a, uint32_t arena, const char *folder, const char *link,
                     uint64_t set_id)
{
    char *path = a->paths[arena];
    int n = snprintf(path, PST_ARENA_PATH_BYTES, "%s/" FILE_PREFIX "%d-%016llx-%u" FILE_SUFFIX, folder,
                     (int)getpid(), (unsigned long long)set_id, arena);
    int error = n < PST_ARENA_PATH_BYTES ? 0 : ENAMETOOLONG;

    pst_assert(arena < a->arena_count);
    pst_assert(n > 0);
    if (!error && linkat(AT_FDCWD, link, AT_FDCWD, path, AT_SYMLINK_FOLLOW) < 0)
        error = errno;
    if (error)
        path[0] = 0; /* not ours to unlink */
    return error ? pst_fail(-error, "creating a file in %s: %s", folder, strerror(error)) : 0;
}

/* One that is kept gets its name when it is complete. */
static int make_file(struct pst_arenas *a, uint32_t arena, const struct pst_arena_options *o, uint64_t set_id)
{
    char link[32], *path = a->paths[arena];
    int r = 0, fd = open(o->folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);

    pst_assert(arena < a->arena_count);
    pst_assert(a->fds[arena] < 0);
    pst_assert(!path[0]);
    a->fds[arena] = fd;
    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    if (fd < 0 || flock(fd, LOCK_EX) < 0 || fchmod(fd, 0600) < 0)
        return pst_fail(-errno, "creating a file in %s: %s", o->folder, strerror(errno));
    if (!o->name)
        r = name_file(a, arena, o->folder, link, set_id);
    if (r < 0)
        return r;
    if (ftruncate(fd, (off_t)a->stride) < 0)
        return pst_fail(-errno, "sizing a file in %s: %s", o->folder, strerror(errno));
    /* A new description of the same file: a duplicate would share the right to write. */
    a->fds_readonly[arena] = open(link, O_RDONLY | O_CLOEXEC);
    if (a->fds_readonly[arena] < 0)
        a->fds_readonly[arena] = pst_own_open(AT_FDCWD, path, O_RDONLY);
    if (a->fds_readonly[arena] < 0)
        return pst_fail(-errno, "opening a file in %s for reading: %s", o->folder, strerror(errno));
    return 0;
}

static int map_arena(struct pst_arenas *a, uint32_t arena)
{
    uint8_t *at = a->base + arena * a->stride;
    int fd = a->fds[arena];

    pst_assert(a->base);
    pst_assert((uintptr_t)at % 4096 == 0);
    pst_assert(fd >= 0);
    pst_assert(arena < a->arena_count);
    if (mmap(at, a->stride, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE | MAP_FIXED, fd, 0) ==
        MAP_FAILED)
        return pst_fail(-errno, "mapping arena %u of %llu MiB: %s", arena, in_mib(a->stride),
                        strerror(errno));
    madvise(at, a->stride, MADV_HUGEPAGE); /* as far as the system allows them */
    madvise(at, a->stride, MADV_DONTDUMP); /* a core file is not the place for everyone's values */
    return 0;
}

static void place_on_nodes(const struct pst_arenas *a)
{
    uint64_t nodes = pst_numa_nodes(), left = nodes;

    pst_assert(a->base);
    if (__builtin_popcountll(nodes) < 2)
        return;
    for (uint32_t i = 0; i < a->arena_count; i++, left &= left - 1) {
        if (!left)
            left = nodes;
        pst_numa_prefer(a->base + i * a->stride, a->stride, (uint32_t)__builtin_ctzll(left));
    }
}

/* ---- trailer ---- */

static struct pst_arena_header *header_of(const struct pst_arenas *a, uint32_t arena)
{
    pst_assert(a->base);
    pst_assert(arena < a->arena_count);
    return (void *)(a->base + (arena + 1) * a->stride - PST_ARENA_HEADER_ROOM);
}

static uint32_t header_crc(const struct pst_arena_header *h)
{
    return pst_crc32c(0, h, offsetof(struct pst_arena_header, crc));
}

static void write_header(const struct pst_arenas *a, uint32_t arena, uint64_t set_id)
{
    struct pst_arena_header *h = header_of(a, arena);

    *h = (struct pst_arena_header){
        .magic = PST_ARENA_MAGIC,
        .version = PST_ARENA_VERSION,
        .desc_bytes = sizeof(struct pst_page_desc),
        .page_bytes = a->page_bytes,
        .stride = a->stride,
        .arena_pages = a->arena_pages,
        .arena_index = arena,
        .arena_count = a->arena_count,
        .set_id = set_id,
        .seeds = {a->seeds[0], a->seeds[1]},
    };
    h->crc = header_crc(h);
    pst_assert(pst_arena_header_ok(h));
}

const struct pst_arena_header *pst_arena_header(const struct pst_arenas *arenas, uint32_t arena)
{
    return header_of(arenas, arena);
}

bool pst_arena_header_ok(const struct pst_arena_header *h)
{
    return memcmp(h->magic, PST_ARENA_MAGIC, sizeof(h->magic)) == 0 && h->version == PST_ARENA_VERSION &&
           h->desc_bytes == sizeof(struct pst_page_desc) && h->crc == header_crc(h);
}

struct pst_page_desc *pst_page_desc(const struct pst_arenas *arenas, uint32_t page)
{
    uint32_t arena = page / arenas->arena_pages;
    struct pst_page_desc *descs;

    pst_assert(page < arenas->page_count);
    descs = (void *)(arenas->base + arena * arenas->stride + arenas->arena_pages * arenas->page_bytes);
    return &descs[page % arenas->arena_pages];
}

void *pst_arenas_notes(const struct pst_arenas *arenas)
{
    pst_assert(arenas->kept);
    return (uint8_t *)header_of(arenas, 0) - PST_ARENA_NOTES_BYTES;
}

/* For the message that another process gets, and for who comes next. */
static void write_holder(struct pst_arenas *a)
{
    pst_assert(a->base);
    pst_assert(a->arena_count > 0);
    for (uint32_t i = 0; i < a->arena_count; i++) {
        struct pst_arena_holder *holder = (void *)((uint8_t *)header_of(a, i) + PST_ARENA_HOLDER_AT);

        if (i == 0)
            a->turn = a->taken_up ? holder->turn + 1 : 0;
        *holder = (struct pst_arena_holder){.pid = (uint32_t)getpid(), .turn = a->turn};
    }
    if (a->kept)
        pst_arenas_lock_turn(a);
}

/* ---- open, close ---- */

static int arenas_map_all(struct pst_arenas *a)
{
    int r = arenas_reserve_range(a);

    pst_assert(a->arena_count <= PST_ARENAS_MAX);
    for (uint32_t i = 0; i < a->arena_count && r == 0; i++)
        r = map_arena(a, i);
    if (r == 0)
        place_on_nodes(a);
    pst_assert(r <= 0);
    return r;
}

static int arenas_fill_all(const struct pst_arenas *a, const struct pst_arena_options *o)
{
    int r = o->prefault ? pst_arenas_fill(a) : 0;

    pst_assert(r <= 0);
    return r < 0 ? pst_fail(r, "filling arenas of %llu MiB in %s: %s", in_mib(a->stride * a->arena_count),
                            o->folder ? o->folder : "memory", strerror(-r))
                 : 0;
}

static int arenas_build(struct pst_arenas *a, const struct pst_arena_options *o)
{
    uint64_t set_id;
    int r = check_room(o, a->stride * a->arena_count);

    pst_assert(!a->taken_up);
    pst_assert(!a->base);
    pst_random(&set_id, sizeof(set_id));
    pst_random(a->seeds, sizeof(a->seeds));
    for (uint32_t i = 0; i < a->arena_count && r == 0; i++)
        r = o->folder ? make_file(a, i, o, set_id) : make_nameless(a, i);
    if (r == 0)
        r = arenas_map_all(a);
    if (r == 0)
        r = arenas_fill_all(a, o);
    if (r < 0)
        return r;
    for (uint32_t i = 0; i < a->arena_count; i++)
        write_header(a, i, set_id);
    a->kept = o->name != NULL;
    write_holder(a);
    return a->kept ? pst_arenas_name(a, o) : 0;
}

static int arenas_take_up(struct pst_arenas *a, const struct pst_arena_options *o)
{
    int r = pst_arenas_take_up(a, o);

    pst_assert(o->name);
    pst_assert(!a->base);
    if (r == 0)
        r = arenas_map_all(a);
    if (r == 0 && a->holes)
        r = arenas_fill_all(a, o);
    if (r == 0)
        write_holder(a);
    return r;
}

int pst_arenas_open(struct pst_arenas *arenas, const struct pst_arena_options *options, const char **fault)
{
    struct pst_arenas a = {.base = NULL};
    int r = check_options(options);

    for (int i = 0; i < PST_ARENAS_MAX; i++)
        a.fds[i] = a.fds_readonly[i] = -1;
    if (r == 0 && options->folder)
        sweep_left_files(options->folder);
    if (r == 0 && !options->name) /* before the layout's arithmetic, which an absurd size should not reach */
        r = check_room(options, options->bytes);
    if (r == 0)
        r = arenas_lay_out(&a, options);
    if (r == 0)
        r = options->name ? arenas_take_up(&a, options) : -ENOENT;
    if (r == -ENOENT)
        r = arenas_build(&a, options);
    if (r < 0) {
        pst_arenas_close(&a);
        if (fault)
            *fault = pst_error_text();
        return r;
    }
    pst_assert(a.base);
    pst_assert(a.page_count == a.arena_pages * a.arena_count);
    pst_assert(a.kept == (options->name != NULL));
    *arenas = a;
    return 0;
}

void pst_arenas_close(struct pst_arenas *arenas)
{
    pst_assert(!arenas || arenas->arena_count <= PST_ARENAS_MAX);
    if (!arenas || !arenas->arena_count)
        return;
    if (arenas->base)
        munmap(arenas->base, arenas->stride * arenas->arena_count);
    for (uint32_t i = 0; i < PST_ARENAS_MAX; i++) {
        pst_close_fd(&arenas->fds[i]);
        pst_close_fd(&arenas->fds_readonly[i]);
        if (arenas->paths[i][0] && !arenas->kept)
            unlink(arenas->paths[i]);
    }
    memset(arenas, 0, sizeof(*arenas));
}
