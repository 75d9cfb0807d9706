/* SPDX-License-Identifier: Apache-2.0 */
/*
 * arena_keep.c: arenas that outlive their process: files with a name that the operator gives, taken up by the
 * next process that asks for it. Whatever is not just what was asked for is refused in words, and left as it
 * is.
 */
#include "mem/arena_priv.h"
#include "base/own.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>

enum { NAME_BYTES_MAX = 64 };

static int check_name(const struct pst_arena_options *o)
{
    size_t len = strlen(o->name);

    for (const char *at = o->name; *at; at++) {
        bool ok = (*at >= 'a' && *at <= 'z') || (*at >= 'A' && *at <= 'Z') || (*at >= '0' && *at <= '9') ||
                  *at == '-' || *at == '_' || *at == '.';

        if (!ok || len > NAME_BYTES_MAX)
            return pst_fail(-EINVAL, "name '%.70s' is not up to %d letters, digits, '-', '_' and '.'",
                            o->name, NAME_BYTES_MAX);
    }
    return len && o->folder ? 0 : pst_fail(-EINVAL, "a name and a folder are needed to keep arenas");
}

/* Not as those of nameless arenas: a sweep of those leaves it alone. Return: 0 or -ENAMETOOLONG. */
static int path_of(const struct pst_arena_options *o, uint32_t arena, char path[PST_ARENA_PATH_BYTES])
{
    int n = snprintf(path, PST_ARENA_PATH_BYTES, "%s/penstock-%s-%u.kept", o->folder, o->name, arena);

    if (n > 0 && n < PST_ARENA_PATH_BYTES)
        return 0;
    path[0] = 0;
    return pst_fail(-ENAMETOOLONG, "folder %s: name too long", o->folder);
}

/* ---- taking up ---- */

/* A file that this process may take for its own. */
static int check_file(int fd, const char *path, struct stat *st)
{
    if (fstat(fd, st) < 0)
        return pst_fail(-errno, "%s: %s", path, strerror(errno));
    if (!S_ISREG(st->st_mode) || st->st_uid != geteuid() || st->st_mode & PST_OWN_USES)
        return pst_fail(-EPERM, "%s: not a file of this user that no other may use", path);
    return 0;
}

static int lock_file(int fd, const char *path, const struct stat *st)
{
    struct pst_arena_holder holder = {0};

    if (flock(fd, LOCK_EX | LOCK_NB) == 0)
        return 0;
    if (errno != EWOULDBLOCK)
        return pst_fail(-errno, "locking %s: %s", path, strerror(errno));
    if (st->st_size < PST_ARENA_HEADER_ROOM ||
        pread(fd, &holder, sizeof(holder), st->st_size - PST_ARENA_HEADER_ROOM + PST_ARENA_HOLDER_AT) !=
            sizeof(holder))
        holder.pid = 0;
    return pst_fail(-EBUSY, "%s: in use by process %u", path, holder.pid);
}

static int check_header(const struct pst_arena_header *h, const char *path)
{
    if (memcmp(h->magic, PST_ARENA_MAGIC, sizeof(h->magic)) != 0)
        return pst_fail(-EBADMSG, "%s: not an arena of penstock's: move it away", path);
    if (h->version != PST_ARENA_VERSION)
        return pst_fail(-EPROTONOSUPPORT,
                        "%s: has layout version %u, this program knows %d: start the one that it is of, "
                        "or remove it",
                        path, h->version, PST_ARENA_VERSION);
    if (!pst_arena_header_ok(h))
        return pst_fail(-EBADMSG, "%s: its header is damaged: move it away", path);
    return 0;
}

/* Whether the arena is the one that these options would make. */
static int check_layout(const struct pst_arenas *a, const struct pst_arena_header *h, uint64_t file_bytes,
                        const char *path)
{
    if (h->page_bytes != a->page_bytes || h->arena_pages != a->arena_pages ||
        h->arena_count != a->arena_count)
        return pst_fail(-EINVAL,
                        "%s: of %u arenas of %u pages of %llu KiB, asked for are %u of %u of %llu KiB: give "
                        "the same dram, page_size and arena_size, or remove the files",
                        path, h->arena_count, h->arena_pages, (unsigned long long)h->page_bytes >> 10,
                        a->arena_count, a->arena_pages, (unsigned long long)a->page_bytes >> 10);
    if (h->stride != a->stride || file_bytes != a->stride)
        return pst_fail(-EBADMSG, "%s: has %llu bytes instead of %llu: it was cut off; remove it", path,
                        (unsigned long long)file_bytes, (unsigned long long)a->stride);
    return 0;
}

/* Opens, locks and checks an arena. Return: 0, -ENOENT there is none, or refused. */
static int take_up_file(struct pst_arenas *a, const struct pst_arena_options *o, uint32_t arena,
                        struct pst_arena_header *h)
{
    char *path = a->paths[arena], link[32];
    struct stat st;
    int fd, r = path_of(o, arena, path);

    pst_assert(arena < PST_ARENAS_MAX);
    pst_assert(a->fds[arena] < 0);
    pst_assert(a->fds_readonly[arena] < 0);
    if (r < 0)
        return r;
    fd = a->fds[arena] = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0 && errno == ENOENT)
        return -ENOENT;
    if (fd < 0)
        return pst_fail(-errno, "%s: %s", path,
                        errno == ELOOP ? "a symbolic link: remove it" : strerror(errno));
    r = check_file(fd, path, &st);
    if (r == 0)
        r = lock_file(fd, path, &st);
    if (r == 0 && (st.st_size < PST_ARENA_HEADER_ROOM ||
                   pread(fd, h, sizeof(*h), st.st_size - PST_ARENA_HEADER_ROOM) != sizeof(*h)))
        *h = (struct pst_arena_header){.version = 0};
    if (r == 0)
        r = check_header(h, path);
    if (r == 0)
        r = check_layout(a, h, (uint64_t)st.st_size, path);
    if (r < 0)
        return r;
    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    a->fds_readonly[arena] = open(link, O_RDONLY | O_CLOEXEC);
    if (a->fds_readonly[arena] < 0)
        a->fds_readonly[arena] = pst_own_open(AT_FDCWD, path, O_RDONLY);
    /* A file with holes is filled again, lest the tmpfs have no room for them when they are touched. */
    a->holes |= (uint64_t)st.st_blocks * 512 < a->stride;
    return a->fds_readonly[arena] < 0 ? pst_fail(-errno, "opening %s for reading: %s", path, strerror(errno))
                                      : 0;
}

static int check_member(const struct pst_arena_header *first, const struct pst_arena_header *h,
                        uint32_t arena, const char *path)
{
    pst_assert(pst_arena_header_ok(first));
    pst_assert(pst_arena_header_ok(h));
    if (h->arena_index == arena && h->set_id == first->set_id)
        return 0;
    return pst_fail(-EBADMSG, "%s: belongs to other arenas than the first one of its name: remove them",
                    path);
}

int pst_arenas_take_up(struct pst_arenas *a, const struct pst_arena_options *o)
{
    struct pst_arena_header first = {.version = 0}, h = first;
    int r = check_name(o);

    pst_assert(!a->taken_up);
    pst_assert(a->arena_count > 0);
    pst_assert(a->page_bytes == o->page_bytes);
    a->kept = true; /* from here on nothing is unlinked that this process has not made */
    if (r == 0)
        r = take_up_file(a, o, 0, &first);
    if (r == -ENOENT) { /* the first one is made last: none, or the others have lost it */
        int second = take_up_file(a, o, 1, &h);

        if (second == 0)
            return pst_fail(-EBADMSG, "%s: the first arena of its name is gone: remove it", a->paths[1]);
        a->kept = false;
        a->paths[0][0] = a->paths[1][0] = 0;
        return second;
    }
    if (r == 0)
        r = check_member(&first, &first, 0, a->paths[0]);
    for (uint32_t i = 1; i < a->arena_count && r == 0; i++) {
        r = take_up_file(a, o, i, &h);
        if (r == -ENOENT)
            return pst_fail(-EBADMSG, "%s: is missing: remove the others of its name", a->paths[i]);
        if (r == 0)
            r = check_member(&first, &h, i, a->paths[i]);
    }
    if (r < 0)
        return r;
    pst_assert(a->kept);
    pst_assert(a->fds_readonly[a->arena_count - 1] >= 0);
    memcpy(a->seeds, first.seeds, sizeof(a->seeds));
    a->taken_up = true;
    return 0;
}

void pst_arenas_lock_turn(const struct pst_arenas *a)
{
    struct flock own = {.l_type = F_RDLCK, .l_whence = SEEK_SET, .l_start = a->turn, .l_len = 1};

    pst_assert(a->kept);
    for (uint32_t i = 0; i < a->arena_count; i++)
        fcntl(a->fds_readonly[i], F_OFD_SETLK, &own);
}

bool pst_arenas_in_use(const struct pst_arenas *a, uint32_t first_turn, uint32_t last_turn)
{
    pst_assert(a->arena_count > 0);
    pst_assert(first_turn <= last_turn);
    for (uint32_t i = 0; i < a->arena_count; i++) {
        struct flock lock = {.l_type = F_WRLCK,
                             .l_whence = SEEK_SET,
                             .l_start = first_turn,
                             .l_len = (off_t)last_turn - first_turn + 1};

        /* Where there are no such locks nobody can tell, and the worst is assumed. */
        if (fcntl(a->fds[i], F_OFD_GETLK, &lock) < 0 || lock.l_type != F_UNLCK)
            return true;
    }
    return false;
}

/* ---- making ---- */

/* Takes the names of all arenas behind @last away again. Return: @error. */
static int arenas_unname(const struct pst_arenas *a, uint32_t last, int error)
{
    pst_assert(last < a->arena_count);
    pst_assert(error < 0);
    for (uint32_t i = last + 1; i < a->arena_count; i++)
        unlink(a->paths[i]);
    return error;
}

int pst_arenas_name(struct pst_arenas *a, const struct pst_arena_options *o)
{
    pst_assert(a->kept);
    pst_assert(!a->taken_up);
    for (uint32_t i = a->arena_count; i-- > 0;) {
        char link[32], path[PST_ARENA_PATH_BYTES];
        int r = path_of(o, i, path);

        pst_assert(a->fds[i] >= 0);
        if (r < 0)
            return r;
        snprintf(link, sizeof(link), "/proc/self/fd/%d", a->fds[i]);
        if (linkat(AT_FDCWD, link, AT_FDCWD, path, AT_SYMLINK_FOLLOW) < 0)
            return arenas_unname(a, i, pst_fail(-errno, "creating %s: %s", path, strerror(errno)));
        memcpy(a->paths[i], path, sizeof(path));
    }
    return 0;
}
